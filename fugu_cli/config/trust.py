"""The folders that the user trusts, and the contents that were trusted.

`DATA/trusted` maps each trusted folder to hashes of the files that direct fugu or its agents. If
one of them changes or a new one appears, the folder must be trusted again. Instructions of folders
below it are checked one by one when agents work there, so that no start walks through all folders.
Knows nothing of what trust is used for.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from fugu_cli.errors import StorageError
from fugu_cli.extensions import hook_settings as hooks
from fugu_cli.extensions import instruction_files
from fugu_cli.extensions import skill_library as skills
from fugu_cli.extensions.mcp_settings import files_named_by_servers, words_of_servers
from fugu_cli.extensions.repository_code import TrustedCode, code_hashes, paths_in_repository
from fugu_cli.safety.paths import is_file
from fugu_cli.system import atomic_files
from fugu_cli.system.bounded_json import parse_json

TRUSTED_FILES = (".fugurc", ".mcp.json")
"""Files of a repository's root that tell what to do. So do its instructions and what they import,
everything in `.agents`, skills, commands and subagents in `.claude`, and the files in the
repository that `.mcp.json` and the hooks would have run, or that skills, commands and subagents
link to."""
FOLDERS = (".agents", ".claude/skills", ".claude/commands", ".claude/agents")
TRUSTED = "trusted"
DECLINED = "not-trusted"
"""Folders that the user did not trust when asked, with the same hashes: they are not asked about
again before a file changes.
"""
UNREADABLE = "unreadable"
BELOW = "below:"
"""Before the names of instruction files of folders below the root."""
CODE = "code:"
"""Before the names of folders with files that the repository's MCP servers and hooks run. What has
changed there takes no trust away: it decides whether they run where no sandbox holds."""

Hashes = Mapping[str, str]


def is_trusted(data: Path, folder: Path) -> bool:
    """Return whether `folder` is trusted in its present state, or needs no trust and lies below a
    trusted one.
    """
    folder = folder.resolve()
    trusted = _read(data)
    if folder in trusted:
        return not _differing(trusted[folder], _hashes(folder))
    for parent in folder.parents:
        if parent in trusted:
            return not _hashes(folder) and not _differing(trusted[parent], _hashes(parent))
    return False


def holds_what_is_trusted(data: Path, folder: Path, copy: Path) -> bool:
    """Return whether a copy of a trusted folder holds exactly the directing files that the user
    trusted there.
    """
    trusted = _read(data).get(folder.resolve())
    return trusted is not None and not _differing(trusted, _hashes(copy.resolve()))


def unchanged_since_trust(data: Path, root: Path) -> Callable[[Path], bool]:
    """Return a function that says whether a directing file of `root` is unchanged since it was
    trusted.
    """
    folder = root.resolve()
    hashes = _read(data).get(folder, {})

    def is_unchanged(path: Path) -> bool:
        name = path.resolve()
        name = name.relative_to(folder) if name.is_relative_to(folder) else path
        return _hash(path) in {hashes.get(f"{BELOW}{name.as_posix()}"), hashes.get(name.as_posix())}

    return is_unchanged


def trusted_code(data: Path, root: Path, *, for_one_run: bool = False) -> TrustedCode:
    """Return a check of whether the code that servers and hooks of `root` run is the code that the
    user trusted. With `for_one_run`, the present code is trusted.
    """
    folder = root.resolve()
    hashes = _code_hashes(folder) if for_one_run else _read(data).get(folder, {})
    start = len(CODE)
    code = {name[start:]: value for name, value in hashes.items() if name.startswith(CODE)}
    return TrustedCode(code)


def changed_files(data: Path, folder: Path) -> tuple[str, ...]:
    """Return the files of a trusted folder that changed since; none for an untrusted one."""
    resolved = folder.resolve()
    trusted = _read(data)
    return _differing(trusted[resolved], _hashes(resolved)) if resolved in trusted else ()


def trust(data: Path, folder: Path) -> bool:
    """Trust `folder` with its present files. Return False if these were trusted already."""
    resolved = folder.resolve()
    trusted = _read(data)
    hashes = {**_hashes_with_below(resolved), **_code_hashes(resolved)}
    if trusted.get(resolved) == hashes and not _differing(trusted[resolved], hashes):
        return False
    _write(data, {**trusted, resolved: hashes})
    return True


def decline(data: Path, folder: Path) -> None:
    """Remember that the user does not trust `folder` as it is now. Raises StorageError."""
    resolved = folder.resolve()
    _write(data, {**_read(data, DECLINED), resolved: _hashes_with_below(resolved)}, DECLINED)


def is_declined(data: Path, folder: Path) -> bool:
    """Return whether the user did not trust `folder` as it is now. Raises StorageError."""
    resolved = folder.resolve()
    return _read(data, DECLINED).get(resolved) == _hashes_with_below(resolved)


def trust_file(data: Path, folder: Path, path: Path) -> None:
    """Trust one file of a trusted folder with its present content. Other changed files stay
    untrusted.
    """
    resolved = folder.resolve()
    trusted = _read(data)
    name = path.relative_to(resolved).as_posix()
    hashes = {**trusted.get(resolved, {}), name: _hash(path)}
    _write(data, {**trusted, resolved: hashes})


def untrust(data: Path, folder: Path) -> bool:
    """Take trust back from `folder` itself; False when it had none of its own."""
    trusted, resolved = _read(data), folder.resolve()
    if resolved not in trusted:
        return False
    _write(data, {path: hashes for path, hashes in trusted.items() if path != resolved})
    return True


def _hashes(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file that can tell fugu or its agents what to do, by name. An
    unreadable file counts as changed every time.
    """
    return {path.relative_to(folder).as_posix(): _hash(path) for path in _telling(folder)}


def _hashes_with_below(folder: Path) -> dict[str, str]:
    """Return the hashes with those of instruction files in folders below."""
    below = {
        f"{BELOW}{path.relative_to(folder).as_posix()}": _hash(path)
        for path in instruction_files.below_root(folder)
    }
    return {**_hashes(folder), **below}


def _code_hashes(folder: Path) -> dict[str, str]:
    words = (*words_of_servers(folder), *hooks.words_of_hooks(folder))
    hashes = code_hashes(paths_in_repository(words, folder), folder)
    return {f"{CODE}{name}": value for name, value in hashes.items()}


def _hash(path: Path) -> str:
    try:
        return hashlib.sha256(hooks.content_of(path)).hexdigest()
    except OSError as error:
        return f"{UNREADABLE}: {error.strerror}"


def _telling(folder: Path) -> Iterator[Path]:
    yield from (folder / name for name in TRUSTED_FILES if is_file(folder / name))
    for file in instruction_files.folder_instruction_files(folder):
        yield from (file, *instruction_files.imported(file, folder))
    yield from files_named_by_servers(folder)
    yield from hooks.files_named_by_hooks(folder)
    yield from skills.files_linked_from_library(folder)
    for name in FOLDERS:
        yield from (path for path in sorted((folder / name).rglob("*")) if is_file(path))


def _differing(trusted: Hashes, present: Hashes) -> tuple[str, ...]:
    unequal = {
        name
        for name in {**trusted, **present}
        if trusted.get(name) != present.get(name) and not name.startswith((BELOW, CODE))
    }
    return tuple(
        sorted(unequal | {name for name, value in present.items() if value.startswith(UNREADABLE)})
    )


def _read(data: Path, name: str = TRUSTED) -> dict[Path, Hashes]:
    file = data / name
    try:
        text = file.read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StorageError(f"cannot read {file}: {error.strerror}") from error
    try:
        parsed = parse_json(text)
    except ValueError:
        return {}  # trust that cannot be read is none
    if not isinstance(parsed, dict):
        return {}
    return {Path(path): dict(hashes) for path, hashes in parsed.items() if isinstance(hashes, dict)}


def _write(data: Path, trusted: Mapping[Path, Hashes], name: str = TRUSTED) -> None:
    target = data / name
    text = json.dumps({str(path): dict(trusted[path]) for path in sorted(trusted)}, indent=1)
    try:
        with atomic_files.replacement_file(target) as draft:
            draft.write_text(text + "\n", encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}",
            hint="check space and permissions; nothing was changed",
        ) from error
