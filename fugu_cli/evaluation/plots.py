"""Three pictures of an evaluation as SVG: accuracy against cost, what a turn budget gives, who acted in which role.

Pure: a summary in, text out; no plotting library. Colours follow the reader's light or dark setting. It must not
compute: what is drawn is in the summary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10

from fugu_cli.evaluation.summary import Summary

COLOURS = (
    *("#2f6fb7", "#c8742a", "#3a8f5c", "#a8457a", "#7560c2", "#7d8288", "#b8402f", "#1d8f94", "#94863a", "#555a60"),
    *("#5aa9e6", "#e0a458", "#7fb069", "#d98cb3", "#a594f9", "#8d6e63", "#e57368", "#4db6ac"),
)
SHADES = {"worker": 1.0, "thinker": 0.6, "verifier": 0.3}
WIDTH = 720
LETTER = 7.0
"""Pixels that a letter takes at most, mostly."""
LINE = 14.0
BESIDE = 1.2
"""Pixels between lines that would otherwise lie on each other."""
_STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#333}.axis{stroke:#999}.grid{stroke:#e3e3e3}.mean{stroke-width:2}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#888}.grid{stroke:#444}}</style>"
)


@dataclass(frozen=True)
class _Frame:
    """Where values lie on the picture: x from 0 to `most`, y from 0 to 1."""

    most: float
    left: float = 50
    top: float = 30
    width: float = WIDTH - 220
    height: float = 260

    def x(self, value: float) -> float:
        return self.left + self.width * value / (self.most or 1)

    def y(self, share: float) -> float:
        return self.top + self.height * (1 - share)


def accuracy_against_cost(summary: Summary) -> str:
    """A point for each arm: its mean cost a try and the share it solved, with the 95 % interval."""
    costs = {arm.name: (arm.usd if summary.priced else arm.seconds) for arm in summary.arms}
    part = step(max((cost.value for cost in costs.values()), default=1))
    ticks = floor(max((cost.value for cost in costs.values()), default=1) / part) + 1
    frame = _Frame(part * ticks)
    unit = "USD a try" if summary.priced else "seconds of model calls a try"
    parts = [*_axes(frame, unit, ticks)]
    heights = [frame.y(arm.solved.fraction) for arm in summary.arms]
    places = _apart(heights, [-costs[arm.name].value for arm in summary.arms])
    for index, arm in enumerate(summary.arms):
        colour = COLOURS[index % len(COLOURS)]
        x, y = frame.x(costs[arm.name].value), frame.y(arm.solved.fraction)
        low, high = frame.y(arm.solved.low), frame.y(arm.solved.high)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        beside = frame.left + frame.width + 14
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{beside - 3:.1f}" y2="{places[index]:.1f}" class="grid"/>')
        parts.append(_text(beside, places[index] + 4, arm.name, f'style="fill:{colour}"'))
    size = _beside(costs), max([frame.top + frame.height + 29, *places]) + 16
    return _picture("Solved, against what a try costs", parts, size)


def turn_budget(summary: Summary) -> str:
    """Steps for each arm: the share it had solved and finished within so many turns. Equal arms lie side by side."""
    longest = max([1, *(len(curve) for curve in summary.curves.values())])
    part = max(1.0, step(longest))
    ticks = ceil(longest / part)
    frame = _Frame(part * ticks)
    parts = [*_axes(frame, "turns", ticks)]
    ends = _apart([frame.y(curve[-1]) if curve else frame.y(0) for curve in summary.curves.values()])
    for index, (name, curve) in enumerate(summary.curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        aside = BESIDE * (index - len(summary.curves) / 2)
        points = _stairs(frame, curve, aside)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" class="mean"/>')
        parts.append(_text(frame.left + frame.width + 14, ends[index] + 4, name, f'style="fill:{colour}"'))
    size = _beside(summary.curves), max([frame.top + frame.height + 29, *ends]) + 16
    return _picture("Solved within a turn budget", parts, size)


def _beside(names: Iterable[str]) -> float:
    """How wide a picture is with these names to the right of its frame."""
    return max([WIDTH, *(_Frame(1).left + _Frame(1).width + 14 + LETTER * len(name) for name in names)])


def _stairs(frame: _Frame, curve: Sequence[float], aside: float) -> str:
    """A curve that rises at whole turns only, moved by `aside` so that it hides no equal one."""
    points = [(0, 0.0)]
    for turn, share in enumerate(curve, start=1):
        points += [(turn, points[-1][1]), (turn, share)]
    return " ".join(f"{frame.x(turn) + aside:.1f},{frame.y(share) + aside:.1f}" for turn, share in points)


def use_by_role(summary: Summary) -> str:
    """A bar for each arm: whose turns they were, by colour, and in which role, by shade."""
    agents = sorted({agent for uses in summary.uses.values() for agent, _ in uses})
    colours = {agent: COLOURS[index % len(COLOURS)] for index, agent in enumerate(agents)}
    left = max([190.0, *(12 + LETTER * len(name) for name in summary.uses)])
    width, parts = WIDTH - 210.0, []
    for row, (name, uses) in enumerate(summary.uses.items()):
        y = 40 + 24 * row
        parts.append(_text(left - 8, y + 12, name, 'text-anchor="end"'))
        parts += _bar(uses, colours, (left, y, width))
    bottom = 40 + 24 * len(summary.uses)
    x, wide = left, left + width + 20
    for name, style in [*((agent, f'fill="{colours[agent]}"') for agent in agents), *_roles()]:
        if x > left and x + 16 + LETTER * len(name) > wide:
            x, bottom = left, bottom + 20
        parts.append(f'<rect x="{x:.0f}" y="{bottom + 10}" width="12" height="12" {style}/>')
        parts.append(_text(x + 16, bottom + 20, name))
        x += 30 + LETTER * len(name)
    return _picture("Turns by agent and role", parts, (wide, bottom + 40))


def _bar(
    uses: Mapping[tuple[str, str], int], colours: Mapping[str, str], place: tuple[float, float, float]
) -> list[str]:
    x, y, width = place
    total = sum(uses.values()) or 1
    parts = []
    for (agent, role), turns in sorted(uses.items()):
        wide = width * turns / total
        label = f"<title>{escape(agent)} as {role}: {turns} of {total} turns</title>"
        fill = f'fill="{colours[agent]}" fill-opacity="{SHADES.get(role, 1)}"'
        parts.append(f'<rect x="{x:.1f}" y="{y}" width="{wide:.1f}" height="18" {fill}>{label}</rect>')
        x += wide
    return parts


def _roles() -> list[tuple[str, str]]:
    return [(role, f'fill="#7d8288" fill-opacity="{shade}"') for role, shade in SHADES.items()]


def _axes(frame: _Frame, unit: str, ticks: int) -> list[str]:
    right, bottom = frame.left + frame.width, frame.top + frame.height
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = frame.y(share)
        parts.append(f'<line x1="{frame.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>')
        parts.append(_text(frame.left - 6, y + 4, f"{100 * share:.0f} %", 'text-anchor="end"'))
    for tick in range(ticks + 1):
        value = frame.most * tick / ticks
        parts.append(_text(frame.x(value), bottom + 16, f"{value:.3g}", 'text-anchor="middle"'))
    parts.append(f'<line x1="{frame.left}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>')
    parts.append(_text(frame.left + frame.width / 2, bottom + 34, unit, 'text-anchor="middle"'))
    return parts


def step(largest: float) -> float:
    """1, 2 or 5 of a power of ten: what an axis up to `largest` is divided by, into eight parts at most."""
    if largest <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(largest / 8))
    return next(unit * factor for factor in (1, 2, 5, 10) if largest / (unit * factor) <= 8)


def _apart(heights: Sequence[float], ties: Sequence[float] = ()) -> list[float]:
    """The same heights, moved down where labels would lie on each other; of equal ones the least of `ties` is first."""
    order = sorted(range(len(heights)), key=lambda index: (heights[index], ties[index] if ties else 0.0))
    placed = list(heights)
    for before, index in pairwise(order):
        placed[index] = max(placed[index], placed[before] + LINE)
    return placed


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def _picture(title: str, parts: Sequence[str], size: tuple[float, float]) -> str:
    box = f"0 0 {size[0]:.0f} {size[1]:.0f}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{box}" role="img"><title>{title}</title>'
    return "\n".join([head, _STYLE, _text(10, 16, title, 'style="font-weight:600"'), *parts, "</svg>\n"])
