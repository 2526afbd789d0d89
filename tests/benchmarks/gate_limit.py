"""Can anything pass the gate that is not told how good the check is? Plays every fixed list of up to four models, the
same one in all cells, and counts where it fails: chosen with hindsight, so no coordinator without that knowledge does
better but by luck.

    python tests/benchmarks/gate_limit.py FILE --model A --model B --model C

Prints, for results/outcome-replay.md, the lists that fail in the fewest places. Needs no model.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from fugu_cli.config.known_models import vendor_of
from fugu_cli.coordinators import action_space
from fugu_cli.evaluation import outcome_replay
from fugu_cli.evaluation.outcome_replay import BUDGETS, CHECKS, DRAWS, ArmResult, CellResult, OutcomeLimits


def main() -> None:
    """Print the lists that fail least."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--model", action="append", required=True)
    asked = parser.parse_args()
    tasks = outcome_replay.read_outcomes(asked.file, asked.model)
    members = outcome_replay.members_of(tasks, {name: vendor_of(name) for name in asked.model})
    draws = [[outcome_replay.draw_of(task, draw) for draw in range(DRAWS)] for task in tasks]
    costs = {member.name: action_space.blended_price(member.price) for member in members}
    unit = max(costs.values())
    cells: list[tuple[tuple[float, float], float, dict[tuple[str, ...], ArmResult], ArmResult]] = []
    for check in CHECKS:
        for budget in BUDGETS:
            limits = OutcomeLimits(check, budget * unit, costs)
            lists = outcome_replay.every_list(draws, limits)
            chance = outcome_replay.played(
                "random order", lambda draw: outcome_replay.in_order(draw.order), draws, limits
            )
            cells.append((check, budget, lists, chance))
    counts = {}
    for order in cells[0][2]:
        found = [
            CellResult(check, budget, unit, {"it": lists[order], "random order": chance}, list(lists.values()))
            for check, budget, lists, chance in cells
        ]
        counts[order] = len(outcome_replay.gate_failures("it", found))
    print(f"{len(counts)} lists; fewest failures:")
    for order, count in sorted(counts.items(), key=lambda one: one[1])[:5]:
        print(f"- {count}: {' > '.join(order)}")


if __name__ == "__main__":
    main()
