"""Custom commands and skills in the interface: offered, sent, pinned to an agent, refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.extensions.skill_library import ExtensionFolder, load_library
from fugu_cli.session.events import Asked, Assigned
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.commands import all_commands, command_choices
from fugu_cli.ui.tui.prompt import PromptInput
from tests.unit.extensions.skills import making
from tests.unit.ui.tui.conftest import ANSWER, Hand, Play, Shown
from tests.unit.ui.tui.demo import DemoSessionOpener


@pytest.fixture
def play(
    opened: Callable[..., FuguApp], opener: DemoSessionOpener, shown: Shown, tmp_path: Path
) -> Callable[[Play], None]:
    """The interface with one skill and a few commands."""
    making.skill(tmp_path, "release", "How to release.")
    for name, text in {
        "review": (
            "---\ndescription: Review a file\nargument-hint: FILE\n---\nLook at @$1 with care."
        ),
        "git/commit": "Commit.",
        "ret": "Mine, not /retry.",
        "big": "---\nagent: large\n---\nThink.",
        "lost": "---\nagent: nobody\n---\nThink.",
        "plan": "---\ntier: ultra\n---\nPlan.",
        "undo": "Mine.",
    }.items():
        making.text(tmp_path / f"commands/{name}.md", text)
    opener.library = load_library((ExtensionFolder(tmp_path, "~/.agents"),))
    opener.scripts = {"small": ANSWER * 3, "large": ANSWER * 3}
    opener.mode = "edit"

    def run(what: Play) -> None:
        async def whole() -> None:
            app = opened()
            async with app.run_test(size=(110, 90)) as pilot:
                hand = Hand(app, pilot, shown)
                await hand.until(
                    lambda: (
                        app.main.controller is not None
                        and app.main.controller.work.session is not None
                    )
                )
                await what(hand)

        asyncio.run(whole())

    return run


def asked(hand: Hand) -> list[tuple[str, str, tuple[str, ...]]]:
    events = hand.controller.session.log.events
    return [
        (event.whole, event.typed, event.attachments)
        for event in events
        if isinstance(event, Asked)
    ]


def offered(hand: Hand, line: str) -> list[str]:
    return [
        choice.value
        for choice in command_choices(all_commands(hand.controller), hand.controller, line)
    ]


def test_a_queued_command_is_taken_back_as_it_was_typed(
    play: Callable[[Play], None], opener: DemoSessionOpener
) -> None:
    opener.scripts = {"small": '[[step]]\ntext = "Slow."\ndelay = 30\n', "large": ANSWER}

    async def what(hand: Hand) -> None:
        await hand.type("go")
        await hand.until(lambda: hand.controller.work.running)
        await hand.type("/review kept.txt", "tab")
        await hand.until(
            lambda: [one.typed for one in hand.controller.work.queue] == ["/review kept.txt"]
        )
        await hand.pilot.press("up")
        assert (hand.app.main.query_one(PromptInput).text, hand.controller.work.queue) == (
            "/review kept.txt",
            [],
        )

    play(what)


def test_they_are_offered_after_the_interfaces_own(play: Callable[[Play], None]) -> None:
    async def what(hand: Hand) -> None:
        assert offered(hand, "/re") == [
            "/resume", "/rename ", "/rewind", "/redo", "/remember ", "/retry", "/ret", "/review ",
        ]  # fmt: skip
        assert offered(hand, "/git") == ["/git:commit"]
        assert offered(hand, "/skill r") == ["/skill release"]
        hand.app.main.query_one(PromptInput).put("/revi")
        await hand.sees("/review FILE", "Review a file")

    play(what)


def test_a_command_is_sent_as_what_it_says_and_shown_as_it_was_typed(
    play: Callable[[Play], None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/review kept.txt")
        await hand.done(1)
        assert asked(hand) == [("Look at @kept.txt with care.", "/review kept.txt", ("kept.txt",))]
        await hand.sees("▌ /review kept.txt", "▌ with kept.txt")
        await hand.type("/ret")  # its whole name goes before the beginning of another
        await hand.done(2)
        assert asked(hand)[1] == ("Mine, not /retry.", "/ret", ())
        await hand.type("/retry")
        await hand.done(3)
        assert asked(hand)[2] == asked(hand)[1]

    play(what)


def test_a_command_may_name_its_agent_for_its_request_alone(play: Callable[[Play], None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/big")
        await hand.done(1)
        await hand.type("/git:commit")
        await hand.done(2)
        events = hand.controller.session.log.events
        assert [event.agent for event in events if isinstance(event, Assigned)] == [
            "large",
            "small",
        ]

    play(what)


def test_what_cannot_be_had_is_said_and_nothing_is_asked(play: Callable[[Play], None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.sees("fugu's")  # why /undo is left out, wherever its lines end
        await hand.type("/lost")
        await hand.sees(
            "/lost is for the agent 'nobody', which is not in the pool", "there are small, large"
        )
        await hand.type("/plan")
        await hand.sees("the tier 'ultra' is not there")
        await hand.type("/reviw x")
        await hand.sees("there is no command /reviw", "did you mean /review?")
        await hand.type("/skill relase x")
        await hand.sees("there is no skill 'relase'")
        assert hand.kinds() == ["opened"]

    play(what)


def test_a_skill_is_named_in_a_request_and_both_are_listed(play: Callable[[Play], None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/skill release cut 1.2")
        await hand.done(1)
        skill = hand.controller.session.library.skills[0].text()
        assert asked(hand) == [(f"cut 1.2\n\n{skill}", "/skill release cut 1.2", ())]
        await hand.type("/skills")
        await hand.sees(
            "skills, commands and subagents", "release  How to release.", "/big", "left out"
        )

    play(what)
