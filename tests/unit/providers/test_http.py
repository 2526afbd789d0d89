import asyncio
from pathlib import Path

import httpx
import pytest
from servers import (
    ACCESS,
    PROMPT,
    RECORDED,
    Portions,
    Server,
    failure_of,
    quiet,
    recorded,
    stream,
    unhurried,
)

from fugu_cli.errors import AgentError
from fugu_cli.providers.endpoint import ModelEndpoint, Timeouts
from fugu_cli.wires.chat_completions import OpenAI
from fugu_cli.wires.messages import Anthropic

STREAM = (RECORDED / "openai/text.sse").read_bytes()
HTML = "<!doctype html><title>Sign in</title>"


def failure(server: httpx.AsyncBaseTransport, access: ModelEndpoint = ACCESS) -> AgentError:
    return failure_of(OpenAI(access, server))


def said(error: AgentError) -> tuple[str, bool, str]:
    return error.kind, error.retry, str(error)


REFUSALS = {
    "a refused key": (
        httpx.Response(401, json={"error": {"message": "Incorrect key: sk-secret", "code": "invalid_api_key"}}),
        ("refused", False, "strong: the key in EXAMPLE_KEY was refused by api.example.org (401): "
         "Incorrect key: *** (invalid_api_key)"),
    ),
    "a wrong key said with 400": (
        httpx.Response(400, json=[{"error": {"message": "API key not valid.", "status": "INVALID_ARGUMENT"}}]),
        ("refused", False, "strong: the key in EXAMPLE_KEY was refused by api.example.org (400): "
         "API key not valid (INVALID_ARGUMENT)"),
    ),
    "no credit": (
        httpx.Response(402, json={"error": {"message": "Insufficient Balance"}}),
        ("credit", False, "strong: the account at api.example.org has no credit left (402): Insufficient Balance"),
    ),
    "an exhausted quota": (
        httpx.Response(429, json={"error": {"message": "You exceeded it.", "type": "insufficient_quota"}}),
        ("credit", False, "strong: the account at api.example.org has no credit left (429): "
         "You exceeded it (insufficient_quota)"),
    ),
    "an account that does not pay": (
        httpx.Response(429, json={"error": {"message": "Not active.", "code": "billing_not_active"}}),
        ("credit", False, "strong: the account at api.example.org has no credit left (429): "
         "Not active (billing_not_active)"),
    ),
    "a key whose limit is spent": (
        httpx.Response(403, json={"error": {"message": "Key limit exceeded (total limit)."}}),
        ("credit", False, "strong: the account at api.example.org has no credit left (403): "
         "Key limit exceeded (total limit)."),
    ),
    "what a server behind OpenRouter says": (
        httpx.Response(400, json={"error": {"message": "Provider returned error", "code": 400, "metadata": {
            "provider_name": "Elsewhere", "raw": '{"error": {"message": "`temperature` is deprecated."}}'}}}),
        ("invalid", False, "strong: api.example.org does not accept the request (400): "
         "Provider returned error: `temperature` is deprecated (400)"),
    ),
    "more than Anthropic's model reads": (
        httpx.Response(400, json={"error": {"message": "input length and `max_tokens` exceed context limit: 9 > 8"}}),
        ("invalid", False, "strong: the request is longer than gpt-5 can read (400): "
         "input length and `max_tokens` exceed context limit: 9 > 8"),
    ),
    "more than Google's model reads": (
        httpx.Response(400, json=[{"error": {"message": "The input token count (9) exceeds the maximum (8)."}}]),
        ("invalid", False, "strong: the request is longer than gpt-5 can read (400): "
         "The input token count (9) exceeds the maximum (8)."),
    ),
    "an unknown model": (
        httpx.Response(404, json={"detail": "no such model"}),
        ("absent", False, "strong: nothing at https://api.example.org/v1 answers for gpt-5 (404): no such model"),
    ),
    "a redirection": (
        httpx.Response(308, headers={"location": "https://elsewhere"}),
        ("absent", False, "strong: https://api.example.org/v1 points somewhere else (308)"),
    ),
    "too much": (
        httpx.Response(413, text="Payload Too Large"),
        ("invalid", False, "strong: the request is too large for api.example.org (413): Payload Too Large"),
    ),
    "a broken gateway": (
        httpx.Response(502, text=HTML),
        ("overloaded", True, "strong: api.example.org is overloaded or broken (502): an HTML page"),
    ),
    "a gateway that waited too long": (
        httpx.Response(504),
        ("timeout", True, "strong: api.example.org gave up waiting (504)"),
    ),
    "a page instead of a reply": (
        httpx.Response(200, text=HTML, headers={"content-type": "text/html"}),
        ("protocol", False, "strong: api.example.org answered with an HTML page instead of a model's reply"),
    ),
    "words instead of a reply": (
        httpx.Response(200, text="Ollama is running"),
        ("protocol", False, "strong: api.example.org answered with 'Ollama is running' instead of a model's reply"),
    ),
    "an error with status 200": (
        httpx.Response(200, json={"error": {"message": "slow down", "type": "rate_limit_error"}}),
        ("limited", True, "strong: rate limited by api.example.org (429): slow down (rate_limit_error)"),
    ),
    "JSON that is no completion": (
        httpx.Response(200, json={"choices": "none"}),
        ("protocol", False, "strong: api.example.org sent a piece that is no part of a completion (choices: Input"
         """ should be a valid list): '{"choices":"none"}'"""),
    ),
    "a stream of something else": (
        stream(b"data: hello\n\n"),
        ("protocol", False, "strong: api.example.org sent a piece that is no part of a completion (Expecting value: "
         "line 1 column 1 (char 0)): 'hello'"),
    ),
    "an empty stream": (stream(b""), ("network", True, "strong: the connection to api.example.org was lost")),
    "a connection reset in the middle": (
        stream(STREAM[:400], httpx.ReadError("Connection reset by peer")),
        ("network", True, "strong: the connection to api.example.org was lost: Connection reset by peer"),
    ),
    "a connection reset before the answer": (
        httpx.RemoteProtocolError("Server disconnected"),
        ("network", True, "strong: api.example.org closed the connection before it answered: Server disconnected"),
    ),
    "no server": (
        httpx.ConnectError("Connection refused"),
        ("network", True, "strong: no connection to api.example.org: Connection refused"),
    ),
    "no connection in time": (
        httpx.ConnectTimeout(""),
        ("timeout", True, "strong: no connection to api.example.org: no answer within 10 s"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSALS)
def test_each_failure_says_what_happened_and_whether_to_try_again(name: str) -> None:
    answer, expected = REFUSALS[name]
    assert said(failure(Server(answer))) == expected


def test_a_key_that_was_not_given_is_asked_for() -> None:
    access = ModelEndpoint(
        name="strong", model="m", base_url="https://api.example.org/v1", key_env="EXAMPLE_KEY"
    )
    server = Server(httpx.Response(401))
    error = failure(server, access)
    assert (str(error), error.hint) == (
        "strong: API key missing for api.example.org (401)",
        "Set EXAMPLE_KEY, or keep a key with `fugu login`.",
    )
    assert "authorization" not in server.headers[0]


@pytest.mark.parametrize(
    "base_url", ["", "api.example.org", "http://[", "http://exa mple.org", "ftp://x"]
)
def test_an_address_that_is_none_is_named(base_url: str) -> None:
    access = ModelEndpoint(name="strong", model="m", base_url=base_url, key="k")

    async def ask() -> None:
        await OpenAI(access).reply(PROMPT, quiet, unhurried)

    with pytest.raises(AgentError) as raised:
        asyncio.run(ask())
    assert raised.value.kind in ("absent", "network")
    assert base_url in str(raised.value) + raised.value.hint


@pytest.mark.parametrize(
    ("base_url", "address"),
    [
        ("https://user:hunter2@api.example.org/v1", "https://***@api.example.org/v1"),
        ("https://api.example.org/v1?api-version=1&subscription-key=abc", None),
        ("https://api.example.org/v1?api-version=1", "https://api.example.org/v1?api-version=1"),
    ],
)
def test_an_address_is_shown_without_what_is_secret_in_it(
    base_url: str, address: str | None
) -> None:
    access = ModelEndpoint(
        name="strong", model="m", base_url=base_url, key="k", key_env="EXAMPLE_KEY"
    )
    error = failure(Server(httpx.Response(404)), access)
    shown = address or "https://api.example.org/v1?api-version=1&subscription-key=***"
    assert str(error).startswith(f"strong: nothing at {shown} answers for m")


@pytest.mark.parametrize("key", ["ключ", "two\nlines"])
def test_a_key_that_cannot_be_sent_is_said_so(key: str) -> None:
    access = ModelEndpoint(
        name="strong", model="m", base_url="http://127.0.0.1:9", key=key, key_env="EXAMPLE_KEY"
    )

    async def ask() -> None:
        await OpenAI(access).reply(PROMPT, quiet, unhurried)

    with pytest.raises(AgentError) as raised:
        asyncio.run(ask())
    assert said(raised.value) == (
        "refused",
        False,
        "strong: the key in EXAMPLE_KEY holds characters that no key has",
    )


def test_the_key_is_sent_and_never_shown() -> None:
    server = Server(recorded("openai/text.sse"))
    asyncio.run(OpenAI(ACCESS, server).reply(PROMPT, quiet, unhurried))
    assert server.headers[0]["authorization"] == "Bearer sk-secret"
    assert server.urls == ["https://api.example.org/v1/chat/completions"]
    assert "sk-secret" not in repr(ACCESS)


class Slow(httpx.AsyncByteStream):
    """Portions with a pause before each."""

    def __init__(self, *portions: tuple[float, bytes]) -> None:
        self.portions = portions
        self.closed = False

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        for pause, portion in self.portions:
            await asyncio.sleep(pause)
            yield portion

    async def aclose(self) -> None:
        self.closed = True


def hasty(**seconds: float) -> ModelEndpoint:
    return ModelEndpoint(
        name="strong",
        model="m",
        base_url="https://api.example.org/v1",
        timeouts=Timeouts(**seconds),
    )


def slow(*portions: tuple[float, bytes]) -> httpx.Response:
    return httpx.Response(
        200, headers={"content-type": "text/event-stream"}, stream=Slow(*portions)
    )


def test_a_server_that_never_answers_is_a_timeout() -> None:
    error = failure(Server(slow((30, STREAM))), hasty(first_token=0.05))
    assert said(error) == ("timeout", True, "strong: api.example.org did not answer for 0.05 s")


def test_a_server_that_stops_in_the_middle_is_a_timeout() -> None:
    error = failure(Server(slow((0, STREAM[:600]), (30, STREAM[600:]))), hasty(between=0.05))
    assert said(error) == (
        "timeout",
        True,
        "strong: api.example.org stopped in the middle of its answer for 0.05 s",
    )


def test_an_empty_piece_is_not_the_first_token() -> None:
    empty, rest = STREAM[:300], STREAM[300:]
    reply = asyncio.run(
        OpenAI(hasty(between=0.05), Server(slow((0, empty), (0.2, rest)))).reply(
            PROMPT, quiet, unhurried
        )
    )
    assert reply.text.endswith("behoben ✓"), (
        "it may think before its first token for as long as `first_token` says"
    )
    error = failure(Server(slow((0, empty), (30, rest))), hasty(first_token=0.05))
    assert said(error) == ("timeout", True, "strong: api.example.org did not answer for 0.05 s")


def test_an_open_block_is_a_sign_of_the_first_token() -> None:
    data = (RECORDED / "anthropic/thinking_tools.sse").read_bytes()
    head, rest = (
        data[: data.index(b"event: content_block_start")],
        data[data.index(b"event: content_block_start") :],
    )
    opened = rest[: rest.index(b"\n\n") + 2]
    begun = Server(
        slow((0, head), (0, opened), (0, b'event: ping\ndata: {"type": "ping"}\n\n'), (30, b""))
    )
    with pytest.raises(AgentError, match=r"stopped in the middle of its answer for 0\.05 s"):
        asyncio.run(Anthropic(hasty(between=0.05), begun).reply(PROMPT, quiet, unhurried))
    with pytest.raises(AgentError, match=r"did not answer for 0\.05 s"):
        silent = Server(slow((0, head), (30, rest)))
        asyncio.run(Anthropic(hasty(first_token=0.05), silent).reply(PROMPT, quiet, unhurried))


def test_a_server_that_only_keeps_alive_is_a_timeout_in_the_end() -> None:
    error = failure(
        Server(slow(*[(0.01, b": keep-alive\n\n")] * 1000)), hasty(whole=0.1, between=5)
    )
    assert said(error) == ("timeout", True, "strong: api.example.org did not finish for 0.1 s")


def test_a_finished_reply_does_not_wait_for_a_connection_that_lingers() -> None:
    server = Server(slow((0, STREAM), (30, b"")))
    reply = asyncio.run(
        asyncio.wait_for(OpenAI(ACCESS, server).reply(PROMPT, quiet, unhurried), 10)
    )
    assert reply.text.endswith("behoben ✓")


ENDED = STREAM[: STREAM.index(b"\n\n", STREAM.index(b'"finish_reason":"stop"')) + 2]
"""The answer up to the piece that says why it ended: no usage, no word that the stream is over."""


def test_an_answer_that_has_ended_counts_whatever_becomes_of_the_connection() -> None:
    cut = httpx.RemoteProtocolError("peer closed connection without sending complete message body")
    said_on = Server(slow((0, ENDED), (30, b"")))
    for server in (Server(stream(ENDED, cut)), said_on):
        reply = asyncio.run(
            asyncio.wait_for(
                OpenAI(hasty(between=0.05), server).reply(PROMPT, quiet, unhurried), 10
            )
        )
        assert reply.text.endswith("behoben ✓")
        assert (reply.stop, len(server.requests)) == ("end", 1)


def test_cancelling_closes_the_stream() -> None:
    body = Slow((0, STREAM[:600]), (30, b""))
    server = Server(httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=body))

    async def cut() -> None:
        heard = asyncio.Event()
        asking = asyncio.create_task(
            OpenAI(ACCESS, server).reply(PROMPT, lambda text: heard.set(), unhurried)
        )
        await heard.wait()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    asyncio.run(cut())
    assert body.closed


def test_an_agent_can_be_closed_twice_and_used_again_in_another_loop() -> None:
    agent = OpenAI(ACCESS, Server(recorded("openai/text.sse"), recorded("openai/text.sse")))

    async def once() -> str:
        reply = await agent.reply(PROMPT, quiet, unhurried)
        await agent.close()
        await agent.close()
        return reply.text

    assert asyncio.run(once()) == asyncio.run(once())


def test_text_that_is_no_unicode_goes_out_as_question_marks(tmp_path: Path) -> None:
    server = Server(recorded("openai/text.sse"))
    prompt = PROMPT.model_copy(update={"system": "caf\udce9"})
    asyncio.run(OpenAI(ACCESS, server).reply(prompt, quiet, unhurried))
    assert b'"content": "caf?"' in server.requests[0]


def test_bodies_are_closed_after_a_refusal() -> None:
    body = Portions([b'{"error": "no"}'])
    failure(Server(httpx.Response(400, stream=body)))
    assert body.closed


@pytest.mark.parametrize(
    ("name", "value"), [("ALL_PROXY", "socks9://nowhere"), ("SSL_CERT_FILE", "/no/such/file")]
)
def test_an_environment_that_allows_no_connection_is_said_so(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)

    async def ask() -> None:
        await OpenAI(ACCESS).reply(PROMPT, quiet, unhurried)

    with pytest.raises(
        AgentError, match=r"no connection to api\.example\.org can be prepared"
    ) as raised:
        asyncio.run(ask())
    assert (raised.value.kind, raised.value.retry, name in raised.value.hint) == (
        "network",
        False,
        True,
    )
