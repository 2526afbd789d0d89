"""Writes results/evolve.md and results/evolve.svg from the rows that evolve_planted.py and evolve_shared.py left.

python tests/benchmarks/evolve_report.py
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, stdev

from fugu_cli import prompts

RESULTS = Path(__file__).parent / "results"
TEMPLATE = Path(__file__).with_suffix(".template.md")
COLOURS = ("#1b6ca8", "#5dade2", "#8f8f8f", "#c0392b", "#2e8b57", "#7d3c98", "#b8860b", "#e67e22")
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 320, 48, 36
LOW, HIGH = 0.4, 1.0


def rows(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (RESULTS / name).read_text().splitlines() if line.strip()]


def means(planted: Sequence[dict[str, object]]) -> dict[str, list[float]]:
    """Curves averaged over the pools."""
    curves: list[dict[str, list[float]]] = [row["curves"] for row in planted]  # type: ignore[misc]
    return {name: [mean(values) for values in zip(*(one[name] for one in curves), strict=True)] for name in curves[0]}


def table(planted: Sequence[dict[str, object]]) -> str:
    curves: list[dict[str, list[float]]] = [row["curves"] for row in planted]  # type: ignore[misc]
    first, *others = curves[0]
    ours = [one[first][-1] for one in curves]
    lines = [
        f"| optimiser | mean of {len(curves)} pools | half of the way | {first}: points ahead | pools it is ahead on |",
        "|---|---|---|---|---|",
        f"| {first} | {mean(ours):.1%} | {halfway(curves, first):.1%} | - | - |",
    ]
    for name in others:
        ends = [one[name][-1] for one in curves]
        ahead = [our - end for our, end in zip(ours, ends, strict=True)]
        error = stdev(ahead) / len(ahead) ** 0.5
        lines.append(
            f"| {name} | {mean(ends):.1%} | {halfway(curves, name):.1%} | {100 * mean(ahead):+.1f} ± {100 * error:.1f} "
            f"| {sum(one > 0 for one in ahead)} |"
        )
    return "\n".join(lines)


def halfway(curves: Sequence[dict[str, list[float]]], name: str) -> float:
    return mean(one[name][len(one[name]) // 2 - 1] for one in curves)


def shared(measured: Sequence[dict[str, object]]) -> str:
    lines = [
        "| candidates | tokens | shared, CPU s | one after another, CPU s | times | two layers each, CPU s | times |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['population']} | {row['tokens']} | {row['shared cpu s']} | {row['one cpu s']} | {row['times faster']} "
        f"| {row['cached cpu s']} | {row['times faster than cached']} |"
        for row in measured
    ]
    return "\n".join(lines)


def svg(curves: dict[str, list[float]]) -> str:
    """Share of the optimum against iterations."""
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">']
    parts.append(f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>')
    for level in (0.4, 0.6, 0.8, 1.0):
        y = height(level)
        parts.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - 170}" stroke="#ddd"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" font-size="11" text-anchor="end">{level:.0%}</text>')
    for number, (name, values) in enumerate(curves.items()):
        step = (WIDTH - 170 - LEFT) / len(values)
        points = " ".join(f"{LEFT + step * (place + 1):.1f},{height(value):.1f}" for place, value in enumerate(values))
        colour = COLOURS[number % len(COLOURS)]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = 24 + 18 * number
        parts.append(f'<text x="{WIDTH - 160}" y="{y}" font-size="12" fill="{colour}">{name}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 8}" font-size="12">batches of 512 episodes, up to 60</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def height(value: float) -> float:
    share = (min(max(value, LOW), HIGH) - LOW) / (HIGH - LOW)
    return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - 16)


def main() -> None:
    planted = rows("evolve_planted.jsonl")
    text = prompts.fill(
        TEMPLATE.read_text(encoding="utf-8"), table=table(planted), shared=shared(rows("evolve_shared.jsonl"))
    )
    (RESULTS / "evolve.md").write_text(text, encoding="utf-8")
    (RESULTS / "evolve.svg").write_text(svg(means(planted)), encoding="utf-8")


if __name__ == "__main__":
    main()
