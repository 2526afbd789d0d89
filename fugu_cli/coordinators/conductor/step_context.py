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
from collections.abc import Awaitable, Callable, Sequence
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
    kept = _visible_of_request(state, newest, _own_turns(newest, assignment), ())
    end = len(state.events) - len(newest.events)
    for request in reversed(earlier):
        own = _own_turns(request, assignment)
        forms = (
            _visible_of_request(
                SessionState(state.events[:end]),
                request,
                shown_turns,
                request.reports,
            )
            for shown_turns in (own, set[int]())
        )
        shown = next(
            (form for form in forms if sum(map(prompt_bytes, form)) <= remaining),
            request.events[:1],
        )
        end -= len(request.events)
        remaining -= sum(map(prompt_bytes, shown))
        kept = [*shown, *kept]
    openings = [event for event in state.events if isinstance(event, Opened)]
    return SessionState((*openings, *kept))


def tests_since(state: SessionState, turn: Turn) -> str:
    """Return the state of the tests when a step began, if others ran them since its own turns; ""
    if it saw the newest run.

    Those runs are hidden from the step, and the run before its first step shows an older state.
    """
    if not turn.assigned.plan:
        return ""
    before = state.before(turn.assigned)
    run, own = before.request.tests, _own_turns(before.request, turn.assigned)
    if run is None or run.stale or run.turn in own or run == before.request.first_tests:
        return ""
    return f"[The tests were run again since: they {'pass' if run.ok else 'FAIL'}.]\n{run.output}"


def _visible_of_request(
    state: SessionState, request: RequestState, own: set[int], reports: Sequence[Turn]
) -> list[Event]:
    """Return a request's facts that are shown: the request, what the user took back, the agent's
    own turns with fugu's evidence before them, and the last words of the turns that answered, where
    these are another's.
    """
    answers = {id(event): turn for turn in reports for event in (turn.assigned, *turn.replies[-1:])}
    first_turn = next(
        (i for i, event in enumerate(request.events) if isinstance(event, Assigned)),
        len(request.events),
    )
    kept: list[Event] = []
    for index, event in enumerate(request.events):
        number = getattr(event, "turn", 0)
        of_the_user = isinstance(event, Asked) or (isinstance(event, Undone) and not number)
        evidence = (
            own and number == 0 and index < first_turn and getattr(event, "call", None) is not None
        )
        if isinstance(event, Assigned) and number in own and event.plan:
            kept.append(event.model_copy(update={"instruction": step_instruction(state, event)}))
        elif of_the_user or evidence or number in own:
            kept.append(event)
        elif id(event) in answers and isinstance(event, Assigned):
            kept.append(event.model_copy(update={"instruction": ""}))
        elif id(event) in answers and isinstance(event, Replied):
            text = clip_middle(final_text(answers[id(event)]), OUTPUT_LIMIT)
            kept.append(event.model_copy(update={"text": text, "thinking": (), "calls": ()}))
    return kept


def _own_turns(request: RequestState, assignment: Assigned) -> set[int]:
    """Numbers of the agent's turns in a request that said something, and of
    this very turn. What the client of an endpoint brought along belongs to its request, whoever
    said it."""
    turns = request.turns
    own = {
        turn.number
        for turn in turns
        if turn.replies and (turn.assigned.agent == assignment.agent or turn.assigned.by == CLIENT)
    }
    return own | {turn.number for turn in turns if turn.assigned is assignment}


def step_instruction(state: SessionState, assignment: Assigned) -> str:
    """Return the instruction of a step: memory, outputs that its access list opens, changes to
    choose among, its part.
    """
    shown = step_outputs(state, assignment)
    shown = f"{shown}\n\n" if shown else ""
    subtask = assignment.instruction
    return prompts.fill(
        prompts.load("conductor/step"),
        memory=_memory(state.events, assignment),
        outputs=shown + _candidates(state, assignment),
        name=step_name(state.request.workflows, assignment.plan, assignment.step),
        subtask=subtask,
        situation=_situation(state, assignment),
    )


def step_outputs(state: SessionState, assignment: Assigned) -> str:
    """Return the outputs that a step may read, "" if there are none."""
    merges = _merges_before(state.events, assignment)
    outputs = [
        turn_output(name, turn, merges) for name, turn in _visible_outputs(state, assignment)
    ]
    if not outputs:
        return ""
    return prompts.fill(prompts.load("conductor/outputs"), outputs="\n".join(outputs))


def _situation(state: SessionState, assignment: Assigned) -> str:
    """Return what the agent of a step has to know besides its part: whether it works in a copy, and
    the results of earlier tries.
    """
    sentences = []
    if assignment.in_copy:
        # a request that is done in turns reads no plan
        from fugu_cli.coordinators.conductor.plan_steps import shares_job

        flow = _workflow(state, assignment)
        is_choice = flow is not None and shares_job(flow.planned.steps, assignment.step)
        sentences.append(prompts.load("conductor/copy_same_job" if is_choice else "conductor/copy"))
    elif any(
        turn.assigned.agent == assignment.agent and turn.assigned.in_copy
        for turn in state.request.turns
        if turn.number < assignment.turn
    ):
        sentences.append("You work in the repository itself, not in a copy.")
    own_step = (assignment.plan, assignment.step)
    merges = _merges_before(state.events, assignment)
    sentences.append(_divided_part(state.request, assignment, merges))
    for turn in state.request.turns:
        if turn.assigned.agent == assignment.agent:
            sentences.append(_chosen_instead(state, turn, merges))
        is_same_step = (turn.assigned.plan, turn.assigned.step) == own_step
        if is_same_step and turn.number < assignment.turn:
            sentences.append(_earlier_try(state, turn))
    if _answers_for_others(state, assignment, merges):
        sentences.append(prompts.load("conductor/whole"))
    return "".join(f"\n{sentence}" for sentence in sentences if sentence)


def _answers_for_others(
    state: SessionState, assignment: Assigned, merges: Sequence[Merged]
) -> bool:
    """Return whether the user gets this step's report and it reads of changes that other steps made."""
    flow = _workflow(state, assignment)
    if flow is None or not _is_last_to_write(state.request.workflows, flow, assignment.step):
        return False
    read = [turn for _, turn in _visible_outputs(state, assignment)]
    return any(turn.changes and not is_left_out(turn, merges) for turn in read)


def _is_last_to_write(workflows: Sequence[Workflow], flow: Workflow, step: int) -> bool:
    """Return whether only steps that judge follow the step, in its plan and in those around it."""
    if not all(later.accepts for later in flow.planned.steps[step + 1 :]):
        return False
    within = flow.planned.within
    if within is None:
        return True
    outer = next(outer for outer in workflows if outer.number == within.plan)
    return _is_last_to_write(workflows, outer, within.step)


def _divided_part(request: RequestState, assignment: Assigned, merges: Sequence[Merged]) -> str:
    """Return the results of the steps of a part that was divided and is now done by one agent."""
    workflows = request.workflows
    part = (assignment.plan, assignment.step)
    inside = [flow for flow in workflows if flow.planned.within == part]
    if not inside:
        return ""
    flow = inside[-1]
    reports = []
    for index in range(len(flow.planned.steps)):
        name = step_name(workflows, flow.number, index)
        turn = visible_output(workflows, flow.number, index)
        if turn is not None:
            reports.append(turn_output(name, turn, merges))
        else:
            instruction = as_data(flow.planned.steps[index].instruction)
            reports.append(f"{name}: {instruction}\n{what_became_of(flow, index)}")
        reports += _changes_by_agent(request, (flow.number, index), merges)
    return prompts.fill(prompts.load("conductor/divided"), reports="\n".join(reports))


def _changes_by_agent(
    request: RequestState, step: tuple[int, int], merges: Sequence[Merged]
) -> list[str]:
    """Return who changed which files in a step, or in the steps into which it was divided."""
    paths: dict[str, set[str]] = {}
    for turn in request.turns:
        if turn.changes and not is_left_out(turn, merges) and request.is_of_step(turn, step):
            paths.setdefault(turn.assigned.agent, set()).update(c.path for c in turn.changes)
    return [f"`{agent}` changed {', '.join(sorted(paths[agent]))}." for agent in paths]


def _chosen_instead(state: SessionState, turn: Turn, merges: Sequence[Merged]) -> str:
    """Return a sentence that another change was taken over instead of the turn's, "" if that is not
    so.
    """
    closed = [merge for merge in merges if turn.number in merge.turns and not merge.open]
    if not closed or closed[-1].again or not is_left_out(turn, merges):
        return ""
    workflows, made = state.request.workflows, turn.assigned
    own_name = step_name(workflows, made.plan, made.step)
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


def what_became_of(flow: Workflow, index: int) -> str:
    """Return what came of a step without a report. No agent is named, for the papers' form has only
    numbers, and no message of a provider, which may name it.
    """
    tries = [turn for turn in flow.tries(index) if not turn.interrupted]
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
    """Somebody's words as data: what would end the frame is made harmless, the middle of a long
    text is left out.
    """
    return clip_middle(escape_frames(text), OUTPUT_LIMIT)


def escape_frames(text: str) -> str:
    """Somebody's words without what would end a frame or begin another."""
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
    flow = _workflow(state, assignment)
    sees = assignment.sees if isinstance(assignment.sees, tuple) else ()
    if flow is None:
        return []
    from fugu_cli.coordinators.conductor.outputs import readable_outputs  # of workflows alone

    outputs = readable_outputs(workflows, flow, assignment.step)
    return [(name, turn) for name, turn in outputs.items() if turn.number in sees]


def _workflow(state: SessionState, assignment: Assigned) -> Workflow | None:
    workflows = state.request.workflows
    return next((flow for flow in workflows if flow.number == assignment.plan), None)


def _memory(events: Sequence[Event], assignment: Assigned) -> str:
    """Entries the memory offers. `remembers` are lines of the whole log, so `events` must begin
    with its first.
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


def _candidates(state: SessionState, assignment: Assigned) -> str:
    """Return the changes that a step chooses among, each with how its tests went."""
    choice = _open_choice(state.events, assignment)
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
    """Return how the tests went in the copy in which a turn worked."""
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


def _open_choice(events: Sequence[Event], assignment: Assigned) -> Merged | None:
    """Return the choice this step was given: it reads the outputs of all whose diffs wait."""
    newest = {merge.turns: merge for merge in _merges_before(events, assignment)}
    open_merges = [
        merge for merge in newest.values() if merge.open and merge.plan == assignment.plan
    ]
    sees = set(assignment.sees) if isinstance(assignment.sees, tuple) else set()
    return next(
        (merge for merge in reversed(open_merges) if {turn for turn, _ in merge.diffs} <= sees),
        None,
    )


def _merges_before(events: Sequence[Event], assignment: Assigned) -> tuple[Merged, ...]:
    """Return the merges of the request before a turn began."""
    start = next(
        i
        for i in range(len(events) - 1, -1, -1)
        if events[i] is assignment or _is_of_turn(events[i], assignment)
    )
    return SessionState(events[:start]).request.merges


def _is_of_turn(event: Event, assignment: Assigned) -> bool:
    return isinstance(event, Assigned) and event.turn == assignment.turn


def step_manifest(state: SessionState, number: int) -> StepManifest:
    """Return what the step of turn `number` of the newest request was shown, and which turns it was
    not.
    """
    turns = state.request.turns
    turn = next(turn for turn in turns if turn.number == number)
    assignment = turn.assigned
    before = [earlier for earlier in turns if earlier.number < number]
    by_number = {earlier.number: earlier for earlier in turns}
    sees = tuple(
        (by_number[n].assigned.step, n)
        for n in (assignment.sees if isinstance(assignment.sees, tuple) else ())
        if n in by_number
    )
    own = tuple(
        earlier.number
        for earlier in before
        if earlier.assigned.agent == assignment.agent and earlier.replies
    )
    open_to = {*own, *(n for _, n in sees)}
    choice = _open_choice(state.events, assignment)
    return StepManifest(
        own=own,
        outputs=sees,
        memory=assignment.remembers,
        candidates=tuple(n for n, _ in choice.diffs) if choice else (),
        hidden=tuple(earlier.number for earlier in before if earlier.number not in open_to),
    )


MEMORY_ENTRIES = 12
"""Entries offered to one step, the newest first, and their characters in all."""
MEMORY_LIMIT = 12_000
ContentState = Callable[[Call], Awaitable[str]]
"""The content a call would depend on now; "" where nobody can tell."""


def known_results(events: Sequence[Event], plan: int) -> list[int]:
    """Return the log lines of results that workflows (and turns) before plan `plan` of the newest
    request found, the newest first, each call with the same content once.

    Results of calls that changed something, failed or do not say what they depended on are left
    out. So is what every step is shown anyway: what ran for the request before its first turn.
    """
    bound = _bound(events, plan)
    start = next(line for line in range(len(events) - 1, -1, -1) if isinstance(events[line], Asked))
    begun = next(
        (line for line in range(start, bound) if isinstance(events[line], Assigned)), bound
    )
    lines: dict[tuple[tuple[str, str], str], int] = {}
    for line in range(bound - 1, -1, -1):
        event = events[line]
        if isinstance(event, ToolRan) and _usable(event) and not start < line < begun:
            lines.setdefault((call_key(event.call), event.state), line)
    return list(lines.values())


def _usable(event: ToolRan) -> bool:
    is_usable = bool(event.state) and event.ok and not event.changes
    return is_usable and facts_of(event.call.tool).remembered


def call_key(call: Call) -> tuple[str, str]:
    """Return a key that is the same for calls that ask the same, however their arguments are
    written.
    """
    try:
        return call.tool, json.dumps(parse_json(call.arguments), sort_keys=True)
    except ValueError:
        return call.tool, call.arguments


def _bound(events: Sequence[Event], plan: int) -> int:
    """Return the line of the plan, or of the outermost one around it. Workflows before it came
    earlier.
    """
    lines = [line for line in range(len(events)) if isinstance(events[line], Planned)]
    start = next(line for line in range(len(events) - 1, -1, -1) if isinstance(events[line], Asked))
    own = [line for line in lines if line > start]
    within = [event.within for line in own if isinstance(event := events[line], Planned)]
    while (outer := within[plan - 1]) is not None:
        plan = outer.plan
    return own[plan - 1]


async def valid_results(
    session: SessionState, plan: int, agent: str, state: ContentState
) -> tuple[int, ...]:
    """Return the log lines of remembered results that still hold, because the files they depend on
    are unchanged. The oldest come first.
    """
    chosen: list[int] = []
    remaining = MEMORY_LIMIT
    states: dict[tuple[str, str], str] = {}
    for line in known_results(session.events, plan):
        ran = session.events[line]
        assert isinstance(ran, ToolRan)
        size = min(len(ran.output), 2000)
        if len(chosen) == MEMORY_ENTRIES or size > remaining:
            break
        key = call_key(ran.call)
        if key not in states:
            states[key] = await state(ran.call)
        if ran.state == states[key]:
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
