"""Hooks as the files declare them, and calls in the words of Claude Code that hooks and their matchers use.

The files are `.agents/hooks.json` and, in the same shape, `.claude/settings.json` and `.claude/settings.local.json`.
Read with the configuration, which says whether the repository is trusted. Nothing here runs anything. A fault leaves
out one hook; a guard with a fault is kept and refuses, for nobody knows what it would have said.

A call is described by Claude Code's names of tools and arguments, and translated back. A patch is described file by
file, and a script that an agent wrote as the file and the command that runs it: a guard of edits, writes or commands
must not be passed by under another name.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, cast, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from fugu_cli.extensions.mcp_settings import files_of_word
from fugu_cli.messages import Call, Value
from fugu_cli.safety import policy
from fugu_cli.safety.paths import locate
from fugu_cli.safety.policy import rule_matching
from fugu_cli.safety.policy.call_arguments import MalformedArguments, arguments_of, patched_paths
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
    """The call for hooks; in parts where one is what others do in several calls. `root` is the repository's."""
    given = arguments_of(call)
    arguments = {} if isinstance(given, MalformedArguments) else cast(CallArguments, given)
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
            names = CLAUDE_CODE_NAMES.get(call.tool, (call.tool,))
            return (HookCall(names[0], _renamed(call.tool, arguments, root), frozenset({call.tool, *names})),)


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
    """Whether a rule like `Bash(git push *)` or `Edit(src/**)` is for this call; one that cannot be read is for all."""
    if rule_matching.pattern_fault(ours := fugu_rule(rule)):
        return True
    return matches_any_rule(call, (ours,), root)


def matches_any_rule(call: Call, rules: tuple[str, ...], root: Path) -> bool:
    """Whether one of the rules is for the call, or for a part of it, as a rule that forbids would be."""
    return policy.judge(call, policy.Rules(mode="yolo", deny=rules), root).verdict == "deny"


def fugu_rule(rule: str) -> str:
    """A rule with the tool's name as fugu has it."""
    found = _RULE.fullmatch(rule)
    if found is None:
        return rule
    name = next((tool for tool, names in CLAUDE_CODE_NAMES.items() if found[1] in names), found[1])
    inner = (found[2] or "()")[1:-1].strip().removeprefix("domain:")
    if name in rule_matching.READING | rule_matching.WRITING and inner and not inner.startswith("~"):
        inner = inner.removeprefix("/") if "/" in inner else f"**/{inner}"  # `/` is the root there, `//` the disk's
    return f"{name}({inner})" if inner else name


def fugu_tools(name: str) -> tuple[str, ...]:
    """All tools of fugu's that do what a tool of Claude Code does, a patch and a script of an agent's among them."""
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
    return {new if name == old else name: value for name, value in one.items()} if isinstance(one, dict) else one


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
    old, new = ("\n".join(line for hunk in hunks for line in getattr(hunk, side)) for side in ("old", "new"))
    given: CallArguments = {"file_path": _whole(path, root), "old_string": old, "new_string": new, "patch": patch}
    return HookCall("Edit", given, frozenset({"Edit", "MultiEdit", "apply_patch"}))


def _write(path: str, hunks: tuple[Hunk, ...], patch: str, root: Path) -> HookCall:
    content = "\n".join(line for hunk in hunks for line in hunk.new)
    given: CallArguments = {"file_path": _whole(path, root), "content": content, "patch": patch}
    return HookCall("Write", given, frozenset({"Write", "apply_patch"}))


HOOKS_FILE = ".agents/hooks.json"
SETTINGS_FILES = (".claude/settings.json", ".claude/settings.local.json")
HOOK_FILES = (HOOKS_FILE, *SETTINGS_FILES)
"""Below the repository's root and below the user's home."""
HookEvent = Literal[
    "PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "SubagentStop",
    "SessionStart", "SessionEnd", "PreCompact", "Notification",
]  # fmt: skip
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
CALL_EVENTS: tuple[HookEvent, ...] = ("PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure")
"""Those whose matchers go by tools."""
GUARD_EVENT: HookEvent = "PreToolUse"
"""A hook of this event says no where it cannot be run or understood."""
DEFAULT_TIMEOUT, LONGEST_TIMEOUT = 600.0, 3600.0
"""Seconds a hook may take, unless it says otherwise; and the most it may say."""
ROOT_VARIABLE = "CLAUDE_PROJECT_DIR"
"""The variable that holds the repository's root."""

_PLACE = re.compile(rf"\$\{{{ROOT_VARIABLE}\}}|\${ROOT_VARIABLE}\b")
_EXACT = re.compile(r"[\w|, -]+")
"""A matcher that is a list of names, not a regular expression."""


class Hook(Value):
    """One command and when it is run. `own`: it is the user's, not the repository's. `timeout` in seconds. `callback`:
    it is a function of the client's (`fugu sdk`), under this id.

    `rule` narrows it to calls such a permission rule is for. `apart`: nobody waits for it. `fault` says why it cannot
    be run, of a guard alone. `content` is the hash of the files that the command names, of a repository's hook alone.
    """

    moment: HookEvent
    matcher: str = ""
    command: str = ""
    timeout: float = DEFAULT_TIMEOUT
    source: str
    own: bool
    rule: str = ""
    apart: bool = False
    fault: str = ""
    content: str = ""
    callback: str = ""

    def matches(self, names: Iterable[str]) -> bool:
        """Whether it is for what has these names. Letter case does not matter; "" and * are all. A matcher of plain
        words is a list of whole names, `mcp__SERVER` among them; any other a regular expression for a part of one."""
        if self.matcher in {"", "*"}:
            return True
        if _EXACT.fullmatch(self.matcher):
            wanted = [part.strip().casefold() for part in re.split(r"[|,]", self.matcher)]
            own = [name.casefold() for name in names]
            servers = tuple(f"{part}__" for part in wanted if part.startswith(rule_matching.MCP))
            return any(name in wanted or name.startswith(servers) for name in own)
        return any(re.search(self.matcher, name, re.IGNORECASE) for name in names)

    @property
    def said(self) -> str:
        """The command, for people: its first line, and no more of it than fits in one."""
        if self.callback:
            return self.callback
        first, *others = self.command.strip().splitlines() or ["(no command)"]
        return first if len(first) <= 80 and not others else f"{first[:77]}..."


@dataclass(frozen=True)
class DeclaredHooks:
    """The hooks that count, the user's before the repository's. `notes` are sentences for people: what is left out."""

    hooks: tuple[Hook, ...] = ()
    notes: tuple[str, ...] = ()


class _Command(BaseModel):
    """A hook as it stands in a file. Keys of other tools are no fault."""

    model_config = ConfigDict(extra="ignore", strict=True, defer_build=True)

    type: Literal["command"]
    command: str
    args: list[str] | None = None
    timeout: Annotated[float, Field(gt=0)] = DEFAULT_TIMEOUT
    rule: Annotated[str, Field(alias="if")] = ""
    runs_apart: Annotated[bool, Field(alias="async")] = False

    @field_validator("command")
    @classmethod
    def _runnable(cls, command: str) -> str:
        if not command.strip() or "\0" in command:
            raise ValueError("it is empty or holds a NUL character")
        return command

    @property
    def line(self) -> str:
        """The command line. Arguments given apart are words of their own; the root's place is filled in there too."""
        if self.args is None:
            return self.command
        unquoted = f"""'"${{{ROOT_VARIABLE}}}"'"""
        return " ".join(_PLACE.sub(lambda _: unquoted, shlex.quote(word)) for word in (self.command, *self.args))


class _Fault(Exception):
    """Why a file, an event, a group or a hook cannot be used."""


def read_hooks(user: Path, own: Path | None, *, trusted: bool) -> DeclaredHooks:
    """The hooks of the home `user` and those of the repository `own`, the latter only where it is `trusted`."""
    hooks: list[Hook] = []
    notes: list[str] = []
    for folder, mine in ((user, True), (own, False)):
        if folder is None:
            continue
        for path in (folder / name for name in HOOK_FILES):
            found, said = _read_file(path, folder, mine=mine)
            if found and not mine and not trusted:
                moments = ", ".join(dict.fromkeys(hook.moment for hook in found))
                notes.append(f"{path} names hooks ({moments}): none is run until you run `fugu trust` here")
            else:
                hooks += found
                notes += said
    return DeclaredHooks(tuple(hooks), tuple(notes))


def files_named_by_hooks(folder: Path) -> Iterator[Path]:
    """Files in `folder` that tell which hooks are run, and those that its hooks would have run: whoever may change them
    may change what is run."""
    for name in HOOK_FILES:
        hooks, _ = _read_file(folder / name, folder, mine=False)
        if hooks and name in SETTINGS_FILES:
            yield folder / name
        for hook in hooks:
            yield from _scripts(hook.command, folder)


def content_of(path: Path) -> bytes:
    """What of a file tells fugu what to do: of another tool's settings the hooks alone. Raises OSError."""
    data = path.read_bytes()
    if path.parent.name != ".claude" or not path.name.startswith("settings."):
        return data
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return data
    told = {key: found.get(key) for key in ("hooks", "disableAllHooks")} if isinstance(found, dict) else found
    return json.dumps(told, sort_keys=True).encode()


def hash_of_named_files(command: str, folder: Path) -> str:
    """A hash of the files in `folder` that the command names, as they are now."""
    found = hashlib.sha256()
    for path in _scripts(command, folder):
        try:
            found.update(path.read_bytes())
        except OSError as error:
            found.update(str(error.errno).encode())
    return found.hexdigest()


def _scripts(command: str, folder: Path) -> Iterator[Path]:
    for word in _words(_PLACE.sub(lambda _: str(folder), command)):
        yield from files_of_word(folder, word)


def _words(command: str) -> Sequence[str]:
    parser = shlex.shlex(command, posix=True, punctuation_chars=True)
    parser.whitespace_split = True
    try:
        return list(parser)
    except ValueError:
        return command.split()


def _read_file(path: Path, folder: Path, *, mine: bool) -> tuple[list[Hook], list[str]]:
    """The hooks the file names, in its order, and sentences about what is left out."""
    notes: list[str] = []
    try:
        events = _events(path)
    except _Fault as fault:
        return [], [f"{path}{fault}; its hooks are left out"]
    hooks: list[Hook] = []
    for event, groups in events.items():
        moment = next((moment for moment in HOOK_EVENTS if moment == event), None)
        if moment is None:
            notes.append(f"{path}, hooks.{event}: fugu has no such event; its hooks are left out")
            continue
        for hook in _of_event(moment, groups, path, mine=mine):
            if hook.fault and moment != GUARD_EVENT:
                notes.append(f"{path}, hooks.{moment}{hook.fault}; the hook is left out")
                continue
            if hook.fault:
                notes.append(f"{path}, hooks.{moment}{hook.fault}; it cannot be run, so it says no")
            elif moment in CALL_EVENTS and (why := _unfit(hook.matcher)):
                notes.append(f"{path}, hooks: the matcher `{hook.matcher}` of {moment} fits no tool: {why}")
            if hook.rule and (why := rule_matching.pattern_fault(fugu_rule(hook.rule))):
                notes.append(f"{path}, hooks.{moment}: its `if` cannot be read, so it is run for every call: {why}")
            hooks.append(
                hook if mine else hook.model_copy(update={"content": hash_of_named_files(hook.command, folder)})
            )
    return hooks, notes


def _events(path: Path) -> dict[str, JsonValue]:
    """Event -> groups, as they stand in the file; nothing where there is none. Raises _Fault."""
    found = _parsed(path)
    if not isinstance(found, dict) or found.get("disableAllHooks") is True:
        return {}
    if "hooks" not in found and path.name == Path(HOOKS_FILE).name:
        raise _Fault(", hooks: it is missing")
    hooks = found.get("hooks", {})
    if not isinstance(hooks, dict):
        raise _Fault(", hooks: it should be one object, event by event")
    return hooks


def _of_event(moment: HookEvent, groups: JsonValue, path: Path, *, mine: bool) -> Iterator[Hook]:
    """The hooks of an event; one that only holds its `fault` for each that cannot be read."""
    if not isinstance(groups, list):
        yield Hook(moment=moment, source=str(path), own=mine, fault=": it should be a list")
        return
    for number, group in enumerate(groups):
        matcher = (group.get("matcher") or "") if isinstance(group, dict) else ""
        held = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(held, list):
            yield Hook(moment=moment, source=str(path), own=mine, fault=f".{number}.hooks: it should be a list")
            continue
        why = _unreadable(matcher)
        for index, one in enumerate(held):
            spot = f".{number}.hooks.{index}"
            entry: dict[str, object] = {"moment": moment, "source": str(path), "own": mine}
            try:
                if why:
                    spot = f".{number}.matcher"
                    raise _Fault(f": {why}")
                yield Hook.model_validate(entry | {"matcher": matcher} | _entry(one))
            except _Fault as fault:
                yield Hook.model_validate(entry | {"matcher": "" if why else matcher, "fault": f"{spot}{fault}"})


def _entry(one: JsonValue) -> dict[str, object]:
    """The fields of one hook. Raises _Fault."""
    try:
        found = _Command.model_validate(one)
    except ValidationError as error:
        raise _Fault(_said(error)) from error
    seconds = min(found.timeout, LONGEST_TIMEOUT)
    return {"command": found.line, "timeout": seconds, "rule": found.rule, "apart": found.runs_apart}


def _unreadable(matcher: object) -> str:
    if not isinstance(matcher, str):
        return "it should be a string"
    try:
        re.compile(matcher if matcher != "*" else "")
    except re.error as error:
        return f"it is not a regular expression: {error}"
    return ""


def _unfit(matcher: str) -> str:
    """Why a matcher can fit no tool; "" where it does, or where only a server's tools could tell."""
    known = {
        *rule_matching.known_tools(),
        *(name for names in CLAUDE_CODE_NAMES.values() for name in names),
        *UNSUPPORTED_TOOLS,
    }
    if Hook(moment=GUARD_EVENT, matcher=matcher, source="", own=True).matches(known) or "mcp" in matcher.casefold():
        return ""
    if rule := re.fullmatch(r"(\w+)\(.*\)", matcher):
        return f"it goes by a tool's name alone, `{rule[1]}`; the key `if` of a hook takes such a rule"
    return rule_matching.unknown_tool(re.split(r"[|,]", matcher)[0].strip()) if _EXACT.fullmatch(matcher) else ""


def _parsed(path: Path) -> JsonValue:
    """None where there is no file. Raises _Fault."""
    try:
        if path.exists() and not path.is_file():
            raise OSError(0, "it is not a file")
        text = path.read_text(encoding="utf-8-sig")
        found: JsonValue = json.loads(text)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError as error:
        raise _Fault(f" is not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise _Fault(f" cannot be read: {error.strerror}") from error
    except json.JSONDecodeError as error:
        raise _Fault(f", line {error.lineno}, column {error.colno}: not valid JSON: {error.msg.lower()}") from error
    except RecursionError as error:
        raise _Fault(": nested too deeply") from error
    if not isinstance(found, dict):
        raise _Fault(': it should hold one object, {"hooks": {"PreToolUse": [...]}}')
    return found


def _said(error: ValidationError) -> str:
    """The first fault in words, with its key."""
    first = error.errors()[0]
    spot = "".join(f".{part}" for part in first["loc"])
    if first["type"] == "missing":
        return f"{spot}: it is missing"
    if first["type"] == "value_error":
        return f"{spot}: {first['ctx']['error']}"
    return f"{spot}: {first['msg'][:1].lower()}{first['msg'][1:]}"
