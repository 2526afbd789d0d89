"""An answer as the Messages API: one message, or named events. The writing half of `messages_api.py`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli.agents.history import arguments_object
from fugu_cli.messages import Call
from fugu_cli.serve import messages_api
from fugu_cli.serve.asking import Answer, Asking, Head, Refused, Stop
from fugu_cli.serve.wire import Json, about, event

STOPS: dict[Stop, str] = {
    "end": "end_turn",
    "calls": "tool_use",
    "length": "max_tokens",
    "refusal": "refusal",
    "cut": "end_turn",
}

KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""`error.type` by status, as the API names them."""


class Messages:
    """`POST /v1/messages`."""

    def parse(self, body: bytes, headers: Mapping[str, str]) -> Asking:
        return messages_api.parse(body, headers)

    def whole(self, head: Head, answer: Answer, asking: Asking) -> Json:
        content: list[JsonValue] = [{"type": "text", "text": answer.text}] if answer.text else []
        content += [{"type": "tool_use", "id": c.id, "name": c.tool, "input": _input(c)} for c in answer.calls]
        return {
            **_message(head),
            "content": content,
            "stop_reason": STOPS[answer.stop],
            "usage": _usage(answer),
            "fugu": about(head, answer),
        }

    def stream(self, head: Head, asking: Asking) -> MessagesStream:
        return MessagesStream(head)

    def failure(self, refused: Refused) -> Json:
        return failure(refused)


class MessagesStream:
    """The events of one answer: blocks are opened, filled and closed one after the other."""

    def __init__(self, head: Head) -> None:
        self._head = head
        self._index = 0
        self._open = False
        self._said = False

    def begin(self) -> bytes:
        empty: Json = {**_message(self._head), "content": [], "stop_reason": None}
        empty["usage"] = {"input_tokens": 0, "output_tokens": 0}
        return _event("message_start", message=empty)

    def piece(self, text: str) -> bytes:
        self._said = True
        opened = b"" if self._open else self._start({"type": "text", "text": ""})
        return opened + self._delta({"type": "text_delta", "text": text})

    def end(self, answer: Answer) -> bytes:
        last = b"" if self._said or not answer.text else self.piece(answer.text)
        last += self._close()
        for call in answer.calls:
            last += self._start({"type": "tool_use", "id": call.id, "name": call.tool, "input": {}})
            last += self._delta({"type": "input_json_delta", "partial_json": json.dumps(_input(call))})
            last += self._close()
        delta: Json = {"stop_reason": STOPS[answer.stop], "stop_sequence": None}
        last += _event("message_delta", delta=delta, usage=_usage(answer), fugu=about(self._head, answer))
        return last + _event("message_stop")

    def fail(self, refused: Refused) -> bytes:
        return event(failure(refused), "error")

    def idle(self) -> bytes:
        return _event("ping")

    def _start(self, block: Json) -> bytes:
        self._open = True
        return _event("content_block_start", index=self._index, content_block=block)

    def _delta(self, delta: Json) -> bytes:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _close(self) -> bytes:
        if not self._open:
            return b""
        self._open = False
        self._index += 1
        return _event("content_block_stop", index=self._index - 1)


def failure(refused: Refused) -> Json:
    """An error as this wire has it."""
    kind = KINDS.get(refused.status, "api_error" if refused.status >= 500 else "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": str(refused)}}


def _event(name: str, **fields: JsonValue) -> bytes:
    return event({"type": name, **fields}, name)


def _message(head: Head) -> Json:
    return {"id": head.id, "type": "message", "role": "assistant", "model": head.model, "stop_sequence": None}


def _input(call: Call) -> JsonValue:
    """The arguments as an object: what the model wrote, where it wrote one."""
    given = arguments_object(call.arguments)
    return {"malformed_arguments": call.arguments} if given is None else json.loads(call.arguments or "{}")


def _usage(answer: Answer) -> Json:
    """Cached tokens are counted apart here, and the orchestration's beside them."""
    orchestration = answer.orchestration
    return {
        "input_tokens": max(answer.usage.input - answer.usage.cached - answer.usage.written, 0),
        "cache_creation_input_tokens": answer.usage.written,
        "cache_read_input_tokens": answer.usage.cached,
        "output_tokens": answer.usage.output,
        "orchestration_input_tokens": orchestration.input,
        "orchestration_input_cached_tokens": orchestration.cached,
        "orchestration_output_tokens": orchestration.output,
    }


if TYPE_CHECKING:
    from fugu_cli.serve.wire import Wire

    _messages: Wire = Messages()
