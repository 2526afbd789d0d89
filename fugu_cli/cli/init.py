"""`fugu init --from`: adds the settings of another agent to the user's own files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import tomlkit
from pydantic import JsonValue
from tomlkit.exceptions import TOMLKitError

from fugu_cli.cli.current_folder import print_clean
from fugu_cli.config.imports import SOURCES, ImportedSettings, described, read_settings
from fugu_cli.config.loader import NAME, parse_layer
from fugu_cli.errors import ConfigError, FuguError, UsageError
from fugu_cli.extensions.mcp_settings import MCP_FILE, add_entry
from fugu_cli.system.atomic_files import write_atomically


def init(source: str | None, *, dry_run: bool) -> int:
    """Read the settings of `source` and add them to the user's. Raises UsageError for an unknown
    source, ConfigError for a file that cannot be read, understood or written.
    """
    if source not in SOURCES:
        message = "name the agent whose settings are read"
        if source:
            message = f"fugu cannot read the settings of {source!r}"
        raise UsageError(message, hint=f"`fugu init --from AGENT`: {', '.join(SOURCES)}")
    home = Path.home()
    imported = read_settings(source, home)
    path = home / NAME
    old_text = _read_settings_file(path) if path.exists() else ""
    new_text = _merged_text(old_text, imported, path)
    print_clean(f"read from {', '.join(map(str, imported.files))}")
    try:
        if new_text != old_text and not dry_run:
            if old_text:
                _write_copy(path, path.read_bytes())
            write_atomically(path.resolve(), new_text.encode(), None if path.exists() else 0o600)
        _add_servers(imported, home / MCP_FILE, dry_run=dry_run)
    except OSError as error:
        raise ConfigError(
            f"cannot write {error.filename or path}: {error.strerror}",
            hint="make it writable, then run this again; what was written before stays",
        ) from error
    taken_over = "would take over" if dry_run else "taken over"
    for line in described(imported):
        print_clean(f"{taken_over}: {line}")
    for note in imported.notes:
        print_clean(f"as it is: {note}")
    for reason in imported.left_out:
        print_clean(f"left out: {reason}")
    if imported.agents and not dry_run:
        print_clean(
            "the pool is now the agents that ~/.fugurc names, no longer those found by API keys "
            "(`fugu pool` shows it)"
        )
    return 0


def _read_settings_file(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}", hint="nothing was changed") from error


def _merged_text(text: str, imported: ImportedSettings, path: Path) -> str:
    """Return the text of the user's file with the imported settings added. Keys that the file has
    already keep their values; `imported` then no longer holds those keys, and `left_out` names
    them. Raises ConfigError where the file cannot be parsed.
    """
    parse_layer(text, path)
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(
            f"{path} is not valid TOML: {error}", hint="mend it first; nothing was changed"
        ) from error
    for key, value in list(imported.settings.items()):
        present = document.get(key)
        if present is None:
            document.add(key, value)
        elif isinstance(value, list) and isinstance(present, list):
            value[:] = [item for item in value if item not in present]
            for item in value:
                present.append(item)
        else:
            imported.left_out.append(f"{key} = {value}: your {path} has {key} = {present} already")
            del imported.settings[key]
        if value == []:
            del imported.settings[key]
    _add_agents(document, imported, path)
    merged = tomlkit.dumps(document)
    parse_layer(merged, path)
    return merged


def _add_agents(document: tomlkit.TOMLDocument, imported: ImportedSettings, path: Path) -> None:
    agents = document.get("agents")
    present_names = set()
    if agents is not None:
        present_names = {str(agent.get("name")) for agent in agents}
    new_agents = []
    for agent in imported.agents:
        if agent["name"] in present_names:
            imported.left_out.append(f"agent {agent['name']}: your {path} has one of this name")
        else:
            new_agents.append(agent)
    imported.agents = new_agents
    if not new_agents:
        return
    if agents is None:
        agents = tomlkit.aot()
        document.add("agents", agents)
    for agent in new_agents:
        table = tomlkit.table()
        table.update(agent)
        agents.append(table)


def _add_servers(imported: ImportedSettings, path: Path, *, dry_run: bool) -> None:
    """Add the MCP servers to the user's file and keep a copy of the old file. `left_out` names those
    that cannot be added. `dry_run`: write nothing.
    """
    old_content = path.read_bytes() if path.exists() else b""
    for name, entry in list(imported.servers.items()):
        try:
            add_entry(path, name, cast(Mapping[str, JsonValue], entry), dry_run=dry_run)
        except FuguError as error:
            imported.left_out.append(f"MCP server {name}: {error}")
            del imported.servers[name]
    if old_content and imported.servers and not dry_run:
        _write_copy(path, old_content)


def _write_copy(path: Path, content: bytes) -> None:
    """Write the old content of a file beside it, under a name that is free."""
    copy = path.with_name(f"{path.name}.old")
    number = 2
    while copy.exists():
        copy = path.with_name(f"{path.name}.old-{number}")
        number += 1
    write_atomically(copy, content, 0o600)
    print_clean(f"the earlier {path.name} is kept as {copy}")
