"""A workflow as text: the plan, the edges between its steps, whose work was taken over. Pure; no
screen.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.formatting import first_line
from fugu_cli.session.events import Failed, Merged, Planned, WorkflowStep
from fugu_cli.session.request_state import RequestState


def plan_title(event: Planned) -> str:
    """Return a title like `workflow of 3 steps`, `the result is kept`, `no workflow`."""
    within = f" inside step {event.within[1] + 1} of plan {event.within[0]}" if event.within else ""
    later = f", round {event.round}" if event.round > 1 else ""
    if event.fault:
        return f"no workflow{within}{later}"
    if not event.steps:
        return f"the result is kept{within}{later}"
    return (
        f"workflow of {len(event.steps)} step{'' if len(event.steps) == 1 else 's'}{within}{later}"
    )


def round_reason(event: Planned, request: RequestState) -> str:
    """Return why a workflow is planned again; "" for the first one."""
    if event.round < 2 or event.within is not None:
        return ""
    failed = [event for event in request.events if isinstance(event, Failed)]
    judged = [verdict for turn in request.turns if (verdict := request.verdict(turn)) is not None]
    run = request.tests
    if blocker := request.acceptance_blocker:
        return blocker
    if run is not None and not run.passes:
        return "the tests fail"
    if judged and judged[-1] == "REVISE":
        return "a Verifier asked for changes"
    if failed:
        return f"{failed[-1].what} failed: {first_line(failed[-1].message, 200)}"
    return "no test shows that the work is done"


def step_agent(step: WorkflowStep) -> str:
    """Return the name of the step's agent, or that a planner plans the step."""
    return f"{step.agent} (plans it)" if step.plans else step.agent


def step_access(step: WorkflowStep) -> str:
    """Describe what a step may read."""
    if step.access == "all":
        return "all steps before"
    if not step.access:
        return "the request"
    return "steps " + ", ".join(str(index + 1) for index in step.access)


def merge_text(event: Merged) -> str:
    """Describe whose work was taken over."""
    others = ", ".join(str(turn) for turn in event.turns if turn != event.chosen)
    if event.open:
        return f"turns {others} did the same job: {first_line(event.reason, 200)}"
    if event.again:
        return f"turn {others} is done again: {first_line(event.reason, 200)}"
    text = "nobody's work is taken over"
    if event.chosen:
        text = f"the work of turn {event.chosen} is taken over"
    if others:
        turns = "turns" if "," in others else "turn"
        text += f"; {turns} {others} left out"
    reason = event.reason
    if event.left:
        reason += f"; left alone, changed since: {', '.join(event.left)}"
    return f"{text}: {first_line(reason, 200)}"


def workflow_object(event: Planned | Merged) -> dict[str, object]:
    """Return a line of stream-json."""
    if isinstance(event, Merged):
        fields = event.model_dump(mode="json", exclude={"type", "changes"})
        return {"type": "system", "subtype": "merged", "turn": event.chosen or None, **fields}
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


ARROW = "▸"


def step_edges(steps: Sequence[WorkflowStep]) -> list[tuple[int, ...]]:
    """Return the steps that each step reads. Missing steps in an access list are left out."""
    edges: list[tuple[int, ...]] = []
    for index, step in enumerate(steps):
        if step.access == "all":
            edges.append(tuple(range(index)))
        else:
            edges.append(tuple(i for i in sorted(set(step.access)) if 0 <= i < index))
    return edges


def edge_columns(steps: Sequence[WorkflowStep]) -> list[str]:
    """Return the edges to the left of each step, all of the same width; "" if no step reads
    another.
    """
    read = step_edges(steps)
    last = {source: index for index, sources in enumerate(read) for source in sources}
    columns = {source: column for column, source in enumerate(sorted(last))}
    if not columns:
        return [""] * len(steps)
    return [_edge_row(index, set(sources), last, columns) for index, sources in enumerate(read)]


def _edge_row(index: int, sources: set[int], last: dict[int, int], columns: dict[int, int]) -> str:
    cells = [" "] * len(columns)
    for source, column in columns.items():
        if source in sources:
            cells[column] = "╰" if last[source] == index else "├"
        elif source == index:
            cells[column] = "╭"
        elif source < index < last[source]:
            cells[column] = "│"
    first = next((column for column, cell in enumerate(cells) if cell in "╰├╭"), None)
    if first is None:
        return "".join(cells) + "   "
    for column in range(first + 1, len(cells)):
        cells[column] = {" ": "─", "│": "┼", "╰": "┴", "├": "┼", "╭": "╮" if sources else "╭"}[
            cells[column]
        ]
    if index in columns and sources:  # it reads and is read: its own column begins below the line
        cells[columns[index]] = "┬"
    return "".join(cells) + "─" + (f"{ARROW} " if sources else "  ")
