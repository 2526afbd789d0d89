"""An agent's call as hooks are told of it: by Claude Code's names of tools and arguments, and back again.

Under running.py. A patch is told file by file, as the edits it is made of, and a script that an agent wrote as the file
and the command that runs it: a guard of edits, writes or commands must not be passed by under another name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from pydantic import JsonValue

from fugu_cli import policy
from fugu_cli.messages import Call
from fugu_cli.policy import patterns
from fugu_cli.policy.arguments import Malformed, arguments_of, patched_paths
from fugu_cli.policy.paths import locate
from fugu_cli.tools.patches import FilePatch, Hunk, PatchError, parse

Arguments = dict[str, JsonValue]

NAMES: Mapping[str, tuple[str, ...]] = {
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
    "web_fetch": ("WebFetch",),
    "job_output": ("BashOutput", "TaskOutput"),
    "job_stop": ("KillShell", "KillBash", "TaskStop"),
}
"""What fugu's tools are called there, the name that hooks are told first."""
ABSENT = frozenset({"Task", "Agent", "NotebookEdit", "NotebookRead", "WebSearch", "ExitPlanMode", "AskUserQuestion"})
"""Tools there that fugu has not: a matcher that names one is no mistake."""
_FIELDS: Mapping[str, Mapping[str, str]] = {
    "bash": {"background": "run_in_background"},
    "edit": {"old": "old_string", "new": "new_string"},
    "grep": {"ignore_case": "-i", "context": "-C"},
    "skill": {"name": "skill"},
    "job_output": {"job": "bash_id"},
    "job_stop": {"job": "shell_id"},
    "todo": {"items": "todos"},
}
_FILES = frozenset({"read", "edit", "write"})
"""Tools whose path is told as `file_path`; it stays beside it as the agent wrote it."""
_RULE = re.compile(r"\s*(\w+)\s*(\(.*\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Told:
    """A call, or a part of one, for a hook. `names` are all that a matcher may call it by."""

    name: str
    input: Arguments
    names: frozenset[str]


def told(call: Call, root: Path, test_command: str | None = None) -> tuple[Told, ...]:
    """The call for hooks; in parts where one is what others do in several calls. `root` is the repository's."""
    given = arguments_of(call)
    arguments = {} if isinstance(given, Malformed) else cast(Arguments, given)
    match call.tool:
        case "apply_patch":
            return _patch(arguments, root)
        case policy.ACCEPTANCE_CHECK:
            written = {"file_path": str(arguments.get("file") or "check.py"), "content": arguments.get("script")}
            script = (_as("Write", written, call.tool),) if arguments.get("script") else ()
            return (*script, _as("Bash", arguments, call.tool))
        case "run_tests":
            command = " ".join(part for part in (test_command, str(arguments.get("target") or "")) if part)
            return (_as("Bash", {"command": command, **arguments}, call.tool),)
        case _:
            names = NAMES.get(call.tool, (call.tool,))
            return (Told(names[0], _renamed(call.tool, arguments, root), frozenset({call.tool, *names})),)


def changed(call: Call, before: Told, given: Mapping[str, JsonValue]) -> Call:
    """The call with the arguments `given` by a hook, which was told `before`."""
    back = {there: here for here, there in _FIELDS.get(call.tool, {}).items()}
    arguments = {back.get(name, name): value for name, value in given.items()}
    if call.tool in _FILES and "file_path" in arguments:
        named = arguments.pop("file_path")
        if named != before.input.get("file_path") or "path" not in arguments:
            arguments["path"] = named
    if call.tool == "bash" and isinstance(milliseconds := arguments.get("timeout"), int | float):
        arguments["timeout"] = max(round(milliseconds / 1000), 1)
    if call.tool == "todo" and isinstance(todos := arguments.get("items"), list):
        arguments["items"] = [_item(one, "content", "text") for one in todos]
    return Call.make(call.id, call.tool, **arguments)


def fits(rule: str, call: Call, root: Path) -> bool:
    """Whether a rule like `Bash(git push *)` or `Edit(src/**)` is for this call; one that cannot be read is for all."""
    if patterns.fault(ours := own_rule(rule)):
        return True
    return matched(call, (ours,), root)


def matched(call: Call, rules: tuple[str, ...], root: Path) -> bool:
    """Whether one of the rules is for the call, or for a part of it, as a rule that forbids would be."""
    return policy.judge(call, policy.Rules(mode="yolo", deny=rules), root).verdict == "deny"


def own_rule(rule: str) -> str:
    """A rule with the tool's name as fugu has it."""
    found = _RULE.fullmatch(rule)
    if found is None:
        return rule
    name = next((tool for tool, names in NAMES.items() if found[1] in names), found[1])
    inner = (found[2] or "()")[1:-1].strip().removeprefix("domain:")
    if name in patterns.READING | patterns.WRITING and inner and not inner.startswith("~"):
        inner = inner.removeprefix("/") if "/" in inner else f"**/{inner}"  # `/` is the root there, `//` the disk's
    return f"{name}({inner})" if inner else name


def _as(name: str, given: Mapping[str, JsonValue], tool: str) -> Told:
    return Told(name, dict(given), frozenset({name, tool}))


def _renamed(tool: str, arguments: Arguments, root: Path) -> Arguments:
    fields = _FIELDS.get(tool, {})
    named = {fields.get(name, name): value for name, value in arguments.items()}
    if isinstance(path := arguments.get("path"), str):
        if tool in _FILES:
            named = {"file_path": _whole(path, root), **named}
        elif tool in patterns.READING:
            named["path"] = _whole(path, root)
    if tool == "bash" and isinstance(seconds := arguments.get("timeout"), int | float):
        named["timeout"] = seconds * 1000
    if tool == "todo" and isinstance(items := arguments.get("items"), list):
        named["todos"] = [_item(one, "text", "content") for one in items]
    return named


def _item(one: JsonValue, old: str, new: str) -> JsonValue:
    return {new if name == old else name: value for name, value in one.items()} if isinstance(one, dict) else one


def _whole(path: str, root: Path) -> str:
    """Where it leads; as it is written where no file can have that name."""
    found = locate(path, root)
    return str(found) if isinstance(found, Path) else path


def _patch(arguments: Arguments, root: Path) -> tuple[Told, ...]:
    patch = str(arguments.get("patch") or "")
    try:
        parts = [told for file in parse(patch) for told in _file(file, patch, root)]
    except PatchError:
        parts = [_edit(name, (), patch, root) for name in patched_paths(patch)]
    return tuple(parts) or (Told("Edit", arguments, frozenset({"Edit", "apply_patch"})),)


def _file(file: FilePatch, patch: str, root: Path) -> list[Told]:
    """One file of a patch: written where it is new or gets a new name, else edited."""
    if file.kind == "add":
        return [_write(file.path, file.hunks, patch, root)]
    found = [_edit(file.path, file.hunks, patch, root)]
    return [*found, _write(file.target, file.hunks, patch, root)] if file.target else found


def _edit(path: str, hunks: tuple[Hunk, ...], patch: str, root: Path) -> Told:
    old, new = ("\n".join(line for hunk in hunks for line in getattr(hunk, side)) for side in ("old", "new"))
    given: Arguments = {"file_path": _whole(path, root), "old_string": old, "new_string": new, "patch": patch}
    return Told("Edit", given, frozenset({"Edit", "MultiEdit", "apply_patch"}))


def _write(path: str, hunks: tuple[Hunk, ...], patch: str, root: Path) -> Told:
    content = "\n".join(line for hunk in hunks for line in hunk.new)
    given: Arguments = {"file_path": _whole(path, root), "content": content, "patch": patch}
    return Told("Write", given, frozenset({"Write", "apply_patch"}))
