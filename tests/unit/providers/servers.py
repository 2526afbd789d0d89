"""Servers for tests: they answer from a list and keep what they were asked. Plugged in as httpx
transports.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable
from pathlib import Path

import httpx
import pytest

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Prompt
from fugu_cli.providers import Pause
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.wire_agent import WireAgent

PROMPT = Prompt(system="s", messages=(FromUser(text="u"),))
RECORDED = Path(__file__).parents[2] / "recorded"
ACCESS = ModelEndpoint(
    name="strong",
    model="gpt-5",
    base_url="https://api.example.org/v1",
    key="sk-secret",
    key_env="EXAMPLE_KEY",
)


class Portions(httpx.AsyncByteStream):
    """A body in portions; an exception among them is raised at its place."""

    def __init__(self, portions: Iterable[bytes | Exception]) -> None:
        self.portions = portions
        self.closed = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for portion in self.portions:
            if isinstance(portion, Exception):
                raise portion
            yield portion

    async def aclose(self) -> None:
        self.closed = True


def stream(*portions: bytes | Exception) -> httpx.Response:
    return httpx.Response(
        200, headers={"content-type": "text/event-stream"}, stream=Portions(portions)
    )


def recorded(name: str) -> httpx.Response:
    return stream((RECORDED / name).read_bytes())


class Server(httpx.AsyncBaseTransport):
    """Gives its answers in order; the last one again when they run out. `requests` holds the bodies
    it got.
    """

    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers = list(answers)
        self.requests: list[bytes] = []
        self.headers: list[httpx.Headers] = []
        self.urls: list[str] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(await request.aread())
        self.headers.append(request.headers)
        self.urls.append(str(request.url))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


def failure_of(agent: WireAgent) -> AgentError:
    """Ask an agent for a reply, which fails; return how."""

    async def ask() -> None:
        try:
            await agent.reply(PROMPT, quiet, unhurried)
        finally:
            await agent.close()

    with pytest.raises(AgentError) as raised:
        asyncio.run(ask())
    return raised.value


def quiet(text: str) -> None:
    pass


def unhurried(pause: Pause) -> None:
    pass
