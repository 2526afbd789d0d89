"""The lines of a function that fails, to be filled in one after the other by a small model that has not seen them.

Below aims.py, beside anew.py. Shown wrong code a small model hands it back; where one line is left out it writes what
belongs there, mostly what stood there, which costs seconds and no test run; where it is something else the tests say
whether it is right. Cloze repair, as AlphaRepair does it (arXiv 2207.08281), with a model that was trained to fill in
the middle. A line that is missing is looked for behind each of them. Any language, one line at a time: nothing that
takes more than one is mended this way. Pure.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli.messages import FromUser, Gap, Prompt, ToolSpec
from fugu_cli.repair import functions
from fugu_cli.repair.excerpts import blamed, meant
from fugu_cli.repair.python_code import unwritten

MOST_LINES = 60
"""Of a function: each line costs reading those after it."""
MOST = 40
"""Lines of a file that are filled in at most."""
TOKENS = 64
"""Of a line: one that is cut is none."""
ABOVE, BELOW = 3000, 1500
"""Characters of the file before and behind the function that are read, both before it: once for all of its lines."""

_QUOTED = re.compile(r"""\"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""")
_TRIVIAL = re.compile(r"[\W_]*(?:else|try|finally|do|pass|begin|end)?[\W_]*|\s*return[\s;]*")
"""It says nothing that could be wrong. `return []`, `break` and `continue` do."""
_COMMENT = re.compile(r"\s*(?:#(?!\[|include)|//|/\*|\*(?:\s|/|$)|--\s)")


@dataclass(frozen=True)
class Filling:
    """A `gap` in the function `part`, lines of the file that stand there once."""

    part: str
    gap: Gap


def prompt(path: str, filling: Filling, tools: Sequence[ToolSpec], tried: int) -> Prompt:
    """The call that asks for the line. The model reads what stands around it, and no request. `tried`: 0 for the
    likeliest line, else the seed of another."""
    gap = filling.gap
    return Prompt(
        system="",
        messages=(FromUser(text=f"{gap.before}[the line that is to be filled in]{gap.after}"),),
        tools=tuple(tools),
        max_tokens=TOKENS,
        temperature=0.8 if tried else None,
        seed=tried or None,
        target=path,
        part=filling.part,
        judged=True,
        gap=gap,
    )


def in_turn(path: str, content: str, output: str, request: str | None, *, more: bool = False) -> tuple[Filling, ...]:
    """The lines to be filled in of the functions that the tests' `output` leads to, or else the request, if any; of one
    inside another, the outer one's. () where there is none, or they are long. `more`: the places behind them."""
    found = blamed(path, content, output) or (() if request is None else meant(path, content, request))
    outer = [one for one in found if not any(one in other and one != other for other in found)]
    filled = [Filling(part, gap) for part in outer for gap in _gaps(path, content, part, more)]
    return tuple(filled) if len(filled) <= MOST else ()


def words(filling: Filling, content: str, wanted: re.Pattern[str]) -> tuple[Filling, ...]:
    """Of a line that is to be filled in, each of the `wanted` words alone, outside of quoted texts."""
    lines = filling.part.split("\n")
    line, number = lines[filling.gap.number], filling.gap.number
    bare = _QUOTED.sub(lambda found: "\0" * len(found[0]), line)
    around = _around_of(content, filling.part)
    found = []
    for word in wanted.finditer(bare):
        head, tail = line[: word.start()], line[word.end() :]
        gap = filling.gap.model_copy(
            update={
                "before": around + "\n".join([*lines[:number], head]),
                "after": "\n".join([tail, *lines[number + 1 :], ""]),
                "place": f"{filling.gap.place}:{word.start() + 1}",
                "head": head,
                "tail": tail,
            }
        )
        found.append(Filling(filling.part, gap))
    return tuple(found)


def _gaps(path: str, content: str, part: str, more: bool) -> list[Gap]:
    lines = part.split("\n")
    if len(lines) > MOST_LINES:
        return []
    first = content.count("\n", 0, content.index(part))
    around = _around_of(content, part)
    found = []
    for number in _worth(path, lines):
        line, rest = lines[number], lines[number + 1 :]
        start, end = once(content, lines, number)
        above = [*lines[: number + 1], ""] if more else [*lines[:number], line[: len(line) - len(line.lstrip())]]
        found.append(
            Gap(
                before=around + "\n".join(above),
                after="\n".join([*rest, ""] if more else ["", *rest, ""]),
                number=number,
                more=more,
                start=start,
                end=end,
                place=f"{path}:{first + number + 1}{'+' if more else ''}",
            )
        )
    return found


def _around_of(content: str, part: str) -> str:
    place = content.index(part)
    return _around(content[:place], content[place + len(part) :])


def _around(above: str, below: str) -> str:
    """What is read before the function."""
    return f"{below[:BELOW].strip(chr(10))}\n\n\n{above[-ABOVE:]}" if below.strip() else above[-ABOVE:]


def _worth(path: str, lines: Sequence[str]) -> list[int]:
    """Lines of the body that say something, without comments and docstrings."""
    body = _python(lines) if path.endswith((".py", ".pyi")) else _braces(lines)
    return [number for number in body if not _TRIVIAL.fullmatch(lines[number]) and not _COMMENT.match(lines[number])]


def _python(lines: Sequence[str]) -> list[int]:
    """Lines of statements behind the head; of a function inside, its head and docstring are left out as well."""
    try:
        tree = ast.parse(textwrap.dedent("\n".join(lines)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    outer = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or unwritten(outer):
        return []
    out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = ast.get_docstring(node) is not None
            end = (node.body[0].end_lineno or node.lineno) + 1 if told else max(node.body[0].lineno, node.lineno + 1)
            start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            out.update(range(start - 1, end - 1))
    return [number for number in range(len(lines)) if number not in out]


def _braces(lines: Sequence[str]) -> list[int]:
    """Lines behind the head, which may take several, without the bracket that closes it."""
    start = next((number for number, line in enumerate(lines) if functions.head(line)), 0)
    opened = next((number for number in range(start, len(lines)) if lines[number].rstrip().endswith("{")), start)
    return list(range(opened + 1, len(lines) - 1))


def once(content: str, lines: Sequence[str], number: int) -> tuple[int, int]:
    """The fewest whole lines around a line of a part that stand in the file once, as places in the part."""
    start, end = number, number + 1
    while content.count("\n".join(lines[start:end])) > 1 and (start > 0 or end < len(lines)):
        start, end = max(start - 1, 0), min(end + 1, len(lines))
    return start, end
