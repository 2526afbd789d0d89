"""Fenced code blocks in a model's text.

Used for models without tools, by tasks and by evaluation. Pure. It does not know
what a block is for. Models forget the closing fence, put prose around it and nest fences (a README
inside a block). So a fence with an info word opens a level, a bare one closes it, and only a fence
at least as long as the block's own counts. A bare fence inside a Python string closes nothing: the
block ends where it parses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*?)\s*")
MARGIN = 4
"""Spaces of indent from which a line is a fence only inside a list item."""
_ITEM = re.compile(r" *(?:[-*+]|\d+[.)])\s")
_PYTHON = re.compile(r"|(?:py|python3?)\b.*|.*\.pyi?\b.*", re.IGNORECASE)
"""The info word of a block that may be Python; an empty one may be anything."""
_QUOTES = re.compile(r"\"{3}|'{3}")


@dataclass(frozen=True)
class Block:
    """Lines `start` to `end` (exclusive) of a text, fences included. Not `closed` if the text ended
    first.
    """

    info: str
    body: str
    start: int
    end: int
    closed: bool


def lines_of(text: str) -> list[str]:
    """Return the lines as an editor counts them: a form feed or another odd separator does not end
    a line.
    """
    return text.replace("\r\n", "\n").split("\n")


def blocks(text: str) -> list[Block]:
    """Return the outermost fenced blocks in order. A body ends with a newline unless it is empty."""
    lines = lines_of(text)
    result: list[Block] = []
    number = 0
    while number < len(lines):
        depth = _depth(lines, number)
        opening = FENCE.fullmatch(lines[number][depth:])
        if opening is None:
            number += 1
            continue
        block_lines = [*lines[:number], *_outdented(lines[number:], depth)] if depth else lines
        close = _closing(block_lines, number, opening.group(1))
        if _PYTHON.fullmatch(opening.group(2)):
            close = _after_strings(block_lines, number, close)
        body = _outdented(lines[number + 1 : close], _indent(lines[number]))
        if close == len(lines) and body and not body[-1]:
            body.pop()
        result.append(
            Block(
                info=opening.group(2),
                body="\n".join(body) + "\n" if body else "",
                start=number,
                end=min(close + 1, len(lines)),
                closed=close < len(lines),
            )
        )
        number = close + 1
    return result


def _depth(lines: Sequence[str], number: int) -> int:
    """Return the line's indent if it is a fence inside a list item, else 0."""
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
    """Return the lines without up to `depth` leading spaces."""
    return [line[min(depth, _indent(line)) :] for line in lines]


def _closing(lines: list[str], start: int, opening_fence: str) -> int:
    """Return the line that closes the block opened at `start`, or the number of lines if none does."""
    depth = 1
    for number in range(start + 1, len(lines)):
        fence = FENCE.fullmatch(lines[number])
        if fence is None:
            continue
        marks, info = fence.group(1), fence.group(2)
        if marks[0] != opening_fence[0] or len(marks) < len(opening_fence):
            continue
        depth += 1 if info else -1
        if depth == 0:
            return number
    return len(lines)


def _after_strings(lines: list[str], start: int, close: int) -> int:
    """Return the line that closes a block which may be Python.

    If the body up to `close` ends inside a string, that is the first bare fence up to which the body
    parses.
    """
    body = "\n".join(lines[start + 1 : close])
    if not _QUOTES.search(body) or parses(body):
        return close
    opening_fence = _fence(lines[start])
    for number in range(start + 2, len(lines)):
        is_bare = _fence(lines[number]).startswith(opening_fence) and not _info(lines[number])
        if is_bare and parses("\n".join(lines[start + 1 : number])):
            return number
    return close


def parses(text: str) -> bool:
    """Return whether a text is valid Python."""
    try:
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def widened(text: str, block: Block) -> Block:
    """Return the block as a document that holds pairs of bare fences.

    A bare fence closes the document if the next fence cannot close a pair: it has an info word, is
    missing, or follows a line that ends with a colon and introduces another block.
    """
    lines = lines_of(text)
    opening_fence, inside = _fence(lines[block.start]), False
    fences = [
        number
        for number in range(block.start + 1, len(lines))
        if _fence(lines[number]).startswith(opening_fence)
    ]
    end = len(lines)
    for number, after in zip_longest(fences, fences[1:]):
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
    text = "\n".join(lines).rstrip()
    return text.endswith(":")


def _fence(line: str) -> str:
    """Return the backticks or tildes of a fence, "" for any other line."""
    match = FENCE.fullmatch(line)
    return match.group(1) if match else ""


def _info(line: str) -> str:
    match = FENCE.fullmatch(line)
    return match.group(2) if match else ""


def fenced(body: str, info: str = "") -> str:
    """Return `body` in a fence longer than any inside it."""
    longest = max((len(run) for run in re.findall(r"`{3,}", body)), default=2)
    fence = "`" * (longest + 1)
    if body and not body.endswith("\n"):
        body += "\n"
    return f"{fence}{info}\n{body}{fence}"
