"""The web page of `fugu serve --web`: a browser that signed in follows and answers sessions, and
nobody else gets anything.
"""

from __future__ import annotations

import html
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from fugu_cli.server.web.access import COOKIE_SECONDS, WebAccess
from fugu_cli.session.log import is_open
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Says, Use
from tests.acceptance.test_attach import ASK, listed, permits, process_of, until

NAME = "<img src=x onerror=alert(1)>.txt"
"""A file's name that is a script where it is not escaped."""
WRITES = Says("I write it.", (Use("write", {"path": NAME, "content": "<b>new</b>\n"}),))


@dataclass
class Served:
    """A running `fugu serve --web`, and its newest link."""

    process: subprocess.Popen[bytes]
    link: str
    browsers: list[Browser] = field(default_factory=list)

    @property
    def origin(self) -> str:
        parts = urlsplit(self.link)
        return f"{parts.scheme}://{parts.netloc}"

    def browser(self) -> Browser:
        self.browsers.append(Browser(self.link))
        return self.browsers[-1]

    def next_link(self) -> str:
        """The link that is printed once a browser has signed in."""
        assert self.process.stderr is not None
        line = self.process.stderr.readline().decode()
        assert "a browser has signed in" in line
        return line.split()[-1]


@contextmanager
def serving(place: Place, *flags: str) -> Iterator[Served]:
    process = place.start("serve", "--web", "--port", "0", *flags)
    assert process.stderr is not None and process.stdout is not None
    try:
        for line in process.stderr:
            if match := re.search(rb"web page: (\S+)", line):
                served = Served(process, match[1].decode())
                break
        else:
            raise AssertionError("no link was printed")
        yield served
        for browser in served.browsers:
            browser.client.close()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()
        process.stdout.close()


class Browser:
    """A browser without a screen: its cookies, and the forms of the pages that it opens."""

    def __init__(self, link: str) -> None:
        self.client = httpx.Client(timeout=30)
        self.signing_in = self.client.get(link)
        address = re.search(r"url=(/web/[^\"]+)/\"", self.signing_in.text)
        parts = urlsplit(link)
        self.origin = f"{parts.scheme}://{parts.netloc}"
        self.base = self.origin + (address[1] if address else "/web")

    def page(self, path: str) -> str:
        return self.client.get(self.base + path).raise_for_status().text

    def act(self, session: Path, **fields: str) -> tuple[int, str]:
        answer = self.client.post(
            f"{self.base}/sessions/{session.stem}/act",
            data=fields,
            headers={"origin": self.origin, "accept": "text/plain"},
        )
        return answer.status_code, answer.text

    def answer(self, session: Path, scope: str, **more: str) -> tuple[int, str]:
        """Answer the question on the page with the fields of its form."""
        page = self.page(f"/sessions/{session.stem}")
        fields = dict(re.findall(r'type="hidden" name="(\w+)" value="([^"]*)"', _question(page)))
        return self.act(session, scope=scope, **fields, **more)

    def streamed(self, session: Path, wanted: str) -> str:
        """The events of a session's page, until `wanted` is among them."""
        text = ""
        with self.client.stream("GET", f"{self.base}/sessions/{session.stem}/stream") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            for line in stream.iter_lines():
                if line.startswith("data: "):
                    text += "".join(json.loads(line[6:])["parts"].values())
                if wanted in text:
                    return text
        raise AssertionError(text)


def _question(page: str) -> str:
    question = page[page.index('<div class="question">') :]
    return question[: question.index("</form>")]


def asking_session(place: Place) -> Path:
    """A session in the background that asks for its first call."""
    done = place.fugu("run", "--background", "make it")
    assert done.code == 0, done
    path = next(path for path in place.sessions() if path.stem == done.out.strip())
    until(lambda: "waits for an answer" in listed(place))
    return path


def test_a_browser_follows_a_session_approves_steers_and_interrupts(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more=ASK)

    def reacts(asked: Asked) -> Says:
        if "stop now" in asked.text:
            return Says("I am slow. " * 300, slow=0.05)
        return Says("", (Use("bash", {"command": f"touch made{len(asked.results)}"}),))

    server.play("worker", WRITES, reacts)
    path = asking_session(place)
    with serving(place) as served:
        browser = served.browser()
        sessions = browser.page("/")
        assert "waits for an answer: write" in sessions and f"/sessions/{path.stem}" in sessions
        page = browser.page(f"/sessions/{path.stem}")
        assert NAME not in page and html.escape(NAME) in _question(page)
        assert "<ins>+&lt;b&gt;new&lt;/b&gt;</ins>" in _question(page)
        assert browser.answer(path, "once") == (200, "Done.")
        assert "touch made1" in browser.streamed(path, "Allow bash?")
        assert (place.repo / NAME).read_text() == "<b>new</b>\n"
        stale = browser.act(path, act="answer", question="1", call="gone", scope="once")
        assert (stale[0], "answered already" in stale[1]) == (409, True)
        assert browser.act(path, act="send", text="stop now", how="steer") == (200, "Done.")
        assert browser.answer(path, "feedback")[0] == 409
        assert browser.answer(path, "feedback", feedback="something else")[0] == 200
        told = browser.streamed(path, "I am slow. I am")
        assert "stop now" in told and "worker as worker" in told
        # no block is missing that could show something later: the page would append it
        blocks = re.findall(r'id="block-([0-9]+)"', browser.page(f"/sessions/{path.stem}"))
        assert blocks == [str(index) for index in range(len(blocks))] != []
        address = f"{browser.base}/sessions/{path.stem}"
        own = {"origin": browser.origin}  # as a form without the script sends it
        sent = browser.client.post(f"{address}/act", data={"act": "interrupt"}, headers=own)
        assert (sent.status_code, browser.origin + sent.headers["location"]) == (303, address)
        until(lambda: not is_open(path))
        assert "interrupted: `fugu --resume" in browser.streamed(path, "interrupted: `fugu")
        late = browser.act(path, act="send", text="too late", how="steer")
        assert (late[0], "cannot attach" in late[1]) == (409, True)
    assert permits(place)[:2] == [(True, "user"), (False, "user")]


def test_it_shows_the_endpoints_requests_and_the_skills_of_agents(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("it is <i>42</i>"))
    with serving(place) as served:
        browser = served.browser()
        body = {"model": "worker", "messages": [{"role": "user", "content": "what is it?"}]}
        answer = httpx.post(f"{served.origin}/v1/chat/completions", json=body, timeout=30).json()
        assert "what is it?" in browser.page("/requests")
        trace = browser.page(f"/requests/{answer['id']}")
        assert "it is &lt;i&gt;42&lt;/i&gt;" in trace and "<caption>Decisions" in trace
        assert "<caption>Success rates by kind of request" in browser.page("/agents")


def test_nobody_gets_anything_but_the_browser_that_signed_in(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more=ASK)
    server.play("worker", WRITES)
    path = asking_session(place)
    with serving(place) as served:
        first_link = served.link
        assert httpx.head(first_link).status_code == 403  # a preview does not use it up
        browser = served.browser()
        cookie = browser.signing_in.headers["set-cookie"]
        base = urlsplit(browser.base).path
        flags = ["Path=" + base, f"Max-Age={COOKIE_SECONDS}", "HttpOnly", "SameSite=Strict"]
        assert cookie.split("; ")[1:] == flags
        policy = browser.client.get(f"{browser.base}/").headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self';")
        assert "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert served.browser().signing_in.status_code == 403
        own = {"cookie": cookie.split(";")[0]}
        session = f"{browser.base}/sessions/{path.stem}"
        body = {"act": "answer", "question": "1", "scope": "once", "call": "x"}
        foreign = {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site"}
        attempts: list[tuple[str, dict[str, str], int]] = [
            ("GET", {}, 401),
            ("GET", {"cookie": "fugu_web=" + "A" * 43}, 401),
            ("GET", own | {"host": "evil.example"}, 403),
            ("GET", own | {"host": f"evil@{urlsplit(session).netloc}"}, 403),
            ("GET", own | {"host": "127.0.0.1:1"}, 403),
            ("GET", own | foreign, 403),
            ("GET", own | {"sec-fetch-site": "cross-site"}, 403),
            ("POST", own, 403),
            ("POST", own | {"origin": "null"}, 403),
            ("POST", own | {"origin": "https://evil.example"}, 403),
            ("POST", own | {"origin": "http://127.0.0.1:1"}, 403),
            ("POST", {"origin": served.origin}, 401),
        ]
        for method, headers, status in attempts:
            address = f"{session}/act" if method == "POST" else session
            data = body if method == "POST" else None
            answer = httpx.request(method, address, headers=headers, data=data)
            assert (answer.status_code, "make it" in answer.text) == (status, False), headers
        for name in ("../../.fugurc", "%2e%2e%2f.fugurc", "latest", "x" * 200):
            answer = httpx.get(f"{browser.base}/sessions/{name}", headers=own)
            assert (answer.status_code in (404, 409), "LOOPBACK" in answer.text) == (True, False)
        served.link = served.next_link()
        second = served.browser()
        assert second.client.get(f"{second.base}/").status_code == 200
        origin = {"origin": served.origin}
        assert second.client.post(f"{second.base}/logout", headers=origin).status_code == 200
        assert second.client.get(f"{second.base}/").status_code == 401
    with serving(place) as served:  # the cookie of an earlier server
        address = served.origin + base + f"/sessions/{path.stem}"
        assert httpx.get(address, headers=own).status_code == 401
        process = served.process
        browser = served.browser()
        streaming = browser.client.stream("GET", f"{browser.base}/sessions/{path.stem}/stream")
        with streaming:
            process.send_signal(signal.SIGTERM)
            assert process.wait(20) == 0  # an open page does not hold it up
    assert is_open(path) and permits(place) == []
    os.kill(process_of(path), signal.SIGKILL)


def test_a_cookie_of_yesterday_is_worthless() -> None:
    clock = [0.0]
    access = WebAccess(8484, clock=lambda: clock[0])
    cookie = access.sign_in(access.link("127.0.0.1").partition("key=")[2])
    assert cookie is not None
    headers = {"cookie": cookie.split(";")[0]}
    assert access.is_signed_in(headers)
    clock[0] = COOKIE_SECONDS + 1.0
    assert not access.is_signed_in(headers)


def test_a_server_that_was_killed_leaves_its_sessions_and_their_questions(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more=ASK)
    server.play("worker", WRITES, Says("", (Use("bash", {"command": "touch made"}),)))
    path = asking_session(place)
    with serving(place) as served:
        browser = served.browser()
        assert "Allow write?" in browser.page(f"/sessions/{path.stem}")
        served.process.kill()
    with serving(place) as served:
        browser = served.browser()
        assert browser.answer(path, "once") == (200, "Done.")
        assert "touch made" in browser.streamed(path, "Allow bash?")
        os.kill(process_of(path), signal.SIGKILL)
        page = browser.streamed(path, "killed: `fugu --resume")
        assert "killed: `fugu --resume" in page
        assert "Allow bash?" not in browser.page(f"/sessions/{path.stem}")


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--web", "--host", "0.0.0.0"), "needs the name under which browsers open it"),
        (("--web", "--web-origin", "http://x.example"), "is no origin with TLS"),
        (("--web-origin", "https://x.example"), "add --web"),
    ],
)
def test_another_address_needs_a_named_origin_with_tls(
    place: Place, flags: tuple[str, ...], reason: str
) -> None:
    place.configure(Agent("worker"))
    place.variables["FUGU_SERVE_TOKEN"] = "t" * 24
    done = place.fugu("serve", "--port", "0", *flags)
    assert (done.code, reason in done.err) == (1, True), done


def test_behind_a_proxy_the_named_origin_alone_counts() -> None:
    access = WebAccess(8484, "https://fugu.example")
    link = access.link("0.0.0.0")
    assert link.startswith("https://fugu.example/web/login?key=")
    cookie = access.sign_in(link.partition("key=")[2])
    assert cookie is not None and cookie.endswith("; Secure")
    own = {"host": "fugu.example", "origin": "https://fugu.example"}
    path = f"{access.base}/sessions/x/act"
    assert access.check_request("POST", path, own) is None
    for wrong in ({"host": "127.0.0.1:8484"}, {"origin": "http://fugu.example"}):
        denial = access.check_request("POST", path, own | wrong)
        assert denial is not None and denial.status == 403
