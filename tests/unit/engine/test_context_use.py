"""What fills the next prompt: as a provider counts it, part by part, for each agent."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fugu_cli.engine import orchestrator
from fugu_cli.engine.context_use import PARTS, context_use
from fugu_cli.messages import Call, Prompt, Reply, Usage
from fugu_cli.providers import Say, Wait
from fugu_cli.session.events import Asked, Member, MemoryText, Price
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from tests.reacting import Reacting, Stage, calls, repository, results, says

PRICE = Price(input=2.0, cached=0.2, output=8.0)
WORKER = Member(
    name="worker", provider="openai", model="m", slot="cheap", context=50_000, price=PRICE
)
OTHER = Member(
    name="other", provider="openai", model="n", slot="strong", context=100_000, price=PRICE
)


class Counting(Reacting):
    """An agent whose provider counts three characters a token, and has seen half of it before."""

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        made = await super().reply(prompt, say, wait)
        tokens = counted(prompt)
        return made.model_copy(update={"usage": Usage(input=tokens, cached=tokens // 2, output=5)})


def counted(prompt: Prompt) -> int:
    said = [tool.name + tool.description + tool.parameters for tool in prompt.tools]
    for message in prompt.messages:
        said.append(message.text)
        said += [call.tool + call.arguments for call in getattr(message, "calls", ())]
    return (len(prompt.system) + sum(map(len, said))) // 3


def works(prompt: Prompt) -> Reply:
    """Reads the long file, then answers."""
    return (
        Reply(text="It is long.")
        if results(prompt)
        else calls(Call.make("r", "read", path="long.txt"))
    )


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    root = repository(tmp_path / "repo", {"long.txt": "a line of a long file\n" * 400})
    agents = {"worker": Counting("worker", works), "other": Counting("other", says("ACCEPT"))}
    return Stage(root, tmp_path / "store", (WORKER, OTHER), agents, test_command=None)


def test_it_is_what_the_provider_counts_of_the_next_prompt(stage: Stage) -> None:
    async def session() -> None:
        log, team = Log.memory(), stage.team()
        environment = replace(stage.environment(), instructions="Be brief. " * 40)
        await stage.begin(log, "what is in long.txt?", judged=False)
        await orchestrator.run(log, team, environment)
        worker, other = context_use(log.state, team, environment)
        log.append(Asked(text="and again?"))
        await orchestrator.run(log, team, environment)
        agent = stage.agents["worker"]
        assert isinstance(agent, Counting)
        now = counted(agent.shown[2])  # the first one of the second request
        assert abs(worker.tokens - now) / now < 0.05
        assert list(worker.parts) == [name for name in PARTS if name in worker.parts]
        assert set(worker.parts) == {
            "system prompt",
            "instructions",
            "tools",
            "files read",
            "conversation",
        }
        assert (
            worker.parts["files read"] > worker.parts["tools"] > worker.parts["instructions"] > 100
        )
        assert (worker.counted, 0 < worker.cached < worker.tokens) == (True, True)
        assert (other.counted, other.cached) == (False, 0)
        assert worker.dollars is not None and other.dollars is not None
        assert worker.dollars < other.dollars == pytest.approx(other.tokens * 2.0 / 1e6)

    asyncio.run(session())


def test_before_anything_was_asked_it_is_a_guess_for_everybody(stage: Stage) -> None:
    found = context_use(SessionState(()), stage.team(), stage.environment())
    assert [(use.agent, use.counted, use.cached, use.window) for use in found] == [
        ("worker", False, 0, 50_000),
        ("other", False, 0, 100_000),
    ]
    assert set(found[0].parts) == {"system prompt", "tools", "conversation"}
    memory = MemoryText(file="MEMORY.md", text="- use tabs")
    asked = Asked(text="go", repository_map="main.py\n  1: def main()", memory=(memory,))
    parts = context_use(SessionState((asked,)), stage.team(), stage.environment())[0].parts
    assert 10 < parts["repository map"] < 40 and 40 < parts["memory"] < 80


def test_an_agent_without_a_price_costs_nobody_knows_what(stage: Stage) -> None:
    unpriced = replace(stage, members=(WORKER.model_copy(update={"price": None}), OTHER))
    assert [
        use.dollars is None
        for use in context_use(SessionState(()), unpriced.team(), unpriced.environment())
    ] == [True, False]
