"""Rows of the trace as lines: what fits the width, the least important column left out first.

Beside blocks.py, for rows.py.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from fugu_cli import views
from fugu_cli.events import Step
from fugu_cli.messages import Usage
from fugu_cli.ui.clean import count, probability, spent
from fugu_cli.ui.tui.draw.graph import gutter
from fugu_cli.ui.tui.draw.lines import BLANK, Line, Part, indented, line, spread, wrapped
from fugu_cli.ui.tui.draw.palette import Palette
from fugu_cli.ui.tui.draw.rows import PlanRow, RequestRow, Row, TurnRow
from fugu_cli.ui.tui.draw.text import brief_seconds, flat
from fugu_cli.ui.workflow import title, who

WORKING = "◐"


def row(item: Row, width: int, palette: Palette) -> list[Line]:
    """A request's line, or a turn's."""
    match item:
        case RequestRow():
            return _request(item, width, palette)
        case PlanRow():
            return _plan(item, width, palette)
        case TurnRow():
            return [_turn(item, width, palette)]


def empty(width: int, palette: Palette) -> list[Line]:
    """What stands here before anything was asked."""
    said = "The trace: who is chosen in each turn, in which role, against whom, and what it took."
    return wrapped(said, width, palette.dim)


def _request(item: RequestRow, width: int, palette: Palette) -> list[Line]:
    right: list[Part] = []
    if item.finished is not None:
        good = item.finished.reason in ("accepted", "answered")
        said = views.WORDS[item.finished.reason]
        right = [(said, palette.good if good else palette.warn)]
    title: list[Part] = [(f"{item.number} ", palette.dim), (flat(item.asked.said, 200), f"bold {palette.text}")]
    lines = [] if item.number == 1 else [BLANK]
    lines.append(spread(title, right, width))
    return lines


def _plan(item: PlanRow, width: int, palette: Palette) -> list[Line]:
    """The workflow as a graph, with what became of each step and what it took."""
    planned = item.planned
    head: list[Part] = [("   ", ""), (title(planned), palette.accent), (f"  by {flat(planned.agent)}", palette.dim)]
    lines = [
        spread(
            head,
            [(f"{spent(item.cost, unpriced=item.unpriced):>7} ", palette.dim), (" " * (6 if width >= 56 else 1), "")],
            width,
        )
    ]
    if planned.fault:
        lines += indented(wrapped(flat(planned.fault, 300), width - 4, palette.warn), ("    ", ""))
    edges = gutter(planned.steps)
    for place, step in enumerate(planned.steps):
        lines.append(_step(item, place, (edges[place], step), width, palette))
    return lines


def _step(item: PlanRow, place: int, drawn: tuple[str, Step], width: int, palette: Palette) -> Line:
    edge, step = drawn
    tries = item.steps.get(place, [])
    sign, tone = _sign(tries[-1], palette) if tries else ("○", palette.dim)
    right: list[Part] = []
    if tries:
        took = sum(max(turn.ended - turn.begun, 0.0) for turn in tries)
        cost = spent(sum(turn.cost for turn in tries), unpriced=any(turn.unpriced for turn in tries))
        right = [
            (f" {brief_seconds(took):>5}", palette.dim),
            (f" {cost:>7}", palette.dim),
        ]
    agent = tries[-1].assigned.agent if tries else who(step)  # a step that failed is given to another one
    more = f" ×{len(tries)}" if len(tries) > 1 else ""
    left: list[Part] = [(f"   {edge}", palette.accent), (f"{place} ", palette.dim), (f"{sign} ", tone)]
    left += [
        (flat(agent), f"bold {palette.text}"),
        (more, palette.warn),
        (f" {flat(step.instruction, 120)}", palette.dim),
    ]
    return spread(left, right if width >= 34 else [], width)


def _turn(item: TurnRow, width: int, palette: Palette) -> Line:
    assigned = item.assigned
    sign, tone = _sign(item, palette)
    left: list[Part] = [
        (f"{assigned.turn:>2} ", palette.dim),
        (f"{sign} ", tone),
        (assigned.role if width >= 44 else assigned.role[0].upper(), palette.role(assigned.role)),
        (f" {flat(assigned.agent)}", palette.text),
    ]
    if item.draws:
        left.append((f" ×{item.draws + 1}", palette.warn))
    return spread(left, _numbers(item, width, palette), width)


def _numbers(item: TurnRow, width: int, palette: Palette) -> list[Part]:
    chance = item.probability
    rule = f"step {item.assigned.step}" if item.assigned.plan else item.assigned.by[:7]
    shown = probability(chance) if chance is not None else rule
    tokens = f"~{item.writing}" if item.writing and not item.tokens else count(item.tokens)
    cells: list[tuple[str, str, int]] = [
        (f"{shown:>4}", palette.accent, 30),
        (f"{brief_seconds(max(item.ended - item.begun, 0.0)):>5}", palette.dim, 30),
        (f"{tokens:>5}", palette.dim, 38),
        (f"{spent(item.cost, unpriced=item.unpriced):>7}", palette.dim, 50),
    ]
    made = [(f" {text}", words) for text, words, needs in cells if width >= needs]
    return [*made, (" ", ""), _outcome(item, width, palette)]


def _sign(item: TurnRow, palette: Palette) -> tuple[str, str]:
    return {
        "open": (WORKING, palette.accent),
        "closed": ("●", palette.role(item.assigned.role)),
        "failed": ("✗", palette.bad),
        "cut": ("■", palette.warn),
    }[item.state]


def _outcome(item: TurnRow, width: int, palette: Palette) -> Part:
    """A Verifier's verdict, else how the tests stood, else how the turn ended."""
    wide = width >= 56
    if item.verdict:
        good = item.verdict == "ACCEPT"
        return (item.verdict if wide else item.verdict[0]).ljust(
            6 if wide else 1
        ), palette.good if good else palette.warn
    if item.state in ("failed", "cut"):
        return (item.state.ljust(6) if wide else item.state[0]), palette.bad
    if item.tests is not None:
        word = "pass" if item.tests else "FAIL"
        return (word.ljust(6) if wide else "✓✗"[not item.tests]), palette.good if item.tests else palette.bad
    return " " * (6 if wide else 1), ""


def totals(
    by_agent: Mapping[str, tuple[Usage, float]], unpriced: Collection[str], width: int, palette: Palette
) -> list[Line]:
    """Tokens and money by agent; nobody knows the prices of `unpriced`."""
    if not by_agent:
        return []
    lines = [BLANK, line([("by agent", palette.dim)], width)]
    for name, (usage, cost) in sorted(by_agent.items(), key=lambda pair: -pair[1][1]):
        right: list[Part] = [(f"{count(usage.input)} in {count(usage.output)} out ", palette.dim)]
        right.append((f"{spent(cost, unpriced=name in unpriced):>7}", palette.text))
        lines.append(spread([(f"  {flat(name)}", palette.text)], right, width))
    return lines
