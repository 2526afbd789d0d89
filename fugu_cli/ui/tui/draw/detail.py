"""One turn in full, as sections of pieces: the decision, what was read, shown and left out, what was done.

Opened from a row of the trace. Built from the log alone: what the agent was shown comes from the same function that
built it then (`context.prompt`), the cells from ui/rows.py, which the plain trace uses too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from fugu_cli import views
from fugu_cli.events import CLIENT, Asked, Assigned, Event, Member, Opened, Recorded, Replied, ToolRan
from fugu_cli.loop.harness import TOOL_CALLING
from fugu_cli.messages import FromAgent, FromTool, FromUser, Message, Prompt
from fugu_cli.ui import rows as plain_rows
from fugu_cli.ui.clean import count as tokens
from fugu_cli.ui.clean import probability, seconds, spent
from fugu_cli.ui.render import describe
from fugu_cli.ui.trace_turn import FROM_CLIENT
from fugu_cli.ui.tui.draw import diff
from fugu_cli.ui.tui.draw.lines import BLANK, Line, Part, indented, line, wrapped
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.piece import Piece
from fugu_cli.ui.tui.draw.pieces import GAP, of_blocks
from fugu_cli.ui.tui.draw.rows import TurnRow
from fugu_cli.ui.tui.draw.story import told
from fugu_cli.ui.tui.draw.text import count, flat, safe

BAR = 24
PARAGRAPH = 40
"""Lines of one piece of a long text."""


@dataclass(frozen=True)
class Section:
    """A titled part of the detail view."""

    title: str
    pieces: tuple[Piece, ...]


PatchOf = Callable[[ToolRan], str]
"""What a call changed, as a diff."""


def by_arguments(ran: ToolRan) -> str:
    """The diff as the call itself says, where the contents are not at hand."""
    return diff.of_call(ran.call)


PromptOf = Callable[[Sequence[Event], Member], Prompt]
"""The prompt of the next call of an agent, of the facts up to it."""


def native(events: Sequence[Event], member: Member) -> Prompt:
    """The prompt of an agent that calls tools, without standing instructions."""
    return TOOL_CALLING.prompt(events, member, (), "")


@dataclass(frozen=True)
class Sources:
    """Where the parts of a turn's page come from that are not in the log itself."""

    prompt_of: PromptOf = native
    patch_of: PatchOf = by_arguments


PLAIN = Sources()


def sections(records: Sequence[Recorded], row: TurnRow, sources: Sources = PLAIN) -> list[Section]:
    """Everything the log says of a turn. `records` are the session's lines."""
    mine = _own(records, row)
    cells = _cells(records, row)
    prompt, before = _shown(records, row, sources.prompt_of)
    made = [
        Section("The decision", (Piece(lambda width, palette: _decision(row, cells, width, palette), "\n" * 14),)),
        Section("What the coordinator read", _text(_read(row.assigned))),
    ]
    if prompt is not None:
        made.append(Section(f"What {flat(row.assigned.agent)} was shown", _prompt(prompt)))
        made.append(Section("What it was not shown", _text("\n".join(left_out(before, prompt, row.assigned.agent)))))
    elif views.served([record.event for record in before]) and row.assigned.by != CLIENT:
        made.append(Section(f"What {flat(row.assigned.agent)} was shown", _text(FROM_CLIENT)))
    made.append(Section("What it did", (*of_blocks(told(mine)[1:], unfolded=True), GAP)))
    patches = [sources.patch_of(r.event) for r in mine if isinstance(r.event, ToolRan) and r.event.changes]
    if patches:
        patch = "\n".join(patches)
        made.append(Section("The diff it made", (Piece(lambda w, p: [*diff.painted(patch, w, p), BLANK], patch),)))
    made.append(Section("Model calls", _text("\n".join(_calls(mine, records)))))
    return made


def title(text: str) -> Piece:
    """A section's heading."""

    def paint(width: int, palette: Palette) -> list[Line]:
        head = f"── {text} "
        return [line([(head, f"bold {palette.accent}"), ("─" * max(width - len(head), 0), palette.dim)], width)]

    return Piece(paint, exact=1)


def _own(records: Sequence[Recorded], row: TurnRow) -> list[Recorded]:
    """The turn's own lines: others may have been open at the same time."""
    number = row.assigned.turn
    between = records[row.first : row.last + 1]
    return [record for record in between if getattr(record.event, "turn", number) == number]


def _cells(records: Sequence[Recorded], row: TurnRow) -> plain_rows.Row | None:
    """The turn's probabilities, read from its request alone: the session may be long."""
    opened = [record for record in records[: row.first] if isinstance(record.event, Opened)]
    own = [*opened, *records[row.request.first : row.last + 1]]
    found = plain_rows.requests(own)
    every = found[-1].rows if found else ()
    return next((cells for cells in every if cells.turn.number == row.assigned.turn), None)


def _decision(row: TurnRow, cells: plain_rows.Row | None, width: int, palette: Palette) -> list[Line]:
    assigned = row.assigned
    role = palette.role(assigned.role)
    head: list[Part] = [
        (f"{flat(assigned.agent)} as {assigned.role}", f"bold {role}"),
        (f"  by {assigned.by}", palette.dim),
    ]
    lines = [line(head, width)]
    for said in (assigned.reason, assigned.instruction):
        lines += wrapped(safe(said), width, palette.text) if said else []
    if assigned.override is not None:
        lines += wrapped(f"a Thinker asked for this role; the head had {assigned.override}", width, palette.warn)
    lines += wrapped(_manifest(assigned), width, palette.text) if assigned.plan else []
    for name, group in (("agents", cells.rows if cells else ()), ("roles", cells.roles if cells else ())):
        if group:
            lines += [BLANK, line([(name, palette.dim)], width), *(_bar(cell, width, palette) for cell in group)]
    if cells is None or not cells.rows:
        lines += wrapped("no probabilities: a rule decided", width, palette.dim)
    took = assigned.milliseconds
    if took.total:
        parts = {"format": took.format, "tokenise": took.tokenise, "forward": took.forward, "head": took.head}
        named = ", ".join(f"{name} {value:.1f}" for name, value in parts.items())
        lines += [BLANK, *wrapped(f"{took.total:.1f} ms: {named}", width, palette.dim)]
    return [*lines, BLANK]


def _manifest(assigned: Assigned) -> str:
    """What a workflow's step may read, in words."""
    if assigned.sees == "all":
        opened = "all that was said before"
    else:
        turns = ", ".join(str(number) for number in assigned.sees)
        opened = f"the request and the words of turn {turns}" if turns else "the request alone"
    remembered = count(len(assigned.remembers), "result") if assigned.remembers else ""
    memory = f"; {remembered} of tools from earlier workflows, still valid" if remembered else ""
    apart = "; works in a folder of its own" if assigned.worktree else ""
    return f"step {assigned.step} of workflow {assigned.plan} reads {opened}{memory}{apart}"


def _bar(cell: plain_rows.Cell, width: int, palette: Palette) -> Line:
    name = f"  {flat(cell.name, 16):<16} "
    logit = "" if cell.logit is None else f"  logit {cell.logit:+.2f}"
    if cell.probability is None:
        return line([(name, palette.dim), (f"masked: {flat(cell.masked)}", palette.warn), (logit, palette.dim)], width)
    full = round(cell.probability * BAR)
    tone = palette.good if cell.chosen else palette.accent
    bar: list[Part] = [("█" * full, tone), ("░" * (BAR - full), palette.dim)]
    chosen = " ◀" if cell.chosen else ""
    return line(
        [(name, palette.text), *bar, (f" {probability(cell.probability):>3}{chosen}", tone), (logit, palette.dim)],
        width,
    )


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
    return prompt_of(views.lane(events, row.assigned.turn), member), before


def _prompt(prompt: Prompt) -> tuple[Piece, ...]:
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
            return flat(message.agent), f"{message.text}{calls}"
        case FromTool():
            return f"result of {flat(message.tool)}{'' if message.ok else ' (failed)'}", message.text


def _headed(head: str, text: str) -> tuple[Piece, ...]:
    mark = Piece(lambda width, palette: [line([(f"▸ {head}", f"bold {palette.user}")], width)], exact=1)
    return (mark, *_text(text))


def _text(text: str) -> tuple[Piece, ...]:
    """Plain text in pieces, so that a long one is painted only where it is seen."""
    lines = safe(text).rstrip("\n").split("\n")
    parts = ["\n".join(lines[start : start + PARAGRAPH]) for start in range(0, len(lines), PARAGRAPH)]
    return (*(_plain(part) for part in parts), Piece(lambda width, palette: [BLANK], exact=1))


def _plain(part: str) -> Piece:
    def paint(width: int, palette: Palette) -> list[Line]:
        return indented(wrapped(part, width - 2, palette.text), ("  ", ""))

    return Piece(paint, part)


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
                    lines.append(f"request: {flat(event.text, 120)}")
            case Assigned():
                turn = f"turn {event.turn}, {flat(event.agent)} as {event.role}"
            case Replied():
                lines += _unsaid(event, shown, turn)
            case ToolRan():
                if event.output.strip() and event.output.strip() not in shown:
                    lines.append(
                        f"{turn or 'before'}: result of {describe(event.call)} ({len(event.output):,} characters)"
                    )
            case _:
                continue
    return lines or ["Nothing: it was shown everything said and done before."]


def _unsaid(event: Replied, shown: str, turn: str) -> list[str]:
    lines = []
    thought = sum(len(block.text) for block in event.thinking if block.text not in shown)
    if thought:
        lines.append(f"{turn}: its thinking ({thought:,} characters)")
    if event.text.strip() and event.text.strip() not in shown:
        lines.append(f"{turn}: {flat(event.text, 120)}")
    return lines


def _calls(mine: Sequence[Recorded], records: Sequence[Recorded]) -> list[str]:
    pool = views.pool([record.event for record in records[: mine[-1].seq + 1]]) if mine else {}
    lines = []
    for number, event in enumerate((r.event for r in mine if isinstance(r.event, Replied)), start=1):
        used = event.usage
        warm = f" ({tokens(used.cached)} cached)" if used.cached else ""
        member = pool.get(event.agent)
        cost = spent(views.price(event, member), unpriced=member is not None and member.price is None)
        numbers = f"{tokens(used.input)} in{warm}, {tokens(used.output)} out, {seconds(event.seconds)}, {cost}"
        lines.append(f"{number}. {flat(event.model) or flat(event.agent)}: {numbers}, stop: {event.stop}")
    return lines or [count(0, "call")]
