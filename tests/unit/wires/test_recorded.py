"""What each recorded stream decodes to, however it is cut into portions."""

import asyncio
import json
import re
from dataclasses import replace

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from servers import ACCESS, RECORDED, Server, quiet, recorded, stream, unhurried

from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromUser, Prompt, Reply, Thinking, Usage
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import SseDecoder
from fugu_cli.wires import chat_completions, messages
from fugu_cli.wires.chat_completions import OpenAI
from fugu_cli.wires.messages import Anthropic

PROMPT = Prompt(system="s", messages=(FromUser(text="u"),))
GPT, CLAUDE, QWEN = "gpt-5-2025-08-07", "claude-sonnet-4-5-20250929", "qwen2.5-coder-0.5b"
OPENAI_USAGE = Usage(input=2150, cached=1920, output=34, reasoning=12)
SIGNATURE = "EqQBCgIYAhIM1gbcDa9GJwZA2b3hGgxBdjrkzLoky3dl1pkiMOYds"
SEALED = "EmwKAhgBEgy3va3pzix/LafPsn4aDFIT2Xlxh0L5L8rLVyIwxtE3rAFBa8cr3qpP"


def call(id: str, tool: str, arguments: str) -> Call:
    return Call(id=id, tool=tool, arguments=arguments)


REPLIES = {
    "openai/text.sse": Reply(
        text="Der Fehler ist in Zeile 7 – behoben ✓", usage=OPENAI_USAGE, model=GPT
    ),
    "openai/tools.sse": Reply(
        calls=(
            call("call_aY3kq9", "read", '{"path":"src/a.py"}'),
            call("call_bZ8w1x", "grep", '{"pattern":"def \\\\w+"}'),
        ),
        usage=OPENAI_USAGE,
        model=GPT,
        stop="calls",
    ),
    "openai/refusal.sse": Reply(
        text="I can't help with that.", usage=Usage(input=20, output=7), model=GPT, stop="refusal"
    ),
    "openai/length.sse": Reply(
        text="one two", usage=Usage(input=20, output=2), model=GPT, stop="length"
    ),
    "openrouter/reasoning.sse": Reply(
        text="The loop is off by one.",
        thinking=(Thinking(text="Look at the loop.", field="reasoning"),),
        usage=Usage(input=400, cached=128, output=60, reasoning=25),
        model="anthropic/claude-sonnet-4.5",
    ),
    "openrouter/sealed_call.sse": Reply(
        thinking=(
            Thinking(text="I need the file.", field="reasoning"),
            Thinking(
                data='{"type": "reasoning_details", "reasoning_details": [{"type": "reasoning.text", '
                '"text": "I need the file.", "format": "google-gemini-v1", "index": 0}, {"type": "reasoning.encrypted",'
                ' "data": "CvQBAb4+9vtGq1", "format": "google-gemini-v1", "id": "tool_read_9", "index": 0}]}'
            ),
        ),
        calls=(call("tool_read_9", "read", '{"path":"a.py"}'),),
        usage=Usage(input=820, cached=512, output=96, reasoning=63),
        model="google/gemini-3.8-flash",
        stop="calls",
    ),
    "deepseek/reasoning_tools.sse": Reply(
        thinking=(Thinking(text="I need the file.", field="reasoning_content"),),
        calls=(call("call_00_x1", "read", '{"path": "a.py"}'),),
        usage=Usage(input=300, cached=256, output=40, reasoning=22),
        model="deepseek-reasoner",
        stop="calls",
    ),
    "gemini/whole_calls.sse": Reply(
        calls=(
            call("function-call-1", "read", '{"path":"a.py"}'),
            call("function-call-2", "read", '{"path":"b.py"}'),
        ),
        usage=Usage(input=90, output=30),
        model="gemini-2.5-pro",
        stop="calls",
    ),
    "mistral/tools.sse": Reply(
        calls=(call("D681PevKs", "list", '{"path": "."}'),),
        usage=Usage(input=90, output=22),
        model="mistral-large-latest",
        stop="calls",
    ),
    "ollama/object_arguments.sse": Reply(
        calls=(
            call("new-0", "read", '{"path": "a.py"}'),
            call("new-1", "read", '{"path": "b.py"}'),
        ),
        usage=Usage(input=50, output=20),
        model="qwen3:8b",
        stop="calls",
    ),
    "gemini/signed_call.sse": Reply(
        thinking=(
            Thinking(
                data='{"type": "extra_content", "calls": [{"google": {"thought_signature": "CvQBAb4+9vtGq1"}}, null]}'
            ),
        ),
        calls=(
            call("function-call-7", "read", '{"path":"a.py"}'),
            call("function-call-8", "read", '{"path":"b.py"}'),
        ),
        usage=Usage(input=820, cached=512, output=310, reasoning=277),
        model="gemini-3.8-flash",
        stop="calls",
    ),
    "mistral/thinking.sse": Reply(
        text="Line 7.",
        thinking=(Thinking(text="One is off.", field="content.thinking"),),
        usage=Usage(input=41, output=19),
        model="magistral-medium-latest",
    ),
    "azure/text.sse": Reply(
        text="The test is right.",
        usage=Usage(input=1500, cached=1408, output=5),
        model="gpt-5.2-2026-01-15",
    ),
    "vllm/reasoning_tools.sse": Reply(
        thinking=(Thinking(text="I need the file.", field="reasoning"),),
        calls=(call("chatcmpl-tool-9f3", "read", '{"path": "a.py"}'),),
        usage=Usage(input=900, cached=880, output=48),
        model="Qwen/Qwen3-32B",
        stop="calls",
    ),
    "ollama/reasoning.sse": Reply(
        text="Line 7.",
        thinking=(Thinking(text="Short.", field="reasoning"),),
        usage=Usage(input=26, output=14),
        model="qwen3:8b",
    ),
    "openrouter/text.sse": Reply(
        text="Line 7.",
        usage=Usage(input=2300, cached=2048, output=4),
        model="anthropic/claude-sonnet-5.5",
    ),
    "llamacpp/text.sse": Reply(text="Bonjour", usage=Usage(input=37, output=2), model=QWEN),
    "llamacpp/length.sse": Reply(
        text="1, 2,", usage=Usage(input=39, cached=24, output=5), model=QWEN, stop="length"
    ),
    "llamacpp/schema.sse": Reply(
        text='{\n  "tool": "read",\n  "path": "a.py"\n}',
        usage=Usage(input=39, cached=24, output=23),
        model=QWEN,
    ),
    "anthropic/text.sse": Reply(
        text="The bug is in `süm` ✓",
        usage=Usage(input=2312, cached=2000, written=300, output=15),
        model=CLAUDE,
    ),
    **{
        f"{cloud}/text.sse": Reply(
            text="The bug is in `süm` ✓",
            usage=Usage(input=2312, cached=2000, written=300, output=15),
            model="claude-opus-4-8",
        )
        for cloud in ("bedrock", "vertex")
    },
    "anthropic/tools.sse": Reply(
        text="I'll read both.",
        calls=(call("toolu_01A", "read", '{"path": "a.py"}'), call("toolu_01B", "run_tests", "{}")),
        usage=Usage(input=2312, cached=2000, written=300, output=80),
        model=CLAUDE,
        stop="calls",
    ),
    "anthropic/thinking_tools.sse": Reply(
        thinking=(
            Thinking(
                text="First the tests.",
                data=f'{{"type": "thinking", "thinking": "First the tests.", "signature": "{SIGNATURE}"}}',
            ),
            Thinking(data=f'{{"type": "redacted_thinking", "data": "{SEALED}"}}'),
        ),
        calls=(call("toolu_01C", "run_tests", "{}"),),
        usage=Usage(input=2312, cached=2000, written=300, output=140),
        model=CLAUDE,
        stop="calls",
    ),
    "anthropic/length.sse": Reply(
        text="one two",
        usage=Usage(input=2312, cached=2000, written=300, output=2),
        model=CLAUDE,
        stop="length",
    ),
    "anthropic/refusal.sse": Reply(
        usage=Usage(input=2312, cached=2000, written=300), model=CLAUDE, stop="refusal"
    ),
}

FAILURES = {
    "openai/cut.sse": ("network", True, "strong: the connection to api.example.org was lost"),
    "openai/error.sse": (
        "overloaded",
        True,
        "strong: api.example.org is overloaded or broken (500): The server had",
    ),
    "openrouter/error.sse": (
        "overloaded",
        True,
        "strong: api.example.org is overloaded or broken (502): Provider",
    ),
    "vllm/error.sse": (
        "overloaded",
        True,
        "strong: api.example.org is overloaded or broken (500): EngineCore",
    ),
    "anthropic/overloaded.sse": (
        "overloaded",
        True,
        "strong: api.example.org is overloaded or broken (529): Overl",
    ),
    "anthropic/cut.sse": ("network", True, "strong: the connection to api.example.org was lost"),
}


def with_id(name: str, reply: Reply) -> Reply:
    """Return the reply with the newest id that the events of its recording give."""
    newest = ""
    for line in (RECORDED / name).read_text().splitlines():
        data = line.partition("data:")[2].strip()
        if data.startswith("{"):
            event = json.loads(data)
            newest = event.get("message", event).get("id") or newest
    return reply.model_copy(update={"response_id": newest})


REPLIES = {name: with_id(name, reply) for name, reply in REPLIES.items()}


def decode(name: str, portions: list[bytes], access: ModelEndpoint = ACCESS) -> tuple[str, Reply]:
    """The text said on the way, and the reply."""
    decoding = (
        messages.MessagesDecoder(access)
        if name.startswith(("anthropic/", "bedrock/", "vertex/"))
        else chat_completions.ChatCompletionsDecoder(access, lambda number: f"new-{number}")
    )
    decoder = SseDecoder()
    events = [event for portion in portions for event in decoder.feed(portion)]
    said = "".join([decoding.feed(event) for event in [*events, *decoder.finish()]])
    return said, decoding.reply()


def test_every_recording_is_judged() -> None:
    found = {str(path.relative_to(RECORDED)) for path in RECORDED.rglob("*.sse")}
    assert found == set(REPLIES) | set(FAILURES) | {
        "openai/responses.sse"
    }  # that one is test_responses.py's


@pytest.mark.parametrize("name", REPLIES)
def test_a_recording_decodes_to_its_reply(name: str) -> None:
    assert decode(name, [(RECORDED / name).read_bytes()]) == (REPLIES[name].text, REPLIES[name])


@pytest.mark.parametrize("name", REPLIES)
def test_it_does_so_byte_by_byte(name: str) -> None:
    data = (RECORDED / name).read_bytes()
    assert decode(name, [data[at : at + 1] for at in range(len(data))])[1] == REPLIES[name]


@pytest.mark.parametrize("name", FAILURES)
def test_a_broken_recording_fails_as_it_should(name: str) -> None:
    kind, retry, message = FAILURES[name]
    with pytest.raises(AgentError) as raised:
        decode(name, [(RECORDED / name).read_bytes()])
    assert (raised.value.kind, raised.value.retry) == (kind, retry)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    "name", ["openai/tools.sse", "deepseek/reasoning_tools.sse", "anthropic/thinking_tools.sse"]
)
def test_a_stream_cut_anywhere_is_whole_or_an_error(name: str) -> None:
    data = (RECORDED / name).read_bytes()
    for length in range(len(data)):
        try:
            reply = decode(name, [data[:length]])[1]
        except AgentError as error:
            assert (error.kind, error.retry) == ("network", True)
        else:
            assert (reply.calls, reply.thinking) == (REPLIES[name].calls, REPLIES[name].thinking)


@given(
    name=st.sampled_from(sorted(REPLIES)),
    at=st.integers(0, 3000),
    junk=st.binary(min_size=1, max_size=6),
)
@settings(max_examples=300)
def test_damage_is_a_reply_or_a_clean_error_and_nothing_else(
    name: str, at: int, junk: bytes
) -> None:
    data = (RECORDED / name).read_bytes()
    at %= len(data)
    try:
        reply = decode(name, [data[:at] + junk + data[at + len(junk) :]])[1]
    except AgentError as error:
        assert error.kind in ("protocol", "network", "overloaded", "invalid")
    else:
        assert Reply.model_validate_json(reply.model_dump_json()) == reply


def chunk(delta: dict[str, object], reason: str | None = None, **more: object) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": reason}
    return f"data: {json.dumps({'choices': [choice], **more})}\n\n".encode()


HALF = chunk({"content": "The loop"})


@pytest.mark.parametrize(
    "reason",
    [
        "insufficient_system_resource",
        "abort",
        "function_call_filter: MALFORMED_FUNCTION_CALL",
        "error",
        "network_error",
    ],
)
def test_half_an_answer_of_a_server_that_failed_is_no_answer(reason: str) -> None:
    with pytest.raises(AgentError, match=f"behind this server failed: {reason}") as raised:
        decode("x", [HALF, chunk({}, reason), b"data: [DONE]\n\n"])
    assert (raised.value.kind, raised.value.retry) == ("overloaded", True)


@pytest.mark.parametrize(
    ("reason", "stop"),
    [
        ("SAFETY", "refusal"),
        ("content_filter: PROHIBITED_CONTENT", "refusal"),
        ("MAX_TOKENS", "length"),
        ("sensitive", "refusal"),
        ("model_context_window_exceeded", "length"),
        ("STOP", "end"),
        ("something new", "end"),
    ],
)
def test_a_reason_counts_in_whatever_letters_it_comes(reason: str, stop: str) -> None:
    assert decode("x", [HALF, chunk({}, reason)])[1].stop == stop


def test_a_stream_that_ends_before_a_word_is_no_answer() -> None:
    with pytest.raises(AgentError, match="was lost"):
        decode("x", [b"data: [DONE]\n\n"])
    with pytest.raises(AgentError, match="was lost"):
        decode("x", [chunk({"role": "assistant", "content": ""}), b"data: [DONE]\n\n"])


def test_a_call_whose_shreds_have_ids_of_their_own_is_one_call() -> None:
    shreds = [
        {"index": 0, "id": "call_a", "function": {"name": "read", "arguments": ""}},
        {"index": 0, "id": "call_b", "function": {"arguments": '{"path": '}},
        {"index": 0, "id": "call_c", "function": {"arguments": '"a.py"}'}},
        {"index": 0, "id": "call_d", "function": {"name": "read", "arguments": '{"path": "b.py"}'}},
        {"index": 0, "id": "call_d", "type": "function", "function": None},
    ]
    reply = decode(
        "x", [*(chunk({"tool_calls": [shred]}) for shred in shreds), chunk({}, "tool_calls")]
    )[1]
    assert reply.calls == (
        call("call_a", "read", '{"path": "a.py"}'),
        call("call_d", "read", '{"path": "b.py"}'),
    )


@pytest.mark.parametrize("index", [{}, {"index": 0}])
def test_calls_written_side_by_side_are_told_apart_by_their_ids(index: dict[str, int]) -> None:
    begun = [
        {**index, "id": id, "function": {"name": "read", "arguments": ""}}
        for id in ("call_a", "call_b")
    ]
    more = [
        {**index, "id": f"call_{name}", "function": {"arguments": piece}}
        for pieces in (('{"path": ', '{"path": '), ('"a.py"}', '"b.py"}'))
        for name, piece in zip("ab", pieces, strict=True)
    ]
    portions = [chunk({"tool_calls": [shred]}) for shred in [*begun, *more]]
    reply = decode("x", [*portions, chunk({}, "tool_calls")])[1]
    assert reply.calls == (
        call("call_a", "read", '{"path": "a.py"}'),
        call("call_b", "read", '{"path": "b.py"}'),
    )


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (json.dumps('{"path": "a.py"}'), '{"path": "a.py"}'),
        ("null", "{}"),
        ("", "{}"),
        ('{"path": "a', '{"path": "a'),
        ('"a.py"', '"a.py"'),
        ("[1]", "[1]"),
    ],
)
def test_arguments_that_were_packed_twice_are_unpacked(written: str, read: str) -> None:
    made = {"index": 0, "id": "call_a", "function": {"name": "read", "arguments": written}}
    reply = decode("x", [chunk({"tool_calls": [made]}), chunk({}, "tool_calls")])[1]
    assert reply.calls == (call("call_a", "read", read),)


def test_what_is_written_to_a_cache_counts_where_it_has_a_price() -> None:
    details = {"cached_tokens": 10, "cache_write_tokens": 100}
    usage = {
        "prompt_tokens": 194,
        "completion_tokens": 2,
        "total_tokens": 196,
        "prompt_tokens_details": details,
    }
    portions = [
        HALF,
        chunk({}, "stop"),
        f"data: {json.dumps({'choices': [], 'usage': usage})}\n\n".encode(),
    ]
    assert decode("x", portions)[1].usage == Usage(input=194, cached=10, output=2)
    claude = replace(
        ACCESS, base_url="https://openrouter.ai/api/v1", model="anthropic/claude-sonnet-5.5"
    )
    assert decode("x", portions, claude)[1].usage == Usage(
        input=194, cached=10, written=100, output=2
    )


def event(type: str, **more: object) -> bytes:
    return f"event: {type}\ndata: {json.dumps({'type': type, **more})}\n\n".encode()


def test_a_server_that_only_speaks_like_anthropic_is_understood() -> None:
    thinking = {"type": "thinking", "thinking": None, "signature": None}
    portions = [
        event(
            "message_start",
            message={"model": None, "usage": {"input_tokens": 5, "output_tokens": 0}},
        ),
        event("content_block_start", index=0, content_block=thinking),
        event(
            "content_block_delta",
            index=0,
            delta={"type": "thinking_delta", "thinking": "Hm.", "text": None},
        ),
        event("content_block_start", index=1, content_block={"type": "text", "text": None}),
        event("content_block_delta", index=1, delta={"type": "text_delta", "text": "Line 7."}),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn"},
            usage={"input_tokens": None, "output_tokens": 9},
        ),
    ]
    reply = decode("anthropic/x", portions)[1]
    assert (reply.text, reply.thinking[0].text, reply.model) == ("Line 7.", "Hm.", ACCESS.model)
    assert (reply.usage, reply.stop) == (Usage(input=5, output=9), "end")


def test_a_zero_at_the_end_does_not_take_back_what_was_counted_at_the_beginning() -> None:
    portions = [
        event(
            "message_start",
            message={
                "usage": {"input_tokens": 50, "cache_read_input_tokens": 7, "output_tokens": 1}
            },
        ),
        event("content_block_start", index=0, content_block={"type": "text", "text": "Yes."}),
        event(
            "message_delta",
            delta={"stop_reason": "end_turn"},
            usage={"input_tokens": 0, "output_tokens": 9},
        ),
        event("message_stop"),
    ]
    assert decode("anthropic/x", portions)[1].usage == Usage(input=57, cached=7, output=9)


def test_characters_that_were_cut_in_two_are_whole_again() -> None:
    halves = [
        chunk({"content": "ok \ud83d"}),
        chunk({"content": "\ude00 \ud83d"}),
        chunk({}, "stop"),
    ]
    reply = decode("x", halves)[1]
    assert reply.text == "ok \U0001f600 \ufffd"
    assert Reply.model_validate_json(reply.model_dump_json()) == reply
    pieces = [{"type": "text_delta", "text": half} for half in ("ok \ud83d", "\ude00 \ud83d")]
    begun = event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    said = [event("content_block_delta", index=0, delta=piece) for piece in pieces]
    assert decode("anthropic/x", [begun, *said, event("message_stop")])[1].text == reply.text


def without_limit(reply: Reply) -> Reply:
    """The reply without the limit that its server was sent, which no recording holds."""
    assert reply.max_tokens > 0
    return reply.model_copy(update={"max_tokens": 0})


def test_the_same_comes_over_http() -> None:
    async def both() -> tuple[Reply, Reply]:
        claude = Anthropic(ACCESS, Server(recorded("anthropic/tools.sse")))
        gpt = OpenAI(ACCESS, Server(recorded("openai/tools.sse")))
        return await claude.reply(PROMPT, quiet, unhurried), await gpt.reply(
            PROMPT, quiet, unhurried
        )

    claude, gpt = map(without_limit, asyncio.run(both()))
    assert (claude, gpt) == (REPLIES["anthropic/tools.sse"], REPLIES["openai/tools.sse"])


@pytest.mark.parametrize("count", [rb"-\2", rb'"many"', b"[]", rb"\2.5"])
@pytest.mark.parametrize("name", ["anthropic/text.sse", "openai/text.sse", "llamacpp/text.sse"])
def test_what_is_no_count_of_tokens_is_unknown_and_not_subtracted(name: str, count: bytes) -> None:
    body = (RECORDED / name).read_bytes()
    negative = re.sub(rb'("\w*(?:tokens|_n)": ?)(\d+)', rb"\1" + count, body)
    assert negative != body
    wire = Anthropic if name.startswith("anthropic") else OpenAI
    reply = asyncio.run(wire(ACCESS, Server(stream(negative))).reply(PROMPT, quiet, unhurried))
    usage = reply.usage
    assert usage.input == usage.estimated_input > 0
    assert usage.output == usage.estimated_output > 0
    assert usage.cached == usage.written == usage.reasoning == 0


def test_an_error_of_the_server_llama_cpp_is_understood() -> None:
    body = (RECORDED / "llamacpp/too_long.json").read_text()
    server = Server(httpx.Response(400, text=body, headers={"content-type": "application/json"}))
    with pytest.raises(AgentError) as raised:
        asyncio.run(OpenAI(ACCESS, server).reply(PROMPT, quiet, unhurried))
    assert (raised.value.kind, raised.value.retry) == ("invalid", False)
    assert "longer than gpt-5 can read (400): request (6030 tokens) exceeds" in str(raised.value)


def test_a_completion_that_is_not_streamed_is_taken() -> None:
    whole = (RECORDED / "llamacpp/whole.json").read_text()
    message = (
        '{"type":"message","model":"m","content":[{"type":"text","text":"hi"},{"type":"tool_use","id":"t","name":"read",'
        '"input":{"path":"a"}}],"stop_reason":"tool_use","usage":{"input_tokens":3,"output_tokens":2}}'
    )

    async def both() -> tuple[Reply, Reply]:
        json = {"content-type": "application/json"}
        gpt = OpenAI(ACCESS, Server(httpx.Response(200, text=whole, headers=json)))
        claude = Anthropic(ACCESS, Server(httpx.Response(200, text=message, headers=json)))
        return await gpt.reply(PROMPT, quiet, unhurried), await claude.reply(
            PROMPT, quiet, unhurried
        )

    assert tuple(map(without_limit, asyncio.run(both()))) == (
        Reply(
            text="Hello! How can I",
            usage=Usage(input=32, cached=24, output=5),
            model=QWEN,
            stop="length",
            response_id="chatcmpl-A7tWPMo1CZj7iBlRKuOdafGor67F1fVh",
        ),
        Reply(
            text="hi",
            calls=(call("t", "read", '{"path": "a"}'),),
            usage=Usage(input=3, output=2),
            model="m",
            stop="calls",
        ),
    )


def test_a_stream_without_the_word_for_it_is_taken() -> None:
    data = (RECORDED / "openai/text.sse").read_bytes()
    server = Server(httpx.Response(200, content=data, headers={"content-type": "text/plain"}))
    reply = asyncio.run(OpenAI(ACCESS, server).reply(PROMPT, quiet, unhurried))
    assert without_limit(reply) == REPLIES["openai/text.sse"]


def test_text_is_said_while_it_arrives() -> None:
    said: list[str] = []
    asyncio.run(
        OpenAI(ACCESS, Server(recorded("openai/text.sse"))).reply(PROMPT, said.append, unhurried)
    )
    assert said == ["Der Fehler", " ist in Zeile ", "7 – behoben ✓"]
