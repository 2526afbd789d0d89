"""The arguments of a call, as policy and the tools both read them; files of a patch.

One reader for both, so that nothing can be judged as one thing and done as another.
What models say in other tools' words is taken for what it means, where it can mean but one thing.
"""

from __future__ import annotations

import contextlib
import json
import re
import shlex
from collections.abc import Mapping
from functools import lru_cache

from fugu_cli.messages import Call, Value
from fugu_cli.session.tool_facts import ToolFacts, facts_of
from fugu_cli.system.bounded_json import NestedTooDeeply, parse_json


class MalformedArguments(Value):
    """Arguments that are not a JSON object; the text says what is wrong, for the agent."""

    text: str


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
    arguments = {name: value for name, value in arguments.items() if value is not None}
    return _by_own_names(tool, arguments)


def _parse_repeated(text: str) -> object:
    """Parse a JSON value. An object may be repeated several times in a row. Raises ValueError, also
    if something else follows.
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
    facts = facts_of(tool)
    arguments = {name: value for name, value in arguments.items() if name not in facts.remarks}
    for foreign, own in facts.argument_aliases.items():
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


def named_paths(facts: ToolFacts, arguments: Mapping[str, object]) -> list[str]:
    """Return the files and folders that the arguments of a call name, also in its patch. A call of
    a reading tool without a path means the repository.
    """
    default = "." if facts.effect == "reads" else ""
    names = [name for field in facts.paths for name in names_in(arguments.get(field, default))]
    if facts.patch:
        names += patched_paths(str(arguments.get(facts.patch, "")))
    return names


def names_in(argument: object) -> list[str]:
    """Return the names that an argument holds. A text that is a JSON list counts both as one name
    and as a list of names.
    """
    if isinstance(argument, list):
        return [str(name) for name in argument]
    text = str(argument)
    names: object = None
    if text.lstrip().startswith("["):
        with contextlib.suppress(ValueError):
            names = parse_json(text)
    return [text, *map(str, names)] if isinstance(names, list) else [text]
