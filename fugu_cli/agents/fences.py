"""Fenced blocks in a model's text, found as a patient reader would find them.

Stands under the two protocols for models without tools. Pure. It must not know what a block is for. Models forget the
closing fence, put prose around it and nest fences (a README inside a block): a fence with an info word opens a level, a
bare one closes it, and only a fence at least as long as the one that opened the block counts.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from difflib import SequenceMatcher

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^`]*?)\s*")


@dataclass(frozen=True)
class Block:
    """Lines `start` to `end` (exclusive) of the text, fences included; not `closed` where the text ended first."""

    info: str
    body: str
    start: int
    end: int
    closed: bool


def lines_of(text: str) -> list[str]:
    """The lines as an editor counts them: a form feed or another odd separator inside a line stays in it."""
    return text.replace("\r\n", "\n").split("\n")


def blocks(text: str) -> list[Block]:
    """The outermost fenced blocks, in order. A body ends with a newline unless it is empty."""
    lines = lines_of(text)
    found: list[Block] = []
    number = 0
    while number < len(lines):
        opening = FENCE.fullmatch(lines[number])
        if opening is None:
            number += 1
            continue
        close = _closing(lines, number, opening.group(1))
        body = lines[number + 1 : close]
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


def alike(one: str, other: str) -> float:
    """How much two texts have in common, by lines: 0 nothing, 1 all."""
    return SequenceMatcher(None, one.splitlines(), other.splitlines()).ratio()


def body_of(text: str, like: str = "") -> tuple[str, bool]:
    """The body that is meant and whether it is whole; ("", True) where there is no block.

    The one most like `like` (what stands there now), else the longest: some models add examples and tests.
    """
    found = blocks(text)
    if not found:
        return "", True
    meant = max(found, key=lambda block: (alike(like, block.body) if like else 0.0, len(block.body)))
    return meant.body, meant.closed


def without(text: str, gone: list[Block]) -> str:
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


def python_in(answer: str) -> str:
    """The longest fenced block of an answer that Python can read; "" where there is none."""
    found = sorted((block.body for block in blocks(answer)), key=len, reverse=True)
    return next(filter(_is_python, found), "")


def _is_python(text: str) -> bool:
    try:
        return bool(ast.parse(text).body)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
