"""A custom command: a request written once in a file, with places for what is typed after its name.

Under loading.py, which finds the files; beside skill.py. Nothing in it is run: it is text for agents.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from fugu_cli.skills.frontmatter import Fault, read

BUILT_IN = frozenset(
    (
        *("help", "?", "new", "clear", "sessions", "resume", "fork", "rename", "continue", "undo", "redo", "diff"),
        *("blame", "jobs", "retry", "skip", "pin", "exclude", "pool", "model", "tier", "cost", "trace", "mode"),
        *("permissions", "skill", "skills", "compact", "copy", "export", "theme", "notify", "doctor", "quit"),
        *("exit", "q"),
    )
)
"""The interface's own commands (ui/tui/commands/table.py): no file takes their names."""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
ABOUT = 200
"""Characters of a description that lists show."""
Tier = Literal["", "fugu", "ultra"]
TIERS: tuple[Tier, ...] = get_args(Tier)
_PLACE = re.compile(r"(?P<kept>\\)?\$(?P<what>ARGUMENTS|[1-9])(?!\w)")


@dataclass(frozen=True)
class Custom:
    """`name` as it is typed after the slash, folders before a colon. `agent` takes every turn, in `tier`; "" where the
    file names none. `own`: it is the user's, not the repository's."""

    name: str
    about: str
    body: str
    hint: str
    agent: str
    tier: Tier
    file: Path
    own: bool

    def request(self, typed: str) -> str:
        """The body with the arguments in their places; after it where it has no place for them."""
        words = _words(typed)
        taken = False

        def put(found: re.Match[str]) -> str:
            nonlocal taken
            what = found["what"]
            if found["kept"]:
                return f"${what}"
            taken = True
            if what == "ARGUMENTS":
                return typed
            return words[int(what) - 1] if int(what) <= len(words) else ""

        text = _PLACE.sub(put, self.body)
        return text if taken or not typed else f"{text}\n\nArguments: {typed}"


def _words(typed: str) -> list[str]:
    try:
        return shlex.split(typed)
    except ValueError:  # a lone quote is a letter like any other
        return typed.split()


def command_at(file: Path, name: str, *, own: bool) -> Custom:
    """The command in a file. Raises Fault."""
    if not all(NAME.fullmatch(part) for part in name.split(":")):
        raise Fault("its name cannot be typed: letters, digits, `_`, `-` and `.` only")
    if name in BUILT_IN:
        raise Fault(f"/{name} is a command of fugu's own, which wins")
    document, _ = read(file)
    if not document.body:
        raise Fault("it says nothing")
    wanted = document.text("tier")
    tier: Tier | None = next((known for known in TIERS if known == wanted), None)
    if tier is None:
        raise Fault(f"its `tier` is {wanted!r}: fugu or ultra")
    about = document.text("description") or document.body.splitlines()[0].lstrip("# ").strip()
    return Custom(
        name=name,
        about=_plain(about)[:ABOUT],
        body=document.body,
        hint=_plain(document.listed("argument-hint")),
        agent=document.text("agent"),
        tier=tier,
        file=file,
        own=own,
    )


def _plain(text: str) -> str:
    return "".join(letter for letter in text if letter.isprintable())
