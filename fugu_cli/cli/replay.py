"""`fugu replay`: a session's decisions made again by another coordinator."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import wiring
from fugu_cli.cli.command_flags import ReplayFlags
from fugu_cli.cli.coordinator import as_usage_errors, coordinator_of
from fugu_cli.cli.current_folder import current_config, read_records
from fugu_cli.cli.flags import check_empty, settings_of
from fugu_cli.cli.output import print_lines
from fugu_cli.cli.training_flags import RouteFlags
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.coordinators import Coordinator, Decision
from fugu_cli.engine.decision_replay import decision_points, replay_decisions
from fugu_cli.errors import UsageError
from fugu_cli.session import store
from fugu_cli.session.events import Member, Opened, OutcomesKnown, Recorded
from fugu_cli.session.state import SessionState
from fugu_cli.ui import replay as shown


@dataclass(frozen=True)
class Recording:
    """The session that is replayed: its file and its lines; `opened` is its first."""

    path: Path
    records: Sequence[Recorded]
    opened: Opened

    @property
    def name(self) -> str:
        """The session's id."""
        return self.path.stem


def replay(flags: ReplayFlags) -> int:
    """Compare the decisions. Raise UsageError for what cannot be replayed."""
    check_empty(agent=flags.agent)
    if flags.agent and flags.coordinator:
        raise UsageError(
            "--agent and --coordinator exclude one another",
            hint="--agent NAME bypasses the coordinator",
        )
    if flags.skills and flags.checkpoint:
        raise UsageError(
            "--skills says nothing to a checkpoint, which reads no outcomes",
            hint="leave one of the two out",
        )
    loaded = current_config(settings_of(flags))
    recording = _load_recording(loaded, flags)
    events = [record.event for record in recording.records]
    points, steps = decision_points(events)
    chosen = [point for point in points if flags.request in (None, point.request)]
    todays_members = None
    if flags.present_pool:
        pool = usable_pool(loaded.config, os.environ)
        todays_members = tuple(entry.member() for entry in pool)
    with as_usage_errors():
        compared = asyncio.run(
            replay_decisions(
                events,
                chosen,
                lambda members: _other_coordinator(flags, loaded, members),
                todays_members,
            )
        )
    coordinator = loaded.config.coordinator
    if flags.checkpoint:
        coordinator += f" ({flags.checkpoint})"
    report = shown.ReplayReport(
        recording.name, recording.opened.coordinator, coordinator, tuple(compared), steps
    )
    if flags.as_json:
        print(json.dumps(shown.replay_object(events, report), indent=2))
    else:
        print_lines(shown.replay_lines(SessionState(events), report))
    return 0


@dataclass(frozen=True)
class WithOutcomesOfToday:
    """Decides like `coordinator`, by the outcomes there are today."""

    coordinator: Coordinator
    outcomes: OutcomesKnown

    async def decide(self, state: SessionState) -> Decision:
        """Return the decision that today's outcomes lead to."""
        return await self.coordinator.decide(state.followed_by(self.outcomes))


def _load_recording(loaded: LoadedConfig, flags: ReplayFlags) -> Recording:
    path = store.find_session(loaded.config.data, loaded.root, flags.session)
    records = read_records(path)
    events = [record.event for record in records]
    opened = next((event for event in events if isinstance(event, Opened)), None)
    count = len(SessionState(events).requests)
    if opened is None or not count:
        raise UsageError(
            f"nothing was asked in the session {path.stem} yet", hint="`fugu sessions` lists others"
        )
    if flags.request is not None and not 1 <= flags.request <= count:
        raise UsageError(f"there is no request {flags.request}", hint=f"the session has {count}")
    return Recording(path, records, opened)


def _other_coordinator(
    flags: ReplayFlags, loaded: LoadedConfig, members: tuple[Member, ...]
) -> Coordinator:
    """Return the coordinator of flags and configuration.

    It must decide itself, because a fallback's decisions compared under its name would mislead.
    """
    config = loaded.config
    names = {member.name for member in members}
    single = (
        [config.coordinator.removeprefix("single:")]
        if config.coordinator.startswith("single:")
        else []
    )
    for name in (*single, *(flags.opt_out or ())):
        if name not in names:
            raise UsageError(
                f"{name!r} is not an agent of this pool: "
                f"{', '.join(sorted(names)) or 'it is empty'}",
                hint=(
                    "the session's own pool is meant; --present-pool chooses among the agents "
                    "of today"
                ),
            )
    if not names - set(config.opt_out):
        raise UsageError(
            "every agent of this pool is opted out", hint="shorten opt_out or --opt-out"
        )
    plain = LoadedConfig(
        config.model_copy(update={"tier": "fugu"}), (), (), loaded.root, loaded.trusted
    )
    if config.coordinator != "trinity":
        return wiring.build_coordinator(plain.config, members)[0]
    coordinator = coordinator_of(RouteFlags(coordinator="trinity"), plain, members)
    if flags.skills == "now":
        outcomes = wiring.build_outcomes(loaded).known(members, ())
        return WithOutcomesOfToday(coordinator, outcomes)
    return coordinator
