"""Calls that are drawn on one line: consecutive reads and searches, and fugu's own checks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from fugu_cli.app import patches
from fugu_cli.app.event_text import call_target
from fugu_cli.formatting import flatten
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of
from fugu_cli.session.checks import RUN_CHECK
from fugu_cli.session.outcome import RUN_TESTS
from fugu_cli.session.recognized_tests import failed_count, passed_count
from fugu_cli.ui.blocks import DIFF, Block, GroupKind, ReplyBlock, ThinkingBlock, ToolBlock

MOST_CALLS = 12
"""Calls of one line."""


def group_kind(block: Block) -> GroupKind:
    """Return the kind of line that the block may share with its neighbours, "" for none."""
    return block.group_kind if isinstance(block, ToolBlock) else ""


def is_empty(block: Block) -> bool:
    """Return whether the block shows nothing, like a reply that was only calls."""
    if isinstance(block, ThinkingBlock):
        return not block.text
    return isinstance(block, ReplyBlock) and not block.chunker.done and block.chunker.tail is None


def group_start(blocks: Sequence[Block], index: int) -> int:
    """Return the index of the first call of the block's line, that of the block itself where it
    shares none.
    """
    block = blocks[index]
    start = index
    for earlier in range(index - 1, -1, -1):
        neighbour = blocks[earlier]
        if isinstance(neighbour, ToolBlock) and _is_together(neighbour, block):
            start = earlier
        elif not is_empty(neighbour):
            break
    return start


def grouped_calls(blocks: Sequence[Block], start: int) -> list[ToolBlock]:
    """Return the calls of the line that begins at `start`; none where it is a line of one."""
    first = blocks[start]
    if not isinstance(first, ToolBlock) or not group_kind(first):
        return []
    calls = [first]
    for block in blocks[start + 1 : start + 4 * MOST_CALLS]:
        if isinstance(block, ToolBlock) and _is_together(first, block):
            calls.append(block)
        elif not is_empty(block):
            break
    return calls if len(calls) > 1 or group_kind(first) == "checks" else []


def _is_together(first: ToolBlock, second: Block) -> bool:
    if not isinstance(second, ToolBlock) or first.group != second.group:
        return False
    kind = group_kind(first)
    return kind != "" and kind == group_kind(second)


def explored_text(calls: Sequence[ToolBlock]) -> str:
    """Return what was read and looked for, each once: `rates.py, test_rates.py, grep express`."""
    return ", ".join(dict.fromkeys(_explored(call) for call in calls))


def _explored(block: ToolBlock) -> str:
    call = block.call
    arguments = arguments_of(call)
    target = call_target(call)
    if not isinstance(arguments, MalformedArguments) and isinstance(arguments.get("pattern"), str):
        target = str(arguments["pattern"])
    return flatten(target if call.tool == "read" else f"{call.tool} {target}".rstrip(), 80)


def checks_text(calls: Sequence[ToolBlock]) -> str:
    """Return what fugu checked: `5 pass (2 failed before), diff +5 -2`."""
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
            is_whole = "\n[... " not in output
            parts.append(f"diff +{added} -{removed}" if is_whole else "a long diff")
    return ", ".join(parts) or "running the tests that fail on the files as they were"


def _tests_text(block: ToolBlock, output: str) -> str:
    if block.tests is None:
        return "tests running"
    failed, passed = failed_count(output), passed_count(output)
    passing = f"{passed} pass{'es' if passed == 1 else ''}" if passed else ""
    match block.tests:
        case "pass":
            before = f" ({block.failed_before} failed before)" if block.failed_before else ""
            return (passing or "tests pass") + before
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
    verb = "fails" if failed == 1 else "fail"
    failing = (f"{failed} {verb}" if failed else "tests fail") + comparison
    return f"{failing}, {passing}" if passing else failing
