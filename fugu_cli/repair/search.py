"""What a small model is asked to write next: the candidates where tests fail, the one to try, and whether an attempt
is worth keeping.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest

from fugu_cli.engine.harness import attempts_before
from fugu_cli.messages import InfillHole, hole_line, hole_path
from fugu_cli.repair import code_structure, excerpts, intent
from fugu_cli.repair.excerpts import lines_in_output
from fugu_cli.repair.localization import files_read, is_long
from fugu_cli.repair.protocols import LONG, UNCHANGED_NOTE
from fugu_cli.session import views
from fugu_cli.session.events import Asked, Event, Member, Replied, ToolRan, Undone

DEPTH = 2
"""Calls that are followed from a function that a test's output names."""
BROKEN = 2
"""Lines of a file where it broke, the last ones."""
FEW = 12
"""Lines that are filled in before anything is written whole: of one function, or those that another model doubts."""
REWRITE_KEY = " anew"
"""How the key of a function without its body ends."""

_UNASSIGNED = re.compile(
    r"name '\w+' is not defined|cannot access (?:local|free) variable|before assignment|ReferenceError"
    r"|cannot find value `|undefined: \w"
)

_NAMED = re.compile(
    r"has no attribute '(\w+)'|name '(\w+)' is not defined|argument '(\w+)'|import name '(\w+)'"  # Python
    r"|\b(\w+) is not (?:a function|defined)|method named `(\w+)`|cannot find \w+ `(\w+)`"  # node, cargo
    r"|undefined: (?:\w+\.)?(\w+)|has no field or method (\w+)|symbol:\s+\w+ (\w+)"  # go, javac
)
"""The word that was not found."""


@dataclass(frozen=True)
class RepairTask:
    """The one file that a small model is to write, "" where it may be any; the part of it, "" where it is all; what is
    shown in the place of either, "" where it is that; and the line that stands in it for what is to be rewritten."""

    target: str = ""
    part: str = ""
    shown: str = ""
    unwritten: str = ""
    tried: int = 0
    """How many draws there were before, 0 where none of them asked for this: its answer may be the likeliest one."""
    judged: bool = False
    """Failing tests say whether it is done."""
    gap: InfillHole | None = None
    """One line of the part that is left out, and is all that is to be written."""
    key: str = ""
    """Which way it is, for the log: the same whenever it is asked for in the same files."""


@dataclass(frozen=True)
class InfillHistory:
    """What is known before a model begins. `filled`: by place, each line that another model has filled in: how sure it
    was (mean log probability) that another one belongs there, None where it wrote the same."""

    filled: Mapping[str, float | None] = field(default_factory=dict)


def repair_candidates(
    files: Mapping[str, str], output: str, request: str, known: InfillHistory | None, *, parts: bool
) -> list[RepairTask]:
    """Everything that can be asked for, at least one way. `output`: what the tests print. `parts`: of files that are
    not short; `known`: None where no lines are left out."""
    by_file = _ways_by_file(files, output, request, parts=parts)
    order = [way for at_once in zip_longest(*by_file) for way in at_once if way is not None]
    whole = [each for each in by_file if not is_long(files.get(each[0].target, ""))]
    if len(whole) > 1 or not order:
        order.append(RepairTask(key="every file"))
    if known is None:
        return order
    at, behind = (_lines(files, output, request, more=more) for more in (False, True))
    return _with_lines(order, at, behind, known, (_broke(files, at, behind, output), _deeper(files, at)))


def _lines(files: Mapping[str, str], output: str, request: str | None, *, more: bool) -> list[RepairTask]:
    """Every line of the functions to blame, file by file; `more`: every place behind one."""
    code = intent.blamed_files(files, f"{request or ''}\n{output}")
    found = [(path, excerpts.line_infills(path, files[path], output, request, more=more)) for path in code]
    return [RepairTask(path, one.part, gap=one.gap, key=one.gap.place) for path, filling in found for one in filling]


def _deeper(files: Mapping[str, str], lines: Sequence[RepairTask]) -> list[RepairTask]:
    """The lines of the functions that these ones' functions call, and those call, and so on."""
    found: dict[str, RepairTask] = {way.key: way for way in lines}
    parts = {way.part for way in lines}
    for _ in range(DEPTH):
        called = _lines(files, "\n".join(dict.fromkeys(way.part for way in found.values())), None, more=False)
        found |= {way.key: way for way in called if way.key not in found}
    return [way for way in found.values() if way.part not in parts]


def _with_lines(
    order: list[RepairTask],
    lines: list[RepairTask],
    more: list[RepairTask],
    known: InfillHistory,
    sought: tuple[list[RepairTask], list[RepairTask]],
) -> list[RepairTask]:
    """Few lines first, for they take least; then what is rewritten, the other lines, one more line, and last what is
    mended: where the lines did not help, that hardly does (tests/benchmarks/results/infilling.md).

    `sought`: lines where it broke, which are the first of all, and those of functions that are called by the ones to
    blame, which come after those. Two models that have not seen a line doubt the same ones: those come next, the surest
    before the others.
    """
    if not lines:
        return order
    broke, deeper = sought
    doubted = _doubted([*lines, *deeper], known)[:FEW]
    fresh = _few(*([way for way in some if way.key not in known.filled] for some in (lines, deeper)))
    each: dict[str, RepairTask] = {}
    rewrites = (way for way in order if way.unwritten)
    for way in [*broke, *doubted, *fresh, *rewrites, *lines, *deeper, *more, *order]:
        each.setdefault(way.key, way)
    return list(each.values())


def _broke(
    files: Mapping[str, str], lines: Sequence[RepairTask], more: Sequence[RepairTask], output: str
) -> list[RepairTask]:
    """Of the lines that the output names, the last one first, the word that was not found, the line, and the place
    before it: this one first where a variable was not found, for then a line is missing."""
    found: list[RepairTask] = []
    missing = _UNASSIGNED.search(output) is not None
    names = missing_names(output)
    for path in dict.fromkeys(way.target for way in lines):
        at, behind = ({_number(way): way for way in some if way.target == path} for some in (lines, more))
        for place in list(dict.fromkeys(reversed(lines_in_output(path, output))))[:BROKEN]:
            if place in at:
                above = max((number for number in behind if number < place), default=0)
                before = [behind[above]] if above and behind[above].part == at[place].part else []
                line = [*_words(at[place], files[path], names), at[place]]
                found += [*before, *line] if missing else [*line, *before]
    return found


def missing_names(output: str) -> frozenset[str]:
    """The words that the tests' output says were not found: attributes, variables, arguments, functions."""
    return frozenset(name for groups in _NAMED.findall(output) for name in groups if name)


def _words(way: RepairTask, content: str, names: Collection[str]) -> list[RepairTask]:
    """Each of the names on the line, to be filled in alone."""
    if way.gap is None or not names:
        return []
    wanted = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    found = excerpts.word_infills(excerpts.LineInfill(way.part, way.gap), content, wanted)
    return [RepairTask(way.target, way.part, gap=one.gap, key=one.gap.place) for one in found]


def _number(way: RepairTask) -> int:
    """The line of the file that is left out, or behind which one more is asked for."""
    return int(way.key.rpartition(":")[2].rstrip("+"))


def _doubted(lines: Sequence[RepairTask], known: InfillHistory) -> list[RepairTask]:
    sure = [(doubt, way) for way in lines if (doubt := known.filled.get(way.key)) is not None]
    return [way for _, way in sorted(sure, key=lambda one: -one[0])]


def _few(*groups: Sequence[RepairTask]) -> list[RepairTask]:
    """Of each group those of functions with few lines, the shortest function first: nothing is found out for less."""
    found: list[RepairTask] = []
    for lines in groups:
        each = [list(part) for _, part in groupby(lines, key=lambda way: (way.target, way.part))]
        for part in sorted((part for part in each if len(part) <= FEW), key=len):
            found += part if len(found) + len(part) <= 2 * FEW else []
    return found


def _ways_by_file(files: Mapping[str, str], output: str, request: str, *, parts: bool) -> list[list[RepairTask]]:
    """The ways to correct each file that may be to blame, at least one; long ones of which no function is to blame are
    left out, and all of them where no `parts` can be asked for."""
    code = intent.blamed_files(files, f"{request}\n{output}")
    found: dict[str, list[RepairTask]] = {}
    for path in code:
        ways = _ways(path, files[path], output, request) if parts else []
        if ways or not is_long(files[path]):
            found[path] = ways or [RepairTask(path, key=path)]
    if len(found) > 1:
        return list(found.values())
    return [[way if way.part or way.shown else replace(way, target="") for way in ways] for ways in found.values()]


def _ways(path: str, content: str, output: str, request: str) -> list[RepairTask]:
    """The ways to correct a file, one after the other: it as it stands, then each function to blame to be rewritten;
    of a longer one each function corrected, then rewritten, all of it last. [] where there is but one way, and where
    a file that is not to be written whole has none."""
    parts = excerpts.excerpts_in_turn(path, content, output)
    if not parts and not is_long(content):
        new = [
            _rewrites(path, content, part, one)
            for part, one in excerpts.rewrites_in_file(path, content, output, request)
        ]
        return [RepairTask(path, key=path), *new] if new else []
    ways: list[RepairTask] = []
    for part in parts or excerpts.requested_functions(path, content, request):
        name = _name(path, content, part)
        ways.append(RepairTask(path, part, key=name))
        if one := excerpts.without_body(path, content, part):
            ways.append(RepairTask(path, part, one.alone, one.placeholder, key=f"{name}{REWRITE_KEY}"))
    return [*ways, RepairTask(path, key=path)] if parts and len(content) <= LONG else ways


def _rewrites(path: str, content: str, part: str, whole: excerpts.FunctionRewrite) -> RepairTask:
    """The function `part` of a short file, alone where it is the smaller part of it, else in the `whole` file."""
    alone = excerpts.without_body(path, content, part) if 2 * len(part) < len(content) else None
    shown, placeholder = (alone.alone, alone.placeholder) if alone else (whole.shown, whole.placeholder)
    return RepairTask(path, part if alone else "", shown, placeholder, key=f"{_name(path, content, part)}{REWRITE_KEY}")


def _name(path: str, content: str, part: str) -> str:
    """Where the part begins, and the function's name where it is one."""
    first = content[: content.find(part)].count("\n") if part in content else -1
    names = [name for name, start, _ in code_structure.function_spans(path, content) if start == first]
    return " ".join([f"{path}:{first + 1}", *names[:1]])


SLOW = 60.0
"""Seconds that the tests take where no lines are tried."""
UNUSABLE = 100.0
"""Less than any mean log probability."""
AGAIN = 400
"""Characters of a request that may stand in a brief twice."""


@dataclass(frozen=True)
class _Attempt:
    """What a draw was asked for, what the files were then, and the outcome."""

    reply: Replied
    files: Mapping[str, str]
    changed: bool

    @property
    def key(self) -> str:
        """Which way it was; nothing where the log does not say."""
        return self.reply.filled or self.reply.aimed


def next_task(events: Sequence[Event], turn: views.Turn, member: Member) -> RepairTask:
    """What a small model is to write: where tests fail first each file, or a function of it, as it is, then each
    without the body of what is to blame, and so on; where there are several, all together last.

    A model that is to write several files writes them all, most of them as they were, which takes longest; what mends
    one shows in the tests.
    """
    request, files, run = views.asked(events), files_read(turn), views.tests(events)
    failing = views.suite_decides(events) and turn.assigned.role == "worker" and run is not None and not run.ok
    if not failing or request is None or intent.is_open_ended(request, files, judged=True):
        draws = attempts_before(events, turn)
        return replace(_free(events, turn, member, files, draws), tried=draws)
    assert run is not None
    before = _since_progress(events, turn)
    others = [one for one in _earlier(events, turn) if not _same_model(events, one, turn)]
    known = _known(others, files)
    lines = member.infill and member.protocol == "text" and _may_try(events, request)
    order = repair_candidates(
        files, run.output, request.text, known if lines else None, parts=member.protocol == "text"
    )
    tries = [each for one in _earlier(events, turn) if one not in others for each in _tries(one)]
    tries += _tries(turn, done=False)
    follows = any(_drawn(one) for one in before if not _same_model(events, one, turn))
    rewrites = (number for number, way in enumerate(order) if way.unwritten)
    first = next(rewrites, 0) if follows and not known.filled else 0
    return replace(_next(order, first, tries, files), judged=True)


def _next(order: Sequence[RepairTask], first: int, tries: Sequence[_Attempt], files: Mapping[str, str]) -> RepairTask:
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


def _tries(turn: views.Turn, *, done: bool = True) -> Iterator[_Attempt]:
    """The draws of a turn, oldest first, those that were rolled back as well; of one that is not `done` those alone."""
    files = files_read(turn)
    for draw in [*turn.draws, turn.facts] if done else turn.draws:
        reply = next((fact for fact in draw if isinstance(fact, Replied)), None)
        if reply is not None:
            yield _Attempt(reply, files, _changes(draw))


def repeated_attempt_reason(events: Sequence[Event], turn: views.Turn) -> str:
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


def _known(turns: Sequence[views.Turn], files: Mapping[str, str]) -> InfillHistory:
    """What other models' turns say of the lines of these files. A line that could not be tried is a doubt as well, the
    last one."""
    sure: dict[str, float | None] = {}
    for one in (each for turn in turns for each in _tries(turn) if each.reply.filled):
        place, reply = one.key, one.reply
        if _same(one.files, files, hole_path(place)):
            agreed = not reply.calls and reply.text.endswith(UNCHANGED_NOTE)
            doubt = None if agreed else (reply.logprob or 0.0) - (0.0 if reply.calls else UNUSABLE)
            known = sure.get(place)
            sure[place] = known if doubt is None else doubt if known is None else max(doubt, known)
    return InfillHistory(sure)


def _same(before: Mapping[str, str], files: Mapping[str, str], path: str) -> bool:
    """The file is as it was; without a `path`, all of them are."""
    return before.get(path) == files.get(path) if path else before == files


def _may_try(events: Sequence[Event], request: Asked) -> bool:
    """Most lines that are filled in are wrong: they can be put back, and the tests take no minute to say so."""
    runs = (event for event in views.request(events) if isinstance(event, ToolRan))
    first = next((run.seconds for run in runs if run.call.tool == views.RUN_TESTS), 0.0)
    return request.snapshot is not None and first <= SLOW


def _free(
    events: Sequence[Event], turn: views.Turn, member: Member, files: Mapping[str, str], draws: int
) -> RepairTask:
    """What is written where no failing test leads to it: the function or file that is meant."""
    request = views.asked(events)
    if turn.assigned.role != "worker" or request is None:
        return RepairTask(intent.target_file(request, files))
    part = _named_part(request, files, draws) if member.protocol == "text" else None
    return part or RepairTask(intent.target_file(request, files))


def _named_part(request: Asked, files: Mapping[str, str], draws: int) -> RepairTask | None:
    """The one function that the request names, where it is about no other file: of a long one; of another in every
    second draw, for a small model that is asked for the whole file gives back what it was shown."""
    code = intent.target_files(files)
    if intent.is_question(request.text) or len(code) != 1:
        return None
    path, content = code[0], files[code[0]]
    if is_long(content):
        named = excerpts.requested_functions(path, content, request.text)
    else:
        elsewhere = draws % 2 or intent.target_file(request, files) not in ("", path)
        named = () if elsewhere else excerpts.described_function(path, content, request.text)
    return RepairTask(path, named[0]) if len(named) == 1 else None


def _since_progress(events: Sequence[Event], turn: views.Turn) -> list[views.Turn]:
    """The earlier turns in this role that saw the code as it is now: the last change that was kept starts again."""
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


def is_unjudged(events: Sequence[Event], request: Asked) -> bool:
    """No failing test says what is to be done."""
    run = views.tests(events)
    passes = run is not None and run.passes
    return not views.suite_decides(events) or passes or intent.is_for_tests(request.text)


def wants_described_change(events: Sequence[Event], turn: views.Turn) -> bool:
    """A Worker is asked for a change that the request describes: the brief ends with the request, for a small model
    that is asked for a file last gives back the one it was shown. Not a long one: that would be read twice."""
    request = views.asked(events)
    if request is None or turn.assigned.role != "worker" or turn.assigned.plan:
        return False
    there = files_read(turn) or intent.target_file(request, ())
    short = len(request.text) <= AGAIN
    return short and bool(there) and is_unjudged(events, request) and intent.wants_change(request.text)


def made_progress(events: Sequence[Event], turn: views.Turn, run: views.TestRun) -> bool:
    """Fewer tests fail than when the turn began, or more pass, and half of all do; or as many fail, but no longer by a
    word that was not found, which alone was changed: what is wrong besides now shows.

    Where a file could not even be imported, one error stood for all its tests, and now each of them fails by itself.
    From a start that most tests refuse a small model does not come away: it writes the same again and again. Nor from a
    function that it rewrote and that is still wrong: what stood there was mostly a line away from what is right.
    """
    before = views.tests(views.events_before(events, turn))
    if before is None or before.ok:
        return False
    then, now = views.failed_count(before.output), views.failed_count(run.output)
    passing = views.passed_count(run.output)
    if (now is not None and passing is not None and passing < now) or _wrong_again(turn.replies[-1].aimed, run.output):
        return False
    fewer = then is not None and now is not None and now < then
    found = then == now is not None and _found(turn.replies[-1].filled, before.output, run.output)
    return fewer or found or (passing or 0) > (views.passed_count(before.output) or 0)


def _found(place: str, before: str, now: str) -> bool:
    line = hole_line(place)
    return bool(line) and missing_names(now) < missing_names(before) and f"{line}:" not in now


def _wrong_again(aimed: str, output: str) -> bool:
    """A function was rewritten that tests which fail still call."""
    name = aimed.removesuffix(REWRITE_KEY).rpartition(" ")[2] if aimed.endswith(REWRITE_KEY) else ""
    return bool(name) and re.search(rf"\b{re.escape(name)}\(", output) is not None
