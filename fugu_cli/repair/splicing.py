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
    comment = _COMMENT.fullmatch(line)
    return _DOTS.fullmatch(line) is not None or (
        comment is not None and _LEFT_OUT.fullmatch(comment[1]) is not None
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
    if not any(definition.kind in ("function", "class") for definition in after):
        return shown if elided else body
    trials = [definition for definition in after if judged and _tries_out(definition, body, shown)]
    after = tuple(definition for definition in after if definition not in trials)
    if not elided and not _leaves_out(before, after, shown, body, judged):
        left_out = {
            number for definition in trials for number in range(definition.start, definition.end)
        }
        return (
            "\n".join(
                line for number, line in enumerate(body.split("\n")) if number not in left_out
            ).rstrip("\n")
            + "\n"
        )
    if not _shares(before, after) and any(
        definition.kind in ("value", "other") for definition in after
    ):
        return shown if elided else body  # another file, and not a part of this one
    return _Splice(path, shown, body, elided, judged).merged(before, after)


def replace_part(path: str, content: str, part: str, body: str, *, judged: bool = False) -> str:
    """The file `content` with the functions of `part`, lines of it, as `body` has them, and with
    the functions and imports beside them that they need. As it is where `body` has none of them."""
    first = content.count("\n", 0, content.index(part))
    within = [
        definition
        for definition in functions(path, content)
        if first <= definition.start <= definition.end <= first + part.count("\n") + 1
    ]
    splice = _Splice(path, content, body, _elided_lines(content, body), judged)
    if not within:  # its language is not known
        new = "\n".join(indented(body.strip("\n").split("\n"), indent_of([part])))
        return content if splice.elided else content.replace(part, new)
    replaced, written = (
        within[0],
        [definition for definition in functions(path, body) if definition.name == within[0].name],
    )
    best = max(
        written,
        key=lambda definition: similarity(part, "\n".join(definition.lines(body))),
        default=None,
    )
    changes = list(splice.replaced(replaced, best)) if best else []
    if not changes:
        return content
    new_text, names = "\n".join(changes[0].lines), function_names(path, content)
    new_functions = [
        definition
        for definition in definitions(path, body)
        if definition.kind == "function" and definition.name not in names
    ]
    for definition in new_functions:
        if re.search(rf"\b{re.escape(definition.name)}\(", new_text):
            changes.append(
                splice.added(definition, replaced.end, indent_of(replaced.lines(content)))
            )
    return splice.applied(
        [*changes, *splice.imported(definitions(path, content), definitions(path, body), new_text)]
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
    shown_lines = {line.strip() for line in shown.split("\n")}
    return {
        n
        for n, line in enumerate(body.split("\n"))
        if line.strip() not in shown_lines and is_elision(line)
    }


def _tries_out(definition: Definition, body: str, shown: str) -> bool:
    """A statement, or a function named like a test, that the file has not got."""
    if definition.kind == "other":
        return "\n".join(definition.lines(body)).strip() not in shown
    return (
        definition.kind in ("function", "class")
        and bool(_TEST_NAME.match(definition.name))
        and definition.name not in shown
    )


def _shares(before: Sequence[Definition], after: Sequence[Definition]) -> bool:
    named = {definition.name for definition in before if definition.name} | {
        member.name for definition in before for member in definition.members
    }
    return any(
        definition.name in named
        for definition in after
        if definition.kind in ("function", "class", "value")
    )


def _leaves_out(
    before: Sequence[Definition], after: Sequence[Definition], shown: str, body: str, judged: bool
) -> bool:
    """`after` lacks a definition or an import of `before`, a member of a class, a docstring, or all
    that runs.
    """
    by_key = {definition.key: definition for definition in after}
    if any(definition.kind == "other" for definition in before) and not any(
        definition.kind == "other" for definition in after
    ):
        return True
    for old in before:
        new = by_key.get(old.key)
        if new is None and old.kind != "other" and (judged or old.kind != "text"):
            return True
        if new is None:
            continue
        if old.start < old.head and new.start == new.head:
            return True
        if old.doc and (not new.doc or (judged and _doc(old, shown) != _doc(new, body))):
            return True
        if old.members and _leaves_out(old.members, new.members, shown, body, judged):
            return True
    return False


def _doc(definition: Definition, text: str) -> list[str]:
    return [line.strip() for line in text.split("\n")[definition.doc.start : definition.doc.stop]]


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
        inner = {
            definition.name: definition
            for outer in before
            for definition in outer.members
            if definition.kind == "function"
        }
        top = {definition.name for definition in before}
        methods = [
            definition
            for definition in after
            if definition.kind == "function"
            and definition.name not in top
            and definition.name in inner
        ]
        changes = [
            change
            for definition in methods
            for change in self.replaced(inner[definition.name], definition)
        ]
        changes += self._changes(
            before, [definition for definition in after if definition not in methods]
        )
        return self.applied([*changes, *self.imported(before, after)])

    def applied(self, changes: Sequence[_Change]) -> str:
        """The file with the changes, made from its end, so that the lines before stay where they
        are, and at one place in the order given; as it is where it could not be read any more."""
        lines, order = self.shown.split("\n"), enumerate(changes)
        for _, change in sorted(
            order, key=lambda item: (-item[1].start, item[1].start == item[1].end, -item[0])
        ):
            lines[change.start : change.end] = change.lines
        whole = "\n".join(lines)
        return (
            whole if parses(self.path, whole) or not parses(self.path, self.shown) else self.shown
        )

    def added(self, definition: Definition, line: int, margin: str) -> _Change:
        """A new function or class below `line`."""
        space = [""] if margin or not self.path.endswith((".py", ".pyi")) else ["", ""]
        return _Change(line, line, [*space, *indented(definition.lines(self.body), margin)])

    def replaced(self, old: Definition, new: Definition) -> Iterator[_Change]:
        """Yield the change that puts `new` in the place of `old`, of a class those of its members; none
        where it only stands in for it. What it lacks of comment and docstring stays."""
        if old.members:
            yield from self._changes(old.members, new.members)
            return
        if (
            old.name == "exports"
            or (new.empty and not old.empty)
            or self.elided & set(range(new.start, new.end))
        ):
            return
        start = old.head if new.start == new.head else old.start
        lines = new.lines(self.body)
        if old.doc and (self.judged or not new.doc) and new.body:
            docstring = self.shown.split("\n")[old.doc.start : old.doc.stop]
            doc_lines = new.doc or range(new.body.start, new.body.start)
            inside = indent_of(self.body.split("\n")[new.body.start : new.body.stop])
            lines[doc_lines.start - new.start : doc_lines.stop - new.start] = indented(
                docstring, inside
            )
        yield _Change(start, old.end, indented(lines, indent_of(old.lines(self.shown))))

    def _changes(
        self, before: Sequence[Definition], after: Sequence[Definition]
    ) -> Iterator[_Change]:
        last = max(
            (definition.end for definition in before if definition.kind in ("function", "class")),
            default=before[-1].end,
        )
        first = min(
            (definition.start for definition in before if definition.kind in ("function", "class")),
            default=before[-1].end,
        )
        above = max(
            (
                definition.end
                for definition in before
                if definition.kind in ("import", "value", "text") and definition.end <= first
            ),
            default=0,
        )
        margin = indent_of(before[0].lines(self.shown))
        for definition in after:
            old, lines = _same_as(definition, before), indented(definition.lines(self.body), margin)
            if old is not None and definition.kind in ("function", "class", "value"):
                yield from self.replaced(old, definition)
            elif (
                old is None
                and definition.kind in ("function", "class")
                and not self.elided & set(range(definition.start, definition.end))
            ):
                yield self.added(definition, last, margin)
            elif old is None and definition.kind == "value":
                yield _Change(above, above, lines if above else [*lines, ""])

    def imported(
        self, before: Sequence[Definition], after: Sequence[Definition], used: str | None = None
    ) -> Iterator[_Change]:
        """Yield the imports of `after` that `before` lacks, placed below its imports; of those only
        what is `used`.
        """
        known_keys = {definition.key for definition in before}
        last = next(
            (definition for definition in reversed(before) if definition.kind == "import"), None
        )
        first = before[0].end if before[0].kind == "text" else 0
        line, space = (last.end, []) if last else (first, [""] if first else [])
        for definition in after:
            names = re.findall(r"\w+", "\n".join(definition.lines(self.body)))[1:]
            is_used = used is None or any(re.search(rf"\b{name}\b", used) for name in names)
            if (
                definition.kind == "import"
                and definition.key not in known_keys
                and is_used
                and not _ONCE.match(definition.lines(self.body)[0])
            ):
                yield _Change(line, line, [*space, *definition.lines(self.body)])
                space = []


def _same_as(definition: Definition, before: Sequence[Definition]) -> Definition | None:
    """Return the definition that `definition` replaces: the one with its name, of several the one with its
    decorators as well.
    """
    same_name = [
        candidate
        for candidate in before
        if candidate.kind == definition.kind
        and candidate.name == definition.name
        and (definition.name or candidate.key == definition.key)
    ]
    return next(
        (
            candidate
            for candidate in same_name
            if len(same_name) == 1 or candidate.key == definition.key
        ),
        None,
    )


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
