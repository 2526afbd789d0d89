"""An endpoint on a real socket for the tests: agents made of functions, served by uvicorn on a
thread of its own.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import uvicorn

from fugu_cli.coordinators import Coordinator, CoordinatorSettings
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.engine.environment import Environment, Permission, Team
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, Prompt, Reply, Thinking, Usage
from fugu_cli.providers import Agent, Say, Wait
from fugu_cli.providers.circuit_breaker import BreakerAgent, CircuitBreaker
from fugu_cli.providers.retry import RetryClock, Retrying
from fugu_cli.safety.policy import Judgement, Rules
from fugu_cli.server import EndpointLimits
from fugu_cli.server.app import build_app
from fugu_cli.server.http_server import uvicorn_config
from fugu_cli.server.service import EndpointService
from fugu_cli.server.single_agent import EndpointSettings
from fugu_cli.server.traces import Traces
from fugu_cli.session import store
from fugu_cli.session.events import Member, Opened, Price
from fugu_cli.session.log import read
from fugu_cli.session.spending import Budgets, Ledger
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import Workspace

SMALL = Member(
    name="small",
    provider="openai",
    model="m-small",
    slot="cheap",
    price=Price(input=1.0, output=2.0),
)
STRONG = Member(
    name="strong",
    provider="openai",
    model="m-strong",
    slot="strong",
    price=Price(input=10.0, output=20.0),
)
USED = Usage(input=100, cached=40, output=10, reasoning=3)

React = Callable[[Prompt], Reply]


class Closing(Protocol):
    """A client that keeps connections."""

    def close(self) -> None: ...


class Speaker:
    """An agent made of a function, which speaks in pieces, `pace` seconds apart. `cut`: it was
    cancelled. A reply that stops as `cut` breaks off behind its words."""

    def __init__(self, name: str, react: React, pace: float = 0.0) -> None:
        self._name = name
        self._react = react
        self._pace = pace
        self.shown: list[Prompt] = []
        self.cut = threading.Event()
        self.begun = threading.Event()

    @property
    def name(self) -> str:
        return self._name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        self.shown.append(prompt)
        self.begun.set()
        reply = self._react(prompt)
        try:
            for word in reply.text.split(" "):
                say(word if word == reply.text.split(" ")[0] else f" {word}")
                await asyncio.sleep(self._pace)
        except asyncio.CancelledError:
            self.cut.set()
            raise
        if reply.stop == "cut":
            error = AgentError(f"{self._name}: the stream was cut", kind="network", retry=True)
            error.usage = USED
            raise error
        return reply.model_copy(update={"usage": USED, "model": f"{self._name}-served"})

    async def close(self) -> None:
        pass


def says(text: str) -> React:
    """The same answer each time; a Verifier accepts."""
    return lambda prompt: Reply(text="ACCEPT it is right" if judges(prompt) else text)


def judges(prompt: Prompt) -> bool:
    """The agent is asked for a verdict."""
    return any(
        "You are the Verifier now" in getattr(message, "text", "")
        for message in prompt.messages[-1:]
    )


def uses(tool: str = "bash", **arguments: object) -> React:
    """Calls the tool until its result has come."""

    def react(prompt: Prompt) -> Reply:
        if any(message.type == "tool" for message in prompt.messages):
            return Reply(text="the tool said it")
        call = Call.make("x", tool, **(arguments or {"command": "ls"}))
        thinking = (
            Thinking(text="hm", data='{"type": "thinking", "thinking": "hm", "signature": "s"}'),
        )
        return Reply(text="looking", calls=(call,), stop="calls", thinking=thinking)

    return react


def fails(
    kind: str = "overloaded", *, after: float | None = None, retry: bool = False, said: str = ""
) -> React:
    def react(prompt: Prompt) -> Reply:
        raise AgentError(said or f"it is {kind}", kind=kind, after=after, retry=retry)

    return react


def breaks(text: str, times: int = 1) -> React:
    """An answer that breaks off behind its first word, so many times."""
    left = [Reply(text=text.split()[0], stop="cut")] * times
    return lambda prompt: left.pop() if left else Reply(text=text)


async def _at_once(seconds: float) -> None:
    """Nobody waits in a test."""


async def _nobody(call: Call, judgement: Judgement) -> Permission:
    return "headless"


@dataclass
class Endpoint:
    """What is served, and where."""

    data: Path
    agents: Mapping[str, Speaker]
    members: Sequence[Member] = (SMALL, STRONG)
    coordinator: Coordinator | None = None
    single: str | None = None
    ultra: Callable[[], Coordinator] | None = None
    budgets: Budgets = field(default_factory=Budgets)
    ledger: Ledger | None = None
    opted_out: frozenset[str] = frozenset()
    bounds: EndpointLimits = field(default_factory=EndpointLimits)
    token: str | None = None
    origins: tuple[str, ...] = ()
    url: str = ""
    breaker: CircuitBreaker = field(default_factory=CircuitBreaker)
    clients: list[Closing] = field(default_factory=list)
    """Closed with the endpoint."""

    def settings(self) -> EndpointSettings:
        settings = CoordinatorSettings(verify_answers=True, opt_out=self.opted_out)
        watched: dict[str, Agent] = {
            name: BreakerAgent(
                Retrying(agent, time=RetryClock(sleep=_at_once, chance=lambda: 1.0)), self.breaker
            )
            for name, agent in self.agents.items()
        }
        coordinator = self.coordinator or Cascade(self.members, settings)
        empty = self.data / "empty"
        empty.mkdir(parents=True, exist_ok=True)
        return EndpointSettings(
            opened=Opened(
                version="1",
                repo="/repo",
                pool=tuple(self.members),
                coordinator="cascade",
                served=True,
            ),
            team=Team(
                {member.name: member for member in self.members},
                watched,
                coordinator,
                self.breaker,
            ),
            environment=Environment(
                Toolbox(()), Workspace(empty, empty), Rules(mode="plan"), _nobody
            ),
            budgets=self.budgets,
            opted_out=self.opted_out,
            pinned_agent=self.single,
            ultra=self.ultra,
            open_account=self.ledger.tab if self.ledger else None,
        )

    @contextmanager
    def serving(self) -> Iterator[Endpoint]:
        """Answers on a free port until the block ends; then every trace is on the disk."""
        service = EndpointService(self.settings(), Traces(self.data), self.bounds)
        opened = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{opened.getsockname()[1]}"
        server = uvicorn.Server(
            uvicorn_config(build_app(service, self.token, self.origins), grace=30.0)
        )
        thread = threading.Thread(target=lambda: asyncio.run(_run(server, service, opened)))
        thread.start()
        try:
            yield self
        finally:
            for client in self.clients:
                client.close()
            server.should_exit = True
            thread.join()

    def events(self, trace: str) -> list[str]:
        """The facts of a trace as they lie on the disk, once the endpoint has stopped."""
        return [
            record.event.type
            for record in read(store.find_session(self.data, Path("/nowhere"), trace))
        ]


async def _run(server: uvicorn.Server, service: EndpointService, opened: socket.socket) -> None:
    await server.serve([opened])
    await service.close()


def endpoint(data: Path, small: React, strong: React | None = None, pace: float = 0.0) -> Endpoint:
    """Two agents, the cheap one first."""
    return Endpoint(
        data,
        {
            "small": Speaker("small", small, pace),
            "strong": Speaker("strong", strong or says("from strong"), pace),
        },
    )
