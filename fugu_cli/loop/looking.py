"""What a small model is shown of a question instead of files: what git says, or the lines that name what it asks about.

Between steps.py, which says what may be run, and turn.py and context.py. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Container

from fugu_cli import intent, views
from fugu_cli.loop.opening import argument, opening_ids
from fugu_cli.messages import Call, Value
from fugu_cli.tools.search import NOTHING

_FOLDERS = ("test", "tests", "spec", "specs", "__tests__")
_ENDS = ("_test", "_spec", ".test", ".spec", "-test", "-spec")
_SUITES = ("java", "kt", "cs", "php", "swift")
TESTS = ",".join(
    [
        *(f"**/{name}/**" for name in _FOLDERS),
        "**/test_*,**/conftest*",
        *(f"**/*{end}.*" for end in _ENDS),
        *(f"**/*{end}.{suite}" for end in ("Test", "Tests") for suite in _SUITES),
    ]
).join("{}")
"""Tests by the look of their path, as test_paths.py has it, for ripgrep."""
AROUND = 2
"""Lines shown about each that names it."""
LIMIT = 3000
"""Characters of what was found."""


class Look(Value):
    """A call of a tool that shows what a question is about. `pattern` and `tests` where it is a search."""

    tool: str
    command: str = ""
    pattern: str = ""
    tests: bool = False

    def call(self, id: str) -> Call:
        """The same call for the same question: it is taken once in a turn."""
        if self.tool == "bash":
            return Call.make(id, "bash", command=self.command)
        if self.tests:
            return Call.make(id, "grep", pattern=self.pattern, glob=TESTS, ignore_case=True, context=AROUND)
        return Call.make(id, "grep", pattern=self.pattern, context=AROUND)


def look(text: str, tools: Container[str]) -> Look | None:
    """What is to be looked at for a request; None where it is for its files."""
    if (command := intent.git_command(text)) and "bash" in tools:
        return Look(tool="bash", command=command)
    found = intent.searched(text)
    if found is None or "grep" not in tools:
        return None
    return Look(tool="grep", pattern=f"(^|[^A-Za-z]){re.escape(found.name)}($|[^A-Za-z])", tests=found.tests)


def section(turn: views.Turn, request: str) -> str:
    """The diff that fugu read for a Verifier; what a command or a search said that shows what a question is about."""
    taken = _taken(turn)
    diffs = [f"This was changed:\n```diff\n{text}\n```\n\n" for call, text in taken if call.tool == "diff"]
    said = [(argument(call, "command"), shortened(text, LIMIT)) for call, text in taken if call.tool == "bash"]
    searched = [_lines(text, request) for call, text in taken if call.tool == "grep"]
    return "".join([*diffs, *(f"`{command}` prints:\n```\n{text}\n```\n\n" for command, text in said), *searched])


def searched(turn: views.Turn) -> bool:
    """Something was searched for before the turn's agent began, and the search could be made."""
    return any(call.tool == "grep" for call, _ in _taken(turn))


def _taken(turn: views.Turn) -> list[tuple[Call, str]]:
    """What fugu called before the agent's first reply, with what it gave, where it did not fail."""
    opening = opening_ids(turn)
    calls = [run for run in turn.runs if run.permitted.call.id in opening and run.evidence]
    return [(run.permitted.call, run.result.output.strip("\n")) for run in calls if run.result and run.result.ok]


def _lines(found: str, request: str) -> str:
    asked = intent.searched(request)
    if asked is None:
        return ""
    where = "tests" if asked.tests else "files"
    lines = "(nothing)" if found.startswith(NOTHING) else shortened(found, LIMIT)
    return f"All {where} were searched for `{asked.name}`. Found:\n```\n{lines}\n```\n\n"


def shortened(output: str, limit: int) -> str:
    """An output's whole lines, at most `limit` characters."""
    plain = output.strip()
    return plain if len(plain) <= limit else f"{plain[:limit].rpartition(chr(10))[0]}\n..."
