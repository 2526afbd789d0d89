"""The ultra tier by the real binary: workflows that are cut, gone on with, and beside which other
sessions end.
"""

import json
import signal
import subprocess
import threading

from tests.acceptance.driving import Agent, Place, ended
from tests.acceptance.loopback import Asked, Loopback, Refuses, Says, Use

JOB = "Write the file that is missing."


def lists(*steps: tuple[int, str, object]) -> str:
    numbers, subtasks, access = zip(*steps, strict=True)
    return (
        f"model_id = {list(numbers)}\nsubtasks = {json.dumps(subtasks)}\naccess_list = "
        f"{json.dumps(access)}"
    )


def plans(asked: Asked) -> bool:
    return "You plan." in asked.text


def staged(place: Place, server: Loopback) -> threading.Event:
    """Two write a file each in a worktree, the third chooses once the event is set."""
    place.configure(
        Agent("a"),
        Agent("b", "middle"),
        Agent("c", "strong"),
        more='conductor = { agent = "c", rounds = 1 }',
    )
    may = threading.Event()
    plan = Says(lists((0, JOB, []), (1, JOB, []), (2, "Choose.", [0, 1])))
    server.react(
        "c",
        lambda asked: plan if plans(asked) else Says("CHOOSE 1", pause=0 if may.is_set() else 30),
    )
    for name in "ab":
        write = Says("", (Use("write", {"path": f"{name}.txt", "content": name}),))
        server.react(
            name, lambda asked, write=write: Says("It is there.") if asked.results else write
        )
    return may


def test_work_in_worktrees_outlives_ctrl_c_and_the_sessions_of_others(
    place: Place, server: Loopback
) -> None:
    may = staged(place, server)
    process = place.start("run", "--tier", "ultra", "--yolo", "write the file that is missing")
    server.wait_for("c", 2)
    other = place.folder / "other"
    other.mkdir()
    subprocess.run(["git", "init", "-q", "--template="], cwd=other, check=True, env=place.environ())
    server.play("d", Says("Nothing is here."))
    place.configure(Agent("d"), more="")
    assert place.fugu("run", "what is here?", folder=other).code == 0, (
        "its end removes what nobody needs"
    )
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 4
    may = staged(place, server)
    may.set()
    done = place.fugu("run", "--continue", "--yolo")
    assert "the work of turn 1 is taken over" in done.err, done.err
    assert (place.repo / "a.txt").read_text() == "a"
    assert not list((place.home / "data" / "fugu" / "worktrees").glob("*/*-*"))


def test_a_workflow_goes_on_as_one_unless_another_tier_is_named(
    place: Place, server: Loopback
) -> None:
    may = staged(place, server)
    process = place.start("run", "--tier", "ultra", "--yolo", "write the file that is missing")
    server.wait_for("c", 2)
    process.kill()
    assert (
        "coordinator: ultra (then cascade) · agents: a (cheap), b (middle), c (strong)"
        in ended(process).err
    )
    assert "decided by ultra (then cascade)" in place.fugu("trace", "latest").out
    may.set()
    (interrupted,) = place.sessions()
    again = place.fugu(
        "run", "--continue", "--fork-session", "--tier", "fugu", "--yolo", "--max-turns", "1"
    )
    assert "cascade" in again.err and "by cascade" in place.fugu("trace", "latest").out
    done = place.fugu("run", "--resume", interrupted.stem, "--yolo")
    assert "the work of turn 1 is taken over" in done.err, done.err


def step_of(asked: Asked) -> str:
    """The step that a request is about: its subtask is named last."""
    return max("wxyz", key=lambda step: asked.text.rfind(f"subtask-of-{step}"))


def answers_a_step(asked: Asked) -> Says:
    step = step_of(asked)
    if step != "z" and not asked.results:
        return Says("", (Use("read", {"path": f"{step}.txt"}),))
    return Says(f"answer-of-{step}")


def test_a_step_is_shown_the_steps_it_may_read_and_nothing_of_the_others(
    place: Place, server: Loopback
) -> None:
    """Three steps read a file each; a fourth may read the second, its calls included. Two agents
    take two each.
    """
    place.files({f"{step}.txt": f"content-of-{step}\n" for step in "wxy"})
    place.commit()
    place.configure(
        Agent("a"),
        Agent("b", "middle"),
        Agent("c", "strong"),
        more='conductor = { agent = "c", rounds = 1 }',
    )
    steps = [
        (0, "subtask-of-w", []),
        (1, "subtask-of-x", []),
        (0, "subtask-of-y", []),
        (1, "subtask-of-z", [1]),
    ]
    server.play("c", Says(lists(*steps)))
    server.react("a", answers_a_step)
    server.react("b", answers_a_step)
    done = place.fugu("run", "--tier", "ultra", "tell me what the files hold")
    assert (done.code, done.out) == (0, "answer-of-z\n"), done.err
    asked = [*server.asked("a"), *server.asked("b")]
    assert sorted(step_of(one) for one in asked) == list("wwxxyyz")
    for one in asked:
        step = step_of(one)
        own = {
            f"subtask-of-{step}",
            *((f"content-of-{step}",) if step != "z" and one.results else ()),
        }
        readable = {"answer-of-x"} if step == "z" else set()
        told = {
            f"{kind}-of-{other}" for kind in ("subtask", "content", "answer") for other in "wxyz"
        }
        seen = {word for word in told if word in one.text}
        assert own | readable <= seen, step
        assert seen - own - readable <= (
            {"subtask-of-x", "content-of-x"} if step == "z" else set()
        ), step


def test_a_step_that_two_servers_refuse_is_planned_again_without_it(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("a"), Agent("b", "middle"), Agent("c", "strong"), more="")

    def react(asked: Asked) -> Says | Refuses:
        if plans(asked):
            is_second = "could not take it as it was. Plan it in other words" in asked.text
            return Says(lists((2, "Say hello.", []) if is_second else (0, "FORBIDDEN WORDS", [])))
        if "FORBIDDEN WORDS" in asked.text:
            return Refuses(400, "not this text")
        return Says("Hello." if "Say hello." in asked.text else "Nobody planned this.")

    for name in "abc":
        server.react(name, react)
    done = place.fugu("run", "--tier", "ultra", "say hello")
    assert (done.code, done.out.strip()) == (0, "Hello."), done.err
    assert sum(plans(asked) for name in "abc" for asked in server.asked(name)) == 2
