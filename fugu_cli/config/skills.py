"""Which skills, custom commands and instruction files below the root count in a folder: the user's own, and those of a
repository that is trusted.

Between config/files.py, whose `load` asks, and skills/, which finds skills and commands. A folder below the
repository's root is trusted for itself: what lies there was not looked at when the root was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fugu_cli.config import instructions
from fugu_cli.policy.paths import inside, is_folder
from fugu_cli.skills import loading
from fugu_cli.skills.loading import FOLDERS, Library, Place


def library(folder: Path, root: Path, trusted: Callable[[Path], bool]) -> Library:
    """What counts for work in `folder` of the repository `root`; `trusted` says whether a folder of it is."""
    return loading.load((*_repository(folder, root, trusted), *_own()))


def holding(folder: Path, root: Path) -> Iterator[Path]:
    """The folders from `folder` up to `root` in which the repository tells agents what to do, the nearest first."""
    here, home = folder.resolve(), Path.home().resolve()
    for place in (here, *here.parents):
        tells = any(is_folder(place / name) for name in FOLDERS) or instructions.of_folder(place) is not None
        if inside(place, root) and place != home and tells:
            yield place


def below(folder: Path, root: Path, counts: Callable[[Path], bool]) -> tuple[Path, ...]:
    """Instructions of the folders between `root` and `folder` that count, the nearest last; not the root's own."""
    found = [instructions.of_folder(place) for place in holding(folder, root) if place != root]
    return tuple(file for file in reversed(found) if file is not None and counts(file))


def unheeded(folder: Path, root: Path, counts: Callable[[Path], bool]) -> tuple[Path, ...]:
    """Instructions of the folders from `root` to `folder` that do not count, the nearest last."""
    found = [instructions.of_folder(place) for place in holding(folder, root)]
    return tuple(file for file in reversed(found) if file is not None and not counts(file))


def _repository(folder: Path, root: Path, trusted: Callable[[Path], bool]) -> Iterator[Place]:
    for place in holding(folder, root):
        for name in FOLDERS:
            shown = (place.relative_to(root) / name).as_posix()
            yield Place(place / name, shown, base=place, trusted=trusted(place))


def _own() -> Iterator[Place]:
    from platformdirs import user_config_path

    for place in (user_config_path("fugu"), *(Path.home() / name for name in FOLDERS)):
        yield Place(place, str(place))
