"""The trace as styled lines, one a row, and what stands below the rows. A turn in full is in
turn_page.py, the table of `fugu trace` in trace.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from rich.cells import cell_len

from fugu_cli.app.event_text import (
    FAILURE_WORDS,
    TEST_OUTCOME_WORDS,
    decision_why,
    request_notes,
)
from fugu_cli.formatting import compact_number as tokens
from fugu_cli.formatting import (
    flatten,
    known_cost,
    plural,
    short_duration,
)
from fugu_cli.messages import Usage
from fugu_cli.session.events import (
    WorkflowStep,
)
from fugu_cli.session.verdicts import END_WORDS
from fugu_cli.ui.drawing import (
    BLANK,
    Palette,
    StyledLine,
    StyledPart,
    indent_lines,
    justified_line,
    styled_line,
    wrap_lines,
)
from fugu_cli.ui.session_totals import SessionTotals
from fugu_cli.ui.trace_rows import PlanRow, RequestRow, TraceRow, TurnRow
from fugu_cli.ui.turn_notes import wait_text
from fugu_cli.ui.workflow_text import edge_columns, plan_title, step_agent

WORKING_SIGN = "◐"


def trace_row_lines(item: TraceRow, width: int, palette: Palette) -> list[StyledLine]:
    """Draw the row of a request, a workflow or a turn."""
    match item:
        case RequestRow():
            return _request(item, width, palette)
        case PlanRow():
            return _plan(item, width, palette)
        case TurnRow():
            return _turn(item, width, palette)


def empty_trace_lines(width: int, palette: Palette) -> list[StyledLine]:
    """Return the text of an empty trace."""
    text = "Each turn stands here: which agent, in which role, why, and what it cost."
    return wrap_lines(text, width, palette.dim)


def _request(item: RequestRow, width: int, palette: Palette) -> list[StyledLine]:
    right: list[StyledPart] = []
    if item.finished is not None:
        good = item.finished.reason in ("accepted", "answered")
        ending = END_WORDS[item.finished.reason]
        right = [(ending, palette.good if good else palette.warn)]
    title: list[StyledPart] = [
        (f"{item.number} ", palette.dim),
        (flatten(item.asked.said, 200), f"bold {palette.text}"),
    ]
    lines = [] if item.number == 1 else [BLANK]
    lines.append(justified_line(title, right, width))
    for note in request_notes(item.asked):
        wrapped = wrap_lines(note, max(width - 3, 8), palette.dim)
        lines += indent_lines(wrapped, ("   ", ""))
    return lines


def _plan(item: PlanRow, width: int, palette: Palette) -> list[StyledLine]:
    """Draw the workflow as a graph, with the outcome and cost of each step."""
    planned = item.planned
    head: list[StyledPart] = [
        ("   ", ""),
        (plan_title(planned), palette.accent),
        (f"  by {flatten(planned.agent)}", palette.dim),
    ]
    lines = [
        justified_line(
            head,
            [
                (
                    f"{known_cost(item.cost, unpriced=item.unpriced, estimated=item.estimated):>7}",
                    palette.dim,
                ),
            ],
            width,
        )
    ]
    if planned.fault:
        lines += indent_lines(
            wrap_lines(flatten(planned.fault, 300), width - 4, palette.warn), ("    ", "")
        )
    edges = edge_columns(planned.steps)
    for index, step in enumerate(planned.steps):
        lines.append(_step(item, index, edges[index], step, width, palette))
    return lines


def _step(
    item: PlanRow, index: int, edge: str, step: WorkflowStep, width: int, palette: Palette
) -> StyledLine:
    tries = item.steps.get(index, [])
    sign, tone = _sign(tries[-1], palette) if tries else ("○", palette.dim)
    right: list[StyledPart] = []
    if tries:
        took = sum(turn.seconds for turn in tries)
        cost = known_cost(
            sum(turn.cost for turn in tries),
            unpriced=any(turn.unpriced for turn in tries),
            estimated=any(turn.estimated for turn in tries),
        )
        right = [
            (f" {short_duration(took):>5}", palette.dim),
            (f" {cost:>7}", palette.dim),
        ]
    # a step that failed is given to another one
    agent = tries[-1].assigned.agent if tries else step_agent(step)
    more = f" ×{len(tries)}" if len(tries) > 1 else ""
    left: list[StyledPart] = [
        (f"   {edge}", palette.accent),
        (f"{index + 1} ", palette.dim),
        (f"{sign} ", tone),
    ]
    left += [
        (flatten(agent), f"bold {palette.text}"),
        (more, palette.warn),
        (f" {flatten(step.instruction, 120)}", palette.dim),
    ]
    return justified_line(left, right if width >= 34 else right[1:], width)


def _turn(item: TurnRow, width: int, palette: Palette) -> list[StyledLine]:
    """Draw the turn on one line, and below it the subtask's title or why this agent acts.

    A narrow line leaves out, in this order: tokens, time, the outcome, the role.
    """
    assigned, task = item.assigned, item.assigned.subtask
    sign, sign_style = _sign(item, palette)
    role = assigned.role if task is None else flatten(task.name or "task", 20)
    lead: list[StyledPart] = [
        (f"{assigned.turn:>2} {'└ ' if task is not None else ''}", palette.dim),
        (f"{sign} ", sign_style),
    ]
    agent = (flatten(assigned.agent), palette.text)
    left = [*lead, (f"{role} ", palette.role(assigned.role)), agent]
    needed = sum(cell_len(text) for text, _ in left) + 2
    if width < needed + 8:
        left = [*lead, agent]
    outcome, outcome_style = _outcome(item, palette)
    if width < needed + cell_len(outcome) + 9:
        outcome = outcome.removeprefix("tests ")
    outcome_cells = cell_len(outcome) + 1 if outcome else 0
    cost = known_cost(item.cost, unpriced=item.unpriced, estimated=item.estimated)
    numbers: list[StyledPart] = [(f" {cost:>7}", palette.dim)]
    if width >= needed + outcome_cells + 14:
        numbers.insert(0, (f" {short_duration(item.seconds):>5}", palette.dim))
    if width >= TOKENS_SHOWN:
        is_guessed = bool(item.writing) and not item.tokens
        count = f"~{item.writing}" if is_guessed else tokens(item.tokens)
        numbers.insert(1, (f" {count:>5}", palette.dim))
    if outcome and width >= needed + outcome_cells + 8:
        numbers.insert(0, (outcome, outcome_style))
    first_line = justified_line(left, numbers, width)
    return [
        first_line,
        *_reason_lines(item, width, palette),
        *_note_lines(item, width, palette),
    ]


def _reason_lines(item: TurnRow, width: int, palette: Palette) -> list[StyledLine]:
    """Draw the subtask's title or why the agent acts, in at most `WHY_LINES` lines."""
    assigned, task = item.assigned, item.assigned.subtask
    if task is not None and task.about:
        why = flatten(task.about, 120)
    elif assigned.plan:
        why = f"step {assigned.step + 1} of the workflow"  # its instruction stands in the graph
    else:
        why = decision_why(assigned, assigned.reason, item.unavailable)
    if not why:
        return []
    margin = 5 if task is None else 7
    columns = max(width - margin, 8)
    wrapped = wrap_lines(why, columns, palette.dim)
    if len(wrapped) > WHY_LINES:
        wrapped = wrap_lines(flatten(why, WHY_LINES * columns * 4 // 5), columns, palette.dim)
    return indent_lines(wrapped[:WHY_LINES], (" " * margin, ""))


def _note_lines(item: TurnRow, width: int, palette: Palette) -> list[StyledLine]:
    """Draw a line for each note of the turn, the newest ones, and one for a long wait."""
    wait = wait_text(item.waited)
    notes = [*item.notes[-MOST_NOTES:], *([wait] if wait else [])]
    room = max(width - 5, 8)
    lines = []
    for note in notes:
        lines += indent_lines(wrap_lines(flatten(note, room), room, palette.dim), (" " * 5, ""))
    return lines


TOKENS_SHOWN, WHY_LINES, MOST_NOTES = 60, 3, 4
"""Columns from which a row shows tokens; the most lines of its reason, and the most notes."""


def _sign(item: TurnRow, palette: Palette) -> tuple[str, str]:
    if item.verdict:
        return ("✓", palette.good) if item.verdict == "ACCEPT" else ("↻", palette.warn)
    return {
        "open": (WORKING_SIGN, palette.accent),
        "closed": ("●", palette.role(item.assigned.role)),
        "failed": ("✗", palette.bad),
        "cut": ("■", palette.warn),
    }[item.state]


def _outcome(item: TurnRow, palette: Palette) -> StyledPart:
    """Return a Verifier's verdict, else the state of the tests, else the end of the turn."""
    if item.verdict:
        accepted = item.verdict == "ACCEPT"
        return ("accepted", palette.good) if accepted else ("sent back", palette.warn)
    if item.state == "failed":
        return FAILURE_WORDS.get(item.failure, "failed"), palette.bad
    if item.state == "cut":
        return "stopped", palette.warn
    if item.tests is not None and (item.changed_files or item.tests != "as before"):
        tones = {"pass": palette.good, "broken": palette.bad, "none": palette.dim}
        return f"tests {TEST_OUTCOME_WORDS[item.tests]}", tones.get(item.tests, palette.warn)
    return "", ""


def totals_lines(
    by_agent: Mapping[str, tuple[Usage, float]],
    unpriced: Collection[str],
    estimated: Collection[str],
    width: int,
    palette: Palette,
) -> list[StyledLine]:
    """Draw tokens and money by agent. Prices of `unpriced` are unknown, and the money of
    `estimated` is marked.
    """
    if not by_agent:
        return []
    lines = [BLANK, styled_line([("usage by agent", palette.dim)], width)]
    for name, (usage, cost) in sorted(by_agent.items(), key=lambda pair: -pair[1][1]):
        right: list[StyledPart] = [
            (f"{tokens(usage.input)} in {tokens(usage.output)} out ", palette.dim)
        ]
        paid = known_cost(cost, unpriced=name in unpriced, estimated=name in estimated)
        right.append((f"{paid:>7}", palette.text))
        lines.append(justified_line([(f"  {flatten(name)}", palette.text)], right, width))
    return lines


AUTHOR_MARGIN = 16
"""Columns of a changed file's line besides its path and its authors."""
MOST_ITEMS, MOST_FILES, MOST_PARTS = 6, 8, 5
"""Lines of the todo list, of changed files, and of what fills the context."""
TODO_SIGNS = {"pending": "☐", "in_progress": "◐", "done": "☑"}


def panel_lines(
    tally: SessionTotals, width: int, palette: Palette, height: int
) -> list[StyledLine]:
    """Return the lines below the trace: todo list, changed files, jobs, context, cost.

    If `height` is too small, the cost stays.
    """
    parts = [
        _todo(tally, width, palette),
        _files(tally, width, palette),
        _jobs(tally, width, palette),
    ]
    parts.append(_context(tally, width, palette))
    last = totals_lines(tally.by_agent, tally.unpriced, tally.estimated, width, palette)
    while parts and sum(map(len, parts)) + len(last) > height:
        parts.pop()
    return [line for part in (*parts, last) for line in part]


def _headed_list(
    head: str,
    rows: Sequence[tuple[StyledPart, Sequence[StyledPart]]],
    width: int,
    most: int,
    palette: Palette,
) -> list[StyledLine]:
    """Draw a blank line, a heading, and the first `most` rows."""
    if not rows:
        return []
    shown = rows if len(rows) <= most else rows[: most - 1]
    lines = [BLANK, styled_line([(head, palette.dim)], width)]
    lines += [justified_line([("  ", ""), left], right, width) for left, right in shown]
    more = len(rows) - len(shown)
    return (
        [*lines, styled_line([(f"  … {plural(more, 'more line')}", palette.dim)], width)]
        if more
        else lines
    )


def _todo(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    """Draw the items in the order of the plan; open ones first where there is no room for all."""
    left = [item for item in tally.todo if item.status != "done"]
    if not left:
        return []
    tones = {"pending": palette.text, "in_progress": palette.accent, "done": palette.dim}
    ordered = list(tally.todo)
    if len(ordered) > MOST_ITEMS:
        ordered = [*left, *(item for item in tally.todo if item.status == "done")]
    rows = [
        ((f"{TODO_SIGNS[item.status]} {flatten(item.text)}", tones[item.status]), ())
        for item in ordered
    ]
    return _headed_list(
        f"to do: {len(tally.todo) - len(left)} of {len(tally.todo)} done",
        rows,
        width,
        MOST_ITEMS,
        palette,
    )


def _files(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    rows: list[tuple[StyledPart, Sequence[StyledPart]]] = []
    for path, change in tally.changed.items():
        added, removed = tally.sizes.get(change, (0, 0))
        sizes: list[StyledPart] = [(f"+{added}", palette.good), (f" -{removed}", palette.bad)]
        authors = ", ".join(flatten(name, 20) for name in tally.authors.get(path, ()))
        right = sizes if change in tally.sizes else []
        if authors and width >= cell_len(path) + cell_len(authors) + AUTHOR_MARGIN:
            right = [*right, (f"  {authors}", palette.dim)]
        rows.append(((flatten(path), palette.text), right))
    return _headed_list("changed files", rows, width, MOST_FILES, palette)


def _jobs(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    rows = [
        ((f"{name} {flatten(command)}", palette.text), ()) for name, command in tally.jobs.items()
    ]
    return _headed_list("background jobs", rows, width, MOST_ITEMS, palette)


def _context(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    share = f", {tally.context:.0%} full" if tally.context is not None else ""
    biggest = sorted(tally.context_parts.items(), key=lambda part: -part[1])[:MOST_PARTS]
    rows = [((name, palette.text), [(f"~{tokens(count)}", palette.dim)]) for name, count in biggest]
    return _headed_list(f"context{share}", rows, width, MOST_PARTS, palette)
