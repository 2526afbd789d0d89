"""A fact as a line for people. Pure: facts in, text out; no screen, no clock, no colour unless the screen wants it.

Stands under headless.py and the terminal interface. Everything that an agent or a tool wrote passes through `clean`.
Styles are the few names every terminal theme has.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import assert_never

from rich.text import Text

from fugu_cli import views
from fugu_cli.events import (
    EVIDENCE,
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    JobEnded,
    Live,
    Masked,
    Merged,
    Opened,
    Permitted,
    Planned,
    Replied,
    Retried,
    ToolRan,
    Undone,
    Waiting,
)
from fugu_cli.messages import Call
from fugu_cli.policy import SKILL
from fugu_cli.policy.patterns import MCP
from fugu_cli.ui import workflow
from fugu_cli.ui.clean import (
    bare,
    clean,
    count,
    cut,
    head,
    money,
    one_line,
    probability,
    retrying_in,
    seconds,
    whole_seconds,
)

INDENT = "  "
UNLEARNED = "[no learned coordinator:"
"""What follows in a reason says why a rule decides (coordinators/fallback.py)."""
SAID_LINES = 6
"""Lines of an agent's reply that are shown while it works; the answer is printed whole at the end."""

TONES = {"good": "bold green", "warn": "bold yellow", "bad": "bold red"}


def line(events: Sequence[Event]) -> Text | None:
    """The newest of `events` as text, read in the light of those before it; None where there is nothing to say."""
    event = events[-1]
    match event:
        case Opened():
            return _opened(event)
        case Asked():
            return Text("> " + "\n  ".join(clean(event.said).strip().splitlines()), "bold")
        case Planned():
            return workflow.planned(event)
        case Assigned():
            return assigned(event, reason_of(event, events[:-1]))
        case Replied():
            return _replied(events, event)
        case Permitted():
            return _permitted(events, event)
        case ToolRan():
            return tool_ran(event, by_fugu=_by_fugu(events, event))
        case _:
            return _other(events, event)


def _other(
    events: Sequence[Event], event: JobEnded | Masked | Failed | Compacted | Interrupted | Undone | Merged | Finished
) -> Text | None:
    if isinstance(event, Finished):
        return ended(events, event)
    before = events[-2] if len(events) > 1 else None
    silent = isinstance(event, Undone) and isinstance(before, Replied) and keeps(before)
    return None if silent else _rest(event)


def keeps(event: Replied) -> bool:
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
            return Text(f"{INDENT}{job_ended(event)}", "dim")
        case Merged():
            return workflow.merged(event)
        case Masked():
            return _masked(event)
        case Failed():
            return Text(f"{INDENT}{event.what} failed: {one_line(event.message, 300)}", "red")
        case Compacted():
            return Text(f"{INDENT}the conversation was shortened")
        case Interrupted():
            why = f": turn {event.turn}, {event.reason}" if event.reason else ""
            return Text(f"{INDENT}interrupted{why}", "yellow")
        case Undone():
            return undone(event)
        case _:
            assert_never(event)


def ended(events: Sequence[Event], end: Finished) -> Text:
    """The end of the newest of `events`' requests in one line; why, where it was stopped."""
    said = views.end_line(events, end)
    why = f": {one_line(end.message, 300)}" if end.message and said.tone == "bad" else ""
    return Text(said.text + why, TONES[said.tone])


def _masked(event: Masked) -> Text:
    said = "; ".join(f"{name} ({why})" for name, why in event.agents)
    return Text(f"{INDENT}{one_line(f'unavailable: {said}' if said else 'every agent is available again', 300)}", "dim")


BROKE = {
    "limited": "rate limit reached",
    "overloaded": "server overloaded",
    "network": "connection lost",
    "timeout": "no answer in time",
    "protocol": "answer unreadable",
}
"""Failures after which a call is made again, in a few words."""


def retried(event: Retried) -> str:
    """`strong: connection lost, retrying 2 of 4`, and when, where that takes longer than a moment."""
    when = f" in {whole_seconds(event.seconds)}" if event.seconds >= NOTICED else ""
    said = BROKE.get(event.kind, one_line(event.why, 100))
    return f"{bare(event.agent)}: {said}, retrying {event.retry} of {event.retries}{when}"


NOTICED = 1.5
"""Seconds of a pause that are worth a word."""


def paused(event: Live) -> Text | None:
    """The line of a pause, None for what is none."""
    match event:
        case Retried():
            return Text(f"{INDENT}{retried(event)}", "yellow")
        case Waiting() if event.seconds:
            return Text(f"{INDENT}{one_line(event.why, 100)}{retrying_in(event.seconds)}", "yellow")
        case _:
            return None


def _opened(event: Opened) -> Text:
    names = ", ".join(f"{member.name} ({member.slot})" for member in event.pool)
    return Text(f"{event.coordinator} decides over: {names}", "dim")


def reason_of(event: Assigned, before: Sequence[Event]) -> str:
    """A decision's reason; why there is no learned coordinator is said once a session, not at every turn."""
    reason, mark, _ = event.reason.partition(UNLEARNED)
    said = any(isinstance(fact, Assigned) and UNLEARNED in fact.reason for fact in before)
    return reason.rstrip() if mark and said else event.reason


def assigned(event: Assigned, reason: str) -> Text:
    """`turn 2  small as verifier  .55, then middle .30  310 ms`, and the rule's reason where one decided."""
    text = Text().append(f"turn {event.turn}  ", "bold")
    text.append(f"{event.agent} as {event.role}", "bold cyan")
    if (shown := standing(event)) is not None:
        text.append(f"  {shown}")
    if event.milliseconds.total:
        text.append(f"  {seconds(event.milliseconds.total / 1000)}", "dim")
    if event.override is not None:
        text.append(f"  (a Thinker asked for this; the head had {event.override})", "dim")
    if reason:
        text.append(f"  {event.by}: {one_line(reason, 300)}", "dim")
    elif event.scores is None:
        text.append(f"  {event.by}", "dim")
    return text


def standing(event: Assigned) -> str | None:
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
    numbers = f"{count(event.usage.input)} in, {count(event.usage.output)} out, {seconds(event.seconds)}"
    cost = views.price(event, views.pool(events).get(event.agent))
    text = Text().append(f"{INDENT}{event.agent}: ", "cyan")
    if not event.calls and (verdict := views.verdict(events, turn)) is not None:
        text.append(verdict, "bold green" if verdict == "ACCEPT" else "bold yellow")
        text.append("  ")
    text.append(numbers + (f", {money(cost)}" if cost else ""), "dim")
    if event.aimed:
        text.append(f", asked for {one_line(event.aimed, 100)}", "dim")
    if event.stop not in ("end", "calls"):
        text.append(f"  ({STOPS[event.stop]})", "yellow")
    for said in head(event.text, SAID_LINES) if event.text.strip() else ():
        text.append(f"\n{INDENT}{INDENT}{said}")
    return text


STOPS = {"length": "cut at the reply limit", "refusal": "refused", "cut": "cut off"}


def _permitted(events: Sequence[Event], event: Permitted) -> Text | None:
    asked = views.asked(events)
    if event.by == EVIDENCE and event.call.tool == views.RUN_TESTS and asked is not None:
        return Text(f"{INDENT}running the tests: {clean(asked.test_command or '')}", "dim")
    if event.allowed:
        return None
    return Text(f"{INDENT}not allowed: {describe(event.call)} ({one_line(event.reason, 160)})", "yellow")


def tool_ran(event: ToolRan, *, by_fugu: bool = False) -> Text:
    """`write src/a.py  ok`, or for the tests how many passed; what fugu ran itself is called evidence."""
    if event.call.tool == views.RUN_TESTS:
        text = Text(f"{INDENT}tests: ")
        text.append(tests_in_words(event.ok, event.output), "green" if event.ok else "red")
        text.append(f"  {seconds(event.seconds)}", "dim")
        return text
    if event.call.tool == views.RUN_CHECK:
        text = Text(f"{INDENT}acceptance check: ")
        text.append("pass" if event.ok else "FAIL", "green" if event.ok else "red")
        text.append(f"  {seconds(event.seconds)}", "dim")
        return text
    text = Text().append(f"{INDENT}{'evidence: ' if by_fugu else ''}{describe(event.call)}  ", "dim" if by_fugu else "")
    text.append(
        f"started as {event.job}" if event.job else "ok" if event.ok else "failed", "green" if event.ok else "red"
    )
    if event.seconds >= 1:
        text.append(f"  {seconds(event.seconds)}", "dim")
    if not event.ok:
        text.append(f"  {one_line(event.output, 120)}", "dim")
    told = [*(change.path for change in event.changes), *(one.path for one in event.attributes)]
    paths = dict.fromkeys(map(clean, told))
    changed = [path for path in paths if path not in text.plain]
    if changed:
        text.append(f"  changed {cut(', '.join(changed), 120)}")
    if unkept := [clean(one.path) for one in event.attributes if one.large]:
        said = f"undo cannot bring back {cut(', '.join(unkept), 120)}: too large to be copied before a command"
        text.append(f"\n{INDENT}{INDENT}{said}", "yellow")
    if event.call.tool == views.TODO and event.ok:
        text.append(
            "".join(f"\n{INDENT}{INDENT}{one_line(item, 160)}" for item in views.listed(views.items_of(event.call)))
        )
    return text


def job_ended(event: JobEnded) -> str:
    """`job1: exit code 0, 12 s (npm run build)`."""
    return f"{event.job}: {views.ended_how(event)}, {seconds(event.seconds)} ({one_line(event.command, 100)})"


def tests_in_words(ok: bool, output: str) -> str:
    """`pass (7 passed)`, `FAIL (2 failed, 5 passed)`, or the word alone where the output does not count them."""
    failing, passing = views.failing(output), views.passing(output)
    parts = [f"{failing} failed"] if failing and not ok else []
    parts += [f"{passing} passed"] if passing is not None else []
    word = "pass" if ok else "FAIL"
    return f"{word} ({', '.join(parts)})" if parts else word


def describe(call: Call) -> str:
    """A call in a few words: the tool and what it was aimed at. Nothing before its cut is left out."""
    return f"{bare(call.tool)} {one_line(bare(target_of(call)), 100)}".rstrip()


def aimed_at(call: Call, target: str) -> str:
    """What is asked about, in full: the arguments, where the target does not say all that the call will do."""
    if call.tool.startswith(MCP) or call.tool == "web_fetch":
        return f"{target} {call.arguments}"
    return f"{target}{IN_BACKGROUND}" if _background(_arguments(call)) else target


IN_BACKGROUND = ", in the background"


def target_of(call: Call) -> str:
    """The argument people would name: the path, the command, the pattern; "" when the arguments do not parse."""
    arguments = _arguments(call)
    if call.tool == views.TODO:
        return views.summed(views.items_of(call))
    if call.tool == SKILL:
        return str(arguments.get("name", ""))
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


def undone(event: Undone) -> Text:
    if event.turn:
        return Text(f"{INDENT}rolled back, to be drawn again: {one_line(event.reason, 200)}", "yellow")
    what = f"{len(event.paths)} files were put back" if event.paths else "the files were put back"
    return Text(f"{what}: {one_line(event.reason, 200)}" if event.reason else what, "yellow")
