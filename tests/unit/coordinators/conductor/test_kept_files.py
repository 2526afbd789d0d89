"""Files kept from an agent (`deny_agents`), where it works in a worktree beside one that may read
them.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.safety import policy
from fugu_cli.safety.path_rules import Denials
from fugu_cli.session.events import Permitted, ToolRan
from fugu_cli.session.log import Log
from tests.reacting import CHECK, React, calls, repository, results
from tests.unit.coordinators.conductor.staging import Play, everything, lists, planning, play

JOB = "Repair calc.txt."


def kept_from_a(tmp_path: Path, react: React, **others: React) -> Play:
    """Two do the same job; secret.txt is kept from one of them."""
    root = repository(
        tmp_path / "repo", {"calc.txt": "broken\n", "check.sh": CHECK, "secret.txt": "word 4711\n"}
    )
    found = play(tmp_path, planning(lists((0, JOB, []), (1, JOB, []))), {"a": react, **others})
    found.change = lambda stage: replace(stage, denials=Denials({"secret.txt": ("a",)}, root))
    return found


def test_a_step_keeps_its_words_when_another_one_is_shown_what_is_kept_from_it(
    tmp_path: Path,
) -> None:
    log = Log.memory()
    looked: list[str] = []

    def looks(prompt: Prompt) -> Reply:
        """Until the other one has read it, and once more."""
        if looked:
            return Reply(text="done")
        if any(isinstance(event, ToolRan) and "4711" in event.output for event in log.events):
            looked.append("after it")
        return calls(Call.make(f"l{len(prompt.messages)}", "list"))

    def reads(prompt: Prompt) -> Reply:
        return (
            Reply(text="done")
            if results(prompt)
            else calls(Call.make("x", "read", path="secret.txt"))
        )

    found = kept_from_a(tmp_path, looks, b=reads)
    found.log = log
    found.run("fix the tests", judged=True)
    shown = everything(found.shown("a")[-1])
    assert (JOB in shown, "4711" in shown, looked) == (True, False, ["after it"])


def test_a_file_that_is_kept_from_a_step_is_kept_however_it_is_called_in_its_worktree(
    tmp_path: Path,
) -> None:
    names = ["secret.txt", "../tree/secret.txt", "./x/../secret.txt"]
    writes = [
        Call.make(str(number), "write", path=name, content="mine\n")
        for number, name in enumerate(names)
    ]

    def one_by_one(prompt: Prompt) -> Reply:
        left = writes[len(results(prompt)) :]
        return calls(left[0]) if left else Reply(text="done")

    found = kept_from_a(tmp_path, one_by_one)
    found.run("fix the tests", judged=True)
    judged = [
        event
        for event in found.of(Permitted)
        if isinstance(event, Permitted) and event.call.tool == "write"
    ]
    assert [(event.allowed, event.reason) for event in judged] == [
        (False, f"deny_agents keeps {name} from a. {policy.GO_ON_WITHOUT}") for name in names
    ]
