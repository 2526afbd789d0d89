"""Works whose truth is known, for Verifiers to judge: a right and a wrong change of each task, and
half of its tests.

Right is the reference solution's function in the place of the buggy one. Wrong is a recorded answer
of an agent where there is one that changed something, else the smallest kind of mistake: an
operator, a number or a name of the solution (or of the buggy function) exchanged. Every one is
graded by the task's own tests, hidden ones included. Half of the tests: at most half of the visible
ones, all of which the wrong work passes; at least one of them fails before any change, so that they
look like tests which have done their part. Used by verifiers.py; knows no agent and no log.
"""

from __future__ import annotations

import ast
import io
import re
import tempfile
import tokenize
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import one_pass

from fugu_cli.messages import Value
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import grade
from fugu_cli.training.tasks.repository import create_repository, write_files

CANDIDATES = 20
"""Wrong works tried for a task until one passes half of its tests; else the one that passes most of
them is taken.
"""
OTHER = {
    **{
        "<": "<=",
        "<=": "<",
        ">": ">=",
        ">=": ">",
        "==": "!=",
        "!=": "==",
        "+": "-",
        "-": "+",
        "*": "+",
    },
    **{"/": "//", "//": "/", "%": "//", "&": "|", "|": "&", "^": "|", "+=": "-=", "-=": "+="},
    **{
        "and": "or",
        "or": "and",
        "min": "max",
        "max": "min",
        "any": "all",
        "all": "any",
        "True": "False",
    },
    **{"False": "True", "append": "extend", "sorted": "list"},
}
"""What a token is exchanged for. A number becomes the next one, and the one before."""
_RESULT = re.compile(r"^\S+::.*? (PASSED|FAILED|ERROR)", re.MULTILINE)


class Found(Value):
    """A row: what `works` makes a task's two works of. `number`: the wrong one's place among the
    candidates, None where none will do, and `source` what it is; `kept`: which of the `tests`
    visible tests are the half; `whole`: the right one is the solution's whole file; `visible`: the
    wrong one passes all visible tests."""

    task: str
    number: int | None = None
    source: str = ""
    kept: tuple[int, ...] = ()
    tests: int = 0
    whole: bool = False
    visible: bool = False


@dataclass(frozen=True)
class Work:
    """A change, as the whole `files` it leaves, and the test files of `half` of the tests."""

    task: str
    right: bool
    files: Mapping[str, str]
    half: Mapping[str, str]


@dataclass(frozen=True)
class Tests:
    """The file that holds a task's visible tests, and the lines of each of them: [first, end)."""

    path: str
    text: str
    parts: tuple[tuple[int, int], ...]
    whole: bool
    """Each part is a test that the runner reports; else it is an assertion in one."""

    def keeping(self, chosen: Collection[int]) -> str:
        """The file without the other tests."""
        gone = {
            n
            for i, (first, end) in enumerate(self.parts)
            if i not in chosen
            for n in range(first, end)
        }
        return "".join(
            line for n, line in enumerate(self.text.splitlines(keepends=True)) if n not in gone
        )


def tests_of(task: Task) -> Tests:
    """A line of a file of cases, a test function, or an assertion of the one test there is."""
    cases = next((name for name in task.test_files if name.endswith("_cases.json")), None)
    if cases is not None:
        lines = task.files[cases].splitlines()
        parts = tuple((n, n + 1) for n, line in enumerate(lines) if line.strip())
        return Tests(cases, task.files[cases], parts, whole=True)
    path = next(name for name in task.test_files if name.startswith("test_"))
    functions = [
        node for node in ast.parse(task.files[path]).body if isinstance(node, ast.FunctionDef)
    ]
    found: list[ast.stmt] = [node for node in functions if node.name.startswith("test")]
    whole = len(found) > 1
    if not whole:
        found = [
            node for function in functions for node in function.body if isinstance(node, ast.Assert)
        ]
    return Tests(
        path,
        task.files[path],
        tuple((n.lineno - 1, n.end_lineno or n.lineno) for n in found),
        whole,
    )


def works(
    task: Task, recorded: Sequence[one_pass.OnePassAttempt], found: Found
) -> tuple[Work, ...]:
    """The right one and the wrong one; none where no wrong one was found. Runs nothing."""
    if found.number is None:
        return ()
    tests = tests_of(task)
    right = _solutions(task)[found.whole]
    wrong = _tried(task, right, recorded)[found.number][1]
    half = {tests.path: tests.keeping(found.kept)}
    path = one_pass.answer_targets(task)[0]
    return Work(task.id, True, {path: right}, half), Work(task.id, False, {path: wrong}, half)


async def find(task: Task, recorded: Sequence[one_pass.OnePassAttempt]) -> Found:
    """Look for a wrong work that passes a test which failed before, by running the tests."""
    path, tests = one_pass.answer_targets(task)[0], tests_of(task)
    solutions = _solutions(task)
    whole = not await _solves(task, {path: solutions[0]})
    before = await _passing(task, tests, {})
    enough = (len(tests.parts) + 1) // 2
    best: tuple[list[int], str, int] = ([], "", 0)
    for number, (source, text) in enumerate(_tried(task, solutions[whole], recorded)):
        passing = await _passing(task, tests, {path: text})
        better = not set(passing) <= set(before) and len(passing) > len(best[0])
        if better and not await _solves(task, {path: text}):
            best = (passing, source, number)
        if best[1].startswith("recorded") or len(best[0]) >= enough:
            break
    passing, source, number = best
    if not passing:
        return Found(task=task.id)
    kept = tuple(sorted(passing, key=lambda n: n in before)[:enough])
    visible = len(passing) == len(tests.parts)
    return Found(
        task=task.id,
        number=number,
        source=source,
        kept=kept,
        tests=len(tests.parts),
        whole=whole,
        visible=visible,
    )


def _solutions(task: Task) -> tuple[str, str]:
    """The solution's functions in the buggy file, and the solution's file."""
    path = one_pass.answer_targets(task)[0]
    return transplanted(task.files[path], task.solution[path]) or "", task.solution[path]


def transplanted(original: str, answer: str) -> str | None:
    """`original` with the answer's functions in the place of its own: what stands around them tells
    nothing then.
    """
    try:
        own, others = ast.parse(original), ast.parse(answer)
    except SyntaxError:
        return None
    new = {node.name: node for node in others.body if isinstance(node, ast.FunctionDef)}
    lines, theirs = original.splitlines(), answer.splitlines()
    for node in reversed(own.body):
        if isinstance(node, ast.FunctionDef) and node.name in new:
            other = new[node.name]
            lines[node.lineno - 1 : node.end_lineno] = theirs[other.lineno - 1 : other.end_lineno]
    return "\n".join(lines) + "\n"


def _tried(
    task: Task, right: str, recorded: Sequence[one_pass.OnePassAttempt]
) -> list[tuple[str, str]]:
    return list(islice(_candidates(task, right, recorded), CANDIDATES))


def _candidates(
    task: Task, right: str, recorded: Sequence[one_pass.OnePassAttempt]
) -> Iterator[tuple[str, str]]:
    """Recorded answers, then mistakes in the lines the solution changed, in the buggy function, and
    elsewhere.
    """
    path = one_pass.answer_targets(task)[0]
    original = task.files[path]
    seen = {_tree(original), _tree(right)}
    found = [
        (f"recorded: {row.agent}", transplanted(original, text))
        for row in recorded
        if row.task == task.id and not row.ok
        for text in one_pass.parse_answer(row.reply, (path,)).values()
    ]
    known = set(original.splitlines())
    changed = [n for n, line in enumerate(right.splitlines(), start=1) if line not in known]
    slips = list(exchanged(right))
    found += [(f"slip: {note}", text) for line, note, text in slips if line in changed]
    found += [(f"another bug: {note}", text) for line, note, text in exchanged(original)]
    found += [(f"slip: {note}", text) for line, note, text in slips if line not in changed]
    for source, text in found:
        tree = _tree(text) if text is not None else None
        if text is not None and tree is not None and tree not in seen:
            seen.add(tree)
            yield source, text


def exchanged(text: str) -> Iterator[tuple[int, str, str]]:
    """(line, what was exchanged, the text with it): every operator, number and name that has
    another.
    """
    lines = text.splitlines(keepends=True)
    code = {
        n
        for node in ast.parse(text).body
        if isinstance(node, ast.FunctionDef)
        for n in _lines(node)
    }
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        row, first, end = token.start[0], token.start[1], token.end[1]
        others = [OTHER[token.string]] if token.string in OTHER else []
        if token.type == tokenize.NUMBER and token.string.isdigit():
            others = [
                str(int(token.string) + 1),
                *([str(int(token.string) - 1)] if token.string != "0" else []),
            ]
        if row not in code:
            continue
        for other in others:
            line = lines[row - 1]
            new = "".join([*lines[: row - 1], line[:first] + other + line[end:], *lines[row:]])
            yield row, f"`{token.string}` became `{other}` in line {row}", new


def _lines(function: ast.FunctionDef) -> range:
    return range(function.lineno + 1, (function.end_lineno or function.lineno) + 1)


def _tree(text: str) -> str | None:
    """What the code means, without docstrings; None where it does not parse."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef):
            node.body = [one for one in node.body if not _is_text(one)] or [ast.Pass()]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


async def _solves(task: Task, files: Mapping[str, str]) -> bool:
    with tempfile.TemporaryDirectory(prefix="fugu-works-") as temporary:
        folder = await create_repository(task, Path(temporary) / "repo")
        write_files(files, folder)
        return (await grade(task, folder)).ok


async def _passing(task: Task, tests: Tests, files: Mapping[str, str]) -> list[int]:
    """Which visible tests the work passes; none where the run did not come to its end."""
    if tests.whole:
        given, names = (
            dict(task.files),
            [next(name for name in task.test_files if name.startswith("test_"))],
        )
    else:
        each = {f"{tests.path[:-3]}_{n}.py": tests.keeping((n,)) for n in range(len(tests.parts))}
        given, names = {**task.files, **each}, list(each)
    command = f"python -m pytest -v --tb=no -p no:cacheprovider {' '.join(names)}"
    update = {
        "files": given,
        "hidden": {},
        "grade_command": command,
        "test_files": (*task.test_files, *names),
    }
    probe = task.model_copy(update=update)
    with tempfile.TemporaryDirectory(prefix="fugu-works-") as temporary:
        folder = await create_repository(probe, Path(temporary) / "repo")
        write_files(files, folder)
        results = _RESULT.findall((await grade(probe, folder)).output)
    return (
        [n for n, result in enumerate(results) if result == "PASSED"]
        if len(results) == len(tests.parts)
        else []
    )
