"""`fugu replay`: a session's decisions made again by another coordinator; nothing is called and nothing is paid.

With --run its requests are carried out again (replay_run.py). What another decision would have led to is only known
then, so the comparison says nothing of it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import sessions, views, wiring
from fugu_cli.agents.scripted import load as load_script
from fugu_cli.commands.coordinator import usable
from fugu_cli.commands.flags import RouteFlags, check_empty
from fugu_cli.commands.here import facts, here
from fugu_cli.commands.printing import show
from fugu_cli.commands.replay_flags import WITH_RUN, SessionReplayFlags
from fugu_cli.commands.route import coordinator_of
from fugu_cli.config.entry import AgentEntry
from fugu_cli.config.files import Loaded
from fugu_cli.config.pool import pool
from fugu_cli.coordinators import Coordinator
from fugu_cli.coordinators.comparison import compare, places
from fugu_cli.errors import UsageError
from fugu_cli.events import Member, Opened, Recorded
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


def replay(flags: SessionReplayFlags) -> int:
    """Compare the decisions, or carry the requests out again. Raises UsageError for what cannot be replayed."""
    _check(flags)
    settings = dict(flags.settings())
    if flags.script is not None:
        load_script(flags.script)
        entry = AgentEntry(name="scripted", provider="scripted", model=str(flags.script.resolve()), slot="strong")
        settings = {"coordinator": "single:scripted", **settings, "agents": (entry,)}
    loaded = here(settings)
    recording = _recording(loaded, flags)
    if flags.run:
        from fugu_cli.commands.replay_run import Rerun

        return asyncio.run(Rerun(flags, loaded, recording, os.environ).to_its_end())
    events = [record.event for record in recording.records]
    found, steps = places(events)
    chosen = [place for place in found if flags.request in (None, place.request)]
    today = tuple(entry.member() for entry in pool(loaded.config, os.environ)) if flags.present_pool else None
    with usable():
        compared = asyncio.run(compare(events, chosen, lambda members: _other(flags, loaded, members), today))
    now = loaded.config.coordinator + (f" ({flags.checkpoint})" if flags.checkpoint else "")
    report = shown.Report(recording.name, recording.opened.coordinator, now, tuple(compared), steps)
    if flags.as_json:
        print(json.dumps(shown.report_object(events, report), indent=2))
    else:
        show(shown.lines(events, report))
    return 0


def _check(flags: SessionReplayFlags) -> None:
    check_empty(agent=flags.agent, output_dir=flags.output_dir)
    if flags.agent and flags.coordinator:
        raise UsageError("--agent and --coordinator exclude one another", hint="--agent NAME bypasses the coordinator")
    if flags.yolo and flags.permission_mode:
        raise UsageError("--yolo and --permission-mode exclude one another", hint="--yolo is --permission-mode yolo")
    idle = [name for name in WITH_RUN if getattr(flags, name)] if not flags.run else []
    if idle:
        raise UsageError(
            f"--{idle[0].replace('_', '-')} needs --run: without it no agent is called",
            hint="add --run, or leave it out",
        )


def _recording(loaded: Loaded, flags: SessionReplayFlags) -> Recording:
    path = sessions.find(loaded.config.data, loaded.root, flags.session)
    records = facts(path)
    events = [record.event for record in records]
    opened = next((event for event in events if isinstance(event, Opened)), None)
    count = len(views.requests(events))
    if opened is None or not count:
        raise UsageError(f"nothing was asked in the session {path.stem} yet", hint="`fugu sessions` lists others")
    if flags.request is not None and not 1 <= flags.request <= count:
        raise UsageError(f"there is no request {flags.request}", hint=f"the session has {count}")
    return Recording(path, records, opened)


def _other(flags: SessionReplayFlags, loaded: Loaded, members: tuple[Member, ...]) -> Coordinator:
    """The coordinator of flags and configuration for these agents. It must decide itself: a fallback's decisions
    compared under its name would mislead."""
    config = loaded.config
    names = {member.name for member in members}
    single = [config.coordinator.removeprefix("single:")] if config.coordinator.startswith("single:") else []
    for name in (*single, *(flags.opt_out or ())):
        if name not in names:
            raise UsageError(
                f"{name!r} is not an agent of this pool: {', '.join(sorted(names)) or 'it is empty'}",
                hint="the session's own pool is meant; --present-pool chooses among the agents of today",
            )
    if not names - set(config.opt_out):
        raise UsageError("every agent of this pool is opted out", hint="shorten opt_out or --opt-out")
    plain = Loaded(config.model_copy(update={"tier": "fugu"}), (), (), loaded.root, loaded.trusted)
    if config.coordinator != "trinity":
        return wiring.build_coordinator(plain.config, members)[0]
    return coordinator_of(RouteFlags(coordinator="trinity"), plain, members)
