"""Calls that are drawn on one line: consecutive reads and searches, and fugu's own checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from fugu_cli.app import patches
from fugu_cli.formatting import flatten
from fugu_cli.session.checks import RUN_CHECK
from fugu_cli.session.outcome import RUN_TESTS
from fugu_cli.session.recognized_tests import failed_count, passed_count
from fugu_cli.ui.blocks import DIFF, Block, GroupKind, ReplyBlock, ThinkingBlock, ToolBlock

MOST_CALLS = 12
"""The largest number of calls on one line."""
MOST_BLOCKS = 4 * MOST_CALLS
"""The largest number of blocks that a line covers, empty ones between its calls included."""


def group_kind(block: Block) -> GroupKind:
    """Return the kind of line that the block may share with its neighbours, "" for none."""
    return block.group_kind if isinstance(block, ToolBlock) else ""


def is_empty(block: Block) -> bool:
    """Return whether the block shows nothing, like a reply that was only calls."""
    if isinstance(block, ThinkingBlock):
        return not block.text
    return isinstance(block, ReplyBlock) and not block.chunker.done and block.chunker.tail is None


def group_start(blocks: Sequence[Block], index: int) -> int:
    """Return the index of the first call on the block's line, or `index` if it shares no line."""
    block = blocks[index]
    start = index
    for earlier in range(index - 1, -1, -1):
        neighbour = blocks[earlier]
        if isinstance(neighbour, ToolBlock) and _share_line(neighbour, block):
            start = earlier
        elif not is_empty(neighbour):
            break
    return start


def grouped_calls(blocks: Sequence[Block], start: int) -> list[ToolBlock]:
    """Return the calls on the line that begins at `start`. A single call shares no line, unless it
    is one of fugu's checks.
    """
    first = blocks[start]
    if not isinstance(first, ToolBlock) or not group_kind(first):
        return []
    calls = [first]
    for block in blocks[start + 1 : start + MOST_BLOCKS]:
        if isinstance(block, ToolBlock) and _share_line(first, block):
            calls.append(block)
        elif not is_empty(block):
            break
    if len(calls) == 1 and group_kind(first) != "checks":
        return []
    return calls


def _share_line(first: ToolBlock, second: Block) -> bool:
    if not isinstance(second, ToolBlock) or first.group != second.group:
        return False
    return first.group_kind != "" and first.group_kind == second.group_kind


def explored_text(calls: Sequence[ToolBlock]) -> str:
    """Return the files and the searches, each once: `rates.py, test_rates.py, grep express`."""
    targets = []
    for block in calls:
        target = block.target
        if block.call.tool != "read":
            target = f"{block.call.tool} {target}".rstrip()
        targets.append(flatten(target, 80))
    return ", ".join(dict.fromkeys(targets))


def checks_text(calls: Sequence[ToolBlock]) -> str:
    """Return the results of fugu's own checks: `5 pass (2 failed before), diff +5 -2`."""
    parts = []
    for block in calls:
        output = block.result.output if block.result is not None else ""
        if block.call.tool == RUN_TESTS:
            parts.append(_tests_text(block, output))
        elif block.call.tool == RUN_CHECK:
            state = "running"
            if block.result is not None:
                state = "passes" if block.result.ok else "FAILS"
            parts.append(f"acceptance check {state}")
        elif block.call.tool == DIFF and block.result is not None:
            added, removed = patches.patch_size(output)
            is_cut = "\n[... " in output
            parts.append("a long diff" if is_cut else f"diff +{added} -{removed}")
    return ", ".join(parts) or _before_text(calls)


def _before_text(calls: Sequence[ToolBlock]) -> str:
    """Return how the failing tests stood before the request."""
    results = [block.result for block in calls]
    reports = [result.tests for result in results if result is not None and result.tests]
    if None in results:
        return "running the tests that fail on the files as they were"
    failed = sum(report.failed for report in reports)
    passed = sum(report.passed for report in reports)
    return f"on the files as they were: {failed} of them failed, {passed} passed"


def _tests_text(block: ToolBlock, output: str) -> str:
    if block.tests is None:
        return "tests running"
    failed, passed = failed_count(output), passed_count(output)
    passing = ""
    if passed:
        passing = "1 test passes" if passed == 1 else f"{passed} pass"
    match block.tests:
        case "pass":
            passing = passing or "tests pass"
            if block.failed_before:
                return f"{passing} ({block.failed_before})"
            return passing
        case "none":
            return "no tests"
        case "not run":
            return "tests could not be run"
        case "as before":
            comparison = " as before"
        case "broken":
            comparison = " that passed before"
        case "fail":
            comparison = ""
        case _:
            assert_never(block.tests)
    failing = "tests fail"
    if failed:
        failing = "1 test fails" if failed == 1 else f"{failed} fail"
    failing += comparison
    return f"{failing}, {passing}" if passing else failing
