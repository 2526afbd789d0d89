"""AGENTS.md, the user's standing instructions to every agent: which of them count, and how much of each is shown.

Between config/files.py, whose `load` says what is cut, and wiring.py, which hands the text on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import ConfigError
from fugu_cli.policy.paths import is_file

NAME = "AGENTS.md"
LIMIT = 6000
"""Characters of all of them together, each an equal part: every call of every agent pays for them."""


@dataclass(frozen=True)
class Standing:
    """What agents are shown, and sentences for people about what they are not."""

    text: str
    notes: tuple[str, ...]


def standing(root: Path | None, below: Sequence[Path]) -> Standing:
    """Those of the folder `root`, None where it is not trusted, and of the files `below`. Raises ConfigError."""
    files = [("", root / NAME)] if root is not None and is_file(root / NAME) else []
    files += [(f" of {path.parent.name}/, for work there", path) for path in below]
    room = LIMIT // max(len(files), 1)
    parts, notes = [], []
    for place, path in files:
        try:
            said = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", hint="make it readable, or remove it") from error
        parts.append(f"\nThe user's standing instructions ({NAME}{place}):\n{said[:room]}")
        if len(said) > room:
            notes.append(f"{path}: agents are shown its first {room:,} of {len(said):,} characters")
    return Standing("\n".join(parts), tuple(notes))
