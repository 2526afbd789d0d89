"""The `text` and `schema` protocols: what a model writes becomes calls of tools. Plain text holds
files, or a part of one; a JSON schema picks the tool.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fugu_cli import prompts
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromUser, Message, Prompt, Reply, ToolSpec, Usage
from fugu_cli.providers import Agent, Say, Wait
from fugu_cli.providers.code_blocks import Block, blocks, body_of, fenced, similarity
from fugu_cli.providers.history import arguments_object, as_plain_text, call_id
from fugu_cli.repair.localization import is_long
from fugu_cli.repair.replies import as_shown, parse_reply, stops_of
from fugu_cli.repair.splicing import complete_file, edit_between, replace_part
from fugu_cli.repair.syntax import function_names, parses
from fugu_cli.session.recognized_tests import code_among
from fugu_cli.system.bounded_json import parse_json

_WORD = re.compile(r"-?\w+(?:(?:\.|::)\w+)*")


def with_infill_edit(prompt: Prompt, reply: Reply) -> Reply:
    """The reply with the edit of the prompt's gap, without one where it changes nothing or cannot
    be read; its text says which line."""
    gap, content = prompt.gap, prompt.files[prompt.target]
    assert gap is not None
    filled, line_end = reply.text.split("\n")[0].strip(), gap.after.split("\n")[0].strip()
    filled = filled.removesuffix(line_end).strip() if line_end else filled
    if not filled or "".join(filled.split()).rstrip(";") == "".join(
        content[gap.start : gap.end].split()
    ).rstrip(";"):
        return reply.model_copy(
            update={"text": f"{gap.place}: as it is" if filled else "", "calls": ()}
        )
    new_content = content[: gap.start] + filled + content[gap.end :]
    is_unusable = (
        not parses(prompt.target, new_content)
        or (bool(line_end) and not _WORD.fullmatch(filled))
        or reply.stop == "length"
    )
    described = reply.model_copy(update={"text": f"{gap.place}: `{filled}`", "calls": ()})
    return described if is_unusable else _with_edit(prompt, described, new_content)


def _with_edit(prompt: Prompt, reply: Reply, new: str) -> Reply:
    """The reply with the call that makes `new` of the prompt's target; without one where that
    changes nothing.
    """
    edit = edit_between(prompt.files[prompt.target], new)
    if edit is None:
        return reply.model_copy(update={"calls": ()})
    return _calling(
        prompt, reply, [("edit", {"path": prompt.target, "old": edit[0], "new": edit[1]})]
    )


def _calling(
    prompt: Prompt, reply: Reply, calls_to_make: Iterable[tuple[str, Mapping[str, object]]]
) -> Reply:
    calls = tuple(
        Call(
            id=call_id(prompt, number),
            tool=tool,
            arguments=json.dumps(arguments, ensure_ascii=False),
        )
        for number, (tool, arguments) in enumerate(calls_to_make)
    )
    return reply.model_copy(update={"calls": calls, "stop": "calls"})


DONE = "done"
CHOICE_TOKENS = 700
"""Longest first answer: a JSON string that does not end is cut here."""

_Arguments = dict[str, tuple[dict[str, object], bool]]
_ANSWER: _Arguments = {"answer": ({"type": "string"}, True)}


class SchemaProtocol:
    """`agent`, with tools by schema. `text` is prompts/protocols/schema.md: what the model is told,
    in four parts.
    """

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self._choose_shown, self._choose, self._file, self._body = protocol_parts(text, 4)

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """At most one call. `say` gets the answer, or the body while it is written, but not the
        JSON.
        """
        if not prompt.tools:
            return await self._agent.reply(prompt, say, wait)
        shared = self._history_as_text(prompt)
        chosen = await self._agent.reply(self._choice_prompt(prompt, shared), lambda _: None, wait)
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
            return _calling(prompt, chosen.model_copy(update={"text": ""}), [(tool, arguments)])
        present = prompt.files.get(str(arguments.get("path")), "") if tool == "write" else ""
        body_prompt = _ending(shared, self._body_ask(tool, body, arguments))
        written = await self._ask_for_body(body_prompt, chosen.usage, say, wait)
        reply = written.model_copy(update={"usage": chosen.usage + written.usage, "calls": ()})
        content, whole = body_of(written.text, present)
        if not content or (not whole and written.stop == "length"):
            return reply  # half a file must not be written
        return _calling(
            prompt, reply.model_copy(update={"text": ""}), [(tool, {**arguments, body: content})]
        )

    async def _ask_for_body(
        self, body_prompt: Prompt, before: Usage, say: Say, wait: Wait
    ) -> Reply:
        """The second call. Where it fails, the first one was paid for all the same."""
        try:
            return await self._agent.reply(
                body_prompt, say, lambda pause: wait(replace(pause, used=before + pause.used))
            )
        except AgentError as error:
            error.usage = before + (error.usage or Usage())
            raise

    async def close(self) -> None:
        await self._agent.close()

    def _history_as_text(self, prompt: Prompt) -> Prompt:
        """Return the common beginning of both calls: the history as text."""
        bodies = {tool.name: tool.body for tool in prompt.tools}
        messages = as_plain_text(
            prompt.messages, lambda call: self._shown(call, bodies.get(call.tool, ""))
        )
        return prompt.model_copy(update={"messages": messages, "tools": ()})

    def _choice_prompt(self, prompt: Prompt, shared: Prompt) -> Prompt:
        paths = ", ".join(f"`{path}`" for path in _shown_code(prompt))
        shows_paths = paths and any(tool.name == "write" for tool in prompt.tools)
        question = prompts.fill(
            self._choose_shown if shows_paths else self._choose,
            tools=describe_tools(_by_use(prompt.tools)),
            paths=paths,
        )
        limits = {
            "max_tokens": min(prompt.max_tokens, CHOICE_TOKENS),
            "reply_schema": answer_schema(_by_use(prompt.tools)),
        }
        return _ending(shared, question).model_copy(update=limits)

    def _body_ask(self, tool: str, body: str, arguments: dict[str, object]) -> str:
        path = arguments.get("path")
        if isinstance(path, str) and tool == "write":
            return prompts.fill(self._file, path=path)
        return prompts.fill(self._body, tool=tool, body=body)

    def _shown(self, call: Call, body: str) -> Sequence[Message]:
        """An earlier call as this protocol speaks it: the choice, then what was written."""
        arguments = arguments_object(call.arguments) or {}
        written = arguments.pop(body, None) if body else None
        choice = FromAgent(
            agent=self.name, text=json.dumps({"tool": call.tool, **arguments}, ensure_ascii=False)
        )
        if not isinstance(written, str):
            return [choice]
        ask = FromUser(text=self._body_ask(call.tool, body, arguments))
        return [choice, ask, FromAgent(agent=self.name, text=fenced(written))]


def _ending(shared: Prompt, ask: str) -> Prompt:
    """`shared` with one more line for the model, at the end of the user's last words."""
    last = shared.messages[-1]
    assert isinstance(last, FromUser)
    return shared.model_copy(
        update={"messages": (*shared.messages[:-1], FromUser(text=f"{last.text}\n\n{ask}"))}
    )


def protocol_parts(text: str, count: int) -> list[str]:
    """A protocol file's parts, divided by lines of three equals signs. Raises ValueError for
    another number of them.
    """
    parts = [part.strip() for part in text.split("\n===\n")]
    if len(parts) != count:
        raise ValueError(f"a protocol text of {count} parts is needed, this one has {len(parts)}")
    return parts


def _by_use(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Return the tools with those that write first: a 0.5b model takes the first of a list, and it
    has already been shown what to read.
    """
    return sorted(tools, key=lambda tool: not tool.body)


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """The tools as a list for the system text: name, arguments (optional ones with a question
    mark), what it does.
    """
    lines = []
    for tool in tools:
        names = [
            name if required else f"{name}?" for name, (_, required) in _properties(tool).items()
        ]
        lines.append(f"- {tool.name}({', '.join(names)}): {tool.description.strip()}")
    return "\n".join(lines)


def answer_schema(tools: Sequence[ToolSpec]) -> str:
    """The JSON schema of the first answer, as text: one variant per tool, and `done`."""
    shapes: list[dict[str, object]] = []
    for name, arguments in [*((tool.name, _properties(tool)) for tool in tools), (DONE, _ANSWER)]:
        properties: dict[str, object] = {
            "tool": {"const": name},
            **{key: schema for key, (schema, _) in arguments.items()},
        }
        required = ["tool", *(key for key, (_, is_required) in arguments.items() if is_required)]
        shape = {
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": False,
        }
        shapes.append(shape)
    return json.dumps({"anyOf": shapes})


def _properties(tool: ToolSpec) -> _Arguments:
    """Return for each argument its schema without words for people, and whether it is required;
    without the tool's body. An optional one may be left out, so `null` is not offered."""
    schema = parse_json(tool.parameters)
    keys = ("type", "enum", "const", "items", "minimum", "maximum")
    properties = _Arguments()
    for name, field in schema.get("properties", {}).items():
        for variant in field.get("anyOf", [field]):
            if variant != {"type": "null"}:
                field = variant
                break
        bare = {key: value for key, value in field.items() if key in keys}
        properties[name] = (bare, name in schema.get("required", []))
    properties.pop(tool.body, None)
    return properties


EXAMPLE = "hello.py"
"""The file in prompts/protocols/text.md, which models hand back."""


class TextProtocol:
    """`agent`, with tools by plain text. `text` is prompts/protocols/text.md: six parts of what the
    model is told.
    """

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self._one, self._form, self._files, self._part, self._new_one, self._new_files = (
            protocol_parts(text, 6)
        )

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The reply with a call for each file and edit in it. A file cut short by the token limit
        is no call.
        """
        if prompt.gap is not None:
            plain = prompt.model_copy(update={"tools": ()})
            return with_infill_edit(prompt, await self._agent.reply(plain, say, wait))
        reply = await self._agent.reply(self._model_prompt(prompt), say, wait)
        offered = {tool.name for tool in prompt.tools}
        if not offered & {"write", "edit"} or (prompt.unwritten and prompt.unwritten in reply.text):
            return reply.model_copy(update={"calls": ()})
        if prompt.part and "edit" in offered:
            return _with_part(prompt, reply)
        written = parse_reply(
            reply.text, shown=prompt.files, asked=_asked_for(prompt), whole=reply.stop != "length"
        )
        user_texts = "\n".join(
            message.text for message in prompt.messages if isinstance(message, FromUser)
        )
        files = [
            (path, _whole(path, content, prompt))
            for path, content in written.files
            if prompt.target in ("", path) and (path != EXAMPLE or EXAMPLE in user_texts)
        ]
        if not files or "write" not in offered:
            return reply.model_copy(update={"calls": ()})
        calls = [("write", {"path": path, "content": content}) for path, content in files]
        return _calling(prompt, reply.model_copy(update={"text": written.words}), calls)

    async def close(self) -> None:
        await self._agent.close()

    def _model_prompt(self, prompt: Prompt) -> Prompt:
        """The prompt as the model gets it: no tools, and at its end what form the answer is to
        have.
        """
        messages, system = as_plain_text(prompt.messages, self._shown), prompt.system
        stop = prompt.stop
        if any(tool.name in ("write", "edit") for tool in prompt.tools):
            path = _asked_for(prompt)
            before, ask = self._form_texts(prompt, path)
            system = f"{system}\n\n{before}".strip()
            last = messages[-1]
            assert isinstance(last, FromUser)
            messages = (*messages[:-1], FromUser(text=f"{last.text}\n\n{ask}"))
            if prompt.judged and path in prompt.files and not stop:
                stop = stops_of(path, prompt.files[path])
        update = {"system": system, "messages": messages, "tools": (), "stop": stop}
        return prompt.model_copy(update=update)

    def _form_texts(self, prompt: Prompt, path: str) -> tuple[str, str]:
        """Return the words about the form before the history, and the question after it. `path` is
        the one file that is asked for.
        """
        question = self._new_one if prompt.wanted else self._one
        if prompt.part:
            return "", prompts.fill(self._part, path=path)
        if path:
            return "", prompts.fill(question, path=path)
        return self._form, self._new_files if prompt.wanted else self._files

    def _shown(self, call: Call) -> Sequence[Message]:
        """An earlier call as this protocol would have spoken it."""
        arguments = arguments_object(call.arguments) or {}
        path = arguments.get("path")
        if call.tool == "write" and isinstance(arguments.get("content"), str):
            text = f"{path}\n{fenced(str(arguments['content']))}"
        else:
            text = f"[{call.tool} {call.arguments}]"
        return [FromAgent(agent=self.name, text=text)]


def _whole(path: str, content: str, prompt: Prompt) -> str:
    """The file that is meant: what the model only left out stays, unless the request may be about
    that.
    """
    shown = prompt.files.get(path, "")
    kept = content if prompt.removes else complete_file(path, shown, content, judged=prompt.judged)
    return as_shown(kept, shown)


def _with_part(prompt: Prompt, reply: Reply) -> Reply:
    """Return the reply with the edit that puts what it wrote in the place of the part that was
    shown."""
    names = function_names(prompt.target, prompt.part)

    def likeness(block: Block) -> tuple[int, float]:
        shared = names & function_names(prompt.target, block.body)
        return len(shared), similarity(prompt.part, block.body)

    best = max(blocks(reply.text), key=likeness, default=None)
    if best is None or not (best.closed or reply.stop != "length"):
        return reply.model_copy(update={"calls": ()})
    old = prompt.files[prompt.target]
    new = replace_part(prompt.target, old, prompt.part, best.body, judged=prompt.judged)
    if new != old:
        reply = reply.model_copy(update={"text": ""})
    return _with_edit(prompt, reply, new)


def _asked_for(prompt: Prompt) -> str:
    """The one file that the reply is to be, "" where it may be others."""
    if prompt.target:
        return prompt.target
    code = _shown_code(prompt)
    return code[0] if len(code) == 1 and not prompt.open_ended else ""


def _shown_code(prompt: Prompt) -> list[str]:
    """The files that are no tests, and that are shown whole."""
    return [path for path in code_among(prompt.files) if not is_long(prompt.files[path])]


if TYPE_CHECKING:

    def _fits(agent: SchemaProtocol | TextProtocol) -> Agent:
        return agent
