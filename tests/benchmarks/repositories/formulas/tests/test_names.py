import pytest
from formulas.names import between, column_letters, column_number, split


@pytest.mark.parametrize(("letters", "number"), [("A", 1), ("Z", 26), ("AA", 27), ("BA", 53), ("ZZ", 702)])
def test_columns_are_counted_in_letters(letters, number):
    assert column_number(letters) == number
    assert column_letters(number) == letters


def test_small_letters_count_as_well():
    assert column_number("ab") == 28


def test_a_name_has_a_column_and_a_row():
    assert split("B12") == (2, 12)


def test_a_block_is_read_row_by_row():
    assert between("A1", "B3") == ["A1", "B1", "A2", "B2", "A3", "B3"]
