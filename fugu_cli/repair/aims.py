"""What this draw of a small model is to write: which file or function, and whether it is mended or written anew.

Below prompt.py, which shows it; beside ways.py, which says what can be asked for. Draws differ in what they ask for
before they differ by chance: a small model that did not see what is wrong will not see it the next time. A function of
the log, in which every reply says what was asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from fugu_cli import views
from fugu_cli.events import Asked, Event, Member, Replied, ToolRan, Undone
from fugu_cli.loop.harness import attempts_before
from fugu_cli.messages import path_of
from fugu_cli.repair import brief_files, excerpts, intent
from fugu_cli.repair.filling import AS_IT_IS
from fugu_cli.repair.opening import files_read, is_long
from fugu_cli.repair.ways import Aim, Known, ways

SLOW = 60.0
"""Seconds that the tests take where no lines are tried."""
UNUSABLE = 100.0
"""Less than any mean log probability."""
AGAIN = 400
"""Characters of a request that may stand in a brief twice."""


@dataclass(frozen=True)
class _Try:
    """What a draw was asked for, what the files were then, and what came of it."""

    reply: Replied
    files: Mapping[str, str]
    changed: bool

    @property
    def key(self) -> str:
        """Which way it was; nothing where the log does not say."""
        return self.reply.filled or self.reply.aimed


def aim(events: Sequence[Event], turn: views.Turn, member: Member) -> Aim:
    """What a small model is to write: where tests fail first each file, or a function of it, as it is, then each
    without the body of what is to blame, and so on; where there are several, all together last.

    A model that is to write several files writes them all, most of them as they were, which takes longest; what mends
    one shows in the tests.
    """
    request, files, run = views.asked(events), files_read(turn), views.tests(events)
    failing = views.suite_decides(events) and turn.assigned.role == "worker" and run is not None and not run.ok
    if not failing or request is None or brief_files.open_ended(request, files, judged=True):
        draws = attempts_before(events, turn)
        return replace(_free(events, turn, member, files, draws), tried=draws)
    assert run is not None
    before = _since_progress(events, turn)
    others = [one for one in _earlier(events, turn) if not _same_model(events, one, turn)]
    known = _known(others, files)
    lines = member.infill and member.protocol == "text" and _may_try(events, request)
    order = ways(files, run.output, request.text, known if lines else None, parts=member.protocol == "text")
    tries = [each for one in _earlier(events, turn) if one not in others for each in _tries(one)]
    tries += _tries(turn, done=False)
    follows = any(_drawn(one) for one in before if not _same_model(events, one, turn))
    anew = (number for number, way in enumerate(order) if way.unwritten)
    first = next(anew, 0) if follows and not known.filled else 0
    return replace(_next(order, first, tries, files), judged=True)


def _next(order: Sequence[Aim], first: int, tries: Sequence[_Try], files: Mapping[str, str]) -> Aim:
    """The way that was asked for least, one after the other from `first`.

    A model that is sure of the code as it is hands it back by chance, too: what changed nothing the last time waits
    until no other is left. Lines have no tests' output before them: what a line came to it would come to again.
    """
    made: list[list[bool]] = [[] for _ in order]

    def due() -> int:
        open_ = [place for place, changed in enumerate(made) if not changed or changed[-1]] or range(len(order))
        return min(open_, key=lambda place: (len(made[place]), (place - first) % len(order)))

    keys = {way.key: place for place, way in enumerate(order)}
    for one in tries:
        place = keys.get(one.key) if one.key else due()
        if place is not None and _same(one.files, files, order[place].target):
            made[place].append(one.changed)
    place = due()
    return replace(order[place], tried=len(tries) if made[place] else 0)


def _tries(turn: views.Turn, *, done: bool = True) -> Iterator[_Try]:
    """The draws of a turn, oldest first, those that were rolled back as well; of one that is not `done` those alone."""
    files = files_read(turn)
    for draw in [*turn.draws, turn.facts] if done else turn.draws:
        reply = next((fact for fact in draw if isinstance(fact, Replied)), None)
        if reply is not None:
            yield _Try(reply, files, _changes(draw))


def refused(events: Sequence[Event], turn: views.Turn) -> str:
    """Why the newest reply needs no run of the tests: it makes the very calls that an earlier draw of this request made
    in the same files, whoever it was by, which was rolled back for this reason. "" where it does not. Two models often
    write the same line."""
    newest, files = _calls(turn.replies[-1]), files_read(turn)
    for one in [*_earlier(events, turn), turn]:
        if newest and files_read(one) == files:
            for reply, reason in _failed(one):
                if _calls(reply) == newest:
                    return reason
    return ""


def _calls(reply: Replied) -> list[tuple[str, str]]:
    return [(call.tool, call.arguments) for call in reply.calls]


def _failed(turn: views.Turn) -> Iterator[tuple[Replied, str]]:
    """The reply of each draw that was one reply and left tests failing, and why it was rolled back."""
    for draw in turn.draws:
        replies, end = [fact for fact in draw if isinstance(fact, Replied)], draw[-1]
        runs = (fact for fact in draw if isinstance(fact, ToolRan) and fact.call.tool == views.RUN_TESTS)
        if len(replies) == 1 and any(not run.ok for run in runs) and isinstance(end, Undone):
            yield replies[0], end.reason


def _known(turns: Sequence[views.Turn], files: Mapping[str, str]) -> Known:
    """What other models' turns say of the lines of these files. A line that could not be tried is a doubt as well, the
    last one."""
    sure: dict[str, float | None] = {}
    for one in (each for turn in turns for each in _tries(turn) if each.reply.filled):
        place, reply = one.key, one.reply
        if _same(one.files, files, path_of(place)):
            agreed = not reply.calls and reply.text.endswith(AS_IT_IS)
            doubt = None if agreed else (reply.logprob or 0.0) - (0.0 if reply.calls else UNUSABLE)
            known = sure.get(place)
            sure[place] = known if doubt is None else doubt if known is None else max(doubt, known)
    return Known(sure)


def _same(before: Mapping[str, str], files: Mapping[str, str], path: str) -> bool:
    """The file is as it was; without a `path`, all of them are."""
    return before.get(path) == files.get(path) if path else before == files


def _may_try(events: Sequence[Event], request: Asked) -> bool:
    """Most lines that are filled in are wrong: they can be put back, and the tests take no minute to say so."""
    runs = (event for event in views.request(events) if isinstance(event, ToolRan))
    first = next((run.seconds for run in runs if run.call.tool == views.RUN_TESTS), 0.0)
    return request.snapshot is not None and first <= SLOW


def _free(events: Sequence[Event], turn: views.Turn, member: Member, files: Mapping[str, str], draws: int) -> Aim:
    """What is written where no failing test leads to it: the function or file that is meant."""
    request = views.asked(events)
    if turn.assigned.role != "worker" or request is None:
        return Aim(brief_files.target(request, files))
    part = _named_part(request, files, draws) if member.protocol == "text" else None
    return part or Aim(brief_files.target(request, files))


def _named_part(request: Asked, files: Mapping[str, str], draws: int) -> Aim | None:
    """The one function that the request names, where it is about no other file: of a long one; of another in every
    second draw, for a small model that is asked for the whole file gives back what it was shown."""
    code = brief_files.targets(files)
    if intent.is_question(request.text) or len(code) != 1:
        return None
    path, content = code[0], files[code[0]]
    if is_long(content):
        named = excerpts.meant(path, content, request.text)
    else:
        elsewhere = draws % 2 or brief_files.target(request, files) not in ("", path)
        named = () if elsewhere else excerpts.told(path, content, request.text)
    return Aim(path, named[0]) if len(named) == 1 else None


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


def _changes(draw: Sequence[Event]) -> bool:
    return any(isinstance(fact, ToolRan) and fact.changes for fact in draw)


def _same_model(events: Sequence[Event], one: views.Turn, other: views.Turn) -> bool:
    pool, names = views.pool(events), (one.assigned.agent, other.assigned.agent)
    first, second = (pool[name].model if name in pool else name for name in names)
    return first == second


def free(events: Sequence[Event], request: Asked) -> bool:
    """No failing test says what is to be done."""
    run = views.tests(events)
    passes = run is not None and run.passes
    return not views.suite_decides(events) or passes or intent.is_for_tests(request.text)


def wanted(events: Sequence[Event], turn: views.Turn) -> bool:
    """A Worker is asked for a change that the request describes: the brief ends with the request, for a small model
    that is asked for a file last gives back the one it was shown. Not a long one: that would be read twice."""
    request = views.asked(events)
    if request is None or turn.assigned.role != "worker" or turn.assigned.plan:
        return False
    there = files_read(turn) or brief_files.target(request, ())
    short = len(request.text) <= AGAIN
    return short and bool(there) and free(events, request) and intent.wants_change(request.text)
