"""The one message with which a Verifier begins: the work as data, without the steps that led to
it. Pure.
"""

from __future__ import annotations

import re

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.step_context import (
    as_data,
    clip_middle,
    escape_frames,
    step_outputs,
)
from fugu_cli.engine import message_history, steering
from fugu_cli.engine.environment import tests_unknown_notice
from fugu_cli.messages import FromUser, Media, Message
from fugu_cli.session.events import EVIDENCE
from fugu_cli.session.open_work import undo_notices
from fugu_cli.session.outcome import TestRun, TestsBefore
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn
from fugu_cli.session.verdicts import test_summary
from fugu_cli.session.workflows import step_name

LAST_WORDS = 4_000
"""Characters of one turn's last words."""
EARLIER_ANSWER = 1_200
"""Characters of the answer to an earlier request."""
EARLIER_REQUESTS = 3
ATTACHED = 4_000
"""Characters of a file that the request attaches."""
CHECK_OUTPUT = 1_500
"""Characters of a failing check's output."""
MOST_TESTS = 50
"""The most ids of tests in one list."""


def verifier_messages(state: SessionState) -> tuple[Message, ...]:
    """Return the messages of the newest turn, a Verifier's: the work as data, then the turn's own
    replies and results.
    """
    request, turn = state.request.asked, state.request.turns[-1]
    assert request is not None
    brief = "verifier" if state.request.changes else "verifier_answer"
    steering_messages = steering.opening_messages(turn)
    request_text = request.whole
    if opening := steering.opening_text(turn):
        request_text = f"{request_text}\n\n{opening}".lstrip()
    parts = [
        prompts.fill(prompts.load(brief), whose=_whose_work(state, turn)),
        *_earlier_requests(state),
        f"<request>\n{escape_frames(request_text)}\n</request>",
        message_history.shown_rules(request.rules, ()),
        message_history.shown_memory(request.memory, ()),
        *_attachments(state),
        *(_planned_work(state, turn) if turn.assigned.plan else _work(state, turn)),
        *_tests(state),
        *_checks(state),
        *_diff(turn),
    ]
    shown_turn = state.shown_requests[-1].turns[-1]
    if shown_turn.events != turn.events:  # the turn itself was compacted, because it read so much
        parts.append(f"[What you have found so far, summed up:]\n{state.summary}")
    media = [*request.media, *_attached_media(state)]
    for message in steering_messages:
        media += message.media
    text = "\n\n".join(part for part in parts if part)
    return (
        FromUser(text=text, media=tuple(media)),
        *message_history.turn_messages(shown_turn),
    )


def _whose_work(state: SessionState, turn: Turn) -> str:
    """Return a phrase on whose work it is: the authors of the diff, or the agent that answered."""
    answering = state.request.answered_by
    authors = state.request.authors or ((answering.assigned.agent,) if answering else ())
    if authors == (turn.assigned.agent,):
        return f"your own work (`{turn.assigned.agent}`), as if another model had done it, for no other agent is left"
    *names, last = [f"`{name}`" for name in authors if name != turn.assigned.agent] or [""]
    others = f"{', '.join(names)} and {last}" if names else last
    if turn.assigned.agent in authors:
        own = f"you (`{turn.assigned.agent}`)"
        return f"the work of {others} and of {own}, as if none of it were yours, for no other agent is left"
    return f"another model's work ({others})"


def _earlier_requests(state: SessionState) -> list[str]:
    parts = []
    for request in state.earlier_requests[-EARLIER_REQUESTS:]:
        assert request.asked is not None
        answer = as_data(request.answer[:EARLIER_ANSWER])
        text = prompts.load("conductor/before")
        parts.append(prompts.fill(text, request=as_data(request.asked.text), answer=answer))
        parts += undo_notices(request.events)
    return parts


def _attachments(state: SessionState) -> list[str]:
    """Return the texts that the request attaches. fugu's own runs before the first turn are left
    out.
    """
    parts = []
    for run in state.request.baseline:
        if run.permitted.by == EVIDENCE or run.result is None:
            continue
        name = message_history.path_argument(run) or run.permitted.call.tool
        text = clip_middle(run.result.output, ATTACHED)
        parts.append(f"The request attaches {name}:\n{fenced(text)}")
    return parts


def _attached_media(state: SessionState) -> tuple[Media, ...]:
    media: list[Media] = []
    for run in state.request.baseline:
        if run.result is not None:
            media += run.result.media
    return tuple(media)


def _work(state: SessionState, verifier: Turn) -> list[str]:
    """Return notes on the Workers' turns, with their changes and last words, and on the verdicts of
    earlier Verifiers.
    """
    notes = []
    for turn in state.request.turns:
        if turn is verifier or turn.assigned.role == "thinker":
            continue
        if turn.assigned.role == "verifier":
            notes.append(message_history.verdict_note(turn, verifier.assigned.agent))
        else:
            notes.append(message_history.work_note(turn, LAST_WORDS))
    return notes


def _planned_work(state: SessionState, verifier: Turn) -> list[str]:
    """Return the results of the steps that the judging step may read, and its instruction."""
    name = step_name(state.request.workflows, verifier.assigned.plan, verifier.assigned.step)
    subtask = prompts.fill(
        prompts.load("conductor/judge"), name=name, subtask=as_data(verifier.assigned.instruction)
    )
    return [step_outputs(state, verifier.assigned), subtask]


def _tests(state: SessionState) -> list[str]:
    """Return the results of the tests now and before the request, by their ids."""
    run = state.request.tests
    if run is None or run.stale:
        return [tests_unknown_notice(state)]
    if run.unable:
        return [f"{run.unable[0].upper()}{run.unable[1:]}. That says nothing of the change."]
    if run.empty:
        return ["The tests were run, and there are none."]
    request, before = state.request.asked, state.request.tests_before
    summary = test_summary(state.request)
    command = f" (`{request.test_command}`)" if request is not None else ""
    passed = summary["after"]["passed"] if isinstance(summary["after"], dict) else 0
    lines = [f"The tests were run{command}: {_counts(run, passed)}."]
    failing = set(run.report.failing) if run.report is not None else set[str]()
    if earlier := _state_before(before, any_failed=state.request.failed_before_change):
        lines.append(earlier)
    unknown = failing - before.failed - before.passed
    lists = {
        "Failed before the request and pass now": summary["fixed"],
        "Passed before the request and FAIL now": summary["broken"],
        "Failed before the request and still fail": sorted(failing & before.failed),
        "Fail now, and it is not known how they stood before": sorted(unknown),
        "Were removed": summary["removed"],
    }
    for heading, ids in lists.items():
        assert isinstance(ids, list)
        if ids:
            more = len(ids) - MOST_TESTS
            names = ", ".join(ids[:MOST_TESTS])
            lines.append(
                f"{heading}: {names} and {more} more" if more > 0 else f"{heading}: {names}"
            )
    if not run.ok:
        lines.append(fenced(run.output))
    return ["\n".join(lines)]


def _counts(run: TestRun, passed: int) -> str:
    """Return a phrase like `2 FAIL, 40 pass`."""
    if run.ok:
        return f"{passed} pass" if passed else "they pass"
    failed = "some FAIL" if run.failed is None else f"{run.failed} FAIL"
    return f"{failed}, {passed} pass" if passed else failed


def _state_before(before: TestsBefore, *, any_failed: bool) -> str:
    """Return a sentence on the tests before the request, "" if their ids say it. `any_failed`: a run
    before the first change failed.
    """
    if before.unknown:
        return f"How they stood before the request is not known: {before.unknown}"
    if before.ok is None and before.count is None:
        if before.failed or before.looked_up:
            return ""
        if any_failed:
            return "Some failed before the first change; which ones is not known."
        return "They were not run before the first change: which of them failed then is not known."
    if before.ok:
        return "Before the request they passed."
    return f"Before the request {before.count or 'some'} failed."


def _checks(state: SessionState) -> list[str]:
    """Return the acceptance checks that are not the test suite, with their results."""
    parts = []
    for check in state.request.checks:
        if check.suite:
            continue
        setter = "The user's" if check.by == "user" else "An agent's"
        result = "passes" if check.passes else "has not run since the last change"
        if not check.stale and not check.ok:
            result = f"FAILS\n{fenced(clip_middle(check.output, CHECK_OUTPUT))}"
        parts.append(f"{setter} acceptance check {result}: `{check.command}`")
    return parts


def _diff(turn: Turn) -> list[str]:
    """Return the newest diff that the turn was shown, [] for none."""
    for run in reversed(turn.runs):
        if run.evidence and run.permitted.call.tool == "diff" and run.result is not None:
            return [f"The diff of the whole request:\n{fenced(run.result.output, 'diff')}"]
    return []


def fenced(text: str, language: str = "") -> str:
    """Return the text in a Markdown fence that is longer than any run of backticks in it."""
    backticks: list[str] = re.findall(r"`{3,}", text)
    fence = "`" * max([3, *(len(run) + 1 for run in backticks)])
    return f"{fence}{language}\n{text.strip(chr(10))}\n{fence}"
