"""Isolation as it is on the wire: the very bytes that leave for each agent's server hold nothing
the agent may not see.

Random pools (Chat Completions, the Messages API) carry out random
conversations: steps that read files, steps whose server refuses, steps that say nothing, workflows
inside workflows, second rounds.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from hypothesis import given, settings
from hypothesis import strategies as st

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.conductor.conductor import ConductorSettings
from fugu_cli.providers import Agent
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.session.events import Assigned, Planned
from fugu_cli.session.log import Log
from fugu_cli.wires.chat_completions import OpenAI
from fugu_cli.wires.messages import Anthropic
from tests.reacting import repository
from tests.unit.coordinators.conductor.staging import POOL, Play, lists
from tests.unit.coordinators.conductor.test_isolation import FILES, MARK, may_see

WIRES = ("openai", "anthropic")
KINDS = ("speaks", "speaks", "speaks", "reads", "reads", "refuses", "silent")


@dataclass
class Said:
    """What a model answers, before it is put into its wire's words."""

    text: str
    thought: str = ""
    path: str = ""


@dataclass
class Script:
    """What is drawn: who speaks which wire, the planner's replies, and what the agents do, one
    after the other.
    """

    wires: tuple[str, str, str]
    plans: list[str]
    kinds: list[str]
    log: Log = field(default_factory=Log.memory)
    count: int = 0
    shown: list[tuple[str, str, int]] = field(default_factory=list)
    planned: list[str] = field(default_factory=list)

    def answer(self, name: str, body: str, *, called: bool) -> Said | None:
        """None: refused."""
        self.count += 1
        if "You plan." in body:
            self.planned.append(body)
            text = self.plans.pop(0) if self.plans else "no more plans"
            return Said(text, f"mark-planning-{self.count}")
        self.shown.append((name, body, len(self.log.events)))
        kind = "speaks" if called else self.kinds[self.count % len(self.kinds)]
        match kind:
            case "refuses":
                return None
            case "silent":
                return Said("", f"mark-thought-{self.count}")
            case "reads":
                return Said(
                    f"mark-said-{self.count}",
                    f"mark-thought-{self.count}",
                    f"f{self.count % 3}.txt",
                )
            case _:
                return Said(f"mark-output-{self.count}", f"mark-thought-{self.count}")


class Wire(httpx.AsyncBaseTransport):
    """A model's server for one agent; keeps the bytes it was sent."""

    def __init__(self, name: str, wire: str, script: Script) -> None:
        self._name, self._wire, self._script = name, wire, script

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        body = (await request.aread()).decode()
        last = json.loads(body)["messages"][-1]
        called = last["role"] == "tool" or '"tool_result"' in json.dumps(last["content"])
        said = self._script.answer(self._name, body, called=called)
        if said is None:
            return httpx.Response(
                401, json={"error": {"message": "no", "type": "authentication_error"}}
            )
        return httpx.Response(
            200, json=_message(said) if self._wire == "anthropic" else _completion(said)
        )


def _completion(said: Said) -> dict[str, object]:
    function = {"name": "read", "arguments": json.dumps({"path": said.path})}
    message: dict[str, object] = {
        "role": "assistant",
        "content": said.text,
        "reasoning_content": said.thought,
    }
    if said.path:
        message["tool_calls"] = [
            {"index": 0, "id": "call_0", "type": "function", "function": function}
        ]
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if said.path else "stop",
    }
    return {"id": "1", "object": "chat.completion", "model": "m", "choices": [choice]}


def _message(said: Said) -> dict[str, object]:
    content: list[dict[str, object]] = [
        {"type": "thinking", "thinking": said.thought, "signature": "s"}
    ]
    if said.text:
        content.append({"type": "text", "text": said.text})
    if said.path:
        content.append(
            {"type": "tool_use", "id": "call_0", "name": "read", "input": {"path": said.path}}
        )
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"type": "message", "id": "1", "role": "assistant", "model": "m", "usage": usage}
    return {**head, "content": content, "stop_reason": "tool_use" if said.path else "end_turn"}


def agent(name: str, wire: str, script: Script) -> Agent:
    """The provider's own class, whose bytes are kept."""
    access = ModelEndpoint(
        name=name, model=f"m-{name}", base_url="https://api.example.org/v1", key="sk-x", key_env="X"
    )
    server = Wire(name, wire, script)
    if wire == "anthropic":
        return Anthropic(access, server)
    return OpenAI(access, server)


@st.composite
def plans(draw: st.DrawFn) -> str:
    """A workflow; now and then a step is the planner's own, or the reply is no workflow, or keeps
    what there is.
    """
    kind = draw(st.sampled_from(["workflow"] * 6 + ["prose", "empty"]))
    if kind != "workflow":
        return (
            "I would not." if kind == "prose" else "model_id = []\nsubtasks = []\naccess_list = []"
        )
    steps = []
    for place in range(draw(st.integers(1, 4))):
        some = st.lists(st.integers(0, place - 1), unique=True) if place else st.just([])
        access = draw(st.one_of(some, st.just(["all"])))
        steps.append(
            (draw(st.integers(0, 3)), f"Fix mark-subtask-{draw(st.integers(0, 10**6))}", access)
        )
    return lists(*steps)


SCRIPTS = st.builds(
    Script,
    wires=st.tuples(st.sampled_from(WIRES), st.sampled_from(WIRES), st.sampled_from(WIRES)),
    plans=st.lists(plans(), min_size=2, max_size=8),
    kinds=st.lists(st.sampled_from(KINDS), min_size=1, max_size=7),
)


def carried_out(folder: Path, script: Script, requests: int) -> Play:
    """A conversation of so many requests, over the wire."""
    pairs = list(zip(POOL, script.wires, strict=True))
    agents = {member.name: agent(member.name, wire, script) for member, wire in pairs}
    root = repository(folder / "repo", FILES)
    play = Play(
        root,
        agents,
        POOL,
        ConductorSettings(agent="c", rounds=2, depth=1),
        CoordinatorSettings(turns=9),
    )
    script.log = play.log
    for number in range(requests):
        play.run(f"mark-request-{number}")
    return play


def leaks(script: Script) -> list[str]:
    """What was sent to an agent and is not its to see."""
    found = []
    for name, body, upto in script.shown:
        records = script.log.records[:upto]
        newest = next(
            r.event
            for r in reversed(records)
            if isinstance(r.event, Assigned) and r.event.agent == name
        )
        over = set(MARK.findall(body)) - may_see(records, name)
        if (
            over and newest.plan
        ):  # turn by turn, where no workflow could be had, agents share one history
            found.append(f"{name} was sent {over}")
    return found


@given(SCRIPTS, st.integers(1, 3))
@settings(max_examples=12, deadline=None)
def test_nothing_else_leaves_for_an_agents_server(script: Script, requests: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        carried_out(Path(folder), script, requests)
        assert leaks(script) == []
        for body in script.planned:
            own = {mark.split("-")[1] for mark in MARK.findall(body)}
            assert own <= {"request", "output", "subtask"}, (
                "neither thoughts nor files reach the planner"
            )


def test_who_takes_a_divided_part_over_sees_its_own_steps_alone(tmp_path: Path) -> None:
    script = Script(
        wires=("openai", "openai", "openai"),
        plans=[
            lists((3, "Fix mark-subtask-1", []), (0, "Fix mark-subtask-2", [])),
            lists((0, "Fix mark-subtask-3", [])),
        ],
        kinds=["refuses"],
    )
    carried_out(tmp_path, script, 1)
    name, body, _upto = script.shown[-1]
    assert name == "b"
    assert set(MARK.findall(body)) == {"mark-request-0", "mark-subtask-1", "mark-subtask-3"}
    assert leaks(script) == []


def test_a_conversation_of_the_property_holds_what_it_should(tmp_path: Path) -> None:
    """A workflow inside a step, a refused server, a second round: so that the property is about
    something.
    """
    outer = lists(
        (3, "Fix mark-subtask-1", []), (1, "Fix mark-subtask-2", []), (0, "Fix mark-subtask-3", [0])
    )
    inner = lists((0, "Fix mark-subtask-4", []), (1, "Fix mark-subtask-5", ["all"]))
    again = lists((2, "Fix mark-subtask-6", ["all"]))
    script = Script(("openai", "openai", "anthropic"), [outer, inner, again], ["speaks", "reads"])
    play = carried_out(tmp_path, script, 1)
    assert leaks(script) == []
    within = [
        (event.round, event.within) for event in play.of(Planned) if isinstance(event, Planned)
    ]
    assert within == [(1, None), (1, (1, 0)), (2, None)]
    assert {name for name, _, _ in script.shown} == {"a", "b", "c"}
    assert any("mark-file" in body for _, body, _ in script.shown)
    told = next(body for name, body, _ in reversed(script.shown) if name == "c")
    assert {"mark-subtask-6"} < set(MARK.findall(told)), (
        "the corrective step reads what the first round said"
    )


def test_a_leak_would_be_found(tmp_path: Path) -> None:
    """The property's own eyes: a text of somebody else in a request is a leak."""
    script = Script(
        ("openai",) * 3,
        [lists((0, "Fix mark-subtask-1", []), (1, "Fix mark-subtask-2", []))],
        ["speaks"],
    )
    carried_out(tmp_path, script, 1)
    name, body, upto = next(one for one in script.shown if one[0] == "b")
    script.shown.append((name, body + " mark-subtask-1", upto))
    assert leaks(script) == ["b was sent {'mark-subtask-1'}"]
