"""The loop: drive the request at the end of the log to its end.

Stands above coordinators, agents and tools and below every user interface; a session, a rollout and a benchmark are
this same `run`. Knows no provider, no screen and no file format. What comes next is read from the log each time, so a
run that was killed is continued by calling `run` again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import assert_never

from fugu_cli import intent, views
from fugu_cli.coordinators import Check, Decision, Merge, Planning, Together, stopping
from fugu_cli.events import Assigned, Event, Finished, Interrupted, Planned
from fugu_cli.log import Log
from fugu_cli.loop import cooldown, lanes, workflow
from fugu_cli.loop.bench import Bench, Crew, run_evidence
from fugu_cli.loop.cut_calls import settle
from fugu_cli.loop.steps import Place, too_dear
from fugu_cli.loop.turn import cut_before
from fugu_cli.messages import Call

__all__ = ["Crew", "run"]


async def run(log: Log, crew: Crew, bench: Bench) -> Finished:
    """Drive the newest request to its end and return how it ended.

    Cancelled, it records what was cut off and leaves the request unfinished, to be continued by another `run`. Raises
    StorageError when the log or a file cannot be written; nothing recorded is lost. Raises ValueError for a log without
    a request: no step could end it.
    """
    if views.asked(log.events) is None:
        raise ValueError("there is no request to drive")
    place = Place(log, crew, bench)
    clock = asyncio.timeout_at(_loop_time(bench.limits.deadline))
    try:
        async with clock:
            await settle(log, bench.workspace)
            while (end := views.finished(log.events)) is None:
                await _step(place)
            return end
    except TimeoutError:
        if not clock.expired():
            raise
        _cut(place)
        again = f"`fugu run --continue` goes on from here.{stopping.only_broke(log.events)}"
        end = Finished(reason="time_limit", message=again)
        log.append(end)
        return end
    except asyncio.CancelledError:
        _cut(place)
        raise


def _loop_time(deadline: float | None) -> float | None:
    return None if deadline is None else asyncio.get_running_loop().time() + deadline - time.monotonic()


def _cut(place: Place) -> None:
    """Record that the open turns were cut, unless a reply that was being written has recorded it with its text.

    Turn 0 where none was open: what a closed turn did stands.
    """
    log = place.log
    over = views.finished(log.events) is not None
    open_now = [] if over else lanes.open_turns(place)
    for number in open_now:
        log.append(Interrupted(turn=number))
    if not open_now and not isinstance(log.events[-1], Interrupted):
        log.append(Interrupted(turn=0))


async def _step(place: Place) -> None:
    """One step: the baseline, the open turns to their ends, or a decision."""
    due = _baseline_due(place.log.events)
    if due is not None:
        await run_evidence(place.log, place.bench, 0, due)
    elif open_now := lanes.open_turns(place):
        await lanes.go_on(place, open_now)
    elif (due := _again_due(place.log.events)) is not None:
        await run_evidence(place.log, place.bench, 0, due)
    else:
        await _decided(place)


def _baseline_due(events: Sequence[Event]) -> Call | None:
    """The tests, before the first turn: those that pass must still pass when it is done. A run that was killed is made
    again."""
    request = views.asked(events)
    if views.turns(events) or request is None or request.test_command is None or views.first_tests(events):
        return None
    if request.assertions or (not request.judged and intent.only_asks(request.text)):
        return None  # nothing is there yet that could be tried, or nothing will be changed
    return Call(id=f"e0-{len(views.baseline(events))}", tool=views.RUN_TESTS)


def _again_due(events: Sequence[Event]) -> Call | None:
    """The tests, where they decide and the newest turn was cut after it had changed something: who is to act depends on
    what it left behind. A workflow runs them at its end."""
    turns = views.turns(events)
    cut = bool(turns) and (turns[-1].interrupted or turns[-1].failed) and not turns[-1].assigned.plan
    if not cut or not cut_before(events):
        return None
    return Call(id=f"c{len(events)}", tool=views.RUN_TESTS)


async def _decided(place: Place) -> None:
    """Ask the coordinator and do what it decides."""
    log, bench = place.log, place.bench
    crew = place.crew
    decision: Decision = await cooldown.decide(log, crew.coordinator, crew.rests, crew.patience, too_dear(place))
    match decision:
        case Assigned() | Planned() | Finished():
            log.append(decision)
        case Planning():
            await workflow.plan(place, decision)
        case Together():
            await workflow.begin(log, bench, decision)
        case Check():
            await run_evidence(log, bench, 0, Call(id=f"c{len(log.events)}", tool=views.RUN_TESTS))
        case Merge():
            await workflow.merge(log, bench, decision)
        case _:
            assert_never(decision)
