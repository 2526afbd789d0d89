from formulas.functions import average, median, spread, total


def test_a_sum():
    assert total([1.0, 2.5]) == 3.5
    assert total([]) == 0.0


def test_a_mean():
    assert average([1.0, 2.0, 6.0]) == 3.0
    assert average([]) == 0.0


def test_a_median():
    assert median([5.0, 1.0, 3.0]) == 3.0
    assert median([4.0, 1.0, 3.0, 2.0]) == 2.5
    assert median([]) == 0.0


def test_a_spread():
    assert spread([4.0, -1.0, 2.0]) == 5.0
    assert spread([]) == 0.0
