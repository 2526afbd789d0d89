"""`fugu replay` from the command line, on sessions of scripted agents."""

import json
import os
import shutil
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.config import Config
from fugu_cli.session import store
from tests.acceptance.test_cli_run import EDIT, READ, TESTS, project

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
    pool(small=VAIN + VAIN + YES, large=CAN)
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


def refused(capsys: pytest.CaptureFixture[str], *given: str) -> str:
    capsys.readouterr()
    assert called(["replay", *given]) == 1
    return capsys.readouterr().err


def test_bad_input_is_refused_with_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    id = recorded()
    assert "there is no session 'nope'" in refused(capsys, "nope")
    assert "there is no request 3" in refused(capsys, id, "--request", "3")
    assert "--agent is empty" in refused(capsys, id, "--agent", "")
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
    log_path = store.find_session(Config().data, Path.cwd(), id)
    log_path.write_bytes(log_path.read_bytes().splitlines(keepends=True)[0])
    assert "nothing was asked" in refused(capsys, id)


def test_success_rates_and_costs_decide_again_without_a_model(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    assert called(["replay", id, "--coordinator", "trinity"]) == 0
    assert "trinity" in capsys.readouterr().out


def test_a_session_of_another_folder_is_compared_anywhere(
    capsys: pytest.CaptureFixture[str],
) -> None:
    id = recorded()
    os.chdir("..")
    assert called(["replay", id, "--coordinator", "cascade"]) == 0


def test_decisions_made_outside_git_can_be_replayed(capsys: pytest.CaptureFixture[str]) -> None:
    root = pool(small=VAIN + VAIN + YES, large=CAN)
    shutil.rmtree(root / ".git")
    assert called(["run", "--agent", "small", "what is it?"]) == 0
    assert called(["replay", "--coordinator", "cascade"]) == 0
