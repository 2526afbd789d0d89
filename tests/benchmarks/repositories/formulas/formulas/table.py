"""A sheet as text: columns as wide as they must be, numbers to the right."""

from formulas.names import column_letters
from formulas.sheet import Sheet


def is_number(text: str) -> bool:
    """'3', '-1.5' and '' are; 'x' is not."""
    return text.lstrip("-").replace(".", "", 1).isdigit() or not text


def widths(rows: list[list[str]]) -> list[int]:
    """The longest text of each column."""
    return [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]


def as_table(sheet: Sheet) -> str:
    """A line for each row below one with the columns' letters; '' for an empty sheet."""
    rows = sheet.rows()
    if not rows:
        return ""
    head = [column_letters(number) for number in range(1, len(rows[0]) + 1)]
    wide = widths([head, *rows])
    lines = [" ".join(cell.center(width) for cell, width in zip(head, wide)).rstrip()]
    for row in rows:
        cells = []
        for cell, width in zip(row, wide):
            cells.append(cell.rjust(width) if is_number(cell) else cell.ljust(width))
        lines.append(" ".join(cells).rstrip())
    return "\n".join(lines)
