"""Workflows in `fugu trace`: the graph with its edges, what each step was shown, what it took, what was kept. Pure.

Above workflow.py, which has the words, and below trace.py.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict

from fugu_cli import views
from fugu_cli.conductor import memory
from fugu_cli.conductor.seen import manifest
from fugu_cli.events import Assigned, Event, Planned, ToolRan
from fugu_cli.ui import workflow
from fugu_cli.ui.clean import count, cut, money, one_line, seconds
from fugu_cli.ui.render import describe
from fugu_cli.ui.rows import Row


def graph(events: Sequence[Event], rows: Sequence[Row], width: int) -> list[str]:
    """The workflows of the newest request of `events`: who plans, each step with its edges, what it was shown and what
    not, what it took, what came of it, and what the planning itself took."""
    plans = views.plans(events)
    if not plans:
        return []
    lines: list[str] = []
    for number, plan in enumerate(plans, start=1):
        lines.append(cut(f"plan {number}: {workflow.title(plan)}, by {plan.agent} in {seconds(plan.seconds)}", width))
        if plan.fault:
            lines += _indented(f"no workflow: {one_line(plan.fault, 300)}", width)
        for place, step in enumerate(plan.steps):
            said = f"reads {workflow.reads(step)}: {one_line(step.instruction, 200)}"
            lines.append(cut(f"  step {place}  {workflow.who(step)}  {said}", width))
            lines += _taken(events, rows, (number, place), width)
    for merge in views.merges(events):
        lines.append(cut("  " + workflow.merged(merge).plain.strip(), width))
        lines += [line for turn, diff in merge.diffs for line in _indented(f"turn {turn}: {_changed(diff)}", width)]
    return [*lines, *_indented(_totals(events), width, 2)]


def _taken(events: Sequence[Event], rows: Sequence[Row], place: tuple[int, int], width: int) -> list[str]:
    """The turns that were spent on a step (its plan's number, its place), or the plan it became."""
    own = [row for row in rows if (row.turn.assigned.plan, row.turn.assigned.step) == place]
    lines = [line for row in own for line in _indented(_shown(events, row), width)]
    inside = [number for number, plan in enumerate(views.plans(events), start=1) if plan.within == place]
    if inside:
        return [f"    {'first tried as' if own else 'a workflow of its own:'} plan {inside[-1]}", *lines]
    return lines or ["    not done"]


def _indented(text: str, width: int, indent: int = 4) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2))


def _shown(events: Sequence[Event], row: Row) -> str:
    """`turn 3 (a): saw the request, its own turn 1, the output of step 1 (turn 2); not turn 4. 90 in, 9 out, $0`."""
    turn = row.turn
    seen = manifest(events, turn.number)
    parts = ["the request"]
    parts += [f"its own turn {number}" for number in seen.own]
    parts += [f"the output of {_step(events, step, number, turn)}" for step, number in seen.outputs]
    parts += [f"the changes of turns {', '.join(map(str, seen.candidates))}"] if seen.candidates else []
    kept = memory.saved(events, turn)
    parts += [f"{_calls(kept.offered)} remembered ({_remembered(events, seen.memory)})"] if kept.offered else []
    hidden = f"; not {_turns(seen.hidden)}" if seen.hidden else ""
    saved = f"; {_saved(kept)}" if kept.offered else ""
    spent = f"{count(row.usage.input)} in, {count(row.usage.output)} out, {row.paid}"
    apart = ", in a worktree" if turn.assigned.worktree else ""
    state = "" if views.done(turn) else f"; {_state(events, turn)}"
    return f"turn {turn.number} ({turn.assigned.agent}{apart}): saw {', '.join(parts)}{hidden}. {spent}{saved}{state}"


def _state(events: Sequence[Event], turn: views.Turn) -> str:
    """What became of a turn that left nothing for others. Those that began together last may still be at work."""
    if turn.failed or turn.interrupted:
        return "failed" if turn.failed else "cut"
    begun = [place for place, event in enumerate(events) if isinstance(event, Assigned)]
    together = [place for index, place in enumerate(begun) if place - begun[-1] == index + 1 - len(begun)]
    newest = any(events[place] is turn.assigned for place in together)
    return "not at its end" if newest and views.finished(events) is None else "nothing came of it"


def _step(events: Sequence[Event], step: int, number: int, reader: views.Turn) -> str:
    """`step 1 (turn 2)`; of an earlier workflow, or of one inside, with its plan."""
    plan = next(turn.assigned.plan for turn in views.turns(events) if turn.number == number)
    return f"step {step}{f' of plan {plan}' if plan != reader.assigned.plan else ''} (turn {number})"


def _remembered(events: Sequence[Event], lines: Sequence[int]) -> str:
    """What was called, and by whom: `read calc.txt by a; grep broken by b`."""
    said = []
    for line in lines:
        ran = events[line]
        assert isinstance(ran, ToolRan)
        said.append(f"{one_line(describe(ran.call), 60)} by {memory.who(events, line)}")
    return "; ".join(said)


def _calls(number: int) -> str:
    return f"{number} call{'' if number == 1 else 's'}"


def _saved(kept: memory.Saved) -> str:
    """Calls that were not made again, and what that was worth."""
    said = f"some {count(kept.tokens)} tokens" if kept.tokens >= 0 else f"which took {count(-kept.tokens)} tokens more"
    return f"saved {_calls(kept.calls)}, {said}"


def _changed(diff: str) -> str:
    """Lines added and taken away."""
    lines = diff.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return f"+{added} -{removed} lines"


def _totals(events: Sequence[Event]) -> str:
    """What planning took, and, once the request is over, which turns nothing of the answer rests on."""
    request = views.request(events)
    spent = views.orchestration(request)
    every = sum((usage.input + usage.output for usage in views.usage(request).values()), 0)
    plans = [event for event in request if isinstance(event, Planned)]
    cost = sum(views.price(plan, views.pool(events).get(plan.agent)) for plan in plans)
    share = f", {100 * (spent.input + spent.output) / every:.0f} % of all tokens" if every else ""
    said = (
        f"planning: orchestration_input_tokens {spent.input} ({spent.cached} cached), orchestration_output_tokens "
        f"{spent.output}, {money(cost)}{share}."
    )
    if views.finished(events) is None:
        return said
    kept = _kept(events)
    thrown = [turn.number for turn in views.turns(events) if turn.assigned.plan and turn.number not in kept]
    left = f"; thrown away: {_turns(thrown)}" if thrown else ""
    return f"{said} kept: {_turns(sorted(kept)) if kept else 'nothing'}{left}"


def _turns(numbers: Sequence[int]) -> str:
    return f"turn{'s' if len(numbers) > 1 else ''} {', '.join(map(str, numbers))}"


def _kept(events: Sequence[Event]) -> set[int]:
    """Turns the result rests on: the answer's, all that those read, and those whose changes stand."""
    turns = {turn.number: turn for turn in views.turns(events)}
    answer = views.answering(events)
    waiting = [answer.number] if answer else []
    waiting += [turn.number for turn in turns.values() if turn.changes and not turn.assigned.worktree]
    waiting += [merge.chosen for merge in views.merges(events) if merge.chosen]
    kept: set[int] = set()
    while waiting:
        number = waiting.pop()
        if number in turns and number not in kept:
            kept.add(number)
            sees = turns[number].assigned.sees
            apart = {turn for merge in views.merges(events) for turn in merge.turns if turn != merge.chosen}
            waiting += [turn for turn in (sees if isinstance(sees, tuple) else ()) if turn not in apart]
    return kept


def plans_json(events: Sequence[Event]) -> list[dict[str, object]]:
    """The plans of the newest request of `events`, each step with the turns spent on it and what they were shown."""
    every = views.turns(events)
    return [
        {
            **workflow.as_object(plan),
            "plan": number,
            "taken": [
                {
                    "step": turn.assigned.step,
                    "turn": turn.number,
                    "agent": turn.assigned.agent,
                    "came_to_something": views.done(turn),
                    "shown": asdict(manifest(events, turn.number)),
                    "saved": asdict(memory.saved(events, turn)),
                }
                for turn in every
                if turn.assigned.plan == number
            ],
        }
        for number, plan in enumerate(views.plans(events), start=1)
    ]
