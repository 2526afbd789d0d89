"""Web content as text that a model can read: HTML as Markdown, other text as it is.

Below web_fetch.py. HTML is converted by a process of its own, for a page may be written to keep a
parser busy for hours. It gets the page on its input, nothing of the user's environment, and no more
than `SECONDS` of a processor, also when nobody is left to end it. Parts of a page that say nothing
(scripts, styles, navigation) are left out.
"""

from __future__ import annotations

import asyncio
import codecs
import re
import sys
import warnings

from fugu_cli.system.parser_processes import limit_resources, start_parser
from fugu_cli.system.processes import reap
from fugu_cli.tools.result import plain_text

HTML = frozenset({"text/html", "application/xhtml+xml"})
TEXT = frozenset(
    f"application/{name}"
    for name in (
        "json",
        "xml",
        "javascript",
        "ecmascript",
        "yaml",
        "x-yaml",
        "toml",
        "x-sh",
        "sql",
        "x-ndjson",
    )
)
NO_CHARSETS = frozenset({"idna", "punycode", "undefined", "unicode-escape", "raw-unicode-escape"})
"""Codecs of Python's that no page is written in; some take hours for one that is."""
_SUFFIXES = ("+json", "+xml", "+yaml")
_SILENT = ("script", "style", "noscript", "template", "svg", "nav", "iframe", "button", "select")
_DECLARED = re.compile(rb"^\s*<\?xml[^>]*\?>")
_GAPS = re.compile(r"\n{3,}")


def is_text(media_type: str) -> bool:
    """Return whether a media type (without parameters) is readable text. "" is an unknown type."""
    return (
        not media_type
        or media_type.startswith("text/")
        or media_type in HTML
        or media_type in TEXT
        or media_type.endswith(_SUFFIXES)
    )


def is_html(media_type: str, data: bytes) -> bool:
    """Return whether it is HTML, by media type or first words."""
    return media_type in HTML or (
        not media_type and data.lstrip()[:15].lower().startswith((b"<!doctype html", b"<html"))
    )


def decode_page(data: bytes, charset: str | None) -> str | None:
    """Decode content that is not HTML, None if it is not text."""
    if b"\0" in data[:4096] and not (charset or "").lower().startswith(("utf-16", "utf-32")):
        return None
    return plain_text(_decode(data, charset).removeprefix("\ufeff"))


def _decode(data: bytes, charset: str | None) -> str:
    try:
        if not charset or codecs.lookup(charset).name in NO_CHARSETS:
            charset = "utf-8"
        return data.decode(charset, "replace")
    except (LookupError, ValueError):  # a charset nobody knows, or what Python calls by such a name
        return data.decode("utf-8", "replace")


def strip_tags(data: bytes, charset: str | None) -> str:
    """Remove the tags from HTML that no parser handles, in linear time."""
    before_tags, *pieces = _decode(data, charset).split("<")
    texts = [piece.partition(">")[2] for piece in pieces]
    return _tidy(" ".join([before_tags, *texts]))


def _tidy(text: str) -> str:
    """Remove control characters, blanks at line ends, and all but one of several blank lines."""
    lines = [line.rstrip() for line in plain_text(text).split("\n")]
    return _GAPS.sub("\n\n", "\n".join(lines)).strip()


def html_to_markdown(data: bytes, charset: str | None) -> str:
    """Convert HTML to Markdown. Hostile HTML may take hours."""
    from bs4 import BeautifulSoup, MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning
    from markdownify import MarkdownConverter

    for category in (MarkupResemblesLocatorWarning, XMLParsedAsHTMLWarning):
        warnings.filterwarnings("ignore", category=category)
    try:
        page = BeautifulSoup(
            _DECLARED.sub(b"", data, count=1), "html.parser", from_encoding=charset
        )
        title = page.title.get_text(" ", strip=True) if page.title else ""
        for element in page.find_all(_SILENT):
            element.decompose()
        body = page.find("main") or page.find("article") or page.body or page
        converter = MarkdownConverter(
            heading_style="ATX",
            bullets="-",
            strip=["img"],
            escape_underscores=False,
            escape_asterisks=False,
        )
        markdown = _tidy(str(converter.convert_soup(body)))
    except RecursionError:  # nested more deeply than any page for people
        return strip_tags(data, charset)
    if title and title not in markdown[: len(title) + 20]:
        return f"# {title}\n\n{markdown}"
    return markdown


SECONDS = 10
MEMORY = 2_000_000_000
"""Bytes of address space."""


async def html_to_markdown_apart(data: bytes, charset: str | None, seconds: float = SECONDS) -> str:
    """Convert HTML to Markdown in another process; only remove the tags if that takes too much."""
    process = await start_parser("fugu_cli.tools.html_to_text", charset or "")
    try:
        async with asyncio.timeout(seconds):
            output, _ = await process.communicate(data)
    except TimeoutError:
        output = b""
    finally:
        await reap(process)
    return (
        output.decode("utf-8", "replace") if process.returncode == 0 else strip_tags(data, charset)
    )


def main() -> None:
    """Convert a page from standard input to standard output."""
    limit_resources(SECONDS, MEMORY)
    markdown = html_to_markdown(sys.stdin.buffer.read(), sys.argv[1] or None)
    sys.stdout.buffer.write(markdown.encode("utf-8", "replace"))
