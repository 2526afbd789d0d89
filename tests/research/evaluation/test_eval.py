"""`fugu eval` with a pool that speaks the real wire format: what it measures, keeps, refuses and
goes on with.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import fugu_cli
from fugu_cli.cli import eval as command
from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.training_flags import EvalFlags, RolloutFlags
from fugu_cli.errors import ConfigError, FuguError, SessionBusy, UsageError
from fugu_cli.training.evaluation import engine, results_folder, runner
from fugu_cli.training.evaluation.paid_calls import PaidCall
from fugu_cli.training.evaluation.results_folder import locked_folder
from fugu_cli.training.evaluation.rollout import RolloutOutcome
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import TaskCheck
from tests.acceptance.loopback import (
    KEY,
    Answer,
    Asked,
    Breaks,
    Loopback,
    Refuses,
    Says,
    Use,
    running,
)
from tests.research.evaluation.pool import Gate, configured, fixes, idles, suite, task


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with running() as loopback:
        yield loopback


@pytest.fixture
def here(server: Loopback, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder and a pool of two: `idler` does nothing, `worker` solves everything."""
    configured(Path(os.environ["HOME"]), server, ("idler", "cheap"), ("worker", "strong"))
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    monkeypatch.setenv("PYTHONPATH", str(Path(fugu_cli.__file__).parent.parent))
    monkeypatch.chdir(tmp_path)
    server.react("idler", idles)
    server.react("worker", fixes)
    return tmp_path


def evaluate(folder: Path, *arms: str, **more: object) -> int:
    suites = [str(folder / "own.jsonl")]
    return command.evaluate(EvalFlags(suites=suites, arms=list(arms), out=folder / "out", **more))  # type: ignore[arg-type]


def measured(folder: Path) -> list[RolloutOutcome]:
    return results_folder.read_rows(folder / "out" / "rows.jsonl", RolloutOutcome)


def paid(folder: Path) -> list[PaidCall]:
    return results_folder.read_rows(folder / "out" / "paid.jsonl", PaidCall)


def cells(folder: Path) -> list[tuple[str, str, int, bool]]:
    return sorted((row.arm, row.task, row.seed, row.ok) for row in measured(folder))


def asked(server: Loopback) -> int:
    return len(server.asked("idler")) + len(server.asked("worker"))


def test_a_report_of_nothing_is_refused(here: Path) -> None:
    suite(here, task("one"))
    with pytest.raises(UsageError, match=f"there is no evaluation in {here / 'out'}"):
        evaluate(here, report=True)


def test_every_arm_on_every_task_and_a_report_of_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    suite(here, task("one"), task("two"))
    assert evaluate(here, "cascade", "single", "panel-judge-merge") == 0
    assert cells(here) == [
        (arm, name, 0, arm != "single:idler")
        for arm in ("cascade", "panel-judge-merge", "single:idler", "single:worker")
        for name in ("one", "two")
    ]
    shown = capsys.readouterr()
    assert shown.out.split() == [str(here / "out" / "report.md"), str(here / "out" / "report.html")]
    assert "[8/8]" in shown.err
    assert " left\n" in shown.err
    page = (here / "out" / "report.md").read_text()
    assert "| cascade | 2 / 2 | 34-100 % | 2 / 2 | 2 | 0 |" in page
    assert "| single:idler | 0 / 2 | 0-66 % | 0 / 2 | 0 | 0 |" in page
    assert "| oracle of the single agents | 2 / 2 | 34-100 % | - | - | - |" in page
    row = next(row for row in measured(here) if row.arm == "single:worker")
    assert [(use.agent, use.role, use.turns) for use in row.uses] == [
        ("worker", "worker", 1),
        ("worker", "verifier", 1),
    ]
    assert row.usd == pytest.approx(row.calls * 120e-6)
    html = (here / "out" / "report.html").read_text()
    assert html.count("<svg") == 1
    assert "http" not in html.replace("http://www.w3.org/2000/svg", "")


def test_the_conductor_is_an_arm_whose_plans_are_paid_for_like_any_call(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"))
    assert evaluate(here, "conductor") == 0
    (row,) = measured(here)
    assert (row.arm, row.ok) == ("conductor", True)
    planned = [asked for asked in server.asked("worker") if "You plan." in asked.text]
    assert len(planned) >= 1
    assert len(paid(here)) == len(server.asked("worker")) + len(server.asked("idler"))


def test_a_reply_is_paid_for_once_whoever_asks_again(here: Path, server: Loopback) -> None:
    suite(here, task("one"))
    assert evaluate(here, "single:worker") == 0
    before = asked(server)
    assert len(paid(here)) == before
    assert evaluate(here, "single:worker", "retry-same:worker", "one-pass:worker") == 0
    assert {(row.arm, row.ok) for row in measured(here)[1:]} == {
        ("retry-same:worker", True),
        ("one-pass:worker", True),
    }
    assert asked(server) == before
    costs = {row.arm: row.usd for row in measured(here)}
    assert costs["one-pass:worker"] == pytest.approx(3 * 120e-6)


def test_success_rates_and_costs_are_measured_without_a_checkpoint_or_a_backbone(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"))
    assert evaluate(here, "trinity") == 0
    assert [row.arm for row in measured(here)] == ["trinity"]
    assert asked(server) > 0


def test_a_kept_reply_names_the_files_of_whoever_asks_for_it_again(
    here: Path, server: Loopback
) -> None:
    """The worker learns where it is, and goes on with the full path, as models do that have seen
    one.
    """

    def absolute(asked: Asked) -> Answer:
        found = [
            str(message["content"])
            for message in asked.body["messages"]
            if message["role"] == "tool"
        ]
        where = re.search(r"/\S+/repository\b", " ".join(found))
        if not found:
            return Says("", (Use("bash", {"command": "pwd"}),))
        assert where is not None, found
        if len(found) == 1:
            return Says("", (Use("read", {"path": f"{where[0]}/calc.txt"}),))
        if len(found) == 2:
            return Says("", (Use("write", {"path": f"{where[0]}/calc.txt", "content": "fixed\n"}),))
        return Says("It is fixed.")

    server.react("worker", absolute)
    suite(here, task("one"))
    assert evaluate(here, "one-pass:worker", "retry-same:worker", rollouts=1) == 0
    assert cells(here) == [
        (arm, "one", 0, True) for arm in ("one-pass:worker", "retry-same:worker")
    ]
    assert len(server.asked("worker")) == 4


def test_what_was_measured_is_not_measured_again_and_another_seed_is(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"))
    evaluate(here, "single:worker")
    before = asked(server)
    evaluate(here, "single:worker")
    assert asked(server) == before
    evaluate(here, "single:worker", seeds=2)
    assert cells(here) == [("single:worker", "one", 0, True), ("single:worker", "one", 1, True)]
    assert [call.rollout for call in paid(here)] == ["rollouts/single-worker/one-0"] * 4 + [
        "rollouts/single-worker/one-1"
    ] * 4
    assert (
        "for as many tries as those of repeated tasks are worth"
        in (here / "out" / "report.md").read_text()
    )


def test_a_task_that_is_none_is_refused_and_named_and_the_others_are_measured(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    passing = task("passing", test_command="true")
    hanging = task("hanging", test_command="sleep 30", timeout_s=0.3)
    suite(here, passing, hanging, task("one"))
    assert evaluate(here, "single:worker") == 0
    assert cells(here) == [("single:worker", "one", 0, True)]
    said = capsys.readouterr().err
    assert "passing: refused: its tests pass before any work: there is nothing to solve" in said
    assert (
        "hanging: refused: its tests hang: with the known solution, too, they do not end within "
        "0.3 s" in said
    )
    assert "Refused: passing: its tests pass" in (here / "out" / "report.md").read_text()


def test_an_account_that_runs_out_stops_everything_keeps_it_and_says_how_to_go_on(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"), task("two"))
    out_of_credit = Refuses(402, "insufficient credit", "insufficient_quota")
    server.play("worker", *(Says("no idea"),) * 0, out_of_credit)
    with pytest.raises(FuguError) as caught:
        evaluate(here, "single:idler", "single:worker", rollouts=1)
    assert caught.value.exit_code == 2
    assert "worker does not answer: " in str(caught.value)
    assert "rollouts are left; everything measured is kept in" in str(caught.value)
    assert caught.value.hint.endswith("the same command goes on")
    kept = cells(here)
    assert [arm for arm, *_ in kept] == ["single:idler"]
    assert "Not finished: " in (here / "out" / "report.md").read_text()
    server.react("worker", fixes)
    assert evaluate(here, "single:idler", "single:worker") == 0
    assert len(cells(here)) == 4


def test_an_agent_that_dies_is_left_out_and_the_others_go_on(
    here: Path, server: Loopback, capsys: pytest.CaptureFixture[str]
) -> None:
    suite(here, task("one"), task("two"))
    server.play("idler", Refuses(500, "down", "server_error", {"retry-after-ms": "1"}))
    assert evaluate(here, "single:idler", "single:worker", rollouts=1) == 2
    assert cells(here) == [("single:worker", "one", 0, True), ("single:worker", "two", 0, True)]
    said = capsys.readouterr().err
    assert "idler does not answer: " in said
    assert "2 rollouts are left; the same command goes on" in said


def test_the_limits_hold_for_all_rollouts_together(here: Path, server: Loopback) -> None:
    suite(here, task("one"), task("two"))
    with pytest.raises(FuguError, match="3 of 3 requests are made; 2 rollouts are left") as caught:
        evaluate(here, "single:worker", max_requests=3, rollouts=1)
    assert caught.value.exit_code == 3
    assert len(server.asked("worker")) == 3
    with pytest.raises(
        FuguError, match=r"are spent, and the next call to worker may cost"
    ) as caught:
        evaluate(here, "single:worker", max_budget_usd=0.0004, rollouts=1)
    assert "a larger --max-budget-usd goes on" in caught.value.hint
    assert evaluate(here, "single:worker", max_requests=4, rollouts=1, limit=1) == 0
    assert evaluate(here, report=True) == 0
    page = (here / "out" / "report.md").read_text()
    assert "- tasks: 2 of own; 1 seed(s)\n" in page
    assert "Not finished: 1 rollout is missing; arms are compared on what both have." in page
    assert evaluate(here, "single:worker") == 0
    assert len(server.asked("worker")) == 8


def test_another_pool_other_limits_or_a_changed_task_cannot_go_on_in_the_same_folder(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"))
    evaluate(here, "single:worker")
    with pytest.raises(ConfigError, match=r"was begun with max_turns 5 \(now 3\)"):
        evaluate(here, "single:worker", max_turns=3)
    suite(here, task("one", instruction="Something else."))
    with pytest.raises(
        ConfigError, match="was begun with another task 'one': its contents have changed"
    ):
        evaluate(here, "single:worker")
    suite(here, task("one"))
    configured(Path(os.environ["HOME"]), server, ("worker", "strong"))
    with pytest.raises(ConfigError, match=r"another pool \(idler, worker; now worker\)"):
        evaluate(here, "single:worker")


def test_an_agent_that_is_opted_out_is_no_arm_of_its_own_and_never_asked(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"))
    rc = Path(os.environ["HOME"]) / ".fugurc"
    rc.write_text(f'opt_out = ["idler"]\n{rc.read_text()}')
    with pytest.raises(UsageError, match="'single:idler' names an agent that is opted out"):
        evaluate(here, "single:idler")
    assert evaluate(here, "single", "one-pass", "cascade") == 0
    assert [arm for arm, *_ in cells(here)] == ["cascade", "one-pass:worker", "single:worker"]
    assert server.asked("idler") == []
    assert "- pool: worker (worker, strong)\n" in (here / "out" / "report.md").read_text()


def test_two_evaluations_do_not_write_to_one_folder(here: Path) -> None:
    suite(here, task("one"))
    with (
        locked_folder(here / "out"),
        pytest.raises(SessionBusy, match="another evaluation writes to"),
    ):
        evaluate(here, "single:worker")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"arms": ["magic"]}, "there is no arm 'magic'"),
        ({"arms": ["single:nobody"]}, "'single:nobody' names no agent of the pool"),
        ({"suites": ["absent"]}, "absent: there is no such file or folder"),
        ({"suites": []}, "no tasks were given"),
        ({"suites": ["gym:"]}, "'gym:' names no questions"),
    ],
)
def test_words_that_mean_nothing_are_refused_before_anything_is_spent(
    here: Path, server: Loopback, words: dict[str, object], message: str
) -> None:
    file = suite(here, task("one"))
    flags = {"suites": [str(file)], "arms": ["single:worker"], "out": here / "out"} | words
    with pytest.raises(UsageError, match=message):
        command.evaluate(EvalFlags(**flags))  # type: ignore[arg-type]
    assert asked(server) == 0


def test_questions_are_answered_and_judged_like_tasks(here: Path, server: Loopback) -> None:
    (here / "own.jsonl").write_text(
        json.dumps({"id": "sum", "question": "How many are 2 + 2?", "answer": "4"})
    )
    server.play("worker", Says("Two and two.\nAnswer: 4"), Says("ACCEPT"))
    assert evaluate(here, "single", "one-pass:worker") == 0
    assert cells(here) == [
        ("one-pass:worker", "sum", 0, True),
        ("single:idler", "sum", 0, False),
        ("single:worker", "sum", 0, True),
    ]


def test_questions_that_differ_in_a_number_alone_are_answered_one_by_one(
    here: Path, server: Loopback
) -> None:
    told = {"2.0 s": "20", "4.0 s": "80"}
    lines = [
        {"id": f"fall-{far}", "question": f"It falls for {time}: how far?", "answer": far}
        for time, far in told.items()
    ]
    (here / "own.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    server.react(
        "worker",
        lambda asked: Says(
            next(f"Answer: {far}" for time, far in told.items() if time in asked.text)
        ),
    )
    assert evaluate(here, "one-pass:worker", rollouts=1) == 0
    assert [row.ok for row in measured(here)] == [True, True]


def test_a_request_that_an_agent_cannot_take_is_its_own_failure_and_counts(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"))
    server.play("worker", Refuses(413, "too large"))
    assert evaluate(here, "single:worker") == 0
    (row,) = measured(here)
    assert (row.ok, row.reason) == (False, "failed")
    assert row.failures[0].startswith("worker: invalid: ")


@pytest.mark.parametrize(
    "answer", [Breaks("html"), Refuses(408, "late", "timeout", {"retry-after-ms": "1"})]
)
def test_what_is_no_answer_leaves_the_rollout_for_the_next_time(
    here: Path, server: Loopback, answer: Answer
) -> None:
    suite(here, task("one"))
    server.play("worker", answer)
    assert evaluate(here, "single:worker") == 2
    assert measured(here) == []


def test_an_agent_that_is_not_there_stops_the_evaluation_with_nothing_scored(
    here: Path, server: Loopback
) -> None:
    suite(here, task("one"), task("two"))
    server.play("worker", Refuses(404, "no such model", "not_found_error"))
    with pytest.raises(FuguError, match=r"nothing at .* answers for worker") as caught:
        evaluate(here, "single:worker", rollouts=1)
    assert caught.value.exit_code == 2
    assert "Check `model` and `base_url`" in caught.value.hint
    assert measured(here) == []


def test_rollouts_at_once_take_turns_at_the_cores_for_tests_and_commands(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0}, raising=False)
    core = fugu_cli.__file__  # a file that every sandbox can read
    check = f'exec 9<"{core}"; flock -n 9 || exit 1; sleep 0.2; grep fixed calc.txt\n'
    names = [f"t{number}" for number in range(4)]
    repositories = [{"calc.txt": f"broken {name}\n", "check.sh": check} for name in names]
    suite(here, *(task(name, repo=repo) for name, repo in zip(names, repositories, strict=True)))
    assert evaluate(here, "single:worker", rollouts=4) == 0
    assert cells(here) == [("single:worker", name, 0, True) for name in names]
    setup = results_folder.read_setup(here / "out")
    assert setup is not None and (setup.rollouts_at_once, setup.commands_at_once) == (4, 1)
    assert evaluate(here, "single:worker", rollouts=2) == 0


def test_tasks_are_checked_side_by_side(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meeting = asyncio.Barrier(2)

    async def check(task: Task) -> TaskCheck:
        await meeting.wait()
        return TaskCheck(task=task.id, sha="")

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1}, raising=False)
    monkeypatch.setattr(engine, "check_task", check)
    about = {"source": "own", "language": "text", "kind": "fix", "prompt": "", "files": {}}
    about |= {"test_command": "true", "grade_command": "true", "timeout": 1.0}
    tasks = [Task.model_validate({"id": name, **about}) for name in ("one", "two")]
    local = command.open_engine(RolloutFlags(), current_config().config, here)
    checks = asyncio.run(asyncio.wait_for(runner.check_tasks(tasks, local, here, print), 60))
    assert list(checks) == ["one", "two"]


def test_a_killed_evaluation_goes_on_and_repeats_no_call(here: Path, server: Loopback) -> None:
    """SIGKILL while a model is answering; then the same command. Answered calls are counted by the
    server.
    """
    suite(here, *(task(f"t{number}") for number in range(2)))
    arms = ("cascade", "single:worker", "retry-same:worker")
    gate = Gate(9)
    server.react("worker", gate)
    words = [word for arm in arms for word in ("-a", arm)]
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "fugu_cli",
            "eval",
            "own.jsonl",
            "--out",
            "out",
            "--rollouts",
            "2",
            *words,
        ],
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    server.wait_for("worker", 10, seconds=60)
    while (
        len(list((here / "out" / "replies").rglob("*.json"))) < 9
    ):  # what was answered is kept by now
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    answered = 9
    gate.opened.set()
    under_way = len(server.asked("worker")) - answered
    assert 1 <= under_way <= 2
    server_saw = len(server.asked("worker"))
    server.asked("worker")
    assert evaluate(here, *arms) == 0
    resumed = len(server.asked("worker")) - server_saw
    lost = [call for call in paid(here) if call.lost]
    assert len(lost) == under_way
    assert all(call.usd > 0 for call in lost)
    assert cells(here) == [
        (arm, f"t{number}", 0, True) for arm in sorted(arms) for number in range(2)
    ]
    alone_folder = here / "whole"
    alone_folder.mkdir()
    server.react("worker", fixes)
    suite(alone_folder, *(task(f"t{number}") for number in range(2)))
    assert evaluate(alone_folder, *arms) == 0
    needed = len(server.asked("worker"))
    assert answered + resumed == needed
