"""The words of a formula: numbers, names, operators and brackets."""

OPERATORS = "+-*/():,"


def tokens(text: str) -> list[str]:
    """'A1+2' -> ['A1', '+', '2']; blanks only separate. Raises ValueError for a character that means nothing."""
    found = []
    place = 0
    while place < len(text):
        letter = text[place]
        if letter.isspace():
            place += 1
        elif letter in OPERATORS:
            found.append(letter)
            place += 1
        elif letter.isalnum() or letter == ".":
            end = place
            while end < len(text) and (text[end].isalnum() or text[end] == "."):
                end += 1
            found.append(text[place:end])
            place = end
        else:
            raise ValueError(f"{letter!r} means nothing in a formula")
    return found
