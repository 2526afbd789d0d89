"""What a small model leaves out of a file in a language of braces stays in it.

Below merging.py. Pure. A file is a row of pieces that begin at the left margin, told apart by their heads: functions,
classes, blocks, constants, imports, each with the comment above it. No language is parsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fugu_cli.repair import functions
from fugu_cli.repair.elided import stands_in

_IMPORT = re.compile(r"\s*(?:(?:import|use|#include|package|using)\b|(?:const|let|var)\b.*\brequire\()")
_PACKAGE = re.compile(r"\s*package\b")
_ABOVE = re.compile(r"\s*(?://|/\*|\*|#\[|@)")
_CLOSING = re.compile(r"\s*[)\]}]")
_RECEIVER = re.compile(r"\s*func\s+\(\s*\w*\s*\*?\s*([\w.]+)")
_HELD = re.compile(
    r"\s*(?:(?:export|default|pub(?:\([^)]*\))?|abstract|static|public|private|protected|final|declare|data|unsafe)\s+)*"
    r"(class|struct|enum|trait|interface|impl|mod|type|namespace|record|object|protocol|extension)\b\s*([^{;=]*)"
)
_NAMED = re.compile(
    r"\s*(?:(?:export|default|pub(?:\([^)]*\))?|static|public|private|protected|final)\s+)*"
    r"(?:const|let|var|static|val)\s+(?:mut\s+)?(\w+)"
)
_EXPORT = re.compile(r"module\.exports\b|export (?:default\b|\{)|['\"]use strict")
_BINDING = frozenset(
    {
        "import",
        "use",
        "include",
        "package",
        "const",
        "let",
        "var",
        "require",
        "from",
        "as",
        "pub",
        "crate",
        "self",
        "std",
    }
)
_CALL = re.compile(r"[\w.]+\(")
MERGED = frozenset({"class", "impl", "mod", "trait", "interface", "namespace", "object", "extension"})
"""Kinds of pieces whose members are merged one by one."""


@dataclass(frozen=True)
class Piece:
    """Lines `start` to `end`, from 0; its head is on the line `head`. `kind` and `name` say what it declares."""

    kind: str
    name: str
    start: int
    head: int
    end: int

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return self.kind, self.name


def completed_in_braces(shown: str, body: str) -> str:
    """`body` with what it leaves out of the file `shown`; as it is where it leaves nothing out, or is no part of it;
    and `shown` where it only stands in for something that cannot be put back."""
    lines, written = shown.split("\n"), body.split("\n")
    known = {line.strip() for line in lines}
    inside = {number for _, start, end in functions.in_braces(written) for number in range(start + 1, end - 1)}
    marks = {n for n, line in enumerate(written) if line.strip() not in known and stands_in(line, sure=n in inside)}
    marks -= {n for n in marks - inside if not _declared(_pieces(lines)) and not written[n].strip(" .…")}
    kept = [line for number, line in enumerate(written) if number not in marks - inside]
    merged = _merged(lines, kept, whole=not marks)
    if merged is not None and not any(n in inside and written[n] in merged for n in marks):
        return "\n".join(merged)
    return shown if marks else body


def _merged(lines: list[str], written: list[str], *, whole: bool = True) -> list[str] | None:
    """None where there is nothing to merge: `written` may be the `whole` file, and leaves nothing out."""
    old, new = _pieces(lines), _pieces(written)
    before, after = _declared(old), _declared(new)
    both = [key for key in before if key in after]
    if len(before) < _count(old) or len(after) < _count(new):
        return None
    if not both:
        return _into_one(lines, old, written, new)
    texts = {key: _rewritten(lines, before[key], written, after[key]) for key in both}
    bare = [key for key in both if texts[key] != written[after[key].start : after[key].end]]
    if whole and not (before.keys() - after.keys() or bare or _lacks(lines, old, written, new)):
        return None
    known = {_text(lines, piece) for piece in old}
    others = [piece for piece in new if piece.kind == "other" and _text(written, piece) not in known]
    if not all(_EXPORT.match(written[piece.head]) or _CALL.match(written[piece.head]) for piece in others):
        return None
    fresh = [piece for piece in new if piece.key not in before and piece.kind not in ("other", "import")]
    added = [piece for piece in fresh if piece.kind != "constant"]
    last = max(before[key].end for key in both)
    result = list(lines)
    first = {key: (before[key].start, before[key].end) for key in both}
    result[last:last] = [line for piece in added for line in ("", *written[piece.start : piece.end])]
    for key, (start, end) in sorted(first.items(), key=lambda one: -one[1][0]):
        result[start:end] = texts[key]
    packaged = any(_PACKAGE.match(lines[piece.head]) for piece in old)
    imports = [
        piece
        for piece in new
        if piece.kind == "import"
        and _text(written, piece) not in known
        and not (packaged and _PACKAGE.match(written[piece.head]))
    ]
    top = min(before[key].start for key in both)
    place = max((piece.end for piece in old if piece.kind == "import" and piece.end <= top), default=0)
    constants = [line for piece in fresh if piece.kind == "constant" for line in written[piece.start : piece.end]]
    above = [line for piece in imports for line in written[piece.head : piece.end]]
    if constants:
        above += ["", *constants] if place else [*constants, ""]
    result[place:place] = above
    return result


def _lacks(lines: Sequence[str], old: Sequence[Piece], written: Sequence[str], new: Sequence[Piece]) -> bool:
    """`new` holds definitions and nothing else, where `old` has imports, exports or code that runs; or it uses a name
    that only `old` imports."""
    others = [
        piece for piece in new if piece.kind == "import" or (piece.kind == "other" and not _tries(written, piece))
    ]
    if not others:
        return any(piece.kind in ("import", "other") for piece in old)
    imported = _words(lines, [piece for piece in old if piece.kind == "import"])
    own = _words(written, [piece for piece in new if piece.kind == "import"]) | {piece.name for piece in new}
    used = _words(written, [piece for piece in new if piece.kind != "import"])
    return bool((imported & used) - own - _BINDING)


def _tries(lines: Sequence[str], piece: Piece) -> bool:
    return _CALL.match(lines[piece.head]) is not None


def _words(lines: Sequence[str], pieces: Sequence[Piece]) -> set[str]:
    return {word for piece in pieces for word in re.findall(r"\w+", "\n".join(lines[piece.head : piece.end]))}


def _into_one(lines: list[str], old: Sequence[Piece], written: list[str], new: Sequence[Piece]) -> list[str] | None:
    """Functions alone that are all members of one class or block of the file go into it."""
    wanted = {piece.name for piece in new if piece.kind == "function"}
    if not wanted or len(wanted) < len(new):
        return None
    for piece in old:
        inside = lines[piece.head + 1 : piece.end - 1]
        members, depth = _dedented(inside)
        if piece.kind in MERGED and wanted <= {one.name for one in _pieces(members) if one.kind == "function"}:
            merged = _merged(members, _dedented(written)[0])
            if merged is not None:
                full = [depth + line if line.strip() else line for line in merged]
                return [*lines[: piece.head + 1], *full, *lines[piece.end - 1 :]]
    return None


def _rewritten(lines: Sequence[str], was: Piece, written: Sequence[str], now: Piece) -> list[str]:
    """The lines of `now` with the comment of `was`, where it has none, and with the members that it leaves out."""
    if was.kind not in MERGED and _elided(written[now.head + 1 : now.end]):
        own = lines[was.head + 1 : was.end]
        return list(written[now.start : now.end] if _elided(own) else lines[was.start : was.end])
    above = list(written[now.start : now.head]) or list(lines[was.start : was.head])
    inside = list(written[now.head : now.end])
    if was.kind in MERGED and was.end - was.head > 2:
        members = _inside(lines[was.head + 1 : was.end - 1], written[now.head + 1 : now.end - 1])
        inside = inside if members is None else [inside[0], *members, inside[-1]]
    return [*above, *inside]


def _elided(lines: Sequence[str]) -> bool:
    """Of a function's lines below its head, one stands for others, or all that are no brackets do."""
    said = [line for line in lines if line.strip(" \t()[]{};,")]
    return any(stands_in(line, sure=True) for line in lines) or (bool(said) and all(map(stands_in, said)))


def _inside(lines: Sequence[str], written: Sequence[str]) -> list[str] | None:
    """The members of a piece, merged as those of a file are."""
    (old, depth), (new, _) = _dedented(lines), _dedented(written)
    before, after = _pieces(old), _pieces(new)
    members = {piece.key for piece in before}
    if after and all(piece.kind == "function" and piece.key not in members for piece in after):
        return [depth + line if line.strip() else line for line in [*old, "", *new]]
    merged = _merged(old, new)
    return None if merged is None else [depth + line if line.strip() else line for line in merged]


def _dedented(lines: Sequence[str]) -> tuple[list[str], str]:
    full = [line for line in lines if line.strip()]
    width = min((len(line) - len(line.lstrip()) for line in full), default=0)
    return [line[width:] for line in lines], full[0][:width] if full else ""


def _pieces(lines: Sequence[str]) -> list[Piece]:
    found: list[Piece] = []
    number = 0
    while number < len(lines):
        if not lines[number].strip():
            number += 1
            continue
        start = number
        while number < len(lines) and (
            _ABOVE.match(lines[number]) or (number > start and _commented(lines, start, number))
        ):
            number += 1
        if number == len(lines) or not lines[number].strip():
            found.append(Piece("other", "", start, start, number))
            continue
        head, number = number, number + 1
        while number < len(lines) and _goes_on(lines, head, number):
            number += 1
        while number > head + 1 and not lines[number - 1].strip():
            number -= 1
        found.append(Piece(*_declares(lines[head]), start, head, number))
    return found


def _commented(lines: Sequence[str], start: int, number: int) -> bool:
    """The line is inside a comment that begins with a star and is not closed yet."""
    text = "\n".join(lines[start:number])
    return text.rfind("/*") > text.rfind("*/")


def _goes_on(lines: Sequence[str], head: int, number: int) -> bool:
    """The line belongs to the piece that began on the line `head`: it is indented, empty, or closes what is open."""
    line = lines[number]
    if not line.strip() or line[0].isspace():
        return True
    return _CLOSING.match(line) is not None and not _closed(lines, head, number)


def _closed(lines: Sequence[str], head: int, number: int) -> bool:
    before = next((lines[n] for n in range(number - 1, head - 1, -1) if lines[n].strip()), "")
    return number - 1 > head and not before[:1].isspace() and before.rstrip().endswith(("}", "};"))


def _declares(line: str) -> tuple[str, str]:
    """Kind and name of what begins on this line; "other" and the line where it declares nothing."""
    if _IMPORT.match(line):
        return "import", line.strip()
    if held := _HELD.match(line):
        return held[1], " ".join(held[2].split())
    if name := functions.head(line):
        receiver = _RECEIVER.match(line)
        return "function", f"{receiver[1]}.{name}" if receiver else name
    if named := _NAMED.match(line):
        return "constant", named[1]
    return "other", line.strip()


def _declared(pieces: Sequence[Piece]) -> Mapping[tuple[str, str], Piece]:
    return {piece.key: piece for piece in pieces if piece.kind not in ("other", "import")}


def _count(pieces: Sequence[Piece]) -> int:
    return sum(piece.kind not in ("other", "import") for piece in pieces)


def _text(lines: Sequence[str], piece: Piece) -> str:
    return "\n".join(line.strip() for line in lines[piece.head : piece.end])
