"""The web page in a real browser: headless Chromium, driven by playwright. Skipped without them."""

from __future__ import annotations

import re
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from fugu_cli.session.log import is_open
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Says
from tests.acceptance.test_attach import ASK, permits, until
from tests.acceptance.test_web import NAME, WRITES, asking_session, serving

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or ""
FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
ATTACKS = """<!doctype html><title>other origin</title><pre id=got></pre>
<iframe id=framed src="{page}"></iframe><iframe name=sink></iframe>
<form method=post action="{page}/act" target=sink><input name=act value=answer>
<input name=question value=1><input name=scope value=once><input name=call value="{call}"></form>
<script>
const got = [];
async function attempt(name, act) {{
  try {{ got.push(name + ": " + await act()); }} catch (error) {{ got.push(name + ": nothing"); }}
}}
(async () => {{
  document.forms[0].submit();
  const own = {{ credentials: "include" }};
  await attempt("read", async () => (await fetch("{page}", own)).text());
  await attempt("script", async () => (await fetch("{page}/act",
    {{ ...own, method: "POST", body: new URLSearchParams({{ act: "interrupt" }}) }})).text());
  await attempt("blind", async () => (await fetch("{page}/act", {{ ...own, mode: "no-cors",
    method: "POST", body: new URLSearchParams({{ act: "interrupt" }}) }})).type);
  await attempt("stream", () => new Promise((accept, reject) => {{
    const stream = new EventSource("{page}/stream", {{ withCredentials: true }});
    stream.onmessage = (event) => accept(event.data);
    stream.onerror = reject;
  }}));
  await attempt("frame", () => document.getElementById("framed").contentDocument.title);
  document.getElementById("got").textContent = got.join("\\n");
  document.title = "ended";
}})();
</script>"""


@contextmanager
def other_origin(html: str) -> Iterator[tuple[str, list[str | None]]]:
    """A server on another port of this machine, and the cookies that it was sent."""
    cookies: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            cookies.append(self.headers.get("cookie"))
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(html.encode())

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/", cookies
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if not CHROMIUM:
        pytest.skip("there is no chromium on PATH")
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


def test_a_real_browser_follows_answers_steers_and_interrupts_and_other_pages_get_nothing(
    browser: Any, place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more=ASK)

    def reacts(asked: Asked) -> Says:
        return Says("I am slow. " * 300, slow=0.05)

    server.play("worker", WRITES, reacts)
    path = asking_session(place)
    problems: list[str] = []
    with serving(place) as served:
        page = browser.new_context(viewport={"width": 390, "height": 844}).new_page()
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("dialog", lambda dialog: (problems.append(dialog.message), dialog.dismiss()))
        page.goto(served.link)
        page.wait_for_url("**/web/*/")
        page.get_by_role("link", name="make it").click()
        page.get_by_role("heading", name="Allow write?").wait_for()
        assert page.get_by_role("region", name="Questions").inner_text().count(NAME) > 0
        assert not page.evaluate("document.documentElement.scrollWidth > innerWidth")
        call = page.locator("input[name=call]").get_attribute("value")
        attacks = ATTACKS.format(page=page.url, call=call)
        with other_origin(attacks) as (address, cookies):
            attacker = page.context.new_page()
            attacker.goto(address)
            until(lambda: attacker.title() == "ended")
            got = attacker.locator("#got").inner_text().splitlines()
            attacker.close()
        attempts = ("read", "script", "blind", "stream", "frame")
        assert got == [f"{attempt}: nothing" for attempt in attempts]
        assert cookies and not any(cookies)
        assert permits(place) == []
        while page.evaluate("document.activeElement.textContent") != "yes, once":
            page.keyboard.press("Tab")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Allow write?").wait_for(state="detached")
        page.get_by_text("I am slow").first.wait_for()
        page.get_by_label("Message to the agents").fill("<script>alert(2)</script>")
        page.get_by_role("button", name="Send", exact=True).click()
        page.get_by_text("not read by an agent yet: <script>alert(2)</script>").wait_for()
        page.get_by_role("button", name="Interrupt").click()
        page.get_by_text(re.compile("^interrupted: ")).wait_for()
        until(lambda: not is_open(path))
    assert (permits(place), problems) == ([(True, "user")], [])
    assert (place.repo / NAME).exists()
