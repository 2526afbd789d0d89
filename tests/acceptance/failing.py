"""Every kind of failure after every other kind, in `fugu run`, the interface, `fugu serve` and
`fugu acp`, and the calls that each pair makes.

A session or an endpoint is one process with one agent, whose server fails as the request says. A
run is a process with an agent for each kind, which fail one after the other. Pauses between tries
are a thousandth of the real ones.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import httpx

from fugu_cli.session.events import Failed
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Answer, Asked, Breaks, Loopback, Refuses, Says
from tests.unit.ui.tui.terminal import Terminal

SOON = {"retry-after-ms": "1"}
KINDS: dict[str, Answer] = {
    "401": Refuses(401, "Incorrect API key provided", "authentication_error"),
    "403 (key)": Refuses(403, "Your API key has been revoked", "permission_error"),
    "403 (content)": Refuses(403, "Request blocked: prompt injection detected", "blocked"),
    "404": Refuses(404, "no such model", "not_found_error"),
    "too long": Refuses(400, "prompt is too long: 214676 tokens > 200000 maximum"),
    "402": Refuses(402, "Insufficient credits", "billing_error"),
    "429": Refuses(429, "slow down", "rate_limit_error", SOON),
    "500": Refuses(500, "boom", "server_error", SOON),
    "cut stream": Breaks("cut"),
    "reset": Breaks("reset"),
    "page": Breaks("html"),
}
REFUSED = ("401", "403 (key)")
NO_SERVER = "refused connection"
TRIES = 5
"""Calls of one turn at most, as `retry.Backoff` has it."""
HASTY = """
import functools
from fugu_cli.providers import retry
retry.Backoff = functools.partial(retry.Backoff, first=0.001)
"""
MARK = re.compile(r"fail with <([^>]+)>")


@dataclass(frozen=True)
class Pair:
    """Two failures after one another, the calls of the second, and how its request ended."""

    first: str
    second: str
    calls: int
    end: str = ""


def hasty(place: Place) -> None:
    """Let the processes of `place` make short pauses between tries."""
    folder = place.folder / "hasty"
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(HASTY)
    place.variables["PYTHONPATH"] = os.pathsep.join([str(folder), place.environ()["PYTHONPATH"]])


def failing(server: Loopback, model: str = "m") -> None:
    """Let `model` fail as the newest request says, and answer where it says nothing."""

    def react(asked: Asked) -> Answer:
        wanted = MARK.findall(asked.text)
        return KINDS[wanted[-1]] if wanted else Says("ACCEPT It adds two numbers.")

    server.react(model, react)


def tour(kinds: list[str]) -> list[str]:
    """Return an order of kinds in which each stands right behind each other kind."""
    pairs = {(first, second) for first in kinds for second in kinds if first != second}
    order, way = list[str](), [kinds[0]]
    while way:  # Hierholzer's way through all edges of a graph
        following = sorted(second for first, second in pairs if first == way[-1])
        if following:
            pairs.remove((way[-1], following[0]))
            way.append(following[0])
        else:
            order.append(way.pop())
    return order[::-1]


def orders() -> list[list[str]]:
    """Return the sequences of requests of a session: one for all kinds that do not refuse the key,
    and one for each kind that does."""
    others = [kind for kind in KINDS if kind not in REFUSED]
    refused = [[one for kind in KINDS if kind != key for one in (key, kind)] for key in REFUSED]
    return [tour(others), *refused]


def pairs_of(order: list[str], ask: Callable[[str, str], tuple[int, str]]) -> Iterator[Pair]:
    """Ask for each failure of `order`, and yield what it cost after the one before it."""
    before = ""
    for kind in order:
        calls, end = ask(before, kind)
        if before:
            yield Pair(before, kind, calls, end)
        before = kind


def in_runs(place: Place, server: Loopback) -> list[Pair]:
    """Each pair in a `fugu run`, whose agents fail one after the other. With a prime number of
    kinds, steps of every length through them make every pair."""
    kinds = [*(kind for kind in KINDS if kind != "reset"), NO_SERVER]
    pairs = list[Pair]()
    for step in range(1, len(kinds)):
        order = [kinds[index * step % len(kinds)] for index in range(len(kinds) + 1)]
        agents = []
        for number, kind in enumerate(order):
            name = f"a{number:02}"
            url = "http://127.0.0.1:9/v1" if kind == NO_SERVER else ""
            price = f"{{ input = {number + 1}.0, output = {number + 1}.0 }}"
            agents.append(replace(Agent(name, price=price), url=url))
            server.play(name, KINDS.get(kind, Says("never asked")))
        place.configure(*agents)
        done = place.fugu("run", "what does calc.txt say?")
        failed = [event.what for event in place.events() if isinstance(event, Failed)]
        for first, second in itertools.pairwise(failed):
            calls = len(server.asked(second))
            kind = order[int(second[1:])]
            pairs.append(Pair(order[int(first[1:])], kind, calls, f"exit {done.code}"))
    return pairs


def in_serve(place: Place, server: Loopback, tools: bool = False) -> list[Pair]:
    """Each pair as two requests to one `fugu serve`."""
    pairs = list[Pair]()
    for order in orders():
        failing(server)
        place.configure(Agent("m"))
        process = place.start("serve", "--port", "0")
        try:
            assert process.stderr is not None
            url = ""
            while not url:
                line = process.stderr.readline().decode()
                url = line.partition("listening on ")[2].strip()

            def ask(before: str, kind: str, url: str = url) -> tuple[int, str]:
                made = len(server.asked("m"))
                body: dict[str, object] = {
                    "model": "fugu",
                    "messages": [{"role": "user", "content": f"fail with <{kind}>"}],
                }
                if tools:
                    function = {"name": "look", "parameters": {"type": "object"}}
                    body["tools"] = [{"type": "function", "function": function}]
                answer = httpx.post(f"{url}/chat/completions", json=body, timeout=60)
                after = answer.headers.get("retry-after", "")
                end = f"{answer.status_code}{f', after {after} s' if after else ''}"
                return len(server.asked("m")) - made, end

            pairs += pairs_of(order, ask)
        finally:
            process.terminate()
            process.communicate(timeout=30)
    return pairs


def in_acp(place: Place, server: Loopback) -> list[Pair]:
    """Each pair as two prompts of one session in an editor."""
    from acp.exceptions import RequestError

    from tests.acceptance.editor import Editor, editing, words

    async def prompts(order: list[str]) -> list[Pair]:
        pairs, before = list[Pair](), ""
        async with editing(place, Editor()) as agent:
            session = (await agent.new_session(cwd=str(place.repo))).session_id
            for kind in order:
                made = len(server.asked("m"))
                try:
                    answer = await agent.prompt(
                        session_id=session, prompt=words(f"fail with <{kind}>")
                    )
                    end = answer.stop_reason
                except RequestError as error:
                    end = type(error).__name__
                if before:
                    pairs.append(Pair(before, kind, len(server.asked("m")) - made, end))
                before = kind
        return pairs

    pairs = list[Pair]()
    for order in orders():
        failing(server)
        place.configure(Agent("m"))
        pairs += asyncio.run(prompts(order))
    return pairs


def in_interface(place: Place, server: Loopback) -> list[Pair]:
    """Each pair as two requests in the interface; the second is asked of the agent by name where
    the first refused its key."""
    pairs = list[Pair]()
    for order in orders():
        failing(server)
        place.configure(Agent("m"))
        terminal = Terminal(
            [sys.executable, "-m", "fugu_cli"], place.repo, place.environ(), (100, 34)
        )
        try:
            terminal.sees("router: cascade · models: m")
            ends = 0

            def ask(before: str, kind: str, terminal: Terminal = terminal) -> tuple[int, str]:
                nonlocal ends
                made = len(server.asked("m"))
                terminal.keys(f"fail with <{kind}>\r")
                ends += 1
                ended(place, terminal, ends)
                if before in REFUSED:
                    terminal.keys("/retry m\r")
                    ends += 1
                    ended(place, terminal, ends)
                return len(server.asked("m")) - made, "failed"

            pairs += pairs_of(order, ask)
        finally:
            terminal.close()
    return pairs


def ended(place: Place, terminal: Terminal, count: int, seconds: float = 30.0) -> None:
    """Read the terminal until the newest session has so many ends. Raises TimeoutError."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        terminal.read()
        sessions = place.sessions()
        if sessions:
            text = max(sessions, key=lambda path: path.stat().st_mtime).read_text()
            if text.count('"type":"finished"') >= count:
                return
    raise TimeoutError(f"the session did not end {count} times:\n{terminal.screen.text}")
