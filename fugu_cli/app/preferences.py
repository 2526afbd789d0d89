"""Things that the interface remembers between sessions: typed requests, panel width, theme. No
session state.

Small files in a folder that the caller names. An unreadable file counts as empty, and a failed
write is ignored: they hold none of the user's work.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from fugu_cli.system.bounded_json import parse_json

KEPT_REQUESTS = 2000
"""Requests in the history."""


@dataclass(frozen=True)
class Preferences:
    """The remembered settings. None means never set: then the full screen notifies and the inline
    mode does not.
    """

    theme: str = ""
    panel: bool | None = None
    panel_width: int = 0
    notify: bool | None = None
    asked_for_model: bool = False
    """The user was asked for a key or a model at the first start."""
    asked_to_import: bool = False
    """The user was asked whether another agent's settings are imported."""


class PreferencesFile:
    """Reads and writes the preferences of the interface. `current` are the remembered ones, or the
    defaults if the file cannot be read.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "screen.json"
        self.current = _read(self._path)

    def keep(self, **changes: str | int | bool) -> None:
        """Change fields of the preferences and write the file."""
        self.current = replace(self.current, **changes)  # type: ignore[arg-type]
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.write_text(json.dumps(asdict(self.current)) + "\n", encoding="utf-8")


def _read(path: Path) -> Preferences:
    """Return the preferences in a file. Fields of a wrong type have their defaults."""
    try:
        fields = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return Preferences()
    if not isinstance(fields, dict):
        return Preferences()
    types: dict[str, type] = {
        "theme": str,
        "panel": bool,
        "panel_width": int,
        "notify": bool,
        "asked_for_model": bool,
        "asked_to_import": bool,
    }
    valid = {name: value for name, value in fields.items() if type(value) is types.get(name)}
    return replace(Preferences(), **valid)  # type: ignore[arg-type]


class InputHistory:
    """The typed texts of all sessions, the newest last. Steps back and forth, beginning at the text
    that is being typed.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / "history.jsonl"
        self.texts: list[str] = []
        self._at: int | None = None
        self._draft = ""

    def load(self) -> None:
        """Read the file. Invalid lines are left out."""
        texts: list[str] = []
        with suppress(OSError):
            for line in self._path.read_text(encoding="utf-8", errors="replace").splitlines()[
                -KEPT_REQUESTS:
            ]:
                with suppress(ValueError):
                    text = parse_json(line)
                    if isinstance(text, str):
                        texts.append(text)
        self.texts = texts + self.texts

    def add(self, text: str) -> None:
        """Remember a text; the same one twice in a row counts once."""
        self._at = None
        if self.texts and self.texts[-1] == text:
            return
        self.texts.append(text)
        with suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a", encoding="utf-8", errors="replace") as file:
                file.write(json.dumps(text) + "\n")
            self._path.chmod(0o600)

    def walk(self, by: int, current: str) -> str | None:
        """Return the earlier (-1) or later (+1) text than the shown one, None at either end."""
        if self._at is None or (self._at < len(self.texts) and self.texts[self._at] != current):
            self._at, self._draft = len(self.texts), current
        at = self._at + by
        if not 0 <= at <= len(self.texts):
            return None
        self._at = at
        return self._draft if at == len(self.texts) else self.texts[at]
