"""What tools declare to policy: what they do, and which of their arguments name what they do it to.

A tool that declares nothing, and every tool of an MCP server, is one that policy does not know: it is asked about.
"""

from __future__ import annotations

import contextlib
import json
from typing import Literal

from fugu_cli.messages import Value

Effect = Literal["reads", "writes", "runs"]


class ToolAccess(Value):
    """A declaration. `paths` are the arguments that name files and folders; `patch` and `command` the one that holds a
    patch or a command line. What only reads may leave its path out and means the repository."""

    effect: Effect = "runs"
    paths: tuple[str, ...] = ()
    patch: str = ""
    command: str = ""

    @property
    def reads_files(self) -> bool:
        return self.effect == "reads" and bool(self.paths or self.patch)

    @property
    def writes_files(self) -> bool:
        """It may write the files it names; a program that is given files counts as one that writes them."""
        return self.effect != "reads" and bool(self.paths or self.patch)

    def named(self, arguments: dict[str, object]) -> list[str]:
        """What the arguments of `paths` say, be it several names in a list, or a list that came as text."""
        usual = "." if self.effect == "reads" else ""
        return [name for field in self.paths for name in names_in(arguments.get(field, usual))]


def names_in(given: object) -> list[str]:
    """The names that an argument holds. A text that is a JSON list may be taken for either, so it counts as both."""
    if isinstance(given, list):
        return [str(one) for one in given]
    text, found = str(given), None
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError, RecursionError):
            found = json.loads(text)
    return [text, *map(str, found)] if isinstance(found, list) else [text]


_READS = ToolAccess(effect="reads", paths=("path",))
_WRITES = ToolAccess(effect="writes", paths=("path",))
UNKNOWN = ToolAccess()
BUILT_IN: dict[str, ToolAccess] = {
    **dict.fromkeys(("read", "list", "glob", "grep"), _READS),
    **dict.fromkeys(("edit", "write"), _WRITES),
    "apply_patch": ToolAccess(effect="writes", patch="patch"),
    "bash": ToolAccess(command="command"),
    "acceptance_check": ToolAccess(command="command"),
}
"""The declarations of the tools that every session has: for readers of a log, which have no toolbox. No toolbox can
change one."""
_declared: dict[str, ToolAccess] = {}


def declare(name: str, access: ToolAccess) -> None:
    """A toolbox has this tool. Raises ValueError where the name stands for something else already."""
    if access_of(name) not in (access, UNKNOWN):
        raise ValueError(f"two tools are called {name}")
    _declared[name] = access


def access_of(name: str) -> ToolAccess:
    """What a tool has declared; UNKNOWN for one that has declared nothing."""
    return BUILT_IN.get(name) or _declared.get(name) or UNKNOWN


def declared_names() -> frozenset[str]:
    """Tools that policy knows by their declarations."""
    return frozenset({*BUILT_IN, *_declared})
