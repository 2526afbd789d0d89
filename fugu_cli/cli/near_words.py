"""What a mistyped command or flag may mean."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fugu_cli.cli.interface import PAGES_ELSEWHERE, help_topics

if TYPE_CHECKING:
    from typer._click import Command, Context

LIKE = 0.65
"""Share of equal letters from which a word is like another."""
ABOUT_AS_MUCH = 0.05
SHORTEST_PART = 4
"""Letters of a part of a flag that is compared by itself, as `budget` of `--max-budget-usd`."""
PART_WEIGHT = 0.9
"""Of the likeness to a part, beside that to a whole flag."""


def meant(error: Exception) -> str:
    """Return a question that names what a word refused by the command line may mean, or ""."""
    context: Context | None = getattr(error, "ctx", None)
    if context is None:
        return ""
    flags = flags_of(context.command)
    near: list[str] = []
    if flag := getattr(error, "option_name", ""):
        near = [f"`{name}`" for name in near_flags(flag, flags)]
    elif command := getattr(error, "unknown_command", ""):
        near = near_commands(command, context, flags)
    return f"did you mean {' or '.join(near)}?" if near else ""


def flags_of(command: Command) -> list[str]:
    """Return the long flags that a command's help shows."""
    return [
        name
        for parameter in command.params
        if not getattr(parameter, "hidden", False)
        for name in parameter.opts
        if name.startswith("--")
    ]


def near_flags(typed: str, flags: Sequence[str]) -> list[str]:
    """Return the flags that are most like a typed one, as a whole or by one of their parts."""
    likeness = {}
    for flag in flags:
        likeness[flag] = likeness_of(typed, flag)
        for part in flag.split("-"):
            if len(part) >= SHORTEST_PART:
                of_part = PART_WEIGHT * likeness_of(typed.strip("-"), part)
                likeness[flag] = max(likeness[flag], of_part)
    return most_alike(likeness)


def likeness_of(typed: str, word: str) -> float:
    """Return the share of equal letters of two words."""
    return difflib.SequenceMatcher(None, typed, word).ratio()


def most_alike(likeness: Mapping[str, float]) -> list[str]:
    """Return the word that is most alike, and a second one that is about as much."""
    best = max(likeness.values(), default=0.0)
    least = max(LIKE, best - ABOUT_AS_MUCH)
    near = [word for word, share in likeness.items() if share >= least]
    return sorted(near, key=likeness.__getitem__, reverse=True)[:2]


def near_commands(typed: str, context: Context, flags: Sequence[str]) -> list[str]:
    """Return what an unknown command may mean: a flag or a page of its name, else commands like it."""
    if f"--{typed}" in flags:
        return [f"`{context.command_path} --{typed}`"]
    if typed in help_topics() or typed in PAGES_ELSEWHERE:
        return [f"`fugu help {typed}`"]
    commands = getattr(context.command, "commands", {})
    likeness = {
        name: likeness_of(typed, name) for name, command in commands.items() if not command.hidden
    }
    return [f"`{context.command_path} {name}`" for name in most_alike(likeness)]
