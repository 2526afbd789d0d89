"""A line that a model filled in becomes an edit, and llama.cpp is asked for nothing but that
line.
"""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import httpx
import pytest

from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import HttpConnection
from fugu_cli.repair import excerpts
from fugu_cli.repair.fim_client import fill_in_middle
from fugu_cli.repair.protocols import with_infill_edit
from fugu_cli.repair.syntax import functions

PART = "def f(x):\n    if x:\n        return x + 1\n    return 0"
ACCESS = ModelEndpoint(name="coder", model="m", base_url="http://127.0.0.1:1/secret")


def asked(number: int, path: str = "a.py", part: str = PART, **more: Any) -> Prompt:
    """The prompt for one line of a function that is all of its file."""
    content = f"{part}\n"
    (function,) = functions(path, content)
    gap = next(
        one
        for one in excerpts.line_infills(path, content, function)
        if one.place == f"{path}:{number + 1}"
    )
    return Prompt(
        system="",
        messages=(),
        target=path,
        part=part,
        gap=gap,
        files={path: content},
        max_tokens=64,
        **more,
    )


def edit(prompt: Prompt, text: str, **more: Any) -> dict[str, str] | None:
    """The arguments of the edit that the reply asks for."""
    reply = with_infill_edit(prompt, Reply(text=text, **more))
    return json.loads(reply.calls[0].arguments) if reply.calls else None


def test_a_line_becomes_an_edit_of_that_line_with_its_indent() -> None:
    given = edit(asked(2), " return x - 1")
    assert given == {"path": "a.py", "old": "        return x + 1", "new": "        return x - 1"}
    reply = with_infill_edit(asked(2), Reply(text="return x - 1\nreturn 7"))
    assert (reply.text, reply.stop) == ("a.py:3: `return x - 1`", "calls")


@pytest.mark.parametrize("text", ["return x + 1", "return x+1  ", "return (x", "", "\n"])
def test_what_changes_nothing_or_cannot_be_read_is_no_edit(text: str) -> None:
    assert edit(asked(2), text) is None


def test_a_line_that_was_cut_is_no_edit() -> None:
    assert edit(asked(2), "return x - 1", stop="length") is None


def test_that_nothing_changed_is_said() -> None:
    assert with_infill_edit(asked(2), Reply(text="return x + 1")).text == "a.py:3: as it is"
    assert with_infill_edit(asked(2), Reply(text="")).text == ""


def test_in_other_languages_a_semicolon_alone_changes_nothing() -> None:
    part = "function f(x) {\n  return x + 1;\n}"
    assert edit(asked(1, "a.js", part), "return x + 1") is None
    assert edit(asked(1, "a.js", part), "return x - 1;") == {
        "path": "a.js",
        "old": "  return x + 1;",
        "new": "  return x - 1;",
    }


def answered(prompt: Prompt, answer: httpx.Response) -> tuple[Reply, dict[str, Any], str]:
    """What comes of a server's answer, the body it was sent, and where."""
    sent: list[httpx.Request] = []

    def serve(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        return answer

    async def talk() -> Reply:
        connection = HttpConnection(ACCESS, {}, httpx.MockTransport(serve))
        assert prompt.gap is not None
        try:
            return await fill_in_middle(connection, ACCESS, prompt, prompt.gap)
        finally:
            await connection.close()

    reply = asyncio.run(talk())
    return reply, json.loads(sent[0].content), str(sent[0].url)


def test_the_server_is_given_both_sides_and_asked_for_one_line() -> None:
    answer = {
        "content": "return x - 1",
        "stop_type": "word",
        "tokens_cached": 99,
        "timings": {"cache_n": 30, "prompt_n": 12, "predicted_n": 6, "prompt_ms": 1.5},
    }
    reply, sent, url = answered(asked(2), httpx.Response(200, json=answer))
    assert url == "http://127.0.0.1:1/secret/completion"
    before, after = "def f(x):\n    if x:\n        ", "\n    return 0\n"
    assert sent["prompt"] == f"<|fim_prefix|>{before}<|fim_suffix|>{after}<|fim_middle|>"
    assert (sent["stop"], sent["temperature"], sent["n_predict"]) == (["\n"], 0.0, 64)
    assert "seed" not in sent
    assert (reply.text, reply.stop, reply.model) == ("return x - 1", "end", "m")
    assert (reply.usage.input, reply.usage.cached, reply.usage.output) == (42, 30, 6)


def test_a_line_that_was_asked_for_before_is_drawn_by_chance() -> None:
    _, sent, _ = answered(
        asked(2, temperature=0.8, seed=7),
        httpx.Response(200, json={"content": "x", "stop_type": "limit"}),
    )
    assert (sent["temperature"], sent["seed"]) == (0.8, 7)


def test_an_answer_that_reached_its_limit_says_so() -> None:
    reply, _, _ = answered(
        asked(2), httpx.Response(200, json={"content": "return x", "stop_type": "limit"})
    )
    assert reply.stop == "length"


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (httpx.Response(500, json={"error": {"message": "out of memory"}}), "overloaded"),
        (httpx.Response(200, json={"choices": []}), "protocol"),
        (httpx.Response(200, text="<html>"), "protocol"),
    ],
)
def test_a_server_that_answers_something_else_is_the_agents_failure(
    answer: httpx.Response, kind: str
) -> None:
    with pytest.raises(AgentError) as caught:
        answered(asked(2), answer)
    assert (caught.value.kind, "coder" in str(caught.value)) == (kind, True)


def test_of_a_word_the_rest_of_its_line_stays() -> None:
    content = "def total(prices):\n    found.add(prices)\n    return found\n"
    line = excerpts.line_infills("a.py", content, functions("a.py", content)[0])[0]
    (gap,) = excerpts.word_infills(line, content, re.compile("add"))
    prompt = Prompt(system="", messages=(), target="a.py", gap=gap, files={"a.py": content})
    for said in ("append", "append(prices)", " append \n    return 1"):
        reply = with_infill_edit(prompt, Reply(text=said))
        assert reply.text == "a.py:2:11: `append`"
        assert json.loads(reply.calls[0].arguments)["new"] == "    found.append(prices)"
    assert with_infill_edit(prompt, Reply(text="add")).text == "a.py:2:11: as it is"
    for said in ("", "append(1).append", "append(prices) or [].add"):
        assert not with_infill_edit(prompt, Reply(text=said)).calls, "no word"
