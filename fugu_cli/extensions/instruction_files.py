"""AGENTS.md and similar files, and the skills and commands of a folder: the user's and those of a
trusted repository.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import ConfigError
from fugu_cli.extensions.skill_library import FOLDERS, ExtensionFolder
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

NAMES = (
    "AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md", ".cursorrules", ".github/copilot-instructions.md",
    ".windsurfrules", "QWEN.md", ".goosehints", ".junie/guidelines.md", "AGENT.md", ".rules", "WARP.md", "CRUSH.md",
)  # fmt: skip
"""Names in a folder. All of them are read."""
UNREAD = (
    ".cursor/rules", ".windsurf/rules", ".clinerules", ".github/instructions", ".roo/rules", ".amazonq/rules",
    ".kiro/steering", ".continue/rules", ".augment/rules", ".kilocode/rules", ".trae/rules",
)  # fmt: skip
"""Rules of other agents for single files or tasks: they are named, not read."""
USER_FILES = (
    ".config/agents/AGENTS.md", ".agents/AGENTS.md", ".codex/AGENTS.md", ".claude/CLAUDE.md", ".gemini/GEMINI.md",
)  # fmt: skip
"""The user's files in the home. Only the first that exists is read."""
MEMORY_FILE = ".agents/MEMORY.md"
"""The memory of a repository (memory.py)."""
LIMIT = 32_000
"""The most characters of all files together. Every call of every agent pays for them."""
NEARER = 8000
"""The most characters of the files of one folder below the root."""
MOST = 1_000_000
"""The most files that are searched for instructions when a folder is trusted."""
DEEPEST = 5
"""The most levels of imports."""
_CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_IMPORT = re.compile(r"(?:^|(?<=\s))@(?P<path>[^\s`]+)", re.MULTILINE)

IsTrusted = Callable[[Path], bool]


@dataclass(frozen=True)
class StandingInstructions:
    """The text for agents, and sentences for the user about what is left out."""

    text: str
    notes: tuple[str, ...]


def folder_instruction_file(folder: Path) -> Path | None:
    """Return the first instruction file of a folder."""
    return next((folder / name for name in NAMES if is_file(folder / name)), None)


def folder_instruction_files(folder: Path) -> tuple[Path, ...]:
    """Return all instruction files of a folder, for any agent. A link to another of them is left
    out.
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
    """Return the user's own file, which is read for every repository."""
    from platformdirs import user_config_path

    paths = (user_config_path("fugu") / NAMES[0], *(Path.home() / name for name in USER_FILES))
    return next((path for path in paths if is_file(path)), None)


def standing_instructions(
    root: Path | None, below: Sequence[Path], is_trusted: IsTrusted
) -> StandingInstructions:
    """Read the user's own file, those of the trusted folder `root` (None: untrusted), and the files
    `below`.

    Raises ConfigError.
    """
    sources: list[tuple[str, Path, Path]] = []
    if (own := user_instruction_file()) is not None:
        sources.append((f"{own.name}, for every repository", own, Path.home()))
    if root is not None:
        sources += [(file.name, file, root) for file in folder_instruction_files(root)]
    for file in below:
        heading = f"{file.name} of {file.parent.name}/, for work there"
        sources.append((heading, file, root or file.parent))
    seen_paths: dict[Path, str] = {}
    shown: list[tuple[str, Path, str]] = []
    for heading, file, base in sources:
        if real_path(file) not in seen_paths:
            text = _read_with_imports(
                file, base, is_trusted if file in below else _trust_all, seen_paths
            )
            if all(text != shown_text for _, _, shown_text in shown):
                shown.append((heading, file, text))
    parts, notes = [], []
    limits = _share_limit([len(text) for _, _, text in shown])
    for (heading, file, text), limit in zip(shown, limits, strict=True):
        if text:
            parts.append(f"\nThe user's standing instructions ({heading}):\n{text[:limit]}")
        elif file.stat().st_size:
            notes.append(f"{file}: it is not text, so agents are not shown it")
        if len(text) > limit:
            notes.append(
                f"{file}: agents are shown its first {limit:,} of {len(text):,} characters"
            )
    return StandingInstructions("\n".join(parts), tuple(notes))


def unread_notes(root: Path) -> list[str]:
    """Name the rules of other agents that lie in the repository and are not read."""
    notes = []
    for name in UNREAD:
        if path_exists(root / name):
            file = f"{name}/FILE" if is_folder(root / name) else name
            notes.append(f"{name} is not read; AGENTS.md can take in a file with @{file}")
    return notes


def _share_limit(lengths: Sequence[int]) -> list[int]:
    """Share LIMIT among texts of these lengths. What short texts do not need of their share goes to
    long ones.
    """
    shares = [0] * len(lengths)
    left = LIMIT
    by_length = sorted(range(len(lengths)), key=lengths.__getitem__)
    for done, index in enumerate(by_length):
        shares[index] = min(lengths[index], left // (len(lengths) - done))
        left -= shares[index]
    return shares


def nested_instructions(
    root: Path, shown: Sequence[Path], is_trusted: IsTrusted
) -> Callable[[Path], Mapping[str, str]]:
    """Return a function from a path relative to `root` to the instructions of the folders above it.

    Each text stands under its heading, the nearest last. Files in `shown` are left out, since every
    agent sees them.
    """

    def instructions_for(path: Path) -> Mapping[str, str]:
        texts: dict[str, str] = {}
        seen_paths: dict[Path, str] = {}
        for folder in reversed((path, *path.parents)):
            if folder == Path():
                continue
            for file in folder_instruction_files(root / folder):
                if file in shown or real_path(file) in seen_paths or not is_trusted(file):
                    continue
                text = _read_with_imports(file, root, is_trusted, seen_paths)
                if text in texts.values():
                    continue
                heading = (
                    f"[The user's standing instructions for {folder.as_posix()}/ ({file.name}):]"
                )
                texts[heading] = text[:NEARER]
                if len(text) > NEARER:
                    left_out = len(text) - NEARER
                    texts[heading] += f"\n[... {left_out:,} characters more in {file.name}]"
        return texts

    return instructions_for


def below_root(root: Path) -> Iterator[Path]:
    """Yield the instruction files of folders below `root`, and what they import.

    Folders of another repository inside it are left out.
    """
    names = {Path(name).name for name in NAMES}
    files = walk_files(root, limit=MOST)
    folders = dict.fromkeys(path.parent for path in files if path.name in names)
    for folder in folders:
        owner = folder.parent if folder.name == ".claude" else folder
        parents = [owner, *owner.parents]
        below = parents[: parents.index(root)]
        in_other_repository = any(path_exists(parent / ".git") for parent in below)
        if owner != root and not in_other_repository:
            for file in folder_instruction_files(owner):
                yield from (file, *imported(file, root))


def imported(file: Path, base: Path) -> list[Path]:
    """Return the resolved files that an instruction file imports, directly or not, all inside
    `base`.
    """
    texts: dict[Path, str] = {}
    _read(file, base, _trust_all, texts)
    return [path for path in texts if path != real_path(file)]


def _trust_all(_: Path) -> bool:
    """Trust every file: those in the root were checked when it was trusted."""
    return True


def _read_with_imports(
    file: Path, base: Path, is_trusted: IsTrusted, seen_paths: dict[Path, str]
) -> str:
    """Return the text of the file followed by its imports. Files in `seen_paths` are left out; the
    others are added to it. Raises ConfigError.
    """
    before = len(seen_paths)
    _read(file, base, is_trusted, seen_paths)
    first, *imports = list(seen_paths.items())[before:]
    return "\n\n".join([first[1], *(f"[{path.name}:]\n{text}" for path, text in imports)])


def _read(
    file: Path, base: Path, is_trusted: IsTrusted, texts: dict[Path, str], level: int = 1
) -> None:
    """Add the text of a file and of its imports to `texts`. Raises ConfigError."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ConfigError(
            f"cannot read {file}: {error.strerror}", hint="make it readable, or remove it"
        ) from error
    # some editors on Windows write UTF-16
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))
    text = data.decode("utf-16" if is_utf16 else "utf-8-sig", "replace")
    if "\0" in text:
        text = ""
    texts[real_path(file)] = text
    real_base = real_path(base)
    for match in _IMPORT.finditer(_CODE.sub("", text)):
        path = real_path(file.parent / expand_home(match["path"].rstrip(".,;:!?)")))
        if level == DEEPEST or path in texts or not inside(path, real_base) or is_secret(path.name):
            continue
        is_skipped = not SKIPPED_FOLDERS.isdisjoint(path.relative_to(real_base).parts)
        if not is_skipped and is_file(path) and is_trusted(path):
            _read(path, base, is_trusted, texts, level + 1)


def library_folders(
    folder: Path, root: Path, trusted: Callable[[Path], bool]
) -> tuple[ExtensionFolder, ...]:
    """Return the folders of skills, commands and subagents for work in `folder` of the repository
    `root`, the nearest first.

    `trusted` says whether the user trusts a folder of it.
    """
    return (*_repository_folders(folder, root, trusted), *_user_folders())


def instruction_folders(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the folders from `folder` up to `root` that hold instructions, the nearest first."""
    start, home = folder.resolve(), Path.home().resolve()
    for parent in (start, *start.parents):
        if parent == home or not inside(parent, root):
            continue
        has_library = any(is_folder(parent / name) for name in FOLDERS)
        if has_library or folder_instruction_file(parent) is not None:
            yield parent


def trusted_instructions(
    folder: Path, root: Path, is_trusted: Callable[[Path], bool]
) -> tuple[Path, ...]:
    """Return the trusted instruction files between `root` and `folder`, the nearest last, without
    the root's own.
    """
    folders = [parent for parent in instruction_folders(folder, root) if parent != root]
    return tuple(file for file in files_in(reversed(folders)) if is_trusted(file))


def untrusted_instructions(
    folder: Path, root: Path, is_trusted: Callable[[Path], bool]
) -> tuple[Path, ...]:
    """Return the untrusted instruction files from `root` to `folder`, the nearest last."""
    folders = list(instruction_folders(folder, root))
    return tuple(file for file in files_in(reversed(folders)) if not is_trusted(file))


def _repository_folders(
    folder: Path, root: Path, trusted: Callable[[Path], bool]
) -> Iterator[ExtensionFolder]:
    for parent in instruction_folders(folder, root):
        for name in FOLDERS:
            shown = (parent.relative_to(root) / name).as_posix()
            yield ExtensionFolder(parent / name, shown, base=parent, trusted=trusted(parent))


def _user_folders() -> Iterator[ExtensionFolder]:
    from platformdirs import user_config_path

    for path in (user_config_path("fugu"), *(Path.home() / name for name in FOLDERS)):
        yield ExtensionFolder(path, str(path))
