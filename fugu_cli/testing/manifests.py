"""Reads manifests, the files that say what kind of project a folder is. A file that cannot be read
counts as missing.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from fugu_cli.system.bounded_json import parse_json


def read_text(path: Path) -> str | None:
    """Return the file's text, None if it is missing or unreadable."""
    try:
        return path.read_text(encoding="utf-8", errors="replace") if path.is_file() else None
    except OSError:
        return None


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file, {} if it is missing or holds no object."""
    try:
        document = parse_json(read_text(path) or "{}")
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def read_toml(path: Path) -> dict[str, Any]:
    """Return the table in a TOML file, {} if it is missing or cannot be parsed."""
    try:
        return tomllib.loads(read_text(path) or "")
    except (ValueError, RecursionError):
        return {}


def table_at(document: object, keys: str) -> dict[str, Any]:
    """Return the table at keys like `tool.pdm.scripts`, {} if there is none."""
    for key in keys.split("."):
        document = document.get(key) if isinstance(document, dict) else None
    return document if isinstance(document, dict) else {}


def file_names(folder: Path) -> set[str]:
    """Return the names of the files in a folder, without those in folders below it."""
    try:
        return {path.name for path in folder.iterdir() if path.is_file()}
    except OSError:
        return set()
