"""tests_before: how the tests that fail now stood before the request, and which tests the request removed.

fugu's own tool, run where tests fail after a change, and where a test file was changed. Below bench.py.
"""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.events import Change, TestReport
from fugu_cli.loop.tests_before import Before, failing_before
from fugu_cli.messages import Value
from fugu_cli.tools import Tool
from fugu_cli.tools.result import Result, Say
from fugu_cli.tools.workspace import Workspace
from fugu_cli.views.removed_tests import removed_tests

SHOWN = 50
"""Names of tests that are told of each kind."""


class TestsBefore(Value):
    """Arguments: the snapshot before the request, the ids of tests that fail now (none where the runner gives no ids),
    whether any fail, and the test files that were changed."""

    __test__ = False

    tree: str = ""
    ids: tuple[str, ...] = ()
    failing: bool = False
    edited: tuple[Change, ...] = ()


async def tests_before(given: TestsBefore, workspace: Workspace, say: Say) -> Result:
    """Run the failing tests on the files as they were. `ok`: it is known how they stood."""
    removed = await _removed(given.edited, workspace)
    gone = _listed("Removed by this request:", removed)
    if not given.failing:
        return Result(text=gone or "No tests were removed.", tests=TestReport(removed=removed))
    report = TestReport(failed=len(given.ids), failing=given.ids, by_id=bool(given.ids))
    before = await failing_before(workspace, given.tree or None, report if given.ids else None, say)
    if before.unknown:
        said = f"It is not known how the failing tests stood before this request: {before.unknown}."
        return Result(text="\n".join(filter(None, [said, gone])), ok=False, tests=TestReport(removed=removed))
    found = _report(before, removed)
    return Result(text="\n".join(filter(None, [*_told(before), gone])), tests=found)


async def _removed(edited: Sequence[Change], workspace: Workspace) -> tuple[str, ...]:
    """Names of the tests that the changes took away."""
    names = {name for change in edited for name in (change.before, change.after) if name is not None}
    texts = {name: (await workspace.blob(name)).decode("utf-8", "replace") for name in names}
    return removed_tests(edited, texts.get)


def _report(before: Before, removed: tuple[str, ...]) -> TestReport:
    if before.by_id:
        counts = {"passed": len(before.passed), "failed": len(before.failed)}
        return TestReport(**counts, failing=before.failed, passing=before.passed, by_id=True, removed=removed)
    known = before.report or TestReport(failed=0 if before.ok else 1)
    return known.model_copy(update={"removed": removed})


def _told(before: Before) -> list[str]:
    if not before.by_id:
        state = "they passed" if before.ok else "they failed"
        count = f" ({before.report.failed} failed)" if before.report is not None and not before.ok else ""
        return [f"All tests were run on the files as they were before this request: {state}{count}."]
    return [
        text
        for text in (
            _listed("Passed before this request and fail now:", before.passed),
            _listed("Failed before this request as well:", before.failed),
            _listed("Did not exist before this request:", before.absent),
        )
        if text
    ]


def _listed(head: str, names: Sequence[str]) -> str:
    """The head with the names below it, "" without any."""
    more = [f"  and {len(names) - SHOWN} more"] if len(names) > SHOWN else []
    return "\n".join([head, *(f"  {name}" for name in names[:SHOWN]), *more]) if names else ""


TESTS_BEFORE = Tool(name="tests_before", effect="reads", arguments=TestsBefore, run=tests_before)
