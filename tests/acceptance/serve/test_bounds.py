"""What a client asks of agents: reasoning, tools that not every agent can call, conversations
longer than some read.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest

from fugu_cli.messages import Effort, Prompt, Reply, Thinking
from fugu_cli.server.single_agent import effort_of
from fugu_cli.session.events import Member
from fugu_cli.wires.client_requests import RequestSampling
from tests.acceptance.serve.endpoint import SMALL, STRONG, Endpoint, endpoint, fails, judges, says

ASK: Any = [{"role": "user", "content": "what is it?"}]
SCHEMA = {"type": "object", "properties": {}}
CHAT_TOOL: Any = {"type": "function", "function": {"name": "look", "parameters": SCHEMA}}
TOOL: Any = {"type": "function", "name": "look", "parameters": SCHEMA, "strict": False}
MESSAGES_TOOL: Any = {"name": "look", "input_schema": SCHEMA}
OVERFLOW = (
    "small: the request is longer than m-small can read (400): maximum context length is 8 tokens"
)


def by_openai(place: Endpoint) -> openai.OpenAI:
    made = openai.OpenAI(base_url=f"{place.url}/v1", api_key="unused", max_retries=0)
    place.clients.append(made)
    return made


def by_anthropic(place: Endpoint) -> anthropic.Anthropic:
    made = anthropic.Anthropic(base_url=place.url, api_key="unused", max_retries=0)
    place.clients.append(made)
    return made


@pytest.mark.parametrize(
    ("own", "asked", "reasons", "told"),
    [
        ("", "high", True, "high"),
        ("", "high", False, ""),
        ("low", "high", True, ""),
        ("high", "low", True, "low"),
        ("high", "low", False, "low"),
        ("high", "", True, ""),
    ],
)
def test_a_client_bounds_what_an_entry_reasons(
    own: Effort, asked: Effort, reasons: bool, told: Effort
) -> None:
    member = Member(name="m", provider="openai", model="m", slot="cheap", effort=own)
    assert effort_of(member, RequestSampling(effort=asked, reasons=reasons)) == told


@pytest.mark.parametrize("tools", [True, False])
def test_what_a_client_says_of_reasoning_reaches_the_agent(tmp_path: Path, tools: bool) -> None:
    adaptive, budget = {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 3000}
    with endpoint(tmp_path, says("x")).serving() as place:
        chat, messages = by_openai(place).chat.completions, by_anthropic(place).messages
        chat.create(
            model="fugu",
            messages=ASK,
            reasoning_effort="low",
            tools=[CHAT_TOOL] if tools else openai.omit,
        )
        by_openai(place).responses.create(
            model="fugu",
            input="x",
            reasoning={"effort": "medium"},
            tools=[TOOL] if tools else openai.omit,
        )
        given = [MESSAGES_TOOL] if tools else anthropic.omit
        more: Any
        for more in (
            {"thinking": adaptive}, {"thinking": adaptive, "output_config": {"effort": "low"}}, {"thinking": budget},
            {"thinking": {"type": "disabled"}}, {"output_config": {"effort": "high"}},
        ):  # fmt: skip
            messages.create(model="fugu", max_tokens=9000, messages=ASK, tools=given, **more)
    efforts = [prompt.effort for prompt in place.agents["small"].shown]
    assert efforts == ["low", "medium", "high", "low", "medium", "", ""]


def thinks(prompt: Prompt) -> Reply:
    if judges(prompt):
        return Reply(text="ACCEPT", thinking=(Thinking(text="the Verifier's own"),))
    return Reply(
        text="it is 42", thinking=(Thinking(text="six by nine"), Thinking(data='{"sealed": true}'))
    )


@pytest.mark.parametrize("stream", [True, False])
def test_what_was_thought_comes_back_to_who_asks_for_it(tmp_path: Path, stream: bool) -> None:
    thinking: Any = {"type": "enabled", "budget_tokens": 1024}
    with endpoint(tmp_path, thinks, thinks).serving() as place:
        sdk, messages = by_openai(place), by_anthropic(place).messages
        if stream:
            chunks = list(sdk.chat.completions.create(model="fugu", messages=ASK, stream=True))
            deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
            chat = "".join(getattr(delta, "reasoning_content", "") for delta in deltas)
            with sdk.responses.stream(
                model="fugu", input="x", reasoning={"summary": "auto"}
            ) as events:
                response: Any = events.get_final_response()
            with messages.stream(
                model="fugu", max_tokens=9000, messages=ASK, thinking=thinking
            ) as going:
                message: Any = going.get_final_message()
        else:
            chat = (
                sdk.chat.completions.create(model="fugu", messages=ASK)
                .choices[0]
                .message.reasoning_content
            )  # type: ignore[attr-defined]
            response = sdk.responses.create(model="fugu", input="x", reasoning={"summary": "auto"})
            message = messages.create(
                model="fugu", max_tokens=9000, messages=ASK, thinking=thinking
            )
        plain = messages.create(model="fugu", max_tokens=9, messages=ASK)
        silent = sdk.responses.create(model="fugu", input="x")
    assert chat == "six by nine"
    assert [
        part.text for item in response.output if item.type == "reasoning" for part in item.summary
    ] == [chat]
    assert [block.thinking for block in message.content if block.type == "thinking"] == [chat]
    assert (response.output_text, [block.text for block in message.content if block.type == "text"]) == (
        "it is 42", ["it is 42"],
    )  # fmt: skip
    assert ([block.type for block in plain.content], [item.type for item in silent.output]) == (
        ["text"],
        ["message"],
    )


def refused(call: Callable[[], object]) -> tuple[int, str]:
    """The status of a refusal and its code, where the wire has one."""
    with pytest.raises((openai.APIStatusError, anthropic.APIStatusError)) as raised:
        call()
    error: Any = raised.value
    return error.status_code, getattr(error, "code", None) or error.body["error"]["message"]


def asked_with_tools(place: Endpoint, model: str) -> list[Callable[[], object]]:
    """The same question with a tool on each wire."""
    return [
        lambda: by_openai(place).chat.completions.create(
            model=model, messages=ASK, tools=[CHAT_TOOL]
        ),
        lambda: by_openai(place).responses.create(model=model, input="what is it?", tools=[TOOL]),
        lambda: by_anthropic(place).messages.create(
            model=model, max_tokens=9, messages=ASK, tools=[MESSAGES_TOOL]
        ),
    ]


def test_an_agent_that_calls_no_tools_is_masked_where_there_are_some(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("from small"), says("from strong"))
    place.members = (replaced(SMALL, protocol="text"), STRONG)
    with place.serving():
        for ask in asked_with_tools(place, "fugu"):
            ask()
        named = [refused(ask) for ask in asked_with_tools(place, "small")]
        plain = by_openai(place).chat.completions.create(model="small", messages=ASK)
    assert (len(place.agents["strong"].shown), plain.choices[0].message.content) == (
        3,
        "from small",
    )
    said = "tools: small can call none; choose an agent that does, or leave the tools out"
    assert named == [(400, "unsupported_tool"), (400, "unsupported_tool"), (400, said)]


def replaced(member: Member, **changes: object) -> Member:
    return member.model_copy(update=changes)


def test_an_agent_that_reads_too_little_is_not_chosen(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("from small"), says("from strong"))
    place.members = (replaced(SMALL, context=60), STRONG)
    long: Any = [{"role": "user", "content": "word " * 60}]
    with place.serving():
        talk = by_openai(place).chat.completions
        first = (
            talk.create(model="fugu", messages=long, tools=[CHAT_TOOL]).choices[0].message.content
        )
        second = (
            talk.create(model="fugu", messages=ASK, tools=[CHAT_TOOL]).choices[0].message.content
        )
        named = [refused(lambda: talk.create(model="small", messages=long))]
        named.append(
            refused(
                lambda: by_anthropic(place).messages.create(
                    model="small", max_tokens=9, messages=long
                )
            )
        )
    assert (first, second) == ("from strong", "from small")
    said = "prompt is too long: 92 tokens > 60 maximum, as estimated for small"
    assert named == [(400, "context_length_exceeded"), (400, said)]


def test_a_reply_is_asked_for_no_longer_than_the_agent_has_room(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    place.members = (replaced(SMALL, context=4000), STRONG)
    with place.serving():
        talk = by_openai(place).chat.completions
        talk.create(model="small", messages=ASK, max_tokens=32000)
        talk.create(model="small", messages=ASK, max_tokens=50)
    assert [
        2000 < one.max_tokens < 4000 or one.max_tokens for one in place.agents["small"].shown
    ] == [True, 50]


@pytest.mark.parametrize("stream", [True, False])
def test_a_conversation_that_no_server_takes_is_refused_in_words_that_clients_know(
    tmp_path: Path, stream: bool
) -> None:
    def react(prompt: Prompt) -> Reply:
        return fails("invalid", said=OVERFLOW)(prompt)

    with endpoint(tmp_path, react, react).serving() as place:
        sdk = by_openai(place)
        chat = refused(
            lambda: sdk.chat.completions.create(
                model="fugu", messages=ASK, tools=[CHAT_TOOL], stream=stream
            )
        )
        if stream:
            events = list(sdk.responses.create(model="fugu", input="x", tools=[TOOL], stream=True))
            last: Any = events[-1]
            response = (400, last.response.error.code)
        else:
            response = refused(lambda: sdk.responses.create(model="fugu", input="x", tools=[TOOL]))
        status, message = refused(
            lambda: by_anthropic(place).messages.create(
                model="fugu", max_tokens=9, messages=ASK, tools=[MESSAGES_TOOL], stream=stream
            )
        )
    assert chat == response == (400, "context_length_exceeded")
    assert (status, message.startswith("prompt is too long: ")) == (400, True)


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        ("refused", [403, 503, 503]),
        ("absent", [404, 404, 404]),
        ("credit", [402, 402, 402]),
        ("overloaded", [503, 503, 503]),
    ],
)
def test_what_only_the_user_can_mend_is_no_fault_that_is_tried_again(
    tmp_path: Path, kind: str, statuses: list[int]
) -> None:
    with endpoint(tmp_path, fails(kind), fails(kind)).serving() as place:
        made = [refused(ask)[0] for ask in asked_with_tools(place, "fugu")]
    assert made == statuses


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        (
            "responses",
            {"input": "x", "tools": [{"type": "file_search"}]},
            "tools: file_search is not offered",
        ),
        (
            "responses",
            {"input": "x", "tools": [{"type": "mcp", "server_label": "s"}]},
            "tools: mcp is not offered",
        ),
        (
            "responses",
            {"input": "x", "tools": [{"type": "shell", "environment": {"type": "container_auto"}}]},
            "tools: shell is offered with the environment local alone",
        ),
        ("responses", {"input": [{"type": "mcp_call"}]}, "input.0: mcp_call is not offered"),
        (
            "responses",
            {"input": [{"type": "tool_search_output"}]},
            "input.0: tool_search_output is not offered",
        ),
        (
            "responses",
            {"input": "x", "reasoning": {"effort": "huge"}},
            "reasoning.effort: Input should be",
        ),
        (
            "messages",
            {
                "max_tokens": 9,
                "messages": ASK,
                "tools": [{"type": "web_fetch_20250910", "name": "web_fetch"}],
            },
            "tools: web_fetch_20250910 is not offered",
        ),
        (
            "messages",
            {"max_tokens": 9, "messages": ASK, "mcp_servers": [{"url": "x"}]},
            "mcp_servers is not offered",
        ),
        (
            "chat/completions",
            {"messages": ASK, "previousThreadId": "t_1"},
            "previousThreadId: nothing is stored here",
        ),
        (
            "messages",
            {"max_tokens": 9, "messages": ASK, "container": "c_1"},
            "container: nothing is stored here",
        ),
        (
            "responses",
            {"input": "x", "prompt": {"id": "pmpt_1"}},
            "prompt: nothing is stored here",
        ),
        (
            "chat/completions",
            {"messages": ASK, "tools": [{"type": "custom"}]},
            "tools of type 'custom' are not offered",
        ),
    ],
)
def test_what_nobody_can_be_offered_is_refused_by_name(
    tmp_path: Path, path: str, body: object, why: str
) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        answer = httpx.post(f"{place.url}/v1/{path}", json={"model": "fugu", **body})  # type: ignore[dict-item]
    assert (answer.status_code, answer.json()["error"]["message"][: len(why)]) == (400, why)


@pytest.mark.parametrize(
    ("path", "fields", "left_out"),
    [
        (
            "messages",
            {
                "max_tokens": 9,
                "messages": ASK,
                "inference_geo": "eu",
                "speed": "fast",
                "service_tier": "auto",
                "cache_control": {"type": "ephemeral"},
                "output_config": {"effort": "low", "task_budget": {"total": 9}},
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            },
            ["inference_geo", "speed", "output_config.task_budget", "web_search_20250305"],
        ),
        (
            "responses",
            {
                "input": "x",
                "store": True,
                "truncation": "disabled",
                "max_tool_calls": 3,
                "include": ["reasoning.encrypted_content"],
                "prompt_cache_key": "k",
                "reasoning": {"effort": "low", "summary": "auto", "context": "all_turns"},
                "text": {"verbosity": "low"},
                "tools": [{"type": "web_search"}],
            },
            ["store", "max_tool_calls", "text.verbosity", "reasoning.context", "web_search"],
        ),
        (
            "chat/completions",
            {
                "messages": ASK,
                "logit_bias": {"1": 5},
                "frequency_penalty": 0,
                "top_p": 1.0,
                "store": False,
                "web_search_options": {},
                "not_known_yet": 1,
            },
            ["logit_bias", "web_search_options", "not_known_yet"],
        ),
    ],
)
def test_fields_that_change_nothing_here_are_named_in_the_answer(
    tmp_path: Path, path: str, fields: dict[str, Any], left_out: list[str]
) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        answer = httpx.post(f"{place.url}/v1/{path}", json={"model": "small", **fields}).json()
    assert sorted(answer["fugu"]["left_out"]) == sorted(left_out)


def test_what_was_compacted_elsewhere_is_a_line_that_says_so(tmp_path: Path) -> None:
    items: Any = [
        {"type": "compaction", "encrypted_content": "x"},
        {"role": "user", "content": "go on"},
    ]
    with endpoint(tmp_path, says("x")).serving() as place:
        by_openai(place).responses.create(model="small", input=items)
    assert [message.text for message in place.agents["small"].shown[0].messages] == [
        "[What was said before this is kept in a form that only its provider can read.]", "go on",
    ]  # fmt: skip


def revising() -> Callable[[Prompt], Reply]:
    """A Verifier that is content with the second answer."""
    verdicts = [Reply(text="REVISE it is too short"), Reply(text="ACCEPT")]
    return lambda prompt: verdicts.pop(0) if judges(prompt) else Reply(text="at length")


@pytest.mark.parametrize(
    ("verify", "heard"),
    [
        (
            None,
            "short\n\n[A Verifier asked for a revision of this answer. The revised one:]\n\nat "
            "length",
        ),
        ("true", "at length"),
        ("false", "short"),
    ],
)
def test_an_answer_is_streamed_while_it_is_made_unless_a_verified_one_is_asked_for(
    tmp_path: Path, verify: str | None, heard: str
) -> None:
    with endpoint(tmp_path, says("short"), revising()).serving() as place:
        stream = by_openai(place).chat.completions.create(
            model="fugu", messages=ASK, stream=True, extra_headers={"x-fugu-verify": verify} if verify else {},
            stream_options={"include_usage": True},
        )  # fmt: skip
        chunks = list(stream)
    assert (
        "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == heard
    )
    assert chunks[-1].to_dict()["fugu"].get("end", "") == (
        "answered" if verify == "false" else "accepted"
    )  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("first", "second", "heard"),
    [
        ("UNABLE: no data.", "it is seven", "it is seven"),
        ("UNABLE: no data.", "UNABLE: none here.", "none here."),
        ("UNA", "never asked", "UNA"),
        ("It says\nUNABLE: no data.", "never asked", "It says\nUNABLE: no data."),
    ],
)
@pytest.mark.parametrize("stream", [True, False])
def test_an_agent_that_gives_up_is_followed_by_another_and_not_heard(
    tmp_path: Path, stream: bool, first: str, second: str, heard: str
) -> None:
    unverified = {"x-fugu-verify": "false"}
    with endpoint(tmp_path, says(first), says(second)).serving() as place:
        ask = by_openai(place).chat.completions.create
        if stream:
            chunks = list(ask(model="fugu", messages=ASK, stream=True, extra_headers=unverified))
            text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        else:
            text = (
                ask(model="fugu", messages=ASK, extra_headers=unverified).choices[0].message.content
            )
    assert text == heard


def test_an_answer_of_a_schema_is_streamed_when_it_is_verified(tmp_path: Path) -> None:
    schema: Any = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
    with endpoint(tmp_path, says("{}"), revising()).serving() as place:
        stream = by_openai(place).chat.completions.create(
            model="fugu", messages=ASK, stream=True, response_format=schema
        )
        heard = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
    assert heard == "at length"
