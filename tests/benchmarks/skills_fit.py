"""Fit one skill per model and one difficulty per kind of request to published figures.

    python -m tests.benchmarks.skills_fit RESULTS.jsonl.gz [--out skills.json] [--without NAME ...]

RESULTS holds one published figure a row: `model, effort, benchmark, kind, value (0..1), n, date,
ship`. Rows that may not be shipped are left out. The model is

    logit(value) = intercept[board] + slope[board] * (skill[model] + effort[effort] / slope scale)

fitted by penalised least squares: skills are drawn towards 0, slopes towards their mean. An error is
the square root of the posterior variance of the skill plus what boards disagree about.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from genai_prices import Usage, calc_price, data

from fugu_cli.config.known_models import vendor_of
from fugu_cli.coordinators.skills import canonical_model, sized_family

EFFORT_LOGITS = {
    "max": 0.0,
    "ultra": 0.0,
    "xhigh": -0.12,
    "high": -0.23,
    "thinking": -0.23,
    "medium": -0.48,
    "low": -0.84,
    "minimal": -1.1,
    "none": -1.1,
    "instant": -1.1,
}
"""Logits by which an effort is behind the highest one, from boards that ran several efforts."""
UNKNOWN_EFFORT = -0.3
"""For a figure whose effort is not published."""
KINDS = {
    "bug fix in a repository": "bug_fix",
    "feature in a repository": "feature",
    "refactoring": "refactoring",
    "writing tests": "tests",
    "question about code": "question",
    "shell/infrastructure/agentic terminal": "shell",
    "data and SQL": "data",
    "algorithms and mathematics": "algorithms",
    "documentation/prose": "documentation",
    "web user interface": "interface",
}
SKILL_SPREAD = 0.5
SLOPE_SPREAD = 0.8
NOISE = 0.25
"""Logits by which a figure departs from the line: another harness alone moves one by 0.22."""


@dataclass(frozen=True)
class Figure:
    """One published rate of a model on a board."""

    model: str
    effort: str | None
    board: str
    kind: str
    value: float
    n: float
    date: str
    family: str = ""
    size: float = 0.0
    """Billions of parameters, 0 where the name tells none."""


@dataclass(frozen=True)
class Fit:
    """Skills by model as (skill, error, figures, newest date), lines by board."""

    models: dict[str, tuple[float, float, int, str]]
    boards: dict[str, tuple[float, float, str]]
    residual: float


def read_figures(path: Path, without: Sequence[str] = (), only_clear: bool = False) -> list[Figure]:
    """Return the rows that may be shipped, without boards whose name contains one of `without`."""
    figures = []
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if only_clear and not row["ship"].startswith("yes"):
                continue
            if any(name.lower() in row["benchmark"].lower() for name in without):
                continue
            if row["value"] is None:
                continue
            family, size = sized_family(row["model"]) or ("", 0.0)
            figures.append(
                Figure(
                    canonical_model(row["model"])[0],
                    row["effort"] or canonical_model(row["model"])[1],
                    row["benchmark"],
                    KINDS[row["kind"]],
                    float(row["value"]),
                    float(row["n"] or 100),
                    row["date"] or "",
                    family,
                    size,
                )
            )
    return figures


def effort_offset(effort: str | None) -> float:
    """Return the logits by which `effort` is behind the highest one."""
    return EFFORT_LOGITS.get(effort or "", UNKNOWN_EFFORT)


def logit(value: float, n: float = 100) -> float:
    """Return the log-odds of a rate over `n` tasks, kept finite by half a task."""
    share = (value * n + 0.5) / (n + 1)
    return math.log(share / (1 - share))


def fit(figures: Sequence[Figure], rounds: int = 60) -> Fit:
    """Fit lines and skills in turn until they settle."""
    boards = sorted({figure.board for figure in figures})
    models = sorted({figure.model for figure in figures})
    board_index = {name: number for number, name in enumerate(boards)}
    model_index = {name: number for number, name in enumerate(models)}
    b = np.array([board_index[figure.board] for figure in figures])
    m = np.array([model_index[figure.model] for figure in figures])
    effort = np.array([effort_offset(figure.effort) for figure in figures])
    y = np.array([logit(figure.value, figure.n) for figure in figures])
    # variance of a logit from n tasks, and what boards disagree about
    sampling = np.array([1 / max(f.n * f.value * (1 - f.value), 0.5) for f in figures], dtype=float)
    weight = 1 / (sampling + NOISE**2)
    skill = np.zeros(len(models))
    slope = np.full(len(boards), 2.0)
    intercept = np.zeros(len(boards))
    for _ in range(rounds):
        mean_slope = 2.0
        for board in range(len(boards)):
            rows = b == board
            x = skill[m[rows]]
            target = y[rows] - effort[rows]
            w = weight[rows]
            design = np.stack([np.ones_like(x), x], axis=1)
            precision = design.T @ (design * w[:, None])
            precision[1, 1] += 1 / SLOPE_SPREAD**2
            precision[0, 0] += 1e-6
            right = design.T @ (w * target)
            right[1] += mean_slope / SLOPE_SPREAD**2
            intercept[board], slope[board] = np.linalg.solve(precision, right)
        slope = np.maximum(slope, 0.2)
        numerator = np.bincount(m, weight * slope[b] * (y - effort - intercept[b]), len(models))
        precision_of = np.bincount(m, weight * slope[b] ** 2, len(models)) + 1 / SKILL_SPREAD**2
        skill = numerator / precision_of
        skill -= skill.mean()
    residuals = y - effort - intercept[b] - slope[b] * skill[m]
    count = np.bincount(m, minlength=len(models))
    newest: dict[str, str] = defaultdict(str)
    for figure in figures:
        newest[figure.model] = max(newest[figure.model], figure.date)
    return Fit(
        {
            name: (
                float(skill[i]),
                float(precision_of[i] ** -0.5),
                int(count[i]),
                newest[name],
            )
            for name, i in model_index.items()
        },
        {
            name: (
                float(intercept[i]),
                float(slope[i]),
                next(f.kind for f in figures if f.board == name),
            )
            for name, i in board_index.items()
        },
        float(np.sqrt(np.average(residuals**2, weights=weight))),
    )


FAIR_BOARDS = {
    "bug_fix": ("SWE-bench Pro", "SWE-bench Multilingual", "LiveBench 2026-06-25 Agentic"),
    "feature": ("DeepSWE v1.1", "FrontierSWE", "CursorBench 4.0"),
    "refactoring": ("SWE-Atlas Refactoring",),
    "tests": ("SWT-bench",),
    "question": ("SWE-Atlas Codebase QnA",),
    "shell": ("Terminal-Bench 2.1", "Terminal-Bench 4.0"),
    "algorithms": ("LiveBench 2026-06-25 Coding", "LiveBench 2026-06-25 Mathematics"),
    "interface": ("Vals Vibe Code", "Arena WebDev"),
}
"""Boards of each kind that today's models do not saturate. Data and documentation have none."""
MIXED_ERROR = 0.35
"""Logits by which a kind's difficulty is uncertain where it has boards of its own."""
UNBOARDED_ERROR = 0.8
"""The same where it has none."""


def derived_table(figures: Sequence[Figure], least: int = 2) -> dict[str, object]:
    """Return what ships: skills, one line per kind, and means by vendor; no figure of a board."""
    fitted = fit(figures)
    lines: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for board, (intercept, slope, kind) in fitted.boards.items():
        if any(name in board for name in FAIR_BOARDS.get(kind, ())):
            lines[kind].append((intercept, slope))
    kinds = {
        kind: [
            round(float(np.mean([line[0] for line in found])), 2),
            round(float(np.mean([line[1] for line in found])), 2),
            MIXED_ERROR,
        ]
        for kind, found in lines.items()
    }
    everything = [line for found in lines.values() for line in found]
    for kind in KINDS.values():
        kinds.setdefault(
            kind,
            [
                round(float(np.mean([line[0] for line in everything])), 2),
                round(float(np.mean([line[1] for line in everything])), 2),
                UNBOARDED_ERROR,
            ],
        )
    models = {
        name: [round(skill, 2), round(error, 2), count, date]
        for name, (skill, error, count, date) in sorted(fitted.models.items())
        if count >= least
    }
    skills = {name: float(row[0]) for name, row in models.items()}
    vendors, price_slope = vendor_means(figures, skills)
    families, size_slope = family_means(figures, skills)
    return {
        "date": max(figure.date for figure in figures),
        "models": models,
        "kinds": {kind: kinds[kind] for kind in KINDS.values()},
        "efforts": EFFORT_LOGITS,
        "vendors": vendors,
        "price_slope": price_slope,
        "families": families,
        "size_slope": size_slope,
    }


def vendor_means(
    figures: Sequence[Figure], skills: Mapping[str, float]
) -> tuple[dict[str, list[float]], float]:
    """Return skill, error and price of each vendor's usual model of the newest year, and by how
    much the skill rises where a vendor asks e times as much. A model is of the year of its first
    figure.
    """
    first_seen: dict[str, str] = {}
    for figure in figures:
        first_seen[figure.model] = min(first_seen.get(figure.model, "9"), figure.date)
    year = max(date[:4] for date in first_seen.values() if date != "9")
    prices = listed_prices()
    members: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, skill in skills.items():
        if vendor_of(name) and name in prices and first_seen[name].startswith(year):
            members[vendor_of(name)].append((math.log(prices[name]), skill))
    centred = []
    for rows in members.values():
        centred.append(np.array(rows) - np.mean(rows, axis=0))
    apart = np.concatenate(centred)
    slope = float((apart[:, 0] * apart[:, 1]).sum() / (apart[:, 0] ** 2).sum())
    error = float(np.std(apart[:, 1] - slope * apart[:, 0]))
    means = {}
    for vendor, rows in sorted(members.items()):
        if len(rows) > 1:
            log_price, skill = np.mean(rows, axis=0)
            # the mean of a few models is uncertain itself
            own_error = error * math.sqrt(1 + 1 / len(rows))
            means[vendor] = [
                round(float(skill), 2),
                round(own_error, 2),
                round(math.exp(log_price), 3),
            ]
    return means, round(slope, 3)


def family_means(
    figures: Sequence[Figure], skills: Mapping[str, float]
) -> tuple[dict[str, list[float]], float]:
    """Return skill, error and size of each family whose names tell sizes, and by how much the skill
    rises where one of a family is e times as large. "" stands for models of the newest year whose
    family is unknown: the line through all sizes, moved by what a year brings.
    """
    first_seen: dict[str, str] = {}
    sized: dict[str, Figure] = {}
    for figure in figures:
        first_seen[figure.model] = min(first_seen.get(figure.model, "9"), figure.date or "9")
        if figure.size:
            sized[figure.model] = figure
    members: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for name, skill in skills.items():
        if name in sized:
            members[sized[name].family].append((math.log(sized[name].size), skill))
    centred = [np.array(rows) - np.mean(rows, axis=0) for rows in members.values()]
    apart = np.concatenate(centred)
    slope = float((apart[:, 0] * apart[:, 1]).sum() / (apart[:, 0] ** 2).sum())
    degrees = len(apart) - len(members) - 1
    error = math.sqrt(((apart[:, 1] - slope * apart[:, 0]) ** 2).sum() / degrees)
    means = {}
    for family, rows in sorted(members.items()):
        log_size, skill = np.mean(rows, axis=0)
        own_error = error * math.sqrt(1 + 1 / len(rows))
        means[family] = [round(float(skill), 2), round(own_error, 2), round(math.exp(log_size), 1)]
    dated = [name for name in skills if name in sized and first_seen[name] != "9"]
    years = np.array([float(first_seen[name][:4]) for name in dated])
    log_sizes = np.log([sized[name].size for name in dated])
    of_one_size = np.array([skills[name] for name in dated]) - slope * log_sizes
    design = np.stack([np.ones(len(dated)), years - years.max()], axis=1)
    line, *_ = np.linalg.lstsq(design, of_one_size, rcond=None)
    middle = float(log_sizes.mean())
    spread = float(np.std(of_one_size - design @ line))
    means[""] = [
        round(float(line[0]) + slope * middle, 2),
        round(spread, 2),
        round(math.exp(middle), 1),
    ]
    return means, round(slope, 3)


USUAL_MIX = Usage(input_tokens=750, output_tokens=250)
"""A thousand tokens as an agent uses them: three of a prompt to one that is written. A call this
short is below every threshold from which a provider charges more.
"""


def listed_prices() -> dict[str, float]:
    """Return the median price of each model that genai-prices knows, over all that sell it."""
    found: dict[str, list[float]] = defaultdict(list)
    for provider in data.providers:
        for model in provider.models:
            try:
                usual = calc_price(USUAL_MIX, model.id, provider_id=provider.id).total_price
            except LookupError:
                continue
            if usual:
                found[canonical_model(model.id)[0]].append(1000 * float(usual))
    return {name: float(np.median(prices)) for name, prices in found.items()}


def main() -> None:
    """Fit the figures and write the derived table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--without", nargs="*", default=[])
    options = parser.parse_args()
    table = derived_table(read_figures(options.results, options.without))
    text = json.dumps(table, indent=0, sort_keys=True)
    if options.out:
        options.out.write_text(text + "\n", encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
