"""The configuration of the folder a command was called in. What is worth a note is said once, on standard error."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fugu_cli.config.files import Loaded, load
from fugu_cli.errors import UsageError
from fugu_cli.ui.pen import Pen


def here(flags: Mapping[str, Any] | None = None, *, trust: bool = False) -> Loaded:
    """Everything that is set for the current folder. Raises ConfigError, and UsageError where the folder is gone."""
    loaded = load(current(), os.environ, flags, trust=trust)
    for note in loaded.notes:
        Pen(sys.stderr).line(f"fugu: {note}")
    return loaded


def current() -> Path:
    """The current folder. Raises UsageError where it is gone."""
    try:
        return Path.cwd()
    except FileNotFoundError as error:
        raise UsageError("the current folder does not exist any more", hint="change to one that does") from error


def newline(text: str) -> None:
    """One line of a command's output, made safe to print."""
    from fugu_cli.ui.clean import clean

    print(clean(text))
