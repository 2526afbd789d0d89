"""Which skills, custom commands and AGENTS.md files below the root count in a folder: the user's own, and those of a
repository that is trusted.

Between config/files.py, whose `load` asks, and skills/, which finds skills and commands. A folder below the
repository's root is trusted for itself: what lies there was not looked at when the root was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from fugu_cli.config.instructions import NAME as INSTRUCTIONS
from fugu_cli.policy.paths import inside, is_file, is_folder
from fugu_cli.skills import loading
from fugu_cli.skills.loading import AGENTS, Library, Place


def library(folder: Path, root: Path, trusted: Callable[[Path], bool]) -> Library:
    """What counts for work in `folder` of the repository `root`; `trusted` says whether a folder of it is."""
    return loading.load((*_repository(folder, root, trusted), *_own()))


def holding(folder: Path, root: Path) -> Iterator[Path]:
    """The folders from `folder` up to `root` in which the repository tells agents what to do, the nearest first."""
    here, home = folder.resolve(), Path.home().resolve()
    for place in (here, *here.parents):
        if inside(place, root) and place != home and (is_folder(place / AGENTS) or is_file(place / INSTRUCTIONS)):
            yield place


def below(folder: Path, root: Path, trusted: Callable[[Path], bool]) -> tuple[Path, ...]:
    """AGENTS.md of the folders between `root` and `folder` that are trusted, the nearest last; not the root's own."""
    places = [place for place in holding(folder, root) if place != root and trusted(place)]
    return tuple(place / INSTRUCTIONS for place in reversed(places) if is_file(place / INSTRUCTIONS))


def unheeded(folder: Path, root: Path, trusted: Callable[[Path], bool]) -> tuple[Path, ...]:
    """AGENTS.md of the folders from `root` to `folder` that are not trusted, the nearest last."""
    places = [place for place in holding(folder, root) if not trusted(place)]
    return tuple(place / INSTRUCTIONS for place in reversed(places) if is_file(place / INSTRUCTIONS))


def _repository(folder: Path, root: Path, trusted: Callable[[Path], bool]) -> Iterator[Place]:
    for place in holding(folder, root):
        shown = (place.relative_to(root) / AGENTS).as_posix()
        yield Place(place / AGENTS, shown, base=place, trusted=trusted(place))


def _own() -> Iterator[Place]:
    from platformdirs import user_config_path

    for place in (user_config_path("fugu"), Path.home() / AGENTS):
        yield Place(place, str(place))
