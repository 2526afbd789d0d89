"""`fugu trace SESSION --turn N`: one turn in full as plain text: what the coordinator read and computed, what the
agent was shown and said, its tools, its diffs, the time. Pure.

What the agent was shown is built again from the log by the same function that built it then (`context.prompt`), handed
in as `Shown`. Diffs of changes come from whoever holds the files' contents, handed in as `Diff`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fugu_cli.errors import UsageError
from fugu_cli.messages import FromAgent, FromTool, FromUser, Message, Prompt
from fugu_cli.session import views
from fugu_cli.session.decision_scores import decision_scores
from fugu_cli.session.events import (
    CLIENT,
    Assigned,
    Event,
    Failed,
    FileChange,
    Interrupted,
    Permitted,
    Recorded,
    Replied,
    Scores,
    ToolRan,
    Undone,
)
from fugu_cli.ui import event_text
from fugu_cli.ui.formatting import compact_number, duration, probability, sanitize
from fugu_cli.ui.trace import turn_result
from fugu_cli.ui.trace_rows import DecisionRow, ScoreCell, traced_requests

PromptAt = Callable[[Sequence[Event]], Prompt | None]
"""The prompt of the next model call at the end of these facts; None where they do not say it."""
DiffOfChange = Callable[[FileChange], str]
"""A change as a unified diff; "" where the contents are gone."""

FROM_CLIENT = "the conversation as the client of `fugu serve` sent it; its instructions are no facts of a session"


def find_turn(records: Sequence[Recorded], number: int, request: int | None = None) -> DecisionRow:
    """Turn `number` of the newest request, or of `request` (from 1). UsageError names the ones there are."""
    every = traced_requests(records)
    if not every:
        raise UsageError("nothing was asked in this session yet", hint="ask something with `fugu run --resume`")
    if request is not None and not 1 <= request <= len(every):
        raise UsageError(f"there is no request {request}", hint=f"the session has {len(every)}")
    chosen = every[-1 if request is None else request - 1]
    for row in chosen.rows:
        if row.turn.number == number:
            return row
    known = ", ".join(str(row.turn.number) for row in chosen.rows) or "none"
    raise UsageError(f"request {chosen.number} has no turn {number}", hint=f"its turns: {known}")


def whole_turn_text(records: Sequence[Recorded], row: DecisionRow, shown: PromptAt, diff: DiffOfChange) -> str:
    """The whole turn. Long texts are printed whole: this is the place to read them."""
    assigned = row.turn.assigned
    sections = [
        f"request {row.request}, turn {assigned.turn}: {assigned.agent} as {assigned.role}\n{turn_result(row)}",
        _decision(assigned, row),
        _read(assigned),
        *_facts(records, row, shown, diff),
    ]
    return "\n\n".join(section for section in sections if section)


def whole_decision_text(assigned: Assigned, row: DecisionRow) -> str:
    """The decision alone: what was weighed, and what was read."""
    return f"{_decision(assigned, row)}\n\n{_read(assigned)}"


def _titled(title: str, body: str) -> str:
    return f"== {title}\n{sanitize(body).rstrip()}"


def _decision(event: Assigned, row: DecisionRow) -> str:
    lines = [f"by {event.by}" + (f": {event.why}" if event.why else "")]
    if row.effort:
        lines.append(f"effort: {row.effort}")
    if event.override is not None:
        lines.append(f"a Thinker asked for this role; the head had {event.override}")
    for title, cells in (("agents", row.rows), ("roles", row.roles)):
        if cells:
            lines += [f"{title}:", *(f"  {_bar(cell)}" for cell in cells)]
    lines += _leads(event, row)
    if event.instruction:
        lines.append(f"instruction: {event.instruction}")
    parts = event.milliseconds
    if parts.total:
        named = {"format": parts.format, "tokenise": parts.tokenise, "forward": parts.forward, "head": parts.head}
        lines.append("milliseconds: " + ", ".join(f"{name} {value:.1f}" for name, value in named.items()))
    return _titled("the decision", "\n".join(lines))


def _leads(event: Assigned, row: DecisionRow) -> list[str]:
    found = decision_scores(event, next((cell.name for cell in row.rows if cell.chosen), ""))
    if found is None:
        return []
    leads = [lead for lead in (found.lead, found.role_lead) if lead is not None]
    return [f"margin: {lead.chosen} is {lead.margin:+.3f} over {lead.over}" for lead in leads]


def _bar(cell: ScoreCell) -> str:
    logit = "" if cell.logit is None else f"  logit {cell.logit:+.3f}"
    if cell.probability is None:
        return f"{cell.name:<10}  --  {'masked: ' + cell.masked:<22}{logit}"
    bar = "#" * round(cell.probability * 20)
    return f"{cell.name:<10} {probability(cell.probability):>3}  {bar:<20}{' *' if cell.chosen else '  '}{logit}"


def _read(event: Assigned) -> str:
    scores = event.scores
    if scores is None:
        return _titled("what the coordinator read", f"nothing: {event.by} decides by a rule")
    return _titled(f"what the coordinator read ({_tokens(scores)})", scores.read)


def _tokens(scores: Scores) -> str:
    cached = f": {compact_number(scores.cached_tokens)} cached" if scores.cached_tokens else ""
    warm = "cold" if 2 * scores.cached_tokens < scores.tokens else "warm"
    return f"{compact_number(scores.tokens)} tokens, {warm}{cached}"


def _facts(records: Sequence[Recorded], row: DecisionRow, shown: PromptAt, diff: DiffOfChange) -> list[str]:
    """The turn's facts in order; before each reply, what is new in what the agent was shown."""
    events = [record.event for record in records]
    sections: list[str] = []
    before: tuple[Message, ...] = ()
    apart = bool(row.turn.assigned.plan or row.turn.assigned.subtask)
    mine = {row.turn.number} if apart else {0, row.turn.number}
    for index in range(row.start + 1, row.upto):
        event = events[index]
        if getattr(event, "turn", 0) not in mine:
            continue  # of a step or a subtask that was open at the same time
        if isinstance(event, Replied | Failed | Interrupted) and _was_asked(event):
            before_it = events[:index]
            prompt = shown(views.events_of_turn(before_it, row.turn.number) if apart else before_it)
            if prompt is not None:
                sections.append(_prompt(prompt, before))
                before = prompt.messages
            elif views.served(before_it) and row.turn.assigned.by != CLIENT and not sections:
                sections.append(_titled("what the agent was shown", FROM_CLIENT))
        section = _fact(event, diff)
        if section:
            sections.append(section)
    return sections


def _was_asked(event: Replied | Failed | Interrupted) -> bool:
    """A model call ended here, in whatever way."""
    return not isinstance(event, Interrupted) or bool(event.partial)


def _prompt(prompt: Prompt, before: tuple[Message, ...]) -> str:
    same = 0
    while same < min(len(before), len(prompt.messages)) and before[same] == prompt.messages[same]:
        same += 1
    new = prompt.messages[same:]
    lines = [] if before else [f"-- system\n{prompt.system}"]
    if same:
        lines.append(f"-- {same} message{'s' if same > 1 else ''} as before")
    lines += [_message(message) for message in new]
    if not before and prompt.tools:
        lines.append(f"-- tools\n{', '.join(tool.name for tool in prompt.tools)}")
    sampling = [
        f"temperature {prompt.temperature}" if prompt.temperature is not None else "",
        f"seed {prompt.seed}" if prompt.seed is not None else "",
    ]
    if any(sampling):
        lines.append("-- " + ", ".join(part for part in sampling if part))
    return _titled("what the agent was shown", "\n".join(lines))


def _message(message: Message) -> str:
    match message:
        case FromUser():
            return f"-- user\n{message.text}"
        case FromAgent():
            calls = "".join(f"\n[calls {call.tool} {call.arguments}]" for call in message.calls)
            return f"-- {message.agent}\n{message.text}{calls}"
        case FromTool():
            return f"-- result of {message.tool}{'' if message.ok else ' (failed)'}\n{message.text}"


def _fact(event: Event, diff: DiffOfChange) -> str:
    match event:
        case Replied():
            return _replied(event)
        case Permitted(allowed=False):
            return _titled(f"{event.call.tool}: not allowed, by {event.by}", f"{event.call.arguments}\n{event.reason}")
        case ToolRan():
            return _ran(event, diff)
        case Failed():
            return _titled(f"{event.what} failed ({event.kind})", event.message)
        case Interrupted():
            return _titled("interrupted", event.reason or event.partial or "before anything was said")
        case Undone():
            return _titled("rolled back", event.reason)
        case _:
            return ""


def _replied(event: Replied) -> str:
    used = event.usage
    numbers = (
        f"{compact_number(used.input)} in ({compact_number(used.cached)} cached), {compact_number(used.output)} out, "
        f"{duration(event.seconds)}, "
        f"{event.model}, stop: {event.stop}{f', asked for {event.aimed}' if event.aimed else ''}"
    )
    thinking = "".join(f"[thinking]\n{block.text}\n" for block in event.thinking if block.text)
    calls = "".join(f"\n[calls {call.tool} {call.arguments}]" for call in event.calls)
    return _titled(f"{event.agent} said ({numbers})", f"{thinking}{event.text}{calls}")


def _ran(event: ToolRan, diff: DiffOfChange) -> str:
    state = "ok" if event.ok else "failed"
    title = f"{event_text.describe_call(event.call)}: {state}, {duration(event.seconds)}"
    changes = "".join(f"\n{_change(change, diff)}" for change in event.changes)
    more = "".join(f"\n[{one.path}: {one.before or '-'} -> {one.after or '-'}]" for one in event.attributes)
    return _titled(title, f"{event.output}{changes}{more}")


def _change(change: FileChange, diff: DiffOfChange) -> str:
    kind = "created" if change.before is None else "deleted" if change.after is None else "changed"
    return f"[{kind} {change.path}]\n{diff(change)}".rstrip()
