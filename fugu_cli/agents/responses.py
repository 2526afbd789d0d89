"""The Responses API with streaming: OpenAI's models, which on Chat Completions do not think where tools are offered.

Stands on http.py, before it history.py. `encode` and `responses_stream.Decoding` are pure; only `Responses` does IO.
Nothing is stored at the server: a history goes whole, with the thoughts that this agent wrote, sealed as they came.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import httpx
from pydantic import JsonValue

from fugu_cli.agents import Say, Wait, caching, leaking
from fugu_cli.agents.access import THINKING, Access
from fugu_cli.agents.dialects import Adapting, Dialect
from fugu_cli.agents.history import arguments_object, call_id, closed
from fugu_cli.agents.http import Connection, Json
from fugu_cli.agents.responses_stream import Decoding
from fugu_cli.agents.sse import Heard, ServerEvent
from fugu_cli.agents.stops import Stops
from fugu_cli.agents.weaving import AFTER, woven
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Prompt, Reply, Thinking, ToolSpec

LEAST = 16
"""Tokens that a reply may be asked for at least."""
SEALED = "reasoning.encrypted_content"


def encode(prompt: Prompt, access: Access, dialect: Dialect, *, phased: bool = False) -> Json:
    """The request body. `phased`: the server says of its messages whether they are commentary, and wants to be told.

    What is thought counts against `max_output_tokens`, so room for it comes on top. There is no seed on this wire, and
    there are no stop sequences (stops.py).
    """
    history = closed(prompt.messages, access.name if dialect.sealed else "")
    most = max(prompt.max_tokens + THINKING.get(access.effort, 0), LEAST)
    payload: Json = {
        "model": access.model,
        "input": [item for message in history for item in _items(message, phased)],
        "max_output_tokens": dialect.tokens(most),
        "stream": True,
        "store": False,
    }
    if prompt.system.strip():
        payload["instructions"] = prompt.system
    if dialect.encrypted:
        payload["include"] = [SEALED]
    if prompt.tools:
        payload["tools"] = [_tool(tool) for tool in prompt.tools]
    if prompt.tools and prompt.tool_choice:
        payload["tool_choice"] = _choice(prompt.tool_choice)
    if prompt.temperature is not None and dialect.temperature:
        payload["temperature"] = prompt.temperature
    if caching.wants_a_key(access) and dialect.cache_key:
        payload["prompt_cache_key"] = caching.key(prompt)
    if access.effort and dialect.effort:
        told = {} if access.effort == "none" or not dialect.summary else {"summary": "auto"}
        payload["reasoning"] = {"effort": access.effort, **told}
    if prompt.reply_schema and dialect.schema != "none":
        payload["text"] = {"format": _format(prompt.reply_schema, dialect)}
    return payload


def _items(message: Message, phased: bool) -> list[Json]:
    match message:
        case FromUser():
            return [{"role": "user", "content": message.text}]
        case FromTool():
            return [{"type": "function_call_output", "call_id": message.call, "output": message.text}]
        case FromAgent():
            return _said(message, ("commentary" if message.calls else "final_answer") if phased else "")


def _said(message: FromAgent, phase: str) -> list[Json]:
    """A thought that nothing follows is refused."""
    items = woven(message, _thought, partial(_words, phase=phase), _uses)
    while items and items[-1].get("type") == "reasoning":
        items.pop()
    return items


def _thought(thinking: Thinking) -> Json | None:
    """The provider's own item out of an opaque value, without its status, which is refused; None for one that was not
    sealed."""
    item = arguments_object(thinking.data)
    if not item or item.get("type") != "reasoning" or not item.get("encrypted_content"):
        return None
    own: Json = json.loads(thinking.data)
    return {name: value for name, value in own.items() if name not in (AFTER, "status")}


def _words(text: str, phase: str) -> list[Json]:
    said: Json = {"role": "assistant", "content": text, **({"phase": phase} if phase else {})}
    return [said] if text.strip() else []


def _uses(calls: Sequence[Call]) -> list[Json]:
    return [
        {"type": "function_call", "call_id": call.id, "name": call.tool, "arguments": call.arguments} for call in calls
    ]


def _tool(tool: ToolSpec) -> Json:
    """`strict` would want every argument to be required; it is on where nothing is said."""
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": json.loads(tool.parameters),
        "strict": False,
    }


def _choice(choice: str) -> JsonValue:
    return choice if choice in ("none", "required") else {"type": "function", "name": choice}


def _format(schema: str, dialect: Dialect) -> Json:
    if dialect.schema == "object":
        return {"type": "json_object"}
    return {"type": "json_schema", "name": "reply", "schema": json.loads(schema), "strict": False}


class Responses:
    """An entry of the pool behind a Responses server. Remembers which parameters the server refused."""

    def __init__(self, access: Access, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._access = access
        self._connection = Connection(access, access.credentials, transport)
        self._adapting = Adapting()
        self._phased = False

    @property
    def name(self) -> str:
        return self._access.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """One call, and one more for each parameter that the server refuses for the first time."""
        return await self._adapting.call(lambda dialect: self._once(prompt, say, dialect))

    async def close(self) -> None:
        await self._connection.close()

    async def _once(self, prompt: Prompt, say: Say, dialect: Dialect) -> Reply:
        decoding = Decoding(self._access, lambda number: call_id(prompt, number))
        stops = Stops(prompt.stop)

        def take(event: ServerEvent) -> Heard:
            if text := stops.feed(decoding.feed(event)):
                say(text)
            return decoding.heard

        try:
            await self._connection.post("/responses", encode(prompt, self._access, dialect, phased=self._phased), take)
            reply = decoding.reply()
            self._phased = self._phased or decoding.phased
            if rest := stops.rest():
                say(rest)
            return leaking.checked(stops.ended(reply), prompt, self._access)
        except AgentError as error:
            error.usage = decoding.used
            if error.kind == "absent":
                error.hint = f'{error.hint} A server without /responses wants `api = "chat"`.'
            raise


if TYPE_CHECKING:
    from fugu_cli.agents import Agent

    def _fits(agent: Responses) -> Agent:
        return agent
