"""Recorded outcomes of strong models, replayed: learned routing beside every fixed way, by lambda and by check.

    python tests/benchmarks/replay.py --outcomes FILE --backbone DIR --store DIR --answers FILE [--check 95/10 ...]

Writes results/replay.md. The recorded outcomes are for measuring only and stay where they are, and so do --answers:
what was decided case by case, from which a run that was stopped goes on.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fugu_cli.coordinators import backbone as backbones
from fugu_cli.training import recorded_outcomes, study
from fugu_cli.training.evolution import EvolutionSettings
from fugu_cli.training.frontier import PairedDifference, PolicyScores, paired_difference
from fugu_cli.training.pass_matrix import HeadRow
from fugu_cli.training.replay import CheckRates
from fugu_cli.training.search import HiddenStates
from fugu_cli.training.study import OperatingPoint, StudyFindings
from fugu_cli.training.synthetic_sessions import ReplaySessionWriter, TranscriptSettings

MODELS = ("deepseek-v3.2-reasoner", "gpt-5-mini", "gemini-3-pro-preview")
ROWS = ("cheap", "middle", "strong")
TOKENS = 48
SHOWN = 160
RESULTS = Path(__file__).parent / "results"
INTRO = Path(__file__).with_suffix(".template.md")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("outcomes", "backbone", "store", "answers"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--check", nargs="+", default=["95/10", "90/20", "80/40"])
    parser.add_argument("--lambdas", nargs="+", type=float, default=[0.0, 0.05, 0.1, 0.15, 0.2, 0.4, 0.8])
    parser.add_argument("--cases", type=int, default=None)
    parser.add_argument("--iterations", type=int, default=0, help="of the evolution, at most")
    parser.add_argument("--l2", type=float, default=study.FITTED_ONLY.l2)
    parser.add_argument("--out", type=Path, default=RESULTS / "replay.md")
    given = parser.parse_args()
    issues = recorded_outcomes.read_issues(given.outcomes)
    pool = recorded_outcomes.named_pool(issues, MODELS, {})
    cases = recorded_outcomes.pool_cases(issues, pool)
    cases = study.sample_cases(cases, given.cases or len(cases), 0)
    backbone = backbones.load_backbone(given.backbone)
    hidden_states = HiddenStates(backbone, given.store, tell)
    writer = ReplaySessionWriter([HeadRow(row, row) for row in ROWS], backbone, TranscriptSettings(request=TOKENS))
    learning = replace(
        study.FITTED_ONLY,
        l2=given.l2,
        settings=EvolutionSettings(population=16, iterations=given.iterations, patience=3),
    )
    repos = len({case.group for case in cases})
    search = f"sep-CMA-ES for at most {given.iterations} iterations, kept where validation is sure of it"
    intro = INTRO.read_text().format(
        cases=len(cases),
        of=len(issues),
        repos=repos,
        models=", ".join(MODELS),
        tokens=TOKENS,
        search=f"then {search}" if given.iterations else "without an evolution after it",
        l2=given.l2,
        shown=SHOWN,
    )
    one = study.Study(study.StudyData(cases, MODELS, issues), writer, hidden_states)
    known = [CheckRates(*(float(part) / 100 for part in text.split("/"))) for text in given.check]
    for number in range(1, len(known) + 1):  # the report is whole after every check
        asked = study.StudySettings(tuple(given.lambdas), tuple(known[:number]), sample=SHOWN, course=learning)
        found = one.run(asked, pool.unit, given.answers, tell)
        given.out.write_text(f"{intro}\n{verdicts(found)}\n\n{study.study_report(found)}")


def verdicts(found: StudyFindings) -> str:
    """By check: on or above the frontier of the fixed ways, and the best single model's accuracy for less."""
    lines = [
        "| check | lambdas within one s.e. of the best fixed way, or above | the fixed way chosen on the training "
        "issues: the same | learned, within one s.e. of that, or above | mixed for a budget: solved, share "
        "of the best single model's cost | solved, against it | and cost |",
        "|---|---|---|---|---|---|---|",
    ]
    single = study.best_single(found)
    for check in dict.fromkeys(answer.check for answer in found.answers):
        answers = [answer for answer in found.answers if answer.check == check]
        blind = [(answer, answer.over(answer.trained, answer.fixed)) for answer in answers]
        fair = [(answer, answer.over(answer.ours, answer.trained)) for answer in answers]
        reached = " | ".join(held(gaps) for gaps in ([(one, one.reward) for one in answers], blind, fair))
        lines.append(f"| {check.right:.0%} / {check.wrong:.0%} | {reached} | {within(found.thrifty[check], single)} |")
    return "\n".join(lines)


def held(gaps: Sequence[tuple[OperatingPoint, PairedDifference]]) -> str:
    """At how many lambdas a difference is not below zero by more than its standard error, and at which it is."""
    missed = [f"{answer.price:g}" for answer, gap in gaps if not study.not_worse(gap)]
    but = f" (not {', '.join(missed)})" if missed else ""
    return f"{len(gaps) - len(missed)} of {len(gaps)}{but}"


def within(arm: PolicyScores, single: PolicyScores) -> str:
    """What a budget reached, and its paired differences to the single model."""
    gap, saved = (
        paired_difference(arm.solved, single.solved),
        paired_difference(arm.cost / single.cost.mean(), single.cost / single.cost.mean()),
    )
    return (
        f"{arm.solved.mean():.1%} at {arm.cost.mean() / single.cost.mean():.1%} "
        f"| {100 * gap.difference:+.1f} ± {100 * gap.error:.1f} points of {single.solved.mean():.1%} "
        f"| {100 * saved.difference:+.0f} ± {100 * saved.error:.0f} %"
    )


def tell(text: str) -> None:
    print(time.strftime("%X"), text, flush=True)


if __name__ == "__main__":
    main()
