"""Questions of an MCP server to the user in the middle of a call (elicitation), answered by typed
lines.

A form is asked field by field; an address is shown, and opened by the user. Knows no screen: an
interface provides the function that asks for one line.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fugu_cli.tools.result import plain_text

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

AskLine = Callable[[str], Awaitable[str | None]]
"""Ask for a line under a heading. Return None if nobody can answer, "" if nothing was typed."""
TRIES = 3
"""Attempts to get a valid value of a field."""
YES = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
FieldValue = str | int | float | bool | list[str] | None


async def nobody(heading: str) -> str | None:
    """Return None, for interfaces without a user."""
    del heading
    return None


async def answer_of_user(server: str, params: ElicitRequestParams, ask: AskLine) -> ElicitResult:
    """Ask the user, and return the answer. An empty line for a required field declines."""
    from mcp_types import ElicitResult

    question = plain_text(f"{server} asks: {params.message}").strip()
    if params.mode == "url":
        url = plain_text(params.url)
        return await _confirm(f"{question} Open {url} and type y once it is done, or n", ask)
    fields = params.requested_schema.get("properties")
    if not isinstance(fields, Mapping) or not fields:
        return await _confirm(f"{question} (y or n)", ask)
    required_names = params.requested_schema.get("required")
    content: dict[str, FieldValue] = {}
    for name, schema in fields.items():
        field = schema if isinstance(schema, Mapping) else {}
        required = isinstance(required_names, list) and name in required_names
        heading = f"{question} {_heading(name, field, required)}"
        typed, value = await _ask_field(heading, field, ask)
        if typed is None:
            return ElicitResult(action="cancel")
        if value is None and required:
            return ElicitResult(action="decline")
        if value is not None:
            content[name] = value
    return ElicitResult(action="accept", content=content)


async def _confirm(heading: str, ask: AskLine) -> ElicitResult:
    from mcp_types import ElicitResult

    typed = await ask(heading)
    if typed is None:
        return ElicitResult(action="cancel")
    if not YES.get(typed.strip().lower()):
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content={})


async def _ask_field(
    heading: str, field: Mapping[str, Any], ask: AskLine
) -> tuple[str | None, FieldValue]:
    """Return the typed text and its value.

    The value is the default if nothing was typed, and None without a default or after invalid
    values.
    """
    fault = ""
    for _ in range(TRIES):
        typed = await ask(f"{heading}{fault}")
        if typed is None or not typed.strip():
            return typed, field.get("default")
        try:
            return typed, _parse_value(typed.strip(), field)
        except ValueError as error:
            fault = f" [{error}]"
    return "", None


def _heading(name: str, field: Mapping[str, Any], required: bool) -> str:
    """Return a heading such as `Colour: of the car (red, blue; nothing: red)`."""
    type_hints = {"boolean": "y or n", "integer": "a whole number", "number": "a number"}
    values = ", ".join(_choices(field)) or type_hints.get(str(field.get("type")), "")
    if field.get("default") is not None:
        empty = f"nothing: {field['default']}"
    else:
        empty = "" if required else "may be left out"
    heading = title = plain_text(str(field.get("title") or name))
    description = plain_text(str(field.get("description") or ""))
    if description and description != title:
        heading += f": {description}"
    hints = [hint for hint in (values, empty) if hint]
    if hints:
        heading += f" ({'; '.join(hints)})"
    return heading


def _choices(field: Mapping[str, Any]) -> list[str]:
    """Return the values that a field accepts, [] if it accepts any."""
    items = field.get("items")
    if isinstance(items, Mapping):
        field = items
    values = field.get("enum")
    if not values:
        alternatives = field.get("oneOf") or field.get("anyOf") or ()
        values = [part.get("const") for part in alternatives if isinstance(part, Mapping)]
    return [str(value) for value in values if value is not None]


def _parse_value(typed: str, field: Mapping[str, Any]) -> FieldValue:
    """Parse the value of a field. Raises ValueError that says what is expected."""
    choices = _choices(field)
    match field.get("type"):
        case "boolean":
            if typed.lower() not in YES:
                raise ValueError("type y or n")
            return YES[typed.lower()]
        case "integer" | "number" as number_type:
            whole = number_type == "integer"
            try:
                number = int(typed) if whole else float(typed)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise ValueError(f"type a {'whole ' if whole else ''}number")
            return number
        case "array":
            values = [word.strip() for word in typed.split(",") if word.strip()]
            if choices and not set(values) <= set(choices):
                raise ValueError(f"separated by commas, of: {', '.join(choices)}")
            return list(values)
        case _:
            if choices and typed not in choices:
                raise ValueError(f"one of: {', '.join(choices)}")
            return typed
