"""Formulas as trees: a number, ("cell", name), ("call", name, arguments) or (operator, left, right)."""

from formulas.names import between
from formulas.tokens import tokens

STRENGTH = {"+": 1, "-": 1, "*": 2, "/": 2}


def parse(text: str):
    """The tree of a whole formula. Raises ValueError for one that does not end where it should."""
    words = tokens(text)
    tree, place = _expression(words, 0, 1)
    if place < len(words):
        raise ValueError(f"{words[place]!r} was not expected")
    return tree


def _expression(words, place, weakest):
    """Operators that bind at least as strongly as `weakest`; those of one strength from the left."""
    left, place = _operand(words, place)
    while place < len(words) and STRENGTH.get(words[place], 0) >= weakest:
        operator = words[place]
        right, place = _expression(words, place + 1, STRENGTH[operator] + 1)
        left = (operator, left, right)
    return left, place


def _operand(words, place):
    """A number, a cell, a call, what stands in brackets, or any of them behind a minus."""
    if place >= len(words):
        raise ValueError("the formula ends too early")
    word = words[place]
    if word == "-":
        value, place = _operand(words, place + 1)
        return ("-", 0.0, value), place
    if word == "(":
        value, place = _expression(words, place + 1, 1)
        return value, _closed(words, place)
    if word[0].isdigit() or word[0] == ".":
        return float(word), place + 1
    if place + 1 < len(words) and words[place + 1] == "(":
        arguments, place = _arguments(words, place + 2)
        return ("call", word.upper(), arguments), place
    return ("cell", word.upper()), place + 1


def _arguments(words, place):
    """What a call is given, up to its closing bracket; a block stands for all of its cells."""
    found = []
    while place < len(words) and words[place] != ")":
        if words[place] == ",":
            place += 1
        elif place + 2 < len(words) and words[place + 1] == ":":
            found += [("cell", name) for name in between(words[place], words[place + 2])]
            place += 3
        else:
            value, place = _expression(words, place, 1)
            found.append(value)
    return found, _closed(words, place)


def _closed(words, place):
    """The place behind a closing bracket. Raises ValueError where there is none."""
    if place >= len(words) or words[place] != ")":
        raise ValueError("a bracket is not closed")
    return place + 1
