"""Tests that ran before the request and do not any more: removed, skipped or not found, they are not passing ones.

Below bench.py, which asks here about every passing run before it is recorded, so that agents, views and screens all see
the same. Only where a runner counts its tests, and not where the user wants tests gone.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from fugu_cli import intent, views
from fugu_cli.events import Asked, Event
from fugu_cli.messages import Call
from fugu_cli.tools import Result
from fugu_cli.tools.tests import runner
from fugu_cli.views.counts import SUREFIRE

_PYTEST = re.compile(r"\b(\d+) (?:passed|failed)\b")
_UNITTEST = re.compile(r"^Ran (\d+) tests?\b", re.MULTILINE)
_SKIPPED = re.compile(r"^(?:OK|FAILED) \(.*\bskipped=(\d+)", re.MULTILINE)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed", re.MULTILINE)
_NODE = re.compile(r"^[#ℹ] (pass|fail) (\d+)$", re.MULTILINE)


def compared(events: Sequence[Event], call: Call, result: Result) -> Result:
    """`result` of a call that ran the tests; one that passes with fewer tests than before the request fails."""
    first, request = views.first_tests(events), views.asked(events)
    if first is None or request is None or request.test_command is None or not views.is_whole_run(call):
        return result
    before, now = ran(request.test_command, first.output), ran(request.test_command, result.text)
    if before is None or now is None or now >= before or _may_go(request):
        return result
    if now and runner(request.test_command) in {"cargo", "maven"}:
        return result  # they count each crate or module for itself, and not all of the counts are told
    said = f"[{before} tests ran before this request, {now} now. Tests that went missing do not pass: put them back.]"
    return result.model_copy(update={"text": f"{result.text.rstrip()}\n{said}", "ok": False})


def _may_go(request: Asked) -> bool:
    """The user may want tests gone, or something that had some."""
    return intent.is_against_tests(request.text) or (not request.judged and intent.takes_away(request.text))


def ran(command: str, output: str) -> int | None:
    """How many tests passed or failed in a run of `command`; None where that cannot be told."""
    match runner(command):
        case "pytest":
            lines = [line for line in output.splitlines() if _PYTEST.search(line)]
            return sum(map(int, _PYTEST.findall(lines[-1]))) if lines else None
        case "unittest":
            counts, skipped = _UNITTEST.findall(output), _SKIPPED.findall(output)
            return int(counts[-1]) - int(skipped[-1] if skipped else 0) if counts else None
        case "cargo":
            crates = _CARGO.findall(output)
            return sum(int(passed) + int(failed) for passed, failed in crates) if crates else None
        case "maven":
            modules = SUREFIRE.findall(output)
            return sum(int(ran) - int(skipped) for ran, _, _, skipped in modules) if modules else None
        case "node":
            told = {name: int(count) for name, count in _NODE.findall(output)}
            return told["pass"] + told["fail"] if told.keys() >= {"pass", "fail"} else None
        case _:
            return None
