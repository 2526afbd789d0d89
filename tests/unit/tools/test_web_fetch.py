"""web_fetch against a server of this machine: what is asked, what comes back, and what is not
followed.
"""

from __future__ import annotations

import asyncio
import gzip
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.messages import Call
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.web_fetch import FetchLimits, is_public_address, web_fetch
from tests.unit.conftest import Build

Answer = tuple[int, dict[str, str], bytes]


class Site:
    """A server whose pages are set by the test; `asked` is what came to it."""

    def __init__(self, certificate: Path | None = None) -> None:
        self.pages: dict[str, Answer | Callable[[], Answer]] = {}
        self.asked: list[tuple[str, str, dict[str, str]]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append((self.command, self.path, dict(self.headers)))
                page = site.pages[self.path]
                status, headers, body = page() if callable(page) else page
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                try:
                    self.wfile.write(body)
                except OSError:
                    return

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    yield made
    made.close()


@pytest.fixture
def fetch(plain: Build) -> Callable[..., ToolResult]:
    workspace = plain({})

    def call(
        url: str, *rules: str, bounds: FetchLimits | None = None, **more: object
    ) -> ToolResult:
        box = Toolbox((web_fetch(rules or ("web_fetch(127.0.0.1)",), bounds or FetchLimits()),))
        return asyncio.run(
            box.run(Call.make("1", "web_fetch", url=url, **more), workspace, lambda text: None)
        )

    return call


def html(body: str) -> Answer:
    return 200, {"Content-Type": "text/html; charset=utf-8"}, body.encode()


PAGE = """<!doctype html><html><head><title>Tasks</title><style>p {}</style><script>steal()</script></head>
<body><nav><a href="/home">Home</a></nav><main><h2>create_task</h2><p>Wrap a <em>coroutine</em>.</p>
<pre><code>asyncio.create_task(f())</code></pre><ul><li>one</li><li>two</li></ul>
<a href="https://example.org/more">More</a></main></body></html>"""


def test_a_page_comes_as_text_with_its_title_and_without_scripts_and_menus(
    site: Site, fetch: Any
) -> None:
    site.pages["/p?q=1"] = html(PAGE)
    found = fetch(site.url("/p?q=1#part"))
    assert found.ok
    assert found.text == (
        "# Tasks\n\n## create_task\n\nWrap a "
        "*coroutine*.\n\n```\nasyncio.create_task(f())\n```\n\n- one\n- two\n\n"
        f"[More](https://example.org/more)\n[{site.url('/p?q=1')}, status 200]"
    )


def test_the_request_is_a_get_for_the_host_without_cookies_or_keys(
    site: Site, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    site.pages["/"] = 200, {"Content-Type": "text/plain", "Set-Cookie": "a=b"}, b"x"
    assert fetch(site.url("/", "localhost"), "web_fetch(localhost)").ok
    assert fetch(site.url("/", "localhost"), "web_fetch(localhost)").ok
    for method, path, headers in site.asked:
        assert (method, path) == ("GET", "/")
        assert headers["Host"] == f"localhost:{site.port}"
        assert headers["User-Agent"].startswith("fugu/")
        assert not {"Cookie", "Authorization", "Referer"} & set(headers)


def test_other_text_comes_as_it_is(site: Site, fetch: Any) -> None:
    site.pages["/j"] = 200, {"Content-Type": "application/vnd.api+json"}, b'{"a": [1, 2]}'
    site.pages["/t"] = (
        200,
        {"Content-Type": "text/plain; charset=latin-1"},
        "größer\x1b[31m\n".encode("latin-1"),
    )
    site.pages["/z"] = (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(b"small"),
    )
    assert fetch(site.url("/j")).text == f'{{"a": [1, 2]}}\n[{site.url("/j")}, status 200]'
    assert fetch(site.url("/t")).text == f"größer\n\n[{site.url('/t')}, status 200]"
    assert fetch(site.url("/z")).text.startswith("small\n")


def test_a_page_that_is_packed_more_than_once_or_badly_is_refused_without_unpacking_it(
    site: Site, fetch: Any
) -> None:
    small = gzip.compress(gzip.compress(b"small"))
    site.pages["/twice"] = (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip, gzip"},
        small,
    )
    site.pages["/bad"] = 200, {"Content-Type": "text/plain", "Content-Encoding": "gzip"}, b"no gzip"
    site.pages["/bomb"] = (
        200,
        {"Content-Type": "text/plain", "Content-Encoding": "gzip"},
        gzip.compress(b"a" * 900_000),
    )
    assert "packed in a way that was not asked for (gzip, gzip)" in fetch(site.url("/twice")).text
    assert "could not be unpacked" in fetch(site.url("/bad")).text
    assert (
        "only its first 5,000 bytes were read"
        in fetch(site.url("/bomb"), bounds=FetchLimits(largest=5000)).text
    )


@pytest.mark.parametrize("charset", ["undefined", "idna", "punycode", "unicode_escape", "klingon"])
def test_a_charset_that_is_none_is_read_as_utf_8(site: Site, fetch: Any, charset: str) -> None:
    site.pages["/c"] = (
        200,
        {"Content-Type": f"text/plain; charset={charset}"},
        "é\\x41-\xff".encode(),
    )
    assert fetch(site.url("/c")).text.startswith("é\\x41-\xff\n[")


def test_what_is_binary_is_refused(site: Site, fetch: Any) -> None:
    site.pages["/i"] = 200, {"Content-Type": "image/png"}, b"\x89PNG\r\n"
    site.pages["/n"] = 200, {"Content-Type": "text/plain"}, b"a\0b"
    assert fetch(site.url("/i")) == ToolResult(
        text=f"{site.url('/i')} is no text (image/png): it is not shown.", ok=False
    )
    assert fetch(site.url("/n")) == ToolResult(
        text=f"{site.url('/n')} is no text (text/plain): it is not shown.", ok=False
    )


def test_a_long_page_comes_in_parts_and_a_huge_one_is_cut(site: Site, fetch: Any) -> None:
    text = "".join(f"{number:09}\n" for number in range(4000))
    site.pages["/l"] = 200, {"Content-Type": "text/plain"}, text.encode()
    first = fetch(site.url("/l")).text
    assert first.startswith(text[:16000])
    assert first.endswith(
        f"[{site.url('/l')}, status 200; characters 0 to 16000 of 40000; go on with offset=16000]"
    )
    assert (
        fetch(site.url("/l"), offset=32000).text
        == f"{text[32000:]}\n[{site.url('/l')}, status 200]"
    )
    assert fetch(site.url("/l"), offset=50000) == ToolResult(
        text=f"{site.url('/l')} has only 40000 characters.", ok=False
    )
    assert (
        "only its first 100 bytes were read"
        in fetch(site.url("/l"), bounds=FetchLimits(largest=100)).text
    )


def test_a_page_that_is_not_there_says_so(site: Site, fetch: Any) -> None:
    site.pages["/404"] = 404, {"Content-Type": "text/plain"}, b"no such page"
    assert fetch(site.url("/404")) == ToolResult(
        text=f"no such page\n[{site.url('/404')}, status 404]", ok=False
    )


def test_a_redirect_on_the_same_host_is_followed_and_one_to_another_place_is_named(
    site: Site, fetch: Any
) -> None:
    site.pages["/a"] = 302, {"Location": "/b"}, b""
    site.pages["/b"] = 200, {"Content-Type": "text/plain"}, b"arrived"
    site.pages["/out"] = 301, {"Location": "https://example.org/x"}, b""
    site.pages["/port"] = 307, {"Location": f"http://127.0.0.1:{site.port + 1}/"}, b""
    site.pages["/local"] = 302, {"Location": site.url("/b", "localhost")}, b""
    site.pages["/loop"] = 302, {"Location": "/loop"}, b""
    assert fetch(site.url("/a")).text == f"arrived\n[{site.url('/b')}, status 200]"
    for path, target in (
        ("/out", "https://example.org/x"),
        ("/port", f"http://127.0.0.1:{site.port + 1}/"),
        ("/local", site.url("/b", "localhost")),
    ):
        said = (
            f"{site.url(path)} redirects to {target}, which is another place: fetch that address "
            f"if you need it."
        )
        assert fetch(site.url(path)) == ToolResult(text=said, ok=False)
    assert fetch(site.url("/loop")) == ToolResult(
        text=f"{site.url('/loop')}: more than 5 redirects.", ok=False
    )


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f000001", "127.1", "[::ffff:127.0.0.1]"]
)
def test_this_machine_is_not_asked_unless_a_rule_names_that_very_host(
    site: Site, fetch: Any, host: str
) -> None:
    site.pages["/"] = 200, {"Content-Type": "text/plain"}, b"inner"
    found = fetch(site.url("/", host), "web_fetch", "web_fetch(*)", "web_fetch(example.org)")
    assert not found.ok
    assert (
        "is an address of this machine or its network. Only a rule that names it permits that: "
        in found.text
    )
    assert f"web_fetch({host}:{site.port})" in found.text
    assert site.asked == []


def test_addresses_of_machines_and_their_networks_are_not_public() -> None:
    private = """127.0.0.1 10.1.2.3 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 224.0.0.1 255.255.255.255
    ::1 :: fe80::1%eth0 fc00::1 ff02::1 ::ffff:10.0.0.1 64:ff9b::a00:1 2002:7f00:1::
    2001:0:4136:e378:8000:63bf:f5ff:fffe ::127.0.0.1 ::ffff:0:10.0.0.1 64:ff9b:1::a00:1 fec0::1
    """
    anybody = "1.1.1.1 93.184.216.34 2606:4700:4700::1111 64:ff9b::101:101"
    assert [one for one in private.split() if is_public_address(one)] == []
    assert [one for one in anybody.split() if not is_public_address(one)] == []


def test_where_nobody_answers_it_says_so(site: Site, fetch: Any) -> None:
    port = site.port
    site.pages["/slow"] = lambda: (threading.Event().wait(2), html("late"))[1]  # type: ignore[return-value]
    late = fetch(site.url("/slow"), bounds=FetchLimits(seconds=0.3))
    assert late == ToolResult(text=f"{site.url('/slow')} did not answer within 0.3 s.", ok=False)
    assert fetch("http://host.invalid/", "web_fetch").text.startswith(
        "there is no host host.invalid, or no network: "
    )
    site.close()
    assert fetch(f"http://127.0.0.1:{port}/").text.startswith(
        f"http://127.0.0.1:{port}/ could not be fetched: "
    )
    assert (
        fetch("file:///etc/passwd").text
        == "`file:///etc/passwd` was not fetched: only http:// and https:// are fetched."
    )


@pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl for a certificate")
def test_a_certificate_is_held_against_the_name_that_was_asked_for(
    tmp_path: Path, fetch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate = tmp_path / "both.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=localhost"]
    words += ["-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        ["openssl", *words, "-keyout", certificate, "-out", tmp_path / "cert.pem"],
        check=True,
        capture_output=True,
    )
    certificate.write_bytes(certificate.read_bytes() + (tmp_path / "cert.pem").read_bytes())
    site = Site(certificate)
    site.pages["/"] = 200, {"Content-Type": "text/plain"}, b"sealed"
    rules = ("web_fetch(localhost)", "web_fetch(127.0.0.1)")
    named, bare = f"https://localhost:{site.port}/", f"https://127.0.0.1:{site.port}/"
    try:
        assert "CERTIFICATE_VERIFY_FAILED" in fetch(named, *rules).text
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "cert.pem"))
        assert fetch(named, *rules).text == f"sealed\n[{named}, status 200]"
        assert "CERTIFICATE_VERIFY_FAILED" in fetch(bare, *rules).text
    finally:
        site.close()
