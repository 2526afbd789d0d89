"""The ultra tier by the real binary: workflows that are cut, gone on with, and beside which other sessions end."""

import json
import signal
import subprocess
import threading

from tests.e2e.driving import Agent, Place, ended
from tests.e2e.loopback import Asked, Loopback, Says, Use

JOB = "Write the file that is missing."


def lists(*steps: tuple[int, str, object]) -> str:
    numbers, subtasks, access = zip(*steps, strict=True)
    return f"model_id = {list(numbers)}\nsubtasks = {json.dumps(subtasks)}\naccess_list = {json.dumps(access)}"


def plans(asked: Asked) -> bool:
    return "You plan." in asked.text


def staged(place: Place, server: Loopback) -> threading.Event:
    """Two write a file each in a worktree, the third chooses once the event is set."""
    place.configure(
        Agent("a"), Agent("b", "middle"), Agent("c", "strong"), more='conductor = { agent = "c", rounds = 1 }'
    )
    may = threading.Event()
    plan = Says(lists((0, JOB, []), (1, JOB, []), (2, "Choose.", [0, 1])))
    server.react("c", lambda asked: plan if plans(asked) else Says("CHOOSE 1", pause=0 if may.is_set() else 30))
    for name in "ab":
        write = Says("", (Use("write", {"path": f"{name}.txt", "content": name}),))
        server.react(name, lambda asked, write=write: Says("It is there.") if asked.results else write)
    return may


def test_work_in_worktrees_outlives_ctrl_c_and_the_sessions_of_others(place: Place, server: Loopback) -> None:
    may = staged(place, server)
    process = place.start("run", "--tier", "ultra", "--yolo", "write the file that is missing")
    server.wait_for("c", 2)
    other = place.folder / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", "--template="], cwd=other, check=True, env=place.environ())
    server.play("d", Says("Nothing is here."))
    place.configure(Agent("d"), more="")
    assert place.fugu("run", "what is here?", folder=other).code == 0, "its end removes what nobody needs"
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 4
    may = staged(place, server)
    may.set()
    done = place.fugu("run", "--continue", "--yolo")
    assert "the work of turn 1 is taken over" in done.err, done.err
    assert (place.repo / "a.txt").read_text() == "a"
    assert not list((place.home / "data" / "fugu" / "worktrees").glob("*/*-*"))


def test_a_workflow_goes_on_as_one_unless_another_tier_is_named(place: Place, server: Loopback) -> None:
    may = staged(place, server)
    process = place.start("run", "--tier", "ultra", "--yolo", "write the file that is missing")
    server.wait_for("c", 2)
    process.kill()
    assert "router: ultra (then cascade) · models: a (cheap), b (middle), c (strong)" in ended(process).err
    assert "decided by ultra (then cascade)" in place.fugu("trace", "latest").out
    may.set()
    again = place.fugu("run", "--continue", "--fork-session", "--tier", "fugu", "--yolo", "--max-turns", "1")
    assert "cascade" in again.err and "by cascade" in place.fugu("trace", "latest").out
    done = place.fugu("run", "--resume", place.sessions()[0].stem, "--yolo")
    assert "the work of turn 1 is taken over" in done.err, done.err
