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
    texts: str = ""
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
    by_file = [
        tasks
        for path in code
        if (tasks := _tasks_of_file(path, files[path], output, request, parts))
    ]
    order = [
        task
        for tasks_at_once in zip_longest(*by_file)
        for task in tasks_at_once
        if task is not None
    ]
    whole = [tasks for tasks in by_file if not is_long(files[tasks[0].target])]
    if len(by_file) == 1:
        order = [task if task.part or task.shown else replace(task, target="") for task in order]
    if len(whole) > 1 or not order:
        order.append(RepairTask(key="every file"))
    first, later = _infills(files, output, request) if lines else ([], [])
    if not later:
        return order
    by_key: dict[str, RepairTask] = {}
    for task in [*first, *(task for task in order if task.unwritten), *later, *order]:
        by_key.setdefault(task.key, task)
    return list(by_key.values())


def _tasks_of_file(
    path: str, content: str, output: str, request: str, parts: bool
) -> list[RepairTask]:
    """The ways to write a file: of a short one it as it stands, then without the body of each
    function to blame; of another one each such function corrected and rewritten, all of it last. []
    where it is too long for any."""
    whole = [] if is_long(content) else [RepairTask(path, key=path)]
    if not parts:
        return whole
    blamed = _to_blame(path, content, output, request)
    one_at_a_time = len(content) > (LONG if is_stub(path, content) else SHORT_FILE)
    tasks: list[RepairTask] = []
    for function in blamed if one_at_a_time else excerpts.outermost(blamed):
        part, name = part_of(content, function), f"{path}:{function.start + 1} {function.name}"
        tasks += [RepairTask(path, part, key=name)] if one_at_a_time else []
        if rewritten := excerpts.without_body(path, content, function):
            tasks.append(RepairTask(path, part, *rewritten, key=f"{name} rewritten"))
    return (
        [*tasks, *(whole if len(content) <= LONG or not tasks else [])]
        if one_at_a_time
        else [*whole, *tasks]
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
        functions = excerpts.outermost(_to_blame(path, content, output, request))
        texts = "\n".join(part_of(content, function) for function in functions)
        called_functions = [
            function
            for function in excerpts.blamed_functions(path, content, texts)
            if function not in functions
        ]
        blamed += [_lines_of(path, content, function) for function in functions]
        called += [
            _lines_of(path, content, function) for function in excerpts.outermost(called_functions)
        ]
        broke += _broken_lines(path, content, list(chain.from_iterable(blamed)), output)
    if sum(map(len, blamed)) > MOST_INFILLS:
        return [], []
    few: list[RepairTask] = []
    for groups in (blamed, called):
        for group in sorted((group for group in groups if len(group) <= FEW), key=len):
            few += group if len(few) + len(group) <= 2 * FEW else []
    return [*broke, *few], list(chain.from_iterable([*blamed, *called]))


def _to_blame(path: str, content: str, output: str, request: str) -> list[Definition]:
    """The functions that the tests' output leads to, or else the request."""
    functions = excerpts.blamed_functions(path, content, output)
    return functions or excerpts.requested_functions(path, content, request)


def _lines_of(path: str, content: str, function: Definition) -> list[RepairTask]:
    part = part_of(content, function)
    return [
        RepairTask(path, part, gap=gap, key=gap.place)
        for gap in excerpts.line_infills(path, content, function)
    ]


def _broken_lines(
    path: str, content: str, lines: Sequence[RepairTask], output: str
) -> list[RepairTask]:
    """Of the lines that the output names, the last one first, each word of it that was not found,
    and the line.
    """
    names = sorted({name for groups in _MISSING.findall(output) for name in groups if name})
    pattern = re.compile(rf"\b(?:{'|'.join(map(re.escape, names))})\b")
    tasks_by_key = {task.key: task for task in lines}
    broken: list[RepairTask] = []
    for number in list(dict.fromkeys(reversed(lines_in_output(path, output))))[:BROKEN]:
        task = tasks_by_key.get(f"{path}:{number}")
        if task is not None and task.gap is not None:
            words = excerpts.word_infills(task.gap, content, pattern) if names else ()
            broken += [
                *(RepairTask(path, task.part, gap=gap, key=gap.place) for gap in words),
                task,
            ]
    return broken


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
        return replace(_requested_task(state, turn, member), tried=attempts_before(state, turn))
    is_text = member.protocol == "text"
    lines = member.infill and is_text and _may_try_lines(state, request)
    order = repair_candidates(files, run.output, request.text, lines=lines, parts=is_text)
    own_turns = [earlier for earlier in _earlier(state, turn) if _same_model(state, earlier, turn)]
    attempts = [attempt for earlier in own_turns for attempt in _attempts(earlier)] + list(
        _attempts(turn, done=False)
    )
    return replace(_least_tried(order, attempts, files), judged=True)


def _least_tried(
    order: Sequence[RepairTask], attempts: Sequence[_Attempt], files: Mapping[str, str]
) -> RepairTask:
    """Return the candidate that was asked for least, in their order.

    A model that is sure of the code as it is hands it back by chance, too: what changed nothing the
    last time waits until no other is left.
    """
    changes: list[list[bool]] = [[] for _ in order]
    """For each candidate, whether its attempts changed anything."""

    def due() -> int:
        indexes = [index for index, made in enumerate(changes) if not made or made[-1]]
        if not indexes:
            indexes = list(range(len(order)))
        return min(indexes, key=lambda index: (len(changes[index]), index))

    index_of = {task.key: index for index, task in enumerate(order)}
    for attempt in attempts:
        index = index_of.get(attempt.key) if attempt.key else due()
        if index is not None and _same(attempt.files, files, order[index].target):
            changes[index].append(attempt.changed)
    index = due()
    return replace(order[index], tried=len(attempts) if changes[index] else 0)


def _attempts(turn: views.Turn, *, done: bool = True) -> Iterator[_Attempt]:
    """The attempts of a turn, oldest first; of one that is not `done` those that were rolled
    back.
    """
    files = files_read(turn)
    for attempt in [*turn.draws, turn.facts] if done else turn.draws:
        reply = next((event for event in attempt if isinstance(event, Replied)), None)
        if reply is not None:
            changed = any(isinstance(event, ToolRan) and event.changes for event in attempt)
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


def _requested_task(state: SessionState, turn: views.Turn, member: Member) -> RepairTask:
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
    """Return the turns before this one in the same role."""
    return [
        earlier
        for earlier in state.request.turns
        if earlier.number < turn.number and earlier.assigned.role == turn.assigned.role
    ]


def _same_model(state: SessionState, first: views.Turn, second: views.Turn) -> bool:
    return _model(state, first) == _model(state, second)


def _model(state: SessionState, turn: views.Turn) -> str:
    member = state.pool.get(turn.assigned.agent)
    return member.model if member is not None else turn.assigned.agent


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
    has_file = files_read(turn) or intent.target_file(request, ())
    short = len(request.text) <= AGAIN
    return (
        short
        and bool(has_file)
        and is_unjudged(state, request)
        and intent.wants_change(request.text)
    )


def made_progress(state: SessionState, turn: views.Turn, run: views.TestRun) -> bool:
    """Fewer tests fail than when the turn began, or more pass, and half of all do. Where most tests
    fail, a small model writes the same again and again."""
    before = views.tests(state.before(turn.assigned).events)
    if before is None or before.ok:
        return False
    failed_before, failed = views.failed_count(before.output), views.failed_count(run.output)
    passing = views.passed_count(run.output)
    if failed is not None and passing is not None and passing < failed:
        return False
    fewer = failed_before is not None and failed is not None and failed < failed_before
    return fewer or (passing or 0) > (views.passed_count(before.output) or 0)
