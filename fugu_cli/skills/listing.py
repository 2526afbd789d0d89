"""Skills and custom commands as a list for people: what there is, where it comes from, what is left out and why. Pure.

Shown by `fugu skills` and by `/skills` in the interface.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fugu_cli.policy.paths import inside, shown
from fugu_cli.skills.loading import Library

NOTHING = (
    "there are no skills and no commands here\n"
    "`.agents/skills/NAME/SKILL.md` and `.agents/commands/NAME.md` make some, in the repository or in your home; "
    "`fugu help skills` says how"
)
WIDEST = 32
Row = tuple[str, str, str]
"""What it is called, what it says of itself, where it stands."""


def listed(library: Library, root: Path) -> str:
    """The whole list. Files are named from `root` or the user's home, where they lie there."""
    skills = [(one.name, one.description, place(one.file.parent, root)) for one in library.skills]
    commands = [
        (f"/{one.name} {one.hint}".rstrip(), one.about + _pinned(one.agent, one.tier), place(one.file, root))
        for one in library.commands
    ]
    left = [(f"{'/' * (one.kind == 'command')}{one.name}", one.why, place(one.path, root)) for one in library.left]
    parts = [
        *_part("skills", skills),
        *_part("commands", commands),
        *_part("left out", left),
    ]
    return "\n".join(parts) if parts else NOTHING


def place(path: Path, root: Path) -> str:
    """A path as people know it."""
    home = Path.home().resolve()
    if inside(path, root):
        return shown(path.relative_to(root).as_posix())
    return shown(f"~/{path.relative_to(home).as_posix()}" if inside(path, home) else str(path))


def _part(title: str, rows: Sequence[Row]) -> list[str]:
    if not rows:
        return []
    width = min(max(len(name) for name, _, _ in rows), WIDEST)
    return [title, *(f"  {name:<{width}}  {said}  ({where})" for name, said, where in rows)]


def _pinned(agent: str, tier: str) -> str:
    said = ", ".join(part for part in (f"agent {agent}" if agent else "", f"tier {tier}" if tier else "") if part)
    return f" [{said}]" if said else ""
