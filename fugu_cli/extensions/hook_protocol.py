"""Hooks in the words of Claude Code (code.claude.com/docs/en/hooks): calls as they are told,
answers as they are.

Between hook_runner.py and what it runs. A call is described by that tool's names of tools and
arguments, and translated back. A patch is described file by file, and a script that an agent wrote
as the file and the command that runs it: a guard of edits, writes or commands must not be passed by
under another name. Exit code, standard output and standard error are read as one answer.
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
from fugu_cli.safety.policy.call_arguments import MalformedArguments, arguments_of, patched_paths
from fugu_cli.tools.result import plain_text
from fugu_cli.tools.text_edits import FilePatch, Hunk, PatchError, parse_patch

CallArguments = dict[str, JsonValue]

CLAUDE_CODE_NAMES: Mapping[str, tuple[str, ...]] = {
    "bash": ("Bash",),
    "run_tests": ("Bash",),
    "read": ("Read",),
    "list": ("LS",),
    "glob": ("Glob",),
    "grep": ("Grep",),
    "edit": ("Edit", "MultiEdit"),
    "write": ("Write",),
    "todo": ("TodoWrite",),
    "skill": ("Skill",),
    "task": ("Task", "Agent"),
    "web_fetch": ("WebFetch",),
    "web_search": ("WebSearch",),
    "job_output": ("BashOutput", "TaskOutput"),
    "job_stop": ("KillShell", "KillBash", "TaskStop"),
}
"""What fugu's tools are called there, the name that hooks are told first."""
UNSUPPORTED_TOOLS = frozenset({"NotebookEdit", "NotebookRead", "ExitPlanMode", "AskUserQuestion"})
"""Tools there that fugu has not: a matcher that names one is no mistake."""
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "bash": {"background": "run_in_background"},
    "edit": {"old": "old_string", "new": "new_string"},
    "grep": {"ignore_case": "-i", "context": "-C"},
    "skill": {"name": "skill"},
    "task": {"agent": "subagent_type"},
    "job_output": {"job": "bash_id"},
    "job_stop": {"job": "shell_id"},
    "todo": {"items": "todos"},
}
_FILE_TOOLS = frozenset({"read", "edit", "write"})
"""Tools whose path is told as `file_path`; it stays beside it as the agent wrote it."""
_RULE = re.compile(r"\s*(\w+)\s*(\(.*\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class HookCall:
    """A call, or a part of one, for a hook. `names` are all that a matcher may call it by."""

    name: str
    input: CallArguments
    names: frozenset[str]


def describe_call(call: Call, root: Path, test_command: str | None = None) -> tuple[HookCall, ...]:
    """The call for hooks; in parts where one is what others do in several calls. `root` is the
    repository's.
    """
    given = arguments_of(call)
    arguments = {} if isinstance(given, MalformedArguments) else cast(CallArguments, given)
    match call.tool:
        case "apply_patch":
            return _patch(arguments, root)
        case policy.ACCEPTANCE_CHECK:
            written = {
                "file_path": str(arguments.get("file") or "check.py"),
                "content": arguments.get("script"),
            }
            script = (_as("Write", written, call.tool),) if arguments.get("script") else ()
            return (*script, _as("Bash", arguments, call.tool))
        case "run_tests":
            command = " ".join(
                part for part in (test_command, str(arguments.get("target") or "")) if part
            )
            return (_as("Bash", {"command": command, **arguments}, call.tool),)
        case _:
            names = CLAUDE_CODE_NAMES.get(call.tool, (call.tool,))
            return (
                HookCall(
                    names[0], _renamed(call.tool, arguments, root), frozenset({call.tool, *names})
                ),
            )


def call_changed_by_hook(call: Call, before: HookCall, given: Mapping[str, JsonValue]) -> Call:
    """The call with the arguments `given` by a hook, which was told `before`."""
    back = {there: here for here, there in _FIELDS.get(call.tool, {}).items()}
    arguments = {back.get(name, name): value for name, value in given.items()}
    if call.tool in _FILE_TOOLS and "file_path" in arguments:
        named = arguments.pop("file_path")
        if named != before.input.get("file_path") or "path" not in arguments:
            arguments["path"] = named
    if call.tool == "bash" and isinstance(milliseconds := arguments.get("timeout"), int | float):
        arguments["timeout"] = max(round(milliseconds / 1000), 1)
    if call.tool == "todo" and isinstance(todos := arguments.get("items"), list):
        arguments["items"] = [_item(one, "content", "text") for one in todos]
    return Call.make(call.id, call.tool, **arguments)


def rule_fits(rule: str, call: Call, root: Path) -> bool:
    """Whether a rule like `Bash(git push *)` or `Edit(src/**)` is for this call; one that cannot be
    read is for all.
    """
    if rule_matching.pattern_fault(ours := fugu_rule(rule)):
        return True
    return matches_any_rule(call, (ours,), root)


def matches_any_rule(call: Call, rules: tuple[str, ...], root: Path) -> bool:
    """Whether one of the rules is for the call, or for a part of it, as a rule that forbids would
    be.
    """
    return policy.judge(call, policy.Rules(mode="yolo", deny=rules), root).verdict == "deny"


def fugu_rule(rule: str) -> str:
    """A rule with the tool's name as fugu has it."""
    found = _RULE.fullmatch(rule)
    if found is None:
        return rule
    name = next((tool for tool, names in CLAUDE_CODE_NAMES.items() if found[1] in names), found[1])
    inner = (found[2] or "()")[1:-1].strip().removeprefix("domain:")
    if (
        name in rule_matching.READING | rule_matching.WRITING
        and inner
        and not inner.startswith("~")
    ):
        inner = (
            inner.removeprefix("/") if "/" in inner else f"**/{inner}"
        )  # `/` is the root there, `//` the disk's
    return f"{name}({inner})" if inner else name


def fugu_tools(name: str) -> tuple[str, ...]:
    """All tools of fugu's that do what a tool of Claude Code does, a patch and a script of an
    agent's among them.
    """
    same = [tool for tool, names in CLAUDE_CODE_NAMES.items() if name in names]
    also = {"Edit": ("apply_patch",), "Write": ("apply_patch", policy.ACCEPTANCE_CHECK)}
    return (*same, *also.get(name, ()), *((policy.ACCEPTANCE_CHECK,) if name == "Bash" else ()))


def _as(name: str, given: Mapping[str, JsonValue], tool: str) -> HookCall:
    return HookCall(name, dict(given), frozenset({name, tool}))


def _renamed(tool: str, arguments: CallArguments, root: Path) -> CallArguments:
    fields = _FIELDS.get(tool, {})
    named = {fields.get(name, name): value for name, value in arguments.items()}
    if isinstance(path := arguments.get("path"), str):
        if tool in _FILE_TOOLS:
            named = {"file_path": _whole(path, root), **named}
        elif tool in rule_matching.READING:
            named["path"] = _whole(path, root)
    if tool == "bash" and isinstance(seconds := arguments.get("timeout"), int | float):
        named["timeout"] = seconds * 1000
    if tool == "todo" and isinstance(items := arguments.get("items"), list):
        named["todos"] = [_item(one, "text", "content") for one in items]
    return named


def _item(one: JsonValue, old: str, new: str) -> JsonValue:
    return (
        {new if name == old else name: value for name, value in one.items()}
        if isinstance(one, dict)
        else one
    )


def _whole(path: str, root: Path) -> str:
    """Where it leads; as it is written where no file can have that name."""
    found = locate(path, root)
    return str(found) if isinstance(found, Path) else path


def _patch(arguments: CallArguments, root: Path) -> tuple[HookCall, ...]:
    patch = str(arguments.get("patch") or "")
    try:
        parts = [told for file in parse_patch(patch) for told in _file(file, patch, root)]
    except PatchError:
        parts = [_edit(name, (), patch, root) for name in patched_paths(patch)]
    return tuple(parts) or (HookCall("Edit", arguments, frozenset({"Edit", "apply_patch"})),)


def _file(file: FilePatch, patch: str, root: Path) -> list[HookCall]:
    """One file of a patch: written where it is new or gets a new name, else edited."""
    if file.kind == "add":
        return [_write(file.path, file.hunks, patch, root)]
    found = [_edit(file.path, file.hunks, patch, root)]
    return [*found, _write(file.target, file.hunks, patch, root)] if file.target else found


def _edit(path: str, hunks: tuple[Hunk, ...], patch: str, root: Path) -> HookCall:
    old, new = (
        "\n".join(line for hunk in hunks for line in getattr(hunk, side)) for side in ("old", "new")
    )
    given: CallArguments = {
        "file_path": _whole(path, root),
        "old_string": old,
        "new_string": new,
        "patch": patch,
    }
    return HookCall("Edit", given, frozenset({"Edit", "MultiEdit", "apply_patch"}))


def _write(path: str, hunks: tuple[Hunk, ...], patch: str, root: Path) -> HookCall:
    content = "\n".join(line for hunk in hunks for line in hunk.new)
    given: CallArguments = {"file_path": _whole(path, root), "content": content, "patch": patch}
    return HookCall("Write", given, frozenset({"Write", "apply_patch"}))


HookDecision = Literal["", "allow", "ask", "deny"]
BLOCKING_EXIT_CODE = 2
"""The exit code that says no."""
FIRST_NOT_RUN_EXIT_CODE = 126
"""Exit codes of a shell from here on: the command was not found, could not be run, or was ended by
a signal.
"""
PLAIN_TEXT_EVENTS = frozenset({"UserPromptSubmit", "SessionStart"})
"""Events whose hooks may speak to agents in plain text."""
_OBJECT_START = re.compile(r"""^[ \t]*\{|\{(?=\s*(?:\\*["']|\w+\s*:))""", re.MULTILINE)
"""Ends with a brace that begins a line, or that a quote or a key follows: an object, or a broken
one.
"""
MOST_BROKEN_OBJECTS = 20
"""The rest of the output is not looked at after so many objects that cannot be read."""
BY_STRICTNESS: tuple[HookDecision, ...] = ("", "allow", "ask", "deny")


@dataclass(frozen=True)
class HookOutput:
    """What a hook's process left. `code` is None when its time was up; `whole`: nothing of its
    output was dropped.
    """

    output: str
    errors: str
    code: int | None
    whole: bool = True


@dataclass(frozen=True)
class HookAnswer:
    """What a hook decided, "" when nothing; and what it wants said or changed.

    `input` replaces the arguments of the call, `output` its result. `stop` is why all work is to
    end, None when it is not. `fault` says what went wrong with the hook; `unsure`: so nobody knows
    what it would have decided.
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
    """The answer of a hook for the event `moment`."""
    errors = written.errors.strip()
    if written.code is None:
        return HookAnswer(fault="did not end in time and was ended", unsure=True)
    if written.code == BLOCKING_EXIT_CODE:
        return HookAnswer("deny", errors or "it gave no reason")
    said = _read_stdout(written, moment)
    if written.code == 0 or said.fault:
        return said
    if said.decision == "deny" or said.stop is not None:
        return said
    how = (
        f"was ended by signal {-written.code}"
        if written.code < 0
        else f"failed with exit code {written.code}"
    )
    unsure = not 0 <= written.code < FIRST_NOT_RUN_EXIT_CODE
    return HookAnswer(
        message=said.message, fault=how + (f": {errors}" if errors else ""), unsure=unsure
    )


def _read_stdout(written: HookOutput, moment: str) -> HookAnswer:
    """Read the JSON objects on standard output, wherever they stand in it, as one answer."""
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
    merged = _merged(answers)
    if merged.decision == "deny" or merged.stop is not None:
        return replace(merged, fault="", unsure=False)
    if moment in PLAIN_TEXT_EVENTS and merged == HookAnswer() and not text.startswith("{"):
        return HookAnswer(context=text)
    if error is not None:
        fault = f"printed what cannot be read: not valid JSON: {error}"
        return HookAnswer(fault=fault, unsure=True)
    return merged


def _merged(answers: Sequence[HookAnswer]) -> HookAnswer:
    """Return the strictest decision, the first fault, and everything that they want said or
    changed; the last value counts where only one can.
    """
    merged = HookAnswer()
    for answer in answers:
        stricter = BY_STRICTNESS.index(answer.decision) > BY_STRICTNESS.index(merged.decision)
        merged = HookAnswer(
            decision=answer.decision if stricter else merged.decision,
            reason=answer.reason if stricter or not merged.reason else merged.reason,
            input=merged.input if answer.input is None else answer.input,
            output=merged.output if answer.output is None else answer.output,
            context="\n\n".join(filter(None, (merged.context, answer.context))),
            message="\n".join(filter(None, (merged.message, answer.message))),
            stop=answer.stop if merged.stop is None else merged.stop,
            fault=merged.fault or answer.fault,
            unsure=merged.unsure or answer.unsure,
        )
    return merged


def answer_of_client(said: Mapping[str, object], moment: str) -> HookAnswer:
    """The answer of a hook inside of the client: the same object."""
    return _validated_answer(said, moment, "answers")


def _validated_answer(value: object, moment: str, verb: str) -> HookAnswer:
    try:
        return _answer(_Object.model_validate(value), moment)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        problem = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
        return HookAnswer(fault=f"{verb} what cannot be read: {field}: {problem}", unsure=True)


def _answer(found: _Object, moment: str) -> HookAnswer:
    more = found.hookSpecificOutput or _Specific()
    if more.hookEventName not in (None, moment):
        return HookAnswer(
            fault=f"printed what cannot be read: it answers {more.hookEventName}", unsure=True
        )
    asked = more.decision
    decision = (
        more.permissionDecision or (asked.behavior if asked is not None else None) or found.decision
    )
    reason = (
        more.permissionDecisionReason
        or (asked.message if asked is not None else None)
        or found.reason
    )
    output = (
        more.updatedToolOutput if more.updatedToolOutput is not None else more.updatedMCPToolOutput
    )
    interrupts = asked is not None and asked.interrupt and asked.behavior == "deny"
    stops = found.goes_on is False or interrupts
    return HookAnswer(
        decision=_DECISIONS[decision or ""],
        reason=reason or ("it gave no reason" if decision in {"deny", "block"} else ""),
        input=more.updatedInput or (asked.updatedInput if asked is not None else None),
        output=output if isinstance(output, str | None) else json.dumps(output, ensure_ascii=False),
        context=more.additionalContext or "",
        message=found.systemMessage or "",
        stop=(found.stopReason or reason or "") if stops else None,
    )


_DECISIONS: dict[str, HookDecision] = {
    "": "", "allow": "allow", "approve": "allow", "ask": "ask", "defer": "ask", "deny": "deny", "block": "deny",
}  # fmt: skip
