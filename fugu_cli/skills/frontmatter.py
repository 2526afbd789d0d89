"""A Markdown file with YAML front matter: its fields and its body as text, and what is wrong with it, in words.

Under skill.py and command.py, which say what the fields mean. Every value is text: YAML's own ideas of numbers, dates
and truth are not asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LARGEST = 100_000
"""Bytes of such a file: more does not fit into a request anyway."""
FENCE = "---"
_PLAIN = re.compile(r"^(?P<key>[A-Za-z][\w-]*):[ \t]+(?P<value>[^\s\"'|>&*{].*?)[ \t]*$", re.MULTILINE)
"""A line with a value that is not quoted: `description: use it: now`, `argument-hint: [A] [B]`."""


class Fault(Exception):
    """Why a file cannot be used: a clause that follows its name."""


@dataclass(frozen=True)
class Document:
    """`fields` is None where the file has no front matter."""

    fields: Mapping[str, object] | None
    body: str

    def listed(self, key: str) -> str:
        """The same, where a list is taken for what it looks like: `[A, B]`."""
        found = (self.fields or {}).get(key)
        return f"[{', '.join(map(str, found))}]" if isinstance(found, list) else self.text(key)

    def text(self, key: str) -> str:
        """A field's text on one line, "" where it is not given. Raises Fault for a list or a table."""
        found = (self.fields or {}).get(key, "")
        if not isinstance(found, str):
            raise Fault(f"`{key}` should be a text")
        return " ".join(found.split())


def read(path: Path) -> tuple[Document, bytes]:
    """The file's parts, and its bytes as they are. Raises Fault."""
    data = _data(path)
    if b"\0" in data:
        raise Fault("it is not a text file")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Fault(f"it is not UTF-8 text (byte {error.start})") from error
    return parsed(text), data


def parsed(text: str) -> Document:
    """A file's text as its parts. Raises Fault."""
    lines = text.replace("\r\n", "\n").split("\n")
    if lines[0].rstrip() != FENCE:
        return Document(None, text.strip())
    end = next((number for number, line in enumerate(lines[1:], 1) if line.rstrip() == FENCE), None)
    if end is None:
        raise Fault(f"its front matter has no end: a line `{FENCE}` is missing")
    return Document(_fields("\n".join(lines[1:end])), "\n".join(lines[end + 1 :]).strip())


def _data(path: Path) -> bytes:
    try:
        if not path.is_file():
            raise Fault("it is not a file")
        if (size := path.stat().st_size) > LARGEST:
            raise Fault(f"it is too large: {size:,} bytes, {LARGEST:,} at most")
        return path.read_bytes()
    except OSError as error:
        raise Fault(f"it cannot be read: {error.strerror}") from error


def _fields(text: str) -> Mapping[str, object]:
    """What the lines between the fences say; what other programs take although it is not YAML is read as they do."""
    try:
        found = _loaded(text)
    except Fault as fault:
        quoted = _PLAIN.sub(_quoted, text)
        try:
            found = _loaded(quoted)
        except Fault:
            raise fault from None
    if found is None or found == "":
        return {}
    if not isinstance(found, dict):
        raise Fault("its front matter should hold `name: value` lines")
    return found


def _loaded(text: str) -> object:
    import yaml  # a tenth of what starting costs: only where there is something to read

    try:
        return yaml.load(text, Loader=yaml.BaseLoader)  # texts, lists and tables, nothing else
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 2}" if error.problem_mark is not None else "its front matter"
        raise Fault(f"{line} is not valid YAML: {error.problem}") from error
    except yaml.YAMLError as error:
        raise Fault("its front matter is not valid YAML: it holds characters that YAML does not take") from error
    except RecursionError as error:
        raise Fault("its front matter is nested too deeply") from error


def _quoted(line: re.Match[str]) -> str:
    value = line["value"].replace("'", "''")
    return f"{line['key']}: '{value}'"
