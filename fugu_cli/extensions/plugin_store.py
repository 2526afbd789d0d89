"""The plugins that the user has added and trusts: `DATA/plugins`, a copy of each one's files.

`plugins.json` there holds where each came from and a hash of the copy. A copy that does not match
its hash is not used. Commands and agents cannot write there.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from fugu_cli.errors import FuguError, StorageError, UsageError
from fugu_cli.extensions.plugin_sources import (
    PluginAddress,
    PluginFile,
    digest_of,
    digest_of_folder,
    read_files,
    write_files,
)
from fugu_cli.extensions.plugins import Plugin, check_not_empty, read_plugin
from fugu_cli.system.atomic_files import make_private_folder, write_atomically
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.system.temp_dirs import temp_dir

FOLDER = "plugins"
INDEX = "plugins.json"
OLD_VERSION_SECONDS = 24 * 3600.0
"""Seconds for which the copy of a replaced version is kept."""


@dataclass(frozen=True)
class KeptPlugin:
    """A line of the index: the address of a plugin, its commit ("" for a folder), and the hash of
    the files that the user trusts.
    """

    source: str
    path: str
    ref: str
    commit: str
    digest: str
    version: str = ""

    @property
    def address(self) -> PluginAddress:
        return PluginAddress(self.source, self.path, self.ref)

    def folder(self, data: Path, name: str) -> Path:
        """Return the folder of the copy."""
        return data / FOLDER / f"{name}-{self.digest[:16]}"


@dataclass(frozen=True)
class FetchedPlugin:
    """A plugin that was fetched from its address and is not kept yet. `kept` is its future line of
    the index.
    """

    plugin: Plugin
    address: PluginAddress
    files: list[PluginFile]
    kept: KeptPlugin

    def is_kept(self, data: Path, before: KeptPlugin) -> bool:
        """Return whether the kept plugin `before` is this one, and its copy is unchanged."""
        if before.address != self.address or before.commit != self.kept.commit:
            return False
        if before.digest != self.kept.digest:
            return False
        return digest_of_folder(before.folder(data, self.plugin.name)) == before.digest

    def changed_files(self, data: Path, before: KeptPlugin) -> tuple[str, ...]:
        """Return the names of the files that differ from those of the kept plugin."""
        folder = before.folder(data, self.plugin.name)
        try:
            old, _ = read_files(PluginAddress(str(folder)))
        except FuguError:
            return ()
        old_by_path = {file.path: file for file in old}
        new_by_path = {file.path: file for file in self.files}
        names = sorted({*old_by_path, *new_by_path})
        return tuple(name for name in names if old_by_path.get(name) != new_by_path.get(name))


def read_index(data: Path) -> dict[str, KeptPlugin]:
    """Return the kept plugins by name. Raises StorageError for an index that cannot be read."""
    path = data / FOLDER / INDEX
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise StorageError(
            f"cannot read {path}: {error}", hint="check the file's permissions"
        ) from error
    try:
        index = TypeAdapter(dict[str, KeptPlugin]).validate_python(parse_json(text))
    except (ValueError, ValidationError) as error:
        raise StorageError(
            f"{path} is damaged",
            hint="remove it and add your plugins again (`fugu plugin add`)",
        ) from error
    return dict(sorted(index.items()))


def load_plugins(
    data: Path, environ: Mapping[str, str], refusal: Callable[[str], str]
) -> tuple[list[Plugin], tuple[str, ...]]:
    """Return the plugins that may be used, and a sentence for each that may not. `refusal` returns
    why the administrator forbids a source, "" if not.
    """
    try:
        index = read_index(data)
    except StorageError as error:
        return [], (f"no plugin is used: {error}; {error.hint}",)
    plugins: list[Plugin] = []
    notes: list[str] = []
    for name, kept in index.items():
        why = refusal(kept.source)
        if why:
            notes.append(f"the plugin {name} is not used: {why}")
            continue
        folder = kept.folder(data, name)
        if digest_of_folder(folder) != kept.digest:
            notes.append(
                f"the plugin {name} is not used: its files in {folder} are not those that you "
                f"trusted; `fugu plugin add` shows them and asks again"
            )
            continue
        try:
            plugin = read_plugin(folder, name, environ)
        except UsageError as error:
            notes.append(f"the plugin {name} is not used: {error}")
            continue
        plugins.append(replace(plugin, source=str(kept.address), commit=kept.commit))
    return plugins, tuple(notes)


def fetch_plugin(address: PluginAddress, folder: Path) -> FetchedPlugin:
    """Copy a plugin from its address into an empty folder and read it. The variables of its MCP
    servers are not filled in. Raises FuguError.
    """
    files, commit = read_files(address)
    try:
        write_files(files, folder)
    except OSError as error:
        raise StorageError(f"cannot copy {address}: {error.strerror or error}") from error
    location = address.path or address.source.rstrip("/").removesuffix(".git")
    fallback_name = Path(location).name.rpartition(":")[2].lower()  # `host:name` of an ssh address
    plugin = read_plugin(folder, fallback_name, environ=None)
    check_not_empty(plugin)
    kept = KeptPlugin(
        source=address.source,
        path=address.path,
        ref=address.ref,
        commit=commit,
        digest=digest_of(files),
        version=plugin.version,
    )
    plugin = replace(plugin, source=str(address), commit=commit)
    return FetchedPlugin(plugin, address, files, kept)


def keep_plugin(data: Path, fetched: FetchedPlugin) -> None:
    """Keep a plugin that the user trusts. It replaces another version of it. Raises StorageError."""
    index = read_index(data)
    name = fetched.plugin.name
    folder = fetched.kept.folder(data, name)
    try:
        make_private_folder(data / FOLDER)
        with temp_dir("plugin", data / FOLDER) as temporary:
            copy = temporary / "files"
            copy.mkdir()
            write_files(fetched.files, copy)
            if folder.exists():
                shutil.rmtree(folder)
            copy.rename(folder)
    except OSError as error:
        raise StorageError(
            f"cannot keep the plugin in {data / FOLDER}: {error.strerror or error}",
            hint="check space and permissions; nothing was changed",
        ) from error
    before = index.get(name)
    index[name] = fetched.kept
    _write_index(data, index)
    if before is not None and before.folder(data, name) != folder:
        with suppress(OSError):
            os.utime(before.folder(data, name))
    _remove_old_versions(data, index)


def _remove_old_versions(data: Path, index: Mapping[str, KeptPlugin]) -> None:
    """Remove copies that were replaced a day ago: sessions that run may still use younger ones."""
    kept = {plugin.folder(data, name) for name, plugin in index.items()}
    with suppress(OSError):
        for folder in (data / FOLDER).iterdir():
            is_old = folder.stat().st_mtime < time.time() - OLD_VERSION_SECONDS
            if is_old and folder.is_dir() and folder not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def remove_plugin(data: Path, name: str) -> None:
    """Forget a plugin and remove its files. Raises UsageError if there is none."""
    index = read_index(data)
    if name not in index:
        names = ", ".join(index)
        raise UsageError(
            f"there is no plugin {name!r}",
            hint=f"there are {names}" if names else "`fugu plugin add` adds one",
        )
    kept = index.pop(name)
    _write_index(data, index)
    shutil.rmtree(kept.folder(data, name), ignore_errors=True)


def _write_index(data: Path, index: Mapping[str, KeptPlugin]) -> None:
    values = {name: asdict(kept) for name, kept in sorted(index.items())}
    write_atomically(
        data / FOLDER / INDEX, f"{json.dumps(values, indent=1)}\n".encode(), mode=0o600
    )
