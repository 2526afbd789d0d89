"""`fugu plugin`: adds, removes and lists plugins. What a plugin brings is shown before the user is
asked to trust it, and nothing of it runs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from fugu_cli.cli.command_flags import PluginAddFlags
from fugu_cli.cli.current_folder import current_config, print_clean, say
from fugu_cli.config import MANAGED_FILE
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.errors import UsageError
from fugu_cli.extensions.plugin_sources import PluginAddress, parse_address
from fugu_cli.extensions.plugin_store import (
    FetchedPlugin,
    KeptPlugin,
    fetch_plugin,
    keep_plugin,
    read_index,
    remove_plugin,
)
from fugu_cli.extensions.plugins import parts_in_use
from fugu_cli.formatting import escape_for_approval, plural
from fugu_cli.system.temp_dirs import temp_dir

NOT_ADDED = 4
MOST_FILES = 30
"""Changed files that are named."""


def add_plugin(flags: PluginAddFlags) -> int:
    """Show what a plugin brings, ask, and keep it. Raises FuguError."""
    loaded = current_config(quiet=True)
    address = parse_address(flags.source, flags.path or "", flags.ref or "")
    _check_allowed(loaded, address)
    if address.in_git:
        say(f"fetching {address}")
    with temp_dir("plugin") as folder:
        fetched = fetch_plugin(address, folder)
        kept = read_index(loaded.trust_data).get(fetched.plugin.name)
        for line in _describe(fetched):
            print_clean(line)
        if kept is not None:
            if fetched.is_kept(loaded.trust_data, kept):
                print_clean("it is added and trusted as it is already")
                return 0
            for line in _describe_change(loaded.trust_data, fetched, kept):
                print_clean(line)
        if not (flags.yes or _is_trusted_by_user(fetched.plugin.name)):
            print_clean("nothing was added")
            return NOT_ADDED
        keep_plugin(loaded.trust_data, fetched)
    print_clean(f"the plugin {fetched.plugin.name} is added; sessions have it from now on")
    return 0


def remove(name: str) -> int:
    """Remove a plugin. Raises UsageError if there is none."""
    remove_plugin(current_config(quiet=True).trust_data, name)
    print_clean(f"the plugin {name} is removed")
    return 0


def list_plugins() -> int:
    """List the plugins, what each brings, and why a plugin or a part of it is not used."""
    loaded = current_config(quiet=True)
    index = read_index(loaded.trust_data)
    if not index:
        print_clean("there are no plugins; `fugu plugin add` adds one (`fugu help plugins`)")
        return 0
    used = {plugin.name: plugin for plugin in loaded.plugins}
    for name, kept in index.items():
        version = f" {kept.version}" if kept.version else ""
        commit = f", commit {kept.commit[:12]}" if kept.commit else ""
        print_clean(f"{name}{version}  ({kept.address}{commit})")
        if name in used:
            plugin = used[name]
            for part in parts_in_use(plugin, loaded.library, loaded.servers):
                print_clean(f"  {part}")
            for note in (*plugin.hooks.notes, *plugin.servers.notes):
                say(note)
    for note in loaded.plugin_notes:
        say(note)
    return 0


def _check_allowed(loaded: LoadedConfig, address: PluginAddress) -> None:
    if loaded.managed is None:
        return
    refusal = loaded.managed.plugin_refusal(address.source)
    if not refusal and not loaded.managed.network and address.is_remote:
        refusal = f"{MANAGED_FILE} allows no network"
    if refusal:
        raise UsageError(
            f"the plugin may not be added: {refusal}",
            hint="your administrator decides which plugins may be used",
        )


def _describe(fetched: FetchedPlugin) -> Iterator[str]:
    """Yield the lines that say what a plugin is and brings. Commands are shown whole."""
    plugin = fetched.plugin
    version = f" {plugin.version}" if plugin.version else ""
    about = f": {plugin.description}" if plugin.description else ""
    yield f"{plugin.name}{version}{about}"
    commit = f", commit {plugin.commit}" if plugin.commit else ""
    size = sum(len(file.data) for file in fetched.files)
    yield f"from {plugin.source}{commit}; {plural(len(fetched.files), 'file')}, {size:,} bytes"
    library = plugin.library
    for hook in plugin.hooks.hooks:
        matcher = f" {hook.matcher}" if hook.matcher else ""
        text = f"hook {hook.moment}{matcher}: {hook.command or 'none: it says no to every call'}"
        yield from _whole(f"{text} (in the sandbox, where it is on)")
    for command in library.commands:
        yield f"  command /{command.name}: {command.about}"
    for skill in library.skills:
        yield f"  skill {skill.name}: {skill.description}"
    for agent in library.agents:
        yield f"  subagent {agent.name}: {agent.description}"
    for server in plugin.servers.servers:
        yield from _whole(f"MCP server {server.name}: {server.description} (with your rights)")
    if plugin.variables:
        yield f"  its MCP servers are given your variables {', '.join(plugin.variables)}"
    if plugin.unused:
        yield f"  not used by fugu: {', '.join(plugin.unused)}"
    for note in (*plugin.hooks.notes, *plugin.servers.notes, *library.notes):
        yield f"  note: {note.replace(f'{plugin.folder}/', '')}"


def _whole(text: str) -> Sequence[str]:
    """Return all of a text that is trusted, with what does not show, as indented lines."""
    return [f"  {line}" for line in escape_for_approval(text).splitlines()]


def _describe_change(data: Path, fetched: FetchedPlugin, kept: KeptPlugin) -> Iterator[str]:
    commit = f", commit {kept.commit}" if kept.commit else ""
    yield f"you trust another version of {fetched.plugin.name}: {kept.address}{commit}"
    names = fetched.changed_files(data, kept)
    shown = ", ".join(names[:MOST_FILES])
    more = f" and {len(names) - MOST_FILES} more" if len(names) > MOST_FILES else ""
    yield f"changed: {shown}{more}" if names else "no file differs"


def _is_trusted_by_user(name: str) -> bool:
    """Ask the user. Raises UsageError where nobody can be asked."""
    if sys.stdin is None or not sys.stdin.isatty():
        raise UsageError(
            "nobody was asked whether to trust this plugin, so nothing was added",
            hint="look at what it brings, then add --yes",
        )
    print(f"Trust {name} and use it in every folder? (y, Enter: no) ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
