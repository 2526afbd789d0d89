"""A thousand corruptions of recorded streams: each gives a reply that can be recorded, or an error
of the world.
"""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from fugu_cli.errors import AgentError
from fugu_cli.messages import Reply
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import SseDecoder
from fugu_cli.session.events import RECORDED, Recorded, Replied
from fugu_cli.session.log import Log
from fugu_cli.wires import chat_completions, messages, responses

FUZZ_SEEDS = tuple(map(int, os.environ.get("FUGU_FUZZ_SEEDS", "7").split(",")))
STREAMS = sorted((Path(__file__).parents[2] / "recorded").rglob("*.sse"))
ACCESS = ModelEndpoint(
    name="a", model="m", base_url="https://api.example.org/v1", key="k", key_env="K"
)
PIECES = [
    b"\n\n",
    b"\r",
    b"data: ",
    b"data: {}\n\n",
    b"[DONE]",
    b'\\ud83d"',
    b"\xff\xfe",
    b"null",
    b"{",
    b"]",
    b"\0",
    b'"',
]


def decode(path: Path, data: bytes) -> Reply:
    decoding: (
        messages.MessagesDecoder
        | chat_completions.ChatCompletionsDecoder
        | responses.ResponsesDecoder
    )
    if path.parent.name == "anthropic":
        decoding = messages.MessagesDecoder(ACCESS)
    elif path.stem == "responses":
        decoding = responses.ResponsesDecoder(ACCESS, lambda number: f"new-{number}")
    else:
        decoding = chat_completions.ChatCompletionsDecoder(ACCESS, lambda number: f"new-{number}")
    decoder = SseDecoder()
    for event in [*decoder.feed(data), *decoder.finish()]:
        decoding.feed(event)
    return decoding.reply()


def corrupted(data: bytes, chance: random.Random) -> bytes:
    """Bytes lost, doubled, flipped, put in; lines exchanged; the end missing."""
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(max(len(data), 1))
        length = chance.randint(1, 40)
        match chance.randrange(6):
            case 0:
                data = data[:at] + data[at + length :]
            case 1:
                data = data[:at] + data[at : at + length] + data[at:]
            case 2:
                data = data[:at] + bytes([chance.randrange(256)]) + data[at + 1 :]
            case 3:
                data = data[:at] + chance.choice(PIECES) + data[at:]
            case 4:
                lines = data.split(b"\n")
                chance.shuffle(lines)
                data = b"\n".join(lines)
            case _:
                data = data[:at]
    return data


@pytest.mark.parametrize("seed", FUZZ_SEEDS)
def test_a_thousand_corruptions_are_a_reply_or_an_error_and_nothing_else(seed: int) -> None:
    chance = random.Random(seed)
    log = Log.memory()
    replies = errors = 0
    for number in range(1000):
        path = STREAMS[number % len(STREAMS)]
        data = corrupted(path.read_bytes(), chance)
        try:
            reply = decode(path, data)
        except AgentError as error:
            assert error.kind and str(error)
            errors += 1
        else:
            fact = Replied(
                turn=1,
                agent="a",
                text=reply.text,
                thinking=reply.thinking,
                calls=reply.calls,
                stop=reply.stop,
            )
            written = RECORDED.dump_json(log.append(fact))
            assert isinstance(RECORDED.validate_json(written), Recorded)
            replies += 1
    assert replies > 100 and errors > 100


def whole(path: Path) -> Reply | None:
    try:
        return decode(path, path.read_bytes())
    except AgentError:
        return None  # recorded as it broke


def test_a_stream_that_ends_at_any_byte_is_an_error_or_says_all_that_was_said() -> None:
    for wire in ("anthropic", "openai"):
        paths = [path for path in STREAMS if path.parent.name == wire and whole(path) is not None]
        path = min(paths, key=lambda path: path.stat().st_size)
        data, then = path.read_bytes(), whole(path)
        errors = 0
        for end in range(len(data)):
            try:
                reply = decode(path, data[:end])
            except AgentError:
                errors += 1
            else:
                assert then is not None
                assert (reply.text, reply.calls, reply.stop) == (
                    then.text,
                    then.calls,
                    then.stop,
                ), f"{path}: {end}"
        assert errors > len(data) // 2
