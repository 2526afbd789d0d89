"""Which files are kept from which agents (`deny_agents`): patterns, the files that match now, and their content.

Under withheld.py and guarded.py. It looks at the disk, because a link is the file it points to, and knows no facts.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from fugu_cli.policy import patterns

EVERYBODY = "*"
LARGEST = 4 * 1024 * 1024
"""Bytes of a file whose content is looked for in what an agent is shown; a larger one is kept away by its path."""

WORD = re.compile(r"[^\s'\"`()\[\]{}<>,;:=|]+")
SHORTEST_LINE = 6
SHORTEST_WORD = 8
"""Characters. Shorter pieces stand in too many files to say where they come from; a word with a digit may be less."""

SEARCHED = 2000
"""Lines that are looked for inside of others as well; of more, only whole ones and their words are."""

COMMON_BYTES = 32 * 1024 * 1024
"""Of the files that everybody may read, so much is read to tell what is said there too."""

SKIPPED = frozenset({".git", "node_modules", ".venv", "__pycache__"})


@dataclass(frozen=True)
class Traces:
    """What gives a denied file's content away: its lines, and its words that look like values."""

    lines: frozenset[str] = frozenset()
    words: frozenset[str] = frozenset()

    def __sub__(self, other: Traces) -> Traces:
        return Traces(self.lines - other.lines, self.words - other.words)

    def __or__(self, other: Traces) -> Traces:
        return Traces(self.lines | other.lines, self.words | other.words)

    def within(self, line: str) -> bool:
        """The line holds a piece of it."""
        if line.strip() in self.lines:
            return True
        if any(word in self.words for word in WORD.findall(line)):
            return True
        return len(self.lines) <= SEARCHED and any(
            len(piece) >= 2 * SHORTEST_LINE and piece in line for piece in self.lines
        )


def traces_of(text: str) -> Traces:
    """The pieces of a text by which it is known again."""
    lines = frozenset(line for part in text.splitlines() if len(line := part.strip()) >= SHORTEST_LINE)
    words = frozenset(word for word in WORD.findall(text) if _telling(word))
    return Traces(lines, words)


def _telling(word: str) -> bool:
    digit = any(char.isdigit() for char in word)
    return len(word) >= (SHORTEST_LINE if digit else 2 * SHORTEST_WORD) and any(char.isalnum() for char in word)


class Denials:
    """The rules of one session. `root` is the repository; patterns are relative to it, as in `deny`."""

    def __init__(self, rules: Mapping[str, tuple[str, ...]], root: Path) -> None:
        self._rules = dict(rules)
        self.root = Path(os.path.realpath(root))
        self._read: dict[Path, tuple[int, int, Traces]] = {}
        self._common = self._shared() if self._rules else Traces()
        """What files say that nobody is kept from, at the session's beginning: it gives nothing away."""

    def of(self, agent: str) -> tuple[str, ...]:
        """The patterns that hold for an agent."""
        return tuple(glob for glob, agents in self._rules.items() if agent in agents or EVERYBODY in agents)

    def covers(self, agent: str, other: str) -> bool:
        """Whatever is kept from `other` is kept from `agent` too: it can have told nothing of it."""
        return set(self.of(other)) <= set(self.of(agent))

    def denied(self, agent: str, path: str, copy: Path | None = None) -> bool:
        """The path, or what it links to, is kept from the agent. Relative paths are meant from the root; where the
        agent works in a copy of the repository, from that as well."""
        tops = [self.root] if copy is None else [self.root, Path(os.path.realpath(copy))]
        ways = [(top, way(top / path)) for top in tops for way in (os.path.normpath, os.path.realpath)]
        forms = {_relative(Path(found), top) for top, found in ways}
        return any(form is not None and self._matches(agent, form) for form in forms)

    def files(self, agent: str) -> list[str]:
        """The files that are kept from the agent now, relative to the root."""
        return [path for path in self._all() if self._matches(agent, path)] if self.of(agent) else []

    def mentioned(self, agent: str, text: str) -> bool:
        """The text names a file that is kept from the agent, or the folder that a pattern is about."""
        folders = [glob.split("*")[0].rstrip("/") for glob in self.of(agent)]
        names = {*self.files(agent), *(folder for folder in folders if folder)}
        return any(re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) for name in names)

    def traces(self, agent: str) -> Traces:
        """What gives the content of those files away."""
        found = Traces()
        for path in self.files(agent):
            found |= self._traces(self.root / path)
        return found - self._common

    def _shared(self) -> Traces:
        lines: set[str] = set()
        words: set[str] = set()
        left = COMMON_BYTES
        kept = [path for path in self._all() if any(self._fits(glob, path) for glob in self._rules)]
        same = {self._identity(path) for path in kept}
        for path in self._all():
            if self._identity(path) in same:  # also under another name: a link
                continue
            now = self._traces(self.root / path)
            left -= sum(map(len, now.lines))
            if left < 0:
                break
            lines |= now.lines
            words |= now.words
        return Traces(frozenset(lines), frozenset(words))

    def _matches(self, agent: str, path: str) -> bool:
        return any(self._fits(glob, path) for glob in self.of(agent))

    @staticmethod
    def _fits(glob: str, path: str) -> bool:
        bare = glob.removeprefix("./").rstrip("/")
        return any(patterns.glob(form).fullmatch(path) for form in (bare, f"{bare}/**"))

    def _identity(self, path: str) -> tuple[int, int] | None:
        try:
            state = (self.root / path).stat()
        except OSError:
            return None
        return state.st_dev, state.st_ino

    def _all(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if name not in SKIPPED]
            place = PurePosixPath(Path(folder).relative_to(self.root).as_posix())
            yield from ((place / name).as_posix() for name in names)

    def _traces(self, path: Path) -> Traces:
        """Of one file, read again when it has changed; what it held before is still known."""
        try:
            state = path.stat()
            if state.st_size > LARGEST:
                return Traces()
            known = self._read.get(path)
            if known is not None and known[:2] == (state.st_mtime_ns, state.st_size):
                return known[2]
            now = traces_of(path.read_text(encoding="utf-8", errors="replace"))
        except OSError:
            return Traces()
        both = now | known[2] if known is not None else now
        self._read[path] = (state.st_mtime_ns, state.st_size, both)
        return both


def _relative(path: Path, top: Path) -> str | None:
    return path.relative_to(top).as_posix() if path.is_relative_to(top) else None
