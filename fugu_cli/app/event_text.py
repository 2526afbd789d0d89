"""An event as a line of text for people. Pure: events in, text out; no screen and no clock.
Everything that an agent or a tool wrote passes through formatting.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from fugu_cli.formatting import (
    duration,
    escape_invisible,
    first_line,
    flatten,
    plural,
    probability,
    remaining_time,
    retrying_in,
    sanitize,
    shorten,
)
from fugu_cli.messages import Call
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Exclusion,
    Failed,
    Finished,
    Interrupted,
    JobEnded,
    MemoryText,
    Opened,
    Permitted,
    Replied,
    SteeringGiven,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import Live, Retried, Waiting
from fugu_cli.session.open_work import (
    BYTES,
    TODO,
    byte_size,
    describe_end,
    items_of,
    todo_summary,
)
from fugu_cli.session.outcome import TESTS_BEFORE, TestOutcome
from fugu_cli.session.recognized_tests import failed_count, passed_count
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.tool_facts import MCP, SKILL, facts_of
from fugu_cli.session.turns import TASK, Verdict
from fugu_cli.session.verdicts import end_line
from fugu_cli.system.bounded_json import parse_json


def is_given_with_result(event: SteeringGiven, request: RequestState) -> bool:
    """Return whether an agent is given the user's message together with the result of a call."""
    turn = request.turn(event.turn)
    return turn is not None and bool(turn.replies) and bool(turn.replies[-1].calls)


def subtask_line(event: Event) -> str:
    """Return the line of a subtask's event below the call that began it, "" for most events."""
    match event:
        case Assigned():
            return f"{escape_invisible(event.agent)} takes it" + (
                f" ({first_line(event.reason, 100)})" if event.reason else ""
            )
        case Replied():
            return event.text.strip()
        case ToolRan():
            outcome = "" if event.ok else f"  {first_line(event.output, 120)}"
            return f"{describe_call(event.call)}  {'ok' if event.ok else 'failed'}{outcome}"
        case Permitted(allowed=False):
            return f"not allowed: {describe_call(event.call)} ({first_line(event.reason, 160)})"
        case Failed():
            return f"{event.what} failed: {first_line(event.message, 300)}"
        case Interrupted():
            return "interrupted"
        case _:
            return ""


def end_text(request: RequestState, end: Finished) -> str:
    """Return the end of a request in one line, and why where it was stopped."""
    line = end_line(request, end)
    return line.text + (
        f": {first_line(end.message, 300)}" if end.message and line.tone == "bad" else ""
    )


FAILURE_WORDS = {
    "limited": "rate limited",
    "overloaded": "server overloaded",
    "network": "connection lost",
    "timeout": "no answer in time",
    "protocol": "answer unreadable",
    "refused": "API key refused",
    "unavailable": "API key refused",
    "absent": "model not found",
    "invalid": "request refused",
    "credit": "out of credit",
}
"""Kinds of an agent's failure in a few words."""


def unavailable_text(
    agents: Mapping[str, Exclusion], seconds_left: Iterable[tuple[str, float]] = ()
) -> str:
    """Return agents that failed, with the kind of their failure and the seconds until they may be
    asked again, where these are known: `rate limited: haiku (28 s left), gpt`.
    """
    left = dict(seconds_left)
    by_failure: dict[str, list[str]] = {}
    for name, exclusion in agents.items():
        if exclusion.kind in FAILURE_WORDS:
            shown = escape_invisible(name)
            if name in left:
                shown += f" ({remaining_time(left[name])} left)"
            by_failure.setdefault(FAILURE_WORDS[exclusion.kind], []).append(shown)
    return ", ".join(f"{failure}: {', '.join(names)}" for failure, names in by_failure.items())


def retry_text(event: Retried) -> str:
    """Return a line like `strong: connection lost, retrying 2 of 4`.

    It stays where it is while the call is made again, so it does not say when that is.
    """
    cause = FAILURE_WORDS.get(event.kind, first_line(event.why, 100))
    return f"{escape_invisible(event.agent)}: {cause}, retrying {event.retry} of {event.retries}"


NOTICEABLE_PAUSE = 1.5
"""Seconds of a pause that are worth a word."""


def pause_text(event: Live) -> str:
    """Return the line of a pause with its length, if that is noticeable; "" for other items."""
    match event:
        case Retried():
            is_noticeable = event.seconds >= NOTICEABLE_PAUSE
            when = f" in {remaining_time(event.seconds)}" if is_noticeable else ""
            return f"{retry_text(event)}{when}"
        case Waiting() if event.notice:
            return first_line(event.why, 200)
        case Waiting() if event.seconds:
            return f"{first_line(event.why, 100)}{retrying_in(event.seconds)}"
        case _:
            return ""


def team_line(opened: Opened) -> str:
    """Return the coordinator and the pool: `coordinator: trinity · agents: a (cheap)`."""
    rule, _, fixed = opened.coordinator.partition(":")
    if rule == "single" and fixed:
        return f"agent: {fixed} (fixed)"
    models = ", ".join(f"{member.name} ({member.slot})" for member in opened.pool) or "none"
    return f"coordinator: {opened.coordinator} · agents: {models}"


def decision_reason(event: Assigned, before: Sequence[Event]) -> str:
    """Return a decision's reason. Why the checkpoint does not decide is said only once a session."""
    already_said = any(isinstance(event, Assigned) and event.fallback for event in before)
    return event.reason if already_said else event.why


def decision_why(event: Assigned, reason: str, unavailable: str = "") -> str:
    """Return why an agent acts, as in `solves 78% of bug fixes (31 outcomes), $0.12 a turn`, or of
    a head that has no success rates `p=.55, then middle .30`. `unavailable` are agents that could
    not act (`unavailable_text`).
    """
    counted = event.scores is not None and event.scores.estimates
    parts = [
        "" if counted else top_probabilities(event) or "",
        flatten(reason),
        flatten(event.instruction, 120),
        unavailable,
    ]
    if event.override is not None:
        parts.append(f"a Thinker asked for this instead of a {event.override.capitalize()}")
    return " · ".join(part for part in parts if part)


def top_probabilities(event: Assigned) -> str | None:
    """Return the two highest probabilities as in `p=.62, then middle .28`, `only choice` where all
    others were masked, None if nothing was computed. Of two that are equal the chosen agent's comes
    first.
    """
    scores = event.scores
    if scores is None or not scores.row_probabilities:
        return None
    masked = {name for name, _ in scores.masked}
    if len(scores.rows) > 1 and len(set(scores.rows) - masked) == 1:
        return "only choice"
    rows = zip(scores.row_probabilities, scores.rows, strict=True)
    first, *others = sorted(rows, key=lambda row: (row[0], row[1] == event.agent), reverse=True)
    runner = (
        f", then {others[0][1]} {probability(others[0][0])}" if others and others[0][0] > 0 else ""
    )
    return f"p={probability(first[0])}{runner}"


VERDICT_MARKS: dict[Verdict, tuple[str, str]] = {
    "ACCEPT": ("✓ accepted", "good"),
    "REVISE": ("↻ needs another try", "warn"),
}
"""The text and tone of each verdict."""
STOPS = {
    "length": "cut at the reply limit",
    "refusal": "the model refused",
    "cut": "the reply was cut off",
}
"""The text for each reply that did not end normally."""


def file_notes(event: ToolRan) -> list[str]:
    """Return sentences about a call: changes that may be the user's, files put back or moved away,
    and what undo cannot take back.
    """
    while_ran: dict[str, list[str]] = {}
    for path, command in event.effects.unclaimed.items():
        while_ran.setdefault(command, []).append(sanitize(path))
    unclaimed = [
        f"changed while {sanitize(command)} ran: {shorten(', '.join(paths), 120)}"
        for command, paths in while_ran.items()
    ]
    restored = [sanitize(sentence) for sentence in event.restored]
    return unclaimed + restored + _not_undoable(event)


def _not_undoable(event: ToolRan) -> list[str]:
    large = [sanitize(attribute.path) for attribute in event.attributes if attribute.large]
    nested = [sanitize(attribute.path) for attribute in event.attributes if attribute.nested]
    why = [(large, "too large to be copied before a command"), (nested, "a repository of its own")]
    return [
        f"undo cannot bring back {shorten(', '.join(paths), 120)}: {reason}"
        for paths, reason in why
        if paths
    ]


def job_end_text(event: JobEnded) -> str:
    """Return a line like `job1: exit code 0, 12 s (npm run build)`."""
    return (
        f"{event.job}: {describe_end(event)}, {duration(event.seconds)} "
        f"({first_line(event.command, 100)})"
    )


TEST_OUTCOME_WORDS: dict[TestOutcome, str] = {
    "pass": "pass",
    "none": "none ran",
    "not run": "not run",
    "fail": "fail",
    "broken": "FAIL",
    "as before": "fail as before",
}
"""The words for a run of tests. Capitals are for a test that passed before the request."""


def test_counts_text(outcome: TestOutcome, output: str) -> str:
    """Return `pass (7 passed)`, `FAIL (2 failed, 5 passed)`, or the words alone without counts."""
    failing, passing = failed_count(output), passed_count(output)
    parts = [f"{failing} failed"] if failing and outcome != "pass" else []
    parts += [f"{passing} passed"] if passing is not None else []
    words = TEST_OUTCOME_WORDS[outcome]
    return f"{words} ({', '.join(parts)})" if parts else words


def tool_name(call: Call) -> str:
    """Return the name of a call's tool for people."""
    return "tests before the request" if call.tool == TESTS_BEFORE else escape_invisible(call.tool)


def describe_call(call: Call, root: str = "") -> str:
    """Describe a call by its tool and target, cut at the end."""
    target = first_line(escape_invisible(call_target(call, root)), 100)
    return f"{tool_name(call)} {target}".rstrip()


def approval_target(call: Call, target: str) -> str:
    """Return the object of an approval in full, with the arguments if the target does not say
    everything.

    The name of the tool is shown above it.
    """
    target = (
        target.removeprefix(f"{call.tool}(").removesuffix(")")
        if target.startswith(f"{call.tool}(")
        else target
    )
    if facts_of(call.tool).leaves_machine:
        return f"{target} {call.arguments}"
    return f"{target}{IN_BACKGROUND}" if _background(_arguments(call)) else target


IN_BACKGROUND = ", in the background"


def call_target(call: Call, root: str = "") -> str:
    """Return the argument that people would name: path, command, pattern; "" if the arguments do
    not parse. A path in the folder `root` is shortened to its part below it.
    """
    arguments = _arguments(call)
    path = arguments.get("path")
    if root and isinstance(path, str):
        arguments["path"] = path = path.removeprefix(f"{root.rstrip('/')}/")
    if call.tool == TODO:
        return todo_summary(items_of(call))
    if call.tool == SKILL.name:
        return str(arguments.get("name", ""))
    if call.tool == TASK:
        return ": ".join(
            str(arguments[key])
            for key in ("agent", "subagent_type", "description")
            if arguments.get(key)
        )
    pattern = arguments.get("pattern")
    if isinstance(pattern, str) and isinstance(path, str) and path not in ("", "."):
        return f"{pattern} in {path}"
    for key in ("command", "pattern", "path", "target", "url", "query", "job", "question", "line"):
        if isinstance(arguments.get(key), str):
            return f"{arguments[key]}{IN_BACKGROUND if _background(arguments) else ''}"
    return call.arguments if call.tool.startswith(MCP) and arguments else ""


def _arguments(call: Call) -> dict[str, object]:
    try:
        arguments = parse_json(call.arguments)
    except ValueError:
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _background(arguments: dict[str, object]) -> bool:
    return "command" in arguments and arguments.get("background") is True


def request_notes(asked: Asked) -> tuple[str, ...]:
    """Return lines about a request: the answer to a plan, and what agents read beside its text."""
    notes = (_plan_answer(asked), _map_summary(asked), _memory_summary(asked.memory))
    return tuple(note for note in notes if note)


def _plan_answer(asked: Asked) -> str:
    """Return the user's answer to the plan that the request carries out, as `you: go ahead, ask ·
    changed since the plan: a.py`; "" for other requests.
    """
    if asked.plan is None:
        return ""
    modes = {"edit": "go ahead, accept edits", "ask": "go ahead, ask"}
    answer = f"you: {modes.get(asked.mode, f'go ahead in mode {asked.mode}')}"
    if not asked.plan.changed:
        return answer
    return f"{answer} · changed since the plan: {', '.join(map(sanitize, asked.plan.changed))}"


def _map_summary(asked: Asked) -> str:
    """Return a text like `repository map: 900 tokens for the planner`, "" without a map."""
    maps = (("the planner", asked.tree), ("the first turn", asked.repository_map))
    sizes = [f"{byte_size(text) / BYTES:,.0f} tokens for {reader}" for reader, text in maps if text]
    return f"repository map: {', '.join(sizes)}" if sizes else ""


def _memory_summary(memory: Sequence[MemoryText]) -> str:
    """Return a text like `memory: 3 lines of ~/.config/fugu/MEMORY.md`, "" without a memory."""
    files = [f"{plural(file.lines, 'line')} of {sanitize(file.file)}" for file in memory]
    return f"memory: {', '.join(files)}" if files else ""


def undo_text(event: Undone) -> str:
    """Return a line like `undone by the user: 2 files put back`."""
    if event.turn:
        return f"rolled back, trying again: {first_line(event.reason, 200)}"
    words = first_line(event.words, 200)
    if not event.paths:
        return f"{words}: the files put back"
    removed_paths = {change.path for change in event.changes if change.after is None}
    removed = len([path for path in event.paths if path in removed_paths])
    put_back = len(event.paths) - removed
    clauses = []
    if put_back:
        clauses.append(f"{plural(put_back, 'file')} put back")
    if removed:
        clauses.append(f"{plural(removed, 'file')} removed")
    return f"{words}: {', '.join(clauses)}"
