"""The parsers of tree-sitter by the endings of file names.

The grammars are packages of the extra `map`, which is part of `local`; a language without one is not parsed.
"""

from __future__ import annotations

import importlib.util
from functools import cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Parser

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
    "cs": "tree_sitter_c_sharp.language",
    "php": "tree_sitter_php.language_php",
}
_BY_ENDING = {
    ending: grammar for endings, grammar in _GRAMMARS.items() for ending in endings.split()
}
SOURCE_ENDINGS = frozenset(_BY_ENDING)


def are_installed() -> bool:
    """Return whether tree-sitter itself is installed."""
    return importlib.util.find_spec("tree_sitter") is not None


def ending_of(path: str) -> str:
    """Return a file's ending in small letters, without the dot."""
    return PurePosixPath(path).suffix[1:].lower()


@cache
def parser_for(ending: str) -> Parser | None:
    """Return the parser for files with this ending; None if there is none, or it is not installed."""
    module, _, name = _BY_ENDING.get(ending, "").partition(".")
    if not module or not are_installed() or importlib.util.find_spec(module) is None:
        return None
    from tree_sitter import Language, Parser

    return Parser(Language(getattr(importlib.import_module(module), name)()))
