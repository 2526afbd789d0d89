"""What each API refuses, as strictly as its documentation and its error messages let us know.
Raises AssertionError.

Written apart from the encoders and sharing no code with them: a rule that both got wrong would
hide.
"""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from openai.types.responses.response_create_params import ResponseCreateParamsStreaming
from pydantic import TypeAdapter

TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
SENT: TypeAdapter[ResponseCreateParamsStreaming] = TypeAdapter(ResponseCreateParamsStreaming)
OPENAI_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
ANTHROPIC_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


def strict_json(text: str | bytes) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def filled(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip())


def shown(content: object, part: Callable[[dict[str, Any]], object]) -> bool:
    """Words, or a list of parts that are each as they must be."""
    if not isinstance(content, list):
        return filled(content)
    return bool(content) and all(part(one) for one in content)


def data_url(text: str) -> bool:
    return (
        re.fullmatch(r"data:(image/(png|jpeg)|application/pdf);base64,[A-Za-z0-9+/]+=*", text)
        is not None
    )


def openai_part(part: dict[str, Any]) -> bool:
    match part["type"]:
        case "text":
            return part.keys() == {"type", "text"} and filled(part["text"])
        case "image_url":
            return data_url(part["image_url"]["url"])
        case kind:
            return kind == "file" and part["file"].keys() == {"filename", "file_data"}


def responses_part(part: dict[str, Any]) -> bool:
    match part["type"]:
        case "input_text":
            return filled(part["text"])
        case "input_image":
            return data_url(part["image_url"])
        case kind:
            return kind == "input_file" and data_url(part["file_data"]) and filled(part["filename"])


def anthropic_part(part: dict[str, Any]) -> bool:
    if part["type"] == "text":
        return filled(part["text"])
    media = {"image": ("image/png", "image/jpeg"), "document": ("application/pdf",)}[part["type"]]
    source = part["source"]
    return source["type"] == "base64" and source["media_type"] in media and filled(source["data"])


def openai(body: bytes) -> dict[str, Any]:
    request = strict_json(body.decode("utf-8"))
    known = {
        "model",
        "messages",
        "stream",
        "max_tokens",
        "max_completion_tokens",
        "tools",
        "temperature",
        "seed",
    }
    known |= {"stream_options", "reasoning_effort", "response_format"}
    assert set(request) <= known, set(request) - known
    assert filled(request["model"])
    assert ("max_tokens" in request) != ("max_completion_tokens" in request)
    messages = request["messages"]
    if messages[0]["role"] == "system":
        assert messages[0].keys() == {"role", "content"} and filled(messages[0]["content"])
        messages = messages[1:]
    assert messages, "no message"
    _openai_messages(messages)
    if "tools" in request:
        assert request["tools"]
        names = [tool["function"]["name"] for tool in request["tools"]]
        assert len(set(names)) == len(names)
        assert all(TOOL_NAME.fullmatch(name) for name in names)
        assert all(tool["function"]["parameters"]["type"] == "object" for tool in request["tools"])
    return request


def _openai_messages(messages: list[dict[str, Any]]) -> None:
    open_calls: list[str] = []
    seen: set[str] = set()
    for message in messages:
        role = message["role"]
        if role == "tool":
            assert message.keys() == {"role", "tool_call_id", "content"}
            assert open_calls and message["tool_call_id"] == open_calls.pop(0), (
                "a result out of place"
            )
            assert filled(message["content"])
            continue
        assert not open_calls, f"calls without a result: {open_calls}"
        if role == "user":
            assert message.keys() == {"role", "content"} and shown(message["content"], openai_part)
            continue
        assert role == "assistant", role
        assert message.keys() <= {"role", "content", "tool_calls", "reasoning_content"}
        assert filled(message["content"]) or (
            message["content"] is None and message.get("tool_calls")
        )
        for call in message.get("tool_calls", []):
            assert call.keys() == {"id", "type", "function"} and call["type"] == "function"
            assert OPENAI_ID.fullmatch(call["id"]) and call["id"] not in seen
            seen.add(call["id"])
            open_calls.append(call["id"])
            assert call["function"].keys() == {"name", "arguments"}
            assert TOOL_NAME.fullmatch(call["function"]["name"])
            assert isinstance(strict_json(call["function"]["arguments"]), dict)
    assert not open_calls, f"calls without a result: {open_calls}"
    _sides([message["role"] for message in messages if message["role"] != "tool"], messages)


def _sides(roles: list[str], messages: list[dict[str, Any]]) -> None:
    """Templates of open models refuse two of a side in a row, unless results stand between them."""
    assert roles[0] == "user" and messages[-1]["role"] in ("user", "tool")
    for one, two in pairwise(messages):
        assert {one["role"], two["role"]} not in ({"user"}, {"assistant"}), "two of a side in a row"


def responses(body: bytes) -> dict[str, Any]:
    request = strict_json(body.decode("utf-8"))
    known = {
        "model",
        "input",
        "instructions",
        "stream",
        "store",
        "include",
        "max_output_tokens",
        "tools",
        "text",
    }
    assert set(request) <= known | {
        "tool_choice",
        "temperature",
        "reasoning",
        "prompt_cache_key",
    }, set(request) - known
    assert filled(request["model"]) and filled(request.get("instructions", "x"))
    assert request["max_output_tokens"] >= 16 and request["store"] is False
    for tool in request.get("tools", []):
        assert tool["type"] == "function" and TOOL_NAME.fullmatch(tool["name"])
        assert tool["strict"] is False and tool["parameters"]["type"] == "object"
    _responses_input(request["input"])
    SENT.validate_python(request)
    return request


def _responses_input(items: list[dict[str, Any]]) -> None:
    assert items and items[0].get("role") == "user"
    assert items[-1].get("role") == "user" or items[-1]["type"] == "function_call_output"
    open_calls: list[str] = []
    seen: set[str] = set()
    for item, after in zip(items, [*items[1:], {}], strict=True):
        kind = item.get("type", "message")
        if kind == "function_call_output":
            assert item.keys() == {"type", "call_id", "output"} and filled(item["output"])
            assert open_calls and item["call_id"] == open_calls.pop(0), "a result out of place"
        elif kind == "function_call":
            assert item.keys() == {"type", "call_id", "name", "arguments"}
            assert OPENAI_ID.fullmatch(item["call_id"]) and item["call_id"] not in seen
            assert TOOL_NAME.fullmatch(item["name"]) and isinstance(
                strict_json(item["arguments"]), dict
            )
            seen.add(item["call_id"])
            open_calls.append(item["call_id"])
        elif kind == "reasoning":
            assert (
                item.keys() <= {"type", "id", "summary", "content", "encrypted_content"}
                and item["id"]
            )
            assert filled(item["encrypted_content"])
            followed = after.get("role") == "assistant" or after.get("type") in (
                "function_call",
                "reasoning",
            )
            assert followed, "a thought without what it led to"
        else:
            assert item.keys() - {"phase"} == {"role", "content"} and shown(
                item["content"], responses_part
            )
            assert not open_calls or item["role"] == "assistant", (
                f"calls without a result: {open_calls}"
            )
    assert not open_calls, f"calls without a result: {open_calls}"


def anthropic(body: bytes) -> dict[str, Any]:
    request = strict_json(body.decode("utf-8"))
    known = {
        "model",
        "messages",
        "max_tokens",
        "stream",
        "system",
        "tools",
        "tool_choice",
        "thinking",
        "temperature",
    }
    assert set(request) <= known | {"output_config"}, set(request) - known
    assert filled(request["model"]) and request["max_tokens"] >= 1
    assert all(
        block["type"] == "text" and filled(block["text"]) for block in request.get("system", [])
    )
    messages = request["messages"]
    assert messages and messages[0]["role"] == "user" and messages[-1]["role"] == "user"
    assert [message["role"] for message in messages] == (["user", "assistant"] * len(messages))[
        : len(messages)
    ]
    open_calls: set[str] = set()
    seen: set[str] = set()
    for message in messages:
        assert message["content"], "an empty message"
        if message["role"] == "user":
            _anthropic_user(message["content"], open_calls)
            open_calls = set()
        else:
            open_calls = _anthropic_assistant(message["content"], seen)
    assert not open_calls
    if seen:
        assert request.get("tools"), "a history with calls needs tools"
    for tool in request.get("tools", []):
        assert TOOL_NAME.fullmatch(tool["name"]) and tool["input_schema"]["type"] == "object"
    _anthropic_marks(request)
    _anthropic_thinking(request)
    return request


def _anthropic_user(blocks: list[dict[str, Any]], open_calls: set[str]) -> None:
    kinds = [block["type"] for block in blocks]
    assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result"), "results come first"
    results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert len(set(results)) == len(results)
    assert set(results) == open_calls, (
        "every call needs its result in the next message, and no other is taken"
    )
    for block in blocks:
        assert (
            shown(block["content"], anthropic_part)
            if block["type"] == "tool_result"
            else anthropic_part(block)
        )


def _anthropic_assistant(blocks: list[dict[str, Any]], seen: set[str]) -> set[str]:
    calls: set[str] = set()
    for block in blocks:
        match block["type"]:
            case "text":
                assert filled(block["text"]) and not calls, "text after a call"
            case "thinking":
                assert block["signature"] and not calls
            case "redacted_thinking":
                assert block["data"] and not calls
            case "tool_use":
                assert ANTHROPIC_ID.fullmatch(block["id"]) and block["id"] not in seen
                assert TOOL_NAME.fullmatch(block["name"]) and isinstance(block["input"], dict)
                seen.add(block["id"])
                calls.add(block["id"])
            case other:
                raise AssertionError(other)
    assert any(block["type"] in ("text", "tool_use") for block in blocks), "nothing but thinking"
    return calls


def _anthropic_marks(request: dict[str, Any]) -> None:
    blocks = [
        *request.get("system", []),
        *(block for message in request["messages"] for block in message["content"]),
    ]
    marked = [block for block in blocks if "cache_control" in block]
    assert len(marked) <= 4
    assert all(
        block["type"] in ("text", "image", "document", "tool_result", "tool_use")
        for block in marked
    )


def _anthropic_thinking(request: dict[str, Any]) -> None:
    thinking = request.get("thinking")
    if thinking is None:
        return
    assert "temperature" not in request
    if thinking["type"] == "enabled":
        assert 1024 <= thinking["budget_tokens"] < request["max_tokens"]
    last = request["messages"][-1]["content"]
    if last[-1]["type"] == "tool_result":
        assert request["messages"][-2]["content"][0]["type"] in ("thinking", "redacted_thinking")
