"""The memory: lines that the user keeps for later sessions. One file is the user's and is read in
every repository; a trusted repository may have another, which is read there.

Agents read it as data with their first request, and again when it has changed. Only a line that the
user has said yes to is added.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from fugu_cli.errors import FuguError, StorageError, UsageError
from fugu_cli.extensions.instruction_files import MEMORY_FILE
from fugu_cli.formatting import plural, sanitize_for_screen
from fugu_cli.safety.paths import inside, is_file, path_exists, protected_reason, real_path
from fugu_cli.session.events import MemoryText
from fugu_cli.session.open_work import BYTES, byte_size
from fugu_cli.system.atomic_files import write_atomically

Scope = Literal["repository", "user"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
NAME = "MEMORY.md"
MOST_TOKENS = 1_500
"""Tokens of each file that agents read: its newest lines. Every new conversation pays for them."""
UNTRUSTED = "you have not trusted it as it is (/trust, `fugu trust`)"
LARGEST_FILE = 1_000_000
"""Bytes. A larger file is no memory, and is not read."""
LOCK_SECONDS = 10.0
"""Seconds that other sessions may take to add their lines."""
LONGEST_LINE = 500
"""Characters of a line that is added."""


@dataclass
class Memory:
    """The memory files for work in one folder.

    `root` is the resolved repository; None in the home folder, which has the user's file alone.
    `counts` says whether a file of the repository is as the user trusted it, `is_trusted` whether
    the whole repository is; `trust_file` trusts one file as it is. `mask` takes secrets out of a
    text.
    """

    root: Path | None
    counts: Callable[[Path], bool]
    is_trusted: Callable[[], bool]
    trust_file: Callable[[Path], None]
    mask: Callable[[str], str]
    told: frozenset[str] = frozenset()
    """Sentences about what is left out that the user knows."""

    @property
    def scopes(self) -> tuple[Scope, ...]:
        """The scopes that have a memory file here, or can get one."""
        return SCOPES if self.root is not None else ("user",)

    def path(self, scope: Scope) -> Path:
        """Return the file of a scope. It need not exist."""
        if scope == "repository":
            assert self.root is not None
            return self.root / MEMORY_FILE
        from platformdirs import user_config_path

        return user_config_path("fugu") / NAME

    def shown_path(self, scope: Scope) -> str:
        """Return the file's name for people and agents."""
        if scope == "repository":
            return MEMORY_FILE
        path = self.path(scope)
        home = Path.home()
        return f"~/{path.relative_to(home).as_posix()}" if inside(path, home) else str(path)

    def read(self) -> tuple[tuple[MemoryText, ...], tuple[str, ...]]:
        """Return the memory files as agents read them, and new sentences about what is left out:
        none is returned again before it has ceased to be true.
        """
        texts: list[MemoryText] = []
        notes: list[str] = []
        for scope in reversed(self.scopes):
            path, shown = self.path(scope), self.shown_path(scope)
            if not path_exists(path):
                continue
            fault = self._fault(scope, path)
            content = ""
            if not fault:
                try:
                    content = path.read_text("utf-8-sig").strip()
                except OSError as error:
                    fault = f"it cannot be read ({error.strerror})"
                except UnicodeDecodeError:
                    fault = "it is not UTF-8 text"
            if fault:
                notes.append(left_out_note(shown, fault))
            elif content:
                text, left_out = _newest_lines(content)
                texts.append(MemoryText(file=shown, text=text, left_out=left_out))
                if left_out:
                    notes.append(
                        f"{shown}: agents are not shown its first {plural(left_out, 'line')}, as the "
                        f"newest take {MOST_TOKENS:,} tokens; shorten it (/memory)"
                    )
        new_notes = tuple(note for note in notes if note not in self.told)
        self.told = frozenset(notes)
        return tuple(texts), new_notes

    def _fault(self, scope: Scope, path: Path) -> str:
        """Return why an existing file does not count, "" if it does."""
        if not is_file(path):
            return "it is not a file"
        if path.stat().st_size > LARGEST_FILE:
            return f"it is larger than {LARGEST_FILE // 1_000_000} MB"
        if scope == "repository":
            if fault := self._link_fault(path):
                return f"it is {fault}"
            if not self.counts(path):
                return UNTRUSTED
        return ""

    def _link_fault(self, path: Path) -> str:
        """Return the words for a link of the repository to a file that is no memory, such as git's
        settings or keys; "" for a file of its own.
        """
        assert self.root is not None
        target = real_path(path)
        if target == path:
            return ""
        if not inside(target, self.root):
            return "a link that leads out of the repository"
        if reason := protected_reason(target, self.root, writes=True):
            return f"a link to {target.relative_to(self.root)} ({reason})"
        return ""

    def line(self, text: str) -> str:
        """Return a text as the line that would be added, without secrets. Raises UsageError."""
        line = " ".join(sanitize_for_screen(text).split()).removeprefix("- ")
        line = self.mask(line)
        if not line:
            raise UsageError("there is nothing to remember", hint="write a line of text")
        if len(line) > LONGEST_LINE:
            raise UsageError(
                f"a line of the memory has at most {LONGEST_LINE} characters, this one {len(line):,}",
                hint="say it in fewer words; a longer text belongs into AGENTS.md",
            )
        return line

    def add(self, line: str, scope: Scope) -> None:
        """Add a line that `line` returned to the file of a scope. Raises UsageError if the file has
        it already or is open in an editor, and StorageError.
        """
        path = self._writable_path(scope)
        item = f"- {line}"
        busy = StorageError(
            "another session is writing the memory", hint="nothing was changed; try again"
        )
        try:
            with (
                _locked("memory.lock", LOCK_SECONDS, busy),
                self._editor_lock(scope),
                self._keeping_trust(scope),
            ):
                before = path.read_text("utf-8") if path_exists(path) else ""
                if item in before.splitlines():
                    raise UsageError(
                        f"{self.shown_path(scope)} has this line already", hint="/memory opens it"
                    )
                end = "" if not before or before.endswith("\n") else "\n"
                write_atomically(path, f"{before}{end}{item}\n".encode())
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
            raise StorageError(
                f"cannot write {self.shown_path(scope)}: {why}", hint="nothing was changed"
            ) from error

    @contextmanager
    def editing(self, scope: Scope) -> Iterator[Path]:
        """Yield the file of a scope for the user's editor. No line is added to it in the block, as
        the editor would overwrite it. A trusted repository stays trusted.

        Raises UsageError if another editor has the file, and StorageError.
        """
        path = self._writable_path(scope)
        with self._editor_lock(scope), self._keeping_trust(scope):
            yield path

    def _editor_lock(self, scope: Scope) -> AbstractContextManager[None]:
        """Return the lock that an editor holds. Entering it raises UsageError if one is open."""
        path = real_path(self.path(scope))
        name = f"memory-{hashlib.sha256(os.fsencode(path)).hexdigest()[:16]}.lock"
        refusal = UsageError(
            f"{self.shown_path(scope)} is open in an editor (/memory)",
            hint="nothing was changed; close the editor and try again",
        )
        return _locked(name, 0.0, refusal)

    def _writable_path(self, scope: Scope) -> Path:
        """Return the resolved file to write, and make its folder. Raises UsageError for a link out of
        the repository, and StorageError.
        """
        named = self.path(scope)
        path = real_path(named)
        fault = self._link_fault(named) if scope == "repository" else ""
        if fault:
            raise UsageError(
                f"{self.shown_path(scope)} is {fault}",
                hint="nothing was changed; put a file in its place",
            )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"cannot make {path.parent}: {error.strerror}", hint="nothing was changed"
            ) from error
        return path

    @contextmanager
    def _keeping_trust(self, scope: Scope) -> Iterator[None]:
        """Keep a trusted repository trusted while the user changes its file in the block."""
        was_trusted = scope == "repository" and self.is_trusted()
        yield
        if was_trusted:
            self.trust_file(self.path(scope))


@contextmanager
def _locked(name: str, seconds: float, refusal: FuguError) -> Iterator[None]:
    """Hold a lock of all sessions, in the user's data. Raises StorageError, and `refusal` where
    another session has held it for so many seconds.
    """
    from filelock import FileLock, Timeout
    from platformdirs import user_data_path

    folder = user_data_path("fugu")
    lock = FileLock(folder / name, mode=0o600, thread_local=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=seconds)
    except Timeout:
        raise refusal from None
    except OSError as error:
        raise StorageError(
            f"cannot write in {folder}: {error.strerror}", hint="nothing was changed"
        ) from error
    try:
        yield
    finally:
        lock.release()


def left_out_note(shown_path: str, fault: str) -> str:
    """Return the sentence about a file that does not count."""
    return f"{shown_path} is left out: {fault}"


def _newest_lines(content: str) -> tuple[str, int]:
    """Return the last lines that fit, and how many lines before them are left out."""
    lines = content.splitlines()
    kept: list[str] = []
    size = 0
    for line in reversed(lines):
        size += byte_size(line) + 1
        if size > MOST_TOKENS * BYTES:
            break
        kept.insert(0, line)
    return "\n".join(kept), len(lines) - len(kept)
