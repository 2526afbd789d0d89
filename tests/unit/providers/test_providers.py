"""Each provider as its page has it: the entry is read from the page, an agent built from it, a
recording played.
"""

import asyncio
import json
import re
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import httpx
import pytest
from servers import Server, quiet, recorded, unhurried

from fugu_cli import wiring
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.loader import parse_layer
from fugu_cli.config.schema import AgentEntry, TimeoutPhases
from fugu_cli.messages import (
    Call,
    FromAgent,
    FromTool,
    FromUser,
    Prompt,
    Reply,
    Thinking,
    ToolSpec,
    Usage,
)
from fugu_cli.providers.endpoint import ModelEndpoint, Timeouts
from fugu_cli.providers.server_quirks import ServerQuirks
from fugu_cli.wires.chat_completions import OpenAI, encode_request
from fugu_cli.wires.messages import Anthropic

HELP = files("fugu_cli").joinpath("help")
SHARED = HELP.joinpath("providers.md").read_text(encoding="utf-8")
NAMED = (
    "OpenAI",
    "Anthropic",
    "Google",
    "OpenRouter",
    "DeepSeek",
    "Mistral",
    "Azure",
    "Bedrock",
    "Vertex",
    "Ollama",
    "vLLM",
    "llama.cpp",
)
TOPICS = {provider: provider.lower().replace(".", "") for provider in NAMED}
PAGES = {
    one: HELP.joinpath("providers", f"{topic}.md").read_text(encoding="utf-8")
    for one, topic in TOPICS.items()
}
ENTRY = re.compile(r"^(    \[\[agents\]\]\n(?:    .*\n)+)", re.MULTILINE)
PROMPT = Prompt(
    system="be brief",
    messages=(FromUser(text="which line?"),),
    tools=(
        ToolSpec(
            name="read", description="reads", parameters='{"type": "object", "properties": {}}'
        ),
    ),
)
KEY = "k-0123456789"


def entries(provider: str) -> list[AgentEntry]:
    """The entries of the page, as the pool completes them. The first one stands at its
    beginning.
    """
    shown = "\n".join(ENTRY.findall(PAGES[provider]))
    config = parse_layer(
        "\n".join(line.removeprefix("    ") for line in shown.splitlines()), Path("/x/.fugurc")
    ).config
    environ = {name: KEY for one in config.agents if (name := one.api_key_env)} | {
        "OPENAI_API_KEY": KEY
    }
    return list(usable_pool(config, environ))


def entry(provider: str) -> AgentEntry:
    return entries(provider)[0]


def access(provider: str) -> ModelEndpoint:
    one = entry(provider)
    return wiring.build_endpoint(one, {one.api_key_env or "": KEY})


def agent(provider: str, server: Server) -> OpenAI | Anthropic:
    kind = Anthropic if entry(provider).provider == "anthropic" else OpenAI
    return kind(access(provider), server)


def call(
    provider: str, stream: str, prompt: Prompt = PROMPT
) -> tuple[Reply, Server, dict[str, Any]]:
    server = Server(recorded(stream))
    reply = asyncio.run(agent(provider, server).reply(prompt, quiet, unhurried))
    return reply, server, json.loads(server.requests[0])


READ_A = Call(id="", tool="read", arguments='{"path": "a.py"}')

RECORDED = {
    "OpenAI": ("openai/text.sse", "https://api.openai.com/v1/chat/completions", "Der Fehler", 1920),
    "Anthropic": ("anthropic/text.sse", "https://api.anthropic.com/v1/messages", "The bug", 2000),
    "Google": (
        "gemini/signed_call.sse", "https://generativelanguage.googleapis.com/v1beta/openai/chat/completions", "", 512,
    ),
    "OpenRouter": ("openrouter/text.sse", "https://openrouter.ai/api/v1/chat/completions", "Line 7.", 2048),
    "DeepSeek": ("deepseek/reasoning_tools.sse", "https://api.deepseek.com/v1/chat/completions", "", 256),
    "Mistral": ("mistral/thinking.sse", "https://api.mistral.ai/v1/chat/completions", "Line 7.", 0),
    "Azure": (
        "azure/text.sse", "https://my-resource.openai.azure.com/openai/v1/chat/completions", "The test is right.", 1408,
    ),
    "Bedrock": (
        "bedrock/text.sse", "https://bedrock-mantle.us-east-1.api.aws/anthropic/v1/messages", "The bug", 2000,
    ),
    "Vertex": (
        "vertex/text.sse",
        "https://us-east5-aiplatform.googleapis.com/v1/projects/my-project/locations/us-east5"
        "/publishers/anthropic/models/claude-opus-4-8:streamRawPredict", "The bug", 2000,
    ),
    "Ollama": ("ollama/reasoning.sse", "http://127.0.0.1:11434/v1/chat/completions", "Line 7.", 0),
    "vLLM": ("vllm/reasoning_tools.sse", "http://127.0.0.1:8000/v1/chat/completions", "", 880),
    "llama.cpp": ("llamacpp/text.sse", "http://127.0.0.1:8080/v1/chat/completions", "Bonjour", 0),
}  # fmt: skip


@pytest.mark.parametrize("provider", NAMED)
def test_each_has_a_page_that_begins_with_its_entry_and_is_named_on_the_shared_one(
    provider: str,
) -> None:
    topic, page = TOPICS[provider], PAGES[provider]
    assert page.startswith(f"# {topic}: an entry for ")
    assert page.split("\n\n")[1].startswith("    [[agents]]\n")
    assert f"fugu help {topic}\n" in SHARED or f"fugu help {topic} " in SHARED
    assert provider in RECORDED


def test_two_entries_of_a_page_are_two_agents_on_the_same_model() -> None:
    direct, deep = entries("OpenAI")
    assert (direct.model == deep.model, direct.effort, deep.effort) == (True, "medium", "xhigh")
    direct, deep = entries("vLLM")
    assert (direct.model == deep.model, deep.body) == (True, {})


def test_ids_of_calls_are_what_mistral_takes() -> None:
    made = Call(id="call_20261121-143005-20df9261_0", tool="read", arguments="{}")
    messages = (
        FromUser(text="?"),
        FromAgent(agent="gpt", calls=(made, made.model_copy(update={"id": "D681PevKs"}))),
        FromTool(call=made.id, tool="read", text="x"),
        FromTool(call="D681PevKs", tool="read", text="y"),
    )
    history = PROMPT.model_copy(update={"messages": messages})
    _, _, body = call("Mistral", "mistral/tools.sse", history)
    ids = [one["id"] for one in body["messages"][2]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in body["messages"][3:5]]
    assert re.fullmatch("[a-zA-Z0-9]{9}", ids[0])
    assert ids[1] == "D681PevKs"
    _, _, other = call("DeepSeek", "deepseek/reasoning_tools.sse", history)
    assert other["messages"][2]["tool_calls"][0]["id"] == made.id


AFTER_RESULTS = (
    FromUser(text="?"),
    FromAgent(agent="other", calls=(Call(id="call_1", tool="read"),)),
    FromTool(call="call_1", tool="read", text="x"),
    FromUser(text="and now?"),
)


def test_nobody_speaks_right_after_a_result_where_mistral_listens() -> None:
    _, _, body = call(
        "Mistral", "mistral/tools.sse", PROMPT.model_copy(update={"messages": AFTER_RESULTS})
    )
    roles = ["system", "user", "assistant", "tool", "assistant", "user"]
    assert [message["role"] for message in body["messages"]] == roles
    assert body["messages"][4]["content"]
    _, _, body = call(
        "vLLM", "vllm/reasoning_tools.sse", PROMPT.model_copy(update={"messages": AFTER_RESULTS})
    )
    assert [message["role"] for message in body["messages"]] == [*roles[:4], "user"]


def test_a_server_that_wants_reasoning_gets_some_for_every_reply_also_of_another_agent() -> None:
    refused = httpx.Response(
        400, json={"error": {"message": "The `reasoning_content` must be passed back to the API."}}
    )
    server = Server(refused, recorded("deepseek/reasoning_tools.sse"))
    own = FromAgent(agent="deepseek", text="It is this.", thinking=(Thinking(text="Hm."),))
    prompt = PROMPT.model_copy(update={"messages": (*AFTER_RESULTS, own, FromUser(text="sure?"))})
    asyncio.run(agent("DeepSeek", server).reply(prompt, quiet, unhurried))
    first, second = (json.loads(request)["messages"] for request in server.requests)
    assert not any("reasoning_content" in message for message in first)
    said = [message["reasoning_content"] for message in second if message["role"] == "assistant"]
    assert said == [" ", "Hm."]


def test_a_server_that_says_so_gets_such_ids_as_well() -> None:
    said = "Tool call id was call_1 but must be a-z, A-Z, 0-9, with a length of 9."
    refused = httpx.Response(
        400, json={"object": "error", "message": said, "type": "invalid_request_message_order"}
    )
    server = Server(refused, recorded("mistral/tools.sse"))
    messages = (
        FromUser(text="?"),
        FromAgent(agent="gpt", calls=(Call(id="call_1", tool="read", arguments="{}"),)),
        FromTool(call="call_1", tool="read", text="x"),
    )
    reached = ModelEndpoint(name="m", model="m", base_url="https://gateway.example/v1")
    asyncio.run(
        OpenAI(reached, server).reply(
            PROMPT.model_copy(update={"messages": messages}), quiet, unhurried
        )
    )
    assert [
        json.loads(body)["messages"][3]["tool_call_id"] == "call_1" for body in server.requests
    ] == [True, False]


@pytest.mark.parametrize("provider", RECORDED)
def test_the_entry_of_the_page_reads_its_providers_stream(provider: str) -> None:
    stream, url, begins, cached = RECORDED[provider]
    reply, server, body = call(provider, stream)
    assert server.urls == [url]
    assert reply.text.startswith(begins)
    assert reply.usage.cached == cached
    if provider == "Vertex":
        assert "model" not in body
        assert body["anthropic_version"] == "vertex-2023-10-16"
    else:
        assert body["model"] == entry(provider).model
    assert body["stream"] is True


def headers(provider: str) -> dict[str, str]:
    _, server, _ = call(provider, RECORDED[provider][0])
    return {
        name: value
        for name, value in server.headers[0].items()
        if name in ("authorization", "api-key", "x-api-key")
    }


def test_the_key_goes_where_the_provider_looks_for_it() -> None:
    assert headers("OpenAI") == {"authorization": f"Bearer {KEY}"}
    assert headers("Anthropic") == {"x-api-key": KEY}
    assert headers("Azure") == {"api-key": KEY}
    assert headers("Bedrock") == headers("Vertex") == {"authorization": f"Bearer {KEY}"}
    assert headers("Ollama") == {}


def test_an_older_azure_address_keeps_its_query_at_the_end() -> None:
    old = re.search(r'base_url = "(https://my-resource.*api-version.*)"', PAGES["Azure"])
    assert old is not None
    server = Server(recorded("azure/text.sse"))
    reached = ModelEndpoint(name="azure", model="m", base_url=old.group(1), key=KEY)
    asyncio.run(OpenAI(reached, server).reply(PROMPT, quiet, unhurried))
    assert server.urls == [
        "https://my-resource.openai.azure.com/openai/deployments/my-deployment/chat/completions?api-version=2024-10-21"
    ]
    assert server.headers[0]["api-key"] == KEY


def test_prompt_caches_are_marked_where_that_helps() -> None:
    mark = {"type": "ephemeral"}
    _, _, claude = call("Anthropic", "anthropic/text.sse")
    assert (
        claude["system"][0]["cache_control"]
        == claude["messages"][-1]["content"][-1]["cache_control"]
        == mark
    )
    _, _, router = call("OpenRouter", "openrouter/text.sse")
    assert [message["content"][0]["cache_control"] for message in router["messages"]] == [
        mark,
        mark,
    ]
    _, _, gpt = call("OpenAI", "openai/text.sse")
    longer = PROMPT.model_copy(
        update={
            "messages": (*PROMPT.messages, FromAgent(agent="gpt", text="7"), FromUser(text="?"))
        }
    )
    _, _, later = call("OpenAI", "openai/text.sse", longer)
    assert gpt["prompt_cache_key"] == later["prompt_cache_key"]
    other = PROMPT.model_copy(update={"messages": (FromUser(text="another conversation"),)})
    assert (
        call("OpenAI", "openai/text.sse", other)[2]["prompt_cache_key"] != gpt["prompt_cache_key"]
    )
    assert "cache" not in json.dumps(call("DeepSeek", "deepseek/reasoning_tools.sse")[2])


def test_what_only_a_server_knows_is_put_into_its_requests() -> None:
    assert call("vLLM", "vllm/reasoning_tools.sse")[2]["chat_template_kwargs"] == {
        "enable_thinking": False
    }
    assert call("OpenRouter", "openrouter/text.sse")[2]["provider"] == {"data_collection": "deny"}
    server = Server(recorded("openai/text.sse"))
    reached = ModelEndpoint(
        name="a", model="m", base_url="https://x.example/v1", headers={"x-title": "fugu"}
    )
    asyncio.run(OpenAI(reached, server).reply(PROMPT, quiet, unhurried))
    assert server.headers[0]["x-title"] == "fugu"


def test_two_modes_of_a_model_are_two_agents() -> None:
    assert call("OpenAI", "openai/text.sse")[2]["reasoning_effort"] == "medium"
    assert call("Google", "gemini/signed_call.sse")[2]["reasoning_effort"] == "low"
    assert call("Anthropic", "anthropic/text.sse")[2]["thinking"] == {
        "type": "enabled",
        "budget_tokens": 1024,
    }
    assert "reasoning_effort" not in call("DeepSeek", "deepseek/reasoning_tools.sse")[2]
    two = """
        [[agents]]
        name = "direct"
        provider = "anthropic"
        model = "m"
        effort = "none"
        [[agents]]
        name = "thinking"
        provider = "anthropic"
        model = "m"
        effort = "max"
    """
    bodies = []
    for one in usable_pool(parse_layer(two, Path("/x/.fugurc")).config, {"ANTHROPIC_API_KEY": KEY}):
        server = Server(recorded("anthropic/text.sse"))
        made = Anthropic(wiring.build_endpoint(one, {"ANTHROPIC_API_KEY": KEY}), server)
        prompt = PROMPT.model_copy(update={"max_tokens": 80000})
        asyncio.run(made.reply(prompt, quiet, unhurried))
        bodies.append(json.loads(server.requests[0]).get("thinking"))
    assert bodies == [None, {"type": "enabled", "budget_tokens": 65536}]


def test_reasoning_is_kept_apart_from_the_answer() -> None:
    reply, _, body = call("vLLM", "vllm/reasoning_tools.sse")
    assert reply == Reply(
        thinking=(Thinking(text="I need the file.", field="reasoning"),),
        calls=(READ_A.model_copy(update={"id": "chatcmpl-tool-9f3"}),),
        usage=Usage(input=900, cached=880, output=48),
        model="Qwen/Qwen3-32B",
        response_id="chatcmpl-v1",
        stop="calls",
        max_tokens=body.get("max_completion_tokens") or body["max_tokens"],
    )
    assert [block.text for block in call("Ollama", "ollama/reasoning.sse")[0].thinking] == [
        "Short."
    ]


def asked_again(reply: Reply, author: str) -> dict[str, Any]:
    """What Google gets after a reply of `author` with calls."""
    messages = (
        FromUser(text="?"),
        FromAgent(agent=author, calls=reply.calls, thinking=reply.thinking),
        *(FromTool(call=made.id, tool=made.tool, text="x") for made in reply.calls),
    )
    _, _, body = call(
        "Google", "gemini/signed_call.sse", PROMPT.model_copy(update={"messages": messages})
    )
    return body["messages"][2]


def test_googles_signatures_go_back_with_their_calls() -> None:
    reply, _, _ = call("Google", "gemini/signed_call.sse")
    calls = asked_again(reply, "gemini")["tool_calls"]
    assert calls[0]["extra_content"] == {"google": {"thought_signature": "CvQBAb4+9vtGq1"}}
    assert "extra_content" not in calls[1]


def test_calls_of_another_agent_carry_the_word_google_gives_for_those() -> None:
    reply, _, _ = call("vLLM", "vllm/reasoning_tools.sse")
    (made,) = asked_again(reply, "vllm-direct")["tool_calls"]
    assert made["extra_content"] == {
        "google": {"thought_signature": "skip_thought_signature_validator"}
    }


def test_sealed_reasoning_goes_back_with_its_calls() -> None:
    reply, _, _ = call("OpenRouter", "openrouter/sealed_call.sse")
    messages = (
        FromUser(text="?"),
        FromAgent(agent="router", calls=reply.calls, thinking=reply.thinking),
        FromTool(call=reply.calls[0].id, tool="read", text="x"),
    )
    prompt = PROMPT.model_copy(update={"messages": messages})
    _, _, body = call("OpenRouter", "openrouter/sealed_call.sse", prompt)
    sealed = {
        "type": "reasoning.encrypted",
        "data": "CvQBAb4+9vtGq1",
        "format": "google-gemini-v1",
        "index": 0,
    }
    assert body["messages"][2]["reasoning_details"] == [
        {
            "type": "reasoning.text",
            "text": "I need the file.",
            "format": "google-gemini-v1",
            "index": 0,
        },
        {**sealed, "id": "tool_read_9"},
    ]
    other = messages[1].model_copy(update={"agent": "gemini"})
    prompt = PROMPT.model_copy(update={"messages": (messages[0], other, messages[2])})
    _, _, body = call("OpenRouter", "openrouter/sealed_call.sse", prompt)
    assert "reasoning_details" not in body["messages"][2]
    gemini = replace(access("OpenRouter"), model="google/gemini-3.8-flash")
    (piece,) = encode_request(prompt, gemini, ServerQuirks())["messages"][2]["reasoning_details"]  # type: ignore[index, call-overload]
    assert piece == {**sealed, "data": "skip_thought_signature_validator", "id": "tool_read_9"}


def test_thoughts_between_text_and_calls_go_back_in_their_places() -> None:
    content: list[dict[str, Any]] = [
        {"type": "thinking", "thinking": "First.", "signature": "s1"},
        {"type": "text", "text": "I look."},
        {"type": "redacted_thinking", "data": "c2VhbA=="},
        {"type": "text", "text": "\n"},
        {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {"path": "a.py"}},
        {"type": "thinking", "thinking": "Then.", "signature": "s2"},
        {"type": "tool_use", "id": "toolu_2", "name": "read", "input": {"path": "b.py"}},
    ]
    whole = {"type": "message", "model": "m", "content": content, "stop_reason": "tool_use"}
    claude = Anthropic(access("Anthropic"), Server(httpx.Response(200, json=whole)))
    reply = asyncio.run(claude.reply(PROMPT, quiet, unhurried))
    assert (reply.text, [made.arguments for made in reply.calls]) == (
        "I look.\n",
        ['{"path": "a.py"}', '{"path": "b.py"}'],
    )
    messages = (
        FromUser(text="?"),
        FromAgent(agent="claude", text=reply.text, calls=reply.calls, thinking=reply.thinking),
        *(FromTool(call=made.id, tool=made.tool, text="x") for made in reply.calls),
    )
    prompt = PROMPT.model_copy(update={"messages": messages})
    sent = call("Anthropic", "anthropic/text.sse", prompt)[2]["messages"][1]["content"]
    assert sent == [block for block in content if block.get("text") != "\n"]


def test_signatures_reach_no_other_provider() -> None:
    reply, _, _ = call("Google", "gemini/signed_call.sse")
    messages = (
        FromUser(text="?"),
        FromAgent(agent="gemini", calls=reply.calls, thinking=reply.thinking),
        *(FromTool(call=made.id, tool=made.tool, text="x") for made in reply.calls),
    )
    history = PROMPT.model_copy(update={"messages": messages})
    for provider, stream in (
        ("DeepSeek", "deepseek/reasoning_tools.sse"),
        ("Anthropic", "anthropic/text.sse"),
    ):
        assert "CvQBAb4" not in json.dumps(call(provider, stream, history)[2])


def test_patience_is_set_by_phase() -> None:
    assert access("llama.cpp").timeouts == Timeouts(first_token=900.0, between=300.0)
    assert access("Ollama").timeouts == Timeouts(first_token=600.0)
    assert access("OpenAI").timeouts == Timeouts()
    said = re.search(r"^    timeout = (\{ connect.*\})$", SHARED, re.MULTILINE)
    assert said is not None
    given = parse_layer(
        f'[[agents]]\nname = "a"\nprovider = "openai"\nmodel = "m"\ntimeout = {said.group(1)}',
        Path("/x/y"),
    )
    phases = given.config.agents[0].timeout
    assert phases == TimeoutPhases(connect=10.0, first=120.0, between=60.0, total=1800.0)
    assert wiring.build_timeouts(phases) == Timeouts()
