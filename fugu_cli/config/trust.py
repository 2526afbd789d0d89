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
from fugu_cli.extensions.mcp_settings import files_named_by_servers
from fugu_cli.safety.paths import is_file
from fugu_cli.system import atomic_files
from fugu_cli.system.bounded_json import parse_json

TRUSTED_FILES = (".fugurc", ".mcp.json")
"""Files of a repository's root that tell what to do. So do its instructions and what they import,
everything in `.agents`, skills, commands and subagents in `.claude`, and the files in the
repository that `.mcp.json` and the hooks would have run, or that skills, commands and subagents
link to."""
FOLDERS = (".agents", ".claude/skills", ".claude/commands", ".claude/agents")
UNREADABLE = "unreadable"
BELOW = "below:"
"""Before the names of instruction files of folders below the root."""

Hashes = Mapping[str, str]


def is_trusted(data: Path, folder: Path) -> bool:
    """Return whether `folder` is trusted in its present state, or needs no trust and lies below a
    trusted one.
    """
    here = folder.resolve()
    known = _read(data)
    if here in known:
        return not _differing(known[here], _hashes(here))
    above = next((place for place in here.parents if place in known), None)
    return above is not None and not _hashes(here) and not _differing(known[above], _hashes(above))


def holds_what_is_trusted(data: Path, folder: Path, copy: Path) -> bool:
    """Return whether a copy of a folder holds exactly the directing files that the user trusted
    there.
    """
    known = _read(data).get(folder.resolve())
    return known is not None and not _differing(known, _hashes(copy.resolve()))


def unchanged_since_trust(data: Path, root: Path) -> Callable[[Path], bool]:
    """Return a function that says whether a directing file of `root` is unchanged since it was
    trusted.
    """
    here = root.resolve()
    known = _read(data).get(here, {})

    def vouched(path: Path) -> bool:
        name = path.resolve()
        name = name.relative_to(here) if name.is_relative_to(here) else path
        return _hash(path) in {known.get(f"{BELOW}{name.as_posix()}"), known.get(name.as_posix())}

    return vouched


def changed_files(data: Path, folder: Path) -> tuple[str, ...]:
    """Return the files of a trusted folder that changed since; none for an untrusted one."""
    here = folder.resolve()
    known = _read(data)
    return _differing(known[here], _hashes(here)) if here in known else ()


def trust(data: Path, folder: Path) -> bool:
    """Trust `folder` as it is now; False when it was trusted so already."""
    here = folder.resolve()
    known = _read(data)
    below = {
        f"{BELOW}{path.relative_to(here).as_posix()}": _hash(path)
        for path in instruction_files.below_root(here)
    }
    now = {**_hashes(here), **below}
    if known.get(here) == now and not _differing(known[here], now):
        return False
    _write(data, {**known, here: now})
    return True


def untrust(data: Path, folder: Path) -> bool:
    """Take trust back from `folder` itself; False when it had none of its own."""
    known, here = _read(data), folder.resolve()
    if here not in known:
        return False
    _write(data, {place: hashes for place, hashes in known.items() if place != here})
    return True


def _hashes(folder: Path) -> dict[str, str]:
    """Name -> SHA-256 of each file that tells what to do. One that cannot be read counts as changed
    every time.
    """
    return {path.relative_to(folder).as_posix(): _hash(path) for path in _telling(folder)}


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


def _differing(then: Hashes, now: Hashes) -> tuple[str, ...]:
    unequal = {
        name
        for name in {**then, **now}
        if then.get(name) != now.get(name) and not name.startswith(BELOW)
    }
    return tuple(
        sorted(unequal | {name for name, value in now.items() if value.startswith(UNREADABLE)})
    )


def _file(data: Path) -> Path:
    return data / "trusted"


def _read(data: Path) -> dict[Path, Hashes]:
    try:
        text = _file(data).read_text(encoding="utf-8", errors="surrogateescape")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise StorageError(f"cannot read {_file(data)}: {error.strerror}") from error
    try:
        found = parse_json(text)
    except ValueError:
        return {}  # trust that cannot be read is none
    if not isinstance(found, dict):
        return {}
    return {
        Path(place): dict(hashes) for place, hashes in found.items() if isinstance(hashes, dict)
    }


def _write(data: Path, known: Mapping[Path, Hashes]) -> None:
    target = _file(data)
    text = json.dumps({str(place): dict(known[place]) for place in sorted(known)}, indent=1)
    try:
        with atomic_files.replacement_file(target) as draft:
            draft.write_text(text + "\n", encoding="utf-8", errors="surrogateescape")
    except OSError as error:
        raise StorageError(
            f"cannot write {target}: {error.strerror}",
            hint="check space and permissions; nothing was changed",
        ) from error
