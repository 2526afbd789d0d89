"""The value of a formula's tree."""

from formulas.functions import CALLS


def value_of(tree, look_up):
    """The number that a tree comes to; `look_up` knows the values of cells. Raises ZeroDivisionError and KeyError."""
    if isinstance(tree, float):
        return tree
    kind = tree[0]
    if kind == "cell":
        return look_up(tree[1])
    if kind == "call":
        return CALLS[tree[1]]([value_of(argument, look_up) for argument in tree[2]])
    left, right = value_of(tree[1], look_up), value_of(tree[2], look_up)
    if kind == "+":
        return left + right
    if kind == "-":
        return left - right
    if kind == "*":
        return left * right
    return left / right
