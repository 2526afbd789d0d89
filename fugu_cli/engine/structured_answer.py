"""An answer that must follow a JSON schema of the user's: whether it does, what an agent is told
whose answer does not, and how the request then ends. Pure. `jsonschema` is imported where a schema
is used, and nowhere else.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from fugu_cli.session.events import Finished
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn
from fugu_cli.system.bounded_json import parse_json, refuse_constant

if TYPE_CHECKING:
    from referencing import Resource
    from referencing._core import Resolver

CORRECTION = (
    "[Your last message does not follow the JSON schema of the request: {fault}. Say it again: "
    "the JSON alone, without"
    " a word before or behind it.]"
)
FENCE = re.compile(r"```\w*\s*\n(.*)\n\s*```", re.DOTALL)
MOST_DEPTH = "it is nested too deep"


def schema_fault(schema: object) -> str:
    """Return the reason why a JSON schema cannot be used to check answers, "" if it can."""
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry, Resource
    from referencing.jsonschema import DRAFT202012, specification_with

    if not isinstance(schema, dict):
        return "a schema is a JSON object"
    if not isinstance(dialect := schema.get("$schema", ""), str):
        return "$schema is not a text"
    try:
        validator_for(schema).check_schema(schema)
        resource = Resource.from_contents(schema, specification_with(dialect, DRAFT202012))
        lost = _lost_reference(resource, Registry().resolver_with_root(resource))
    except SchemaError as error:
        return f"{_place(error.absolute_path)}{error.message}"
    except RecursionError:
        return MOST_DEPTH
    return f"it refers to what is not in it: {lost}" if lost else ""


def _lost_reference(resource: Resource[Any], resolver: Resolver[Any]) -> str:
    """Return the first reference in a schema, or in a schema inside it, that leads to nothing in
    it; "" if there is none.
    """
    from referencing.exceptions import Unresolvable

    contents = resource.contents if isinstance(resource.contents, dict) else {}
    for target in (contents[key] for key in ("$ref", "$dynamicRef") if key in contents):
        try:
            resolver.lookup(target)
        except Unresolvable:
            return str(target)
    inside = (
        _lost_reference(inner, resolver.in_subresource(inner)) for inner in resource.subresources()
    )
    return next((lost for lost in inside if lost), "")


def answer_value(text: str) -> Any:
    """Return the JSON value of a text, alone or in one fence. Raises ValueError."""
    fenced = FENCE.fullmatch(text.strip())
    return parse_json(fenced[1] if fenced else text, parse_constant=refuse_constant)


@lru_cache(maxsize=64)
def answer_fault(schema: str, text: str) -> str:
    """Return why the text does not follow the schema; "" where it does."""
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    contents = parse_json(schema)
    try:
        value = answer_value(text)
        validator = validator_for(contents)(
            contents, registry=Registry()
        )  # an empty one: nothing is fetched
        error = next(iter(validator.iter_errors(value)), None)
    except ValueError as error_in_text:
        return f"it is not JSON ({error_in_text})"
    except Unresolvable as unknown:
        return f"the schema refers to what is not in it: {unknown}"
    except RecursionError:  # a schema that refers to itself
        return MOST_DEPTH
    return f"{_place(error.absolute_path)}{error.message[:300]}" if error is not None else ""


def _place(path: Sequence[object]) -> str:
    return f"{'.'.join(map(str, path))}: " if path else ""


def wanted_schema(request: RequestState, turn: Turn) -> str:
    """Return the schema that the turn's last words must follow, "" if there is none. A workflow's
    steps answer no user.
    """
    answers = turn.assigned.role == "worker" and not turn.assigned.plan
    return request.asked.answer_schema if request.asked is not None and answers else ""


def correction(turn: Turn, schema: str) -> str:
    """Return the correction that an agent must make to its final text, "" if that follows the
    schema. It is asked for once a turn.
    """
    last = next((reply for reply in turn.replies if not reply.calls), None)
    fault = answer_fault(schema, last.text) if schema and last is not None else ""
    return CORRECTION.format(fault=fault) if fault else ""


def correction_due(state: SessionState, turn: Turn) -> bool:
    """Return whether the agent's newest words are its last and must be said again."""
    if turn.replies[-1].calls or sum(not reply.calls for reply in turn.replies) > 1:
        return False
    return bool(correction(turn, wanted_schema(state.request, turn)))


def request_end(state: SessionState, end: Finished) -> Finished:
    """Return the request's end: unaccepted if the answer does not follow the schema."""
    request = state.request.asked
    if request is None or not request.answer_schema or end.reason not in ("accepted", "answered"):
        return end
    fault = answer_fault(request.answer_schema, state.request.answer)
    message = f"the answer does not follow the JSON schema: {fault}"
    return Finished(reason="unaccepted", message=message) if fault else end
