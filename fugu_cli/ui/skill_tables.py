"""The tables of `fugu pool --skills` and of the web page: skills, success rates and costs of agents."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.coordinators.composed import USUAL_RUN_TOKENS, expected_costs
from fugu_cli.coordinators.skills import KIND_WORDS, KINDS, shipped_table, success_rate
from fugu_cli.formatting import compact_number, money, plural
from fugu_cli.session.events import Member, OutcomeCount, OutcomesKnown

OUTCOMES_NOTE = (
    "outcomes: tests and checks that passed or failed, verdicts (half) and work taken back, in "
    "this repository's sessions and, by half, in those of other folders that you trust"
)


def skill_rows(members: Sequence[Member], outcomes: OutcomesKnown) -> list[tuple[str, ...]]:
    """Return a table of skills and costs with the source of each, its heading first."""
    costs = expected_costs(members, outcomes.counts)
    rows: list[tuple[str, ...]] = [
        ("name", "skill", "skill from", "outcomes", "a turn", "cost from")
    ]
    for member in members:
        skill = shipped_table().skill_of(member)
        own = [count for count in outcomes.counts if count.agent == member.name]
        rows.append(
            (
                member.name,
                f"{skill.skill:+.2f} ±{skill.error:.2f}",
                skill.source,
                _outcomes_text(sum(count.trials for count in own)),
                "unknown" if member.price is None else money(costs[member.name]),
                _cost_source(member, outcomes.counts),
            )
        )
    return rows


def _cost_source(member: Member, counts: Sequence[OutcomeCount]) -> str:
    if member.price is None:
        return "no price is known: taken for the middle of the pool"
    turns = round(sum(count.turns for count in counts if count.agent == member.name))
    if turns:
        return f"{plural(turns, 'turn')} of its own, and its price"
    if any(count.turns for count in counts):
        return "its price, and the tokens that others used here"
    return f"its price, and {compact_number(USUAL_RUN_TOKENS)} tokens a turn"


def kind_rows(members: Sequence[Member], outcomes: OutcomesKnown) -> list[list[str]]:
    """Return a table of success rates by kind of request, with the outcomes in brackets. Its
    heading comes first.
    """
    rows = [["solves (own outcomes)", *(member.name for member in members)]]
    for request_kind in KINDS:
        row = [KIND_WORDS[request_kind]]
        for member in members:
            rate = success_rate(member, request_kind, outcomes.counts).rate
            trials = sum(
                count.trials
                for count in outcomes.counts
                if count.agent == member.name and count.kind == request_kind
            )
            shown = _outcomes_text(trials)
            row.append(f"{rate:.0%}" if shown == "0" else f"{rate:.0%} ({shown})")
        rows.append(row)
    return rows


def _outcomes_text(trials: float) -> str:
    """Return a number of outcomes; later turns and verdicts count less than one."""
    return f"{round(trials, 1):g}"
