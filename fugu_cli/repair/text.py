"""The `text` protocol: whole files and SEARCH/REPLACE blocks in plain text become calls. For models that only write.

Stands around any agent. One plain call; a fenced block that belongs to a file is a `write` of that file; a block
between SEARCH and REPLACE marks is an `edit`. Everything else is words: shell blocks are never run. Only tools that
were offered are called, so a Verifier's sample of code stays one. It must not know what the tools do with it.

How it asks was measured on the embedded models: the less a small model is told, the better it writes. Where one file
besides tests is shown, it is asked for by name, without a word about formats; where they are long, for edits.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fugu_cli import prompts
from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.agents.history import arguments_object, call_id, flat
from fugu_cli.code_blocks import body_of, fenced, parses
from fugu_cli.messages import Call, FromAgent, FromUser, Message, Prompt, Reply
from fugu_cli.repair import intent
from fugu_cli.repair.defining import bare
from fugu_cli.repair.enough import kept
from fugu_cli.repair.filling import filled
from fugu_cli.repair.merging import completed
from fugu_cli.repair.parts import in_place, meant
from fugu_cli.repair.repeating import begins as begins_again
from fugu_cli.repair.schema import parts
from fugu_cli.repair.trying_out import asked_only, begins
from fugu_cli.repair.written import Written, as_shown, parse, room, shown_files
from fugu_cli.test_paths import code_among

LONG = 8000
"""Characters of all code shown from which files are not asked for whole: some 2,500 tokens, minutes of writing."""

_HEADER = re.compile(r"\A[^\w\n]*(?:The|Of the) file `[^`\n]+`:?[^\w\n]*\n")
"""What stands above a file in the brief, handed back in it as a comment."""

_LANGUAGES = {"py": "python", "pyi": "python", "js": "javascript", "ts": "typescript", "rs": "rust"}


class Text:
    """`agent`, with tools by plain text. `text` is prompts/protocols/text.md: eight parts of what the model is told."""

    def __init__(self, agent: Agent, text: str) -> None:
        self._agent = agent
        self._one, *self._files, self._part, self._new_one, self._new_files = parts(text, 8)

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """The reply with a call for each file and edit in it. A file cut short by the token limit is no call."""
        offered = {tool.name for tool in prompt.tools}
        if prompt.gap is not None:
            plain = prompt.model_copy(update={"tools": ()})
            return filled(prompt, await self._agent.reply(plain, say, wait))
        shown = shown_files(prompt)
        asked_with = self._asked(prompt, shown)
        reply = _to_its_end(asked_with, _from_its_beginning(asked_with, await self._agent.reply(asked_with, say, wait)))
        if prompt.unwritten and prompt.unwritten in reply.text:
            return reply.model_copy(update={"calls": ()})
        if prompt.part and "edit" in offered:
            return _mended(prompt, reply)
        asked = _asked_for(prompt, shown)
        written = self._meant(parse(reply.text, shown=shown, asked=asked, whole=reply.stop != "length"), prompt)
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

    def _meant(self, written: Written, prompt: Prompt) -> Written:
        """Without the example that the model was given, where it hands that back: nobody spoke of such a file."""
        said = "\n".join(message.text for message in prompt.messages if isinstance(message, FromUser))
        given = [parse(text) for text in self._files]
        files = {one for each in given for one in each.files if one[0] not in said}
        edits = {one for each in given for one in each.edits if one.path not in said}
        return replace(
            written,
            files=tuple(one for one in written.files if one not in files),
            edits=tuple(one for one in written.edits if one not in edits),
        )

    def _asked(self, prompt: Prompt, shown: Mapping[str, str]) -> Prompt:
        messages = flat(prompt.messages, self._shown)
        system = prompt.system
        offered = {tool.name for tool in prompt.tools}
        tokens, stop, stands = prompt.max_tokens, prompt.stop, ""
        if offered & {"write", "edit"}:
            path = _asked_for(prompt, shown)
            before, ask = self._words(prompt, shown, path)
            old = [shown[file] for file in ([path] if path else code_among(shown)) if file in shown]
            tokens = room(tokens, *old) if old else tokens
            system = f"{system}\n\n{before}".strip()
            last = messages[-1]
            assert isinstance(last, FromUser)
            messages = (*messages[:-1], FromUser(text=f"{last.text}\n\n{ask}"))
            if prompt.judged and path in shown and not stop:
                stop = begins(path, "\n".join(shown.values()), last.text)
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
    """The reply with what it began with, unless it has begun anew."""
    if not prompt.begun or reply.text.lstrip().startswith("```"):
        return reply
    return reply.model_copy(update={"text": prompt.begun + reply.text})


def _to_its_end(prompt: Prompt, reply: Reply) -> Reply:
    """The reply without what its code goes on with behind what was asked for; it is whole, even if it was cut there."""
    text = kept(prompt, reply.text)
    return reply if text == reply.text else reply.model_copy(update={"text": text, "stop": "end"})


def _whole(content: str, shown: str, prompt: Prompt) -> str:
    """The file that is meant: what the model only left out stays, unless the request may be about that."""
    said = "\n".join(message.text for message in prompt.messages if isinstance(message, FromUser))
    content = content if _HEADER.match(shown) else _HEADER.sub("", content, count=1)
    asked = asked_only(shown, content, said) if shown and prompt.judged else content
    kept = asked if not shown or intent.takes_away(parse(said).words) else completed(shown, asked)
    return as_shown(kept, shown)


def _alone(reply: Reply, path: str, shown: Mapping[str, str], prompt: Prompt) -> list[tuple[str, str]]:
    """The file `path` where the reply is that file and nothing else, without a fence."""
    body = bare(reply.text, path, shown) if reply.stop != "length" else ""
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
    body, closed = meant(reply.text, prompt.part)
    pieces = in_place(prompt, body) if closed or reply.stop != "length" else []
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

    def _fits(agent: Text) -> Agent:
        return agent
