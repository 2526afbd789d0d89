"""An answer as the Responses API: one object, or the numbered events Codex CLI and the SDK read.

The writing half of `responses_api.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli.messages import Call
from fugu_cli.serve import responses_api
from fugu_cli.serve.asking import Answer, Asking, Head, Refused
from fugu_cli.serve.chat_out import failure
from fugu_cli.serve.wire import Json, about, details, event, total

CODES = {429: "rate_limit_exceeded", 402: "insufficient_quota", 503: "server_is_overloaded"}
"""`error.code` of a failed response, as Codex CLI tells them apart."""


class Responses:
    """`POST /v1/responses`."""

    def parse(self, body: bytes, headers: Mapping[str, str]) -> Asking:
        return responses_api.parse(body, headers)

    def whole(self, head: Head, answer: Answer, asking: Asking) -> Json:
        text = [_message(head, answer.text, "completed")] if answer.text else []
        calls = [_call(head, number, call, asking) for number, call in enumerate(answer.calls)]
        return _response(head, asking, answer, [*text, *calls])

    def stream(self, head: Head, asking: Asking) -> ResponsesStream:
        return ResponsesStream(head, asking)

    def failure(self, refused: Refused) -> Json:
        return failure(refused)


class ResponsesStream:
    """The events of one answer."""

    def __init__(self, head: Head, asking: Asking) -> None:
        self._head = head
        self._asking = asking
        self._number = 0
        self._items: list[JsonValue] = []
        self._text: list[str] = []

    def begin(self) -> bytes:
        started: Json = {"response": _response(self._head, self._asking, None, [])}
        return self._event("response.created", started) + self._event("response.in_progress", started)

    def piece(self, text: str) -> bytes:
        opened = b""
        if not self._text:
            item = _message(self._head, "", "in_progress")
            opened = self._event("response.output_item.added", {"output_index": 0, "item": {**item, "content": []}})
            opened += self._event("response.content_part.added", {**self._place(), "part": _part("")})
        self._text.append(text)
        return opened + self._event("response.output_text.delta", {**self._place(), "delta": text, "logprobs": []})

    def end(self, answer: Answer) -> bytes:
        last = b"" if self._text or not answer.text else self.piece(answer.text)
        if self._text:
            last += self._close_text()
        for call in answer.calls:
            last += self._say_call(call)
        done = _response(self._head, self._asking, answer, self._items)
        name = "response.incomplete" if done["status"] == "incomplete" else "response.completed"
        return last + self._event(name, {"response": done})

    def fail(self, refused: Refused) -> bytes:
        failed = _response(self._head, self._asking, None, self._items)
        error: Json = {"code": CODES.get(refused.status, "server_error"), "message": str(refused)}
        return self._event("response.failed", {"response": {**failed, "status": "failed", "error": error}})

    def idle(self) -> bytes:
        return b": waiting\n\n"

    def _close_text(self) -> bytes:
        text = "".join(self._text)
        item = _message(self._head, text, "completed")
        self._items.append(item)
        return (
            self._event("response.output_text.done", {**self._place(), "text": text, "logprobs": []})
            + self._event("response.content_part.done", {**self._place(), "part": _part(text)})
            + self._event("response.output_item.done", {"output_index": 0, "item": item})
        )

    def _say_call(self, call: Call) -> bytes:
        index = len(self._items)
        item = _call(self._head, index, call, self._asking)
        self._items.append(item)
        key = "input" if item["type"] == "custom_tool_call" else "arguments"
        kind = "custom_tool_call_input" if key == "input" else "function_call_arguments"
        place: Json = {"item_id": item["id"], "output_index": index}
        empty: Json = {**item, key: "", "status": "in_progress"}
        return (
            self._event("response.output_item.added", {"output_index": index, "item": empty})
            + self._event(f"response.{kind}.delta", {**place, "delta": item[key]})
            + self._event(f"response.{kind}.done", {**place, key: item[key], "name": call.tool})
            + self._event("response.output_item.done", {"output_index": index, "item": item})
        )

    def _place(self) -> Json:
        return {"item_id": f"{self._head.id}-text", "output_index": 0, "content_index": 0}

    def _event(self, name: str, fields: Json) -> bytes:
        self._number += 1
        return event({"type": name, "sequence_number": self._number - 1, **fields}, name)


def _response(head: Head, asking: Asking, answer: Answer | None, items: list[JsonValue]) -> Json:
    cut = answer is not None and answer.stop in ("length", "refusal")
    why = None if answer is None or not cut else "max_output_tokens" if answer.stop == "length" else "content_filter"
    done: Json = {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": "in_progress" if answer is None else "incomplete" if cut else "completed",
        "error": None,
        "incomplete_details": {"reason": why} if why else None,
        "model": head.model,
        "output": [*items],
        "usage": None,
        **asking.repeated,
    }
    return done if answer is None else {**done, "usage": _usage(answer), "fugu": about(head, answer)}


def _message(head: Head, text: str, status: str) -> Json:
    return {
        "id": f"{head.id}-text",
        "type": "message",
        "role": "assistant",
        "status": status,
        "content": [_part(text)],
    }


def _part(text: str) -> Json:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _call(head: Head, number: int, call: Call, asking: Asking) -> Json:
    item: Json = {"id": f"{head.id}-{number}", "call_id": call.id, "name": call.tool, "status": "completed"}
    if call.tool in asking.freeform:
        return {**item, "type": "custom_tool_call", "input": responses_api.freeform_text(call)}
    return {**item, "type": "function_call", "arguments": call.arguments}


def _usage(answer: Answer) -> Json:
    both = details(answer)
    return {
        "input_tokens": answer.usage.input,
        "input_tokens_details": both.input,
        "output_tokens": answer.usage.output,
        "output_tokens_details": both.output,
        "total_tokens": total(answer.usage),
    }


if TYPE_CHECKING:
    from fugu_cli.serve.wire import Wire

    _responses: Wire = Responses()
