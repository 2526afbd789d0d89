"""Conversations in which the client's tools were used, and that go on without tools: a client sums
up, or asks on.
"""

from pathlib import Path
from typing import Any

import httpx
import pytest

from fugu_cli.messages import Prompt, Reply
from fugu_cli.prompts import load
from tests.acceptance.serve.endpoint import Endpoint, endpoint, says, uses
from tests.acceptance.serve.test_workflows import plan, plans, ultra

ASKED = {"role": "user", "content": "which files are there?"}
SUM_UP = {"role": "user", "content": "sum it up"}
TOOL = {
    "type": "function",
    "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}},
}
OURS = load("serve/worker")


def ask(place: Endpoint, messages: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    headers = more.pop("headers", {})
    body = {"model": "fugu", "messages": messages, **more}
    answer = httpx.post(f"{place.url}/v1/chat/completions", json=body, headers=headers)
    answer.raise_for_status()
    message: dict[str, Any] = answer.json()["choices"][0]["message"]
    return message


def used(place: Endpoint, *, foreign: bool = False) -> list[dict[str, Any]]:
    """A question, the call it led to, and its result. `foreign`: the call was not made here."""
    called = ask(place, [ASKED], tools=[TOOL])
    if foreign:
        called["tool_calls"][0]["id"] = "call_x"
    for agent in place.agents.values():
        agent.shown.clear()
    return [
        ASKED,
        called,
        {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": "a.txt"},
    ]


def read(prompt: Prompt) -> list[tuple[str, str]]:
    return [(message.type, getattr(message, "text", "")) for message in prompt.messages]


@pytest.mark.parametrize("foreign", [False, True])
def test_what_tools_said_and_the_user_says_next_is_read_by_worker_and_verifier(
    tmp_path: Path, foreign: bool
) -> None:
    with endpoint(tmp_path, uses()).serving() as place:
        ask(place, [*used(place, foreign=foreign), SUM_UP])
    known = [
        ("user", "which files are there?"),
        ("agent", "looking"),
        ("tool", "a.txt"),
        ("user", "sum it up"),
    ]
    works, judges = read(place.agents["small"].shown[0]), read(place.agents["strong"].shown[0])
    assert works == [*known, ("user", OURS)]
    assert judges[:4] == known


def test_what_was_said_beside_earlier_results_stays_where_it_was_said(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses()).serving() as place:
        beside = {"role": "user", "content": "text files only"}
        ask(place, [*used(place), beside, {"role": "assistant", "content": "one"}, SUM_UP])
    assert read(place.agents["small"].shown[0])[2:] == [
        ("tool", "a.txt"), ("user", "text files only"), ("agent", "one"), ("user", "sum it up"), ("user", OURS),
    ]  # fmt: skip


def test_results_are_gone_on_with_where_nothing_was_said_since(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses()).serving() as place:
        answer = ask(place, used(place))
    assert answer["content"] == "the tool said it"
    assert read(place.agents["small"].shown[0])[1:] == [
        ("agent", "looking"),
        ("tool", "a.txt"),
        ("user", OURS),
    ]


@pytest.mark.parametrize("verify", ["true", "false"])
def test_an_agent_that_is_opted_out_does_not_see_the_results_of_its_calls(
    tmp_path: Path, verify: str
) -> None:
    with endpoint(tmp_path, uses(), says("a.txt is there")).serving() as place:
        told = {"x-fugu-opt-out": "small", "x-fugu-verify": verify}
        answer = ask(place, used(place), headers=told)
    assert answer["content"] == "a.txt is there"
    assert place.agents["small"].shown == []
    assert read(place.agents["strong"].shown[0]) == [
        ("user", "which files are there?"), ("agent", "looking"), ("tool", "a.txt"),
        ("user", "which files are there?"), ("user", OURS),
    ]  # fmt: skip


def test_a_workflow_is_planned_after_results_too(tmp_path: Path) -> None:
    def works(prompt: Prompt) -> Reply:
        return Reply(text=plan((0, "say it", []))) if plans(prompt) else Reply(text="no")

    with ultra(tmp_path, uses(), works).serving() as place:
        ask(place, used(place), model="fugu-ultra")
    assert [plans(prompt) for prompt in place.agents["strong"].shown] == [True]
