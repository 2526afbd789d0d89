"""`fugu init --from`: the settings of another agent, written as fugu's own."""

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
    """Read the settings of `source` and add them to the user's. Raises UsageError for another
    source, ConfigError for a file that cannot be read or understood.
    """
    if source not in SOURCES:
        raise UsageError(
            f"there is no {source!r} to read from" if source else "nothing to read from is named",
            hint=f"`fugu init --from` {', '.join(SOURCES)}",
        )
    home = Path.home()
    imported = read_settings(source, home)
    path = home / NAME
    old_text = path.read_text("utf-8-sig") if path.exists() else ""
    new_text = _merged_text(old_text, imported, path)
    print_clean(f"read from {', '.join(map(str, imported.files))}")
    if not dry_run:
        if new_text != old_text:
            if old_text:
                _write_copy(path, path.read_bytes())
            write_atomically(path.resolve(), new_text.encode(), None if path.exists() else 0o600)
        _add_servers(imported, home / MCP_FILE)
    for line in described(imported):
        print_clean(f"{'would take over' if dry_run else 'taken over'}: {line}")
    for note in imported.notes:
        print_clean(f"as it is: {note}")
    for reason in imported.left_out:
        print_clean(f"left out: {reason}")
    if imported.agents:
        print_clean(
            "the pool is the agents of ~/.fugurc now, not those found by keys (`fugu pool`)"
        )
    return 0


def _merged_text(text: str, imported: ImportedSettings, path: Path) -> str:
    """Return the user's file with what is new; what stands there stays as it is. Raises ConfigError
    where the file cannot be parsed. What is left out of it is noted in `imported`.
    """
    parse_layer(text, path)
    try:
        document = tomlkit.parse(text)
    except TOMLKitError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}", hint="mend it first") from error
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
    names = {str(agent.get("name")) for agent in agents} if agents is not None else set()
    new = [agent for agent in imported.agents if agent["name"] not in names]
    for agent in imported.agents:
        if agent not in new:
            imported.left_out.append(f"agent {agent['name']}: your {path} has one of this name")
    imported.agents = new
    if not new:
        return
    if agents is None:
        agents = tomlkit.aot()
        document.add("agents", agents)
    for agent in new:
        table = tomlkit.table()
        table.update(agent)
        agents.append(table)


def _add_servers(imported: ImportedSettings, path: Path) -> None:
    """Add the MCP servers to the user's file; a copy of the old one is kept."""
    old = path.read_bytes() if path.exists() else b""
    for name, entry in list(imported.servers.items()):
        try:
            add_entry(path, name, cast(Mapping[str, JsonValue], entry))
        except FuguError as error:
            imported.left_out.append(f"MCP server {name}: {error}")
            del imported.servers[name]
    if old and imported.servers:
        _write_copy(path, old)


def _write_copy(path: Path, content: bytes) -> None:
    """Keep the content that a file had, beside it, under a name that is free."""
    copy, number = path.with_name(f"{path.name}.old"), 2
    while copy.exists():
        copy, number = path.with_name(f"{path.name}.old-{number}"), number + 1
    write_atomically(copy, content, 0o600)
    print_clean(f"the {path.name} of before is kept as {copy}")
