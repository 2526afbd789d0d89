"""The user's standing instructions to every agent: which files count, what they import, how much of each is shown.

AGENTS.md, or what other agents call it where there is none: the user's own, the repository's, and those of folders
below its root, which agents are shown when they work there. Between config/files.py and wiring.py. What a repository
says counts as it was when it was trusted: `vouched` tells.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.errors import ConfigError
from fugu_cli.policy.paths import expanded, inside, is_file, is_secret, real, there
from fugu_cli.tools.tree import SKIPPED, files

NAMES = ("AGENTS.md", "CLAUDE.md", ".claude/CLAUDE.md", "GEMINI.md", ".cursorrules")
"""Of a folder the first that is there counts."""
OWN = (
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
class Standing:
    """What agents are shown, and sentences for people about what they are not."""

    text: str
    notes: tuple[str, ...]


def of_folder(folder: Path) -> Path | None:
    """The file with the instructions of a folder."""
    return next((folder / name for name in NAMES if is_file(folder / name)), None)


def own() -> Path | None:
    """The user's own file, for every repository."""
    from platformdirs import user_config_path

    places = (user_config_path("fugu") / NAMES[0], *(Path.home() / name for name in OWN))
    return next((path for path in places if is_file(path)), None)


def standing(root: Path | None, below: Sequence[Path], vouched: Vouched) -> Standing:
    """The user's own, those of the folder `root`, None where it is not trusted, and of the files `below`. Raises
    ConfigError."""
    mine, roots = own(), of_folder(root) if root is not None else None
    found = [(f"{mine.name}, for every repository", mine, Path.home())] if mine is not None else []
    if root is not None and roots is not None and (mine is None or real(roots) != real(mine)):
        found.append((roots.name, roots, root))
    found += [(f"{path.name} of {path.parent.name}/, for work there", path, root or path.parent) for path in below]
    said = [_whole(path, base, vouched if path in below else _all) for _, path, base in found]
    parts, notes = [], []
    for (place, path, _), text, room in zip(found, said, _rooms([len(text) for text in said]), strict=True):
        parts.append(f"\nThe user's standing instructions ({place}):\n{text[:room]}")
        if len(text) > room:
            notes.append(f"{path}: agents are shown its first {room:,} of {len(text):,} characters")
    return Standing("\n".join(parts), tuple(notes))


def _rooms(lengths: Sequence[int]) -> list[int]:
    """How much of each is shown: what short ones leave of their equal part is the long ones'."""
    rooms, left = [0] * len(lengths), LIMIT
    for done, place in enumerate(sorted(range(len(lengths)), key=lengths.__getitem__)):
        rooms[place] = min(lengths[place], left // (len(lengths) - done))
        left -= rooms[place]
    return rooms


def nearer(root: Path, shown: Sequence[Path], vouched: Vouched) -> Callable[[Path], Mapping[str, str]]:
    """For a path in the repository, relative to its `root`: the instructions of the folders on the way there, each
    under its heading, the nearest last. Without those that are `shown` to everybody."""

    def found(path: Path) -> Mapping[str, str]:
        said = {}
        for folder in (one for one in reversed((path, *path.parents)) if one != Path()):
            file = of_folder(root / folder)
            if file is None or file in shown or not vouched(file):
                continue
            text = _whole(file, root, vouched)
            cut = f"\n[... {len(text) - NEARER:,} characters more in {file.name}]" if len(text) > NEARER else ""
            said[f"[The user's standing instructions for {folder.as_posix()}/ ({file.name}):]"] = text[:NEARER] + cut
        return said

    return found


def below_root(root: Path) -> Iterator[Path]:
    """The instruction files of the folders below `root` and what they import; another repository's are not its own."""
    names = {Path(name).name for name in NAMES}
    for folder in dict.fromkeys(path.parent for path in files(root, limit=MOST) if path.name in names):
        owner = folder.parent if folder.name == ".claude" else folder
        file = of_folder(owner)
        parents = [owner, *owner.parents]
        others = any(there(place / ".git") for place in parents[: parents.index(root)])
        if owner != root and file is not None and not others:
            yield from (file, *imported(file, root))


def imported(file: Path, base: Path) -> list[Path]:
    """Files that an instruction file imports, and those that they do; all below `base`. Resolved."""
    found: dict[Path, str] = {}
    _read(file, base, _all, found)
    return [path for path in found if path != real(file)]


def _all(_: Path) -> bool:
    """What lies in the root itself was looked at when it was trusted."""
    return True


def _whole(file: Path, base: Path, vouched: Vouched) -> str:
    """The file and below it what it imports. Raises ConfigError."""
    found: dict[Path, str] = {}
    _read(file, base, vouched, found)
    first, *others = found.items()
    return "\n\n".join([first[1], *(f"[{path.name}:]\n{text}" for path, text in others)])


def _read(file: Path, base: Path, vouched: Vouched, found: dict[Path, str], deep: int = 1) -> None:
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError(f"cannot read {file}: {error.strerror}", hint="make it readable, or remove it") from error
    found[real(file)] = text
    for named in _IMPORT.finditer(_CODE.sub("", text)):
        path, around = real(file.parent / expanded(named["path"].rstrip(".,;:!?)"))), real(base)
        if deep == DEEPEST or path in found or not inside(path, around) or is_secret(path.name):
            continue
        if SKIPPED.isdisjoint(path.relative_to(around).parts) and is_file(path) and vouched(path):
            _read(path, base, vouched, found, deep + 1)
