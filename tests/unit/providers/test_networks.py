"""Proxies and private certificate authorities, for real: a proxy that answers, a server with its
own certificate.
"""

import asyncio
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from servers import RECORDED, quiet, unhurried

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Prompt, Reply
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.wires.chat_completions import OpenAI

PROMPT = Prompt(system="", messages=(FromUser(text="x"),))
BODY = (RECORDED / "llamacpp" / "text.sse").read_bytes()


class Answers(BaseHTTPRequestHandler):
    """Whatever is asked, by whichever address."""

    asked: list[str]

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        type(self).asked.append(self.path)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


@contextmanager
def answering(
    tls: tuple[Path, Path] | None = None, kind: type[BaseHTTPRequestHandler] = Answers
) -> Iterator[tuple[int, list[str]]]:
    asked: list[str] = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (kind,), {"asked": asked}))
    if tls is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*tls)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server.server_port, asked
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def call(base_url: str) -> Reply:
    async def go() -> Reply:
        agent = OpenAI(ModelEndpoint(name="a", model="m", base_url=base_url))
        try:
            return await agent.reply(PROMPT, quiet, unhurried)
        finally:
            await agent.close()

    return asyncio.run(go())


def test_a_proxy_in_the_environment_is_used_but_not_for_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering() as (proxy, by_proxy), answering() as (own, directly):
        monkeypatch.setenv("HTTP_PROXY", f"http://127.0.0.1:{proxy}")
        assert call("http://models.example.org/v1").text == "Bonjour"
        assert call(f"http://127.0.0.1:{own}/v1").text == "Bonjour"
        assert by_proxy == ["http://models.example.org/v1/chat/completions"]
        assert directly == ["/v1/chat/completions"]
        monkeypatch.setenv("NO_PROXY", "models.example.org")
        with pytest.raises(AgentError, match=r"no connection to models\.example\.org"):
            call("http://models.example.org/v1")


class Refusing(BaseHTTPRequestHandler):
    """A proxy that wants a password."""

    def do_CONNECT(self) -> None:
        self.send_response(407, "Proxy Authentication Required")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""


def test_a_proxy_that_wants_a_password_is_named_and_not_asked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with answering(kind=Refusing) as (proxy, _):
        monkeypatch.setenv("HTTPS_PROXY", f"http://me:hidden@127.0.0.1:{proxy}")
        with pytest.raises(AgentError) as raised:
            call("https://models.example.org/v1")
    said = (
        "a: the proxy on the way to models.example.org does not let it through: 407 Proxy "
        "Authentication Required"
    )
    assert (str(raised.value), raised.value.retry) == (said, False)
    assert "HTTPS_PROXY" in raised.value.hint


@pytest.mark.parametrize(
    ("name", "value"), [("NO_PROXY", "[::1],fe80::/10"), ("HTTPS_PROXY", "http://me:hidden@h:x")]
)
def test_proxies_that_cannot_be_read_are_not_blamed_on_the_entry(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv(name, value)
    with pytest.raises(
        AgentError, match=r"no connection to models\.example\.org can be prepared: Invalid port"
    ) as raised:
        call("https://models.example.org/v1")
    assert name in raised.value.hint
    assert "hidden" not in f"{raised.value}{raised.value.hint}"


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate that nobody but its owner trusts."""
    made, key = folder / "cert.pem", folder / "key.pem"
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=localhost",
    ]
    names = [
        "-addext",
        "subjectAltName=DNS:localhost,IP:127.0.0.1",
        "-keyout",
        str(key),
        "-out",
        str(made),
    ]
    subprocess.run([*command, *names], check=True, capture_output=True)
    return made, key


def test_a_private_authority_is_trusted_when_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certificate(tmp_path)
    with answering(tls) as (port, asked):
        with pytest.raises(AgentError, match="certificate"):
            call(f"https://localhost:{port}/v1")
        monkeypatch.setenv("SSL_CERT_FILE", str(tls[0]))
        assert call(f"https://localhost:{port}/v1").text == "Bonjour"
    assert asked == ["/v1/chat/completions"]
