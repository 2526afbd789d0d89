"""The value that a test expects where it breaks, left out to be filled in by a small model that reads what came of it.

Below aims.py, beside gaps.py. Asked for the whole test, a 1.5b hands back what it was shown; above a line without its
value, as a comment, stands what the tests print of it, without that value. Any language whose runner names the line.
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fugu_cli.loop import excerpts, gaps
from fugu_cli.messages import Gap

LINES, TOLD = 12, 3
"""Lines of output on one side of the place that are looked through, and those of them that are shown."""
AROUND = 6
"""Lines on each side of one that is in no function."""
LONGEST = 160
"""Characters of a line that is shown."""
_VALUE = re.compile(r"\"(?:\\.|[^\"\\])+\"|'(?:\\.|[^'\\])+'|`(?:\\.|[^`\\])+`|(?<![\w.])\d[\d_]*(?:\.\d+)?")
_BEGINS = re.compile(r"_{3,} .* _{3,}|={3,}|[✖✗×]|not ok\b|--- FAIL|FAIL(?:ED)?:")
"""A line with which another test's failure begins."""
_NOISE = re.compile(r"^(?:code|name|operator|note|type|stack|at)\b| object at 0x")
_SIGNS = re.compile(r"[\sE>|+]*(?:-\s+)?")


def holes(path: str, content: str, line: int, output: str) -> tuple[gaps.Filling, ...]:
    """Each value on the `line` (from 1) of a test that the `output` repeats, the last one first, for what is expected
    mostly stands last; () where the output says nothing else of the line."""
    part = _part(path, content, line)
    number = line - 1 - content.count("\n", 0, content.index(part))
    lines = part.split("\n")
    if not 0 < number < len(lines):
        return ()
    own = {text.strip() for text in lines}
    said = [text for text in _said(output, f"{path}:{line}") if text not in own]
    found: list[gaps.Filling] = []
    for value in reversed(list(_VALUE.finditer(lines[number]))):
        quote = value[0][0] if value[0][0] in "\"'`" else ""
        bare = value[0].strip(quote) if quote else value[0]
        told = [text for text in said if bare not in text and _VALUE.search(text) and not _NOISE.search(text)][-TOLD:]
        if told and any(bare in text for text in said):
            start, end = value.start() + len(quote), value.end() - len(quote)
            found.append(_hole(path, content, part, (line, number, start, end), told))
    return tuple(found)


def _part(path: str, content: str, line: int) -> str:
    """The function with the line, or, where tests are no functions, some lines around it; "" where neither stands in
    the file once."""
    found = excerpts.blamed(path, content, f"{path}:{line}")
    around = "\n".join(content.split("\n")[max(line - AROUND, 0) : line + AROUND])
    return found[0] if found else around if content.count(around) == 1 else ""


def _hole(path: str, content: str, part: str, place: tuple[int, int, int, int], told: Sequence[str]) -> gaps.Filling:
    line, number, begin, close = place
    lines = part.split("\n")
    whole = lines[number]
    head, tail = whole[:begin], whole[close:]
    mark = "#" if path.endswith((".py", ".rb", ".sh", ".ex", ".exs")) else "//"
    indent = whole[: len(whole) - len(whole.lstrip())]
    start, end = gaps.once(content, lines, number)
    gap = Gap(
        before="\n".join([*lines[:number], *(f"{indent}{mark} {text}" for text in told), head]),
        after="\n".join([tail, *lines[number + 1 :], ""]),
        number=number,
        start=start,
        end=end,
        place=f"{path}:{line}:{begin + 1}",
        head=head,
        tail=tail,
    )
    return gaps.Filling(part, gap)


def _said(output: str, place: str) -> list[str]:
    """What the output says of the place: above it, or below it where a program panicked there; without the signs that
    runners put before it."""
    lines = output.split("\n")
    named = [number for number, text in enumerate(lines) if re.search(rf"{re.escape(place)}\b", text)]
    if not named:
        return []
    at = named[-1]
    panicked = "panicked" in lines[at]
    beside = lines[at + 1 : at + 1 + LINES] if panicked else lines[max(at - LINES, 0) : at][::-1]
    found: list[str] = []
    for text in beside:
        if _BEGINS.match(text.strip()):
            break
        if bare := _SIGNS.sub("", text, count=1).strip()[:LONGEST]:
            found.append(bare)
    return found if panicked else found[::-1]
