"""Chat Completions with streaming: OpenAI and every server that speaks like it. The default way out.

Stands on http.py, before it history.py. `encode` and `openai_stream.Decoding` are pure; only `OpenAI` does IO. It must
not know roles, logs or which company serves: what a server refuses, it says itself (dialects.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import httpx
from pydantic import JsonValue

from fugu_cli.agents import Say, Wait, caching, leaking, signatures
from fugu_cli.agents.access import Access
from fugu_cli.agents.dialects import Adapting, Dialect
from fugu_cli.agents.history import bridged, call_id, closed, with_short_ids
from fugu_cli.agents.http import Connection, Json
from fugu_cli.agents.openai_stream import Decoding
from fugu_cli.agents.sse import Heard, ServerEvent
from fugu_cli.agents.stops import Stops
from fugu_cli.errors import AgentError
from fugu_cli.messages import FromAgent, FromTool, FromUser, Message, Prompt, Reply, ToolSpec

UNTHOUGHT = " "
"""Goes as the reasoning of a reply that has none of this agent's: a server that asks for it asks for all of them, and
some take an empty text for none."""


def encode(prompt: Prompt, access: Access, dialect: Dialect) -> Json:
    """The request body. Only what was asked for is in it: servers refuse what they do not know."""
    messages: list[Json] = [{"role": "system", "content": prompt.system}] if prompt.system.strip() else []
    messages += [_message(message, access, dialect) for message in _history(prompt, access, dialect)]
    if caching.wants_marks(access):
        caching.mark(messages)
    payload: Json = {"model": access.model, "messages": [*messages], "stream": True}
    payload["max_completion_tokens" if dialect.completion_tokens else "max_tokens"] = dialect.tokens(prompt.max_tokens)
    if prompt.tools:
        payload["tools"] = [_tool(tool) for tool in prompt.tools]
    if prompt.temperature is not None and dialect.temperature:
        payload["temperature"] = prompt.temperature
    if prompt.seed is not None and dialect.seed:
        payload["seed"] = prompt.seed
    if prompt.stop and dialect.stop:
        payload["stop"] = [*prompt.stop]
    if prompt.tools and prompt.tool_choice:
        payload["tool_choice"] = _choice(prompt.tool_choice)
    if caching.wants_a_key(access) and dialect.cache_key:
        payload["prompt_cache_key"] = caching.key(prompt)
    if dialect.stream_usage:
        payload["stream_options"] = {"include_usage": True}
    effort = access.effort if dialect.effort_with_tools or not prompt.tools else "none"
    if effort and dialect.effort:
        payload["reasoning_effort"] = effort
    if prompt.reply_schema and dialect.schema == "schema":
        schema: Json = {"name": "reply", "schema": json.loads(prompt.reply_schema)}
        payload["response_format"] = {"type": "json_schema", "json_schema": schema}
    elif prompt.reply_schema and dialect.schema == "object":
        payload["response_format"] = {"type": "json_object"}
    return payload


def _history(prompt: Prompt, access: Access, dialect: Dialect) -> tuple[Message, ...]:
    history = closed(prompt.messages, access.name if dialect.sealed else "")
    mistral = access.host.endswith("mistral.ai")
    history = with_short_ids(history) if dialect.short_ids or mistral else history
    history = bridged(history) if dialect.bridged or mistral else history
    return (*history, FromAgent(agent=access.name, text=prompt.begun)) if prompt.begun else history


def _message(message: Message, access: Access, dialect: Dialect) -> Json:
    match message:
        case FromUser():
            return {"role": "user", "content": message.text}
        case FromTool():
            return {"role": "tool", "tool_call_id": message.call, "content": message.text}
        case FromAgent():
            said: Json = {"role": "assistant", "content": message.text or None}
            if message.calls:
                said["tool_calls"] = _calls(message, access)
            if sealed := signatures.details(message, access):
                said[signatures.DETAILS] = sealed
            if dialect.reasoning_back:
                own = message.thinking if message.agent == access.name else ()
                said["reasoning_content"] = "\n".join(block.text for block in own if block.text) or UNTHOUGHT
            return said


def _calls(message: FromAgent, access: Access) -> list[JsonValue]:
    calls: list[JsonValue] = []
    for call, extra in zip(message.calls, signatures.returned(message, access), strict=True):
        function: Json = {"name": call.tool, "arguments": call.arguments}
        made: Json = {"id": call.id, "type": "function", "function": function}
        calls.append({**made, signatures.KIND: extra} if extra else made)
    return calls


def _choice(choice: str) -> JsonValue:
    return choice if choice in ("none", "required") else {"type": "function", "function": {"name": choice}}


def _tool(tool: ToolSpec) -> Json:
    parameters = json.loads(tool.parameters)
    return {
        "type": "function",
        "function": {"name": tool.name, "description": tool.description, "parameters": parameters},
    }


Over = Callable[[Prompt, Sequence[str], str], str]
"""Why nothing more of a reply is wanted, "" while it goes on: of the prompt, the pieces so far, and what was shown."""


class OpenAI:
    """An entry of the pool behind a Chat Completions server. Remembers which parameters the server refused."""

    def __init__(
        self, access: Access, transport: httpx.AsyncBaseTransport | None = None, over: Over | None = None
    ) -> None:
        self._access = access
        self._over = over
        self._connection = Connection(access, access.credentials, transport)
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
        decoding = Decoding(self._access, lambda number: call_id(prompt, number))
        said: list[str] = []
        stops = Stops(() if dialect.stop else prompt.stop)
        shown = "\n".join(message.text for message in prompt.messages)

        def take(event: ServerEvent) -> Heard:
            if text := stops.feed(decoding.feed(event)):
                say(text)
                said.append(text)
                if self._over is not None and (reason := self._over(prompt, said, shown)):
                    return decoding.cut(reason)
            return decoding.heard

        try:
            await self._connection.post("/chat/completions", encode(prompt, self._access, dialect), take)
            reply = decoding.reply()
            if rest := stops.rest():
                say(rest)
            return leaking.checked(stops.ended(reply), prompt, self._access)
        except AgentError as error:
            error.usage = decoding.used
            raise


if TYPE_CHECKING:
    from fugu_cli.agents import Agent

    def _fits(agent: OpenAI) -> Agent:
        return agent
