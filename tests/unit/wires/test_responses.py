"""OpenAI's Responses API: what its streams decode to, what goes back, and what is asked again where
it is refused.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest
import validate
from histories import TOOLS
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseStreamEvent
from pydantic import TypeAdapter
from servers import RECORDED, Server, recorded, stream, unhurried

from fugu_cli.config import Config
from fugu_cli.config.agent_pool import detected_pool, usable_pool
from fugu_cli.config.schema import AgentEntry
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Prompt, Reply, Thinking, Usage
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import ReplyProgress, SseDecoder
from fugu_cli.providers.server_quirks import StopSequences
from fugu_cli.wires.responses import Responses, ResponsesDecoder
from fugu_cli.wiring import AgentResources, build_agents
from tests.acceptance.serve.endpoint import endpoint, says, uses

ACCESS = ModelEndpoint(
    name="strong",
    model="gpt-6.1-sol",
    base_url="https://api.openai.com/v1",
    key="sk-1",
    effort="high",
)
ASKED = Prompt(system="You code.", messages=(FromUser(text="Fix it."),), tools=TOOLS)
STREAM = (RECORDED / "openai" / "responses.sse").read_bytes()
WHOLE = json.loads(STREAM.split(b"data: ")[-1])["response"]


def answered(
    server: Server, prompt: Prompt = ASKED, access: ModelEndpoint = ACCESS
) -> tuple[Reply, list[str]]:
    async def once() -> tuple[Reply, list[str]]:
        agent, said = Responses(access, server), list[str]()
        try:
            return await agent.reply(prompt, said.append, unhurried), said
        finally:
            await agent.close()

    return asyncio.run(once())


def refused(words: str, **others: object) -> httpx.Response:
    return httpx.Response(
        400, json={"error": {"message": words, "type": "invalid_request_error", **others}}
    )


def ended(**response: object) -> httpx.Response:
    event = {
        "type": "response.completed",
        "response": {"object": "response", "status": "completed", **response},
    }
    return stream(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode())


def test_a_stream_becomes_a_reply_and_its_text_is_shown_as_it_comes() -> None:
    reply, said = answered(Server(recorded("openai/responses.sse")))
    assert said == ["I look", " – ", "first."]
    assert (reply.text, reply.stop, reply.model) == (
        "I look – first.",
        "calls",
        "gpt-6.1-sol-2026-10-01",
    )
    assert reply.calls == (
        Call.make("call_A", "read", path="src/ü.py"),
        Call(id="call_B", tool="run_tests"),
    )
    assert reply.usage == Usage(input=1200, cached=1024, written=128, output=96, reasoning=64)
    assert [one.text for one in reply.thinking] == ["**Looking** for the test", ""]


def test_the_recorded_stream_is_one_as_the_sdk_knows_it() -> None:
    events: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)
    found = [
        events.validate_json(line[6:]) for line in STREAM.split(b"\n") if line.startswith(b"data: ")
    ]
    assert (found[0].type, found[-1].type, len(found)) == (
        "response.created",
        "response.completed",
        23,
    )


def test_every_portioning_of_a_stream_gives_the_same_reply() -> None:
    whole, _ = answered(Server(stream(STREAM)))
    for size in (1, 7, 1000):
        portions = [STREAM[start : start + size] for start in range(0, len(STREAM), size)]
        assert answered(Server(stream(*portions)))[0] == whole


def test_an_answer_that_is_not_streamed_says_the_same() -> None:
    streamed, _ = answered(Server(stream(STREAM)))
    reply, said = answered(Server(httpx.Response(200, json=WHOLE)))
    assert reply == streamed
    assert said == ["I look – first."]


def test_thoughts_go_back_sealed_and_in_their_places_to_the_agent_that_had_them_and_to_no_other() -> (
    None
):
    reply, _ = answered(Server(stream(STREAM)))
    results = [FromTool(call=call.id, tool=call.tool, text="ok") for call in reply.calls]
    said = FromAgent(agent="strong", text=reply.text, thinking=reply.thinking, calls=reply.calls)
    server = Server(stream(STREAM), stream(STREAM))
    answered(server, ASKED.model_copy(update={"messages": (*ASKED.messages, said, *results)}))
    items = validate.responses(server.requests[0])["input"]
    assert [item.get("type", item.get("role")) for item in items] == [
        "user", "reasoning", "assistant", "function_call", "reasoning", "function_call", "function_call_output",
        "function_call_output",
    ]  # fmt: skip
    kept = {"id": "rs_1", "type": "reasoning", "encrypted_content": "gAAAAABsealed"}
    assert items[1] == {
        **kept,
        "summary": [{"type": "summary_text", "text": "**Looking** for the test"}],
    }
    other = said.model_copy(update={"agent": "cheap"})
    answered(server, ASKED.model_copy(update={"messages": (*ASKED.messages, other, *results)}))
    assert b"sealed" not in server.requests[1]


def test_a_server_that_tells_commentary_from_answers_is_told_so_from_then_on() -> None:
    messages = (
        *ASKED.messages,
        FromAgent(agent="strong", text="I look.", calls=(Call.make("a", "read", path="a"),)),
        FromTool(call="a", tool="read", text="x"),
        FromAgent(agent="cheap", text="Done."),
        FromUser(text="Go on."),
    )
    prompt = ASKED.model_copy(update={"messages": messages})
    server = Server(stream(STREAM), stream(STREAM))

    async def twice() -> None:
        agent = Responses(ACCESS, server)
        for _ in range(2):
            await agent.reply(prompt, lambda text: None, unhurried)
        await agent.close()

    asyncio.run(twice())
    first, second = (validate.responses(request)["input"] for request in server.requests)
    assert [item.get("phase") for item in first if item.get("role") == "assistant"] == [None, None]
    told = [item.get("phase") for item in second if item.get("role") == "assistant"]
    assert told == ["commentary", "final_answer"]
    assert not any("phase" in item for item in second if item.get("role") != "assistant")


def test_what_is_asked_for() -> None:
    server = Server(stream(STREAM), stream(STREAM), stream(STREAM))
    choosy = ASKED.model_copy(
        update={"tool_choice": "read", "max_tokens": 100, "seed": 3, "stop": ("x",)}
    )
    answered(server, choosy)
    request = validate.responses(server.requests[0])
    assert request["reasoning"] == {"effort": "high", "summary": "auto"}
    assert request["max_output_tokens"] == 100
    assert request["tool_choice"] == {"type": "function", "name": "read"}
    assert (request["store"], request["include"]) == (False, ["reasoning.encrypted_content"])
    assert len(request["prompt_cache_key"]) == 32
    assert not {"seed", "stop", "temperature"} & set(request)
    answered(server, ASKED.model_copy(update={"allowed_tools": ("read",)}))
    named = [{"type": "function", "name": "read"}]
    allowed = {"type": "allowed_tools", "mode": "auto", "tools": named}
    assert validate.responses(server.requests[1])["tool_choice"] == allowed
    held = Prompt(
        system="",
        messages=ASKED.messages,
        reply_schema='{"type": "object"}',
        temperature=0.5,
        max_tokens=1,
    )
    answered(
        server,
        held,
        ModelEndpoint(name="a", model="m", base_url="http://127.0.0.1/v1", effort="none"),
    )
    request = validate.responses(server.requests[2])
    assert request["text"]["format"]["schema"] == {"type": "object"}
    assert (request["temperature"], request["reasoning"]) == (0.5, {"effort": "none"})
    assert request["max_output_tokens"] == 16
    assert not {"instructions", "tools", "prompt_cache_key"} & set(request)
    openai = "https://api.openai.com/v1/responses"
    assert server.urls == [openai, openai, "http://127.0.0.1/v1/responses"]


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("Encrypted content is not supported with this model.", ("include",)),
        (
            "Your organization must be verified to generate reasoning summaries.",
            ("reasoning", "summary"),
        ),
        (
            "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
            ("reasoning",),
        ),
        (
            "Unsupported parameter: 'temperature' is not supported with this model.",
            ("temperature",),
        ),
        ("Unknown parameter: 'prompt_cache_key'.", ("prompt_cache_key",)),
    ],
)
def test_what_is_refused_is_left_out_from_then_on(words: str, gone: tuple[str, ...]) -> None:
    server = Server(refused(words), stream(STREAM))
    answered(server, ASKED.model_copy(update={"temperature": 0.5}))
    first, second = (json.loads(request) for request in server.requests)
    for name in gone[:-1]:
        first, second = first[name], second[name]
    assert gone[-1] in first
    assert gone[-1] not in second


@pytest.mark.parametrize(
    "words",
    [
        "The encrypted content gAAA...sealed could not be verified. (invalid_encrypted_content)",
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
    ],
)
def test_thoughts_that_are_not_taken_back_stay_away(words: str) -> None:
    reply, _ = answered(Server(stream(STREAM)))
    said = FromAgent(agent="strong", text=reply.text, thinking=reply.thinking)
    server = Server(refused(words), stream(STREAM))
    answered(
        server,
        ASKED.model_copy(update={"messages": (*ASKED.messages, said, FromUser(text="Go on."))}),
    )
    assert b'"type": "reasoning"' in server.requests[0]
    assert b'"type": "reasoning"' not in server.requests[1]


@given(
    text=st.text("ab#\n", max_size=12),
    size=st.integers(1, 5),
    stops=st.lists(st.sampled_from(["#", "\n\n", "ab"])),
)
def test_a_reply_ends_before_a_stop_in_whatever_pieces_it_comes(
    text: str, size: int, stops: list[str]
) -> None:
    filter = StopSequences(stops)
    shown = [filter.feed(text[start : start + size]) for start in range(0, len(text), size)]
    expected = text[: min([text.find(stop) for stop in stops if stop in text], default=len(text))]
    assert "".join(shown) + filter.rest() == expected == filter.cut(text)


def test_what_follows_a_stop_is_paid_for_and_left_out() -> None:
    reply, said = answered(
        Server(stream(STREAM)), ASKED.model_copy(update={"stop": ("– first", "")})
    )
    assert (reply.text, "".join(said)) == ("I look ", "I look ")
    assert reply.usage.output == 96
    assert len(reply.calls) == 2


def test_how_a_response_ends() -> None:
    said = {"type": "message", "content": [{"type": "output_text", "text": "so"}]}
    why = {"incomplete_details": {"reason": "max_output_tokens"}, "status": "incomplete"}
    assert answered(Server(ended(output=[said], **why)))[0].stop == "length"
    why = {"incomplete_details": {"reason": "content_filter"}, "status": "incomplete"}
    assert answered(Server(ended(output=[said], **why)))[0].stop == "refusal"
    no = {"type": "message", "content": [{"type": "refusal", "refusal": "I will not."}]}
    reply, _ = answered(Server(ended(output=[no])))
    assert (reply.text, reply.stop) == ("I will not.", "refusal")
    assert answered(Server(ended(output=[said])))[0].stop == "end"
    empty, _ = answered(Server(ended(output=[])))
    assert empty == Reply(model="gpt-6.1-sol", usage=empty.usage, max_tokens=empty.max_tokens)
    assert empty.usage.estimated_input == empty.usage.input > 0
    thought = {
        "type": "reasoning",
        "content": [{"type": "reasoning_text", "text": "hm"}],
        "summary": [],
    }
    kept = Thinking(text="hm", data=json.dumps(thought))
    assert answered(Server(ended(output=[thought, said])))[0].thinking == (kept,)


def test_calls_without_ids_or_with_the_same_one_get_their_own() -> None:
    call = {"type": "function_call", "name": "read", "arguments": {"path": "a"}}
    reply, _ = answered(
        Server(ended(output=[call, {**call, "call_id": "x"}, {**call, "call_id": "x"}]))
    )
    assert len({one.id for one in reply.calls}) == 3
    assert reply.calls[0].arguments == '{"path": "a"}'


@pytest.mark.parametrize(
    ("event", "kind", "words"),
    [
        (
            {"type": "error", "code": "rate_limit_exceeded", "message": "slow down"},
            "limited",
            "slow down",
        ),
        ({"type": "error", "error": {"type": "server_error", "message": "oh"}}, "overloaded", "oh"),
        (
            {
                "type": "response.failed",
                "response": {"status": "failed", "error": {"code": "server_error", "message": "b"}},
            },
            "overloaded",
            "server_error",
        ),
        (
            {"type": "response.failed", "response": {"status": "failed"}},
            "overloaded",
            "the response failed",
        ),
        (
            {
                "type": "response.failed",
                "response": {"error": {"code": "insufficient_quota", "message": "pay"}},
            },
            "credit",
            "pay",
        ),
    ],
)
def test_an_error_in_the_stream_says_what_it_is(
    event: Mapping[str, object], kind: str, words: str
) -> None:
    begun = STREAM[: STREAM.index(b"event: response.output_item.done")]
    with pytest.raises(AgentError, match=words) as caught:
        answered(Server(stream(begun, f"data: {json.dumps(event)}\n\n".encode())))
    assert caught.value.kind == kind


def test_a_stream_that_is_cut_is_tried_again_and_one_that_is_no_response_is_not() -> None:
    for end in (b"event: response.output_item.done", b"event: response.completed"):
        with pytest.raises(AgentError, match="was lost") as caught:
            answered(Server(stream(STREAM[: STREAM.index(end) + 60])))
        assert (caught.value.kind, caught.value.retry) == ("network", True)
    with pytest.raises(AgentError, match="no part of a response") as caught:
        answered(Server(stream(b'data: {"type": 3}\n\n')))
    assert caught.value.kind == "protocol"


def test_a_thought_that_takes_long_is_waited_for_as_a_first_token_is() -> None:
    decoding = ResponsesDecoder(ACCESS, str)
    heard = []
    for event in SseDecoder().feed(STREAM):
        decoding.feed(event)
        heard.append((json.loads(event.data)["type"].removeprefix("response."), decoding.progress))
    first = [name for name, how in heard if how == ReplyProgress.NOTHING]
    assert first[-1] == "output_item.done"
    assert "reasoning_summary_text.delta" in first
    assert heard[len(first)] == ("output_item.added", ReplyProgress.BEGUN)
    assert heard[-1] == ("completed", ReplyProgress.WHOLE)


def test_a_server_without_it_is_named_with_what_to_set() -> None:
    with pytest.raises(AgentError) as caught:
        answered(Server(httpx.Response(404, json={"detail": "Not Found"})))
    assert caught.value.kind == "absent"
    assert 'api = "chat"' in caught.value.hint


def test_openai_itself_is_asked_on_it_and_others_where_they_are_said_to_speak_it(
    tmp_path: Path,
) -> None:
    key = {"OPENAI_API_KEY": "sk-1"}
    assert {entry.api for entry in usable_pool(Config(agents=detected_pool(key)), key)} == {
        "responses"
    }
    entries = (
        AgentEntry(name="a", provider="openai", model="m", effort="low"),
        AgentEntry(name="b", provider="openai", model="m", effort="low", api="chat"),
        AgentEntry(name="c", provider="openai", model="m", base_url="http://127.0.0.1:1/v1"),
        AgentEntry(
            name="d",
            provider="openai",
            model="m",
            base_url="http://127.0.0.1:1/v1",
            api="responses",
        ),
        AgentEntry(name="e", provider="anthropic", model="m", base_url="http://127.0.0.1:1"),
    )
    filled = usable_pool(Config(agents=entries), key)
    assert [entry.api for entry in filled] == ["responses", "chat", "chat", "responses", None]
    built = build_agents(filled, key, AgentResources(tmp_path, 60.0))
    assert set(built) == {"a", "b", "c", "d", "e"}
    with pytest.raises(ValueError, match="goes with provider"):
        AgentEntry(name="x", provider="local", model="m", api="chat")


def test_fugus_own_endpoint_answers_it(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("it is 42")).serving() as place:
        access = ModelEndpoint(name="fugu", model="fugu", base_url=f"{place.url}/v1")
        agent, said = Responses(access), list[str]()

        async def once() -> Reply:
            try:
                return await agent.reply(
                    Prompt(system="", messages=ASKED.messages), said.append, unhurried
                )
            finally:
                await agent.close()

        reply = asyncio.run(once())
    assert (reply.text, "".join(said), reply.stop) == ("it is 42", "it is 42", "end")
    assert reply.usage.input > 0


def test_a_call_and_its_result_go_through_fugus_own_endpoint(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses("read", path="a.py")).serving() as place:
        access = ModelEndpoint(name="fugu", model="small", base_url=f"{place.url}/v1")
        agent = Responses(access)

        async def twice() -> tuple[Reply, Reply]:
            try:
                first = await agent.reply(ASKED, lambda text: None, unhurried)
                said = FromAgent(
                    agent="fugu", text=first.text, thinking=first.thinking, calls=first.calls
                )
                result = FromTool(call=first.calls[0].id, tool="read", text="1: x = 1")
                more = ASKED.model_copy(update={"messages": (*ASKED.messages, said, result)})
                return first, await agent.reply(more, lambda text: None, unhurried)
            finally:
                await agent.close()

        first, second = asyncio.run(twice())
    assert (first.text, first.stop) == ("looking", "calls")
    assert (first.calls[0].tool, json.loads(first.calls[0].arguments)) == ("read", {"path": "a.py"})
    assert (second.text, second.stop) == ("the tool said it", "end")
