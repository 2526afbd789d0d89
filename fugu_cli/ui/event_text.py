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
from fugu_cli.safety.policy.rule_matching import MCP
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
    WorkflowStep,
)
from fugu_cli.session.live_events import Live, Retried, Waiting
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

PLAN_INDENT = "  "


def plan_text(event: Planned) -> Text:
    """A plan as a list: `0  coder  <- the request   Find the cause ...`."""
    numbers = (
        f"{compact_number(event.usage.input)} in, {compact_number(event.usage.output)} out, {duration(event.seconds)}"
    )
    text = Text().append(f"{plan_title(event)}  ", "bold")
    text.append(f"{event.agent}: {numbers}", "dim")
    if event.fault:
        text.append(f"\n{PLAN_INDENT}no workflow: {first_line(event.fault, 300)}", "yellow")
    for place, step in enumerate(event.steps):
        text.append(f"\n{PLAN_INDENT}{place + 1}  ").append(step_agent(step), "cyan").append(
            f"  <- {step_access(step)}", "dim"
        )
        text.append(f"  {first_line(step.instruction, 160)}")
    return text


def plan_title(event: Planned) -> str:
    """`workflow of 3 steps`, `the result is kept`, `no workflow`."""
    within = f" inside step {event.within[1] + 1} of plan {event.within[0]}" if event.within else ""
    later = f", round {event.round}" if event.round > 1 else ""
    if event.fault:
        return f"no workflow{within}{later}"
    if not event.steps:
        return f"the result is kept{within}{later}"
    return f"workflow of {len(event.steps)} step{'' if len(event.steps) == 1 else 's'}{within}{later}"


def step_agent(step: WorkflowStep) -> str:
    """The agent, or the planner with a workflow of its own."""
    return f"{step.agent} (plans it)" if step.plans else step.agent


def step_access(step: WorkflowStep) -> str:
    """The access edges of a step in words."""
    if step.access == "all":
        return "all steps before"
    return "steps " + ", ".join(str(place + 1) for place in step.access) if step.access else "the request"


def merge_text(event: Merged) -> Text:
    """Whose work was taken over."""
    others = ", ".join(str(turn) for turn in event.turns if turn != event.chosen)
    if event.open:
        return Text(f"{PLAN_INDENT}turns {others} did the same job: {first_line(event.reason, 200)}", "bold cyan")
    kept = f"the work of turn {event.chosen} is taken over" if event.chosen else "nobody's work is taken over"
    left = f"; turn{'s' if ',' in others else ''} {others} left out" if others else ""
    alone = f"; left alone, changed since: {', '.join(event.left)}" if event.left else ""
    return Text(f"{PLAN_INDENT}{kept}{left}: {first_line(event.reason + alone, 200)}", "bold cyan")


def workflow_object(event: Planned | Merged) -> dict[str, object]:
    """A line of stream-json."""
    if isinstance(event, Merged):
        said = event.model_dump(mode="json", exclude={"type", "changes"})
        return {"type": "system", "subtype": "merged", "turn": event.chosen or None, **said}
    own = event.model_dump(mode="json", exclude={"type", "text", "usage", "model"})
    usage = event.usage
    return {
        "type": "system",
        "subtype": "plan",
        "turn": None,
        **own,
        "kept": not event.steps and not event.fault,
        "usage": {
            "orchestration_input_tokens": usage.input,
            "orchestration_input_cached_tokens": usage.cached,
            "orchestration_output_tokens": usage.output,
        },
    }


ARROW = "▸"


def step_edges(steps: Sequence[WorkflowStep]) -> list[tuple[int, ...]]:
    """For every step, the places of the steps it reads. What an access list names that is not there is left out."""
    return [
        tuple(range(place)) if step.access == "all" else tuple(i for i in sorted(set(step.access)) if 0 <= i < place)
        for place, step in enumerate(steps)
    ]


def edge_columns(steps: Sequence[WorkflowStep]) -> list[str]:
    """The edges left of each step, all of the same width; "" for each where no step reads another."""
    read = step_edges(steps)
    last = {source: place for place, sources in enumerate(read) for source in sources}
    columns = {source: column for column, source in enumerate(sorted(last))}
    if not columns:
        return [""] * len(steps)
    return [_edge_row(place, set(sources), last, columns) for place, sources in enumerate(read)]


def _edge_row(place: int, sources: set[int], last: dict[int, int], columns: dict[int, int]) -> str:
    cells = [" "] * len(columns)
    for source, column in columns.items():
        if source in sources:
            cells[column] = "╰" if last[source] == place else "├"
        elif source == place:
            cells[column] = "╭"
        elif source < place < last[source]:
            cells[column] = "│"
    first = next((column for column, cell in enumerate(cells) if cell in "╰├╭"), None)
    if first is None:
        return "".join(cells) + "   "
    for column in range(first + 1, len(cells)):
        cells[column] = {" ": "─", "│": "┼", "╰": "┴", "├": "┼", "╭": "╮" if sources else "╭"}[cells[column]]
    if place in columns and sources:  # it reads and is read: its own column begins below the line
        cells[columns[place]] = "┬"
    return "".join(cells) + "─" + (f"{ARROW} " if sources else "  ")


INDENT = "  "
NO_LEARNED_COORDINATOR = "[no learned coordinator:"
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
            return plan_text(event)
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
    reason, mark, _ = event.reason.partition(NO_LEARNED_COORDINATOR)
    said = any(isinstance(fact, Assigned) and NO_LEARNED_COORDINATOR in fact.reason for fact in before)
    return reason.rstrip() if mark and said else event.reason


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
    """The winner's probability and the runner-up, from the rows of the decision; None where nothing was computed."""
    scores = event.scores
    if scores is None or not scores.row_probabilities:
        return None
    ranked = sorted(zip(scores.row_probabilities, scores.rows, strict=True), reverse=True)
    first, *others = ranked
    runner = f", then {others[0][1]} {probability(others[0][0])}" if others and others[0][0] > 0 else ""
    return f"{first[1]} {probability(first[0])}{runner}"


def _replied(events: Sequence[Event], event: Replied) -> Text:
    turn = views.turn_of(events, event.turn) or views.turns(events)[-1]
    numbers = (
        f"{compact_number(event.usage.input)} in, {compact_number(event.usage.output)} out, {duration(event.seconds)}"
    )
    cost = views.price(event, views.pool(events).get(event.agent))
    text = Text().append(f"{INDENT}{event.agent}: ", "cyan")
    if not event.calls and (verdict := views.verdict(events, turn)) is not None:
        text.append(verdict, "bold green" if verdict == "ACCEPT" else "bold yellow")
        text.append("  ")
    text.append(numbers + (f", {money(cost)}" if cost else ""), "dim")
    if event.aimed:
        text.append(f", asked for {first_line(event.aimed, 100)}", "dim")
    if event.stop not in ("end", "calls"):
        text.append(f"  ({STOPS[event.stop]})", "yellow")
    for said in first_lines(event.text, REPLY_LINES) if event.text.strip() else ():
        text.append(f"\n{INDENT}{INDENT}{said}")
    return text


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


def describe_call(call: Call) -> str:
    """A call in a few words: the tool and what it was aimed at. Nothing before its cut is left out."""
    return f"{escape_invisible(call.tool)} {first_line(escape_invisible(call_target(call)), 100)}".rstrip()


def approval_target(call: Call, target: str) -> str:
    """What is asked about, in full: the arguments, where the target does not say all that the call will do."""
    if call.tool.startswith(MCP) or call.tool == "web_fetch":
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
    for key in ("path", "command", "pattern", "target", "url", "job"):
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
        return Text(f"{INDENT}rolled back, to be drawn again: {first_line(event.reason, 200)}", "yellow")
    what = f"{len(event.paths)} files were put back" if event.paths else "the files were put back"
    return Text(f"{what}: {first_line(event.words, 200)}", "yellow")
