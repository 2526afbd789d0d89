"""The local agent and both protocols over a real embedded server with its smallest model."""

import asyncio
import json
import os
from functools import partial
from pathlib import Path

import pytest
from histories import TOOLS
from servers import quiet, unhurried

from fugu_cli.local.embedded_agent import EmbeddedAgent
from fugu_cli.local.server_lease import lease_server
from fugu_cli.local.sources import ModelFolder, default_sources
from fugu_cli.local.store import Store
from fugu_cli.messages import FromUser, Prompt, Reply
from fugu_cli.prompts import load
from fugu_cli.providers import Agent
from fugu_cli.repair import excerpts
from fugu_cli.repair.protocols import SchemaProtocol, TextProtocol
from fugu_cli.repair.syntax import functions
from tests.embedded import OVER_AND_FILL

pytestmark = pytest.mark.real
MODEL = "smollm2-135m"
FILLER = "qwen2.5-coder-0.5b"
PROMPT = Prompt(
    system="You are brief.",
    messages=(FromUser(text="Count from one to five."),),
    max_tokens=4,
    temperature=0,
    seed=1,
)


@pytest.fixture
def cache(real_cache: Path, tmp_path: Path) -> Path:
    return filled_cache(MODEL, real_cache, tmp_path)


def filled_cache(model: str, real_cache: Path, tmp_path: Path) -> Path:
    """A cache of the test's own, servers included, with the model that was pulled once."""
    asyncio.run(Store(real_cache, sources=default_sources(os.environ)).pull(model))
    asyncio.run(Store(tmp_path, sources=[ModelFolder(real_cache / "models")]).pull(model))
    return tmp_path


def local(cache: Path, model: str = MODEL) -> EmbeddedAgent:
    return EmbeddedAgent(
        "small",
        model,
        partial(lease_server, model, context=2048, cache=cache, idle=0.2),
        OVER_AND_FILL,
    )


async def asked(agent: Agent, prompt: Prompt) -> tuple[Reply, str]:
    said: list[str] = []
    reply = await agent.reply(prompt, said.append, unhurried)
    return reply, "".join(said)


def test_a_real_server_streams_counts_and_repeats_itself(cache: Path) -> None:
    async def twice() -> list[tuple[Reply, str]]:
        agent = local(cache)
        try:
            return [await asked(agent, PROMPT) for _ in range(2)]
        finally:
            await agent.close()

    (first, said), (second, _) = asyncio.run(twice())
    assert (first.model, first.stop, first.usage.output) == (MODEL, "length", 4)
    assert first.text == said == second.text
    assert second.usage.cached > 0.8 * second.usage.input


def test_a_real_server_holds_a_choice_to_the_schema_and_takes_the_prompts_of_both_protocols(
    cache: Path,
) -> None:
    async def both() -> tuple[Reply, Reply]:
        agent = local(cache)
        prompt = PROMPT.model_copy(update={"tools": TOOLS, "max_tokens": 60})
        try:
            chosen = await SchemaProtocol(agent, load("protocols/schema")).reply(
                prompt, quiet, unhurried
            )
            return chosen, await TextProtocol(agent, load("protocols/text")).reply(
                prompt, quiet, unhurried
            )
        finally:
            await agent.close()

    chosen, written = asyncio.run(both())
    assert [call.tool for call in chosen.calls] in ([], ["read"], ["write"], ["run_tests"])
    assert chosen.calls == () or isinstance(json.loads(chosen.calls[0].arguments), dict)
    assert chosen.usage.output > 0 and written.usage.output > 0


def test_a_real_model_fills_in_a_line_of_which_it_sees_both_sides(
    real_cache: Path, tmp_path: Path
) -> None:
    content = (
        "def gcd(a, b):\n    if b == 0:\n        return a\n    else:\n        return gcd(a % b, "
        "b)\n"
    )
    (function,) = functions("gcd.py", content)
    (*_, gap) = excerpts.line_infills("gcd.py", content, function)
    prompt = Prompt(
        system="", messages=(), target="gcd.py", gap=gap, files={"gcd.py": content}, max_tokens=64
    )

    kept = filled_cache(FILLER, real_cache, tmp_path)

    async def fill() -> Reply:
        agent = local(kept, FILLER)
        try:
            return await TextProtocol(agent, load("protocols/text")).reply(prompt, quiet, unhurried)
        finally:
            await agent.close()

    reply = asyncio.run(fill())
    assert json.loads(reply.calls[0].arguments)["new"] == "        return gcd(b, a % b)"
    assert reply.usage.input > reply.usage.output > 0
