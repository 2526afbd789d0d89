"""Which words of a command may name files, and which only look like it: search patterns, texts, excluded names.

Stands below classify.py. When in doubt a word names a file: the price is one question too many.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from fugu_cli.policy.commands import base
from fugu_cli.policy.shell import Command, Word
from fugu_cli.policy.tables import SYSTEM_FOLDERS

_MAGIC = re.compile(r"^(?:\([^)]*\)|[/!^]+)")
"""What git's pathspecs have before the path."""
_EXCLUDED = re.compile(r":(?:\([^)]*exclude|[!^])")


def may_name_files(command: Command) -> Iterable[Word]:
    """The words that may name files: not a search pattern, not text to print."""
    name, words = base(command), list(command.words[1:])
    if command.words and "/" in command.words[0].text:
        folder = command.words[0].text.rpartition("/")[0]
        words = words if folder in SYSTEM_FOLDERS else list(command.words)
    match name:
        case "echo" | "printf":
            return []
        case "grep" | "egrep" | "fgrep" | "rg" | "sed" | "awk" | "jq":
            return _without_pattern(words)
        case "find":
            named = {"-name", "-iname", "-path", "-ipath", "-wholename", "-regex", "-iregex"}
            return [b for a, b in zip([Word(""), *words], words, strict=False) if a.text not in named]
        case "git" if [word.text for word in words[:1]] == ["grep"]:
            return _without_pattern(words[1:])
        case "git" if any(word.text in {"commit", "tag", "stash"} for word in words[:1]):
            return [b for a, b in zip([Word(""), *words], words, strict=False) if a.text not in {"-m", "-am"}]
        case _:
            return words


def _without_pattern(words: list[Word]) -> list[Word]:
    """The first argument of a search is its pattern, unless an option brought it."""
    brings = {"-e", "--regexp", "--expression"}
    if any(word.text in {"--files", "--type-list"} for word in words):
        return words
    if any(word.text in brings for word in words):
        return [b for a, b in zip([Word(""), *words], words, strict=False) if a.text not in brings]
    for word in words:
        text = word.text
        if text.startswith("--") and text[2:3] in {"r", "f", "s", "e"}:
            return words
        if text.startswith("-") and not text.startswith("--") and set(text) & {"e", "f"}:
            return words
    index = next((i for i, word in enumerate(words) if not word.text.startswith("-")), None)
    return words if index is None else words[:index] + words[index + 1 :]


def path_parts(text: str, name: str) -> Iterator[str]:
    """The parts of a word that may be a path, in a command called `name`."""
    if name == "git" and not _EXCLUDED.match(text):
        yield from _behind_colons(text)
    if text.startswith(("--exclude", "--ignore", "--glob", "--include", "!")):
        return
    if text.startswith("-"):
        if "=" in text:
            yield text.split("=", 1)[1]
        elif text[2:3] in {"/", "~", "."} and not text.startswith("--"):
            yield text[2:]
        return
    yield text.removeprefix("@")
    if "=" in text:
        yield text.split("=", 1)[1]


def _behind_colons(text: str) -> Iterator[str]:
    """Git's own ways to name a file: REV:PATH, :PATH, :N:PATH, :/PATH, :(top)PATH; a date in REV has colons as well."""
    parts = text.split(":")
    yield from (_MAGIC.sub("", ":".join(parts[at:])) for at in range(1, len(parts)))
