"""What MCP servers list and return, as fugu's own: names, schemas and results of tools.

Below mcp_servers.py. Pure functions of what a server sent; nothing here talks to one. The schema of
a tool's arguments is passed on as the server wrote it, but for what providers refuse.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fugu_cli.errors import UsageError
from fugu_cli.messages import Media
from fugu_cli.safety.policy.rule_matching import MCP
from fugu_cli.system.bounded_json import NestedTooDeeply, check_depth, parse_json
from fugu_cli.tools import media
from fugu_cli.tools.result import ToolResult, plain_text, truncate

if TYPE_CHECKING:
    from mcp_types import (
        BlobResourceContents,
        CallToolResult,
        ContentBlock,
        GetPromptResult,
        Prompt,
        TextResourceContents,
    )

LONGEST_NAME = 64
"""Characters of a tool's name that every provider takes."""
SCHEMA = 20_000
"""Characters of a schema; a tool with a larger one is offered without it."""
BRANCHES = ("anyOf", "oneOf", "allOf")
REFUSED = {*BRANCHES, "enum", "not"}
"""Words that may stand in a schema, but not at its top: Anthropic and OpenAI refuse any request
with such a tool.
"""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def usable_tools(listed: Sequence[object]) -> tuple[list[object], dict[str, str]]:
    """The tools of a list that can be used, with what is read of them, and why each of the others
    cannot be used.
    """
    found, faults = list[object](), dict[str, str]()
    for number, tool in enumerate(listed, start=1):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(name, str) or not name:
            faults[f"number {number}"] = "it has no name"
        elif fault := _schema_fault(tool.get("inputSchema")):
            faults[name] = f"its schema {fault}"
        else:
            found.append(_read_keys(tool))
    return found, faults


def readable_blocks(content: object) -> object:
    """The content of a result; a block that cannot be read, of a later kind perhaps, is named."""
    from mcp_types import ContentBlock
    from pydantic import TypeAdapter

    if not isinstance(content, list):
        return content or []
    found, kinds = list[object](), TypeAdapter[ContentBlock](ContentBlock)
    for block in content:
        try:
            kinds.validate_python(block)
        except ValueError:
            kind = block.get("type") if isinstance(block, dict) else None
            block = {
                "type": "text",
                "text": f"[{plain_text(str(kind or 'something'))[:40]}: not shown]",
            }
        found.append(block)
    return found


def _read_keys(tool: Mapping[str, object]) -> dict[str, object]:
    """What is read of a tool, so that nothing else can be a fault of it."""
    given, result, said = tool["inputSchema"], tool.get("outputSchema"), tool.get("description")
    assert isinstance(given, dict)
    read = {"name": tool["name"], "inputSchema": {"type": "object", **given}}
    read |= {"description": said} if isinstance(said, str) else {}
    return read | ({} if _schema_fault(result) else {"outputSchema": result})


def _schema_fault(schema: object) -> str:
    """What is wrong with the schema of an object, after its name; "" where nothing is."""
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import validator_for

    if not isinstance(schema, dict):
        return "is missing" if schema is None else "is not an object"
    try:
        check_depth(schema)
    except NestedTooDeeply as error:
        return f"cannot be used: {error}"
    if schema.get("type", "object") != "object":
        return f"is for {plain_text(json.dumps(schema['type']))[:60]} and not for an object"
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        spot = ".".join(str(part) for part in error.absolute_path)
        return plain_text(f"is none at {spot or 'its top'}: {error.message}")[:200]
    return ""


def tool_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """Our name -> the server's name: `mcp__SERVER__TOOL`, cut and told apart by a hash where it
    must be.
    """
    found: dict[str, str] = {}
    for tool in tools:
        name = f"{MCP}{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
        if len(name) > LONGEST_NAME or name in found:
            mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[
                :6
            ]
            name = f"{name[: LONGEST_NAME - 7]}_{mark}"
        found.setdefault(name, tool)
    return found


def arguments_schema(given: Mapping[str, object]) -> str:
    """The schema of an object with its properties, as JSON text; providers refuse one that says
    less, or that has several forms: the properties of them all are those of the object, and which
    go together the server says."""
    plain = {key: value for key, value in given.items() if key not in REFUSED}
    whole = {**plain, "type": "object", "properties": {**_of_branches(given), **_properties(given)}}
    text = json.dumps(whole, ensure_ascii=False)
    return text if len(text) <= SCHEMA else '{"type": "object", "properties": {}}'


def _properties(given: object) -> Mapping[str, object]:
    found = given.get("properties") if isinstance(given, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _of_branches(given: Mapping[str, object]) -> dict[str, object]:
    branches = [
        branch
        for word in BRANCHES
        if isinstance(found := given.get(word), list)
        for branch in found
    ]
    return {
        name: value for branch in reversed(branches) for name, value in _properties(branch).items()
    }


def result_of_reply(given: CallToolResult, masked: Callable[[str], str]) -> ToolResult:
    """What a call returned, as text of a size that a prompt can bear; `masked` before it is cut.
    Structured content is shown where no text says the same; under the one key `result` servers
    repeat their text."""
    text, pictures = _told(given.content)
    structured = given.structured_content
    said = [block.text for block in given.content if block.type == "text"]
    wrapped = bool(said) and isinstance(structured, dict) and list(structured) == ["result"]
    if (
        structured is not None
        and not wrapped
        and not any(_parsed(one) == structured for one in said)
    ):
        text = f"{text}\n{json.dumps(structured, ensure_ascii=False, indent=1)}"
    return _result(text, pictures, masked, ok=not given.is_error)


def result_of_contents(
    given: Sequence[TextResourceContents | BlobResourceContents], masked: Callable[[str], str]
) -> ToolResult:
    """What a resource holds."""
    lines, found = list[str](), list[Media]()
    for number, one in enumerate(given, start=1):
        if isinstance(text := getattr(one, "text", None), str):
            lines.append(text)
        else:
            line, pictures = _picture(
                getattr(one, "blob", ""), number, one.mime_type or "", str(one.uri)
            )
            lines.append(line)
            found += pictures
    return _result("\n".join(lines), tuple(found), masked, ok=True)


def _result(
    text: str, pictures: tuple[Media, ...], masked: Callable[[str], str], *, ok: bool
) -> ToolResult:
    shown = plain_text(truncate(masked(text.strip()))).strip()
    said = shown or ("(no output)" if ok else "It failed and said nothing.")
    return ToolResult(text=said, ok=ok, media=pictures)


def _parsed(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return None


def _picture(data: str, number: int, kind: str, what: str) -> tuple[str, tuple[Media, ...]]:
    """A picture with its line; of what is none only a line."""
    if not kind.startswith("image/"):
        return f"[{what}, {kind or 'binary'}, {len(data) * 3 // 4:,} bytes: not shown]", ()
    try:
        found = media.take_base64(data, f"image {number}", kind)
    except media.NotTaken as error:
        return f"[{error}]", ()
    return f"[{found.described}]", (found,)


@dataclass(frozen=True)
class PromptUsage:
    """A prompt of a server. `arguments` by name, and whether each is needed."""

    name: str
    about: str
    arguments: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, given: Prompt) -> PromptUsage:
        """As the server lists it."""
        named = tuple((one.name, bool(one.required)) for one in given.arguments or ())
        return cls(given.name, plain_text(given.description or given.title or ""), named)

    @property
    def hint(self) -> str:
        """`CITY [DAYS]`."""
        return " ".join(
            name.upper() if needed else f"[{name.upper()}]" for name, needed in self.arguments
        )

    def arguments_of(self, words: Sequence[str]) -> dict[str, str]:
        """The words as arguments, in their order; the last one takes the rest. Raises UsageError
        where one is missing or too many are there."""
        names = [name for name, _ in self.arguments]
        if len(words) > len(names) > 0:
            words = [*words[: len(names) - 1], " ".join(words[len(names) - 1 :])]
        needed = sum(need for _, need in self.arguments)
        if len(words) > len(names) or len(words) < needed:
            takes = f"it takes: {self.hint}" if names else "it takes no arguments"
            raise UsageError(f"the prompt {self.name} got {len(words)} arguments", hint=takes)
        return dict(zip(names, words, strict=False))


@dataclass(frozen=True)
class FilledPrompt:
    """A prompt as a request."""

    text: str
    media: tuple[Media, ...] = ()


def prompt_text(given: GetPromptResult) -> FilledPrompt:
    """Its messages one after the other; those of several speakers say who speaks. Raises UsageError
    for no text.
    """
    roles = {message.role for message in given.messages}
    parts, found = list[str](), list[Media]()
    for message in given.messages:
        text, pictures = _told([message.content])
        parts.append(f"{message.role}: {text}" if len(roles) > 1 else text)
        found += pictures
    whole = plain_text("\n\n".join(part for part in parts if part.strip())).strip()
    if not whole:
        raise UsageError("the prompt is empty", hint="write the request yourself")
    return FilledPrompt(whole, tuple(found))


def _told(blocks: Sequence[ContentBlock]) -> tuple[str, tuple[Media, ...]]:
    """The text of a result, in which each picture has a line, and its pictures."""
    lines, found = list[str](), list[Media]()
    for number, block in enumerate(blocks, start=1):
        if block.type == "image":
            line, pictures = _picture(block.data, number, block.mime_type, "image")
            found += pictures
        else:
            line = _block(block)
        lines.append(line)
    return "\n".join(lines), tuple(found)


def _block(block: ContentBlock) -> str:
    """Agents read text and see pictures; of everything else they are told that it is there."""
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return (
                f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4:,} bytes: not shown]"
            )
        case "resource_link":
            return f"[resource {block.uri}]"
        case "resource":
            text = getattr(block.resource, "text", None)
            return (
                text
                if isinstance(text, str)
                else f"[resource {block.resource.uri}: not text, not shown]"
            )
