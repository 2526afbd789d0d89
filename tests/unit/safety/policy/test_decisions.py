"""The table of what is asked, as `fugu help permissions` prints it."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

import fugu_cli
from fugu_cli.safety.policy.decisions import CallClass, Decision, Mode, decide

WORDS = {Decision.RUN: "run", Decision.ASK: "asked", Decision.REFUSE: "refused"}
COLUMNS: dict[str, tuple[tuple[CallClass, ...], tuple[bool, ...]]] = {
    "reads": ((CallClass.READ,), (True, False)),
    "edits": ((CallClass.EDIT,), (True, False)),
    "tests (sandbox)": ((CallClass.TESTS, CallClass.CHECK), (True,)),
    "commands (sandbox)": ((CallClass.COMMAND, CallClass.BUILD_FILE), (True,)),
    "tests": ((CallClass.TESTS, CallClass.CHECK), (False,)),
    "commands": ((CallClass.COMMAND, CallClass.BUILD_FILE), (False,)),
    "outside": ((CallClass.OUTSIDE, CallClass.FOREIGN_TOOL), (True, False)),
}
"""By heading, the classes of calls in a column, and whether the sandbox holds."""


def _table() -> list[dict[str, str]]:
    page = Path(fugu_cli.__file__).parent / "help" / "permissions.md"
    lines = [line for line in page.read_text("utf-8").splitlines() if line.startswith("| ")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def test_the_page_has_a_row_for_every_mode_and_every_column() -> None:
    table = _table()
    assert [row["mode"] for row in table] == list(get_args(Mode))
    assert {*table[0]} == {"mode", *COLUMNS}


@pytest.mark.parametrize("mode", get_args(Mode))
def test_every_cell_of_the_page_is_what_happens(mode: Mode) -> None:
    row = next(row for row in _table() if row["mode"] == mode)
    for heading, (classes, sandboxes) in COLUMNS.items():
        for call_class in classes:
            for holds in sandboxes:
                decision = decide(mode, call_class, sandbox_holds=holds, somebody_to_ask=True)
                assert WORDS[decision] == row[heading], (heading, call_class, holds)
                alone = decide(mode, call_class, sandbox_holds=holds, somebody_to_ask=False)
                expected = Decision.REFUSE if decision is Decision.ASK else decision
                assert alone is expected, (heading, call_class, holds)


@pytest.mark.parametrize("mode", get_args(Mode))
def test_what_undo_cannot_bring_back_runs_in_yolo_alone(mode: Mode) -> None:
    for holds in (True, False):
        decision = decide(mode, CallClass.LOST, sandbox_holds=holds, somebody_to_ask=True)
        assert decision is (Decision.RUN if mode == "yolo" else Decision.REFUSE)
