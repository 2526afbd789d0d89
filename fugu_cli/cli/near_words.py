"""Suggests commands and flags for a mistyped one."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from fugu_cli.cli.interface import PAGES_ELSEWHERE, help_topics

if TYPE_CHECKING:
    from typer._click import Command, Context

LEAST_LIKENESS = 0.65
"""Share of equal letters from which a word is suggested."""
NEAR_TIE = 0.05
"""Difference of two shares up to which both words are suggested."""
SHORTEST_PART = 4
"""Letters that a part of a flag must have to be compared alone, as `budget` in `--max-budget-usd`."""
PART_WEIGHT = 0.9
"""Factor by which likeness to a part of a flag counts less than likeness to the whole flag."""
NAMES_ELSEWHERE = {
    "ask": "run",
    "auth": "login",
    "exec": "run",
    "history": "sessions",
    "list": "sessions",
    "log": "trace",
    "stats": "cost",
    "status": "doctor",
    "upgrade": "update",
    "usage": "cost",
}
"""Names of commands in other coding agents (Codex, OpenCode, Gemini CLI, Aider), with ours."""


def suggestion_for(error: Exception) -> str:
    """Return a question like "did you mean `--model`?" for an unknown flag or command of a command
    line; "" without a similar word.
    """
    context: Context | None = getattr(error, "ctx", None)
    if context is None:
        return ""
    flags = flags_of(context.command)
    flag = getattr(error, "option_name", "")
    command = getattr(error, "unknown_command", "")
    suggestions: list[str] = []
    if flag:
        suggestions = [f"`{name}`" for name in near_flags(flag, flags)]
    elif command:
        suggestions = near_commands(command, context, flags)
    return f"did you mean {' or '.join(suggestions)}?" if suggestions else ""


def flags_of(command: Command) -> list[str]:
    """Return the long flags in the help of a command."""
    flags: list[str] = []
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            flags += [name for name in parameter.opts if name.startswith("--")]
    return flags


def near_flags(typed: str, flags: Sequence[str]) -> list[str]:
    """Return the flags that are most like a typed one, compared as a whole and by their parts."""
    likeness = {}
    for flag in flags:
        likeness[flag] = likeness_of(typed, flag)
        for part in flag.split("-"):
            if len(part) >= SHORTEST_PART:
                part_likeness = PART_WEIGHT * likeness_of(typed.strip("-"), part)
                likeness[flag] = max(likeness[flag], part_likeness)
    return most_alike(likeness)


def likeness_of(typed: str, word: str) -> float:
    """Return the share of equal letters of two words."""
    return difflib.SequenceMatcher(None, typed, word).ratio()


def most_alike(likeness: Mapping[str, float]) -> list[str]:
    """Return the most similar word, and the second one if it is nearly as similar."""
    best = max(likeness.values(), default=0.0)
    least = max(LEAST_LIKENESS, best - NEAR_TIE)
    near = [word for word, share in likeness.items() if share >= least]
    return sorted(near, key=likeness.__getitem__, reverse=True)[:2]


def near_commands(typed: str, context: Context, flags: Sequence[str]) -> list[str]:
    """Return commands for a mistyped name: a flag, a command that other agents have under this
    name, a help page, or else commands with a similar name.
    """
    if f"--{typed}" in flags:
        return [f"`{context.command_path} --{typed}`"]
    commands = getattr(context.command, "commands", {})
    if NAMES_ELSEWHERE.get(typed) in commands:
        return [f"`{context.command_path} {NAMES_ELSEWHERE[typed]}`"]
    if typed in help_topics() or typed in PAGES_ELSEWHERE:
        return [f"`fugu help {typed}`"]
    likeness = {
        name: likeness_of(typed, name) for name, command in commands.items() if not command.hidden
    }
    return [f"`{context.command_path} {name}`" for name in most_alike(likeness)]
