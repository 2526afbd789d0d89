"""A server's tools as fugu's own: their names, what agents are told of them, and their results as text.

Under connection.py. The schema of a tool's arguments is passed through as the server wrote it, but for what providers
refuse; the server checks what it is given. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from fugu_cli.policy.patterns import MCP
from fugu_cli.tools.clip import clip, plain
from fugu_cli.tools.result import Result

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

LONGEST_NAME = 64
"""Characters of a tool's name that every provider takes."""
DESCRIPTION = 2000
"""Characters of a tool's description that agents are told."""
MOST = 64
"""Tools of one server that are offered: each costs tokens in every request."""
SCHEMA = 20_000
"""Characters of a schema; a tool with a larger one is offered without it."""
BRANCHES = ("anyOf", "oneOf", "allOf")
REFUSED = {*BRANCHES, "enum", "not"}
"""Words that may stand in a schema, but not at its top: Anthropic and OpenAI refuse any request with such a tool."""
_OTHER = re.compile(r"[^A-Za-z0-9_-]")


def named(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """Our name -> the server's name: `mcp__SERVER__TOOL`, cut and told apart by a hash where it must be."""
    found: dict[str, str] = {}
    for tool in tools:
        name = f"{MCP}{_OTHER.sub('_', server)}__{_OTHER.sub('_', tool)}"
        if len(name) > LONGEST_NAME or name in found:
            mark = hashlib.sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:6]
            name = f"{name[: LONGEST_NAME - 7]}_{mark}"
        found.setdefault(name, tool)
    return found


def schema(given: Mapping[str, object]) -> str:
    """The schema of an object with its properties, as JSON text; providers refuse one that says less, or that has
    several forms: the properties of them all are those of the object, and which go together the server says."""
    plain = {key: value for key, value in given.items() if key not in REFUSED}
    whole = {**plain, "type": "object", "properties": {**_of_branches(given), **_properties(given)}}
    text = json.dumps(whole, ensure_ascii=False)
    return text if len(text) <= SCHEMA else '{"type": "object", "properties": {}}'


def _properties(given: object) -> Mapping[str, object]:
    found = given.get("properties") if isinstance(given, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _of_branches(given: Mapping[str, object]) -> dict[str, object]:
    branches = [branch for word in BRANCHES if isinstance(found := given.get(word), list) for branch in found]
    return {name: value for branch in reversed(branches) for name, value in _properties(branch).items()}


def result(given: CallToolResult, masked: Callable[[str], str]) -> Result:
    """What a call returned, as text of a size that a prompt can bear; `masked` before it is cut."""
    text = _text(given.content)
    if not text and given.structured_content is not None:
        text = json.dumps(given.structured_content, ensure_ascii=False, indent=1)
    ok = not given.is_error
    shown = plain(clip(masked(text.strip()))).strip()
    return Result(text=shown or ("(no output)" if ok else "It failed and said nothing."), ok=ok)


def _text(blocks: Sequence[ContentBlock]) -> str:
    return "\n".join(_block(block) for block in blocks)


def _block(block: ContentBlock) -> str:
    """Agents read text; of everything else they are told that it is there."""
    match block.type:
        case "text":
            return block.text
        case "image" | "audio":
            return f"[{block.type}, {block.mime_type}, {len(block.data) * 3 // 4:,} bytes: not shown]"
        case "resource_link":
            return f"[resource {block.uri}]"
        case "resource":
            text = getattr(block.resource, "text", None)
            return text if isinstance(text, str) else f"[resource {block.resource.uri}: not text, not shown]"
