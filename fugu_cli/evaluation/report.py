"""The report of an evaluation: a Markdown file with three SVG plots, and one HTML file that holds everything."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import ceil, floor, log10
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.evaluation.intervals import Mean, Proportion
from fugu_cli.evaluation.summary import ArmPair, ArmSummary, EvaluationSummary

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


def accuracy_against_cost(summary: EvaluationSummary) -> str:
    """A point for each arm: its mean cost a try and the share it solved, with the 95 % interval."""
    costs = {arm.name: (arm.usd if summary.priced else arm.seconds) for arm in summary.arms}
    part = axis_step(max((cost.value for cost in costs.values()), default=1))
    ticks = floor(max((cost.value for cost in costs.values()), default=1) / part) + 1
    frame = _Frame(part * ticks)
    unit = "USD a try" if summary.priced else "seconds of model calls a try"
    parts = [*_axes(frame, unit, ticks)]
    heights = [frame.y(arm.solved.fraction) for arm in summary.arms]
    places = _separate_labels(heights, [-costs[arm.name].value for arm in summary.arms])
    for index, arm in enumerate(summary.arms):
        colour = COLOURS[index % len(COLOURS)]
        x, y = frame.x(costs[arm.name].value), frame.y(arm.solved.fraction)
        low, high = frame.y(arm.solved.low), frame.y(arm.solved.high)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>')
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        beside = frame.left + frame.width + 14
        parts.append(f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{beside - 3:.1f}" y2="{places[index]:.1f}" class="grid"/>')
        parts.append(_text(beside, places[index] + 4, arm.name, f'style="fill:{colour}"'))
    size = _label_width(costs), max([frame.top + frame.height + 29, *places]) + 16
    return _picture("Solved, against what a try costs", parts, size)


def turn_budget(summary: EvaluationSummary) -> str:
    """Steps for each arm: the share it had solved and finished within so many turns. Equal arms lie side by side."""
    longest = max([1, *(len(curve) for curve in summary.curves.values())])
    part = max(1.0, axis_step(longest))
    ticks = ceil(longest / part)
    frame = _Frame(part * ticks)
    parts = [*_axes(frame, "turns", ticks)]
    ends = _separate_labels([frame.y(curve[-1]) if curve else frame.y(0) for curve in summary.curves.values()])
    for index, (name, curve) in enumerate(summary.curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        aside = BESIDE * (index - len(summary.curves) / 2)
        points = _stairs(frame, curve, aside)
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" class="mean"/>')
        parts.append(_text(frame.left + frame.width + 14, ends[index] + 4, name, f'style="fill:{colour}"'))
    size = _label_width(summary.curves), max([frame.top + frame.height + 29, *ends]) + 16
    return _picture("Solved within a turn budget", parts, size)


def _label_width(names: Iterable[str]) -> float:
    """How wide a picture is with these names to the right of its frame."""
    return max([WIDTH, *(_Frame(1).left + _Frame(1).width + 14 + LETTER * len(name) for name in names)])


def _stairs(frame: _Frame, curve: Sequence[float], aside: float) -> str:
    """A curve that rises at whole turns only, moved by `aside` so that it hides no equal one."""
    points = [(0, 0.0)]
    for turn, share in enumerate(curve, start=1):
        points += [(turn, points[-1][1]), (turn, share)]
    return " ".join(f"{frame.x(turn) + aside:.1f},{frame.y(share) + aside:.1f}" for turn, share in points)


def use_by_role(summary: EvaluationSummary) -> str:
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


def axis_step(largest: float) -> float:
    """1, 2 or 5 of a power of ten: what an axis up to `largest` is divided by, into eight parts at most."""
    if largest <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(largest / 8))
    return next(unit * factor for factor in (1, 2, 5, 10) if largest / (unit * factor) <= 8)


def _separate_labels(heights: Sequence[float], ties: Sequence[float] = ()) -> list[float]:
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


PICTURES = {
    "accuracy-cost.svg": accuracy_against_cost,
    "turn-budget.svg": turn_budget,
    "agent-use.svg": use_by_role,
}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;margin:1rem 0}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:right;white-space:nowrap}"
    ".name{text-align:left}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}td,th{border-color:#444}}"
)


@dataclass(frozen=True)
class ReportTable:
    """A heading, what it means in a sentence or two, and its cells; the first `names` columns are words."""

    title: str
    words: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    names: int = 1


@dataclass(frozen=True)
class ReportNotes:
    """What a report says besides the numbers: facts about the run by name, and sentences about what is missing."""

    title: str
    facts: Mapping[str, str]
    notes: tuple[str, ...] = ()


def write_report(folder: Path, report: ReportNotes, summary: EvaluationSummary) -> tuple[Path, Path]:
    """report.md with its pictures, and report.html, in `folder`. Raises StorageError."""
    page, html = folder / "report.md", folder / "report.html"
    try:
        for name, draw in PICTURES.items():
            (folder / name).write_text(draw(summary), encoding="utf-8")
        page.write_text(as_markdown(report, summary), encoding="utf-8")
        html.write_text(as_html(report, summary), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder}: the report cannot be written: {error}") from error
    return page, html


def as_markdown(report: ReportNotes, summary: EvaluationSummary) -> str:
    """The report as Markdown; the pictures are files beside it."""
    parts = [f"# {_plain(report.title)}"]
    parts += ["\n".join(f"- {name}: {_plain(value)}" for name, value in report.facts.items())]
    parts += map(_plain, report.notes)
    for table in report_tables(summary):
        parts += [f"## {table.title}", table.words, _markdown_table(table)]
    parts += [f"![{name.removesuffix('.svg')}]({name})" for name in PICTURES] if summary.arms else []
    return "\n\n".join(part for part in parts if part) + "\n"


def as_html(report: ReportNotes, summary: EvaluationSummary) -> str:
    """The report as one file: nothing is fetched from anywhere."""
    facts = "".join(f"<li>{escape(name)}: {escape(value)}</li>" for name, value in report.facts.items())
    parts = [f"<h1>{escape(report.title)}</h1>", f"<ul>{facts}</ul>", *(f"<p>{escape(n)}</p>" for n in report.notes)]
    parts += [draw(summary) for draw in PICTURES.values()] if summary.arms else []
    for table in report_tables(summary):
        head = _html_cells(table, table.head, "th")
        lines = "".join(f"<tr>{_html_cells(table, line, 'td')}</tr>" for line in table.lines)
        parts.append(f"<h2>{escape(table.title)}</h2><p>{escape(table.words)}</p><table><tr>{head}</tr>{lines}</table>")
    opening = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f"{opening}<title>{escape(report.title)}</title><style>{STYLE}</style>\n" + "\n".join(parts) + "\n</html>\n"


def _html_cells(table: ReportTable, cells: Sequence[str], tag: str) -> str:
    kinds = [' class="name"' if column < table.names else "" for column in range(len(cells))]
    return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))


def report_tables(summary: EvaluationSummary) -> tuple[ReportTable, ...]:
    """Arms, costs, pairs, and who did what."""
    if not summary.arms:
        return (ReportTable("Nothing measured", "There are no rows yet.", ("arm",), ()),)
    return (_arms(summary), _costs(summary), _pairs(summary), _uses(summary))


def _arms(summary: EvaluationSummary) -> ReportTable:
    sources = list(dict.fromkeys(source for arm in summary.arms for source in arm.by_source))
    lines = [
        (
            arm.name,
            f"{arm.solved.count} / {arm.solved.total}",
            _between(arm.solved),
            *(_of(arm, source) for source in sources),
            str(arm.accepted),
            str(arm.wrongly),
        )
        for arm in summary.arms
    ]
    if summary.oracle is not None:
        share = summary.oracle
        blank = ("-",) * (len(sources) + 2)
        lines.append(("oracle of the single agents", f"{share.count} / {share.total}", _between(share), *blank))
    again = "" if all(arm.once for arm in summary.arms) else ", for as many tries as those of repeated tasks are worth"
    words = (
        "Solved: the task's own tests pass in a fresh copy, or the answer is right. The interval is Wilson's, "
        f"95 %{again}. "
        "Accepted is fugu's own word for a request that came to a good end; the last column counts where it was wrong. "
        "The oracle counts a task as solved when any single agent solved it."
    )
    return ReportTable(
        "Solved", words, ("arm", "solved", "95 %", *sources, "accepted", "accepted, but wrong"), tuple(lines)
    )


def _between(share: Proportion) -> str:
    return f"{100 * share.low:.0f}-{100 * share.high:.0f} %"


def _of(arm: ArmSummary, source: str) -> str:
    solved, total = arm.by_source.get(source, (0, 0))
    return f"{solved} / {total}"


def _costs(summary: EvaluationSummary) -> ReportTable:
    lines = tuple(
        (
            arm.name,
            _money(arm.usd) if summary.priced else "-",
            _interval(arm.seconds, "{:.1f}"),
            f"{arm.wall:.1f}",
            f"{arm.tokens_in:.0f}",
            f"{arm.tokens_out:.0f}",
            f"{arm.calls:.1f}",
            f"{arm.turns:.1f}",
        )
        for arm in summary.arms
    )
    words = (
        "Means a try. Model seconds are those of the calls when they were made; a reply that was kept from another arm "
        "counts in full here, so wall seconds can be fewer. Intervals: bootstrap over tasks, 95 %."
    )
    head = ("arm", "USD", "model s", "wall s", "tokens in", "tokens out", "calls", "turns")
    return ReportTable("Cost", words, head, lines)


def _pairs(summary: EvaluationSummary) -> ReportTable:
    unit = "USD" if summary.priced else "model seconds"
    words = (
        "On the tasks and seeds that both were run on; of many arms each with the first. p is McNemar's exact "
        "two-sided test, the tries of a task taken together, without a correction for the number of comparisons. "
        f"The last column is the second's mean {unit} less the first's, with a paired bootstrap interval."
    )
    head = ("first", "second", "both", "first only", "second only", "neither", "p", "cost difference")
    return ReportTable("Arm against arm", words, head, tuple(_pair(pair, summary.priced) for pair in summary.pairs), 2)


def _pair(pair: ArmPair, priced: bool) -> tuple[str, ...]:
    found = pair.paired
    counts = (str(count) for count in (found.both, found.first_only, found.second_only, found.neither))
    difference = _interval(pair.difference, "{:+.4f}" if priced else "{:+.1f}")
    return (pair.first, pair.second, *counts, f"{found.p:.3f}", difference)


def _uses(summary: EvaluationSummary) -> ReportTable:
    lines = tuple(
        (name, agent, role, str(turns), f"{100 * turns / (sum(uses.values()) or 1):.0f} %")
        for name, uses in summary.uses.items()
        for (agent, role), turns in sorted(uses.items())
    )
    return ReportTable("Who acted", "Turns by agent and role.", ("arm", "agent", "role", "turns", "share"), lines, 3)


def _money(mean: Mean) -> str:
    return _interval(mean, "{:.4f}")


def _interval(mean: Mean, form: str) -> str:
    return f"{form.format(mean.value)} ({form.format(mean.low)} to {form.format(mean.high)})"


def _markdown_table(table: ReportTable) -> str:
    rule = (*["---"] * table.names, *["---:"] * (len(table.head) - table.names))
    head, *lines = (map(_plain, line) for line in (table.head, *table.lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _plain(text: str) -> str:
    """Words that come from elsewhere, names and what tests print, on one line and as they are."""
    return re.sub(r"[\\`*<|]", r"\\\g<0>", " ".join(text.split()))
