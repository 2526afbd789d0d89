"""Reading along: how much a decision adds after a reply that was streamed, at several lengths of the transcript.

    python tests/benchmarks/coordinator_along.py [--lengths 512 2048 8192] [--repeats 15] [--rates 50 25]

An agent's reply is told word by word, at about so many tokens a second, to a log that the coordinator reads along with,
as in a session. Measured: from the recorded reply to the decision; then, on the same cache, a pass over one token,
which is the limit. A clock on the event loop says whether anything blocked it. Writes results/coordinator-along.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import random
import statistics
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path

from fugu_cli.config import Config
from fugu_cli.coordinators import CoordinatorSettings, read_ahead, trinity
from fugu_cli.coordinators.trinity import Trinity
from fugu_cli.session.events import Asked, Assigned, Event, Member, Opened, Replied
from fugu_cli.session.live_events import TextStreamed
from fugu_cli.session.log import Log

RESULTS = Path(__file__).parent / "results" / "coordinator-along.md"
STRONG = Member(name="strong", provider="openai", model="far away", slot="strong")
SPEECH = """the parser returns None when the line ends with a comment so the caller in config.py fails at index 0 and
the test test_empty_line sees a KeyError instead of the default value I would move the check before the loop"""
WORDS = SPEECH.split()


@dataclass(frozen=True)
class Found:
    """One reply: milliseconds added, of a pass over one token, and how many tokens were left to read."""

    added: float
    one: float
    left: int
    tokens: int
    lag: float


def text(draw: random.Random, words: int) -> str:
    return " ".join(draw.choice(WORDS) for _ in range(words)) + "."


def history(draw: random.Random, count: int) -> list[Event]:
    """A request with so many turns of 150 words; the last turn is open."""
    events: list[Event] = [Opened(version="1", repo="/r", pool=(STRONG,)), Asked(text="Why does the parser fail?")]
    for turn in range(1, count + 1):
        events.append(Assigned(turn=turn, agent="strong", role="thinker", by="trinity"))
        if turn < count:
            events.append(Replied(turn=turn, agent="strong", text=text(draw, 150)))
    return events


def loaded(cache: Path, tokens: int) -> Trinity:
    folder = trinity.backbone_folder(trinity.TrinityFiles(None, None, cache))
    checkpoint, backbone = trinity.load_parts(trinity.SHIPPED, folder, cache)
    roomy = replace(checkpoint, meta=checkpoint.meta.model_copy(update={"budget": 4 * tokens}))
    return Trinity(roomy, backbone, (STRONG,), CoordinatorSettings(turns=10_000))


async def heartbeat(beats: list[float]) -> None:
    while True:
        before = time.perf_counter()
        await asyncio.sleep(0.01)
        beats.append(time.perf_counter() - before - 0.01)


async def streamed(coordinator: Trinity, events: list[Event], reply: str, rate: float) -> Found:
    """Tell the reply, decide, compare."""
    log, beats = Log.memory(events), []
    beating = asyncio.create_task(heartbeat(beats))
    async with read_ahead.reading_ahead(log, coordinator):
        turn = len([event for event in events if isinstance(event, Assigned)])
        words = [word + " " for word in reply.split(" ")]
        begun = time.perf_counter()
        for number, word in enumerate(words):
            log.tell(TextStreamed(turn=turn, agent="strong", text=word))
            await asyncio.sleep(max(0.0, begun + (number + 1) * 1.2 / rate - time.perf_counter()))
        log.append(Replied(turn=turn, agent="strong", text=reply))
        started = time.perf_counter()
        decision = await coordinator.decide(log.events)
        added = time.perf_counter() - started
    beating.cancel()
    assert isinstance(decision, Assigned)
    scores = decision.scores
    assert scores is not None
    one = await asyncio.to_thread(one_token, coordinator, scores.read)
    return Found(1e3 * added, 1e3 * one, scores.tokens - 1 - scores.cached_tokens, scores.tokens, 1e3 * max(beats))


def one_token(coordinator: Trinity, read: str) -> float:
    """Seconds of a pass over one token on the same cache."""
    backbone = coordinator.backbone
    tokens = backbone.tokens(read)
    backbone.read(tokens[:-1])
    started = time.perf_counter()
    backbone.read(tokens)
    return time.perf_counter() - started


async def measure(cache: Path, length: int, repeats: int, rates: list[float]) -> list[list[Found]]:
    """Replies at each rate."""
    draw = random.Random(length)
    coordinator = loaded(cache, length)
    events = history(draw, max(1, round(length / 185)))
    await coordinator.ahead(events, "", threading.Event())
    return [[await streamed(coordinator, events, text(draw, 90), rate) for _ in range(repeats)] for rate in rates]


def row(found: list[Found], asked: int, rate: float) -> str:
    def median(name: str) -> float:
        return statistics.median(getattr(one, name) for one in found)

    ratio = statistics.median(one.added / one.one for one in found)
    lag = max(one.lag for one in found)
    return (
        f"| {rate:g} | {asked} | {median('tokens'):.0f} | {median('added'):.0f} | {median('one'):.0f} | "
        f"{median('added') / median('one'):.2f} | {ratio:.2f} | {median('left'):.0f} | {lag:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--rates", type=float, nargs="+", default=[50.0, 25.0])
    given = parser.parse_args()
    cache = Config.model_validate({"cache_dir": os.environ.get("FUGU_CACHE_DIR")}).cache
    rows: dict[float, list[str]] = {rate: [] for rate in given.rates}
    for length in given.lengths:
        for rate, found in zip(rows, asyncio.run(measure(cache, length, given.repeats, given.rates)), strict=True):
            rows[rate].append(row(found, length, rate))
            print(rows[rate][-1], flush=True)
    import torch

    report = [
        "# Reading along: what a decision adds after a streamed reply",
        "",
        f"Written by `python tests/benchmarks/coordinator_along.py` on {platform.machine()}, {os.cpu_count()} cores, "
        f"torch {torch.__version__}; load average {os.getloadavg()[0]:.1f} when it ended. Medians of {given.repeats} "
        "replies of 90 words, told at about so many tokens a second. `added`: from the recorded reply to the decision, "
        "all parts. `one token`: a pass over one token on the same cache, measured right after. The limit for the "
        "ratio is 1.3.",
        "",
        "| tokens a second | about | tokens | added ms | one token ms | ratio of medians | median of ratios | "
        "tokens left to read | longest wait of the event loop ms |",
        "|---|---|---|---|---|---|---|---|---|",
        *(line for lines in rows.values() for line in lines),
        "",
    ]
    RESULTS.write_text("\n".join(report), encoding="utf-8")


if __name__ == "__main__":
    main()
