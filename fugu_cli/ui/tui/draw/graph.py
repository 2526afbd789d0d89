"""A workflow as a graph: a line for each step, the edges of its access list beside it. Pure.

Below table.py, for the trace. Every step that is read has a lane of its own; its edge ends where a step reads it:

    ╭──  0 ● small   find the cause
    │╭─  1 ● coder   write a test
    ├┴─▸ 2 ◐ large   put it right
    ╰──▸ 3 ○ small   say what was done
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.events import Step

ARROW = "▸"


def edges(steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """For every step, the places of the steps it reads. What an access list names that is not there is left out."""
    return [
        tuple(range(place)) if step.access == "all" else tuple(i for i in sorted(set(step.access)) if 0 <= i < place)
        for place, step in enumerate(steps)
    ]


def gutter(steps: Sequence[Step]) -> list[str]:
    """The edges left of each step, all of the same width; "" for each where no step reads another."""
    read = edges(steps)
    last = {source: place for place, sources in enumerate(read) for source in sources}
    lanes = {source: lane for lane, source in enumerate(sorted(last))}
    if not lanes:
        return [""] * len(steps)
    return [_row(place, set(sources), last, lanes) for place, sources in enumerate(read)]


def _row(place: int, sources: set[int], last: dict[int, int], lanes: dict[int, int]) -> str:
    cells = [" "] * len(lanes)
    for source, lane in lanes.items():
        if source in sources:
            cells[lane] = "╰" if last[source] == place else "├"
        elif source == place:
            cells[lane] = "╭"
        elif source < place < last[source]:
            cells[lane] = "│"
    first = next((lane for lane, cell in enumerate(cells) if cell in "╰├╭"), None)
    if first is None:
        return "".join(cells) + "   "
    for lane in range(first + 1, len(cells)):
        cells[lane] = {" ": "─", "│": "┼", "╰": "┴", "├": "┼", "╭": "╮" if sources else "╭"}[cells[lane]]
    if place in lanes and sources:  # it reads and is read: its own lane begins below the line
        cells[lanes[place]] = "┬"
    return "".join(cells) + "─" + (f"{ARROW} " if sources else "  ")
