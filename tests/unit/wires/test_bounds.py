"""Servers that never end a reply: the agent fails, whatever it is that goes on."""

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator

import httpx
import pytest
from servers import PROMPT, Portions, Server, failure_of, quiet, unhurried

from fugu_cli.errors import AgentError
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.wires.chat_completions import OpenAI
from fugu_cli.wires.messages import Anthropic
from fugu_cli.wires.responses import Responses

ACCESS = ModelEndpoint(
    name="endless", model="m", base_url="https://api.example.org/v1", key="sk-secret"
)
LONG = "word " * 20_000
Piece = Callable[[int], object]


def delta(**what: object) -> object:
    return {"choices": [{"index": 0, "delta": what}]}


def call(number: int, arguments: str) -> object:
    return delta(
        tool_calls=[
            {
                "index": number,
                "id": f"c{number}",
                "function": {"name": "read", "arguments": arguments},
            }
        ]
    )


def block(number: int, text: str = "") -> object:
    return {
        "type": "content_block_start",
        "index": number,
        "content_block": {"type": "text", "text": text},
    }


def filled(kind: str, field: str) -> Piece:
    return lambda number: (
        block(0)
        if number == 0
        else {"type": "content_block_delta", "index": 0, "delta": {"type": kind, field: LONG}}
    )


def item(number: int, text: str) -> object:
    return {
        "type": "response.output_item.added",
        "output_index": number,
        "item": {"type": "message", "content": text},
    }


CHARACTERS, PARTS = "more than 4,194,304 characters", "more than 2,000 calls or blocks"
ENDLESS: dict[str, tuple[type[OpenAI | Anthropic | Responses], Piece, str]] = {
    "text": (OpenAI, lambda _: delta(content=LONG), CHARACTERS),
    "a refusal": (OpenAI, lambda _: delta(refusal=LONG), CHARACTERS),
    "thoughts": (OpenAI, lambda _: delta(reasoning_content=LONG), CHARACTERS),
    "thoughts in the text": (OpenAI, lambda n: delta(content=LONG if n else "<think>"), CHARACTERS),
    "sealed thoughts": (OpenAI, lambda _: delta(reasoning_details=[{"data": LONG}]), CHARACTERS),
    "arguments": (OpenAI, lambda _: call(0, LONG), CHARACTERS),
    "calls": (OpenAI, lambda n: call(n, "{}"), PARTS),
    "a message's text": (Anthropic, filled("text_delta", "text"), CHARACTERS),
    "a message's thoughts": (Anthropic, filled("thinking_delta", "thinking"), CHARACTERS),
    "a message's signature": (Anthropic, filled("signature_delta", "signature"), CHARACTERS),
    "a message's arguments": (Anthropic, filled("input_json_delta", "partial_json"), CHARACTERS),
    "a message's blocks": (Anthropic, block, PARTS),
    "long blocks": (Anthropic, lambda n: block(n, LONG), CHARACTERS),
    "a response's text": (
        Responses,
        lambda _: {"type": "response.output_text.delta", "output_index": 0, "delta": LONG},
        CHARACTERS,
    ),
    "a response's items": (Responses, lambda n: item(n, ""), PARTS),
    "long items": (Responses, lambda n: item(n, LONG), CHARACTERS),
}


def failure(kind: type[OpenAI | Anthropic | Responses], portions: Iterator[bytes]) -> AgentError:
    answer = httpx.Response(
        200, headers={"content-type": "text/event-stream"}, stream=Portions(portions)
    )
    return failure_of(kind(ACCESS, Server(answer)))


@pytest.mark.parametrize("what", ENDLESS)
def test_a_reply_without_end_is_an_error_of_the_protocol(what: str) -> None:
    kind, piece, words = ENDLESS[what]
    error = failure(
        kind, (b"data: " + json.dumps(piece(n)).encode() + b"\n\n" for n in itertools.count())
    )
    assert (error.kind, error.retry) == ("protocol", False)
    assert str(error) == f"endless: api.example.org sent {words} as one reply, and no end"
    assert error.hint


@pytest.mark.parametrize(
    "portion",
    [b": " + b"x" * 2**20 + b"\n\n", b"data: {}\n\n" * 10_000],
    ids=["comments", "events"],
)
def test_a_stream_without_end_is_one_too_where_nothing_of_it_is_kept(portion: bytes) -> None:
    error = failure(OpenAI, itertools.repeat(portion))
    assert (error.kind, error.retry) == ("protocol", False)
    assert "sent more than 256 MiB or 500,000 events as one reply" in str(error)


def test_a_long_reply_is_taken_whole() -> None:
    """More than any model says at once."""
    pieces = [delta(content=LONG)] * 20 + [
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    ]
    stream = Portions(b"data: " + json.dumps(piece).encode() + b"\n\n" for piece in pieces)
    answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=stream)
    reply = asyncio.run(OpenAI(ACCESS, Server(answer)).reply(PROMPT, quiet, unhurried))
    assert reply.text == LONG * 20
