"""Which prompts share a reply that was paid for: those that differ in what chance put into them,
and no others.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Prompt
from fugu_cli.providers import Agent
from fugu_cli.session.events import Member
from fugu_cli.training.evaluation.paid_calls import (
    REPLIES_FOLDER,
    PaidAgent,
    ReplyLocks,
    RolloutBilling,
    Spending,
    SpendingLimits,
    task_literals,
)
from fugu_cli.training.tasks import Task

MEMBER = Member(name="worker", provider="scripted", model="m", slot="strong")
Give = Callable[..., Agent]


def asked(agent: Agent, folder: Path, task: Task, *messages: Message, where: str = "here") -> str:
    """The reply to these messages in a rollout of the task, whose repository lies in `where`."""
    spending = Spending(folder / "paid.jsonl", SpendingLimits())
    billing = RolloutBilling(
        rollout="rollout",
        repository=folder / where / "repository",
        seed=0,
        folder=folder,
        spending=spending,
        locks=ReplyLocks(),
        named=task_literals(task),
    )
    prompt = Prompt(system="You work here.", messages=messages)
    paying = PaidAgent(agent, MEMBER, {"model": "m"}, billing)
    return asyncio.run(paying.reply(prompt, lambda _text: None, lambda _pause: None)).text


def printed(text: str) -> FromTool:
    return FromTool(call="1", tool="bash", text=text)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("What is 0x1a2b3c in decimal?", "What is 0xffffff in decimal?"),
        ("A stone falls for 2.0 s. How far?", "A stone falls for 4.0 s. How far?"),
        ("Write 'finished in 1.5 min' to a file.", "Write 'finished in 2.5 min' to a file."),
        ("What ends /tmp/report.txt?", "What ends /tmp/table.csv?"),
    ],
)
def test_two_requests_that_differ_in_a_number_or_a_path_have_a_reply_each(
    given: Give, task: Task, tmp_path: Path, one: str, other: str
) -> None:
    agent = given("worker", "the first", "the second")
    first, second = (task.model_copy(update={"prompt": text}) for text in (one, other))
    assert asked(agent, tmp_path, first, FromUser(text=one)) == "the first"
    assert asked(agent, tmp_path, second, FromUser(text=other)) == "the second"
    assert asked(agent, tmp_path, first, FromUser(text=one), where="elsewhere") == "the first"


def test_what_tools_and_tests_print_by_chance_is_no_other_prompt(
    given: Give, task: Task, tmp_path: Path
) -> None:
    agent = given("worker", "paid once")
    request = FromUser(text=task.prompt)
    for number in (1, 2):
        tests = FromUser(
            text=f"[The tests were run: they FAIL.]\n1 failed in 0.{number}2s\n0.{number}1s call"
        )
        where = f"{tmp_path}/{number}/repository"
        tool = printed(
            f"{where}: <f at 0x7f00aa11bb2{number}>, /tmp/pytest-{number}, duration_ms {number}.25"
        )
        assert asked(agent, tmp_path, task, request, tests, tool, where=str(number)) == "paid once"


def test_what_an_agent_wrote_is_never_taken_for_chance(
    given: Give, task: Task, tmp_path: Path
) -> None:
    agent = given(
        "verifier", "ACCEPT: 20 m is right.", "REVISE: 40 m is wrong.", "ACCEPT", "REVISE"
    )
    said = [FromAgent(agent="worker", text=f"It takes {seconds} s.") for seconds in (2.0, 2.8)]
    written = [
        FromAgent(agent="worker", calls=(Call.make("1", "write", path="a.c", content=mask),))
        for mask in ("0xff0000", "0x00ff00")
    ]
    replies = [
        asked(agent, tmp_path, task, FromUser(text=task.prompt), one) for one in (*said, *written)
    ]
    assert replies == ["ACCEPT: 20 m is right.", "REVISE: 40 m is wrong.", "ACCEPT", "REVISE"]


def test_addresses_and_paths_in_the_files_of_a_task_are_no_chance(
    given: Give, task: Task, tmp_path: Path
) -> None:
    agent = given("worker", "the red one", "the green one")
    request = FromUser(text=task.prompt)
    found = []
    for mask in ("0xff0000", "0x00ff00"):
        masked = task.model_copy(update={"files": {"mask.py": f"MASK = {mask}\n"}})
        found.append(asked(agent, tmp_path, masked, request, printed(f"1  MASK = {mask}")))
    assert found == ["the red one", "the green one"]


def test_a_time_in_the_files_of_a_task_does_not_make_a_test_run_another(
    given: Give, task: Task, tmp_path: Path
) -> None:
    agent = given("worker", "paid once")
    timed = task.model_copy(update={"files": {"log.txt": "1 failed in 0.12s\n"}})
    for seconds in (0.12, 0.13):
        assert asked(agent, tmp_path, timed, printed(f"1 failed in {seconds}s")) == "paid once"


def test_a_reply_keeps_its_name_over_versions_where_only_tools_printed_what_changes(
    given: Give, task: Task, tmp_path: Path
) -> None:
    asked(
        given("worker", "kept"),
        tmp_path,
        task,
        FromUser(text="Fix it.\n\n1 failed in 0.12s at 0x7f00aa11bb22"),
        FromAgent(agent="a", text="I look."),
        FromTool(
            call="1",
            tool="bash",
            text=f"/tmp/x1/a.py: finished in 2.53s\n{tmp_path}/here/repository/calc.txt",
        ),
    )
    (kept,) = (tmp_path / REPLIES_FOLDER).rglob("*.json")
    assert (
        kept.parent.name + kept.stem
        == "bfe795f666c44ec0c75fe6056694a4ae298badd940a2d12d422fb84403261283"
    )
