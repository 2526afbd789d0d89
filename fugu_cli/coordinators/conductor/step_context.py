"""The view of a workflow's step: its agent's own turns, the outputs that its access list opens, and
the tool memory of earlier workflows. Pure.

Everything else is removed from the events before a prompt is built:

ctx(agent, W, t) = own history U { o_j : j in access_list } U tool memory(< W)

The user's requests and the state of the tests, which fugu runs itself, belong to the request. A
memory entry is offered only while the content that it depended on is unchanged.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass

from fugu_cli import prompts
from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    CLIENT,
    EVIDENCE,
    Asked,
    Assigned,
    Event,
    Merged,
    Opened,
    Permitted,
    Planned,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.session.open_work import BYTES, prompt_bytes
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.tool_facts import facts_of
from fugu_cli.session.turns import Turn
from fugu_cli.session.workflows import (
    Workflow,
    final_text,
    is_left_out,
    step_name,
    visible_output,
)
from fugu_cli.system.bounded_json import parse_json

OUTPUT_LIMIT = 12_000
"""Characters of one output that another step reads: of an agent with native tools, of a small
one.
"""
_FRAMES = re.compile(
    r"<(\s*/?\s*)(?=(?:output|subtask|request|change|reply|known|tests|work|plan|verdict)\b)",
    re.IGNORECASE,
)
HISTORY_SHARE = 0.3
"""Share of an agent's context that earlier requests may take: those of a long session would fill
it, and no summary may be shown, for it tells of others. A request whose turns have no room is shown
as what was asked and answered."""
MEMORY_ENTRY_LIMIT = 2_000
"""Characters of one entry of the tool memory."""


@dataclass(frozen=True)
class StepManifest:
    """The view of a step, by turn and line numbers.

    `own` are its agent's earlier turns in this request, `outputs` are opened to it as (step, turn),
    `memory` are lines of the tool memory, `candidates` are turns whose diffs it chooses among.
    `hidden` are finished turns of others that it does not see.
    """

    own: tuple[int, ...]
    outputs: tuple[tuple[int, int], ...]
    memory: tuple[int, ...]
    candidates: tuple[int, ...]
    hidden: tuple[int, ...]


def visible_part(state: SessionState) -> SessionState:
    """Return the part of the session that the newest turn may see. It is the whole session, unless
    the turn is a step of a workflow.

    Of earlier requests a step sees the answers and its agent's own turns, the newest ones as long
    as there is room.
    """
    turns = state.request.turns
    if not turns or not turns[-1].assigned.plan:
        return state
    assignment = turns[-1].assigned
    member = state.pool.get(assignment.agent)
    remaining = HISTORY_SHARE * BYTES * member.context if member is not None else 0.0
    *earlier, newest = state.requests
    visible = _visible_of_request(state, newest, _own_turns(newest, assignment), ())
    end = len(state.events) - len(newest.events)
    for request in reversed(earlier):
        state_then = SessionState(state.events[:end])
        shown = request.events[:1]
        for own_turns in (_own_turns(request, assignment), set[int]()):
            events = _visible_of_request(state_then, request, own_turns, request.reports)
            if _size_in_prompt(events) <= remaining:
                shown = events
                break
        end -= len(request.events)
        remaining -= _size_in_prompt(shown)
        visible = [*shown, *visible]
    openings = [event for event in state.events if isinstance(event, Opened)]
    return SessionState((*openings, *visible))


def _size_in_prompt(events: Iterable[Event]) -> int:
    """Estimate the bytes that events add to a prompt."""
    return sum(prompt_bytes(event) for event in events)


def tests_since(state: SessionState, turn: Turn) -> str:
    """Return the results of the tests when a step began, if others ran them since its agent's own
    turns; "" if it saw the newest run.

    Those runs are hidden from the step, and the run before its first step is out of date.
    """
    if not turn.assigned.plan:
        return ""
    request = state.before(turn.assigned).request
    run = request.tests
    if run is None or run.stale or run == request.first_tests:
        return ""
    if run.turn in _own_turns(request, turn.assigned):
        return ""
    verb = "pass" if run.ok else "FAIL"
    return f"[The tests were run since: they {verb}.]\n{run.output}"


def _visible_of_request(
    state: SessionState, request: RequestState, own: set[int], reports: Sequence[Turn]
) -> list[Event]:
    """Return the events of a request that a step is shown: the request, undos by the user, the
    turns `own` with fugu's evidence before them, and the last words of `reports`, the turns of
    others that answered.
    """
    answers: dict[int, Turn] = {}
    for turn in reports:
        for event in (turn.assigned, *turn.replies[-1:]):
            answers[id(event)] = turn
    visible: list[Event] = []
    is_before_first_turn = True
    for event in request.events:
        number = getattr(event, "turn", 0)
        if isinstance(event, Assigned):
            is_before_first_turn = False
        is_by_user = isinstance(event, Asked) or (isinstance(event, Undone) and not number)
        is_call = getattr(event, "call", None) is not None
        is_evidence = is_call and number == 0 and is_before_first_turn
        if isinstance(event, Assigned) and number in own and event.plan:
            instruction = step_instruction(state, event)
            visible.append(event.model_copy(update={"instruction": instruction}))
        elif is_by_user or number in own or (is_evidence and own):
            visible.append(event)
        elif id(event) in answers and isinstance(event, Assigned):
            visible.append(event.model_copy(update={"instruction": ""}))
        elif id(event) in answers and isinstance(event, Replied):
            text = clip_middle(final_text(answers[id(event)]), OUTPUT_LIMIT)
            visible.append(event.model_copy(update={"text": text, "thinking": (), "calls": ()}))
    return visible


def _own_turns(request: RequestState, assignment: Assigned) -> set[int]:
    """Return the numbers of this turn and of its agent's other turns in a request that said
    something. Turns that a client of `fugu serve` sent along count as the agent's own.
    """
    own = set()
    for turn in request.turns:
        is_of_agent = turn.assigned.agent == assignment.agent or turn.assigned.by == CLIENT
        if turn.assigned is assignment or (turn.replies and is_of_agent):
            own.add(turn.number)
    return own


def step_instruction(state: SessionState, assignment: Assigned) -> str:
    """Return the whole instruction of a step: remembered results, the outputs that it may read,
    changes to choose among, its subtask and its situation.
    """
    outputs = step_outputs(state, assignment)
    if outputs:
        outputs += "\n\n"
    return prompts.fill(
        prompts.load("conductor/step"),
        memory=_memory(state.events, assignment),
        outputs=outputs + _changes_to_choose_among(state, assignment),
        name=step_name(state.request.workflows, assignment.plan, assignment.step),
        subtask=assignment.instruction,
        situation=_situation(state, assignment),
    )


def step_outputs(state: SessionState, assignment: Assigned) -> str:
    """Return the outputs that a step may read, "" if there are none."""
    merges = _merges_before(state.request, assignment)
    visible = _visible_outputs(state, assignment)
    outputs = [turn_output(name, turn, merges) for name, turn in visible]
    if not outputs:
        return ""
    return prompts.fill(prompts.load("conductor/outputs"), outputs="\n".join(outputs))


def _situation(state: SessionState, assignment: Assigned) -> str:
    """Return what the agent of a step has to know besides its part: whether it works in a copy, and
    the results of earlier tries.
    """
    turns = state.request.turns
    earlier = [turn for turn in turns if turn.number < assignment.turn]
    own_turns = [turn for turn in turns if turn.assigned.agent == assignment.agent]
    sentences = []
    if assignment.in_copy:
        # a request that is done in turns reads no plan
        from fugu_cli.coordinators.conductor.plan_steps import shares_job

        workflow = _workflow(state, assignment)
        is_same_job = workflow is not None and shares_job(workflow.planned.steps, assignment.step)
        name = "copy_same_job" if is_same_job else "copy"
        sentences.append(prompts.load(f"conductor/{name}"))
    elif any(turn in earlier and turn.assigned.in_copy for turn in own_turns):
        sentences.append("You work in the repository itself, not in a copy.")
    merges = _merges_before(state.request, assignment)
    sentences.append(_divided_part(state.request, assignment, merges))
    for turn in turns:
        if turn in own_turns:
            sentences.append(_chosen_instead(state, turn, merges))
        is_same_plan = turn.assigned.plan == assignment.plan
        if turn in earlier and is_same_plan and turn.assigned.step == assignment.step:
            sentences.append(_earlier_try(state, turn))
    if _answers_for_others(state, assignment, merges):
        sentences.append(prompts.load("conductor/whole"))
    return "".join(f"\n{sentence}" for sentence in sentences if sentence)


def _answers_for_others(
    state: SessionState, assignment: Assigned, merges: Sequence[Merged]
) -> bool:
    """Return whether the user gets this step's report, and the step reads of changes by other
    steps.
    """
    workflow = _workflow(state, assignment)
    if workflow is None or not _is_last_to_write(
        state.request.workflows, workflow, assignment.step
    ):
        return False
    read = [turn for _, turn in _visible_outputs(state, assignment)]
    return any(turn.changes and not is_left_out(turn, merges) for turn in read)


def _is_last_to_write(workflows: Sequence[Workflow], workflow: Workflow, step: int) -> bool:
    """Return whether only steps that judge follow the step, in its plan and in those around it."""
    if not all(later.accepts for later in workflow.planned.steps[step + 1 :]):
        return False
    within = workflow.planned.within
    if within is None:
        return True
    outer = next(outer for outer in workflows if outer.number == within.plan)
    return _is_last_to_write(workflows, outer, within.step)


def _divided_part(request: RequestState, assignment: Assigned, merges: Sequence[Merged]) -> str:
    """Return the results of the steps of a part that was divided and is now done by one agent."""
    workflows = request.workflows
    part = (assignment.plan, assignment.step)
    inside = [workflow for workflow in workflows if workflow.planned.within == part]
    if not inside:
        return ""
    workflow = inside[-1]
    reports = []
    for index in range(len(workflow.planned.steps)):
        name = step_name(workflows, workflow.number, index)
        turn = visible_output(workflows, workflow.number, index)
        if turn is not None:
            reports.append(turn_output(name, turn, merges))
        else:
            instruction = as_data(workflow.planned.steps[index].instruction)
            reports.append(f"{name}: {instruction}\n{what_became_of(workflow, index)}")
        reports += _changes_by_agent(request, workflow.number, index, merges)
    return prompts.fill(prompts.load("conductor/divided"), reports="\n".join(reports))


def _changes_by_agent(
    request: RequestState, plan: int, step: int, merges: Sequence[Merged]
) -> list[str]:
    """Return a sentence on the files that each agent changed in a step, or in the steps into which
    it was divided.
    """
    paths: dict[str, set[str]] = {}
    for turn in request.turns:
        is_kept = turn.changes and not is_left_out(turn, merges)
        if is_kept and request.is_of_step(turn, plan, step):
            paths.setdefault(turn.assigned.agent, set()).update(c.path for c in turn.changes)
    return [f"`{agent}` changed {', '.join(sorted(paths[agent]))}." for agent in paths]


def _chosen_instead(state: SessionState, turn: Turn, merges: Sequence[Merged]) -> str:
    """Return a sentence if the turn's change was not taken over, or another was instead; else ""."""
    closed = [merge for merge in merges if turn.number in merge.turns and not merge.open]
    if not closed or closed[-1].again or not is_left_out(turn, merges):
        return ""
    workflows = state.request.workflows
    own_name = step_name(workflows, turn.assigned.plan, turn.assigned.step)
    chosen = state.request.turn(closed[-1].chosen)
    if chosen is None:
        return f"What you changed in {own_name} was not taken over."
    name = step_name(workflows, chosen.assigned.plan, chosen.assigned.step)
    return f"What you changed in {own_name} was not taken over: the change of {name} was."


def _earlier_try(state: SessionState, turn: Turn) -> str:
    """Return a note on the earlier turns of a step: their agents, what they changed, and why they
    stopped.
    """
    agent = f"`{turn.assigned.agent}`"
    for merge in state.request.merges:
        if merge.again and turn.number in merge.turns:
            return (
                f"This part was done by {agent} in a copy, and that work was thrown away: "
                f"{as_data(merge.reason)}. What that step wrote is in the repository now: do your "
                f"part on top of it."
            )
    if not (turn.failed or turn.interrupted or turn.unable is not None):
        return ""
    paths = ", ".join(sorted({change.path for change in turn.changes}))
    if turn.assigned.in_copy:
        left = " in a copy that is gone"
    else:
        left = f" and changed {paths}, which stands" if paths else " and changed nothing"
    if turn.failed:
        stopped = f"then it failed: {as_data(turn.failed.cause)}"
    elif turn.interrupted:
        stopped = "then it was interrupted"
    else:
        stopped = f"then it said that it cannot do this: {as_data((turn.unable or '').rstrip('.'))}"
    return f"{agent} began this part{left}; {stopped}."


def what_became_of(workflow: Workflow, index: int) -> str:
    """Return why a step has no report. It names no agent, because the papers' form has only
    numbers, and quotes no message of a provider, which may name one.
    """
    tries = [turn for turn in workflow.tries(index) if not turn.interrupted]
    reasons = dict.fromkeys(_what_stopped(turn) for turn in tries)
    return f"It was not done: {'; '.join(reasons)}." if reasons else "It was not done."


def _what_stopped(turn: Turn) -> str:
    if turn.failed is not None:
        if turn.failed.kind == "invalid":
            return "an agent or its server could not take it as it was"
        return f"an agent failed ({turn.failed.kind})"
    if turn.unable is not None:
        return f"an agent said that it cannot do this: {as_data(turn.unable.rstrip('.'))}"
    if turn.replies and turn.replies[-1].stop == "refusal":
        return "an agent refused"
    return "an agent came to no last word"


def as_data(text: str) -> str:
    """Return the text for a frame: tags that would end the frame are escaped, and the middle of a
    long text is left out.
    """
    return clip_middle(escape_frames(text), OUTPUT_LIMIT)


def escape_frames(text: str) -> str:
    """Return the text with the tags of frames escaped."""
    return _FRAMES.sub(r"&lt;\1", text)


def clip_middle(text: str, limit: int) -> str:
    """Return the beginning and the end of the text, at most `limit` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half} characters left out ...]\n{text[-half:]}"


def turn_output(name: str, turn: Turn, merges: Sequence[Merged], *, by_name: bool = True) -> str:
    """Return a turn's output as data, with its agent unless `by_name` is False, and with a note if
    its change is not in the repository.
    """
    attributes = f' by="{turn.assigned.agent}"' if by_name else ""
    if is_left_out(turn, merges):
        attributes += ' change="not in the repository"'
    return f'<output of="{name}"{attributes}>\n{as_data(final_text(turn))}\n</output>'


def _visible_outputs(state: SessionState, assignment: Assigned) -> list[tuple[str, Turn]]:
    """Return the outputs that are open to a step, by their names."""
    workflows = state.request.workflows
    workflow = _workflow(state, assignment)
    sees = assignment.sees if isinstance(assignment.sees, tuple) else ()
    if workflow is None:
        return []
    from fugu_cli.coordinators.conductor.outputs import readable_outputs  # of workflows alone

    outputs = readable_outputs(workflows, workflow, assignment.step)
    return [(name, turn) for name, turn in outputs.items() if turn.number in sees]


def _workflow(state: SessionState, assignment: Assigned) -> Workflow | None:
    workflows = state.request.workflows
    return next((workflow for workflow in workflows if workflow.number == assignment.plan), None)


def _memory(events: Sequence[Event], assignment: Assigned) -> str:
    """Return the remembered results that the step is offered, "" for none. `remembers` are lines of
    the whole log, so `events` must begin with its first.
    """
    entries = []
    for line in assignment.remembers:
        ran = events[line]
        assert isinstance(ran, ToolRan)
        output = clip_middle(ran.output, MEMORY_ENTRY_LIMIT)
        entries.append(
            f'<known call="{ran.call.tool} '
            f'{as_data(ran.call.arguments)}">\n{as_data(output)}\n</known>'
        )
    if not entries:
        return ""
    return prompts.fill(prompts.load("conductor/memory"), entries="\n".join(entries)) + "\n\n"


def _changes_to_choose_among(state: SessionState, assignment: Assigned) -> str:
    """Return the changes that a step chooses among, each with the results of its tests."""
    choice = _open_choice(state.request, assignment)
    if choice is None:
        return ""
    turns = {turn.number: turn for turn in state.request.turns}
    changes = []
    for number, diff in choice.diffs:
        step = turns[number].assigned
        name = step_name(state.request.workflows, step.plan, step.step)
        changes.append(
            f'<change of="{name}" by="{step.agent}">\n{_tests_of_copy(state, number)}\n'
            f"{as_data(diff)}\n</change>"
        )
    text = prompts.fill(prompts.load("conductor/merge"), candidates="\n".join(changes))
    return f"{text}\n\n"


def _tests_of_copy(state: SessionState, number: int) -> str:
    """Return the results of the tests in the copy in which a turn worked."""
    run = state.of_turn(number).request.tests
    if run is None or run.stale:
        return "The tests were not run in this copy."
    if run.unable:
        return f"{run.unable[0].upper()}{run.unable[1:]}."
    if run.empty:
        return "There are no tests."
    if run.ok:
        return "All tests pass in this copy."
    failing = ", ".join(run.report.failing[:MOST_FAILING]) if run.report is not None else ""
    count = "Tests FAIL"
    if run.failed is not None:
        count = "1 test FAILS" if run.failed == 1 else f"{run.failed} tests FAIL"
    return f"{count} in this copy{f': {failing}' if failing else ''}."


MOST_FAILING = 10
"""Ids of failing tests that are named for one change."""


def _open_choice(request: RequestState, assignment: Assigned) -> Merged | None:
    """Return the open merge among whose changes the step chooses, None if there is none. The step
    reads the outputs of all turns whose changes it chooses among.
    """
    if not isinstance(assignment.sees, tuple):
        return None
    newest = {merge.turns: merge for merge in _merges_before(request, assignment)}
    for merge in reversed(newest.values()):
        sees_all = all(turn in assignment.sees for turn, _ in merge.diffs)
        if merge.open and merge.plan == assignment.plan and sees_all:
            return merge
    return None


def _merges_before(request: RequestState, assignment: Assigned) -> tuple[Merged, ...]:
    """Return the merges of the request before a turn began."""
    events = request.events
    start = len(events) - 1
    while not _begins_turn(events[start], assignment.turn):
        start -= 1
    return tuple(event for event in events[:start] if isinstance(event, Merged))


def _begins_turn(event: Event, number: int) -> bool:
    return isinstance(event, Assigned) and event.turn == number


def step_manifest(state: SessionState, number: int) -> StepManifest:
    """Return what the step of turn `number` of the newest request was shown, and which turns it was
    not.
    """
    turns = {turn.number: turn for turn in state.request.turns}
    assignment = turns[number].assigned
    earlier = [turn for turn in turns.values() if turn.number < number]
    own = [
        turn.number for turn in earlier if turn.assigned.agent == assignment.agent and turn.replies
    ]
    readable = assignment.sees if isinstance(assignment.sees, tuple) else ()
    outputs = [(turns[turn].assigned.step, turn) for turn in readable if turn in turns]
    visible = {*own, *readable}
    choice = _open_choice(state.request, assignment)
    candidates = [turn for turn, _ in choice.diffs] if choice is not None else []
    return StepManifest(
        own=tuple(own),
        outputs=tuple(outputs),
        memory=assignment.remembers,
        candidates=tuple(candidates),
        hidden=tuple(turn.number for turn in earlier if turn.number not in visible),
    )


MEMORY_ENTRIES = 12
"""Entries offered to one step, the newest first, and their characters in all."""
MEMORY_LIMIT = 12_000
ContentKey = Callable[[Call], Awaitable[str]]
"""Returns the key of the content that a call would depend on now; "" if it is unknown."""


def known_results(events: Sequence[Event], plan: int) -> list[int]:
    """Return the log lines of results from before plan `plan` of the newest request, the newest
    first, each call with the same content once.

    Results of calls that changed something, failed, or have no content key are left out. So are
    those of fugu's calls before the request's first turn, which every step is shown anyway.
    """
    end = _line_of_outermost_plan(events, plan)
    request_line = _line_of_newest_request(events)
    first_turn = request_line
    while first_turn < end and not isinstance(events[first_turn], Assigned):
        first_turn += 1
    lines: dict[tuple[tuple[str, str], str], int] = {}
    for line in range(end - 1, -1, -1):
        event = events[line]
        if not isinstance(event, ToolRan) or request_line < line < first_turn:
            continue
        is_valid = bool(event.state) and event.ok and not event.changes
        if is_valid and facts_of(event.call.tool).remembered:
            lines.setdefault((call_key(event.call), event.state), line)
    return list(lines.values())


def _line_of_newest_request(events: Sequence[Event]) -> int:
    line = len(events) - 1
    while not isinstance(events[line], Asked):
        line -= 1
    return line


def call_key(call: Call) -> tuple[str, str]:
    """Return a key that is the same for calls that ask the same, however their arguments are
    written.
    """
    try:
        return call.tool, json.dumps(parse_json(call.arguments), sort_keys=True)
    except ValueError:
        return call.tool, call.arguments


def _line_of_outermost_plan(events: Sequence[Event], plan: int) -> int:
    """Return the line of plan `plan` of the newest request, or of the outermost plan around it."""
    lines: list[int] = []
    plans: list[Planned] = []
    for line in range(_line_of_newest_request(events), len(events)):
        event = events[line]
        if isinstance(event, Planned):
            lines.append(line)
            plans.append(event)
    while (outer := plans[plan - 1].within) is not None:
        plan = outer.plan
    return lines[plan - 1]


async def valid_results(
    session: SessionState, plan: int, content_key: ContentKey
) -> tuple[int, ...]:
    """Return the log lines of remembered results that still hold, because the files they depend on
    are unchanged. The oldest come first.
    """
    chosen: list[int] = []
    remaining = MEMORY_LIMIT
    keys_now: dict[tuple[str, str], str] = {}
    for line in known_results(session.events, plan):
        ran = session.events[line]
        assert isinstance(ran, ToolRan)
        size = min(len(ran.output), MEMORY_ENTRY_LIMIT)
        if len(chosen) == MEMORY_ENTRIES or size > remaining:
            break
        key = call_key(ran.call)
        if key not in keys_now:
            keys_now[key] = await content_key(ran.call)
        if ran.state == keys_now[key]:
            chosen.append(line)
            remaining -= size
    return tuple(sorted(chosen))


def caller_of(events: Sequence[Event], line: int) -> str:
    """Return the agent that made the call of a remembered result, "fugu" if fugu made it."""
    ran = events[line]
    assert isinstance(ran, ToolRan)
    for event in reversed(events[:line]):
        if isinstance(event, Asked):
            break
        if isinstance(event, Assigned) and event.turn == ran.turn and not _by_fugu(events, line):
            return event.agent
    return "fugu"


def _by_fugu(events: Sequence[Event], line: int) -> bool:
    ran = events[line]
    assert isinstance(ran, ToolRan)
    permissions = (event for event in reversed(events[:line]) if isinstance(event, Permitted))
    return next(
        permission.by == EVIDENCE
        for permission in permissions
        if permission.turn == ran.turn and permission.call == ran.call
    )


@dataclass(frozen=True)
class MemorySavings:
    """The effect of the memory on a step.

    Entries offered, entries that were called for again all the same, and tokens saved: those of the
    model calls that were not needed, less those of the entries in the prompt (four characters a
    token).
    """

    offered: int = 0
    repeated: int = 0
    tokens: int = 0

    @property
    def calls(self) -> int:
        return self.offered - self.repeated


def memory_savings(events: Sequence[Event], turn: Turn) -> MemorySavings:
    """Estimate the savings from what the same calls took when they were made: their share of the
    replies that made them.
    """
    lines = turn.assigned.remembers
    made = {call_key(run.permitted.call) for run in turn.runs if not run.evidence}
    repeated = tokens = 0
    for line in lines:
        ran = events[line]
        assert isinstance(ran, ToolRan)
        tokens -= min(len(ran.output), 2000) // 4
        if call_key(ran.call) in made:
            repeated += 1
        else:
            tokens += _spent_on(events, line)
    return MemorySavings(len(lines), repeated, tokens)


def _spent_on(events: Sequence[Event], line: int) -> int:
    """Tokens of the model call that asked for a tool, shared among the calls of that reply."""
    ran = events[line]
    assert isinstance(ran, ToolRan)
    for event in reversed(events[:line]):
        if isinstance(event, Assigned | Asked) and getattr(event, "turn", 0) in (0, ran.turn):
            break
        if isinstance(event, Replied) and any(call.id == ran.call.id for call in event.calls):
            used: Usage = event.usage
            return (used.input + used.output) // len(event.calls)
    return 0
