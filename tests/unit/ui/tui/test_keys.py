"""Every key does what help says, on the interface without a terminal."""

from __future__ import annotations

import asyncio
import hashlib
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from textual import events
from textual.app import App
from textual.binding import Binding
from textual.pilot import Pilot
from textual.widgets import Static

from fugu_cli.app.preferences import PreferencesFile
from fugu_cli.session.events import Interrupted, Permitted
from fugu_cli.ui.tui.app import FuguApp, MainScreen
from fugu_cli.ui.tui.approval import Approval
from fugu_cli.ui.tui.find_bar import FindBar
from fugu_cli.ui.tui.overlays import Confirm, Reader
from fugu_cli.ui.tui.panels import Conversation, Trace
from fugu_cli.ui.tui.prompt import PromptInput
from fugu_cli.ui.tui.status_line import StatusBar
from fugu_cli.ui.tui.terminal_app import KEYS, TerminalApp
from tests.pictures import picture
from tests.unit.ui.tui.demo import DemoSessionOpener

ANSWER = '[[step]]\ntext = "Done."\n'
SLOW = '[[step]]\ntext = "Slow."\ndelay = 30\n'
ASKS = (
    '[[step]]\ncalls = [{ tool = "write", arguments = { path = "new.txt", content = "x" } }]\n'
    + ANSWER
)
Play = Callable[[FuguApp, Pilot[int]], Awaitable[None]]


async def until(true: Callable[[], bool], why: Callable[[], object] = lambda: "") -> None:
    for _ in range(500):
        if true():
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"it did not come to that\n{why()}")


@pytest.fixture
def play(opened: Callable[..., FuguApp], opener: DemoSessionOpener) -> Callable[..., FuguApp]:
    """Open the interface, wait until the session is there, do something, leave."""

    def run(
        what: Play, script: str = ANSWER, size: tuple[int, int] = (100, 30), **options: object
    ) -> FuguApp:
        opener.scripts = {"small": script}

        async def whole() -> FuguApp:
            app = opened(**options)
            async with app.run_test(size=size) as pilot:
                await until(
                    lambda: (
                        app.main.controller is not None
                        and app.main.controller.work.session is not None
                    )
                )
                await what(app, pilot)
            return app

        return asyncio.run(whole())

    return run


def prompt(app: FuguApp) -> PromptInput:
    return app.main.query_one(PromptInput)


def asked(app: FuguApp) -> list[str]:
    assert app.main.controller is not None and app.main.controller.work.session is not None
    return [
        event.text for event in app.main.controller.work.session.log.events if event.type == "asked"
    ]


def test_help_names_the_keys_that_are_bound() -> None:
    screens = (TerminalApp, MainScreen, PromptInput)
    named = {
        one.id: one.key for kind in screens for one in kind.BINDINGS if isinstance(one, Binding)
    }
    assert named == {name: keys for name, (keys, _) in KEYS.items()}
    bound = {
        *FuguApp._merge_bindings().key_to_bindings,
        *MainScreen._merge_bindings().key_to_bindings,
    }
    told = {key for keys, _ in KEYS.values() for key in keys.split(",")}
    assert bound - told == {"super+c"}  # inherited


@pytest.mark.parametrize(
    "keys", [["ctrl+j"], ["shift+enter"], ["alt+enter"], ["backslash", "enter"]]
)
def test_a_new_line_and_then_enter_sends_both(
    play: Callable[..., FuguApp], keys: list[str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("a", *keys, "b", "enter")
        await until(lambda: asked(app) == ["a\nb"], lambda: asked(app))
        assert prompt(app).text == ""

    play(what)


def test_keys_that_come_at_once_act_in_the_order_they_were_pressed(
    play: Callable[..., FuguApp],
) -> None:
    keys = [
        *"abcd",
        "backspace",
        "backspace",
        *"ef",
        "left",
        "X",
        "ctrl+j",
        "n",
        "home",
        "l",
        "ctrl+w",
        "enter",
    ]

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        for key in keys:
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(lambda: asked(app) == ["abeX\nnf"], lambda: asked(app))
        for key in ("up", "!", "enter"):
            app.post_message(events.Key(key, key if len(key) == 1 else None))
        await until(lambda: len(asked(app)) == 2, lambda: prompt(app).text)
        assert asked(app)[1] == "abeX\nnf!"
        for key in ("n", "o", "ctrl+c", *"yes", "ctrl+d", "space", *"sir", "ctrl+s"):
            app.post_message(
                events.Key(key, " " if key == "space" else key if len(key) == 1 else None)
            )
        await until(lambda: len(asked(app)) == 3, lambda: prompt(app).text)
        assert asked(app)[2] == "yes sir"

    play(what)


def test_an_empty_prompt_sends_nothing(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("enter", "space", "enter", "ctrl+j", "enter")
        await pilot.pause(0.1)
        assert asked(app) == []

    play(what)


def test_a_long_paste_is_folded_and_sent_whole(play: Callable[..., FuguApp]) -> None:
    pasted = "\n".join(f"line {number}" for number in range(3000))

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"see ")
        prompt(app).post_message(events.Paste(pasted))
        await until(
            lambda: prompt(app).text == "see [Pasted #1: 3,000 lines]", lambda: prompt(app).text
        )
        await pilot.press("enter")
        await until(lambda: asked(app) == ["see " + pasted])

    play(what)


@pytest.mark.parametrize(
    ("pasted", "mentions"),
    [
        ("{root}/shot.png", "@{root}/shot.png "),
        ("'{root}/two words.PDF'", '@"{root}/two words.PDF" '),
        ("{root}/two\\ words.PDF shot.png ", '@"{root}/two words.PDF" @shot.png '),
        ("file://{root}/two%20words.PDF", '@"{root}/two words.PDF" '),
        ("{root}/none.png", "{root}/none.png"),
        ("see {root}/shot.png", "see {root}/shot.png"),
        ("README.md", "README.md"),
    ],
)
def test_pasted_paths_of_pictures_become_mentions_and_anything_else_stays(
    play: Callable[..., FuguApp], project: Path, pasted: str, mentions: str
) -> None:
    for name in ("shot.png", "two words.PDF", "README.md"):
        (project / name).write_bytes(b"")

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        prompt(app).post_message(events.Paste(pasted.format(root=project)))
        await until(
            lambda: prompt(app).text == mentions.format(root=project), lambda: prompt(app).text
        )

    play(what)


@pytest.mark.parametrize("by_key", [True, False])
def test_the_picture_in_the_clipboard_is_mentioned_and_kept(
    play: Callable[..., FuguApp], clipboard: Callable[..., Path], by_key: bool
) -> None:
    data = picture()
    clipboard("wl-paste", data)
    path = Path.home() / "state/pasted" / f"clipboard-{hashlib.sha256(data).hexdigest()[:8]}.png"

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        if by_key:
            await pilot.press("ctrl+v")
        else:
            prompt(app).post_message(events.Paste(""))
        await until(lambda: prompt(app).text == f"@{path} ", lambda: prompt(app).text)
        assert path.read_bytes() == data

    play(what)


def test_without_a_picture_in_the_clipboard_its_key_pastes_what_was_cut(
    play: Callable[..., FuguApp], clipboard: Callable[..., Path]
) -> None:
    clipboard("wl-paste", b"words")

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"cut", "shift+home", "ctrl+x")
        assert prompt(app).text == ""
        await pilot.press("ctrl+v")
        await until(lambda: prompt(app).text == "cut", lambda: prompt(app).text)

    play(what)


def test_the_conversation_has_a_line_for_each_picture(
    play: Callable[..., FuguApp], shown: Callable[..., str], project: Path
) -> None:
    (project / "shot.png").write_bytes(picture(800, 600))
    script = '[[step]]\ncalls = [{ tool = "read", arguments = { path = "shot.png" } }]\n' + ANSWER

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"look", "enter")
        await until(lambda: "shot.png, 800x600, " in shown(app), lambda: shown(app))

    play(what, script)


def test_a_short_paste_stands_as_it_is(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        prompt(app).post_message(events.Paste("one\r\ntwo"))
        await until(lambda: prompt(app).text == "one\ntwo")

    play(what)


@pytest.mark.parametrize(
    ("keys", "left"),
    [
        (["backspace"], "see "),
        (["ctrl+w"], "see "),
        (["left", "backspace"], "see "),
        (["space", "backspace"], "see [Pasted #1: 30 lines]"),
        (["home", *["right"] * 4, "delete"], "see "),
        (["home", "delete"], "ee [Pasted #1: 30 lines]"),
    ],
)
def test_a_folded_paste_goes_whole(
    play: Callable[..., FuguApp], keys: list[str], left: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"see ")
        prompt(app).post_message(events.Paste("\n".join("x" * 30)))
        await until(
            lambda: prompt(app).text == "see [Pasted #1: 30 lines]", lambda: prompt(app).text
        )
        await pilot.press(*keys)
        await until(lambda: prompt(app).text == left, lambda: prompt(app).text)

    play(what)


def test_up_and_down_walk_through_what_was_typed(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        for text in ("first", "second"):
            await pilot.press(*text, "enter")
        await until(lambda: len(asked(app)) == 2)
        seen = []
        app.main.history.texts.insert(0, "a\nb")
        for key in ("up", "up", "down", "down"):
            await pilot.press(key)
            await pilot.pause()
            seen.append(prompt(app).text)
        assert seen == ["second", "first", "second", ""]
        await pilot.press("up", "up", "up")
        await until(lambda: prompt(app).text == "a\nb")
        await pilot.pause()
        assert prompt(app).cursor_location == (1, 1)  # at its end

    play(what, ANSWER + ANSWER)


def test_ctrl_r_finds_what_was_typed_in_another_session(play: Callable[..., FuguApp]) -> None:
    state = Path.home() / "state"
    state.mkdir()
    (state / "history.jsonl").write_text('"fix the parser"\n"write docs"\n')

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("ctrl+r")
        await until(lambda: len(app.screen_stack) == 2)
        await pilot.press(*"pars", "enter")
        await until(lambda: prompt(app).text == "fix the parser")

    play(what)


def test_escape_stops_what_runs(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.session.log.events[-1].type == "assigned")
        await pilot.press("escape")
        await until(lambda: not controller.work.running)
        assert isinstance(controller.session.log.events[-1], Interrupted)

    play(what, SLOW)


def test_tab_queues_what_is_typed_meanwhile_and_up_takes_it_back(
    play: Callable[..., FuguApp],
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.work.running)
        await pilot.press(*"then", "tab")
        await until(lambda: [typed.text for typed in controller.work.queue] == ["then"])
        await pilot.press("up")
        await until(lambda: prompt(app).text == "then")
        assert controller.work.queue == []

    play(what, SLOW)


def test_enter_gives_agents_at_work_a_message_and_what_nobody_read_is_the_next_request(
    play: Callable[..., FuguApp],
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.session.log.events[-1].type == "assigned")
        await pilot.press(*"and", "enter")
        await until(lambda: controller.session.log.events[-1].type == "steered")
        await pilot.press(*"stop", "ctrl+s")  # nobody has read "and": it is shown with "stop"
        await until(lambda: asked(app) == ["go", "stop"], lambda: asked(app))
        await until(lambda: not controller.work.running)
        (message,) = controller.session.log.state.requests[0].unread_steering
        assert message.said == "and"

    play(what, SLOW + ANSWER)


def test_ctrl_s_cuts_what_runs_and_sends_what_is_typed(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.session.log.events[-1].type == "assigned")
        await pilot.press(*"no, this", "ctrl+s")
        await until(lambda: asked(app) == ["go", "no, this"], lambda: asked(app))
        await until(lambda: not controller.work.running)

    play(what, SLOW + ANSWER)


def test_ctrl_s_on_a_command_does_the_command(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.session.log.events[-1].type == "assigned")
        for line, done in (
            ("/mode plan", lambda: controller.session.environment.rules.mode == "plan"),
            ("!true", lambda: not controller.shell.running),
        ):
            prompt(app).put(line)
            await pilot.press("ctrl+s")
            await until(done)
        assert (asked(app), controller.work.running) == (["go"], True)

    play(what, SLOW)


def test_ctrl_s_sends_what_was_left_in_the_queue_when_the_request_was_stopped(
    play: Callable[..., FuguApp],
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.session.log.events[-1].type == "assigned")
        await pilot.press(*"then", "tab", "escape")
        await until(
            lambda: (
                not controller.work.running
                and [typed.text for typed in controller.work.queue] == ["then"]
            )
        )
        await pilot.press("ctrl+s")
        await until(lambda: asked(app) == ["go", "then"], lambda: asked(app))
        await until(lambda: not controller.work.running and controller.work.queue == [])

    play(what, SLOW + ANSWER)


def test_shift_tab_goes_round_the_modes_and_holds_for_the_request_under_way(
    play: Callable[..., FuguApp], opener: DemoSessionOpener
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        seen = [controller.session.environment.rules.mode]
        await pilot.press("shift+tab", *"go", "enter")
        await until(lambda: controller.work.running)
        seen.append(controller.session.environment.rules.mode)
        for _ in range(3):
            await pilot.press("shift+tab")
            seen.append(controller.session.environment.rules.mode)
            if seen[-1] == "plan":
                await until(lambda: not controller.work.running)
        assert seen == ["ask", "edit", "auto", "plan", "ask"]

    play(what, ASKS.replace("[[step]]", "[[step]]\ndelay = 1", 1))
    assert not (opener.root / "new.txt").exists()


def test_ctrl_t_shows_the_trace_and_its_width_is_remembered(
    play: Callable[..., FuguApp], stored: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        trace = app.main.query_one(Trace)
        assert not trace.display
        await pilot.press("ctrl+t", "f6", "f6")
        await until(lambda: trace.has_focus)
        before = trace.size.width
        await pilot.press("up", "left_square_bracket", "left_square_bracket")
        await pilot.pause()
        assert trace.size.width == before + 8
        await pilot.press("ctrl+t")
        await until(lambda: prompt(app).has_focus)

    play(what, resume=stored)
    left = PreferencesFile(Path.home() / "state").current
    assert (left.panel, left.panel_width) == (False, 48)


def test_letters_go_to_the_prompt_unless_the_footer_shows_them(
    play: Callable[..., FuguApp], stored: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        status, trace = app.main.query_one(StatusBar), app.main.query_one(Trace)
        for part in (app.main.query_one(Conversation), trace):
            part.focus()
            await until(lambda part=part: part.has_focus)
            await pilot.press(*"jxp u")
            assert (prompt(app).text, prompt(app).has_focus) == ("jxp u", True)
            prompt(app).put("")
        trace.focus()
        await pilot.press("up")
        await until(lambda: "r retries" in status.standing.hint)
        await pilot.press("r")
        await until(lambda: prompt(app).text.startswith("/retry "))

    play(what, size=(130, 30), resume=stored)


def test_the_marked_outcome_has_keys(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        conversation, status = app.main.query_one(Conversation), app.main.query_one(StatusBar)
        app.main.enter("write it")
        await until(lambda: app.main.query_one(Approval).has_focus)
        await pilot.press("y")
        await until(lambda: "f6 diff" in status.standing.hint)
        await pilot.press("f6")
        await until(lambda: conversation.chosen == conversation.card is not None)
        assert status.standing.hint.startswith("d diff · u undo · c commit · b blame · t why")
        await pilot.press("u")
        await until(lambda: isinstance(app.screen, Confirm))

    play(what, script=ASKS, size=(130, 30))


def test_letters_that_come_at_once_go_to_the_prompt_in_their_order(
    play: Callable[..., FuguApp],
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        conversation, status = app.main.query_one(Conversation), app.main.query_one(StatusBar)
        app.main.enter("write it")
        await until(lambda: app.main.query_one(Approval).has_focus)
        await pilot.press("y")
        await until(lambda: "f6 diff" in status.standing.hint)
        await pilot.press("f6")
        await until(lambda: conversation.chosen == conversation.card is not None)
        for letter in "how does it count":
            app.post_message(events.Key("space" if letter == " " else letter, letter))
        await until(lambda: prompt(app).text.endswith("nt"))
        assert prompt(app).text == "how does it count"
        assert not isinstance(app.screen, Confirm)

    play(what, script=ASKS, size=(130, 30))


def test_the_outcome_of_an_earlier_request_shows_its_diff_and_its_turns(
    play: Callable[..., FuguApp], shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        conversation, status = app.main.query_one(Conversation), app.main.query_one(StatusBar)
        app.main.enter("/mode edit")
        await until(lambda: status.standing.mode == "edit")
        for count, text in enumerate(("write it", "write another"), start=1):
            app.main.enter(text)
            await until(lambda count=count: cards(conversation) == count, lambda: shown(app))
        await until(lambda: "f6 diff" in status.standing.hint)
        await pilot.press("f6")
        await until(lambda: conversation.chosen == conversation.card is not None)
        while not status.standing.hint.startswith("d diff · t why"):
            await pilot.press("up")
        await pilot.press("d")
        await until(lambda: isinstance(app.screen, Reader))
        assert "new.txt" in shown(app) and "more.txt" not in shown(app)
        await pilot.press("escape", "t")
        await until(lambda: "request 1, turn 1" in shown(app))
        await pilot.press("escape", *"ubc")
        await until(lambda: prompt(app).text == "ubc")

    def cards(conversation: Conversation) -> int:
        texts = map(conversation.entry_text, range(conversation.entry_count))
        return sum(text.startswith("╭") for text in texts)

    request = ASKS + '[[step]]\ntext = "ACCEPT"\n'
    play(what, script=request + request.replace("new.txt", "more.txt"), size=(130, 40))


def test_what_is_folded_away_is_found_and_n_goes_on(
    play: Callable[..., FuguApp], stored: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        conversation, bar = app.main.query_one(Conversation), app.main.query_one(FindBar)
        count = bar.query_one("#find-count", Static)

        async def shows(text: str) -> None:
            await until(lambda: str(count.content) == text, lambda: count.content)

        def line_count() -> int:
            entries = range(conversation.entry_count)
            return sum(len(conversation.column.block_lines(entry)) for entry in entries)

        folded_lines = line_count()
        await pilot.press("ctrl+f", *"A - b SHOULD")
        await shows("1 of 1 entry")  # in a thought, of which one line is shown
        assert conversation.match_line is not None
        await pilot.press("ctrl+f", *"def ADD(a")
        await shows("1 of 1 entry")  # in the output of a call that is one line
        assert line_count() > folded_lines
        await pilot.press("ctrl+f", *"the sign")
        await shows("1 of 1 entry")  # in a reply
        assert line_count() == folded_lines
        await pilot.press("ctrl+f", *"add.py")
        await shows("4 of 4 entries")
        await pilot.press("enter", "n")
        await shows("1 of 4 entries")
        await pilot.press("N", *"no", "escape")
        assert not bar.display and prompt(app).text == "o"
        await pilot.press("ctrl+f")
        bar.action_step(1)
        bar.close()  # while the search is under way
        await pilot.pause()
        assert conversation.match_line is None

    play(what, resume=stored)


def test_f6_gives_the_keys_to_the_next_part(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        seen = []
        for _ in range(3):
            await pilot.press("f6")
            seen.append(app.focused.id if app.focused else None)
        assert seen == ["conversation", "trace", "prompt"]

    play(what, size=(130, 30))


def test_f6_leads_to_a_question_that_waits_and_back(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"go", "enter")
        await until(lambda: app.focused is not None and app.focused.id == "approval")
        seen, said = [], []
        for _ in range(4):
            await pilot.press("f6")
            seen.append(app.focused.id if app.focused else None)
            said.append(app.main.query_one(StatusBar).standing.key)
        assert seen == ["conversation", "trace", "prompt", "approval"]
        assert said == [*["f6 answers · esc to interrupt"] * 3, "esc denies"]
        await pilot.press("n")
        await until(lambda: prompt(app).has_focus)

    play(what, ASKS, size=(130, 30))


def test_escape_leads_back_to_the_prompt(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("f6", "escape")
        assert prompt(app).has_focus

    play(what)


def test_ctrl_o_unfolds_and_folds_all_results(
    play: Callable[..., FuguApp], stored: str, shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("ctrl+home")
        await until(lambda: "turn 1" in shown(app))
        assert "1  def add(a, b):" not in shown(app)
        await pilot.press("ctrl+o")
        await until(lambda: "1  def add(a, b):" in shown(app))
        await pilot.press("ctrl+o")
        await until(lambda: "1  def add(a, b):" not in shown(app))

    play(what, resume=stored, size=(100, 60))


def test_a_tool_call_is_unfolded_by_keys_and_by_a_click(
    play: Callable[..., FuguApp], stored: str, shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("f6", "ctrl+home")
        await until(lambda: "read src/add.py" in shown(app))
        row = next(y for y, line in enumerate(shown(app).splitlines()) if "read src/add.py" in line)
        await pilot.click("#conversation", offset=(6, row))
        await until(lambda: "1  def add(a, b):" in shown(app), lambda: shown(app))
        await pilot.press("ctrl+end", *["up"] * 8, "down", "up", "enter", "ctrl+home")
        await until(lambda: "1  def add(a, b):" not in shown(app), lambda: shown(app))

    play(what, resume=stored, size=(100, 60))


def test_what_is_pasted_goes_to_the_prompt_whatever_has_the_keys(
    play: Callable[..., FuguApp], stored: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("f6")
        assert app.main.query_one(Conversation).has_focus
        app.post_message(events.Paste("a traceback"))
        await until(lambda: prompt(app).text == "a traceback", lambda: prompt(app).text)

    play(what, resume=stored, size=(130, 60))


def test_what_is_typed_after_a_click_goes_to_the_prompt(
    play: Callable[..., FuguApp], stored: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        for part in ("#conversation", "#trace"):
            await pilot.click(part, offset=(6, 2))
            await pilot.press(*"explain ")
        assert prompt(app).text == "explain explain "

    play(what, resume=stored, size=(130, 60))


def test_ctrl_c_empties_the_prompt_and_twice_leaves(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"text", "ctrl+c")
        assert prompt(app).text == ""
        await pilot.press(*"more", "ctrl+c")  # typed since: it is emptied again
        assert prompt(app).text == ""
        assert app.is_running and app.return_code is None
        await pilot.press("ctrl+c")
        await until(lambda: app.return_code == 0 and not app.is_running)

    play(what)


def test_what_was_typed_can_be_taken_back(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        prompt(app).post_message(events.Paste("pasted by mistake"))
        await until(lambda: prompt(app).text == "pasted by mistake")
        await pilot.press("ctrl+underscore")
        assert prompt(app).text == ""

    play(what)


def test_ctrl_q_does_not_leave(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"text", "ctrl+q")
        await pilot.pause(0.05)
        assert (app.is_running, prompt(app).text) == (True, "text")

    play(what)


def test_ctrl_c_copies_what_is_selected(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"text", "shift+left", "shift+left", "ctrl+c")
        assert (app.clipboard, prompt(app).text) == ("xt", "text")

    play(what)


def test_ctrl_d_leaves_an_empty_prompt_and_nothing_else(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("a", "ctrl+d")
        await pilot.pause(0.05)
        assert app.is_running
        await pilot.press("backspace", "ctrl+d")
        await until(lambda: not app.is_running)

    play(what)


def test_ctrl_y_copies_the_newest_answer(play: Callable[..., FuguApp]) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press(*"go", "enter")
        await until(
            lambda: "finished" in [event.type for event in app.main.controller.session.log.events]
        )  # type: ignore[union-attr]
        await pilot.press("ctrl+y")
        await until(lambda: app.clipboard == "Done.")

    play(what)


def test_paging_scrolls_the_conversation_from_the_prompt(
    play: Callable[..., FuguApp], stored: str, shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        pager = app.main.query_one(Conversation)
        await until(lambda: "stopped: turn limit" in shown(app))
        await pilot.press("pageup")
        assert "stopped: turn limit" not in shown(app) and not pager.following
        await pilot.press("pagedown", "pagedown")
        assert "stopped: turn limit" in shown(app) and pager.following
        await pilot.press("ctrl+home")
        assert pager.top == 0 and shown(app).startswith(" fugu 0.1.0")
        await pilot.press("ctrl+end")
        assert "stopped: turn limit" in shown(app) and pager.following

    play(what, resume=stored, size=(80, 20))


@pytest.mark.parametrize("keys", [["ctrl+j", "ctrl+j"], ["ctrl+t"], ["ctrl+o"], ["/"]])
def test_where_somebody_reads_stays_in_sight_when_the_room_for_it_changes(
    play: Callable[..., FuguApp], stored: str, shown: Callable[[App[int]], str], keys: list[str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await until(lambda: "stopped: turn limit" in shown(app))
        app.main.controller.say("\n".join(f"row {number}" for number in range(200)))  # type: ignore[union-attr]
        await until(lambda: "row 199" in shown(app))
        await pilot.press("pageup", "pageup", "pageup")
        reading = shown(app).splitlines()[0].split("│")[0].strip()
        assert re.fullmatch(r"row 1\d\d", reading)
        await pilot.press(*keys)
        await pilot.pause()
        assert shown(app).splitlines()[0].split("│")[0].strip() == reading

    play(what, resume=stored, size=(120, 20))


@pytest.mark.parametrize(
    ("key", "written", "by"),
    [
        ("y", True, "user"),
        ("s", True, "session"),
        ("a", True, "session"),
        ("n", False, "user"),
        ("escape", False, "user"),
        ("enter", True, "user"),
    ],
)
def test_a_question_is_answered_with_a_key(
    play: Callable[..., FuguApp], opener: DemoSessionOpener, key: str, written: bool, by: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.asking.question is not None)
        await pilot.pause()
        await pilot.press(key)
        await until(lambda: not controller.work.approvals.questions)
        await until(
            lambda: any(event.type == "permitted" for event in controller.session.log.events)
        )
        fact = next(event for event in controller.session.log.events if event.type == "permitted")
        assert (fact.allowed, fact.by) == (written, by)
        await until(lambda: prompt(app).has_focus)
        rules = controller.session.environment.rules.allow
        assert rules == (("edit(new.txt)",) if key == "a" else ())

    play(what, ASKS)
    assert (opener.root / "new.txt").exists() is written


def test_a_narrow_screen_starts_with_the_conversation_whatever_a_wide_one_showed(
    play: Callable[..., FuguApp], stored: str
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        parts = app.main.query_one(Conversation), app.main.query_one(Trace)

        def displayed() -> tuple[bool, bool]:
            return parts[0].display and parts[0].size.width > 0, parts[1].display and parts[
                1
            ].size.width > 0

        await pilot.press("ctrl+t", "ctrl+t")
        await until(lambda: displayed() == (True, True))
        await pilot.resize_terminal(80, 24)
        await until(lambda: displayed() == (True, False))
        await pilot.press("ctrl+t")
        await until(lambda: displayed() == (False, True))
        await pilot.resize_terminal(120, 40)
        await until(lambda: displayed() == (True, True))

    play(what, resume=stored, size=(120, 40))
    assert PreferencesFile(Path.home() / "state").current.panel is True
    play(
        lambda app, pilot: until(lambda: app.main.query_one(Conversation).size.width == 80),
        resume=stored,
        size=(80, 24),
    )


def test_a_mode_explains_itself_in_one_line(
    play: Callable[..., FuguApp], shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await pilot.press("shift+tab")
        await until(
            lambda: (
                "edit: changes files, and runs commands in the sandbox; asks about the rest"
                in shown(app)
            )
        )

    play(what)


THREE = """[[step]]
calls = [
  { tool = "write", arguments = { path = "a.txt", content = "x" } },
  { tool = "read", arguments = { path = "kept.txt" } },
  { tool = "write", arguments = { path = "b\\u001b[2J.txt", content = "x" } },
  { tool = "bash", arguments = { command = "touch c.txt" } },
]
"""


@pytest.mark.parametrize(
    ("keys", "made"),
    [
        (("Y",), ["a.txt", "b\x1b[2J.txt", "c.txt"]),
        (("N",), []),
        (("n", "Y"), ["b\x1b[2J.txt", "c.txt"]),
        (("n", "n", "n"), []),
    ],
)
def test_several_calls_of_a_reply_are_listed_and_answered_at_once(
    play: Callable[..., FuguApp],
    shown: Callable[[App[int]], str],
    opener: DemoSessionOpener,
    keys: tuple[str, ...],
    made: list[str],
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        for number, key in enumerate(keys, start=1):
            await until(lambda number=number: f"{number} of 3" in shown(app), lambda: shown(app))
            assert number < 3 or "then " not in shown(app).partition("Allow ")[2]
            await until(lambda: app.focused is not None and app.focused.id == "approval")
            if number == 1:
                listed = shown(app).partition("1 of 3")[2]
                assert "then write b\\x1b[2J.txt" in listed and "then bash touch c.txt" in listed, (
                    listed
                )
            await pilot.press(key)
        await until(
            lambda: any(event.type == "finished" for event in controller.session.log.events)
        )
        assert not controller.work.approvals.questions

    play(what, THREE + ANSWER)
    assert (
        sorted(path.name for path in opener.root.glob("*.txt") if path.name != "kept.txt") == made
    )


@pytest.mark.parametrize("size", [(60, 15), (60, 30)])
def test_what_a_yes_covers_is_never_cut(
    play: Callable[..., FuguApp],
    shown: Callable[[App[int]], str],
    opener: DemoSessionOpener,
    size: tuple[int, int],
) -> None:
    folder = "a-folder-with-a-name/" * 4 + "end"
    asks = (
        f"[[step]]\ncalls = "
        f'[{{ tool = "write", arguments = {{ path = "{folder}/a.txt", content = "x" }} }}]\n'
    )

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: app.focused is not None and app.focused.id == "approval")
        await until(lambda: "t no" in shown(app), lambda: shown(app))
        options = re.sub(r"[\s│›]", "", shown(app).partition("needs approval")[2])
        assert f"editsin{folder}/" in options, shown(app)
        await pilot.press("n")
        await until(lambda: not controller.work.approvals.questions)

    play(what, asks + ANSWER, size=size)


def test_a_no_may_say_what_to_do_instead(
    play: Callable[..., FuguApp], shown: Callable[[App[int]], str], opener: DemoSessionOpener
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: app.focused is not None and app.focused.id == "approval")
        await until(
            lambda: "t no, and tell it what to do instead" in shown(app), lambda: shown(app)
        )
        await pilot.press("t")
        await until(lambda: "Tell it what to do instead" in shown(app))
        await pilot.press("escape")
        await until(lambda: app.focused is not None and app.focused.id == "approval")
        assert controller.work.approvals.questions
        await pilot.press("t", *"use b.txt", "enter")
        await until(
            lambda: any(event.type == "finished" for event in controller.session.log.events)
        )
        facts = [event for event in controller.session.log.events if isinstance(event, Permitted)]
        assert [(fact.allowed, fact.by, fact.reason) for fact in facts if fact.by == "user"] == [
            (False, "user", "the user said no: use b.txt")
        ]

    play(what, ASKS)
    assert not (opener.root / "new.txt").exists()


def test_the_whole_change_can_be_seen_before_the_answer(
    play: Callable[..., FuguApp], shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: controller.asking.question is not None)
        await pilot.pause()
        await pilot.press("d")
        await until(lambda: "This would change" in shown(app))
        await pilot.press("escape", "down", "down", "down", "enter")
        await until(lambda: not controller.work.approvals.questions)

    play(what, ASKS)


def test_all_of_a_long_command_can_be_seen_before_the_answer(
    play: Callable[..., FuguApp], shown: Callable[[App[int]], str]
) -> None:
    command = "\\n".join([*(f"echo {number}" for number in range(1, 8)), "make \\u001b]evil"])
    asks = f'[[step]]\ncalls = [{{ tool = "bash", arguments = {{ command = "{command}" }} }}]\n'

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: "d shows all of it" in shown(app), lambda: shown(app))
        assert "… 2 more lines" in shown(app) and "evil" not in shown(app)
        await until(lambda: app.focused is not None and app.focused.id == "approval")
        await pilot.press("d")
        await until(
            lambda: "This would run" in shown(app) and "make \\x1b]evil" in shown(app),
            lambda: shown(app),
        )
        await pilot.press("escape", "n")
        await until(lambda: not controller.work.approvals.questions)

    play(what, asks + ANSWER)


def test_the_trace_opens_turns_and_leads_to_pin_exclude_and_retry(
    play: Callable[..., FuguApp], stored: str, shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press("f6", "f6", "up", "up", "enter")
        await until(lambda: "request 1, turn 4" in shown(app), lambda: shown(app))
        await pilot.press("left")
        await until(lambda: "request 1, turn 3" in shown(app))
        await pilot.press("right", "right", "right")
        await until(lambda: "request 2, turn 1" in shown(app))
        await pilot.press("escape", "p")
        await until(lambda: controller.work.pinned == "small")
        await pilot.press("p")
        await until(lambda: controller.work.pinned is None)
        await pilot.press("r")
        await until(lambda: prompt(app).text == "/retry small")

    play(what, resume=stored, size=(130, 40))


def test_half_a_word_is_no_answer(play: Callable[..., FuguApp], opener: DemoSessionOpener) -> None:
    script = (
        '[[step]]\ndelay = 0.3\ncalls = [{ tool = "write", arguments = { path = "new.txt", '
        'content = "x" } }]\n'
    )

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller = app.main.controller
        assert controller is not None
        await pilot.press(*"go", "enter", *"he sa")
        await until(lambda: controller.asking.question is not None)
        await pilot.press(*"ys yes")
        assert (prompt(app).text, len(controller.work.approvals.questions)) == ("he says yes", 1)
        await until(lambda: app.focused is not None and app.focused.id == "approval")
        await pilot.press(*"or ok")  # `o` is no answer, so what follows it is none
        assert (prompt(app).text, len(controller.work.approvals.questions)) == (
            "he says yesor ok",
            1,
        )
        app.main.query_one(Approval).focus()
        await pilot.press("n")
        await until(lambda: not controller.work.approvals.questions)

    play(what, script + ANSWER)
    assert not (opener.root / "new.txt").exists()


def test_a_yes_that_is_pressed_on_does_not_answer_the_next_question(
    play: Callable[..., FuguApp], opener: DemoSessionOpener
) -> None:
    calls = [
        f'{{ tool = "write", arguments = {{ path = "{name}", content = "x" }} }}'
        for name in ("one", "two")
    ]

    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        controller, approval = app.main.controller, app.main.query_one(Approval)
        assert controller is not None
        await pilot.press(*"go", "enter")
        await until(lambda: approval.has_focus)
        await pilot.press("y")
        await until(
            lambda: (opener.root / "one").exists() and controller.asking.question is not None
        )
        approval._allowed_at += (
            600  # as if it had been pressed just now, however slow this machine is
        )
        await pilot.press("y")
        assert len(controller.work.approvals.questions) == 1
        approval._allowed_at -= 600
        await pilot.press("y")
        await until(lambda: (opener.root / "two").exists())

    play(what, f"[[step]]\ncalls = [{', '.join(calls)}]\n" + ANSWER)


def test_text_is_selected_with_the_mouse_and_copied(
    play: Callable[..., FuguApp], stored: str, shown: Callable[[App[int]], str]
) -> None:
    async def what(app: FuguApp, pilot: Pilot[int]) -> None:
        await until(lambda: "It is written." in shown(app))
        lines = shown(app).splitlines()
        first = next(y for y, line in enumerate(lines) if "I write it." in line)
        last = next(y for y, line in enumerate(lines) if "It is written." in line)
        await pilot.mouse_down("#conversation", offset=(3, first))
        await pilot.hover("#conversation", offset=(6, last))
        await pilot.mouse_up("#conversation", offset=(6, last))
        await pilot.press("ctrl+c")
        copied = app.clipboard.splitlines()
        assert (copied[0], copied[-1].strip()) == ("write it.", "It is")

    play(what, resume=stored, size=(90, 40))
