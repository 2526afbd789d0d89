"""`fugu route`: the decision alone, for scripts and curiosity. Reads, decides, prints; changes and calls nothing.

Standard output holds one line, `AGENT ROLE`, or `finished REASON` where a session's request is over; with --json or
--explain everything. Where the learned coordinator cannot decide the declared rule does, and standard error says why;
one that was asked for with a flag must decide itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from fugu_cli import __version__, sessions, views, wiring
from fugu_cli.commands.coordinator import chosen, usable
from fugu_cli.commands.here import facts, here, newline
from fugu_cli.commands.prompt import piped
from fugu_cli.config.files import Loaded
from fugu_cli.config.pool import pool
from fugu_cli.coordinators import Coordinator, Decision, trinity
from fugu_cli.errors import UsageError
from fugu_cli.events import Asked, Assigned, Event, Finished, Member, Opened, Recorded
from fugu_cli.ui import trace, trace_turn
from fugu_cli.ui.result import routing

if TYPE_CHECKING:
    from fugu_cli.commands.flags import RouteFlags

SESSION_ID = re.compile(r"latest|\d{8}-\d{6}(-[0-9a-f]{1,4})?")
"""What is a session's id and not a request; others can be named with --session."""


@dataclass(frozen=True)
class Place:
    """Where to decide: after these facts, among these agents. `name` is the session's, "" for a request."""

    events: tuple[Event, ...]
    members: tuple[Member, ...]
    name: str = ""


def route(flags: RouteFlags) -> int:
    """Print the decision."""
    loaded = here(_settings(flags))
    place = _place(flags, loaded)
    coordinator = coordinator_of(flags, loaded, place.members)
    with usable():
        decision = asyncio.run(coordinator.decide(place.events))
    if isinstance(decision, Assigned) and decision.by != _rule(loaded.config.coordinator):
        print(f"fugu: {decision.reason}", file=sys.stderr)
    if flags.as_json:
        print(json.dumps(_json(decision, place), indent=2))
    elif flags.explain:
        print(_explained(decision, place))
    else:
        newline(_line(decision))
    return 0


def _settings(flags: RouteFlags) -> Mapping[str, Any]:
    said = {
        "coordinator": flags.coordinator,
        "checkpoint": str(flags.checkpoint) if flags.checkpoint else None,
        "backbone": flags.backbone,
        "sample": flags.sample or None,
        "seed": flags.seed,
        "opt_out": flags.opt_out or None,
    }
    return {key: value for key, value in said.items() if value is not None}


def _rule(coordinator: str) -> str:
    return coordinator.partition(":")[0]


def _place(flags: RouteFlags, loaded: Loaded) -> Place:
    if flags.session is not None and flags.what is not None:
        raise UsageError("a text and --session exclude each other", hint="a session holds its own requests")
    key = flags.session or (flags.what if flags.what and _is_session(flags.what) else None)
    if key is None:
        if flags.turn is not None or flags.request is not None:
            raise UsageError("--turn and --request need a session", hint="fugu route latest --turn 2")
        return _requested(_text(flags.what), loaded)
    path = sessions.find(loaded.config.data, loaded.root, key)
    records = facts(path)
    events: Sequence[Event] = [record.event for record in records]
    if flags.turn is not None:
        events = events[: trace_turn.find(records, flags.turn, flags.request).start]
    elif flags.request is not None:
        raise UsageError("--request needs --turn", hint="fugu route latest --request 1 --turn 2")
    opened = views.opened(events)
    if opened is None or views.asked(events) is None:
        raise UsageError(f"nothing was asked in the session {path.stem} yet", hint='fugu route "..." decides a request')
    return Place(tuple(events), opened.pool, path.stem)


def _is_session(text: str) -> bool:
    return bool(SESSION_ID.fullmatch(text)) or (text.endswith(sessions.SUFFIX) and "\n" not in text)


def _text(given: str | None) -> str:
    if given == "-" or (given is None and sys.stdin is not None and not sys.stdin.isatty()):
        given = piped(sys.stdin) if sys.stdin is not None else ""
    if given is None or not given.strip():
        raise UsageError("there is nothing to decide about", hint='give a request or a session: fugu route "..."')
    return given.strip("\n").encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")  # as a log keeps it


def _requested(text: str, loaded: Loaded) -> Place:
    """A new session with this one request. Its tests are not run: the coordinator reads the words alone."""
    members = tuple(entry.member() for entry in pool(loaded.config, os.environ))
    opened = Opened(version=__version__, repo=str(loaded.root), pool=members, coordinator=loaded.config.coordinator)
    return Place((opened, Asked(text=text)), members)


def coordinator_of(flags: RouteFlags, loaded: Loaded, members: tuple[Member, ...]) -> Coordinator:
    """What the flags and the configuration name, for these agents; a learned one that a flag named is loaded at once.

    Raises UsageError where it cannot be had.
    """
    config = loaded.config
    wanted = (flags.checkpoint, flags.backbone, flags.format, flags.roles)
    if config.coordinator != "trinity":
        if any(one is not None for one in wanted):
            raise UsageError(
                f"--checkpoint, --backbone, --format and --roles say nothing to the rule {config.coordinator}",
                hint="leave them out, or say --coordinator trinity",
            )
        return wiring.build_coordinator(config, members)[0]
    if flags.temperature is None and flags.coordinator is None and all(one is None for one in wanted):
        return wiring.build_coordinator(config, members)[0]
    roles = config.roles if flags.roles is None else flags.roles
    settings = replace(config.deciding, temperature=_temperature(flags.temperature), roles=roles)
    places = trinity.Places(config.checkpoint, config.backbone, config.cache)
    with usable():
        _check(flags, trinity.SHIPPED if config.checkpoint is None else chosen(None, config))
        try:
            return trinity.ready(
                chosen(None, config), trinity.backbone_folder(places), (members, settings), config.cache
            )
        except MemoryError as error:
            raise UsageError(
                f"out of memory: {error}", hint="close other programs, or use --coordinator cascade"
            ) from error


def _temperature(given: float | None) -> float:
    if given is not None and not 0 <= given <= 1000:
        raise UsageError(f"--temperature {given}: should be from 0 to 1000", hint="0 is next to taking the likeliest")
    return 1.0 if given is None else given


def _check(flags: RouteFlags, path: Any) -> None:
    """The checkpoint was trained for what the flags say."""
    from fugu_cli.coordinators import checkpoint

    meta = checkpoint.load(path).meta
    if flags.format is not None and flags.format.value != meta.format:
        raise UsageError(
            f"the checkpoint {path} was trained on the {meta.format} format and refuses {flags.format.value}",
            hint=f"say --format {meta.format}, or name another checkpoint",
        )
    if flags.roles and not meta.roles:
        raise UsageError(f"the checkpoint {path} was trained without roles", hint="leave --roles out")


def _line(decision: Decision) -> str:
    match decision:
        case Assigned():
            return f"{decision.agent} {decision.role}"
        case Finished():
            return f"finished {decision.reason}"
    return type(decision).__name__.lower()


def _slot(decision: Assigned, place: Place) -> str:
    return next((member.slot for member in place.members if member.name == decision.agent), "")


def _json(decision: Decision, place: Place) -> dict[str, object]:
    about: dict[str, object] = {"session_id": place.name or None}
    if not isinstance(decision, Assigned):
        end = decision if isinstance(decision, Finished) else None
        return {
            **about,
            "agent": None,
            "role": None,
            "next": _line(decision),
            "reason": end.reason if end else None,
            "message": end.message if end else None,
        }
    scores = decision.scores
    logits: dict[str, float] = {}
    if scores is not None:
        names = (*scores.rows, *(("worker", "thinker", "verifier") if scores.role_logits else ()))
        logits = dict(zip(names, (*scores.row_logits, *scores.role_logits), strict=True))
    return {**about, **routing(decision), "logits": logits, **trace.explanation(decision, _slot(decision, place))}


def _explained(decision: Decision, place: Place) -> str:
    if not isinstance(decision, Assigned):
        return _line(decision)
    facts = [*place.events, decision]
    records = [Recorded(seq=seq, at=0.0, event=event) for seq, event in enumerate(facts)]
    row = trace_turn.find(records, decision.turn)
    return f"{_line(decision)}\n\n{trace_turn.deciding(decision, row)}"
