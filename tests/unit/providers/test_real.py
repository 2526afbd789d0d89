"""The agent of an embedded model over a real server with its smallest model."""

import asyncio
import os
from functools import partial
from pathlib import Path

import pytest
from servers import unhurried

from fugu_cli.local.embedded_agent import EmbeddedAgent
from fugu_cli.local.server_lease import lease_server
from fugu_cli.local.sources import ModelFolder, default_sources
from fugu_cli.local.store import Store
from fugu_cli.messages import FromUser, Prompt, Reply
from fugu_cli.providers import Agent

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


def test_a_real_model_fills_in_a_line_of_which_it_sees_both_sides(
    real_cache: Path, tmp_path: Path
) -> None:
    kept = filled_cache(FILLER, real_cache, tmp_path)
    before = "def gcd(a, b):\n    if b == 0:\n        return a\n    else:\n        "

    async def fill() -> Reply:
        agent = local(kept, FILLER)
        try:
            return await agent.fill(before, "\n", unhurried)
        finally:
            await agent.close()

    reply = asyncio.run(fill())
    assert (reply.text, reply.stop) == ("return gcd(b, a % b)", "end")
    assert reply.usage.output > 0
