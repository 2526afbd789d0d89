"""Success rates and costs of the pool, as the next request would find them: below `fugu pool`, and
with their sources in `fugu pool --skills`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from fugu_cli import __version__, wiring
from fugu_cli.cli.current_folder import current_config, print_clean
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.coordinators.composed import USUAL_RUN_TOKENS, ComposedHead, expected_costs
from fugu_cli.coordinators.skills import KIND_WORDS, KINDS, shipped_table, success_rate
from fugu_cli.formatting import aligned_rows, compact_number, money, plural
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Member,
    Opened,
    OutcomeCount,
    OutcomesKnown,
)
from fugu_cli.session.state import SessionState
from fugu_cli.ui.estimates import estimate_text


def print_estimates(loaded: LoadedConfig, members: tuple[Member, ...]) -> None:
    """Print what the default coordinator compares for a request whose kind nobody knows, and which
    agent it would ask first.
    """
    outcomes = wiring.build_outcomes(loaded).known(members, ())
    opened = Opened(version=__version__, repo=str(loaded.root), pool=members)
    state = SessionState((opened, Asked(text=""), outcomes))
    head = ComposedHead(members, loaded.config.deciding)
    decision = asyncio.run(head.decide(state))
    if not isinstance(decision, Assigned) or decision.scores is None:
        return
    print_clean("for a request of unknown kind:")
    for estimate in decision.scores.estimates:
        print_clean(f"  {estimate_text(estimate, source=False)}")
    for name, reason in decision.scores.masked:
        print_clean(f"  {name} is excluded: {reason}")
    print_clean(f"  first: {decision.agent}; with the cascade: {decision.scores.rule}")


def show_skills() -> int:
    """List the agents' skills, success rates and costs of a run with the source of each, and the
    rates by kind of request. Raises ConfigError if no agent can be used.
    """
    loaded = current_config()
    members = tuple(entry.member() for entry in usable_pool(loaded.config, os.environ))
    outcomes = wiring.build_outcomes(loaded).known(members, ())
    for line in (*_source_lines(members, outcomes), "", *_kind_lines(members, outcomes)):
        print_clean(line)
    return 0


def _source_lines(members: Sequence[Member], outcomes: OutcomesKnown) -> list[str]:
    costs = expected_costs(members, outcomes.counts)
    rows = [("name", "skill", "skill from", "outcomes", "a turn", "cost from")]
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
    explanation = (
        "outcomes: tests and checks that passed or failed, verdicts (half) and work taken back, in "
        "this repository's sessions and, by half, in those of other folders that you trust"
    )
    return [*aligned_rows(rows), explanation]


def _cost_source(member: Member, counts: Sequence[OutcomeCount]) -> str:
    if member.price is None:
        return "no price is known: taken for the middle of the pool"
    turns = round(sum(count.turns for count in counts if count.agent == member.name))
    if turns:
        return f"{plural(turns, 'turn')} of its own, and its price"
    if any(count.turns for count in counts):
        return "its price, and the tokens that others used here"
    return f"its price, and {compact_number(USUAL_RUN_TOKENS)} tokens a turn"


def _kind_lines(members: Sequence[Member], outcomes: OutcomesKnown) -> list[str]:
    """Return a table of success rates, with the outcomes of each kind in brackets."""
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
    return aligned_rows(rows)


def _outcomes_text(trials: float) -> str:
    """Return a number of outcomes; later turns and verdicts count less than one."""
    return f"{round(trials, 1):g}"
