"""Fenced code blocks in a model's text.

Used by the protocols for models without tools, by tasks and by evaluation. Pure. It must not know
what a block is for. Models forget the closing fence, put prose around it and nest fences (a README
inside a block): a fence with an info word opens a level, a bare one closes it, and only a fence at
least as long as the one that opened the block counts. A bare one inside a string of Python closes
nothing: the block ends where it can be read.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import zip_longest

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*?)\s*")
MARGIN = 4
"""Spaces from which a line is a fence only in an item of a list."""
_ITEM = re.compile(r" *(?:[-*+]|\d+[.)])\s")
_PYTHON = re.compile(r"|(?:py|python3?)\b.*|.*\.pyi?\b.*", re.IGNORECASE)
"""The info of a block that may be Python: a bare one may be anything."""
_QUOTES = re.compile(r"\"{3}|'{3}")


@dataclass(frozen=True)
class Block:
    """Lines `start` to `end` (exclusive) of the text, fences included; not `closed` where the text
    ended first.
    """

    info: str
    body: str
    start: int
    end: int
    closed: bool


def lines_of(text: str) -> list[str]:
    """The lines as an editor counts them: a form feed or another odd separator inside a line stays
    in it.
    """
    return text.replace("\r\n", "\n").split("\n")


def blocks(text: str) -> list[Block]:
    """The outermost fenced blocks, in order. A body ends with a newline unless it is empty."""
    lines = lines_of(text)
    found: list[Block] = []
    number = 0
    while number < len(lines):
        depth = _depth(lines, number)
        opening = FENCE.fullmatch(lines[number][depth:])
        if opening is None:
            number += 1
            continue
        inside = [*lines[:number], *_outdented(lines[number:], depth)] if depth else lines
        close = _closing(inside, number, opening.group(1))
        if _PYTHON.fullmatch(opening.group(2)):
            close = _after_strings(inside, number, close)
        body = _outdented(lines[number + 1 : close], _indent(lines[number]))
        if close == len(lines) and body and not body[-1]:
            body.pop()
        found.append(
            Block(
                info=opening.group(2),
                body="\n".join(body) + "\n" if body else "",
                start=number,
                end=min(close + 1, len(lines)),
                closed=close < len(lines),
            )
        )
        number = close + 1
    return found


def _depth(lines: Sequence[str], number: int) -> int:
    """Characters by which the line is indented for it stands in an item of a list; 0 where it does
    not.
    """
    own = _indent(lines[number])
    if own < MARGIN or not lines[number].lstrip().startswith(("```", "~~~")):
        return 0
    least = own
    for line in reversed(lines[:number]):
        if line.strip() and _indent(line) < least:
            least = _indent(line)
            if _ITEM.match(line):
                return own
    return 0


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip(" "))


def _outdented(lines: Sequence[str], depth: int) -> list[str]:
    """The lines without as many of the spaces that they begin with."""
    return [line[min(depth, _indent(line)) :] for line in lines]


def _closing(lines: list[str], start: int, mark: str) -> int:
    """The line that closes the block opened at `start`; the number of lines where none does."""
    depth = 1
    for number in range(start + 1, len(lines)):
        fence = FENCE.fullmatch(lines[number])
        if fence is None or fence.group(1)[0] != mark[0] or len(fence.group(1)) < len(mark):
            continue
        depth += 1 if fence.group(2) else -1
        if depth == 0:
            return number
    return len(lines)


def _after_strings(lines: list[str], start: int, close: int) -> int:
    """`close`, or the first bare fence up to which the block is Python where up to `close` it ends
    inside a string.
    """
    mark, body = _mark(lines[start]), "\n".join(lines[start + 1 : close])
    if not _QUOTES.search(body) or parses(body):
        return close
    bare = (
        n
        for n in range(start + 2, len(lines))
        if _mark(lines[n]).startswith(mark) and not _info(lines[n])
    )
    return next((number for number in bare if parses("\n".join(lines[start + 1 : number]))), close)


def parses(text: str) -> bool:
    """Python can read it, be it empty."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def widened(text: str, block: Block) -> Block:
    """The block as a document that holds pairs of bare fences.

    A bare one closes it where the next fence is none that closes a pair: it has an info word, is
    missing, or stands below words that end with a colon and introduce another block.
    """
    lines = lines_of(text)
    mark, inside = _mark(lines[block.start]), False
    inner = [
        number
        for number in range(block.start + 1, len(lines))
        if _mark(lines[number]).startswith(mark)
    ]
    end = len(lines)
    for number, after in zip_longest(inner, inner[1:]):
        if inside or _info(lines[number]):
            inside = not inside
        elif after is None or _info(lines[after]) or _introduces(lines[number + 1 : after]):
            end = number
            break
        else:
            inside = True
    body = "\n".join(lines[block.start + 1 : end]).rstrip("\n") + "\n"
    return Block(block.info, body, block.start, min(end + 1, len(lines)), closed=end < len(lines))


def _introduces(lines: list[str]) -> bool:
    said = [line for line in lines if line.strip()]
    return bool(said) and said[-1].rstrip().endswith(":")


def _mark(line: str) -> str:
    """The marks of a fence; "" where the line is none."""
    fence = FENCE.fullmatch(line)
    return fence.group(1) if fence else ""


def _info(line: str) -> str:
    fence = FENCE.fullmatch(line)
    return fence.group(2) if fence else ""


def similarity(one: str, other: str) -> float:
    """How much two texts have in common, by lines: 0 nothing, 1 all."""
    return SequenceMatcher(None, one.splitlines(), other.splitlines()).ratio()


def body_of(text: str, like: str = "") -> tuple[str, bool]:
    """The body that is meant and whether it is whole; ("", True) where there is no block.

    The one most like `like` (what stands there now), else the longest: some models add examples and
    tests.
    """
    found = blocks(text)
    if not found:
        return "", True
    meant = max(
        found, key=lambda block: (similarity(like, block.body) if like else 0.0, len(block.body))
    )
    return meant.body, meant.closed


def without_blocks(text: str, gone: list[Block]) -> str:
    """The text around `gone`, one blank line where a block was."""
    lines = lines_of(text)
    kept: list[str] = []
    at = 0
    for block in gone:
        kept += lines[at : block.start]
        at = block.end
    return re.sub(r"\n{3,}", "\n\n", "\n".join(kept + lines[at:])).strip()


def fenced(body: str, info: str = "") -> str:
    """`body` in a fence longer than any inside it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", body)), default=2)
    mark = "`" * (longest + 1)
    ended = body if body.endswith("\n") or not body else f"{body}\n"
    return f"{mark}{info}\n{ended}{mark}"
