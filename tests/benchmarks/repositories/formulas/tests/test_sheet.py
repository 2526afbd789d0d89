import pytest
from formulas import Sheet


@pytest.fixture
def sheet():
    made = Sheet()
    for name, text in {"A1": "10", "A2": "2.5", "A3": "=A1 * A2", "B1": "apples", "B2": "=sum(A1:A3) / 5"}.items():
        made.put(name, text)
    return made


def test_numbers_and_formulas_have_values(sheet):
    assert sheet.value("a1") == 10.0
    assert sheet.value("A3") == 25.0
    assert sheet.value("B2") == 7.5


def test_text_and_nothing_count_as_zero(sheet):
    assert sheet.value("B1") == 0.0
    assert sheet.value("Z99") == 0.0


def test_a_minus_before_a_cell(sheet):
    sheet.put("C1", "=-A1 + 1")
    assert sheet.value("C1") == -9.0


def test_a_cell_can_be_emptied(sheet):
    sheet.put("a2", " ")
    assert sheet.value("A3") == 0.0


def test_what_is_shown(sheet):
    sheet.put("C1", "=1 / 3")
    sheet.put("C2", "=A1 / 0")
    sheet.put("C3", "=nothing(1)")
    assert [sheet.shown(name) for name in ("A2", "A3", "B1", "C1", "C2", "C3")] == [
        "2.5",
        "25",
        "apples",
        "0.33",
        "#DIV",
        "#ERROR",
    ]


def test_a_circle_is_told(sheet):
    sheet.put("D1", "=D2")
    sheet.put("D2", "=D1 + 1")
    with pytest.raises(ValueError, match="depends on itself"):
        sheet.value("D1")
    assert sheet.shown("D2") == "#ERROR"


def test_its_size(sheet):
    assert sheet.size() == (2, 3)
    assert Sheet().size() == (0, 0)
