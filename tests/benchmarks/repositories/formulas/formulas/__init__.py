"""A sheet of cells: numbers, texts and formulas such as `=SUM(A1:A3) * 2`."""

from formulas.sheet import Sheet

__all__ = ["Sheet"]
