"""`fugu pool` and `fugu pool check`: who is in the pool, who is not and why, and what each can do."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from fugu_cli import crew
from fugu_cli.commands.checking import Probe, probe
from fugu_cli.commands.here import here, newline
from fugu_cli.config.entry import AgentEntry
from fugu_cli.config.files import Loaded
from fugu_cli.config.pool import left_out, pool
from fugu_cli.ui.clean import count

CALLED = (
    "provider",
    "model",
    "base_url",
    "api",
    "api_key_env",
    "effort",
    "infill",
    "temperature",
    "max_tokens",
    "headers",
    "body",
)
"""What a call depends on: entries that agree in all of it are called once."""


def show() -> int:
    """A line an agent. Raises ConfigError when nobody in the pool can be used."""
    loaded = here()
    entries = pool(loaded.config, os.environ)
    header = ("name", "slot", "provider", "model", "protocol", "draws", "context", "USD per million in/out")
    _print([header, *(_cells(entry) for entry in entries)])
    for out in left_out(loaded.config, os.environ):
        newline(f"left out: {out.name} ({out.reason})")
    for name in loaded.config.opt_out:
        newline(f"opted out: {name}")
    newline("unavailable after a failure: each session knows that of its own calls, see /pool there")
    newline(f"decided by: {loaded.config.coordinator}; from {_origin(loaded)}")
    return 0


def _cells(entry: AgentEntry) -> tuple[str, ...]:
    price = f"{entry.rates.input:g} / {entry.rates.output:g}" if entry.rates else "unknown"
    return (
        entry.name,
        entry.slot or "",
        f"{entry.provider} ({entry.api})" if entry.api == "responses" else entry.provider,
        entry.model,
        entry.protocol or "",
        str(entry.attempts),
        count(entry.context or 0),
        price,
    )


def _print(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        newline("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _origin(loaded: Loaded) -> str:
    if loaded.config.agents:
        return ", ".join(str(path) for path in loaded.files) or "the command line"
    return "the keys in the environment, or the embedded models where there are none"


def check() -> int:
    """Call every agent; 0 when all answered, 2 when one did not."""
    loaded = here()
    return asyncio.run(_check(loaded, pool(loaded.config, os.environ)))


async def _check(loaded: Loaded, entries: Sequence[AgentEntry]) -> int:
    # The bare agent is asked, not the one that speaks its protocol: what it could speak is the question.
    bare = [entry.model_copy(update={"protocol": "native"}) for entry in entries]
    agents = crew.build(bare, os.environ, crew.Places(loaded.config.cache, loaded.config.local_idle))
    known: dict[str, Probe] = {}
    try:
        for entry in entries:
            same = entry.model_dump_json(include=set(CALLED))
            if same not in known:
                known[same] = await probe(agents[entry.name], fills=bool(entry.infill))
            newline(f"{entry.name}: {_found(known[same], entry)}")
    finally:
        for agent in agents.values():
            await agent.close()
    return 2 if any(found.failure for found in known.values()) else 0


def _found(found: Probe, entry: AgentEntry) -> str:
    if found.failure:
        return f"does not answer: {found.failure}"
    can = [("streams", found.streams), ("tools", found.tools), ("schema", found.schema)]
    can += [("fills in a line", found.fills)] if found.fills is not None else []
    words = ", ".join(f"{name} {'yes' if able else 'no'}" for name, able in can)
    speed = f", {found.speed:.0f} tokens/s" if found.speed else ""
    advice = ""
    if entry.protocol == "native" and not found.tools and entry.provider != "scripted":
        advice = f'; it called no tool: set protocol = "{"schema" if found.schema else "text"}"'
    if found.fills is False:
        advice += "; it filled in no line: leave `infill` out"
    loading = " (with loading it)" if entry.provider == "local" else ""
    return f"answers, first words after {found.first:.1f} s{loading}{speed}; {words}{advice}"
