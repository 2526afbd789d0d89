"""The functions, classes and other definitions of a file, read by tree-sitter.

The lowest part of this folder. It must not know requests, prompts or tests. The grammars are part
of the extra `local`; of a file in another language nothing is known, and it is written whole.
"""

from __future__ import annotations

import importlib.util
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import PurePosixPath
from typing import Literal

from tree_sitter import Language, Node, Parser

from fugu_cli.providers import code_blocks

_GRAMMARS = {
    "py pyi": "tree_sitter_python.language",
    "js mjs cjs jsx": "tree_sitter_javascript.language",
    "ts mts cts": "tree_sitter_typescript.language_typescript",
    "tsx": "tree_sitter_typescript.language_tsx",
    "rs": "tree_sitter_rust.language",
    "go": "tree_sitter_go.language",
    "java": "tree_sitter_java.language",
    "c h": "tree_sitter_c.language",
    "cc cpp cxx hh hpp": "tree_sitter_cpp.language",
    "rb": "tree_sitter_ruby.language",
}
_BY_ENDING = {
    ending: grammar for endings, grammar in _GRAMMARS.items() for ending in endings.split()
}

_FUNCTION = re.compile(r"function|method|constructor|^arrow")
_CLASS = re.compile(
    r"class|impl_|trait|^mod_|interface|^module$|namespace|struct|object_declaration|enum"
)
_IMPORT = re.compile(r"import|^use_|package|include|using")
_NOTHING = re.compile(r"(?:pass|\.\.\.|raise NotImplementedError\b.*)[;\s]*", re.DOTALL)
_MARK = re.compile(
    r"\b(?:todo|unimplemented)!\s*[(\[{]|\b(?:throw new "
    r"\w+|panic|fail|error|raise)\b.{0,80}?(?:implement|not yet)"
    r"|\bUnsupportedOperationException\b|\bTODO:? implement",
    re.IGNORECASE,
)
"""A body that says it is not written."""
STUB_LIMIT = 4000
"""Characters: in a longer file a function that is still to be written is one of many."""

Kind = Literal["function", "class", "import", "value", "text", "other"]
NO_LINES = range(0)


@dataclass(frozen=True)
class Definition:
    """Lines `start` to `end` of a file, from 0, the last one excluded; its comments end above the
    line `head`.

    `body`: the lines of a function below its head and docstring. `key` tells it from the others
    beside it.
    """

    kind: Kind
    name: str
    start: int
    head: int
    end: int
    doc: range = NO_LINES
    body: range = NO_LINES
    empty: bool = False
    """The body only says that it is not written."""
    key: tuple[str, str, int] = ("", "", 0)
    members: tuple[Definition, ...] = field(default=(), repr=False)

    def lines(self, text: str) -> list[str]:
        """Its lines in the file's `text`."""
        return text.split("\n")[self.start : self.end]


@lru_cache(maxsize=64)
def definitions(path: str, text: str) -> tuple[Definition, ...]:
    """Return the top-level definitions of a file in order, classes with their members; () in an
    unknown language.
    """
    root = _root(path, text)
    return () if root is None else _items(root)


@lru_cache(maxsize=64)
def functions(path: str, text: str) -> tuple[Definition, ...]:
    """Every function that has a name, methods and inner ones as well, in order."""
    root = _root(path, text)
    by_name: dict[tuple[str, int], Definition] = {}
    for function in () if root is None else _functions(root):
        by_name.setdefault(
            (function.name, function.end), function
        )  # an assigned function is met twice
    return tuple(by_name.values())


def function_names(path: str, text: str) -> set[str]:
    """The names of all functions in the file."""
    return {function.name for function in functions(path, text)}


def parses(path: str, text: str) -> bool:
    """The text can be read, or nothing is known of its language. A block without a line is none to
    Python alone.
    """
    if path.endswith((".py", ".pyi")):
        return code_blocks.parses(text)
    root = _root(path, text)
    return root is None or not root.has_error


def is_stub(path: str, text: str) -> bool:
    """The file is short, and holds nothing or a function that says it is not written."""
    if len(text) > STUB_LIMIT:
        return False
    if _root(path, text) is None:
        return not text.strip()
    return not definitions(path, text) or any(function.empty for function in functions(path, text))


def comment_mark(path: str) -> str:
    """Return the start of a comment in this file's language."""
    return "#" if PurePosixPath(path).suffix in (".py", ".pyi", ".rb", ".sh") else "//"


def _root(path: str, text: str) -> Node | None:
    parser = _parser(PurePosixPath(path).suffix[1:].lower())
    return None if parser is None else parser.parse(text.encode("utf-8", "replace")).root_node


@cache
def _parser(ending: str) -> Parser | None:
    module, _, name = _BY_ENDING.get(ending, "").partition(".")
    if not module or importlib.util.find_spec(module) is None:
        return None
    return Parser(Language(getattr(importlib.import_module(module), name)()))


def _items(node: Node) -> tuple[Definition, ...]:
    items: list[Definition] = []
    counts: Counter[tuple[str, str]] = Counter()
    for child in node.named_children:
        if not _is_comment(child):
            item = _definition(child)
            kind, name, _ = item.key
            items.append(replace(item, key=(kind, name, counts[kind, name])))
            counts[kind, name] += 1
    return tuple(items)


def _functions(node: Node) -> Iterator[Definition]:
    for child in node.named_children:
        definition, core = _definition(child), _core(child)
        if definition.kind == "function":
            yield definition
        yield from _functions(core)


def _definition(node: Node) -> Definition:
    core = _core(node)
    start, head, end = _first_line(node), node.start_point.row, _end(node)
    text = (core.text or b"").decode("utf-8", "replace")
    name, body = _name(core), core.child_by_field_name("body")
    if body is not None and name and _FUNCTION.search(core.type):
        doc, lines = _body_lines(core, body)
        function = Definition(
            "function", name, start, head, end, doc, lines, _is_empty(body, bool(doc))
        )
        decorators = "".join(
            _text(child) for child in node.named_children if child.type == "decorator"
        )
        return replace(function, key=("function", f"{decorators}{_receiver(core)}{name}", 0))
    if body is not None and _CLASS.search(core.type):
        return Definition(
            "class", name, start, head, end, key=(core.type, name, 0), members=_items(body)
        )
    bound = next(filter(None, (_bound(child) for child in (core, *core.named_children))), None)
    if bound is not None:
        name, value = bound
        inner = value.child_by_field_name("body")
        if inner is not None and _FUNCTION.search(value.type):
            doc, lines = _body_lines(core, inner)
            function = Definition(
                "function", name, start, head, end, doc, lines, _is_empty(inner, bool(doc))
            )
            return replace(function, key=("function", name, 0))
        return Definition("value", name, start, head, end, key=("value", name, 0))
    kind: Kind = "import" if _IMPORT.search(core.type) else "text" if _is_text(core) else "other"
    return Definition(kind, "", start, head, end, key=(kind, text, 0))


def _core(node: Node) -> Node:
    """Return the definition inside decorators, an export or a template."""
    while True:
        inner = node.child_by_field_name("definition") or node.child_by_field_name("declaration")
        if inner is None and node.type == "template_declaration":
            inner = node.named_children[-1]
        if inner is None:
            return node
        node = inner


def _name(node: Node) -> str:
    """The name of a function or class; of an `impl` what it is for."""
    if node.type == "impl_item":
        parts = (node.child_by_field_name(name) for name in ("trait", "type"))
        return " ".join(_text(part) for part in parts if part is not None)
    named = node.child_by_field_name("name")
    while named is None and (inner := node.child_by_field_name("declarator")) is not None:
        node, named = inner, None if inner.child_by_field_name("declarator") is not None else inner
    return _text(named).rpartition("::")[2] if named is not None else ""


def _receiver(node: Node) -> str:
    """The type that a function of Go belongs to."""
    receiver = node.child_by_field_name("receiver")
    return (
        ""
        if receiver is None
        else f"{_text(receiver).strip('() ').rpartition(' ')[2].lstrip('*')}."
    )


def _bound(node: Node) -> tuple[str, Node] | None:
    """The name that a constant, a variable or an assigned function has, and its value."""
    name = next(filter(None, map(node.child_by_field_name, ("name", "left", "declarator"))), None)
    value = next(filter(None, map(node.child_by_field_name, ("value", "right", "type"))), None)
    if (
        name is None
        or value is None
        or node.type.startswith("augmented")
        or node.type.endswith("_statement")
    ):
        return None
    return _text(name).rpartition(".")[2], value


def _body_lines(node: Node, body: Node) -> tuple[range, range]:
    """The lines of a docstring and of what is below it. No lines where they are not its own."""
    first, end = body.start_point.row, _end(body)
    if (body.text or b"").startswith(b"{"):
        return NO_LINES, range(first + 1, end - 1)
    statements = body.named_children
    doc = range(first, _end(statements[0])) if statements and _is_text(statements[0]) else NO_LINES
    start = doc.stop if doc else first
    return (doc, range(start, end)) if first > node.start_point.row else (NO_LINES, NO_LINES)


def _is_empty(body: Node, documented: bool) -> bool:
    code = [
        child for child in body.named_children if not _is_comment(child) and not _is_text(child)
    ]
    text = " ".join(map(_text, code))
    if code:
        return _NOTHING.fullmatch(text) is not None or (
            _MARK.search(text) is not None and "NotImplemented" not in text
        )
    return documented or not (body.text or b"").startswith(b"{")


def _is_text(node: Node) -> bool:
    """A text that stands by itself, as a docstring does."""
    inner = (
        node.named_children[0]
        if node.type == "expression_statement" and node.named_child_count == 1
        else node
    )
    return inner.type == "string"


def _is_comment(node: Node) -> bool:
    return "comment" in node.type or node.type == "attribute_item"


def _first_line(node: Node) -> int:
    """The first line of the comments that end right above the node."""
    start, above = node.start_point.row, node.prev_named_sibling
    while above is not None and _is_comment(above) and _end(above) == start and _begins_line(above):
        start, above = above.start_point.row, above.prev_named_sibling
    return start


def _begins_line(node: Node) -> bool:
    before = node.prev_sibling
    return before is None or _end(before) <= node.start_point.row


def _end(node: Node) -> int:
    """The line after its last one."""
    return node.end_point.row + (node.end_point.column > 0)


def _text(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def indent_of(lines: Sequence[str]) -> str:
    """The white space that the first line begins with."""
    return lines[0][: len(lines[0]) - len(lines[0].lstrip())] if lines else ""


def indented(lines: Sequence[str], indent: str) -> list[str]:
    """The lines with `indent` in the place of what the first one begins with; one that is indented
    less stays.
    """
    own = indent_of(lines)
    return [
        indent + line[len(own) :] if line.strip() and line.startswith(own) else line
        for line in lines
    ]
