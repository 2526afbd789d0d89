"""Every kind of failure after every other kind, in `fugu run`, the interface, `fugu serve` and
`fugu acp`, and the calls that each pair makes.

The server of the one agent of a session or a served request fails as the request says. A run has an
agent for each kind, which fail one after the other. Pauses between tries are a thousandth of the
real ones.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import sys
import time
from collections.abc import Sequence
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
WAYS = ("401", "403 (content)", "too long", "402", "429", "cut stream")
"""One kind of each way in which an agent fails for the engine, which runs, editors and the
interface share."""
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


def orders(kinds: Sequence[str]) -> list[list[str]]:
    """Return what is asked for one after the other: one order of all kinds that do not refuse the
    key, and a short one, of an agent or session of its own, for each pair with one that does."""
    others = [kind for kind in kinds if kind not in REFUSED]
    short = [[first, second] for first in kinds for second in kinds if first != second]
    return [tour(others), *(pair for pair in short if {*pair} & {*REFUSED})]


def in_runs(place: Place, server: Loopback) -> list[Pair]:
    """Each pair in a `fugu run`, whose agents fail one after the other. With a prime number of
    kinds, steps of every length through them make every pair."""
    kinds = [*(kind for kind in KINDS if kind != "reset"), NO_SERVER]
    pairs = list[Pair]()
    for step in range(1, len(kinds)):
        order = [kinds[index * step % len(kinds)] for index in range(len(kinds) + 1)]
        agents = []
        for number, kind in enumerate(order):
            name = f"a{step:02}{number:02}"  # a used-up plan is remembered by name
            url = "http://127.0.0.1:9/v1" if kind == NO_SERVER else ""
            price = f"{{ input = {number + 1}.0, output = {number + 1}.0 }}"
            agents.append(replace(Agent(name, price=price), url=url))
            server.play(name, KINDS.get(kind, Says("never asked")))
        place.configure(*agents)
        done = place.fugu("run", "what does calc.txt say?")
        failed = [event.what for event in place.events() if isinstance(event, Failed)]
        for first, second in itertools.pairwise(failed):
            calls = len(server.asked(second))
            kind = order[int(second[3:])]
            pairs.append(Pair(order[int(first[3:])], kind, calls, f"exit {done.code}"))
    return pairs


def in_serve(place: Place, server: Loopback, kinds: Sequence[str] = WAYS) -> list[Pair]:
    """Each pair of kinds as two requests to one `fugu serve`, which its whole loop answers."""
    return _in_serve(place, server, kinds, tools=False)


def in_serve_with_tools(place: Place, server: Loopback, kinds: Sequence[str] = WAYS) -> list[Pair]:
    """Each pair of kinds as two requests to one `fugu serve` with a tool, which one agent answers."""
    return _in_serve(place, server, kinds, tools=True)


def _in_serve(place: Place, server: Loopback, kinds: Sequence[str], *, tools: bool) -> list[Pair]:
    pairs = list[Pair]()
    agents = [f"m{number}" for number in range(len(orders(kinds)))]
    place.configure(*map(Agent, agents))
    process = place.start("serve", "--port", "0")
    try:
        assert process.stderr is not None
        url = ""
        while not url:
            url = process.stderr.readline().decode().partition("listening on ")[2].strip()
        for agent, order in zip(agents, orders(kinds), strict=True):
            failing(server, agent)
            before, made = "", 0
            for kind in order:
                body: dict[str, object] = {
                    "model": "fugu",
                    "messages": [{"role": "user", "content": f"fail with <{kind}>"}],
                    "metadata": {"opt_out": ",".join(name for name in agents if name != agent)},
                }
                if tools:
                    function = {"name": "look", "parameters": {"type": "object"}}
                    body["tools"] = [{"type": "function", "function": function}]
                answer = httpx.post(f"{url}/chat/completions", json=body, timeout=60)
                after = answer.headers.get("retry-after", "")
                end = f"{answer.status_code}{f', after {after} s' if after else ''}"
                calls = len(server.asked(agent)) - made
                made += calls
                if before:
                    pairs.append(Pair(before, kind, calls, end))
                before = kind
    finally:
        process.terminate()
        process.communicate(timeout=30)
    return pairs


def in_acp(place: Place, server: Loopback, kinds: Sequence[str] = WAYS) -> list[Pair]:
    """Each pair of kinds as two prompts of one session in an editor. Each session has an agent of its own,
    since a key that was refused in one is not asked in the others."""
    from acp.exceptions import RequestError

    from tests.acceptance.editor import Editor, editing, words

    pairs = list[Pair]()

    async def prompts() -> None:
        async with editing(place, Editor()) as agent:
            for number, order in enumerate(orders(kinds)):
                name = f"m{number}"
                failing(server, name)
                place.configure(Agent(name))
                session = (await agent.new_session(cwd=str(place.repo))).session_id
                before = ""
                for kind in order:
                    made = len(server.asked(name))
                    prompt = words(f"fail with <{kind}>")
                    try:
                        answer = await agent.prompt(session_id=session, prompt=prompt)
                        end = answer.stop_reason
                    except RequestError as error:
                        end = type(error).__name__
                    if before:
                        pairs.append(Pair(before, kind, len(server.asked(name)) - made, end))
                    before = kind

    asyncio.run(prompts())
    return pairs


def in_interface(place: Place, server: Loopback, kinds: Sequence[str] = WAYS) -> list[Pair]:
    """Each pair of kinds as two requests of one session in the interface; the second is asked again of the
    agent by name where the first refused its key. Each session has an agent of its own."""
    pairs = list[Pair]()
    agents = [f"m{number}" for number in range(len(orders(kinds)))]
    place.configure(*map(Agent, agents))
    terminal = Terminal([sys.executable, "-m", "fugu_cli"], place.repo, place.environ(), (100, 34))
    try:
        terminal.sees("coordinator: cascade · agents: m0")
        ends = 0
        for agent, order in zip(agents, orders(kinds), strict=True):
            failing(server, agent)
            if ends:
                terminal.keys("/new\r")
                terminal.until(lambda screen: "fail with" not in screen)
            terminal.keys(f"/pin {agent}\r")
            before = ""
            for kind in order:
                made = len(server.asked(agent))
                again = [f"/retry {agent}\r"] if before in REFUSED else []
                lines = [f"fail with <{kind}>\r", *again]
                for line in lines:
                    terminal.keys(line)
                    ends += 1
                    ended(place, terminal, ends)
                if before:
                    pairs.append(Pair(before, kind, len(server.asked(agent)) - made))
                before = kind
    finally:
        terminal.close()
    return pairs


def ended(place: Place, terminal: Terminal, count: int, seconds: float = 30.0) -> None:
    """Read the terminal until all sessions together have so many ends. Raises TimeoutError."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        terminal.read()
        text = "".join(path.read_text() for path in place.sessions())
        if text.count('"type":"finished"') >= count:
            return
    raise TimeoutError(f"the sessions did not end {count} times:\n{terminal.screen.text}")
