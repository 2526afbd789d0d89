"""Workflows as people read them: a plan's steps with what each may read, what was taken over. Pure.

Stands beside render.py; the trace (graph.py) and the stream of objects use it too.
"""

from __future__ import annotations

from rich.text import Text

from fugu_cli.events import Merged, Planned, Step
from fugu_cli.ui.clean import count, one_line, seconds

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
    alone = f"; left alone, changed since: {', '.join(event.left)}" if event.left else ""
    return Text(f"{INDENT}{kept}{left}: {one_line(event.reason + alone, 200)}", "bold cyan")


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
