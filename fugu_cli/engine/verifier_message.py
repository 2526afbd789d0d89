"""The one message with which a Verifier begins: the work as data, without the steps that led to
it. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

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
from fugu_cli.session.events import EVIDENCE, Asked
from fugu_cli.session.open_work import undo_notices
from fugu_cli.session.outcome import TestRun, TestsBefore
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn
from fugu_cli.session.verdicts import test_summary
from fugu_cli.session.workflows import step_name

LAST_WORDS = 4_000
"""Characters of what one turn said last."""
EARLIER_ANSWER = 1_200
"""Characters of the answer to an earlier request."""
EARLIER_REQUESTS = 3
ATTACHED = 4_000
"""Characters of a file that the request attaches."""
CHECK_OUTPUT = 1_500
"""Characters of what a failing check printed."""
MOST_TESTS = 50
"""Ids of tests in one list."""


def verifier_messages(state: SessionState) -> tuple[Message, ...]:
    """Return the messages of the newest turn, a Verifier's: the work as data, then the turn's own
    replies and results.
    """
    request, turn = state.request.asked, state.request.turns[-1]
    assert request is not None
    brief = "verifier" if state.request.changes else "verifier_answer"
    parts = [
        prompts.fill(prompts.load(brief), whose=_whose_work(state, turn)),
        *_earlier_requests(state),
        f"<request>\n{escape_frames(_whole_request(request, turn))}\n</request>",
        message_history.shown_rules(request.rules, ()),
        message_history.shown_memory(request.memory, ()),
        *_attachments(state),
        *(_planned_work(state, turn) if turn.assigned.plan else _work(state, turn)),
        *_tests(state),
        *_checks(state),
        *_diff(turn),
    ]
    own = state.shown_requests[-1].turns[-1]
    if own.events != turn.events:  # only a turn that has read very much is summed up itself
        parts.append(f"[What you have found so far, summed up:]\n{state.summary}")
    added = [item for message in steering.opening_messages(turn) for item in message.media]
    media = (*request.media, *_attached_media(state), *added)
    return (
        FromUser(text="\n\n".join(part for part in parts if part), media=media),
        *message_history.turn_messages(own),
    )


def _whole_request(request: Asked, turn: Turn) -> str:
    return "\n\n".join(part for part in (request.whole, steering.opening_text(turn)) if part)


def _whose_work(state: SessionState, turn: Turn) -> str:
    """Return whose work it is, in words: the authors of the diff, or who answered."""
    answering = state.request.answered_by
    authors = state.request.authors or ((answering.assigned.agent,) if answering else ())
    if authors == (turn.assigned.agent,):
        return "your own work, as if another model had done it, for no other agent is left"
    others = _joined([f"`{name}`" for name in authors if name != turn.assigned.agent])
    if turn.assigned.agent in authors:
        return f"the work of {others} and of you, as if none of it were yours, for no other agent is left"
    return f"another model's work ({others})"


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


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
    """Return what the request attaches, and nothing of fugu's own runs before the first turn."""
    parts = []
    for run in state.request.baseline:
        if run.permitted.by == EVIDENCE or run.result is None:
            continue
        name = message_history.path_argument(run) or run.permitted.call.tool
        text = clip_middle(run.result.output, ATTACHED)
        parts.append(f"The request attaches {name}:\n{fenced(text)}")
    return parts


def _attached_media(state: SessionState) -> tuple[Media, ...]:
    runs = (run for run in state.request.baseline if run.result is not None)
    return tuple(media for run in runs if run.result for media in run.result.media)


def _work(state: SessionState, verifier: Turn) -> list[str]:
    """Return the agents that worked, what they changed and said last, and what Verifiers said
    before.
    """
    parts = []
    for turn in state.request.turns:
        if turn is verifier or turn.assigned.role == "thinker":
            continue
        if turn.assigned.role == "verifier":
            parts.append(message_history.verdict_note(turn))
        else:
            parts.append(message_history.work_note(turn, LAST_WORDS))
    return [part for part in parts if part]


def _planned_work(state: SessionState, verifier: Turn) -> list[str]:
    """Return what the plan asks of the judging step, and the reports that it may read."""
    name = step_name(state.request.workflows, verifier.assigned.plan, verifier.assigned.step)
    subtask = prompts.fill(
        prompts.load("conductor/judge"), name=name, subtask=as_data(verifier.assigned.instruction)
    )
    return [step_outputs(state, verifier.assigned), subtask]


def _tests(state: SessionState) -> list[str]:
    """Return how the tests stand and stood, by their ids."""
    run = state.request.tests
    if run is None or run.stale:
        return [notice] if (notice := tests_unknown_notice(state)) else []
    if run.unable:
        return [f"{run.unable[0].upper()}{run.unable[1:]}. That says nothing of the change."]
    if run.empty:
        return ["The tests were run, and there are none."]
    request, summary, before = (
        state.request.asked,
        test_summary(state.request),
        state.request.tests_before,
    )
    command = f" (`{request.test_command}`)" if request is not None else ""
    passed = summary["after"]["passed"] if isinstance(summary["after"], dict) else 0
    lines = [f"The tests were run{command}: {_counts(run, passed)}."]
    failing = set(run.report.failing) if run.report is not None else set[str]()
    earlier = _stood_before(before)
    lines += [earlier] if earlier else []
    lists = {
        "Failed before the request and pass now": summary["fixed"],
        "Passed before the request and FAIL now": summary["broken"],
        "Failed before the request and still fail": sorted(failing & before.failed),
        "Fail now, and it is not known how they stood before": sorted(
            failing - before.failed - before.passed
        ),
        "Were removed": summary["removed"],
    }
    for heading, ids in lists.items():
        assert isinstance(ids, list)
        lines += [f"{heading}: {_some(ids)}"] if ids else []
    if not run.ok:
        lines.append(fenced(run.output))
    return ["\n".join(lines)]


def _counts(run: TestRun, passed: int) -> str:
    if run.ok:
        return f"{passed} pass" if passed else "they pass"
    failed = "some FAIL" if run.failed is None else f"{run.failed} FAIL"
    return f"{failed}, {passed} pass" if passed else failed


def _stood_before(before: TestsBefore) -> str:
    if before.unknown:
        return f"How they stood before the request is not known: {before.unknown}"
    if before.ok is None and before.count is None:
        return ""
    if before.ok:
        return "Before the request they passed."
    return f"Before the request {before.count or 'some'} failed."


def _some(ids: Sequence[str]) -> str:
    more = len(ids) - MOST_TESTS
    return ", ".join(ids[:MOST_TESTS]) + (f" and {more} more" if more > 0 else "")


def _checks(state: SessionState) -> list[str]:
    """Return the acceptance checks that are not the test suite, and how they stand."""
    parts = []
    for check in state.request.checks:
        if check.suite:
            continue
        setter = "The user's" if check.by == "user" else "An agent's"
        standing = "passes" if check.passes else "has not run since the last change"
        if not check.stale and not check.ok:
            standing = f"FAILS\n{fenced(clip_middle(check.output, CHECK_OUTPUT))}"
        parts.append(f"{setter} acceptance check {standing}: `{check.command}`")
    return parts


def _diff(turn: Turn) -> list[str]:
    runs = (run for run in turn.runs if run.evidence and run.permitted.call.tool == "diff")
    outputs = [run.result.output for run in runs if run.result is not None]
    return [f"The diff of the whole request:\n{fenced(outputs[-1], 'diff')}"] if outputs else []


def fenced(text: str, kind: str = "") -> str:
    """Return the text in a fence that no line of it closes."""
    runs: Iterable[str] = re.findall(r"`{3,}", text)
    fence = "`" * max([3, *(len(run) + 1 for run in runs)])
    return f"{fence}{kind}\n{text.strip(chr(10))}\n{fence}"
