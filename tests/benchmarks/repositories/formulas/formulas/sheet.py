"""A sheet: cells by name, shown as text."""

from formulas.evaluating import value_of
from formulas.names import column_letters, split
from formulas.parsing import parse


class Sheet:
    """Cells that hold what was typed into them."""

    def __init__(self):
        self._cells = {}

    def put(self, name: str, text: str) -> None:
        """Type `text` into a cell; an empty text empties it."""
        if text.strip():
            self._cells[name.upper()] = text.strip()
        else:
            self._cells.pop(name.upper(), None)

    def value(self, name: str, asking: tuple[str, ...] = ()) -> float:
        """The number in a cell: 0 for an empty one and for text. Raises ValueError where it depends on itself."""
        name = name.upper()
        if name in asking:
            raise ValueError(f"{name} depends on itself")
        text = self._cells.get(name, "")
        if text.startswith("="):
            return value_of(parse(text[1:]), lambda other: self.value(other, (*asking, name)))
        try:
            return float(text)
        except ValueError:
            return 0.0

    def shown(self, name: str) -> str:
        """What stands in a cell for all to see: the number of a formula with at most two decimals, else the text."""
        text = self._cells.get(name.upper(), "")
        if not text.startswith("="):
            return text
        try:
            number = self.value(name)
        except ZeroDivisionError:
            return "#DIV"
        except (ValueError, KeyError):
            return "#ERROR"
        return f"{number:.2f}".rstrip("0").rstrip(".")

    def size(self) -> tuple[int, int]:
        """Columns and rows up to the last cell that holds something."""
        places = [split(name) for name in self._cells]
        return max((column for column, _ in places), default=0), max((row for _, row in places), default=0)

    def rows(self) -> list[list[str]]:
        """All cells as they are shown, row by row."""
        columns, rows = self.size()
        return [
            [self.shown(f"{column_letters(column)}{row}") for column in range(1, columns + 1)]
            for row in range(1, rows + 1)
        ]
