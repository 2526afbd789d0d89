"""The real `fugu` in a pseudo-terminal, with a model on this machine that speaks the real wire
format.
"""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.session import log as logs
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import KEY, Breaks, Loopback, Refuses, Says, Use
from tests.unit.ui.tui.conftest import ready
from tests.unit.ui.tui.terminal import Terminal

READ = Use("read", {"path": "calc.txt"})
WRITE = Use("write", {"path": "calc.txt", "content": "fixed\n"})
SHELL = Use("bash", {"command": "echo one > made.txt"})
ASKS_ABOUT_SHELL = 'test_command = "sh check.sh"\nask = ["bash(echo *)"]'
EVIL = (
    "\x1b]0;EVIL\x07\x1b[2J\x1b[31mred\x1b[0m\x1b]52;c;RVZJTA==\x07 \x9b31m \x07 שלום 👩‍👩‍👧 日本 "
    "\u202eturned " + "x" * 10_000
)

LATE = """
import threading, time
run = threading.Thread.run
def late(self):
    if self.name == "textual-input":
        time.sleep(0.5)
    run(self)
threading.Thread.run = late
"""
"""A busy machine, on which the thread that reads the terminal comes late."""


def test_where_no_session_can_open_the_reason_is_on_the_screen(
    place: Place, fugu: Callable[..., Terminal]
) -> None:
    place.configure(Agent("m"))
    terminal = fugu(LOOPBACK_KEY="")
    terminal.sees("m: LOOPBACK_KEY is not set")
    terminal.keys("/doctor\r")
    terminal.sees("missing  pool")
    terminal.keys("/quit\r")
    assert terminal.ended() == 0


def test_a_day_at_work(place: Place, server: Loopback, fugu: Callable[..., Terminal]) -> None:
    """Prompt, edit, approval, undo, interrupt, resume."""
    place.configure(Agent("m", more='protocol = "native"'), more=ASKS_ABOUT_SHELL)
    server.play(
        "m",
        Says("Looking.", (READ, WRITE)),
        Says("", (SHELL,)),
        Says("Fixed."),
        Says("ACCEPT"),
        Says("..", pause=30),
    )
    terminal = ready(fugu())
    terminal.keys("fix the failing test\r")
    terminal.sees("Allow bash?", "echo one > made.txt")
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    assert not (place.repo / "made.txt").exists()
    terminal.keys("y")
    terminal.sees("accepted by its own author")
    assert (place.repo / "made.txt").read_text() == "one\n"
    terminal.keys("/undo\r")
    terminal.sees("Undo the newest request?", "- fixed")
    terminal.keys("y")
    terminal.sees("undone by the user")
    assert (place.repo / "calc.txt").read_text() == "broken\n"
    assert not (place.repo / "made.txt").exists()
    terminal.keys("explain it\r")
    terminal.sees("waiting for m")
    terminal.keys("\x1b")
    terminal.sees("interrupted; /continue goes on")
    terminal.keys("\x04")
    assert terminal.ended() == 0
    assert terminal.screen.unknown == []

    server.play("m", Says("It was broken."))
    again = ready(fugu())
    again.keys("/sessions fix\r")
    again.sees("Sessions of this folder")
    again.keys("\r")
    again.sees("interrupted; /continue goes on")
    again.keys("/continue\r")
    again.sees("✓ done", "It was broken.")
    again.keys("\x03\x03")
    assert again.ended() == 0
    kinds = [record.event.type for record in logs.read(place.sessions()[0])]
    assert (kinds.count("asked"), kinds.count("interrupted"), kinds.count("undone")) == (2, 1, 1)


def test_agents_go_on_while_a_request_is_written_in_the_editor(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    go = place.folder / "go"
    editor = place.folder / "editor.sh"
    wait = f'while [ ! -e "{go}" ]; do sleep 0.05; done'
    editor.write_text(f'#!/bin/sh\necho "in the editor"\n{wait}\necho "and more" >> "$1"\n')
    editor.chmod(0o755)
    server.play("m", Says("word " * 60, slow=0.02), Says("Again."))
    terminal = ready(fugu(EDITOR=str(editor)))
    terminal.keys("explain\r")
    terminal.sees("word word")
    terminal.keys("draft\x07")
    terminal.sees("in the editor")
    (path,) = place.sessions()
    end = time.monotonic() + 20
    while logs.read(path)[-1].event.type != "finished":
        assert time.monotonic() < end, "the agents stand still"
        time.sleep(0.05)
    assert "✓ done" not in terminal.screen.text
    go.touch()
    terminal.sees("✓ done", "draft", "and more")
    terminal.keys("\r")
    terminal.sees("Again.")
    terminal.keys("\x04")
    assert terminal.ended() == 0


def test_a_killed_session_goes_on(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("working", pause=30))
    terminal = ready(fugu())
    terminal.keys("explain calc\r")
    terminal.sees("waiting for m")
    terminal.kill()
    server.play("m", Says("It calculates."))
    again = ready(fugu())
    again.keys("/resume\r")
    again.sees("/continue goes on")
    again.keys("/continue\r")
    again.sees("It calculates.", "✓ done")


def test_what_is_typed_before_the_first_frame_is_not_lost(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("It calculates."))
    terminal = fugu()
    terminal.keys("explain calc\r")
    terminal.sees("▌ explain calc", "It calculates.", "✓ done")


def test_nor_where_the_prompt_is_there_before_it_is_read(
    place: Place, server: Loopback, fugu: Callable[..., Terminal], tmp_path: Path
) -> None:
    (tmp_path / "sitecustomize.py").write_text(LATE)
    server.play("m", Says("It calculates."))
    terminal = fugu(PYTHONPATH=str(tmp_path))
    terminal.keys("explain calc\r")
    terminal.sees("▌ explain calc", "It calculates.", "✓ done")


def test_a_session_is_summed_up_looked_at_and_gone_on_with(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("It calculates."), Says("Known: it calculates."))
    terminal = ready(fugu())
    terminal.keys("explain calc\r")
    terminal.sees("✓ done")
    terminal.keys("/compact\r")
    terminal.sees("summed up by m", "Known: it calculates.", "1. explain calc")
    terminal.keys("\x04")
    assert terminal.ended() == 0

    view = fugu("trace")
    view.sees("trace of ", "1 explain calc", "enter opens it")
    view.keys("\r")
    view.sees("request 1, turn 1: m as worker", "1 The decision", "What m was shown")
    view.keys("qq")
    assert view.ended() == 0
    printed = fugu("trace", "--plain")
    printed.sees("request 1: explain calc", "total:")
    assert printed.ended() == 0

    again = ready(fugu("--continue"))
    again.sees("explain calc", "summed up by m")
    again.keys("\x04")
    assert again.ended() == 0


def test_a_terminal_that_cannot_be_drawn_on_gets_the_inline_mode(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("It calculates."))
    command = [shutil.which("env") or "env", "TERM=dumb", sys.executable, "-m", "fugu_cli"]
    terminal = Terminal(command, place.repo, place.environ(), (100, 34))
    ready(terminal).keys("explain calc\r")
    terminal.sees("It calculates.", "✓ done")
    terminal.keys("\x04")
    assert terminal.ended() == 0
    terminal.close()
    assert b"\x1b[?1049h" not in terminal.raw  # no full screen


def test_a_question_that_nobody_looks_at_is_told_to_the_desktop(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    place.configure(Agent("m", more='protocol = "native"'), more=ASKS_ABOUT_SHELL)
    server.play("m", Says("", (SHELL,)), Says("Done."), Says("ACCEPT"))
    terminal = ready(fugu())
    terminal.keys("make a file\r")
    terminal.keys("\x1b[O")  # the terminal has lost the focus
    terminal.sees("Allow bash?")
    end = time.monotonic() + 10
    while b"\x1b]9;" not in terminal.raw and time.monotonic() < end:
        terminal.read()
    assert [text for text in terminal.screen.strings if text.startswith(b"\x1b]9;")] == [
        b"\x1b]9;fugu asks: bash(echo one > made.txt)\x07"
    ]
    terminal.keys("\x1b[I")
    terminal.keys("n")
    terminal.sees("Done.")


def test_nothing_a_model_says_reaches_the_terminal_as_an_order(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    evil = Use("bash", {"command": "printf '\\033]0;EVIL\\007\\033[2Jout\\n'"})
    place.configure(Agent("m", more='protocol = "native"'), more='permission_mode = "yolo"')
    server.play("m", Says(EVIL, (evil,)), Says(EVIL + "\n\nthe end"))
    terminal = ready(fugu())
    terminal.keys("explain it\r")
    terminal.sees("the end")
    terminal.keys("\x0f")
    terminal.sees("✓ done")
    written = bytes(terminal.raw)
    assert terminal.screen.unknown == []
    assert [text for text in terminal.screen.strings if b"EVIL" in text or b"RVZJTA" in text] == []
    assert (
        b"\x1b]0;" not in written
        and b"\x1b]52;" not in written
        and "\u202e".encode() not in written
    )


def test_the_screen_follows_a_storm_of_sizes(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("word " * 2000, slow=0.002))
    terminal = ready(fugu())
    terminal.keys("explain it\r")
    for size in [(40, 10), (200, 60), (20, 5), (81, 24), (300, 8), (60, 15), (100, 34)] * 3:
        terminal.resize(size)
        terminal.read(0.01)
    terminal.sees("✓ done")
    terminal.resize((90, 25))
    screen = terminal.sees("✓ done", " (")
    assert "word word" in screen
    assert max(len(line) for line in screen.splitlines()) <= 90


def test_a_stopped_process_paints_everything_again_when_it_goes_on(
    fugu: Callable[..., Terminal],
) -> None:
    terminal = ready(fugu())
    os.kill(terminal.pid, signal.SIGTSTP)
    _, status = os.waitpid(terminal.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    while terminal.read():
        pass
    terminal.resize((100, 34))  # an empty screen of the same size
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.sees("coordinator: cascade · agents: m", "ask for something")
    terminal.keys("\x04")
    assert terminal.ended() == 0


def test_and_so_does_one_that_nobody_told_of_the_stop(fugu: Callable[..., Terminal]) -> None:
    terminal = ready(fugu())
    os.kill(terminal.pid, signal.SIGSTOP)
    _, status = os.waitpid(terminal.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    terminal.resize((100, 34))  # what the shell and other programs left
    os.kill(terminal.pid, signal.SIGCONT)
    terminal.sees("coordinator: cascade · agents: m", "ask for something")
    terminal.keys("typed")
    terminal.sees("› typed")
    terminal.keys("\x03\x04")
    assert terminal.ended() == 0


@pytest.mark.skipif(
    not hasattr(ctypes.CDLL(None), "tgkill"), reason="threads cannot be told by themselves here"
)
def test_and_one_of_which_another_thread_was_told_that_it_goes_on(
    fugu: Callable[..., Terminal],
) -> None:
    """The kernel chooses the thread; the main one sleeps until something happens."""
    terminal = ready(fugu())
    os.kill(terminal.pid, signal.SIGTSTP)
    os.waitpid(terminal.pid, os.WUNTRACED)
    terminal.resize((100, 34))
    others = [
        int(task.name)
        for task in Path(f"/proc/{terminal.pid}/task").iterdir()
        if task.name != str(terminal.pid)
    ]
    assert ctypes.CDLL(None).tgkill(terminal.pid, others[0], signal.SIGCONT) == 0
    terminal.sees("coordinator: cascade · agents: m", "ask for something")
    terminal.keys("\x04")
    assert terminal.ended() == 0


def test_selecting_with_the_mouse_unfolds_nothing(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("", (READ,)), Says("See above."))
    terminal = ready(fugu())
    terminal.keys("explain it\r")
    screen = terminal.sees("✓ done", "✓ read calc.txt")
    row = next(
        y for y, line in enumerate(screen.splitlines(), start=1) if "✓ read calc.txt" in line
    )
    terminal.keys(f"\x1b[<0;6;{row}M\x1b[<32;8;{row}M\x1b[<32;14;{row}M\x1b[<0;14;{row}m")
    terminal.keys("typed")
    assert "broken" not in terminal.sees("› typed")
    terminal.keys(f"\x1b[<0;6;{row}M\x1b[<0;6;{row}m")
    terminal.sees("broken")
    terminal.keys("\x03\x04")
    assert terminal.ended() == 0


def test_ctrl_z_goes_back_to_the_shell_and_fg_goes_on(place: Place) -> None:
    environ = {**place.environ(), "PS1": "shell> "}
    terminal = Terminal(["/bin/bash", "--norc", "--noprofile", "-i"], place.repo, environ)
    terminal.sees("shell>")
    terminal.keys(
        f"sh -c '{sys.executable} -m fugu_cli; echo ended with $?'\r"
    )  # a wrapper stops with it
    ready(terminal).keys("half a")
    terminal.sees("› half a")
    terminal.keys("\x1a")
    terminal.sees("Stopped")
    terminal.resize((100, 30))  # what the shell left
    terminal.keys("fg\r")
    terminal.sees("coordinator: cascade · agents: m", "› half a")
    terminal.keys(" line\x1b\rand one more")
    terminal.sees("› half a line", "  and one more")
    terminal.keys("\x03\x04")
    terminal.sees("ended with 0")
    terminal.close()


def test_ctrl_z_stops_nothing_where_no_shell_could_go_on_with_it(
    fugu: Callable[..., Terminal],
) -> None:
    terminal = ready(fugu())
    terminal.keys("half a\x1a line")
    terminal.sees("half a line", "no shell to go back to")
    terminal.keys("\x03\x04")
    assert terminal.ended() == 0


def test_a_paste_is_text_whatever_it_holds(place: Place, fugu: Callable[..., Terminal]) -> None:
    terminal = ready(fugu())
    terminal.keys("\x1b[200~see \x1b[31mred\rline 2\r!touch pwned\rcaf\udce9\x1b[20")
    time.sleep(0.3)
    terminal.keys("1~")
    screen = terminal.sees("› see [31mred", "!touch pwned", "caf\ufffd")
    assert "$ touch" not in screen and not (place.repo / "pwned").exists()
    terminal.keys("\x03\x04")
    assert terminal.ended() == 0


def test_ctrl_z_is_no_letter_in_the_inline_mode(fugu: Callable[..., Terminal]) -> None:
    """It stops the process, where a shell is there to go on with it; here none is."""
    terminal = ready(fugu("--inline"))
    terminal.keys("half a\x1a line")
    terminal.sees("half a line")
    terminal.keys("\x03\x04")
    assert terminal.ended() == 0


def test_without_colours_every_state_still_has_its_sign(
    place: Place, server: Loopback, fugu: Callable[..., Terminal], monkeypatch: pytest.MonkeyPatch
) -> None:
    server.play("m", Says("Looking.", (READ, WRITE)), Says("Fixed."), Says("ACCEPT"))
    environ = {**place.environ(), "NO_COLOR": "1"}
    terminal = Terminal([sys.executable, "-m", "fugu_cli"], place.repo, environ, (100, 34))
    ready(terminal).keys("fix the failing test\r")
    terminal.sees("✓ write calc.txt", "✓ checks: 1 test passes", "accepted by its own author m")
    terminal.keys("\x04")
    terminal.ended()
    terminal.close()
    colours = {
        part
        for part in bytes(terminal.raw).split(b"\x1b[")
        if part.startswith((b"38;2;", b"48;2;"))
    }
    greys = {tuple(part.split(b"m")[0].split(b";")[2:5]) for part in colours}
    assert all(len(set(rgb)) == 1 for rgb in greys)


def test_the_inline_mode_searches_what_was_typed_before(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("First."), Says("Second."), Says("Third."))
    terminal = ready(fugu("--inline"))
    terminal.keys("explain this\r")
    terminal.sees("First.")
    terminal.keys("explain that\r")
    terminal.sees("Second.")
    terminal.keys("\x12is")
    terminal.sees("I-search", "› explain this")
    terminal.keys("\r")
    terminal.until(lambda screen: "I-search" not in screen)
    terminal.keys("\r")
    terminal.sees("Third.")
    terminal.keys("\x12that\x03")
    terminal.until(lambda screen: "I-search" not in screen)
    terminal.keys("\x04")
    assert terminal.ended() == 0
    asked = [
        fact for record in logs.read(place.sessions()[0]) if (fact := record.event).type == "asked"
    ]
    assert [fact.text for fact in asked] == ["explain this", "explain that", "explain this"]


def test_a_session_that_is_open_elsewhere_is_said_once(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("First."))
    busy = ready(fugu())
    busy.keys("explain this\r")
    busy.sees("✓ done")
    for arguments in (("--continue",), ("--inline", "--continue")):
        screen = ready(fugu(*arguments)).sees("is open in another process")
        assert screen.count("is open in another process") == 1


def test_the_inline_mode_does_the_same_in_the_scrollback(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    place.configure(Agent("m", more='protocol = "native"'), more=ASKS_ABOUT_SHELL)
    server.play(
        "m",
        Says("Looking.", (READ, WRITE)),
        Says("", (SHELL,)),
        Says("Fixed."),
        Says("ACCEPT"),
        Says("..", pause=30),
    )
    terminal = ready(fugu("--inline"))
    terminal.keys("fix the failing test\r")
    terminal.sees("Allow bash?", "y yes, once", "esc denies")
    terminal.keys("but why")
    terminal.sees("but why", "ctrl+c, then y or n")
    terminal.keys("\x03")
    terminal.sees("y yes, once", "esc denies")
    time.sleep(0.5)
    terminal.keys("y")
    terminal.sees("accepted by its own author")
    assert (place.repo / "made.txt").read_text() == "one\n"
    terminal.keys("/undo\r")
    terminal.sees("y or n")
    terminal.keys("y\r")
    terminal.sees("undone by the user")
    assert not (place.repo / "made.txt").exists()
    terminal.keys("explain it\r")
    terminal.sees("waiting for m")
    terminal.keys("\x1b")
    terminal.sees("interrupted; /continue goes on")
    terminal.keys("\x04")
    assert terminal.ended() == 0
    assert terminal.screen.unknown == []


def test_in_the_inline_mode_a_no_may_say_what_to_do_instead(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    place.configure(Agent("m", more='protocol = "native"'), more=ASKS_ABOUT_SHELL)
    server.play("m", Says("", (SHELL,)), Says("Not made."))
    terminal = ready(fugu("--inline"))
    terminal.keys("make it\r")
    terminal.sees("Allow bash?", "t no, and tell it what to do instead")
    time.sleep(0.5)
    terminal.keys("t")
    terminal.sees("No. Tell it what to do instead (esc goes back)")
    terminal.keys("write it with write\r")
    terminal.sees("denied by you: write it with write", "Not made.")
    assert not (place.repo / "made.txt").exists()
    terminal.keys("\x04")
    assert terminal.ended() == 0


def test_in_the_inline_mode_a_key_is_typed_unseen(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    (place.home / ".fugurc").unlink()
    place.variables["OPENAI_BASE_URL"] = server.url
    terminal = fugu("--inline")
    terminal.sees("What shall fugu work with?")
    terminal.keys("n\r")
    terminal.sees("No model can work yet", "/login downloads them")
    terminal.keys("mend it\r")
    terminal.sees("download small models")
    terminal.keys("2\r")
    terminal.sees("API key of openai (it is not shown)")
    terminal.keys(KEY)
    terminal.sees(f"› {'*' * len(KEY)}")
    terminal.keys("\r")
    terminal.sees("openai key saved in", "› mend it")
    terminal.keys("\x03\x1b[A")
    terminal.until(lambda screen: "› 2" in screen or "› mend it" in screen)
    assert KEY not in terminal.screen.text
    terminal.keys("\x03\x04")
    assert terminal.ended() == 0


def test_in_the_inline_mode_escape_stops_and_what_is_typed_next_is_typed(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("..", pause=30))
    terminal = ready(fugu("--inline"))
    terminal.keys("explain it\r")
    terminal.sees("waiting for m")
    terminal.keys("\x1b")
    time.sleep(0.4)
    terminal.keys("but why")
    terminal.sees("interrupted; /continue goes on", "› but why")
    terminal.keys("\x03\x04")
    assert terminal.ended() == 0


BEGUN = "Some first words.\n\nSome more of them.\n\nAnd the beg"
LIMITED = Refuses(429, "slow down", "rate_limit_error", {"retry-after": "3"})


@pytest.mark.parametrize("mode", [(), ("--inline",)])
def test_the_text_of_a_stream_that_broke_off_goes_and_one_line_says_that_it_is_tried_again(
    place: Place, server: Loopback, fugu: Callable[..., Terminal], mode: tuple[str, ...]
) -> None:
    cut = Breaks("hang_middle", BEGUN, 9)
    place.configure(Agent("m", more='protocol = "native"\ntimeout = { between = 1.5 }'))
    server.play("m", cut, cut, Says("Whole."))
    terminal = ready(fugu(*mode))
    terminal.keys("explain it\r")
    terminal.sees("Some first words.", "Some more of them.")
    for number in (1, 2):
        said = f"m: no answer in time, retrying {number} of 4"
        screen = terminal.until(lambda screen, said=said: said in screen and "Some" not in screen)
        assert screen.count(" of 4") == 1
        terminal.sees("Some more of them." if number == 1 else "Whole.")
    screen = terminal.sees("✓ done")
    assert "Some" not in screen
    assert terminal.screen.unknown == []


@pytest.mark.parametrize("mode", [(), ("--inline",)])
def test_the_last_agent_is_waited_for_and_the_time_is_counted_down(
    place: Place, server: Loopback, fugu: Callable[..., Terminal], mode: tuple[str, ...]
) -> None:
    server.play("m", LIMITED, Says("Whole."))
    terminal = ready(fugu(*mode))
    terminal.keys("explain it\r")
    screen = terminal.sees("m: rate limited, retrying 1 of 4")
    assert "1 of 4 in" not in screen
    terminal.sees("◐ waiting for m, retrying in 2 s")
    terminal.sees("Whole.", "✓ done")


def test_a_refused_key_is_tried_again_where_the_user_names_its_agent(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    place.configure(Agent("m"), Agent("n", "strong"))
    refuses = Refuses(401, "Incorrect API key provided", "authentication_error")
    server.play("m", refuses, Says("Back again."))
    server.play("n", refuses)
    terminal = fugu(size=(140, 40))
    terminal.sees("coordinator: cascade · agents: m")
    terminal.keys("explain it\r")
    terminal.sees("✗ failed", "2 agents unavailable, retrying in 1")
    terminal.keys("/pool\r")
    terminal.until(
        lambda screen: screen.count("unavailable, retrying in 1") == 3
    )  # the status line says it too
    terminal.keys("\x1b")
    terminal.until(lambda screen: "choose an agent to pin" not in screen)
    terminal.keys("explain it again\r")
    terminal.until(lambda screen: screen.count("✗ failed") == 2)
    assert (len(server.asked("m")), len(server.asked("n"))) == (1, 1)
    terminal.keys("/retry m\r")
    terminal.sees("Back again.", "✓ done")
    assert (len(server.asked("m")), len(server.asked("n"))) == (2, 1)


def test_a_secret_in_two_streamed_pieces_is_on_no_screen(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    secret = "tok-9f8e7d6c5b4a"
    server.play(
        "m",
        Says(f"The token is {secret}, and that is all there is to say.", slow=0.1),
        Says("ACCEPT"),
    )
    terminal = ready(fugu(APP_TOKEN=secret))
    terminal.keys("what is the token?\r")
    shown: list[str] = []

    def over(screen: str) -> bool:
        shown.append(screen)
        return "all there is to say." in screen

    terminal.until(over)
    assert [
        screen
        for screen in shown
        if "The token is" in screen and "all there is to say." not in screen
    ]
    assert not [screen for screen in shown if secret[:8] in screen]


def test_a_run_without_a_screen_shows_the_diff_before_it_asks(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    """The lines around the change as well, as on the screen; a no leaves the file as it was."""
    place.files({"calc.txt": "above\nbroken\nbelow\n"})
    edit = Use("edit", {"path": "calc.txt", "old": "broken", "new": "fixed"})
    server.play("m", Says("", (READ,)), Says("", (edit,)), Says("Not done."))
    terminal = fugu("run", "--permission-mode", "ask", "mend it")
    shown = terminal.sees("Allow edit?", "- broken", "+ fixed", "  above", "(Enter: no):")
    assert "needs approval: " in shown and shown.index("+ fixed") < shown.index("(Enter: no):")
    terminal.keys("n\r")
    terminal.ended()
    assert (place.repo / "calc.txt").read_text() == "above\nbroken\nbelow\n"


def test_a_worktrees_work_is_brought_back_when_the_user_says_so(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("Looking.", (READ, WRITE)), Says("Fixed."), Says("ACCEPT"))
    terminal = ready(fugu("--worktree=apart"))
    terminal.keys("fix the failing test\r")
    terminal.sees("accepted by its own author")
    terminal.keys("\x04")
    terminal.sees("bring the work here?")
    assert (place.repo / "calc.txt").read_text() == "broken\n"
    terminal.keys("n\r")
    terminal.sees("(branch fugu/apart), and was not brought here")
    assert terminal.ended() == 0
    again = ready(fugu("--worktree=apart", "--continue"))
    again.keys("\x04")
    again.sees("bring the work here?")
    again.keys("y\r")
    again.sees("the work was brought here, as changes that are not committed")
    assert (again.ended(), (place.repo / "calc.txt").read_text()) == (0, "fixed\n")


def test_the_inline_mode_follows_the_background_that_the_terminal_tells(
    fugu: Callable[..., Terminal],
) -> None:
    terminal = ready(fugu("--inline"))
    terminal.until(lambda _: b"\x1b]11;?" in terminal.raw)
    light = b"38;2;36;41;47"
    terminal.keys("a\x1b]11;rgb:ffff/ff")
    terminal.keys("ff/ffff\x1b\\b")
    terminal.sees("› ab")
    assert light not in terminal.raw
    terminal.keys("\x03/pool\r")
    terminal.until(lambda _: light in terminal.raw)
    terminal.keys("\x03\x03\x04")
    assert terminal.ended() == 0


def test_the_theme_follows_the_background_that_the_terminal_tells(
    fugu: Callable[..., Terminal],
) -> None:
    terminal = ready(fugu())
    terminal.until(lambda _: b"\x1b]11;?" in terminal.raw)
    seen = len(terminal.raw)
    terminal.keys("a\x1b]11;rgb:ffff/ff")
    terminal.keys("ff/ffff\x1b\\b")
    terminal.until(lambda _: b"48;2;255;255;255" in terminal.raw[seen:])
    terminal.sees("› ab")
    assert terminal.screen.unknown == []


def test_a_theme_is_a_file_of_the_user_and_is_worn_from_then_on(
    place: Place, fugu: Callable[..., Terminal]
) -> None:
    folder = place.home / "config" / "fugu" / "themes"
    folder.mkdir(parents=True)
    (folder / "mine.toml").write_text(
        'primary = "#88c0d0"\nbackground = "#010203"\nforeground = "#fdfcfb"\n'
    )
    (folder / "odd.toml").write_text('primary = "no colour"\n')
    terminal = ready(fugu(XDG_CONFIG_HOME=str(place.home / "config")))
    terminal.keys("/theme odd\r")
    terminal.until(lambda screen: "odd.tomlcannotbeused" in "".join(screen.split()))
    terminal.keys("/theme mine\r")
    terminal.until(lambda _: b"48;2;1;2;3" in terminal.raw)
    terminal.keys("\x04")
    assert terminal.ended() == 0
    again = ready(fugu(XDG_CONFIG_HOME=str(place.home / "config")))
    assert b"48;2;1;2;3" in again.raw
    again.keys("\x04")
    assert again.ended() == 0
    (folder / "mine.toml").write_text("primary =\n")
    broken = fugu(XDG_CONFIG_HOME=str(place.home / "config"))
    broken.until(lambda screen: "e.tomlcannotbeused:Invalidvalue" in "".join(screen.split()))


def test_a_place_in_a_file_is_a_link_that_opens_the_editor(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    editor, asked = place.home / "editor.sh", place.home / "asked"
    editor.write_text(f'#!/bin/sh\necho "$@" >> {asked}\n')
    editor.chmod(0o755)
    server.play("m", Says("See calc.txt:1, and none.txt:2."))
    terminal = ready(fugu(EDITOR=str(editor)))
    terminal.keys("look\r")
    terminal.sees("See calc.txt:1, and none.txt:2.", "✓ done")
    file = (place.repo / "calc.txt").resolve()
    links = re.findall(rb"\x1b\]8;[^;]*;([^\x1b]+)\x1b", bytes(terminal.raw))
    assert set(links) == {f"{file.as_uri()}#1".encode()}
    terminal.keys("/open\r")
    terminal.sees("│ calc.txt:1")
    terminal.keys("\r")
    terminal.until(lambda _: asked.exists() and asked.read_text().count("\n") == 1)
    screen = terminal.sees("See calc.txt:1").split("\n")
    row = next(number for number, line in enumerate(screen, start=1) if "See calc.txt:1" in line)
    column = screen[row - 1].index("calc.txt:1") + 2
    terminal.keys(f"\x1b[<16;{column};{row}M\x1b[<16;{column};{row}m")
    terminal.until(lambda _: asked.read_text().count("\n") == 2)
    terminal.read(0.5)  # the editor gives the terminal back
    terminal.keys("/open none.txt\r")
    terminal.sees("there is no file 'none.txt'")
    assert asked.read_text() == f"+1 {file}\n" * 2


def test_what_runs_has_a_line_with_its_time_and_the_tokens_written(
    server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("word " * 400, slow=0.02))
    terminal = ready(fugu())
    terminal.keys("tell\r")
    terminal.until(
        lambda screen: (
            re.search(r"[⠀-⣿] m is writing \d+\.\ds · ↓ \d+ tokens · esc to interrupt\n", screen)
            is not None
        )
    )
    terminal.keys("\x1b")
    terminal.sees("interrupted; /continue goes on")
    terminal.until(lambda screen: "m is writing" not in screen)
