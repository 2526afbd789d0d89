"""What an MCP server asks the user in the middle of a call (elicitation), as lines that the user
types.

Below mcp_servers.py. A form is asked field by field; an address is shown, and opened by the user.
Knows no screen: an interface gives what asks for one line.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from fugu_cli.tools.result import plain_text

if TYPE_CHECKING:
    from mcp_types import ElicitRequestParams, ElicitResult

AskLine = Callable[[str], Awaitable[str | None]]
"""Asks for a line under a heading. None where nobody can answer, "" for nothing typed."""
TRIES = 3
"""How often a field is asked for that gets no value of its kind."""
YES = {"y": True, "yes": True, "true": True, "n": False, "no": False, "false": False}
FieldValue = str | int | float | bool | list[str] | None


async def nobody(heading: str) -> str | None:
    """Nobody can answer here."""
    del heading
    return None


async def answer_of_user(server: str, params: ElicitRequestParams, ask: AskLine) -> ElicitResult:
    """What the user answers. Nothing typed, where something is needed, declines."""
    from mcp_types import ElicitResult

    said = plain_text(f"{server} asks: {params.message}").strip()
    if params.mode == "url":
        return await _confirmed(
            f"{said} Open {plain_text(params.url)} and type y once it is done, or n", ask
        )
    fields = params.requested_schema.get("properties")
    if not isinstance(fields, Mapping) or not fields:
        return await _confirmed(f"{said} (y or n)", ask)
    needed = params.requested_schema.get("required")
    content: dict[str, FieldValue] = {}
    for name, given in fields.items():
        field = given if isinstance(given, Mapping) else {}
        required = isinstance(needed, list) and name in needed
        typed, value = await _asked(f"{said} {_heading(name, field, required)}", field, ask)
        if typed is None:
            return ElicitResult(action="cancel")
        if value is None and required:
            return ElicitResult(action="decline")
        if value is not None:
            content[name] = value
    return ElicitResult(action="accept", content=content)


async def _confirmed(heading: str, ask: AskLine) -> ElicitResult:
    from mcp_types import ElicitResult

    typed = await ask(heading)
    if typed is None:
        return ElicitResult(action="cancel")
    if not YES.get(typed.strip().lower()):
        return ElicitResult(action="decline")
    return ElicitResult(action="accept", content={})


async def _asked(
    heading: str, field: Mapping[str, Any], ask: AskLine
) -> tuple[str | None, FieldValue]:
    """What was typed, and its value: the default where nothing was typed, None without one or after
    bad values.
    """
    fault = ""
    for _ in range(TRIES):
        typed = await ask(f"{heading}{fault}")
        if typed is None or not typed.strip():
            return typed, field.get("default")
        try:
            return typed, _value(typed.strip(), field)
        except ValueError as error:
            fault = f" [{error}]"
    return "", None


def _heading(name: str, field: Mapping[str, Any], required: bool) -> str:
    """`Colour: of the car (red, blue; nothing: red)`."""
    title, about = (
        plain_text(str(field.get("title") or name)),
        plain_text(str(field.get("description") or "")),
    )
    kind = ", ".join(_choices(field)) or {
        "boolean": "y or n",
        "integer": "a whole number",
        "number": "a number",
    }.get(str(field.get("type")), "")
    default = field.get("default")
    nothing = (
        f"nothing: {default}" if default is not None else "" if required else "may be left out"
    )
    hints = "; ".join(part for part in (kind, nothing) if part)
    return (
        f"{title}{f': {about}' if about and about != title else ''}{f' ({hints})' if hints else ''}"
    )


def _choices(field: Mapping[str, Any]) -> list[str]:
    """The values that a field takes; none where it takes any."""
    items = field.get("items")
    field = items if isinstance(items, Mapping) else field
    listed = field.get("enum") or [
        one.get("const")
        for one in field.get("oneOf") or field.get("anyOf") or ()
        if isinstance(one, Mapping)
    ]
    return [str(one) for one in listed if one is not None]


def _value(typed: str, field: Mapping[str, Any]) -> FieldValue:
    """Raises ValueError with what is wanted."""
    choices = _choices(field)
    match field.get("type"):
        case "boolean":
            if typed.lower() not in YES:
                raise ValueError("type y or n")
            return YES[typed.lower()]
        case "integer" | "number" as kind:
            return _number(typed, whole=kind == "integer")
        case "array":
            found = [word.strip() for word in typed.split(",") if word.strip()]
            if choices and not set(found) <= set(choices):
                raise ValueError(f"separated by commas, of: {', '.join(choices)}")
            return list(found)
        case _:
            if choices and typed not in choices:
                raise ValueError(f"one of: {', '.join(choices)}")
            return typed


def _number(typed: str, *, whole: bool) -> int | float:
    try:
        number = int(typed) if whole else float(typed)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"type a {'whole ' if whole else ''}number")
    return number
