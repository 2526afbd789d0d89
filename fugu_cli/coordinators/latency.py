"""Measuring: what a decision costs on this machine, cold, warm and read along, with a real backbone and checkpoint.

Kinds alternate in one process, so that a busy machine slows all of them alike; the ratio of medians is the figure to
trust. Used by `fugu coordinator bench` and the benchmarks. Must not know commands.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone

NEW = 64
"""Tokens that a turn adds in the warm case: a short reply and its digest."""


@dataclass(frozen=True)
class Took:
    """Seconds on the wall and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class Line:
    """One kind of decision at one length; medians. `ratio`: how many times cheaper than cold, on the wall."""

    tokens: int
    kind: str
    wall: float
    cpu: float
    ratio: float


@dataclass(frozen=True)
class Report:
    """Everything measured: `library` is torch's import, `start` all that follows until the first decision can begin."""

    device: str
    torch: str
    library: Took
    start: Took
    first: Took
    lines: tuple[Line, ...]
    megabytes: int | None

    def as_json(self) -> dict[str, object]:
        """For programs; seconds and megabytes."""
        return asdict(self)

    def text(self) -> str:
        """For people."""
        rows = [
            f"{line.tokens:>6}  {line.kind:<10} {1e3 * line.wall:>9.1f} ms {line.ratio:>8.1f}" for line in self.lines
        ]
        memory = [] if self.megabytes is None else [f"resident memory: {self.megabytes} MB"]
        return "\n".join(
            [
                f"on {self.device}, torch {self.torch}: imported in {self.library.wall:.2f} s, "
                f"ready {self.start.wall:.2f} s later, first decision {self.first.wall:.2f} s",
                "tokens  decision       median  times cheaper than cold",
                *rows,
                *memory,
            ]
        )


def took(run: Callable[[], object]) -> Took:
    """How long `run` takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Took(time.perf_counter() - wall, time.process_time() - cpu)


def measure(checkpoint: Path, folder: Path, cache: Path, plan: tuple[Sequence[int], int]) -> Report:
    """Load the backbone with the checkpoint's offsets and time decisions; `plan` is the lengths and the repeats.

    Raises CoordinatorUnavailable and MemoryError.
    """
    from fugu_cli.coordinators import compute, trinity

    library = took(compute.start_torch)
    loaded: list[Backbone] = []
    start = took(lambda: loaded.append(trinity.prepared(checkpoint, folder, cache)[1]))
    backbone = loaded[0]
    first = took(lambda: backbone.read(backbone.tokens("user: fix the tests\nsystem: tests failed 2")))
    lengths, repeats = plan
    lines = [line for length in lengths for line in decisions(backbone, length, repeats)]
    import torch

    return Report(str(backbone.decoder.device), torch.__version__, library, start, first, tuple(lines), resident())


def decisions(backbone: Backbone, length: int, repeats: int) -> list[Line]:
    """Cold, with 64 new tokens, with one new token, and of a text that is known to its end; medians of `repeats`."""
    found: dict[str, list[Took]] = {"cold": [], f"warm +{NEW}": [], "warm +1": [], "known": []}
    for repeat in range(repeats):
        tokens = text_of(backbone, length + NEW, repeat)
        whole = tokens[: length + 1]
        backbone.forget()
        found["cold"].append(timed(backbone, whole))
        found[f"warm +{NEW}"].append(timed(backbone, tokens))
        backbone.forget()
        backbone.feed(tokens[: length - 1], Event(), 512)
        found["warm +1"].append(timed(backbone, whole))
        found["known"].append(timed(backbone, whole))
    cold = statistics.median(one.wall for one in found["cold"])
    return [_line(length, kind, times, cold) for kind, times in found.items()]


def timed(backbone: Backbone, tokens: list[int]) -> Took:
    """How long it takes to read `tokens`."""
    return took(lambda: backbone.read(tokens))


def _line(length: int, kind: str, times: list[Took], cold: float) -> Line:
    wall = statistics.median(one.wall for one in times)
    return Line(length, kind, wall, statistics.median(one.cpu for one in times), cold / max(wall, 1e-9))


def text_of(backbone: Backbone, length: int, salt: int) -> list[int]:
    """Tokens of a plausible transcript: turns that differ, no two texts with a common beginning."""
    turns = [f"user: task {salt}: the tests of module_{salt} fail, find the bug"]
    while True:
        number = len(turns)
        turns.append(
            f"assistant: Worker (middle): changed line {number * 7 + salt} of file_{number}.py\n[tests failed 2]"
        )
        if number % 20 == 0:
            tokens = backbone.tokens("\n".join(turns))
            if len(tokens) >= length:
                return tokens[:length]


def resident() -> int | None:
    """Megabytes that this process holds in memory now; None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) // 1024
