"""An answer as Chat Completions: one object, or chunks that end in `[DONE]`. The writing half of `chat_api.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli.messages import Call
from fugu_cli.serve import chat_api
from fugu_cli.serve.asking import Answer, Asking, Head, Refused, Stop
from fugu_cli.serve.wire import Json, about, details, event, total

STOPS: dict[Stop, str] = {
    "end": "stop",
    "calls": "tool_calls",
    "length": "length",
    "refusal": "content_filter",
    "cut": "stop",
}


class Chat:
    """`POST /v1/chat/completions`."""

    def parse(self, body: bytes, headers: Mapping[str, str]) -> Asking:
        return chat_api.parse(body, headers)

    def whole(self, head: Head, answer: Answer, asking: Asking) -> Json:
        message: Json = {"role": "assistant", "content": answer.text or None, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [_call(call) for call in answer.calls]
        choice: Json = {"index": 0, "message": message, "finish_reason": STOPS[answer.stop], "logprobs": None}
        return {
            **_head(head, "chat.completion"),
            "choices": [choice],
            "usage": _usage(answer),
            "fugu": about(head, answer),
        }

    def stream(self, head: Head, asking: Asking) -> ChatStream:
        return ChatStream(head, counted=asking.counted)

    def failure(self, refused: Refused) -> Json:
        return failure(refused)


class ChatStream:
    """The chunks of one answer."""

    def __init__(self, head: Head, *, counted: bool) -> None:
        self._head = head
        self._counted = counted
        self._said = False

    def begin(self) -> bytes:
        return self._chunk({"role": "assistant", "content": ""})

    def piece(self, text: str) -> bytes:
        self._said = True
        return self._chunk({"content": text})

    def end(self, answer: Answer) -> bytes:
        last = b"" if self._said or not answer.text else self.piece(answer.text)
        if answer.calls:
            calls = [{"index": number, **_call(call)} for number, call in enumerate(answer.calls)]
            last += self._chunk({"tool_calls": [*calls]})
        last += self._chunk({}, STOPS[answer.stop])
        if self._counted:
            counted: Json = {"choices": [], "usage": _usage(answer), "fugu": about(self._head, answer)}
            last += event({**_head(self._head, "chat.completion.chunk"), **counted})
        return last + event("[DONE]")

    def fail(self, refused: Refused) -> bytes:
        return event(failure(refused)) + event("[DONE]")

    def idle(self) -> bytes:
        return b": waiting\n\n"

    def _chunk(self, delta: Json, reason: str | None = None) -> bytes:
        choice: Json = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
        return event({**_head(self._head, "chat.completion.chunk"), "choices": [choice]})


def failure(refused: Refused) -> Json:
    """An error as OpenAI's wires have it."""
    return {
        "error": {"message": str(refused), "type": refused.kind, "param": None, "code": refused.code or None},
    }


def _head(head: Head, kind: str) -> Json:
    return {"id": head.id, "object": kind, "created": head.created, "model": head.model}


def _call(call: Call) -> dict[str, JsonValue]:
    return {"id": call.id, "type": "function", "function": {"name": call.tool, "arguments": call.arguments}}


def _usage(answer: Answer) -> Json:
    both = details(answer)
    return {
        "prompt_tokens": answer.usage.input,
        "completion_tokens": answer.usage.output,
        "total_tokens": total(answer.usage),
        "prompt_tokens_details": both.input,
        "completion_tokens_details": both.output,
    }


if TYPE_CHECKING:
    from fugu_cli.serve.wire import Wire

    _chat: Wire = Chat()
