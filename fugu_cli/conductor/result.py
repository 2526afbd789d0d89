"""What the planner is told of what was done: for a second round, and for a part that it planned itself. Pure.

Outputs are framed as data; what they say can neither end the frame nor pass for the planner's own words.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli import prompts, views
from fugu_cli.conductor.seen import framed
from fugu_cli.events import Event


def told(events: Sequence[Event], within: tuple[int, int] | None, number: int) -> tuple[str, str]:
    """The text to plan for ("" for the request itself) and what is known so far."""
    if within is not None:
        return _part(events, within)
    if number == 1:
        return "", ""
    rounds = [flow for flow in views.workflows(events) if flow.planned.within is None]
    text = prompts.fill(
        prompts.load("conductor/round"),
        workflow="\n\n".join(_workflow(events, flow) for flow in rounds),
        outcome=_outcome(events),
    )
    return "", text


def _part(events: Sequence[Event], within: tuple[int, int]) -> tuple[str, str]:
    """A step that is planned in itself: its subtask, and the outputs its access list opens."""
    found = views.workflows(events)
    flow = next(flow for flow in found if flow.number == within[0])
    step = flow.planned.steps[within[1]]
    asked = views.asked(events)
    assert asked is not None
    places = range(within[1]) if step.access == "all" else step.access
    opened = [(place, views.shown(found, flow.number, place)) for place in places]
    shown = [_output(place, views.said(turn)) for place, turn in opened if turn is not None]
    whole = prompts.fill(prompts.load("conductor/part"), whole=asked.text)
    known = prompts.fill(prompts.load("conductor/outputs"), outputs="\n".join(shown)) if shown else ""
    return step.instruction, "\n\n".join(part for part in (whole, known) if part)


def _output(place: int, text: str) -> str:
    return f'<output step="{place}">\n{framed(text)}\n</output>'


def _workflow(events: Sequence[Event], flow: views.Workflow) -> str:
    found = views.workflows(events)
    lines = []
    for place, step in enumerate(flow.planned.steps):
        turn = views.shown(found, flow.number, place)
        name = flow.planned.models.index(step.agent) if step.agent in flow.planned.models else len(flow.planned.models)
        lines.append(f"Step {place}, Model {name}: {step.instruction}")
        if turn is not None:
            lines.append(_output(place, views.said(turn)))
        else:
            kinds = {one.failed.kind for one in flow.tries(place) if one.failed}  # messages name providers
            lines.append(f"It failed: no model answered ({', '.join(sorted(kinds))})." if kinds else "It was not done.")
    return "\n".join(lines)


def _outcome(events: Sequence[Event]) -> str:
    changed = sorted(views.changes(events))
    run = views.tests(events)
    said = [f"Files that were changed: {', '.join(changed)}." if changed else "No file was changed."]
    if run is not None and not run.stale:
        said.append("The tests pass now." if run.ok else "The tests still FAIL; their output is above.")
    return " ".join(said)
