"""`fugu skills`: the skills and custom commands of the current folder."""

from __future__ import annotations

from fugu_cli.commands.here import here
from fugu_cli.skills.listing import listed
from fugu_cli.ui.clean import clean


def show() -> int:
    """Print the list. What is left out, and why, is a part of it."""
    loaded = here()
    print(clean(listed(loaded.library, loaded.root)))
    return 0
