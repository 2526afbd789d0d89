"""Pictures and PDFs as they are taken in: from a file, an MCP server, or the client of an endpoint.

What comes out is what every provider takes: a PNG or JPEG of at most `EDGE` pixels a side, or the
PDF with its text. Whatever cannot be taken is one sentence that says why. Pillow and pypdf are
loaded when there is something to take.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import struct
import zlib
from io import BytesIO
from typing import TYPE_CHECKING

from fugu_cli.messages import Media
from fugu_cli.safety.prompt_injection import mark_injection
from fugu_cli.tools.result import plain_text, truncate

if TYPE_CHECKING:
    from PIL.Image import Image as Picture
    from pypdf import PdfReader

EDGE = 1568
"""Pixels of the longer side that a picture is sent with: Anthropic scales down what has more,
OpenAI at 2,048.
"""
MOST_SENT = 3_600_000
"""Bytes of a picture that is sent: Anthropic takes 5 MB of base64."""
MOST_READ = 40_000_000
"""Bytes of a picture that is opened."""
MOST_PIXELS = 64_000_000
"""Pixels of a picture that is opened: a small file may unpack to gigabytes."""
MOST_OF_A_PDF = 22_000_000
"""Bytes of a PDF: Anthropic and OpenAI take requests of 32 MB, in base64."""
SHOWN = 16_000
"""Characters of a PDF's text, as of one reading of a file."""
PNG = b"\x89PNG\r\n\x1a\n"
FORMATS = ("PNG", "JPEG", "GIF", "WEBP")
BROKEN = (ArithmeticError, AssertionError, AttributeError, EOFError, LookupError, MemoryError, NotImplementedError,
          OSError, RecursionError, SyntaxError, TypeError, ValueError, struct.error, zlib.error)  # fmt: skip
"""Exceptions that Pillow and pypdf raise for broken files."""


class NotTaken(Exception):
    """A picture or PDF that cannot be shown. The text is one sentence that says why and what to
    do.
    """


def take(data: bytes, name: str) -> Media:
    """Read a picture or a PDF. Runs in a thread. Raises NotTaken."""
    if data[:1024].lstrip().startswith(b"%PDF-"):
        return take_pdf(data, name)
    return take_picture(data, name)


def take_base64(text: str, name: str, media_type: str) -> Media:
    """Read a picture or PDF from base64. `media_type` is the stated type. Raises NotTaken."""
    if len(text) > 4 * MOST_READ // 3 + 4:
        raise NotTaken(too_large(name, 3 * len(text) // 4, MOST_READ))
    try:
        data = base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError) as error:
        raise NotTaken(f"{name} is not base64: {error}.") from error
    return take_pdf(data, name) if media_type == "application/pdf" else take(data, name)


def take_picture(data: bytes, name: str) -> Media:
    """Read a picture in a form that can be sent. Raises NotTaken."""
    from PIL import Image, UnidentifiedImageError

    if len(data) > MOST_READ:
        raise NotTaken(too_large(name, len(data), MOST_READ))
    data = _without_broken_extras(data)
    Image.MAX_IMAGE_PIXELS = None  # looked at below, before anything is unpacked
    try:
        with Image.open(BytesIO(data), formats=FORMATS) as picture:
            if picture.width * picture.height > MOST_PIXELS:
                size = f"{picture.width}x{picture.height} pixels"
                raise NotTaken(
                    f"{name} has {size}, and at most {MOST_PIXELS // 10**6} million are opened: "
                    f"scale it."
                )
            sent, media_type = _sendable(picture, data)
            with Image.open(BytesIO(sent)) as sent_picture:
                width, height = sent_picture.size
    except UnidentifiedImageError as error:
        raise NotTaken(
            f"{name} is no picture that can be shown: it is damaged, or not PNG, JPEG, WebP or GIF."
        ) from error
    except BROKEN as error:
        raise NotTaken(f"{name} is a damaged picture: {_first_line(error)}.") from error
    return _with_data(
        Media(name=name, type=media_type, width=width, height=height, sha="", size=0), sent
    )


def _without_broken_extras(data: bytes) -> bytes:
    """Remove optional chunks with a wrong checksum from a PNG, which Pillow would refuse; return
    other data unchanged.
    """
    if not data.startswith(PNG):
        return data
    chunks, start = [PNG], len(PNG)
    while start + 12 <= len(data):
        end = start + 12 + int.from_bytes(data[start : start + 4])
        is_optional = data[start + 4] & 0x20  # a small first letter
        checksum = int.from_bytes(data[end - 4 : end])
        if not is_optional or zlib.crc32(data[start + 4 : end - 4]) == checksum:
            chunks.append(data[start:end])
        start = end
    return b"".join(chunks)


def _sendable(picture: Picture, data: bytes) -> tuple[bytes, str]:
    """Return the bytes and the media type. A PNG or JPEG that fits stays as it is."""
    from PIL import ImageOps

    picture_format, is_lossless = picture.format or "", picture.format != "JPEG"
    is_upright = picture.getexif().get(0x0112, 1) == 1
    is_animated = getattr(picture, "n_frames", 1) > 1
    if picture_format == "JPEG":
        picture.draft("RGB", (EDGE, EDGE))  # decodes a large one at a fraction of its size
    picture.load()
    fits = max(picture.size) <= EDGE and len(data) <= MOST_SENT
    if fits and is_upright and not is_animated and picture_format in ("PNG", "JPEG"):
        return data, f"image/{picture_format.lower()}"
    converted = ImageOps.exif_transpose(picture)
    converted = converted.convert("RGBA" if converted.has_transparency_data else "RGB")
    converted.thumbnail((EDGE, EDGE))
    buffer = BytesIO()
    if is_lossless:
        converted.save(buffer, "PNG")
    if not is_lossless or buffer.tell() > MOST_SENT:
        buffer = BytesIO()
        _on_white(converted).save(buffer, "JPEG", quality=85)
        return buffer.getvalue(), "image/jpeg"
    return buffer.getvalue(), "image/png"


def _on_white(picture: Picture) -> Picture:
    """Replace transparency by white, since JPEG has none."""
    from PIL import Image

    if picture.mode != "RGBA":
        return picture
    background = Image.new("RGB", picture.size, "white")
    background.paste(picture, mask=picture.getchannel("A"))
    return background


def take_pdf(data: bytes, name: str) -> Media:
    """Read a PDF with the beginning of its text. Raises NotTaken."""
    reader = _open_pdf(data, name)
    if reader.is_encrypted:
        raise NotTaken(f"{name} is encrypted: save it without a password first.")
    text, last, pages = _read_pages(reader, name, 1, None)
    note = f"\n(pages 1-{last} of {pages})" if last < pages else ""
    return _with_data(
        Media(
            name=name,
            type="application/pdf",
            pages=pages,
            text=text + note if text else "",
            sha="",
            size=0,
        ),
        data,
    )


def pdf_pages(data: bytes, name: str, first: int, count: int | None) -> str:
    """Return the text of some pages, counted from 1, and where to continue. Runs in a thread.
    Raises NotTaken.
    """
    reader = _open_pdf(data, name)
    if reader.is_encrypted:
        raise NotTaken(f"{name} is encrypted: save it without a password first.")
    text, last, pages = _read_pages(reader, name, first, count)
    if first > pages:
        raise NotTaken(f"{name} has only {pages:,} pages.")
    hint = f"; go on with offset={last + 1}" if last < pages else ""
    return f"{text or '(no text)'}\n(pages {first}-{last} of {pages}{hint})"


def _open_pdf(data: bytes, name: str) -> PdfReader:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it writes to the screen otherwise
    if len(data) > MOST_OF_A_PDF:
        raise NotTaken(too_large(name, len(data), MOST_OF_A_PDF))
    if not data[:1024].lstrip().startswith(b"%PDF-"):
        raise NotTaken(f"{name} is no PDF: it does not begin like one.")
    try:
        reader = PdfReader(BytesIO(data))
        if not reader.is_encrypted:
            len(reader.pages)
    except (PyPdfError, *BROKEN) as error:
        raise NotTaken(f"{name} is a damaged PDF: {_first_line(error)}.") from error
    return reader


def _read_pages(
    reader: PdfReader, name: str, first: int, count: int | None
) -> tuple[str, int, int]:
    """Return the text of as many pages from `first` on as fit, the last page, and the number of
    pages.
    """
    from pypdf.errors import PyPdfError

    try:
        pages = len(reader.pages)
        last = min(first - 1 + count, pages) if count is not None else pages
        texts: list[str] = []
        for number in range(first, last + 1):
            text = plain_text(reader.pages[number - 1].extract_text()).strip()
            if texts and sum(map(len, texts)) + len(text) > SHOWN:
                last = number - 1
                break
            if text:
                text = f"[page {number}]\n{truncate(text, SHOWN)}"
            texts.append(text)
    except (PyPdfError, *BROKEN) as error:
        raise NotTaken(f"{name} is a damaged PDF: {_first_line(error)}.") from error
    return mark_injection("\n\n".join(filter(None, texts))), last, pages


def _with_data(media: Media, data: bytes) -> Media:
    """Return the media with its bytes."""
    fields = {
        "sha": hashlib.sha256(data).hexdigest(),
        "size": len(data),
        "data": base64.b64encode(data).decode(),
    }
    return media.model_copy(update=fields)


def too_large(name: str, size: int, most: int) -> str:
    """Return the message about a file that is larger than `most` bytes."""
    return (
        f"{name} is too large: {size / 1e6:.0f} MB, and at most {most // 10**6} MB are opened. "
        f"Make it smaller."
    )


def _first_line(error: BaseException) -> str:
    line = (str(error).splitlines() or [""])[0].strip().rstrip(".")
    return line[:200] or type(error).__name__
