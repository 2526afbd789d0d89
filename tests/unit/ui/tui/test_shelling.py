"""What a command of the user's own printed."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from fugu_cli.errors import FuguError, UsageError
from fugu_cli.ui.blocks import NoteBlock
from fugu_cli.ui.drawing import DARK
from fugu_cli.ui.inline_view import LinePrinter, Scrollback
from fugu_cli.ui.tui.user_programs import KEPT_CHARACTERS, ShellOutput, UserShell


def shell(root: Path) -> UserShell:
    return UserShell(root, Scrollback(LinePrinter(lambda text: None, lambda: 80, DARK)))


def test_a_letter_that_comes_in_two_pieces_is_one() -> None:
    output = ShellOutput()
    for piece in ("é日".encode()[:3], "é日".encode()[3:], b"\xe6"):
        output.feed(piece)
    output.feed(b"")
    assert output.text == "é日\ufffd"


def test_of_a_long_output_the_newest_lines_are_kept_and_the_others_counted() -> None:
    output = ShellOutput()
    for number in range(10_000):
        output.feed(b"%d\n" % number)
    kept = output.text.split("\n")
    assert (kept[-2], int(kept[0]), len(output.text) <= KEPT_CHARACTERS) == (
        "9999",
        output.dropped,
        True,
    )
    assert output.report("seq", 0).startswith(
        "[The user ran `seq`; exit code 0; the end of its output:]\n"
    )


def test_of_a_line_without_end_the_newest_part_is_shown_as_a_part() -> None:
    output = ShellOutput()
    output.feed(b"x" * 3 * KEPT_CHARACTERS)
    assert output.note("$ x").detail == "… " + "x" * KEPT_CHARACTERS
    output.feed(b"\n" + b"y" * KEPT_CHARACTERS)
    assert output.note("$ x").detail == "y" * KEPT_CHARACTERS


def test_a_short_output_ends_with_what_became_of_the_command() -> None:
    output = ShellOutput()
    output.feed(b"\n\nfoo\n\n")
    assert output.note("$ x") == NoteBlock("$ x", "plain", "\n\nfoo\n\n", live=True)
    assert output.note("$ x", "[exit code 1]") == NoteBlock(
        "$ x", "plain", "\n\nfoo\n\n[exit code 1]"
    )


def test_one_command_runs_at_a_time(tmp_path: Path) -> None:
    async def whole() -> None:
        one = shell(tmp_path)
        first = asyncio.create_task(one.run("sleep 30", tell=True))
        await asyncio.sleep(0)
        with pytest.raises(UsageError, match="still running"):
            await one.run("sleep 30", tell=False)
        assert one.stop()
        await first
        assert (one.running, one.stop()) == (False, False)
        with one.with_outputs("and?") as text:
            assert text == "and?\n\n[The user ran `sleep 30`; exit code -9; its output:]\n"

    asyncio.run(whole())


def test_a_folder_that_has_gone_is_said(tmp_path: Path) -> None:
    one = shell(tmp_path / "gone")
    with pytest.raises(FuguError, match="cannot run this: No such file or directory"):
        asyncio.run(one.run("ls", tell=False))
    assert not one.running
