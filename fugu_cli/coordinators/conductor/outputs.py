"""The outputs of steps by their names, and which of them a step may read. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.session.events import OuterStep
from fugu_cli.session.turns import Turn
from fugu_cli.session.workflows import Workflow, step_name, visible_output


def readable_outputs(workflows: Sequence[Workflow], flow: Workflow, index: int) -> dict[str, Turn]:
    """Return what a step may read: outputs of its own plan, and of outside, by their names."""
    step = flow.planned.steps[index]
    outside = outside_outputs(workflows, flow.planned.within, flow.planned.round)
    is_all = step.access == "all"
    outputs = {name: turn for name, turn in outside.items() if is_all or name in step.opens}
    sources = range(index) if isinstance(step.access, str) else step.access
    return outputs | _outputs(workflows, flow, sources)


def outside_outputs(
    workflows: Sequence[Workflow], within: OuterStep | None, round_number: int
) -> dict[str, Turn]:
    """Return the outputs from outside a plan that its steps may read. For a workflow inside a step
    these are the outputs that this step may read, else those of all earlier rounds.
    """
    if within is not None:
        flow = next(flow for flow in workflows if flow.number == within.plan)
        return readable_outputs(workflows, flow, within.step)
    outputs: dict[str, Turn] = {}
    for flow in workflows:
        if flow.planned.within is None and flow.planned.round < round_number:
            outputs |= _outputs(workflows, flow, range(len(flow.planned.steps)))
    return outputs


def _outputs(
    workflows: Sequence[Workflow], flow: Workflow, indexes: Sequence[int]
) -> dict[str, Turn]:
    outputs = {}
    for index in indexes:
        turn = visible_output(workflows, flow.number, index)
        if turn is not None:
            outputs[step_name(workflows, flow.number, index)] = turn
    return outputs
