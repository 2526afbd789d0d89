"""What this draw of a small model is to write: which file or function, and whether it is mended or written anew.

Below context.py, which shows it. Draws differ in what they ask for before they differ by chance: a small model that did
not see what is wrong will not see it the next time. A function of the log and the draw's number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest

from fugu_cli import intent, views
from fugu_cli.events import Asked, Event, Member, ToolRan
from fugu_cli.loop import anew, brief_files, excerpts, gaps, tests_wanted
from fugu_cli.loop.opening import files_read, is_long
from fugu_cli.messages import Gap

FEW = 12
"""Lines that are filled in before anything is written whole."""
SLOW = 60.0
"""Seconds that the tests take where no lines are tried."""
AGAIN = 400
"""Characters of a request that may stand in a brief twice."""


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
    judged: bool = False
    """Failing tests say whether it is done."""
    gap: Gap | None = None
    """One line of the part that is left out, and is all that is to be written."""
    adds: bool = False
    """The file is there and gets more: what is new is asked for alone, for a small model hands back the rest."""


def aim(events: Sequence[Event], turn: views.Turn, member: Member) -> Aim:
    """What a small model is to write: where tests fail first each file, or a function of it, as it is, then each
    without the body of what is to blame, and so on; where there are several, all together last.

    A model that is to write several files writes them all, most of them as they were, which takes longest; what mends
    one shows in the tests.
    """
    request, files, run = views.asked(events), files_read(turn), views.tests(events)
    failing = views.judged_by_tests(events) and turn.assigned.role == "worker" and not passing(events)
    if failing and request is not None and (test := tests_wanted.failing(request.text, views.changes(events), run)):
        return _of_both(events, turn, request.text, test)
    if not failing or request is None or request.assertions or brief_files.open_ended(request, files):
        return replace(_free(events, turn, member, files), tried=draws_before(events, turn))
    before = _since_progress(events, turn)
    ways = _ways_by_file(files, run.output if run else "", request.text, parts=member.protocol == "text")
    order = [way for at_once in zip_longest(*ways) for way in at_once if way is not None]
    whole = [each for each in ways if not is_long(files.get(each[0].target, ""))]
    if len(whole) > 1 or not order:
        order.append(Aim())
    same = [one for one in before if _same_model(events, one, turn)]
    began = min((one.number for one in same), default=turn.number)
    followed = [one for one in before if one.number < began and _drawn(one)]
    doubted = _doubted(followed)
    if member.infill and member.protocol == "text" and _may_try(events, request):
        output = run.output if run else ""
        lines, more = (_lines(files, output, request.text, more=more) for more in (False, True))
        order = _with_lines(order, lines, more, doubted)
    draws = [changed for one in same for changed in _outcomes(one)] + [_changes(draw) for draw in turn.draws]
    anew = (number for number, way in enumerate(order) if way.unwritten)
    first = next(anew, 0) if followed and doubted is None else 0
    place, again = _place(len(order), first, draws)
    return replace(order[place], tried=len(draws) if again else 0, judged=True)


def _may_try(events: Sequence[Event], request: Asked) -> bool:
    """Most lines that are filled in are wrong: they can be put back, and the tests take no minute to say so."""
    runs = (event for event in views.request(events) if isinstance(event, ToolRan))
    first = next((run.seconds for run in runs if run.call.tool == views.RUN_TESTS), 0.0)
    return request.snapshot is not None and first <= SLOW


def _lines(files: Mapping[str, str], output: str, request: str, *, more: bool) -> list[Aim]:
    """Every line of the functions to blame, file by file; `more`: every place behind one."""
    found = [(path, gaps.in_turn(path, files[path], output, request, more=more)) for path in brief_files.targets(files)]
    return [Aim(path, one.part, gap=one.gap) for path, filling in found for one in filling]


def _with_lines(order: list[Aim], lines: list[Aim], more: list[Aim], doubted: Mapping[str, float] | None) -> list[Aim]:
    """Few lines first, for they take least; then what is written anew, many lines, one more line, and last what is
    mended: where the lines did not help, that hardly does (tests/benchmarks/results/infilling.md).

    `doubted`: by place, how sure a model before this one was of another line there, None where none filled in any. Two
    models that have not seen a line doubt the same ones: those come first, the surest before the others."""
    if not lines:
        return order
    new, rest = [way for way in order if way.unwritten], [way for way in order if not way.unwritten]
    known = lines
    if doubted is not None:
        known = sorted((way for way in lines if _place_of(way) in doubted), key=lambda way: -doubted[_place_of(way)])
    early = known if len(known) <= FEW else []
    return [*early, *new, *(way for way in lines if way not in early), *more, *rest]


def _doubted(turns: Sequence[views.Turn]) -> dict[str, float] | None:
    """By place, the lines that were filled in with another one that could be tried: how sure the model was of it (mean
    log probability). None where no lines were filled in."""
    filled = [reply for one in turns for reply in one.spent if reply.filled]
    found: dict[str, float] = {}
    for reply in filled:
        if reply.calls:
            sure = reply.logprob if reply.logprob is not None else 0.0
            found[reply.filled] = max(sure, found.get(reply.filled, sure))
    return found if filled else None


def _place_of(way: Aim) -> str:
    return way.gap.place if way.gap is not None else ""


def _of_both(events: Sequence[Event], turn: views.Turn, request: str, test: str) -> Aim:
    """The new `test` that fails, and in turns with it the code that was changed beside it: first what does not find a
    name is asked about."""
    same = (one for one in _since_progress(events, turn) if _same_model(events, one, turn))
    draws, code = sum(map(_drawn, same)) + len(turn.draws), tests_wanted.to_blame(request, views.changes(events))
    if not code:
        return Aim(test, tried=draws)
    run = views.tests(events)
    first = run is not None and tests_wanted.unknown(run.output)
    return Aim(code if draws % 2 != first else test, tried=draws // 2)


def _free(events: Sequence[Event], turn: views.Turn, member: Member, files: Mapping[str, str]) -> Aim:
    """What is written where no failing test leads to it: a test that is wanted, the function or file that is meant."""
    request = views.asked(events)
    if turn.assigned.role != "worker" or request is None:
        return Aim(brief_files.target(request, files))
    if test := tests_wanted.target(request.text, files, views.changes(events)):
        return Aim(test, adds=test in files)
    part = _named_part(request, files) if member.protocol == "text" else None
    return part or Aim(brief_files.target(request, files) or tests_wanted.only_code(request.text, files))


def _place(count: int, first: int, draws: Sequence[bool]) -> tuple[int, bool]:
    """Which of `count` ways is next, one after the other from `first`, and whether it was asked for before.

    `draws` says of each earlier one whether it changed anything. A model that is sure of the code as it is hands it
    back by chance, too: such a way waits until no other is left.
    """
    asked: set[int] = set()
    vain: set[int] = set()
    place = first % count
    for changed in draws:
        asked.add(place)
        vain = vain - {place} if changed else vain | {place}
        if len(vain) == count:
            vain = set()
        place = next(turn % count for turn in range(place + 1, place + 1 + count) if turn % count not in vain)
    return place, place in asked


def _named_part(request: Asked | None, files: Mapping[str, str]) -> Aim | None:
    """Of a long file, where the request is about no other, the one function that it names."""
    code = brief_files.targets(files)
    if request is None or intent.is_question(request.text) or len(code) != 1 or not is_long(files[code[0]]):
        return None
    named = excerpts.meant(code[0], files[code[0]], request.text)
    return Aim(code[0], named[0]) if len(named) == 1 else None


def _ways_by_file(files: Mapping[str, str], output: str, request: str, *, parts: bool) -> list[list[Aim]]:
    """The ways to correct each file that may be to blame, at least one; long ones of which no function is to blame are
    left out, and all of them where no `parts` can be asked for."""
    code = brief_files.targets(files)
    found: dict[str, list[Aim]] = {}
    for path in code:
        ways = _ways(path, files[path], output, request) if parts else []
        if ways or not is_long(files[path]):
            found[path] = ways or [Aim(path)]
    if len(found) > 1:
        return list(found.values())
    return [[way if way.part or way.shown else replace(way, target="") for way in ways] for ways in found.values()]


def _ways(path: str, content: str, output: str, request: str) -> list[Aim]:
    """The ways to correct a file, one after the other: it as it stands, then each function to blame to be written anew;
    of a longer one each function as it stands, then anew. [] where there is but one way, and where a file that is not
    to be written whole has none."""
    parts = excerpts.in_turn(path, content, output)
    if not parts and not is_long(content):
        new = anew.in_file(path, content, output, request)
        return [Aim(path), *(Aim(path, "", one.shown, one.placeholder) for one in new)] if new else []
    ways: list[Aim] = []
    for part in parts or excerpts.meant(path, content, request):
        ways.append(Aim(path, part))
        if one := anew.without_body(path, content, part):
            ways.append(Aim(path, part, one.shown, one.placeholder))
    return ways


def draws_before(events: Sequence[Event], turn: views.Turn) -> int:
    """How often this model has drawn in this role in this request: the same prompt must not give the same answer."""
    return sum(_drawn(one) for one in _earlier(events, turn) if _same_model(events, one, turn)) + len(turn.draws)


def _since_progress(events: Sequence[Event], turn: views.Turn) -> list[views.Turn]:
    """The earlier turns in this role that saw the code as it is now: the last change that was kept begins anew."""
    earlier = _earlier(events, turn)
    kept = max((number for number, one in enumerate(earlier, start=1) if one.changes), default=0)
    return earlier[kept:]


def _earlier(events: Sequence[Event], turn: views.Turn) -> list[views.Turn]:
    role = turn.assigned.role
    return [one for one in views.turns(events) if one.number < turn.number and one.assigned.role == role]


def _drawn(turn: views.Turn) -> int:
    return len(turn.draws) + bool(turn.replies)


def _outcomes(turn: views.Turn) -> list[bool]:
    """Of each draw whether it changed anything."""
    return [_changes(draw) for draw in turn.draws] + ([bool(turn.changes)] if turn.replies else [])


def _changes(draw: Sequence[Event]) -> bool:
    return any(isinstance(fact, ToolRan) and fact.changes for fact in draw)


def _same_model(events: Sequence[Event], one: views.Turn, other: views.Turn) -> bool:
    pool, names = views.pool(events), (one.assigned.agent, other.assigned.agent)
    first, second = (pool[name].model if name in pool else name for name in names)
    return first == second


def free(events: Sequence[Event], request: Asked) -> bool:
    """No failing test says what is to be done."""
    return not request.judged or passing(events) or intent.is_for_tests(request.text)


def wanted(events: Sequence[Event], turn: views.Turn) -> bool:
    """A Worker is asked for a change that the request describes: the brief ends with the request, for a small model
    that is asked for a file last gives back the one it was shown. Not a long one: that would be read twice."""
    request = views.asked(events)
    if request is None or turn.assigned.role != "worker" or turn.assigned.plan or request.assertions:
        return False
    there = files_read(turn) or brief_files.target(request, ())
    short = len(request.text) <= AGAIN
    return short and bool(there) and free(events, request) and intent.wants_change(request.text)


def passing(events: Sequence[Event]) -> bool:
    run = views.tests(events)
    return run is not None and run.passes
