"""Mentions in a request: `@FILE`, `@"a name"`, `@FILE#L10-40`, `@FOLDER`, and `@SERVER:URI` for a
resource of an MCP server.

A mention counts if the thing exists. The session finds them when a request is recorded; the loop
reads each with the tools, under the same rules. Knows no log and no permission.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

from fugu_cli.messages import Call
from fugu_cli.safety import paths
from fugu_cli.session.tool_facts import MCP

PASTED = "pasted"
"""The folder of pictures from the clipboard, among the interface's data: they are mentioned by
their paths.
"""
_MENTIONED = re.compile(r"""(?:^|(?<=[\s("'`]))@(?:"([^"\n]+)"(#L\d+(?:-L?\d+)?)?|(\S+))""")
_RESOURCE = re.compile(r"([^\s:/]+):(\S.*)")
_AFTER = ",.;:!?)]}\"'`"
_A_FILE = re.compile(r"(?i)\.(?:png|jpe?g|gif|webp|bmp|pdf)$|^[^:]*/[^:]*\.\w{1,5}$")
_LINES = re.compile(r"(.+)#L(\d+)(?:-L?(\d+))?", re.DOTALL)


def mentioned(root: Path, text: str, servers: Collection[str] = ()) -> tuple[str, ...]:
    """Return the files and folders that `@` mentions, and the resources of MCP `servers`, each
    once.

    A mention may be followed by punctuation. Checks the disk but opens nothing.
    """
    names: dict[str, None] = {}
    for quoted, lines, word in _MENTIONED.findall(text):
        candidates = [quoted + lines] if quoted else _without_punctuation(word)
        name = _first_existing(root, candidates)
        resource = quoted or word.rstrip(_AFTER)
        if name:
            names[name] = None
        elif _is_resource(resource, servers):
            names[resource] = None
    return tuple(names)


def missing(root: Path, text: str) -> tuple[str, ...]:
    """Return the mentions that can only be files (a picture, a PDF, a path in a folder) but do not
    exist.
    """
    names: dict[str, None] = {}
    for quoted, _, word in _MENTIONED.findall(text):
        name = quoted or word.rstrip(_AFTER)
        if _A_FILE.search(name) and not _first_existing(root, [name]):
            names[name] = None
    return tuple(names)


def reading_call(root: Path, name: str, id: str) -> Call:
    """Return the call that shows a mentioned thing: `read`, `list`, or an MCP server's
    `read_resource`.
    """
    path, first, last = _split_lines(root, name)
    resource = _RESOURCE.fullmatch(name)
    if resource is not None and not _exists(root, name):
        return Call.make(id, resource_tool(resource[1]), uri=resource[2])
    located = _locate(root, path)
    if located is not None and paths.is_folder(located):
        return Call.make(id, "list", path=path)
    if not first:
        return Call.make(id, "read", path=path)
    return Call.make(id, "read", path=path, offset=first, limit=max(last - first + 1, 1))


def resource_tool(server: str) -> str:
    """Return the name of the tool that reads an MCP server's resources."""
    return f"{MCP}{re.sub(r'[^A-Za-z0-9_-]', '_', server)}__read_resource"


def _is_resource(word: str, servers: Collection[str]) -> bool:
    """Return whether the word names a resource of one of the servers."""
    match = _RESOURCE.fullmatch(word)
    return match is not None and match[1] in servers


def _without_punctuation(word: str) -> list[str]:
    """Return the word with ever fewer punctuation marks at its end, since they may belong to the
    name.
    """
    return [word[:end] for end in range(len(word), len(word.rstrip(_AFTER)) - 1, -1)]


def _first_existing(root: Path, names: list[str]) -> str:
    return next((name for name in names if name and _exists(root, name)), "")


def _exists(root: Path, name: str) -> bool:
    """Return whether it is a file, or a folder whose name has a letter: `@.` and `@/` are not
    mentions.
    """
    path, first, _ = _split_lines(root, name)
    located = _locate(root, path)
    if located is None:
        return False
    if paths.is_file(located):
        return True
    return not first and re.search(r"\w", name) is not None and paths.is_folder(located)


def _split_lines(root: Path, name: str) -> tuple[str, int, int]:
    """Return path, first and last line, 0 if none are named. A file with the whole name has
    precedence.
    """
    match = _LINES.fullmatch(name)
    if match is None:
        return name, 0, 0
    whole = _locate(root, name)
    if whole is not None and paths.path_exists(whole):
        return name, 0, 0
    first = max(int(match[2]), 1)
    return match[1], first, int(match[3] or first)


def _locate(root: Path, name: str) -> Path | None:
    try:
        path = paths.locate(name, root)
    except (OSError, RuntimeError):
        return None
    return path if isinstance(path, Path) else None
