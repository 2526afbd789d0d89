"""Workflows as people read them: a plan's steps with what each may read, what was taken over. Pure.

Stands beside render.py; the trace and the stream of objects use it too.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from rich.text import Text

from fugu_cli import views
from fugu_cli.conductor import memory
from fugu_cli.conductor.seen import manifest
from fugu_cli.events import Event, Merged, Planned, Step
from fugu_cli.ui.clean import count, cut, money, one_line, seconds

if TYPE_CHECKING:
    from fugu_cli.ui.rows import Row

INDENT = "  "


def planned(event: Planned) -> Text:
    """A plan as a list: `0  coder  <- the request   Find the cause ...`."""
    numbers = f"{count(event.usage.input)} in, {count(event.usage.output)} out, {seconds(event.seconds)}"
    text = Text().append(f"{title(event)}  ", "bold")
    text.append(f"{event.agent}: {numbers}", "dim")
    if event.fault:
        text.append(f"\n{INDENT}no workflow: {one_line(event.fault, 300)}", "yellow")
    for place, step in enumerate(event.steps):
        text.append(f"\n{INDENT}{place}  ").append(who(step), "cyan").append(f"  <- {reads(step)}", "dim")
        text.append(f"  {one_line(step.instruction, 160)}")
    return text


def title(event: Planned) -> str:
    """`workflow of 3 steps`, `the result is kept`, `no workflow`."""
    within = f" inside step {event.within[1]} of plan {event.within[0]}" if event.within else ""
    later = f", round {event.round}" if event.round > 1 else ""
    if event.fault:
        return f"no workflow{within}{later}"
    if not event.steps:
        return f"the result is kept{within}{later}"
    return f"workflow of {len(event.steps)} step{'' if len(event.steps) == 1 else 's'}{within}{later}"


def who(step: Step) -> str:
    """The agent, or the planner with a workflow of its own."""
    return f"{step.agent} (plans it)" if step.plans else step.agent


def reads(step: Step) -> str:
    """The access edges of a step in words."""
    if step.access == "all":
        return "all steps before"
    return "steps " + ", ".join(str(place) for place in step.access) if step.access else "the request"


def merged(event: Merged) -> Text:
    """Whose work was taken over."""
    others = ", ".join(str(turn) for turn in event.turns if turn != event.chosen)
    if event.open:
        return Text(f"{INDENT}turns {others} did the same job: {one_line(event.reason, 200)}", "bold cyan")
    kept = f"the work of turn {event.chosen} is taken over" if event.chosen else "nobody's work is taken over"
    left = f"; turn{'s' if ',' in others else ''} {others} left out" if others else ""
    return Text(f"{INDENT}{kept}{left}: {one_line(event.reason, 200)}", "bold cyan")


def as_object(event: Planned | Merged) -> dict[str, object]:
    """A line of stream-json."""
    if isinstance(event, Merged):
        said = event.model_dump(mode="json", exclude={"type", "changes"})
        return {"type": "system", "subtype": "merged", "turn": event.chosen or None, **said}
    own = event.model_dump(mode="json", exclude={"type", "text", "usage", "model"})
    usage = event.usage
    return {
        "type": "system",
        "subtype": "plan",
        "turn": None,
        **own,
        "kept": not event.steps and not event.fault,
        "usage": {
            "orchestration_input_tokens": usage.input,
            "orchestration_input_cached_tokens": usage.cached,
            "orchestration_output_tokens": usage.output,
        },
    }


def graph(events: Sequence[Event], rows: Sequence[Row], width: int) -> list[str]:
    """The workflows of the newest request of `events`: who plans, each step with its edges, what it was shown and what
    not, what it took, what came of it, and what the planning itself took."""
    plans = views.plans(events)
    if not plans:
        return []
    lines: list[str] = []
    for number, plan in enumerate(plans, start=1):
        lines.append(cut(f"plan {number}: {title(plan)}, by {plan.agent} in {seconds(plan.seconds)}", width))
        if plan.fault:
            lines += _indented(f"no workflow: {one_line(plan.fault, 300)}", width)
        for place, step in enumerate(plan.steps):
            lines.append(
                cut(f"  step {place}  {who(step)}  reads {reads(step)}: {one_line(step.instruction, 200)}", width)
            )
            for row in rows:
                if (row.turn.assigned.plan, row.turn.assigned.step) == (number, place):
                    lines += _indented(_shown(events, row), width)
    for merge in views.merges(events):
        lines.append(cut("  " + merged(merge).plain.strip(), width))
        lines += [line for turn, diff in merge.diffs for line in _indented(f"turn {turn}: {_changed(diff)}", width)]
    return [*lines, *_indented(_totals(events), width, 2)]


def _indented(text: str, width: int, indent: int = 4) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" " * indent, subsequent_indent=" " * (indent + 2))


def _shown(events: Sequence[Event], row: Row) -> str:
    """`turn 3 (a): saw the request, its own turn 1, the output of step 1 (turn 2); not turn 4. 90 in, 9 out, $0`."""
    turn = row.turn
    seen = manifest(events, turn.number)
    parts = ["the request"]
    parts += [f"its own turn {number}" for number in seen.own]
    parts += [f"the output of step {step} (turn {number})" for step, number in seen.outputs]
    parts += [f"the changes of turns {', '.join(map(str, seen.candidates))}"] if seen.candidates else []
    kept = memory.saved(events, turn)
    parts += [f"{kept.offered} remembered call{'' if kept.offered == 1 else 's'}"] if kept.offered else []
    hidden = f"; not {_turns(seen.hidden)}" if seen.hidden else ""
    saved = f"; saved {kept.calls} calls, some {kept.tokens} tokens" if kept.offered else ""
    spent = f"{count(row.usage.input)} in, {count(row.usage.output)} out, {money(row.cost)}"
    apart = ", in a worktree" if turn.assigned.worktree else ""
    failed = "failed" if turn.failed else "cut" if turn.interrupted else "nothing came of it"
    state = "" if views.done(turn) else f"; {failed}"
    return f"turn {turn.number} ({turn.assigned.agent}{apart}): saw {', '.join(parts)}{hidden}. {spent}{saved}{state}"


def _changed(diff: str) -> str:
    """Lines added and taken away."""
    lines = diff.splitlines()
    added = sum(line.startswith("+") and not line.startswith("+++") for line in lines)
    removed = sum(line.startswith("-") and not line.startswith("---") for line in lines)
    return f"+{added} -{removed} lines"


def _totals(events: Sequence[Event]) -> str:
    """What planning took, and which turns nothing of the answer rests on."""
    request = views.request(events)
    spent = views.orchestration(request)
    every = sum((usage.input + usage.output for usage in views.usage(request).values()), 0)
    plans = [event for event in request if isinstance(event, Planned)]
    cost = sum(views.price(plan, views.pool(events).get(plan.agent)) for plan in plans)
    share = f", {100 * (spent.input + spent.output) / every:.0f} % of all tokens" if every else ""
    kept = _kept(events)
    thrown = [turn.number for turn in views.turns(events) if turn.assigned.plan and turn.number not in kept]
    left = f"; thrown away: {_turns(thrown)}" if thrown else ""
    return (
        f"planning: orchestration_input_tokens {spent.input} ({spent.cached} cached), orchestration_output_tokens "
        f"{spent.output}, {money(cost)}{share}. kept: {_turns(sorted(kept)) if kept else 'nothing'}{left}"
    )


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
            **as_object(plan),
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
