"""Converts what MCP servers list and return: names and schemas of tools, results, prompts.

Below mcp_servers.py. Pure functions; nothing here talks to a server. A tool's schema is passed on
as the server wrote it, except for what providers refuse.
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
from fugu_cli.session.tool_facts import MCP
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
"""The most characters of a tool name that every provider accepts."""
SCHEMA = 20_000
"""The most characters of a schema. A tool with a larger one is offered without a schema."""
BRANCHES = ("anyOf", "oneOf", "allOf")
REFUSED = {*BRANCHES, "enum", "not"}
"""Keys that must not stand at the top of a schema: Anthropic and OpenAI refuse the request."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def usable_tools(listed: Sequence[object]) -> tuple[list[object], dict[str, str]]:
    """Return the usable tools, reduced to the keys that are read, and the faults of the others."""
    tools: list[object] = []
    faults: dict[str, str] = {}
    for number, tool in enumerate(listed, start=1):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not isinstance(tool, dict) or not isinstance(name, str) or not name:
            faults[f"number {number}"] = "it has no name"
        elif fault := _schema_fault(tool.get("inputSchema")):
            faults[name] = f"its schema {fault}"
        else:
            tools.append(_read_keys(tool))
    return tools, faults


def readable_blocks(content: object) -> object:
    """Return the content of a result, with a line of text in place of each unreadable block."""
    from mcp_types import ContentBlock
    from pydantic import TypeAdapter

    if not isinstance(content, list):
        return content or []
    blocks: list[object] = []
    block_types = TypeAdapter[ContentBlock](ContentBlock)
    for block in content:
        try:
            block_types.validate_python(block)
        except ValueError:
            block_type = block.get("type") if isinstance(block, dict) else None
            name = plain_text(str(block_type or "something"))[:40]
            blocks.append({"type": "text", "text": f"[{name}: not shown]"})
        else:
            blocks.append(block)
    return blocks


def _read_keys(tool: Mapping[str, object]) -> dict[str, object]:
    """Return only the keys that fugu reads, so that no other key can make the tool invalid."""
    input_schema = tool["inputSchema"]
    assert isinstance(input_schema, dict)
    keys = {"name": tool["name"], "inputSchema": {"type": "object", **input_schema}}
    if isinstance(tool.get("description"), str):
        keys["description"] = tool["description"]
    output_schema = tool.get("outputSchema")
    if not _schema_fault(output_schema):
        keys["outputSchema"] = output_schema
    annotations = tool.get("annotations")
    if isinstance(annotations, dict) and annotations.get("readOnlyHint") is True:
        keys["annotations"] = {"readOnlyHint": True}
    return keys


def _schema_fault(schema: object) -> str:
    """Return what is wrong with the schema of an object, "" if nothing is."""
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
        path = ".".join(str(part) for part in error.absolute_path)
        return plain_text(f"is none at {path or 'its top'}: {error.message}")[:200]
    return ""


def tool_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """Map fugu's tool names to the server's: `mcp__SERVER__TOOL`, with a hash where it is too long
    or taken.
    """
    names: dict[str, str] = {}
    for tool in tools:
        name = f"{MCP}{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
        if len(name) > LONGEST_NAME or name in names:
            digest = hashlib.sha256(
                f"{server}\0{tool}".encode("utf-8", "surrogatepass")
            ).hexdigest()[:6]
            name = f"{name[: LONGEST_NAME - 7]}_{digest}"
        names.setdefault(name, tool)
    return names


def arguments_schema(schema: Mapping[str, object]) -> str:
    """Return the schema of a tool's arguments as JSON that all providers accept.

    Providers refuse a schema that is not a plain object or that has alternatives at its top. The
    properties of all alternatives become optional properties; the server checks which go together.
    """
    plain = {key: value for key, value in schema.items() if key not in REFUSED}
    properties = {**_properties_of_branches(schema), **_properties(schema)}
    text = json.dumps({**plain, "type": "object", "properties": properties}, ensure_ascii=False)
    return text if len(text) <= SCHEMA else '{"type": "object", "properties": {}}'


def _properties(schema: object) -> Mapping[str, object]:
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    return properties if isinstance(properties, Mapping) else {}


def _properties_of_branches(schema: Mapping[str, object]) -> dict[str, object]:
    """Merge the properties of all alternatives. The first alternative wins."""
    properties: dict[str, object] = {}
    for keyword in BRANCHES:
        branches = schema.get(keyword)
        if not isinstance(branches, list):
            continue
        for branch in branches:
            for name, value in _properties(branch).items():
                properties.setdefault(name, value)
    return properties


def result_of_reply(reply: CallToolResult, masked: Callable[[str], str]) -> ToolResult:
    """Return the result of a call, masked by `masked` and cut to a size that fits a prompt.

    Structured content is added unless a text block already says the same. Many servers repeat their
    text under the single key `result`.
    """
    text, pictures = _text_and_pictures(reply.content)
    structured = reply.structured_content
    texts = [block.text for block in reply.content if block.type == "text"]
    repeats_text = bool(texts) and isinstance(structured, dict) and list(structured) == ["result"]
    is_new = all(_parse_or_none(block_text) != structured for block_text in texts)
    if structured is not None and not repeats_text and is_new:
        text = f"{text}\n{json.dumps(structured, ensure_ascii=False, indent=1)}"
    return _tool_result(text, pictures, masked, ok=not reply.is_error)


def result_of_contents(
    contents: Sequence[TextResourceContents | BlobResourceContents], masked: Callable[[str], str]
) -> ToolResult:
    """Return the contents of a resource as a tool result."""
    lines: list[str] = []
    pictures: list[Media] = []
    for number, content in enumerate(contents, start=1):
        text = getattr(content, "text", None)
        if isinstance(text, str):
            lines.append(text)
            continue
        line, picture = _picture(
            getattr(content, "blob", ""), number, content.mime_type or "", str(content.uri)
        )
        lines.append(line)
        pictures += picture
    return _tool_result("\n".join(lines), tuple(pictures), masked, ok=True)


def _tool_result(
    text: str, pictures: tuple[Media, ...], masked: Callable[[str], str], *, ok: bool
) -> ToolResult:
    shown = plain_text(truncate(masked(text.strip()))).strip()
    if not shown:
        shown = "(no output)" if ok else "It failed and said nothing."
    return ToolResult(text=shown, ok=ok, media=pictures)


def _parse_or_none(text: str) -> object:
    try:
        return parse_json(text)
    except ValueError:
        return None


def _picture(data: str, number: int, mime_type: str, source: str) -> tuple[str, tuple[Media, ...]]:
    """Return a line of text and the picture; only the line if it is not a picture."""
    if not mime_type.startswith("image/"):
        return f"[{source}, {mime_type or 'binary'}, {len(data) * 3 // 4:,} bytes: not shown]", ()
    try:
        picture = media.take_base64(data, f"image {number}", mime_type)
    except media.NotTaken as error:
        return f"[{error}]", ()
    return f"[{picture.described}]", (picture,)


@dataclass(frozen=True)
class PromptUsage:
    """A prompt of a server. `arguments` are names, each with whether it is required."""

    name: str
    about: str
    arguments: tuple[tuple[str, bool], ...]

    @classmethod
    def of(cls, prompt: Prompt) -> PromptUsage:
        """Convert a prompt as the server lists it."""
        arguments = tuple((each.name, bool(each.required)) for each in prompt.arguments or ())
        return cls(prompt.name, plain_text(prompt.description or prompt.title or ""), arguments)

    @property
    def hint(self) -> str:
        """The arguments as in `CITY [DAYS]`."""
        return " ".join(
            name.upper() if needed else f"[{name.upper()}]" for name, needed in self.arguments
        )

    def arguments_of(self, words: Sequence[str]) -> dict[str, str]:
        """Assign the words to the arguments in order; the last one takes the rest.

        Raises UsageError for missing or extra words.
        """
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
    """A prompt filled in by the server, used as a request."""

    text: str
    media: tuple[Media, ...] = ()


def prompt_text(prompt: GetPromptResult) -> FilledPrompt:
    """Join the messages into a request, with roles if there are several. Raises UsageError if it is
    empty.
    """
    roles = {message.role for message in prompt.messages}
    parts: list[str] = []
    all_pictures: list[Media] = []
    for message in prompt.messages:
        text, pictures = _text_and_pictures([message.content])
        parts.append(f"{message.role}: {text}" if len(roles) > 1 else text)
        all_pictures += pictures
    request = plain_text("\n\n".join(part for part in parts if part.strip())).strip()
    if not request:
        raise UsageError("the prompt is empty", hint="write the request yourself")
    return FilledPrompt(request, tuple(all_pictures))


def _text_and_pictures(blocks: Sequence[ContentBlock]) -> tuple[str, tuple[Media, ...]]:
    """Return the text of the blocks, with a line for each picture, and the pictures."""
    lines: list[str] = []
    all_pictures: list[Media] = []
    for number, block in enumerate(blocks, start=1):
        if block.type == "image":
            line, pictures = _picture(block.data, number, block.mime_type, "image")
            lines.append(line)
            all_pictures += pictures
        else:
            lines.append(_text_of_block(block))
    return "\n".join(lines), tuple(all_pictures)


def _text_of_block(block: ContentBlock) -> str:
    """Return the text of a block. Agents see text and pictures; other blocks are only named."""
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
