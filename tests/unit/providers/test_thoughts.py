"""Thoughts that a server leaves in the text of an answer."""

import asyncio
import json

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import ACCESS, Server, stream, unhurried

from fugu_cli.messages import FromUser, Prompt, Reply, Thinking
from fugu_cli.providers.reasoning import ThinkTagParser
from fugu_cli.session.turns import verdict_of
from fugu_cli.wires.chat_completions import OpenAI

PROMPT = Prompt(system="s", messages=(FromUser(text="u"),))
SPLIT = {
    "<think>Could I REJECT it?</think>\n\nACCEPT. All pass.": (
        "ACCEPT. All pass.",
        "Could I REJECT it?",
    ),
    "\n<think>\nHm.\n</think>\nYes.\n": ("Yes.\n", "Hm."),
    "<think></think>Yes.": ("Yes.", ""),
    "<think>Hm.</think>": ("", "Hm."),
    "Hm, wait.\n</think>\n\nACCEPT": ("ACCEPT", "Hm, wait."),
    "Yes.": ("Yes.", ""),
    " \n": (" \n", ""),
    "<thin air>": ("<thin air>", ""),
    "<think>never closed": ("<think>never closed", ""),
    "Write `<think>` and\n</think>\n\nbelow it.": (
        "Write `<think>` and\n</think>\n\nbelow it.",
        "",
    ),
    "The mark `</think>` ends it.\n": ("The mark `</think>` ends it.\n", ""),
}


@pytest.mark.parametrize("text", SPLIT)
@given(data=st.data())
def test_answer_and_thought_are_told_apart_however_they_are_cut(
    text: str, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    thoughts = ThinkTagParser()
    shown = "".join(
        thoughts.feed(text[a:b]) for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)
    )
    assert thoughts.parts() == SPLIT[text]
    assert "<think>" not in shown or "<think>" in SPLIT[text][0]


def asked(*pieces: str) -> tuple[Reply, str]:
    chunks = [{"choices": [{"index": 0, "delta": {"content": piece}}]} for piece in pieces]
    chunks.append({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    body = "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks)
    shown: list[str] = []
    agent = OpenAI(ACCESS, Server(stream(body.encode())))
    return asyncio.run(agent.reply(PROMPT, shown.append, unhurried)), "".join(shown)


def test_a_verdict_is_found_behind_a_thought_which_nobody_is_shown() -> None:
    reply, shown = asked(
        "<thi", "nk>Could I REJ", "ECT it?</thi", "nk>\n", "\nACCEPT. All", " pass."
    )
    assert (reply.text, shown) == ("ACCEPT. All pass.", "ACCEPT. All pass.")
    assert reply.thinking == (Thinking(text="Could I REJECT it?", field="content"),)
    assert verdict_of(reply.text) == "ACCEPT"


def test_a_whole_reply_is_read_alike() -> None:
    message = {"role": "assistant", "content": "<think>Hm.</think>Yes."}
    whole = httpx.Response(200, json={"choices": [{"message": message, "finish_reason": "stop"}]})
    reply = asyncio.run(OpenAI(ACCESS, Server(whole)).reply(PROMPT, lambda text: None, unhurried))
    assert (reply.text, reply.thinking) == ("Yes.", (Thinking(text="Hm.", field="content"),))
