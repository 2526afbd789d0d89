"""The configuration of the folder a command was called in. What is worth a note is said once, on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fugu_cli import log
from fugu_cli.config.files import Loaded, load
from fugu_cli.errors import UsageError
from fugu_cli.events import Recorded
from fugu_cli.ui.pen import Pen


def here(flags: Mapping[str, Any] | None = None, *, trust: bool = False) -> Loaded:
    """Everything that is set for the current folder. Raises ConfigError, and UsageError where the folder is gone."""
    loaded = load(current(), os.environ, flags, trust=trust)
    for note in loaded.notes:
        say(note)
    return loaded


def current() -> Path:
    """The current folder. Raises UsageError where it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder does not exist any more", hint="change to one that does") from error


def facts(path: Path) -> list[Recorded]:
    """A session's lines; of a damaged one those before the fault, and a sentence says so. Raises StorageError where
    none can be read, or a newer fugu wrote them."""
    found = log.examine(path)
    if found.fault is not None:
        error = found.fault.error(path)
        if found.fault.newer or not found.records:
            raise error
        say(f"{error}; what stands before it is shown; {error.hint}")
    return found.records


def say(text: str) -> None:
    """One line for people on standard error."""
    Pen(sys.stderr).line(f"fugu: {text}")


def newline(text: str) -> None:
    """One line of a command's output, made safe to print."""
    from fugu_cli.ui.clean import clean

    print(clean(text))
