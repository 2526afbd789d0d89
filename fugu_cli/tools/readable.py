"""What came over the web as text that a model can read: HTML as Markdown, other text as it is. Pure.

Under web_fetch.py, and in the process of its own that html_process.py starts: a page may be written to keep a parser
busy for hours. The parts of a page that say nothing (scripts, styles, navigation) are left out.
"""

from __future__ import annotations

import codecs
import re
import warnings

from fugu_cli.tools.clip import plain

HTML = frozenset({"text/html", "application/xhtml+xml"})
TEXT = frozenset(
    f"application/{name}"
    for name in ("json", "xml", "javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-sh", "sql", "x-ndjson")
)
NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
"""Codecs of Python's that no page is written in; some take hours for one that is."""
_SUFFIXES = ("+json", "+xml", "+yaml")
_SILENT = ("script", "style", "noscript", "template", "svg", "nav", "iframe", "button", "select")
_DECLARED = re.compile(rb"^\s*<\?xml[^>]*\?>")
_GAPS = re.compile(r"\n{3,}")


def is_text(kind: str) -> bool:
    """A media type (without parameters) that people and models can read. "": none was named."""
    return not kind or kind.startswith("text/") or kind in HTML or kind in TEXT or kind.endswith(_SUFFIXES)


def is_html(kind: str, data: bytes) -> bool:
    """By its media type; by its first words where none was named."""
    return kind in HTML or (not kind and data.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html")))


def text_of(data: bytes, charset: str | None) -> str | None:
    """Content that is no HTML as text; None where it is no text after all."""
    if b"\0" in data[:4096] and not (charset or "").lower().startswith(("utf-16", "utf-32")):
        return None
    return plain(_decoded(data, charset).removeprefix("\ufeff"))


def _decoded(data: bytes, charset: str | None) -> str:
    try:
        known = charset if charset and codecs.lookup(charset).name not in NO_CHARSETS else "utf-8"
        return data.decode(known, "replace")
    except (LookupError, ValueError):  # a charset nobody knows, or what Python calls by such a name
        return data.decode("utf-8", "replace")


def stripped(data: bytes, charset: str | None) -> str:
    """HTML without its tags and nothing more: for what no parser copes with. Takes time in proportion to its length."""
    pieces = _decoded(data, charset).split("<")
    return _tidy(" ".join([pieces[0], *(piece.partition(">")[2] for piece in pieces[1:])]))


def _tidy(text: str) -> str:
    return _GAPS.sub("\n\n", "\n".join(line.rstrip() for line in plain(text).split("\n"))).strip()


def markdown(data: bytes, charset: str | None) -> str:
    """HTML as Markdown. May take hours where somebody wants it to."""
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning
    from markdownify import MarkdownConverter

    for guess in (MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning):
        warnings.filterwarnings("ignore", category=guess)
    try:
        page = BeautifulSoup(_DECLARED.sub(b"", data, count=1), "html.parser", from_encoding=charset)
        title = page.title.get_text(" ", strip=True) if page.title else ""
        for silent in page.find_all(_SILENT):
            silent.decompose()
        body = page.find("main") or page.find("article") or page.body or page
        converter = MarkdownConverter(
            heading_style="ATX", bullets="-", strip=["img"], escape_underscores=False, escape_asterisks=False
        )
        said = _tidy(str(converter.convert_soup(body)))
    except RecursionError:  # nested more deeply than any page for people
        return stripped(data, charset)
    return f"# {title}\n\n{said}" if title and title not in said[: len(title) + 20] else said
