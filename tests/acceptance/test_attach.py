"""Sessions in the background, and in a second terminal: the real binary, real terminals, SIGKILL."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.session.events import Finished, Permitted
from fugu_cli.session.log import is_open, socket_name
from tests.acceptance.driving import Agent, Done, Place
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_sdk import Client
from tests.unit.ui.tui.terminal import Terminal

ASKS = Says("I make it.", (Use("bash", {"command": "touch made"}),))
DONE = Says("ACCEPT It is made.")
ASK = 'permission_mode = "ask"\n'


def until(true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def begin_in_background(place: Place, *flags: str) -> Path:
    """Begin a session that asks for a command; its log, once the question is open."""
    done = place.fugu("run", "--background", *flags, "make it")
    assert (done.code, done.err.count("\n")) == (0, 1), done
    (path,) = place.sessions()
    assert done.out == f"{path.stem}\n"
    until(lambda: "waits for an answer: bash touch made" in listed(place))
    return path


def listed(place: Place) -> str:
    return place.fugu("sessions", "--all").out


@contextmanager
def terminal(place: Place, *words: str) -> Iterator[Terminal]:
    opened = Terminal([sys.executable, "-m", "fugu_cli", *words], place.repo, place.environ())
    try:
        yield opened
    finally:
        opened.close()


def process_of(path: Path) -> int:
    """The process that has the session open: the one at the other end of its socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(socket_name(path))
        given = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(given[:4], sys.byteorder)


def act(path: Path, **message: Any) -> dict[str, Any]:
    """Send a message to the session, an answer for its open question. What it says to that."""
    with socket.socket(socket.AF_UNIX) as connection, connection.makefile() as lines:
        connection.connect(socket_name(path))
        for line in lines:
            received: dict[str, Any] = json.loads(line)
            if received["type"] in ("done", "refused"):
                return received
            if received["type"] == "status" and message:
                if message["type"] == "answer":
                    (question,) = received["questions"]
                    call = question["asked"]["call"]["id"]
                    message = {"question": question["number"], "call": call} | message
                connection.sendall(json.dumps(message).encode() + b"\n")
                message = {}
    raise AssertionError("the session has closed the connection")


def permits(place: Place) -> list[tuple[bool, str]]:
    """Who allowed the agents' calls."""
    events = [event for event in place.events() if isinstance(event, Permitted)]
    return [(event.allowed, event.by) for event in events if event.by != "evidence"]


def test_a_background_session_is_answered_in_either_of_two_terminals(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more=ASK)
    server.play("worker", ASKS, Says("", (Use("bash", {"command": "touch more"}),)), DONE)
    path = begin_in_background(place)
    with (
        terminal(place, "attach") as full,
        terminal(place, "attach", "--inline", path.stem) as inline,
    ):
        for screen in (full, inline):
            screen.sees("Allow bash?", "touch made", "yes, once")
        inline.keys("y")
        for screen in (full, inline):
            screen.sees("touch more")
        inline.kill()
        full.keys("y")
        full.sees("It is made.", "has been closed")
        full.keys("\x04")
        full.ended()
    assert (place.repo / "made").exists() and (place.repo / "more").exists()
    assert permits(place) == [(True, "user")] * 2
    assert " accepted " in listed(place)
    refused = place.fugu("attach", path.stem)
    assert (refused.code, "attaching needs a terminal" in refused.err) == (1, True)


@pytest.mark.parametrize(
    ("number", "seen", "state"),
    [
        (signal.SIGKILL, "was killed", " killed "),
        (signal.SIGTERM, "has been closed", " interrupted "),
    ],
)
def test_a_background_session_that_was_ended_says_so_and_is_resumed(
    place: Place, server: Loopback, number: int, seen: str, state: str
) -> None:
    place.configure(Agent("worker"), more=ASK)
    server.play("worker", ASKS, ASKS, DONE)
    path = begin_in_background(place)
    with terminal(place, "attach", "--inline", path.stem) as inline:
        inline.sees("Allow bash?")
        os.kill(process_of(path), number)
        inline.sees(seen, f"fugu --resume {path.stem}")
        inline.keys("\x04")
        inline.ended()
    listing = listed(place)
    assert (state in listing, f"`fugu --resume {path.stem}`" in listing) == (True, True)
    with terminal(place, "attach", path.stem) as late:
        late.sees("was killed" if number == signal.SIGKILL else "is not running")
    done = place.fugu("run", "--resume", path.stem, "--yolo")
    assert (done.code, (place.repo / "made").exists()) == (0, True), done.err


@pytest.mark.parametrize(
    ("more", "flags", "message"),
    [
        ("time_limit = { answer = 1.5 }\n", (), "nobody answered in time"),
        ("", ("--time-limit", "3"), "goes on from here"),
    ],
)
def test_a_question_that_nobody_answers_ends_a_background_session(
    place: Place, server: Loopback, more: str, flags: tuple[str, ...], message: str
) -> None:
    place.configure(Agent("worker"), more=ASK + more)
    server.play("worker", ASKS, DONE)
    done: Done = place.fugu("run", "--background", *flags, "make it")
    assert done.code == 0, done.err
    (path,) = place.sessions()
    until(lambda: not is_open(path))
    end = place.end()
    assert isinstance(end, Finished)
    assert (end.reason, message in end.message) == ("time_limit", True)
    assert place.fugu("run", "--resume", path.stem, "--yolo").code == 0


def test_a_run_in_a_terminal_is_answered_in_another(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"), more=ASK)
    server.play("worker", ASKS, DONE)
    with terminal(place, "run", "make it") as screen:
        screen.sees("(Enter: no)")
        (path,) = place.sessions()
        screen.keys("n")  # without Enter: it must not answer a later question
        stale = act(path, type="answer", call="of another process", scope="once")
        assert stale["why"].startswith("this question has been answered already")
        assert act(path, type="send", text=" ")["why"] == "the message is empty"
        assert act(path, type="answer", scope="once") == {"type": "done", "note": ""}
        screen.sees("answered in another terminal", "It is made.")
        screen.ended()
    assert permits(place) == [(True, "user")]


def test_the_question_to_a_program_is_answered_in_a_terminal(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more=ASK)
    server.play("worker", ASKS, DONE)
    client = Client(place, "--permission-prompt-tool", "stdio")
    client.say("make it")
    question = client.until("control_request")
    (path,) = place.sessions()
    act(path, type="answer", scope="once")
    assert client.until("control_cancel_request")["request_id"] == question["request_id"]
    assert client.until("result")["result"] == DONE.text
    assert client.leave() == (0, "")
    assert permits(place) == [(True, "user")]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--output-format", "json", "x"), "nobody reads the output"),
        (("--resume", "nope", "x"), "there is no session 'nope'"),
        (("",), "the prompt is empty"),
    ],
)
def test_what_cannot_begin_in_the_background_is_said_at_once(
    place: Place, words: tuple[str, ...], reason: str
) -> None:
    place.configure(Agent("worker"))
    done = place.fugu("run", "--background", *words)
    assert (done.code, reason in done.err + done.out) == (1, True), done
