"""What formulas may call."""


def total(values: list[float]) -> float:
    """SUM: all values added up."""
    return float(sum(values))


def average(values: list[float]) -> float:
    """AVG: the mean; 0 where there are no values."""
    if not values:
        return 0.0
    return sum(values) / len(values)


def median(values: list[float]) -> float:
    """MEDIAN: the middle one, or the mean of the two in the middle; 0 where there are no values."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    if not ordered:
        return 0.0
    if len(ordered) % 2 == 1:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def spread(values: list[float]) -> float:
    """SPREAD: from the smallest to the largest; 0 where there are no values."""
    if not values:
        return 0.0
    return max(values) - min(values)


CALLS = {"SUM": total, "AVG": average, "MEDIAN": median, "SPREAD": spread}
