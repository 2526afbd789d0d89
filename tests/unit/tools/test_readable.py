"""What comes over the web, as text."""

from __future__ import annotations

import asyncio

import pytest

from fugu_cli.tools import html_to_text
from fugu_cli.tools.html_to_text import decode_page, html_to_markdown, is_html, is_text, strip_tags


@pytest.mark.parametrize(
    ("kind", "text"),
    [("text/html", True), ("text/x-rst", True), ("", True), ("application/json", True), ("application/ld+json", True),
     ("application/pdf", False), ("image/png", False), ("application/octet-stream", False), ("video/mp4", False)],
)  # fmt: skip
def test_text_is_known_by_its_media_type(kind: str, text: bool) -> None:
    assert is_text(kind) is text


def test_a_page_keeps_headings_code_tables_and_links() -> None:
    page = (
        b"<html><title>T</title><body><h1>T</h1><table><tr><th>a</th><th>b</th></tr><tr><td>1</td><td>2</td></tr>"
        b"</table><p>see <a href='/x'>x</a></p><img src='y.png' alt='y'></body></html>"
    )
    assert (
        html_to_markdown(page, None) == "# T\n\n| a | b |\n| --- | --- |\n| 1 | 2 |\n\nsee [x](/x)"
    )


def test_a_page_names_its_own_charset_and_is_known_without_a_type() -> None:
    page = '<!DOCTYPE html><meta charset="iso-8859-1"><p>größer</p>'.encode("latin-1")
    assert html_to_markdown(page, None) == "größer"
    assert html_to_markdown(page, "no-such-charset") == "größer"
    assert decode_page("größer".encode(), "no-such-charset") == "größer"
    assert [is_html(kind, page) for kind in ("text/html", "application/xhtml+xml", "", "text/plain")] == [
        True, True, True, False
    ]  # fmt: skip


def test_a_page_that_looks_like_something_else_is_read_without_a_word_of_warning() -> None:
    assert html_to_markdown(b'<?xml version="1.0"?><p>strict</p>', None) == "strict"
    assert html_to_markdown(b"https://example.org/", None) == "https://example.org/"


def test_a_page_nested_without_end_is_still_text() -> None:
    page = b"<div>" * 20_000 + b"deep" + b"</div>" * 20_000
    assert html_to_markdown(page, None) == "deep"


def test_what_holds_zeros_is_no_text() -> None:
    assert decode_page(b"\x7fELF\0\0", None) is None
    assert decode_page("wide".encode("utf-16"), "utf-16") == "wide"


def test_what_no_parser_copes_with_is_stripped_of_its_tags() -> None:
    assert (
        strip_tags(b"<p>one <b>two</b></p>\n\n\n\n<i>three</i> <unclosed", None)
        == "one  two\n\n three"
    )
    trap = b"<a " * 300_000
    assert strip_tags(trap, None) == ""
    assert len(strip_tags(b" " * 1_000_000 + b"x", None)) == 1


def test_a_page_that_keeps_the_parser_busy_is_given_up() -> None:
    trap = b"<p>kept</p>" + b"<a " * 300_000
    assert asyncio.run(html_to_text.html_to_markdown_apart(trap, None, seconds=1)) == "kept"
    assert (
        asyncio.run(html_to_text.html_to_markdown_apart(b"<h1>T</h1><p>fine</p>", "utf-8"))
        == "# T\n\nfine"
    )
