"""The part of a file that a small model is to write: a function, a function without its body, one
line that is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from fugu_cli.messages import InfillHole
from fugu_cli.repair.syntax import Definition, comment_mark, definitions, functions, indent_of

LONG = 8000
"""Characters of all code shown from which files are not asked for whole: some 2,500 tokens, minutes
of writing.
"""
LONGEST_EXCERPT = 6000
"""Characters of a function: a longer one is asked for by edits, like all of its file."""
SHORT_FILE = 1200
"""Characters of a file that is asked for whole first: some 350 tokens, a quarter of a minute of
writing.
"""
MOST_ABOVE, MOST_DESCRIPTION = 800, 2000
"""Characters of the imports and constants, and of the texts of a file, that are shown with a
function of it.
"""
MOST_LINES = 60
"""Of a function that is rewritten or filled in: what a longer one does is in no docstring."""

_CALLED = re.compile(r"\b(\w{2,})\(")


def part_of(content: str, definition: Definition) -> str:
    """The lines of a function, without the last one's end."""
    return "\n".join(definition.lines(content))


def blamed_functions(path: str, content: str, output: str) -> list[Definition]:
    """Return the functions that the tests' output leads to, each once: where it broke, the last
    place first; then what is called, in the order of the output."""
    file_functions = functions(path, content)
    blamed: list[Definition] = []
    for line in reversed(lines_in_output(path, output)):
        around = [function for function in file_functions if function.start < line <= function.end]
        blamed += around[-1:]
    for name in dict.fromkeys(_CALLED.findall(output)):
        blamed += [function for function in file_functions if function.name == name]
    return _usable(content, blamed)


def requested_functions(path: str, content: str, request: str) -> list[Definition]:
    """Return the functions that the request names, else the one function there is."""
    file_functions = functions(path, content)
    words = set(re.findall(r"\w+", request))
    named = [function for function in file_functions if function.name in words]
    if not named and len(file_functions) == 1:
        named = list(file_functions)
    return _usable(content, named)


def outermost(definitions: Sequence[Definition]) -> list[Definition]:
    """Return the functions that are inside none of the others."""
    outer = []
    for inner in definitions:
        is_inside = any(
            other != inner and other.start <= inner.start and inner.end <= other.end
            for other in definitions
        )
        if not is_inside:
            outer.append(inner)
    return outer


def _usable(content: str, candidates: Sequence[Definition]) -> list[Definition]:
    """Return the definitions that are short enough and unique in the file, each once."""
    usable = []
    for definition in dict.fromkeys(candidates):
        text = part_of(content, definition)
        if len(text) <= LONGEST_EXCERPT and content.count(text) == 1:
            usable.append(definition)
    return usable


def lines_in_output(path: str, output: str) -> list[int]:
    """The lines of the file, from 1, that the tests' output names, each as often as it does."""
    named = rf'(?:^|[\s"(/]){re.escape(path)}(?::|", line )(\d+)'
    return [int(number) for number in re.findall(named, output, re.MULTILINE)]


def context_above(path: str, content: str) -> str:
    """Return the imports and constants of a file, shortened."""
    named = [
        definition
        for definition in definitions(path, content)
        if definition.kind in ("import", "value")
    ]
    return shortened("\n".join(part_of(content, definition) for definition in named), MOST_ABOVE)


def shortened(text: str, most: int) -> str:
    """The beginning of a text, in whole lines."""
    return text if len(text) <= most else text[:most].rpartition("\n")[0]


MARK = "TODO: implement"
_PLACEHOLDERS = {
    (".py", ".pyi", ".rb"): "raise NotImplementedError",
    (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx"): 'throw new Error("not implemented");',
    (".rs",): "todo!()",
    (".go",): 'panic("not implemented")',
    (".java", ".kt"): 'throw new UnsupportedOperationException("not implemented");',
}
_WORDS = re.compile(r"\s*(?!@|#\[)\W*\w{2,}")
"""In the comment above a function: no attribute."""


def without_body(path: str, content: str, function: Definition) -> tuple[str, str, str] | None:
    """The `function` of the file without its body, the line that stands for that, and what the
    file's texts say of it; None where nothing says what it is to do, where it is long, and where
    there is no body to leave out."""
    if MARK in content or function.empty or not 0 < len(function.body) <= MOST_LINES:
        return None
    lines, texts = content.split("\n"), _texts_about(path, content, function.name)
    if not (function.doc or texts or any(map(_WORDS.match, lines[function.start : function.head]))):
        return None
    code = next(
        (code for endings, code in _PLACEHOLDERS.items() if PurePosixPath(path).suffix in endings),
        "",
    )
    placeholder = f"{code}  {comment_mark(path)} {MARK}".strip()
    body = range(function.body.start, function.body.stop)
    stand_in = indent_of(lines[body.start : body.stop]) + placeholder
    rewritten = [*lines[function.start : body.start], stand_in, *lines[body.stop : function.end]]
    return "\n".join(rewritten), placeholder, texts


def _texts_about(path: str, content: str, name: str) -> str:
    """The texts of the file's own that are about this function: they name it, or there is no
    other.
    """
    parts = definitions(path, content)
    is_only_one = sum(part.kind in ("function", "class") for part in parts) == 1
    texts = [part_of(content, part) for part in parts if part.kind == "text"]
    return shortened(
        "\n\n".join(text for text in texts if is_only_one or re.search(rf"\b{name}\b", text)),
        MOST_DESCRIPTION,
    )


INFILL_ABOVE, INFILL_BELOW = 3000, 1500
"""Characters of the file before and behind the function that are read, both before it: once for all
of its lines.
"""
_QUOTED = re.compile(r"""\"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""")
_TRIVIAL = re.compile(r"[\W_]*(?:else|try|finally|do|pass|begin|end)?[\W_]*|\s*return[\s;]*")
"""It says nothing that could be wrong. `return []`, `break` and `continue` do."""
_COMMENT_LINE = re.compile(r"\s*(?:#(?!\[|include)|//|/\*|\*(?:\s|/|$)|--\s)")


def line_infills(path: str, content: str, function: Definition) -> list[InfillHole]:
    """Return each line of the function's body that says something, to be filled in; [] where it is
    long or not written.
    """
    if function.empty or len(function.body) > MOST_LINES:
        return []
    lines = content.split("\n")
    heads: set[int] = set()
    for inner in functions(path, content):
        if function.body.start <= inner.start < function.body.stop:
            heads.update(range(inner.head, max(inner.body.start, inner.head + 1)))
    return [
        _hole(path, lines, function, number)
        for number in function.body
        if number not in heads and _says_something(lines[number])
    ]


def _says_something(line: str) -> bool:
    return not (_TRIVIAL.fullmatch(line) or _COMMENT_LINE.match(line))


def _hole(path: str, lines: Sequence[str], function: Definition, number: int) -> InfillHole:
    below = "\n".join(lines[function.end :])
    above = "\n".join(lines[: function.start])
    around = f"{below[:INFILL_BELOW].strip(chr(10))}\n\n\n" if below.strip() else ""
    indent = indent_of([lines[number]])
    start = sum(len(line) + 1 for line in lines[:number]) + len(indent)
    head = "\n".join(
        [*([above[-INFILL_ABOVE:]] if above else []), *lines[function.start : number], indent]
    )
    return InfillHole(
        before=around + head,
        after="\n".join(["", *lines[number + 1 : function.end], ""]),
        start=start,
        end=start + len(lines[number]) - len(indent),
        place=f"{path}:{number + 1}",
    )


def word_infills(hole: InfillHole, content: str, pattern: re.Pattern[str]) -> Iterator[InfillHole]:
    """Yield each word of the line that matches `pattern`, to be filled in alone, outside of quoted
    texts.
    """
    line = content[hole.start : hole.end]
    column = hole.start - content.rfind("\n", 0, hole.start)
    for word in pattern.finditer(_QUOTED.sub(lambda quoted: "\0" * len(quoted[0]), line)):
        yield InfillHole(
            before=hole.before + line[: word.start()],
            after=line[word.end() :] + hole.after,
            start=hole.start + word.start(),
            end=hole.start + word.end(),
            place=f"{hole.place}:{column + word.start()}",
        )
