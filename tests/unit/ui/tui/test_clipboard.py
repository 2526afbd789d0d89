"""The picture in the clipboard, by whichever program the desktop has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.ui.clipboard import KEPT, paste_picture
from tests.pictures import picture


@pytest.mark.parametrize(
    ("program", "asked"),
    [
        ("wl-paste", "--type image/png"),
        ("xclip", "-selection clipboard -target image/png -out"),
        ("pngpaste", "-"),
    ],
)
def test_the_program_that_is_there_is_asked_for_a_png(
    clipboard: Callable[..., Path], tmp_path: Path, program: str, asked: str
) -> None:
    arguments = clipboard(program, picture())
    found = paste_picture(tmp_path / "pasted", tmp_path / "repo")
    assert found is not None
    assert (found.read_bytes(), arguments.read_text().strip()) == (picture(), asked)


@pytest.mark.parametrize("data", [b"", b"words", b"GIF89a"])
def test_what_is_no_png_is_no_picture(
    clipboard: Callable[..., Path], tmp_path: Path, data: bytes
) -> None:
    clipboard("wl-paste", data)
    assert paste_picture(tmp_path / "pasted", tmp_path / "repo") is None
    assert not (tmp_path / "pasted").exists()


def test_a_program_that_the_repository_brought_is_not_run(
    clipboard: Callable[..., Path], tmp_path: Path
) -> None:
    arguments = clipboard("wl-paste", picture())
    assert paste_picture(tmp_path / "pasted", tmp_path / "programs") is None
    assert not arguments.exists()


def test_only_the_newest_are_kept(clipboard: Callable[..., Path], tmp_path: Path) -> None:
    clipboard("wl-paste", picture())
    folder = tmp_path / "pasted"
    folder.mkdir()
    for number in range(KEPT + 5):
        (folder / f"clipboard-{number}.png").write_bytes(b"")
    found = paste_picture(folder, tmp_path / "repo")
    assert found in list(folder.iterdir())
    assert len(list(folder.iterdir())) == KEPT
