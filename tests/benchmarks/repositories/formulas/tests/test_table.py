from formulas import Sheet
from formulas.table import as_table, is_number


def test_what_is_a_number():
    assert [is_number(text) for text in ("3", "-1.5", "", "x", "1.2.3")] == [True, True, True, False, False]


def test_a_sheet_as_text():
    sheet = Sheet()
    for name, text in {"A1": "pears", "B1": "12", "A2": "figs", "B2": "7.25", "A3": "all", "B3": "=B1 + B2"}.items():
        sheet.put(name, text)
    assert as_table(sheet).splitlines() == [
        "  A     B",
        "pears    12",
        "figs   7.25",
        "all   19.25",
    ]


def test_an_empty_sheet():
    assert as_table(Sheet()) == ""
