"""Tools that a client runs and names only by their type (a shell, an editor, a patch tool).

Agents are offered each as an ordinary function. Its calls go back to the client in the form that
the type has: on the Messages wire that is an ordinary call, on the Responses wire an item of its
own. Parameters are those of the vendors' documentation and SDKs (anthropic 2.14, openai 3.57).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from fugu_cli.messages import Call, ToolSpec
from fugu_cli.providers.history import arguments_object
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.wires.client_requests import Json, RequestRefused

HOSTED_TOOLS = ("web_search", "image_generation")
"""Prefixes of the tool types that only a provider can run and that clients offer unasked. Agents
are not offered them; the answer says so.
"""


def is_hosted(tool_type: str) -> bool:
    """Return True for a tool that only a provider can run and that an answer can do without."""
    return tool_type.startswith(HOSTED_TOOLS)


def _text(description: str) -> Json:
    return {"type": "string", "description": description}


def _number(description: str) -> Json:
    return {"type": "integer", "description": description}


def _texts(description: str) -> Json:
    return {"type": "array", "items": {"type": "string"}, "description": description}


def _choice(*values: str) -> Json:
    return {"type": "string", "enum": [*values]}


def _parameters(required: str, **properties: JsonValue) -> str:
    names: list[JsonValue] = [*required.split()]
    return json.dumps({"type": "object", "properties": properties, "required": names})


VIEW_RANGE: Json = {
    "type": "array",
    "items": {"type": "integer"},
    "description": "view: the first and the last line, counted from 1; -1 is the end.",
}

FILE_COMMANDS: Json = {
    "path": _text("The file or directory."),
    "file_text": _text("create: the content of the new file."),
    "old_str": _text("str_replace: the text to replace. It must occur exactly once."),
    "new_str": _text("str_replace: the new text."),
    "insert_line": _number("insert: the line after which the text is inserted, 0 for the top."),
    "insert_text": _text("insert: the text."),
    "view_range": VIEW_RANGE,
}

MESSAGES_TOOLS: Mapping[str, ToolSpec] = {
    "bash_20250124": ToolSpec(
        name="bash",
        description="Run a command in a shell that stays open between calls.",
        parameters=_parameters(
            "",
            command=_text("The command."),
            restart={"type": "boolean", "description": "True restarts the shell instead."},
        ),
    ),
    "text_editor_20250728": ToolSpec(
        name="str_replace_based_edit_tool",
        description="View, create and edit text files.",
        parameters=_parameters(
            "command path",
            command=_choice("view", "create", "str_replace", "insert"),
            **FILE_COMMANDS,
        ),
    ),
    "memory_20250818": ToolSpec(
        name="memory",
        description="Read and write notes that outlast this conversation, as files below /memories.",
        parameters=_parameters(
            "command",
            command=_choice("view", "create", "str_replace", "insert", "delete", "rename"),
            **FILE_COMMANDS,
            old_path=_text("rename: the present path."),
            new_path=_text("rename: the new path."),
        ),
    ),
}
"""Tools of the Messages wire by their type."""

RESPONSES_TOOLS: Mapping[str, ToolSpec] = {
    "shell": ToolSpec(
        name="shell",
        description="Run commands in a shell, one after the other, and read what they print.",
        parameters=_parameters(
            "commands",
            commands=_texts("The command lines."),
            timeout_ms=_number("The longest time that the commands may take, in milliseconds."),
            max_output_length=_number("The most characters of output to return."),
        ),
    ),
    "local_shell": ToolSpec(
        name="local_shell",
        description='Run one program, such as ["bash", "-lc", "ls"], and read what it prints.',
        parameters=_parameters(
            "command",
            command=_texts("The program and its arguments."),
            working_directory=_text("The directory in which it runs."),
            timeout_ms=_number("The longest time that it may take, in milliseconds."),
        ),
    ),
    "apply_patch": ToolSpec(
        name="apply_patch",
        description="Create, update or delete one file.",
        parameters=_parameters(
            "type path",
            type=_choice("create_file", "update_file", "delete_file"),
            path=_text("The file."),
            diff=_text(
                "update_file: hunks, each a line `@@` and then lines that begin with a space "
                "(kept), `-` (removed) or `+` (added). create_file: the lines of the file, each "
                "after a `+`. No line names the file."
            ),
        ),
    ),
}
"""Tools of the Responses wire by their type, which is also their name for agents."""

RESPONSES_CALLS = {f"{tool_type}_call": tool_type for tool_type in RESPONSES_TOOLS}
RESPONSES_OUTPUTS = {f"{call}_output": tool for call, tool in RESPONSES_CALLS.items()}


def runs_at_provider(tool_type: str, environment: JsonValue) -> bool:
    """Return True for a `shell` whose environment is a container of the provider."""
    return (
        tool_type == "shell"
        and isinstance(environment, dict)
        and environment.get("type") != "local"
    )


def encode_call(tool_type: str, call: Call) -> Json:
    """Return the fields of a call's item on the Responses wire that depend on the tool.

    Arguments that do not have the form of the tool give an empty call, which the client answers
    with an error of its own.
    """
    arguments: Json = {}
    if arguments_object(call.arguments) is not None:
        arguments = parse_json(call.arguments or "{}")
    if tool_type == "apply_patch":
        operation: Json = {
            "type": arguments.get("type", "update_file"),
            "path": arguments.get("path", ""),
        }
        if operation["type"] != "delete_file":
            operation["diff"] = arguments.get("diff", "")
        return {"type": "apply_patch_call", "operation": operation}
    action: Json = {}
    for name in ("timeout_ms", "max_output_length", "working_directory"):
        if name in arguments:
            action[name] = arguments[name]
    if tool_type == "shell":
        action["commands"] = _text_list(arguments.get("commands"))
    else:
        action |= {"type": "exec", "command": _text_list(arguments.get("command")), "env": {}}
    return {"type": f"{tool_type}_call", "action": action}


def _text_list(value: JsonValue) -> list[JsonValue]:
    if isinstance(value, list):
        return [part for part in value if isinstance(part, str)]
    return [value] if isinstance(value, str) else []


def decode_arguments(action: JsonValue, operation: JsonValue) -> str:
    """Return the arguments that an agent gave in a call whose item has `action` or `operation`."""
    arguments = action if isinstance(action, dict) else operation
    if not isinstance(arguments, dict):
        return "{}"
    if isinstance(action, dict):
        arguments = {name: value for name, value in action.items() if name not in ("type", "env")}
    return json.dumps(arguments, ensure_ascii=False)


def command_output_text(output: JsonValue) -> str:
    """Return what one command of a `shell` call printed and how it ended, for an agent; other
    values as JSON.
    """
    if not isinstance(output, dict) or "stdout" not in output:
        return json.dumps(output, ensure_ascii=False)
    texts = [str(output[name]).rstrip("\n") for name in ("stdout", "stderr") if output.get(name)]
    outcome = output.get("outcome")
    if isinstance(outcome, dict):
        timed_out = outcome.get("type") == "timeout"
        texts.append("(timed out)" if timed_out else f"(exit code {outcome.get('exit_code')})")
    return "\n".join(texts)


def decode_tool_choice(choice: JsonValue, tools: Sequence[str]) -> str:
    """Translate `tool_choice` of either OpenAI wire to `RequestSampling.choice`."""
    if choice is None or choice == "auto":
        return ""
    if choice in ("none", "required"):
        return str(choice)
    if restriction := _allowed_tools_choice(choice):
        return "required" if restriction.get("mode") == "required" else ""
    name = _tool_name(choice)
    if name not in tools:
        raise _no_such_tool(choice)
    return name


def allowed_tools(choice: JsonValue, tools: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the tools that `tool_choice` allows: those in its list, or all if it has no list."""
    restriction = _allowed_tools_choice(choice)
    if restriction is None:
        return tuple(tools)
    listed = restriction.get("tools")
    names = [_tool_name(tool) for tool in listed] if isinstance(listed, list) else []
    allowed = tuple(tool for tool in tools if tool.name in names)
    if not allowed:
        raise _no_such_tool(choice)
    return allowed


def _allowed_tools_choice(choice: JsonValue) -> Json | None:
    """Return mode and tools of a choice of type `allowed_tools`, else None.

    Chat Completions nests them in a field `allowed_tools`, Responses does not.
    """
    if not isinstance(choice, dict) or choice.get("type") != "allowed_tools":
        return None
    nested = choice.get("allowed_tools")
    return nested if isinstance(nested, dict) else choice


def _tool_name(reference: JsonValue) -> str:
    """Return the name in a reference to a tool, "" if there is none.

    Chat Completions nests the name in a field `function`, Responses does not.
    """
    if not isinstance(reference, dict):
        return ""
    function = reference.get("function", reference)
    name = function.get("name") if isinstance(function, dict) else None
    if name is None and reference.get("type") in RESPONSES_TOOLS:
        name = reference["type"]
    return name if isinstance(name, str) else ""


def _no_such_tool(choice: JsonValue) -> RequestRefused:
    return RequestRefused(
        400, f"tool_choice {json.dumps(choice)} names no tool of this request", code="invalid_value"
    )
