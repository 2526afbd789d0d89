"""Runs the examples in docstrings: python run_examples.py FILE... FILE::FUNCTION...
Or the assertions of a question after the code of an answer: python run_examples.py - < JSON, with both.

Of a file `>>> f(1)` with its answer; of a function also what people write instead of it: `f(1) == 2`, `f(1) -> 2`,
"Input: 1" above "Output: 2". Run by its path with the repository's own Python, so it needs the standard library only
and imports nothing of this package. Prints what fails and ends with 1 where something does.
"""

from __future__ import annotations

import ast
import doctest
import importlib.util
import json
import os
import re
import sys
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

MOST_SHOWN = 20
"""Failing examples that are printed; all are counted."""
NEAR = 1e-6

_SAID = re.compile(r"\s*(?:==>|==|=>|-->|->|\u279e|\u2192|\u21d2|=|#\s*(?:==>|=>|->)?|returns?\b|should return\b)\s*:?")
_FRAMES = re.compile(r' *File "(?:[^"\n]*[\\\\/]doctest\.py|<doctest [^"\n]*>)", line.*\n(?: {8,}.*\n)*')
"""Of a backtrace what is above the function."""
_BEFORE = re.compile(r"[\W\d]*(?:(?:for|assert|e\.g|eg|ex|example|input)\b[\W\d]*)?", re.IGNORECASE)
_INPUT = re.compile(r"\s*(?:[-*]\s*)?inputs?\s*:\s*(.+)", re.IGNORECASE)
_OUTPUT = re.compile(r"\s*(?:[-*]\s*)?(?:outputs?|returns?)\s*:\s*(.+)", re.IGNORECASE)


@dataclass(frozen=True)
class Spelled:
    """`call`, an expression, is to have the value of `answer`, a literal. `line` of the file, from 1."""

    call: str
    answer: str
    line: int


def unwritten(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """The function has no body yet, or one that only says so."""
    body = node.body[1:] if ast.get_docstring(node, clean=False) is not None else node.body
    return all(_says_nothing(statement) for statement in body)


def _says_nothing(statement: ast.stmt) -> bool:
    if isinstance(statement, ast.Raise):
        raised = statement.exc.func if isinstance(statement.exc, ast.Call) else statement.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    empty = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return isinstance(statement, ast.Pass) or empty


def spelled(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[Spelled]:
    """The examples in the function's docstring that are not written as `>>>`: literals in, a literal out."""
    docstring = ast.get_docstring(node, clean=False)
    if docstring is None or isinstance(node, ast.AsyncFunctionDef):
        return []
    lines = docstring.split("\n")
    start = node.body[0].lineno
    found: list[Spelled] = []
    for number, line in enumerate(lines):
        after = next((text for text in lines[number + 1 : number + 3] if text.strip()), "")
        pair = _called(node.name, line) or _asked(node.name, line, after)
        if pair is not None:
            found.append(Spelled(*pair, start + number))
    return found


def _called(name: str, line: str) -> tuple[str, str] | None:
    """`name(...)` with literals, a sign, and a literal."""
    begin = re.search(rf"(?<![\w.]){re.escape(name)}\(", line)
    if begin is None or not _BEFORE.fullmatch(line[: begin.start()]):
        return None
    for end in (place for place, sign in enumerate(line) if sign == ")" and place > begin.start()):
        call = line[begin.start() : end + 1]
        said = _SAID.match(line, end + 1)
        if said is None or not _takes_literals(call):
            continue
        answer = _literal(line[said.end() :])
        if answer is not None:
            return call, answer
    return None


def _asked(name: str, line: str, after: str) -> tuple[str, str] | None:
    """A line "Input: ..." and the next one, "Output: ...": a literal, or `name = literal, ...`."""
    given, wanted = _INPUT.fullmatch(line), _OUTPUT.fullmatch(after)
    if given is None or wanted is None:
        return None
    call, answer = f"{name}({given.group(1).strip()})", _literal(wanted.group(1))
    return (call, answer) if answer is not None and _takes_literals(call) else None


def _takes_literals(call: str) -> bool:
    try:
        node = ast.parse(call, mode="eval").body
        return isinstance(node, ast.Call) and all(
            _is_value(value) for value in (*node.args, *(keyword.value for keyword in node.keywords if keyword.arg))
        )
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _is_value(node: ast.expr) -> bool:
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return False
    return True


def _literal(text: str) -> str | None:
    """The literal that `text` is, but for a full stop or comma behind it."""
    for tried in (text.strip(), text.strip().rstrip(".,;")):
        try:
            node = ast.parse(tried, mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        if tried and _is_value(node):
            return ast.unparse(node)
    return None


class Values(doctest.OutputChecker):
    """Compares what was said with what was printed as values, where both are: 2.50 is 2.5, a dict has no order."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        wanted, found = _value(want), _value(got or "None")
        if wanted is None or found is None:
            return super().check_output(want, got, optionflags)
        near = isinstance(wanted[0], float) and isinstance(found[0], float) and abs(wanted[0] - found[0]) < NEAR
        return near or wanted == found


class Anything(doctest.OutputChecker):
    """Whatever is printed is right: only what is raised is wrong."""

    def check_output(self, want: str, got: str, optionflags: int) -> bool:
        return True


def _value(text: str) -> tuple[object] | None:
    try:
        return (ast.literal_eval(text.strip()),)
    except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
        return None


def main(arguments: list[str]) -> int:
    """Runs the examples that the arguments name; 0 where all hold and there is one."""
    if arguments == ["-"]:
        given = json.load(sys.stdin)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the token was there
        tried = list(_answered(given["code"], given["assertions"]))
        print(given["token"])  # what is above it the code may have printed
        return _summed([text for text in tried if text], tried.count(""))
    failures: list[str] = []
    passed = 0
    for argument in arguments:
        path, _, function = argument.partition("::")
        sys.path[:1] = list(dict.fromkeys([str(Path(path).resolve().parent), str(Path.cwd())]))
        for told in _held(path, function, _loaded(path)):
            passed += not told
            failures += [told] if told else []
    return _summed(failures, passed)


def _summed(failures: list[str], passed: int) -> int:
    print("\n".join(failures[:MOST_SHOWN]))
    print(summary(len(failures), passed))
    return 1 if failures or not passed else 0


def summary(failed: int, passed: int) -> str:
    """The last line."""
    return f"{failed} failed, {passed} passed" if failed else f"{passed} passed"


def _answered(code: str, assertions: list[str]) -> Iterator[str]:
    """Of each assertion "" where it holds after `code`, and else what is wrong."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "answer.py")
        path.write_text(code, encoding="utf-8")
        names = dict(_loaded(str(path)))
        for assertion in assertions:
            yield _tried(doctest.Example(f"{assertion}\n", ""), names, "the question", Anything())


def _raised(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """What ends the run, without what is above the file that was loaded."""
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith((__file__, "<frozen importlib")):
        trace = trace.tb_next
    traceback.print_exception(kind, error, trace)


def _loaded(path: str) -> dict[str, object]:
    """What the file defines. What it raises ends the run."""
    stem = Path(path).stem
    name = f"examples_of_{stem}" if stem in sys.modules else stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except SystemExit as error:
        raise ImportError(f"{path} ends the program when it is loaded") from error
    return vars(module)


def _held(path: str, function: str, names: dict[str, object]) -> Iterator[str]:
    """Of every example "" where it holds, and else what is wrong."""
    module = ast.parse(Path(path).read_text(encoding="utf-8"))
    for node in ast.walk(module):
        if not isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        if not function:
            yield from _written(path, node, names)
        elif isinstance(node, ast.FunctionDef) and node in module.body and node.name == function:
            for one in spelled(node):
                example = doctest.Example(f"{one.call}\n", f"{one.answer}\n")
                yield _tried(example, dict(names), f"{path}:{one.line}", Values())


def _written(
    path: str, node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef, names: dict[str, object]
) -> Iterator[str]:
    """The examples with `>>>`, one after the other: names that one makes are there for the next."""
    docstring = ast.get_docstring(node, clean=False)
    if docstring is None:
        return
    start, there = node.body[0].lineno, dict(names)
    for example in doctest.DocTestParser().get_examples(docstring, path):
        yield _tried(example, there, f"{path}:{start + example.lineno}", doctest.OutputChecker())


def _tried(example: doctest.Example, names: dict[str, object], place: str, checker: doctest.OutputChecker) -> str:
    said: list[str] = []
    test = doctest.DocTest([example], {}, place, None, None, None)
    test.globs = names  # not a copy of them: what one example names is there for the next
    doctest.DocTestRunner(checker, optionflags=doctest.ELLIPSIS).run(test, out=said.append, clear_globs=False)
    text = _FRAMES.sub("", "".join(said).rpartition("Failed example:\n")[2]).rstrip()
    return f"{place}: {text.lstrip()}" if said else ""


if __name__ == "__main__":
    sys.dont_write_bytecode = True
    sys.excepthook = _raised
    sys.exit(main(sys.argv[1:]))
