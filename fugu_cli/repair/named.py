"""Which file a line names: a path in a sentence, in a fence's info, alone on a line, in a comment on top of a file.

Stands under written.py and the brief. Pure. It must not know which files there are.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_UNENDED = (
    r"(?:(?:Make|Docker|Proc|Jenkins|Vagrant|Gem|Rake|Just)file|LICEN[CS]E|CODEOWNERS"
    r"|\.(?:(?:git|docker|npm|prettier|eslint)ignore|gitattributes|gitmodules|editorconfig|(?:npm|nvm|yarn|prettier|eslint"
    r"|babel|pylint|coverage|bash|zsh|vim)rc|flake8|htaccess|mailmap|python-version|tool-versions|env(?:\.\w+)?"
    r"|[\w-]+\.(?:ya?ml|json|toml|cfg|ini)))"
)
"""Names that are surely files and have no ending, or nothing before it."""
PATH = re.compile(
    rf"(?<![\w./-])(?:[\w.-]+/)*[\w-][\w.-]*\.\w+(?![\w/])|(?<![\w./-])(?:[\w.-]+/)*{_UNENDED}(?![\w/-])(?!\.\w)"
)
"""What a path looks like in a sentence; anything odder goes in backticks or stands alone."""

QUOTED = re.compile(r"`([^`\s]+)`")
COMMAND = re.compile(r"`[^`]*\s[^`]*`")
"""A command in a sentence; the block below is what it prints, and not the file it names."""
_ENDING = (
    r"(?:pyi?|[mc]?[jt]s|[jt]sx|rs|go|java|kt|c|h|cc|cpp|hpp|cs|rb|php|swift|scala|sh|sql|lua|toml|ini|cfg|ya?ml|json"
    r"|md|rst|txt|csv|html|css|vue|svelte)"
)
TITLE = re.compile(rf"(?:#|//|--|/\*|<!--) *`?((?:[\w.-]+/)*[\w-][\w.-]*\.{_ENDING})`?:? *(?:\*/|-->)?")
"""A comment that names the file below it and says nothing else."""

FILE = re.compile(rf"(?![A-Z]\w*\.js$)(?:.*/)?[\w-][\w.-]*\.{_ENDING}|(?:.*/)?{_UNENDED}")
"""Of what looks like a path, what surely is a file: no `Cart.add`, no `Node.js`."""


def above(lines: Sequence[str], start: int) -> str | None:
    """The path that the nearest of the two lines above `start` names."""
    near = [line for line in lines[max(0, start - 2) : start] if line.strip()]
    return in_words(near[-1]) if near else None


def in_info(info: str) -> str | None:
    for word in re.split(r"[\s:=\"']+", info):
        if "/" in word or "." in word:
            return word
    return None


def in_words(line: str) -> str | None:
    """The one path a line names; none where it names several, or where a sentence only happens to hold a dot."""
    quoted = [word for word in QUOTED.findall(line) if PATH.fullmatch(word)]
    plain = COMMAND.sub("", line)
    found = set(quoted or (path for path in PATH.findall(plain) if FILE.fullmatch(path) or alone(line)))
    return found.pop() if len(found) == 1 else None


def alone(line: str) -> bool:
    """The line is a path and nothing else but marks."""
    bare = line.strip().strip("#*`: ").strip()
    return PATH.fullmatch(bare) is not None and not re.fullmatch(r"[\d.]+", bare)
