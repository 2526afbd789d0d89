"""Agents that break off in the middle of an answer: what the clients of the three wires are
told.
"""

from pathlib import Path

import httpx
import openai
import pytest
from anthropic import Anthropic, APIStatusError
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from tests.acceptance.serve.endpoint import Endpoint, breaks, endpoint, says

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "what is it?"}]
VERIFY = "x-fugu-verify"


def client(place: Endpoint) -> OpenAI:
    made = OpenAI(base_url=f"{place.url}/v1", api_key="unused", max_retries=0)
    place.clients.append(made)
    return made


@pytest.mark.parametrize("model", ["small", "fugu"])
def test_a_stream_that_broke_is_not_begun_anew(tmp_path: Path, model: str) -> None:
    heard: list[str] = []
    with endpoint(tmp_path, breaks("Paris it is"), says("from strong")).serving() as place:
        chat = client(place).chat.completions
        stream = chat.create(
            model=model, messages=ASK, stream=True, extra_headers={VERIFY: "false"}
        )
        with pytest.raises(openai.APIError, match="small broke off in the middle of its answer"):
            for chunk in stream:
                heard.append(chunk.choices[0].delta.content or "")
    assert "".join(heard) == "Paris"
    assert place.agents["strong"].shown == []


@pytest.mark.parametrize("model", ["small", "fugu"])
def test_an_answer_that_nobody_has_heard_of_is_begun_anew_and_paid_for_twice(
    tmp_path: Path, model: str
) -> None:
    with endpoint(tmp_path, breaks("Paris it is")).serving() as place:
        made = client(place).chat.completions.create(
            model=model, messages=ASK, extra_headers={VERIFY: "false"}
        )
        trace = httpx.get(f"{place.url}/v1/traces/{made.id}").json()
    assert made.choices[0].message.content == "Paris it is"
    assert made.usage is not None and made.usage.prompt_tokens == 200
    assert [
        line["event"]["usage"]["input"]
        for line in trace["events"]
        if line["event"]["type"] == "replied"
    ] == [200]


def test_a_failed_answer_shows_what_it_took(tmp_path: Path) -> None:
    with endpoint(tmp_path, breaks("Paris it is", times=5), says("from strong")).serving() as place:
        made = client(place).chat.completions.create(
            model="fugu", messages=ASK, extra_headers={VERIFY: "false"}
        )
    assert made.choices[0].message.content == "from strong"
    assert made.usage is not None and made.usage.prompt_tokens_details is not None
    assert made.usage.prompt_tokens_details.to_dict()["orchestration_input_tokens"] == 300


def test_a_broken_response_is_an_error_of_its_wire(tmp_path: Path) -> None:
    with (
        endpoint(tmp_path, breaks("Paris it is")).serving() as place,
        client(place).responses.stream(model="small", input="q") as stream,
    ):
        events = list(stream)
    assert not any(
        event.type in ("response.output_text.done", "response.completed") for event in events
    )
    assert [
        event.response.error.message
        for event in events
        if event.type == "response.failed" and event.response.error
    ] == ["small broke off in the middle of its answer"]


def test_a_broken_message_with_tools_is_an_error_of_its_wire(tmp_path: Path) -> None:
    tool = {"name": "x", "input_schema": {"type": "object", "properties": {}}}
    heard: list[str] = []
    with endpoint(tmp_path, breaks("Paris it is")).serving() as place:
        made = Anthropic(base_url=place.url, api_key="unused", max_retries=0)
        place.clients.append(made)
        with (
            pytest.raises(APIStatusError, match="small broke off in the middle of its answer"),
            made.messages.stream(model="fugu", max_tokens=9, messages=ASK, tools=[tool]) as stream,  # type: ignore[arg-type,list-item]
        ):
            heard += stream.text_stream
    assert "".join(heard) == "Paris"
