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

from fugu_cli.session.call_arguments import path_of_git_header, unprefixed

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


def find_matches(lines: Sequence[str], old: Sequence[str], new: Sequence[str]) -> list[TextMatch]:
    """Return the places in `lines` where `old` stands except for white space, with `new` indented
    to fit.

    Equal indentation with any trailing space is tried before any indentation. Blank lines around
    `old` are ignored. Places do not overlap. Lines in both `old` and `new` are kept as the file has
    them.
    """
    old, new = _trim_blank_lines(old, new)
    if not old:
        return []
    for normalize in (str.rstrip, str.strip):
        matches = []
        for start in _find_starts(lines, old, normalize):
            end = start + len(old)
            matches.append(TextMatch(start, end, _fit_lines(old, lines[start:end], new)))
        if matches:
            return matches
    return []


def _fit_lines(old: Sequence[str], replaced: Sequence[str], new: Sequence[str]) -> tuple[str, ...]:
    """Indent `new` like `replaced`. Lines that it shares with `old` are the file's, to the last
    space.
    """
    pairs = zip(old, replaced, strict=True)
    if all(quoted.rstrip() == line.rstrip() for quoted, line in pairs):
        lines = list(new)
    else:
        lines = reindent(old, replaced, new)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    for tag, old_start, old_end, new_start, new_end in matcher.get_opcodes():
        if tag == "equal":
            lines[new_start:new_end] = replaced[old_start:old_end]
    return tuple(lines)


def _trim_blank_lines(
    old: Sequence[str], new: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Remove blank lines at the ends: first those that both texts have, then those that only `old`
    has.
    """
    while old and not old[0].strip():
        new = new[1:] if new and not new[0].strip() else new
        old = old[1:]
    while old and not old[-1].strip():
        new = new[:-1] if new and not new[-1].strip() else new
        old = old[:-1]
    return old, new


def _find_starts(
    lines: Sequence[str], old: Sequence[str], normalize: Callable[[str], str]
) -> list[int]:
    lines = [normalize(line) for line in lines]
    old = [normalize(line) for line in old]
    starts = []
    index = 0
    while index + len(old) <= len(lines):
        if lines[index] == old[0] and lines[index : index + len(old)] == old:
            starts.append(index)
            index += len(old)
        else:
            index += 1
    return starts


def reindent(old: Sequence[str], replaced: Sequence[str], new: Sequence[str]) -> list[str]:
    """Change `new` from `old`'s indentation to that of `replaced`, the same lines in the file.

    Each indentation of `old` is mapped to the file's; deeper ones keep the difference.
    """
    indents: dict[str, str] = {}
    for quoted, line in zip(old, replaced, strict=True):
        if quoted.strip():
            indents.setdefault(_indent(quoted), _indent(line))
    return [_reindent_line(line, indents) for line in new]


def _reindent_line(line: str, indents: dict[str, str]) -> str:
    """Return the line with its new indentation. `indents` maps the old ones to the new ones."""
    if not line.strip():
        return line.strip()
    indent = _indent(line)
    bases = [base for base in indents if indent.startswith(base)]
    if bases:
        base = max(bases, key=len)
        deeper = indent[len(base) :]
        return indents[base] + deeper + line.strip("\n")[len(indent) :]
    # the line is further out than all others: take as much from the shallowest one
    shallowest = min(indents, key=len)
    missing = len(shallowest) - len(indent)
    new_length = max(len(indents[shallowest]) - missing, 0)
    return indents[shallowest][:new_length] + line[len(indent) :]


def _indent(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def nearest_lines(lines: Sequence[str], old: Sequence[str]) -> tuple[int, int] | None:
    """Return the lines (start, end) of a file most similar to `old`, None if nothing is similar.
    For messages, not for changes.
    """
    quoted = [line.strip() for line in old if line.strip()]
    stripped = [line.strip() for line in lines]
    if not quoted or not stripped:
        return None
    width = len("\n".join(old).strip("\n").split("\n"))
    sums = [0.0, *itertools.accumulate(_line_similarities(stripped, quoted))]
    starts = range(max(len(stripped) - width, 0) + 1)
    candidates = heapq.nlargest(
        5, starts, key=lambda start: sums[min(start + width, len(stripped))] - sums[start]
    )
    text = "\n".join(quoted)
    best_start, best_ratio = 0, -1.0
    for start in sorted(candidates):
        ratio = _similarity("\n".join(stripped[start : start + width]), text)
        if ratio > best_ratio:
            best_start, best_ratio = start, ratio
    if best_ratio < 0.4:
        return None
    return best_start, min(best_start + width, len(stripped))


def _similarity(first: str, second: str) -> float:
    """Return the similarity of two texts, from 0 to 1. Short texts are compared by characters,
    longer ones by words.
    """
    if max(len(first), len(second)) <= SHORT:
        return difflib.SequenceMatcher(None, first, second, autojunk=False).ratio()
    first_words, second_words = Counter(_WORD.findall(first)), Counter(_WORD.findall(second))
    shared = (first_words & second_words).total()
    return 2 * shared / max(first_words.total() + second_words.total(), 1)


def _line_similarities(lines: Sequence[str], quoted: Sequence[str]) -> Iterator[float]:
    """Yield for each line its best similarity (0 to 1) to a line of `quoted`, by common words."""
    quoted_words = [set(_WORD.findall(line)) for line in quoted]
    indexes_by_word: dict[str, list[int]] = {}
    for index, words in enumerate(quoted_words):
        for word in words:
            indexes_by_word.setdefault(word, []).append(index)
    for line in lines:
        words = set(_WORD.findall(line))
        shared = Counter[int]()
        for word in words:
            shared.update(indexes_by_word.get(word, ())[:SHARING])
        best = 0.0
        for index, count in shared.items():
            best = max(best, count / (len(words) + len(quoted_words[index]) - count))
        yield best


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
    text = _remove_fence(text.replace("\r\n", "\n"))
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


def _remove_fence(text: str) -> str:
    """Remove a Markdown fence around the text."""
    match = re.search(r"^```\w*\n(.*?)^```\s*$", text, re.MULTILINE | re.DOTALL)
    return match.group(1) if match else text


_MARKS = ("Begin Patch", "Update File:", "Add File:", "Delete File:")


def _begin_patch(lines: _Lines) -> list[FilePatch]:
    files: list[FilePatch] = []
    while lines.more:
        line = lines.next()
        if line.startswith("*** Add File:"):
            files.append(
                FilePatch("add", line[13:].strip(), (Hunk((), tuple(_added_lines(lines))),))
            )
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


def _added_lines(lines: _Lines) -> list[str]:
    added = []
    while lines.more and not lines.peek().startswith("*** "):
        line = lines.next()
        if line and not line.startswith("+"):
            raise PatchError(f"`{line[:80]}`: every line of an added file starts with +")
        added.append(line[1:])
    return added


def _marked_hunks(lines: _Lines) -> list[Hunk]:
    hunks = []
    while lines.more and not (
        lines.peek().startswith("*** ") and "End of File" not in lines.peek()
    ):
        anchors, line = list[str](), None
        while lines.peek().startswith("@@"):
            header = lines.next()
            match = _HUNK.match(header)
            line = int(match.group(1)) if match else None
            anchors = [] if match else [*anchors, header[2:].strip().removesuffix("@@").strip()]
        old, new = _hunk_lines(lines)
        if lines.peek().startswith("*** End of File"):
            lines.next()
        if old or new:
            hunks.append(Hunk(tuple(old), tuple(new), line, "\n".join(filter(None, anchors))))
        elif lines.more and not lines.peek().startswith(("@@", "*** ")):
            raise PatchError(f"`{lines.peek()[:80]}`: lines of a hunk start with a space, - or +")
    return hunks


def _hunk_lines(
    lines: _Lines, old_count: int | None = None, new_count: int | None = None
) -> tuple[list[str], list[str]]:
    """Return the old and new lines of one hunk: as many as the counts say, if those are all hunk
    lines.
    """
    start = lines.at
    if old_count is not None and new_count is not None:
        counted = _counted_lines(lines, old_count, new_count)
        if counted is not None:
            return counted
        lines.at = start
    old: list[str] = []
    new: list[str] = []
    while lines.more and not _ends_hunk(lines):
        line = lines.next()
        if not line.startswith("\\"):
            _add_line(line, old, new)
    while old and new and not old[-1] and not new[-1] and not lines.lines[lines.at - 1].strip():
        old.pop()  # blank lines between the hunk and what follows
        new.pop()
        lines.at -= 1
        if lines.at <= start:
            break
    return old, new


def _counted_lines(
    lines: _Lines, old_count: int, new_count: int
) -> tuple[list[str], list[str]] | None:
    """Return the lines of a hunk with right counts, else None."""
    old: list[str] = []
    new: list[str] = []
    while len(old) < old_count or len(new) < new_count:
        if not lines.more or not (not lines.peek() or lines.peek()[0] in " +-\\"):
            return None
        line = lines.next()
        if not line.startswith("\\"):
            _add_line(line, old, new)
    if (len(old), len(new)) != (old_count, new_count):
        return None
    goes_on = lines.peek()[:1] in {"+", "-", " "} and not _ends_hunk(lines)
    return None if goes_on else (old, new)


def _add_line(line: str, old: list[str], new: list[str]) -> None:
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
    headers: dict[str, str] = {}
    while lines.more and not _has_names(lines):
        if lines.peek().startswith(("diff --git ", "@@")):
            break
        line = lines.next()
        _refuse_binary(line)
        match = _GIT.match(line)
        if match:
            headers[match["what"]] = match["value"].strip()
    modes = [value for name, value in headers.items() if name.endswith("mode")]
    if any(mode.startswith(("12", "16")) for mode in modes):
        raise PatchError(
            "it is about a link or a repository in this one; that cannot be done with a patch"
        )
    if "copy to" in headers:
        raise PatchError(f"it copies a file; add {headers['copy to']} with all its lines instead")
    mode = headers.get("new mode", headers.get("new file mode", ""))
    executable = mode.endswith("755") if mode else None
    if "rename to" in headers:
        if _has_names(lines):
            lines.next()
            lines.next()
        return [
            FilePatch(
                "update",
                headers["rename from"],
                tuple(_hunks(lines)),
                headers["rename to"],
                executable,
            )
        ]
    if _has_names(lines):
        return [replace(_file(lines), executable=executable)]
    kind: PatchKind = "update"
    if "deleted file mode" in headers:
        kind = "delete"
    elif "new file mode" in headers:
        kind = "add"
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
        match = _HUNK.match(lines.next())
        start = lines.at
        if match is None:
            number = None
            old, new = _hunk_lines(lines)
        else:
            number = int(match.group(1))
            old, new = _hunk_lines(lines, int(match.group(2) or 1), int(match.group(3) or 1))
        if lines.peek().startswith("\\"):
            lines.next()
        ends_without_newline = None
        if any(line.startswith("\\") for line in lines.lines[start : lines.at]):
            index = lines.at - 1
            while index > 0 and not lines.lines[index].startswith("\\"):
                index -= 1
            ends_without_newline = lines.lines[index - 1][:1] in {"+", " "}
        hunks.append(Hunk(tuple(old), tuple(new), number, "", ends_without_newline))
    return hunks
