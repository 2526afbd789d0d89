"""Files with front matter: their parts, and the words for what is wrong with them."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.extensions.skills import (
    LARGEST,
    DocumentError,
    FrontMatterDocument,
    parse_document,
    read_document,
)
from tests.unit.extensions.skills.making import text


def test_a_file_is_its_fields_and_its_body() -> None:
    found = parse_document("---\nname: a\ntags: [x, y]\nmore:\n  of: it\n---\n\n# Title\n\nText\n")
    assert found == FrontMatterDocument(
        {"name": "a", "tags": ["x", "y"], "more": {"of": "it"}}, "# Title\n\nText"
    )


def test_values_are_texts_whatever_they_look_like() -> None:
    found = parse_document(
        "---\na: 1\nb: yes\nc: 2024-01-01\nd:\ne: |\n  two\n  lines\nf: 0x1F\n---\nx"
    )
    assert [found.text(key) for key in "abcdefg"] == [
        "1",
        "yes",
        "2024-01-01",
        "",
        "two lines",
        "0x1F",
        "",
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("only text\n---\nmore", FrontMatterDocument(None, "only text\n---\nmore")),
        ("", FrontMatterDocument(None, "")),
        ("---\n---\nx", FrontMatterDocument({}, "x")),
        ("---  \r\nname: a\r\n---\r\nx\r\ny\r\n", FrontMatterDocument({"name": "a"}, "x\ny")),
        ("---\nname: a\n---", FrontMatterDocument({"name": "a"}, "")),
    ],
)
def test_front_matter_may_be_missing_empty_or_end_lines_as_windows_does(
    content: str, expected: FrontMatterDocument
) -> None:
    assert parse_document(content) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("use it: now", "use it: now"),
        ("[FILE] [LINE]", "[FILE] [LINE]"),
        ("it's `this`: that  ", "it's `this`: that"),
        ("@me: x # y", "@me: x # y"),
    ],
)
def test_values_that_other_programs_take_unquoted_are_taken(line: str, expected: str) -> None:
    assert parse_document(f"---\nname: a\nmore: 'kept'\ndescription: {line}\n---\nx").fields == {
        "name": "a",
        "more": "kept",
        "description": expected,
    }


FAULTS: dict[str, tuple[str | bytes, str]] = {
    "no end": ("---\nname: a\n", "its front matter has no end: a line `---` is missing"),
    "quote": (
        "---\nname: a\ndescription: 'use it\n---\nx",
        "line 3 is not valid YAML: found unexpected end of stream",
    ),
    "tab": (
        "---\nname: a\nmetadata:\n\tof: x\n---\nx",
        "line 4 is not valid YAML: found character '\\t' that cannot start any token",
    ),
    "list": ("---\n- a\n---\nx", "its front matter should hold `name: value` lines"),
    "control": (
        "---\nname: \x07\n---\nx",
        "its front matter is not valid YAML: it holds characters that YAML does not take",
    ),
    "recursive": (
        "---\na: &a [*a]\n---\nx",
        "line 2 is not valid YAML: found unconstructable recursive node",
    ),
    "deep": (f"---\na:\n  {'[' * 3000}\n---\nx", "its front matter is nested too deeply"),
    "latin": (b"---\nname: \xe9\n---\n", "it is not UTF-8 text (byte 10)"),
    "binary": (b"\x7fELF\0\0", "it is not a text file"),
    "large": (b"x" * 10_000_000, f"it is too large: 10,000,000 bytes, {LARGEST:,} at most"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_what_is_wrong_with_a_file_is_said_in_words(tmp_path: Path, case: str) -> None:
    content, said = FAULTS[case]
    with pytest.raises(DocumentError) as fault:
        read_document(text(tmp_path / "x.md", content))
    assert str(fault.value) == said


def test_a_folder_and_a_file_that_is_gone_are_no_files(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.md"):
        with pytest.raises(DocumentError, match="it is not a file"):
            read_document(path)


def test_a_list_is_no_text() -> None:
    with pytest.raises(DocumentError, match="`name` should be a text"):
        parse_document("---\nname: [a, b]\n---\nx").text("name")


@given(st.text())
def test_any_text_is_read_or_refused(content: str) -> None:
    try:
        found = parse_document(f"---\n{content}\n---\nbody")
    except DocumentError:
        return
    assert found.fields is not None
