"""The turns of a session as pages of the reader: one in full, the ones beside it to the left and right."""

from __future__ import annotations

from collections.abc import Sequence

from fugu_cli.events import Recorded
from fugu_cli.ui.tui.draw.detail import PLAIN, Section, Sources, sections
from fugu_cli.ui.tui.draw.rows import Rows, TurnRow
from fugu_cli.ui.tui.screens.reader import Page


def pages(
    rows: Rows,
    row: TurnRow,
    records: Sequence[Recorded],
    sources: Sources = PLAIN,
) -> Page:
    """Beginning with `row`. A turn that still runs is shown as far as it has come when its page is turned to."""
    every = [known for known in rows.rows if isinstance(known, TurnRow)]
    at = next((index for index, known in enumerate(every) if known is row), len(every) - 1)

    def page(by: int) -> tuple[str, Sequence[Section]] | None:
        nonlocal at
        if not 0 <= at + by < len(every):
            return None
        at += by
        shown = every[at]
        return _title(shown), sections(records, shown, sources)

    return page


def _title(row: TurnRow) -> str:
    return f"request {row.request.number}, turn {row.assigned.turn}: {row.assigned.agent} as {row.assigned.role}"
