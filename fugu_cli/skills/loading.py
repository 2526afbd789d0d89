"""Finding skills and custom commands: in which folders, which of them count, and what is left out and why.

Called where the configuration is read (config/files.py), which says what is trusted. A file with a fault is named and
left out alone. Looks at the disk, runs nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeVar

from fugu_cli.policy.paths import inside, real
from fugu_cli.skills.command import Custom, command_at
from fugu_cli.skills.frontmatter import Fault
from fugu_cli.skills.skill import FILE, Skill, skill_at

FOLDERS = (".agents", ".claude")
"""Folders of a repository, or of the home, that hold `skills/` and `commands/`; what the first says goes before."""
DEEPEST = 4
"""Folders of commands within one another."""
Kind = Literal["skill", "command"]
Found = TypeVar("Found", Skill, Custom)


@dataclass(frozen=True)
class Place:
    """A folder that may hold `skills/` and `commands/`. `shown` is how agents name it.

    `base` is the folder it must not lead out of, None for the user's own, whose folders may lie anywhere.
    """

    folder: Path
    shown: str
    base: Path | None = None
    trusted: bool = True

    @property
    def own(self) -> bool:
        """It is the user's."""
        return self.base is None


@dataclass(frozen=True)
class Left:
    """What is not used, and why. `quiet`: that is as it should be."""

    kind: Kind
    name: str
    path: Path
    why: str
    quiet: bool = False


@dataclass(frozen=True)
class Library:
    """What counts here, the nearest first, and what does not. `notes` are sentences for people."""

    skills: tuple[Skill, ...] = ()
    commands: tuple[Custom, ...] = ()
    left: tuple[Left, ...] = ()
    notes: tuple[str, ...] = ()

    def skill(self, name: str) -> Skill | None:
        """The skill of this name."""
        return next((one for one in self.skills if one.name == name), None)

    def command(self, name: str) -> Custom | None:
        """The command of this name."""
        return next((one for one in self.commands if one.name == name), None)


def load(places: Sequence[Place]) -> Library:
    """Everything in these places. Of two with one name the first place's counts."""
    skills: dict[str, Skill] = {}
    commands: dict[str, Custom] = {}
    left: list[Left] = []
    notes: list[str] = []
    for place in places:
        found, faults = _skills(place)
        more, others = _commands(place)
        faults += others
        if place.trusted:
            left += [*faults, *_taken("skill", found, skills), *_taken("command", more, commands)]
        elif found or more or faults:
            here = [*_waiting("skill", found), *_waiting("command", more)]
            notes += [f"{place.folder} names {_listed(here)}: none is used until you run `fugu trust` here"] * bool(
                here
            )
            left += [*here, *(replace(fault, quiet=True) for fault in faults)]
    notes += [f"{one.path}: {one.why}; the {one.kind} is left out" for one in left if not one.quiet]
    return Library(tuple(skills.values()), tuple(commands.values()), tuple(left), tuple(notes))


def named_files(folder: Path) -> Iterator[Path]:
    """Files in `folder`, resolved, that its skills and commands lead to by links out of their own folder: they tell
    agents what to do like the others there, which are not among them."""
    for name in FOLDERS:
        place, agents = Place(folder / name, name, base=folder), folder / name
        for skill in _entries(agents / "skills", "skill", []):
            if _holds(skill) and (found := _resolved(skill, place)) is not None and not inside(found, agents):
                yield from (Path(at) / name for at, _, names in os.walk(found) for name in names)
        for path in _files(agents / "commands", DEEPEST, []):
            if inside(real(path), folder) and not inside(real(path), agents):
                yield real(path)


def _resolved(skill: Path, place: Place) -> Path | None:
    try:
        return _skill_folder(skill, place)
    except Fault:
        return None


def _skills(place: Place) -> tuple[list[Skill], list[Left]]:
    skills: list[Skill] = []
    left: list[Left] = []
    top = place.folder / "skills"
    for folder in _entries(top, "skill", left):
        if not _holds(folder):
            continue
        shown = f"{place.shown}/skills/{folder.name}"
        try:
            skills.append(skill_at(_skill_folder(folder, place), shown, own=place.own))
        except Fault as fault:
            left.append(Left("skill", folder.name, folder / FILE, str(fault)))
    return skills, left


def _holds(folder: Path) -> bool:
    """It is a folder that holds, or should hold, a skill."""
    return _is_folder(folder) and os.path.lexists(folder / FILE)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _skill_folder(folder: Path, place: Place) -> Path:
    """The folder, links followed. Raises Fault where it leads to what the user was not asked about."""
    resolved, file = real(folder), real(folder / FILE)
    if file.parent != resolved:
        raise Fault("it is a link that leads out of the skill's folder")
    if place.base is not None:
        if not inside(resolved, place.base):
            raise Fault(f"its folder is a link that leads out of {place.base}")
        if inside(real(place.folder), resolved):
            raise Fault("its folder is a link to a folder around it")
    return resolved


def _commands(place: Place) -> tuple[list[Custom], list[Left]]:
    commands: list[Custom] = []
    left: list[Left] = []
    seen: set[str] = set()
    for path in _files(place.folder / "commands", DEEPEST, left):
        name = ":".join(path.relative_to(place.folder / "commands").with_suffix("").parts)
        try:
            resolved = real(path)
            if place.base is not None and not inside(resolved, place.base):
                raise Fault(f"it is a link that leads out of {place.base}")
            if name in seen:
                raise Fault(f"another file here is the command {name}")
            commands.append(command_at(resolved, name, own=place.own))
            seen.add(name)
        except Fault as fault:
            left.append(Left("command", name, path, str(fault)))
    return commands, left


def _files(folder: Path, deep: int, left: list[Left]) -> Iterator[Path]:
    """Its `.md` files, those of folders in it after them."""
    entries = _entries(folder, "command", left)
    yield from (path for path in entries if path.suffix == ".md" and not _is_folder(path))
    for path in entries:
        if _is_folder(path) and deep > 1:
            yield from _files(path, deep - 1, left)


def _entries(folder: Path, kind: Kind, left: list[Left]) -> list[Path]:
    """What is in it, by name, hidden entries left out; nothing where there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        left.append(Left(kind, folder.name, folder, f"it cannot be read: {error.strerror}"))
        return []


def _taken(kind: Kind, found: Sequence[Found], known: dict[str, Found]) -> Iterator[Left]:
    """Take up what has a new name."""
    for one in found:
        if one.name in known:
            why = f"{file_of(known[one.name])} has the same name and is nearer"
            yield Left(kind, one.name, file_of(one), why, quiet=True)
        else:
            known[one.name] = one


def _waiting(kind: Kind, found: Sequence[Found]) -> list[Left]:
    return [
        Left(kind, one.name, file_of(one), "its folder is not trusted; `fugu trust` there", quiet=True) for one in found
    ]


def file_of(one: Skill | Custom) -> Path:
    """The file that says what it is."""
    return one.file


def _listed(left: Sequence[Left]) -> str:
    """`the skills a, b and the command c`."""
    parts = []
    for kind in ("skill", "command"):
        names = [one.name for one in left if one.kind == kind]
        if names:
            parts.append(f"the {kind}{'s' * (len(names) > 1)} {', '.join(names)}")
    return " and ".join(parts)
