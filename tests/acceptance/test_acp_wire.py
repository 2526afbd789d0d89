"""`fugu acp` as bytes: lines that are no frames, an editor that goes away, a standard output of
frames alone.
"""

import array
import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp")

from fugu_cli.session.events import Interrupted, ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Refuses, Says, Use

Frame = dict[str, Any]
WAIT = Says("I wait.", (Use("bash", {"command": "echo begun; sleep 300", "timeout": 600}),))
NOISE = """
import atexit, os
def noisy():
    os.write(1, b"noise below\\n")
    print("noise above", flush=True)
atexit.register(noisy)
"""
"""Printed by the process itself at its end, while the protocol's output is still open."""


class Wire:
    """`fugu acp` with its standard input and output at hand."""

    def __init__(self, place: Place) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fugu_cli", "acp", "--permission-mode", "yolo"],
            cwd=place.folder,
            env=place.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.place = place

    def write(self, data: bytes) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, method: str, id: int | None = None, **params: object) -> None:
        numbered = {} if id is None else {"id": id}
        self.write(
            json.dumps({"jsonrpc": "2.0", **numbered, "method": method, "params": params}).encode()
            + b"\n"
        )

    def read(self) -> Frame:
        """The next frame. Every line must be one."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.endswith(b"\n"), line
        frame = json.loads(line)
        assert frame["jsonrpc"] == "2.0"
        assert isinstance(frame, dict)
        return frame

    def until(self, holds: Callable[[Frame], bool]) -> Frame:
        """The next frame that is looked for."""
        while not holds(frame := self.read()):
            pass
        return frame

    def answer(self, id: int) -> Frame:
        return self.until(lambda frame: frame.get("id") == id)

    def new(self) -> str:
        """A session's id."""
        self.send("initialize", 1, protocolVersion=1)
        self.send("session/new", 2, cwd=str(self.place.repo), mcpServers=[])
        assert self.answer(1)["result"]["agentInfo"]["name"] == "fugu"
        return str(self.answer(2)["result"]["sessionId"])

    def waiting(self) -> str:
        """A session in which a command runs that does not end."""
        session = self.new()
        self.send("session/prompt", 3, sessionId=session, prompt=[{"type": "text", "text": "wait"}])
        self.until(
            lambda frame: frame.get("method") == "session/update" and "begun" in json.dumps(frame)
        )
        return session


@pytest.fixture
def wire(place: Place, server: Loopback) -> Iterator[Wire]:
    place.configure(Agent("worker"))
    server.play("worker", WAIT)
    found = Wire(place)
    try:
        yield found
    finally:
        found.process.kill()
        found.process.wait()
        for stream in (found.process.stdin, found.process.stdout, found.process.stderr):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()


def test_a_line_that_is_no_frame_gets_an_error_and_the_next_one_its_answer(wire: Wire) -> None:
    for line in (
        b"nonsense",
        b"[1, 2]",
        b'"text"',
        b"\xff\xfe",
        b'{"id": [1], "method": "x"}',
        b'{"id": 4}',
        b"",
    ):
        wire.write(line + b"\n")
    wire.write(
        b'{"jsonrpc": "2.0", "id": 5, "method": 6}\n{"jsonrpc": "2.0", "id": 7, "method": "x", '
        b'"params": [1]}\n'
    )
    codes = [(frame["id"], frame["error"]["code"]) for frame in (wire.read() for _ in range(8))]
    assert codes == [
        (None, -32700),
        (None, -32600),
        (None, -32600),
        (None, -32700),
        (None, -32600),
        (4, -32600),
        (5, -32600),
        (7, -32600),
    ]
    wire.send("no/such/method", 8)
    assert wire.answer(8)["error"]["code"] == -32601
    wire.send("session/prompt", 9, sessionId="x")
    assert wire.answer(9)["error"]["code"] == -32602
    wire.send("session/cancel", sessionId="nobody")
    wire.write(b'{"jsonrpc": "2.0", "id": 77, "result": {}}\n')
    assert wire.new()


def test_a_frame_may_come_in_pieces_and_one_that_is_too_long_is_refused(wire: Wire) -> None:
    text = "x" * 300_000
    frame = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "no/such/method", "params": {"text": text}}
    ).encode()
    for start in range(0, len(frame), 100_000):
        wire.write(frame[start : start + 100_000])
    wire.write(b"\n")
    assert wire.answer(1)["error"]["code"] == -32601
    for _ in range(66):
        wire.write(b"y" * 1024 * 1024)
    wire.write(b"\n")
    assert "at most" in wire.answer(None)["error"]["message"]  # type: ignore[arg-type]
    assert wire.new()


def left_at_peace(wire: Wire, place: Place) -> None:
    """The process has ended well, and the log says that the call was cut."""
    assert wire.process.wait(timeout=60) == 0
    assert wire.process.stderr is not None
    assert "Traceback" not in (said := wire.process.stderr.read().decode()), said
    assert [one.turn for one in place.events() if isinstance(one, Interrupted)] == [1]
    assert [one for one in place.events() if isinstance(one, ToolRan)] == []


def test_an_editor_that_closes_its_end_in_the_middle_of_a_tool_leaves_nothing_running(
    wire: Wire, place: Place
) -> None:
    wire.waiting()
    assert wire.process.stdin is not None
    wire.process.stdin.close()
    left_at_peace(wire, place)


def test_an_editor_that_reads_no_more_ends_it_as_well(wire: Wire, place: Place) -> None:
    session = wire.waiting()
    assert wire.process.stdout is not None
    wire.process.stdout.close()
    wire.send("session/set_mode", 4, sessionId=session, modeId="ask")
    left_at_peace(wire, place)


@pytest.mark.skipif(not hasattr(fcntl, "F_SETPIPE_SZ"), reason="a pipe's size is Linux's to set")
def test_a_signal_ends_what_runs_and_the_prompt_is_answered(wire: Wire, place: Place) -> None:
    """Also where the editor has not yet read what was sent before: its pipe is full."""
    wire.waiting()
    assert wire.process.stdout is not None
    size = fcntl.fcntl(wire.process.stdout, fcntl.F_SETPIPE_SZ, 4096)
    wire.write(b'{"id": 4}\n' * 100)
    waiting = array.array("i", [0])
    while waiting[0] < size - 200:
        fcntl.ioctl(wire.process.stdout, termios.FIONREAD, waiting)
        time.sleep(0.02)
    wire.process.send_signal(signal.SIGTERM)
    time.sleep(2.5)  # everything has ended by then, but for what is to be read
    assert wire.answer(3)["result"] == {"stopReason": "cancelled"}
    left_at_peace(wire, place)


def test_a_killed_process_leaves_no_command_running(wire: Wire, place: Place) -> None:
    wire.waiting()
    wire.process.kill()
    wire.process.wait()
    end = time.monotonic() + 30
    while place.left_behind() and time.monotonic() < end:
        time.sleep(0.05)
    assert place.left_behind() == []


def test_what_is_printed_beside_goes_to_standard_error(
    place: Place, server: Loopback, tmp_path: Path
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("Hello."))
    noisy = tmp_path / "noisy"
    noisy.mkdir()
    (noisy / "sitecustomize.py").write_text(NOISE)
    place.variables = {"PYTHONPATH": os.pathsep.join([str(noisy), place.environ()["PYTHONPATH"]])}
    wire = Wire(place)
    session = wire.new()
    wire.send("session/prompt", 3, sessionId=session, prompt=[{"type": "text", "text": "hello"}])
    assert wire.answer(3)["result"]["stopReason"] == "end_turn"
    out, err = wire.process.communicate(timeout=60)
    assert (wire.process.returncode, out) == (0, b"")
    assert b"noise below" in err and b"noise above" in err


def test_sessions_of_one_process_try_a_refused_key_once(wire: Wire, server: Loopback) -> None:
    refused = Refuses(401, "Incorrect API key provided", "authentication_error")
    server.play("worker", refused, refused, refused)
    for number in (10, 20):
        wire.send("session/new", number, cwd=str(wire.place.repo), mcpServers=[])
        session = wire.answer(number)["result"]["sessionId"]
        prompt = [{"type": "text", "text": "hello"}]
        wire.send("session/prompt", number + 1, sessionId=session, prompt=prompt)
        answer = wire.answer(number + 1)
        assert "all models are unavailable" in answer["error"]["message"]
    assert len(server.asked("worker")) == 1
