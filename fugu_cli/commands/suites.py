"""Which tasks a command is about: those of all the suites it names. Under eval.py and training's commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from fugu_cli.errors import UsageError
from fugu_cli.tasks import Loaded, Problem, gym
from fugu_cli.tasks.folders import Defaults
from fugu_cli.tasks.loading import load


def problems(
    suites: Sequence[str], only: Sequence[str], defaults: Defaults, say: Callable[[str], None]
) -> tuple[Problem, ...]:
    """Of all suites. Raises ConfigError for what cannot be read, UsageError for one id in two suites, or no task."""
    found: dict[str, Problem] = {}
    for suite in suites:
        loaded = _loaded(suite, only, defaults)
        for skipped in loaded.skipped:
            say(f"{skipped.id}: left out: {skipped.reason}")
        for problem in loaded.problems:
            if found.setdefault(problem.id, problem) != problem:
                raise UsageError(f"two suites have a task {problem.id!r}, and they differ")
    if not found:
        raise UsageError(f"there is no task to run in {', '.join(suites)}")
    return tuple(found.values())


def _loaded(suite: str, only: Sequence[str], defaults: Defaults) -> Loaded:
    """What a word of the command line names. Raises UsageError, and ConfigError for what cannot be read."""
    if suite.startswith(gym.PREFIX):
        return gym.load(suite)
    path = Path(suite)
    if not path.exists():
        raise UsageError(f"{suite}: there is no such file or folder")
    return load(path, only=tuple(only), defaults=defaults)
