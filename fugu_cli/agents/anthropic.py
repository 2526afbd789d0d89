"""The Messages API with streaming, tool use, prompt caching and thinking.

Stands on http.py, before it history.py. `encode` and `anthropic_stream.Decoding` are pure; only `Anthropic` does IO. It
must not know roles or logs. Thinking blocks go back, signed as they came, to the agent that wrote them and to no other.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

import httpx

from fugu_cli.agents import Say, Wait
from fugu_cli.agents.access import THINKING, Access
from fugu_cli.agents.anthropic_stream import Decoding
from fugu_cli.agents.dialects import Adapting, Dialect
from fugu_cli.agents.history import arguments_object, closed
from fugu_cli.agents.http import Connection, Json
from fugu_cli.agents.sse import Heard, ServerEvent
from fugu_cli.agents.stops import Stops
from fugu_cli.agents.weaving import AFTER, woven
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Prompt, Reply, Thinking, ToolSpec

VERSION = "2023-06-01"

ENDS_HERE: Json = {"type": "ephemeral"}
"""Marks a block up to which the provider may keep the prompt for the next call."""

NO_TOOLS: Json = {"type": "object", "properties": {}}


def encode(prompt: Prompt, access: Access, dialect: Dialect) -> Json:
    """The request body. Two cache marks: after tools and system, and at the end of what has been said."""
    messages = closed(prompt.messages, access.name if dialect.sealed else "")
    payload: Json = {"model": access.model, "max_tokens": dialect.tokens(prompt.max_tokens), "stream": True}
    if prompt.system.strip():
        payload["system"] = [{"type": "text", "text": prompt.system, "cache_control": ENDS_HERE}]
    payload["messages"] = [*_turns(messages)]
    tools = [_tool(tool) for tool in prompt.tools] or _tools_of(messages)
    if tools:
        payload["tools"] = [*tools]
    if tools and not prompt.tools:
        payload["tool_choice"] = {"type": "none"}
    elif tools and prompt.tool_choice:
        payload["tool_choice"] = _choice(prompt.tool_choice)
    if prompt.stop:
        payload["stop_sequences"] = [stop for stop in prompt.stop if stop.strip()]
    forced = prompt.tool_choice not in ("", "none")
    thinks = access.effort not in ("", "none") and dialect.effort and not forced and _may_think(messages)
    if thinks:
        payload |= _thinking(prompt, access.effort, dialect)
    if prompt.temperature is not None and dialect.temperature and not thinks:
        payload["temperature"] = prompt.temperature
    if prompt.reply_schema and dialect.schema == "schema":
        held: Json = {"format": {"type": "json_schema", "schema": json.loads(prompt.reply_schema)}}
        config = payload.get("output_config")
        payload["output_config"] = {**config, **held} if isinstance(config, dict) else held
    return payload


def _thinking(prompt: Prompt, effort: str, dialect: Dialect) -> Json:
    """What is thought counts against `max_tokens` in either kind, so room for it comes on top."""
    whole = dialect.tokens(prompt.max_tokens + THINKING[effort])
    if dialect.adaptive:
        told = "low" if effort == "minimal" else effort
        thinking: Json = {"thinking": {"type": "adaptive"}, "output_config": {"effort": told}}
        return {**thinking, "max_tokens": whole}
    budget = max(whole - prompt.max_tokens, THINKING["minimal"])
    return {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": whole}


def _may_think(messages: Sequence[Message]) -> bool:
    """Not where this call continues tool calls made without thinking: those must begin with a thinking block."""
    if not isinstance(messages[-1], FromTool):
        return True
    newest = next(message for message in reversed(messages) if isinstance(message, FromAgent))
    return any(_block(thinking) for thinking in newest.thinking)


def _turns(messages: Sequence[Message]) -> list[Json]:
    """Results and a user's words are one message here, results first: `closed` left them in that order."""
    turns: list[tuple[str, list[Json]]] = []
    for message in messages:
        role = "assistant" if isinstance(message, FromAgent) else "user"
        if not turns or turns[-1][0] != role:
            turns.append((role, []))
        turns[-1][1].extend(_blocks(message))
    turns[-1][1][-1]["cache_control"] = ENDS_HERE
    return [{"role": role, "content": [*blocks]} for role, blocks in turns]


def _blocks(message: Message) -> list[Json]:
    match message:
        case FromUser():
            return [{"type": "text", "text": message.text}]
        case FromTool():
            result: Json = {"type": "tool_result", "tool_use_id": message.call, "content": message.text}
            return [result if message.ok else {**result, "is_error": True}]
        case FromAgent():
            return woven(message, _block, _words, _uses)


def _words(text: str) -> list[Json]:
    return [{"type": "text", "text": text}] if text.strip() else []


def _uses(calls: Sequence[Call]) -> list[Json]:
    return [
        {"type": "tool_use", "id": call.id, "name": call.tool, "input": json.loads(call.arguments)} for call in calls
    ]


def _block(thinking: Thinking) -> Json | None:
    """The provider's own block out of an opaque value; None for one that never had a signature."""
    block = arguments_object(thinking.data)
    if not block:
        return None
    signed = block.get("type") == "thinking" and block.get("signature")
    sealed = block.get("type") == "redacted_thinking" and block.get("data")
    own: Json = json.loads(thinking.data)
    return {name: value for name, value in own.items() if name != AFTER} if signed or sealed else None


def _choice(choice: str) -> Json:
    match choice:
        case "none":
            return {"type": "none"}
        case "required":
            return {"type": "any"}
    return {"type": "tool", "name": choice}


def _tool(tool: ToolSpec) -> Json:
    return {"name": tool.name, "description": tool.description, "input_schema": json.loads(tool.parameters)}


def _tools_of(messages: Sequence[Message]) -> list[Json]:
    """A history with calls is refused without tools, even where none may be called now."""
    names = dict.fromkeys(call.tool for message in messages if isinstance(message, FromAgent) for call in message.calls)
    return [{"name": name, "description": "Not at hand now.", "input_schema": NO_TOOLS} for name in names]


class Anthropic:
    """An entry of the pool behind the Messages API. Remembers which parameters the server refused."""

    def __init__(self, access: Access, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._access = access
        headers = {"anthropic-version": VERSION, **({"x-api-key": access.key} if access.key else {})}
        self._connection = Connection(access, headers, transport)
        self._adapting = Adapting()

    @property
    def name(self) -> str:
        return self._access.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """One call, and one more for each parameter that the server refuses for the first time."""
        return await self._adapting.call(lambda dialect: self._once(prompt, say, dialect))

    async def close(self) -> None:
        await self._connection.close()

    async def _once(self, prompt: Prompt, say: Say, dialect: Dialect) -> Reply:
        decoding = Decoding(self._access)
        stops = Stops([stop for stop in prompt.stop if not stop.strip()])  # which the API refuses

        def take(event: ServerEvent) -> Heard:
            if text := stops.feed(decoding.feed(event)):
                say(text)
            return decoding.heard

        try:
            await self._connection.post(_path(self._access), encode(prompt, self._access, dialect), take)
            reply = decoding.reply()
            if rest := stops.rest():
                say(rest)
            return stops.ended(reply)
        except AgentError as error:
            error.usage = decoding.used
            raise


def _path(access: Access) -> str:
    """`base_url` is given with and without its version; both mean the same."""
    return "/messages" if access.base_url.rstrip("/").endswith("/v1") else "/v1/messages"


if TYPE_CHECKING:
    from fugu_cli.agents import Agent

    def _fits(agent: Anthropic) -> Agent:
        return agent
