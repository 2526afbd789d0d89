"""Which functions a piece of code defines: by them a block is known that names no file, or a wrong one.

Below written.py. Pure.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from fugu_cli.code_blocks import FENCE, Block, alike
from fugu_cli.repair import functions
from fugu_cli.repair.python_code import Definition, Import, parsed

ALIKE = 0.3
"""Of 88 answers of the embedded models, those that solved their task had .7 or more in common with the file."""

ALONE = 0.7
"""The same of a reply that is taken for a file although nothing in it says so."""


def resembled(body: str, shown: Mapping[str, str], code: Sequence[str], *, sole: bool) -> str | None:
    """The `shown` file (path -> content) that the body is a new version of: enough lines are the same, and of no other
    file more; or, where `sole` says so, it is the only one of the `code` that has a function of the body."""
    likeness = {path: alike(content, body) for path, content in shown.items()}
    best = max(likeness, key=lambda path: likeness[path], default=None)
    found = [path for path in code if defined(path, shown[path]) & defined(path, body)] if sole else []
    if best is not None and likeness[best] >= ALIKE and (best in code or len(found) != 1):
        return best
    return found[0] if len(found) == 1 else None


def bare(text: str, path: str, shown: Mapping[str, str]) -> str:
    """The file `path` that a reply without any fence is, and nothing else; "" where it is words or something else.

    Python has to be readable and to define something that the file has, where it is there; of other languages most
    lines have to be the file's own."""
    if not path or any(FENCE.fullmatch(line) for line in text.split("\n")):
        return ""
    body, old = text.strip("\n") + "\n", shown.get(path)
    names = defined(path, body)
    if not names or (old is not None and not names & defined(path, old)):
        return ""
    if path.endswith((".py", ".pyi")):
        return body
    return body if old is not None and alike(old, body) >= ALONE else ""


def defined(path: str, content: str) -> set[str]:
    """The names of all functions in the content of this file."""
    return {name for name, _, _ in functions.spans(path, content)}


def called_by(file: str, found: Sequence[Block]) -> list[Block]:
    """Of the blocks those of Python with definitions, and no more, that the Python `file` uses and does not have."""
    tree = parsed(file)
    if tree is None:
        return []
    used = {one.id for one in ast.walk(tree) if isinstance(one, ast.Name)}
    own = {one.name for one in ast.walk(tree) if isinstance(one, Definition)}
    modules = [(block, parsed(block.body)) for block in found]
    return [block for block, module in modules if module is not None and _only_defines(module, used - own)]


def _only_defines(module: ast.Module, wanted: set[str]) -> bool:
    names = {node.name for node in module.body if isinstance(node, Definition)}
    return bool(names & wanted) and all(isinstance(node, Definition | Import) for node in module.body)
