"""One turn in full as titled sections: on a page of the interface, and as the text of `fugu trace
--turn`. What it was shown is built again from the log by the function that built it then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, takewhile

from rich.cells import cell_len, set_cell_size

from fugu_cli.app import patches
from fugu_cli.app.event_text import FAILURE_WORDS, decision_why, describe_call
from fugu_cli.coordinators.turn_costs import rounded_money
from fugu_cli.engine import harness
from fugu_cli.formatting import compact_number as tokens
from fugu_cli.formatting import (
    duration,
    excerpt,
    flatten,
    known_cost,
    money,
    plural,
    probability,
    sanitize_for_screen,
)
from fugu_cli.messages import FromAgent, FromTool, FromUser, Message, Prompt
from fugu_cli.session import costs
from fugu_cli.session.costs import has_assumed_price
from fugu_cli.session.decision_scores import decision_scores
from fugu_cli.session.events import (
    CLIENT,
    AgentEstimate,
    Asked,
    Assigned,
    Failed,
    Member,
    Opened,
    Recorded,
    Replied,
    Scores,
    Steered,
    ToolRan,
)
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.ui import diff_drawing
from fugu_cli.ui import trace_rows as plain_rows
from fugu_cli.ui.block_drawing import GAP, transcript_fragments
from fugu_cli.ui.column import Fragment
from fugu_cli.ui.drawing import (
    BLANK,
    TERMINAL,
    Palette,
    StyledLine,
    StyledPart,
    indent_lines,
    plain_text,
    styled_line,
    wrap_lines,
)
from fugu_cli.ui.estimates import cascade_text, kind_text
from fugu_cli.ui.trace_rows import TraceRow, TurnRow, turn_result
from fugu_cli.ui.transcript import transcript_blocks

BAR_WIDTH = 24
FRAGMENT_LINES = 40
"""Lines of one piece of a long text."""


@dataclass(frozen=True)
class Section:
    """A titled part of the detail view."""

    title: str
    pieces: tuple[Fragment, ...]


PatchOf = Callable[[ToolRan], str]
"""Return the diff of a call."""


def patch_of_arguments(ran: ToolRan) -> str:
    """Return the diff by the call's arguments, without the file's contents."""
    return patches.patch_of_call(ran.call)


PromptOf = Callable[[SessionState, Member], Prompt]
"""The prompt of the next call of an agent, of the facts up to it."""


def prompt_without_instructions(state: SessionState, member: Member) -> Prompt:
    """Return the prompt of an agent without the standing instructions, which no log holds."""
    return harness.build_prompt(state, member, (), "")


@dataclass(frozen=True)
class TurnSources:
    """The sources of a turn's page that are not in the log."""

    prompt_of: PromptOf = prompt_without_instructions
    patch_of: PatchOf = patch_of_arguments


DEFAULT_SOURCES = TurnSources()


def turn_sections(
    records: Sequence[Recorded], row: TurnRow, sources: TurnSources = DEFAULT_SOURCES
) -> list[Section]:
    """Return the sections about a turn. `records` are the session's lines."""
    mine = _own_records(records, row)
    agent = flatten(row.assigned.agent)
    decision, read, *raw = decision_sections(records, row)
    sections = [decision, read]
    shown = _first_prompt(records, row, sources.prompt_of)
    if shown is not None:
        prompt, before, later = shown
        sections.append(Section(f"What {agent} was shown", (*_prompt(prompt), *later)))
        sections.append(
            Section(
                "What it was not shown",
                _text("\n".join(left_out(before, prompt, row.assigned.agent))),
            )
        )
    elif SessionState.of_records(records[: row.last]).served and row.assigned.by != CLIENT:
        sections.append(Section(f"What {agent} was shown", _text(FROM_CLIENT)))
    sections.append(
        Section(
            "What it did", (*transcript_fragments(transcript_blocks(mine)[1:], unfolded=True), GAP)
        )
    )
    patches = [
        sources.patch_of(r.event) for r in mine if isinstance(r.event, ToolRan) and r.event.changes
    ]
    if patches:
        patch = "\n".join(patches)
        piece = Fragment(
            lambda width, palette: [*diff_drawing.patch_lines(patch, width, palette), BLANK], patch
        )
        sections.append(Section("The diff it made", (piece,)))
    return [*sections, Section("Model calls", _text("\n".join(_calls(mine, records)))), *raw]


FROM_CLIENT = (
    "the conversation as the client of `fugu serve` sent it; its instructions are no events of a "
    "session"
)


def decision_sections(records: Sequence[Recorded], row: TurnRow) -> list[Section]:
    """Return the sections about the decision: scores, input, and raw numbers for experts."""
    cells = _cells(records, row)
    table = _agent_table(records, row, cells)
    sections = [
        Section(
            "The decision",
            (
                Fragment(
                    lambda width, palette: _decision(row, cells, table, width, palette), "\n" * 14
                ),
            ),
        ),
        Section("What the coordinator read", _text(_describe_input(row.assigned))),
    ]
    raw = _raw_scores(row.assigned, cells)
    return [*sections, Section("Raw scores", _text(raw))] if raw else sections


def turn_text(records: Sequence[Recorded], row: TurnRow, sources: TurnSources, width: int) -> str:
    """Return the page of a turn as plain text."""
    page = TurnPages([row], row, records, sources)(0)
    return sections_text(*page, width) if page is not None else ""


def sections_text(title: str, sections: Sequence[Section], width: int) -> str:
    """Return a page as plain text."""
    pieces = [
        piece for section in sections for piece in (section_title(section.title), *section.pieces)
    ]
    lines = [plain_text(line) for piece in pieces for line in piece.painted(width, TERMINAL)]
    return "\n".join([title, "", *lines]).rstrip("\n")


PageAt = Callable[[int], tuple[str, Sequence[Section]] | None]
"""The page some steps away from the one that is shown, with its title; None where there is none."""


class TurnPages:
    """The pages of turns, beginning with `row`. A running turn is shown in its state when its page
    is opened.
    """

    def __init__(
        self,
        rows: Sequence[TraceRow],
        row: TurnRow,
        records: Sequence[Recorded],
        sources: TurnSources = DEFAULT_SOURCES,
    ) -> None:
        self.row = row
        """The turn whose page is shown."""
        self._turns = [turn for turn in rows if isinstance(turn, TurnRow)]
        self._records = records
        self._sources = sources

    def __call__(self, by: int) -> tuple[str, Sequence[Section]] | None:
        """Go to the page so many steps away. Return its title and sections, None where there is
        none.
        """
        last = len(self._turns) - 1
        index = next((i for i, turn in enumerate(self._turns) if turn is self.row), last) + by
        if not 0 <= index <= last:
            return None
        row = self.row = self._turns[index]
        title = f"request {row.request.number}, turn {row.assigned.turn}"
        title += f": {row.assigned.agent} as {row.assigned.role}"
        return title, turn_sections(self._records, row, self._sources)


def section_title(text: str) -> Fragment:
    """Return a section's heading."""

    def paint(width: int, palette: Palette) -> list[StyledLine]:
        head = f"── {text} "
        return [
            styled_line(
                [(head, f"bold {palette.accent}"), ("─" * max(width - len(head), 0), palette.dim)],
                width,
            )
        ]

    return Fragment(paint, exact=1)


def _own_records(records: Sequence[Recorded], row: TurnRow) -> list[Recorded]:
    """Return the turn's own lines. Other turns may have been open at the same time."""
    number = row.assigned.turn
    between = records[row.first : row.last + 1]
    return [record for record in between if getattr(record.event, "turn", number) == number]


def _cells(records: Sequence[Recorded], row: TurnRow) -> plain_rows.DecisionRow | None:
    """Return the turn's probabilities. Only its request is read, since the session may be long."""
    opened = [record for record in records[: row.first] if isinstance(record.event, Opened)]
    own = [*opened, *records[row.request.first : row.last + 1]]
    requests = plain_rows.traced_requests(own)
    every = requests[-1].rows if requests else ()
    return next((cells for cells in every if cells.turn.number == row.assigned.turn), None)


@dataclass(frozen=True)
class AgentLine:
    """A line of the table of agents. `status` is empty where no reason is recorded."""

    name: str
    price: str
    call_cost: str
    run_cost: str
    solves: str
    chance: str
    logit: str
    status: str
    chosen: bool
    excluded: bool


def _agent_table(
    records: Sequence[Recorded], row: TurnRow, cells: plain_rows.DecisionRow | None
) -> list[AgentLine]:
    """Return a line for each agent of the pool: whether it could act, and what it costs."""
    members: dict[str, Member] = {}
    for record in records[: row.first]:
        if isinstance(record.event, Opened):
            members = {member.name: member for member in record.event.pool}
    request = RequestState(record.event for record in records[row.request.first : row.first])
    scores = row.assigned.scores
    estimates = {estimate.agent: estimate for estimate in scores.estimates} if scores else {}
    scored = {cell.name: cell for cell in cells.rows} if cells is not None else {}
    lines = []
    for name, member in members.items():
        chosen = name == row.assigned.agent
        why_not = _why_not(member, row.assigned, request)
        status = "could act" if scores is not None else ""
        if chosen:
            status = "chosen"
        elif why_not:
            status = f"no: {flatten(why_not, 80)}"
        elif scores is None and row.assigned.role == "verifier" and name in request.authors:
            status = "wrote a part of the change"
        cell = scored.get(name) or scored.get(member.slot)
        chance = logit = ""
        if cell is not None and cell.probability is not None:
            chance = probability(cell.probability)
        if cell is not None and cell.logit is not None:
            logit = f"{cell.logit:+.2f}"
        price = "unknown"
        if member.price is not None:
            price = f"${member.price.input:g} / ${member.price.output:g}"
        lines.append(
            AgentLine(
                name=flatten(name, 20),
                price=price,
                call_cost=_call_cost_text(estimates.get(name)),
                run_cost=_run_cost_text(estimates.get(name)),
                solves=_success_rate_text(estimates.get(name)),
                chance=chance,
                logit=logit,
                status=status,
                chosen=chosen,
                excluded=bool(why_not) and not chosen,
            )
        )
    return lines


def _why_not(member: Member, assigned: Assigned, request: RequestState) -> str:
    """Return the recorded reason why an agent could not act, "" if there is none."""
    failure = request.failed_agents.get(member.name)
    if failure is not None:
        return FAILURE_WORDS.get(failure.kind, failure.message)
    masked = dict(assigned.scores.masked) if assigned.scores is not None else {}
    return masked.get(member.name) or masked.get(member.slot, "")


def _call_cost_text(estimate: AgentEstimate | None) -> str:
    if estimate is None or estimate.call_cost is None:
        return ""
    return f"~{rounded_money(estimate.call_cost)}"


def _run_cost_text(estimate: AgentEstimate | None) -> str:
    if estimate is None or estimate.run_cost is None:
        return ""
    if estimate.run_turns <= 0:
        return f"~{rounded_money(estimate.run_cost)}"
    turns = max(round(estimate.run_turns), 1)
    return f"{money(estimate.run_cost)} ({plural(turns, 'turn')})"


def _success_rate_text(estimate: AgentEstimate | None) -> str:
    if estimate is None:
        return ""
    outcomes = round(estimate.own_outcomes)
    return f"{estimate.success_rate:.0%} ({plural(outcomes, 'outcome') if outcomes else 'no outcomes'})"


def _rate_sources(scores: Scores) -> list[str]:
    """Return the sources of the success rates besides the user's outcomes, one line for each."""
    agents: dict[str, list[str]] = {}
    for estimate in scores.estimates:
        if estimate.source:
            agents.setdefault(estimate.source, []).append(flatten(estimate.agent, 20))
    return [f"rate of {', '.join(names)}: {source}" for source, names in agents.items()]


TABLE_COLUMNS = (
    "agent",
    "price in/out",
    "next call",
    "whole turn",
    "solves",
    "chance",
    "logit",
    "may act",
)
DROPPED_COLUMNS = (6, 4, 5, 3)
"""Columns of the table that a narrow page leaves out, the first one first. Prices and the cost of
the next call stay.
"""
LEAST_STATUS = 22
"""Columns that the last column of the table needs."""


def _table_lines(table: Sequence[AgentLine], width: int, palette: Palette) -> list[StyledLine]:
    """Draw the table of agents. Columns without values, and columns for which a narrow page has no
    room, are left out.
    """
    rows: list[tuple[str, ...]] = []
    styles: list[str] = []
    for line in table:
        rows.append(
            (
                line.name,
                line.price,
                line.call_cost,
                line.run_cost,
                line.solves,
                line.chance,
                line.logit,
                f"◂ {line.status}" if line.chosen else line.status,
            )
        )
        if line.chosen:
            styles.append(palette.good)
        else:
            styles.append(palette.dim if line.excluded else palette.text)
    last = len(TABLE_COLUMNS) - 1
    columns = [
        column for column in range(last + 1) if column == 0 or any(row[column] for row in rows)
    ]
    rows.insert(0, TABLE_COLUMNS)
    styles.insert(0, palette.dim)
    widths = {column: max(cell_len(row[column]) for row in rows) for column in columns}
    for dropped in DROPPED_COLUMNS:
        needed = sum(widths[column] + 2 for column in columns if column != last)
        needed += min(widths.get(last, 0), LEAST_STATUS)
        if dropped in columns and needed > width - 2:
            columns.remove(dropped)
    lines = []
    for row, style in zip(rows, styles, strict=True):
        before_status = "  "
        for column in columns:
            if column != last:
                before_status += f"{set_cell_size(row[column], widths[column])}  "
        indent = cell_len(before_status)
        status = row[last] if last in columns else ""
        first, *more = wrap_lines(status, max(width - indent, 8), style)
        lines.append([*styled_line([(before_status, style)], width), *first])
        lines += indent_lines(more, (" " * indent, ""))
    return lines


def _decision(
    row: TurnRow,
    cells: plain_rows.DecisionRow | None,
    table: Sequence[AgentLine],
    width: int,
    palette: Palette,
) -> list[StyledLine]:
    assigned = row.assigned
    head: list[StyledPart] = [
        (f"{flatten(assigned.agent)} as {assigned.role}", f"bold {palette.role(assigned.role)}"),
        (f"  effort {cells.effort}" if cells and cells.effort else "", palette.dim),
    ]
    lines = [styled_line(head, width)]
    why = decision_why(assigned, assigned.why, row.unavailable)
    if why:
        lines += wrap_lines(f"why: {why}", width, palette.text)
    if cells is not None and row.last > row.first:
        lines += wrap_lines(f"result: {turn_result(cells)}", width, palette.text)
    if assigned.plan:
        lines += wrap_lines(_describe_access(assigned), width, palette.text)
    lines += [BLANK, *_table_lines(table, width, palette)]
    roles = cells.roles if cells is not None else ()
    if roles:
        bars = [_bar(cell, width, palette) for cell in roles]
        lines += [BLANK, styled_line([("roles", palette.dim)], width), *bars]
    scores = assigned.scores
    if scores is not None and scores.estimates:
        lines.append(BLANK)
        texts = (*_rate_sources(scores), kind_text(scores), cascade_text(scores))
        for text in filter(None, texts):
            lines += wrap_lines(text, width, palette.text)
    return [*lines, BLANK]


def _describe_access(assigned: Assigned) -> str:
    """Describe what a workflow's step may read."""
    if assigned.sees == "all":
        opened = "all that was said before"
    else:
        turns = ", ".join(str(number) for number in assigned.sees)
        opened = f"the request and the words of turn {turns}" if turns else "the request alone"
    remembered = plural(len(assigned.remembers), "result") if assigned.remembers else ""
    memory = f"; {remembered} of tools from earlier workflows, still valid" if remembered else ""
    folder_note = "; works in a folder of its own" if assigned.worktree else ""
    return (
        f"step {assigned.step + 1} of workflow {assigned.plan} reads {opened}{memory}{folder_note}"
    )


def _bar(cell: plain_rows.ScoreCell, width: int, palette: Palette) -> StyledLine:
    name = f"  {flatten(cell.name, 16):<16} "
    if cell.probability is None:
        return styled_line([(name, palette.dim), (flatten(cell.masked), palette.warn)], width)
    full = round(cell.probability * BAR_WIDTH)
    tone = palette.good if cell.chosen else palette.accent
    bar: list[StyledPart] = [("█" * full, tone), ("░" * (BAR_WIDTH - full), palette.dim)]
    chosen = " ◀" if cell.chosen else ""
    return styled_line(
        [(name, palette.text), *bar, (f" {probability(cell.probability):>3}{chosen}", tone)], width
    )


def _raw_scores(assigned: Assigned, cells: plain_rows.DecisionRow | None) -> str:
    """Return the logits behind the bars, and the time of each part of the decision."""
    named = [*cells.rows, *cells.roles] if cells is not None else []
    lines = [
        f"{flatten(cell.name, 16):<16} logit {cell.logit:+.3f}"
        for cell in named
        if cell.logit is not None
    ]
    scores = decision_scores(assigned, next((cell.name for cell in named if cell.chosen), ""))
    leads = (
        [lead for lead in (scores.lead, scores.role_lead) if lead is not None]
        if scores is not None
        else []
    )
    lines += [f"margin: {lead.chosen} is {lead.margin:+.3f} over {lead.over}" for lead in leads]
    took = assigned.milliseconds
    if took.total:
        parts = {"load": took.load} if took.load else {}
        parts |= {
            "format": took.format,
            "tokenise": took.tokenise,
            "forward": took.forward,
            "head": took.head,
        }
        lines.append(
            f"{took.total:.1f} ms: "
            + ", ".join(f"{name} {value:.1f}" for name, value in parts.items())
        )
    return "\n".join(lines)


def _describe_input(assigned: Assigned) -> str:
    if assigned.scores is None:
        return "The events of the request alone: no language model was asked."
    if assigned.scores.estimates:
        if not assigned.scores.tokens:
            return f"No language model was asked: {assigned.scores.kinds_from}."
        return f"{tokens(assigned.scores.tokens)} tokens of the request, for its kind."
    read, cached = assigned.scores.tokens, assigned.scores.cached_tokens
    cache_note = "read before" if read and cached == read else f"{tokens(cached)} of them cached"
    return f"{tokens(read)} tokens, {cache_note}\n\n" + (assigned.scores.read or "(not recorded)")


def _first_prompt(
    records: Sequence[Recorded], row: TurnRow, prompt_of: PromptOf
) -> tuple[Prompt, Sequence[Recorded], list[Fragment]] | None:
    """Return the prompt of the turn's first model call, the lines before it, and the new messages
    of each later call.

    None if the log does not say.
    """
    ends = [r.seq for r in _own_records(records, row) if isinstance(r.event, Replied | Failed)] or [
        row.last + 1
    ]
    events = [record.event for record in records[: ends[-1]]]
    state = SessionState(events)
    member = state.pool.get(row.assigned.agent)
    if member is None or state.served:
        return None

    @cache
    def prompt_at(line: int) -> Prompt:
        return prompt_of(SessionState(events[:line]).of_turn(row.assigned.turn), member)

    def later(before: int, line: int, number: int) -> Fragment:
        def paint(width: int, palette: Palette) -> list[StyledLine]:
            return [
                line
                for piece in _new_messages(prompt_at(before), prompt_at(line), number)
                for line in piece.painted(width, palette)
            ]

        return Fragment(paint, "\n" * 8)

    pieces = [
        later(start, end, number) for number, (start, end) in enumerate(pairwise(ends), start=2)
    ]
    return prompt_at(ends[0]), records[: ends[0]], pieces


def _new_messages(before: Prompt, prompt: Prompt, number: int) -> list[Fragment]:
    """Return the messages of a call that the call before it did not have."""
    pairs = zip(before.messages, prompt.messages, strict=False)
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    pieces = list(_headed(f"call {number}", f"{plural(same, 'message')} as before"))
    for message in prompt.messages[same:]:
        pieces += _headed(*_message(message))
    return pieces


def _prompt(prompt: Prompt) -> tuple[Fragment, ...]:
    pieces = list(_headed("system", prompt.system)) if prompt.system.strip() else []
    for message in prompt.messages:
        pieces += _headed(*_message(message))
    sampled = ["tools: " + ", ".join(tool.name for tool in prompt.tools)] if prompt.tools else []
    sampled += [f"temperature {prompt.temperature}"] if prompt.temperature is not None else []
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
            return (
                f"result of {flatten(message.tool)}{'' if message.ok else ' (failed)'}",
                message.text,
            )


def _headed(head: str, text: str) -> tuple[Fragment, ...]:
    heading = Fragment(
        lambda width, palette: [styled_line([(f"▸ {head}", f"bold {palette.user}")], width)],
        exact=1,
    )
    return (heading, *_text(text))


LONGEST_TEXT = 50_000
"""Characters of a message that a page shows."""
WHOLE_TEXT = "the session's log holds all of it"


def _text(text: str) -> tuple[Fragment, ...]:
    """Return plain text in pieces, so that only visible parts of a long one are painted."""
    shown = excerpt(text, LONGEST_TEXT, WHOLE_TEXT)
    lines = sanitize_for_screen(shown).rstrip("\n").split("\n")
    parts = [
        "\n".join(lines[start : start + FRAGMENT_LINES])
        for start in range(0, len(lines), FRAGMENT_LINES)
    ]
    return (*(_plain(part) for part in parts), Fragment(lambda width, palette: [BLANK], exact=1))


def _plain(part: str) -> Fragment:
    def paint(width: int, palette: Palette) -> list[StyledLine]:
        return indent_lines(wrap_lines(part, width - 2, palette.text), ("  ", ""))

    return Fragment(paint, part)


def left_out(records: Sequence[Recorded], prompt: Prompt, agent: str) -> list[str]:
    """Return one line for each earlier event that the call's prompt does not contain. Agents never
    read each other's thinking.
    """
    own = [m for m in prompt.messages if isinstance(m, FromAgent) and m.agent == agent]
    thoughts = [block.text for message in own for block in message.thinking]
    shown = "\n".join(
        [prompt.system, *(_message(message)[1] for message in prompt.messages), *thoughts]
    )
    lines: list[str] = []
    turn = ""
    for record in records:
        event = record.event
        match event:
            case Asked():
                if event.text.strip() and event.text.strip() not in shown:
                    lines.append(f"request: {flatten(event.text, 120)}")
            case Steered():
                if event.text.strip() and event.text.strip() not in shown:
                    lines.append(f"message: {flatten(event.text, 120)}")
            case Assigned():
                turn = f"turn {event.turn}, {flatten(event.agent)} as {event.role}"
            case Replied():
                lines += _reply_left_out(event, shown, turn)
            case ToolRan():
                if event.output.strip() and event.output.strip() not in shown:
                    lines.append(
                        f"{turn or 'before'}: result of {describe_call(event.call)} "
                        f"({len(event.output):,} characters)"
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
    pool = (
        SessionState([record.event for record in records[: mine[-1].seq + 1]]).pool if mine else {}
    )
    lines = []
    paid = [
        record.event
        for record in mine
        if isinstance(record.event, Replied)
        or (isinstance(record.event, ToolRan) and record.event.agent)
    ]
    for number, event in enumerate(paid, start=1):
        used = event.usage
        warm = f" ({tokens(used.cached)} cached)" if used.cached else ""
        member = pool.get(event.agent)
        cost = known_cost(
            costs.price(event, member),
            unpriced=member is not None and member.price is None,
            estimated=used.is_estimated or has_assumed_price(member),
        )
        numbers = (
            f"{tokens(used.input)} in{warm}, {tokens(used.output)} out, "
            f"{duration(event.seconds)}, {cost}"
        )
        if isinstance(event, ToolRan):
            lines.append(f"{number}. {flatten(event.agent)}, asked by {event.call.tool}: {numbers}")
            continue
        lines.append(
            f"{number}. {flatten(event.model) or flatten(event.agent)}: {numbers}, stop: "
            f"{event.stop}"
        )
    return lines or [plural(0, "call")]
