"""An event as a line of text for people. Pure: events in, text out; no screen and no clock. Everything that an agent
or a tool wrote passes through formatting.py.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

from rich.text import Text

from fugu_cli.messages import Call
from fugu_cli.safety.policy import SKILL
from fugu_cli.safety.policy.rule_matching import LEAVING, MCP
from fugu_cli.session import views
from fugu_cli.session.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    JobEnded,
    Masked,
    Merged,
    Opened,
    Permitted,
    Planned,
    Replied,
    Subtask,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import Live, Retried, Waiting
from fugu_cli.session.turns import find_verdict
from fugu_cli.ui.formatting import (
    compact_number,
    duration,
    escape_invisible,
    first_line,
    first_lines,
    money,
    probability,
    remaining_time,
    retrying_in,
    sanitize,
    shorten,
)
from fugu_cli.ui.workflow_text import merge_text, plan_text, round_reason

INDENT = "  "
"""What follows in a reason says why a rule decides (coordinators/rules.py)."""
REPLY_LINES = 6
"""Lines of an agent's reply that are shown while it works; the answer is printed whole at the end."""

TONES = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}


def event_line(events: Sequence[Event]) -> Text | None:
    """The newest of `events` as text, read in the light of those before it; None where there is nothing to say. What
    belongs to a subtask is set off, with its number."""
    line = _line(events)
    if line is None or isinstance(events[-1], Assigned) or subtask_of(events[-1], events[:-1]) is None:
        return line
    mark = f"{INDENT}│ {getattr(events[-1], 'turn', 0)} "
    return Text("\n").join(Text(mark, "dim").append_text(part) for part in line.split("\n"))


def _line(events: Sequence[Event]) -> Text | None:
    event = events[-1]
    match event:
        case Opened():
            return Text(team_line(event), "dim")
        case Asked():
            media = "".join(f"\n{INDENT}with {sanitize(one.line)}" for one in event.media)
            return Text("> " + "\n  ".join(sanitize(event.said).strip().splitlines()) + media, "bold")
        case Planned():
            return plan_text(event, round_reason(event, events[:-1]))
        case Assigned():
            return decision_text(event, decision_reason(event, events[:-1]))
        case Replied():
            return _replied(events, event)
        case Permitted():
            return _permitted(events, event)
        case ToolRan():
            return tool_result_text(event, by_fugu=_by_fugu(events, event))
        case _:
            return _other(events, event)


def subtask_of(event: Event, before: Sequence[Event]) -> Subtask | None:
    """The subtask that a fact belongs to; None for all others."""
    number = getattr(event, "turn", 0)
    if isinstance(event, Assigned):
        return event.subtask
    for fact in reversed(before) if number else ():
        if isinstance(fact, Assigned) and fact.turn == number:
            return fact.subtask
        if isinstance(fact, Asked):
            break
    return None


def subtask_line(event: Event) -> str:
    """What is shown of a subtask's fact below the call that began it; "" for most."""
    match event:
        case Assigned():
            return f"{escape_invisible(event.agent)} takes it" + (
                f" ({first_line(event.reason, 100)})" if event.reason else ""
            )
        case Replied():
            return event.text.strip()
        case ToolRan():
            return tool_result_text(event).plain.strip()
        case Permitted(allowed=False):
            return f"not allowed: {describe_call(event.call)} ({first_line(event.reason, 160)})"
        case Failed():
            return f"{event.what} failed: {first_line(event.message, 300)}"
        case Interrupted():
            return "interrupted"
        case _:
            return ""


def parent_call(event: Event, before: Sequence[Event]) -> str | None:
    """The id of the call that began the subtask a fact belongs to; None for all others."""
    task = subtask_of(event, before)
    return task.call if task is not None else None


def _other(
    events: Sequence[Event], event: JobEnded | Masked | Failed | Compacted | Interrupted | Undone | Merged | Finished
) -> Text | None:
    if isinstance(event, Finished):
        return end_text(events, event)
    before = events[-2] if len(events) > 1 else None
    silent = isinstance(event, Undone) and isinstance(before, Replied) and changed_nothing(before)
    return None if silent else _rest(event)


def changed_nothing(event: Replied) -> bool:
    """A line that was filled in as it stood, or so that nothing can come of it: nobody needs to hear that nothing is
    put back after it."""
    return bool(event.filled) and not event.calls


def _by_fugu(events: Sequence[Event], event: ToolRan) -> bool:
    """The newest permission of this call says so: the run is evidence, no agent asked for it."""
    permitted = (fact for fact in reversed(events) if isinstance(fact, Permitted) and fact.call.id == event.call.id)
    return next((fact.by == EVIDENCE for fact in permitted), False)


def _rest(event: JobEnded | Masked | Failed | Compacted | Interrupted | Undone | Merged) -> Text:
    match event:
        case JobEnded():
            return Text(f"{INDENT}{job_end_text(event)}", "dim")
        case Merged():
            return merge_text(event)
        case Masked():
            return _masked(event)
        case Failed():
            return Text(f"{INDENT}{event.what} failed: {first_line(event.message, 300)}", "red")
        case Compacted():
            return Text(f"{INDENT}the conversation was shortened")
        case Interrupted():
            why = f": turn {event.turn}, {event.reason}" if event.reason else ""
            return Text(f"{INDENT}interrupted{why}", "yellow")
        case Undone():
            return undo_text(event)
        case _:
            assert_never(event)


def end_text(events: Sequence[Event], end: Finished) -> Text:
    """The end of the newest of `events`' requests in one line; why, where it was stopped."""
    said = views.end_line(events, end)
    why = f": {first_line(end.message, 300)}" if end.message and said.tone == "bad" else ""
    return Text(said.text + why, TONES[said.tone])


def _masked(event: Masked) -> Text:
    said = "; ".join(f"{name} ({why})" for name, why in event.agents)
    return Text(
        f"{INDENT}{first_line(f'unavailable: {said}' if said else 'every agent is available again', 300)}", "dim"
    )


FAILURE_WORDS = {
    "limited": "rate limit reached",
    "overloaded": "server overloaded",
    "network": "connection lost",
    "timeout": "no answer in time",
    "protocol": "answer unreadable",
}
"""Failures after which a call is made again, in a few words."""


def retry_text(event: Retried) -> str:
    """`strong: connection lost, retrying 2 of 4`, and when, where that takes longer than a moment."""
    when = f" in {remaining_time(event.seconds)}" if event.seconds >= NOTICEABLE_PAUSE else ""
    said = FAILURE_WORDS.get(event.kind, first_line(event.why, 100))
    return f"{escape_invisible(event.agent)}: {said}, retrying {event.retry} of {event.retries}{when}"


NOTICEABLE_PAUSE = 1.5
"""Seconds of a pause that are worth a word."""


def pause_text(event: Live) -> Text | None:
    """The line of a pause, None for what is none."""
    match event:
        case Retried():
            return Text(f"{INDENT}{retry_text(event)}", "yellow")
        case Waiting() if event.notice:
            return Text(f"{INDENT}{first_line(event.why, 200)}", "yellow")
        case Waiting() if event.seconds:
            return Text(f"{INDENT}{first_line(event.why, 100)}{retrying_in(event.seconds)}", "yellow")
        case _:
            return None


def team_line(opened: Opened) -> str:
    """Who is in the pool and who chooses: `router: trinity · models: a (cheap), b (strong)`."""
    kind, _, fixed = opened.coordinator.partition(":")
    if kind == "single" and fixed:
        return f"model: {fixed} (fixed)"
    models = ", ".join(f"{member.name} ({member.slot})" for member in opened.pool) or "none"
    return f"router: {opened.coordinator} · models: {models}"


def decision_reason(event: Assigned, before: Sequence[Event]) -> str:
    """A decision's reason; why there is no learned coordinator is said once a session, not at every turn."""
    said = any(isinstance(fact, Assigned) and fact.fallback for fact in before)
    return event.reason if said else event.why


def decision_text(event: Assigned, reason: str) -> Text:
    """`turn 2  small as verifier  .55, then middle .30  310 ms`, and the rule's reason where one decided."""
    text = Text().append(f"turn {event.turn}  ", "bold")
    if event.subtask is not None:
        text = Text(f"{INDENT}│ {event.turn} ", "dim").append(first_line(event.subtask.title, 100), "bold").append("  ")
    text.append(f"{event.agent} as {event.role}", "bold cyan")
    if (shown := top_probabilities(event)) is not None:
        text.append(f"  {shown}")
    if event.milliseconds.total:
        text.append(f"  {duration(event.milliseconds.total / 1000)}", "dim")
    if event.override is not None:
        text.append(f"  (a Thinker asked for this; the head had {event.override})", "dim")
    if reason:
        text.append(f"  {event.by}: {first_line(reason, 300)}", "dim")
    elif event.scores is None:
        text.append(f"  {event.by}", "dim")
    return text


def top_probabilities(event: Assigned) -> str | None:
    """The winner's probability and the runner-up, as `p=.62, then middle .28`; None where nothing was computed."""
    scores = event.scores
    if scores is None or not scores.row_probabilities:
        return None
    ranked = sorted(zip(scores.row_probabilities, scores.rows, strict=True), reverse=True)
    first, *others = ranked
    runner = f", then {others[0][1]} {probability(others[0][0])}" if others and others[0][0] > 0 else ""
    return f"p={probability(first[0])}{runner}"


def _replied(events: Sequence[Event], event: Replied) -> Text:
    turn = views.turn_of(events, event.turn) or views.turns(events)[-1]
    numbers = (
        f"{compact_number(event.usage.input)} in, {compact_number(event.usage.output)} out, {duration(event.seconds)}"
    )
    cost = views.price(event, views.pool(events).get(event.agent))
    text = Text().append(f"{INDENT}{event.agent}: ", "cyan")
    if not event.calls and (verdict := views.verdict(events, turn)) is not None:
        words, tone = VERDICT_MARKS[verdict]
        text.append(words, TONES[tone])
        text.append("  ")
    text.append(numbers + (f", {money(cost)}" if cost else ""), "dim")
    if event.aimed:
        text.append(f", asked for {first_line(event.aimed, 100)}", "dim")
    if event.stop not in ("end", "calls"):
        text.append(f"  ({STOPS[event.stop]})", "yellow")
    judged = find_verdict(event.text, leading=True) if turn.assigned.role == "verifier" else None
    words = "\n\n".join(part for part in (judged[0], judged[2].strip("\n")) if part) if judged else event.text
    for said in first_lines(words, REPLY_LINES) if words.strip() else ():
        text.append(f"\n{INDENT}{INDENT}{said}")
    return text


VERDICT_MARKS: dict[views.Verdict, tuple[str, str]] = {
    "ACCEPT": ("✓ accepted", "good"),
    "REVISE": ("↻ needs another try", "warn"),
}
"""How a verdict is drawn, and its tone."""
STOPS = {"length": "cut at the reply limit", "refusal": "refused", "cut": "cut off"}


def _permitted(events: Sequence[Event], event: Permitted) -> Text | None:
    asked = views.asked(events)
    if event.by == EVIDENCE and event.call.tool == views.RUN_TESTS and asked is not None:
        return Text(f"{INDENT}running the tests: {sanitize(asked.test_command or '')}", "dim")
    if event.allowed:
        return None
    return Text(f"{INDENT}not allowed: {describe_call(event.call)} ({first_line(event.reason, 160)})", "yellow")


def tool_result_text(event: ToolRan, *, by_fugu: bool = False) -> Text:
    """`write src/a.py  ok`, or for the tests how many passed; what fugu ran itself is called evidence."""
    if event.call.tool == views.RUN_TESTS:
        text = Text(f"{INDENT}tests: ")
        text.append(test_counts_text(event.ok, event.output), "green" if event.ok else "red")
        text.append(f"  {duration(event.seconds)}", "dim")
        return text
    if event.call.tool == views.RUN_CHECK:
        text = Text(f"{INDENT}acceptance check: ")
        text.append("pass" if event.ok else "FAIL", "green" if event.ok else "red")
        text.append(f"  {duration(event.seconds)}", "dim")
        return text
    text = Text().append(
        f"{INDENT}{'evidence: ' if by_fugu else ''}{describe_call(event.call)}  ", "dim" if by_fugu else ""
    )
    text.append(
        f"started as {event.job}" if event.job else "ok" if event.ok else "failed", "green" if event.ok else "red"
    )
    if event.seconds >= 1:
        text.append(f"  {duration(event.seconds)}", "dim")
    if not event.ok:
        text.append(f"  {first_line(event.output, 120)}", "dim")
    for one in event.media:
        text.append(f"\n{INDENT}{INDENT}{sanitize(one.line)}", "dim")
    told = [*(change.path for change in event.changes), *(one.path for one in event.attributes)]
    paths = dict.fromkeys(map(sanitize, told))
    changed = [path for path in paths if path not in text.plain]
    if changed:
        text.append(f"  changed {shorten(', '.join(changed), 120)}")
    if unkept := [sanitize(one.path) for one in event.attributes if one.large]:
        said = f"undo cannot bring back {shorten(', '.join(unkept), 120)}: too large to be copied before a command"
        text.append(f"\n{INDENT}{INDENT}{said}", "yellow")
    if nested := [sanitize(one.path) for one in event.attributes if one.nested]:
        said = f"undo cannot bring back {shorten(', '.join(nested), 120)}: a repository of its own"
        text.append(f"\n{INDENT}{INDENT}{said}", "yellow")
    if event.call.tool == views.TODO and event.ok:
        text.append(
            "".join(
                f"\n{INDENT}{INDENT}{first_line(item, 160)}" for item in views.todo_lines(views.items_of(event.call))
            )
        )
    return text


def job_end_text(event: JobEnded) -> str:
    """`job1: exit code 0, 12 s (npm run build)`."""
    return f"{event.job}: {views.describe_end(event)}, {duration(event.seconds)} ({first_line(event.command, 100)})"


def test_counts_text(ok: bool, output: str) -> str:
    """`pass (7 passed)`, `FAIL (2 failed, 5 passed)`, or the word alone where the output does not count them."""
    failing, passing = views.failed_count(output), views.passed_count(output)
    parts = [f"{failing} failed"] if failing and not ok else []
    parts += [f"{passing} passed"] if passing is not None else []
    word = "pass" if ok else "FAIL"
    return f"{word} ({', '.join(parts)})" if parts else word


def tool_name(call: Call) -> str:
    """What people read as the name of a call's tool."""
    return "tests before the request" if call.tool == views.TESTS_BEFORE else escape_invisible(call.tool)


def describe_call(call: Call) -> str:
    """A call in a few words: the tool and what it was aimed at. Nothing before its cut is left out."""
    return f"{tool_name(call)} {first_line(escape_invisible(call_target(call)), 100)}".rstrip()


def approval_target(call: Call, target: str) -> str:
    """What is asked about, in full: the arguments, where the target does not say all that the call will do. The name
    of the tool stands above it."""
    target = target.removeprefix(f"{call.tool}(").removesuffix(")") if target.startswith(f"{call.tool}(") else target
    if call.tool.startswith(MCP) or call.tool in LEAVING:
        return f"{target} {call.arguments}"
    return f"{target}{IN_BACKGROUND}" if _background(_arguments(call)) else target


IN_BACKGROUND = ", in the background"


def call_target(call: Call) -> str:
    """The argument people would name: the path, the command, the pattern; "" when the arguments do not parse."""
    arguments = _arguments(call)
    if call.tool == views.TODO:
        return views.todo_summary(views.items_of(call))
    if call.tool == SKILL:
        return str(arguments.get("name", ""))
    if call.tool == views.TASK:
        return ": ".join(str(arguments[key]) for key in ("agent", "subagent_type", "description") if arguments.get(key))
    for key in ("path", "command", "pattern", "target", "url", "query", "job"):
        if isinstance(arguments.get(key), str):
            return f"{arguments[key]}{IN_BACKGROUND if _background(arguments) else ''}"
    return call.arguments if call.tool.startswith(MCP) and arguments else ""


def _arguments(call: Call) -> dict[str, object]:
    try:
        found = json.loads(call.arguments)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _background(arguments: dict[str, object]) -> bool:
    return "command" in arguments and arguments.get("background") is True


def undo_text(event: Undone) -> Text:
    if event.turn:
        return Text(f"{INDENT}rolled back, trying again: {first_line(event.reason, 200)}", "yellow")
    what = f"{len(event.paths)} files were put back" if event.paths else "the files were put back"
    return Text(f"{what}: {first_line(event.words, 200)}", "yellow")
