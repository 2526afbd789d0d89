"""The messages of an agent that calls tools: its own turns, and those of others as data.

Built from the log alone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise, takewhile

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.step_context import clip_middle, escape_frames
from fugu_cli.engine import steering, structured_answer
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Media, Message
from fugu_cli.safety.policy import GO_ON_WITHOUT
from fugu_cli.session.checks import RUN_CHECK
from fugu_cli.session.events import (
    CLIENT,
    EVIDENCE,
    HOOK,
    SAID_NO,
    MemoryText,
    Permitted,
    Replied,
)
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import CallRecord, Turn, call_records, is_cut_in_silence, verdict_of
from fugu_cli.session.workflows import is_asked_to_choose_again
from fugu_cli.system.bounded_json import parse_json


def opening_ids(turn: Turn) -> set[str]:
    """Return the ids of the calls made before the agent's first reply."""
    before = takewhile(lambda event: not isinstance(event, Replied), turn.events)
    return {event.call.id for event in before if isinstance(event, Permitted)}


def path_argument(run: CallRecord) -> str | None:
    return text_argument(run.permitted.call, "path")


def text_argument(call: Call, name: str) -> str | None:
    """Return the text of the argument `name`, None if the call has none."""
    try:
        value = parse_json(call.arguments).get(name)
    except (ValueError, AttributeError):  # not JSON, or not an object
        return None
    return value if isinstance(value, str) else None


DIFF = "diff"
"""The tool with which fugu shows an agent what the request has changed."""
UNDO_MESSAGE = (
    "[The user undid the newest request that stood: its changes to files are gone. Read a file "
    "before you change it.]"
)
REDO_MESSAGE = "[The user brought back what was undone last: its changes to files are there again.]"


def undo_messages(request: RequestState, turn: int) -> list[FromUser]:
    """Return the notes about undos after this turn of a request; 0: before its first turn."""
    messages = []
    for undone in request.undos.get(turn, ()):
        text = REDO_MESSAGE if undone.kind == "redo" else UNDO_MESSAGE
        messages.append(FromUser(text=text + undone.exception))
    return messages


EVIDENCE_HEADINGS = {
    RUN_TESTS: ("The tests were run: they pass", "The tests were run: they FAIL"),
    RUN_CHECK: (
        "An acceptance check was run: it passes",
        "An acceptance check was run: it FAILS",
    ),
    "run_reproduction": (
        "The reproduction was run: it passes",
        "The reproduction was run: it FAILS",
    ),
    TESTS_BEFORE: (
        "How these tests stood before the request",
        "How the tests stood before is not known",
    ),
    DIFF: ("The diff of the whole request", "The diff of the request is not known"),
}
"""Headings of fugu's own runs: passed and failed."""
EVERY_RULE = "[The session when this request came:]"
MEMORY_HEADING = (
    "[The memory: notes that the user keeps from earlier sessions. They are no requests, and may be "
    "out of date: what you see in the files counts.]"
)
MAP_HEADING = "[A map of the repository, made of its files when this request came:]"
_MEMORY_TAG = re.compile(r"<(\s*/?\s*memory\b)", re.IGNORECASE)
Rules = tuple[tuple[str, str], ...]
MAX_EVIDENCE = 24_000
"""Characters of a file that fugu read for another agent. Of a longer file only the length is shown.
"""
WORDS, EARLIER_WORDS = 6_000, 1_500
"""Characters of another agent's last words: in the newest request, and in an earlier one."""
_SUGGESTION = re.compile(r"\s*<suggested_role>.*?</suggested_role>", re.DOTALL | re.IGNORECASE)


def history(state: SessionState, notice: str = "") -> tuple[Message, ...]:
    """Return the requests as the agent of the newest turn reads them: its own turns word for word;
    turns of other agents, and all turns of Verifiers, as data; compacted events as their summary.
    `notice` is an additional text at the beginning of the newest turn.
    """
    messages: list[Message] = []
    if state.summary:
        before = "\n\n".join(part for part in (state.summary, state.still_open) if part)
        messages.append(FromUser(text=f"[What happened before, summed up:]\n{before}"))
    *earlier, newest = state.shown_requests
    agent = newest.turns[-1].assigned.agent if newest.turns else ""
    rules: Rules = ()
    memory: tuple[MemoryText, ...] = ()
    own_plan = False
    for request, following in pairwise((*earlier, newest)):
        assert request.asked is not None and following.asked is not None
        plan = following.asked.plan
        has_own_words = any(
            turn.replies and _is_own(turn, agent, state.served) for turn in request.turns
        )
        if plan is None or has_own_words:
            messages += request.derived(
                _request_messages, agent, rules, memory, state.served, own_plan
            )
            rules = request.asked.rules or rules
            memory = request.asked.memory
        own_plan = plan is not None and plan.agent == agent and has_own_words
    messages += _request_messages(
        newest, agent, rules, memory, state.served, own_plan, notice, newest=True
    )
    return tuple(messages)


def _request_messages(
    request: RequestState,
    agent: str,
    rules: Rules,
    memory: tuple[MemoryText, ...],
    served: bool,
    own_plan: bool,
    notice: str = "",
    *,
    newest: bool = False,
) -> tuple[Message, ...]:
    """Return one request as `agent` reads it.

    `rules` and `memory` are those that the agent has been shown before in this session. `served`:
    Workers' answers are the conversation with a client, whichever agent gave them. `own_plan`: the
    agent itself wrote the plan that the request carries out, and reads it above. `notice` and
    `newest` are for the newest request only.
    """
    asked = request.asked
    assert asked is not None
    messages: list[Message] = [
        FromUser(text=asked.shown(plan_is_above=own_plan), media=asked.media),
        *_runs_as_text(request.baseline),
    ]
    map_text = f"{MAP_HEADING}\n{asked.repository_map}" if asked.repository_map else ""
    texts = (shown_rules(asked.rules, rules), map_text, shown_memory(asked.memory, memory))
    if any(texts):
        messages.append(FromUser(text="\n\n".join(text for text in texts if text)))
    messages += undo_messages(request, 0)
    own: list[Turn] = []
    others: list[Turn] = []
    for turn in request.turns:
        is_read = newest and turn is request.turns[-1]
        if not (is_read or _is_own(turn, agent, served)):
            others.append(turn)
            if undone := undo_messages(request, turn.number):
                messages += [*_notes(others, is_planning=request.asks_for_plan), *undone]
                others = []
            continue
        opening = [notice] if is_read else []
        opening.append(_opening(turn, others))
        if not served and not asked.only_reads:
            opening.append(_role_text(turn, own, others, asked.mode))
        opening.append(steering.opening_text(turn))
        if any(opening):
            text = "\n\n".join(part for part in opening if part)
            media = [item for message in steering.opening_messages(turn) for item in message.media]
            messages.append(FromUser(text=text, media=tuple(media)))
        schema = structured_answer.wanted_schema(request, turn)
        messages += turn_messages(turn, schema, is_open=is_read, is_planning=request.asks_for_plan)
        messages += undo_messages(request, turn.number)
        own.append(turn)
        others = []
    messages += _notes(others, is_planning=request.asks_for_plan)
    if not newest and (unread := steering.unread_text(request)):
        messages.append(FromUser(text=unread))
    return tuple(messages)


def shown_rules(rules: Rules, before: Rules) -> str:
    """Return the rules of the session; for a later request only those that differ from `before`, ""
    if none does.
    """
    heading = "[Changed since the last request:]" if before else EVERY_RULE
    lines = [f"{name}: {text}" for name, text in rules if (name, text) not in before]
    return "\n".join([heading, *lines]) if lines else ""


def shown_memory(memory: Sequence[MemoryText], before: Sequence[MemoryText]) -> str:
    """Return the memory files as data; for a later request only those that differ from `before`, ""
    if none does.
    """
    texts = []
    for file in memory:
        if file not in before:
            source = _MEMORY_TAG.sub(r"&lt;\1", file.text)
            texts.append(f'<memory file="{file.file}">\n{source}\n</memory>')
    remaining = [file.file for file in memory]
    gone = [file.file for file in before if file.file not in remaining]
    texts += [f"[{name} no longer counts: ignore what it said.]" for name in gone]
    return "\n".join([MEMORY_HEADING, *texts]) if texts else ""


def _is_own(turn: Turn, agent: str, served: bool) -> bool:
    """Return whether the agent reads the turn as its own messages.

    A Verifier's turn is never read so, because it began with another message. If the session is
    `served`, a client sees one assistant: every Worker's turn is the agent's own.
    """
    if turn.assigned.by == CLIENT or (served and turn.assigned.role == "worker"):
        return True
    return turn.assigned.agent == agent and turn.assigned.role != "verifier"


def _notes(others: Sequence[Turn], *, is_planning: bool) -> list[FromUser]:
    """Return in short what others did in a request after the agent's own last turn. A plan is shown
    at length: the user's next words may be about it.
    """
    workers = [turn for turn in others if turn.assigned.role == "worker"]
    limit = WORDS if is_planning else EARLIER_WORDS
    text = "\n\n".join(work_note(turn, limit) for turn in workers)
    return [FromUser(text=text)] if text else []


def _opening(turn: Turn, others: Sequence[Turn]) -> str:
    """Return the beginning of the agent's own turn: what others did since its last turn, the
    evidence, and its instruction.
    """
    runs = []
    for earlier in others:
        runs += [run for run in earlier.runs if run.permitted.call.tool != DIFF]
    opening = opening_ids(turn)
    runs += [run for run in turn.runs if run.permitted.call.id in opening]
    evidence: dict[tuple[str, str], CallRecord] = {}
    for run in runs:
        if run.evidence:  # of equal calls only the newest is shown
            evidence[run.permitted.call.tool, run.permitted.call.arguments] = run
    parts = _others_notes(others, turn)
    parts += [_evidence_text(run) for run in evidence.values()]
    parts.append(turn.assigned.instruction)
    return "\n\n".join(part for part in parts if part)


def _others_notes(others: Sequence[Turn], reader: Turn) -> list[str]:
    """Return what others did in this request, as data for the agent whose turn begins."""
    completed = [turn for turn in others if not turn.failed and not turn.interrupted]
    notes = []
    for turn in others:
        match turn.assigned.role:
            case "worker":
                notes.append(work_note(turn, WORDS))
            case "verifier":
                notes.append(verdict_note(turn, reader.assigned.agent))
            case "thinker":
                is_newest = bool(completed) and turn is completed[-1]
                is_to_do = is_newest and reader.assigned.role == "worker"
                notes.append(_plan_note(turn, is_to_do=is_to_do))
    return notes


def work_note(turn: Turn, limit: int) -> str:
    """Return a note on a Worker's turn: its changes, why it stopped, and its last words, cut to
    `limit` characters. Return "" for a turn that failed before the agent said anything.
    """
    if not turn.spent:
        return ""
    agent = f"`{turn.assigned.agent}`"
    paths = ", ".join(sorted({change.path for change in turn.changes}))
    changed = f" and changed {paths}" if paths else ""
    words = escape_frames(clip_middle(turn.text.strip(), limit))
    if turn.failed is not None or turn.interrupted:
        cause = "it was interrupted."
        if turn.failed is not None:
            cause = f"it failed: {turn.failed.cause}."
        note = f"{agent} began this{changed}; then {cause}"
        if words and not turn.replies[-1].calls:
            note += f"\nBefore that it had said:\n<work>\n{words}\n</work>"
        return note
    if turn.unable is not None:
        return f"{agent} said that it cannot do this: {turn.unable}"
    if not words:
        return f"{agent} worked on this{changed}. It came to no last word."
    cut = "" if turn.concluded else " before its turn ended"
    return f"{agent} worked on this{changed}. It said last{cut}:\n<work>\n{words}\n</work>"


def verdict_note(turn: Turn, reader: str = "") -> str:
    """Return a note on what a Verifier asked for, "" if it came to no verdict. `reader` is the agent
    that reads it, which does not know its own name.
    """
    words = escape_frames(clip_middle(turn.text.strip(), WORDS))
    if turn.failed is not None or turn.interrupted or not words:
        return ""
    verifier = f"The Verifier (`{turn.assigned.agent}`)"
    if turn.assigned.agent == reader:
        verifier = f"The Verifier (yourself, `{reader}`)"
    if verdict_of(turn.text) == "ACCEPT":
        return f"{verifier} accepted the work."
    return f"{verifier} wants a revision:\n<verdict>\n{words}\n</verdict>"


def _wants_revision(turn: Turn) -> bool:
    is_verifier = turn.assigned.role == "verifier"
    return is_verifier and bool(verdict_note(turn)) and verdict_of(turn.text) != "ACCEPT"


def _revision_is_open(others: Sequence[Turn]) -> bool:
    """Return whether a Verifier wants a revision and no other agent has worked on it since: a turn
    that failed or gave up before it changed anything does not count.
    """
    for turn in reversed(others):
        gave_up = turn.failed or turn.interrupted or turn.unable is not None
        if not (turn.assigned.role == "worker" and gave_up and not turn.changes):
            return _wants_revision(turn)
    return False


def _plan_note(turn: Turn, *, is_to_do: bool) -> str:
    """Return a note with a Thinker's plan, "" if there is none. `is_to_do`: the reader is to carry
    it out.
    """
    plan = escape_frames(clip_middle(_SUGGESTION.sub("", turn.text).strip(), WORDS))
    if turn.failed is not None or turn.interrupted or not plan:
        return ""
    ask = "\nCarry it out, or say what is wrong with it." if is_to_do else ""
    return f"`{turn.assigned.agent}` made this plan:\n<plan>\n{plan}\n</plan>{ask}"


def _role_text(turn: Turn, own: Sequence[Turn], others: Sequence[Turn], mode: str) -> str:
    """Return what the role is to do in the request's permission mode. An agent that has read the
    role's brief in this request already gets a short reminder instead.
    """
    if turn.assigned.plan:
        return ""
    if turn.assigned.subtask:
        return prompts.load("subtask")
    role = turn.assigned.role
    if role == "worker" and mode == "plan":
        return prompts.load("worker_plan")
    is_again = any(earlier.assigned.role == role for earlier in own)
    is_revision = role == "worker" and _revision_is_open(others)
    parts = []
    if is_revision:
        parts.append(prompts.load("worker_revision"))
    if not (is_revision and own and own[-1].assigned.role == "worker"):
        parts.append(prompts.load(f"{role}_again" if is_again else role))
    if role == "worker" and any(earlier.changes for earlier in (*own, *others)):
        parts.append(prompts.load("worker_whole"))
    return "\n".join(parts)


def turn_messages(
    turn: Turn, schema: str = "", *, is_open: bool = False, is_planning: bool = False
) -> list[Message]:
    """Return a turn's replies with the results of their calls, and the messages between them.

    The turn's last words must follow `schema`. `is_open`: its agent is asked for another reply.
    `is_planning`: its last words are a plan, which the user's later messages are about.

    A Worker that has said its last word while tests or checks fail is shown the failures, unless
    its answer must be corrected first, or the user has written and no new run failed.
    """
    results = {run.permitted.call.id: run for run in turn.runs if not run.evidence}
    opening = opening_ids(turn)
    messages: list[Message] = []
    correction = structured_answer.correction(turn, schema)
    starts = [index for index, event in enumerate(turn.events) if isinstance(event, Replied)]
    stops = [*starts, len(turn.events)][1:]
    for reply, start, stop in zip(turn.replies, starts, stops, strict=True):
        events = turn.events[start:stop]
        if not is_cut_in_silence(reply):
            messages.append(
                FromAgent(
                    agent=reply.agent, text=reply.text, thinking=reply.thinking, calls=reply.calls
                )
            )
        messages += [_result(results[call.id]) for call in reply.calls if call.id in results]
        runs = [run for run in call_records(events) if run.permitted.call.id not in opening]
        evidence = _runs_as_text(runs)
        is_about_plan = is_planning and not reply.calls
        user_messages = steering.later_messages(events, is_about_plan=is_about_plan)
        is_followed = is_open or stop < len(turn.events)
        if correction and not reply.calls:
            messages.append(FromUser(text=correction))
            correction = ""
        elif is_followed and is_asked_to_choose_again(turn, reply):
            names = ", ".join(turn.assigned.choices)
            text = prompts.fill(prompts.load("conductor/choose_again"), names=names)
            messages.append(FromUser(text=text))
        elif is_followed and _is_shown_failures(turn, reply, runs, user_messages):
            failures = FromUser(text=prompts.load("worker_unchanged"))
            if evidence:
                failures = evidence[0]
            text = f"{failures.text}\n\n{prompts.load('worker_failing')}"
            evidence = [failures.model_copy(update={"text": text})]
        messages += evidence
        messages += user_messages
        messages += [FromUser(text=text) for text in steering.mode_texts(events)]
    if turn.failed is not None:
        messages.append(FromUser(text=f"[{turn.assigned.agent} failed: {turn.failed.cause}.]"))
    if turn.interrupted:
        messages.append(FromUser(text="[This turn was interrupted.]"))
    return messages


def _is_shown_failures(
    turn: Turn, reply: Replied, runs: Sequence[CallRecord], user_messages: Sequence[Message]
) -> bool:
    """Return whether a reply without calls is answered with failing tests or checks: a Worker's is,
    unless the user has written and no new run failed.
    """
    if reply.calls or turn.assigned.role != "worker" or is_cut_in_silence(reply):
        return False
    return not user_messages or any(_fails(run) for run in runs)


def was_shown_failures(turn: Turn, schema: str) -> bool:
    """Return whether a Worker that had said its last word was asked for another reply because
    tests or checks fail. `schema` as in `turn_messages`.
    """
    demand = prompts.load("worker_failing")
    return any(
        isinstance(message, FromUser) and message.text.endswith(demand)
        for message in turn_messages(turn, schema)
    )


def is_test_run(run: CallRecord) -> bool:
    """Return whether the call ran the tests or a check."""
    return run.permitted.call.tool in (RUN_TESTS, RUN_CHECK)


def _fails(run: CallRecord) -> bool:
    return is_test_run(run) and run.result is not None and not run.result.ok


def _result(run: CallRecord) -> FromTool:
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
    """Return why a call was not made, and how to go on unless the user's reason says it."""
    reason = permitted.reason
    user_gave_no_reason = permitted.by == "user" and not reason.startswith(SAID_NO)
    if user_gave_no_reason:
        reason = f"{SAID_NO} ({reason})"
    if permitted.by == HOOK or reason.startswith(f"{SAID_NO} ("):
        reason = f"{reason.rstrip('.')}. {GO_ON_WITHOUT}"
    return f"Not allowed: {reason}"


def _runs_as_text(runs: Sequence[CallRecord]) -> list[FromUser]:
    """Return one message with all evidence of the runs, none if there is no evidence."""
    texts: list[str] = []
    media: list[Media] = []
    for run in runs:
        if not run.evidence:
            continue
        text = _evidence_text(run)
        if text:
            texts.append(text)
        if run.result is not None:
            media += run.result.media
    return [FromUser(text="\n\n".join(texts), media=tuple(media))] if texts else []


def _evidence_text(run: CallRecord) -> str:
    """Return the result of a run with a heading, "" if it says nothing."""
    call, result = run.permitted.call, run.result
    heading = f"[{call.tool} {path_argument(run) or ''}]"
    if not run.permitted.allowed:
        return f"{heading}\n{_refusal(run.permitted)}"
    if result is None:
        return ""
    text = result.output
    if result.skipped:
        return f"[{call.tool} was ended by the user.]"
    if result.tests is not None and (unable := result.tests.unable):
        return f"[{unable[0].upper()}{unable[1:]}. That says nothing of the change.]\n{text}"
    if call.tool == TESTS_BEFORE and not text:
        return ""  # no test fails now, and none was removed
    if call.tool in EVIDENCE_HEADINGS:
        passed, failed = EVIDENCE_HEADINGS[call.tool]
        return f"[{passed if result.ok else failed}.]\n{text}"
    if call.tool == "read" and run.permitted.by == EVIDENCE and len(text) > MAX_EVIDENCE:
        text = f"({len(text):,} characters)"
    return f"{heading}\n{text}"
