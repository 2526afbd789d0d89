"""AGENTS.md and its like, and which skills and commands count in a folder: the user's own and those
of a trusted repository."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import ConfigError, StorageError
from fugu_cli.extensions import skill_library
from fugu_cli.extensions.skill_library import FOLDERS, ExtensionFolder, SkillLibrary
from fugu_cli.safety.paths import (
    expand_home,
    inside,
    is_file,
    is_folder,
    is_secret,
    path_exists,
    real_path,
)
from fugu_cli.snapshots.repository_files import SKIPPED_FOLDERS, walk_files
from fugu_cli.system.atomic_files import write_atomically

NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md", ".cursorrules")
"""Of a folder all that are there count; what is to be remembered is added to the first."""
USER_FILES = (
    ".config/agents/AGENTS.md", ".agents/AGENTS.md", ".codex/AGENTS.md", ".claude/CLAUDE.md", ".gemini/GEMINI.md",
)  # fmt: skip
"""The user's own, in the home; of them the first that is there counts."""
LIMIT = 32_000
"""Characters of all of them together: every call of every agent pays for them."""
NEARER = 8000
"""Characters of those of one folder below the root."""
MOST = 1_000_000
"""Files that are looked at for instructions when a folder is trusted."""
DEEPEST = 5
"""Files that import one another."""
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"(?:^|(?<=\s))@(?P<path>[^\s`]+)", re.MULTILINE)

Vouched = Callable[[Path], bool]


@dataclass(frozen=True)
class StandingInstructions:
    """What agents are shown, and sentences for people about what they are not."""

    text: str
    notes: tuple[str, ...]


def folder_instruction_file(folder: Path) -> Path | None:
    """The file with the instructions of a folder."""
    return next((folder / name for name in NAMES if is_file(folder / name)), None)


def folder_instruction_files(folder: Path) -> tuple[Path, ...]:
    """Return the files with the instructions of a folder, for whichever agent they were written;
    a link to another of them is left out.
    """
    files = {
        real_path(folder / name): folder / name
        for name in reversed(NAMES)
        if is_file(folder / name)
    }
    return tuple(reversed(files.values()))


def files_in(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return the instruction files of the folders."""
    return tuple(file for folder in folders for file in folder_instruction_files(folder))


def user_instruction_file() -> Path | None:
    """The user's own file, for every repository."""
    from platformdirs import user_config_path

    places = (user_config_path("fugu") / NAMES[0], *(Path.home() / name for name in USER_FILES))
    return next((path for path in places if is_file(path)), None)


def memory_file(root: Path | None) -> Path:
    """The file to which what agents shall remember is added: of the repository `root`, or the
    user's own. Resolved.
    """
    if root is not None:
        return (folder_instruction_file(root) or root / NAMES[0]).resolve()
    from platformdirs import user_config_path

    return (user_instruction_file() or user_config_path("fugu") / NAMES[0]).resolve()


def add_to_memory(path: Path, text: str) -> str:
    """Add a list item to the end of a memory file; returns it as it was written. Raises
    StorageError.
    """
    item = "- " + "\n  ".join(text.split("\n"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_bytes() if path.exists() else b""
        lead = b"" if not before or before.endswith(b"\n") else b"\n"
        write_atomically(path, before + lead + item.encode("utf-8", "replace") + b"\n")
    except OSError as error:
        raise StorageError(
            f"cannot write {path}: {error.strerror}", hint="nothing was changed"
        ) from error
    return item


def standing_instructions(
    root: Path | None, below: Sequence[Path], vouched: Vouched
) -> StandingInstructions:
    """The user's own, those of the folder `root`, None where it is not trusted, and of the files
    `below`. Raises ConfigError."""
    sources: list[tuple[str, Path, Path]] = []
    if (own := user_instruction_file()) is not None:
        sources.append((f"{own.name}, for every repository", own, Path.home()))
    if root is not None:
        sources += [(file.name, file, root) for file in folder_instruction_files(root)]
    for file in below:
        heading = f"{file.name} of {file.parent.name}/, for work there"
        sources.append((heading, file, root or file.parent))
    seen: dict[Path, str] = {}
    shown: list[tuple[str, Path, str]] = []
    for heading, file, base in sources:
        if real_path(file) not in seen:
            text = _whole(file, base, vouched if file in below else _all, seen)
            if text not in [other for _, _, other in shown]:
                shown.append((heading, file, text))
    parts, notes = [], []
    rooms = _rooms([len(text) for _, _, text in shown])
    for (heading, file, text), room in zip(shown, rooms, strict=True):
        if text:
            parts.append(f"\nThe user's standing instructions ({heading}):\n{text[:room]}")
        elif file.stat().st_size:
            notes.append(f"{file}: it is not text, so agents are not shown it")
        if len(text) > room:
            notes.append(f"{file}: agents are shown its first {room:,} of {len(text):,} characters")
    return StandingInstructions("\n".join(parts), tuple(notes))


def _rooms(lengths: Sequence[int]) -> list[int]:
    """How much of each is shown: what short ones leave of their equal part is the long ones'."""
    rooms, left = [0] * len(lengths), LIMIT
    for done, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        rooms[place] = min(lengths[place], left // (len(lengths) - done))
        left -= rooms[place]
    return rooms


def nested_instructions(
    root: Path, shown: Sequence[Path], vouched: Vouched
) -> Callable[[Path], Mapping[str, str]]:
    """For a path in the repository, relative to its `root`: the instructions of the folders on the
    way there, each under its heading, the nearest last. Without those that are `shown` to
    everybody."""

    def found(path: Path) -> Mapping[str, str]:
        texts: dict[str, str] = {}
        seen: dict[Path, str] = {}
        for folder in (one for one in reversed((path, *path.parents)) if one != Path()):
            for file in folder_instruction_files(root / folder):
                if file in shown or real_path(file) in seen or not vouched(file):
                    continue
                text = _whole(file, root, vouched, seen)
                if text in texts.values():
                    continue
                heading = (
                    f"[The user's standing instructions for {folder.as_posix()}/ ({file.name}):]"
                )
                texts[heading] = text[:NEARER]
                if (more := len(text) - NEARER) > 0:
                    texts[heading] += f"\n[... {more:,} characters more in {file.name}]"
        return texts

    return found


def below_root(root: Path) -> Iterator[Path]:
    """The instruction files of the folders below `root` and what they import; another repository's
    are not its own.
    """
    names = {Path(name).name for name in NAMES}
    for folder in dict.fromkeys(
        path.parent for path in walk_files(root, limit=MOST) if path.name in names
    ):
        owner = folder.parent if folder.name == ".claude" else folder
        parents = [owner, *owner.parents]
        others = any(path_exists(place / ".git") for place in parents[: parents.index(root)])
        if owner != root and not others:
            for file in folder_instruction_files(owner):
                yield from (file, *imported(file, root))


def imported(file: Path, base: Path) -> list[Path]:
    """Files that an instruction file imports, and those that they do; all below `base`.
    Resolved.
    """
    found: dict[Path, str] = {}
    _read(file, base, _all, found)
    return [path for path in found if path != real_path(file)]


def _all(_: Path) -> bool:
    """What lies in the root itself was looked at when it was trusted."""
    return True


def _whole(file: Path, base: Path, vouched: Vouched, seen: dict[Path, str]) -> str:
    """Return the file and below it what it imports, but for files that were `seen` before, to which
    these are added. Raises ConfigError.
    """
    before = len(seen)
    _read(file, base, vouched, seen)
    first, *others = list(seen.items())[before:]
    return "\n\n".join([first[1], *(f"[{path.name}:]\n{text}" for path, text in others)])


def _read(file: Path, base: Path, vouched: Vouched, found: dict[Path, str], deep: int = 1) -> None:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", hint="make it readable, or remove it"
        ) from error
    wide = data.startswith(
        (b"\xff\xfe", b"\xfe\xff")
    )  # UTF-16, as some editors on Windows write it
    text = data.decode("utf-16" if wide else "utf-8-sig", "replace")
    found[real_path(file)] = text = "" if "\0" in text else text
    for named in _IMPORT.finditer(_CODE.sub("", text)):
        path, around = (
            real_path(file.parent / expand_home(named["path"].rstrip(".,;:!?)"))),
            real_path(base),
        )
        if deep == DEEPEST or path in found or not inside(path, around) or is_secret(path.name):
            continue
        if (
            SKIPPED_FOLDERS.isdisjoint(path.relative_to(around).parts)
            and is_file(path)
            and vouched(path)
        ):
            _read(path, base, vouched, found, deep + 1)


def load_library(folder: Path, root: Path, trusted: Callable[[Path], bool]) -> SkillLibrary:
    """What counts for work in `folder` of the repository `root`; `trusted` says whether a folder of
    it is.
    """
    return skill_library.load_library((*_repository(folder, root, trusted), *_own()))


def instruction_folders(folder: Path, root: Path) -> Iterator[Path]:
    """The folders from `folder` up to `root` in which the repository tells agents what to do, the
    nearest first.
    """
    here, home = folder.resolve(), Path.home().resolve()
    for place in (here, *here.parents):
        tells = (
            any(is_folder(place / name) for name in FOLDERS)
            or folder_instruction_file(place) is not None
        )
        if inside(place, root) and place != home and tells:
            yield place


def trusted_instructions(
    folder: Path, root: Path, counts: Callable[[Path], bool]
) -> tuple[Path, ...]:
    """Instructions of the folders between `root` and `folder` that count, the nearest last; not the
    root's own.
    """
    folders = [place for place in instruction_folders(folder, root) if place != root]
    return tuple(file for file in files_in(reversed(folders)) if counts(file))


def untrusted_instructions(
    folder: Path, root: Path, counts: Callable[[Path], bool]
) -> tuple[Path, ...]:
    """Instructions of the folders from `root` to `folder` that do not count, the nearest last."""
    folders = list(instruction_folders(folder, root))
    return tuple(file for file in files_in(reversed(folders)) if not counts(file))


def _repository(
    folder: Path, root: Path, trusted: Callable[[Path], bool]
) -> Iterator[ExtensionFolder]:
    for place in instruction_folders(folder, root):
        for name in FOLDERS:
            shown = (place.relative_to(root) / name).as_posix()
            yield ExtensionFolder(place / name, shown, base=place, trusted=trusted(place))


def _own() -> Iterator[ExtensionFolder]:
    from platformdirs import user_config_path

    for place in (user_config_path("fugu"), *(Path.home() / name for name in FOLDERS)):
        yield ExtensionFolder(place, str(place))
