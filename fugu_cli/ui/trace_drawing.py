"""The trace as styled lines: one line a row, and one turn in full as titled sections. Plain text is in trace.py and
turn_text.py.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.engine.harness import TOOL_CALLING
from fugu_cli.messages import FromAgent, FromTool, FromUser, Message, Prompt, Usage
from fugu_cli.session import views
from fugu_cli.session.events import (
    CLIENT,
    Asked,
    Assigned,
    Event,
    Member,
    Opened,
    Recorded,
    Replied,
    ToolRan,
    WorkflowStep,
)
from fugu_cli.ui import diff_drawing, diff_lines
from fugu_cli.ui import trace_rows as plain_rows
from fugu_cli.ui.block_drawing import GAP, transcript_fragments
from fugu_cli.ui.column import Fragment
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
from fugu_cli.ui.event_text import describe_call
from fugu_cli.ui.formatting import (
    compact_number,
    duration,
    flatten,
    known_cost,
    plural,
    probability,
    sanitize_for_screen,
    short_duration,
)
from fugu_cli.ui.formatting import compact_number as tokens
from fugu_cli.ui.session_totals import SessionTotals
from fugu_cli.ui.trace_rows import PlanRow, RequestRow, TraceRow, TurnRow
from fugu_cli.ui.transcript import transcript_blocks
from fugu_cli.ui.turn_text import FROM_CLIENT
from fugu_cli.ui.workflow_text import edge_columns, plan_title, step_agent

WORKING_SIGN = "◐"


def trace_row_lines(item: TraceRow, width: int, palette: Palette) -> list[StyledLine]:
    """A request's line, or a turn's."""
    match item:
        case RequestRow():
            return _request(item, width, palette)
        case PlanRow():
            return _plan(item, width, palette)
        case TurnRow():
            return _turn(item, width, palette)


def empty_trace_lines(width: int, palette: Palette) -> list[StyledLine]:
    """What stands here before anything was asked."""
    said = "The trace: who is chosen in each turn, in which role, against whom, and what it took."
    return wrap_lines(said, width, palette.dim)


def _request(item: RequestRow, width: int, palette: Palette) -> list[StyledLine]:
    right: list[StyledPart] = []
    if item.finished is not None:
        good = item.finished.reason in ("accepted", "answered")
        said = views.END_WORDS[item.finished.reason]
        right = [(said, palette.good if good else palette.warn)]
    title: list[StyledPart] = [
        (f"{item.number} ", palette.dim),
        (flatten(item.asked.said, 200), f"bold {palette.text}"),
    ]
    lines = [] if item.number == 1 else [BLANK]
    lines.append(justified_line(title, right, width))
    return lines


def _plan(item: PlanRow, width: int, palette: Palette) -> list[StyledLine]:
    """The workflow as a graph, with what became of each step and what it took."""
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
                (f"{known_cost(item.cost, unpriced=item.unpriced):>7} ", palette.dim),
                (" " * (OUTCOME_CELLS + 1 if width >= ONE_LINE else 0), ""),
            ],
            width,
        )
    ]
    if planned.fault:
        lines += indent_lines(wrap_lines(flatten(planned.fault, 300), width - 4, palette.warn), ("    ", ""))
    edges = edge_columns(planned.steps)
    for place, step in enumerate(planned.steps):
        lines.append(_step(item, place, (edges[place], step), width, palette))
    return lines


def _step(item: PlanRow, place: int, drawn: tuple[str, WorkflowStep], width: int, palette: Palette) -> StyledLine:
    edge, step = drawn
    tries = item.steps.get(place, [])
    sign, tone = _sign(tries[-1], palette) if tries else ("○", palette.dim)
    right: list[StyledPart] = []
    if tries:
        took = sum(turn.seconds for turn in tries)
        cost = known_cost(sum(turn.cost for turn in tries), unpriced=any(turn.unpriced for turn in tries))
        right = [
            (f" {short_duration(took):>5}", palette.dim),
            (f" {cost:>7}", palette.dim),
        ]
    agent = tries[-1].assigned.agent if tries else step_agent(step)  # a step that failed is given to another one
    more = f" ×{len(tries)}" if len(tries) > 1 else ""
    left: list[StyledPart] = [(f"   {edge}", palette.accent), (f"{place + 1} ", palette.dim), (f"{sign} ", tone)]
    left += [
        (flatten(agent), f"bold {palette.text}"),
        (more, palette.warn),
        (f" {flatten(step.instruction, 120)}", palette.dim),
    ]
    return justified_line(left, right if width >= 34 else [], width)


def _turn(item: TurnRow, width: int, palette: Palette) -> list[StyledLine]:
    """The turn on a line; where it has no room for whole words, its numbers on a second one."""
    assigned = item.assigned
    sign, tone = _sign(item, palette)
    task = assigned.subtask
    left: list[StyledPart] = [
        (f"{assigned.turn:>2} {'└ ' if task is not None else ''}", palette.dim),
        (f"{sign} ", tone),
        (assigned.role if task is None else flatten(task.name or "task", 20), palette.role(assigned.role)),
        (f" {flatten(assigned.agent)}", palette.text),
    ]
    if item.draws:
        left.append((f" ×{item.draws + 1}", palette.warn))
    said, tone = _outcome(item, palette)
    if width >= ONE_LINE:
        outcome = (f" {said:<{OUTCOME_CELLS}}", tone)
        return [justified_line(left, [*_numbers(item, palette), outcome], width)]
    numbers = styled_line([("    ", ""), *_numbers(item, palette)], width)
    return [justified_line(left, [(said, tone)] if said else [], width), numbers]


ONE_LINE, OUTCOME_CELLS = 60, 8
"""Columns from which a turn is one line; columns of its outcome there."""


def _numbers(item: TurnRow, palette: Palette) -> list[StyledPart]:
    chance = item.probability
    rule = f"step {item.assigned.step + 1}" if item.assigned.plan else item.assigned.by[:7]
    shown = probability(chance) if chance is not None else rule
    tokens = f"~{item.writing}" if item.writing and not item.tokens else compact_number(item.tokens)
    return [
        (f"{shown:>7}", palette.accent),
        (f" {short_duration(item.seconds):>5}", palette.dim),
        (f" {tokens:>5}", palette.dim),
        (f" {known_cost(item.cost, unpriced=item.unpriced):>7}", palette.dim),
    ]


def _sign(item: TurnRow, palette: Palette) -> tuple[str, str]:
    return {
        "open": (WORKING_SIGN, palette.accent),
        "closed": ("●", palette.role(item.assigned.role)),
        "failed": ("✗", palette.bad),
        "cut": ("■", palette.warn),
    }[item.state]


def _outcome(item: TurnRow, palette: Palette) -> StyledPart:
    """A Verifier's verdict, else how the tests stood, else how the turn ended."""
    if item.verdict:
        good = item.verdict == "ACCEPT"
        said, tone = ("accepted", palette.good) if good else ("revise", palette.warn)
    elif item.state in ("failed", "cut"):
        said, tone = {"failed": "failed", "cut": "stopped"}[item.state], palette.bad
    elif item.tests is not None:
        said, tone = ("pass", palette.good) if item.tests else ("FAIL", palette.bad)
    else:
        said, tone = "", ""
    return said, tone


def totals_lines(
    by_agent: Mapping[str, tuple[Usage, float]], unpriced: Collection[str], width: int, palette: Palette
) -> list[StyledLine]:
    """Tokens and money by agent; nobody knows the prices of `unpriced`."""
    if not by_agent:
        return []
    lines = [BLANK, styled_line([("usage by model", palette.dim)], width)]
    for name, (usage, cost) in sorted(by_agent.items(), key=lambda pair: -pair[1][1]):
        right: list[StyledPart] = [
            (f"{compact_number(usage.input)} in {compact_number(usage.output)} out ", palette.dim)
        ]
        right.append((f"{known_cost(cost, unpriced=name in unpriced):>7}", palette.text))
        lines.append(justified_line([(f"  {flatten(name)}", palette.text)], right, width))
    return lines


MOST_ITEMS, MOST_FILES, MOST_PARTS = 6, 8, 5
"""Lines of the todo list, of changed files, and of what fills the context."""
TODO_SIGNS = {"pending": "☐", "in_progress": "◐", "done": "☑"}


def panel_lines(tally: SessionTotals, width: int, palette: Palette, room: int) -> list[StyledLine]:
    """What stands below the rows: the todo list, changed files, jobs, the context, the cost. Where there is no room for
    all of it the cost stays."""
    parts = [_todo(tally, width, palette), _files(tally, width, palette), _jobs(tally, width, palette)]
    parts.append(_context(tally, width, palette))
    last = totals_lines(tally.by_agent, tally.unpriced, width, palette)
    while parts and sum(map(len, parts)) + len(last) > room:
        parts.pop()
    return [line for part in (*parts, last) for line in part]


def _headed_list(
    head: str, rows: Sequence[tuple[StyledPart, Sequence[StyledPart]]], sizes: tuple[int, int], palette: Palette
) -> list[StyledLine]:
    """A blank line, a heading, and a line for each row, of more than `sizes[1]` the first."""
    width, most = sizes
    if not rows:
        return []
    shown = rows if len(rows) <= most else rows[: most - 1]
    lines = [BLANK, styled_line([(head, palette.dim)], width)]
    lines += [justified_line([("  ", ""), left], right, width) for left, right in shown]
    more = len(rows) - len(shown)
    return [*lines, styled_line([(f"  … {plural(more, 'more line')}", palette.dim)], width)] if more else lines


def _todo(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    """Open items first: there may be no room for all."""
    left = [item for item in tally.todo if item.status != "done"]
    if not left:
        return []
    tones = {"pending": palette.text, "in_progress": palette.accent, "done": palette.dim}
    ordered = [*left, *(item for item in tally.todo if item.status == "done")]
    rows = [((f"{TODO_SIGNS[item.status]} {flatten(item.text)}", tones[item.status]), ()) for item in ordered]
    return _headed_list(
        f"to do: {len(tally.todo) - len(left)} of {len(tally.todo)} done", rows, (width, MOST_ITEMS), palette
    )


def _files(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    rows: list[tuple[StyledPart, Sequence[StyledPart]]] = []
    for path, change in tally.changed.items():
        added, removed = tally.sizes.get(change, (0, 0))
        known: list[StyledPart] = [(f"+{added}", palette.good), (f" -{removed}", palette.bad)]
        rows.append(((flatten(path), palette.text), known if change in tally.sizes else ()))
    return _headed_list("changed files", rows, (width, MOST_FILES), palette)


def _jobs(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    rows = [((f"{name} {flatten(command)}", palette.text), ()) for name, command in tally.jobs.items()]
    return _headed_list("background jobs", rows, (width, MOST_ITEMS), palette)


def _context(tally: SessionTotals, width: int, palette: Palette) -> list[StyledLine]:
    share = f", {tally.context:.0%} full" if tally.context is not None else ""
    biggest = sorted(tally.context_parts.items(), key=lambda part: -part[1])[:MOST_PARTS]
    rows = [((name, palette.text), [(f"~{tokens(count)}", palette.dim)]) for name, count in biggest]
    return _headed_list(f"context{share}", rows, (width, MOST_PARTS), palette)


BAR_WIDTH = 24
FRAGMENT_LINES = 40
"""Lines of one piece of a long text."""


@dataclass(frozen=True)
class Section:
    """A titled part of the detail view."""

    title: str
    pieces: tuple[Fragment, ...]


PatchOf = Callable[[ToolRan], str]
"""What a call changed, as a diff."""


def patch_of_arguments(ran: ToolRan) -> str:
    """The diff as the call itself says, where the contents are not at hand."""
    return diff_lines.patch_of_call(ran.call)


PromptOf = Callable[[Sequence[Event], Member], Prompt]
"""The prompt of the next call of an agent, of the facts up to it."""


def tool_calling_prompt(events: Sequence[Event], member: Member) -> Prompt:
    """The prompt of an agent that calls tools, without standing instructions."""
    return TOOL_CALLING.prompt(events, member, (), "")


@dataclass(frozen=True)
class TurnSources:
    """Where the parts of a turn's page come from that are not in the log itself."""

    prompt_of: PromptOf = tool_calling_prompt
    patch_of: PatchOf = patch_of_arguments


DEFAULT_SOURCES = TurnSources()


def turn_sections(records: Sequence[Recorded], row: TurnRow, sources: TurnSources = DEFAULT_SOURCES) -> list[Section]:
    """Everything the log says of a turn. `records` are the session's lines."""
    mine = _own(records, row)
    cells = _cells(records, row)
    prompt, before = _shown(records, row, sources.prompt_of)
    made = [
        Section("The decision", (Fragment(lambda width, palette: _decision(row, cells, width, palette), "\n" * 14),)),
        Section("What the coordinator read", _text(_read(row.assigned))),
    ]
    if prompt is not None:
        made.append(Section(f"What {flatten(row.assigned.agent)} was shown", _prompt(prompt)))
        made.append(Section("What it was not shown", _text("\n".join(left_out(before, prompt, row.assigned.agent)))))
    elif views.served([record.event for record in before]) and row.assigned.by != CLIENT:
        made.append(Section(f"What {flatten(row.assigned.agent)} was shown", _text(FROM_CLIENT)))
    made.append(Section("What it did", (*transcript_fragments(transcript_blocks(mine)[1:], unfolded=True), GAP)))
    patches = [sources.patch_of(r.event) for r in mine if isinstance(r.event, ToolRan) and r.event.changes]
    if patches:
        patch = "\n".join(patches)
        piece = Fragment(lambda width, palette: [*diff_drawing.patch_lines(patch, width, palette), BLANK], patch)
        made.append(Section("The diff it made", (piece,)))
    made.append(Section("Model calls", _text("\n".join(_calls(mine, records)))))
    raw = _raw_scores(row.assigned, cells)
    return [*made, Section("Raw scores", _text(raw))] if raw else made


PageAt = Callable[[int], tuple[str, Sequence[Section]] | None]
"""The page some steps away from the one that is shown, with its title; None where there is none."""


def turn_pages(
    rows: Sequence[TraceRow], row: TurnRow, records: Sequence[Recorded], sources: TurnSources = DEFAULT_SOURCES
) -> PageAt:
    """Beginning with `row`. A turn that still runs is shown as far as it has come when its page is turned to."""
    every = [known for known in rows if isinstance(known, TurnRow)]
    at = next((index for index, known in enumerate(every) if known is row), len(every) - 1)

    def page(by: int) -> tuple[str, Sequence[Section]] | None:
        nonlocal at
        if not 0 <= at + by < len(every):
            return None
        at += by
        shown = every[at]
        title = f"request {shown.request.number}, turn {shown.assigned.turn}"
        title += f": {shown.assigned.agent} as {shown.assigned.role}"
        return title, turn_sections(records, shown, sources)

    return page


def section_title(text: str) -> Fragment:
    """A section's heading."""

    def paint(width: int, palette: Palette) -> list[StyledLine]:
        head = f"── {text} "
        return [styled_line([(head, f"bold {palette.accent}"), ("─" * max(width - len(head), 0), palette.dim)], width)]

    return Fragment(paint, exact=1)


def _own(records: Sequence[Recorded], row: TurnRow) -> list[Recorded]:
    """The turn's own lines: others may have been open at the same time."""
    number = row.assigned.turn
    between = records[row.first : row.last + 1]
    return [record for record in between if getattr(record.event, "turn", number) == number]


def _cells(records: Sequence[Recorded], row: TurnRow) -> plain_rows.DecisionRow | None:
    """The turn's probabilities, read from its request alone: the session may be long."""
    opened = [record for record in records[: row.first] if isinstance(record.event, Opened)]
    own = [*opened, *records[row.request.first : row.last + 1]]
    found = plain_rows.traced_requests(own)
    every = found[-1].rows if found else ()
    return next((cells for cells in every if cells.turn.number == row.assigned.turn), None)


def _decision(row: TurnRow, cells: plain_rows.DecisionRow | None, width: int, palette: Palette) -> list[StyledLine]:
    assigned = row.assigned
    role = palette.role(assigned.role)
    head: list[StyledPart] = [
        (f"{flatten(assigned.agent)} as {assigned.role}", f"bold {role}"),
        (f"  by {assigned.by}{f' · effort {cells.effort}' if cells and cells.effort else ''}", palette.dim),
    ]
    lines = [styled_line(head, width)]
    for said in (assigned.why, assigned.instruction):
        lines += wrap_lines(sanitize_for_screen(said), width, palette.text) if said else []
    if assigned.override is not None:
        lines += wrap_lines(f"a Thinker asked for this role; the head had {assigned.override}", width, palette.warn)
    lines += wrap_lines(_manifest(assigned), width, palette.text) if assigned.plan else []
    for name, group in (("agents", cells.rows if cells else ()), ("roles", cells.roles if cells else ())):
        if group:
            lines += [BLANK, styled_line([(name, palette.dim)], width), *(_bar(cell, width, palette) for cell in group)]
    if cells is None or not cells.rows:
        how = f"planned by {assigned.by}" if assigned.plan else "a rule decided, without probabilities"
        lines += wrap_lines(how, width, palette.dim)
    return [*lines, BLANK]


def _manifest(assigned: Assigned) -> str:
    """What a workflow's step may read, in words."""
    if assigned.sees == "all":
        opened = "all that was said before"
    else:
        turns = ", ".join(str(number) for number in assigned.sees)
        opened = f"the request and the words of turn {turns}" if turns else "the request alone"
    remembered = plural(len(assigned.remembers), "result") if assigned.remembers else ""
    memory = f"; {remembered} of tools from earlier workflows, still valid" if remembered else ""
    apart = "; works in a folder of its own" if assigned.worktree else ""
    return f"step {assigned.step + 1} of workflow {assigned.plan} reads {opened}{memory}{apart}"


def _bar(cell: plain_rows.ScoreCell, width: int, palette: Palette) -> StyledLine:
    name = f"  {flatten(cell.name, 16):<16} "
    if cell.probability is None:
        return styled_line([(name, palette.dim), (f"masked: {flatten(cell.masked)}", palette.warn)], width)
    full = round(cell.probability * BAR_WIDTH)
    tone = palette.good if cell.chosen else palette.accent
    bar: list[StyledPart] = [("█" * full, tone), ("░" * (BAR_WIDTH - full), palette.dim)]
    chosen = " ◀" if cell.chosen else ""
    return styled_line([(name, palette.text), *bar, (f" {probability(cell.probability):>3}{chosen}", tone)], width)


def _raw_scores(assigned: Assigned, cells: plain_rows.DecisionRow | None) -> str:
    """What the bars are made from, and how long each part of the decision took: for experts."""
    named = [*cells.rows, *cells.roles] if cells is not None else []
    lines = [f"{flatten(cell.name, 16):<16} logit {cell.logit:+.3f}" for cell in named if cell.logit is not None]
    took = assigned.milliseconds
    if took.total:
        parts = {"format": took.format, "tokenise": took.tokenise, "forward": took.forward, "head": took.head}
        lines.append(f"{took.total:.1f} ms: " + ", ".join(f"{name} {value:.1f}" for name, value in parts.items()))
    return "\n".join(lines)


def _read(assigned: Assigned) -> str:
    if assigned.scores is None:
        return f"Nothing: {assigned.by} decides by a rule."
    used = f"{tokens(assigned.scores.tokens)} tokens, {tokens(assigned.scores.cached_tokens)} of them cached\n\n"
    return used + (assigned.scores.read or "(not recorded)")


def _shown(records: Sequence[Recorded], row: TurnRow, prompt_of: PromptOf) -> tuple[Prompt | None, Sequence[Recorded]]:
    """The prompt of the turn's first model call, and the lines before it."""
    first = next((r.seq for r in _own(records, row) if isinstance(r.event, Replied)), row.last + 1)
    before = records[:first]
    events = [record.event for record in before]
    member = views.pool(events).get(row.assigned.agent)
    if member is None or views.served(events):
        return None, before
    return prompt_of(views.events_of_turn(events, row.assigned.turn), member), before


def _prompt(prompt: Prompt) -> tuple[Fragment, ...]:
    pieces = list(_headed("system", prompt.system)) if prompt.system.strip() else []
    for message in prompt.messages:
        pieces += _headed(*_message(message))
    sampled = [f"temperature {prompt.temperature}"] if prompt.temperature is not None else []
    sampled += [f"seed {prompt.seed}"] if prompt.seed is not None else []
    return (*pieces, *(_text(", ".join(sampled)) if sampled else ()))


def _message(message: Message) -> tuple[str, str]:
    match message:
        case FromUser():
            return "user", message.text
        case FromAgent():
            calls = "".join(f"\n[calls {call.tool} {call.arguments}]" for call in message.calls)
            return flatten(message.agent), f"{message.text}{calls}"
        case FromTool():
            return f"result of {flatten(message.tool)}{'' if message.ok else ' (failed)'}", message.text


def _headed(head: str, text: str) -> tuple[Fragment, ...]:
    mark = Fragment(lambda width, palette: [styled_line([(f"▸ {head}", f"bold {palette.user}")], width)], exact=1)
    return (mark, *_text(text))


def _text(text: str) -> tuple[Fragment, ...]:
    """Plain text in pieces, so that a long one is painted only where it is seen."""
    lines = sanitize_for_screen(text).rstrip("\n").split("\n")
    parts = ["\n".join(lines[start : start + FRAGMENT_LINES]) for start in range(0, len(lines), FRAGMENT_LINES)]
    return (*(_plain(part) for part in parts), Fragment(lambda width, palette: [BLANK], exact=1))


def _plain(part: str) -> Fragment:
    def paint(width: int, palette: Palette) -> list[StyledLine]:
        return indent_lines(wrap_lines(part, width - 2, palette.text), ("  ", ""))

    return Fragment(paint, part)


def left_out(records: Sequence[Recorded], prompt: Prompt, agent: str) -> list[str]:
    """Facts before the call that stand nowhere in its prompt, one line each. An agent reads no other one's thinking."""
    own = [m for m in prompt.messages if isinstance(m, FromAgent) and m.agent == agent]
    thoughts = [block.text for message in own for block in message.thinking]
    shown = "\n".join([prompt.system, *(_message(message)[1] for message in prompt.messages), *thoughts])
    lines: list[str] = []
    turn = ""
    for record in records:
        event = record.event
        match event:
            case Asked():
                if event.text.strip() and event.text.strip() not in shown:
                    lines.append(f"request: {flatten(event.text, 120)}")
            case Assigned():
                turn = f"turn {event.turn}, {flatten(event.agent)} as {event.role}"
            case Replied():
                lines += _reply_left_out(event, shown, turn)
            case ToolRan():
                if event.output.strip() and event.output.strip() not in shown:
                    lines.append(
                        f"{turn or 'before'}: result of {describe_call(event.call)} ({len(event.output):,} characters)"
                    )
            case _:
                continue
    return lines or ["Nothing: it was shown everything said and done before."]


def _reply_left_out(event: Replied, shown: str, turn: str) -> list[str]:
    lines = []
    thought = sum(len(block.text) for block in event.thinking if block.text not in shown)
    if thought:
        lines.append(f"{turn}: its thinking ({thought:,} characters)")
    if event.text.strip() and event.text.strip() not in shown:
        lines.append(f"{turn}: {flatten(event.text, 120)}")
    return lines


def _calls(mine: Sequence[Recorded], records: Sequence[Recorded]) -> list[str]:
    pool = views.pool([record.event for record in records[: mine[-1].seq + 1]]) if mine else {}
    lines = []
    for number, event in enumerate((r.event for r in mine if isinstance(r.event, Replied)), start=1):
        used = event.usage
        warm = f" ({tokens(used.cached)} cached)" if used.cached else ""
        member = pool.get(event.agent)
        cost = known_cost(views.price(event, member), unpriced=member is not None and member.price is None)
        numbers = f"{tokens(used.input)} in{warm}, {tokens(used.output)} out, {duration(event.seconds)}, {cost}"
        lines.append(f"{number}. {flatten(event.model) or flatten(event.agent)}: {numbers}, stop: {event.stop}")
    return lines or [plural(0, "call")]
