import asyncio
import json
from dataclasses import replace

import httpx
import pytest
from servers import ACCESS, RECORDED, Server, quiet, recorded, stream, unhurried

from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Prompt, Thinking, ToolSpec
from fugu_cli.providers.endpoint import Effort
from fugu_cli.providers.server_quirks import ServerQuirks, adapted
from fugu_cli.wires.chat_completions import OpenAI
from fugu_cli.wires.messages import Anthropic

PROMPT = Prompt(
    system="s",
    messages=(FromUser(text="u"),),
    temperature=0.5,
    seed=1,
    reply_schema='{"type": "object"}',
)

MESSAGES = {
    "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
    "'max_completion_tokens' instead.": {"completion_tokens": True},
    "Unsupported value: 'temperature' does not support 0.5 with this model. Only the default (1) "
    "value is supported.": {"temperature": False},
    "`temperature` is deprecated for this model.": {"temperature": False},
    "seed: Extra inputs are not permitted": {"seed": False},
    "Unrecognized request argument supplied: stream_options": {"stream_usage": False},
    "This response_format type is unavailable now": {"schema": "object"},
    "output_config: Extra inputs are not permitted": {"schema": "object"},
    '"thinking.type.enabled" is not supported for this model. Use "thinking.type.adaptive".': {
        "adaptive": True
    },
    "thinking is enabled but reasoning_content is missing in assistant tool call message": {
        "reasoning_back": True
    },
    "Unknown parameter: 'reasoning_effort'": {"effort": False},
    "max_tokens: 67584 > 64000, which is the maximum allowed number of output tokens for m": {
        "longest": 64000
    },
    "max_tokens is too large: 8192. This model supports at most 4096 completion tokens.": {
        "longest": 4096
    },
    "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]": {"longest": 8192},
    "Unexpected role 'user' after role 'tool'": {"bridged": True},
    "Range of max_tokens should be [1, 8192]": {"longest": 8192},
    "`max_tokens` must be less than or equal to `8192`, the maximum is less than the "
    "`context_window`": {"longest": 8192},
    "Function tools with reasoning_effort are not supported for gpt-5.6-sol in "
    "/v1/chat/completions. To use function "
    "tools, use /v1/responses or set reasoning_effort to 'none'.": {"effort_with_tools": False},
    "Budget 0 is invalid. This model only works in thinking mode.": {"effort": False},
    "Thinking level MINIMAL is not supported for this model.": {"effort": False},
    '"gemma3:4b" does not support thinking': {"effort": False},
    'think value "medium" is not supported for this model': {"effort": False},
    "messages.1.content.0: Invalid `signature` in `thinking` block": {"sealed": False},
    "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.": {
        "sealed": False
    },
    "Unable to submit request because Thought signature is not valid.": {"sealed": False},
    "InvalidParameter: max_tokens should be in [1, 4096]": {"longest": 4096},
    "The maximum tokens you requested exceeds the model limit of 4096. Try a lower one.": {
        "longest": 4096
    },
    "This model's maximum context length is 16384 tokens. However, you requested 20192 tokens "
    "(12000 in the messages, "
    "8192 in the completion).": {"longest": 2192},
    "'max_tokens' is too large: 8192. This model's maximum context length is 8192 tokens and "
    "your request has 7000 "
    "input tokens": {"longest": 1024},
    "System role not supported": {"system": False},
    "Unsupported value: 'messages[0].role' does not support 'system' with this model.": {
        "system": False
    },
    "Developer instruction is not enabled for models/gemma-3-27b-it": {"system": False},
    "Invalid value for 'content': expected a string, got null.": {"null_content": False},
    "Your organization must be verified to stream this model.": {"stream": False},
    'Invalid JSON payload received. Unknown name "default" at '
    "'tools[0].function_declarations[0]'": {"whole_schemas": False},
    "Invalid schema for function 'x': array schema missing items.": {"whole_schemas": False},
}


@pytest.mark.parametrize("message", MESSAGES)
def test_a_refused_parameter_is_left_out_from_then_on(message: str) -> None:
    error = AgentError(message, kind="invalid")
    assert adapted(ServerQuirks(), error) == replace(ServerQuirks(), **MESSAGES[message])


def test_other_refusals_change_nothing() -> None:
    assert adapted(ServerQuirks(), AgentError("the prompt is too long", kind="invalid")) is None
    assert adapted(ServerQuirks(), AgentError("max_completion_tokens", kind="limited")) is None
    assert (
        adapted(
            ServerQuirks(completion_tokens=True),
            AgentError("max_completion_tokens", kind="invalid"),
        )
        is None
    )


def refusal(message: str) -> httpx.Response:
    return httpx.Response(400, json={"error": {"message": message}})


def test_a_prompt_that_leaves_no_room_for_a_reply_is_too_long_and_no_parameter_is_changed() -> None:
    said = "This model's maximum context length is 8192 tokens. However, you requested 16000 tokens"
    error = AgentError(f"{said} (7808 in the messages, 8192 in the completion).", kind="invalid")
    assert adapted(ServerQuirks(), error) is None


def test_a_server_without_system_messages_null_contents_and_streams_is_asked_without() -> None:
    whole = {
        "choices": [{"message": {"role": "assistant", "content": "fine"}, "finish_reason": "stop"}]
    }
    refusals = [
        refusal(message)
        for message, changed in MESSAGES.items()
        if changed in ({"system": False}, {"null_content": False}, {"stream": False})
    ]
    server = Server(*refusals[2:], httpx.Response(200, json=whole))
    call = Call(id="c", tool="read", arguments="{}")
    said = (
        FromUser(text="u"),
        FromAgent(agent="strong", text="", calls=(call,)),
        FromTool(call="c", tool="read", text="r"),
    )
    reply = asyncio.run(
        OpenAI(ACCESS, server).reply(Prompt(system="s", messages=said), quiet, unhurried)
    )
    first, *_, last = (json.loads(body) for body in server.requests)
    assert reply.text == "fine"
    assert [message["content"] for message in first["messages"]] == ["s", "u", None, "r"]
    assert [message["content"] for message in last["messages"]] == ["s\n\nu", "", "r"]
    assert (first["stream"], last["stream"], "stream_options" in last) == (True, False, False)


SCHEMA = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "additionalProperties": False,
    "$defs": {
        "Point": {"type": "object", "properties": {"x": {"type": "number", "exclusiveMinimum": 0}}}
    },
    "required": ["at", "gone"],
    "properties": {
        "at": {"$ref": "#/$defs/Point", "default": {}},
        "many": {"type": ["array", "null"], "minItems": 1},
        "kind": {"const": "a", "description": "which"},
        "either": {"anyOf": [{"type": "null"}, {"type": "integer", "enum": [1, 2]}]},
    },
}


def test_a_server_that_refuses_a_keyword_of_a_schema_gets_plain_ones() -> None:
    server = Server(refusal(list(MESSAGES)[-1]), recorded("openai/text.sse"))
    tool = ToolSpec(name="read", description="reads", parameters=json.dumps(SCHEMA))
    asyncio.run(
        OpenAI(ACCESS, server).reply(PROMPT.model_copy(update={"tools": (tool,)}), quiet, unhurried)
    )
    first, second = (
        json.loads(body)["tools"][0]["function"]["parameters"] for body in server.requests
    )
    assert first == SCHEMA
    assert second == {
        "type": "object",
        "required": ["at"],
        "properties": {
            "at": {"type": "object", "properties": {"x": {"type": "number"}}, "required": []},
            "many": {"type": "array", "items": {"type": "string"}},
            "kind": {"type": "string", "description": "which", "enum": ["a"]},
            "either": {"type": "integer"},
        },
    }


def test_each_refusal_costs_one_call_once() -> None:
    tokens, temperature, _, _, _, format, *_ = MESSAGES
    streams = [recorded("openai/text.sse"), recorded("openai/text.sse")]
    server = Server(
        refusal(tokens), refusal(temperature), refusal(format), refusal(format), *streams
    )
    agent = OpenAI(ACCESS, server)

    async def twice() -> None:
        await agent.reply(PROMPT, quiet, unhurried)
        await agent.reply(PROMPT, quiet, unhurried)

    asyncio.run(twice())
    requests = [json.loads(body) for body in server.requests]
    changing = ("max_tokens", "max_completion_tokens", "temperature", "response_format")
    assert [[key for key in changing if key in request] for request in requests] == [
        ["max_tokens", "temperature", "response_format"],
        ["max_completion_tokens", "temperature", "response_format"],
        ["max_completion_tokens", "response_format"],
        ["max_completion_tokens", "response_format"],
        ["max_completion_tokens"],
        ["max_completion_tokens"],
    ]
    assert [request["response_format"]["type"] for request in requests[2:4]] == [
        "json_schema",
        "json_object",
    ]


class Particular(httpx.AsyncBaseTransport):
    """Refuses `max_tokens` and schemas, each request only once `together` of them are there."""

    def __init__(self, together: int) -> None:
        self.requests: list[dict[str, object]] = []
        self.barrier = asyncio.Barrier(together)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        asked = json.loads(await request.aread())
        self.requests.append(asked)
        await self.barrier.wait()
        if "max_tokens" in asked:
            return refusal(
                "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            )
        if asked["response_format"]["type"] == "json_schema":
            return refusal("This response_format type is unavailable now")
        return recorded("openai/text.sse")


def test_calls_under_way_together_learn_from_one_refusal() -> None:
    server = Particular(3)
    agent = OpenAI(ACCESS, server)

    async def together() -> list[str]:
        return [
            reply.text
            for reply in await asyncio.gather(
                *(agent.reply(PROMPT, quiet, unhurried) for _ in "123")
            )
        ]

    texts = asyncio.run(together())
    assert len(set(texts)) == 1 and texts[0]
    assert len(server.requests) == 9
    assert all(asked["response_format"] == {"type": "json_object"} for asked in server.requests[6:])


@pytest.mark.parametrize("key", ["x", "none", "token"])
def test_a_key_that_is_only_a_word_does_not_hide_what_the_server_says(key: str) -> None:
    server = Server(refusal(next(iter(MESSAGES))), recorded("openai/text.sse"))
    asyncio.run(OpenAI(replace(ACCESS, key=key), server).reply(PROMPT, quiet, unhurried))
    assert "max_completion_tokens" in json.loads(server.requests[1])


def test_a_reply_is_asked_for_no_longer_than_the_model_can() -> None:
    server = Server(
        refusal("This model supports at most 1000 completion tokens"), recorded("openai/text.sse")
    )
    asyncio.run(OpenAI(ACCESS, server).reply(PROMPT, quiet, unhurried))
    assert [json.loads(body)["max_tokens"] for body in server.requests] == [2048, 1000]


def test_thinking_takes_what_room_the_model_has() -> None:
    too_long = refusal(
        "max_tokens: 80000 > 64000, which is the maximum allowed number of output tokens for m"
    )
    server = Server(too_long, recorded("anthropic/text.sse"))
    prompt = PROMPT.model_copy(update={"max_tokens": 80000})
    asyncio.run(Anthropic(replace(ACCESS, effort="max"), server).reply(prompt, quiet, unhurried))
    first, second = (json.loads(body) for body in server.requests)
    assert (first["max_tokens"], first["thinking"]["budget_tokens"]) == (80000, 65536)
    assert (second["max_tokens"], second["thinking"]["budget_tokens"]) == (64000, 64000 - 8192)


def test_a_short_reply_leaves_thinking_half_of_its_room_or_none() -> None:
    server = Server(recorded("anthropic/text.sse"), recorded("anthropic/text.sse"))
    agent = Anthropic(replace(ACCESS, effort="high"), server)
    for limit in (4096, 500):
        prompt = PROMPT.model_copy(update={"max_tokens": limit})
        asyncio.run(agent.reply(prompt, quiet, unhurried))
    first, second = (json.loads(body) for body in server.requests)
    assert (first["max_tokens"], first["thinking"]["budget_tokens"]) == (4096, 2048)
    assert (second["max_tokens"], "thinking" in second) == (500, False)


def test_a_model_that_wants_no_budget_thinks_adaptively() -> None:
    server = Server(refusal(list(MESSAGES)[7]), recorded("anthropic/text.sse"))
    agent = Anthropic(replace(ACCESS, effort="high"), server)
    prompt = PROMPT.model_copy(update={"max_tokens": 32768})
    asyncio.run(agent.reply(prompt, quiet, unhurried))
    first, second = (json.loads(body) for body in server.requests)
    assert first["thinking"] == {"type": "enabled", "budget_tokens": 24576}
    assert second["thinking"] == {"type": "adaptive"}
    assert first["max_tokens"] == second["max_tokens"] == 32768
    assert second["output_config"] == {
        "effort": "high",
        "format": {"type": "json_schema", "schema": {"type": "object"}},
    }
    assert server.urls == ["https://api.example.org/v1/messages"] * 2
    assert server.headers[0]["x-api-key"] == "sk-secret"


READ = ToolSpec(name="read", description="reads", parameters='{"type": "object", "properties": {}}')


@pytest.mark.parametrize("effort", ["", "high"])
def test_a_model_that_does_not_think_beside_tools_works_with_them_and_thinks_without(
    effort: Effort,
) -> None:
    """As gpt-5.6 does: also where no effort is sent at all, for it has one by itself."""
    seen: list[tuple[bool, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked = json.loads(request.content)
        seen.append(("tools" in asked, asked.get("reasoning_effort")))
        if "tools" in asked and asked.get("reasoning_effort") != "none":
            return refusal(
                next(message for message in MESSAGES if message.startswith("Function tools"))
            )
        return recorded("openai/text.sse")

    agent = OpenAI(replace(ACCESS, effort=effort), httpx.MockTransport(answer))

    async def ask() -> None:
        for tools in ((READ,), (READ,), ()):
            await agent.reply(PROMPT.model_copy(update={"tools": tools}), quiet, unhurried)

    asyncio.run(ask())
    assert seen == [(True, effort or None), (True, "none"), (True, "none"), (False, effort or None)]


def test_a_model_that_does_not_take_what_another_one_signed_goes_on_without_it() -> None:
    """The entry has another model than when the session began: its earlier thoughts would be
    refused for ever.
    """
    signed = json.dumps({"type": "thinking", "thinking": "hm", "signature": "c2ln"})
    messages = (
        FromUser(text="u"),
        FromAgent(
            agent="strong",
            thinking=(Thinking(data=signed),),
            calls=(Call(id="toolu_1", tool="read"),),
        ),
        FromTool(call="toolu_1", tool="read", text="x"),
    )
    prompt = PROMPT.model_copy(update={"messages": messages, "tools": (READ,)})
    refused = refusal("messages.1.content.0: Invalid `signature` in `thinking` block")
    server = Server(refused, recorded("anthropic/text.sse"))
    asyncio.run(Anthropic(replace(ACCESS, effort="high"), server).reply(prompt, quiet, unhurried))
    first, second = (json.loads(body) for body in server.requests)
    assert [block["type"] for block in first["messages"][1]["content"]] == ["thinking", "tool_use"]
    assert [block["type"] for block in second["messages"][1]["content"]] == ["tool_use"]
    assert ("thinking" in first, "thinking" in second) == (True, False)


def test_a_stop_of_blanks_which_the_messages_api_refuses_ends_the_reply_all_the_same() -> None:
    said: list[str] = []
    text = (
        (RECORDED / "anthropic" / "text.sse")
        .read_text(encoding="utf-8")
        .replace("bug is ", "bug\\n\\nis ")
    )
    server = Server(stream(text.encode()))
    prompt = PROMPT.model_copy(update={"stop": ("END", "\n\n")})
    reply = asyncio.run(Anthropic(ACCESS, server).reply(prompt, said.append, unhurried))
    assert json.loads(server.requests[0])["stop_sequences"] == ["END"]
    assert (reply.text, "".join(said), reply.usage.output) == ("The bug", "The bug", 15)


@pytest.mark.parametrize(("stop", "ended"), [("\n\n", "end"), ("\n\n\n", "length")])
def test_a_reply_that_ran_into_its_limit_behind_a_stop_ended_at_the_stop(
    stop: str, ended: str
) -> None:
    text = (
        (RECORDED / "anthropic" / "text.sse")
        .read_text(encoding="utf-8")
        .replace("bug is ", "bug\\n\\nis ")
    )
    server = Server(stream(text.replace("end_turn", "max_tokens").encode()))
    prompt = PROMPT.model_copy(update={"stop": (stop,)})
    assert asyncio.run(Anthropic(ACCESS, server).reply(prompt, quiet, unhurried)).stop == ended


def test_a_stop_ends_the_reply_of_a_model_that_takes_none() -> None:
    said: list[str] = []
    server = Server(
        refusal("Unsupported parameter: 'stop' is not supported with this model."),
        recorded("openai/text.sse"),
    )
    prompt = PROMPT.model_copy(update={"stop": (" ist ",)})
    reply = asyncio.run(OpenAI(ACCESS, server).reply(prompt, said.append, unhurried))
    assert ["stop" in json.loads(body) for body in server.requests] == [True, False]
    assert (reply.text, "".join(said)) == ("Der Fehler", "Der Fehler")
