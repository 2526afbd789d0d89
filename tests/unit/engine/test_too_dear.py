"""Money and who acts: an agent whose next call the budget does not carry is masked, and one that
fits goes on.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.coordinators import Coordinator, CoordinatorSettings, action_space
from fugu_cli.coordinators.baselines import LLMRouter, SingleAgentRounds
from fugu_cli.coordinators.conductor.conductor import Conductor, ConductorSettings
from fugu_cli.coordinators.rules import Cascade, Random, Single
from fugu_cli.engine.environment import RequestLimits
from fugu_cli.messages import Call, Prompt, Reply, Usage
from fugu_cli.providers import Say, Wait
from fugu_cli.session.events import (
    Assigned,
    BudgetLeft,
    Failed,
    Finished,
    Masked,
    Member,
    Price,
    Replied,
)
from fugu_cli.session.state import SessionState
from tests.reacting import React, Reacting, Stage, calls, repository, said, says
from tests.unit.engine.test_orchestrator import Play

CHEAP = Member(
    name="cheap", provider="openai", model="c", slot="cheap", price=Price(input=0.1, output=0.1)
)
STRONG = Member(
    name="strong",
    provider="openai",
    model="s",
    slot="strong",
    price=Price(input=100.0, output=1000.0),
)
POOL = (CHEAP, STRONG)
DEAR = "budget: its next call may cost $4."
SETTINGS = CoordinatorSettings()


def play(tmp: Path, coordinator: Coordinator, budget: float, **reacts: React) -> Play:
    """`budget`: of the request, in USD; a call of `strong` may cost $4.10 and more, one of `cheap` less
    than a cent.
    """
    agents = {
        member.name: Paid(member.name, reacts.get(member.name, says("ACCEPT"))) for member in POOL
    }
    root = repository(tmp / "repo")
    return Play(Stage(root, tmp / "store", POOL, agents, coordinator, RequestLimits(budget)))


def test_what_the_budget_leaves_is_recorded_before_each_decision(tmp_path: Path) -> None:
    found = play(tmp_path, MADE["cascade"](), 0.02, cheap=says("ACCEPT"))
    found.run("what is in calc.txt?", judged=False)
    left = [event.dollars for event in found.of(BudgetLeft) if isinstance(event, BudgetLeft)]
    assert left[0] == 0.02
    assert left == sorted(left, reverse=True) and len(left) == len(set(left)) > 1


def actors(found: Play) -> list[str]:
    return [event.agent for event in found.of(Assigned) if isinstance(event, Assigned)]


def masked(found: Play) -> list[str]:
    """Who was masked, and how the reason begins."""
    pairs = [
        pair for event in found.of(Masked) if isinstance(event, Masked) for pair in event.agents
    ]
    return [f"{name} {str(why)[: len(DEAR)]}" for name, why in pairs]


class Dearest:
    """Takes the last of the pool that can act: what a learned head does that prefers it."""

    async def decide(self, state: SessionState) -> Assigned | Finished:
        if end := action_space.request_end(state, turns=5, verify_answers=False):
            return end
        out = action_space.agents_out(state)
        able = [member.name for member in POOL if member.name not in out]
        turn = action_space.next_turn_number(state)
        return (
            Assigned(turn=turn, agent=able[-1], role="worker", by="test")
            if able
            else action_space.finish_without_agents(state, out)
        )


class Paid(Reacting):
    """An agent whose every reply takes a moment and `tokens`: a thousand of `strong` are a
    dollar.
    """

    tokens = 1000

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        await asyncio.sleep(0.01)
        reply = await super().reply(prompt, say, wait)
        return reply.model_copy(update={"usage": Usage(output=self.tokens)})


MADE: dict[str, Callable[[], Coordinator]] = {
    "learned": Dearest,
    "cascade": lambda: Cascade(POOL, CoordinatorSettings(verify_answers=True)),
    "random": lambda: Random(POOL, CoordinatorSettings(seed=3)),
    "prompted": lambda: LLMRouter("strong", POOL, SETTINGS),
    "ultra": lambda: Conductor(
        POOL, ConductorSettings(rounds=1), SETTINGS, Cascade(POOL, SETTINGS)
    ),
}


@pytest.mark.parametrize("name", MADE)
def test_who_is_too_dear_is_masked_and_another_answers(tmp_path: Path, name: str) -> None:
    plan = 'model_id = [0]\nsubtasks = ["Say it."]\naccess_list = [[]]'
    found = play(tmp_path, MADE[name](), 0.05, cheap=says(plan if name == "ultra" else "ACCEPT"))
    assert found.run("what is in calc.txt?", judged=False).reason in {"answered", "accepted"}
    assert set(actors(found)) == {"cheap"}
    assert masked(found)[0] == f"strong {DEAR}"
    strong = found.stage.agents["strong"]
    assert isinstance(strong, Reacting) and not strong.shown


def test_where_nobody_fits_the_request_ends_and_says_what_each_may_cost(tmp_path: Path) -> None:
    found = play(tmp_path, Dearest(), 0.0001)
    end = found.run("what is in calc.txt?", judged=False)
    assert end.reason == "budget"
    assert end.message.startswith(
        "no agent is left that the budget carries (cheap: budget: its next call may cost $0.0"
    )
    assert (
        "strong: " + DEAR in end.message
        and "$0.0001 of the request's budget of $0.0001 are left" in end.message
    )
    assert actors(found) == []


@pytest.mark.parametrize(
    "alone", [Single("strong", POOL, SETTINGS), SingleAgentRounds("one-pass", "strong", 1)]
)
def test_one_agent_alone_that_is_too_dear_ends_it_by_the_budget(
    tmp_path: Path, alone: Coordinator
) -> None:
    assert play(tmp_path, alone, 0.05).run("what is it?", judged=False).reason == "budget"


def test_an_agent_that_becomes_too_dear_in_its_turn_gives_way(tmp_path: Path) -> None:
    def reads(prompt: Prompt) -> Reply:
        return (
            Reply(text="never said")
            if said(prompt)
            else calls(Call.make("1", "read", path="calc.txt"))
        )

    found = play(tmp_path, Dearest(), 4.9, strong=reads, cheap=says("It holds a word."))
    assert found.run("what is in calc.txt?", judged=False).reason == "answered"
    assert actors(found) == ["strong", "cheap"]
    (failed,) = found.of(Failed)
    assert isinstance(failed, Failed) and (failed.turn, failed.what, failed.kind) == (
        1,
        "strong",
        "budget",
    )


def test_what_costs_nothing_goes_on_when_nothing_is_left(tmp_path: Path) -> None:
    found = play(tmp_path, Dearest(), 0.0001, cheap=says("It holds a word."))
    found.stage.members = (CHEAP.model_copy(update={"price": Price()}), STRONG)
    assert found.run("what is in calc.txt?", judged=False).reason == "answered"
    assert actors(found) == ["cheap"]


def test_who_has_no_known_price_is_masked_where_there_is_a_budget(tmp_path: Path) -> None:
    found = play(tmp_path, Dearest(), 0.05, cheap=says("It holds a word."))
    found.stage.members = (CHEAP, STRONG.model_copy(update={"price": None}))
    assert found.run("what is in calc.txt?", judged=False).reason == "answered"
    assert actors(found) == ["cheap"]
    (out,) = found.of(Masked)
    assert isinstance(out, Masked) and "give its entry a price" in str(dict(out.agents)["strong"])


def test_a_planned_step_goes_to_another_where_its_own_agent_is_too_dear(tmp_path: Path) -> None:
    """The plan itself is short: `strong` may write it, and cannot work after it."""
    plan = 'model_id = [1]\nsubtasks = ["Say it."]\naccess_list = [[]]'
    plans = Conductor(
        POOL, ConductorSettings(agent="strong", rounds=1), SETTINGS, Cascade(POOL, SETTINGS)
    )
    found = play(tmp_path, plans, 5.0, strong=says(plan), cheap=says("It holds a word."))
    assert found.run("what is in calc.txt?", judged=False).reason == "answered"
    (step,) = found.of(Assigned)
    assert isinstance(step, Assigned)
    assert step.agent == "cheap"
    assert f"step 1 of 1; strong is out: {DEAR}" in step.reason


def test_steps_at_once_wait_for_the_money_that_others_hold(tmp_path: Path) -> None:
    """The budget carries one call of `strong` at a time, and both in the end."""
    plan = 'model_id = [1, 1]\nsubtasks = ["Say it.", "Say more."]\naccess_list = [[], []]'
    plans = Conductor(
        POOL, ConductorSettings(agent="cheap", rounds=1), SETTINGS, Cascade(POOL, SETTINGS)
    )
    found = play(tmp_path, plans, 10.0, cheap=says(plan), strong=says("A word."))
    assert found.run("what is in calc.txt?", judged=False).reason == "answered"
    assert actors(found) == ["strong", "strong"]
    assert [(e.agent, e.turn) for e in found.of(Replied) if isinstance(e, Replied)] == [
        ("strong", 1),
        ("strong", 2),
    ]
    assert not found.of(Failed)
