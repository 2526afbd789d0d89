"""`fugu replay --run`: a request as it was recorded beside the same request carried out again. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.text import Text

from fugu_cli import views
from fugu_cli.events import Asked, Finished, Opened, Recorded
from fugu_cli.messages import Usage
from fugu_cli.ui import render
from fugu_cli.ui.clean import clean, count, money, one_line, seconds
from fugu_cli.views.spending import Paid


@dataclass(frozen=True)
class Side:
    """What came of a request once. `reason` is how it ended, "" where it did not; sizes are lines of its diff."""

    session: str
    coordinator: str
    reason: str
    message: str
    before: views.TestRun | None
    tests: views.TestRun | None
    taken: tuple[str, ...]
    calls: int
    usage: Usage
    dollars: float
    seconds: float
    files: int
    added: int
    removed: int

    @property
    def accepted(self) -> bool:
        """It ended as it should: accepted, or answered."""
        return self.reason in {"accepted", "answered"}


@dataclass(frozen=True)
class Pair:
    """Both times, numbered in the recorded session; and the file that holds the second one's diff."""

    request: int
    text: str
    recorded: Side
    again: Side
    patch: str


def side(session: str, records: Sequence[Recorded], number: int, patch: str) -> Side:
    """Request `number` (from 1) of a session. `patch`: what it changed, as unified diffs."""
    starts = [i for i, record in enumerate(records) if isinstance(record.event, Asked)]
    start, end = starts[number - 1], [*starts[1:], len(records)][number - 1]
    events = [record.event for record in records[:end]]
    mine = events[start:]
    opened = views.opened([*events[:start], *(event for event in mine if isinstance(event, Opened))])
    finish = views.finished(events)
    body = [line for line in patch.splitlines() if not line.startswith(("+++ ", "--- "))]
    return Side(
        session=session,
        coordinator=_by(opened.coordinator if opened else "", views.turns(events)),
        reason=finish.reason if finish else "",
        message=finish.message if finish else "",
        before=views.first_tests(events),
        tests=views.tests(events),
        taken=tuple(f"{turn.assigned.agent} {turn.assigned.role}" for turn in views.turns(events)),
        calls=sum(isinstance(event, Paid) and bool(event.agent) for event in mine),
        usage=sum(views.usage(mine).values(), Usage()),
        dollars=views.cost(mine, views.pool(events)),
        seconds=_until(records[start:end]) - records[start].at,
        files=len(views.changes(events)),
        added=sum(line.startswith("+") for line in body),
        removed=sum(line.startswith("-") for line in body),
    )


def _by(coordinator: str, turns: Sequence[views.Turn]) -> str:
    """The coordinator, and the rules that decided in its place."""
    own = coordinator.partition(":")[0]
    rules = [rule for rule in dict.fromkeys(turn.assigned.by for turn in turns) if rule != own]
    return f"{coordinator} (decided: {', '.join(rules)})" if rules else coordinator


def _until(records: Sequence[Recorded]) -> float:
    """When the request was over. What the user did later, such as an undo, took none of its time."""
    ended = [record.at for record in records if isinstance(record.event, Finished)]
    worked = [record.at for record in records if getattr(record.event, "turn", 0)]
    return (ended or worked or [records[0].at])[-1]


def lines(pairs: Sequence[Pair]) -> list[Text]:
    """One small table for each request, then all of them together where there are several."""
    made: list[Text] = []
    for pair in pairs:
        made += [Text(""), Text(f"request {pair.request}: {one_line(pair.text, 200)}", "bold")]
        made += _table([["", "recorded", "again"], *_rows(pair.recorded, pair.again)])
        made.append(Text(f"diff: {clean(pair.patch)}"))
    return [*made, *(_together(pairs) if len(pairs) > 1 else [])]


def _rows(then: Side, now: Side) -> list[list[str]]:
    cells = [_cells(then), _cells(now)]
    return [[name, cells[0][name], cells[1][name]] for name in cells[0]]


def _cells(one: Side) -> dict[str, str]:
    changed = f"{one.files} file{'' if one.files == 1 else 's'}, +{one.added} -{one.removed}"
    return {
        "decided by": one.coordinator,
        "ended": one.reason.replace("_", " ") or "not finished",
        "tests": _tests(one),
        "turns": f"{len(one.taken)}: {', '.join(one.taken)}" if one.taken else "0",
        "model calls": str(one.calls),
        "tokens": f"{count(one.usage.input)} in ({count(one.usage.cached)} cached), {count(one.usage.output)} out",
        "cost": money(one.dollars),
        "time": seconds(one.seconds),
        "diff": changed if one.files else "nothing changed",
        "session": one.session,
    }


def _tests(one: Side) -> str:
    if one.tests is None:
        return "not run"
    now = render.tests_in_words(one.tests.ok, one.tests.output) + (" (before the last change)" * one.tests.stale)
    return f"{render.tests_in_words(one.before.ok, one.before.output)} -> {now}" if one.before else now


def _together(pairs: Sequence[Pair]) -> list[Text]:
    rows = [["all requests", "recorded", "again"]]
    both = [[pair.recorded for pair in pairs], [pair.again for pair in pairs]]
    sums = [
        [
            f"{sum(one.accepted for one in sides)} of {len(sides)}",
            str(sum(len(one.taken) for one in sides)),
            str(sum(one.calls for one in sides)),
            money(sum(one.dollars for one in sides)),
            seconds(sum(one.seconds for one in sides)),
        ]
        for sides in both
    ]
    names = ("accepted", "turns", "model calls", "cost", "time")
    rows += [[name, sums[0][i], sums[1][i]] for i, name in enumerate(names)]
    return [Text(""), *_table(rows)]


def _table(rows: Sequence[Sequence[str]]) -> list[Text]:
    clear = [[clean(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in clear) for column in range(len(clear[0]))]
    return [Text("  ".join(cell.ljust(widths[i]) for i, cell in enumerate(row)).rstrip()) for row in clear]


def pairs_object(session: str, pairs: Sequence[Pair]) -> dict[str, object]:
    """The same for programs."""
    return {"session_id": session, "requests": [_object(pair) for pair in pairs]}


def _object(pair: Pair) -> dict[str, object]:
    return {
        "request": pair.request,
        "prompt": pair.text,
        "recorded": _side(pair.recorded),
        "again": _side(pair.again),
        "diff": pair.patch,
    }


def _side(one: Side) -> dict[str, object]:
    return {
        "session_id": one.session,
        "coordinator": one.coordinator,
        "accepted": one.accepted,
        "reason": one.reason or None,
        "message": one.message,
        "tests_before": one.before.ok if one.before else None,
        "tests_after": one.tests.ok if one.tests and not one.tests.stale else None,
        "turns": list(one.taken),
        "model_calls": one.calls,
        **one.usage.model_dump(),
        "cost_usd": round(one.dollars, 8),
        "seconds": round(one.seconds, 3),
        "files": one.files,
        "lines_added": one.added,
        "lines_removed": one.removed,
    }
