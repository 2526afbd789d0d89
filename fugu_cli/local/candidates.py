"""The pieces of code that a small model writes anew where tests fail: one line of a function, or
its body. Pure.

A line is filled in between what stands before and behind it (fill-in-the-middle), which a small
model does best and fastest. A body is written from the function's description, with the present one
hidden, because a model that sees it gives it back.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from fugu_cli.local.functions import Function, functions, parses
from fugu_cli.providers.code_blocks import blocks, fenced

LINES_OF_SHORT = 12
"""Lines of a function up to which they are filled in before any body is written."""
MOST_LINES = 60
"""Lines of a function that is asked for at all."""
MOST_FUNCTIONS = 6
SAMPLES = 4
"""The number of times a body is asked for again, at a temperature."""
BROKEN_LINES = 2
"""Lines that the tests' output names and that are tried first."""
BEFORE, BEHIND = 3000, 1500
"""Characters of the file around a function."""
LONG_FILE = 3000
"""Characters from which a file is shown without its other functions."""

_CALLED = re.compile(r"\b(\w{2,})\(")
_TRIVIAL = re.compile(r"[\W_]*(?:else|try|finally|do|pass|begin|end)?[\W_]*|\s*return[\s;]*")
"""A line that says nothing that could be wrong. `return []`, `break` and `continue` do."""
_COMMENT = re.compile(r"\s*(?:#(?!\[|include)|//|/\*|\*(?:\s|/|$)|--\s)")
_IMPORT = re.compile(r"(?:import|from|use|using|#include|const \w+ = require)\b")
_PLACEHOLDERS = {
    "py": "raise NotImplementedError",
    "rb": "raise NotImplementedError",
    "rs": "todo!()",
    "go": 'panic("not implemented")',
    "java": 'throw new UnsupportedOperationException("not implemented");',
}


@dataclass(frozen=True)
class CodeCandidate:
    """A piece of a file to be written anew: the `line` of the function, or its whole body."""

    path: str
    function: Function
    line: int | None = None
    sample: int = 0
    """0: the likeliest answer; else the seed of a sampled one."""

    @property
    def place(self) -> str:
        """Return the piece in words."""
        if self.line is not None:
            return f"line {self.line + 1} of {self.path}"
        return f"{self.function.name} in {self.path}"

    def around(self, content: str) -> tuple[str, str]:
        """Return the text before and after the line. The code after the function comes first, so
        that a server reads it only once for all lines.
        """
        assert self.line is not None
        lines, function = content.split("\n"), self.function
        behind = "\n".join(lines[function.end :]).strip("\n")[:BEHIND]
        before = "\n".join([*lines[: function.start], ""])[-BEFORE:]
        head = "\n".join([*lines[function.start : self.line], _indent(lines[self.line])])
        rest = "\n".join(["", *lines[self.line + 1 : function.end], ""])
        return (f"{behind}\n\n\n" if behind else "") + before + head, rest

    def with_line(self, content: str, filled: str) -> str | None:
        """Return the file with the line that the model wrote; None if that changes nothing or makes
        the file unreadable.
        """
        assert self.line is not None
        lines = content.split("\n")
        text = filled.split("\n")[0].strip()
        old = lines[self.line]
        if not text or _bare(text) == _bare(old):
            return None
        lines[self.line] = _indent(old) + text
        return _readable(self.path, content, lines)

    def question(self, content: str) -> tuple[str, bool]:
        """Return the file as the model is shown it, and whether the body is hidden."""
        lines, function = content.split("\n"), self.function
        hidden = _is_described(content, function)
        shown = lines[function.start : function.end]
        if hidden:
            body = function.body
            ending = self.path.rpartition(".")[2]
            placeholder = _PLACEHOLDERS.get(ending, 'throw new Error("not implemented");')
            shown = [
                *lines[function.start : body.start],
                _indent(lines[body.start]) + placeholder,
                *lines[body.stop : function.end],
            ]
        before, behind = lines[: function.start], lines[function.end :]
        if len(content) > LONG_FILE:
            before, behind = [line for line in before if _IMPORT.match(line)], []
        return fenced("\n".join([*before, *shown, *behind]).strip("\n")), hidden

    def with_body(self, content: str, reply: str) -> str | None:
        """Return the file with the function body and the imports of the reply; None if the reply
        holds no body or changes nothing.
        """
        for block in blocks(reply):
            written = [
                function
                for function in functions(self.path, block.body)
                if function.name == self.function.name and function.body
            ]
            if written:
                break
        else:
            return None
        lines, new = content.split("\n"), block.body.split("\n")
        body = self.function.body
        new_body = new[written[0].body.start : written[0].body.stop]
        lines[body.start : body.stop] = _indented(new_body, _indent(lines[body.start]))
        imports = [
            line for line in new[: written[0].start] if _IMPORT.match(line) and line not in lines
        ]
        first = next((at for at, line in enumerate(lines) if _IMPORT.match(line)), None)
        if first is not None:
            lines[first:first] = imports
        return _readable(self.path, content, lines)


def candidates(files: Mapping[str, str], output: str) -> list[CodeCandidate]:
    """Return the changes to try on these files (path to content), in order. `output` is that of the
    tests.

    Single lines come first, because they cost least: those that the output names, then those of
    short functions. Then come function bodies, the other lines, and bodies again, with sampling.
    """
    blamed: list[tuple[str, Function]] = []
    for path, content in files.items():
        blamed += [(path, function) for function in blamed_functions(path, content, output)]
    del blamed[MOST_FUNCTIONS:]
    lines = [_lines_of(path, files[path], function) for path, function in blamed]
    all_lines = list(chain.from_iterable(lines))
    named: list[CodeCandidate] = []
    for path in files:
        for number in lines_in_output(path, output):
            position = (path, number - 1)
            named += [line for line in all_lines if (line.path, line.line) == position]
    short = sorted((group for group in lines if len(group) <= LINES_OF_SHORT), key=len)
    order = [*named[::-1][:BROKEN_LINES], *chain.from_iterable(short)]
    order += [CodeCandidate(path, function) for path, function in blamed]
    order += all_lines
    for sample in range(1, SAMPLES + 1):
        order += [CodeCandidate(path, function, sample=sample) for path, function in blamed]
    return list(dict.fromkeys(order))


def lines_in_output(path: str, output: str) -> list[int]:
    """Return the line numbers of the file, from 1, in the tests' output, with repetitions."""
    named = rf'(?:^|[\s"(/]){re.escape(path)}(?::|", line )(\d+)'
    return [int(number) for number in re.findall(named, output, re.MULTILINE)]


def edit_between(old: str, new: str) -> tuple[str, str] | None:
    """Return the lines that differ, as an old and a new text; None if nothing differs. Each has as
    many equal lines around it as make the old text unique in the file.
    """
    a, b = old.split("\n"), new.split("\n")
    if a == b:
        return None
    start, tail = 0, 0
    while start < min(len(a), len(b)) and a[start] == b[start]:
        start += 1
    while tail < min(len(a), len(b)) - start and a[-1 - tail] == b[-1 - tail]:
        tail += 1
    end = len(a) - tail
    while (start == end or old.count("\n".join(a[start:end])) > 1) and (start > 0 or end < len(a)):
        start, end = max(start - 1, 0), min(end + 1, len(a))
    return "\n".join(a[start:end]), "\n".join(b[start : len(b) - (len(a) - end)])


def blamed_functions(path: str, content: str, output: str) -> list[Function]:
    """Return the functions that may be at fault: those with a line that the output names, the last
    line first; then the functions they call; then the functions that those call. Return all
    functions if the output names none.
    """
    written = [function for function in functions(path, content) if function.body]
    blamed: list[Function] = []
    for line in reversed(lines_in_output(path, output)):
        blamed += [function for function in written if function.start < line <= function.end][-1:]
    called = _CALLED.findall(output)
    blamed += [function for name in called for function in written if function.name == name]
    called = [name for function in blamed for name in _CALLED.findall(function.text(content))]
    blamed += [function for name in called for function in written if function.name == name]
    return [
        function
        for function in dict.fromkeys(blamed or written)
        if len(function.body) <= MOST_LINES
    ]


def _lines_of(path: str, content: str, function: Function) -> list[CodeCandidate]:
    """Return the lines of the function's body, without comments, trivial lines, and the heads of
    inner functions.
    """
    heads: set[int] = set()
    for inner in functions(path, content):
        heads.update(range(inner.start, max(inner.body.start, inner.start + 1)))
    candidates = []
    lines = content.split("\n")
    for number in function.body:
        is_code = not _TRIVIAL.fullmatch(lines[number]) and not _COMMENT.match(lines[number])
        if is_code and number not in heads:
            candidates.append(CodeCandidate(path, function, number))
    return candidates


def _is_described(content: str, function: Function) -> bool:
    """Return whether the file says elsewhere what the function does, or at least names it."""
    lines = content.split("\n")
    if function.has_docstring or (function.start and _COMMENT.match(lines[function.start - 1])):
        return True
    others = "\n".join([*lines[: function.start], *lines[function.end :]])
    return re.search(rf"\b{re.escape(function.name)}\b", others) is not None


def _readable(path: str, old: str, lines: Sequence[str]) -> str | None:
    """Return the changed file; None if it can no longer be parsed or is the old one."""
    new = "\n".join(lines)
    return new if new != old and (parses(path, new) or not parses(path, old)) else None


def _bare(line: str) -> str:
    return "".join(line.split()).rstrip(";")


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip())]


def _indented(lines: Sequence[str], indent: str) -> list[str]:
    """Return the lines with `indent` in the place of what the first one begins with."""
    own = _indent(lines[0]) if lines else ""
    indented = []
    for line in lines:
        if line.strip() and line.startswith(own):
            line = indent + line.removeprefix(own)
        indented.append(line)
    return indented
