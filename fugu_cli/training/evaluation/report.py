"""The report of an evaluation: Markdown with a picture beside it, and the same as one HTML file
that holds everything.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from math import floor, log10
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.training.evaluation.intervals import Mean, Proportion
from fugu_cli.training.evaluation.summary import ArmPair, ArmSummary, EvaluationSummary

COLOURS = (
    "#2f6fb7",
    "#c8742a",
    "#3a8f5c",
    "#a8457a",
    "#7560c2",
    "#7d8288",
    "#b8402f",
    "#1d8f94",
    "#94863a",
    "#555a60",
    "#5aa9e6",
    "#e0a458",
    "#7fb069",
    "#d98cb3",
    "#a594f9",
    "#8d6e63",
    "#e57368",
    "#4db6ac",
)
WIDTH = 720
LETTER = 7.0
"""Width of a wide letter, in pixels."""
LINE = 14.0
"""Height of a line of text, in pixels."""
PICTURE = "accuracy-cost.svg"
_STYLE = (
    "<style>text{font:12px system-ui,sans-serif;fill:#333}.axis{stroke:#999}.grid{stroke:#e3e3e3}"
    "@media(prefers-color-scheme:dark){text{fill:#ddd}.axis{stroke:#888}.grid{stroke:#444}}</style>"
)
_PAGE_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 "
    "1rem;color:#222}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;margin:1rem 0}"
    "td,th{border:1px solid #ccc;padding:.25rem "
    ".6rem;white-space:nowrap}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}td,th{border-color:#444}}"
)


@dataclass(frozen=True)
class _Frame:
    """The plot area: x from 0 to `most`, y from 0 to 1."""

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
    """Draw a point for each arm as SVG: its mean cost per try and its solved share, with the 95 %
    interval.
    """
    costs = [arm.usd.value if summary.priced else arm.seconds.value for arm in summary.arms]
    largest = max(costs, default=1)
    step = axis_step(largest)
    ticks = floor(largest / step) + 1
    frame = _Frame(step * ticks)
    unit = "USD a try" if summary.priced else "seconds of model calls a try"
    parts = [*_axes(frame, unit, ticks)]
    heights = [frame.y(arm.solved.fraction) for arm in summary.arms]
    label_heights = _separate_labels(heights, [-cost for cost in costs])
    label_x = frame.left + frame.width + 14
    for index, arm in enumerate(summary.arms):
        colour = COLOURS[index % len(COLOURS)]
        label_y = label_heights[index]
        x, y = frame.x(costs[index]), frame.y(arm.solved.fraction)
        low, high = frame.y(arm.solved.low), frame.y(arm.solved.high)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}" stroke="{colour}"/>'
        )
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="{colour}"/>')
        parts.append(
            f'<line x1="{x:.1f}" y1="{y:.1f}" x2="{label_x - 3:.1f}" y2="{label_y:.1f}" '
            f'class="grid"/>'
        )
        parts.append(_text(label_x, label_y + 4, arm.name, f'style="fill:{colour}"'))
    longest_name = max((len(arm.name) for arm in summary.arms), default=0)
    width = max(WIDTH, label_x + LETTER * longest_name)
    height = max([frame.top + frame.height + 29, *label_heights]) + 16
    title = "Solved, against what a try costs"
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'role="img"><title>{title}</title>'
    )
    title_text = _text(10, 16, title, 'style="font-weight:600"')
    return "\n".join([head, _STYLE, title_text, *parts, "</svg>\n"])


def _axes(frame: _Frame, unit: str, ticks: int) -> list[str]:
    right, bottom = frame.left + frame.width, frame.top + frame.height
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = frame.y(share)
        parts.append(
            f'<line x1="{frame.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        )
        parts.append(_text(frame.left - 6, y + 4, f"{100 * share:.0f} %", 'text-anchor="end"'))
    for tick in range(ticks + 1):
        value = frame.most * tick / ticks
        parts.append(_text(frame.x(value), bottom + 16, f"{value:.3g}", 'text-anchor="middle"'))
    parts.append(f'<line x1="{frame.left}" x2="{right}" y1="{bottom}" y2="{bottom}" class="axis"/>')
    parts.append(_text(frame.left + frame.width / 2, bottom + 34, unit, 'text-anchor="middle"'))
    return parts


def axis_step(largest: float) -> float:
    """Return 1, 2 or 5 times a power of ten that divides an axis up to `largest` into eight parts
    at most.
    """
    if largest <= 0:
        return 1.0
    unit = 10.0 ** floor(log10(largest / 8))
    return next(unit * factor for factor in (1, 2, 5, 10) if largest / (unit * factor) <= 8)


def _separate_labels(heights: Sequence[float], ties: Sequence[float]) -> list[float]:
    """Return the heights, moved down where labels would overlap. Of equal heights the one with the
    least value in `ties` comes first.
    """
    order = sorted(range(len(heights)), key=lambda index: (heights[index], ties[index]))
    placed = list(heights)
    for before, index in pairwise(order):
        placed[index] = max(placed[index], placed[before] + LINE)
    return placed


def _text(x: float, y: float, words: str, more: str = "") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


@dataclass(frozen=True)
class ReportTable:
    """A table of the report with its title and a paragraph that explains it.

    The first `names` columns hold words, the others numbers.
    """

    title: str
    words: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    names: int = 1


@dataclass(frozen=True)
class ReportNotes:
    """The text of a report besides its numbers: facts about the run by name, and sentences about
    missing parts.
    """

    title: str
    facts: Mapping[str, str]
    notes: tuple[str, ...] = ()


def write_report(
    folder: Path, report: ReportNotes, summary: EvaluationSummary
) -> tuple[Path, Path]:
    """Write report.md with its picture, and report.html, into `folder`. Raises StorageError."""
    page, html = folder / "report.md", folder / "report.html"
    try:
        (folder / PICTURE).write_text(accuracy_against_cost(summary), encoding="utf-8")
        page.write_text(as_markdown(report, summary), encoding="utf-8")
        html.write_text(as_html(report, summary), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder}: the report cannot be written: {error}") from error
    return page, html


def as_markdown(report: ReportNotes, summary: EvaluationSummary) -> str:
    """Return the report as Markdown. The picture is a file beside it."""
    parts = [f"# {_plain(report.title)}"]
    parts += ["\n".join(f"- {name}: {_plain(value)}" for name, value in report.facts.items())]
    parts += map(_plain, report.notes)
    for table in report_tables(summary):
        parts += [f"## {table.title}", table.words, _markdown_table(table)]
    parts += [f"![accuracy-cost]({PICTURE})"] if summary.arms else []
    return "\n\n".join(part for part in parts if part) + "\n"


def as_html(report: ReportNotes, summary: EvaluationSummary) -> str:
    """Return the report as one HTML file that fetches nothing."""
    facts = [f"<li>{escape(name)}: {escape(value)}</li>" for name, value in report.facts.items()]
    parts = [f"<h1>{escape(report.title)}</h1>", "<ul>", *facts, "</ul>"]
    parts += [f"<p>{escape(note)}</p>" for note in report.notes]
    for table in report_tables(summary):
        parts += [f"<h2>{escape(table.title)}</h2>", f"<p>{escape(table.words)}</p>"]
        rows = [_html_row(table.head, "th")]
        rows += [_html_row(line, "td") for line in table.lines]
        parts.append("\n".join(["<table>", *rows, "</table>"]))
    parts += [accuracy_against_cost(summary)] if summary.arms else []
    page = "\n".join(parts)
    opening = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" '
        'content="width=device-width">'
    )
    return f"{opening}<title>{escape(report.title)}</title><style>{_PAGE_STYLE}</style>\n{page}</html>\n"


def report_tables(summary: EvaluationSummary) -> tuple[ReportTable, ...]:
    """Return the tables: arms, costs, pairs, and uses."""
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
            *(_solved_of_suite(arm, source) for source in sources),
            str(arm.accepted),
            str(arm.wrongly),
        )
        for arm in summary.arms
    ]
    if summary.oracle is not None:
        share = summary.oracle
        blank = ("-",) * (len(sources) + 2)
        lines.append(
            (
                "oracle of the single agents",
                f"{share.count} / {share.total}",
                _between(share),
                *blank,
            )
        )
    repeated = ""
    if not all(arm.once for arm in summary.arms):
        repeated = ", for as many tries as those of repeated tasks are worth"
    words = (
        "Solved: the task's own tests pass in a fresh copy, or the answer is right. The interval "
        f"is Wilson's, 95 %{repeated}. "
        "Accepted is fugu's own word for a request that came to a good end; the last column "
        "counts where it was wrong. "
        "The oracle counts a task as solved when any single agent solved it."
    )
    return ReportTable(
        "Solved",
        words,
        ("arm", "solved", "95 %", *sources, "accepted", "accepted, but wrong"),
        tuple(lines),
    )


def _between(share: Proportion) -> str:
    return f"{100 * share.low:.0f}-{100 * share.high:.0f} %"


def _solved_of_suite(arm: ArmSummary, source: str) -> str:
    solved, total = arm.by_source.get(source, (0, 0))
    return f"{solved} / {total}"


def _costs(summary: EvaluationSummary) -> ReportTable:
    lines = tuple(
        (
            arm.name,
            _interval(arm.usd, "{:.4f}") if summary.priced else "-",
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
        "Means a try. Model seconds are those of the calls when they were made; a reply that was "
        "kept from another arm "
        "counts in full here, so wall seconds can be fewer. Intervals: bootstrap over tasks, 95 %."
    )
    head = ("arm", "USD", "model s", "wall s", "tokens in", "tokens out", "calls", "turns")
    return ReportTable("Cost", words, head, lines)


def _pairs(summary: EvaluationSummary) -> ReportTable:
    unit = "USD" if summary.priced else "model seconds"
    words = (
        "On the tasks and seeds that both were run on; of many arms each with the first. p is "
        "McNemar's exact "
        "two-sided test, the tries of a task taken together, without a correction for the number "
        "of comparisons. "
        f"The last column is the second's mean {unit} less the first's, with a paired bootstrap "
        f"interval."
    )
    head = (
        "first",
        "second",
        "both",
        "first only",
        "second only",
        "neither",
        "p",
        "cost difference",
    )
    return ReportTable(
        "Arm against arm",
        words,
        head,
        tuple(_pair(pair, summary.priced) for pair in summary.pairs),
        2,
    )


def _pair(pair: ArmPair, priced: bool) -> tuple[str, ...]:
    paired = pair.paired
    counts = (
        str(count) for count in (paired.both, paired.first_only, paired.second_only, paired.neither)
    )
    difference = _interval(pair.difference, "{:+.4f}" if priced else "{:+.1f}")
    return (pair.first, pair.second, *counts, f"{paired.p:.3f}", difference)


def _uses(summary: EvaluationSummary) -> ReportTable:
    lines = []
    for name, uses in summary.uses.items():
        total = sum(uses.values()) or 1
        for (agent, role), turns in sorted(uses.items()):
            lines.append((name, agent, role, str(turns), f"{100 * turns / total:.0f} %"))
    head = ("arm", "agent", "role", "turns", "share")
    return ReportTable("Who acted", "Turns by agent and role.", head, tuple(lines), names=3)


def _interval(mean: Mean, form: str) -> str:
    return f"{form.format(mean.value)} ({form.format(mean.low)} to {form.format(mean.high)})"


def _markdown_table(table: ReportTable) -> str:
    rule = (*["---"] * table.names, *["---:"] * (len(table.head) - table.names))
    head, *lines = (map(_plain, line) for line in (table.head, *table.lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _html_row(cells: Sequence[str], tag: str) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


def _plain(text: str) -> str:
    """Return foreign text on one line, escaped for Markdown."""
    return re.sub(r"[\\`*<|]", r"\\\g<0>", " ".join(text.split()))
