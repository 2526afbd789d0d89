"""Decides which changes a call made, and which only happened while it ran.

fugu's own tools say what they write. A command's own changes are those that its line names; others
may be the user's, who saved a file meanwhile, and are marked with the command that ran.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from fugu_cli.messages import Call
from fugu_cli.safety import paths
from fugu_cli.safety.policy.dangers import commands_within, possible_folders, writes_arguments
from fugu_cli.safety.policy.shell_line import Command, Word, parse_line
from fugu_cli.session.call_arguments import (
    MalformedArguments,
    arguments_of,
    patched_paths,
)
from fugu_cli.session.events import FileAttribute, FileChange, FileEffects
from fugu_cli.session.file_effects import THE_TESTS
from fugu_cli.session.outcome import RUN_TESTS, TESTS_BEFORE
from fugu_cli.session.tool_facts import facts_of

_EXPANDED = re.compile(r"\$\([^)]*\)|`[^`]*`|\$\{[^}]*\}|\$\w+|\{[^{}]*\}")
LABEL_LIMIT = 60
"""Characters of a command line that name it."""


def mark_unclaimed(
    effects: FileEffects, calls: Sequence[Call], root: Path, written: Collection[str] = ()
) -> FileEffects:
    """Return the effects; those that happened while `calls` ran and are not known to be their own
    are marked with these calls. `written` are the recorded paths that fugu's own tools wrote.
    """
    if not any(effects):
        return effects
    label = " and ".join(dict.fromkeys(map(_label, calls)))
    written_by_calls = [_WrittenByCall(call, root) for call in calls]

    def is_own(effect: FileChange | FileAttribute) -> bool:
        return effect.path in written or any(call.includes(effect) for call in written_by_calls)

    changes = []
    for change in effects.changes:
        if not is_own(change):
            change = change.model_copy(update={"while_ran": label})
        changes.append(change)
    attributes = []
    for attribute in effects.attributes:
        if not is_own(attribute):
            attribute = attribute.model_copy(update={"while_ran": label})
        attributes.append(attribute)
    return FileEffects(tuple(changes), tuple(attributes))


def _label(call: Call) -> str:
    """Return `the tests`, or the command line or tool in backticks."""
    if call.tool in {RUN_TESTS, TESTS_BEFORE}:
        return THE_TESTS
    command = _command_line(call) or call.tool
    line = " ".join(command.split())
    if len(line) > LABEL_LIMIT:
        line = line[: LABEL_LIMIT - 1] + "…"
    return f"`{line}`"


def _command_line(call: Call) -> str:
    arguments = arguments_of(call)
    if isinstance(arguments, MalformedArguments):
        return ""
    return str(arguments.get(facts_of(call.tool).command, ""))


class _WrittenByCall:
    """The paths that a call's arguments name as written."""

    def __init__(self, call: Call, root: Path) -> None:
        self._root = root
        self._files: set[Path] = set()
        self._patterns: list[str] = []
        self._folders: set[Path] = set()
        """Every file that appears or disappears in these folders is the call's own."""
        self._emptied: set[Path] = set()
        """Every file that disappears from these folders is the call's own."""
        if facts_of(call.tool).command:
            self._read_line(_command_line(call))
        else:
            self._read_arguments(call)

    def includes(self, effect: FileChange | FileAttribute) -> bool:
        """Return whether the effect is on a path that the call wrote."""
        path = self._root / paths.unquoted_path(effect.path)
        if path in self._files or any(path.match(pattern) for pattern in self._patterns):
            return True
        appeared = isinstance(effect, FileChange) and effect.before is None
        disappeared = isinstance(effect, FileChange) and effect.after is None
        if disappeared and self._emptied.intersection(path.parents):
            return True
        return (appeared or disappeared) and bool(self._folders.intersection(path.parents))

    def _read_arguments(self, call: Call) -> None:
        """Add every text among the arguments, since it may be the path that is written."""
        try:
            arguments = json.loads(call.arguments or "{}")
        except ValueError:
            return
        patch = arguments.get(facts_of(call.tool).patch) if isinstance(arguments, dict) else None
        named = patched_paths(patch) if isinstance(patch, str) else ()
        for text in (*named, *_texts(arguments)):
            located = paths.locate(text, self._root) if len(text) < 4096 else None
            if isinstance(located, Path):
                self._files.add(located)

    def _read_line(self, line: str) -> None:
        parsed = parse_line(line)
        if parsed.unreadable:
            return
        folders = possible_folders(parsed, self._root)
        commands = [
            part for command in parsed.commands for part in (command, *commands_within(command))
        ]
        for command in commands:
            for redirect in command.redirects:
                if redirect.writes:
                    self._add(redirect.target, folders)
            if not writes_arguments(command):
                continue
            words = [word for word in command.words[1:] if not word.text.startswith("-")]
            for word in words:
                self._add(word, folders)
            self._add_folders(command, words, folders)

    def _add(self, word: Word, folders: Sequence[Path]) -> None:
        """Add the path that a word names, or the pattern of paths that it may expand to."""
        if word.plain:
            self._files |= set(self._located(word, folders))
            return
        pattern = _EXPANDED.sub("*", word.text)
        if pattern.strip("*?/."):
            self._patterns += [os.path.normpath(folder / pattern) for folder in folders]

    def _add_folders(self, command: Command, words: list[Word], folders: Sequence[Path]) -> None:
        """Add what a command does to folders: `rm -r build` removes what is in it, `cp a b/` writes
        b/a.
        """
        program = command.name
        located = [path for word in words for path in self._located(word, folders)]
        if program in {"rm", "mv"} or program == "git":
            self._emptied |= set(located)
        if program in {"cp", "mv", "ln", "install", "git"} and words:
            names = [Path(word.text).name for word in words[:-1]]
            targets = list(self._located(words[-1], folders))
            inside = {target / name for target in targets for name in names}
            self._files |= inside
            self._folders |= inside
            options = [option for option in command.arguments if option.startswith("-")]
            is_recursive = any({"r", "R", "a"}.intersection(option) for option in options)
            if program == "mv" or is_recursive:
                self._folders |= set(targets)

    def _located(self, word: Word, folders: Sequence[Path]) -> Iterator[Path]:
        """Yield the path that a word names, as written and with links resolved."""
        for folder in folders:
            resolved = paths.locate(word.text, self._root, folder)
            if isinstance(resolved, Path) and not word.expands:
                yield Path(os.path.normpath(folder / word.text))
                yield resolved


def _texts(value: object) -> Iterator[str]:
    """Yield the texts of a JSON value, those of lists and objects too."""
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for item in value.values():
                yield from _texts(item)
