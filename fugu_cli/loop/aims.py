"""What this draw of a small model is to write: which file or function, and whether it is mended or written anew.

Below context.py, which shows it. Draws differ in what they ask for before they differ by chance: a small model that did
not see what is wrong will not see it the next time. A function of the log and the draw's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from fugu_cli import views
from fugu_cli.events import Event, Member
from fugu_cli.loop import anew, brief_files, excerpts
from fugu_cli.loop.opening import files_shown


@dataclass(frozen=True)
class Aim:
    """The one file that a small model is to write, "" where it may be any; the part of it, "" where it is all; what is
    shown in the place of either, "" where it is that; and the line that stands in it for what is to be written anew."""

    target: str = ""
    part: str = ""
    shown: str = ""
    unwritten: str = ""
    tried: int = 0
    """How many draws there were before, 0 where none of them asked for this: its answer may be the likeliest one."""


def aim(events: Sequence[Event], turn: views.Turn, member: Member) -> Aim:
    """What a small model is to write: where tests fail a file or a function as it is, and in every second round of
    draws without the body of what is to blame."""
    request, files, run = views.asked(events), files_shown(turn), views.tests(events)
    failing = views.judged_by_tests(events) and turn.assigned.role == "worker" and not passing(events)
    if not failing or request is None or brief_files.open_ended(request, files):
        return Aim(brief_files.target(request, files), tried=draws_before(events, turn))
    draw, code = draws_before(events, turn), brief_files.targets(files)
    target = brief_files.in_turn(files, draw)
    path = code[0] if len(code) == 1 else target
    several = len(code) + 1 if len(code) > 1 else 1
    ways = [Aim(target)]
    if member.protocol == "text" and path:
        ways = _ways(path, files[path], run.output if run else "", request.text) or ways
    way = ways[(draw // several + _follows(events, turn)) % len(ways)]
    return replace(way, target=way.target or target, tried=draw if draw >= several * len(ways) else 0)


def _ways(path: str, content: str, output: str, request: str) -> list[Aim]:
    """The ways to correct a file, round by round: it or a function of it as it stands, then that function to be written
    anew. [] where there is but one way."""
    parts = excerpts.in_turn(path, content, output)
    if not parts:
        new = anew.in_file(path, content, output, request)
        return [way for one in new for way in (Aim(), Aim(path, "", one.shown, one.placeholder))]
    ways: list[Aim] = []
    for part in parts:
        ways.append(Aim(path, part))
        if one := anew.without_body(path, content, part):
            ways.append(Aim(path, part, one.shown, one.placeholder))
    return ways


def draws_before(events: Sequence[Event], turn: views.Turn) -> int:
    """How often this model has drawn in this role in this request: the same prompt must not give the same answer."""
    return sum(_drawn(one) for one in _earlier(events, turn) if _same_model(events, one, turn)) + len(turn.draws)


def _follows(events: Sequence[Event], turn: views.Turn) -> bool:
    """Another model drew before in this role: what that one did first this one need not do first."""
    return any(_drawn(one) and not _same_model(events, one, turn) for one in _earlier(events, turn))


def _earlier(events: Sequence[Event], turn: views.Turn) -> list[views.Turn]:
    role = turn.assigned.role
    return [one for one in views.turns(events) if one.number < turn.number and one.assigned.role == role]


def _drawn(turn: views.Turn) -> int:
    return len(turn.draws) + bool(turn.replies)


def _same_model(events: Sequence[Event], one: views.Turn, other: views.Turn) -> bool:
    pool, names = views.pool(events), (one.assigned.agent, other.assigned.agent)
    first, second = (pool[name].model if name in pool else name for name in names)
    return first == second


def passing(events: Sequence[Event]) -> bool:
    run = views.tests(events)
    return run is not None and run.passes
