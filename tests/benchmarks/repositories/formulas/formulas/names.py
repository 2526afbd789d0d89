"""Names of cells: letters for the column, a number for the row, both from 1."""


def column_number(letters: str) -> int:
    """'A' -> 1, 'Z' -> 26, 'AA' -> 27."""
    number = 0
    for letter in letters.upper():
        number = number * 26 + ord(letter) - ord("A") + 1
    return number


def column_letters(number: int) -> str:
    """1 -> 'A', 26 -> 'Z', 27 -> 'AA'."""
    letters = ""
    while number > 0:
        number, rest = divmod(number - 1, 26)
        letters = chr(ord("A") + rest) + letters
    return letters


def split(name: str) -> tuple[int, int]:
    """'B12' -> (2, 12): its column and row."""
    letters = name.rstrip("0123456789")
    return column_number(letters), int(name[len(letters) :])


def between(first: str, last: str) -> list[str]:
    """All cells of the block from `first` to `last`, row by row."""
    left, top = split(first)
    right, bottom = split(last)
    names = []
    for row in range(top, bottom + 1):
        for column in range(left, right + 1):
            names.append(f"{column_letters(column)}{row}")
    return names
