"""A study's findings as Markdown: the frontier, by check, with paired standard errors. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.training.frontier import Arm, Paired, mixed, paired
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
            "The best fixed way knows the judged cases. Beside it the fixed way that the training cases of every part "
            "choose, and a plan that reads the runs, followed without a head:"
        )
        parts.append(without_hindsight(found, check))
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
        _gap(answer.reward),
        _yes(answer.reward),
    )
    return f"| {' | '.join(cells)} |"


def without_hindsight(found: Findings, check: Check) -> str:
    """By lambda: rewards of the fixed way chosen on the training cases and of the plan, against the best fixed way;
    and of what was learned against that chosen one."""
    lines = [
        "| lambda | chosen on the training cases | against the best fixed way | within one s.e. | a plan that reads "
        "the runs, against the best | within one s.e. | learned, against the chosen one | within one s.e. |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for answer in found.answers:
        if answer.check != check:
            continue
        blind, plan = answer.over(answer.trained, answer.fixed), answer.over(answer.plan, answer.fixed)
        ours, arm = answer.over(answer.ours, answer.trained), answer.trained
        cells = (f"{answer.price:g}", f"{arm.solved.mean():.1%} at {_usd(found, arm)}", _gap(blind), _yes(blind),
                 _gap(plan), _yes(plan), _gap(ours), _yes(ours))  # fmt: skip
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _gap(gap: Paired) -> str:
    return f"{gap.difference:+.4f} ± {gap.error:.4f}"


def _yes(gap: Paired) -> str:
    return "yes" if held(gap) else "no"


def held(gap: Paired) -> bool:
    """Not further below than one paired standard error."""
    return gap.difference >= -gap.error - 1e-9


def _usd(found: Findings, arm: Arm) -> str:
    return f"${arm.cost.mean() * found.unit:.3f}"
