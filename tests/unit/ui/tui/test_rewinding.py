"""Going back: `/rewind`, on the interface without a terminal and on the command line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from fugu_cli.ui.tui.prompt import PromptInput
from tests.unit.ui.tui.conftest import Hand


def writes(name: str) -> str:
    call = f'{{ tool = "write", arguments = {{ path = "{name}", content = "x\\n" }} }}'
    return f'[[step]]\ncalls = [{call}]\n[[step]]\ntext = "Done."\n'


SCRIPTS = {
    "small": writes("one.txt") + writes("two.txt"),
    "large": '[[step]]\ntext = "ACCEPT"\n' * 2,
}


async def two_requests(hand: Hand) -> str:
    """The session's id."""
    await hand.type("write one")
    await hand.done(1)
    await hand.type("write two")
    await hand.done(2)
    path = hand.controller.session.log.path
    assert path is not None
    return path.stem


def made(project: Path) -> list[str]:
    return [name for name in ("one.txt", "two.txt") if (project / name).exists()]


def requests(hand: Hand) -> list[str]:
    return [event.text for event in hand.controller.session.log.events if event.type == "asked"]


def test_files_and_conversation_go_back_to_before_a_request_and_it_can_be_edited(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        first = await two_requests(hand)
        await hand.type("/rewind")
        await hand.sees("Rewind to before", "1    write one", "2    write two", "ctrl+f files only")
        await hand.pilot.press("enter")
        await hand.sees("Rewind to before request 2? 1 file, +0 -1", "two.txt")
        await hand.pilot.press("y")
        await hand.sees(f"this is a copy of {first} that ends", f"/resume {first}, then")
        assert (made(project), requests(hand)) == (["one.txt"], ["write one"])
        assert hand.app.main.query_one(PromptInput).text == "write two"
        await hand.type("/redo")
        await hand.sees("there is nothing to redo", "in the original session")
        await hand.type(f"/resume {first}")
        await hand.until(lambda: requests(hand) == ["write one", "write two"])
        await hand.type("/redo")
        await hand.sees("Redo what was undone?")
        await hand.pilot.press("y")
        await hand.until(lambda: made(project) == ["one.txt", "two.txt"])

    play(what, SCRIPTS)


def test_files_alone_go_back_over_several_requests_and_redo_goes_forward_one_by_one(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await two_requests(hand)
        await hand.type("/rewind 1 files")
        await hand.sees("Rewind to before request 1? 2 files, +0 -2")
        await hand.pilot.press("y")
        await hand.sees("the files are as before request 1")
        assert (made(project), requests(hand)) == ([], ["write one", "write two"])
        for expected in (["one.txt"], ["one.txt", "two.txt"]):
            await hand.type("/redo")
            await hand.sees("Redo what was undone?")
            await hand.pilot.press("y")
            await hand.until(lambda now=expected: made(project) == now)

    play(what, SCRIPTS)


def test_the_conversation_alone_goes_back_and_files_stay(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await two_requests(hand)
        await hand.type("/rewind 1 conversation")
        await hand.sees("ends before request 1; the", "original stays as it was")
        assert (made(project), requests(hand)) == (["one.txt", "two.txt"], [])

    play(what, SCRIPTS)


def test_a_request_goes_back_to_the_middle_and_goes_on_from_there(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await two_requests(hand)
        await hand.type("/rewind 2.2")
        await hand.sees("2.2; the original", "/continue goes on")
        assert made(project) == ["one.txt", "two.txt"]
        turns = [
            event.turn for event in hand.controller.session.log.events if event.type == "assigned"
        ]
        assert turns == [1, 2, 1]
        await hand.type("/continue")
        await hand.done(2)
        assert [
            event.turn for event in hand.controller.session.log.events if event.type == "assigned"
        ] == [1, 2, 1, 2]

    play(what, {**SCRIPTS, "large": '[[step]]\ntext = "ACCEPT"\n' * 4})


def test_a_rewind_leaves_files_alone_that_the_user_edited(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await two_requests(hand)
        (project / "one.txt").write_text("mine\n")
        await hand.type("/rewind 1 files")
        await hand.sees("one.txt: stays as it is, for it was changed since")
        await hand.pilot.press("y")
        await hand.until(lambda: made(project) == ["one.txt"])
        assert (project / "one.txt").read_text() == "mine\n"
        for line, said in (
            ("/rewind 7", "there is no request or turn '7' to go back to"),
            ("/rewind 2.2 files", "files alone go back to the beginning of a request"),
            ("/rewind 2 all", "what is to be rewound is files or conversation, not 'all'"),
        ):
            await hand.type(line)
            await hand.sees(said)

    play(what, SCRIPTS)


def test_where_nothing_was_asked_there_is_nothing_to_go_back_to(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/rewind")
        await hand.sees("nothing was asked yet")

    play(what)
