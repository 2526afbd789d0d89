"""Workflows played by agents made of functions: shared by the tests of this folder."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.conductor.conductor import Conductor, ConductorSettings
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.engine import orchestrator
from fugu_cli.engine.environment import Environment
from fugu_cli.messages import FromUser, Prompt, Reply
from fugu_cli.providers import Agent
from fugu_cli.session.events import Event, Finished, Member
from fugu_cli.session.log import Log
from tests.reacting import React, Reacting, Stage, repository, says

A = Member(name="a", provider="openai", model="m-a", slot="cheap")
B = Member(name="b", provider="openai", model="m-b", slot="middle")
C = Member(name="c", provider="openai", model="m-c", slot="strong")
POOL = (A, B, C)
KEEP = "I keep it.\nmodel_id = []\nsubtasks = []\naccess_list = []"


def lists(*steps: tuple[int, str, object]) -> str:
    """A plan as a planner writes it: (model, subtask, access) for each step."""
    numbers, subtasks, access = zip(*steps, strict=True)
    return (
        f"Plan.\nmodel_id = {list(numbers)}\nsubtasks = "
        f"{json.dumps(list(subtasks))}\naccess_list = {list(access)!r}"
    )


def plans(prompt: Prompt) -> bool:
    """The agent is asked for a plan."""
    return prompt.system.startswith("You plan.")


def newest(prompt: Prompt) -> str:
    """The newest message that is not an agent's."""
    return next(
        message.text for message in reversed(prompt.messages) if isinstance(message, FromUser)
    )


def everything(prompt: Prompt) -> str:
    """All that an agent reads."""
    return prompt.system + "".join(message.model_dump_json() for message in prompt.messages)


def both(planner: React, worker: React) -> React:
    """One agent that plans and works."""
    return lambda prompt: planner(prompt) if plans(prompt) else worker(prompt)


def planning(*replies: str) -> React:
    """The plans of the rounds, in order: told by what the prompt says, so that it may be asked
    twice.
    """

    def react(prompt: Prompt) -> Reply:
        text = newest(prompt)
        if "Your reply could not be used" in text:
            return Reply(text=replies[1])
        return Reply(text=replies[1 if "A plan was carried out" in text else 0])

    return react


@dataclass
class Play:
    """A session in a small repository."""

    root: Path
    agents: Mapping[str, Agent]
    members: tuple[Member, ...] = POOL
    bounds: ConductorSettings = field(
        default_factory=lambda: ConductorSettings(agent="c", rounds=1)
    )
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)
    log: Log = field(default_factory=Log.memory)
    change: Callable[[Stage], Stage] = lambda stage: stage

    def stage(self) -> Stage:
        cascade = Cascade(self.members, self.settings)
        conductor = Conductor(self.members, self.bounds, self.settings, cascade)
        stage = Stage(
            self.root, self.root.parent / "data" / "store", self.members, self.agents, conductor
        )
        return self.change(stage)

    def environment(self) -> Environment:
        return replace(self.stage().environment(), remembers=True)

    def run(self, text: str = "tell me of it", *, judged: bool = False) -> Finished:
        async def whole() -> Finished:
            stage = self.stage()
            await (stage.asked if self.log.events else stage.begin)(self.log, text, judged=judged)
            return await self.again()

        return asyncio.run(whole())

    async def again(self) -> Finished:
        return await orchestrator.run(self.log, self.stage().team(), self.environment())

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for event in self.log.events if isinstance(event, kind)]

    def shown(self, name: str) -> list[Prompt]:
        agent = self.agents[name]
        assert isinstance(agent, Reacting)
        return agent.shown


def play(tmp: Path, plan: React, reacts: Mapping[str, React], **more: object) -> Play:
    """`plan` is the strongest agent's part as planner; who is not in `reacts` says its own name."""
    root = tmp / "repo" if (tmp / "repo").exists() else repository(tmp / "repo")
    agents = {
        member.name: Reacting(member.name, reacts.get(member.name, says(f"{member.name} was here")))
        for member in POOL
    }
    agents["c"] = Reacting("c", both(plan, reacts.get("c", says("c was here"))))
    return Play(root, agents, **more)  # type: ignore[arg-type]


def kinds(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]
