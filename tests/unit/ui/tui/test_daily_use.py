"""What people set up once and use every day, on the real `fugu` in a pseudo-terminal: memory, keys,
vi, status line.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from itertools import cycle

import pytest

from tests.acceptance.driving import Place
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_subtasks import asks, task
from tests.unit.ui.tui.conftest import ready
from tests.unit.ui.tui.terminal import Terminal

Fugu = Callable[..., Terminal]
SECRET = "ghp_" + "a1B2c3D4e5" * 3 + "f6G7h8"
CCSTATUSLINE = os.environ.get("FUGU_CCSTATUSLINE", "")
"""Where that program is."""


@pytest.mark.parametrize("mode", [(), ("--inline",)])
def test_a_typed_line_is_kept_after_a_yes_and_read_with_the_next_request(
    place: Place, server: Loopback, fugu: Fugu, mode: tuple[str, ...]
) -> None:
    (place.repo / "AGENTS.md").write_text("Be brief.")
    assert place.fugu("trust").code == 0
    server.play("m", Says("Yes."), Says("A title."))
    terminal = fugu(*mode)
    terminal.sees("m" if mode else "coordinator: cascade · agents: m")
    terminal.keys(f"# always use tabs {SECRET}\r")
    terminal.sees("Keep `- always use tabs ", ".agents/MEMORY.md", "e for every repository")
    time.sleep(0.6)
    terminal.keys("y\r" if mode else "y")
    terminal.sees("kept in .agents/MEMORY.md")
    kept = (place.repo / ".agents" / "MEMORY.md").read_text()
    assert kept.startswith("- always use tabs") and SECRET not in kept
    terminal.keys("say yes\r")
    terminal.sees("Yes.")
    assert "- always use tabs" in str(server.asked("m")[0].body)
    terminal.keys("/remember answer in Basque\r")
    terminal.sees("Keep `- answer in Basque`")
    time.sleep(0.6)
    terminal.keys("e\r" if mode else "e")
    own = place.home / "config" / "fugu" / "MEMORY.md"
    terminal.until(lambda _: own.is_file() and own.read_text() == "- answer in Basque\n")
    terminal.keys("\x1b[200~# A heading\x1b[201~")
    terminal.sees("# A heading")
    terminal.keys("\r")
    terminal.sees("A title.")
    assert "# A heading" in str(server.asked("m")[1].body)
    assert own.read_text() == "- answer in Basque\n"
    assert "not trusted" not in place.fugu("doctor").err


def test_what_an_agent_proposes_for_the_memory_is_kept_after_a_yes_alone(
    place: Place, server: Loopback, fugu: Fugu
) -> None:
    proposals = (f"deploys need the VPN and {SECRET}", "the user is kind")
    calls = [Use("remember", {"line": line, "scope": "user"}) for line in proposals]
    server.play("m", Says("", (calls[0],)), Says("", (calls[1],)), Says("Noted."))
    terminal = ready(fugu(FUGU_PERMISSION_MODE="yolo"))
    terminal.keys("remember what matters\r")
    terminal.sees("Keep this line in the memory?", "deploys need the VPN", "MEMORY.md")
    terminal.keys("y")
    terminal.sees("the user is kind")
    terminal.keys("n")
    terminal.sees("Noted.")
    own = place.home / "config" / "fugu" / "MEMORY.md"
    assert own.read_text().startswith("- deploys need the VPN and [secret ")
    assert SECRET not in terminal.screen.text
    (log,) = place.home.glob("data/fugu/sessions/*/*.jsonl")
    assert "deploys need the VPN" in log.read_text() and SECRET not in log.read_text()
    results = server.asked("m")[2].results
    assert results[0].startswith("Kept in ~/config/fugu/MEMORY.md")
    assert results[1].startswith("The user does not want this kept.")


def test_lines_that_agents_are_not_shown_are_said_once(
    place: Place, server: Loopback, fugu: Fugu
) -> None:
    server.play("m", Says("Yes."), Says("Again."))
    own = place.home / "config" / "fugu" / "MEMORY.md"
    own.parent.mkdir(parents=True, exist_ok=True)
    own.write_text("".join(f"- line {number} of many\n" for number in range(2000)))
    terminal = ready(fugu())
    terminal.keys("/remember use tabs\r")
    terminal.sees("Keep `- use tabs` for later sessions?")
    time.sleep(0.6)
    terminal.keys("e")
    terminal.sees("kept in", "agents are not shown its first")
    terminal.keys("say yes\r")
    terminal.sees("Yes.")
    terminal.keys("again\r")
    terminal.sees("Again.")
    assert terminal.screen.text.count("agents are not shown its first") == 1


def test_memory_opens_in_the_editor_and_a_line_that_cannot_be_written_is_said(
    place: Place, fugu: Fugu
) -> None:
    (place.repo / ".agents").write_text("a file in the way")
    editor = place.home / "editor"
    editor.write_text('#!/bin/sh\necho "- edited" >> "$1"\n')
    editor.chmod(0o755)
    terminal = ready(fugu(EDITOR=str(editor), VISUAL=""))
    terminal.keys("/remember always use tabs\r")
    terminal.sees("Keep `- always use tabs` for later sessions?")
    time.sleep(0.6)
    terminal.keys("y")
    terminal.sees("cannot make", "nothing was changed")
    terminal.keys("/remember\r\r")
    terminal.sees("/remember needs an argument")
    terminal.keys("/memory user\r")
    own = place.home / "config" / "fugu" / "MEMORY.md"
    terminal.until(lambda _: own.is_file() and own.read_text() == "- edited\n")


def configured(place: Place, text: str) -> None:
    """More of the user's .fugurc, before its agents."""
    path = place.home / ".fugurc"
    path.write_text(f"{text}\n{path.read_text()}")


def test_keys_of_the_users_own_do_what_they_name_and_help_shows_them(
    place: Place, server: Loopback, fugu: Fugu
) -> None:
    server.play("m", Says("Yes."))
    configured(place, 'keys = { help = "f9", new_line = "enter, alt+enter", send = "ctrl+j" }')
    terminal = ready(fugu())
    terminal.keys("one\rtwo\n")
    terminal.sees("▌ one", "▌ two", "Yes.")
    terminal.keys("\x1b[20~")  # F9
    terminal.sees("enter, alt+enter  a new line", "f9                help")
    terminal.keys("\x1b")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'trase = "f3"',
            "fugu: .fugurc: keys.trase: there is no such action\n      did you mean 'trace'?\n",
        ),
        (
            'trace = "strg+t"',
            "fugu: .fugurc: keys.trace = 'strg+t': there is no such key\n"
            "      keys are written as ctrl+t, alt+enter, shift+f5, pageup\n",
        ),
        (
            'trace = "t"',
            "fugu: .fugurc: keys.trace = 't': that key types\n      add ctrl+ or alt+\n",
        ),
        (
            'trace = "ctrl+s"',
            "fugu: .fugurc: keys.trace: ctrl+s is the key of steer\n      give steer another "
            "one, too\n",
        ),
    ],
)
def test_a_key_that_cannot_be_is_one_line(place: Place, fugu: Fugu, line: str, said: str) -> None:
    configured(place, f"keys = {{ {line} }}")
    terminal = fugu()
    terminal.sees(*said.strip().splitlines()[0].split("\n"))
    assert terminal.ended() == 1


@pytest.mark.parametrize("mode", [(), ("--inline",)])
def test_vi_edits_the_prompt_and_its_mode_is_shown(
    place: Place, server: Loopback, fugu: Fugu, mode: tuple[str, ...]
) -> None:
    configured(place, "tui = { vi = true }")
    server.play("m", Says("Yes."), Says("ACCEPT"))
    terminal = fugu(*mode)
    terminal.sees("INSERT ·", "coordinator: cascade · agents: m")
    terminal.keys("say yes now please")
    terminal.sees("say yes now please")
    terminal.keys("\x1b")
    terminal.sees("NORMAL ·")
    terminal.keys("bdw0cetell" if mode else "bdw0cwtell")
    terminal.sees("tell yes now", "INSERT ·")
    terminal.keys("\x1b")
    terminal.sees("NORMAL ·")
    terminal.keys("$xx")
    terminal.until(lambda screen: "tell yes no" in screen and "tell yes now" not in screen)
    terminal.keys("u0i")
    terminal.sees("tell yes now", "INSERT ·")
    terminal.keys("\r")
    terminal.sees("Yes.")
    assert "tell yes now" in server.asked("m")[0].text


STATUS = """
import json, sys
told = json.load(sys.stdin)
name, folder = told["model"]["display_name"], told["cwd"].rpartition("/")[2]
print(f"\\x1b[31m{name}\\x1b[0m in {folder}\\x1b]0;title\\x07 \\x1b[2J.")
print(told["hook_event_name"], told["context_window"]["used_percentage"], told["permission_mode"])
"""


@pytest.mark.parametrize("mode", [(), ("--inline",)])
def test_a_command_prints_the_status_line_and_is_told_what_claude_code_tells(
    place: Place, fugu: Fugu, mode: tuple[str, ...]
) -> None:
    (place.folder / "status.py").write_text(STATUS)
    configured(place, f'tui = {{ status_line = "python3 {place.folder}/status.py" }}')
    terminal = fugu(*mode)
    terminal.sees("m in repo .", "Status 0 edit")


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("sleep 1000 & sleep 1000", "it took more than 5 s"),
        ("echo no; exit 7", "exit code 7"),
        ("nosuchprogram", "exit code 127"),
    ],
)
def test_a_status_command_that_fails_or_hangs_is_ended_and_said_once(
    place: Place, fugu: Fugu, command: str, why: str
) -> None:
    configured(place, f'tui = {{ status_line = "{command}" }}')
    terminal = ready(fugu())
    modes, patience = cycle(("ask", "plan")), time.monotonic() + 60
    while "is not run again" not in terminal.screen.text and time.monotonic() < patience:
        mode = next(modes)  # it is told to the command, which runs again
        terminal.keys(f"/mode {mode}\r")
        terminal.sees(f"· {mode}")
        terminal.read(1.0)
    terminal.sees("the status line's command failed and is not run again", why)
    assert [line for line in place.left_behind() if "sleep 1000" in line] == []


def test_of_a_status_command_that_prints_without_end_the_first_lines_are_shown(
    place: Place, fugu: Fugu
) -> None:
    configured(place, 'tui = { status_line = "yes again | head -c 10000000" }')
    terminal = ready(fugu())
    text = terminal.sees("again\n again\n again")
    assert text.count("again") == 3
    terminal.keys("\x04")
    assert terminal.ended() == 0


@pytest.mark.skipif(not CCSTATUSLINE, reason="needs the npm package ccstatusline")
def test_the_public_ccstatusline_runs_unchanged(place: Place, fugu: Fugu) -> None:
    configured(place, f'tui = {{ status_line = "{CCSTATUSLINE}" }}')
    terminal = ready(fugu())
    terminal.sees("Model:", "Ctx:", "(+0,-0)")


def test_requests_are_jumped_to_and_escape_twice_goes_back_to_one(
    place: Place, server: Loopback, fugu: Fugu
) -> None:
    answers = ["\n\n".join(f"{word} {number}" for number in range(60)) for word in ("line", "row")]
    server.play("m", *map(Says, answers))
    terminal = ready(fugu())
    for request, end in (("tell the first", "line 59"), ("tell the second", "row 59")):
        terminal.keys(f"{request}\r")
        terminal.sees(end, "✓ done", "/help")
    terminal.keys("\x1b[1;5A")
    terminal.until(lambda text: "▌ tell the second" in text and "row 59" not in text)
    terminal.keys("\x1b[1;5A")
    terminal.until(lambda text: "▌ tell the first" in text and "tell the second" not in text)
    terminal.keys("\x1b[1;5B")
    terminal.sees("▌ tell the second")
    terminal.keys("\x1b[1;5B")
    terminal.sees("row 59")
    terminal.keys("\x1b")
    terminal.read(0.3)
    terminal.keys("\x1b")
    terminal.sees("Rewind to before", "2    tell the second")
    terminal.keys("\r")
    terminal.sees("that ends before request 2;", "› tell the second")


def test_an_approval_says_which_subtask_asks(place: Place, server: Loopback, fugu: Fugu) -> None:
    runs = Says("", (Use("bash", {"command": "python3 x.py > ../said.txt"}),))
    server.react(
        "m",
        asks(
            task("Look at x.py"),
            child=lambda asked: Says("It is not there.") if asked.results else runs,
        ),
    )
    terminal = ready(fugu())
    terminal.keys("look\r")
    terminal.sees("Allow bash?", "needs approval for the subtask task: look around: ")
    terminal.keys("n")
    terminal.sees("✓ done")
