"""What came over the web as text that a model can read: HTML as Markdown, other text as it is. Pure.

Under web_fetch.py. The parts of a page that say nothing (scripts, styles, navigation) are left out.
"""

from __future__ import annotations

import re
import warnings

from fugu_cli.tools.clip import plain

HTML = frozenset({"text/html", "application/xhtml+xml"})
TEXT = frozenset(
    f"application/{name}"
    for name in ("json", "xml", "javascript", "ecmascript", "yaml", "x-yaml", "toml", "x-sh", "sql", "x-ndjson")
)
_SUFFIXES = ("+json", "+xml", "+yaml")
_SILENT = ("script", "style", "noscript", "template", "svg", "nav", "iframe", "form", "button")
_DECLARED = re.compile(rb"^\s*<\?xml[^>]*\?>")
_BLANK = re.compile(r"[ \t]+\n")
_GAPS = re.compile(r"\n{3,}")


def is_text(kind: str) -> bool:
    """A media type (without parameters) that people and models can read. "": none was named."""
    return not kind or kind.startswith("text/") or kind in HTML or kind in TEXT or kind.endswith(_SUFFIXES)


def text_of(data: bytes, kind: str, charset: str | None) -> str | None:
    """The content as text; None where it is none after all."""
    if b"\0" in data[:4096] and not (charset or "").lower().startswith(("utf-16", "utf-32")):
        return None
    if kind in HTML or (not kind and data.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))):
        return _markdown(data, charset)
    try:
        return plain(data.decode(charset or "utf-8", "replace").removeprefix("\ufeff"))
    except LookupError:  # a charset nobody knows
        return plain(data.decode("utf-8", "replace"))


def _markdown(data: bytes, charset: str | None) -> str:
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
        said = str(converter.convert_soup(body))
    except RecursionError:  # nested more deeply than any page for people
        said, title = re.sub(r"(?s)<[^>]*>", " ", data.decode(charset or "utf-8", "replace")), ""
    said = _GAPS.sub("\n\n", _BLANK.sub("\n", plain(said))).strip()
    return f"# {title}\n\n{said}" if title and title not in said[: len(title) + 20] else said
