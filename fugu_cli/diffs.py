"""A change as a unified diff, from the contents before and after. Pure; binary contents are said to be so."""

from __future__ import annotations

import difflib


def unified(path: str, before: bytes | None, after: bytes | None) -> str:
    """A diff as `git apply` reads it, for text; one sentence for anything else. None: the file did not exist."""
    names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    if b"\0" in (before or b"") or b"\0" in (after or b""):
        return f"--- {names[0]}\n+++ {names[1]}\nbinary file, {len(before or b'')} -> {len(after or b'')} bytes\n"
    old, new = _lines(before), _lines(after)
    text = []
    for line in difflib.unified_diff(old, new, *names, n=3):
        text.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return "".join(text)


def _lines(data: bytes | None) -> list[str]:
    return (data or b"").decode("utf-8", "surrogateescape").splitlines(keepends=True)
