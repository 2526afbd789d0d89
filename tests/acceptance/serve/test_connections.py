"""Clients that hold connections and ask nothing, against the real `fugu serve` with few files to
open.
"""

import signal
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import pytest

from tests.acceptance import loopback
from tests.acceptance.loopback import Loopback, Says
from tests.acceptance.serve.test_process import process

BEGUN = b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\n"
ASKED = b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
BODY = {"model": "one", "messages": [{"role": "user", "content": "tell"}]}


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with loopback.running() as server:
        yield server


def connected(url: str) -> socket.socket:
    host, port = url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=60)


def answered(client: socket.socket) -> bytes:
    """One answer in JSON."""
    said = b""
    while not said.endswith(b"}"):
        said += client.recv(65536)
    return said


def to_its_end(client: socket.socket) -> bytes:
    """What comes until the server closes the connection."""
    said = b""
    try:
        while data := client.recv(65536):
            said += data
    except ConnectionResetError:
        pass
    return said


@pytest.mark.parametrize(
    "begun",
    [b"", b"P", BEGUN, BEGUN + b"content-length: 1000\r\n\r\n{"],
    ids=["nothing", "a letter", "half the headers", "a body that has begun"],
)
def test_clients_that_do_not_ask_keep_nobody_from_being_answered(
    server: Loopback, begun: bytes
) -> None:
    server.play("one", Says("answered"))
    with process(server, files=64) as (made, url), ExitStack() as silent:
        for _ in range(200):
            with suppress(ConnectionError):  # the server may have let it go already
                silent.enter_context(connected(url)).sendall(begun)
        for _ in range(3):
            answer = httpx.post(f"{url}/v1/chat/completions", json=BODY, timeout=60)
            assert answer.status_code == 200, answer.text
        files = (
            len(list(Path(f"/proc/{made.pid}/fd").iterdir()))
            if Path("/proc/self/fd").exists()
            else 0
        )
        assert files < 64
        silent.close()
        while httpx.get(f"{url}/health").json()["busy"]:
            time.sleep(0.01)  # an answer is told to its end a moment before it counts as done
        made.send_signal(signal.SIGTERM)
        assert made.wait(30) == 0
        assert made.stderr is not None
        assert made.stderr.read() == ""


def test_headers_that_are_not_sent_to_their_end_have_their_time(server: Loopback) -> None:
    with (
        process(server) as (_, url),
        connected(url) as begun,
        connected(url) as trickles,
        connected(url) as second,
    ):
        begun.sendall(BEGUN)
        second.sendall(ASKED)
        assert b'"status":"ok"' in answered(second)
        second.sendall(BEGUN)
        trickles.settimeout(0.2)
        said = b""
        for letter in BEGUN * 100:
            try:
                trickles.sendall(bytes([letter]))
                said = trickles.recv(65536)
                break
            except TimeoutError:
                continue
            except ConnectionError:
                break
        else:
            pytest.fail("it was waited for longer than these letters took")
        assert not said or said.startswith(b"HTTP/1.1 408 ")
        assert to_its_end(begun).startswith(b"HTTP/1.1 408 ")
        assert to_its_end(second) == b"", "a status would be read as the answer to a request"


def test_a_body_that_goes_on_behind_a_refusal_is_not_read_for_ever(server: Loopback) -> None:
    with process(server) as (_, url), connected(url) as client:
        client.sendall(
            b"GET /v1/nowhere HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 1000000\r\n\r\nx"
        )
        assert client.recv(65536).startswith(b"HTTP/1.1 404 ")
        with pytest.raises(ConnectionError):
            for _ in range(600):
                client.sendall(b"x")
                time.sleep(0.1)
