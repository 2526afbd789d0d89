"""Prompt files: load one, fill its placeholders. No prompt text lives in code.

A placeholder is `{name}`. Braces around anything that is not given a value stay as they are, so
prompts may hold code.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path


def folder() -> Path:
    """Return the folder of the prompts: inside the installed package, or beside it in a checkout."""
    inside = Path(__file__).parent / "prompts"
    return inside if inside.is_dir() else Path(__file__).parent.parent / "prompts"


@cache
def load(name: str) -> str:
    """Return the text of `name`.md (`tools/read` for a tool's). Raises FileNotFoundError: a missing
    prompt is our bug.
    """
    return (folder() / f"{name}.md").read_text(encoding="utf-8").strip()


def fill(text: str, **values: str) -> str:
    """Replace each `{name}` of the text once. Values are not searched, so they may hold braces."""
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match.group(1), match.group(0)), text)
