import pytest
from formulas.parsing import parse
from formulas.tokens import tokens


def test_words_of_a_formula():
    assert tokens("SUM(A1:A3) * 2.5") == ["SUM", "(", "A1", ":", "A3", ")", "*", "2.5"]


def test_an_unknown_character_is_refused():
    with pytest.raises(ValueError, match="means nothing"):
        tokens("1 ? 2")


def test_times_binds_more_strongly_than_plus():
    assert parse("1 + 2 * 3") == ("+", 1.0, ("*", 2.0, 3.0))


def test_minus_goes_from_the_left():
    assert parse("9 - 4 - 3") == ("-", ("-", 9.0, 4.0), 3.0)


def test_brackets_come_first():
    assert parse("(1 + 2) * 3") == ("*", ("+", 1.0, 2.0), 3.0)


def test_a_call_takes_blocks_and_values():
    assert parse("sum(A1:A2, 3)") == ("call", "SUM", [("cell", "A1"), ("cell", "A2"), 3.0])


@pytest.mark.parametrize("text", ["(1 + 2", "1 +", "1 2", "SUM(1"])
def test_what_is_no_formula_is_refused(text):
    with pytest.raises(ValueError):
        parse(text)
