"""JSON from outside: a model, a server, a client, a repository. Imports nothing of fugu."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

MAX_DEPTH = 100
"""Lists and objects inside one another, at most. Whatever walks a value may recurse that deep."""


class NestedTooDeeply(ValueError):
    """A value has more than MAX_DEPTH lists and objects inside one another."""

    def __init__(self) -> None:
        super().__init__(f"it is nested more than {MAX_DEPTH} levels deep")


def parse_json(
    text: str | bytes,
    *,
    strict: bool = True,
    parse_constant: Callable[[str], object] | None = None,
) -> Any:
    """Parse like `json.loads`, but raise NestedTooDeeply for a value that is nested too deeply."""
    try:
        value = json.loads(text, strict=strict, parse_constant=parse_constant)
    except RecursionError:
        raise NestedTooDeeply from None
    opening = text.count("{") + text.count("[") if isinstance(text, str) else len(text)
    if opening > MAX_DEPTH:
        check_depth(value)
    return value


def refuse_constant(constant: str) -> object:
    """Raise ValueError for NaN and Infinity, which `json.loads` reads as numbers."""
    raise ValueError(f"{constant} is no JSON")


def check_depth(value: object) -> None:
    """Raise NestedTooDeeply for a value of lists and dicts that is nested too deeply."""
    containers = [value]
    depth = 0
    while containers := [item for item in containers if isinstance(item, dict | list)]:
        depth += 1
        if depth > MAX_DEPTH:
            raise NestedTooDeeply
        children: list[object] = []
        for container in containers:
            children.extend(container.values() if isinstance(container, dict) else container)
        containers = children
