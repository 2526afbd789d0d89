"""Random command lines against the reader: what it calls a read is run and watched with strace.

Used by the test beside it, with few lines, and by tests/benchmarks/reader.py, with many.
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

from fugu_cli.safety.policy.git_commands import READING_OPTIONS
from fugu_cli.safety.policy.readers import READERS, is_read

PROGRAMS = [*READERS, "git", "xargs", "cd", "diff3", "fd", "comm", "env", "python3", "sh", "tee"]
STARTED_BY_READERS = {"bash", "sh", "git", *READERS}
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
    "-follow", "-printf", "-fprint", "--exec=./p", "--open-files-in-pager=./p", "-u", "-S", "-X",
    "-G", "-d", "-F", "--cached", "--submodule=diff", "--show-signature", "--textconv", "-m",
]  # fmt: skip
WORDS = [
    "a.py", "src", "src/b.py", "out", "out/secret", "src/out/secret", "link", "sub", "nested", ".",
    "..", "../outside/secret", "*", "*.py", "src/*", "?", ".*", ".?", "BEG*", "s#*#x#g", "-*", "~",
    "$HOME", "'1,5p'", "'s/x/y/'", "'1e ./p'", "'w made'", "'{print $1}'", "'BEGIN{system(\"./p\")}'",
    "'.a'", "x", "made", "HEAD", "HEAD:a.py", "HEAD~1", "PATH", "'a%ln'", "'%s'", "{}", "+", "\\;",
    "f", "y", "10", ".env", "{a.py,b}", "a\\ b", "'-e'", "\"1e ./p\"", "a/l/..", "a", "a/m/secret",
    "/etc/passwd", "links", "'foo'", "env", "'input_filename'", "README.md", "user.name", "list",
    "d1", "d2", "d*", "@args", "@*", "\u0663", "{PATH}", "'TZ=\"OUTSIDE/secret\" now'", "+%s",
    "nested/..", "HEAD~1..HEAD", "OUTSIDE/secret",
]  # fmt: skip
JOINS = [" && ", " || ", "; ", " | ", " | ", "\n", " & ", " |& "]
REDIRECTS = [
    "", "", "", "", " 2>/dev/null", " >/dev/null", " 2>&1", " > made", " < a.py", " >&2", " >&made",
    " {PATH}>/dev/null", " {PATH}>&2", " \u0663>&1", " <>/dev/null", " >|/dev/null", " 2>&-",
]  # fmt: skip
ODD = "\u0663\u00a0\u200b\r\\{}'\"~=:#!$^"
"""Characters that a shell and its reader may take differently."""
HOSTILE_SETTINGS = [
    "diff.trap.textconv", "diff.trap.command", "diff.external", "filter.trap.clean", "core.pager",
    "pager.log", "core.fsmonitor", "core.sshCommand", "gpg.program", "alias.x", "core.editor",
    "interactive.diffFilter", "trailer.t.command", "diff.submodule", "log.showSignature",
    "submodule.recurse", "status.submoduleSummary",
]  # fmt: skip
"""Settings that make git run a program, or look into nested repositories."""
VALUES = {
    "diff.submodule": "diff", "log.showSignature": "true", "submodule.recurse": "true",
    "status.submoduleSummary": "true", "alias.x": "!./p",
}  # fmt: skip


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
    program = "git" if chance.random() < 0.15 else chance.choice(PROGRAMS)
    words = [program]
    if program == "git":
        words.append(chance.choice(GIT_SUBCOMMANDS))
    if program == "find":
        words.append(chance.choice([".", "src", "*", "out"]))
    for _ in range(chance.randrange(4)):
        kind = chance.random()
        if kind < 0.2:
            words += _known_option(program, chance)
        elif kind < 0.4:
            words.append(chance.choice(OPTIONS))
        else:
            words.append(chance.choice(WORDS))
        if chance.random() < 0.1:
            words[-1] = chance.choice(OPTIONS) + words[-1]
    if program == "[":
        words.append("]")
    text = " ".join(words) + chance.choice(REDIRECTS)
    if chance.random() < 0.1:
        index = chance.randrange(len(text))
        text = text[:index] + chance.choice(ODD) + text[index:]
    return text


def _known_option(program: str, chance: random.Random) -> list[str]:
    """Return an option that the table has for the program, with a value where it takes one."""
    if program == "git":
        return [f"--{chance.choice(sorted(READING_OPTIONS))}"]
    options = sorted(READERS[program].options) if program in READERS else []
    if not options:
        return []
    option = chance.choice(options)
    value = chance.choice(WORDS)
    if option.endswith(("=", "@")) and option.startswith("--"):
        return [f"{option[:-1]}={value}"]
    return [option[:-1], value] if option.endswith(("=", "@")) else [option.rstrip("?")]


class WatchedRepository:
    """A repository full of traps, and a folder beside it that no read may open.

    `setting` is one of HOSTILE_SETTINGS that its own configuration has, "" for none.
    """

    def __init__(self, folder: Path, setting: str = "") -> None:
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
        for name in ("a -e '1e .p' b.py", "a\nb.py", "FS=x", "-rf", "--pre=p", "+1"):
            (self.root / name).write_text("x\n")
        (self.root / "@args").write_text(f"{self.outside}/secret\n")
        (self.root / ".gitattributes").write_text("* diff=trap filter=trap\n")
        for name in ("d1", "d2"):
            (self.root / name).mkdir()
            (self.root / name / "l").symlink_to(self.outside / "secret")
        for number in ("10", "11", "12"):
            (self.root / number).mkdir()
            for program in ("ls", "cat", "grep", "git", "head", "wc"):
                (self.root / number / program).symlink_to("../p")
        (self.root / 'BEGIN{system("sh p")}').write_text("x\n")
        (self.root / "s#x#x#e").write_text("x\n")
        (self.root / "links").write_bytes(f"{self.outside}/secret\0".encode())
        for link, target in (
            ("out", self.outside),
            ("src/out", self.outside),
            ("link", self.outside / "secret"),
            ("a/l", Path("../b/c")),
            ("a/m", self.outside),
            ("\u0663", self.outside / "secret"),
        ):
            (self.root / link).symlink_to(target)
        self._git("init", "-q")
        self._git("add", "-A")
        nested = self.root / "nested"
        self._git("init", "-q", str(nested))
        self._git("-C", str(nested), "commit", "-q", "--allow-empty", "-m", "x")
        self._git("add", "nested")
        self._git("commit", "-q", "-m", "x")
        (nested / "f").write_text("x\n")
        self._git("-C", str(nested), "add", "f")
        self._git("-C", str(nested), "commit", "-q", "-m", "y")
        self._git("add", "nested")
        self._git("commit", "-q", "-m", "y")
        for name in ("core.fsmonitor", "diff.external", "core.pager"):
            self._git("-C", str(nested), "config", name, f"sh {payload}; echo")
        if setting:
            self._git("config", setting, VALUES.get(setting, "./p"))

    def _git(self, *arguments: str) -> None:
        identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
        subprocess.run(
            ["git", *identity, *arguments], cwd=self.root, check=True, capture_output=True
        )

    def check(self, line: str) -> list[Finding]:
        """Return what the line did that no read may do; nothing where it is called no read.

        OUTSIDE in it stands for the folder that no read may open.
        """
        line = line.replace("OUTSIDE", str(self.outside))
        if not is_read(line, self.root):
            return []
        before = self._state()
        strace = [shutil.which("strace") or "strace", "-f", "-y", "-qq", "-o", str(self._trace)]
        calls = "trace=execve,open,openat,openat2,connect"
        subprocess.run(
            [*strace, "-e", calls, "-e", "signal=none", "bash", "-c", line],
            cwd=self.root, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=60,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", "HOME": str(self.outside)},
        )  # fmt: skip
        findings = []
        if self._state() != before:
            findings.append(Finding(line, "a file was changed"))
        for row in self._trace.read_text("utf-8", "replace").splitlines():
            if " = -1 " in row:
                continue
            started = re.search(r'execve\("([^"]*)"', row)
            if started is not None:
                program = Path(started.group(1))
                is_known = program.is_absolute() and program.name in STARTED_BY_READERS
                if not is_known or program.is_relative_to(self.root):
                    findings.append(Finding(line, f"it started {program}"))
            opened = re.search(r"open.* = \d+<([^>]*)>", row)
            if opened is not None and Path(opened.group(1)).is_relative_to(self.outside):
                findings.append(Finding(line, f"it opened {opened.group(1)}"))
            if "AF_INET" in row:
                findings.append(Finding(line, f"it connected: {row}"))
        return findings

    def _state(self) -> str:
        digest = hashlib.sha256()
        for folder in (self.root, self.outside):
            for path in sorted(folder.rglob("*")):
                digest.update(str(path).encode())
                if path.is_file() and not path.is_symlink():
                    digest.update(path.read_bytes())
        return digest.hexdigest()
