"""Chooses the next task of a small model: candidates where tests fail, the one to try, and whether
an attempt is kept.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, zip_longest

from fugu_cli.engine.harness import attempts_before
from fugu_cli.messages import InfillHole
from fugu_cli.repair import excerpts, intent
from fugu_cli.repair.excerpts import LONG, SHORT_FILE, lines_in_output, part_of
from fugu_cli.repair.localization import files_read, is_long
from fugu_cli.repair.syntax import Definition, is_stub
from fugu_cli.session import views
from fugu_cli.session.events import Asked, Member, Replied, ToolRan
from fugu_cli.session.state import SessionState

FEW, MOST_INFILLS, BROKEN = 12, 40, 2
"""Lines of a function that are filled in before anything is written whole, of all at most, and
where it broke.
"""
SLOW, AGAIN = 60.0, 400
"""Seconds that the tests take where no lines are tried; characters of a request that may stand in a
brief twice.
"""

_MISSING = re.compile(
    # Python
    r"has no attribute '(\w+)'|name '(\w+)' is not defined|argument '(\w+)'|import name '(\w+)'"
    # node, cargo
    r"|\b(\w+) is not (?:a function|defined)|method named `(\w+)`|cannot find \w+ `(\w+)`"
    r"|undefined: (?:\w+\.)?(\w+)|has no field or method (\w+)|symbol:\s+\w+ (\w+)"  # go, javac
)
"""The word that was not found."""


@dataclass(frozen=True)
class RepairTask:
    """The one file that a small model is to write, "" where it may be any; the part of it, "" where
    it is all; what is shown in the place of either, "" where it is that; and the line that stands
    in it for what is to be rewritten."""

    target: str = ""
    part: str = ""
    shown: str = ""
    unwritten: str = ""
    told: str = ""
    """The file's other words about it, quoted, because a model copies what stands in the code."""
    tried: int = 0
    """The number of attempts for this before, 0 if there was none."""
    judged: bool = False
    """Failing tests say whether it is done."""
    gap: InfillHole | None = None
    """A line or a word that is left out, and is all that is to be written."""
    key: str = ""
    """The candidate's name in the log: the same whenever it is asked for in the same files."""


def repair_candidates(
    files: Mapping[str, str], output: str, request: str, *, lines: bool, parts: bool
) -> list[RepairTask]:
    """Everything that can be asked for, at least one candidate. `parts`: of files not short.
    `lines`: to be filled in.

    Few lines first, for they take least; then what is rewritten, the other lines, and last what is
    corrected as it stands: where the lines did not help, that hardly does
    (tests/benchmarks/results/infilling.md).
    """
    code = intent.target_files(files)
    by_file = [ways for path in code if (ways := _ways(path, files[path], output, request, parts))]
    order = [way for at_once in zip_longest(*by_file) for way in at_once if way is not None]
    whole = [ways for ways in by_file if not is_long(files[ways[0].target])]
    if len(by_file) == 1:
        order = [way if way.part or way.shown else replace(way, target="") for way in order]
    if len(whole) > 1 or not order:
        order.append(RepairTask(key="every file"))
    first, later = _infills(files, output, request) if lines else ([], [])
    if not later:
        return order
    each: dict[str, RepairTask] = {}
    for way in [*first, *(way for way in order if way.unwritten), *later, *order]:
        each.setdefault(way.key, way)
    return list(each.values())


def _ways(path: str, content: str, output: str, request: str, parts: bool) -> list[RepairTask]:
    """The ways to write a file: of a short one it as it stands, then without the body of each
    function to blame; of another one each such function corrected and rewritten, all of it last. []
    where it is too long for any."""
    whole = [] if is_long(content) else [RepairTask(path, key=path)]
    if not parts:
        return whole
    blamed = _to_blame(path, content, output, request)
    alone = len(content) > (LONG if is_stub(path, content) else SHORT_FILE)
    ways: list[RepairTask] = []
    for one in blamed if alone else excerpts.outermost(blamed):
        part, name = part_of(content, one), f"{path}:{one.start + 1} {one.name}"
        ways += [RepairTask(path, part, key=name)] if alone else []
        if new := excerpts.without_body(path, content, one):
            ways.append(RepairTask(path, part, *new, key=f"{name} rewritten"))
    return (
        [*ways, *(whole if len(content) <= LONG or not ways else [])] if alone else [*whole, *ways]
    )


def _infills(
    files: Mapping[str, str], output: str, request: str
) -> tuple[list[RepairTask], list[RepairTask]]:
    """The lines to be filled in: first those where it broke and those of functions that have few,
    the shortest first, for nothing is found out for less; then all, also of the functions that
    these call. None where there are many."""
    blamed: list[list[RepairTask]] = []
    called: list[list[RepairTask]] = []
    broke: list[RepairTask] = []
    for path in intent.target_files(files):
        content = files[path]
        found = excerpts.outermost(_to_blame(path, content, output, request))
        said = "\n".join(part_of(content, one) for one in found)
        deeper = [one for one in excerpts.blamed_functions(path, content, said) if one not in found]
        blamed += [_lines_of(path, content, one) for one in found]
        called += [_lines_of(path, content, one) for one in excerpts.outermost(deeper)]
        broke += _broke(path, content, list(chain.from_iterable(blamed)), output)
    if sum(map(len, blamed)) > MOST_INFILLS:
        return [], []
    few: list[RepairTask] = []
    for groups in (blamed, called):
        for group in sorted((group for group in groups if len(group) <= FEW), key=len):
            few += group if len(few) + len(group) <= 2 * FEW else []
    return [*broke, *few], list(chain.from_iterable([*blamed, *called]))


def _to_blame(path: str, content: str, output: str, request: str) -> list[Definition]:
    """The functions that the tests' output leads to, or else the request."""
    found = excerpts.blamed_functions(path, content, output)
    return found or excerpts.requested_functions(path, content, request)


def _lines_of(path: str, content: str, one: Definition) -> list[RepairTask]:
    part = part_of(content, one)
    return [
        RepairTask(path, part, gap=gap, key=gap.place)
        for gap in excerpts.line_infills(path, content, one)
    ]


def _broke(path: str, content: str, lines: Sequence[RepairTask], output: str) -> list[RepairTask]:
    """Of the lines that the output names, the last one first, each word of it that was not found,
    and the line.
    """
    names = sorted({name for groups in _MISSING.findall(output) for name in groups if name})
    wanted = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    at = {way.key: way for way in lines}
    found: list[RepairTask] = []
    for place in list(dict.fromkeys(reversed(lines_in_output(path, output))))[:BROKEN]:
        way = at.get(f"{path}:{place}")
        if way is not None and way.gap is not None:
            words = excerpts.word_infills(way.gap, content, wanted) if names else ()
            found += [*(RepairTask(path, way.part, gap=gap, key=gap.place) for gap in words), way]
    return found


@dataclass(frozen=True)
class _Attempt:
    """An attempt: what was asked for, the files at that time, and whether the answer changed any."""

    key: str
    """"" where the log does not say."""
    files: Mapping[str, str]
    changed: bool


def next_task(state: SessionState, turn: views.Turn, member: Member) -> RepairTask:
    """Return the next task of a small model: where tests fail, the candidate that was tried least."""
    request, files, run = state.request.asked, files_read(turn), state.request.tests
    failing = (
        state.request.suite_decides
        and turn.assigned.role == "worker"
        and run is not None
        and not run.ok
    )
    if (
        not failing
        or request is None
        or run is None
        or intent.is_open_ended(request, files, judged=True)
    ):
        return replace(_meant(state, turn, member), tried=attempts_before(state, turn))
    text = member.protocol == "text"
    lines = member.infill and text and _may_try_lines(state, request)
    order = repair_candidates(files, run.output, request.text, lines=lines, parts=text)
    own = [one for one in _earlier(state, turn) if _same_model(state, one, turn)]
    tries = [each for one in own for each in _attempts(one)] + list(_attempts(turn, done=False))
    return replace(_next(order, tries, files), judged=True)


def _next(
    order: Sequence[RepairTask], tries: Sequence[_Attempt], files: Mapping[str, str]
) -> RepairTask:
    """The candidate that was asked for least, in their order.

    A model that is sure of the code as it is hands it back by chance, too: what changed nothing the
    last time waits until no other is left.
    """
    made: list[list[bool]] = [[] for _ in order]

    def due() -> int:
        open_ = [
            place for place, changed in enumerate(made) if not changed or changed[-1]
        ] or range(len(order))
        return min(open_, key=lambda place: (len(made[place]), place))

    keys = {way.key: place for place, way in enumerate(order)}
    for one in tries:
        place = keys.get(one.key) if one.key else due()
        if place is not None and _same(one.files, files, order[place].target):
            made[place].append(one.changed)
    place = due()
    return replace(order[place], tried=len(tries) if made[place] else 0)


def _attempts(turn: views.Turn, *, done: bool = True) -> Iterator[_Attempt]:
    """The attempts of a turn, oldest first; of one that is not `done` those that were rolled
    back.
    """
    files = files_read(turn)
    for draw in [*turn.draws, turn.facts] if done else turn.draws:
        reply = next((fact for fact in draw if isinstance(fact, Replied)), None)
        if reply is not None:
            changed = any(isinstance(fact, ToolRan) and fact.changes for fact in draw)
            yield _Attempt(reply.filled or reply.aimed, files, changed)


def _same(before: Mapping[str, str], files: Mapping[str, str], path: str) -> bool:
    """The file is as it was; without a `path`, all of them are."""
    return before.get(path) == files.get(path) if path else before == files


def _may_try_lines(state: SessionState, request: Asked) -> bool:
    """Most lines that are filled in are wrong: they can be put back, and the tests take no minute
    to say so.
    """
    runs = (event for event in state.request.events if isinstance(event, ToolRan))
    first = next((run.seconds for run in runs if run.call.tool == views.RUN_TESTS), 0.0)
    return request.snapshot is not None and first <= SLOW


def _meant(state: SessionState, turn: views.Turn, member: Member) -> RepairTask:
    """Return the task without a failing test: the file that is meant, or the one function of a long
    file that the request names.
    """
    request, files = state.request.asked, files_read(turn)
    code = intent.target_files(files)
    if turn.assigned.role == "worker" and request and len(code) == 1 and is_long(files[code[0]]):
        named = excerpts.requested_functions(code[0], files[code[0]], request.text)
        if len(named) == 1 and member.protocol == "text" and not intent.is_question(request.text):
            return RepairTask(code[0], part_of(files[code[0]], named[0]))
    return RepairTask(intent.target_file(request, files))


def _earlier(state: SessionState, turn: views.Turn) -> list[views.Turn]:
    role = turn.assigned.role
    return [
        one for one in state.request.turns if one.number < turn.number and one.assigned.role == role
    ]


def _same_model(state: SessionState, one: views.Turn, other: views.Turn) -> bool:
    pool, names = state.pool, (one.assigned.agent, other.assigned.agent)
    first, second = (pool[name].model if name in pool else name for name in names)
    return first == second


def is_unjudged(state: SessionState, request: Asked) -> bool:
    """No failing test says what is to be done."""
    run = state.request.tests
    passes = run is not None and run.passes
    return not state.request.suite_decides or passes or intent.is_for_tests(request.text)


def wants_described_change(state: SessionState, turn: views.Turn) -> bool:
    """A Worker is asked for a change that the request describes: the brief ends with the request,
    for a small model that is asked for a file last gives back the one it was shown. Not a long one:
    that would be read twice."""
    request = state.request.asked
    if request is None or turn.assigned.role != "worker" or turn.assigned.plan:
        return False
    there = files_read(turn) or intent.target_file(request, ())
    short = len(request.text) <= AGAIN
    return (
        short and bool(there) and is_unjudged(state, request) and intent.wants_change(request.text)
    )


def made_progress(state: SessionState, turn: views.Turn, run: views.TestRun) -> bool:
    """Fewer tests fail than when the turn began, or more pass, and half of all do. Where most tests
    fail, a small model writes the same again and again."""
    before = views.tests(state.before(turn.assigned).events)
    if before is None or before.ok:
        return False
    then, now = views.failed_count(before.output), views.failed_count(run.output)
    passing = views.passed_count(run.output)
    if now is not None and passing is not None and passing < now:
        return False
    fewer = then is not None and now is not None and now < then
    return fewer or (passing or 0) > (views.passed_count(before.output) or 0)
