"""Random command lines against the reader: what it calls a read is run and watched with strace.

Used by the test beside it, with few lines, and by tests/benchmarks/reader_fuzz.py, with many.
"""

from __future__ import annotations

import hashlib
import os
import random
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.safety.policy.readers import READERS, is_read

PROGRAMS = [*READERS, "git", "find", "xargs", "cd", "test", "[", "env", "python3", "sh", "tee"]
STARTED_BY_READERS = {"bash", "sh", "grep", "git", "find", "xargs", "test", "[", *READERS}
"""Programs that a read may start: the table, and what some of its programs are scripts for."""
GIT_SUBCOMMANDS = [
    "status", "diff", "log", "show", "ls-files", "grep", "branch", "tag", "stash", "remote",
    "blame", "config", "reflog", "describe", "cat-file", "worktree", "rev-parse", "shortlog",
]  # fmt: skip
OPTIONS = [
    "-n", "-l", "-r", "-R", "-L", "-e", "-f", "-o", "-i", "-O", "-c", "-C", "-v", "-x", "-z", "-0",
    "-a", "-p", "-s", "-w", "-1", "-5", "--", "-exec", "-delete", "-type", "-name", "-print0",
    "--output=made", "--pre", "--help", "--version", "--stat", "--no-index", "--ext-diff", "--all",
    "--files0-from=links", "--file=out", "-nOsh", "--compress-program=./p", "-T.", "--format=%G?",
    "-follow", "-printf", "-fprint", "--exec=./p", "--open-files-in-pager=./p", "-u",
]  # fmt: skip
WORDS = [
    "a.py", "src", "src/b.py", "out", "out/secret", "src/out/secret", "link", "sub", "nested", ".",
    "..", "../outside/secret", "*", "*.py", "src/*", "?", ".*", ".?", "BEG*", "s#*#x#g", "-*", "~",
    "$HOME", "'1,5p'", "'s/x/y/'", "'1e ./p'", "'w made'", "'{print $1}'", "'BEGIN{system(\"./p\")}'",
    "'.a'", "x", "made", "HEAD", "HEAD:a.py", "HEAD~1", "PATH", "'a%ln'", "'%s'", "{}", "+", "\\;",
    "f", "y", "10", ".env", "{a.py,b}", "a\\ b", "'-e'", "\"1e ./p\"", "a/l/..", "a", "a/m/secret",
    "/etc/passwd", "links", "'foo'", "env", "'input_filename'", "README.md", "user.name", "list",
]  # fmt: skip
JOINS = [" && ", " || ", "; ", " | ", " | ", "\n", " & ", " |& "]
REDIRECTS = ["", "", "", "", " 2>/dev/null", " >/dev/null", " 2>&1", " > made", " < a.py", " >&2"]


@dataclass(frozen=True)
class Finding:
    """A line that was called a read and did more."""

    line: str
    did: str


def random_line(chance: random.Random) -> str:
    """Return a line of one to three commands."""
    text = _random_command(chance)
    for _ in range(chance.choice([0, 0, 0, 1, 1, 2])):
        text += chance.choice(JOINS) + _random_command(chance)
    return text


def _random_command(chance: random.Random) -> str:
    program = chance.choice(PROGRAMS)
    words = [program]
    if program == "git":
        words.append(chance.choice(GIT_SUBCOMMANDS))
    if program == "find":
        words.append(chance.choice([".", "src", "*", "out"]))
    for _ in range(chance.randrange(4)):
        words.append(chance.choice(OPTIONS if chance.random() < 0.4 else WORDS))
    if program == "[":
        words.append("]")
    return " ".join(words) + chance.choice(REDIRECTS)


class WatchedRepository:
    """A repository full of traps, and a folder beside it that no read may open."""

    def __init__(self, folder: Path) -> None:
        self.root = (folder / "repo").resolve()
        self.outside = (folder / "outside").resolve()
        self._trace = folder / "trace"
        for path in (self.root / "src", self.root / "a", self.root / "b" / "c", self.outside):
            path.mkdir(parents=True)
        (self.outside / "secret").write_text("secret\n")
        payload = self.root / "p"
        payload.write_text(f"#!/bin/sh\ntouch {self.root}/PWNED {folder}/PWNED\n")
        payload.chmod(0o755)
        for name in ("a.py", "src/b.py", "README.md", "-e", "-n", "-o", "-v", "-exec", ".env"):
            (self.root / name).write_text("x = 1\nfoo bar\n")
        (self.root / "a -e '1e .p' b.py").write_text("x\n")
        (self.root / 'BEGIN{system("sh p")}').write_text("x\n")
        (self.root / "s#x#x#e").write_text("x\n")
        (self.root / "links").write_bytes(f"{self.outside}/secret\0".encode())
        for link, target in (
            ("out", self.outside),
            ("src/out", self.outside),
            ("link", self.outside / "secret"),
            ("a/l", Path("../b/c")),
            ("a/m", self.outside),
        ):
            (self.root / link).symlink_to(target)
        self._git("init", "-q")
        self._git("add", "-A")
        nested = self.root / "nested"
        self._git("init", "-q", str(nested))
        self._git("-C", str(nested), "commit", "-q", "--allow-empty", "-m", "x")
        self._git("add", "nested")
        self._git("commit", "-q", "-m", "x")
        self._git("-C", str(nested), "config", "core.fsmonitor", f"sh {payload}; echo")

    def _git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(
            ["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True
        )

    def check(self, line: str) -> list[Finding]:
        """Return what the line did that no read may do; nothing where it is called no read."""
        if not is_read(line, self.root):
            return []
        before = self._state()
        strace = [shutil.which("strace") or "strace", "-f", "-qq", "-o", str(self._trace)]
        calls = "trace=execve,open,openat,openat2"
        subprocess.run(
            [*strace, "-e", calls, "-e", "signal=none", "bash", "-c", line],
            cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )  # fmt: skip
        findings = []
        if self._state() != before:
            findings.append(Finding(line, "a file was changed"))
        for row in self._trace.read_text("utf-8", "replace").splitlines():
            if " = -1 " in row:
                continue
            started = re.search(r'execve\("([^"]*)"', row)
            opened = re.search(r'open(?:at2?)?\((?:[^,"]*, )?"([^"]*)"', row)
            if started is not None and Path(started.group(1)).name not in STARTED_BY_READERS:
                findings.append(Finding(line, f"it started {started.group(1)}"))
            if opened is not None and opened.group(1).startswith((str(self.outside), "../outside")):
                findings.append(Finding(line, f"it opened {opened.group(1)}"))
            if opened is not None and re.match(
                r"(?:\./)?(?:src/)?(?:out/|a/m/|link$)", opened.group(1)
            ):
                findings.append(Finding(line, f"it opened {opened.group(1)}"))
        return findings

    def _state(self) -> str:
        digest = hashlib.sha256()
        for folder in (self.root, self.outside):
            for path in sorted(folder.rglob("*")):
                digest.update(str(path).encode())
                if path.is_file() and not path.is_symlink():
                    digest.update(path.read_bytes())
        return digest.hexdigest()
