"""`fugu replay` from the command line, on sessions of scripted agents."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.config import Config
from fugu_cli.session import log, store, views
from fugu_cli.session.events import Asked
from tests.acceptance.test_cli_run import BROKEN, EDIT, FIXED, READ, TESTS, project

VAIN = '[[step]]\ntext = "I see nothing wrong."\n'
CAN = f'[[step]]\ncalls = [{READ}]\n[[step]]\ncalls = [{EDIT}]\n[[step]]\ntext = "Fixed."\n'
YES = '[[step]]\ntext = "ACCEPT: the tests pass."\n'
PRICE = "price = { input = 1000, output = 1000 }\n"


def pool(**scripts: str) -> Path:
    """A repository with a failing check, and a pool of scripted agents: `small` is cheap, `large`
    strong.
    """
    root = project()
    entries = []
    for name, slot in (("small", "cheap"), ("large", "strong")):
        script(name, scripts[name])
        place = root.parent / f"{name}.toml"
        entries.append(
            f'[[agents]]\nname = "{name}"\nprovider = "scripted"\nmodel = "{place}"\nslot = '
            f'"{slot}"\n'
        )
    (Path.home() / ".fugurc").write_text("".join(entry + PRICE for entry in entries))
    return root


def script(name: str, text: str) -> None:
    folder = Path.cwd() if Path.cwd().name != "repo" else Path.cwd().parent
    (folder / f"{name}.toml").write_text(text)


def recorded(*more: str) -> str:
    """A session in which `small` works in vain, `large` fixes it and `small` accepts; its id."""
    pool(small=VAIN + YES, large=CAN)
    Path("untracked.txt").write_text("mine\n")
    assert (
        called(
            [
                "run",
                "--coordinator",
                "cascade",
                "--test-command",
                TESTS,
                "--until-tests-pass",
                "fix the tests",
                *more,
            ]
        )
        == 0
    )
    return newest()


def newest() -> str:
    return store.find_session(Config().data, Path.cwd(), "latest").stem


def replayed(capsys: pytest.CaptureFixture[str], *more: str, code: int = 0) -> dict[str, object]:
    capsys.readouterr()
    assert called(["replay", *more, "--json"]) == code
    made: dict[str, object] = json.loads(capsys.readouterr().out)
    return made


def state() -> dict[str, str]:
    files = (path for path in Path.cwd().rglob("*") if path.is_file() and ".git" not in path.parts)
    return {path.relative_to(Path.cwd()).as_posix(): path.read_text() for path in files}


def test_another_coordinator_decides_on_what_was_recorded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    before = state(), store.find_session(Config().data, Path.cwd(), id).read_bytes()
    capsys.readouterr()
    assert called(["replay", id, "--agent", "large"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said == [
        f"session {id}: decided by cascade, again by single:large; nothing is called",
        "each decision is made on the session as it was recorded; what would have followed "
        "another one is unknown",
        "",
        "request 1: fix the tests",
        "turn  recorded        again           same",
        "1     small worker    large worker    role",
        "2     large worker    large worker    yes",
        "3     small verifier  large verifier  role",
        "end   ends: accepted  ends: accepted  yes",
        "",
        "the same: 2 of 4 decisions; the agent in 1 of 3, the role in 3",
    ]
    assert (state(), store.find_session(Config().data, Path.cwd(), id).read_bytes()) == before
    assert newest() == id


def test_the_same_coordinator_agrees_with_itself(capsys: pytest.CaptureFixture[str]) -> None:
    recorded()
    found = replayed(capsys, "--coordinator", "cascade")
    assert found["agreement"] == {
        "decisions": 4,
        "same": 4,
        "with_agents": 3,
        "same_agent": 3,
        "same_role": 3,
    }
    limited = replayed(capsys, "--coordinator", "cascade", "--max-turns", "1")["decisions"]
    assert isinstance(limited, list)
    assert [
        one["again"].get("reason") for one in limited if one["again"]["next"] == "finished"
    ] == [
        "turn_limit",
        "turn_limit",
        "accepted",
    ]


def test_todays_pool_is_chosen_from_where_that_is_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    recorded()
    text = (Path.home() / ".fugurc").read_text()
    (Path.home() / ".fugurc").write_text(text.replace('name = "large"', 'name = "huge"'))
    then = replayed(capsys, "--coordinator", "cascade")["decisions"]
    now = replayed(capsys, "--coordinator", "cascade", "--present-pool")["decisions"]
    assert isinstance(then, list) and isinstance(now, list)
    assert [one["again"].get("agent") for one in then] == ["small", "large", "small", None]
    assert [one["again"].get("agent") for one in now] == ["small", "huge", "small", None]


def test_run_carries_the_request_out_in_a_copy_and_leaves_the_diff(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    script("large", CAN + YES)
    Path("calc.py").write_text("mine now\n")
    Path("untracked.txt").write_text("mine now, too\n")
    before = state()
    capsys.readouterr()
    assert called(["replay", id, "--run", "--agent", "large"]) == 0
    said = capsys.readouterr()
    rows = {
        line[:11].rstrip(): line[11:].split("  ") for line in said.out.splitlines() if "  " in line
    }
    assert [cell.strip() for cell in rows["turns"] if cell.strip()] == [
        "3: small worker, large worker, small verifier",
        "2: large worker, large verifier",
    ]
    assert "ended" in rows and said.out.count("accepted") == 2 and "● worker large" in said.err
    assert (state(), newest()) == (before, id)
    patch = Path(said.out.splitlines()[-1].removeprefix("diff: "))
    assert "-    return a - b\n+    return a + b\n" in patch.read_text()
    subprocess.run(["git", "checkout", "-q", "calc.py"], check=True)
    subprocess.run(["git", "apply", str(patch)], check=True)
    assert Path("calc.py").read_text() == FIXED
    found = replayed(capsys, id, "--run", "--agent", "large")["requests"]
    assert isinstance(found, list)
    again = found[0]["again"]
    assert (again["accepted"], again["model_calls"], again["files"]) == (True, 4, 1)
    after = {"ok": True, "passed": 1, "failed": 0, "skipped": 0}
    assert again["tests"] == {
        "before": None,
        "after": after,
        "fixed": [],
        "broken": [],
        "removed": [],
    }
    assert called(["trace", again["session_id"]]) == 0
    assert "changed calc.py" in capsys.readouterr().out


def test_a_later_request_begins_with_its_own_tree_and_what_was_said_before(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    script("small", YES * 4)
    more = '{ tool = "write", arguments = { path = "more.txt", content = "x\\n" } }'
    script("large", CAN + f'[[step]]\ncalls = [{more}]\n[[step]]\ntext = "More."\n' + YES)
    assert called(["run", "--resume", id, "--agent", "large", "add more"]) == 0
    assert called(["undo", "--yes"]) == 0
    assert called(["undo", "--yes"]) == 0
    assert (Path("calc.py").read_text(), Path("more.txt").exists()) == (BROKEN, False)
    found = replayed(
        capsys, id, "--run", "--request", "2", "--agent", "large", "--output-dir", "../out"
    )["requests"]
    assert isinstance(found, list) and len(found) == 1
    folder = Path("../out/request-2")
    names = {
        "session.jsonl",
        "changes.patch",
        "trajectory.json",
        "summary.json",
        "prediction.jsonl",
    }
    assert {path.name for path in folder.iterdir()} == names
    assert "more.txt" in (folder / "changes.patch").read_text()
    assert "calc.py" not in (folder / "changes.patch").read_text()
    events = [record.event for record in log.read(folder / "session.jsonl")]
    assert [event.text for event in events if isinstance(event, Asked)] == [
        "fix the tests",
        "add more",
    ]
    opened = views.opened(events)
    assert opened is not None and (Path(opened.repo) / "calc.py").read_text() == FIXED


def test_all_requests_are_summed_and_the_worst_end_is_the_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    script("large", CAN + VAIN * 2)
    assert called(["run", "--resume", id, "--agent", "large", "is it right?"]) == 0
    capsys.readouterr()
    script("small", VAIN * 2 + YES)
    assert called(["replay", "--run", "--agent", "small", "--max-turns", "1"]) == 3
    said = capsys.readouterr().out
    assert "ended        accepted" in said and "turn limit" in said
    assert "accepted      2 of 2    1 of 2" in said


def test_copies_are_the_users_alone_and_go_after_a_week(capsys: pytest.CaptureFixture[str]) -> None:
    recorded()
    script("large", CAN + YES)
    found = replayed(capsys, "--run", "--agent", "large")["requests"]
    assert isinstance(found, list)
    place = Path(found[0]["diff"]).parent
    assert place.parent.stat().st_mode & 0o777 == 0o700
    old = place.stat().st_mtime - 8 * 86_400
    os.utime(place, (old, old))
    assert replayed(capsys, "--run", "--agent", "large")["session_id"] == newest()
    assert not place.exists() and len(list(place.parent.iterdir())) == 1


def test_money_is_limited_before_the_call(capsys: pytest.CaptureFixture[str]) -> None:
    id = recorded()
    found = replayed(capsys, id, "--run", "--max-budget-usd", "0.0001", code=3)["requests"]
    assert isinstance(found, list)
    assert (found[0]["again"]["reason"], found[0]["again"]["model_calls"]) == ("budget", 0)


def test_what_the_project_may_still_cost_holds_for_its_copies(
    capsys: pytest.CaptureFixture[str],
) -> None:
    pool(small="[[step]]\ntext = 'Hello.'\nusage = { input = 1000 }\n" * 2, large=YES)
    assert called(["run", "--agent", "small", "say hello"]) == 0  # for one dollar
    settings = (Path.home() / ".fugurc").read_text()
    for allowed, code, reason in ((1.5, 3, "budget"), (100.0, 0, "answered")):
        (Path.home() / ".fugurc").write_text(
            f"max_budget_usd = {{ project = {allowed} }}\n{settings}"
        )
        found = replayed(capsys, "--run", "--agent", "small", code=code)["requests"]
        assert isinstance(found, list) and found[0]["again"]["reason"] == reason


def test_an_agent_that_fails_ends_with_code_two(capsys: pytest.CaptureFixture[str]) -> None:
    id = recorded()
    script("large", '[[step]]\nerror = { kind = "refused", message = "no key" }\n' * 3)
    found = replayed(capsys, id, "--run", "--agent", "large", code=2)["requests"]
    assert isinstance(found, list) and found[0]["again"]["reason"] == "failed"


def refused(capsys: pytest.CaptureFixture[str], *given: str) -> str:
    capsys.readouterr()
    assert called(["replay", *given]) == 1
    return capsys.readouterr().err


def test_bad_input_is_refused_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    id = recorded()
    assert "there is no session 'nope'" in refused(capsys, "nope")
    assert "there is no request 3" in refused(capsys, id, "--request", "3")
    assert "--agent is empty" in refused(capsys, id, "--agent", "")
    assert "--output-dir needs --run" in refused(capsys, id, "--output-dir", "x")
    assert "--agent and --coordinator exclude" in refused(
        capsys, id, "--agent", "small", "--coordinator", "cascade"
    )
    assert "'gone' is not an agent of this pool: large, small" in refused(
        capsys, id, "--agent", "gone"
    )
    assert "every agent of this pool" in refused(
        capsys, id, "--opt-out", "small", "--opt-out", "large"
    )
    assert "there is no checkpoint at" in refused(capsys, id, "--checkpoint", "none.safetensors")
    assert "coordinator names 'gone'" in refused(capsys, id, "--run", "--agent", "gone")
    shutil.rmtree(Config().data / "snapshots")
    assert "of request 1 is not in the store any more" in refused(capsys, id, "--run")
    log_path = store.find_session(Config().data, Path.cwd(), id)
    log_path.write_bytes(log_path.read_bytes().splitlines(keepends=True)[0])
    assert "nothing was asked" in refused(capsys, id)


def test_without_the_learned_coordinator_nothing_is_compared_in_its_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    assert "fugu models pull" in refused(capsys, id, "--coordinator", "trinity")


def test_a_session_of_another_folder_is_compared_anywhere_and_run_there(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    root = Path.cwd()
    os.chdir("..")
    assert called(["replay", id, "--coordinator", "cascade"]) == 0
    assert f"worked in {root}, not in" in refused(capsys, id, "--run")


def test_outside_git_only_the_decisions_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    root = pool(small=VAIN + YES, large=CAN)
    shutil.rmtree(root / ".git")
    assert called(["run", "--agent", "small", "what is it?"]) == 0
    assert called(["replay", "--coordinator", "cascade"]) == 0
    assert "it was made outside git" in refused(capsys, "--run")


def test_an_interrupt_ends_it_with_code_four_and_the_tree_untouched() -> None:
    id = recorded()
    command = (
        'text = "x"\ncalls = [{ tool = "bash", arguments = { command = "touch begun; sleep 60" } }]'
    )
    script("large", f"[[step]]\n{command}\n")
    before = state()
    process = subprocess.Popen(
        [sys.executable, "-m", "fugu_cli", "replay", id, "--run", "--yolo", "--agent", "large"],
        stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if line.strip() == "x":
            break
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, state()) == (4, before)
    assert "interrupted" in out
