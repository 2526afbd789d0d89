"""The functions of a source file, read by tree-sitter.

The grammars are part of the extra `local`. Of a file in another language nothing is known.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from fugu_cli.tools.grammars import ending_of, parser_for

if TYPE_CHECKING:
    from tree_sitter import Node

_FUNCTION = re.compile(r"function|method|constructor|^arrow")


@dataclass(frozen=True)
class Function:
    """A function of a file. Lines count from 0, ends are excluded."""

    name: str
    start: int
    end: int
    body: range
    """The lines below its head and docstring; empty where it has no lines of its own."""
    has_docstring: bool

    def text(self, content: str) -> str:
        """Return its lines in the file's `content`."""
        return "\n".join(content.split("\n")[self.start : self.end])


@lru_cache(maxsize=64)
def functions(path: str, content: str) -> tuple[Function, ...]:
    """Return every function with a name, methods and inner ones as well, in order."""
    root = _parse(path, content)
    return () if root is None else tuple(_functions(root))


def parses(path: str, content: str) -> bool:
    """Return whether the text can be read, or nothing is known of its language."""
    if path.endswith((".py", ".pyi")):
        try:
            ast.parse(content)
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return False
        return True
    root = _parse(path, content)
    return root is None or not root.has_error


def _parse(path: str, content: str) -> Node | None:
    parser = parser_for(ending_of(path))
    if parser is None:
        return None
    return parser.parse(content.encode("utf-8", "replace")).root_node


def _functions(node: Node) -> Iterator[Function]:
    for child in node.named_children:
        body = child.child_by_field_name("body")
        name = _name(child)
        if body is not None and name and _FUNCTION.search(child.type):
            yield _function(child, name, body)
        yield from _functions(child)


def _name(node: Node) -> str:
    """Return a function's own name, or that of the variable or key it is assigned to."""
    named = node.child_by_field_name("name")
    declarator = node.child_by_field_name("declarator")
    while named is None and declarator is not None:  # C and C++
        named = declarator if declarator.named_child_count == 0 else None
        named = declarator.child_by_field_name("name") or named
        declarator = declarator.child_by_field_name("declarator")
    parent = node.parent
    if named is None and parent is not None:
        fields = map(parent.child_by_field_name, ("name", "left", "key"))
        named = next((field for field in fields if field is not None and field != node), None)
    text = (named.text or b"").decode("utf-8", "replace") if named is not None else ""
    return re.split(r"\.|::", text)[-1]


def _function(node: Node, name: str, body: Node) -> Function:
    start, first, end = node.start_point.row, body.start_point.row, _end(body)
    has_docstring = _is_docstring(body)
    if has_docstring:
        lines = range(_end(body.named_children[0]), end)
    elif (body.text or b"").startswith(b"{"):
        lines = range(first + 1, end - 1)
    else:
        lines = range(first, end)
    if lines.start <= start:  # the body begins on the line of the head
        lines = range(0)
    return Function(name, start, _end(node), lines, has_docstring)


def _is_docstring(body: Node) -> bool:
    if not body.named_children:
        return False
    first = body.named_children[0]
    if first.type == "expression_statement" and first.named_child_count == 1:
        first = first.named_children[0]
    return first.type == "string"


def _end(node: Node) -> int:
    """Return the line after the node's last one."""
    return node.end_point.row + (node.end_point.column > 0)
