"""A study's findings as Markdown: the frontier, by check, with paired standard errors. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.training.frontier import Arm, mixed, paired
from fugu_cli.training.replay import Check
from fugu_cli.training.study import Answer, Findings


def report(found: Findings) -> str:
    """All of it."""
    single = best_single(found)
    parts = ["## Without learning", table(found, [*found.singles, found.oracle], single)]
    for check in dict.fromkeys(answer.check for answer in found.answers):
        parts.append(f"## With a check that passes {check.right:.0%} of right and {check.wrong:.0%} of wrong work")
        parts.append("Fixed ways, the best eight by accuracy, and retrying (a second run is a guess, see above):")
        best = sorted(found.cascades[check], key=lambda arm: -arm.solved.mean())[:8]
        parts.append(table(found, [*best, *found.retries[check]], single))
        parts.append("Learned, every case by a head that saw no case of its repository:")
        parts.append(learned(found, check, single))
        parts.append(
            "All of these mixed in every fold, as the plans of its training issues solve most within that share of the "
            "best single's cost:"
        )
        parts.append(table(found, [found.thrifty[check]], single))
    return "\n\n".join(parts) + "\n"


def best_single(found: Findings) -> Arm:
    """The row that solves most alone."""
    return max(found.singles, key=lambda arm: float(arm.solved.mean()))


def table(found: Findings, arms: Sequence[Arm], single: Arm) -> str:
    """Accuracy, cost, and the paired difference to the best single row."""
    lines = ["| way | solved | USD a case | of the best single's cost | solved, against it |", "|---|---|---|---|---|"]
    for arm in arms:
        gap = paired(arm.solved, single.solved)
        lines.append(
            f"| {arm.name} | {arm.solved.mean():.1%} | {_usd(found, arm)} | {arm.cost.mean() / single.cost.mean():.0%} "
            f"| {100 * gap.difference:+.1f} ± {100 * gap.error:.1f} |"
        )
    return "\n".join(lines)


def learned(found: Findings, check: Check, single: Arm) -> str:
    """By lambda: what was learned, a random mix at its cost, and the fixed way that is best with hindsight."""
    lines = [
        "| lambda | solved | USD a case | of the best single's cost | solved, against it | random mix at this cost "
        "| best fixed way for this lambda | reward, against it | within one s.e. |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    lines += [_line(found, answer, single) for answer in found.answers if answer.check == check]
    return "\n".join(lines)


def _line(found: Findings, answer: Answer, single: Arm) -> str:
    ours, gap = answer.ours, paired(answer.ours.solved, single.solved)
    coin = mixed(found.singles, float(ours.cost.mean()))
    fixed = f"{answer.fixed.name}: {answer.fixed.solved.mean():.1%} at {_usd(found, answer.fixed)}"
    cells = (
        f"{answer.price:g}",
        f"{ours.solved.mean():.1%}",
        _usd(found, ours),
        f"{ours.cost.mean() / single.cost.mean():.0%}",
        f"{100 * gap.difference:+.1f} ± {100 * gap.error:.1f}",
        f"{coin.solved.mean():.1%}",
        fixed,
        f"{answer.reward.difference:+.4f} ± {answer.reward.error:.4f}",
        "yes" if on_frontier(answer) else "no",
    )
    return f"| {' | '.join(cells)} |"


def on_frontier(answer: Answer) -> bool:
    """Not further below the best fixed way than one paired standard error."""
    return answer.reward.difference >= -answer.reward.error - 1e-9


def _usd(found: Findings, arm: Arm) -> str:
    return f"${arm.cost.mean() * found.unit:.3f}"
