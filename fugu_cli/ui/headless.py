"""`fugu run` without a full screen: follows the log and prints it as text, as one JSON object, or as a stream of them.

Text: what people read goes to standard error, one line a fact, then the diff, how the tests stand, tokens and money,
and where the log is; the answer goes to standard output. Holds nothing that the log does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from rich.text import Text

from fugu_cli import views
from fugu_cli.events import (
    Asked,
    Assigned,
    Event,
    Finished,
    Live,
    Opened,
    Permitted,
    Recorded,
    Retried,
    Said,
    ToolSaid,
    Waiting,
)
from fugu_cli.log import Log
from fugu_cli.ui import render, stream
from fugu_cli.ui.clean import clean, count, cut, one_line, seconds, spent
from fugu_cli.ui.result import Ending, result
from fugu_cli.ui.screen import Screen

DIFF_LINES = 200
"""Lines of the diff shown at the end; the rest is said to be there."""


@dataclass(frozen=True)
class Report:
    """What the end of a run says beside the facts. `since` is the first line of the log that belongs to this run."""

    session: str
    log: str
    since: int = 0
    milliseconds: int = 0
    patch: str = ""


async def follow_text(log: Log, screen: Screen, since: int = 0) -> None:
    """Print every fact from line `since` on, and what is being waited for, until the log is closed."""
    facts: list[Event] = []
    said = 0
    async with screen.ticking():
        async for item in log.follow():
            if isinstance(item, Recorded):
                facts.append(item.event)
                said = 0
                if item.seq >= since and (text := render.line(facts)) is not None:
                    screen.show(text)
                screen.wait(_next(item.event))
            else:
                said = said + len(item.text) if isinstance(item, Said) else 0 if isinstance(item, Retried) else said
                screen.wait(_now(item, said), item.seconds if isinstance(item, Waiting | Retried) else 0.0)
                if (text := render.paused(item)) is not None:
                    screen.show(text)


def _next(event: Event) -> str:
    """What is waited for after a fact."""
    match event:
        case Asked():
            return "reading the repository"
        case Assigned():
            return f"{event.agent} is reading"
        case Permitted(allowed=True):
            return f"running {render.describe(event.call)}"
        case Opened() | Finished():
            return ""
        case _:
            return "working"


def _now(event: Live, said: int) -> str:
    match event:
        case Said():
            # Tens, so that the line is not drawn anew for every token.
            tokens = said // 40 * 10
            return f"{event.agent} is writing" + (f", {tokens} tokens or so" if tokens else "")
        case ToolSaid():
            return one_line(event.text) or "running"
        case Waiting():
            return event.why
        case Retried():
            return f"waiting for {event.agent}"
        case _:
            assert_never(event)


async def follow_stream_json(log: Log, screen: Screen, session: str, since: int = 0) -> None:
    """One JSON line for every fact from line `since` on, until the log is closed. `stream.init` was printed before."""
    facts: list[Event] = []
    async for item in log.follow():
        if isinstance(item, Recorded):
            line = stream.line(item, facts, session) if item.seq >= since else None
            facts.append(item.event)
        else:
            line = stream.live(item, session)
        if line is not None:
            screen.data(stream.text(line))


async def follow_quietly(log: Log) -> None:
    """`json`: nothing until the end."""
    async for _ in log.follow():
        pass


def close_text(records: Sequence[Recorded], screen: Screen, report: Report, end: Ending) -> None:
    """The end of a run for people: diff, tests, the answer (to standard output), tokens and money, the log."""
    events = [record.event for record in records]
    if views.finished(events) is None:
        screen.show(Text(f"{end.reason}: {end.message}" if end.message else end.reason, "bold yellow"))
    if report.patch.strip():
        for text in coloured_diff(report.patch):
            screen.show(text)
    answer = clean(views.answer(events)).strip()
    if answer:
        screen.data(answer)
    for text in _totals(records, report):
        screen.show(text)


def close_json(records: Sequence[Recorded], screen: Screen, report: Report, end: Ending) -> None:
    """The final object, for `json` and as the last line of `stream-json`."""
    screen.data(stream.text(_final(records, report, end)))


def _final(records: Sequence[Recorded], report: Report, end: Ending) -> stream.Object:
    final = result(records, report.session, end, since=report.since, milliseconds=report.milliseconds)
    own = final["fugu"]
    assert isinstance(own, dict)
    return {**final, "fugu": {**own, "log": report.log}}


def coloured_diff(patch: str, limit: int = DIFF_LINES) -> list[Text]:
    """A unified diff, line by line; after `limit` lines only their number."""
    lines = clean(patch).rstrip("\n").splitlines()
    styles = {"+": "green", "-": "red", "@": "cyan"}
    texts = [
        Text(line, "bold" if line.startswith(("+++", "---", "diff ")) else styles.get(line[:1], ""))
        for line in lines[:limit]
    ]
    rest = len(lines) - limit
    return [*texts, Text(f"... {rest} more lines of diff", "dim")] if rest > 0 else texts


def _totals(records: Sequence[Recorded], report: Report) -> list[Text]:
    members = views.pool([record.event for record in records])
    mine = [record.event for record in records if record.seq >= report.since]
    used = views.usage(mine)
    parts = [
        f"{name} {count(total.input)} in"
        + (f" ({count(total.cached)} cached)" if total.cached else "")
        + f" {count(total.output)} out"
        for name, total in used.items()
    ]
    turns = len(views.turns([record.event for record in records]))
    cost = spent(views.cost(mine, members), unpriced=bool(views.unpriced(mine, members)))
    words = f"{turns} turn{'' if turns == 1 else 's'}, {seconds(report.milliseconds / 1000)}, {cost}"
    lines = [Text(cut(", ".join([words, *parts]), 300), "dim")]
    if report.log:
        lines.append(Text(f"log: {clean(report.log)}  (`fugu trace {report.session}`)", "dim"))
    return lines
