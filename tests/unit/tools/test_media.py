"""Pictures and PDFs as `read` takes them in: what fits stays, what is large is scaled, what is
broken is a sentence.
"""

import base64
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from fugu_cli.messages import Media
from fugu_cli.tools import media
from fugu_cli.tools.result import ToolResult
from tests.pictures import bomb, locked_pdf, pdf, picture
from tests.unit.conftest import Build, use


def opened(one: Media) -> Image.Image:
    return Image.open(BytesIO(base64.b64decode(one.data)))


@pytest.mark.parametrize(("form", "kind"), [("PNG", "image/png"), ("JPEG", "image/jpeg")])
def test_a_picture_that_fits_is_sent_as_it_is(plain: Build, form: str, kind: str) -> None:
    data = picture(form=form)
    given = use(plain({"a/shot.x": data}), "read", path="a/shot.x")
    assert given.text == "[picture shot.x, 8x6]"
    (one,) = given.media
    assert (one.name, one.type, one.size, one.width, one.height) == (
        "shot.x",
        kind,
        len(data),
        8,
        6,
    )
    assert base64.b64decode(one.data) == data
    assert "data" not in one.model_dump()


@pytest.mark.parametrize("form", ["WEBP", "GIF"])
def test_what_not_every_provider_takes_becomes_a_png(form: str) -> None:
    one = media.take(picture(form=form), "shot")
    assert (one.type, opened(one).size) == ("image/png", (8, 6))


def test_a_png_with_a_broken_optional_part_is_shown_without_it(plain: Build) -> None:
    sound = picture()
    extra = b"\0\0\0\4tEXta\0b!" + b"\0\0\0\0"  # a wrong checksum
    (one,) = use(
        plain({"shot.png": sound[:33] + extra + sound[33:]}), "read", path="shot.png"
    ).media
    assert base64.b64decode(one.data) == sound


def test_a_large_picture_is_scaled_and_stands_upright() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # a camera that was held upright
    one = media.take(picture(4000, 1000, "JPEG", exif=turned), "photo.jpg")
    assert (one.type, one.width, one.height) == ("image/jpeg", 392, 1568)
    assert opened(one).size == (392, 1568)


def test_a_picture_that_stays_too_large_is_sent_as_a_jpeg_on_white(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(media, "MOST_SENT", 40)
    one = media.take(picture(colour=(0, 0, 0, 0)), "clear.png")
    assert (one.type, opened(one).getpixel((4, 3))) == ("image/jpeg", (255, 255, 255))


def damaged(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("name", "data", "said"),
    [
        (
            "bomb.png",
            bomb(),
            "bomb.png has 50000x50000 pixels, and at most 64 million are opened: scale it.",
        ),
        ("cut.png", damaged(picture(400, 400)), "cut.png is a damaged picture: "),
        ("cut.jpg", damaged(picture(400, 400, "JPEG")), "cut.jpg is a damaged picture: "),
        ("head.png", picture()[:20], "head.png is "),
        (
            "none.gif",
            b"GIF89a but no more",
            "none.gif is no picture that can be shown: it is damaged, or not PNG, ",
        ),
        ("none.pdf", b"%PDF-1.7\nand nothing of one", "none.pdf is a damaged PDF: "),
        ("cut.pdf", damaged(pdf("a", "b")), "cut.pdf is a damaged PDF: "),
        ("locked.pdf", locked_pdf(), "locked.pdf is encrypted: save it without a password first."),
    ],
)
def test_what_cannot_be_shown_is_one_sentence(
    plain: Build, name: str, data: bytes, said: str
) -> None:
    given = use(plain({name: data}), "read", path=name)
    assert (given.ok, given.media, given.text.count("\n")) == (False, (), 0)
    assert given.text.startswith(said)


@pytest.mark.parametrize(
    ("name", "start", "most"),
    [("huge.png", b"\x89PNG\r\n\x1a\n", 40), ("huge.pdf", b"%PDF-1.7\n", 22)],
)
def test_a_file_of_80_mb_is_not_opened(plain: Build, name: str, start: bytes, most: int) -> None:
    workspace = plain({name: start})
    with (workspace.root / name).open("r+b") as file:
        file.truncate(80_000_000)
    said = f"{name} is too large: 80 MB, and at most {most} MB are opened. Make it smaller."
    assert use(workspace, "read", path=name) == ToolResult(text=said, ok=False)


def test_a_pdf_is_taken_whole_with_its_text_and_read_in_pages(plain: Build) -> None:
    data = pdf("one", "two", "three")
    workspace = plain({"doc.pdf": data})
    (one,) = use(workspace, "read", path="doc.pdf").media
    assert (one.type, one.pages, one.size) == ("application/pdf", 3, len(data))
    assert one.text == "[page 1]\none\n\n[page 2]\ntwo\n\n[page 3]\nthree"
    part = use(workspace, "read", path="doc.pdf", offset=2, limit=1)
    assert part == ToolResult(text="[page 2]\ntwo\n(pages 2-2 of 3; go on with offset=3)")
    assert use(workspace, "read", path="doc.pdf", offset=9).text == "doc.pdf has only 3 pages."


def test_the_text_of_a_long_pdf_is_cut_like_a_file() -> None:
    one = media.take(pdf(*("word " * 1500 for _ in range(9))), "long.pdf")
    assert len(one.text) < 17_000
    assert one.text.endswith("\n(pages 1-2 of 9)")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("no base64!", "x is not base64: "),
        ("", "x is no picture that can be shown"),
        ("aGFsbG8=", "x is no picture"),
    ],
)
def test_what_came_as_text_and_is_no_picture_is_said(text: str, said: str) -> None:
    with pytest.raises(media.NotTaken, match=said):
        media.take_base64(text, "x", "image/png")
    with pytest.raises(media.NotTaken, match=r"x is (no PDF|not base64)"):
        media.take_base64(text, "x", "application/pdf")


def test_a_tool_that_reads_plain_text_is_given_no_picture(plain: Build, tmp_path: Path) -> None:
    workspace = plain({"shot.png": picture()})
    assert use(workspace, "read", path="shot.png", plain=True).text.startswith(
        "shot.png is a PNG image, "
    )
