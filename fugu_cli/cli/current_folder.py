"""The folder a command was called in: its configuration, its trust (`fugu trust`)
and its skills (`fugu skills`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from fugu_cli.config import Config
from fugu_cli.config import trust as config_trust
from fugu_cli.config.agent_pool import configured_entries, detected_keys, usable_pool
from fugu_cli.config.kept_keys import add_kept_keys
from fugu_cli.config.loader import LoadedConfig, load_config, repository
from fugu_cli.errors import ModelFileError, UsageError
from fugu_cli.extensions import instruction_files
from fugu_cli.extensions.mcp_settings import DeclaredServers, read_named
from fugu_cli.extensions.skill_library import format_library
from fugu_cli.formatting import sanitize
from fugu_cli.safety.paths import is_folder
from fugu_cli.safety.programs import add_repository, repositories_in_use
from fugu_cli.session import log
from fugu_cli.session.events import Recorded
from fugu_cli.ui.output_stream import OutputStream

if TYPE_CHECKING:
    from fugu_cli.providers.local_servers import LocalServer


LOCAL_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


def current_config(
    flags: Mapping[str, Any] | None = None,
    *,
    quiet: bool = False,
    trust: bool = False,
    appended: str | None = None,
    mcp_config: str | None = None,
    folder: Path | None = None,
) -> LoadedConfig:
    """Return the configuration of the current folder, or of `folder`.

    `appended` are standing instructions of the command line. `mcp_config` is a file with more MCP
    servers, or its text. If `quiet`, the caller shows the notes. Keys of `fugu login` are in the
    environment from then on. Raises ConfigError, and UsageError if the folder is gone.
    """
    if folder is None:
        folder = current_path()
        add_repository(repository(folder))  # whatever this command starts is not found there
    with repositories_in_use(repository(folder)):
        key_notes = add_kept_keys(os.environ)
    loaded = load_config(folder, os.environ, flags, trust=trust)
    loaded = replace(loaded, notes=(*key_notes, *loaded.notes))
    for note in () if quiet else loaded.notes:
        say(note)
    named = read_named(mcp_config, os.environ) if mcp_config is not None else DeclaredServers()
    return replace(loaded, appended=appended or "", servers=loaded.servers.joined(named))


def needed_models(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the embedded models of the pool's agents, each once, including those that are not
    fetched yet.
    """
    from fugu_cli.local.store import Store

    store = Store(config.cache)
    embedded = {model.name for model in store.models}
    entries = configured_entries(config, environ)
    used = [entry.model for entry in entries if entry.provider == "local"]
    return tuple(dict.fromkeys(name for name in used if name in embedded))


def missing_models(config: Config, environ: Mapping[str, str]) -> tuple[tuple[str, ...], float]:
    """Return the models that are not on this machine, and their size in gigabytes."""
    from fugu_cli.local.store import Store

    store = Store(config.cache)
    missing = tuple(name for name in needed_models(config, environ) if store.find(name) is None)
    return missing, sum(store.model(name).size for name in missing) / 1e9


def local_servers(config: Config) -> tuple[LocalServer, ...]:
    """Return the model servers on this machine that answer and are in no entry of the pool."""
    import asyncio

    from fugu_cli.providers.local_servers import find_local_servers

    named = [urlsplit(entry.base_url or "") for entry in config.agents]
    taken = {url.port for url in named if url.hostname in LOCAL_HOSTS}
    servers = asyncio.run(find_local_servers(os.environ))
    return tuple(server for server in servers if urlsplit(server.base_url).port not in taken)


def check_embedded(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return notes for a user of embedded models: missing packages, missing models, or no key in
    the first run.

    Raises ModelFileError if no agent could work without them.
    """
    pool = usable_pool(config, environ)
    if all(entry.provider != "local" for entry in configured_entries(config, environ)):
        return ()
    from fugu_cli.local.server_lease import missing_package

    if (fault := missing_package()) is not None:
        if all(entry.provider == "local" for entry in pool):
            raise fault
        return (f"{fault}: what agents on this machine cannot do goes to the others; {fault.hint}",)
    missing, gigabytes = missing_models(config, environ)
    first = (
        not config.agents and not detected_keys(environ) and not (config.data / "sessions").exists()
    )
    if not missing:
        return (LOGIN_NOTE,) if first else ()
    words = (
        f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on this machine yet "
        f"({gigabytes:.1f} GB)"
    )
    able = [entry for entry in pool if entry.provider != "local" or entry.model not in missing]
    if not able:
        raise ModelFileError(
            words, hint="fetch with `fugu models pull`, or keep a provider's key with `fugu login`"
        )
    possessive, pronoun = ("its", "it") if len(missing) == 1 else ("their", "them")
    return (
        f"{words}: {possessive} agents are left out until `fugu models pull` fetches {pronoun}",
    )


LOGIN_NOTE = (
    "no provider's key is set, so small models of this machine work; `fugu login` keeps a key"
)


def current_path() -> Path:
    """Return the current folder. Raises UsageError if it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError(
            "the current folder does not exist any more", hint="change to one that does"
        ) from error


def read_records(path: Path) -> list[Recorded]:
    """Read a session. Of a damaged one the lines before the fault are returned, with a message.

    Raises StorageError if no line can be read, or a newer fugu wrote them.
    """
    result = log.examine(path)
    if result.fault is not None:
        error = result.fault.error(path)
        if result.fault.newer or not result.records:
            raise error
        say(f"{error}; what stands before it is shown; {error.hint}")
    return result.records


def say(text: str) -> None:
    """Print a line for people on standard error."""
    OutputStream(sys.stderr).line(f"fugu: {text}")


def print_clean(text: str) -> None:
    """Print a line of a command's output, without control characters."""
    print(sanitize(text))


def trust(folder: Path | None) -> int:
    """Trust the repository of `folder`, by default that of the current one."""
    root, data = _repository_root(folder), current_config().trust_data
    newly_trusted = trust_folders(folder, root, data)
    for path in newly_trusted:
        if path != root:
            print_clean(f"{path} is trusted now as well: it tells agents what to do")
    counts = (
        "its .fugurc, instructions (AGENTS.md), .mcp.json, .agents and .claude count as they are"
    )
    print_clean(f"{root} is trusted {'now' if root in newly_trusted else 'already'}: {counts}")
    loaded = load_config(folder or current_path(), os.environ)
    for server in loaded.servers.servers:
        if server.source.startswith(str(root)):
            print_clean(
                f"its MCP server {server.name} is started by sessions here: {server.description}"
            )
    for hook in loaded.hooks.hooks:
        if not hook.own and not hook.fault:
            print_clean(f"its {hook.moment} hook is run by sessions here: {hook.description}")
    for skill in loaded.library.skills:
        if not skill.own:
            print_clean(f"its skill {skill.name} is told to agents: {skill.description}")
    for command in loaded.library.commands:
        if not command.own:
            print_clean(f"its command /{command.name} can be used: {command.about}")
    for agent in loaded.library.agents:
        if not agent.own:
            print_clean(f"its subagent {agent.name} is told to agents: {agent.description}")
    return 0


def trust_folders(folder: Path | None, root: Path, data: Path) -> Sequence[Path]:
    """Trust the repository at `root` and the folders from there to `folder` that tell agents what
    to do.

    Return those that were not trusted before. Raises StorageError.
    """
    folders = (root, *_instruction_folders(folder, root))
    return [path for path in folders if config_trust.trust(data, path)]


def untrust(folder: Path | None) -> int:
    """Withdraw the trust in the folder and in the folders from the root to it."""
    root, data = _repository_root(folder), current_config().trust_data
    for subfolder in _instruction_folders(folder, root):
        config_trust.untrust(data, subfolder)
    if config_trust.untrust(data, root):
        print_clean(f"{root} is not trusted any more")
        return 0
    print_clean(f"{root} was not trusted")
    return 0


def _instruction_folders(folder: Path | None, root: Path) -> Sequence[Path]:
    """Return the folders below the root that hold instructions."""
    return [
        path
        for path in instruction_files.instruction_folders(folder or current_path(), root)
        if path != root
    ]


def _repository_root(folder: Path | None) -> Path:
    if folder is None:
        return repository(current_path())
    if not is_folder(folder):
        raise UsageError(f"{folder} is not a folder", hint="give the folder to trust")
    return repository(folder)


def show_skills() -> int:
    """Print the list. What is left out, and why, is a part of it."""
    loaded = current_config()
    print(sanitize(format_library(loaded.library, loaded.root)))
    return 0
