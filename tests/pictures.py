"""Pictures and PDFs for tests, sound ones and others."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO

from PIL import Image
from pypdf import PdfReader, PdfWriter


def picture(
    width: int = 8, height: int = 6, form: str = "PNG", colour: object = "red", **more: object
) -> bytes:
    """A picture of one colour."""
    out = BytesIO()
    mode = "RGBA" if isinstance(colour, tuple) and len(colour) == 4 else "RGB"
    Image.new(mode, (width, height), colour).save(out, form, **more)  # type: ignore[arg-type]
    return out.getvalue()


def bomb() -> bytes:
    """A PNG of some hundred bytes that says it has 2.5 thousand million pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return (
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        )

    head = struct.pack(">IIBBBBB", 50_000, 50_000, 8, 2, 0, 0, 0)
    rows = zlib.compress(b"\0" * 100_000)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def pdf(*pages: str) -> bytes:
    """A PDF whose pages each say one line."""
    kids = " ".join(f"{4 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
    ]
    for number, said in enumerate(pages):
        drawn = f"BT /F1 12 Tf 72 720 Td ({said}) Tj ET"
        objects += [
            "<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Resources << /Font << /F1 3 0 "
            "R >> >> "
            f"/Contents {5 + 2 * number} 0 R >>",
            f"<< /Length {len(drawn)} >>\nstream\n{drawn}\nendstream",
        ]
    out, places = b"%PDF-1.4\n", list[int]()
    for number, text in enumerate(objects, start=1):
        places.append(len(out))
        out += f"{number} 0 obj\n{text}\nendobj\n".encode()
    table = "".join(f"{place:010} 00000 n \n" for place in places)
    size = len(objects) + 1
    end = f"xref\n0 {size}\n0000000000 65535 f \n{table}trailer\n<< /Size {size} /Root 1 0 R >>\n"
    return out + f"{end}startxref\n{len(out)}\n%%EOF\n".encode()


def locked_pdf() -> bytes:
    """A PDF that wants a password."""
    writer = PdfWriter(clone_from=PdfReader(BytesIO(pdf("secret"))))
    writer.encrypt("word", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()
