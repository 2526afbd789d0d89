"""Writes results/evolve.md and results/evolve.svg from the rows that evolve_planted.py and
evolve_shared.py left.

What counts as chosen is computed here: the best mean on the tuning pools, of each kind of
optimiser.

python tests/benchmarks/evolve_report.py
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev

from fugu_cli import prompts

RESULTS = Path(__file__).parent / "results"
TEMPLATE = Path(__file__).with_suffix(".template.md")
COLOURS = ("#1b6ca8", "#8f8f8f", "#c0392b", "#e67e22")
WIDTH, HEIGHT, LEFT, BOTTOM, LEGEND = 680, 250, 48, 36, 230
LOW, HIGH = 0.6, 1.0
TITLES = {
    "small": "128 numbers, head only",
    "paper": "the paper's size: 19,456 numbers",
    "sampled": "the paper's size, decisions drawn",
}
EPISODES = 30_720

Curves = Mapping[int, Sequence[float]]
"""By seed."""


def rows(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines() if line.strip()]


def by_arm(name: str, problem: str) -> dict[str, Curves]:
    """Curves of a file by arm and seed; only pools that every arm has met."""
    found: dict[str, dict[int, list[float]]] = defaultdict(dict)
    for row in rows(name):
        if row["problem"] == problem:
            found[str(row["arm"])][int(str(row["seed"]))] = row["curve"]  # type: ignore[assignment]
    common = set.intersection(*(set(curves) for curves in found.values())) if found else set()
    return (
        {arm: {seed: curves[seed] for seed in sorted(common)} for arm, curves in found.items()}
        if common
        else {}
    )


def ends(curves: Curves) -> list[float]:
    return [curve[-1] for curve in curves.values()]


def halves(curves: Curves) -> list[float]:
    return [curve[len(curve) // 2 - 1] for curve in curves.values()]


def kind(arm: str) -> str:
    if not arm.startswith("REINFORCE"):
        return "random search" if arm == "random search" else "sep-CMA-ES"
    return "REINFORCE, no baseline" if "no baseline" in arm else "REINFORCE"


def best(arms: Mapping[str, Curves], wanted: str) -> str | None:
    """Of one kind the arm with the highest mean."""
    mine = [arm for arm in arms if kind(arm) == wanted]
    return max(mine, key=lambda arm: mean(ends(arms[arm]))) if mine else None


@dataclass(frozen=True)
class Line:
    """A line of a problem's table and of its plot."""

    name: str
    arm: str


def lines_of(problem: str, fresh: Mapping[str, Curves]) -> list[Line]:
    """What was chosen on the tuning pools, and what hindsight would have chosen."""
    tuned = by_arm("evolve_tuning.jsonl", problem)
    ours = best(tuned, "sep-CMA-ES")
    found = [Line(f"sep-CMA-ES, {ours}, chosen", ours)] if ours in fresh else []
    if ours != "32 x 16":
        found.append(Line("sep-CMA-ES, 32 x 16, the default", "32 x 16"))
    found.append(Line("random search", "random search"))
    for wanted in ("REINFORCE", "REINFORCE, no baseline"):
        chosen, hindsight = best(tuned, wanted), best(fresh, wanted)
        if chosen in fresh:
            found.append(Line(f"{chosen}, chosen", chosen))
        if hindsight is not None and hindsight != chosen:
            found.append(Line(f"{hindsight}, best in hindsight", hindsight))
    return found


def table(problem: str) -> str:
    fresh = by_arm("evolve_planted.jsonl", problem)
    lines = lines_of(problem, fresh)
    ours = ends(fresh[lines[0].arm])
    text = [
        f"| {TITLES[problem]} | mean of {len(ours)} pools | half of the way | sep-CMA-ES: points "
        f"ahead | on pools |",
        "|---|---|---|---|---|",
    ]
    for line in lines:
        theirs = ends(fresh[line.arm])
        ahead = [our - their for our, their in zip(ours, theirs, strict=True)]
        error = stdev(ahead) / len(ahead) ** 0.5
        gap = (
            f"{100 * mean(ahead):+.1f} ± {100 * error:.1f} | {sum(one > 0 for one in ahead)}"
            if error
            else "- | -"
        )
        text.append(
            f"| {line.name} | {mean(theirs):.1%} | {mean(halves(fresh[line.arm])):.1%} | {gap} |"
        )
    return "\n".join(text)


def share(arms: Mapping[str, Curves], arm: str) -> str:
    return f"{mean(ends(arms[arm])):.1%}" if arm in arms else "-"


def size(arms: Mapping[str, Curves]) -> int:
    return len(next(iter(arms.values()), ()))


def rates(problems: Sequence[str]) -> str:
    """REINFORCE at every rate: on the tables' pools, and on the tuning pools in brackets."""
    kinds = [(one, ending) for one in problems for ending in ("", ", no baseline")]
    fresh = {problem: by_arm("evolve_planted.jsonl", problem) for problem in problems}
    tuned = {problem: by_arm("evolve_tuning.jsonl", problem) for problem in problems}
    names = {
        arm.split()[1].rstrip(",")
        for arms in fresh.values()
        for arm in arms
        if arm.startswith("REINFORCE")
    }
    lines = [
        "| rate | " + " | ".join(f"{problem}{ending}" for problem, ending in kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for name in sorted(names, key=float):
        for raw in ("", ", raw numbers"):
            arms = [(one, f"REINFORCE {name}{ending}{raw}") for one, ending in kinds]
            cells = [f"{share(fresh[one], arm)} ({share(tuned[one], arm)})" for one, arm in arms]
            if any(cell != "- (-)" for cell in cells):
                lines.append(
                    f"| {name}{raw} | "
                    + " | ".join(cell.replace("- (-)", "") for cell in cells)
                    + " |"
                )
    return "\n".join(lines)


def ways(problems: Sequence[str]) -> str:
    """Ways of running sep-CMA-ES on the tuning pools."""
    tuned = {problem: by_arm("evolve_tuning.jsonl", problem) for problem in problems}
    heads = [f"{problem}, {size(arms)} pools" for problem, arms in tuned.items()]
    lines = [
        "| candidates x episodes | " + " | ".join(heads) + " |",
        "|---" * (len(heads) + 1) + "|",
    ]
    names = dict.fromkeys(
        arm for arms in tuned.values() for arm in arms if kind(arm) == "sep-CMA-ES"
    )
    for name in names:
        lines.append(
            f"| {name} | "
            + " | ".join(share(arms, name).strip("-") for arms in tuned.values())
            + " |"
        )
    return "\n".join(lines)


def shared(measured: Sequence[dict[str, object]]) -> str:
    lines = [
        "| candidates | tokens | shared, CPU s | one after another, CPU s | times | two layers "
        "each, CPU s | times |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['population']} | {row['tokens']} | {row['shared cpu s']} | {row['one cpu s']} | "
        f"{row['times faster']} "
        f"| {row['cached cpu s']} | {row['times faster than cached']} |"
        for row in measured
    ]
    return "\n".join(lines)


def svg(problems: Sequence[str]) -> str:
    """Share of the optimum against episodes, a panel for each problem."""
    tall = HEIGHT * len(problems)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {tall}" '
        f'font-family="sans-serif">'
    ]
    parts.append(f'<rect width="{WIDTH}" height="{tall}" fill="white"/>')
    for number, problem in enumerate(problems):
        parts += [f'<g transform="translate(0 {HEIGHT * number})">', *panel(problem), "</g>"]
    return "\n".join([*parts, "</svg>"]) + "\n"


def panel(problem: str) -> list[str]:
    fresh, parts = by_arm("evolve_planted.jsonl", problem), []
    right = WIDTH - LEGEND
    for level in (0.6, 0.7, 0.8, 0.9, 1.0):
        y = height(level)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{right}" stroke="#ddd"/>')
        parts.append(
            f'<text x="{LEFT - 8}" y="{y + 4:.1f}" font-size="11" '
            f'text-anchor="end">{level:.0%}</text>'
        )
    shown = [
        line
        for line in lines_of(problem, fresh)
        if "hindsight" not in line.name and "default" not in line.name
    ]
    for number, line in enumerate(shown):
        values = [mean(values) for values in zip(*fresh[line.arm].values(), strict=True)]
        step = (right - LEFT) / len(values)
        points = " ".join(
            f"{LEFT + step * (place + 1):.1f},{height(value):.1f}"
            for place, value in enumerate(values)
        )
        colour, y = COLOURS[number % len(COLOURS)], 24 + 18 * number
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>'
        )
        name = line.name.removesuffix(", chosen")
        parts.append(f'<text x="{right + 8}" y="{y}" font-size="11" fill="{colour}">{name}</text>')
    foot = f"{TITLES[problem]}; up to {EPISODES:,} episodes"
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 12}" font-size="12">{foot}</text>')
    return parts


def height(value: float) -> float:
    share = (min(max(value, LOW), HIGH) - LOW) / (HIGH - LOW)
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 16)


def main() -> None:
    measured = [problem for problem in TITLES if by_arm("evolve_planted.jsonl", problem)]
    text = prompts.fill(
        TEMPLATE.read_text(encoding="utf-8"),
        tables="\n\n".join(table(problem) for problem in measured),
        rates=rates(measured),
        ways=ways(measured),
        shared=shared(rows("evolve_shared.jsonl")),
    )
    (RESULTS / "evolve.md").write_text(text, encoding="utf-8")
    (RESULTS / "evolve.svg").write_text(svg(measured), encoding="utf-8")


if __name__ == "__main__":
    main()
