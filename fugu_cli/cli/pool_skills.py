"""Success rates and costs of the pool, as the next request would find them: below `fugu pool`, and
with their sources in `fugu pool --skills`.
"""

from __future__ import annotations

import asyncio
import os

from fugu_cli import __version__, wiring
from fugu_cli.cli.current_folder import current_config, print_clean
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.coordinators.composed import ComposedHead
from fugu_cli.formatting import aligned_rows
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Member,
    Opened,
)
from fugu_cli.session.state import SessionState
from fugu_cli.ui.estimates import estimate_text
from fugu_cli.ui.skill_tables import OUTCOMES_NOTE, kind_rows, skill_rows


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
    skills = aligned_rows(skill_rows(members, outcomes))
    rates = aligned_rows(kind_rows(members, outcomes))
    for line in (*skills, OUTCOMES_NOTE, "", *rates):
        print_clean(line)
    return 0
