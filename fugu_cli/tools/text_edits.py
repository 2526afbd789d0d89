"""Edits as text: patches parsed, and the place in a file that a piece of text means. Pure.

Below edit and apply_patch. Unified diffs and the `*** Begin Patch` form become the same values.
Counts in hunk headers are used when they are right and ignored when they are not: models miscount.
A piece is found exactly, else by its lines whatever their indentation; never approximately.
"""

from __future__ import annotations

import difflib
import heapq
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fugu_cli.safety.policy.call_arguments import path_of_git_header, unprefixed

NUMBERED = re.compile(r"\s*\d+\t")
SHORT = 300
"""Characters of the longest pieces that are compared letter by letter."""
SHARING = 50
"""Lines with the same word that are looked at: more tell nothing, and would take long."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True)
class TextMatch:
    """Lines `start` to `end` (from 0, end not included) of a file, and what belongs there
    instead.
    """

    start: int
    end: int
    lines: tuple[str, ...]


def without_line_numbers(text: str) -> str:
    """Remove line numbers as read adds them, if every line has one."""
    lines = text.split("\n")
    body = lines[:-1] if lines[-1] == "" else lines
    if not body or not all(NUMBERED.match(line) for line in body):
        return text
    return "\n".join(NUMBERED.sub("", line, count=1) for line in lines)


def find_matches(file: Sequence[str], old: Sequence[str], new: Sequence[str]) -> list[TextMatch]:
    """Return the places in `file` where `old` stands except for white space, with `new` indented to
    fit.

    Equal indentation with any trailing space is tried before any indentation. Blank lines around
    `old` are ignored. Places do not overlap. Lines in both `old` and `new` are kept as the file has
    them.
    """
    old, new = _trimmed(old, new)
    if not old:
        return []
    for normal in (str.rstrip, str.strip):
        found = [(at, file[at : at + len(old)]) for at in _find(file, old, normal)]
        if found:
            return [TextMatch(at, at + len(old), _fitted(old, there, new)) for at, there in found]
    return []


def _fitted(old: Sequence[str], there: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Indent `new` like `there`. Lines that it shares with `old` are the file's, to the last space."""
    same = all(mine.rstrip() == theirs.rstrip() for mine, theirs in zip(old, there, strict=True))
    lines = list(new) if same else reindent(old, there, new)
    for mark, start, end, first, last in difflib.SequenceMatcher(
        None, old, new, autojunk=False
    ).get_opcodes():
        if mark == "equal":
            lines[first:last] = there[start:end]
    return tuple(lines)


def _trimmed(old: Sequence[str], new: Sequence[str]) -> tuple[Sequence[str], Sequence[str]]:
    """Remove blank lines that both have at their ends, then those that only `old` has."""
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


def reindent(old: Sequence[str], there: Sequence[str], new: Sequence[str]) -> list[str]:
    """Change `new` from `old`'s indentation to that of `there`, the same lines in the file.

    Each indentation of `old` is mapped to the file's; deeper ones keep the difference.
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


def nearest_lines(file: Sequence[str], old: Sequence[str]) -> tuple[int, int] | None:
    """Return the lines (start, end) of `file` most similar to `old`, None if nothing is similar.
    For messages, not for changes.
    """
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
    """Return the similarity of two texts from 0 to 1: short ones by letters, longer ones by words."""
    if max(len(one), len(other)) <= SHORT:
        return difflib.SequenceMatcher(None, one, other, autojunk=False).ratio()
    mine, theirs = Counter(_WORD.findall(one)), Counter(_WORD.findall(other))
    return 2 * (mine & theirs).total() / max(mine.total() + theirs.total(), 1)


def _likeness(have: Sequence[str], want: Sequence[str]) -> Iterator[float]:
    """Yield for each line of `have` its best similarity (0 to 1) to a line of `want`, by common
    words.
    """
    words = [set(_WORD.findall(line)) for line in want]
    holding: dict[str, list[int]] = {}
    for number, theirs in enumerate(words):
        for word in theirs:
            holding.setdefault(word, []).append(number)
    for line in have:
        mine = set(_WORD.findall(line))
        shared = Counter(number for word in mine for number in holding.get(word, ())[:SHARING])
        yield max(
            (count / (len(mine) + len(words[n]) - count) for n, count in shared.items()),
            default=0.0,
        )


def numbered_region(
    file: Sequence[str], start: int, end: int, around: int = 3, most: int = 30
) -> str:
    """Return the lines with numbers and a few lines around them, as the tool read shows them."""
    first, last = max(start - around, 0), min(end + around, len(file), start + most)
    return "\n".join(f"{number + 1}\t{file[number]}" for number in range(first, last))


PatchKind = Literal["add", "update", "delete"]


class PatchError(ValueError):
    """The text is not a patch; the message says where and what was expected."""


@dataclass(frozen=True)
class Hunk:
    """Lines to find and lines to put there. `line` is where (from 1) if the patch says, `anchor`
    lines before it, one after the other. `ends_without_newline` is None where the patch says
    nothing of the file's end."""

    old: tuple[str, ...]
    new: tuple[str, ...]
    line: int | None = None
    anchor: str = ""
    ends_without_newline: bool | None = None


@dataclass(frozen=True)
class FilePatch:
    """The changes to one file. `target` is its new name. `executable` is its new executable flag,
    None if the patch does not set it.
    """

    kind: PatchKind
    path: str
    hunks: tuple[Hunk, ...] = ()
    target: str = ""
    executable: bool | None = None


_GIT = re.compile(
    r"(?P<what>(?:old|new|new file|deleted file) mode|(?:rename|copy) (?:from|to)) (?P<value>.+)"
)
_HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+\d+(?:,(\d+))? @@ ?(.*)")


@dataclass
class _Lines:
    """The patch's lines and where we are."""

    lines: list[str]
    at: int = 0
    files: list[FilePatch] = field(default_factory=list)

    @property
    def more(self) -> bool:
        return self.at < len(self.lines)

    def peek(self, ahead: int = 0) -> str:
        return self.lines[self.at + ahead] if self.at + ahead < len(self.lines) else ""

    def next(self) -> str:
        self.at += 1
        return self.lines[self.at - 1]


def parse_patch(text: str) -> list[FilePatch]:
    """Return the files of a patch in either form. Raises PatchError."""
    text = _unfenced(text.replace("\r\n", "\n"))
    lines = _Lines(text.split("\n"))
    if lines.lines and not lines.lines[-1]:
        lines.lines.pop()
    begin = next(
        (at for at, line in enumerate(lines.lines) if line.startswith("*** Begin Patch")), 0
    )
    del lines.lines[:begin]  # words before it, or `apply_patch <<'EOF'` as a shell would be told
    marked = any(line.startswith("*** ") and line[4:].startswith(_MARKS) for line in lines.lines)
    files = _begin_patch(lines) if marked else _unified(lines)
    if not files:
        raise PatchError(
            "no file is named in it; a patch starts with `--- a/FILE` and `+++ b/FILE` lines"
        )
    return files


def _unfenced(text: str) -> str:
    """Remove a Markdown fence around the text."""
    found = re.search(r"^```\w*\n(.*?)^```\s*$", text, re.MULTILINE | re.DOTALL)
    return found.group(1) if found else text


_MARKS = ("Begin Patch", "Update File:", "Add File:", "Delete File:")


def _begin_patch(lines: _Lines) -> list[FilePatch]:
    files: list[FilePatch] = []
    while lines.more:
        line = lines.next()
        if line.startswith("*** Add File:"):
            files.append(FilePatch("add", line[13:].strip(), (Hunk((), tuple(_added(lines))),)))
        elif line.startswith("*** Delete File:"):
            files.append(FilePatch("delete", line[16:].strip()))
        elif line.startswith("*** Update File:"):
            target = lines.next()[12:].strip() if lines.peek().startswith("*** Move to:") else ""
            files.append(
                FilePatch("update", line[16:].strip(), tuple(_marked_hunks(lines)), target)
            )
        elif line.startswith("*** End Patch"):
            break
        elif line.strip() and not line.startswith("*** Begin Patch"):
            raise PatchError(
                f"`{line[:80]}` stands outside a file; write `*** Update File: PATH` before it"
            )
    return files


def _added(lines: _Lines) -> list[str]:
    found = []
    while lines.more and not lines.peek().startswith("*** "):
        line = lines.next()
        if line and not line.startswith("+"):
            raise PatchError(f"`{line[:80]}`: every line of an added file starts with +")
        found.append(line[1:])
    return found


def _marked_hunks(lines: _Lines) -> list[Hunk]:
    hunks = []
    while lines.more and not (
        lines.peek().startswith("*** ") and "End of File" not in lines.peek()
    ):
        anchors, line = list[str](), None
        while lines.peek().startswith("@@"):
            header = lines.next()
            found = _HUNK.match(header)
            line = int(found.group(1)) if found else None
            anchors = [] if found else [*anchors, header[2:].strip().removesuffix("@@").strip()]
        old, new = _body(lines)
        if lines.peek().startswith("*** End of File"):
            lines.next()
        if old or new:
            hunks.append(Hunk(tuple(old), tuple(new), line, "\n".join(filter(None, anchors))))
        elif lines.more and not lines.peek().startswith(("@@", "*** ")):
            raise PatchError(f"`{lines.peek()[:80]}`: lines of a hunk start with a space, - or +")
    return hunks


def _body(lines: _Lines, counts: tuple[int, int] | None = None) -> tuple[list[str], list[str]]:
    """Return the lines of one hunk. With `counts` (old, new) as many as they say, if those are all
    hunk lines.
    """
    start = lines.at
    if counts is not None:
        found = _counted(lines, *counts)
        if found is not None:
            return found
        lines.at = start
    old: list[str] = []
    new: list[str] = []
    while lines.more and not _ends_hunk(lines):
        line = lines.next()
        if not line.startswith("\\"):
            _sort(line, old, new)
    while old and new and not old[-1] and not new[-1] and not lines.lines[lines.at - 1].strip():
        old.pop()  # blank lines between the hunk and what follows
        new.pop()
        lines.at -= 1
        if lines.at <= start:
            break
    return old, new


def _counted(lines: _Lines, olds: int, news: int) -> tuple[list[str], list[str]] | None:
    old: list[str] = []
    new: list[str] = []
    while len(old) < olds or len(new) < news:
        if not lines.more or not (not lines.peek() or lines.peek()[0] in " +-\\"):
            return None
        line = lines.next()
        if not line.startswith("\\"):
            _sort(line, old, new)
    following = lines.peek()
    exact = (len(old), len(new)) == (olds, news)
    return (
        (old, new)
        if exact and not (following[:1] in {"+", "-", " "} and not _ends_hunk(lines))
        else None
    )


def _sort(line: str, old: list[str], new: list[str]) -> None:
    if line[:1] not in {"+", "-", " ", ""}:
        raise PatchError(f"`{line[:80]}`: lines of a hunk start with a space, - or +")
    if line[:1] != "+":
        old.append(line[1:])
    if line[:1] != "-":
        new.append(line[1:])


def _ends_hunk(lines: _Lines) -> bool:
    line = lines.peek()
    if line.startswith("--- "):
        return lines.peek(1).startswith("+++ ")
    return line == "-- " or line.startswith(("@@", "*** ", "diff --git ", "Index: "))


def _unified(lines: _Lines) -> list[FilePatch]:
    files: list[FilePatch] = []
    while lines.more:
        if lines.peek().startswith("diff --git "):
            files += _git(lines)
        elif _has_names(lines):
            files.append(_file(lines))
        elif lines.peek().startswith("@@"):
            raise PatchError(
                "a hunk comes before the file it belongs to; write `--- a/FILE` and `+++ b/FILE` "
                "first"
            )
        else:
            _refuse_binary(lines.next())
    return files


def _refuse_binary(line: str) -> None:
    if line.startswith("GIT binary patch") or (
        line.startswith("Binary files ") and line.endswith(" differ")
    ):
        raise PatchError("it changes a binary file; that cannot be done with a patch")


def _has_names(lines: _Lines) -> bool:
    return lines.peek().startswith("--- ") and lines.peek(1).startswith("+++ ")


def _git(lines: _Lines) -> list[FilePatch]:
    """Parse git's lines before or instead of hunks: new, deleted and moved files, changed modes."""
    first = lines.next()
    said: dict[str, str] = {}
    while (
        lines.more and not lines.peek().startswith(("diff --git ", "@@")) and not _has_names(lines)
    ):
        line = lines.next()
        _refuse_binary(line)
        found = _GIT.match(line)
        said |= {found["what"]: found["value"].strip()} if found else {}
    if any(value.startswith(("12", "16")) for what, value in said.items() if what.endswith("mode")):
        raise PatchError(
            "it is about a link or a repository in this one; that cannot be done with a patch"
        )
    if "copy to" in said:
        raise PatchError(f"it copies a file; add {said['copy to']} with all its lines instead")
    mode = said.get("new mode", said.get("new file mode", ""))
    executable = mode.endswith("755") if mode else None
    if "rename to" in said:
        if _has_names(lines):
            lines.next()
            lines.next()
        return [
            FilePatch(
                "update", said["rename from"], tuple(_hunks(lines)), said["rename to"], executable
            )
        ]
    if _has_names(lines):
        return [replace(_file(lines), executable=executable)]
    kind: PatchKind = (
        "delete" if "deleted file mode" in said else "add" if "new file mode" in said else "update"
    )
    if kind == "update" and executable is None:
        return []
    name = path_of_git_header(first.removeprefix("diff --git ").strip())
    if not name:
        raise PatchError(f"the name of a file in `{first[:80]}` could not be read for certain")
    return [FilePatch(kind, name, executable=executable)]


def _file(lines: _Lines) -> FilePatch:
    """Parse a file from its two lines of names on."""
    old, new = _name(lines.next()[4:]), _name(lines.next()[4:])
    hunks = tuple(_hunks(lines))
    if old == "/dev/null":
        return FilePatch("add", new, hunks)
    if new == "/dev/null":
        return FilePatch("delete", old, hunks)
    if not hunks:
        raise PatchError(f"no hunk (a line starting with @@) follows the header of {new}")
    return FilePatch("update", old, hunks, new if new != old else "")


def _name(text: str) -> str:
    """Return a header's path without a date and without a/ and b/."""
    return unprefixed(text.split("\t")[0].strip())


def _hunks(lines: _Lines) -> list[Hunk]:
    hunks = []
    while lines.peek().startswith("@@"):
        header = lines.next()
        found = _HUNK.match(header)
        counts = None
        if found is not None:
            counts = (int(found.group(2) or 1), int(found.group(3) or 1))
        start = lines.at
        old, new = _body(lines, counts)
        if lines.peek().startswith("\\"):
            lines.next()
        bare = any(line.startswith("\\") for line in lines.lines[start : lines.at])
        ends = _last_new(lines) if bare else None
        hunks.append(Hunk(tuple(old), tuple(new), int(found.group(1)) if found else None, "", ends))
    return hunks


def _last_new(lines: _Lines) -> bool:
    """Return whether the newest `\\ No newline` mark follows a line of the new file."""
    at = lines.at - 1
    while at > 0 and not lines.lines[at].startswith("\\"):
        at -= 1
    return lines.lines[at - 1][:1] in {"+", " "}
