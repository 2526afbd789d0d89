"""The report of an evaluation: one Markdown file with its pictures beside it, and one HTML file that holds everything.

Pure but for `write`: a summary in, text out. A number that is not in the summary is not in the report.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.evaluation import plots
from fugu_cli.evaluation.summary import Arm, Pair, Summary
from fugu_cli.statistics import Mean, Share

PICTURES = {
    "accuracy-cost.svg": plots.accuracy_against_cost,
    "turn-budget.svg": plots.turn_budget,
    "agent-use.svg": plots.use_by_role,
}
STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "table{border-collapse:collapse;display:block;overflow-x:auto;margin:1rem 0}"
    "td,th{border:1px solid #ccc;padding:.25rem .6rem;text-align:right;white-space:nowrap}"
    ".name{text-align:left}svg{max-width:100%;height:auto}"
    "@media(prefers-color-scheme:dark){body{background:#181a1b;color:#ddd}td,th{border-color:#444}}"
)


@dataclass(frozen=True)
class Table:
    """A heading, what it means in a sentence or two, and its cells; the first `names` columns are words."""

    title: str
    words: str
    head: tuple[str, ...]
    lines: tuple[tuple[str, ...], ...]
    names: int = 1


@dataclass(frozen=True)
class Report:
    """What a report says besides the numbers: facts about the run by name, and sentences about what is missing."""

    title: str
    facts: Mapping[str, str]
    notes: tuple[str, ...] = ()


def write(folder: Path, report: Report, summary: Summary) -> tuple[Path, Path]:
    """report.md with its pictures, and report.html, in `folder`. Raises StorageError."""
    page, html = folder / "report.md", folder / "report.html"
    try:
        for name, draw in PICTURES.items():
            (folder / name).write_text(draw(summary), encoding="utf-8")
        page.write_text(markdown(report, summary), encoding="utf-8")
        html.write_text(as_html(report, summary), encoding="utf-8")
    except OSError as error:
        raise StorageError(f"{folder}: the report cannot be written: {error}") from error
    return page, html


def markdown(report: Report, summary: Summary) -> str:
    """The report as Markdown; the pictures are files beside it."""
    parts = [f"# {_plain(report.title)}"]
    parts += ["\n".join(f"- {name}: {_plain(value)}" for name, value in report.facts.items())]
    parts += map(_plain, report.notes)
    for table in tables(summary):
        parts += [f"## {table.title}", table.words, _markdown_table(table)]
    parts += [f"![{name.removesuffix('.svg')}]({name})" for name in PICTURES] if summary.arms else []
    return "\n\n".join(part for part in parts if part) + "\n"


def as_html(report: Report, summary: Summary) -> str:
    """The report as one file: nothing is fetched from anywhere."""
    facts = "".join(f"<li>{escape(name)}: {escape(value)}</li>" for name, value in report.facts.items())
    parts = [f"<h1>{escape(report.title)}</h1>", f"<ul>{facts}</ul>", *(f"<p>{escape(n)}</p>" for n in report.notes)]
    parts += [draw(summary) for draw in PICTURES.values()] if summary.arms else []
    for table in tables(summary):
        head = _html_cells(table, table.head, "th")
        lines = "".join(f"<tr>{_html_cells(table, line, 'td')}</tr>" for line in table.lines)
        parts.append(f"<h2>{escape(table.title)}</h2><p>{escape(table.words)}</p><table><tr>{head}</tr>{lines}</table>")
    opening = '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    return f"{opening}<title>{escape(report.title)}</title><style>{STYLE}</style>\n" + "\n".join(parts) + "\n</html>\n"


def _html_cells(table: Table, cells: Sequence[str], tag: str) -> str:
    kinds = [' class="name"' if column < table.names else "" for column in range(len(cells))]
    return "".join(f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True))


def tables(summary: Summary) -> tuple[Table, ...]:
    """Arms, costs, pairs, and who did what."""
    if not summary.arms:
        return (Table("Nothing measured", "There are no rows yet.", ("arm",), ()),)
    return (_arms(summary), _costs(summary), _pairs(summary), _uses(summary))


def _arms(summary: Summary) -> Table:
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
    return Table("Solved", words, ("arm", "solved", "95 %", *sources, "accepted", "accepted, but wrong"), tuple(lines))


def _between(share: Share) -> str:
    return f"{100 * share.low:.0f}-{100 * share.high:.0f} %"


def _of(arm: Arm, source: str) -> str:
    solved, total = arm.by_source.get(source, (0, 0))
    return f"{solved} / {total}"


def _costs(summary: Summary) -> Table:
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
    return Table("Cost", words, head, lines)


def _pairs(summary: Summary) -> Table:
    unit = "USD" if summary.priced else "model seconds"
    words = (
        "On the tasks and seeds that both were run on; of many arms each with the first. p is McNemar's exact "
        "two-sided test, the tries of a task taken together, without a correction for the number of comparisons. "
        f"The last column is the second's mean {unit} less the first's, with a paired bootstrap interval."
    )
    head = ("first", "second", "both", "first only", "second only", "neither", "p", "cost difference")
    return Table("Arm against arm", words, head, tuple(_pair(pair, summary.priced) for pair in summary.pairs), 2)


def _pair(pair: Pair, priced: bool) -> tuple[str, ...]:
    found = pair.paired
    counts = (str(count) for count in (found.both, found.first_only, found.second_only, found.neither))
    difference = _interval(pair.difference, "{:+.4f}" if priced else "{:+.1f}")
    return (pair.first, pair.second, *counts, f"{found.p:.3f}", difference)


def _uses(summary: Summary) -> Table:
    lines = tuple(
        (name, agent, role, str(turns), f"{100 * turns / (sum(uses.values()) or 1):.0f} %")
        for name, uses in summary.uses.items()
        for (agent, role), turns in sorted(uses.items())
    )
    return Table("Who acted", "Turns by agent and role.", ("arm", "agent", "role", "turns", "share"), lines, 3)


def _money(mean: Mean) -> str:
    return _interval(mean, "{:.4f}")


def _interval(mean: Mean, form: str) -> str:
    return f"{form.format(mean.value)} ({form.format(mean.low)} to {form.format(mean.high)})"


def _markdown_table(table: Table) -> str:
    rule = (*["---"] * table.names, *["---:"] * (len(table.head) - table.names))
    head, *lines = (map(_plain, line) for line in (table.head, *table.lines))
    return "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *lines))


def _plain(text: str) -> str:
    """Words that come from elsewhere, names and what tests print, on one line and as they are."""
    return re.sub(r"[\\`*<|]", r"\\\g<0>", " ".join(text.split()))
