"""Every `/` command and `!`, on the interface without a terminal."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from textual import events

from fugu_cli.extensions.hook_runner import HookRunner, Hooks
from fugu_cli.extensions.hook_settings import DeclaredHooks, Hook
from fugu_cli.session import store
from fugu_cli.session.events import (
    RECORDED,
    Asked,
    Assigned,
    Event,
    Finished,
    Interrupted,
    Opened,
    Recorded,
    Undone,
)
from fugu_cli.tools.mentions import mentioned
from fugu_cli.ui.tui.app import FuguApp
from fugu_cli.ui.tui.approval import Approval
from fugu_cli.ui.tui.commands import (
    COMMANDS,
    SlashCommand,
    command_choices,
    find_command,
    nearest_command,
)
from fugu_cli.ui.tui.panels import Trace
from fugu_cli.ui.tui.project_folder import FolderFiles
from fugu_cli.ui.tui.prompt import ChoiceList, PromptInput
from fugu_cli.ui.tui.session_controller import SessionController
from tests.unit.ui.tui.conftest import ANSWER, WRITES, Hand, Shown
from tests.unit.ui.tui.demo import DemoSession, DemoSessionOpener


def test_a_line_finds_its_command() -> None:
    def name(line: str) -> tuple[str | None, str]:
        command, argument = find_command(COMMANDS, line)
        return (command.name if command else None, argument)

    assert [name(line) for line in ("/help", "/clear", "/model a b", "/und", "/re", "/nothing")] == [
        ("help", ""), ("new", ""), ("pool", "a b"), ("undo", ""), (None, ""), (None, ""),
    ]  # fmt: skip
    assert (nearest_command(COMMANDS, "/hlep"), nearest_command(COMMANDS, "/qqqq")) == ("help", "")


def test_every_command_has_a_name_of_its_own() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.also)]
    assert len(names) == len(set(names))


def test_an_unknown_command_says_which_is_near(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/hlep")
        await hand.sees("there is no command /hlep", "did you mean /help?")
        await hand.type("/rename")
        await hand.sees("/rename needs an argument")
        await hand.type("/new fix it")
        await hand.sees("/new takes no argument")
        assert hand.kinds() == ["opened"]

    play(what)


def test_a_slash_alone_is_no_command(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/")
        await hand.sees("there is no command /", "/help lists them")
        await hand.type("/blame a\0b")
        await hand.sees("there is no file", "/project/ab")

    play(what)


def test_a_path_is_no_command(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/etc/hosts is wrong")
        await hand.until(lambda: "asked" in hand.kinds())

    play(what)


def test_commands_are_completed_with_their_help(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.pilot.press(*"/und")
        await hand.sees("take the newest request's changes back")
        await hand.pilot.press("tab")
        assert hand.app.main.query_one(PromptInput).text == "/undo"
        await hand.pilot.press("ctrl+c", *"/the", "tab", "space", *"l")
        await hand.sees("› light")
        await hand.pilot.press("enter")
        await hand.until(lambda: hand.app.theme == "light")

    play(what)


def test_keys_that_are_faster_than_the_list_are_not_taken_for_what_it_shows(
    play: Callable[..., None],
) -> None:
    async def what(hand: Hand) -> None:
        prompt = hand.app.main.query_one(PromptInput)
        await hand.pilot.press("/")
        await hand.sees("› /help")
        prompt.insert("mode plan")  # the list has not heard of it yet
        await prompt._on_key(events.Key("enter", None))
        await hand.until(lambda: hand.controller.session.environment.rules.mode == "plan")

    play(what)


def test_a_plan_is_changed_left_asked_about_again_and_carried_out(
    play: Callable[..., None],
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/mode plan")
        await hand.type("fix it")
        await hand.sees("The first plan.", "Carry out the plan of small?", "2 go ahead, ask")
        await hand.until(lambda: hand.app.focused is hand.app.main.query_one(Approval))
        await hand.pilot.press("3")
        await hand.sees("Change the plan")
        await hand.pilot.press(*"another", "enter")
        await hand.sees("The second plan.", "Carry out the plan of small?")
        await hand.until(lambda: hand.app.focused is hand.app.main.query_one(Approval))
        await hand.pilot.press("escape")
        await hand.until(lambda: not hand.controller.work.approvals.questions)
        await hand.type("/continue")
        await hand.sees("Carry out the plan of small?")
        await hand.until(lambda: hand.app.focused is hand.app.main.query_one(Approval))
        await hand.pilot.press("2")
        await hand.sees("Carry out the plan of small, in ask mode.", "Nothing to do.")
        assert hand.controller.session.environment.rules.mode == "ask"
        assert hand.kinds().count("assigned") == 2

    steps = ("The first plan.", "The second plan.", "Nothing to do.")
    play(what, {"small": "".join(f'[[step]]\ntext = "{step}"\n' for step in steps)})


def test_compact_sums_up_what_agents_read(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/compact")
        await hand.sees("there is nothing to shorten yet")
        await hand.type("hello")
        await hand.done(1)
        await hand.type("/compact")
        await hand.sees("summed up by small", "What was said.", "1. hello")
        assert hand.kinds()[-1] == "compacted"

    play(what, {"small": ANSWER + '[[step]]\ntext = "What was said."\n'})


def test_files_are_completed_and_attached(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.pilot.press(*"see @kep")
        await hand.sees("› kept.txt")
        await hand.pilot.press("enter", *"now", "enter")
        await hand.until(lambda: "asked" in hand.kinds())
        asked = next(event for event in hand.controller.session.log.events if event.type == "asked")
        assert (asked.text, asked.attachments) == ("see @kept.txt now", ("kept.txt",))
        await hand.until(lambda: "tool_ran" in hand.kinds())
        ran = next(
            event for event in hand.controller.session.log.events if event.type == "tool_ran"
        )
        assert (ran.call.tool, ran.call.arguments, ran.ok) == ("read", '{"path": "kept.txt"}', True)

    play(what)


def test_a_file_whose_name_has_a_space_is_completed_and_attached(
    play: Callable[..., None], project: Path
) -> None:
    (project / "my notes.txt").write_text("x\n")

    async def what(hand: Hand) -> None:
        await hand.pilot.press(*"see @my")
        await hand.sees("› my notes.txt")
        await hand.pilot.press("tab", *"now", "enter")
        await hand.until(lambda: "asked" in hand.kinds())
        asked = next(event for event in hand.controller.session.log.events if event.type == "asked")
        assert (asked.text, asked.attachments) == ('see @"my notes.txt" now', ("my notes.txt",))

    play(what)


def test_files_are_attached_wherever_they_stand_in_a_sentence(project: Path) -> None:
    (project / "a b.txt").touch()
    (project / "日本.py").touch()
    text = 'is it @kept.txt? (@日本.py!) @"a b.txt", me@kept.txt @nowhere.txt @'
    assert mentioned(project, text) == ("kept.txt", "日本.py", "a b.txt")


def test_signs_at_the_end_of_a_name_belong_to_it_where_there_is_such_a_file(project: Path) -> None:
    for name in ("copy(1)", "end.", "end"):
        (project / name).touch()
    assert mentioned(project, "(see @copy(1)), @end. and @end") == ("copy(1)", "end.", "end")


def test_escape_closes_the_completions_and_nothing_else(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        choices = hand.app.main.query_one("#choices", ChoiceList)
        await hand.pilot.press(*"/un")
        await hand.until(lambda: choices.display)
        await hand.pilot.press("escape")
        assert (choices.display, hand.app.main.query_one(PromptInput).text) == (False, "/un")
        await hand.pilot.press("d")
        await hand.until(lambda: choices.display)

    play(what)


class SlowFiles(FolderFiles):
    """Finds nothing before `go` is set."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.go = threading.Event()

    def search(
        self, query: str, most: int = 20, superseded: Callable[[], bool] = lambda: False
    ) -> list[str]:
        self.go.wait(30)
        return super().search(query, most, superseded)


def test_tab_waits_for_the_files_that_fit_and_never_leaves_the_prompt(
    play: Callable[..., None], project: Path
) -> None:
    files = SlowFiles(project)

    async def what(hand: Hand) -> None:
        prompt, completing = hand.app.main.query_one(PromptInput), hand.app.main.completing
        assert completing is not None
        completing._files = files
        await hand.pilot.press(*"see @kep", "tab")
        assert hand.app.focused is prompt
        files.go.set()
        await hand.until(lambda: prompt.text == "see @kept.txt ")
        await hand.pilot.press(*"now", "tab", *" or @nowhere", "tab", *" p", "tab", "tab", *"p")
        assert (hand.app.focused, prompt.text) == (prompt, "see @kept.txt now or @nowhere pp")

    play(what)


def test_undo_outside_git_is_taken_back_by_redo(play: Callable[..., None], project: Path) -> None:
    shutil.rmtree(project / ".git")

    async def what(hand: Hand) -> None:
        await hand.type("go")
        await hand.done(1)
        await hand.type("/undo")
        await hand.sees("1 file, +0 -1", "- x")
        await hand.pilot.press("y")
        await hand.until(lambda: not (project / "new.txt").exists())
        await hand.type("/redo")
        await hand.sees("1 file, +1 -0", "+ x")
        await hand.pilot.press("y")
        await hand.until(lambda: (project / "new.txt").exists())

    play(what, {"small": WRITES, "large": '[[step]]\ntext = "ACCEPT"\n'})


def test_undo_shows_what_will_change_and_redo_brings_it_back(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        session = hand.controller.session
        run = session.run

        async def end_late() -> Finished:
            end = await run()
            await asyncio.sleep(0.5)
            return end

        session.run = end_late  # type: ignore[method-assign]
        await hand.type("go")
        await hand.until(lambda: "finished" in hand.kinds())
        assert (project / "new.txt").exists() and hand.controller.work.running
        await hand.type("/undo")
        await hand.sees("Undo the newest request? 1 file, +0 -1", "- x")
        await hand.pilot.press("n")
        await hand.pilot.pause(0.1)
        assert (project / "new.txt").exists()
        await hand.type("/undo")
        await hand.sees("Undo the newest request?")
        await hand.pilot.press("y")
        await hand.until(lambda: not (project / "new.txt").exists())
        await hand.sees("undone by the user: 1 file removed")
        await hand.type("/redo")
        await hand.sees("Redo what was undone?", "+ x")
        await hand.pilot.press("y")
        await hand.until(lambda: (project / "new.txt").exists())
        await hand.until(
            lambda: (
                sum(isinstance(event, Undone) for event in hand.controller.session.log.events) == 2
            )
        )

    play(what, {"small": WRITES, "large": '[[step]]\ntext = "ACCEPT"\n'})


def test_undo_refuses_with_an_explanation_when_own_edits_would_be_lost(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("go")
        await hand.done(1)
        (project / "new.txt").write_text("mine\n")
        await hand.type("/undo")
        await hand.sees(
            "undo would lose edits made since in 1 file: new.txt", "no other change is left"
        )
        assert (project / "new.txt").read_text() == "mine\n"

    play(what, {"small": WRITES, "large": '[[step]]\ntext = "ACCEPT"\n'})


@pytest.mark.parametrize("ignored", ["", "new.txt\n"])
def test_diff_shows_what_changed(play: Callable[..., None], project: Path, ignored: str) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/diff")
        await hand.sees("nothing changed since the newest request began")
        (project / ".git" / "info").mkdir(exist_ok=True)
        (project / ".git" / "info" / "exclude").write_text(ignored)
        await hand.type("go")
        await hand.done(1)
        await hand.type("/diff")
        await hand.sees("1 file, +1 -0", "new.txt", "1 + x")
        await hand.pilot.press("escape")
        await hand.type("/copy diff")
        await hand.until(lambda: "+++ b/new.txt\n@@ -0,0 +1 @@\n+x\n" in hand.app.clipboard)

    play(what, {"small": WRITES, "large": '[[step]]\ntext = "ACCEPT"\n'})


def test_diff_outside_git_is_of_what_still_stands(play: Callable[..., None], project: Path) -> None:
    shutil.rmtree(project / ".git")
    script = WRITES + WRITES.replace("new.txt", "other.txt")

    async def what(hand: Hand) -> None:
        await hand.type("go")
        await hand.done(1)
        await hand.type("and on")
        await hand.done(2)
        await hand.type("/diff")
        await hand.sees("1 file, +1 -0", "other.txt", "1 + x")
        await hand.pilot.press("escape")
        await hand.type("/diff all")
        await hand.sees("2 files, +2 -0", "new.txt", "other.txt")
        await hand.pilot.press("escape")
        await hand.type("/undo")
        await hand.sees("Undo the newest request?")
        await hand.pilot.press("y")
        await hand.sees("undone by the user")
        await hand.type("/diff")
        await hand.sees("nothing changed since the newest request began")
        await hand.type("/copy diff")
        await hand.sees("there is nothing to copy yet")

    play(what, {"small": script, "large": 2 * '[[step]]\ntext = "ACCEPT"\n'})


def test_blame_names_who_wrote_each_line(play: Callable[..., None], project: Path) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("go")
        await hand.done(1)
        await hand.type("/blame")
        await hand.sees(
            "Who wrote what this session changed", "new.txt  +1 -0", "1 small worker +x"
        )
        await hand.pilot.press("escape")
        (project / "new.txt").write_text("x\nmine\n")
        await hand.type("/blame new.txt")
        await hand.sees("Who wrote new.txt", "1 small worker 1  x", "-              2  mine")
        await hand.pilot.press("escape")
        await hand.type("/blame none.txt")
        await hand.sees("there is no file")

    play(what, {"small": WRITES, "large": '[[step]]\ntext = "ACCEPT"\n'})


def test_what_was_typed_whole_is_completed_first() -> None:
    """Enter takes the first completion, and some names begin like others."""

    async def do(controller: SessionController, argument: str) -> None:
        raise AssertionError("completing runs nothing")

    commands = [
        SlashCommand("pins", "", do),
        SlashCommand("pin", "", do, "AGENT", lambda _: ("gpt-5-mini", "GPT-5", "opus")),
    ]

    def offered(line: str) -> list[str]:
        controller = cast(SessionController, None)
        return [choice.value for choice in command_choices(commands, controller, line)]

    assert offered("/pin gpt-5") == ["/pin GPT-5", "/pin gpt-5-mini"]
    assert offered("/pin gpt-5-") == ["/pin gpt-5-mini"]
    assert offered("/pin opus") == []
    assert offered("/pin") == ["/pin ", "/pins"]


def test_pin_exclude_and_pool_choose_who_works(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/pin nobody")
        await hand.sees("there is no agent 'nobody'", "there are small, large")
        await hand.type("/pin large")
        await hand.sees("pinned to large (/pin auto to unpin)", "pinned large")
        await hand.type("go")
        await hand.done(1)
        await hand.type("/pin auto")
        await hand.type("/exclude small")
        await hand.sees("small excluded (/exclude small to")
        await hand.type("/exclude large")
        await hand.sees("this would leave nobody to work")
        await hand.type("/pool")
        await hand.sees("The pool: choose an agent to pin it", "excluded")
        await hand.pilot.press("down", "enter")
        await hand.until(lambda: hand.controller.work.pinned == "small")
        assigned = [
            event for event in hand.controller.session.log.events if event.type == "assigned"
        ]
        assert [(event.agent, event.by) for event in assigned] == [("large", "single")]

    play(what)


def test_retry_takes_the_changes_back_and_asks_the_named_agent(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/retry")
        await hand.sees("nothing was asked yet")
        await hand.type("go")
        await hand.done(1)
        await hand.type("/retry large")
        await hand.sees("Take back what was done, and ask again?")
        await hand.pilot.press("y")
        await hand.done(2)
        assigned = [
            event.agent for event in hand.controller.session.log.events if event.type == "assigned"
        ]
        assert assigned == ["small", "large", "large"]
        assert not (project / "new.txt").exists()
        assert hand.controller.work.pinned is None

    play(what, {"small": WRITES, "large": '[[step]]\ntext = "ACCEPT"\n' + ANSWER})


def test_a_hook_that_failed_is_said_when_the_request_is_over(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        broken = Hook(moment="PreToolUse", command="exit 7", source="hooks.json", own=True)
        session = hand.controller.session
        assert isinstance(session, DemoSession)
        hooks = Hooks(HookRunner(DeclaredHooks((broken,)), {"session_id": "s"}, lambda said: None))
        session.environment = replace(session.environment, hooks=hooks)
        await hand.type("go")
        await hand.done(1)
        await hand.sees("the PreToolUse hook `exit 7` in hooks.json failed", "it was passed over")

    play(what, {"small": WRITES, "large": '[[step]]\ntext = "ACCEPT"\n'})


def test_cost_mode_permissions_tier_and_doctor_say_how_things_stand(
    play: Callable[..., None],
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/cost")
        await hand.sees("$0 in this session", "no agent was called yet")
        await hand.type("/mode")
        await hand.sees("the mode is edit: changes files, and runs commands")
        await hand.type("/mode nonsense")
        await hand.sees("there is no mode 'nonsense'")
        await hand.type("/mode yolo")
        await hand.sees("yolo: never asks")
        assert hand.controller.session.environment.rules.mode == "yolo"
        await hand.type("/permissions")
        await hand.sees("mode yolo: never asks", "stored in memory")
        await hand.type("/tier")
        await hand.sees("the tier is fugu")
        await hand.type("/tier ultra")
        await hand.sees("the tier 'ultra' is not there")
        await hand.type("/doctor")
        await hand.sees("git:")
        await hand.type("/compact")
        await hand.sees("there is nothing to shorten yet")

    play(what)


def test_an_effort_holds_for_one_request_or_from_the_next_one_on(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/pin large")
        await hand.type("/effort")
        await hand.sees("the effort is auto")
        await hand.type("/effort huge")
        await hand.sees("there is no effort 'huge'")
        await hand.type("/effort high what is this?")
        await hand.done(1)
        await hand.type("/effort low")
        await hand.sees("effort low; it says nothing to small, large")
        await hand.type("and that?")
        await hand.done(2)
        efforts = [
            event.effort for event in hand.controller.session.log.events if isinstance(event, Asked)
        ]
        assert efforts == ["high", "low"]

    play(what)


def test_sessions_are_resumed_forked_and_renamed(
    play: Callable[..., None], stored: str, opener: DemoSessionOpener, shown: Shown
) -> None:
    async def what(hand: Hand) -> None:
        path = hand.controller.session.log.path
        assert path is not None
        first = path.stem
        await hand.type("/sessions")
        await hand.sees("Sessions of this folder", "fix the failing test in src/add.py")
        await hand.pilot.press(*"failing", "enter")
        await hand.sees("stopped: turn limit")
        await hand.type("/rename the sign")
        await hand.sees(f"{stored} is called 'the sign' now")
        await hand.type("/fork")
        await hand.sees(f"this is a copy of {stored}")
        await hand.type(f"/resume {first}")
        await hand.until(lambda: hand.controller.session.log.path == path)
        await hand.type(f"/resume {first}")
        await hand.sees("this session is open already")
        await hand.type("/resume nonsense")
        await hand.sees("there is no session 'nonsense'")
        await hand.type("/new")
        await hand.until(
            lambda: (
                hand.controller.work.session is not None
                and hand.controller.session.log.path != path
            )
        )
        await hand.type("/sessions the sign")
        await hand.sees("the sign")
        await hand.pilot.press("ctrl+e")
        await hand.until(lambda: hand.app.main.query_one(PromptInput).text == f"/rename {stored} ")

    play(what)
    assert [one.title for one in opener.listed() if one.id == stored] == ["the sign"]


def test_export_writes_markdown_and_overwrites_nothing(
    play: Callable[..., None], stored: str, project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/export out.md")
        await hand.sees("written to")
        await hand.type("/export out.md")
        await hand.sees("exists already")
        await hand.type("/export")
        await hand.until(lambda: any((Path.home() / "state" / "exports").glob("fugu-*.md")))
        await hand.type("/export nowhere/out.md")
        await hand.sees("cannot write nowhere/out.md: No such file or directory")
        await hand.type("/export ~nobody/out.md")
        await hand.sees("cannot write ~nobody/out.md: No such file or directory")
        await hand.type("/export " + "a" * 300)
        await hand.sees("name too long")

    play(what, resume=stored)
    text = (project / "out.md").read_text()
    assert text.startswith(
        "## fix the failing test in src/add.py\n\n`run_tests`: failed\n\n**small**"
    )
    assert (
        "```diff\n--- src/add.py\n+++ src/add.py\n@@ -1 +1 @@\n-    return a - b\n+    return a "
        "+ b\n```" in text
    )


def test_a_request_whose_call_was_lost_is_announced_once(
    play: Callable[..., None], opener: DemoSessionOpener
) -> None:
    folder = store.session_folder(opener.data, opener.root)
    folder.mkdir(parents=True)
    events: list[Event] = [
        Opened(version="1", repo=str(opener.root)),
        Asked(text="go"),
        Assigned(turn=1, agent="small", role="worker", by="cascade"),
        Interrupted(turn=0, agent="small", reason="fugu was killed"),
    ]
    records = [Recorded(seq=seq, at=float(seq), event=event) for seq, event in enumerate(events)]
    lines = b"".join(RECORDED.dump_json(record) + b"\n" for record in records)
    (folder / "20251009-085320-cafe.jsonl").write_bytes(lines)

    async def what(hand: Hand) -> None:
        await hand.type("/resume 20251009-085320-cafe")
        await hand.sees("interrupted; /continue goes on")
        assert "this request was not finished" not in hand.text

    play(what)


def test_an_unfinished_request_is_announced_and_continued(
    play: Callable[..., None], opener: DemoSessionOpener
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/continue")
        await hand.sees("the newest request has come to its end")
        await hand.type("go")
        await hand.until(lambda: "assigned" in hand.kinds())
        await hand.pilot.press("escape")
        await hand.until(lambda: not hand.controller.work.running)
        path = hand.controller.session.log.path
        assert path is not None
        await hand.type("/new")
        await hand.until(
            lambda: (
                hand.controller.work.session is not None
                and hand.controller.session.log.path != path
            )
        )
        opener.scripts = {"small": ANSWER}
        await hand.type(f"/resume {path.stem}")
        await hand.sees("interrupted; /continue goes on")
        assert "this request was not finished" not in hand.text
        await hand.type("/continue")
        await hand.done(1)

    play(what, {"small": '[[step]]\ntext = "slow"\ndelay = 30\n'})


def test_trace_and_copy_and_notify(play: Callable[..., None], stored: str) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/trace 9")
        await hand.sees("there is no turn 9")
        await hand.type("/trace 2")
        await hand.sees("request 1, turn 2: coder as worker")
        await hand.pilot.press("escape")
        await hand.type("/trace last")
        await hand.sees("request 2, turn 1: ")
        await hand.sees("p pins · x excludes · r retries")
        await hand.pilot.press("left", "left", "p")
        await hand.sees("pinned to large (")
        before = hand.app.main.query_one(Trace).display
        await hand.type("/trace")
        await hand.until(lambda: hand.app.main.query_one(Trace).display is not before)
        await hand.type("/copy")
        await hand.until(lambda: hand.app.clipboard == "It is written.")
        await hand.type("/notify on")
        await hand.until(lambda: hand.app.main.preferences.current.notify)
        await hand.type("/notify maybe")
        await hand.sees("on or off?")

    play(what, resume=stored)


def test_a_command_of_the_users_own_is_run_and_can_be_told(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("!echo out; echo err >&2; exit 3")
        await hand.sees("$ echo out; echo err >&2; exit 3", "out", "err", "[exit code 3]")
        assert hand.kinds() == ["opened"]
        await hand.type("!! printf '\\033[31mred\\n'")
        await hand.sees("red")
        await hand.until(lambda: not hand.controller.shell.running)
        await hand.type("what was that?")
        await hand.until(lambda: "asked" in hand.kinds())
        asked = next(event for event in hand.controller.session.log.events if event.type == "asked")
        assert asked.text.startswith("what was that?\n\n[The user ran `printf")

    play(what)


def test_what_is_to_be_told_waits_until_the_request_is_made(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("go")
        await hand.until(lambda: "assigned" in hand.kinds())
        await hand.type("!!echo told")
        await hand.until(lambda: not hand.controller.shell.running and "$ echo told" in hand.text)
        await hand.type("second", "tab")
        await hand.sees("queued: second")
        await hand.pilot.press("up")
        prompt = hand.app.main.query_one(PromptInput)
        await hand.until(lambda: prompt.text == "second")
        await hand.pilot.press("!", "ctrl+s")
        await hand.done(1)
        asked = [
            event.text for event in hand.controller.session.log.events if event.type == "asked"
        ]
        assert asked[1] == "second!\n\n[The user ran `echo told`; exit code 0; its output:]\ntold\n"

    play(what, {"small": '[[step]]\ntext = "Slow."\ndelay = 30\n' + ANSWER})


@pytest.mark.parametrize("line", ["/new", "/resume", "/fork", "/sessions"])
def test_another_session_is_not_opened_over_what_is_under_way(
    play: Callable[..., None], stored: str, line: str
) -> None:
    async def what(hand: Hand) -> None:
        session = hand.controller.session
        await hand.type("go")
        await hand.until(lambda: "assigned" in hand.kinds())
        await hand.type("then", "tab")
        await hand.sees("queued: then")
        await hand.type(line)
        if line == "/sessions":
            await hand.sees("Sessions of this folder")
            await hand.until(lambda: len(hand.app.screen_stack) == 2)
            await hand.pilot.press(*"failing", "enter")
        await hand.sees("a request is being worked on", "stop it with Esc")
        await hand.pilot.press("escape")
        await hand.until(lambda: not hand.controller.work.running)
        await hand.type("/new")
        await hand.sees("1 request in the queue would be dropped")
        assert (hand.controller.session, [typed.text for typed in hand.controller.work.queue]) == (
            session,
            ["then"],
        )
        await hand.pilot.press("up", "ctrl+c")
        await hand.type("/new")
        await hand.until(lambda: hand.controller.work.session not in (session, None))

    play(what, {"small": '[[step]]\ntext = "Slow."\ndelay = 30\n' + ANSWER})


def test_a_command_of_the_users_own_outlives_the_session_it_was_begun_in(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("!until [ -e go ]; do sleep 0.02; done; echo late")
        await hand.sees("$ until")
        await hand.type("/new")
        await hand.until(lambda: "$ until" not in hand.text)
        (project / "go").touch()
        await hand.until(lambda: not hand.controller.shell.running)
        await hand.type("and now?")
        await hand.done(1)
        assert "late" not in hand.text

    play(what)


def test_escape_ends_a_command_of_the_users_own_and_its_children(
    play: Callable[..., None], project: Path
) -> None:
    async def what(hand: Hand) -> None:
        await hand.type(
            "!(until [ -e go ]; do sleep 0.05; done; touch late) & sleep 30; touch later"
        )
        await hand.until(lambda: hand.controller.shell.running)
        await hand.type("!true")
        await hand.sees("a command of yours is still running")
        await hand.pilot.press("escape")
        await hand.until(lambda: not hand.controller.shell.running)
        (project / "go").touch()
        await hand.pilot.pause(0.6)
        assert sorted(path.name for path in project.iterdir()) == [".git", "go", "kept.txt"]

    play(what)


def test_what_is_typed_before_the_session_is_there_waits(
    opened: Callable[..., FuguApp], opener: DemoSessionOpener
) -> None:
    opener.scripts = {"small": ANSWER}

    async def whole() -> list[str]:
        app = opened()
        async with app.run_test(size=(80, 24)):
            app.main.enter("early")
            for _ in range(600):
                controller = app.main.controller
                if (
                    controller is not None
                    and controller.work.session is not None
                    and not controller.work.running
                ):
                    kinds = [event.type for event in controller.work.session.log.events]
                    if "finished" in kinds:
                        return kinds
                await asyncio.sleep(0.01)
        raise AssertionError("the early request was lost")

    assert asyncio.run(whole()) == ["opened", "asked", "assigned", "replied", "finished"]


def test_a_session_that_is_open_elsewhere_is_not_taken(
    opened: Callable[..., FuguApp], opener: DemoSessionOpener, stored: str, shown: Shown
) -> None:
    from fugu_cli.session import log, store

    held = log.Log.open(store.find_session(opener.data, opener.root, stored))

    async def whole() -> str:
        app = opened(resume=stored)
        async with app.run_test(size=(80, 24)):
            for _ in range(600):
                if "is open in another process" in shown(app):
                    break
                await asyncio.sleep(0.01)
            return shown(app)

    text = asyncio.run(whole())
    held.close()
    assert f"session {stored} is open in another process" in text
    assert "--fork-session" in text


def test_quit_leaves(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/quit")
        await hand.until(lambda: not hand.app.is_running)

    play(what)


def test_jobs_are_listed_with_what_they_printed_last_and_stopped(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("/jobs")
        await hand.sees("no background job is running")
        await hand.type("/mode yolo")
        await hand.type("serve it")
        await hand.sees("started as job1", "1 job")
        await hand.done(1)
        jobs = hand.controller.session.environment.workspace.jobs
        await hand.until(lambda: all("up" in job.tail for job in jobs.running))
        await hand.type("/jobs")
        await hand.sees("1 background job; /jobs stop JOB ends one", "echo up; sleep 600")
        await hand.type("/jobs stop job7")
        await hand.sees(
            "no running job is meant by 'stop job7'",
            "/jobs stop JOB or /jobs stop all; there are job1",
        )
        await hand.type("/jobs stop all")
        await hand.until(lambda: not jobs.running)
        assert jobs.find("job1").end.by == "user"  # type: ignore[union-attr]

    serves = (
        '[[step]]\ncalls = [{ tool = "bash", arguments = { command = "echo up; sleep 600", '
        "background = true } }]\n"
    )
    play(what, {"small": serves + ANSWER, "large": serves + ANSWER})


def test_the_todo_list_is_shown_whole_where_it_was_made(play: Callable[..., None]) -> None:
    async def what(hand: Hand) -> None:
        await hand.type("do it")
        await hand.sees("✓ todo 1 of 3 done: act", "    ☑ look", "    ◐ act", "    ☐ rest")

    stands = {"look": "done", "act": "in_progress", "rest": "pending"}
    items = [f'{{ text = "{text}", status = "{status}" }}' for text, status in stands.items()]
    makes = (
        f'[[step]]\ncalls = [{{ tool = "todo", arguments = {{ items = [{", ".join(items)}] }} }}]\n'
    )
    play(what, {"small": makes + ANSWER, "large": makes + ANSWER})


def test_commit_writes_a_message_into_the_prompt_and_sending_it_commits(
    play: Callable[..., None], project: Path
) -> None:
    answer = project.parent / "answer.toml"
    answer.write_text('[[step]]\ntext = \'{"message": "add new.txt"}\'\n')
    entry = f'[[agents]]\nname = "writer"\nprovider = "scripted"\nmodel = "{answer}"\n'
    (Path.home() / ".fugurc").write_text(entry)

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=project, check=True, capture_output=True, text=True
        ).stdout

    git("init", "-q", "--template=")
    git("commit", "-q", "--allow-empty", "-m", "start")
    (project / "fugu_cli").mkdir()
    (project / "fugu_cli/__init__.py").write_text("raise SystemExit('the repository's own')\n")

    async def what(hand: Hand) -> None:
        prompt = hand.app.main.query_one(PromptInput)
        await hand.type("/commit")
        await hand.sees("nothing is staged", "[exit code 1]")
        (project / "new.txt").write_text("new\n")
        git("add", "new.txt")
        await hand.type("/commit")
        prompt.put("my next request")
        await hand.sees("the message is written: Up shows it")
        await hand.pilot.press("up")
        await hand.until(lambda: prompt.text == "/commit add new.txt")
        await hand.pilot.press("down")
        await hand.until(lambda: prompt.text == "my next request")
        prompt.put("")
        await hand.type("/commit")
        await hand.until(lambda: prompt.text == "/commit add new.txt")
        await hand.type(f"{prompt.text} for all")
        await hand.sees("committing what is staged", "1 file changed")
        await hand.until(lambda: git("log", "-1", "--format=%s").strip() == "add new.txt for all")
        assert hand.kinds() == ["opened"]
        (project / "new.txt").write_text("the user's\n")
        await hand.type("go")
        await hand.done(1)
        await hand.type("/commit")
        await hand.sees("/commit -r commits the files of the newest request")
        await hand.type("/commit -r")
        await hand.sees("writing a commit message for made.txt")
        await hand.until(lambda: prompt.text == "/commit -r add new.txt")
        await hand.type(f"{prompt.text} of a request")
        await hand.until(lambda: git("log", "-1", "--format=%s").strip().endswith("of a request"))
        assert git("show", "--format=", "--name-only").split() == ["made.txt"]

    play(what, {"small": WRITES.replace("new.txt", "made.txt"), "large": ANSWER})
