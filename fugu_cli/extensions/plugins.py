"""A plugin in Claude Code's format: a folder with skills, commands, subagents, hooks and MCP servers.

`.claude-plugin/plugin.json` names it and may name more folders and files; the usual ones are
`skills/`, `commands/`, `agents/`, `hooks/hooks.json` and `.mcp.json`. plugin_store.py keeps
plugins that the user has added. Nothing here runs anything.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, JsonValue, ValidationError

from fugu_cli.errors import UsageError
from fugu_cli.extensions import hook_settings, mcp_settings
from fugu_cli.extensions.hook_settings import DeclaredHooks
from fugu_cli.extensions.mcp_settings import DeclaredServers, SettingsFault
from fugu_cli.extensions.skill_library import ExtensionFolder, SkillLibrary, load_library
from fugu_cli.extensions.skills import printable
from fugu_cli.safety.paths import inside, is_file, path_exists, real_path

MANIFEST = ".claude-plugin/plugin.json"
MARKETPLACE = ".claude-plugin/marketplace.json"
NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
LONGEST_NAME = 64
UNUSED_KEYS = (
    "lspServers",
    "outputStyles",
    "monitors",
    "themes",
    "channels",
    "userConfig",
    "settings",
    "dependencies",
)
"""Keys of a manifest for things that fugu does not take from a plugin."""
UNUSED_FILES = (".lsp.json", "output-styles", "monitors", "themes", "settings.json")
"""The usual files and folders of such things."""
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)")
MOST_LISTED = 20
"""Plugins of a marketplace that an error names."""


class _Manifest(BaseModel):
    """The manifest. Unknown keys are ignored, since other programs have their own."""

    model_config = ConfigDict(extra="ignore", defer_build=True)

    name: str = ""
    version: str = ""
    description: str = ""
    skills: str | list[str] = []
    commands: str | list[str] = []
    agents: str | list[str] = []
    hooks: JsonValue = None
    mcpServers: JsonValue = None


@dataclass(frozen=True)
class Plugin:
    """A plugin in `folder`. `source` and `commit` say where it was added from."""

    name: str
    version: str
    description: str
    folder: Path
    files: ExtensionFolder
    """The folders of its skills, commands and subagents."""
    hooks: DeclaredHooks
    servers: DeclaredServers
    variables: tuple[str, ...]
    """The user's variables that its MCP servers are given."""
    unused: tuple[str, ...]
    """Parts that fugu does not use."""
    source: str = ""
    commit: str = ""

    @property
    def library(self) -> SkillLibrary:
        """Its skills, commands and subagents alone."""
        return load_library((self.files,))


def read_plugin(folder: Path, fallback_name: str, environ: Mapping[str, str] | None) -> Plugin:
    """Read the plugin in a folder. `fallback_name` is its name if it has no manifest. `environ`
    fills in the variables of its MCP servers. Raises UsageError for a manifest that cannot be used.
    """
    folder = real_path(folder)
    manifest, given_keys = _read_manifest(folder)
    name = manifest.name or fallback_name
    if len(name) > LONGEST_NAME or NAME.fullmatch(name) is None:
        raise UsageError(
            f"the plugin's name {printable(name[:LONGEST_NAME])!r} is not small letters, digits "
            f"and single hyphens",
            hint=f"it stands in {MANIFEST}",
        )
    return Plugin(
        name=name,
        version=printable(manifest.version)[:40],
        description=printable(manifest.description)[:400],
        folder=folder,
        files=ExtensionFolder(
            folder,
            str(folder),
            base=folder,
            plugin=name,
            more={
                "skill": _paths(folder, "skills", manifest.skills),
                "command": _paths(folder, "commands", manifest.commands),
                "agent": _paths(folder, "agents", manifest.agents),
            },
        ),
        hooks=_read_hooks(name, folder, manifest.hooks),
        servers=_read_servers(name, folder, manifest.mcpServers, environ),
        variables=_variables(folder, manifest.mcpServers),
        unused=(
            *(key for key in UNUSED_KEYS if key in given_keys),
            *(name for name in UNUSED_FILES if path_exists(folder / name)),
        ),
    )


def check_not_empty(plugin: Plugin) -> None:
    """Raise UsageError for a plugin that brings nothing, not even a faulty part."""
    library = plugin.library
    parts = (
        *library.skills,
        *library.commands,
        *library.agents,
        *library.excluded,
        *plugin.hooks.hooks,
        *plugin.hooks.notes,
        *plugin.servers.servers,
        *plugin.servers.notes,
    )
    if not parts:
        raise UsageError(
            f"{plugin.name} brings no skill, command, subagent, hook or MCP server",
            hint=_hint_for_no_plugin(plugin.folder),
        )


def parts_in_use(
    plugin: Plugin, library: SkillLibrary, servers: DeclaredServers
) -> tuple[str, ...]:
    """Return the parts of a plugin in a few words each, with the names that they have in `library`
    and `servers`.
    """
    hooks = [f"hook {hook.moment}" for hook in plugin.hooks.hooks]
    name, source = plugin.name, f"the plugin {plugin.name}"
    return (
        *dict.fromkeys(hooks),
        *(f"command /{command.name}" for command in library.commands if command.plugin == name),
        *(f"skill {skill.name}" for skill in library.skills if skill.plugin == name),
        *(f"subagent {agent.name}" for agent in library.agents if agent.plugin == name),
        *(f"MCP server {server.name}" for server in servers.servers if server.source == source),
    )


def joined_servers(declared: DeclaredServers, plugins: Sequence[Plugin]) -> DeclaredServers:
    """Return the servers followed by those of the plugins. If the name of a plugin's server is taken,
    the plugin's name is put in front of it.
    """
    servers = {server.name: server for server in declared.servers}
    notes = list(declared.notes)
    for plugin in plugins:
        notes += plugin.servers.notes
        for server in plugin.servers.servers:
            name = f"{plugin.name}-{server.name}" if server.name in servers else server.name
            if name in servers:
                notes.append(
                    f"the MCP server {name} of the plugin {plugin.name} is left out: "
                    f"there is one of this name already"
                )
            servers.setdefault(name, server.model_copy(update={"name": name}))
    return DeclaredServers(tuple(servers.values()), tuple(notes), declared.untrusted)


def joined_hooks(declared: DeclaredHooks, plugins: Sequence[Plugin]) -> DeclaredHooks:
    """Return the hooks followed by those of the plugins."""
    hooks, notes = list(declared.hooks), list(declared.notes)
    for plugin in plugins:
        hooks += plugin.hooks.hooks
        notes += plugin.hooks.notes
    return DeclaredHooks(tuple(hooks), tuple(notes), declared.untrusted)


def _read_manifest(folder: Path) -> tuple[_Manifest, frozenset[str]]:
    """Return the manifest (an empty one if there is no file) and its keys."""
    path = folder / MANIFEST
    if not path_exists(path):
        return _Manifest(), frozenset()
    try:
        if not inside(real_path(path), folder):
            raise SettingsFault(" is a link that leads out of the plugin")
        settings = mcp_settings.parsed_settings(mcp_settings.settings_text(path))
        if not isinstance(settings, dict):
            raise SettingsFault(': it should hold one object, {"name": ...}')
        return _Manifest.model_validate(settings), frozenset(settings)
    except SettingsFault as fault:
        raise UsageError(f"{MANIFEST}{fault}", hint="the plugin cannot be used") from fault
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        message = first["msg"][:1].lower() + first["msg"][1:]
        raise UsageError(
            f"{MANIFEST}, {key}: {message}", hint="the plugin cannot be used"
        ) from error


def _paths(folder: Path, key: str, value: str | list[str]) -> tuple[Path, ...]:
    """Return the paths in the manifest other than the usual folder. Raises UsageError."""
    names = [value] if isinstance(value, str) else value
    paths = [_path_inside(folder, key, name) for name in names]
    usual = folder / key
    return tuple(path for path in dict.fromkeys(paths) if path != usual)


def _path_inside(folder: Path, key: str, name: str) -> Path:
    path = folder / name
    if "\0" in name or Path(name).is_absolute() or not inside(real_path(path), folder):
        raise UsageError(
            f"{MANIFEST}, {key}: {printable(name)} leads out of the plugin",
            hint="the plugin cannot be used",
        )
    if not path_exists(path):
        raise UsageError(
            f"{MANIFEST}, {key}: there is no {printable(name)}", hint="the plugin cannot be used"
        )
    return path


def _settings_parts(
    folder: Path, key: str, usual: str, value: JsonValue
) -> Iterator[tuple[Path, JsonValue | None]]:
    """Yield the sources of a plugin's hooks or servers: each settings file with None, then the
    manifest with the settings written in it, if there are any.

    `value` is the manifest's entry `key`; `usual` is the file that needs no entry.
    """
    paths = [folder / usual]
    if isinstance(value, str):
        paths.append(_path_inside(folder, key, value))
    elif isinstance(value, list):
        paths += [_path_inside(folder, key, str(name)) for name in value]
    for path in dict.fromkeys(paths):
        if is_file(path):
            yield path, None
    if isinstance(value, dict):
        yield folder / MANIFEST, value


def _read_hooks(name: str, folder: Path, value: JsonValue) -> DeclaredHooks:
    hooks: list[hook_settings.Hook] = []
    notes: list[str] = []
    for path, inline in _settings_parts(folder, "hooks", "hooks/hooks.json", value):
        read = hook_settings.read_plugin_hooks(name, folder, path, inline)
        hooks += read.hooks
        notes += read.notes
    return DeclaredHooks(tuple(hooks), tuple(notes))


def _read_servers(
    name: str, folder: Path, value: JsonValue, environ: Mapping[str, str] | None
) -> DeclaredServers:
    declared = DeclaredServers()
    for path, inline in _settings_parts(folder, "mcpServers", mcp_settings.MCP_FILE, value):
        declared = declared.joined(
            mcp_settings.read_plugin_servers(name, folder, path, inline, environ)
        )
    return declared


def _variables(folder: Path, value: JsonValue) -> tuple[str, ...]:
    texts = []
    for path, inline in _settings_parts(folder, "mcpServers", mcp_settings.MCP_FILE, value):
        try:
            text = mcp_settings.settings_text(path) if inline is None else json.dumps(inline)
        except SettingsFault:
            continue
        texts.append(text)
    names = dict.fromkeys(_VARIABLE.findall("\n".join(texts)))
    return tuple(name for name in names if name != mcp_settings.PLUGIN_VARIABLE)


def _hint_for_no_plugin(folder: Path) -> str:
    """Name the plugins of a marketplace, else what a plugin's folder holds."""
    try:
        settings = mcp_settings.parsed_settings(
            mcp_settings.settings_text(folder / MARKETPLACE) or "{}"
        )
    except SettingsFault:
        settings = {}
    entries = settings.get("plugins") if isinstance(settings, dict) else None
    paths = []
    for entry in entries if isinstance(entries, list) else ():
        source = entry.get("source") if isinstance(entry, dict) else None
        if isinstance(source, str):
            paths.append(printable(source).removeprefix("./"))
    if not paths:
        return (
            f"a plugin has {MANIFEST}, skills/, commands/, agents/, hooks/hooks.json or .mcp.json"
        )
    more = f" and {len(paths) - MOST_LISTED} more" if len(paths) > MOST_LISTED else ""
    return f"it lists plugins; add one with --path: {', '.join(paths[:MOST_LISTED])}{more}"
