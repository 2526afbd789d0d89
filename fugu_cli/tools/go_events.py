"""What `go test -json` says, read as it comes: the result of each test, and the text that `go test` alone would print.

Between the command's output and run_tests. Source of the format: `go doc test2json`.
"""

from __future__ import annotations

import json
import re
from typing import Literal

_CHATTER = re.compile(r"=== (?:RUN|PAUSE|CONT|NAME)\b|PASS$")
_UNBUILT = re.compile(r"^FAIL\t(\S+) \[\w+ failed\]")
"""Before Go 1.24 no event says that a package could not be built."""
_VERDICT = re.compile(r"\s*--- (?:FAIL|PASS|SKIP)")
_RESULTS: dict[str, Literal["passed", "failed", "skipped"]] = {"pass": "passed", "fail": "failed", "skip": "skipped"}


class GoEvents:
    """A stream of events. `results` has each finished test by `PACKAGE TEST`, and failed packages by their name."""

    def __init__(self) -> None:
        self.results: dict[str, Literal["passed", "failed", "skipped"]] = {}
        self.broken: list[str] = []
        """Packages that failed, whatever their tests say."""
        self._rest = b""
        self._said: dict[str, list[str]] = {}

    def take(self, data: bytes) -> bytes:
        """The text in a piece of the stream; lines that are no events stay as they are."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        return b"".join(self._text(line) for line in lines)

    def rest(self) -> str:
        """The text of a last line that has no end, and of tests that were cut off."""
        last = self._text(self._rest) if self._rest else b""
        said = "".join(_ordered(lines) for lines in self._said.values())
        self._rest, self._said = b"", {}
        return last.decode("utf-8", "replace") + said

    def _text(self, line: bytes) -> bytes:
        try:
            event = json.loads(line)
        except ValueError:
            self.broken += _UNBUILT.findall(line.decode("utf-8", "replace"))
            return line + b"\n"
        if not isinstance(event, dict) or not isinstance(event.get("Action"), str):
            return line + b"\n"
        name = f"{event.get('Package', '')} {event.get('Test', '')}".strip()
        return self._heard(event["Action"], name, str(event.get("Output", "")), bool(event.get("Test"))).encode()

    def _heard(self, action: str, name: str, output: str, of_test: bool) -> str:
        if action in {"output", "build-output"}:
            if _CHATTER.match(output):
                return ""
            if not of_test:
                return output
            self._said.setdefault(name, []).append(output)
            return ""
        if action not in _RESULTS:
            return ""
        if of_test:
            self.results[name] = _RESULTS[action]
            said = self._said.pop(name, [])
            return _ordered(said) if action == "fail" else ""
        if action == "fail":
            self.broken.append(name)
        return ""


def _ordered(lines: list[str]) -> str:
    """The verdict before what led to it, as without -json."""
    return "".join(sorted(lines, key=lambda line: _VERDICT.match(line) is None))
