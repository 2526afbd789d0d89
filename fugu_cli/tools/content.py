"""The content a call's output depends on, as one id: a file's blob, or all there is for what looks at many files.

The tool memory of workflows (conductor/memory.py) keys its entries by it. "" where it cannot be told, so that nothing
is remembered: outside the repository, what needs a yes, a command that looks at more than what files hold
(read_only.py). Changes nothing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from fugu_cli import policy
from fugu_cli.messages import Call
from fugu_cli.policy import paths
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.tools import blobs, read_only
from fugu_cli.tools.ignored_files import UNREAD, beside
from fugu_cli.tools.workspace import Workspace

SEARCHING = frozenset({"list", "glob", "grep"})
_NAMES = re.compile(r"[/\s\"'=:;|<>()]+")
LARGEST = 2_000_000
"""Bytes of a file that is looked at."""


@dataclass(frozen=True)
class Whole:
    """All there is in the working tree. `name` is its id, "" outside git; `unread`: some of it is not told by that."""

    name: str = ""
    unread: bool = False


async def whole(workspace: Workspace) -> Whole:
    """The tree with what git ignores, but for caches, dependencies and environments. Raises StorageError."""
    tree = await workspace.snapshot()
    if tree is None or workspace.snapshots is None:
        return Whole()
    found = await beside(workspace.snapshots)
    if found is None:
        return Whole()
    return Whole(f"{tree}+{found.name}" if found.name else tree, found.unread)


async def state(workspace: Workspace, call: Call, known: Whole | None = None) -> str:
    """The id now. The same id later means: the same call would say the same. `known`: `whole`, where it was looked at
    already."""
    given = arguments_of(call)
    if isinstance(given, Malformed):
        return ""
    if call.tool == "run_tests":
        return (known or await whole(workspace)).name
    if not reads(workspace, call):
        return ""
    if call.tool == "read":
        return _blob(workspace, given.get("path"))
    command = str(given.get("command", "")) if call.tool == "bash" else ""
    if call.tool in SEARCHING or (call.tool == "bash" and read_only.at_content(command)):
        found = known or await whole(workspace)
        return "" if found.unread and _into_unread(call.tool, given, command) else found.name
    return ""


def reads(workspace: Workspace, call: Call) -> bool:
    """A call that only reads, inside the repository, and that nobody would be asked about."""
    return policy.judge(call, policy.Rules(mode="ask"), workspace.root).verdict == "allow"


def _into_unread(tool: str, given: dict[str, object], command: str) -> bool:
    """It looks, or may look, into what `Whole` does not tell."""
    if tool == "bash" and read_only.goes_down(command):
        return True
    named = [command, str(given.get("path", "")), str(given.get("pattern", "")) if tool == "glob" else ""]
    return bool(UNREAD.intersection(_NAMES.split(" ".join(named))))


def _blob(workspace: Workspace, name: object) -> str:
    path = paths.locate(name, workspace.root) if isinstance(name, str) else None
    if not isinstance(path, Path) or not paths.inside(path, workspace.root):
        return ""
    try:
        return blobs.blob_id(path.read_bytes()) if path.is_file() and path.stat().st_size <= LARGEST else ""
    except OSError:
        return ""
