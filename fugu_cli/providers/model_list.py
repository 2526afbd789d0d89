"""Reads the list of models that a server offers at `/models`."""

from __future__ import annotations

from fugu_cli.system.bounded_json import parse_json

MAX_NAME_LENGTH = 200
"""Characters of a model's name."""


def parse_model_list(body: bytes) -> tuple[str, ...] | None:
    """Return the names in an answer, none for an object without a list. Return None for an answer
    that is no JSON object.
    """
    try:
        parsed = parse_json(body)
    except ValueError:
        return None
    if not isinstance(parsed, dict):
        return None
    listed = parsed.get("data")
    if not isinstance(listed, list):
        return ()
    names = [entry.get("id") for entry in listed if isinstance(entry, dict)]
    return tuple(
        name
        for name in names
        if isinstance(name, str) and name.isprintable() and 0 < len(name) <= MAX_NAME_LENGTH
    )
