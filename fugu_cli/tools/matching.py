"""Where a piece of text is meant to be in a file: exactly, else by its lines whatever their indentation.

Pure; the edit tool and apply_patch stand on it. A piece is never found approximately: lines must be equal but for
leading and trailing white space.
"""

from __future__ import annotations

import difflib
import heapq
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

NUMBERED = re.compile(r"\s*\d+\t")
SHORT = 300
"""Characters of the longest pieces that are compared letter by letter."""
SHARING = 50
"""Lines with the same word that are looked at: more tell nothing, and would take long."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class Place:
    """Lines `start` to `end` (from 0, end not included) of a file, and what belongs there instead."""

    start: int
    end: int
    lines: tuple[str, ...]


def unnumbered(text: str) -> str:
    """`text` without the line numbers read put before each line, where every line has one."""
    lines = text.split("\n")
    body = lines[:-1] if lines[-1] == "" else lines
    if not body or not all(NUMBERED.match(line) for line in body):
        return text
    return "\n".join(NUMBERED.sub("", line, count=1) for line in lines)


def places(file: Sequence[str], old: Sequence[str], new: Sequence[str]) -> list[Place]:
    """Every place in the lines `file` where `old` stands but for white space, `new` indented to fit it there.

    First with equal indentation and any trailing space, only then with any indentation. Blank lines around `old` do
    not count. Places do not overlap. Lines that stand in both are kept as the file has them.
    """
    old, new = _trimmed(old, new)
    if not old:
        return []
    for normal in (str.rstrip, str.strip):
        found = [(at, file[at : at + len(old)]) for at in _find(file, old, normal)]
        if found:
            return [Place(at, at + len(old), _fitted(old, there, new)) for at, there in found]
    return []


def _fitted(old: Sequence[str], there: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """`new` indented as `there` is; lines that it has from `old` are those of the file, to the last space."""
    same = all(mine.rstrip() == theirs.rstrip() for mine, theirs in zip(old, there, strict=True))
    lines = list(new) if same else reindented(old, there, new)
    for mark, start, end, first, last in difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if mark == "equal":
            lines[first:last] = there[start:end]
    return tuple(lines)


def _trimmed(old: Sequence[str], new: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Without blank lines that both have at their ends; then without those only `old` has."""
    while old and not old[0].strip():
        new = new[1:] if new and not new[0].strip() else new
        old = old[1:]
    while old and not old[-1].strip():
        new = new[:-1] if new and not new[-1].strip() else new
        old = old[:-1]
    return old, new


def _find(file: Sequence[str], old: Sequence[str], normal: Callable[[str], str]) -> list[int]:
    have, want = [normal(line) for line in file], [normal(line) for line in old]
    found, at = [], 0
    while at + len(want) <= len(have):
        if have[at] == want[0] and have[at : at + len(want)] == want:
            found.append(at)
            at += len(want)
        else:
            at += 1
    return found


def reindented(old: Sequence[str], there: Sequence[str], new: Sequence[str]) -> list[str]:
    """`new`, written with `old`'s indentation, in the indentation of `there` (the same lines in the file).

    Each indentation of `old` is mapped to the one the file has on that line; deeper ones keep what they have more.
    """
    known: dict[str, str] = {}
    for mine, theirs in zip(old, there, strict=True):
        if mine.strip():
            known.setdefault(_indent(mine), _indent(theirs))
    return [_moved(line, known) for line in new]


def _moved(line: str, known: dict[str, str]) -> str:
    if not line.strip():
        return line.strip()
    indent = _indent(line)
    bases = [base for base in known if indent.startswith(base)]
    if bases:
        base = max(bases, key=len)
        return known[base] + indent[len(base) :] + line.strip("\n")[len(indent) :]
    shallow = min(known, key=len)
    missing = len(shallow) - len(indent)  # further out than anything in `old`
    return known[shallow][: max(len(known[shallow]) - missing, 0)] + line[len(indent) :]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def nearest(file: Sequence[str], old: Sequence[str]) -> tuple[int, int] | None:
    """The lines (start, end) of `file` most like `old`, None when nothing is alike. For telling, not for changing."""
    want = [line.strip() for line in old if line.strip()]
    have = [line.strip() for line in file]
    if not want or not have:
        return None
    width = len("\n".join(old).strip("\n").split("\n"))
    sums = [0.0, *itertools.accumulate(_likeness(have, want))]
    starts = range(max(len(have) - width, 0) + 1)
    best = heapq.nlargest(5, starts, key=lambda at: sums[min(at + width, len(have))] - sums[at])
    wanted = "\n".join(want)
    ratio, at = max((_ratio("\n".join(have[at : at + width]), wanted), -at) for at in best)
    return (-at, min(-at + width, len(have))) if ratio >= 0.4 else None


def _ratio(one: str, other: str) -> float:
    """How much alike two pieces are, from 0 to 1: short ones letter by letter, longer ones by their words."""
    if max(len(one), len(other)) <= SHORT:
        return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
    mine, theirs = Counter(_WORD.findall(one)), Counter(_WORD.findall(other))
    return 2 * (mine & theirs).total() / max(mine.total() + theirs.total(), 1)


def _likeness(have: Sequence[str], want: Sequence[str]) -> Iterator[float]:
    """For each line of `have` how many of its words one of `want` shares at best, from 0 to 1."""
    words = [set(_WORD.findall(line)) for line in want]
    holding: dict[str, list[int]] = {}
    for number, theirs in enumerate(words):
        for word in theirs:
            holding.setdefault(word, []).append(number)
    for line in have:
        mine = set(_WORD.findall(line))
        shared = Counter(number for word in mine for number in holding.get(word, ())[:SHARING])
        yield max((count / (len(mine) + len(words[n]) - count) for n, count in shared.items()), default=0.0)


def region(file: Sequence[str], start: int, end: int, around: int = 3, most: int = 30) -> str:
    """Those lines with their numbers and a few around them, as read shows them."""
    first, last = max(start - around, 0), min(end + around, len(file), start + most)
    return "\n".join(f"{number + 1}\t{file[number]}" for number in range(first, last))
