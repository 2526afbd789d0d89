"""`fugu train ...` from end to end: a pool that speaks the real wire format, a tiny backbone."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import fugu_cli
from fugu_cli.__main__ import called
from fugu_cli.cli.train_evolve import right
from fugu_cli.config import Config
from fugu_cli.coordinators import checkpoint
from fugu_cli.training.default_comparison import PlayedTask, compare_with_default
from fugu_cli.training.evaluation.rollout import RolloutOutcome
from tests.acceptance.loopback import KEY, Loopback, Refuses, running
from tests.research.evaluation.pool import configured, fixes, idles, suite, task
from tests.unit.coordinators import tiny

MATRIX = [
    {
        "task": f"t{n}",
        "agent": agent,
        "repeat": r,
        "ok": agent == "big",
        "seconds": cost,
        "prompt": f"fix `a{n}.py`",
    }
    for n in range(3)
    for agent, cost in (("small", 1), ("mid", 2), ("big", 5))
    for r in range(2)
]
ROWS = ("--row", "cheap=small", "--row", "middle=mid", "--row", "strong=big")


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with running() as loopback:
        yield loopback


@pytest.fixture
def here(server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pool of two - `idler` does nothing, `worker` solves everything - and a tiny backbone with
    its checkpoint.
    """
    home = Path(os.environ["HOME"])
    configured(home, server, ("idler", "cheap"), ("worker", "strong"))
    folder = tiny.folder(tmp_path / "backbone")
    start = tiny.checkpoint(tiny.meta(folder, rows=("idler", "worker")))
    checkpoint.save(start, tmp_path / "start.safetensors")
    rc = home / ".fugurc"
    rc.write_text(
        f'backbone = "{folder}"\ncheckpoint = "{tmp_path / "start.safetensors"}"\n{rc.read_text()}'
    )
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    monkeypatch.setenv("PYTHONPATH", str(Path(fugu_cli.__file__).parent.parent))
    monkeypatch.chdir(tmp_path)
    server.react("idler", idles)
    server.react("worker", fixes)
    (tmp_path / "matrix.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in MATRIX))
    return tmp_path


def fugu(capture: pytest.CaptureFixture[str], *words: str | Path) -> tuple[int, str, str]:
    capture.readouterr()
    code = called([str(word) for word in words])
    done = capture.readouterr()
    return code, done.out, done.err


def test_a_matrix_is_paid_once_and_says_whether_routing_can_pay(
    here: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(
        here,
        task("a"),
        task("b"),
        task("done", repo={"calc.txt": "fixed\n", "check.sh": "echo 1 passed\n"}),
    )
    command = ("train", "matrix", file, "--repeats", "2", "--loop", "--out", here / "m")
    code, out, err = fugu(capsys, *command)
    assert code == 0, err
    assert "done: refused" in err
    assert "| worker | 100.0% | 34.2% to 100.0% |" in out
    assert "| random choice | 50.0% |" in out
    assert "These tasks do not show that routing pays: worker alone" in out
    cells = [json.loads(line) for line in (here / "m" / "matrix.jsonl").read_text().splitlines()]
    assert sorted((cell["task"], cell["agent"], cell["repeat"]) for cell in cells) == sorted(
        (name, agent, repeat) for name in "ab" for agent in ("idler", "worker") for repeat in (0, 1)
    )
    before = len(server.asked("idler")) + len(server.asked("worker"))
    assert fugu(capsys, *command)[1] == out
    assert len(server.asked("idler")) + len(server.asked("worker")) == before


def test_a_matrix_that_lacks_runs_gives_no_verdict(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(here, task("a"), task("b"))
    command = ("train", "matrix", file, "--loop", "--rollouts", "1", "--out", here / "m")
    code, out, err = fugu(capsys, *command, "--max-requests", "10")
    assert code == 3, err
    assert "Whether routing can pay is not said before." in out
    assert "These tasks do not show that routing pays" in fugu(capsys, *command)[1]


def test_a_matrix_that_grows_keeps_the_requests_of_the_tasks_that_were_named_before(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = suite(here, task("a"), name="one"), suite(here, task("b"), name="two")
    for file in (one, two):
        assert fugu(capsys, "train", "matrix", file, "--loop", "--out", here / "m")[0] == 0
    cells = [json.loads(line) for line in (here / "m" / "matrix.jsonl").read_text().splitlines()]
    assert {(cell["task"], cell["prompt"]) for cell in cells} == {
        (name, f"The tests fail for {name}. Fix calc.txt.") for name in "ab"
    }


def test_repositories_without_a_word_about_themselves_are_measured_and_trained_on(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    laid = task("a")["repo"]
    assert isinstance(laid, dict)
    for name, content in laid.items():
        (here / "repos" / "a").mkdir(parents=True, exist_ok=True)
        (here / "repos" / "a" / name).write_text(content)
    told = ("repos", "--prompt", "The tests fail. Fix calc.txt.", "--test-command", "sh check.sh")
    code, out, err = fugu(
        capsys, "train", "matrix", *told, "--loop", "--rollouts", "1", "--out", "m"
    )
    assert (code, "| worker | 100.0% |" in out) == (0, True), err
    small = (
        "--population",
        "4",
        "--replications",
        "1",
        "--iterations",
        "1",
        "--rollouts",
        "2",
        "--out",
        "live",
    )
    assert fugu(capsys, "train", "evolve", *told, *small)[0] == 0
    code, _out, err = fugu(capsys, "train", "evolve", "nowhere", *small)
    assert (code, "nowhere: there is no such file or folder" in err) == (1, True)


def test_a_warm_start_from_a_matrix(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warm_start = ("train", "sft", "matrix.jsonl", *ROWS, "--out")
    code, out, err = fugu(capsys, *warm_start, "warm.safetensors")
    assert code == 0, err
    assert "| cheap alone |" in out and "| cascade |" in out
    warm = checkpoint.load(here / "warm.safetensors")
    assert warm.meta.rows == ("cheap", "middle", "strong")
    assert (warm.head.shape, warm.meta.training.data) == ((6, tiny.WIDTH), "matrix.jsonl")
    assert fugu(capsys, *warm_start, "again.safetensors")[0] == 0
    assert (here / "again.safetensors").read_bytes() == (here / "warm.safetensors").read_bytes()


def test_an_evolution_begins_with_nobody_preferred_where_no_checkpoint_is_named(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rc = Path(os.environ["HOME"]) / ".fugurc"
    lines = rc.read_text().splitlines()
    rc.write_text("\n".join(line for line in lines if not line.startswith("checkpoint")))
    small = ("--population", "4", "--replications", "1", "--iterations", "1")
    code, out, err = fugu(
        capsys, "train", "evolve", suite(here, task("a")), *small, "--out", "fresh"
    )
    assert code == 0, err
    made = checkpoint.load(Path(out.strip())).meta
    assert made.rows == ("idler", "worker")


def test_candidates_are_judged_by_real_sessions_and_a_killed_run_repeats_no_call(
    here: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(here, task("a"), task("b"))
    command = [
        "train",
        "evolve",
        str(file),
        "--population",
        "4",
        "--replications",
        "2",
        "--iterations",
        "1",
    ]
    command += ["--patience", "0", "--out", str(here / "live")]
    started = subprocess.Popen(
        [sys.executable, "-m", "fugu_cli", *command], stderr=subprocess.DEVNULL
    )
    rows = here / "live" / "rollouts.jsonl"
    while started.poll() is None and not (rows.is_file() and rows.read_text().count("\n") >= 1):
        time.sleep(0.05)
    started.send_signal(signal.SIGKILL)
    started.wait()
    code, out, err = fugu(capsys, *command)
    assert code == 0, err
    log = json.loads((here / "live" / "es_log.jsonl").read_text())
    assert log["cost"] > 0
    assert sum(log["roles"]) == pytest.approx(1, abs=1e-3)
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(found) == 8
    assert checkpoint.load(Path(out.strip())).meta.training.stage == "evolved on sessions"
    paid = [json.loads(line) for line in (here / "live" / "paid.jsonl").read_text().splitlines()]
    replies = list((here / "live" / "replies").rglob("*.json"))
    assert len(paid) == len(replies)  # every reply was paid for once, whoever needed it


def test_what_was_evolved_is_judged_on_tasks_that_no_candidate_met(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(here, task("a"), task("b"), task("c"))
    small = ("--population", "4", "--replications", "1", "--iterations", "1", "--out", "run")
    code, out, err = fugu(capsys, "train", "evolve", file, *small)
    assert code == 0, err
    rows = [json.loads(line) for line in (here / "run" / "rollouts.jsonl").read_text().splitlines()]
    held = {row["outcome"]["task"] for row in rows if row["place"].startswith("held-")}
    assert len(held) == 1
    assert held.isdisjoint(
        row["outcome"]["task"] for row in rows if not row["place"].startswith("held-")
    )
    assert {
        (row["place"], row["outcome"]["arm"]) for row in rows if row["place"].startswith("held-")
    } == {
        ("held-evolved", "trinity"),
        ("held-default", Config().coordinator),
    }
    assert out.startswith("checkpoint, held out: solved ")
    assert "keep the default: fewer than 8 held-out tasks tell nothing" in out


@pytest.mark.parametrize(
    ("solved", "recommended"),
    [((1.0,) * 12, True), ((1.0, 0.0) * 6, False), ((1.0,) * 4, False)],
)
def test_a_checkpoint_is_recommended_only_where_it_is_surely_better(
    solved: tuple[float, ...], recommended: bool
) -> None:
    trained = [PlayedTask(str(number), value, 0.5) for number, value in enumerate(solved)]
    default = [PlayedTask(str(number), 0.4, 0.5) for number in range(len(solved))]
    comparison = compare_with_default(trained, default, 0.1)
    assert comparison.is_recommended == recommended
    assert ("keep the default" in comparison.text) != recommended


@pytest.mark.parametrize(
    ("ok", "reason", "expected"),
    [
        (True, "accepted", 1.0),
        (True, "answered", 1.0),
        (True, "turn_limit", 0.0),
        (False, "accepted", 0.0),
    ],
)
def test_the_reward_is_for_right_work_that_came_to_a_good_end(
    ok: bool, reason: str, expected: float
) -> None:
    row = RolloutOutcome(
        task="t", arm="trinity", ok=ok, accepted=reason == "accepted", reason=reason, turns=1, seconds=0.0, spent=(),
        session="",
    )  # fmt: skip
    assert right(row) == expected


def test_replications_that_are_drawn_alike_are_one_rollout(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of one task, seed 518 draws the replications' seeds 278 and 278."""
    small = (
        "--population",
        "4",
        "--replications",
        "2",
        "--iterations",
        "1",
        "--rollouts",
        "2",
        "--seed",
        "518",
    )
    code, _out, err = fugu(
        capsys, "train", "evolve", suite(here, task("a")), *small, "--out", here / "live"
    )
    assert code == 0, err
    found = [
        json.loads(line) for line in (here / "live" / "rollouts.jsonl").read_text().splitlines()
    ]
    assert sorted(
        (row["place"], row["outcome"]["task"], row["outcome"]["seed"]) for row in found
    ) == [(f"0-{candidate}", "a", 278) for candidate in range(4)]
    assert json.loads((here / "live" / "es_log.jsonl").read_text())["dropped"] == 0


def test_a_run_is_refused_where_its_tasks_or_limits_are_others(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = (
        "train",
        "evolve",
        "own.jsonl",
        "--population",
        "4",
        "--replications",
        "1",
        "--iterations",
        "0",
    )
    rc = Path(os.environ["HOME"]) / ".fugurc"
    before = rc.read_text()
    suite(here, task("a"))
    assert fugu(capsys, *command)[0] == 0
    rc.write_text(f"max_turns = 1\n{before}")
    code, _out, err = fugu(capsys, *command)
    assert (code, "another limits: max_turns: " in err) == (1, True), err
    rc.write_text(before.replace('model = "worker"', 'model = "worker"\ntemperature = 0.9'))
    code, _out, err = fugu(capsys, *command)
    assert (code, "another entries: worker: temperature: null, now it is 0.9" in err) == (
        1,
        True,
    ), err
    rc.write_text(before)
    suite(here, task("a", instruction="Fix it all."))
    code, _out, err = fugu(capsys, *command)
    assert (code, "another tasks: a: " in err) == (1, True), err


def test_a_key_out_of_credit_stops_the_run_and_keeps_everything(
    here: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(here, task("a"))
    command = (
        "train",
        "evolve",
        file,
        "--population",
        "4",
        "--replications",
        "1",
        "--iterations",
        "1",
        "--out",
        "poor",
    )
    server.react("worker", lambda _asked: Refuses(402, "insufficient credit"))
    server.react("idler", lambda _asked: Refuses(402, "insufficient credit"))
    code, _out, err = fugu(capsys, *command)
    assert code == 2
    assert "does not answer" in err
    assert "goes on" in err
    server.react("worker", fixes)
    server.react("idler", idles)
    assert fugu(capsys, *command)[0] == 0


def test_an_iteration_in_which_nobody_answers_is_taken_again(
    here: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(here, task("a"))
    small = ("--population", "4", "--replications", "1", "--iterations", "1")
    command = ("train", "evolve", file, *small, "--out", "down")
    for name in ("worker", "idler"):
        server.react(
            name, lambda _asked: Refuses(500, "down", "server_error", {"retry-after-ms": "1"})
        )
    code, _out, err = fugu(capsys, *command)
    assert code == 2 and "goes on" in err and "bug" not in err, err
    assert not (here / "down" / "unit.json").exists()
    server.react("worker", fixes)
    server.react("idler", idles)
    assert fugu(capsys, *command)[0] == 0
    assert json.loads((here / "down" / "es_log.jsonl").read_text())["mean_cost"] == pytest.approx(
        1.0
    )


def test_an_agent_that_dies_ends_an_evolution_which_goes_on_as_if_nothing_had_been(
    here: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(here, task("a"), task("b"))
    small = ("--population", "4", "--replications", "2", "--iterations", "1", "--rollouts", "1")
    assert fugu(capsys, "train", "evolve", file, *small, "--out", "whole")[0] == 0
    living = iter(range(3))
    dead = Refuses(500, "down", "server_error", {"retry-after-ms": "1"})
    server.react("idler", lambda asked: dead if next(living, None) is None else idles(asked))
    code, _out, err = fugu(capsys, "train", "evolve", file, *small, "--out", "died")
    assert (
        code == 2 and "fugu: idler does not answer" in err and "the same command goes on" in err
    ), err
    assert err.count("; dropped") == 2
    server.react("idler", idles)
    assert fugu(capsys, "train", "evolve", file, *small, "--out", "died")[0] == 0
    names = ("checkpoint.safetensors", "unit.json")
    assert [(here / "died" / name).read_bytes() for name in names] == [
        (here / "whole" / name).read_bytes() for name in names
    ]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "evolve"), "Missing argument"),
        (("train", "evolve", "no-such-folder"), "no-such-folder"),
        (
            ("train", "sessions", "--all"),
            "fugu train sessions is gone",
        ),
        (("train", "sft", "matrix.jsonl", "--digest"), "--digest is gone"),
        (("train", "sft", "matrix.jsonl", "--offsets"), "`fugu train evolve --offsets`"),
        (("train", "sft", "none.jsonl"), "the pass matrix cannot be read"),
    ],
)
def test_what_cannot_be_trained_is_said(
    here: Path, words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _out, err = fugu(capsys, *words)
    assert code == 1
    assert said in err


def test_a_folder_that_is_not_trusted_is_not_measured_with_something_else(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = suite(here, task("a"))
    (here / ".fugurc").write_text('checkpoint = "own.safetensors"\n')
    for words in (("eval", file), ("train", "matrix", file), ("train", "evolve", file)):
        code, _out, err = fugu(capsys, *words, "--out", "measured")
        assert (code, "checkpoint of" in err, "`fugu trust`" in err) == (1, True, True), err


def test_a_task_without_test_files_is_said_to_run_without_a_check(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bare = task("bare", test_command="grep -q fixed calc.txt", repo={"calc.txt": "broken\n"})
    del bare["test_files"]
    file = suite(here, bare)
    code, _out, err = fugu(capsys, "train", "matrix", file, "--loop", "--out", here / "m")
    assert code == 0, err
    assert "bare: no test files are named or found, so agents work without an acceptance" in err
