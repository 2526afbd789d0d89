"""`fugu init --from`: adds the settings of another agent to the user's own files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from fugu_cli.cli.current_folder import print_clean
from fugu_cli.config.imports import SOURCES, ImportedSettings, described, read_settings
from fugu_cli.config.user_file import UserFile, keep_copy
from fugu_cli.errors import ConfigError, FuguError, UsageError
from fugu_cli.extensions.mcp_settings import MCP_FILE, add_entry

HINT = f"`fugu init --from AGENT`: {', '.join(SOURCES)}"


def init(source: str | None, *, dry_run: bool) -> int:
    """Read the settings of `source` and add them to the user's. Raises UsageError for an unknown
    source, ConfigError for a file that cannot be read, understood or written.
    """
    if not source:
        raise UsageError("name the agent whose settings are read", hint=HINT)
    for line in import_settings(source, os.environ, dry_run=dry_run):
        print_clean(line)
    return 0


def import_settings(
    source: str, environ: Mapping[str, str], *, dry_run: bool = False
) -> Iterator[str]:
    """Add the settings of another agent to the user's, and yield sentences about what was taken
    over and what was not. `dry_run`: write nothing. Raises UsageError, ConfigError.
    """
    if source not in SOURCES:
        raise UsageError(f"fugu cannot read the settings of {source!r}", hint=HINT)
    home = Path.home()
    imported = read_settings(source, home)
    user_file = UserFile(home)
    _add_settings(user_file, imported)
    found_agents = user_file.add_found_agents(environ) if imported.agents else []
    _add_agents(user_file, imported, found_agents)
    yield f"read from {', '.join(map(str, imported.files))}"
    copies: list[Path | None] = []
    try:
        if not dry_run:
            copies.append(user_file.write())
        copies.append(_add_servers(imported, home / MCP_FILE, dry_run=dry_run))
    except OSError as error:
        raise ConfigError(
            f"cannot write {error.filename or user_file.path}: {error.strerror}",
            hint="make it writable, then run this again; what was written before stays",
        ) from error
    for copy in filter(None, copies):
        yield f"the earlier {copy.name.partition('.old')[0]} is kept as {copy}"
    taken_over = "would take over" if dry_run else "taken over"
    for line in described(imported):
        yield f"{taken_over}: {line}"
    for note in imported.notes:
        yield f"note: {note}"
    for reason in imported.left_out:
        yield f"left out: {reason}"
    if (imported.agents or found_agents) and not dry_run:
        yield pool_sentence(found_agents)


def pool_sentence(found_agents: Sequence[str]) -> str:
    """Return a sentence about the pool after an agent was added to the user's file, together with
    those that were found by keys.
    """
    if found_agents:
        return (
            f"the pool is now the agents that ~/.fugurc names; those that your keys bring were added "
            f"to it: {', '.join(found_agents)}"
        )
    return "the pool is now the agents that ~/.fugurc names (`fugu pool` shows it)"


def _add_settings(user_file: UserFile, imported: ImportedSettings) -> None:
    """Add the imported settings. Keys that the file has already keep their values; `imported` then
    no longer holds those keys, and `left_out` names them.
    """
    document = user_file.document
    for key, value in list(imported.settings.items()):
        present = document.get(key)
        if present is None:
            document.add(key, value)
        elif isinstance(value, list) and isinstance(present, list):
            value[:] = [item for item in value if item not in present]
            for item in value:
                present.append(item)
        else:
            imported.left_out.append(
                f"{key} = {value}: your {user_file.path} has {key} = {present} already"
            )
            del imported.settings[key]
        if value == []:
            del imported.settings[key]


def _add_agents(
    user_file: UserFile, imported: ImportedSettings, found_agents: Sequence[str]
) -> None:
    """Add the imported agents whose names are free, and keep only those in `imported`."""
    present_names = {agent.get("name") for agent in user_file.agents}
    for agent in list(imported.agents):
        if agent["name"] not in present_names:
            user_file.add_agent(agent)
            continue
        imported.agents.remove(agent)
        if agent["name"] not in found_agents:
            imported.left_out.append(
                f"agent {agent['name']}: your {user_file.path} has one of this name"
            )


def _add_servers(imported: ImportedSettings, path: Path, *, dry_run: bool) -> Path | None:
    """Add the MCP servers to the user's file. Return the copy of the earlier file. `left_out` names
    those that cannot be added. `dry_run`: write nothing.
    """
    old_content = path.read_bytes() if path.exists() else b""
    for name, entry in list(imported.servers.items()):
        try:
            add_entry(path, name, cast(Mapping[str, JsonValue], entry), dry_run=dry_run)
        except FuguError as error:
            imported.left_out.append(f"MCP server {name}: {error}")
            del imported.servers[name]
    return (
        keep_copy(path, old_content) if old_content and imported.servers and not dry_run else None
    )
