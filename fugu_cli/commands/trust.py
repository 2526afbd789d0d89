"""`fugu trust` and `fugu untrust`."""

from __future__ import annotations

import os
from pathlib import Path

from fugu_cli import config_trust
from fugu_cli.commands.here import here, newline
from fugu_cli.config_files import load, repository
from fugu_cli.errors import UsageError


def trust(folder: Path | None) -> int:
    """Trust the repository of `folder`, by default that of the current one."""
    root = _root(folder)
    known = config_trust.trust(here().config.data, root)
    newline(f"{root} is trusted {'now' if known else 'already'}: its .fugurc and AGENTS.md count as they are")
    loaded = load(root, os.environ)
    for server in loaded.servers.servers:
        if server.source.startswith(str(root)):
            newline(f"its MCP server {server.name} is started by sessions here: {server.said}")
    for hook in loaded.hooks.hooks:
        if not hook.own:
            newline(f"its {hook.moment} hook is run by sessions here: {hook.said}")
    return 0


def untrust(folder: Path | None) -> int:
    """Take it back."""
    root, data = _root(folder), here().config.data
    if config_trust.untrust(data, root):
        newline(f"{root} is not trusted any more")
        return 0
    newline(f"{root} was not trusted")
    return 0


def _root(folder: Path | None) -> Path:
    if folder is None:
        return repository(Path.cwd())
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder", hint="give the folder to trust")
    return repository(folder)
