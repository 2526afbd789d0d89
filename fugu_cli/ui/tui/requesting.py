"""What a typed line asks for: itself, or what a custom command or a named skill makes of it, with the files it names.

Between room.py, which sends it, and skills/. Reads a skill from the disk: for a thread.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.errors import UsageError
from fugu_cli.ui.tui.working import Typed

_MENTIONED = re.compile(r"""(?:^|(?<=[\s("'`]))@(?:"([^"\n]+)"|(\S+))""")
_AFTER = ",.;:!?)]}\"'`"

if TYPE_CHECKING:
    from fugu_cli.ui.tui.session import Session


def meant(session: Session, root: Path, text: str, pin: str | None = None) -> Typed:
    """The request a line stands for; `pin` goes before the agent that a command names. Raises UsageError."""
    from fugu_cli.skills.asking import request

    wanted = request(text, session.library)
    agent = pin or wanted.agent
    if agent and agent not in session.crew.members:
        what = f"{text.split()[0]} is for the agent {agent!r}, which is not in the pool"
        raise UsageError(what, hint=f"there are {', '.join(session.crew.members)}")
    return Typed(
        text=wanted.text,
        attachments=attachments(root, wanted.text),
        pin=agent or None,
        typed=wanted.typed,
        skill=wanted.skill,
        tier=wanted.tier,
    )


def attachments(root: Path, text: str) -> tuple[str, ...]:
    """The files that `@` names in a text: `@name`, or `@"a name"`, perhaps with the end of a sentence behind it."""
    found = (_named(root, [quoted] if quoted else _ends(word)) for quoted, word in _MENTIONED.findall(text))
    return tuple(dict.fromkeys(name for name in found if name))


def _ends(word: str) -> list[str]:
    """The word as it stands, then without one after the other of the signs at its end: they may belong to the name."""
    return [word[:end] for end in range(len(word), len(word.rstrip(_AFTER)) - 1, -1)]


def _named(root: Path, names: list[str]) -> str:
    return next((name for name in names if name and _is_file(root, name)), "")


def _is_file(root: Path, name: str) -> bool:
    try:
        return (root / name).is_file()
    except (OSError, ValueError):
        return False
