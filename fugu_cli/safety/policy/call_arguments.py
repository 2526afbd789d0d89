"""The arguments of a call, as policy and the tools both read them; what tools declare about them;
files of a patch.

A tool that declares nothing, and every tool of an MCP server, is one that policy does not know: it
is asked about. One reader for both, so that nothing can be judged as one thing and done as another.
What models say in other tools' words is taken for what it means, where it can mean but one thing.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from fugu_cli.messages import Call, Value
from fugu_cli.system.bounded_json import NestedTooDeeply, parse_json


class MalformedArguments(Value):
    """Arguments that are not a JSON object; the text says what is wrong, for the agent."""

    text: str


_PATH = dict.fromkeys(("file_path", "filePath", "filepath", "filename", "file"), "path")
_FOREIGN_NAMES: Mapping[str, Mapping[str, str]] = {
    "read": _PATH,
    "write": {**_PATH, "contents": "content", "file_text": "content", "text": "content"},
    "edit": {
        **_PATH,
        **dict.fromkeys(("old_string", "oldString", "old_str"), "old"),
        **dict.fromkeys(("new_string", "newString", "new_str"), "new"),
        "replaceAll": "replace_all",
    },
    "list": dict.fromkeys(("dir_path", "directory", "dir"), "path"),
    "glob": {"dir_path": "path"},
    "grep": {
        "dir_path": "path",
        "regex": "pattern",
        "-i": "ignore_case",
        "-C": "context",
        "include": "glob",
    },
    "bash": {"cmd": "command", "run_in_background": "background"},
    "apply_patch": {"input": "patch", "diff": "patch"},
    "todo": {"todos": "items"},
    "task": {"subagent_type": "agent"},
}
"""By tool of fugu's, the names that other agents have for its arguments."""


_REMARKS: Mapping[str, frozenset[str]] = {
    "bash": frozenset({"description", "justification", "explanation"})
}
"""Arguments of other agents' tools that say why a call is made and change nothing."""


def arguments_of(call: Call) -> dict[str, object] | MalformedArguments:
    """Return the arguments of a call by fugu's names. An empty text counts as no arguments, a null
    as an argument left out. The same object several times in a row, as some servers send it, counts
    once.
    """
    arguments = _parse_arguments(call.tool, call.arguments)
    return dict(arguments) if isinstance(arguments, dict) else arguments


@lru_cache(maxsize=64)
def _parse_arguments(tool: str, text: str) -> dict[str, object] | MalformedArguments:
    """Parse a call's arguments once for all that ask for them."""
    if not text.strip():
        return {}
    try:
        arguments = _parse_repeated(text)
    except NestedTooDeeply as error:
        return MalformedArguments(text=f"the arguments cannot be used: {error}")
    except ValueError as error:
        return MalformedArguments(text=f"the arguments are not valid JSON: {error}")
    if not isinstance(arguments, dict):
        return MalformedArguments(
            text=f"the arguments must be a JSON object, not {type(arguments).__name__}"
        )
    try:
        json.dumps(arguments, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return MalformedArguments(text="the arguments hold half a character (a lone surrogate)")
    given = {name: value for name, value in arguments.items() if value is not None}
    return _by_own_names(tool, given)


def _parse_repeated(text: str) -> object:
    """Parse a JSON value, which may stand there several times in a row if it is an object.

    Raises ValueError, also where something else follows.
    """
    try:
        return parse_json(text)
    except json.JSONDecodeError as error:
        if error.msg != "Extra data":
            raise
        first = parse_json(text[: error.pos])
        if not isinstance(first, dict) or not _repeats(text, error.pos, first):
            raise
        return first


def _repeats(text: str, position: int, value: object) -> bool:
    decoder = json.JSONDecoder()
    while position < len(text):
        try:
            following, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return False
        if following != value:
            return False
        while text[position : position + 1].isspace():
            position += 1
    return True


def _by_own_names(tool: str, arguments: dict[str, object]) -> dict[str, object]:
    """Rename arguments that have a foreign name, unless the right one is there. A command that is a
    list of words becomes a line.
    """
    remarks = _REMARKS.get(tool, frozenset())
    arguments = {name: value for name, value in arguments.items() if name not in remarks}
    for foreign, own in _FOREIGN_NAMES.get(tool, {}).items():
        if foreign in arguments and own not in arguments:
            arguments[own] = arguments.pop(foreign)
    command = arguments.get("command")
    if tool != "bash" or not isinstance(command, list):
        return arguments
    if all(isinstance(word, str) for word in command):
        match command:
            case [shell, "-c" | "-lc", line] if shell.rpartition("/")[2] in {"bash", "sh"}:
                arguments["command"] = line
            case _:
                arguments["command"] = shlex.join(command)
    return arguments


_HEADER = re.compile(
    r"^(?:(?:---|\+\+\+)[ \t]+(?P<diff>[^\t\r\n]+)"
    r"|diff[ ]--git[ ](?P<git>[^\r\n]+)"
    r"|(?:rename|copy)[ ](?:from|to)[ ](?P<moved>[^\r\n]+)"
    r"|\*\*\*[ ](?:(?:Add|Update|Delete)[ ]File|Move[ ]to):[ ]*(?P<named>[^\r\n]+))",
    re.MULTILINE,
)


_PREFIX = re.compile(r'^("?)[ab]/')


def unprefixed(name: str) -> str:
    """Return a name in a patch without git's a/ or b/, be it in git's quotes."""
    return _PREFIX.sub(r"\1", name)


def path_of_git_header(header: str) -> str:
    """Return the file that the words behind `diff --git` name, `a/NAME b/NAME`; "" where these are
    two names.
    """
    half = len(header) // 2
    name = unprefixed(header[:half])
    return name if header[half : half + 1] == " " and unprefixed(header[half + 1 :]) == name else ""


def patched_paths(patch: str) -> tuple[str, ...]:
    """Return every path a patch may touch, with and without a/ and b/; rather one too many than one
    too few.
    """
    paths: dict[str, None] = {}
    for match in _HEADER.finditer(patch):
        if (path := match.group("diff")) is not None:
            path = path.strip()
            if path == "/dev/null":
                continue
            paths[path] = None
            paths[unprefixed(path)] = None
        elif (header := match.group("git")) is not None:
            if name := path_of_git_header(header.strip()):
                paths[name] = None
        else:
            paths[(match.group("moved") or match.group("named")).strip()] = None
    return tuple(paths)


Effect = Literal["reads", "writes", "runs"]


class ToolAccess(Value):
    """A declaration. `paths` are the arguments that name files and folders; `patch` and `command`
    the one that holds a patch or a command line. What only reads may leave its path out and means
    the repository."""

    effect: Effect = "runs"
    paths: tuple[str, ...] = ()
    patch: str = ""
    command: str = ""

    @property
    def reads_files(self) -> bool:
        return self.effect == "reads" and bool(self.paths or self.patch)

    @property
    def writes_files(self) -> bool:
        """Return whether it may write the files it names, as a program that is given files may."""
        return self.effect != "reads" and bool(self.paths or self.patch)

    def named(self, arguments: dict[str, object]) -> list[str]:
        """Return the names in the arguments of `paths`, be it several in a list."""
        default = "." if self.effect == "reads" else ""
        return [name for field in self.paths for name in names_in(arguments.get(field, default))]


def names_in(argument: object) -> list[str]:
    """Return the names that an argument holds. A text that is a JSON list may be taken for either,
    so it counts as both.
    """
    if isinstance(argument, list):
        return [str(name) for name in argument]
    text = str(argument)
    names: object = None
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            names = parse_json(text)
    return [text, *map(str, names)] if isinstance(names, list) else [text]


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
"""The declarations of the tools that every session has: for readers of a log, which have no
toolbox. No toolbox can change one."""
_declared: dict[str, ToolAccess] = {}


def declare(name: str, access: ToolAccess) -> None:
    """Declare a tool of a toolbox. Raises ValueError if the name is already used for another one."""
    if access_of(name) not in (access, UNKNOWN):
        raise ValueError(f"two tools are called {name}")
    _declared[name] = access


def access_of(name: str) -> ToolAccess:
    """Return the declaration of a tool; UNKNOWN for one that has declared nothing."""
    return BUILT_IN.get(name) or _declared.get(name) or UNKNOWN


def declared_names() -> frozenset[str]:
    """Return the tools that policy knows by their declarations."""
    return frozenset({*BUILT_IN, *_declared})
