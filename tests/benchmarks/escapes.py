"""Which attempts to get out of the sandbox are held by which means, and which are asked about in
auto mode; as root and as an ordinary user.

python -m tests.benchmarks.escapes > tests/benchmarks/results/escapes.md     (as root, to be both)

The rows are those of tests/unit/safety/sandbox/attempts.py. Without a sandbox only those are made that
keep to the world they are made in; they show that a row is an attempt at all.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from fugu_cli.safety.sandbox.command_sandbox import SandboxSettings
from fugu_cli.safety.sandbox.mechanisms import Mechanism
from tests.unit.safety.sandbox.attempts import Attempt, attempts, made, ran
from tests.unit.safety.sandbox.worlds import OTHER, Unavailable, listening, working, world

AREAS = {
    "reads": "read a secret",
    "writes": "change something outside, or git's hooks and settings",
    "history": "change or lose what git keeps",
    "runs": "have the user's next git command run something",
    "others": "write files that others run without a further word",
    "reaches": "reach a socket, another machine, the kernel past the filter",
}
MEANS = {
    "none": "none",
    "bare landlock": "Landlock alone",
    "landlock": "Landlock with namespaces",
    "bubblewrap": "bubblewrap",
}
OTHERS = {
    "a hostile repository: things that git, Python, fugu or the shell would run": ("tests/acceptance/test_hostile.py",),
    "what an agent wrote, started by fugu itself: servers, hooks, programs on PATH": (
        "tests/acceptance/test_repository_servers.py", "tests/acceptance/test_git_programs.py",
        "tests/unit/safety/test_programs.py",
    ),
    "links swapped into a path while a command runs": ("tests/unit/tools/test_swapped_links.py",),
    "commands to the terminal, names of MCP servers and tools among the places": (
        "tests/acceptance/test_escape_sequences.py", "tests/unit/ui/test_clean.py", "tests/unit/ui/tui/test_text.py",
    ),
    "other people's addresses: private networks, names that change where they lead": (
        "tests/unit/safety/policy/test_web_rules.py", "tests/unit/tools/test_web_fetch.py",
    ),
    "the endpoint's front": ("tests/acceptance/serve/test_exchange.py", "tests/acceptance/serve/test_process.py"),
    "broken providers": (
        "tests/acceptance/test_faults.py", "tests/unit/providers/test_failures.py",
        "tests/unit/wires/test_broken_streams.py",
    ),
    "signals, full disks, clocks, crashes": (
        "tests/acceptance/test_signals.py", "tests/acceptance/test_crash.py", "tests/acceptance/test_killed.py",
        "tests/unit/system/test_full_disk.py", "tests/unit/engine/test_full_disk.py",
    ),
}  # fmt: skip
"""Attempts of other kinds, each a test or more of its own, by file."""
ENVIRONMENT = {
    f"GIT_{who}_{what}": "t@example.org"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL")
}


@dataclass(frozen=True)
class Cell:
    """How the rows of an area went with one means: `harmful` those that did harm, `through` those
    of them that did it also where nobody says yes to what auto mode asks about."""

    made: int
    harmful: tuple[Attempt, ...]
    through: tuple[Attempt, ...]

    @property
    def said(self) -> str:
        asked = f", {len(self.harmful) - len(self.through)} asked" if self.harmful else ""
        return f"{self.made - len(self.harmful)} of {self.made}{asked}" if self.made else "-"


def measured(kind: str, area: str, user: int | None) -> Cell:
    """Make all rows of an area that may be made, and those that did harm once more. Raises
    Unavailable.
    """
    rows = [row for row in attempts(area) if kind != "none" or not row.system]
    harmful = _harmful(working(kind, user), rows, user, unasked=False)
    return Cell(len(rows), harmful, _harmful(working(kind, user), harmful, user, unasked=True))


def _harmful(
    found: Mechanism, rows: Sequence[Attempt], user: int | None, *, unasked: bool
) -> tuple[Attempt, ...]:
    if rows and rows[0].area == "runs":
        with world(found, SandboxSettings(), user) as bare, listening(bare) as place:
            return tuple(attempt for attempt, did in ran(place, rows, unasked=unasked) if did)
    return tuple(
        attempt
        for attempt, did in made(rows, found, SandboxSettings(), user, unasked=unasked)
        if did
    )


def table(user: int | None) -> Iterator[str]:
    cells: dict[tuple[str, str], Cell] = {}
    lacking = {}
    for kind in MEANS:
        try:
            cells |= {(kind, area): measured(kind, area, user) for area in AREAS}
        except Unavailable as why:
            lacking[kind] = str(why)
    yield f"| attempts to | rows | {' | '.join(MEANS.values())} |"
    yield f"|---|---|{'---|' * len(MEANS)}"
    for area, words in AREAS.items():
        held = [cells[kind, area].said if (kind, area) in cells else "not tried" for kind in MEANS]
        yield f"| {words} | {len(attempts(area))} | {' | '.join(held)} |"
    said = [f"Not tried: {MEANS[kind]} ({why})." for kind, why in lacking.items()]
    for (kind, _), cell in cells.items():
        said += [f"- through, {MEANS[kind]}: `{'; '.join(row.lines)}`" for row in cell.through]
    yield from ("", *said) if said else ()


def counted(files: tuple[str, ...]) -> int:
    """How many tests these files hold."""
    words = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", *files]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return sum(
        int(line.rpartition(": ")[2])
        for line in done.stdout.splitlines()
        if line.startswith("tests/")
    )


def page() -> Iterator[str]:
    system = os.uname()
    yield "# Attempts to get out of the sandbox"
    yield ""
    yield (
        "Made by `python -m tests.benchmarks.escapes` from the rows of "
        "`tests/unit/safety/sandbox/attempts.py`."
    )
    yield (
        f"{system.sysname} {system.release.split('-')[0]}, {system.machine}. A cell says how "
        f"many attempts were held,"
    )
    yield (
        "and of the others how many did nothing where only what auto mode does not ask about was "
        "run."
    )
    yield (
        "Without a sandbox only attempts that keep to their own world are made. What is held "
        "there is held by this"
    )
    yield (
        "machine's kernel, by missing programs, or by fugu, which passes no keys on and reads no "
        "unknown settings."
    )
    yield ""
    for user, name in (
        (None, "root" if os.geteuid() == 0 else "an ordinary user"),
        (OTHER, "an ordinary user"),
    ):
        if user is None or os.geteuid() == 0:
            yield f"## As {name}"
            yield ""
            yield from table(user)
            yield ""
    yield "## Attempts of other kinds"
    yield ""
    yield "| kind | tests | files |"
    yield "|---|---|---|"
    yield from (
        f"| {kind} | {counted(files)} | {', '.join(f'`{file}`' for file in files)} |"
        for kind, files in OTHERS.items()
    )


if __name__ == "__main__":
    os.environ.update(ENVIRONMENT, GIT_CONFIG_NOSYSTEM="1", GIT_CONFIG_GLOBAL=os.devnull)
    print("\n".join(page()))
