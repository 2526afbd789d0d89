"""Finding skills, custom commands and subagents: which count, which are left out and why, and the
request a typed line stands for.

Called where the configuration is read, which says what is trusted. A file with a fault is named and
left out alone. `fugu skills` and `/skills` show the list. A typed line becomes a request between
the interface and the session, which records both. Reads files, runs nothing.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from fugu_cli.errors import UsageError
from fugu_cli.extensions.skills import (
    BUILT_IN,
    SKILL_FILE,
    CustomCommand,
    DocumentError,
    Skill,
    command_at,
    skill_at,
)
from fugu_cli.safety.paths import inside, path_exists, quoted_path, real_path

if TYPE_CHECKING:
    from fugu_cli.extensions.subagents import Subagent

FOLDERS = (".agents", ".claude")
"""Folders of a repository, or of the home, that hold `skills/`, `commands/` and `agents/`; the
first's go before.
"""
DEEPEST_FOLDER = 4
"""Folders of commands within one another."""
LibraryKind = Literal["skill", "command", "agent"]
LIBRARY_KINDS: tuple[LibraryKind, ...] = get_args(LibraryKind)
Found = TypeVar("Found", Skill, CustomCommand, "Subagent")


@dataclass(frozen=True)
class ExtensionFolder:
    """A folder that may hold `skills/`, `commands/` and `agents/`. `shown` is how agents name it.

    `base` is the folder it must not lead out of, None for the user's own, whose folders may lie
    anywhere.
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
class ExcludedFile:
    """What is not used, and why. `quiet`: that is as it should be."""

    kind: LibraryKind
    name: str
    path: Path
    why: str
    quiet: bool = False


@dataclass(frozen=True)
class SkillLibrary:
    """What counts here, the nearest first, and what does not. `notes` are sentences for people;
    `untrusted` are folders of which nothing counts before the user trusts them.
    """

    skills: tuple[Skill, ...] = ()
    commands: tuple[CustomCommand, ...] = ()
    agents: tuple[Subagent, ...] = ()
    left: tuple[ExcludedFile, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted: tuple[Path, ...] = ()

    def skill(self, name: str) -> Skill | None:
        """The skill of this name."""
        return next((one for one in self.skills if one.name == name), None)

    def command(self, name: str) -> CustomCommand | None:
        """The command of this name."""
        return next((one for one in self.commands if one.name == name), None)


def load_library(places: Sequence[ExtensionFolder]) -> SkillLibrary:
    """Everything in these places. Of two with one name the first place's counts."""
    skills: dict[str, Skill] = {}
    commands: dict[str, CustomCommand] = {}
    agents: dict[str, Subagent] = {}
    left: list[ExcludedFile] = []
    notes: list[str] = []
    untrusted: list[Path] = []
    for place in places:
        faults: list[ExcludedFile] = []
        found, more, helpers = (
            _skills(place, faults),
            _commands(place, faults),
            _subagents(place, faults),
        )
        if place.trusted:
            left += [*faults, *_taken("skill", found, skills), *_taken("command", more, commands)]
            left += _taken("agent", helpers, agents)
        elif found or more or helpers or faults:
            here = [
                *_waiting("skill", found),
                *_waiting("command", more),
                *_waiting("agent", helpers),
            ]
            if here:
                untrusted.append(place.folder)
                notes.append(
                    f"{place.folder} names {_listed(here)}: none is used until you run "
                    f"`fugu trust` here"
                )
            left += [*here, *(replace(fault, quiet=True) for fault in faults)]
    notes += [
        f"{one.path}: {one.why}; the {_word(one.kind)} is left out" for one in left if not one.quiet
    ]
    counting = (tuple(skills.values()), tuple(commands.values()), tuple(agents.values()))
    return SkillLibrary(*counting, tuple(left), tuple(notes), tuple(untrusted))


def files_linked_from_library(folder: Path) -> Iterator[Path]:
    """Files in `folder`, resolved, that its skills, commands and subagents lead to by links out of
    their own folder: they tell agents what to do like the others there, which are not among
    them."""
    for name in FOLDERS:
        place, agents = ExtensionFolder(folder / name, name, base=folder), folder / name
        for skill in _entries(agents / "skills", "skill", []):
            if (
                _holds(skill)
                and (found := _resolved(skill, place)) is not None
                and not inside(found, agents)
            ):
                yield from (Path(at) / name for at, _, names in os.walk(found) for name in names)
        for path in (
            *_files(agents / "commands", DEEPEST_FOLDER, []),
            *_files(agents / "agents", 1, [], "agent"),
        ):
            if inside(real_path(path), folder) and not inside(real_path(path), agents):
                yield real_path(path)


def _resolved(skill: Path, place: ExtensionFolder) -> Path | None:
    try:
        return _skill_folder(skill, place)
    except DocumentError:
        return None


def _skills(place: ExtensionFolder, left: list[ExcludedFile]) -> list[Skill]:
    """Its skills; those with a fault are added to `left`."""
    skills: list[Skill] = []
    top = place.folder / "skills"
    for folder in _entries(top, "skill", left):
        if not _holds(folder):
            continue
        shown = f"{place.shown}/skills/{folder.name}"
        try:
            skills.append(skill_at(_skill_folder(folder, place), shown, own=place.own))
        except DocumentError as fault:
            left.append(ExcludedFile("skill", folder.name, folder / SKILL_FILE, str(fault)))
    return skills


def _holds(folder: Path) -> bool:
    """It is a folder that holds, or should hold, a skill."""
    return _is_folder(folder) and os.path.lexists(folder / SKILL_FILE)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _skill_folder(folder: Path, place: ExtensionFolder) -> Path:
    """The folder, links followed. Raises DocumentError where it leads to what the user was not asked
    about.
    """
    resolved, file = real_path(folder), real_path(folder / SKILL_FILE)
    if file.parent != resolved:
        raise DocumentError("it is a link that leads out of the skill's folder")
    if place.base is not None:
        if not inside(resolved, place.base):
            raise DocumentError(f"its folder is a link that leads out of {place.base}")
        if inside(real_path(place.folder), resolved):
            raise DocumentError("its folder is a link to a folder around it")
    return resolved


def _commands(place: ExtensionFolder, left: list[ExcludedFile]) -> list[CustomCommand]:
    """Its commands; those with a fault are added to `left`."""
    commands: dict[str, CustomCommand] = {}
    for path in _files(place.folder / "commands", DEEPEST_FOLDER, left):
        name = ":".join(path.relative_to(place.folder / "commands").with_suffix("").parts)
        try:
            file = _file_inside(path, place)
            if name in commands:
                raise DocumentError(f"another file here is the command {name}")
            commands[name] = command_at(file, name, own=place.own)
        except DocumentError as fault:
            left.append(ExcludedFile("command", name, path, str(fault)))
    return list(commands.values())


def _subagents(place: ExtensionFolder, left: list[ExcludedFile]) -> list[Subagent]:
    """Its subagents; those with a fault are added to `left`."""
    found: dict[str, Subagent] = {}
    for path in _files(place.folder / "agents", 1, left, "agent"):
        from fugu_cli.extensions.subagents import subagent_at

        try:
            one = subagent_at(_file_inside(path, place), own=place.own)
            if one.name in found:
                raise DocumentError(f"{found[one.name].file.name} here has the same name")
            found[one.name] = one
        except DocumentError as fault:
            left.append(ExcludedFile("agent", path.stem, path, str(fault)))
    return list(found.values())


def _file_inside(path: Path, place: ExtensionFolder) -> Path:
    """The file, links followed. Raises DocumentError where it leads to what the user was not asked
    about.
    """
    resolved = real_path(path)
    if place.base is not None and not inside(resolved, place.base):
        raise DocumentError(f"it is a link that leads out of {place.base}")
    return resolved


def _files(
    folder: Path, deep: int, left: list[ExcludedFile], kind: LibraryKind = "command"
) -> Iterator[Path]:
    """Its `.md` files, those of folders in it after them."""
    entries = _entries(folder, kind, left)
    yield from (path for path in entries if path.suffix == ".md" and not _is_folder(path))
    for path in entries:
        if _is_folder(path) and deep > 1:
            yield from _files(path, deep - 1, left, kind)


def _entries(folder: Path, kind: LibraryKind, left: list[ExcludedFile]) -> list[Path]:
    """What is in it, by name, hidden entries left out; nothing where there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        left.append(ExcludedFile(kind, folder.name, folder, f"it cannot be read: {error.strerror}"))
        return []


def _taken(
    kind: LibraryKind, found: Sequence[Found], known: dict[str, Found]
) -> Iterator[ExcludedFile]:
    """Take up what has a new name."""
    for one in found:
        if one.name in known:
            why = f"{known[one.name].file} has the same name and is nearer"
            yield ExcludedFile(kind, one.name, one.file, why, quiet=True)
        else:
            known[one.name] = one


def _waiting(kind: LibraryKind, found: Sequence[Found]) -> list[ExcludedFile]:
    return [
        ExcludedFile(
            kind, one.name, one.file, "its folder is not trusted; `fugu trust` there", quiet=True
        )
        for one in found
    ]


def _listed(left: Sequence[ExcludedFile]) -> str:
    """`the skills a, b and the command c`."""
    parts = []
    for kind in LIBRARY_KINDS:
        names = [one.name for one in left if one.kind == kind]
        if names:
            parts.append(f"the {_word(kind)}{'s' * (len(names) > 1)} {', '.join(names)}")
    return " and ".join(parts)


def _word(kind: LibraryKind) -> str:
    return "subagent" if kind == "agent" else kind


EMPTY_LIBRARY = (
    "there are no skills, no commands and no subagents here\n"
    "`.agents/skills/NAME/SKILL.md`, `.agents/commands/NAME.md` and `.agents/agents/NAME.md` "
    "make some, in the "
    "repository or in your home; `fugu help skills` and `fugu help agents` say how"
)
WIDEST_NAME = 32
LibraryRow = tuple[str, str, str]
"""What it is called, what it says of itself, where it stands."""


def format_library(library: SkillLibrary, root: Path) -> str:
    """The whole list. Files are named from `root` or the user's home, where they lie there."""
    skills = [
        (one.name, one.description, display_path(one.file.parent, root)) for one in library.skills
    ]
    commands = [
        (
            f"/{one.name} {one.hint}".rstrip(),
            one.about + _pinned(one.agent, one.tier),
            display_path(one.file, root),
        )
        for one in library.commands
    ]
    agents = [
        (one.name, one.description + _pinned(one.model, ""), display_path(one.file, root))
        for one in library.agents
    ]
    left = [
        (f"{'/' * (one.kind == 'command')}{one.name}", one.why, display_path(one.path, root))
        for one in library.left
    ]
    parts = [
        *_part("skills", skills),
        *_part("commands", commands),
        *_part("subagents", agents),
        *_part("left out", left),
    ]
    return "\n".join(parts) if parts else EMPTY_LIBRARY


def display_path(path: Path, root: Path) -> str:
    """A path as people know it."""
    home = Path.home().resolve()
    if inside(path, root):
        return quoted_path(path.relative_to(root).as_posix())
    return quoted_path(
        f"~/{path.relative_to(home).as_posix()}" if inside(path, home) else str(path)
    )


def _part(title: str, rows: Sequence[LibraryRow]) -> list[str]:
    if not rows:
        return []
    width = min(max(len(name) for name, _, _ in rows), WIDEST_NAME)
    return [title, *(f"  {name:<{width}}  {said}  ({where})" for name, said, where in rows)]


def _pinned(agent: str, tier: str) -> str:
    said = ", ".join(
        part for part in (f"agent {agent}" if agent else "", f"tier {tier}" if tier else "") if part
    )
    return f" [{said}]" if said else ""


SKILL_COMMAND = "skill"
"""`/skill NAME TEXT`: the request TEXT, with what the skill says."""
MCP_PROMPT = "/mcp:"
"""What a line begins with that stands for a prompt of an MCP server: the session asks the server
for it.
"""
_LINE = re.compile(r"/(?P<name>[\w?][\w.:-]*)(?:\s+(?P<rest>.*))?", re.DOTALL)


@dataclass(frozen=True)
class TypedRequest:
    """`text` is what agents are asked; `typed` what the user wrote, where that is something else,
    or "".

    `skill` is what a skill says that the user named: it stands apart, so that its words are not
    taken for the user's. `agent` takes every turn, in `tier`; "" where nothing names them.
    """

    text: str
    typed: str = ""
    skill: str = ""
    agent: str = ""
    tier: str = ""


def parse_request(text: str, library: SkillLibrary) -> TypedRequest:
    """The request a line stands for. Raises UsageError for a skill that is not there or cannot be
    read, and for a command that is there and is left out."""
    found = _LINE.fullmatch(text.strip())
    if found is None or text.strip().startswith(MCP_PROMPT):
        return TypedRequest(text.strip() if found else text)
    name, rest = found["name"], (found["rest"] or "").strip()
    if name == SKILL_COMMAND:
        return _with_skill(text, rest, library)
    command = library.command(name)
    if command is None:
        refuse_left_out("command", name, library)
        return TypedRequest(text)
    return TypedRequest(command.request(rest), text.strip(), agent=command.agent, tier=command.tier)


def parse_headless_request(text: str, library: SkillLibrary) -> TypedRequest:
    """The same where no interface is: a command that only it has, or one that is not there, is
    refused. A path that is there (`/tmp is full`) is a word like any other."""
    line = _LINE.fullmatch(text.strip())
    name = line["name"] if line is not None and not text.strip().startswith(MCP_PROMPT) else ""
    if name in BUILT_IN - {SKILL_COMMAND}:
        raise UsageError(
            f"/{name} is a command of the terminal interface", hint="`fugu` alone opens it"
        )
    found = parse_request(text, library)
    near = difflib.get_close_matches(name, [command.name for command in library.commands], 1)
    if name and not found.typed and not path_exists(Path("/", name)):
        meant = f"did you mean /{near[0]}? " if near else ""
        raise UsageError(
            f"there is no command /{name}", hint=f"{meant}`fugu skills` lists those there are"
        )
    return found


def refuse_left_out(kind: LibraryKind, name: str, library: SkillLibrary) -> None:
    """Say why a skill or a command that was asked for is not used. Raises UsageError; does nothing
    for other names.
    """
    left = next((one for one in library.left if (one.kind, one.name) == (kind, name)), None)
    if left is not None:
        raise UsageError(
            f"the {kind} {name} is not used: {left.why}", hint=f"it stands in {left.path}"
        )


def _with_skill(text: str, rest: str, library: SkillLibrary) -> TypedRequest:
    if not rest:
        raise UsageError("which skill?", hint=_known(library))
    name, *wanted = rest.split(maxsplit=1)
    skill = library.skill(name)
    if skill is None:
        refuse_left_out("skill", name, library)
        near = difflib.get_close_matches(name, [one.name for one in library.skills], 1)
        raise UsageError(
            f"there is no skill {name!r}",
            hint=f"did you mean {near[0]}?" if near else _known(library),
        )
    try:
        told = skill.text()
    except DocumentError as fault:
        raise UsageError(
            f"{skill.file}: {fault}", hint="`fugu skills` lists what there is"
        ) from fault
    return TypedRequest(wanted[0] if wanted else f"Follow the skill `{name}`.", text.strip(), told)


def _known(library: SkillLibrary) -> str:
    names = ", ".join(skill.name for skill in library.skills)
    return (
        f"there are {names}"
        if names
        else "there are none here: `fugu help skills` says where they lie"
    )
