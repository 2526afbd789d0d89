"""`fugu trace`: a session as plain text, one row a decision, with its workflows, or as JSON.
Pure.
"""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict

from fugu_cli.app import event_text
from fugu_cli.app.event_text import describe_call
from fugu_cli.app.patches import patch_size
from fugu_cli.coordinators.conductor import step_context
from fugu_cli.coordinators.conductor.step_context import step_manifest
from fugu_cli.formatting import (
    aligned_rows,
    compact_number,
    duration,
    first_line,
    known_cost,
    money,
    plural,
    probability,
    sanitize,
    shorten,
)
from fugu_cli.session import costs
from fugu_cli.session.call_arguments import arguments_of
from fugu_cli.session.costs import orchestration_usage
from fugu_cli.session.decision_scores import decision_scores
from fugu_cli.session.events import (
    Assigned,
    Event,
    Member,
    Opened,
    Planned,
    Recorded,
    ToolRan,
)
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn
from fugu_cli.session.workflows import is_done
from fugu_cli.ui import workflow_text
from fugu_cli.ui.estimates import cascade_text, estimate_text, kind_text
from fugu_cli.ui.json_output import routing_object
from fugu_cli.ui.trace_rows import (
    DecisionRow,
    ScoreCell,
    TracedRequest,
    traced_requests,
    turn_result,
)


def workflow_lines(state: SessionState, rows: Sequence[DecisionRow], width: int) -> list[str]:
    """Return the workflows of the newest request.

    Each with its planner, its steps and their edges, what each step was shown and not shown, its
    cost and outcome, and the cost of planning.
    """
    plans = state.request.plans
    if not plans:
        return []
    lines: list[str] = []
    for number, plan in enumerate(plans, start=1):
        lines.append(
            shorten(
                f"plan {number}: {workflow_text.plan_title(plan)}, by {plan.agent} in "
                f"{duration(plan.seconds)}",
                width,
            )
        )
        if plan.fault:
            lines += _indented(f"no workflow: {first_line(plan.fault, 300)}", width)
        for index, step in enumerate(plan.steps):
            summary = (
                f"reads {workflow_text.step_access(step)}: {first_line(step.instruction, 200)}"
            )
            lines.append(
                shorten(f"  step {index + 1}  {workflow_text.step_agent(step)}  {summary}", width)
            )
            lines += _step_turns(state, rows, number, index, width)
    for merge in state.request.merges:
        lines.append(shorten("  " + workflow_text.merge_text(merge), width))
        lines += [
            line
            for turn, diff in merge.diffs
            for line in _indented(f"turn {turn}: {_count_changed(diff)}", width)
        ]
    return [*lines, *_indented(_planning_totals(state), width, 2)]


def _step_turns(
    state: SessionState, rows: Sequence[DecisionRow], plan_number: int, step: int, width: int
) -> list[str]:
    """Return the turns of a step, or of the workflow that the step became. Plan and step are given
    by number.
    """
    key = (plan_number, step)
    own = [row for row in rows if (row.turn.assigned.plan, row.turn.assigned.step) == key]
    lines = [line for row in own for line in _indented(_step_turn(state, row), width)]
    inside = [
        number for number, plan in enumerate(state.request.plans, start=1) if plan.within == key
    ]
    if inside:
        return [
            f"    {'first tried as' if own else 'a workflow of its own:'} plan {inside[-1]}",
            *lines,
        ]
    return lines or ["    not done"]


def _indented(text: str, width: int, indent: int = 4) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2)
    )


def _step_turn(session: SessionState, row: DecisionRow) -> str:
    """Return a line like `turn 3 (a): saw the request, its own turn 1, the output of step 1 (turn
    2); not turn 4. 90 in, 9 out, $0`.
    """
    turn = row.turn
    manifest = step_manifest(session, turn.number)
    parts = ["the request"]
    parts += [f"its own turn {number}" for number in manifest.own]
    parts += [
        f"the output of {_step(session, step, number, turn)}" for step, number in manifest.outputs
    ]
    if manifest.candidates:
        parts.append(f"the changes of turns {', '.join(map(str, manifest.candidates))}")
    savings = step_context.memory_savings(session.events, turn)
    if savings.offered:
        remembered = _describe_remembered(session.events, manifest.memory)
        parts.append(f"{plural(savings.offered, 'call')} remembered ({remembered})")
    hidden = f"; not {_turns(manifest.hidden)}" if manifest.hidden else ""
    saved = f"; {_describe_savings(savings)}" if savings.offered else ""
    spent = (
        f"{compact_number(row.usage.input)} in, {compact_number(row.usage.output)} out, {row.paid}"
    )
    worktree_note = ", in a worktree" if turn.assigned.worktree else ""
    state = "" if is_done(turn) else f"; {_describe_state(session, turn)}"
    return (
        f"turn {turn.number} ({turn.assigned.agent}{worktree_note}): saw {', '.join(parts)}{hidden}. "
        f"{spent}{saved}{state}"
    )


def _describe_state(state: SessionState, turn: Turn) -> str:
    """Return the state of a turn that left no result. The turns that began together last may still
    be running.
    """
    if turn.failed or turn.interrupted:
        return "failed" if turn.failed else "cut"
    begun = [position for position, event in enumerate(state.events) if isinstance(event, Assigned)]
    together = [
        position
        for index, position in enumerate(begun)
        if position - begun[-1] == index + 1 - len(begun)
    ]
    newest = any(state.events[position] is turn.assigned for position in together)
    return "not at its end" if newest and state.request.finished is None else "nothing came of it"


def _step(state: SessionState, step: int, number: int, reader: Turn) -> str:
    """Return `step 1 (turn 2)`, with the plan if it is another one."""
    plan = next(turn.assigned.plan for turn in state.request.turns if turn.number == number)
    return (
        f"step {step + 1}{f' of plan {plan}' if plan != reader.assigned.plan else ''} (turn "
        f"{number})"
    )


def _describe_remembered(events: Sequence[Event], lines: Sequence[int]) -> str:
    """Return remembered calls with their agents: `read calc.txt by a; grep broken by b`."""
    calls = []
    for line in lines:
        ran = events[line]
        assert isinstance(ran, ToolRan)
        calls.append(
            f"{first_line(describe_call(ran.call), 60)} by {step_context.caller_of(events, line)}"
        )
    return "; ".join(calls)


def _describe_savings(kept: step_context.MemorySavings) -> str:
    """Return how many calls the memory saved, and their tokens."""
    amount = (
        f"some {compact_number(kept.tokens)} tokens"
        if kept.tokens >= 0
        else f"which took {compact_number(-kept.tokens)} tokens more"
    )
    return f"saved {plural(kept.calls, 'call')}, {amount}"


def _count_changed(diff: str) -> str:
    """Return how many lines were added and removed."""
    added, removed = patch_size(diff)
    return f"+{added} -{removed} lines"


def _planning_totals(state: SessionState) -> str:
    """Return the cost of planning, and after the request the turns that its answer does not use."""
    request = state.request.events
    spent = orchestration_usage(request)
    every = sum((usage.input + usage.output for usage in costs.usage(request).values()), 0)
    plans = [event for event in request if isinstance(event, Planned)]
    cost = sum(costs.price(plan, state.pool.get(plan.agent)) for plan in plans)
    share = f", {100 * (spent.input + spent.output) / every:.0f} % of all tokens" if every else ""
    text = (
        f"planning: orchestration_input_tokens {spent.input} ({spent.cached} cached), "
        f"orchestration_output_tokens "
        f"{spent.output}, {money(cost)}{share}."
    )
    if state.request.finished is None:
        return text
    kept = _used_turns(state)
    thrown = [
        turn.number
        for turn in state.request.turns
        if turn.assigned.plan and turn.number not in kept
    ]
    left = f"; thrown away: {_turns(thrown)}" if thrown else ""
    return f"{text} kept: {_turns(sorted(kept)) if kept else 'nothing'}{left}"


def _turns(numbers: Sequence[int]) -> str:
    return f"turn{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _used_turns(state: SessionState) -> set[int]:
    """Return the turns that the result is made of: the answering turn, all turns that it read,
    directly or not, and the turns whose changes were kept.
    """
    turns = {turn.number: turn for turn in state.request.turns}
    answer = state.request.answering_turn
    waiting = [answer.number] if answer else []
    waiting += [
        turn.number for turn in turns.values() if turn.changes and not turn.assigned.worktree
    ]
    waiting += [merge.chosen for merge in state.request.merges if merge.chosen]
    not_chosen: set[int] = set()
    for merge in state.request.merges:
        not_chosen |= {*merge.turns} - {merge.chosen}
    used: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in turns and number not in used:
            used.add(number)
            sees = turns[number].assigned.sees
            if isinstance(sees, tuple):
                waiting += [turn for turn in sees if turn not in not_chosen]
    return used


def plan_objects(state: SessionState) -> list[dict[str, object]]:
    """Return the plans of the newest request, each step with its turns and what they were shown."""
    plans = []
    for number, plan in enumerate(state.request.plans, start=1):
        steps = []
        for turn in state.request.turns:
            if turn.assigned.plan == number:
                steps.append(_step_object(state, turn))
        plans.append({**workflow_text.workflow_object(plan), "plan": number, "taken": steps})
    return plans


def _step_object(state: SessionState, turn: Turn) -> dict[str, object]:
    return {
        "step": turn.assigned.step,
        "turn": turn.number,
        "agent": turn.assigned.agent,
        "came_to_something": is_done(turn),
        "shown": asdict(step_manifest(state, turn.number)),
        "saved": asdict(step_context.memory_savings(state.events, turn)),
    }


RESULT_WIDTH = 28
"""Columns the result needs at least for a table to be worth it."""


def trace_text(records: Sequence[Recorded], session: str, width: int = 100) -> str:
    """Return the whole session in lines of at most `width` columns."""
    lines = [*_head(records, session, width)]
    for request in traced_requests(records):
        lines += ["", *_request(request, width)]
        lines += workflow_lines(
            SessionState.of_records(records[: request.upto]), request.rows, width
        )
    if len(lines) == len(_head(records, session, width)):
        lines += ["", "nothing was asked in this session"]
    return "\n".join([*lines, "", _totals(records, width)])


def _head(records: Sequence[Recorded], session: str, width: int) -> list[str]:
    state = SessionState.of_records(records)
    events, opened = state.events, state.opened
    if opened is None:
        return [f"session {session}"]
    started = time.strftime("%Y-%m-%d %H:%M", time.localtime(records[0].at))
    checkpoint = f", checkpoint {opened.checkpoint[:12]}" if opened.checkpoint else ""
    pools = [event for event in events if isinstance(event, Opened)]
    lines = [
        shorten(f"session {session}  {started}  {sanitize(opened.repo)}", width),
        f"decided by {opened.coordinator}{checkpoint}, fugu {opened.version}",
    ]
    for pool in pools:
        names = [f"{member.name} ({member.slot}, {member.model})" for member in pool.pool]
        lines += wrapped_items("pool" if pool is opened else "then", names, width)
    for plugin in opened.plugins:
        commit = f", commit {plugin.commit[:12]}" if plugin.commit else ""
        version = f" {plugin.version}" if plugin.version else ""
        line = f"plugin {plugin.name}{version} ({plugin.source}{commit})"
        lines.append(shorten(sanitize(line), width))
        lines += wrapped_items("  brings", plugin.brings, width)
    return lines


def wrapped_items(label: str, items: Sequence[str], width: int) -> list[str]:
    """Return `label: a, b, c` in as many lines as it takes, indented below the first."""
    lines, line = [], f"{label}: "
    indent = " " * len(line)
    for index, item in enumerate(items):
        piece = sanitize(item) + (", " if index < len(items) - 1 else "")
        if len(line) + len(piece.rstrip()) > width and line.strip() != f"{label}:":
            lines.append(line.rstrip())
            line = indent
        line += piece
    return [*lines, line.rstrip()]


def _request(request: TracedRequest, width: int) -> list[str]:
    lines = [shorten(f"request {request.number}: {first_line(request.asked.said, 500)}", width)]
    lines += [shorten(note, width) for note in event_text.request_notes(request.asked)]
    if (before := request.before) is not None:
        lines.append(f"tests before: {event_text.test_counts_text(before.outcome, before.output)}")
    if table := _table(request.rows, width):
        for row, line in zip((None, *request.rows), table, strict=True):
            lines.append(line)
            for note in _notes(row) if row else ():
                lines += textwrap.wrap(
                    note, width, initial_indent=" " * 6, subsequent_indent=" " * 8
                )
    else:
        lines += [line for row in request.rows for line in _stacked(row, width)]
    if request.end is not None:
        why = request.end.message if request.end_line.tone == "bad" else ""
        lines.append(
            shorten(request.end_line.text + (f": {first_line(why, 300)}" if why else ""), width)
        )
    else:
        lines.append("not finished")
    return [*lines, *(shorten(event_text.undo_text(event), width) for event in request.undone)]


def _table(rows: Sequence[DecisionRow], width: int) -> list[str]:
    """Return a header and a line for each row, [] if they do not fit. A decision leaves the columns
    of agents empty that it did not weigh.
    """
    names = list(dict.fromkeys(cell.name for row in rows for cell in row.rows))
    roles = list(dict.fromkeys(cell.name for row in rows for cell in row.roles))
    header = [
        "turn",
        "role",
        "agent",
        *names,
        *roles,
        "decide",
        "time",
        "in",
        "out",
        "cost",
        "result",
    ]
    body = [
        [
            str(row.turn.number),
            "subtask" if row.turn.assigned.subtask else row.turn.assigned.role,
            row.turn.assigned.agent,
            *(_cell_text(row.rows, name) for name in names),
            *(_cell_text(row.roles, name) for name in roles),
            duration(row.turn.assigned.milliseconds.total / 1000),
            duration(row.seconds),
            compact_number(row.usage.input),
            compact_number(row.usage.output),
            row.paid,
            turn_result(row),
        ]
        for row in rows
    ]
    widths = [max(len(line[column]) for line in [header, *body]) for column in range(len(header))]
    left = width - sum(widths[:-1]) - 2 * (len(widths) - 1)
    if not rows or left < min(widths[-1], RESULT_WIDTH):
        return []
    cut = [[*line[:-1], shorten(line[-1], left)] for line in [header, *body]]
    return aligned_rows(cut, range(3, len(header) - 1))


def _cell_text(cells: Sequence[ScoreCell], name: str) -> str:
    cell = next((cell for cell in cells if cell.name == name), None)
    return "" if cell is None else score_text(cell)


def score_text(cell: ScoreCell) -> str:
    """Return `*.61` for the chosen option, `.22` for others, `--` for masked ones."""
    value = "--" if cell.probability is None else probability(cell.probability)
    return f"*{value}" if cell.chosen else value


def _notes(row: DecisionRow) -> list[str]:
    """Return the notes that do not fit into columns: exclusions with reasons, the rule's words, an
    override.
    """
    assigned = row.turn.assigned
    notes = []
    if assigned.subtask is not None:
        title = first_line(assigned.subtask.title, 200)
        notes.append(f"for turn {assigned.subtask.turn}, {title}")
    for cell in (*row.rows, *row.roles):
        if cell.masked:
            notes.append(f"{cell.name} excluded: {first_line(cell.masked, 200)}")
    if assigned.override is not None:
        notes.append(f"a Thinker asked for this instead of a {assigned.override.capitalize()}")
    if row.effort:
        notes.append(f"effort {row.effort}")
    if row.reason or assigned.scores is None:
        is_counted = assigned.scores is not None and assigned.scores.estimates
        begins = is_counted and row.turn.number == 1
        by = f"{assigned.agent} first, by {assigned.by}" if begins else f"by {assigned.by}"
        notes.append(f"{by}: {first_line(row.reason, 400)}" if row.reason else by)
    return [*notes, *_estimate_notes(assigned), *row.notes]


def _estimate_notes(assigned: Assigned) -> list[str]:
    """Return the estimates that the decision compared, if it read success rates. A Verifier is not
    chosen by them.
    """
    scores = assigned.scores
    if scores is None or not scores.estimates or assigned.role == "verifier":
        return []
    compared = [estimate_text(estimate, source=False) for estimate in scores.estimates]
    rest = filter(None, [kind_text(scores), cascade_text(scores)])
    return ["; ".join(compared), "; ".join(rest)]


def _stacked(row: DecisionRow, width: int) -> list[str]:
    """Return a decision in short lines, for narrow terminals."""
    assigned = row.turn.assigned
    part = f"subtask of turn {assigned.subtask.turn}" if assigned.subtask else assigned.role
    lines = [f"turn {row.turn.number}: {assigned.agent} as {part}"]
    for label, cells in (("agents", row.rows), ("roles", row.roles)):
        if cells:
            lines += wrapped_items(
                f"  {label}", [f"{cell.name} {score_text(cell)}" for cell in cells], width
            )
    spent = (
        f"{compact_number(row.usage.input)} in, {compact_number(row.usage.output)} out, {row.paid}"
    )
    decided = duration(assigned.milliseconds.total / 1000)
    texts = [
        f"{duration(row.seconds)} (decided in {decided}), {spent}",
        turn_result(row),
        *_notes(row),
    ]
    for text in texts:
        lines += textwrap.wrap(text, width, initial_indent="  ", subsequent_indent="    ")
    return lines


def _totals(records: Sequence[Recorded], width: int) -> str:
    state = SessionState.of_records(records)
    events, members = state.events, state.pool
    parts = [
        f"{name} {compact_number(used.input)} in"
        + (f" ({compact_number(used.cached)} cached)" if used.cached else "")
        + f" {compact_number(used.output)} out"
        for name, used in costs.usage(events).items()
    ]
    cost = known_cost(
        state.cost,
        unpriced=bool(state.unpriced),
        estimated=costs.is_estimated(events, members),
    )
    return "\n".join(wrapped_items("total", [cost, *parts], width))


def trace_json(records: Sequence[Recorded], session: str) -> str:
    """Return the decisions of every request with logits and masks, as one JSON document."""
    requests = [_request_object(records, request) for request in traced_requests(records)]
    return json.dumps({"session_id": session, "requests": requests}, indent=2)


def _request_object(records: Sequence[Recorded], request: TracedRequest) -> dict[str, object]:
    asked = request.asked
    return {
        "request": request.number,
        "text": asked.text,
        "repository_map": {"planner": asked.tree, "first_turn": asked.repository_map},
        "memory": [{**file.model_dump(), "lines": file.lines} for file in asked.memory],
        "reason": request.end.reason if request.end else None,
        "undone": [
            {"redone": event.kind == "redo", "paths": event.paths} for event in request.undone
        ],
        "decisions": [_decision(row) for row in request.rows],
        "plans": plan_objects(SessionState.of_records(records[: request.upto])),
    }


def decision_explanation(event: Assigned, slot: str) -> dict[str, object]:
    """Return the coordinator's input and scores for programs, {} for a rule. `slot` is that of the
    chosen agent.
    """
    scores, details = event.scores, decision_scores(event, slot)
    if scores is None or details is None:
        return {}
    return {
        "probabilities_before_masks": {
            cell.name: cell.before for cell in (*details.rows, *details.roles)
        },
        "margin": details.lead.margin if details.lead else None,
        "runner_up": details.lead.over if details.lead else None,
        "role_margin": details.role_lead.margin if details.role_lead else None,
        "role_runner_up": details.role_lead.over if details.role_lead else None,
        "read": scores.read,
        "tokens": scores.tokens,
        "cached_tokens": scores.cached_tokens,
        "cold": details.cold,
        "temperature": scores.temperature,
        "milliseconds_by_part": event.milliseconds.model_dump(),
    }


def _decision(row: DecisionRow) -> dict[str, object]:
    cells = (*row.rows, *row.roles)
    return {
        **routing_object(row.turn.assigned),
        "logits": {cell.name: cell.logit for cell in cells},
        **decision_explanation(
            row.turn.assigned, next((cell.name for cell in row.rows if cell.chosen), "")
        ),
        "effort": row.effort,
        "seconds": round(row.seconds, 3),
        "model_seconds": round(row.model_seconds, 3),
        "usage": row.usage.model_dump(),
        "cost_usd": row.cost,
        "advice": [_advice(event, row.pool) for event in row.advice],
        "verdict": row.verdict,
        "tests_ok": row.tests.ok if row.tests else None,
        "changed": list(row.changed),
        "draws_rolled_back": len(row.turn.rolled_back),
        "failed": row.turn.failed.message if row.turn.failed else None,
    }


def _advice(event: ToolRan, pool: Mapping[str, Member]) -> dict[str, object]:
    arguments = arguments_of(event.call)
    question = arguments.get("question", "") if isinstance(arguments, dict) else ""
    return {
        "agent": event.agent,
        "question": question,
        "answer": event.output,
        "ok": event.ok,
        "usage": event.usage.model_dump(),
        "cost_usd": costs.price(event, pool.get(event.agent)),
        "seconds": event.seconds,
    }
