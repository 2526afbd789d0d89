"""The `text` and `schema` protocols: what a model writes becomes calls of tools. Plain text holds whole files and
SEARCH/REPLACE edits; a JSON schema picks the tool.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pydantic import JsonValue

from fugu_cli import prompts
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, FromAgent, FromUser, InfillHole, Message, Prompt, Reply, ToolSpec, Usage
from fugu_cli.providers import Agent, Say, Wait
from fugu_cli.providers.code_blocks import body_of, fenced, parses
from fugu_cli.providers.history import arguments_object, as_plain_text, call_id
from fugu_cli.repair import intent
from fugu_cli.repair.edit_parser import (
    ParsedEdits,
    as_shown,
    parse_edits,
    rewrite_token_limit,
    shown_files,
    unfenced_file,
)
from fugu_cli.repair.partial_files import complete_file
from fugu_cli.repair.reply_trimming import (
    closest_body,
    part_edits,
    self_test_starts,
    without_extra_code,
    without_self_tests,
)
from fugu_cli.repair.reply_trimming import repetition_start as begins_again
from fugu_cli.session.recognized_tests import code_among

UNCHANGED_NOTE = ": as it is"
"""How the text of a reply ends that leaves the line."""


_WORD = re.compile(r"-?\w+(?:(?:\.|::)\w+)*")


def with_infill_edit(prompt: Prompt, reply: Reply) -> Reply:
    """The reply with the edit of the prompt's gap, without one where it changes nothing; its text says which line."""
    gap = prompt.gap
    assert gap is not None
    lines = prompt.part.split("\n")
    old = lines[gap.number]
    said = reply.text.split("\n")[0].rstrip()
    if gap.head or gap.tail:
        said = _word(said, gap)
        new = f"{gap.head}{said}{gap.tail}"
    else:
        new = said if gap.more else old[: len(old) - len(old.lstrip())] + said.lstrip()
    beside = lines[gap.number : gap.number + 2] if gap.more else [old]
    if not said.strip() or any(_same(prompt.target, line, new) for line in beside):
        return reply.model_copy(
            update={"text": f"{gap.place}{UNCHANGED_NOTE}" if said or gap.more else "", "calls": ()}
        )
    told = f"{gap.place}: `{said.strip()}`"
    written = [old, new] if gap.more else [new]
    whole = "\n".join([*lines[: gap.number], *written, *lines[gap.number + 1 :]])
    broken = prompt.target.endswith((".py", ".pyi")) and not parses(textwrap.dedent(whole))
    broken = broken or (bool(gap.head or gap.tail) and not _fits(said, gap))
    if broken or reply.stop == "length":
        return reply.model_copy(update={"text": told, "calls": ()})
    given = {
        "path": prompt.target,
        "old": "\n".join(lines[gap.start : gap.end]),
        "new": "\n".join([*lines[gap.start : gap.number], *written, *lines[gap.number + 1 : gap.end]]),
    }
    call = Call(id=call_id(prompt, 0), tool="edit", arguments=json.dumps(given, ensure_ascii=False))
    return reply.model_copy(update={"text": told, "calls": (call,), "stop": "calls"})


def _fits(said: str, gap: InfillHole) -> bool:
    """It is a word or a number; or, between quotes, any text that does not end them."""
    quote = gap.tail[:1]
    quoted = quote in {'"', "'", "`"} and gap.head.endswith(quote)
    return quote not in said if quoted else _WORD.fullmatch(said) is not None


def _word(said: str, gap: InfillHole) -> str:
    """Without the end of the line, where the model has written that again."""
    rest = gap.tail.strip()
    return (said.rstrip().removesuffix(rest) if rest else said).strip()


def _same(path: str, old: str, new: str) -> bool:
    """Nothing but white space differs, a semicolon at the end, or a comment behind the code."""
    return _code(path, old) == _code(path, new)


def _code(path: str, line: str) -> str:
    mark = "#" if path.endswith((".py", ".pyi", ".rb", ".sh")) else "//"
    code = line.partition(f" {mark}")[0] if not {'"', "'", "`"} & set(line) else line
    return "".join(code.split()).rstrip(";")


DONE = "done"
CHOICE_TOKENS = 700
"""Longest first answer: a JSON string that does not end is cut here."""

Json = dict[str, JsonValue]


class SchemaProtocol:
    """`agent`, with tools by schema. `text` is prompts/protocols/schema.md: what the model is told, in four parts."""

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self._choose_shown, self._choose, self._file, self._body = protocol_parts(text, 4)

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
            update={"max_tokens": rewrite_token_limit(prompt.max_tokens, now) if now else prompt.max_tokens}
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
        messages = as_plain_text(prompt.messages, lambda call: self._shown(call, bodies.get(call.tool, "")))
        return prompt.model_copy(update={"messages": messages, "tools": ()})

    def _choosing(self, prompt: Prompt, shared: Prompt, shown: Mapping[str, str]) -> Prompt:
        paths = ", ".join(f"`{path}`" for path in code_among(shown))
        known = paths and any(tool.name == "write" for tool in prompt.tools)
        ask = prompts.fill(
            self._choose_shown if known else self._choose, tools=describe_tools(_by_use(prompt.tools)), paths=paths
        )
        limits = {
            "max_tokens": min(prompt.max_tokens, CHOICE_TOKENS),
            "reply_schema": answer_schema(_by_use(prompt.tools)),
        }
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


def protocol_parts(text: str, count: int) -> list[str]:
    """A protocol file's parts, divided by lines of three equals signs. Raises ValueError for another number of them."""
    found = [part.strip() for part in text.split("\n===\n")]
    if len(found) != count:
        raise ValueError(f"a protocol text of {count} parts is needed, this one has {len(found)}")
    return found


def _by_use(tools: Sequence[ToolSpec]) -> list[ToolSpec]:
    """Those that write first: a 0.5b model takes the first of a list, and what it needs to read it has been shown."""
    return sorted(tools, key=lambda tool: not tool.body)


def describe_tools(tools: Sequence[ToolSpec]) -> str:
    """The tools as a list for the system text: name, arguments (optional ones with a question mark), what it does."""
    lines = []
    for tool in tools:
        names = [
            name if required else f"{name}?" for name, (_, required) in _properties(tool).items() if name != tool.body
        ]
        lines.append(f"- {tool.name}({', '.join(names)}): {tool.description.strip()}")
    return "\n".join(lines)


def answer_schema(tools: Sequence[ToolSpec]) -> str:
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

    def _schema_fits(agent: SchemaProtocol) -> Agent:
        return agent


LONG = 8000
"""Characters of all code shown from which files are not asked for whole: some 2,500 tokens, minutes of writing."""

_HEADER = re.compile(r"\A[^\w\n]*(?:The|Of the) file `[^`\n]+`:?[^\w\n]*\n")
"""What stands above a file in the brief, handed back in it as a comment."""

_LANGUAGES = {"py": "python", "pyi": "python", "js": "javascript", "ts": "typescript", "rs": "rust"}


class TextProtocol:
    """`agent`, with tools by plain text. `text` is prompts/protocols/text.md: eight parts of what the model is told."""

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self._one, *self._files, self._part, self._new_one, self._new_files = protocol_parts(text, 8)

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The reply with a call for each file and edit in it. A file cut short by the token limit is no call."""
        offered = {tool.name for tool in prompt.tools}
        if prompt.gap is not None:
            plain = prompt.model_copy(update={"tools": ()})
            return with_infill_edit(prompt, await self._agent.reply(plain, say, wait))
        shown = shown_files(prompt)
        asked_with = self._asked(prompt, shown)
        reply = _to_its_end(asked_with, _from_its_beginning(asked_with, await self._agent.reply(asked_with, say, wait)))
        if prompt.unwritten and prompt.unwritten in reply.text:
            return reply.model_copy(update={"calls": ()})
        if prompt.part and "edit" in offered:
            return _mended(prompt, reply)
        asked = _asked_for(prompt, shown)
        written = self._meant(parse_edits(reply.text, shown=shown, asked=asked, whole=reply.stop != "length"), prompt)
        files = [(path, _whole(content, shown.get(path, ""), prompt)) for path, content in written.files]
        if not files and not written.edits and asked:
            files = _alone(reply, asked, shown, prompt) or _added(reply, asked, shown.get(asked, ""), prompt)
        if not files and asked and asked not in shown and reply.stop == "length":
            files = _ended(reply, asked)
            written = replace(written, words="") if files else written
        files = [(path, content) for path, content in files if "write" in offered and prompt.target in ("", path)]
        files = [(path, content) for path, content in files if not prompt.unwritten or prompt.unwritten not in content]
        edits = written.edits if "edit" in offered else ()
        if not files and not edits:
            return reply.model_copy(update={"calls": ()})
        given: list[tuple[str, dict[str, str]]] = [
            *(("write", {"path": path, "content": content}) for path, content in files),
            *(("edit", {"path": edit.path, "old": edit.old, "new": edit.new}) for edit in edits),
        ]
        calls = tuple(
            Call(id=call_id(prompt, number), tool=tool, arguments=json.dumps(arguments, ensure_ascii=False))
            for number, (tool, arguments) in enumerate(given)
        )
        return reply.model_copy(update={"text": written.words, "calls": calls, "stop": "calls"})

    async def close(self) -> None:
        await self._agent.close()

    def _meant(self, written: ParsedEdits, prompt: Prompt) -> ParsedEdits:
        """Without the example that the model was given, where it hands that back: nobody spoke of such a file."""
        said = "\n".join(message.text for message in prompt.messages if isinstance(message, FromUser))
        given = [parse_edits(text) for text in self._files]
        files = {one for each in given for one in each.files if one[0] not in said}
        edits = {one for each in given for one in each.edits if one.path not in said}
        return replace(
            written,
            files=tuple(one for one in written.files if one not in files),
            edits=tuple(one for one in written.edits if one not in edits),
        )

    def _asked(self, prompt: Prompt, shown: Mapping[str, str]) -> Prompt:
        messages = as_plain_text(prompt.messages, self._shown)
        system = prompt.system
        offered = {tool.name for tool in prompt.tools}
        tokens, stop, stands = prompt.max_tokens, prompt.stop, ""
        if offered & {"write", "edit"}:
            path = _asked_for(prompt, shown)
            before, ask = self._words(prompt, shown, path)
            old = [shown[file] for file in ([path] if path else code_among(shown)) if file in shown]
            tokens = rewrite_token_limit(tokens, *old) if old else tokens
            system = f"{system}\n\n{before}".strip()
            last = messages[-1]
            assert isinstance(last, FromUser)
            messages = (*messages[:-1], FromUser(text=f"{last.text}\n\n{ask}"))
            if prompt.judged and path in shown and not stop:
                stop = self_test_starts(path, "\n".join(shown.values()), last.text)
            if prompt.judged and path.endswith((".py", ".pyi")):
                stands = textwrap.dedent(prompt.part) or shown.get(path, "")
        begun = _opened(prompt.target, prompt.begun) if prompt.begun else ""
        update = {
            "system": system,
            "messages": messages,
            "tools": (),
            "max_tokens": tokens,
            "stop": stop,
            "begun": begun,
            "stands": stands,
        }
        return prompt.model_copy(update=update)

    def _words(self, prompt: Prompt, shown: Mapping[str, str], path: str) -> tuple[str, str]:
        """What is said of the form before the history, and the ask after it. `path`: the one file that is asked for."""
        one = self._new_one if prompt.wanted else self._one
        if path and path not in shown:
            return "", prompts.fill(one, path=path)
        if prompt.part:
            return "", prompts.fill(self._part, path=path)
        edits = any(tool.name == "edit" for tool in prompt.tools)
        if edits and sum(len(shown[path]) for path in code_among(shown)) > LONG:
            return self._files[2], self._files[3]
        if path:
            return "", prompts.fill(one, path=path)
        return self._files[0], self._new_files if prompt.wanted else self._files[1]

    def _shown(self, call: Call) -> Sequence[Message]:
        """An earlier call as this protocol would have spoken it."""
        given = arguments_object(call.arguments) or {}
        path = given.get("path")
        if call.tool == "write" and isinstance(given.get("content"), str):
            text = f"{path}\n{fenced(str(given['content']))}"
        elif call.tool == "edit" and "old" in given and "new" in given:
            text = f"{path}\n<<<<<<< SEARCH\n{given['old']}\n=======\n{given['new']}\n>>>>>>> REPLACE"
        else:
            text = f"[{call.tool} {call.arguments}]"
        return [FromAgent(agent=self.name, text=text)]


def _opened(path: str, code: str) -> str:
    """The block that the code begins, without its end."""
    suffix = path.rpartition(".")[2]
    return fenced(code, _LANGUAGES.get(suffix, suffix)).rpartition("\n")[0] + "\n"


def _from_its_beginning(prompt: Prompt, reply: Reply) -> Reply:
    """The reply with what it began with, unless it has started again."""
    if not prompt.begun or reply.text.lstrip().startswith("```"):
        return reply
    return reply.model_copy(update={"text": prompt.begun + reply.text})


def _to_its_end(prompt: Prompt, reply: Reply) -> Reply:
    """The reply without what its code goes on with behind what was asked for; it is whole, even if it was cut there."""
    text = without_extra_code(prompt, reply.text)
    return reply if text == reply.text else reply.model_copy(update={"text": text, "stop": "end"})


def _whole(content: str, shown: str, prompt: Prompt) -> str:
    """The file that is meant: what the model only left out stays, unless the request may be about that."""
    said = "\n".join(message.text for message in prompt.messages if isinstance(message, FromUser))
    content = content if _HEADER.match(shown) else _HEADER.sub("", content, count=1)
    asked = without_self_tests(shown, content, said) if shown and prompt.judged else content
    kept = asked if not shown or intent.takes_away(parse_edits(said).words) else complete_file(shown, asked)
    return as_shown(kept, shown)


def _alone(reply: Reply, path: str, shown: Mapping[str, str], prompt: Prompt) -> list[tuple[str, str]]:
    """The file `path` where the reply is that file and nothing else, without a fence."""
    body = unfenced_file(reply.text, path, shown) if reply.stop != "length" else ""
    return [(path, _whole(body, shown.get(path, ""), prompt))] if body else []


def _ended(reply: Reply, path: str) -> list[tuple[str, str]]:
    """The new file `path` of a reply that was cut in it, for a small model that lists something goes on and on: code up
    to where it began to repeat itself, if that can be read; of a list of patterns what was not said before."""
    body, _ = body_of(reply.text)
    place = begins_again(body)
    if place is not None and path.endswith(".py") and parses(body[:place]):
        return [(path, body[:place])]
    if not path.endswith("ignore"):
        return []
    whole = body.rstrip("\n").split("\n")[:-1]
    kept = [line for place, line in enumerate(whole) if not line.strip() or line not in whole[:place]]
    text = re.sub(r"(?:\s*#[^\n]*)*\s*\Z", "\n", re.sub(r"\n{3,}", "\n\n", "\n".join(kept)))
    return [(path, text.lstrip("\n"))] if text.strip() else []


def _added(reply: Reply, path: str, shown: str, prompt: Prompt) -> list[tuple[str, str]]:
    """The file `path` with definitions that the reply holds without saying where they belong; [] without any."""
    body, closed = body_of(reply.text) if shown else ("", True)
    content = _whole(body, shown, prompt) if body and (closed or reply.stop != "length") else body
    return [(path, content)] if content != body else []


def _mended(prompt: Prompt, reply: Reply) -> Reply:
    """The reply with the edits that put what it wrote in the place of the part that was shown."""
    body, closed = closest_body(reply.text, prompt.part)
    pieces = part_edits(prompt, body) if closed or reply.stop != "length" else []
    if not pieces:
        return reply.model_copy(update={"calls": ()})
    given = [{"path": prompt.target, "old": old, "new": after} for old, after in pieces]
    calls = tuple(
        Call(id=call_id(prompt, number), tool="edit", arguments=json.dumps(arguments, ensure_ascii=False))
        for number, arguments in enumerate(given)
    )
    return reply.model_copy(update={"text": "", "calls": calls, "stop": "calls"})


def _asked_for(prompt: Prompt, shown: Mapping[str, str]) -> str:
    """The one file that the reply is to be, "" where it may be others."""
    if prompt.target:
        return prompt.target
    code = code_among(shown)
    return code[0] if len(code) == 1 and not prompt.open_ended else ""


if TYPE_CHECKING:

    def _text_fits(agent: TextProtocol) -> Agent:
        return agent
