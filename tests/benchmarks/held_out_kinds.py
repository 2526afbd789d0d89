"""How well one number per model predicts a kind of task that was held out.

    python -m tests.benchmarks.held_out_kinds RESULTS.jsonl.gz

RESULTS holds published figures of models, as `skills_fit` reads them. For every kind, skills are
fitted on the boards of the other kinds. Of each board of the kind only its line (how hard it is and
how far it spreads models) is fitted, and a figure is predicted from the line through the board's
other figures. The page has the mean absolute error in points, beside that of the board's own mean,
and names every board's source.
"""

from __future__ import annotations

import argparse
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np

from tests.benchmarks.skills_fit import KINDS, Figure, effort_offset, fit, logit, read_figures

PAGE = Path(__file__).parent / "results" / "skills.md"
HEAD = """\
# What public figures of models tell

`fugu_cli/coordinators/data/skills.json` holds one skill per model with its error and one line per
kind of request, fitted by `tests/benchmarks/skills_fit.py` to the published figures of the boards
below. None of the figures themselves are shipped.

## One number per model predicts a kind that was held out

`tests/benchmarks/held_out_kinds.py` fits skills without any board of a kind. Then it predicts each
figure of that kind from its model's skill and the line through the board's other figures. Mean
absolute errors in points, beside those of the mean of the board's other figures:
"""
SOURCES = """\
What is left is little more than what another harness moves a figure by (5.5 points). So a model has
one skill for all kinds, and only the user's own outcomes tell its kinds apart.

## Boards and their sources
"""
FEWEST_FIGURES = 5
"""Of a board whose line is fitted."""
SLOPE, SLOPE_SPREAD = 2.0, 0.8
"""What is expected of a board's slope before its figures are seen."""


def main() -> None:
    """Write the page: errors by kind and over all kinds, and every board's source."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path, default=PAGE)
    options = parser.parse_args()
    figures = read_figures(options.results)
    page = "\n".join([HEAD, *error_table(figures), "", SOURCES, *source_table(options.results)])
    options.out.write_text(page + "\n", encoding="utf-8")
    print(page)


def error_table(figures: Sequence[Figure]) -> list[str]:
    """Return the errors by kind and over all kinds, as Markdown."""
    by_skill: list[float] = []
    by_mean: list[float] = []
    lines = [
        "| kind held out | figures | one number per model | the board's mean |",
        "|---|---|---|---|",
    ]
    for kind in sorted({figure.kind for figure in figures}):
        errors, errors_of_mean = errors_of_kind(figures, kind)
        by_skill += errors
        by_mean += errors_of_mean
        if errors:
            points = f"{100 * fmean(errors):.1f} | {100 * fmean(errors_of_mean):.1f}"
            lines.append(f"| {kind} | {len(errors)} | {points} |")
    points = f"{100 * fmean(by_skill):.1f} | {100 * fmean(by_mean):.1f}"
    return [*lines, f"| all | {len(by_skill)} | {points} |"]


def source_table(results: Path) -> list[str]:
    """Return every board with its kind, its figures, and the repositories they were read from."""
    kinds: dict[str, str] = {}
    counts: Counter[str] = Counter()
    sources: dict[str, set[str]] = defaultdict(set)
    with gzip.open(results, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            board = row["benchmark"]
            kinds[board] = KINDS[row["kind"]]
            counts[board] += 1
            path, _, commit = row["source"].rpartition("@")
            sources[board].add(f"{path.split()[0]}@{commit[:8]} ({row['licence']})")
    table = ["| board | kind | figures | read from |", "|---|---|---|---|"]
    for board in sorted(kinds, key=lambda name: (kinds[name], name)):
        read_from = "; ".join(sorted(sources[board]))
        table.append(f"| {board} | {kinds[board]} | {counts[board]} | {read_from} |")
    return table


def errors_of_kind(figures: Sequence[Figure], kind: str) -> tuple[list[float], list[float]]:
    """Return the absolute errors of the prediction and of the board's mean, on figures of a kind."""
    skills = fit([figure for figure in figures if figure.kind != kind]).models
    boards: dict[str, list[Figure]] = defaultdict(list)
    for figure in figures:
        if figure.kind == kind and figure.model in skills:
            boards[figure.board].append(figure)
    errors: list[float] = []
    errors_of_mean: list[float] = []
    for of_board in boards.values():
        if len(of_board) < FEWEST_FIGURES:
            continue
        skill = np.array([skills[figure.model][0] for figure in of_board])
        effort = np.array([effort_offset(figure.effort) for figure in of_board])
        observed = np.array([logit(figure.value, figure.n) for figure in of_board])
        for index, figure in enumerate(of_board):
            others = np.arange(len(of_board)) != index
            intercept, slope = line_through(skill[others], (observed - effort)[others])
            predicted = 1 / (1 + np.exp(-(intercept + slope * skill[index] + effort[index])))
            mean = fmean(other.value for other in of_board if other is not figure)
            errors.append(abs(float(predicted) - figure.value))
            errors_of_mean.append(abs(mean - figure.value))
    return errors, errors_of_mean


def line_through(skill: np.ndarray, target: np.ndarray) -> tuple[float, float]:
    """Return intercept and slope by least squares, the slope drawn towards the usual one."""
    noise = 0.4
    design = np.stack([np.ones_like(skill), skill], axis=1) / noise
    precision = design.T @ design
    precision[1, 1] += 1 / SLOPE_SPREAD**2
    right = design.T @ (target / noise)
    right[1] += SLOPE / SLOPE_SPREAD**2
    intercept, slope = np.linalg.solve(precision, right)
    return float(intercept), float(slope)


if __name__ == "__main__":
    main()
