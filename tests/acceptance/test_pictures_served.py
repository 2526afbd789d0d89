"""Pictures through `fugu serve`, the process, by the real SDKs: three wires in, three out, and no
conversation ends.
"""

from __future__ import annotations

import base64
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anthropic
import openai
import pytest

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Refuses, Says
from tests.acceptance.test_pictures import BASE64, RED, SEES, SHOT, WIRES, shown
from tests.pictures import pdf, picture

URL = f"data:image/png;base64,{BASE64}"
OTHER = base64.b64encode(picture(3, 3)).decode()
PLAN = base64.b64encode(pdf("The plan.")).decode()
TOOL = {"type": "object", "properties": {}}


@contextmanager
def serving(place: Place) -> Iterator[str]:
    """The program's address; it ends well with the block."""
    made = place.start("serve", "--port", "0")
    try:
        assert made.stderr is not None
        line = next((line.decode() for line in made.stderr if b"listening on" in line), "")
        yield re.sub(r".*listening on (\S+)/v1\s*", r"\1", line)
        made.send_signal(signal.SIGTERM)
        assert made.wait(30) == 0
    finally:
        made.kill()
        made.communicate()


def by_chat(url: str, *parts: dict[str, Any], tools: bool = False) -> str:
    """What comes back to these parts, behind the question."""
    more: dict[str, Any] = {
        "tools": [{"type": "function", "function": {"name": "look", "parameters": TOOL}}]
    }
    content = [{"type": "text", "text": "what is it?"}, *parts]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        messages: Any = [{"role": "user", "content": content}]
        made = client.chat.completions.create(
            model="fugu", messages=messages, **(more if tools else {})
        )
    return made.choices[0].message.content or ""


def by_responses(url: str, *parts: dict[str, Any], tools: bool = False) -> str:
    more: dict[str, Any] = {
        "tools": [{"type": "function", "name": "look", "parameters": TOOL, "strict": False}]
    }
    content = [{"type": "input_text", "text": "what is it?"}, *parts]
    with openai.OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0) as client:
        said: Any = [{"role": "user", "content": content}]
        return client.responses.create(
            model="fugu", input=said, **(more if tools else {})
        ).output_text


def by_messages(url: str, *parts: dict[str, Any], tools: bool = False) -> str:
    more: dict[str, Any] = {"tools": [{"name": "look", "input_schema": TOOL}]}
    content = [*parts, {"type": "text", "text": "what is it?"}]
    with anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as client:
        said: Any = [{"role": "user", "content": content}]
        made = client.messages.create(
            model="fugu", max_tokens=99, messages=said, **(more if tools else {})
        )
    return "".join(block.text for block in made.content if block.type == "text")


def source(data: str, kind: str = "image/png") -> dict[str, str]:
    return {"type": "base64", "media_type": kind, "data": data}


CLIENTS = {
    "chat": (by_chat, {"type": "image_url", "image_url": {"url": URL}}),
    "responses": (by_responses, {"type": "input_image", "image_url": URL, "detail": "auto"}),
    "messages": (by_messages, {"type": "image", "source": source(BASE64)}),
}


@pytest.mark.parametrize("wire", WIRES)
def test_a_picture_of_every_client_reaches_this_wire(
    place: Place, server: Loopback, wire: str
) -> None:
    place.configure(WIRES[wire])
    with serving(place) as url:
        for client, (ask, part) in CLIENTS.items():
            for tools in (False, True):
                server.play("eye", RED)
                assert (client, ask(url, part, tools=tools)) == (client, "It is red.")
                assert (client, shown(server.asked("eye")[0])) == (client, [BASE64])


PDFS = {
    "chat": (
        by_chat,
        {
            "type": "file",
            "file": {"filename": "p.pdf", "file_data": f"data:application/pdf;base64,{PLAN}"},
        },
    ),
    "responses": (
        by_responses,
        {
            "type": "input_file",
            "filename": "p.pdf",
            "file_data": f"data:application/pdf;base64,{PLAN}",
        },
    ),
    "messages": (
        by_messages,
        {"type": "document", "title": "p.pdf", "source": source(PLAN, "application/pdf")},
    ),
}


@pytest.mark.parametrize("wire", ["messages", "chat"])
def test_a_pdf_of_a_client_goes_as_it_is_or_as_text(
    place: Place, server: Loopback, wire: str
) -> None:
    place.configure(WIRES[wire])
    with serving(place) as url:
        for ask, part in PDFS.values():
            server.play("eye", RED)
            assert ask(url, part, tools=True) == "It is red."
            asked = server.asked("eye")[0]
            assert shown(asked) == ([PLAN] if wire == "messages" else [])
            assert ("[PDF p.pdf, 1 page, as text:]\\n[page 1]\\nThe plan." in asked.text) == (
                wire == "chat"
            )


def test_who_sees_is_asked_and_where_nobody_does_a_line_stands_for_it(
    place: Place, server: Loopback
) -> None:
    ask, part = CLIENTS["chat"]
    place.configure(Agent("blind"), Agent("eye", "strong", more=SEES), more="max_turns = 1")
    server.play("blind", Says("I see nothing."))
    server.play("eye", RED)
    with serving(place) as url:
        assert [ask(url, part, tools=tools) for tools in (False, True)] == ["It is red."] * 2
    assert server.asked("blind") == []
    place.configure(Agent("blind"))
    with serving(place) as url:
        assert [ask(url, part, tools=tools) for tools in (False, True)] == ["I see nothing."] * 2
    line = "800x600, not shown: this model does not see pictures]"
    assert {line in asked.text for asked in server.asked("blind")} == {True}


@pytest.mark.parametrize("client", CLIENTS)
def test_what_cannot_be_taken_or_is_refused_is_a_line_and_the_conversation_goes_on(
    place: Place, server: Loopback, client: str
) -> None:
    ask, part = CLIENTS[client]
    place.configure(Agent("eye", more=SEES))
    fetched: dict[str, dict[str, Any]] = {
        "chat": {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}},
        "responses": {
            "type": "input_image",
            "image_url": "https://example.org/x.png",
            "detail": "auto",
        },
        "messages": {
            "type": "image",
            "source": {"type": "url", "url": "https://example.org/x.png"},
        },
    }
    lines = (
        (part, "800x600, not shown: its provider refused it"),
        (fetched[client], "only data: URLs in base64 are taken, nothing is fetched"),
    )
    with serving(place) as url:
        for tools in (False, True):
            for one, line in lines:
                server.react(
                    "eye",
                    lambda asked: Refuses(400, "Could not process image") if shown(asked) else RED,
                )
                assert ask(url, one, tools=tools) == "It is red."
                assert line in server.asked("eye")[-1].text


def test_a_picture_in_a_result_of_a_clients_tool_is_shown(place: Place, server: Loopback) -> None:
    place.configure(WIRES["chat"])
    server.play("eye", RED)
    use = {"type": "tool_use", "id": "call_1", "name": "look", "input": {}}
    result = [{"type": "text", "text": "here"}, {"type": "image", "source": source(BASE64)}]
    said: Any = [
        {
            "role": "user",
            "content": [
                {"type": "image", "source": source(OTHER)},
                {"type": "text", "text": "and?"},
            ],
        },
        {"role": "assistant", "content": [use]},
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "call_1", "content": result}],
        },
    ]
    tools: Any = [{"name": "look", "input_schema": TOOL}]
    with (
        serving(place) as url,
        anthropic.Anthropic(base_url=url, api_key="unused", max_retries=0) as client,
    ):
        client.messages.create(model="fugu", max_tokens=99, messages=said, tools=tools)
        counted = client.messages.count_tokens(
            model="fugu", messages=said, tools=tools
        ).input_tokens
    assert shown(server.asked("eye")[0]) == [OTHER, BASE64]
    assert 640 < counted < 640 + len(SHOT)
