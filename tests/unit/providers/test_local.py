"""The local agent against a loopback server: how it leases, what it does when the server dies or
does not start.
"""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from servers import RECORDED, quiet

from fugu_cli.errors import AgentError, InfrastructureError, ModelFileError
from fugu_cli.local.embedded_agent import EmbeddedAgent
from fugu_cli.messages import FromUser, Prompt

PROMPT = Prompt(system="s", messages=(FromUser(text="u"),))
STREAM = (RECORDED / "llamacpp/text.sse").read_bytes()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


class Loopback:
    """A server on this machine that sends the same bytes to everyone; also the lease of itself."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.closed = 0
        self.base_url = ""

    async def start(self) -> "Loopback":
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.server = server
        self.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        return self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(self.answer)
        writer.close()

    async def close(self) -> None:
        self.closed += 1
        self.server.close()


def leasing(
    *answers: bytes | Exception,
) -> tuple[list[Loopback], Callable[[], Awaitable[Loopback]]]:
    started: list[Loopback] = []

    async def start() -> Loopback:
        answer = answers[len(started)]
        if isinstance(answer, Exception):
            raise answer
        started.append(await Loopback(answer).start())
        return started[-1]

    return started, start


def test_the_server_is_started_once_and_let_go_at_the_end() -> None:
    started, start = leasing(HEAD + STREAM)
    waits: list[str] = []

    async def talk() -> list[tuple[str, str]]:
        agent = EmbeddedAgent("small", "qwen2.5-coder-0.5b", start)
        replies = [
            await agent.reply(PROMPT, quiet, lambda pause: waits.append(pause.why))
            for _ in range(2)
        ]
        await agent.close()
        await agent.close()
        return [(reply.text, reply.model) for reply in replies]

    assert asyncio.run(talk()) == [("Bonjour", "qwen2.5-coder-0.5b")] * 2
    assert ([server.closed for server in started], waits) == ([1], ["loading qwen2.5-coder-0.5b"])


def test_two_calls_at_once_share_one_start() -> None:
    started, start = leasing(HEAD + STREAM)

    async def talk() -> list[str]:
        agent = EmbeddedAgent("small", "m", start)
        replies = await asyncio.gather(
            *(agent.reply(PROMPT, quiet, lambda pause: None) for _ in range(3))
        )
        await agent.close()
        return [reply.text for reply in replies]

    assert asyncio.run(talk()) == ["Bonjour"] * 3
    assert len(started) == 1


def test_a_server_that_died_is_replaced_at_the_next_try() -> None:
    started, start = leasing(HEAD + STREAM[:400], HEAD + STREAM)

    async def talk() -> tuple[AgentError, str]:
        agent = EmbeddedAgent("small", "m", start)
        with pytest.raises(AgentError) as raised:
            await agent.reply(PROMPT, quiet, lambda pause: None)
        reply = await agent.reply(PROMPT, quiet, lambda pause: None)
        await agent.close()
        return raised.value, reply.text

    error, text = asyncio.run(talk())
    assert (error.kind, error.retry, text) == ("network", True, "Bonjour")
    assert [server.closed for server in started] == [1, 1]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ModelFileError("the file is damaged", hint="pull it again"), "invalid"),
        (InfrastructureError("no memory", hint="close something"), "overloaded"),
    ],
)
def test_a_server_that_does_not_start_is_the_agents_failure(
    error: InfrastructureError, kind: str
) -> None:
    _, start = leasing(error)
    with pytest.raises(AgentError) as raised:
        asyncio.run(EmbeddedAgent("small", "m", start).reply(PROMPT, quiet, lambda pause: None))
    assert (str(raised.value), raised.value.kind, raised.value.retry, raised.value.hint) == (
        f"small: {error}",
        kind,
        False,
        error.hint,
    )
