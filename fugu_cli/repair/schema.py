"""The `schema` protocol: a JSON schema picks the tool, plain text carries what to write. For small models.

Stands around an agent whose server can hold a reply to a schema. First call: one JSON object, a variant per tool
without its body argument, or {"tool": "done"}. Where the tool has a body, a second call asks for just that, as plain
text in a fence: small models write code well and code inside JSON badly. Both prompts are the same up to their last
lines, so that llama.cpp reads only those again; tools and the first answer are not in the second prompt, because a
small model that has seen JSON writes JSON. What the model got wrong is answered as text or as a call that the tool will
refuse, never raised.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli import prompts
from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.agents.history import arguments_object, call_id, flat
from fugu_cli.code_blocks import body_of, fenced
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromUser, Message, Prompt, Reply, ToolSpec, Usage
from fugu_cli.repair.written import room, shown_files
from fugu_cli.test_paths import code_among

DONE = "done"
CHOICE_TOKENS = 700
"""Longest first answer: a JSON string that does not end is cut here."""

Json = dict[str, JsonValue]


class Schema:
    """`agent`, with tools by schema. `text` is prompts/protocols/schema.md: what the model is told, in four parts."""

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self._choose_shown, self._choose, self._file, self._body = parts(text, 4)

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """At most one call. `say` gets the answer, or the body while it is written, but not the JSON."""
        if not prompt.tools:
            return await self._agent.reply(prompt, say, wait)
        shared, shown = self._shared(prompt), shown_files(prompt)
        chosen = await self._agent.reply(self._choosing(prompt, shared, shown), _silent, wait)
        arguments = arguments_object(chosen.text) or {}
        tool = arguments.pop("tool", DONE)
        if tool == DONE or not isinstance(tool, str):
            answer = arguments.get("answer")
            text = answer if isinstance(answer, str) else chosen.text
            say(text)
            return chosen.model_copy(update={"text": text, "calls": ()})
        body = next((spec.body for spec in prompt.tools if spec.name == tool), "")
        arguments.pop(body, None)
        if not body:
            return _called(prompt, chosen, tool, arguments)
        now = shown.get(str(arguments.get("path")), "") if tool == "write" else ""
        asked = _ending(shared, self._body_ask(tool, body, arguments)).model_copy(
            update={"max_tokens": room(prompt.max_tokens, now) if now else prompt.max_tokens}
        )
        written = await self._written(asked, chosen.usage, say, wait)
        both = written.model_copy(update={"usage": chosen.usage + written.usage, "calls": ()})
        content, whole = body_of(written.text, now)
        if not content or (not whole and written.stop == "length"):
            return both  # half a file must not be written
        return _called(prompt, both, tool, {**arguments, body: content})

    async def _written(self, asked: Prompt, before: Usage, say: Say, wait: Wait) -> Reply:
        """The second call. Where it fails, the first one was paid for all the same."""
        try:
            return await self._agent.reply(asked, say, lambda pause: wait(replace(pause, used=before + pause.used)))
        except AgentError as error:
            error.usage = before + (error.usage or Usage())
            raise

    async def close(self) -> None:
        await self._agent.close()

    def _shared(self, prompt: Prompt) -> Prompt:
        """What both calls begin with: the history as text."""
        bodies = {tool.name: tool.body for tool in prompt.tools}
        messages = flat(prompt.messages, lambda call: self._shown(call, bodies.get(call.tool, "")))
        return prompt.model_copy(update={"messages": messages, "tools": ()})

    def _choosing(self, prompt: Prompt, shared: Prompt, shown: Mapping[str, str]) -> Prompt:
        paths = ", ".join(f"`{path}`" for path in code_among(shown))
        known = paths and any(tool.name == "write" for tool in prompt.tools)
        ask = prompts.fill(
            self._choose_shown if known else self._choose, tools=describe(_by_use(prompt.tools)), paths=paths
        )
        limits = {"max_tokens": min(prompt.max_tokens, CHOICE_TOKENS), "reply_schema": variants(_by_use(prompt.tools))}
        return _ending(shared, ask).model_copy(update=limits)

    def _body_ask(self, tool: str, body: str, arguments: dict[str, object]) -> str:
        path = arguments.get("path")
        if isinstance(path, str) and tool == "write":
            return prompts.fill(self._file, path=path)
        return prompts.fill(self._body, tool=tool, body=body)

    def _shown(self, call: Call, body: str) -> Sequence[Message]:
        """An earlier call as this protocol speaks it: the choice, then what was written."""
        arguments = arguments_object(call.arguments) or {}
        written = arguments.pop(body, None) if body else None
        choice = FromAgent(agent=self.name, text=json.dumps({"tool": call.tool, **arguments}, ensure_ascii=False))
        if not isinstance(written, str):
            return [choice]
        ask = FromUser(text=self._body_ask(call.tool, body, arguments))
        return [choice, ask, FromAgent(agent=self.name, text=fenced(written))]


def _ending(shared: Prompt, ask: str) -> Prompt:
    """`shared` with one more line for the model, at the end of the user's last words."""
    last = shared.messages[-1]
    assert isinstance(last, FromUser)
    return shared.model_copy(update={"messages": (*shared.messages[:-1], FromUser(text=f"{last.text}\n\n{ask}"))})


def _called(prompt: Prompt, reply: Reply, tool: str, arguments: dict[str, object]) -> Reply:
    call = Call(id=call_id(prompt, 0), tool=tool, arguments=json.dumps(arguments, ensure_ascii=False))
    return reply.model_copy(update={"text": "", "calls": (call,), "stop": "calls"})


def parts(text: str, count: int) -> list[str]:
    """A protocol file's parts, divided by lines of three equals signs. Raises ValueError for another number of them."""
    found = [part.strip() for part in text.split("\n===\n")]
    if len(found) != count:
        raise ValueError(f"a protocol text of {count} parts is needed, this one has {len(found)}")
    return found


def _by_use(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Those that write first: a 0.5b model takes the first of a list, and what it needs to read it has been shown."""
    return sorted(tools, key=lambda tool: not tool.body)


def describe(tools: Sequence[ToolSpec]) -> str:
    """The tools as a list for the system text: name, arguments (optional ones with a question mark), what it does."""
    lines = []
    for tool in tools:
        names = [
            name if required else f"{name}?" for name, (_, required) in _properties(tool).items() if name != tool.body
        ]
        lines.append(f"- {tool.name}({', '.join(names)}): {tool.description.strip()}")
    return "\n".join(lines)


def variants(tools: Sequence[ToolSpec]) -> str:
    """The JSON schema of the first answer, as text: one variant per tool, and `done`."""
    shapes = [
        _shape(tool.name, {name: kept for name, kept in _properties(tool).items() if name != tool.body})
        for tool in tools
    ]
    shapes.append(_shape(DONE, {"answer": ({"type": "string"}, True)}))
    return json.dumps({"anyOf": shapes})


def _shape(tool: str, properties: dict[str, tuple[JsonValue, bool]]) -> JsonValue:
    kinds: Json = {"tool": {"const": tool}, **{name: kind for name, (kind, _) in properties.items()}}
    required: list[JsonValue] = ["tool", *(name for name, (_, needed) in properties.items() if needed)]
    return {"type": "object", "properties": kinds, "required": required, "additionalProperties": False}


def _properties(tool: ToolSpec) -> dict[str, tuple[JsonValue, bool]]:
    """Argument name -> (its schema without words for people, whether it is required)."""
    schema: Json = json.loads(tool.parameters)
    given, required = schema.get("properties"), schema.get("required")
    if not isinstance(given, dict):
        return {}
    needed = required if isinstance(required, list) else []
    return {name: (_bare(kind), name in needed) for name, kind in given.items()}


def _bare(kind: JsonValue) -> JsonValue:
    """An optional argument may be left out, so `null` is not offered; titles and defaults help no grammar."""
    if not isinstance(kind, dict):
        return kind
    choices = kind.get("anyOf")
    if isinstance(choices, list):
        real = [_bare(choice) for choice in choices if choice != {"type": "null"}]
        return real[0] if len(real) == 1 else {"anyOf": real}
    kept = ("type", "enum", "const", "items", "minimum", "maximum")
    return {key: _bare(value) if key == "items" else value for key, value in kind.items() if key in kept}


def _silent(text: str) -> None:
    pass


if TYPE_CHECKING:

    def _fits(agent: Schema) -> Agent:
        return agent
