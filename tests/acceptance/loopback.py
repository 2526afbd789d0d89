"""A model's server on this machine: Chat Completions, Responses and Messages as they are spoken,
and every fault.

A test says what a model answers (`play`), a list of answers, one per request, the last one again
and again; the server keeps what it was asked. Standard library only. It refuses what the real
servers refuse: no key, a tool call without its result, a result without its call.
"""

from __future__ import annotations

import json
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

KEY = "sk-loopback-0123456789"


@dataclass(frozen=True)
class Use:
    """One tool call of an answer. `arguments` is text where it must not be JSON."""

    tool: str
    arguments: Mapping[str, object] | str = field(default_factory=dict)

    @property
    def text(self) -> str:
        return self.arguments if isinstance(self.arguments, str) else json.dumps(self.arguments)


@dataclass(frozen=True)
class Says:
    """A good answer: what is thought, text, then calls, streamed in small pieces."""

    text: str = ""
    calls: tuple[Use, ...] = ()
    tokens: tuple[int, int] | None = (100, 10)
    """What the server counts of the prompt and the answer; None where it counts nothing."""
    pause: float = 0.0
    """Seconds before the first byte."""
    slow: float = 0.0
    """Seconds between pieces."""
    thinking: str = ""
    thinking_field: str = ""
    """The field of `thinking`, if it is another than most servers of the wire use: "reasoning" of Chat
    Completions, "content" of Chat Completions (in think tags) or of a Responses item,
    "content.thinking" of Chat Completions (parts of the content, as Mistral sends them).
    """
    sealed: bool = False
    """A piece of sealed reasoning names the first call by its id, as OpenRouter sends it."""
    cut: bool = False
    """It reached the limit of tokens."""


@dataclass(frozen=True)
class Refuses:
    """A status instead of an answer."""

    status: int
    message: str = "no"
    kind: str = "invalid_request_error"
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Breaks:
    """Something that is no answer. `how`:

    hang: accepts the request and says nothing; hang_middle: stops after the first piece; reset:
    resets the connection in the middle; cut: ends the stream in the middle without a word; bad_sse:
    pieces that are not JSON; error: an error object in the middle; silent: a stream that ends well
    and holds nothing; html, words, object: a page, text or JSON that is no reply, with status 200;
    packed: bytes that say they are gzip; endless: text without end; flood: one event without end;
    pings, headers: comments, or headers, that come slowly and without end. `text` is what an answer
    begins with that breaks off in the middle, after so many `pieces`.
    """

    how: str
    text: str = "Let me look at"
    pieces: int = 3


Answer = Says | Refuses | Breaks
Reaction = Callable[["Asked"], Answer]


@dataclass(frozen=True)
class Asked:
    """A request as it came. `body` is its JSON; `results` the texts of the tool results in it,
    oldest first.
    """

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]

    @property
    def wire(self) -> str:
        ends = {"/messages": "anthropic", "/responses": "responses"}
        return next((wire for end, wire in ends.items() if self.path.endswith(end)), "openai")

    @property
    def model(self) -> str:
        return str(self.body.get("model"))

    @property
    def text(self) -> str:
        """Everything the model was shown, as one text."""
        shown = ("system", "messages", "instructions", "input")
        return json.dumps(
            [self.body[name] for name in shown if name in self.body], ensure_ascii=False
        )

    @property
    def results(self) -> tuple[str, ...]:
        found = [
            item["output"]
            for item in self.body.get("input", [])
            if item.get("type") == "function_call_output"
        ]
        for message in self.body.get("messages", []):
            if message.get("role") == "tool":
                found.append(str(message.get("content")))
            content = message.get("content")
            if message.get("role") == "user" and isinstance(content, list):
                found += [
                    _plain(block.get("content"))
                    for block in content
                    if block.get("type") == "tool_result"
                ]
        return tuple(found)


def _plain(content: object) -> str:
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return str(content)


def once_there(path: Path) -> Reaction:
    """A look around, asked for once a file is there. An MCP server's tools may join late on a busy
    machine.
    """

    def react(asked: Asked) -> Says:
        end = time.monotonic() + 60
        while not path.exists() and time.monotonic() < end:
            time.sleep(0.02)
        return Says("I look around.", (Use("glob", {"pattern": "*"}),))

    return react


class Loopback:
    """The server. Use `running()`."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self._lock = threading.Lock()
        self._scripts: dict[str, Sequence[Answer | Reaction] | Reaction] = {}
        self._asked: list[Asked] = []
        self._http = _Http(self)
        self.url = f"http://127.0.0.1:{self._http.server_port}/v1"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    def play(self, model: str, *answers: Answer | Reaction) -> None:
        """What `model` answers to its first request, its second, and so on; some as functions of
        the request.
        """
        self._set(model, answers)

    def react(self, model: str, reaction: Reaction) -> None:
        """What `model` answers, as a function of the request."""
        self._set(model, reaction)

    def _set(self, model: str, script: Sequence[Answer | Reaction] | Reaction) -> None:
        with self._lock:
            self._scripts[model] = script
            self._asked = [asked for asked in self._asked if asked.model != model]

    def asked(self, model: str) -> list[Asked]:
        """The requests for `model` since `play`, oldest first."""
        with self._lock:
            return [asked for asked in self._asked if asked.model == model]

    def wait_for(self, model: str, count: int = 1, seconds: float = 20.0) -> None:
        """Until `model` was asked `count` times. Raises TimeoutError."""
        end = time.monotonic() + seconds
        while len(self.asked(model)) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{model} was asked {len(self.asked(model))} times")
            time.sleep(0.01)

    def answer(self, asked: Asked) -> Answer:
        with self._lock:
            script = self._scripts.get(asked.model)
            number = sum(other.model == asked.model for other in self._asked)
            self._asked.append(asked)
        if script is None:
            return Refuses(404, f"the model `{asked.model}` does not exist", "not_found_error")
        found = script if callable(script) else script[min(number, len(script) - 1)]
        return found(asked) if callable(found) else found

    def close(self) -> None:
        self.over.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@contextmanager
def running() -> Iterator[Loopback]:
    """A server on a free port, ended with the block."""
    server = Loopback()
    try:
        yield server
    finally:
        server.close()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, loopback: Loopback) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.loopback = loopback

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is what some tests are about."""


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # as real servers do: each piece goes out at once
    server: _Http

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def do_GET(self) -> None:
        """The list of models, which wants the key."""
        asked = Asked(self.path, {name.lower(): value for name, value in self.headers.items()}, {})
        if (fault := _not_authorised(asked)) is not None:
            self._refuse(fault, asked.wire)
        else:
            body = json.dumps({"object": "list", "data": [{"id": "worker"}, {"id": "checker"}]})
            self._whole({"content-type": "application/json"}, body.encode())

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        try:
            asked = Asked(self.path, headers, json.loads(data))
        except ValueError:
            self._refuse(Refuses(400, "the body is not JSON"), "openai")
            return
        fault = _not_authorised(asked) or _not_valid(asked)
        answer = fault if fault is not None else self.server.loopback.answer(asked)
        match answer:
            case Refuses():
                self._refuse(answer, asked.wire)
            case Says():
                self._say(asked, answer)
            case Breaks():
                self._break(asked, answer)

    def _refuse(self, answer: Refuses, wire: str) -> None:
        error = {"message": answer.message, "type": answer.kind}
        body = json.dumps(
            {"type": "error", "error": error} if wire == "anthropic" else {"error": error}
        ).encode()
        self.send_response(answer.status)
        for name, value in {"content-type": "application/json", **answer.headers}.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _say(self, asked: Asked, answer: Says) -> None:
        if answer.pause and self.server.loopback.over.wait(answer.pause):
            return
        self._begin()
        for piece in _pieces(asked, answer):
            if not self._send(piece):
                return
            if answer.slow and self.server.loopback.over.wait(answer.slow):
                return
        self._end()

    def _break(self, asked: Asked, answer: Breaks) -> None:
        over = self.server.loopback.over
        pieces = list(_pieces(asked, Says(answer.text)))
        match answer.how:
            case "hang":
                over.wait(120)
            case _ if answer.how in WHOLE:
                self._whole(*WHOLE[answer.how])
            case "endless" | "flood" | "pings" | "headers":
                self._go_on(asked, answer.how)
            case "silent":
                self._begin()
                for piece in _pieces(asked, Says("")):
                    self._send(piece)
                self._end()
            case "bad_sse":
                self._begin()
                self._send(b"data: {this is not JSON\n\n")
                self._send(b"event: nonsense\ndata: 42\n\n")
                self._end()
            case "error":
                self._begin()
                self._send(pieces[0])
                self._send(_event(asked.wire, "error", {"type": "error", "error": _OVERLOADED}))
                self._end()
            case _:
                self._begin()
                for piece in pieces[: answer.pieces]:
                    self._send(piece)
                self._leave(answer.how)

    def _whole(self, headers: Mapping[str, str], body: bytes) -> None:
        """An answer that is no stream."""
        self.send_response(200)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def _go_on(self, asked: Asked, how: str) -> None:
        """An answer without end."""
        over = self.server.loopback.over
        match how:
            case "endless":
                self._begin()
                long = _event(
                    asked.wire,
                    "",
                    {"choices": [{"index": 0, "delta": {"content": "word " * 20_000}}]},
                )
                while self._send(long):
                    pass
            case "pings":
                self._begin()
                while self._send(b": ping\n\n") and not over.wait(0.05):
                    pass
            case "headers":
                self.close_connection = True
                with suppress(OSError):
                    self.wfile.write(b"HTTP/1.1 200 OK\r\nx-slow: ")
                    while not over.wait(0.05):
                        self.wfile.write(b"x")
            case "flood":
                self._begin()
                self._send(b"data: ")
                while self._send(b"x" * 2**20):
                    pass

    def _leave(self, how: str) -> None:
        """Away in the middle of an answer: silent, with a reset, or with an end that is none."""
        self.close_connection = True
        if how == "hang_middle":
            self.server.loopback.over.wait(120)
        elif how == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        elif how == "cut":
            self._end()
        else:
            raise ValueError(f"no such fault: {how}")

    def _begin(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream; charset=utf-8")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def _send(self, data: bytes) -> bool:
        try:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
            self.wfile.flush()
        except OSError:
            self.close_connection = True
            return False
        return True

    def _end(self) -> None:
        try:
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except OSError:
            self.close_connection = True


WHOLE: Mapping[str, tuple[Mapping[str, str], bytes]] = {
    "html": (
        {"content-type": "text/html"},
        b"<!doctype html><html><body><h1>502 Bad Gateway</h1></body></html>",
    ),
    "words": ({"content-type": "text/plain"}, b"Ollama is running"),
    "object": ({"content-type": "application/json"}, b'{"choices": "none"}'),
    "packed": (
        {"content-type": "application/json", "content-encoding": "gzip"},
        b"this is not packed",
    ),
}
_OVERLOADED = {
    "message": "the engine is overloaded",
    "type": "overloaded_error",
    "code": "overloaded_error",
}


def _not_authorised(asked: Asked) -> Refuses | None:
    if asked.wire == "anthropic":
        fine = asked.headers.get("x-api-key") == KEY and "anthropic-version" in asked.headers
    else:
        fine = asked.headers.get("authorization") == f"Bearer {KEY}"
    return None if fine else Refuses(401, "Incorrect API key provided", "authentication_error")


def _not_valid(asked: Asked) -> Refuses | None:
    """What a real server answers with 400: calls and results that do not pair."""
    said = asked.body.get("input" if asked.wire == "responses" else "messages")
    if not isinstance(said, list) or not said:
        return Refuses(400, "messages: at least one is required")
    if not asked.body.get("stream"):
        return Refuses(400, "this server only streams")
    check = {"anthropic": _unpaired_anthropic, "responses": _unpaired_responses}.get(
        asked.wire, _unpaired_openai
    )
    fault = check(asked.body)
    return Refuses(400, fault) if fault else None


def _unpaired_openai(body: dict[str, Any]) -> str:
    waiting: list[str] = []
    for message in body["messages"]:
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                return "messages with role 'tool' must follow a message with 'tool_calls'"
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            return f"tool_call_ids did not have response messages: {waiting}"
        waiting = [call["id"] for call in message.get("tool_calls") or []]
        if len(set(waiting)) != len(waiting):
            return "duplicate tool_call_id"
        if message["role"] == "assistant" and not waiting and not message.get("content"):
            return "an assistant message needs content or tool_calls"
    return f"tool_call_ids did not have response messages: {waiting}" if waiting else ""


def _unpaired_anthropic(body: dict[str, Any]) -> str:
    waiting: list[str] = []
    before = ""
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else []
        results = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if sorted(results) != sorted(waiting):
            return "`tool_use` ids were found without `tool_result` blocks immediately after"
        if message["role"] == before:
            return "roles must alternate"
        if any(block["type"] == "text" and not block["text"] for block in blocks):
            return "text content blocks must be non-empty"
        before = message["role"]
        waiting = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return "`tool_use` without `tool_result`" if waiting else ""


def _unpaired_responses(body: dict[str, Any]) -> str:
    made = [item["call_id"] for item in body["input"] if item.get("type") == "function_call"]
    answered = [
        item["call_id"] for item in body["input"] if item.get("type") == "function_call_output"
    ]
    return (
        ""
        if sorted(made) == sorted(answered)
        else f"No tool output found for one of the function calls {made}"
    )


def _pieces(asked: Asked, answer: Says) -> Iterator[bytes]:
    speak = {"anthropic": _messages, "responses": _responses}.get(asked.wire, _completions)
    return speak(asked, answer)


def _event(wire: str, name: str, data: object) -> bytes:
    line = f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
    return (line if wire == "openai" else f"event: {name}\n{line}").encode()


def _shreds(text: str, size: int) -> Iterator[str]:
    for start in range(0, len(text), size):
        yield text[start : start + size]


def _completions(asked: Asked, answer: Says) -> Iterator[bytes]:
    """Chat Completions: role first, text, calls in shreds, the reason, then usage, then [DONE]."""

    def chunk(delta: dict[str, object], reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return _event("openai", "", {**common, "choices": [choice]})

    common = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": f"{asked.model}-2026-01-01",
    }
    yield chunk({"role": "assistant", "content": ""})
    thinking, field = answer.thinking, answer.thinking_field or "reasoning_content"
    if field == "content":
        thinking = f"<think>\n{thinking}\n</think>\n\n"
    for shred in _shreds(thinking, 7):
        if field == "content.thinking":
            part = {"type": "thinking", "thinking": [{"type": "text", "text": shred}]}
            yield chunk({"content": [part]})
        else:
            yield chunk({field: shred})
    for shred in _shreds(answer.text, 7):
        yield chunk({"content": shred})
    for index, use in enumerate(answer.calls):
        function: dict[str, object] = {"name": use.tool, "arguments": ""}
        yield chunk(
            {
                "tool_calls": [
                    {
                        "index": index,
                        "id": f"call_{index}",
                        "type": "function",
                        "function": function,
                    }
                ]
            }
        )
        for shred in _shreds(use.text, 20):
            yield chunk({"tool_calls": [{"index": index, "function": {"arguments": shred}}]})
    if answer.sealed:
        piece = {"type": "reasoning.encrypted", "data": "c2VhbGVk", "id": "call_0", "index": 0}
        yield chunk({"reasoning_details": [piece]})
    yield chunk({}, "length" if answer.cut else "tool_calls" if answer.calls else "stop")
    if answer.tokens is not None:
        usage = {
            "prompt_tokens": answer.tokens[0],
            "completion_tokens": answer.tokens[1],
            "total_tokens": sum(answer.tokens),
        }
        yield _event("openai", "", {**common, "choices": [], "usage": usage})
    yield _event("openai", "", "[DONE]")


def _messages(asked: Asked, answer: Says) -> Iterator[bytes]:
    """The Messages API: a start, blocks that open, fill and close, the reason with the usage, a
    stop.
    """

    counted = answer.tokens or (0, 0)

    def event(name: str, **data: object) -> bytes:
        return _event("anthropic", name, {"type": name, **data})

    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": f"{asked.model}-2026-01-01",
        "content": [],
        "stop_reason": None,
        "usage": {"input_tokens": counted[0], "output_tokens": 1},
    }
    yield event("message_start", message=message)
    yield event("ping")
    index = 0
    for kind, key, said in (
        ("thinking", "thinking", answer.thinking),
        ("text", "text", answer.text),
    ):
        if said:
            yield event("content_block_start", index=index, content_block={"type": kind, key: ""})
            for shred in _shreds(said, 7):
                yield event(
                    "content_block_delta", index=index, delta={"type": f"{kind}_delta", key: shred}
                )
            yield event("content_block_stop", index=index)
            index += 1
    for number, use in enumerate(answer.calls, start=index):
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": use.tool, "input": {}}
        yield event("content_block_start", index=number, content_block=block)
        for shred in _shreds(use.text, 20):
            yield event(
                "content_block_delta",
                index=number,
                delta={"type": "input_json_delta", "partial_json": shred},
            )
        yield event("content_block_stop", index=number)
    reason = "max_tokens" if answer.cut else "tool_use" if answer.calls else "end_turn"
    yield event("message_delta", delta={"stop_reason": reason}, usage={"output_tokens": counted[1]})
    yield event("message_stop")


def _responses(asked: Asked, answer: Says) -> Iterator[bytes]:
    """The Responses API: a start, items that open, fill and close, then the whole response with the
    usage.
    """

    counted = answer.tokens or (0, 0)

    def event(name: str, **data: object) -> bytes:
        return _event("responses", name, {"type": name, **data})

    common = {"id": "resp_1", "object": "response", "model": f"{asked.model}-2026-01-01"}
    items: list[dict[str, object]] = []
    yield event("response.created", response={**common, "status": "in_progress", "output": []})
    if answer.thinking and answer.thinking_field == "content":
        content = [{"type": "reasoning_text", "text": answer.thinking}]
        items.append({"id": "rs_1", "type": "reasoning", "summary": [], "content": content})
        yield event("response.output_item.added", output_index=0, item={**items[-1], "content": []})
        yield event("response.output_item.done", output_index=0, item=items[-1])
    elif answer.thinking:
        summary = [{"type": "summary_text", "text": answer.thinking}]
        items.append({"id": "rs_1", "type": "reasoning", "summary": summary})
        yield event("response.output_item.added", output_index=0, item={**items[-1], "summary": []})
        for shred in _shreds(answer.thinking, 7):
            place = {"output_index": 0, "item_id": "rs_1", "summary_index": 0}
            yield event("response.reasoning_summary_text.delta", **place, delta=shred)
        yield event("response.output_item.done", output_index=0, item=items[-1])
    if answer.text:
        item = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "status": "in_progress",
            "content": [],
        }
        place = {"output_index": len(items), "item_id": "msg_1", "content_index": 0}
        yield event("response.output_item.added", output_index=len(items), item=item)
        for shred in _shreds(answer.text, 7):
            yield event("response.output_text.delta", **place, delta=shred)
        part = {"type": "output_text", "text": answer.text, "annotations": []}
        items.append({**item, "status": "completed", "content": [part]})
        yield event("response.output_item.done", output_index=len(items) - 1, item=items[-1])
    for use in answer.calls:
        index = len(items)
        call = {
            "id": f"fc_{index}",
            "type": "function_call",
            "call_id": f"call_{index}",
            "name": use.tool,
        }
        yield event(
            "response.output_item.added", output_index=index, item={**call, "arguments": ""}
        )
        items.append({**call, "arguments": use.text, "status": "completed"})
        yield event("response.output_item.done", output_index=index, item=items[-1])
    usage = {
        "input_tokens": counted[0],
        "output_tokens": counted[1],
        "total_tokens": sum(counted),
    }
    ending: dict[str, object] = {"status": "completed"}
    if answer.cut:
        ending = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    yield event(
        f"response.{ending['status']}",
        response={**common, **ending, "output": items, "usage": usage},
    )
