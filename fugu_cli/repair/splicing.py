"""Merges the part of a file in a reply into the whole file, because small models leave out what
they do not change.

Uses syntax.py. Knows neither prompts nor tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fugu_cli.providers.code_blocks import similarity
from fugu_cli.repair.syntax import (
    Definition,
    definitions,
    function_names,
    functions,
    indent_of,
    indented,
    parses,
)

_COMMENT = re.compile(r"\s*(?:#|//+|--|/\*+|\{/\*|<!--|\*)\s*(.*?)\s*(?:\*/\}?|-->)?\s*")
_DOTS = re.compile(r"\s*(?:\.{3,}|…)\s*")
_CODE = r"(?:codes?|files?|class(?:es)?|functions?|methods?|imports?|fields?|members?|implementations?|logic)"
_LEFT_OUT = re.compile(
    rf".*(?:\.{{3,}}|…).*\b(?:rest|remaining|other|existing|previous|unchanged|same|{_CODE})\b.*"
    rf"|.*\b(?:rest|remaining|other|existing|previous|unchanged|same|{_CODE})\b.*(?:\.{{3,}}|…).*|(?:\.{{3,}}|…)"
    rf"|(?:the\s+)?(?:rest|remainder)\s+of\s+(?:the|your|this)\s+{_CODE}\b.*"
    rf"|(?:all\s+)?(?:the\s+)?(?:(?:other|remaining|existing)\s+)?{_CODE}(?:\s+(?:goes\s+)?here)?[.:]?"
    r"|(?:.*\b(?:remains?|stays?|is|are)\s+)?(?:unchanged|the same as before)[.:]?",
    re.IGNORECASE,
)
_ONCE = re.compile(r"package\b|from __future__")
"""A file has one package, and imports from the future in its first lines alone."""
_TEST_NAME = re.compile(r"(?:run_)?(?:tests?|checks?)(?:_\w+)?$|Test[A-Z]\w*$")


def is_elision(line: str) -> bool:
    """The line is a comment, or dots alone, that stands for code which is left out."""
    said = _COMMENT.fullmatch(line)
    return _DOTS.fullmatch(line) is not None or (
        said is not None and _LEFT_OUT.fullmatch(said[1]) is not None
    )


@dataclass(frozen=True)
class _Change:
    """Lines `start` to `end` of the file, from 0, and what stands there instead."""

    start: int
    end: int
    lines: list[str]


def complete_file(path: str, shown: str, body: str, *, judged: bool = False) -> str:
    """`body` with what it leaves out of the file `shown`; `shown` where no code can be made of it.
    Where tests judge, without what only tries the code out, and with the docstrings that were
    there."""
    body = _with_parsable_elisions(path, shown, body)
    before, after = definitions(path, shown), definitions(path, body)
    elided = _elided_lines(shown, body)
    if not shown.strip() or not before:
        return shown if shown.strip() and elided else body
    if not after or (parses(path, shown) and not parses(path, body)):
        return shown
    if not any(one.kind in ("function", "class") for one in after):
        return shown if elided else body
    spare = [one for one in after if judged and _tries_out(one, body, shown)]
    after = tuple(one for one in after if one not in spare)
    if not elided and not _leaves_out(before, after, shown, body, judged):
        gone = {number for one in spare for number in range(one.start, one.end)}
        return (
            "\n".join(
                line for number, line in enumerate(body.split("\n")) if number not in gone
            ).rstrip("\n")
            + "\n"
        )
    if not _shares(before, after) and any(one.kind in ("value", "other") for one in after):
        return shown if elided else body  # another file, and not a part of this one
    return _Splice(path, shown, body, elided, judged).merged(before, after)


def replace_part(path: str, content: str, part: str, body: str, *, judged: bool = False) -> str:
    """The file `content` with the functions of `part`, lines of it, as `body` has them, and with
    the functions and imports beside them that they need. As it is where `body` has none of them."""
    first = content.count("\n", 0, content.index(part))
    within = [
        one
        for one in functions(path, content)
        if first <= one.start <= one.end <= first + part.count("\n") + 1
    ]
    splice = _Splice(path, content, body, _elided_lines(content, body), judged)
    if not within:  # its language is not known
        new = "\n".join(indented(body.strip("\n").split("\n"), indent_of([part])))
        return content if splice.elided else content.replace(part, new)
    was, written = within[0], [one for one in functions(path, body) if one.name == within[0].name]
    best = max(written, key=lambda one: similarity(part, "\n".join(one.lines(body))), default=None)
    changes = list(splice.replaced(was, best)) if best else []
    if not changes:
        return content
    used, known = "\n".join(changes[0].lines), function_names(path, content)
    beside = [
        one for one in definitions(path, body) if one.kind == "function" and one.name not in known
    ]
    for one in beside:
        if re.search(rf"\b{re.escape(one.name)}\(", used):
            changes.append(splice.added(one, was.end, indent_of(was.lines(content))))
    return splice.applied(
        [*changes, *splice.imported(definitions(path, content), definitions(path, body), used)]
    )


def _with_parsable_elisions(path: str, shown: str, body: str) -> str:
    """Dots in the place of a comment where a class or function of Python holds nothing else;
    elsewhere dots are no code."""
    if parses(path, body):
        return body
    elided, lines = _elided_lines(shown, body), body.split("\n")
    dots = "..." if path.endswith((".py", ".pyi")) else ""
    return "\n".join(
        indent_of([line]) + dots if n in elided else line for n, line in enumerate(lines)
    )


def _elided_lines(shown: str, body: str) -> set[int]:
    known = {line.strip() for line in shown.split("\n")}
    return {
        n
        for n, line in enumerate(body.split("\n"))
        if line.strip() not in known and is_elision(line)
    }


def _tries_out(one: Definition, body: str, shown: str) -> bool:
    """A statement, or a function named like a test, that the file has not got."""
    if one.kind == "other":
        return "\n".join(one.lines(body)).strip() not in shown
    return (
        one.kind in ("function", "class")
        and bool(_TEST_NAME.match(one.name))
        and one.name not in shown
    )


def _shares(before: Sequence[Definition], after: Sequence[Definition]) -> bool:
    named = {one.name for one in before if one.name} | {
        m.name for one in before for m in one.members
    }
    return any(one.name in named for one in after if one.kind in ("function", "class", "value"))


def _leaves_out(
    before: Sequence[Definition], after: Sequence[Definition], shown: str, body: str, judged: bool
) -> bool:
    """`after` lacks a definition or an import of `before`, a member of a class, a docstring, or all
    that runs.
    """
    found = {one.key: one for one in after}
    if any(one.kind == "other" for one in before) and not any(one.kind == "other" for one in after):
        return True
    for was in before:
        now = found.get(was.key)
        if now is None and was.kind != "other" and (judged or was.kind != "text"):
            return True
        if now is None:
            continue
        if was.start < was.head and now.start == now.head:
            return True
        if was.doc and (not now.doc or (judged and _doc(was, shown) != _doc(now, body))):
            return True
        if was.members and _leaves_out(was.members, now.members, shown, body, judged):
            return True
    return False


def _doc(one: Definition, text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")[one.doc.start : one.doc.stop]]


@dataclass(frozen=True)
class _Splice:
    """Some definitions of `body` and the file `shown` that they go into."""

    path: str
    shown: str
    body: str
    elided: set[int]
    judged: bool

    def merged(self, before: Sequence[Definition], after: Sequence[Definition]) -> str:
        """The file with the definitions of `after`; as it is where it could not be read any
        more.
        """
        inner = {one.name: one for held in before for one in held.members if one.kind == "function"}
        top = {one.name for one in before}
        free = [
            one
            for one in after
            if one.kind == "function" and one.name not in top and one.name in inner
        ]
        changes = [change for one in free for change in self.replaced(inner[one.name], one)]
        changes += self._changes(before, [one for one in after if one not in free])
        return self.applied([*changes, *self.imported(before, after)])

    def applied(self, changes: Sequence[_Change]) -> str:
        """The file with the changes, made from its end, so that the lines before stay where they
        are, and at one place in the order given; as it is where it could not be read any more."""
        lines, order = self.shown.split("\n"), enumerate(changes)
        for _, one in sorted(
            order, key=lambda each: (-each[1].start, each[1].start == each[1].end, -each[0])
        ):
            lines[one.start : one.end] = one.lines
        whole = "\n".join(lines)
        return (
            whole if parses(self.path, whole) or not parses(self.path, self.shown) else self.shown
        )

    def added(self, one: Definition, place: int, margin: str) -> _Change:
        """A new function or class below the line `place`."""
        space = [""] if margin or not self.path.endswith((".py", ".pyi")) else ["", ""]
        return _Change(place, place, [*space, *indented(one.lines(self.body), margin)])

    def replaced(self, was: Definition, now: Definition) -> Iterator[_Change]:
        """The change that puts `now` in the place of `was`, of a class those of its members; none
        where it only stands in for it. What it lacks of comment and docstring stays."""
        if was.members:
            yield from self._changes(was.members, now.members)
            return
        if (
            was.name == "exports"
            or (now.empty and not was.empty)
            or self.elided & set(range(now.start, now.end))
        ):
            return
        start = was.head if now.start == now.head else was.start
        lines = now.lines(self.body)
        if was.doc and (self.judged or not now.doc) and now.body:
            told = self.shown.split("\n")[was.doc.start : was.doc.stop]
            at = now.doc or range(now.body.start, now.body.start)
            inside = indent_of(self.body.split("\n")[now.body.start : now.body.stop])
            lines[at.start - now.start : at.stop - now.start] = indented(told, inside)
        yield _Change(start, was.end, indented(lines, indent_of(was.lines(self.shown))))

    def _changes(
        self, before: Sequence[Definition], after: Sequence[Definition]
    ) -> Iterator[_Change]:
        last = max(
            (one.end for one in before if one.kind in ("function", "class")), default=before[-1].end
        )
        first = min(
            (one.start for one in before if one.kind in ("function", "class")),
            default=before[-1].end,
        )
        above = max(
            (
                one.end
                for one in before
                if one.kind in ("import", "value", "text") and one.end <= first
            ),
            default=0,
        )
        margin = indent_of(before[0].lines(self.shown))
        for one in after:
            was, lines = _same_as(one, before), indented(one.lines(self.body), margin)
            if was is not None and one.kind in ("function", "class", "value"):
                yield from self.replaced(was, one)
            elif (
                was is None
                and one.kind in ("function", "class")
                and not self.elided & set(range(one.start, one.end))
            ):
                yield self.added(one, last, margin)
            elif was is None and one.kind == "value":
                yield _Change(above, above, lines if above else [*lines, ""])

    def imported(
        self, before: Sequence[Definition], after: Sequence[Definition], used: str | None = None
    ) -> Iterator[_Change]:
        """Yield the imports of `after` that `before` lacks, placed below its imports; of those only
        what is `used`.
        """
        known = {one.key for one in before}
        last = next((one for one in reversed(before) if one.kind == "import"), None)
        first = before[0].end if before[0].kind == "text" else 0
        place, space = (last.end, []) if last else (first, [""] if first else [])
        for one in after:
            names = re.findall(r"\w+", "\n".join(one.lines(self.body)))[1:]
            wanted = used is None or any(re.search(rf"\b{name}\b", used) for name in names)
            if (
                one.kind == "import"
                and one.key not in known
                and wanted
                and not _ONCE.match(one.lines(self.body)[0])
            ):
                yield _Change(place, place, [*space, *one.lines(self.body)])
                space = []


def _same_as(one: Definition, before: Sequence[Definition]) -> Definition | None:
    """Return the definition that `one` replaces: the one with its name, of several the one with its
    decorators as well.
    """
    same = [
        was
        for was in before
        if was.kind == one.kind and was.name == one.name and (one.name or was.key == one.key)
    ]
    return next((was for was in same if len(same) == 1 or was.key == one.key), None)


def edit_between(old: str, new: str) -> tuple[str, str] | None:
    """The lines that differ, with as many around them as make the old ones stand there once, as old
    and new text.
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
