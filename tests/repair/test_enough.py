"""Where a reply of an embedded model has said all that is wanted of it."""

import asyncio
import json
from collections.abc import Iterator

import httpx
import pytest

from fugu_cli.messages import FromUser, Prompt, Usage
from fugu_cli.providers.chat_completions import OpenAI
from fugu_cli.repair.reply_trimming import is_complete, stop_reason, without_extra_code
from tests.agents.servers import ACCESS, Portions, Server, quiet, unhurried

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
        (f"```\ndef g():\n    pass\n```\nand\n{CODE}\nDone.", f"```\ndef g():\n    pass\n```\nand\n{CODE}"),
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


def test_a_block_that_was_begun_is_read_up_to_its_end() -> None:
    begun = ASKED.model_copy(update={"begun": "```python\nimport re\n\n\ndef f():\n"})
    assert at(begun, "    return 2\n```\nThis returns two.") == len("    return 2\n```")
    assert at(begun, "    return 2\n") is None


def test_what_was_begun_is_the_last_that_the_server_is_given() -> None:
    body = httpx.Response(200, json={"choices": [{"message": {"content": "    return 2"}, "finish_reason": "stop"}]})
    server = Server(body)
    agent = OpenAI(ACCESS, server)
    reply = asyncio.run(agent.reply(ASKED.model_copy(update={"begun": "def f():\n"}), quiet, unhurried))
    assert reply.text == "    return 2"
    sent = json.loads(server.requests[0])["messages"]
    assert sent == [{"role": "user", "content": "go on"}, {"role": "assistant", "content": "def f():\n"}]


STANDS = ASKED.model_copy(update={"stands": 'LIMIT = 3\n\n\ndef f(n):\n    return 1\n\n\n"""\nIt counts.\n"""\n'})
WHOLE = "```python\nLIMIT = 3\n\n\ndef f(n):\n    return 2\n\n"


@pytest.mark.parametrize(
    ("further", "read"),
    [
        ("CASES = [\n    (1, 2),\n", "CASES = [\n"),
        ("for n in range(3):\n    print(f(n))\n", "for n in range(3):\n"),
        (
            '"""\nIt counts.\nInput is a number.\n"""\nprint(f(1))\n',
            '"""\nIt counts.\nInput is a number.\n"""\nprint(f(1))\n',
        ),
        ("def g():\n    return 3\n\n\nimport os\n@cache\n", None),
        ("LIMIT = 4\n", None),
        ("# It counts.\n", None),
    ],
    ids=["a name", "a loop", "behind a text", "definitions", "what was there", "a comment"],
)
def test_a_file_is_read_up_to_where_it_goes_on_behind_what_it_defined(further: str, read: str | None) -> None:
    text = WHOLE + further
    assert at(STANDS, text) == (None if read is None else len(WHOLE + read))
    if read is not None:
        assert (
            without_extra_code(STANDS, WHOLE + read)
            == WHOLE + read.removesuffix(read.splitlines(keepends=True)[-1]) + "```"
        )


def test_what_comes_before_all_is_defined_is_no_end() -> None:
    early = "```python\nCASES = [1]\n\n\nclass A:\n    def g(self):\n        return 1\n"
    assert at(STANDS, early) is None
    assert without_extra_code(STANDS, early) == early


def test_a_file_that_runs_something_itself_is_read_to_the_end() -> None:
    runs = ASKED.model_copy(update={"stands": "def f():\n    return 1\n\n\napp = f()\n"})
    assert at(runs, "```python\ndef f():\n    return 2\n\n\napp = f() + 1\nprint(app)\n") is None


def test_a_name_that_the_code_uses_is_given_a_value_behind_it() -> None:
    assert at(STANDS, f"{WHOLE.replace('return 2', 'return SEEN')}SEEN = 2\n") is None


def test_what_a_closed_block_goes_on_with_is_left_out_and_what_follows_stays() -> None:
    assert (
        without_extra_code(STANDS, f"Here:\n{WHOLE}CASES = [1]\n```\nThat is all.")
        == f"Here:\n{WHOLE}```\nThat is all."
    )


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
        yield b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'

    def said(*, early: bool) -> tuple[str, str, int]:
        taken.clear()
        answer = httpx.Response(200, headers={"content-type": "text/event-stream"}, stream=Portions(body()))
        agent = OpenAI(ACCESS, Server(answer), over=stop_reason if early else None)
        reply = asyncio.run(agent.reply(JUDGED, quiet, unhurried))
        assert not early or reply.usage == Usage(input=25, cached=5, output=3)
        return reply.text.strip(), reply.stop, len(taken)

    assert said(early=True) == ("ACCEPT", "end", 3)
    assert said(early=False) == ("ACCEPT\n\nIt is fine.", "end", 6)
