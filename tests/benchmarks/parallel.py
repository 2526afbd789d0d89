"""Three steps that only read and do not read one another: how long they take together, and one
after the other.

    python tests/benchmarks/parallel.py

Agents over the real wire on this machine (tests/acceptance/loopback.py), each of whose answers
takes a set time; every step reads a file, greps and answers. Writes the figures into
results/parallel.md. Takes half a minute.
"""

from __future__ import annotations

import asyncio
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fugu_cli import __version__, prompts, wiring
from fugu_cli.config import ConductorEntry, Config
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.messages import Call
from fugu_cli.session.events import Assigned, Recorded, Replied
from tests.acceptance.loopback import KEY, Asked, Loopback, Says, Use, running
from tests.reacting import repository

RESULT = Path(__file__).parent / "results" / "parallel.md"
DELAYS = {"a": 0.6, "b": 0.8, "c": 1.0}
"""Seconds of each answer; a step has three answers."""
RUNS = 3
SUBTASKS = ["Look at one.", "Look at two.", "Look at three."]

TEXT = """\
# Steps at the same time

Measured by `tests/benchmarks/parallel.py` with fugu {version}, on {machine}: three steps that only
read, by three agents over the wire on this machine whose answers take 0.6, 0.8 and 1.0 s; each step has three answers
and two tool calls. Medians of {runs} runs. The aim: at once, at most 1.25 times the longest.

| steps | seconds, all three | seconds, the longest | all / longest |
| --- | --- | --- | --- |
{rows}
"""


def plan(*access: object) -> str:
    """Three steps, for the agents in order."""
    return (
        f"model_id = [0, 1, 2]\nsubtasks = {json.dumps(SUBTASKS)}\naccess_list = {list(access)!r}"
    )


def answering(name: str, text: str) -> object:
    """A planner that answers at once; a step that reads, greps, answers, each after the agent's
    delay.
    """

    def react(asked: Asked) -> Says:
        if "You plan." in asked.text:
            return Says(text)
        time.sleep(DELAYS[name])
        uses = [Use("read", {"path": "calc.txt"}), Use("grep", {"pattern": "broken"})]
        done = len(asked.results)
        return Says("I looked.") if done >= 2 else Says("", (uses[done],))

    return react


async def no(_call: Call, _judgement: object) -> str:
    """Nobody is there to ask."""
    return "no"


async def steps(loopback: Loopback, text: str, folder: Path) -> tuple[float, list[float]]:
    """Seconds of the three steps together, and of each."""
    repository(folder / "repo")
    for name in DELAYS:
        loopback.react(name, answering(name, text))  # type: ignore[arg-type]
    entries = tuple(
        AgentEntry(
            name=name, provider="openai", model=name, base_url=loopback.url, api_key_env="KEY"
        )
        for name in DELAYS
    )
    config = Config(
        tier="ultra",
        coordinator="cascade",
        agents=entries,
        data_dir=folder / "data",
        conductor=ConductorEntry(agent="a", rounds=1, depth=0),
    )
    loaded = LoadedConfig(config=config, files=(), notes=(), root=folder / "repo", trusted=False)
    session = wiring.build_session(loaded, {"KEY": KEY}, no)  # type: ignore[arg-type]
    try:
        await session.ask("what is in it?")
        await session.run()
        return together(list(session.log.records))
    finally:
        await session.close()


def together(records: list[Recorded]) -> tuple[float, list[float]]:
    """From the first decision to the last word; each from its decision to its last word."""
    begun = {r.event.turn: r.at for r in records if isinstance(r.event, Assigned)}
    ended = {r.event.turn: r.at for r in records if isinstance(r.event, Replied)}
    assert len(begun) == 3, "three steps"
    return max(ended.values()) - min(begun.values()), [ended[turn] - begun[turn] for turn in begun]


def main() -> int:
    """Measure and write."""
    found: dict[str, list[tuple[float, list[float]]]] = {"at once": [], "in a chain": []}
    for name, text in (("at once", plan([], [], [])), ("in a chain", plan([], [0], [1]))):
        for _ in range(RUNS):
            with running() as loopback, tempfile.TemporaryDirectory() as folder:
                found[name].append(asyncio.run(steps(loopback, text, Path(folder))))
    lines = [
        f"| {name} | {median(whole for whole, _ in runs):.2f} | "
        f"{median(max(each) for _, each in runs):.2f} "
        f"| {median(whole / max(each) for whole, each in runs):.2f} |"
        for name, runs in found.items()
    ]
    machine = (
        f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}"
    )
    text = prompts.fill(
        TEXT, version=__version__, machine=machine, runs=str(RUNS), rows="\n".join(lines)
    )
    RESULT.write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
