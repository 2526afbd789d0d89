"""What a small model can be asked to write where tests fail, in the order of what is tried first.

Below aims.py, which knows what was asked before; beside gaps.py (one line) and anew.py (a function without its body).
Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, zip_longest

from fugu_cli.messages import Gap
from fugu_cli.repair import anew, brief_files, excerpts, functions, gaps
from fugu_cli.repair.excerpts import places
from fugu_cli.repair.opening import is_long
from fugu_cli.repair.text import LONG

DEPTH = 2
"""Calls that are followed from a function that a test's output names."""
BROKEN = 2
"""Lines of a file where it broke, the last ones."""
FEW = 12
"""Lines that are filled in before anything is written whole: of one function, or those that another model doubts."""
ANEW = " anew"
"""How the key of a function without its body ends."""

_UNASSIGNED = re.compile(
    r"name '\w+' is not defined|cannot access (?:local|free) variable|before assignment|ReferenceError"
    r"|cannot find value `|undefined: \w"
)

_NAMED = re.compile(
    r"has no attribute '(\w+)'|name '(\w+)' is not defined|argument '(\w+)'|import name '(\w+)'"  # Python
    r"|\b(\w+) is not (?:a function|defined)|method named `(\w+)`|cannot find \w+ `(\w+)`"  # node, cargo
    r"|undefined: (?:\w+\.)?(\w+)|has no field or method (\w+)|symbol:\s+\w+ (\w+)"  # go, javac
)
"""The word that was not found."""


@dataclass(frozen=True)
class Aim:
    """The one file that a small model is to write, "" where it may be any; the part of it, "" where it is all; what is
    shown in the place of either, "" where it is that; and the line that stands in it for what is to be written anew."""

    target: str = ""
    part: str = ""
    shown: str = ""
    unwritten: str = ""
    tried: int = 0
    """How many draws there were before, 0 where none of them asked for this: its answer may be the likeliest one."""
    judged: bool = False
    """Failing tests say whether it is done."""
    gap: Gap | None = None
    """One line of the part that is left out, and is all that is to be written."""
    key: str = ""
    """Which way it is, for the log: the same whenever it is asked for in the same files."""


@dataclass(frozen=True)
class Known:
    """What is known before a model begins. `filled`: by place, each line that another model has filled in: how sure it
    was (mean log probability) that another one belongs there, None where it wrote the same."""

    filled: Mapping[str, float | None] = field(default_factory=dict)


def ways(files: Mapping[str, str], output: str, request: str, known: Known | None, *, parts: bool) -> list[Aim]:
    """Everything that can be asked for, at least one way. `output`: what the tests print. `parts`: of files that are
    not short; `known`: None where no lines are left out."""
    by_file = _ways_by_file(files, output, request, parts=parts)
    order = [way for at_once in zip_longest(*by_file) for way in at_once if way is not None]
    whole = [each for each in by_file if not is_long(files.get(each[0].target, ""))]
    if len(whole) > 1 or not order:
        order.append(Aim(key="every file"))
    if known is None:
        return order
    at, behind = (_lines(files, output, request, more=more) for more in (False, True))
    return _with_lines(order, at, behind, known, (_broke(files, at, behind, output), _deeper(files, at)))


def _lines(files: Mapping[str, str], output: str, request: str | None, *, more: bool) -> list[Aim]:
    """Every line of the functions to blame, file by file; `more`: every place behind one."""
    code = brief_files.blamed(files, f"{request or ''}\n{output}")
    found = [(path, gaps.in_turn(path, files[path], output, request, more=more)) for path in code]
    return [Aim(path, one.part, gap=one.gap, key=one.gap.place) for path, filling in found for one in filling]


def _deeper(files: Mapping[str, str], lines: Sequence[Aim]) -> list[Aim]:
    """The lines of the functions that these ones' functions call, and those call, and so on."""
    found: dict[str, Aim] = {way.key: way for way in lines}
    parts = {way.part for way in lines}
    for _ in range(DEPTH):
        called = _lines(files, "\n".join(dict.fromkeys(way.part for way in found.values())), None, more=False)
        found |= {way.key: way for way in called if way.key not in found}
    return [way for way in found.values() if way.part not in parts]


def _with_lines(
    order: list[Aim], lines: list[Aim], more: list[Aim], known: Known, sought: tuple[list[Aim], list[Aim]]
) -> list[Aim]:
    """Few lines first, for they take least; then what is written anew, the other lines, one more line, and last what is
    mended: where the lines did not help, that hardly does (tests/benchmarks/results/infilling.md).

    `sought`: lines where it broke, which are the first of all, and those of functions that are called by the ones to
    blame, which come after those. Two models that have not seen a line doubt the same ones: those come next, the surest
    before the others.
    """
    if not lines:
        return order
    broke, deeper = sought
    doubted = _doubted([*lines, *deeper], known)[:FEW]
    fresh = _few(*([way for way in some if way.key not in known.filled] for some in (lines, deeper)))
    each: dict[str, Aim] = {}
    anew = (way for way in order if way.unwritten)
    for way in [*broke, *doubted, *fresh, *anew, *lines, *deeper, *more, *order]:
        each.setdefault(way.key, way)
    return list(each.values())


def _broke(files: Mapping[str, str], lines: Sequence[Aim], more: Sequence[Aim], output: str) -> list[Aim]:
    """Of the lines that the output names, the last one first, the word that was not found, the line, and the place
    before it: this one first where a variable was not found, for then a line is missing."""
    found: list[Aim] = []
    missing = _UNASSIGNED.search(output) is not None
    names = not_found(output)
    for path in dict.fromkeys(way.target for way in lines):
        at, behind = ({_number(way): way for way in some if way.target == path} for some in (lines, more))
        for place in list(dict.fromkeys(reversed(places(path, output))))[:BROKEN]:
            if place in at:
                above = max((number for number in behind if number < place), default=0)
                before = [behind[above]] if above and behind[above].part == at[place].part else []
                line = [*_words(at[place], files[path], names), at[place]]
                found += [*before, *line] if missing else [*line, *before]
    return found


def not_found(output: str) -> frozenset[str]:
    """The words that the tests' output says were not found: attributes, variables, arguments, functions."""
    return frozenset(name for groups in _NAMED.findall(output) for name in groups if name)


def _words(way: Aim, content: str, names: Collection[str]) -> list[Aim]:
    """Each of the names on the line, to be filled in alone."""
    if way.gap is None or not names:
        return []
    wanted = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b")
    found = gaps.words(gaps.Filling(way.part, way.gap), content, wanted)
    return [Aim(way.target, way.part, gap=one.gap, key=one.gap.place) for one in found]


def _number(way: Aim) -> int:
    """The line of the file that is left out, or behind which one more is asked for."""
    return int(way.key.rpartition(":")[2].rstrip("+"))


def _doubted(lines: Sequence[Aim], known: Known) -> list[Aim]:
    sure = [(doubt, way) for way in lines if (doubt := known.filled.get(way.key)) is not None]
    return [way for _, way in sorted(sure, key=lambda one: -one[0])]


def _few(*groups: Sequence[Aim]) -> list[Aim]:
    """Of each group those of functions with few lines, the shortest function first: nothing is found out for less."""
    found: list[Aim] = []
    for lines in groups:
        each = [list(part) for _, part in groupby(lines, key=lambda way: (way.target, way.part))]
        for part in sorted((part for part in each if len(part) <= FEW), key=len):
            found += part if len(found) + len(part) <= 2 * FEW else []
    return found


def _ways_by_file(files: Mapping[str, str], output: str, request: str, *, parts: bool) -> list[list[Aim]]:
    """The ways to correct each file that may be to blame, at least one; long ones of which no function is to blame are
    left out, and all of them where no `parts` can be asked for."""
    code = brief_files.blamed(files, f"{request}\n{output}")
    found: dict[str, list[Aim]] = {}
    for path in code:
        ways = _ways(path, files[path], output, request) if parts else []
        if ways or not is_long(files[path]):
            found[path] = ways or [Aim(path, key=path)]
    if len(found) > 1:
        return list(found.values())
    return [[way if way.part or way.shown else replace(way, target="") for way in ways] for ways in found.values()]


def _ways(path: str, content: str, output: str, request: str) -> list[Aim]:
    """The ways to correct a file, one after the other: it as it stands, then each function to blame to be written anew;
    of a longer one each function as it stands, then anew, and all of it last. [] where there is but one way, and where
    a file that is not to be written whole has none."""
    parts = excerpts.in_turn(path, content, output)
    if not parts and not is_long(content):
        new = [_anew(path, content, part, one) for part, one in anew.in_file(path, content, output, request)]
        return [Aim(path, key=path), *new] if new else []
    ways: list[Aim] = []
    for part in parts or excerpts.meant(path, content, request):
        name = _name(path, content, part)
        ways.append(Aim(path, part, key=name))
        if one := anew.without_body(path, content, part):
            ways.append(Aim(path, part, one.alone, one.placeholder, key=f"{name}{ANEW}"))
    return [*ways, Aim(path, key=path)] if parts and len(content) <= LONG else ways


def _anew(path: str, content: str, part: str, whole: anew.Anew) -> Aim:
    """The function `part` of a short file, alone where it is the smaller part of it, else in the `whole` file."""
    alone = anew.without_body(path, content, part) if 2 * len(part) < len(content) else None
    shown, placeholder = (alone.alone, alone.placeholder) if alone else (whole.shown, whole.placeholder)
    return Aim(path, part if alone else "", shown, placeholder, key=f"{_name(path, content, part)}{ANEW}")


def _name(path: str, content: str, part: str) -> str:
    """Where the part begins, and the function's name where it is one."""
    first = content[: content.find(part)].count("\n") if part in content else -1
    names = [name for name, start, _ in functions.spans(path, content) if start == first]
    return " ".join([f"{path}:{first + 1}", *names[:1]])
