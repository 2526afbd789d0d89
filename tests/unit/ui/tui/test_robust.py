"""The real `fugu` in a pseudo-terminal that sends what no user means to send, and crashes."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable

import pytest

from fugu_cli.session import log as logs
from fugu_cli.session.events import Asked
from tests.acceptance.driving import Place
from tests.acceptance.loopback import KEY, Loopback, Says, Use
from tests.unit.ui.tui.conftest import ready
from tests.unit.ui.tui.terminal import Terminal

READ = Use("read", {"path": "calc.txt"})
CRASH = """
from textual.widgets import TextArea
async def crash(self, event, secret="s3cret"):
    value = secret * 2
    raise KeyError("the key broke\\nin two lines")
TextArea.insert = lambda self, *given, **named: crash
TextArea._on_key = crash
"""


def requests(place: Place) -> list[str]:
    (path,) = place.sessions()
    return [r.event.text for r in logs.read(path) if isinstance(r.event, Asked)]


def send_hello(place: Place, server: Loopback, terminal: Terminal) -> None:
    server.play("m", Says("Good morning."))
    terminal.keys("hello")
    terminal.sees("hello")
    terminal.keys("\r")
    terminal.sees("Good morning.", "✓ done")
    assert requests(place)[-1] == "hello"


@pytest.mark.parametrize(
    "mouse",
    [
        "\x1b[<0;101;30M\x1b[<0;101;30m",
        "\x1b[<64;150;60M\x1b[<65;150;60M",
        "\x1b[<0;10;10M\x1b[<32;400;400M\x1b[<0;400;400m",
        "\x1b[<0;400;10m",
        "\x1b[<0;999999999;999999999M",
    ],
)
def test_the_mouse_beyond_the_edge_takes_no_keys_away(
    place: Place, server: Loopback, fugu: Callable[..., Terminal], mouse: str
) -> None:
    terminal = ready(fugu())
    terminal.keys(mouse)
    time.sleep(0.2)
    send_hello(place, server, terminal)


def test_answers_that_come_late_are_not_typed(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    terminal = ready(fugu())
    color = "\x1b]11;rgb:ffff/ffff/ffff\x07"
    name = "\x1bP>|XTerm(370)\x1b\\"
    for answer in ("\x1b[?62;22c", "\x1b[>0;276;0c", "\x1b[?0u", name, color):
        terminal.keys(answer)
    for begun, rest in (("\x1b[?6", "2;4c"), ("\x1bPXT", "erm(370)\x1b\\"), ("\x1b_a", "b\x1b\\")):
        terminal.keys(begun)
        time.sleep(0.4)
        terminal.keys(rest)
    send_hello(place, server, terminal)


@pytest.mark.parametrize("command", ["/sessions", "/rewind", "/pool", "/theme"])
def test_two_enters_in_one_read_answer_a_dialog_once(
    place: Place, server: Loopback, fugu: Callable[..., Terminal], command: str
) -> None:
    terminal = ready(fugu())
    send_hello(place, server, terminal)
    terminal.keys(f"{command}\r")
    terminal.sees("enter chooses")
    terminal.keys("\r\r")
    terminal.until(lambda screen: "enter chooses" not in screen)
    assert terminal.code is None


def test_two_enters_in_one_read_keep_a_key(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    place.variables["MISTRAL_BASE_URL"] = server.url
    terminal = ready(fugu())
    terminal.keys("/login mistral\r")
    terminal.sees("enter sends")
    terminal.keys(KEY)
    terminal.sees("•••")
    terminal.keys("\r\r")
    terminal.until(lambda screen: "enter sends" not in screen)
    terminal.sees("mistral")
    keys = place.home / "data" / "fugu" / "keys"

    def is_kept(_: str) -> bool:
        return any(KEY in file.read_text() for file in keys.glob("*"))

    terminal.until(is_kept)


def test_two_enters_in_one_read_deny_once(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("", (Use("bash", {"command": "echo > ../made.txt"}),)), Says("So be it."))
    terminal = ready(fugu())
    terminal.keys("make it\r")
    terminal.sees("Allow bash?")
    terminal.keys("t")
    terminal.sees("enter sends")
    terminal.keys("not today")
    terminal.sees("not today")
    terminal.keys("\r\r")
    terminal.sees("So be it.")
    assert "not today" in server.asked("m")[-1].text


def test_what_is_sent_while_fugu_is_being_left_breaks_nothing(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    begun = place.home / "end-begun"
    hook = {"type": "command", "command": f"touch {begun}; sleep 2"}
    settings = place.home / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"hooks": {"SessionEnd": [{"hooks": [hook]}]}}))
    terminal = ready(fugu())
    send_hello(place, server, terminal)
    terminal.keys("/quit\r")
    terminal.until(lambda _: begun.exists())
    terminal.keys("say it again\r/quit\r/cost\r")
    assert terminal.ended() == 0, crash_reports(place)
    assert "`fugu trace" in terminal.raw.decode("utf-8", "replace").rpartition("\x1b")[2]
    assert requests(place) == ["hello"]


def test_everything_can_be_unfolded_while_calls_arrive(
    server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    burst = [Says("", (READ,) * 12) for _ in range(8)]
    server.play("m", *burst, Says("All was read."))
    terminal = ready(fugu())
    terminal.keys("read it\r")
    while "All was read." not in terminal.screen.text:
        assert terminal.code is None, terminal.screen.text
        terminal.keys("\x0f\x1b[1;5A\x1b[1;5B")
        terminal.read()


def test_backspace_takes_a_character_with_all_its_code_points(
    place: Place, server: Loopback, fugu: Callable[..., Terminal]
) -> None:
    server.play("m", Says("Good morning."))
    terminal = ready(fugu())
    for character in ("👍🏽", "🇩🇪", "👨‍👩‍👧", "e\u0301", "स्ते", "你"):
        terminal.keys(character)
        terminal.keys("\x7f")
    terminal.keys("x🇩🇪\x1b[D")
    terminal.keys("y")
    terminal.sees("xy")
    terminal.keys("\r")
    terminal.sees("Good morning.", "✓ done")
    assert requests(place) == ["xy🇩🇪"]


@pytest.mark.parametrize("options", [(), ("--inline",)])
def test_a_crash_leaves_three_lines_and_a_report(
    place: Place, fugu: Callable[..., Terminal], options: tuple[str, ...]
) -> None:
    folder = place.folder / "crash"
    folder.mkdir()
    inline = "from prompt_toolkit.buffer import Buffer\nBuffer.insert_text = None\n"
    (folder / "sitecustomize.py").write_text(inline if options else CRASH)
    environ = place.environ()
    terminal = fugu(*options, PYTHONPATH=f"{folder}:{environ['PYTHONPATH']}")
    terminal.sees("m")
    terminal.sees("coordinator: cascade" if not options else "›")
    terminal.keys("x")
    assert terminal.ended() == 2
    written = terminal.raw.decode("utf-8", "replace").rpartition("\x1b")[2]
    assert "a bug in fugu" in written and "`fugu --continue`" in written
    assert "Traceback" not in terminal.raw.decode("utf-8", "replace")
    assert "s3cret" not in terminal.raw.decode("utf-8", "replace")
    (report,) = (place.home / "data" / "fugu" / "crashes").glob("*.txt")
    assert str(report) in written
    assert "Traceback" in report.read_text() and "s3crets3cret" not in report.read_text()


ACTIONS = 600
ACTIONS_BETWEEN_CHECKS = 100
MOST_OPEN_DIALOGS = 8
WIDE_ENOUGH = (100, 34)
FUZZ_SEEDS = tuple(map(int, os.environ.get("FUGU_FUZZ_SEEDS", "48").split(",")))
LONGEST_SECONDS = 40.0
KEYS = (
    *"abcdefghijklmnopqrstuvwxyz0123456789/@!?. ",
    "\r", "\r\r", "\t", "\x1b", "\x1b\x1b", "\x7f", "\x0f", "\x14", "\x12", "\x13", "\x19", "\n",
    "\x1b[A", "\x1b[B", "\x1b[C", "\x1b[D", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F", "\x1b[Z",
    "\x1b[1;5A", "\x1b[1;5B", "\x1b[17~", "\x1bOP", "\x1b\r", "\x1f", "ynasdtYN", "\x15", "\x0b",
)  # fmt: skip
LINES = (
    "/help", "/sessions", "/pool", "/rewind", "/undo", "/redo", "/cost", "/context", "/theme",
    "/mode ask", "/mode yolo", "/trace", "/new", "/compact", "/export", "/diff", "/login mistral",
    "/continue", "/exclude m", "/pin m", "/blame calc.txt", "!echo hi", "look at @calc.txt",
    "fix the tests", "say it again",
)  # fmt: skip
ODD_INPUT = (
    "\x1b[?62;22c", "\x1b[?6", "2;4c", "\x1bP>|XTerm(370)\x1b\\", "\x1bP>|XT", "\x1b]11;rgb:ffff/ffff/ffff\x07",
    "\x1b[I", "\x1b[O", "\x1b[24;80R", "\x1b[99999999u", "\x1b[<0;1", "\x1b[M", "\udcff\udcfe", "\x00",
    "👩‍👩‍👧", "שלום", "\u202e", "\ufeff",
)  # fmt: skip


def random_input(chance: random.Random) -> str:
    """What one action types."""
    match chance.randrange(10):
        case 0:
            return chance.choice(LINES) + "\r"
        case 1:
            x, y = chance.randrange(1, 140), chance.randrange(1, 50)
            button = chance.choice((0, 1, 2, 16, 32, 35, 64, 65, 66))
            return f"\x1b[<{button};{x};{y}M" + f"\x1b[<{button};{x};{y}m" * chance.randrange(2)
        case 2:
            text = "".join(chance.choices("ab \n\té\x1b👍", k=chance.choice((3, 50, 3000))))
            return f"\x1b[200~{text}\x1b[201~"
        case 3:
            return chance.choice(ODD_INPUT)
        case 4:
            return "".join(chance.choices(KEYS, k=chance.randrange(2, 12)))
        case _:
            return chance.choice(KEYS)


def typing_reaches_the_prompt(terminal: Terminal, word: str) -> bool:
    """Leave whatever is open with Escape and Ctrl+C, then type; a question may follow the one that was refused."""
    for _ in range(MOST_OPEN_DIALOGS):
        for key in ("\x1b", "\x03"):
            terminal.keys(key)
            settle(terminal)
        terminal.keys(word)
        try:
            terminal.sees(word, seconds=3)
        except AssertionError:
            if terminal.code == 0:  # it was left: "/", "q" and Enter, or Ctrl+C twice
                return True
            if terminal.code is not None:
                raise
        else:
            return True
    return False


def crash_reports(place: Place) -> str:
    folder = place.home / "data" / "fugu" / "crashes"
    return "\n".join(file.read_text() for file in sorted(folder.glob("*.txt")))


def settle(terminal: Terminal) -> None:
    """Read until nothing is drawn for a moment."""
    while terminal.read(0.15):
        pass


def send_random_input(
    place: Place,
    server: Loopback,
    start: Callable[..., Terminal],
    seed: int,
    actions: int,
    written: list[str],
    longest_seconds: float = float("inf"),
) -> None:
    """Add to `written` what each action types. Raises AssertionError where fugu crashes or no key
    reaches the prompt any more.
    """
    chance = random.Random(seed)
    sizes = [(100, 34), (80, 24), (60, 20), (120, 35), (200, 50), (20, 6), (1, 1)]
    answers = [
        Says("word " * 200, thinking="hm " * 50),
        Says("", (READ,) * 10),
        Says("", (Use("write", {"path": "new.txt", "content": "x\n" * 50}),)),
        Says("", (Use("bash", {"command": "seq 300"}), Use("bash", {"command": "touch a.txt"}))),
        Says("", (Use("todo", {"items": [{"text": "one", "status": "doing"}]}),)),
        Says("ACCEPT"),
        Says("| a | b |\n|---|---|\n| 1 | 2 |\n\n```py\nx = 1\n```\n", slow=0.005),
    ]
    server.react("m", lambda asked: chance.choice(answers))
    # an editor that opens takes the keys until it is left
    terminal = ready(start(VISUAL="true"))
    end = time.monotonic() + longest_seconds
    for action in range(1, actions + 1):
        if time.monotonic() > end:
            break
        if chance.randrange(40) == 0:
            terminal.resize(chance.choice(sizes))
        written.append(random_input(chance))
        terminal.keys(written[-1])
        terminal.read(0.0)
        while terminal.read(0.002):
            pass
        code = terminal.code
        assert code in (None, 0), f"ended after {written[-10:]}:\n{crash_reports(place)}"
        if code == 0:
            terminal = ready(start(VISUAL="true"))
        if action % ACTIONS_BETWEEN_CHECKS == 0:
            if (terminal.screen.width, terminal.screen.height) != WIDE_ENOUGH:
                terminal.resize(WIDE_ENOUGH)
            assert typing_reaches_the_prompt(terminal, f"zq{action}"), (
                f"no key arrives after {written[-20:]}:\n{terminal.screen.text}"
            )


@pytest.mark.parametrize("seed", FUZZ_SEEDS)
def test_random_input_ends_nothing_and_leaves_the_prompt_usable(
    place: Place, server: Loopback, fugu: Callable[..., Terminal], seed: int
) -> None:
    send_random_input(place, server, fugu, seed, ACTIONS, [], LONGEST_SECONDS)
