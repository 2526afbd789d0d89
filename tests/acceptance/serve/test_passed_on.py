"""What an agent thinks reaches the client, and metadata the provider: the official SDKs at the real
`fugu serve`.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import anthropic
import openai
import pytest

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Refuses, Says, Use

THOUGHT = "The user wants a number. It is four."
ANSWER = "It is four, I am sure."
REFUSED = Refuses(400, "The 'metadata' parameter is only allowed when 'store' is enabled.")
TOOL = {"type": "object", "properties": {"path": {"type": "string"}}}
SECRET = "zq8-not-a-word-4471"


def joined(pieces: Iterator[tuple[str, str]]) -> list[tuple[str, str]]:
    """Kinds and texts of what came, in its order; neighbours of a kind as one."""
    found: list[tuple[str, str]] = []
    for kind, text in pieces:
        if found and found[-1][0] == kind:
            text = found.pop()[1] + text
        found.append((kind, text))
    return found


@contextmanager
def serving(place: Place, agent: Agent) -> Iterator[str]:
    place.variables = {"MY_API_KEY": SECRET}
    place.configure(agent)
    process = place.start("serve", "--port", "0")
    assert process.stderr is not None
    try:
        line = next(line for line in process.stderr if b"listening on" in line)
        yield line.decode().split()[-1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


def chat(url: str, model: str, tools: bool) -> Iterator[tuple[str, str]]:
    offered = (
        [{"type": "function", "function": {"name": "look", "parameters": TOOL}}]
        if tools
        else openai.omit
    )
    with openai.OpenAI(base_url=url, api_key="unused") as client:
        stream = client.chat.completions.create(
            model=model,
            messages=[{"role": "user", "content": "two and two?"}],
            stream=True,
            tools=offered,  # type: ignore[arg-type]
        )
        for chunk in stream:
            delta = chunk.choices[0].delta.to_dict() if chunk.choices else {}
            yield from (("thought", str(text)) for text in [delta.get("reasoning_content")] if text)
            yield from (("text", str(text)) for text in [delta.get("content")] if text)


def responses(url: str, model: str, tools: bool) -> Iterator[tuple[str, str]]:
    offered = [{"type": "function", "name": "look", "parameters": TOOL}] if tools else openai.omit
    with (
        openai.OpenAI(base_url=url, api_key="unused") as client,
        client.responses.stream(
            model=model,
            input="two and two?",
            reasoning={"effort": "low", "summary": "auto"},
            tools=offered,  # type: ignore[arg-type]
        ) as stream,
    ):
        for event in stream:
            if event.type == "response.reasoning_summary_text.delta":
                yield "thought", event.delta
            elif event.type == "response.output_text.delta":
                yield "text", event.delta
        whole = stream.get_final_response()
    thought = next(item for item in whole.output if item.type == "reasoning")
    assert [part.text for part in thought.summary] == [THOUGHT]
    assert whole.output_text == ANSWER


def messages(url: str, model: str, tools: bool) -> Iterator[tuple[str, str]]:
    offered = [{"name": "look", "input_schema": TOOL}] if tools else anthropic.omit
    with (
        anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="unused") as client,
        client.messages.stream(
            model=model,
            max_tokens=4000,
            thinking={"type": "enabled", "budget_tokens": 1024},
            messages=[{"role": "user", "content": "two and two?"}],
            tools=offered,  # type: ignore[arg-type]
        ) as stream,
    ):
        for event in stream:
            if event.type == "thinking":
                yield "thought", event.thinking
            elif event.type == "text":
                yield "text", event.text
        whole = stream.get_final_message()
    told = [getattr(block, "thinking", getattr(block, "text", "")) for block in whole.content]
    assert told[:2] == [THOUGHT, ANSWER]


@pytest.mark.parametrize("tools", [False, True], ids=["without tools", "with tools"])
@pytest.mark.parametrize(
    ("agent", "client"),
    [
        (Agent("chat-thinker"), chat),
        (Agent("responses-thinker", more='api = "responses"'), responses),
        (Agent("messages-thinker", provider="anthropic"), messages),
    ],
    ids=["chat", "responses", "messages"],
)
def test_thoughts_are_streamed_before_the_answer_is(
    place: Place, server: Loopback, agent: Agent, client: object, tools: bool
) -> None:
    calls = (Use("look", {"path": "a"}),) if tools else ()
    server.play(agent.name, Says(ANSWER, calls, thinking=THOUGHT, slow=0.02))
    with serving(place, agent) as url:
        told = joined(client(url, agent.name, tools))  # type: ignore[operator]
    assert told == [("thought", THOUGHT), ("text", ANSWER)]


def test_a_secret_in_a_thought_is_masked_where_the_pool_answers(
    place: Place, server: Loopback
) -> None:
    said = Says("Four.", thinking=f"The key is {SECRET}, I say nothing of it.", slow=0.02)
    server.play("chat-thinker", said, Says("ACCEPT"))
    with serving(place, Agent("chat-thinker")) as url:
        told = joined(chat(url, "fugu", tools=False))
    assert [kind for kind, _ in told] == ["thought", "text"]
    assert SECRET not in told[0][1] and told[0][1].endswith("I say nothing of it.")


@pytest.mark.parametrize(
    ("agent", "metadata"),
    [
        (Agent("chat-thinker"), {"team": "red", "user_id": "u1"}),
        (Agent("responses-thinker", more='api = "responses"'), {"team": "red", "user_id": "u1"}),
        (Agent("messages-thinker", provider="anthropic"), {"user_id": "u1"}),
    ],
    ids=["chat", "responses", "messages"],
)
def test_metadata_reaches_a_provider_that_takes_it(
    place: Place, server: Loopback, agent: Agent, metadata: dict[str, str]
) -> None:
    server.play(agent.name, Says("Four."))
    with serving(place, agent) as url, openai.OpenAI(base_url=url, api_key="unused") as client:
        client.responses.create(
            model=agent.name,
            input="two?",
            metadata={"team": "red", "user_id": "u1", "fugu_verify": "false"},
        )
    assert server.asked(agent.name)[0].body["metadata"] == metadata


def test_a_provider_that_refuses_metadata_is_asked_without(place: Place, server: Loopback) -> None:
    server.play("chat-thinker", REFUSED, Says("4"))
    with (
        serving(place, Agent("chat-thinker")) as url,
        openai.OpenAI(base_url=url, api_key="unused") as client,
    ):
        said = client.responses.create(model="chat-thinker", input="two?", metadata={"team": "red"})
    assert said.output_text == "4"
    assert ["metadata" in asked.body for asked in server.asked("chat-thinker")] == [True, False]
