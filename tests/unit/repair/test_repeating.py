"""Replies that say the same again and again are seen, and cut where they begin to."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from fugu_cli.messages import FromUser, Prompt, Usage
from fugu_cli.repair.replies import repeats_itself, stop_reason
from fugu_cli.wires.chat_completions import OpenAI
from tests.unit.providers.servers import ACCESS, Portions, Server, quiet, unhurried

HEAD = "def test_f():\n"
LINE = "    assert f(1) == 2\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD + LINE * 9 + "    ass",
        HEAD + (LINE + "    assert f(2) == 3\n") * 6,
        "x = [" + "10, " * 300,
        "text\nx = [" + "10, " * 3000,
    ],
)
def test_repetitions_are_seen(text: str) -> None:
    assert repeats_itself(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        HEAD + LINE * 3,
        "}\n" * 40,
        "\n" * 40,
        "".join(f"    assert f({number}) == {number}\n" for number in range(60)),
        "a, b\n" * 7,
    ],
)
def test_other_texts_are_not_cut(text: str) -> None:
    assert not repeats_itself(text)


def test_what_the_model_was_shown_like_that_it_may_write_like_that() -> None:
    table = "    (1, 2, 3),\n" * 30
    assert repeats_itself(table)
    assert not repeats_itself(table, f"The file:\n{table}")


def portions(taken: list[int]) -> Iterator[bytes]:
    """A reply without an end, as llama.cpp streams it; `taken` counts the lines that were asked
    for.
    """
    for number in range(1000):
        taken.append(number)
        chunk = {
            "choices": [{"index": 0, "delta": {"content": HEAD if number == 0 else LINE}}],
            "timings": {"prompt_n": 20, "cache_n": 5, "predicted_n": 7 * (number + 1)},
        }
        yield f"data: {json.dumps(chunk)}\n\n".encode()


def test_a_reply_without_an_end_is_cut_and_what_it_took_is_counted() -> None:
    taken: list[int] = []
    body = httpx.Response(
        200, headers={"content-type": "text/event-stream"}, stream=Portions(portions(taken))
    )
    agent = OpenAI(ACCESS, Server(body), is_complete=stop_reason)
    prompt = Prompt(system="", messages=(FromUser(text="write tests"),))
    reply = asyncio.run(agent.reply(prompt, quiet, unhurried))
    assert (reply.stop, reply.text) == ("length", HEAD + LINE * 8)
    assert reply.usage == Usage(input=25, cached=5, output=63)
    assert len(taken) == 9, "nothing more was read"
