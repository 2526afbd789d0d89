"""What a decision costs on this machine: cold and warm, with a real backbone and checkpoint.

Kinds alternate in one process, so that a busy machine slows all of them alike; the ratio of medians
is the figure to trust. Used by `fugu coordinator bench` and the benchmarks. Must not know commands.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone

NEW = 64
"""Tokens that a turn adds in the warm case: a short reply and its digest."""


@dataclass(frozen=True)
class Duration:
    """Seconds on the wall and of the processor."""

    wall: float
    cpu: float


@dataclass(frozen=True)
class LatencyRow:
    """One kind of decision at one length; medians. `ratio`: how many times cheaper than cold, on
    the wall.
    """

    tokens: int
    kind: str
    wall: float
    cpu: float
    ratio: float


@dataclass(frozen=True)
class LatencyReport:
    """Everything measured: `library` is torch's import, `start` all that follows until the first
    decision can begin: transformers' import, weights, tokenizer, offsets."""

    device: str
    torch: str
    library: Duration
    start: Duration
    first: Duration
    lines: tuple[LatencyRow, ...]
    megabytes: int | None

    def as_json(self) -> dict[str, object]:
        """For programs; seconds and megabytes."""
        return asdict(self)

    def text(self) -> str:
        """For people."""
        rows = [
            f"{line.tokens:>6}  {line.kind:<10} {1e3 * line.wall:>9.1f} ms {line.ratio:>8.1f}"
            for line in self.lines
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


def duration_of(run: Callable[[], object]) -> Duration:
    """How long `run` takes."""
    wall, cpu = time.perf_counter(), time.process_time()
    run()
    return Duration(time.perf_counter() - wall, time.process_time() - cpu)


def measure_latency(
    checkpoint: Path, folder: Path, cache: Path, plan: tuple[Sequence[int], int]
) -> LatencyReport:
    """Load the backbone with the checkpoint's offsets and time decisions; `plan` is the lengths and
    the repeats.

    Raises CoordinatorUnavailable and MemoryError.
    """
    from fugu_cli.coordinators import backbone as backbones
    from fugu_cli.coordinators import trinity

    library = duration_of(backbones.start_torch)
    loaded: list[Backbone] = []
    start = duration_of(lambda: loaded.append(trinity.load_parts(checkpoint, folder, cache)[1]))
    backbone = loaded[0]
    first = duration_of(
        lambda: backbone.read(backbone.tokens("user: fix the tests\nsystem: tests failed 2"))
    )
    lengths, repeats = plan
    lines = [line for length in lengths for line in time_decisions(backbone, length, repeats)]
    import torch

    return LatencyReport(
        str(backbone.model.device),
        torch.__version__,
        library,
        start,
        first,
        tuple(lines),
        resident_megabytes(),
    )


def time_decisions(backbone: Backbone, length: int, repeats: int) -> list[LatencyRow]:
    """Cold, with 64 new tokens, and with one new token; medians of `repeats`."""
    found: dict[str, list[Duration]] = {"cold": [], f"warm +{NEW}": [], "warm +1": []}
    for repeat in range(repeats):
        tokens = text_of(backbone, length + NEW, repeat)
        whole = tokens[: length + 1]
        backbone.forget()
        found["cold"].append(time_reading(backbone, whole))
        found[f"warm +{NEW}"].append(time_reading(backbone, tokens))
        found["warm +1"].append(time_reading(backbone, whole))
    cold = statistics.median(one.wall for one in found["cold"])
    return [_line(length, kind, times, cold) for kind, times in found.items()]


def time_reading(backbone: Backbone, tokens: list[int]) -> Duration:
    """How long it takes to read `tokens`."""
    return duration_of(lambda: backbone.read(tokens))


def _line(length: int, kind: str, times: list[Duration], cold: float) -> LatencyRow:
    wall = statistics.median(one.wall for one in times)
    return LatencyRow(
        length, kind, wall, statistics.median(one.cpu for one in times), cold / max(wall, 1e-9)
    )


def text_of(backbone: Backbone, length: int, salt: int) -> list[int]:
    """Tokens of a plausible transcript: turns that differ, no two texts with a common beginning."""
    turns = [f"user: task {salt}: the tests of module_{salt} fail, find the bug"]
    while True:
        number = len(turns)
        turns.append(
            f"assistant: Worker (middle): changed line {number * 7 + salt} of "
            f"file_{number}.py\n[tests failed 2]"
        )
        if number % 20 == 0:
            tokens = backbone.tokens("\n".join(turns))
            if len(tokens) >= length:
                return tokens[:length]


def resident_megabytes() -> int | None:
    """Megabytes that this process holds in memory now; None where the system does not say."""
    if not sys.platform.startswith("linux"):
        return None
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(fields["VmRSS"].split()[0]) // 1024
