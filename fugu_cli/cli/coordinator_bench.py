"""`fugu coordinator bench`: measures how long the default coordinator takes to decide on this
machine.
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from fugu_cli import __version__
from fugu_cli.cli.current_folder import current_config
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.coordinators.composed import ComposedHead
from fugu_cli.coordinators.kinds import BackboneKindReader, KindFiles, build_kind_reader
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.session.events import Asked, Event, Opened
from fugu_cli.session.state import SessionState

REQUESTS = (
    "The parser drops the last line of a file without a newline at its end. Find out why and fix it.",
    "Add a flag that prints the result as JSON, with a test.",
    "What does the scheduler do when two jobs have the same time?",
    "Write a query for the ten customers with the highest revenue of the last quarter.",
)


@dataclass(frozen=True)
class DecisionTimes:
    """The times of a decision in seconds; None if nothing reads the kind of a request here.

    `load` is the time for torch, weights, the kind head and the examples of kinds, `first` that of
    the first reading, `reading` that of another request's kind, and `planning` that of a decision
    without a reading.
    """

    load: float | None
    first: float | None
    reading: float | None
    planning: float
    megabytes: int | None
    missing: str = ""

    def text(self) -> str:
        """Return the lines for people."""
        lines = [f"a decision without a reading        {1e3 * self.planning:9.1f} ms"]
        if self.load is None or self.first is None or self.reading is None:
            return "\n".join([*lines, f"kind unknown: {self.missing}"])
        lines += [
            f"the kind of a request, model loaded {1e3 * self.reading:9.1f} ms",
            f"loading the model                   {1e3 * self.load:9.1f} ms, once a process",
            f"its first reading                   {1e3 * self.first:9.1f} ms, once a process",
        ]
        if self.megabytes is not None:
            lines.append(f"resident memory: {self.megabytes} MB")
        return "\n".join(lines)


def bench_decisions(repeats: int, as_json: bool) -> int:
    """Measure with the configured pool and backbone. Medians of `repeats`."""
    config = current_config().config
    members = tuple(entry.member() for entry in usable_pool(config, os.environ))
    reader = build_kind_reader(
        KindFiles(config.backbone, config.cache, config.data / "coordinators")
    )
    opened = Opened(version=__version__, repo="", pool=members)
    head = ComposedHead(members, config.deciding)
    times = asyncio.run(_measure(head, reader, opened, repeats))
    print(json.dumps(asdict(times), indent=2) if as_json else times.text())
    return 0


async def _measure(
    head: ComposedHead, reader: BackboneKindReader, opened: Opened, repeats: int
) -> DecisionTimes:
    planning = []
    for number in range(repeats):
        events: Sequence[Event] = (opened, Asked(text=_request(number)))
        started = time.perf_counter()
        await head.decide(SessionState(events))
        planning.append(time.perf_counter() - started)
    median_planning = statistics.median(planning)
    try:
        started = time.perf_counter()
        await asyncio.wrap_future(reader.warm())
        load = time.perf_counter() - started
        readings = []
        for number in range(repeats + 1):
            started = time.perf_counter()
            await reader.read(_request(number))
            readings.append(time.perf_counter() - started)
    except (CoordinatorUnavailable, MemoryError) as error:
        return DecisionTimes(None, None, None, median_planning, None, str(error))
    reading = statistics.median(readings[1:])
    return DecisionTimes(load, readings[0], reading, median_planning, _resident_megabytes())


def _request(number: int) -> str:
    """Return a request that differs for each number, so that its reading is not cached."""
    return f"{REQUESTS[number % len(REQUESTS)]} ({number})"


def _resident_megabytes() -> int | None:
    if not sys.platform.startswith("linux"):
        return None
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return int(fields["VmRSS"].split()[0]) // 1024
