"""`fugu trace`: a finished or running session as plain text, one row a decision, or as JSON. Pure.

A table where the terminal is wide enough for it; otherwise the same in a few short lines a decision. The chosen row and
role carry a star, a masked one is `--` with its reason underneath.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Sequence

from fugu_cli import views
from fugu_cli.events import Assigned, Opened, Recorded
from fugu_cli.ui import graph, render
from fugu_cli.ui.clean import clean, count, cut, one_line, probability, seconds, spent
from fugu_cli.ui.result import routing
from fugu_cli.ui.rows import Cell, Request, Row, requests
from fugu_cli.views.weighing import weighing

RESULT_WIDTH = 28
"""Columns the result needs at least for a table to be worth it."""


def text(records: Sequence[Recorded], session: str, width: int = 100) -> str:
    """The whole session in lines of at most `width` columns."""
    lines = [*_head(records, session, width)]
    for request in requests(records):
        lines += ["", *_request(request, width)]
        lines += graph.graph([record.event for record in records[: request.upto]], request.rows, width)
    if len(lines) == len(_head(records, session, width)):
        lines += ["", "nothing was asked in this session"]
    return "\n".join([*lines, "", _totals(records, width)])


def _head(records: Sequence[Recorded], session: str, width: int) -> list[str]:
    events = [record.event for record in records]
    opened = views.opened(events)
    if opened is None:
        return [f"session {session}"]
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(records[0].at))
    checkpoint = f", checkpoint {opened.checkpoint[:12]}" if opened.checkpoint else ""
    pools = [event for event in events if isinstance(event, Opened)]
    lines = [
        cut(f"session {session}  {started}  {clean(opened.repo)}", width),
        f"decided by {opened.coordinator}{checkpoint}, fugu {opened.version}",
    ]
    for pool in pools:
        names = [f"{member.name} ({member.slot}, {member.model})" for member in pool.pool]
        lines += wrapped("pool" if pool is opened else "then", names, width)
    return lines


def wrapped(label: str, items: Sequence[str], width: int) -> list[str]:
    """`label: a, b, c` over as many lines as it takes, indented under the first."""
    lines, line = [], f"{label}: "
    indent = " " * len(line)
    for index, item in enumerate(items):
        piece = clean(item) + (", " if index < len(items) - 1 else "")
        if len(line) + len(piece.rstrip()) > width and line.strip() != f"{label}:":
            lines.append(line.rstrip())
            line = indent
        line += piece
    return [*lines, line.rstrip()]


def _request(request: Request, width: int) -> list[str]:
    lines = [cut(f"request {request.number}: {one_line(request.asked.said, 500)}", width)]
    if request.before is not None:
        lines.append(f"tests before: {render.tests_in_words(request.before.ok, request.before.output)}")
    if table := _table(request.rows, width):
        for row, line in zip((None, *request.rows), table, strict=True):
            lines.append(line)
            for note in _notes(row) if row else ():
                lines += textwrap.wrap(note, width, initial_indent=" " * 6, subsequent_indent=" " * 8)
    else:
        lines += [line for row in request.rows for line in _stacked(row, width)]
    if request.end is not None:
        why = request.end.message if request.end_line.tone == "bad" else ""
        lines.append(cut(request.end_line.text + (f": {one_line(why, 300)}" if why else ""), width))
    else:
        lines.append("not finished")
    return [*lines, *(cut(render.undone(event).plain, width) for event in request.undone)]


def _table(rows: Sequence[Row], width: int) -> list[str]:
    """Header and one line a row, columns aligned; nothing where the width does not do.

    A decision has nothing under a row that its head did not have.
    """
    names = list(dict.fromkeys(cell.name for row in rows for cell in row.rows))
    roles = list(dict.fromkeys(cell.name for row in rows for cell in row.roles))
    header = ["turn", "role", "agent", *names, *roles, "decide", "time", "in", "out", "cost", "result"]
    body = [
        [
            str(row.turn.number),
            row.turn.assigned.role,
            row.turn.assigned.agent,
            *(_shown(row.rows, name) for name in names),
            *(_shown(row.roles, name) for name in roles),
            seconds(row.turn.assigned.milliseconds.total / 1000),
            seconds(row.seconds),
            count(row.usage.input),
            count(row.usage.output),
            row.paid,
            result(row),
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [header, *body]) for column in range(len(header))]
    left = width - sum(widths[:-1]) - 2 * (len(widths) - 1)
    if not rows or left < min(widths[-1], RESULT_WIDTH):
        return []
    right = set(range(3, len(header) - 1))
    return [
        "  ".join(
            cell.rjust(widths[column]) if column in right else cell.ljust(widths[column])
            for column, cell in enumerate((*line[:-1], cut(line[-1], left)))
        ).rstrip()
        for line in [header, *body]
    ]


def _shown(cells: Sequence[Cell], name: str) -> str:
    cell = next((cell for cell in cells if cell.name == name), None)
    return "" if cell is None else figure(cell)


def figure(cell: Cell) -> str:
    """`*.61` chosen, `.22` not, `--` masked."""
    value = "--" if cell.probability is None else probability(cell.probability)
    return f"*{value}" if cell.chosen else value


def _notes(row: Row) -> list[str]:
    """What does not fit into columns: masks with their reasons, the rule's own words, an override."""
    assigned = row.turn.assigned
    notes = [f"{cell.name} masked: {one_line(cell.masked, 200)}" for cell in (*row.rows, *row.roles) if cell.masked]
    if assigned.override is not None:
        notes.append(f"a Thinker asked for this role; the head had {assigned.override}")
    if row.reason or assigned.scores is None:
        notes.append(f"by {assigned.by}" + (f": {one_line(row.reason, 400)}" if row.reason else ""))
    return notes


def result(row: Row) -> str:
    """What came of a turn, in a few words."""
    turn = row.turn
    parts = []
    if turn.failed is not None:
        parts.append(f"failed: {one_line(turn.failed.message, 200)}")
    if turn.interrupted:
        parts.append("interrupted")
    if row.verdict is not None:
        parts.append(row.verdict)
    if (role := views.suggested_role(turn)) is not None:
        parts.append(f"suggests a {role}")
    if row.tests is not None:
        parts.append(f"tests {render.tests_in_words(row.tests.ok, row.tests.output)}")
    if row.checked:
        parts.append(f"acceptance check {' -> '.join('pass' if ok else 'FAIL' for ok in row.checked)}")
    if row.changed:
        parts.append(f"changed {', '.join(clean(path) for path in row.changed)}")
    if turn.draws:
        parts.append(f"{len(turn.draws) + bool(turn.replies)} draws, {len(turn.draws)} rolled back")
    return "; ".join(parts) or ("no change" if turn.assigned.role == "worker" else "answered")


def _stacked(row: Row, width: int) -> list[str]:
    """A decision in short lines, for narrow terminals."""
    assigned = row.turn.assigned
    lines = [f"turn {row.turn.number}: {assigned.agent} as {assigned.role}"]
    for label, cells in (("agents", row.rows), ("roles", row.roles)):
        if cells:
            lines += wrapped(f"  {label}", [f"{cell.name} {figure(cell)}" for cell in cells], width)
    spent = f"{count(row.usage.input)} in, {count(row.usage.output)} out, {row.paid}"
    decided = seconds(assigned.milliseconds.total / 1000)
    said = [f"{seconds(row.seconds)} (decided in {decided}), {spent}", result(row), *_notes(row)]
    for text in said:
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    return lines


def _totals(records: Sequence[Recorded], width: int) -> str:
    events = [record.event for record in records]
    parts = [
        f"{name} {count(used.input)} in"
        + (f" ({count(used.cached)} cached)" if used.cached else "")
        + f" {count(used.output)} out"
        for name, used in views.usage(events).items()
    ]
    cost = spent(views.cost(events), unpriced=bool(views.unpriced(events)))
    return "\n".join(wrapped("total", [cost, *parts], width))


def as_json(records: Sequence[Recorded], session: str) -> str:
    """The decisions of every request, with logits and masks, as one JSON document."""
    return json.dumps(
        {
            "session_id": session,
            "requests": [
                {
                    "request": request.number,
                    "text": request.asked.text,
                    "reason": request.end.reason if request.end else None,
                    "undone": [{"redone": event.redoes, "paths": event.paths} for event in request.undone],
                    "decisions": [_decision(row) for row in request.rows],
                    "plans": graph.plans_json([record.event for record in records[: request.upto]]),
                }
                for request in requests(records)
            ],
        },
        indent=2,
    )


def explanation(event: Assigned, slot: str) -> dict[str, object]:
    """What the coordinator read and how it weighed it, for programs; {} for a rule. `slot`: of the chosen agent."""
    scores, found = event.scores, weighing(event, slot)
    if scores is None or found is None:
        return {}
    return {
        "probabilities_before_masks": {one.name: one.before for one in (*found.rows, *found.roles)},
        "margin": found.lead.margin if found.lead else None,
        "runner_up": found.lead.over if found.lead else None,
        "role_margin": found.role_lead.margin if found.role_lead else None,
        "role_runner_up": found.role_lead.over if found.role_lead else None,
        "read": scores.read,
        "tokens": scores.tokens,
        "cached_tokens": scores.cached_tokens,
        "cold": found.cold,
        "temperature": scores.temperature,
        "milliseconds_by_part": event.milliseconds.model_dump(),
    }


def _decision(row: Row) -> dict[str, object]:
    cells = (*row.rows, *row.roles)
    return {
        **routing(row.turn.assigned),
        "logits": {cell.name: cell.logit for cell in cells},
        **explanation(row.turn.assigned, next((cell.name for cell in row.rows if cell.chosen), "")),
        "seconds": round(row.seconds, 3),
        "model_seconds": round(row.model_seconds, 3),
        "usage": row.usage.model_dump(),
        "cost_usd": row.cost,
        "verdict": row.verdict,
        "tests_ok": row.tests.ok if row.tests else None,
        "changed": list(row.changed),
        "draws_rolled_back": len(row.turn.draws),
        "failed": row.turn.failed.message if row.turn.failed else None,
    }
