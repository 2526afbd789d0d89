"""Finds skills, custom commands and subagents, and turns a typed line into a request.

Called by the configuration, which says what is trusted. A faulty file is reported and left out
alone. `fugu skills` and `/skills` show the list. Reads files, runs nothing.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar, get_args

from fugu_cli.errors import UsageError
from fugu_cli.extensions.skills import (
    BUILT_IN,
    PLUGIN_ROOT,
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
"""Folders of a repository or the home that hold `skills/`, `commands/` and `agents/`. The first wins."""
DEEPEST_FOLDER = 4
"""The most levels of folders below `commands/`."""
LibraryKind = Literal["skill", "command", "agent"]
LIBRARY_KINDS: tuple[LibraryKind, ...] = get_args(LibraryKind)
Item = TypeVar("Item", Skill, CustomCommand, "Subagent")


@dataclass(frozen=True)
class ExtensionFolder:
    """A folder that may hold `skills/`, `commands/` and `agents/`. Agents see it as `shown`.

    Links must not lead out of `base`. It is None for the user's own folders, whose links may lead
    anywhere. `plugin` is the name of the plugin that the folder belongs to; `more` are folders and
    files beside the usual ones.
    """

    folder: Path
    shown: str
    base: Path | None = None
    trusted: bool = True
    plugin: str = ""
    more: Mapping[LibraryKind, tuple[Path, ...]] = field(default_factory=dict)

    def paths(self, kind: LibraryKind) -> tuple[Path, ...]:
        """Return the folders, and single files, that may hold this kind."""
        return (self.folder / f"{kind}s", *self.more.get(kind, ()))

    @property
    def own(self) -> bool:
        """True if the folder is the user's."""
        return self.base is None


@dataclass(frozen=True)
class ExcludedFile:
    """A file that is not used, and the reason. `quiet`: it is not a mistake, so the user need not
    be told.
    """

    kind: LibraryKind
    name: str
    path: Path
    reason: str
    quiet: bool = False


@dataclass(frozen=True)
class SkillLibrary:
    """The skills, commands and subagents in use, the nearest first, and the files left out.

    `notes` are sentences for the user. `untrusted` are folders that wait for the user to trust
    them.
    """

    skills: tuple[Skill, ...] = ()
    commands: tuple[CustomCommand, ...] = ()
    agents: tuple[Subagent, ...] = ()
    excluded: tuple[ExcludedFile, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted: tuple[Path, ...] = ()

    def skill(self, name: str) -> Skill | None:
        """Return the skill with this name."""
        return next((skill for skill in self.skills if skill.name == name), None)

    def command(self, name: str) -> CustomCommand | None:
        """Return the command with this name, or the one of a plugin as `PLUGIN:NAME`."""
        by_full_name = {command.full_name: command for command in self.commands}
        by_name = {command.name: command for command in self.commands}
        return by_name.get(name) or by_full_name.get(name)


def load_library(folders: Sequence[ExtensionFolder]) -> SkillLibrary:
    """Load everything in these folders. Where two have the same name, the first folder's is used."""
    skills: dict[str, Skill] = {}
    commands: dict[str, CustomCommand] = {}
    agents: dict[str, Subagent] = {}
    excluded: list[ExcludedFile] = []
    notes: list[str] = []
    untrusted: list[Path] = []
    for folder in folders:
        faults: list[ExcludedFile] = []
        new_skills = _skills(folder, faults)
        new_commands = _commands(folder, faults)
        new_agents = _subagents(folder, faults)
        if folder.trusted:
            excluded += faults
            excluded += _add_new("skill", new_skills, skills)
            excluded += _add_new("command", new_commands, commands)
            excluded += _add_new("agent", new_agents, agents)
            continue
        waiting = [
            *_waiting("skill", new_skills),
            *_waiting("command", new_commands),
            *_waiting("agent", new_agents),
        ]
        if waiting:
            untrusted.append(folder.folder)
            notes.append(
                f"{folder.folder} names {_name_all(waiting)}: none is used until you run "
                f"`fugu trust` here"
            )
        excluded += waiting
        excluded += [replace(fault, quiet=True) for fault in faults]
    for file in excluded:
        if not file.quiet:
            notes.append(f"{file.path}: {file.reason}; the {_word(file.kind)} is left out")
    return SkillLibrary(
        skills=tuple(skills.values()),
        commands=tuple(commands.values()),
        agents=tuple(agents.values()),
        excluded=tuple(excluded),
        notes=tuple(notes),
        untrusted=tuple(untrusted),
    )


def files_linked_from_library(root: Path) -> Iterator[Path]:
    """Yield the files in `root` that links in its skills, commands and subagents lead to, as resolved
    paths.

    They direct agents like the files of those folders, but lie outside them.
    """
    for name in FOLDERS:
        folder = ExtensionFolder(root / name, name, base=root)
        for skill in _entries(folder.folder / "skills", "skill", []):
            if not _holds_skill(skill):
                continue
            try:
                resolved = _skill_folder(skill, folder)
            except DocumentError:
                continue
            if not inside(resolved, folder.folder):
                for parent, _, names in os.walk(resolved):
                    yield from (Path(parent) / name for name in names)
        commands = _files(folder.folder / "commands", DEEPEST_FOLDER, [])
        agents = _files(folder.folder / "agents", 1, [], "agent")
        for path in (*commands, *agents):
            resolved = real_path(path)
            if inside(resolved, root) and not inside(resolved, folder.folder):
                yield resolved


def _skills(extension_folder: ExtensionFolder, faults: list[ExcludedFile]) -> list[Skill]:
    """Return the skills of a folder, and add faulty ones to `faults`."""
    candidates: list[Path] = []
    for path in extension_folder.paths("skill"):
        if _holds_skill(path):
            candidates.append(path)
        else:
            candidates += _entries(path, "skill", faults)
    plugin_root = str(extension_folder.folder) if extension_folder.plugin else ""
    skills: list[Skill] = []
    for folder in candidates:
        if not _holds_skill(folder):
            continue
        relative_path = folder.relative_to(extension_folder.folder).as_posix()
        try:
            skill = skill_at(
                _skill_folder(folder, extension_folder),
                f"{extension_folder.shown}/{relative_path}",
                own=extension_folder.own,
                plugin=extension_folder.plugin,
            )
            skills.append(replace(skill, plugin_root=plugin_root))
        except DocumentError as fault:
            faults.append(ExcludedFile("skill", folder.name, folder / SKILL_FILE, str(fault)))
    return skills


def _holds_skill(folder: Path) -> bool:
    """Return whether the folder has a skill file, readable or not."""
    return _is_folder(folder) and os.path.lexists(folder / SKILL_FILE)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except OSError:
        return False


def _skill_folder(folder: Path, extension_folder: ExtensionFolder) -> Path:
    """Return the resolved folder. Raises DocumentError if a link leads outside what the user
    trusted.
    """
    resolved, file = real_path(folder), real_path(folder / SKILL_FILE)
    if file.parent != resolved:
        raise DocumentError("it is a link that leads out of the skill's folder")
    if extension_folder.base is not None:
        if not inside(resolved, extension_folder.base):
            raise DocumentError(f"its folder is a link that leads out of {extension_folder.base}")
        if inside(real_path(extension_folder.folder), resolved):
            raise DocumentError("its folder is a link to a folder around it")
    return resolved


def _commands(extension_folder: ExtensionFolder, faults: list[ExcludedFile]) -> list[CustomCommand]:
    """Return the commands of a folder, and add faulty ones to `faults`."""
    commands: dict[str, CustomCommand] = {}
    plugin = extension_folder.plugin
    for source in extension_folder.paths("command"):
        for path in _files(source, DEEPEST_FOLDER, faults):
            folder = source.parent if path == source else source
            name = ":".join(path.relative_to(folder).with_suffix("").parts)
            if plugin and name in BUILT_IN:
                name = f"{plugin}:{name}"
            try:
                file = _file_inside(path, extension_folder)
                if name in commands:
                    raise DocumentError(f"another file here is the command {name}")
                command = command_at(file, name, own=extension_folder.own)
                body = _with_plugin_root(command.body, extension_folder)
                commands[name] = replace(command, body=body, plugin=plugin)
            except DocumentError as fault:
                faults.append(ExcludedFile("command", name, path, str(fault)))
    return list(commands.values())


def _with_plugin_root(text: str, extension_folder: ExtensionFolder) -> str:
    """Fill in the folder of the plugin that the text comes from."""
    if not extension_folder.plugin:
        return text
    return text.replace(PLUGIN_ROOT, str(extension_folder.folder))


def _subagents(extension_folder: ExtensionFolder, faults: list[ExcludedFile]) -> list[Subagent]:
    """Return the subagents of a folder, and add faulty ones to `faults`."""
    subagents: dict[str, Subagent] = {}
    for source in extension_folder.paths("agent"):
        for path in _files(source, 1, faults, "agent"):
            from fugu_cli.extensions.subagents import subagent_at

            try:
                file = _file_inside(path, extension_folder)
                subagent = subagent_at(file, own=extension_folder.own)
                if subagent.name in subagents:
                    namesake = subagents[subagent.name].file.name
                    raise DocumentError(f"{namesake} here has the same name")
                body = _with_plugin_root(subagent.body, extension_folder)
                subagents[subagent.name] = replace(
                    subagent, body=body, plugin=extension_folder.plugin
                )
            except DocumentError as fault:
                faults.append(ExcludedFile("agent", path.stem, path, str(fault)))
    return list(subagents.values())


def _file_inside(path: Path, extension_folder: ExtensionFolder) -> Path:
    """Return the resolved file. Raises DocumentError if a link leads outside what the user trusted."""
    resolved = real_path(path)
    if extension_folder.base is not None and not inside(resolved, extension_folder.base):
        raise DocumentError(f"it is a link that leads out of {extension_folder.base}")
    return resolved


def _files(
    folder: Path, levels: int, faults: list[ExcludedFile], kind: LibraryKind = "command"
) -> Iterator[Path]:
    """Yield the `.md` files of a folder, then those of its subfolders. If `folder` is a `.md` file,
    yield only that.
    """
    if folder.suffix == ".md" and not _is_folder(folder):
        yield folder
        return
    entries = _entries(folder, kind, faults)
    yield from (path for path in entries if path.suffix == ".md" and not _is_folder(path))
    for path in entries:
        if _is_folder(path) and levels > 1:
            yield from _files(path, levels - 1, faults, kind)


def _entries(folder: Path, kind: LibraryKind, faults: list[ExcludedFile]) -> list[Path]:
    """Return the entries of a folder by name, without hidden ones; [] if there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    except FileNotFoundError:
        return []
    except OSError as error:
        faults.append(
            ExcludedFile(kind, folder.name, folder, f"it cannot be read: {error.strerror}")
        )
        return []


def _add_new(
    kind: LibraryKind, items: Sequence[Item], used: dict[str, Item]
) -> Iterator[ExcludedFile]:
    """Add the items with new names to `used`, and yield the others. An item of a plugin whose name
    is taken gets the plugin's name in front.
    """
    for item in items:
        if item.name in used and item.plugin:
            item = replace(item, name=f"{item.plugin}:{item.name}")
        if item.name in used:
            reason = f"{used[item.name].file} has the same name and is nearer"
            yield ExcludedFile(kind, item.name, item.file, reason, quiet=True)
        else:
            used[item.name] = item


def _waiting(kind: LibraryKind, items: Sequence[Item]) -> list[ExcludedFile]:
    """Return the items as files that are excluded until the user trusts their folder."""
    reason = "its folder is not trusted; `fugu trust` there"
    return [ExcludedFile(kind, item.name, item.file, reason, quiet=True) for item in items]


def _name_all(files: Sequence[ExcludedFile]) -> str:
    """Return a text like `the skills a, b and the command c`."""
    parts = []
    for kind in LIBRARY_KINDS:
        names = [file.name for file in files if file.kind == kind]
        if names:
            plural = "s" if len(names) > 1 else ""
            parts.append(f"the {_word(kind)}{plural} {', '.join(names)}")
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
"""Name, description, path."""


def format_library(library: SkillLibrary, root: Path) -> str:
    """Return the library as text. Paths in `root` or the home folder are shown relative to it."""
    skills: list[LibraryRow] = []
    for skill in library.skills:
        skills.append((skill.name, skill.description, display_path(skill.file.parent, root)))
    commands: list[LibraryRow] = []
    for command in library.commands:
        name = f"/{command.name} {command.hint}".rstrip()
        about = command.about + _choice(command.agent, command.tier)
        commands.append((name, about, display_path(command.file, root)))
    agents: list[LibraryRow] = []
    for agent in library.agents:
        about = agent.description + _choice(agent.model, "")
        agents.append((agent.name, about, display_path(agent.file, root)))
    excluded: list[LibraryRow] = []
    for file in library.excluded:
        slash = "/" if file.kind == "command" else ""
        excluded.append((f"{slash}{file.name}", file.reason, display_path(file.path, root)))
    lines = [
        *_section("skills", skills),
        *_section("commands", commands),
        *_section("subagents", agents),
        *_section("left out", excluded),
    ]
    return "\n".join(lines) if lines else EMPTY_LIBRARY


def display_path(path: Path, root: Path) -> str:
    """Return a path relative to `root` or to the home (`~`), if it lies there."""
    home = Path.home().resolve()
    if inside(path, root):
        return quoted_path(path.relative_to(root).as_posix())
    if inside(path, home):
        return quoted_path(f"~/{path.relative_to(home).as_posix()}")
    return quoted_path(str(path))


def _section(title: str, rows: Sequence[LibraryRow]) -> list[str]:
    if not rows:
        return []
    width = min(max(len(name) for name, _, _ in rows), WIDEST_NAME)
    return [title, *(f"  {name:<{width}}  {about}  ({path})" for name, about, path in rows)]


def _choice(agent: str, tier: str) -> str:
    """Return the agent and tier that a file asks for, as ` [agent NAME, tier TIER]`."""
    parts = []
    if agent:
        parts.append(f"agent {agent}")
    if tier:
        parts.append(f"tier {tier}")
    return f" [{', '.join(parts)}]" if parts else ""


SKILL_COMMAND = "skill"
"""`/skill NAME TEXT`: the request TEXT with the text of the skill."""
MCP_PROMPT = "/mcp:"
"""The start of a line that names a prompt of an MCP server. The session asks the server for it."""
_LINE = re.compile(r"/(?P<name>[\w?][\w.:-]*)(?:\s+(?P<rest>.*))?", re.DOTALL)


@dataclass(frozen=True)
class TypedRequest:
    """`text` is the request for agents, `typed` the user's line if it was different, else "".

    `skill` is the text of a skill that the user named; it is kept apart, so that it is not taken
    for the user's words. `agent` takes every turn in `tier`; "" if the line names none.
    """

    text: str
    typed: str = ""
    skill: str = ""
    agent: str = ""
    tier: str = ""


def parse_request(text: str, library: SkillLibrary) -> TypedRequest:
    """Turn a typed line into a request.

    Raises UsageError for a missing or unreadable skill, and for a command that is left out.
    """
    match = _LINE.fullmatch(text.strip())
    if match is None:
        return TypedRequest(text)
    if text.strip().startswith(MCP_PROMPT):
        return TypedRequest(text.strip())
    name, rest = match["name"], (match["rest"] or "").strip()
    if name == SKILL_COMMAND:
        return _request_with_skill(text, rest, library)
    command = library.command(name)
    if command is None:
        refuse_left_out("command", name, library)
        return TypedRequest(text)
    return TypedRequest(command.request(rest), text.strip(), agent=command.agent, tier=command.tier)


def parse_headless_request(text: str, library: SkillLibrary) -> TypedRequest:
    """Parse a request without an interface. Unlike `parse_request` it refuses unknown commands and
    commands of the interface. An existing path at the beginning (`/tmp is full`) is not a command.
    """
    line = _LINE.fullmatch(text.strip())
    name = line["name"] if line is not None and not text.strip().startswith(MCP_PROMPT) else ""
    if name in BUILT_IN - {SKILL_COMMAND}:
        raise UsageError(
            f"/{name} is a command of the terminal interface", hint="`fugu` alone opens it"
        )
    request = parse_request(text, library)
    if name and not request.typed and not path_exists(Path("/", name)):
        hint = "`fugu skills` lists those there are"
        similar = difflib.get_close_matches(name, [item.name for item in library.commands], 1)
        if similar:
            hint = f"did you mean /{similar[0]}? {hint}"
        raise UsageError(f"there is no command /{name}", hint=hint)
    return request


def refuse_left_out(kind: LibraryKind, name: str, library: SkillLibrary) -> None:
    """Raise UsageError with the reason if this skill or command exists but is left out."""
    for file in library.excluded:
        if (file.kind, file.name) == (kind, name):
            raise UsageError(
                f"the {kind} {name} is not used: {file.reason}", hint=f"it stands in {file.path}"
            )


def _request_with_skill(text: str, rest: str, library: SkillLibrary) -> TypedRequest:
    if not rest:
        raise UsageError("which skill?", hint=_skill_names(library))
    name, *request = rest.split(maxsplit=1)
    skill = library.skill(name)
    if skill is None:
        refuse_left_out("skill", name, library)
        similar = difflib.get_close_matches(name, [item.name for item in library.skills], 1)
        hint = f"did you mean {similar[0]}?" if similar else _skill_names(library)
        raise UsageError(f"there is no skill {name!r}", hint=hint)
    try:
        skill_text = skill.text()
    except DocumentError as fault:
        raise UsageError(
            f"{skill.file}: {fault}", hint="`fugu skills` lists what there is"
        ) from fault
    request_text = request[0] if request else f"Follow the skill `{name}`."
    return TypedRequest(request_text, text.strip(), skill_text)


def _skill_names(library: SkillLibrary) -> str:
    names = ", ".join(skill.name for skill in library.skills)
    if names:
        return f"there are {names}"
    return "there are none here: `fugu help skills` says where they lie"
