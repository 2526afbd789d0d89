"""`fugu trust` and `fugu untrust`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.commands.here import current, here, newline
from fugu_cli.config import skills, trust_store
from fugu_cli.config.files import load, repository
from fugu_cli.errors import UsageError
from fugu_cli.policy.paths import is_folder


def trust(folder: Path | None) -> int:
    """Trust the repository of `folder`, by default that of the current one."""
    root, data = _root(folder), here().trust_data
    known = trust_store.trust(data, root)
    for place in _below(folder, root):
        if trust_store.trust(data, place):
            newline(f"{place} is trusted now as well: it tells agents what to do")
    counts = "its .fugurc, instructions (AGENTS.md), .mcp.json, .agents and .claude count as they are"
    newline(f"{root} is trusted {'now' if known else 'already'}: {counts}")
    loaded = load(folder or current(), os.environ)
    for server in loaded.servers.servers:
        if server.source.startswith(str(root)):
            newline(f"its MCP server {server.name} is started by sessions here: {server.said}")
    for hook in loaded.hooks.hooks:
        if not hook.own and not hook.fault:
            newline(f"its {hook.moment} hook is run by sessions here: {hook.said}")
    for skill in loaded.library.skills:
        if not skill.own:
            newline(f"its skill {skill.name} is told to agents: {skill.description}")
    for command in loaded.library.commands:
        if not command.own:
            newline(f"its command /{command.name} can be used: {command.about}")
    return 0


def untrust(folder: Path | None) -> int:
    """Take it back."""
    root, data = _root(folder), here().trust_data
    for place in _below(folder, root):
        trust_store.untrust(data, place)
    if trust_store.untrust(data, root):
        newline(f"{root} is not trusted any more")
        return 0
    newline(f"{root} was not trusted")
    return 0


def _below(folder: Path | None, root: Path) -> Sequence[Path]:
    """The folders between it and the root that tell agents what to do."""
    return [place for place in skills.holding(folder or current(), root) if place != root]


def _root(folder: Path | None) -> Path:
    if folder is None:
        return repository(current())
    if not is_folder(folder):
        raise UsageError(f"{folder} is not a folder", hint="give the folder to trust")
    return repository(folder)
