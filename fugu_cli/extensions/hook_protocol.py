"""The hook protocol of Claude Code (code.claude.com/docs/en/hooks): describes calls, reads answers.

Used by hook_runner.py. A call is described with that tool's names, and the answer is translated
back. A patch is described file by file, and an acceptance check as the file and the command that
runs it, so that no guard of edits, writes or commands is passed by under another name. Exit code,
standard output and standard error are read as one answer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

from fugu_cli.messages import Call
from fugu_cli.safety import policy
from fugu_cli.safety.paths import locate
from fugu_cli.safety.policy import rule_matching
from fugu_cli.session.call_arguments import MalformedArguments, arguments_of, patched_paths
from fugu_cli.session.tool_facts import ACCEPTANCE_CHECK, TOOLS, facts_of
from fugu_cli.tools.result import plain_text
from fugu_cli.tools.text_edits import FilePatch, Hunk, PatchError, parse_patch

CallArguments = dict[str, JsonValue]

UNSUPPORTED_TOOLS = frozenset({"NotebookEdit", "NotebookRead", "ExitPlanMode", "AskUserQuestion"})
"""Tools that only Claude Code has. A matcher may name them."""
_RULE = re.compile(r"\s*(\w+)\s*(\(.*\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class HookCall:
    """A call, or a part of one, as a hook sees it. A matcher may use any of `names`."""

    name: str
    input: CallArguments
    names: frozenset[str]


def describe_call(call: Call, root: Path, test_command: str | None = None) -> tuple[HookCall, ...]:
    """Return the call for hooks, in parts if Claude Code needs several calls for it.

    `root` is the repository's.
    """
    parsed = arguments_of(call)
    arguments = {} if isinstance(parsed, MalformedArguments) else cast(CallArguments, parsed)
    match call.tool:
        case "apply_patch":
            return _describe_patch(arguments, root)
        case ACCEPTANCE_CHECK.name:
            command = _hook_call("Bash", arguments, call.tool)
            if not arguments.get("script"):
                return (command,)
            file = str(arguments.get("file") or "check.py")
            content: CallArguments = {"file_path": file, "content": arguments.get("script")}
            return (_hook_call("Write", content, call.tool), command)
        case "run_tests":
            words = (test_command, str(arguments.get("target") or ""))
            command_line = " ".join(word for word in words if word)
            return (_hook_call("Bash", {"command": command_line, **arguments}, call.tool),)
        case _:
            names = facts_of(call.tool).claude_code or (call.tool,)
            renamed = _rename_arguments(call.tool, arguments, root)
            return (HookCall(names[0], renamed, frozenset({call.tool, *names})),)


def call_changed_by_hook(call: Call, before: HookCall, changed: Mapping[str, JsonValue]) -> Call:
    """Return the call with the arguments that a hook `changed`. The hook was given `before`."""
    fields = facts_of(call.tool).claude_code_arguments
    own_names = {theirs: ours for ours, theirs in fields.items() if ours != "path"}
    arguments = {own_names.get(name, name): value for name, value in changed.items()}
    if "path" in fields and "file_path" in arguments:
        path = arguments.pop("file_path")
        if path != before.input.get("file_path") or "path" not in arguments:
            arguments["path"] = path
    milliseconds = arguments.get("timeout")
    if call.tool == "bash" and isinstance(milliseconds, int | float):
        arguments["timeout"] = max(round(milliseconds / 1000), 1)
    todos = arguments.get("items")
    if call.tool == "todo" and isinstance(todos, list):
        arguments["items"] = [_rename_key(todo, "content", "text") for todo in todos]
    return Call.make(call.id, call.tool, **arguments)


def rule_fits(rule: str, call: Call, root: Path) -> bool:
    """Return whether a rule like `Bash(git push *)` or `Edit(src/**)` applies to the call.

    An unreadable rule applies to every call.
    """
    pattern = fugu_rule(rule)
    if rule_matching.pattern_fault(pattern):
        return True
    return matches_any_rule(call, (pattern,), root)


def matches_any_rule(call: Call, rules: tuple[str, ...], root: Path) -> bool:
    """Return whether one of the rules would deny the call or a part of it."""
    return policy.judge(call, policy.Rules(mode="yolo", deny=rules), root).verdict == "deny"


def fugu_rule(rule: str) -> str:
    """Return the rule with fugu's name of the tool."""
    match = _RULE.fullmatch(rule)
    if match is None:
        return rule
    claude_name, parenthesis = match.groups()
    name = claude_name
    for tool in TOOLS.values():
        if claude_name in tool.claude_code:
            name = tool.name
            break
    pattern = (parenthesis or "()")[1:-1].strip().removeprefix("domain:")
    if not pattern:
        return name
    if facts_of(name).names_files and not pattern.startswith("~"):
        # in these rules `/` is the repository's root and `//` the root of the disk
        pattern = pattern.removeprefix("/") if "/" in pattern else f"**/{pattern}"
    return f"{name}({pattern})"


def fugu_tools(name: str) -> tuple[str, ...]:
    """Return every tool of fugu's that does what this tool of Claude Code does."""
    names = []
    for tool in TOOLS.values():
        if name in tool.claude_code or name in tool.covered_by:
            names.append(tool.name)
    return tuple(names)


def _hook_call(name: str, arguments: Mapping[str, JsonValue], tool: str) -> HookCall:
    return HookCall(name, dict(arguments), frozenset({name, tool}))


def _rename_arguments(tool: str, arguments: CallArguments, root: Path) -> CallArguments:
    """Return the arguments by Claude Code's names, with times in its unit. The path of a file is
    given as `file_path` too; `path` stays as the agent wrote it.
    """
    facts = facts_of(tool)
    fields = {
        ours: theirs for ours, theirs in facts.claude_code_arguments.items() if ours != "path"
    }
    renamed = {fields.get(name, name): value for name, value in arguments.items()}
    path = arguments.get("path")
    if isinstance(path, str) and "path" in facts.claude_code_arguments:
        renamed = {"file_path": _absolute(path, root), **renamed}
    elif isinstance(path, str) and facts.reads_files:
        renamed["path"] = _absolute(path, root)
    seconds = arguments.get("timeout")
    if tool == "bash" and isinstance(seconds, int | float):
        renamed["timeout"] = seconds * 1000
    items = arguments.get("items")
    if tool == "todo" and isinstance(items, list):
        renamed["todos"] = [_rename_key(item, "text", "content") for item in items]
    return renamed


def _rename_key(item: JsonValue, old: str, new: str) -> JsonValue:
    if not isinstance(item, dict):
        return item
    return {new if name == old else name: value for name, value in item.items()}


def _absolute(path: str, root: Path) -> str:
    """Return the absolute path, or `path` itself if no file can have that name."""
    located = locate(path, root)
    return str(located) if isinstance(located, Path) else path


def _describe_patch(arguments: CallArguments, root: Path) -> tuple[HookCall, ...]:
    patch = str(arguments.get("patch") or "")
    parts: list[HookCall] = []
    try:
        for file in parse_patch(patch):
            parts += _describe_file(file, patch, root)
    except PatchError:
        parts = [_describe_edit(name, (), patch, root) for name in patched_paths(patch)]
    return tuple(parts) or (HookCall("Edit", arguments, frozenset({"Edit", "apply_patch"})),)


def _describe_file(file: FilePatch, patch: str, root: Path) -> list[HookCall]:
    """Describe one file of a patch: a write if the file is new or renamed, else an edit."""
    if file.kind == "add":
        return [_describe_write(file.path, file.hunks, patch, root)]
    parts = [_describe_edit(file.path, file.hunks, patch, root)]
    if file.target:
        parts.append(_describe_write(file.target, file.hunks, patch, root))
    return parts


def _describe_edit(path: str, hunks: tuple[Hunk, ...], patch: str, root: Path) -> HookCall:
    arguments: CallArguments = {
        "file_path": _absolute(path, root),
        "old_string": "\n".join(line for hunk in hunks for line in hunk.old),
        "new_string": "\n".join(line for hunk in hunks for line in hunk.new),
        "patch": patch,
    }
    return HookCall("Edit", arguments, frozenset({"Edit", "MultiEdit", "apply_patch"}))


def _describe_write(path: str, hunks: tuple[Hunk, ...], patch: str, root: Path) -> HookCall:
    arguments: CallArguments = {
        "file_path": _absolute(path, root),
        "content": "\n".join(line for hunk in hunks for line in hunk.new),
        "patch": patch,
    }
    return HookCall("Write", arguments, frozenset({"Write", "apply_patch"}))


HookDecision = Literal["", "allow", "ask", "deny"]
BLOCKING_EXIT_CODE = 2
"""A hook that exits with this code refuses."""
FIRST_NOT_RUN_EXIT_CODE = 126
"""From this exit code on, the shell could not run the command or a signal ended it."""
PLAIN_TEXT_EVENTS = frozenset({"UserPromptSubmit", "SessionStart"})
"""Events whose hooks may address agents in plain text."""
_OBJECT_START = re.compile(r"""^[ \t]*\{|\{(?=\s*(?:\\*["']|\w+\s*:))""", re.MULTILINE)
"""Matches up to a brace that begins a line or a key: the start of an object or of a broken one."""
MOST_BROKEN_OBJECTS = 20
"""Reading stops after this many unreadable objects."""
BY_STRICTNESS: tuple[HookDecision, ...] = ("", "allow", "ask", "deny")


@dataclass(frozen=True)
class HookOutput:
    """The output of a hook's process. `code` is None after a timeout. `whole`: no output was
    dropped.
    """

    output: str
    errors: str
    code: int | None
    whole: bool = True


@dataclass(frozen=True)
class HookAnswer:
    """A hook's decision, "" if it makes none, and the changes it wants. `input` replaces the
    arguments of the call, `output` its result. `stop` is the reason to end all work, None if it
    does not want that. `fault` says what went wrong with the hook, and `unsure` that its decision
    is unknown for that reason.
    """

    decision: HookDecision = ""
    reason: str = ""
    input: dict[str, JsonValue] | None = None
    output: str | None = None
    context: str = ""
    message: str = ""
    stop: str | None = None
    fault: str = ""
    unsure: bool = False


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)


class _Behaviour(_Lenient):
    """The decision of a PermissionRequest hook."""

    behavior: Literal["allow", "deny"]
    message: str | None = None
    updatedInput: dict[str, JsonValue] | None = None
    interrupt: bool = False


class _Specific(_Lenient):
    hookEventName: str | None = None
    permissionDecision: Literal["allow", "deny", "ask", "defer"] | None = None
    permissionDecisionReason: str | None = None
    updatedInput: dict[str, JsonValue] | None = None
    additionalContext: str | None = None
    updatedToolOutput: JsonValue = None
    updatedMCPToolOutput: JsonValue = None
    decision: _Behaviour | None = None


class _Object(_Lenient):
    goes_on: Annotated[bool | None, Field(alias="continue")] = None
    stopReason: str | None = None
    systemMessage: str | None = None
    decision: Literal["approve", "allow", "block", "deny", "ask"] | None = None
    reason: str | None = None
    hookSpecificOutput: _Specific | None = None


def read_answer(written: HookOutput, moment: str) -> HookAnswer:
    """Read a hook's answer to the event `moment`."""
    errors = written.errors.strip()
    if written.code is None:
        return HookAnswer(fault="did not end in time and was ended", unsure=True)
    if written.code == BLOCKING_EXIT_CODE:
        return HookAnswer("deny", errors or "it gave no reason")
    answer = _read_stdout(written, moment)
    if written.code == 0 or answer.fault:
        return answer
    if answer.decision == "deny" or answer.stop is not None:
        return answer
    if written.code < 0:
        fault = f"was ended by signal {-written.code}"
    else:
        fault = f"failed with exit code {written.code}"
    if errors:
        fault += f": {errors}"
    unsure = not 0 <= written.code < FIRST_NOT_RUN_EXIT_CODE
    return HookAnswer(message=answer.message, fault=fault, unsure=unsure)


def _read_stdout(written: HookOutput, moment: str) -> HookAnswer:
    """Read all JSON objects on standard output, also between other text, as one answer."""
    if not written.whole:  # the answer may stand in what was dropped
        return HookAnswer(fault="printed more than can be read", unsure=True)
    text = plain_text(written.output.replace("\r", "\n")).strip()
    answers, error = [], None
    position = broken = 0
    while broken < MOST_BROKEN_OBJECTS and (start := _OBJECT_START.search(text, position)):
        try:
            value, position = json.JSONDecoder().raw_decode(text, start.end() - 1)
            answers.append(_validated_answer(value, moment, "printed"))
        except (ValueError, RecursionError) as json_error:
            error = error or json_error
            broken += 1
            position = start.end()
    merged = _merge(answers)
    if merged.decision == "deny" or merged.stop is not None:
        return replace(merged, fault="", unsure=False)
    if moment in PLAIN_TEXT_EVENTS and merged == HookAnswer() and not text.startswith("{"):
        return HookAnswer(context=text)
    if error is not None:
        fault = f"printed what cannot be read: not valid JSON: {error}"
        return HookAnswer(fault=fault, unsure=True)
    return merged


def _merge(answers: Sequence[HookAnswer]) -> HookAnswer:
    """Merge answers: the strictest decision with its reason, the first fault, all messages.

    Of other values the last one counts, of `stop` the first.
    """
    decision: HookDecision = ""
    reason = fault = ""
    new_input, output, stop = None, None, None
    contexts: list[str] = []
    messages: list[str] = []
    for answer in answers:
        is_stricter = BY_STRICTNESS.index(answer.decision) > BY_STRICTNESS.index(decision)
        if is_stricter:
            decision = answer.decision
        if is_stricter or not reason:
            reason = answer.reason
        if answer.input is not None:
            new_input = answer.input
        if answer.output is not None:
            output = answer.output
        if answer.context:
            contexts.append(answer.context)
        if answer.message:
            messages.append(answer.message)
        if stop is None:
            stop = answer.stop
        fault = fault or answer.fault
    return HookAnswer(
        decision=decision,
        reason=reason,
        input=new_input,
        output=output,
        context="\n\n".join(contexts),
        message="\n".join(messages),
        stop=stop,
        fault=fault,
        unsure=any(answer.unsure for answer in answers),
    )


def answer_of_client(answer: Mapping[str, object], moment: str) -> HookAnswer:
    """Read the answer of a hook inside the client: the same object as a command prints."""
    return _validated_answer(answer, moment, "answers")


def _validated_answer(value: object, moment: str, verb: str) -> HookAnswer:
    try:
        return _answer(_Object.model_validate(value), moment)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        problem = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        return HookAnswer(fault=f"{verb} what cannot be read: {field}: {problem}", unsure=True)


def _answer(answer: _Object, moment: str) -> HookAnswer:
    specific = answer.hookSpecificOutput or _Specific()
    if specific.hookEventName not in (None, moment):
        fault = f"printed what cannot be read: it answers {specific.hookEventName}"
        return HookAnswer(fault=fault, unsure=True)
    behaviour = specific.decision
    decision: str = specific.permissionDecision or ""
    reason = specific.permissionDecisionReason or ""
    if behaviour is not None:
        decision = decision or behaviour.behavior
        reason = reason or behaviour.message or ""
    else:
        decision = decision or answer.decision or ""
    reason = reason or answer.reason or ""
    shown_reason = reason
    if not reason and decision in {"deny", "block"}:
        shown_reason = "it gave no reason"
    new_input = specific.updatedInput
    if not new_input and behaviour is not None:
        new_input = behaviour.updatedInput
    output = specific.updatedToolOutput
    if output is None:
        output = specific.updatedMCPToolOutput
    if not isinstance(output, str | None):
        output = json.dumps(output, ensure_ascii=False)
    interrupts = behaviour is not None and behaviour.interrupt and behaviour.behavior == "deny"
    stop = None
    if answer.goes_on is False or interrupts:
        stop = answer.stopReason or reason
    return HookAnswer(
        decision=_DECISIONS[decision],
        reason=shown_reason,
        input=new_input or None,
        output=output,
        context=specific.additionalContext or "",
        message=answer.systemMessage or "",
        stop=stop,
    )


_DECISIONS: dict[str, HookDecision] = {
    "": "", "allow": "allow", "approve": "allow", "ask": "ask", "defer": "ask", "deny": "deny", "block": "deny",
}  # fmt: skip
