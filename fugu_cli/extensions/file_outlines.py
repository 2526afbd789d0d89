"""Reads the definitions in source files with tree-sitter, in a process of its own.

A file may be written to keep a parser busy or to crash it. The process gets the names of the files
and nothing of the user's environment, has limits of time and memory, and answers with a line for
each file, so that the lines before a crash count. It runs nothing of the repository.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.system.parser_processes import limit_resources, start_parser
from fugu_cli.system.processes import reap
from fugu_cli.system.resolved_files import open_resolved
from fugu_cli.tools.grammars import ending_of, parser_for

if TYPE_CHECKING:
    from tree_sitter import Node

READ_SECONDS = 1.0
"""Seconds of a processor after which no further file is begun."""
FILE_SECONDS = 0.2
"""Seconds of a processor for one file; one that takes longer is left out."""
KILL_SECONDS = 3.0
"""Seconds after which the process is ended, wherever it is."""
MEMORY_BYTES = 1_000_000_000
LARGEST_FILE = 400_000
"""Bytes. Larger files are generated, or data."""
LONGEST_LINES = 300
"""Mean bytes of a line above which a file is taken for minified."""
MOST_DEFINITIONS = 400
MOST_MEMBERS = 60
"""Definitions of one file, and members of one of them, that are read."""
MOST_DECLARATORS = 6
"""Declarators inside one another that are followed to a name."""
MOST_OUTPUT = 40_000_000
"""Bytes that are taken of the process."""
SIGNATURE = 100
"""Characters of a signature."""
_WRAPPERS = frozenset({
    "decorated_definition", "export_statement", "ambient_declaration", "expression_statement", "internal_module",
    "lexical_declaration", "type_declaration", "statement_block", "mod_item", "module", "body_statement",
    "preproc_if", "preproc_ifdef", "preproc_else", "linkage_specification", "template_declaration",
    "namespace_definition", "namespace_declaration", "declaration_list", "compound_statement",
})  # fmt: skip
"""Nodes that are looked into for the definitions in them."""
_DEFINITION = re.compile(
    r"class|method|singleton_method"
    r"|\w*(?:function|class|struct|interface|trait|enum|union|record|method|constructor|type|impl|macro)"
    r"\w*_(?:definition|declaration|specifier|item|spec|alias)"
)
"""Types of nodes that define something."""
_FUNCTION_VALUE = re.compile(r"\w*(?:function|class)\w*")
_NAME = re.compile(r"[^\W\d]\w*")
_IDENTIFIER = re.compile(r"[^\W\d]\w+")
"""Single letters say nothing about what a file uses."""
_COMMENT = re.compile(r"\s(?:#|//) .*")


@dataclass(frozen=True)
class Definition:
    """A function, class or type at the top of a file. Lines count from 1."""

    name: str
    line: int
    signature: str
    members: tuple[str, ...]


@dataclass(frozen=True)
class FileOutline:
    """The definitions of a file, and all identifiers that occur in it."""

    definitions: tuple[Definition, ...]
    identifiers: frozenset[str]


NOTHING = FileOutline((), frozenset())


async def read_outlines(root: Path, paths: Sequence[str]) -> dict[str, FileOutline]:
    """Return the outlines of files below `root`, as many as the time allows, in order."""
    if not paths:
        return {}
    try:
        process = await start_parser("fugu_cli.extensions.file_outlines")
    except OSError:  # no process can be started now
        return {}
    assert process.stdin is not None and process.stdout is not None
    output = bytearray()
    try:
        async with asyncio.timeout(KILL_SECONDS):
            process.stdin.write(json.dumps([str(root), list(paths)]).encode())
            process.stdin.close()
            while len(output) < MOST_OUTPUT and (chunk := await process.stdout.read(2**18)):
                output += chunk
    except TimeoutError:
        pass
    finally:
        await reap(process)
    lines = bytes(output).split(b"\n")[:-1]
    return dict(_outline_of(line) for line in lines)


def _outline_of(line: bytes) -> tuple[str, FileOutline]:
    path, definitions, identifiers = json.loads(line)
    outline = FileOutline(
        definitions=tuple(
            Definition(name, row, signature, tuple(members))
            for name, row, signature, members in definitions
        ),
        identifiers=frozenset(map(sys.intern, identifiers)),
    )
    return path, outline


def main() -> None:
    """Write the outlines of the files that standard input names to standard output."""
    limit_resources(round(KILL_SECONDS), MEMORY_BYTES)
    end = time.process_time() + READ_SECONDS
    root, paths = json.loads(sys.stdin.buffer.read())
    for path in paths:
        if time.process_time() > end:
            return
        outline = read_outline(root, path)
        definitions = [
            (definition.name, definition.line, definition.signature, definition.members)
            for definition in outline.definitions
        ]
        print(json.dumps([path, definitions, sorted(outline.identifiers)]), flush=True)


def read_outline(root: str, path: str) -> FileOutline:
    """Return what a file defines; nothing where it is not parsed: another language, no file of its
    own, too large, minified, too slow.
    """
    parser = parser_for(ending_of(path))
    if parser is None:
        return NOTHING
    data = _content(Path(root, path))
    if not data or b"\0" in data or len(data) > LONGEST_LINES * (data.count(b"\n") + 1):
        return NOTHING
    end = time.process_time() + FILE_SECONDS
    try:
        tree = parser.parse(
            lambda offset, _: data[offset : offset + 2**14],
            progress_callback=lambda *_: time.process_time() > end,
        )
    except ValueError:  # it took too long
        parser.reset()
        return NOTHING
    definitions = []
    for node in _definitions(tree.root_node):
        definition = _definition(node, data)
        if definition is not None:
            definitions.append(definition)
    identifiers = frozenset(_IDENTIFIER.findall(data.decode("utf-8", "replace")))
    return FileOutline(tuple(definitions), identifiers)


def _content(path: Path) -> bytes:
    """Return a regular file's content; b"" if it is too large or a link is in its path."""
    try:
        with open_resolved(path) as file:
            if os.fstat(file.fileno()).st_size > LARGEST_FILE:
                return b""
            return file.read(LARGEST_FILE)
    except OSError:
        return b""


def _definitions(root: Node) -> Iterator[Node]:
    """Yield the nodes that define something at the top level below `root`, in order."""
    waiting = list(reversed(root.named_children))
    count = 0
    while waiting and count < MOST_DEFINITIONS:
        node = waiting.pop()
        value = node.child_by_field_name("value")
        if node.type in _WRAPPERS:
            waiting += reversed(node.named_children)
        elif (
            _DEFINITION.fullmatch(node.type)
            or (node.type == "declaration" and _declares_function(node))
            or (
                node.type == "variable_declarator"
                and value is not None
                and _FUNCTION_VALUE.fullmatch(value.type)
            )
        ):
            count += 1
            yield node


def _declares_function(node: Node) -> bool:
    """Return whether a declaration of C is that of a function."""
    return any(declarator.type == "function_declarator" for declarator in _declarators(node))


def _declarators(node: Node) -> Iterator[Node]:
    """Yield the declarators of C and C++, the outermost first; the last one is the name."""
    declarator = node.child_by_field_name("declarator")
    for _ in range(MOST_DECLARATORS):
        if declarator is None:
            return
        yield declarator
        declarator = declarator.child_by_field_name("declarator")


def _definition(node: Node, data: bytes) -> Definition | None:
    name = _name(node)
    if not name:
        return None
    value = node.child_by_field_name("value")
    body = node.child_by_field_name("body")
    if body is None and value is not None:
        body = value.child_by_field_name("body")
    members: list[str] = []
    if body is not None and not re.search("function|method", node.type):
        for member in _definitions(body):
            member_name = _name(member)
            if member_name and not member_name.startswith("_") and len(members) < MOST_MEMBERS:
                members.append(member_name)
    head = data[node.start_byte : body.start_byte if body is not None else node.end_byte]
    if body is None:
        head = head.partition(b"\n")[0]
    text = _COMMENT.sub("", head.decode("utf-8", "replace"))
    signature = " ".join(text.split()).rstrip(" :{=;")
    signature = signature.removesuffix("=>").rstrip()
    signature = signature.replace("( ", "(").replace(", )", ")").replace(" )", ")")
    if len(signature) > SIGNATURE:
        signature = f"{signature[: SIGNATURE - 3]}..."
    return Definition(name, node.start_point.row + 1, signature, tuple(dict.fromkeys(members)))


def _name(node: Node) -> str:
    """Return the name that a node defines without its path (`b` of `a::b`), "" if it has none."""
    name_node = node.child_by_field_name("name")
    if name_node is None:
        name_node = node.child_by_field_name("type")  # `impl TYPE` of Rust
        for declarator in _declarators(node):
            name_node = declarator
    if name_node is None or name_node.text is None:
        return ""
    text = name_node.text.decode("utf-8", "replace")
    without_parameters = re.split(r"[<(\[]", text)[0]
    names = _NAME.findall(without_parameters)
    return names[-1] if names else ""
