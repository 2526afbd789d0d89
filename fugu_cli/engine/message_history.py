"""The messages of an agent that calls tools: the whole neutral history, built from the log alone."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile

from fugu_cli import prompts
from fugu_cli.engine import structured_answer
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message
from fugu_cli.safety.policy import GO_ON_WITHOUT
from fugu_cli.session import views
from fugu_cli.session.events import (
    EVIDENCE,
    HOOK,
    Asked,
    Assigned,
    Event,
    Permitted,
    Replied,
    Undone,
)
from fugu_cli.session.state import SessionState
from fugu_cli.system.bounded_json import parse_json


def opening_ids(turn: views.Turn) -> set[str]:
    """Ids of the calls made before the agent's first reply of the draw."""
    before = takewhile(lambda fact: not isinstance(fact, Replied), turn.facts)
    return {fact.call.id for fact in before if isinstance(fact, Permitted)}


def path_argument(run: views.CallRecord) -> str | None:
    return text_argument(run.permitted.call, "path")


def text_argument(call: Call, name: str) -> str | None:
    """The text given for `name`; None where there is none."""
    try:
        found = parse_json(call.arguments).get(name)
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None


SAID_NO = "the user said no"
UNDO_MESSAGE = (
    "[The user undid the newest request that stood: its changes to files are gone. Read a file "
    "before you change it.]"
)
REDO_MESSAGE = "[The user brought back what was undone last: its changes to files are there again.]"


def undo_messages(facts: Sequence[Event], turn: Assigned | None) -> list[FromUser]:
    """Return the notes about undos after this turn of a request; None: before its first turn."""
    said, newest = list[FromUser](), None
    for fact in facts:
        if isinstance(fact, Assigned) and fact.subtask is None:
            newest = fact
        elif isinstance(fact, Undone) and not fact.turn and newest is turn:
            said.append(
                FromUser(
                    text=(REDO_MESSAGE if fact.kind == "redo" else UNDO_MESSAGE) + fact.exception
                )
            )
    return said


EVIDENCE_HEADINGS = {
    views.RUN_TESTS: ("The tests were run: they pass", "The tests were run: they FAIL"),
    views.RUN_CHECK: (
        "An acceptance check was run: it passes",
        "An acceptance check was run: it FAILS",
    ),
    "run_reproduction": (
        "The reproduction was run: it passes",
        "The reproduction was run: it FAILS",
    ),
    views.TESTS_BEFORE: (
        "How these tests stood before the request",
        "How the tests stood before is not known",
    ),
}
"""Headings of fugu's own runs: passed and failed."""
EVERY_RULE = "[The session when this request came:]"
Rules = tuple[tuple[str, str], ...]
MAX_EVIDENCE = 24_000
"""Characters of a file that fugu read for another agent; of a longer one only the length is
told.
"""


def history(state: SessionState, told: str = "") -> tuple[Message, ...]:
    """Every request with its turns, as one neutral history; what was compacted, as its summary.
    `told`: what the newest turn's agent is told besides."""
    summary, kept = views.after_compaction(state.events)
    *earlier, newest = views.requests(kept)
    before = "\n\n".join(part for part in (summary, state.still_open) if part)
    messages: list[Message] = (
        [FromUser(text=f"[What happened before, summed up:]\n{before}")] if summary else []
    )
    rules: Rules = ()
    for facts in earlier:
        messages += _past(_Past(facts), rules)
        rules = _rules_of(facts) or rules
    return (*messages, *_request_messages(SessionState(newest), rules, told))


def _rules_of(facts: Sequence[Event]) -> Rules:
    request = facts[0]
    return request.rules if isinstance(request, Asked) else ()


class _Past:
    """An earlier request's facts, which never change: equal when they are the very same ones."""

    def __init__(self, facts: Sequence[Event]) -> None:
        self.facts = facts

    def __hash__(self) -> int:
        return hash((id(self.facts[0]), len(self.facts)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Past) or len(self.facts) != len(other.facts):
            return False
        return all(map(operator.is_, self.facts, other.facts))


@lru_cache(maxsize=256)
def _past(past: _Past, rules: Rules) -> tuple[Message, ...]:
    """Its messages, built once: a session's every model call would build them again."""
    return _request_messages(SessionState(past.facts), rules)


def _request_messages(state: SessionState, rules: Rules, told: str = "") -> tuple[Message, ...]:
    """Return a request's messages. `rules`: those of the session that its agents have been shown."""
    request = state.events[0]
    assert isinstance(request, Asked)
    messages: list[Message] = [
        FromUser(text=request.whole, media=request.media),
        *_runs_as_text(state.request.baseline),
    ]
    if shown := _shown_rules(request.rules, rules):
        messages.append(FromUser(text=shown))
    messages += undo_messages(state.events, None)
    turns = state.request.turns
    for turn in turns:
        parts = (told, _opening(turn)) if turn is turns[-1] else (_opening(turn),)
        messages.append(FromUser(text="\n\n".join(part for part in parts if part)))
        messages += turn_messages(turn, structured_answer.wanted_schema(state, turn))
        messages += undo_messages(state.events, turn.assigned)
    return tuple(messages)


def _shown_rules(rules: Rules, before: Rules) -> str:
    """Return the session's rules; of a later request what differs from those `before` it. "" where
    nothing does.
    """
    heading = "[Changed since the last request:]" if before else EVERY_RULE
    lines = [f"{name}: {text}" for name, text in rules if (name, text) not in before]
    return "\n".join([heading, *lines]) if lines else ""


def _opening(turn: views.Turn) -> str:
    role = (
        ""
        if turn.assigned.plan
        else prompts.load("subtask" if turn.assigned.subtask else turn.assigned.role)
    )
    opening = opening_ids(turn)
    shown = [
        _evidence_text(run)
        for run in turn.runs
        if run.evidence and run.permitted.call.id in opening
    ]
    failed = [
        f"[Attempt {index} of this turn was rolled back: {getattr(draw[-1], 'reason', '')}]"
        for index, draw in enumerate(turn.draws, start=1)
    ]
    return "\n\n".join(part for part in (*shown, turn.assigned.instruction, *failed, role) if part)


def turn_messages(turn: views.Turn, schema: str = "") -> list[Message]:
    """A turn's replies with the results of their calls. `schema`: the one that its last words must
    follow.
    """
    results = {run.permitted.call.id: run for run in turn.runs if not run.evidence}
    opening = opening_ids(turn)
    messages: list[Message] = []
    corrected = structured_answer.correction(turn, schema)
    begun = [place for place, fact in enumerate(turn.facts) if isinstance(fact, Replied)]
    for reply, start, stop in zip(turn.replies, begun, [*begun, len(turn.facts)][1:], strict=True):
        if not views.is_cut_in_silence(reply):
            messages.append(
                FromAgent(
                    agent=reply.agent, text=reply.text, thinking=reply.thinking, calls=reply.calls
                )
            )
        messages += [_result(results[call.id]) for call in reply.calls if call.id in results]
        if corrected and not reply.calls:
            messages.append(FromUser(text=corrected))
            corrected = ""
        after = views.call_records(turn.facts[start:stop])
        messages += _runs_as_text([run for run in after if run.permitted.call.id not in opening])
    if turn.failed is not None:
        messages.append(FromUser(text=f"[{turn.assigned.agent} failed: {turn.failed.message}]"))
    if turn.interrupted:
        messages.append(FromUser(text="[The user interrupted this turn.]"))
    return messages


def _result(run: views.CallRecord) -> FromTool:
    call = run.permitted.call
    if not run.permitted.allowed:
        return FromTool(call=call.id, tool=call.tool, text=_refusal(run.permitted), ok=False)
    if run.result is None:
        text = "Interrupted: the call was started and did not come to an end. It was not run again."
        return FromTool(call=call.id, tool=call.tool, text=text, ok=False)
    result = run.result
    return FromTool(
        call=call.id, tool=call.tool, text=result.output, ok=result.ok, media=result.media
    )


def _refusal(permitted: Permitted) -> str:
    """Return why a call was not made, and what to do instead."""
    reason = permitted.reason
    if permitted.by == "user" and not reason.startswith(SAID_NO):
        reason = f"{SAID_NO} ({reason})"
    if permitted.by == HOOK or reason.startswith(f"{SAID_NO} ("):
        reason = f"{reason.rstrip('.')}. {GO_ON_WITHOUT}"
    return f"Not allowed: {reason}"


def _runs_as_text(runs: Sequence[views.CallRecord]) -> list[Message]:
    texts = [_evidence_text(run) for run in runs if run.evidence]
    media = tuple(
        one for run in runs if run.evidence and run.result is not None for one in run.result.media
    )
    return [FromUser(text="\n\n".join(texts), media=media)] if texts else []


def _evidence_text(run: views.CallRecord) -> str:
    if not run.permitted.allowed:
        return f"[{run.permitted.call.tool} {path_argument(run) or ''}]\n{_refusal(run.permitted)}"
    if run.result is None:
        return ""
    call, text = run.permitted.call, run.result.output
    if run.result.skipped:
        return f"[{call.tool} was ended by the user.]"
    if run.result.tests is not None and (unable := run.result.tests.unable):
        return f"[{unable[0].upper()}{unable[1:]}. That says nothing of the change.]\n{text}"
    if call.tool in EVIDENCE_HEADINGS:
        return f"[{EVIDENCE_HEADINGS[call.tool][not run.result.ok]}.]\n{text}"
    long = call.tool == "read" and run.permitted.by == EVIDENCE and len(text) > MAX_EVIDENCE
    shown = f"({len(text):,} characters)" if long else text
    return f"[{call.tool} {path_argument(run) or ''}]\n{shown}"
