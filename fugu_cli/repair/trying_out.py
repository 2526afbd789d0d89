"""What a small model adds to its answer to try it out: asserts, a function that checks, a copy of the test.

Stands beside merging.py, under the text protocol, for answers that tests judge. Nobody asked for it, it takes long to
write, and where it is wrong it fails code that is right. Only Python is taken apart, and only what can fail by itself
goes: a script may have to print. Pure; what cannot be parsed is left alone.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from fugu_cli.repair.python_code import Definition, parsed, span

MOST = 4
"""Stops that every server takes."""
_DEFINES = re.compile(r"\s*(?:async )?(?:def|class) (\w+)")
_STATEMENT = re.compile(r"(?!(?:async|class|def|import|from|else|elif|except|finally)\b)[A-Za-z_]")
"""At the beginning of a line of a module; no definition, no import, and nothing that belongs to a line before."""
_ASSIGNED = re.compile(r"(\w+)\s*(?::[^=]+)?=(?!=)")
_QUOTES = re.compile(r"\"{3}|'{3}")
_TESTED = re.compile(r"^[> ]*def (\w+)\(", re.MULTILINE)
_NAMED = re.compile(r"(?:run_)?(?:tests?|checks?)(?:_\w+)?$|Test[A-Z]\w*$")
_RUNS = frozenset({"unittest.main", "doctest.testmod", "pytest.main"})
Documented = ast.Module | Definition


def begins(path: str, shown: str, told: str) -> tuple[str, ...]:
    """Texts with which such a part of the file begins: the reply may end there. None is in the code `shown`; some are
    the heads of the tests' own functions, as they stand in `told`, the request with what the tests print. A head that
    the request gives of what is wanted is none: only what is named like a test is."""
    comment = "#" if path.endswith((".py", ".pyi")) else "//"
    marks = [f"\n{comment} Test", f"\n{comment} Example"]
    names = dict.fromkeys(_TESTED.findall(told)) if comment == "#" else {}
    marks += [f"\ndef {name}(" for name in names if _NAMED.match(name) and f"def {name}(" not in shown]
    return tuple(mark for mark in marks if mark not in f"\n{shown}")[:MOST]


def beyond(shown: str, body: str) -> int | None:
    """The line of `body`, whole lines of Python written in the place of `shown`, from which on it goes further than
    that: all that `shown` defines stands before it. None where it does not, and where `shown` ends with statements
    itself, or defines nothing. A name that is used above, or is there, may be given a value."""
    before, wanted = shown.split("\n"), set[str]()
    for line in before:
        wanted |= set(_DEFINES.findall(line))
    last = max((number for number, line in enumerate(before) if _DEFINES.match(line)), default=len(before))
    if not wanted or _statements(before[last:]):
        return None
    lines, seen = body.split("\n"), set[str]()
    fresh = [number for number in _statements(lines) if lines[number].rstrip() not in before]
    for number, line in enumerate(lines):
        if number in fresh and wanted <= seen:
            assigned = _ASSIGNED.match(line)
            if assigned is None or not re.search(rf"\b{assigned[1]}\b", "\n".join([shown, *lines[:number]])):
                return number
        seen |= set(_DEFINES.findall(line))
    return None


def _statements(lines: Sequence[str]) -> list[int]:
    """The lines at which a statement of the module begins, outside of quoted texts."""
    found, quoted = [], False
    for number, line in enumerate(lines):
        if not quoted and _STATEMENT.match(line):
            found.append(number)
        quoted ^= len(_QUOTES.findall(line)) % 2 == 1
    return found


def asked_only(shown: str, body: str, said: str = "") -> str:
    """`body`, written in the place of `shown`, with the docstrings of `shown` and without what tries it out. What is
    named in `said`, the request with what the tests print, was asked for."""
    old, new = parsed(shown), parsed(body)
    if old is None or new is None:
        return body
    lines, before = body.split("\n"), set(shown.split("\n"))
    gone: set[int] = set()
    for node in _added(old, new, said):
        start, end = span(node)
        while start and lines[start - 1] not in before - {""} and re.match(r"#|\s*$", lines[start - 1]):
            start -= 1
        gone |= set(range(start, end))
    for told, was in _told_otherwise(old, new):
        first, last = span(told)
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        lines[first] = indent + "\n".join(shown.split("\n")[slice(*span(was))]).lstrip()
        gone |= set(range(first + 1, last))
    kept = "\n".join(line for number, line in enumerate(lines) if number not in gone)
    return body if kept == body and not body.endswith("\n\n") else f"{kept.rstrip()}\n"


def _added(old: ast.Module, new: ast.Module, said: str) -> list[ast.stmt]:
    """The statements of the module that only try out what it holds, where there were none of their kind."""
    known = {node.name for node in old.body if isinstance(node, Definition)}
    own = {node.name for node in new.body if isinstance(node, Definition)} - known
    kinds = {type(node) for node in old.body if _tries(node, own)}
    found = [node for node in new.body if type(node) not in kinds and _tries(node, own)]
    kept = [node for node in new.body if node not in found]
    for node in kept:
        used = {one.id for other in kept if other is not node for one in ast.walk(other) if isinstance(one, ast.Name)}
        spare = isinstance(node, Definition) and node.name in own and (_NAMED.match(node.name) or _is_case(node))
        if spare and isinstance(node, Definition) and node.name not in used and not _wanted(node.name, said):
            found.append(node)
    return found


def _is_case(node: Definition) -> bool:
    """A class of unittest's, whatever its name."""
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("TestCase") for base in node.bases)


def _wanted(name: str, said: str) -> bool:
    """The request or its tests speak of it, and do not define it themselves."""
    own = re.escape(name)
    return re.search(rf"\b{own}\b", said) is not None and not re.search(rf"\b(?:def|class) {own}\b", said)


def _tries(node: ast.stmt, own: set[str]) -> bool:
    """An assertion, or a call of a function of its `own` that checks; also in a loop."""
    if isinstance(node, ast.For):
        return all(_tries(inner, own) for inner in node.body) and not node.orelse
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        checks = isinstance(called, ast.Name) and called.id in own and _NAMED.match(called.id) is not None
        return checks or ast.unparse(called) in _RUNS
    return isinstance(node, ast.Assert)


def _told_otherwise(old: ast.Module, new: ast.Module) -> list[tuple[ast.stmt, ast.stmt]]:
    """The docstring of everything in the module that has another one now, and the one it had: it says what is wanted,
    and its examples may be the tests."""
    before, after = _documented(old), _documented(new)
    both = [(after[name], before[name]) for name in after if name in before]
    return [
        (node.body[0], was.body[0])
        for node, was in both
        if ast.get_docstring(node, clean=False) != ast.get_docstring(was, clean=False)
    ]


def _documented(module: ast.Module) -> dict[str, Documented]:
    """What has a docstring on lines of its own, by its name in the module; what shares its name with another is left
    out."""
    found: dict[str, list[Documented]] = {"": [module]}
    for node in module.body:
        if isinstance(node, Definition):
            found.setdefault(node.name, []).append(node)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, Definition):
                    found.setdefault(f"{node.name}.{member.name}", []).append(member)
    return {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1 and _has_docstring(nodes[0])}


def _has_docstring(node: Documented) -> bool:
    """One that does not stand on the line of the head."""
    return ast.get_docstring(node) is not None and (isinstance(node, ast.Module) or node.body[0].lineno > node.lineno)
