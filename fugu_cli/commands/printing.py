"""Lines of a command's output, coloured where somebody looks at a terminal and plain for files, pipes and pagers."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from rich.text import Text

from fugu_cli.ui.screen import painted


def show(lines: Sequence[Text]) -> None:
    """To standard output."""
    print(painted(Text("\n").join(lines)) if _coloured() else "\n".join(line.plain for line in lines))


def _coloured() -> bool:
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout is not None and sys.stdout.isatty() and not plain
