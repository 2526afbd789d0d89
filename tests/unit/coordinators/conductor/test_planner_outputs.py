"""What the embedded models wrote when they were asked for plans, word for word: read or refused as
a reader would.

`planner_outputs.jsonl` holds each reply with the request, the model, the temperature and the seed,
and what it is: its steps as (agent, access), or its fault. Every line was read by a person; the
parser must agree with all of them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fugu_cli.coordinators.conductor.plan_lists import InvalidPlan
from fugu_cli.coordinators.conductor.plan_steps import PlanLimits, parse_workflow

OUTPUTS = [
    json.loads(line)
    for line in (Path(__file__).parent / "planner_outputs.jsonl")
    .read_text(encoding="utf-8")
    .splitlines()
]


@pytest.mark.parametrize("number", range(len(OUTPUTS)))
def test_a_real_reply_is_what_it_is(number: int) -> None:
    row = OUTPUTS[number]
    found = parse_workflow(
        row["text"], PlanLimits(("a", "b", "c"), itself="p" if row["itself"] else "")
    )
    if isinstance(found, InvalidPlan):
        assert (found.text, []) == (row["fault"], row["steps"])
    else:
        steps = [
            [step.agent, step.access if step.access == "all" else list(step.access)]
            for step in found
        ]
        assert ("", steps) == (row["fault"], row["steps"])


def test_what_a_schema_held_is_always_a_workflow_and_a_small_model_alone_hardly_ever_writes_one() -> (
    None
):
    held = [row for row in OUTPUTS if row["schema"] and row["stop"] == "end"]
    alone = [row for row in OUTPUTS if not row["schema"] and "0.5b" in row["model"]]
    assert all(not row["fault"] for row in held)
    assert len(held) >= 15
    assert sum(not row["fault"] for row in alone) <= len(alone) // 5
