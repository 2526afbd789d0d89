"""Where a reply of an embedded model has said all that is wanted of it."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from fugu_cli.messages import FromUser, Prompt, Usage
from fugu_cli.repair.replies import is_complete, stop_reason, stops_of
from fugu_cli.wires.chat_completions import OpenAI
from tests.unit.providers.servers import ACCESS, Portions, Server, quiet, unhurried

ASKED = Prompt(system="", messages=(FromUser(text="go on"),))
JUDGED = ASKED.model_copy(update={"verdict": True})
PART = ASKED.model_copy(update={"target": "a.py", "part": "    def f(self):\n        return 1"})


def at(prompt: Prompt, text: str) -> int | None:
    """How many characters are read of a reply that comes one by one; None for all of them."""
    ends = (end for end in range(1, len(text) + 1) if is_complete(prompt, list(text[:end])))
    return next(ends, None)


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("ACCEPT\n\nThe change is fine.", "ACCEPT\n"),
        ("**Accepted**: it is fine", "**Accepted*"),
        ("Verdict: ACCEPT. Good", "Verdict: ACCEPT."),
        ("ACCEPT", "ACCEPT"),
        ("ACCEPTABLE as it is", "ACCEPTABLE as it is"),
        ("REVISE\n\nIt writes down the results.", "REVISE\n\nIt writes down the results."),
        ("I would ACCEPT it", "I would ACCEPT it"),
    ],
)
def test_a_verdict_is_read_up_to_the_word_that_accepts(text: str, read: str) -> None:
    assert text[: at(JUDGED, text)] == read
    assert at(ASKED, text) is None


CODE = "Here it is:\n```python\ndef f(self):\n    return 2\n```"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (f"{CODE}\nThis returns two.\n", CODE),
        (
            f"```\ndef g():\n    pass\n```\nand\n{CODE}\nDone.",
            f"```\ndef g():\n    pass\n```\nand\n{CODE}",
        ),
        (f"class A:\n{CODE}", f"class A:\n{CODE}"),
        ("```python\ndef f(self):\n    return 2\n", "```python\ndef f(self):\n    return 2\n"),
        (
            '```python\ndef f(self):\n    """As in\n\n    ```\n    f()\n    ```\n    """\n    return 2\n```\nmore',
            '```python\ndef f(self):\n    """As in\n\n    ```\n    f()\n    ```\n    """\n    return 2\n```',
        ),
    ],
)
def test_a_function_is_read_up_to_the_end_of_its_block(text: str, read: str) -> None:
    assert text[: at(PART, text)] == read
    assert at(ASKED, text) is None


def test_lines_that_are_no_function_are_read_to_the_end() -> None:
    part = PART.model_copy(update={"part": "LIMIT = 3"})
    assert at(part, "```python\nLIMIT = 4\n```\nThis is more.") is None


def test_what_follows_is_not_read_and_only_of_embedded_models() -> None:
    taken: list[str] = []

    def body() -> Iterator[bytes]:
        for number, word in enumerate(["ACC", "EPT", "\n\n", "It", " is", " fine."], start=1):
            taken.append(word)
            timings = {"prompt_n": 20, "cache_n": 5, "predicted_n": number}
            chunk = {"choices": [{"index": 0, "delta": {"content": word}}], "timings": timings}
            yield f"data: {json.dumps(chunk)}\n\n".encode()
        yield (
            b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: '
            b"[DONE]\n\n"
        )

    def said(*, early: bool) -> tuple[str, str, int]:
        taken.clear()
        answer = httpx.Response(
            200, headers={"content-type": "text/event-stream"}, stream=Portions(body())
        )
        agent = OpenAI(ACCESS, Server(answer), is_complete=stop_reason if early else None)
        reply = asyncio.run(agent.reply(JUDGED, quiet, unhurried))
        assert not early or reply.usage == Usage(input=25, cached=5, output=3)
        return reply.text.strip(), reply.stop, len(taken)

    assert said(early=True) == ("ACCEPT", "end", 3)
    assert said(early=False) == ("ACCEPT\n\nIt is fine.", "end", 6)


def test_where_tests_judge_a_reply_ends_where_it_begins_to_try_itself_out() -> None:
    assert stops_of("a.py", "x = 1\n") == ("\ndef test", "\ndef check", "\nassert ", "\nprint(")
    assert stops_of("a.py", "def check(x):\n    pass\nprint(1)\n") == ("\ndef test", "\nassert ")
    assert stops_of("a.js", "") == ("\n// Test", "\n// Example", "\nconsole.log(", "\nassert(")
