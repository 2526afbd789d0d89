"""The tools at hand by name: their descriptions for agents, and a call's text parsed into
arguments.

Between the loop and the tools. A call that cannot be understood is answered with what is wrong and
the form expected.
"""

from __future__ import annotations

import difflib
import json
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from fugu_cli import prompts
from fugu_cli.messages import Call, ToolSpec
from fugu_cli.session import tool_facts
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of
from fugu_cli.session.events import TestReport
from fugu_cli.session.tool_facts import ToolFacts
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.workspace import RawArguments, Tool, Workspace

AnyTool = Tool[Any]
HIDDEN_SCHEMA_KEYS = frozenset({"title", "minLength", "maxLength", "minimum", "maxItems"})
"""Words of a schema that are kept from agents: names of ours, and limits that nobody comes near."""
Describe = Callable[[str], str]
_schemas: dict[type[BaseModel], dict[str, Any]] = {}


def describe_from_prompts(name: str, **values: str) -> str:
    """Return a tool's description: prompts/tools/NAME.md with its placeholders filled."""
    return prompts.fill(prompts.load(f"tools/{name}"), **values).strip()


class ForeignTools(Protocol):
    """Foreign tools that come and go while a session is open (extensions/mcp_servers.py)."""

    def tools(self) -> tuple[Tool[RawArguments], ...]: ...

    def starting(self) -> tuple[str, ...]: ...

    async def settled(self, waits: Callable[[str], None], /) -> None: ...


class Toolbox:
    """Tools by name, in the given order, followed by the foreign tools that are available at the
    moment.
    """

    def __init__(
        self,
        tools: Iterable[AnyTool],
        describe: Describe = describe_from_prompts,
        more: ForeignTools | None = None,
    ) -> None:
        self._own = {tool.name: tool for tool in tools}
        for tool in self._own.values():
            if tool.foreign is None and (tool.names_files or tool.command):
                tool_facts.declare(tool.facts)
        self._more = more
        self._describe = describe
        self._specs: dict[str, ToolSpec] = {}

    @property
    def may_have_foreign(self) -> bool:
        """True if tools of MCP servers come and go."""
        return self._more is not None

    @property
    def _tools(self) -> dict[str, AnyTool]:
        foreign = {tool.name: tool for tool in self._more.tools()} if self._more is not None else {}
        return {**self._own, **foreign} if foreign else self._own

    async def settled(self, waits: Callable[[str], None]) -> None:
        """Wait a moment for foreign tools that are being connected; `waits` is told what for."""
        if self._more is not None:
            await self._more.settled(waits)

    def replaced(self, tool: AnyTool) -> Toolbox:
        """Return a toolbox with `tool` in place of the one with its name."""
        toolbox = copy(self)
        toolbox._own = {**self._own, tool.name: tool}
        return toolbox

    def __getitem__(self, name: str) -> AnyTool:
        return self._tools[name]

    def __contains__(self, name: object) -> bool:
        return name in self._tools

    @property
    def names(self) -> tuple[str, ...]:
        """The tools that agents may see."""
        return tuple(tool.name for tool in self._tools.values() if not tool.internal)

    def __iter__(self) -> Iterator[AnyTool]:
        return iter(self._tools.values())

    def specs(self, tools: Iterable[AnyTool]) -> tuple[ToolSpec, ...]:
        """Return the descriptions of these tools of the toolbox."""
        specs = []
        for tool in tools:
            if tool.foreign is not None:
                spec = ToolSpec(
                    name=tool.name,
                    description=tool.foreign.description,
                    parameters=tool.foreign.schema,
                )
            elif tool.name in self._specs:
                spec = self._specs[tool.name]
            else:
                # made once: it is needed before every model call
                spec = self._specs[tool.name] = tool_spec(tool, self._describe(tool.name))
            specs.append(spec)
        return tuple(specs)

    def parse(self, call: Call) -> tuple[AnyTool | None, BaseModel | ToolResult]:
        """Return the tool and its arguments, or a ToolResult with the fault and the expected form."""
        tool = self._tools.get(call.tool)
        if tool is None:
            starting = self._more.starting() if self._more is not None else ()
            similar = difflib.get_close_matches(call.tool, self.names, n=1, cutoff=0.6)
            hint = f" Did you mean {similar[0]}?" if similar else ""
            note = ""
            if starting:
                note = f" These MCP servers are still starting and may bring it: {', '.join(starting)}."
            text = f"There is no tool `{call.tool}`.{hint} The tools are: {', '.join(self.names)}.{note}"
            return None, ToolResult(text=text, ok=False)
        arguments = arguments_of(call)
        if isinstance(arguments, MalformedArguments):
            return tool, _refuse(tool, arguments.text)
        if tool.foreign is not None:
            schema = parse_json(tool.foreign.schema)
            if fault := _unknown_arguments(arguments, _closed_names(schema)):
                return tool, _refuse(tool, fault)
            return tool, RawArguments.model_validate({"values": _parse_quoted(arguments, schema)})
        if fault := _unknown_arguments(arguments, tuple(tool.arguments.model_fields)):
            return tool, _refuse(tool, fault)
        arguments = _parse_quoted(arguments, _schema(tool.arguments))
        try:
            return tool, tool.arguments.model_validate(arguments)
        except ValidationError as error:
            return tool, _refuse(
                tool, "; ".join(_describe_problem(problem) for problem in error.errors())
            )

    async def run(self, call: Call, workspace: Workspace, say: Say) -> ToolResult:
        """Parse and run, without judging: for fugu's own runs and for tests."""
        tool, arguments = self.parse(call)
        if tool is None or isinstance(arguments, ToolResult):
            assert isinstance(arguments, ToolResult)
            return arguments
        return await tool.run(arguments, workspace, say)


def load_tool(facts: ToolFacts) -> AnyTool:
    """Import one of fugu's own tools."""
    tool: AnyTool = pkgutil.resolve_name(facts.implementation)
    return tool


def _closed_names(schema: Mapping[str, Any]) -> tuple[str, ...] | None:
    """Return the arguments of a foreign tool whose schema allows no others, None if it may take
    others.
    """
    properties = schema.get("properties")
    if schema.get("additionalProperties") is not False or not isinstance(properties, dict):
        return None
    return tuple(properties)


def _unknown_arguments(arguments: Iterable[str], names: tuple[str, ...] | None) -> str:
    """Describe the arguments that a tool does not take, with similar names that it takes; "" if it
    takes all of them.
    """
    faults = []
    for name in arguments:
        if names is None or name in names:
            continue
        similar = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
        hint = f" (did you mean `{similar[0]}`?)" if similar else ""
        faults.append(f"it has no argument `{name}`{hint}")
    return "; ".join(faults)


def tool_spec(tool: AnyTool, description: str) -> ToolSpec:
    """Return a tool's description for agents, without titles and other unnecessary keys."""
    schema = _schema(tool.arguments)
    fields = schema.get("properties", {})
    parameters = {
        "type": "object",
        "properties": {
            name: _slim(field, schema.get("$defs", {})) for name, field in fields.items()
        },
    }
    if required := schema.get("required"):
        parameters["required"] = required
    return ToolSpec(
        name=tool.name,
        description=description,
        parameters=json.dumps(parameters, ensure_ascii=False),
    )


def _schema(arguments: type[BaseModel]) -> Mapping[str, Any]:
    """Return the JSON schema of a tool's arguments. Making one takes a millisecond."""
    if arguments not in _schemas:
        _schemas[arguments] = arguments.model_json_schema()
    return _schemas[arguments]


def _slim(field: Mapping[str, Any], shapes: Mapping[str, Any]) -> dict[str, object]:
    """Return a field without unnecessary keys, with references resolved."""
    if "$ref" in field:
        shape = shapes[str(field["$ref"]).rpartition("/")[2]]
        return _slim(
            {name: value for name, value in shape.items() if name != "description"}, shapes
        )
    slim: dict[str, object] = {}
    for name, value in field.items():
        if name == "items":
            slim[name] = _slim(value, shapes)
        elif name == "properties":
            slim[name] = {
                property_name: _slim(property_field, shapes)
                for property_name, property_field in value.items()
            }
        elif name == "default" and not value:  # what is left out is empty or off
            continue
        elif name not in HIDDEN_SCHEMA_KEYS:
            slim[name] = value
    return slim


def _parse_quoted(arguments: Mapping[str, object], schema: Mapping[str, Any]) -> dict[str, object]:
    """Parse lists and objects that were sent as JSON strings although the schema asks for values."""
    properties = schema.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    return {name: _parse_value(value, fields.get(name)) for name, value in arguments.items()}


def _parse_value(value: object, field: object) -> object:
    if not isinstance(value, str) or not isinstance(field, dict):
        return value
    expected = {"array": list, "object": dict}.get(str(field.get("type")))
    if expected is None:
        return value
    try:
        parsed = parse_json(value)
    except ValueError:
        return value
    return parsed if isinstance(parsed, expected) else value


def _describe_arguments(tool: AnyTool) -> str:
    """Return a tool's arguments as in `path, content?`, with a question mark for optional ones."""
    schema = _schema(tool.arguments)
    required = schema.get("required", [])
    names = schema.get("properties", {})
    return ", ".join(name if name in required else f"{name}?" for name in names) or "no arguments"


def _describe_problem(error: Mapping[str, Any]) -> str:
    name = ".".join(str(part) for part in error["loc"]) or "arguments"
    return f"`{name}` is missing" if error["type"] == "missing" else f"`{name}`: {error['msg']}"


def _refuse(tool: AnyTool, fault: str) -> ToolResult:
    if tool.foreign is not None:
        return ToolResult(text=f"{tool.name} was not run: {fault}.", ok=False)
    is_test_run = tool.name == tool_facts.RUN_TESTS.name
    return ToolResult(
        text=f"{tool.name} was not run: {fault}. It takes {_describe_arguments(tool)}.",
        ok=False,
        tests=TestReport(unable="the call was not understood") if is_test_run else None,
    )
