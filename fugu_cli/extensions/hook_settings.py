"""Hooks as declared in files.

The files are `.agents/hooks.json` and, in the same format, `.claude/settings.json` and
`.claude/settings.local.json`. Read with the configuration, which says whether the repository is
trusted. Nothing here runs a hook. A faulty entry is left out, except for a guard: it is kept and
refuses, because nobody knows what it would have decided.
"""

from __future__ import annotations

import hashlib
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from fugu_cli.extensions.mcp_settings import (
    PLUGIN_VARIABLE,
    SettingsFault,
    files_of_word,
    parsed_settings,
    settings_text,
)
from fugu_cli.messages import Value
from fugu_cli.safety.policy import rule_matching
from fugu_cli.safety.policy.shell_line import parse_line
from fugu_cli.session.tool_facts import MCP, TOOLS, tool_names
from fugu_cli.system.bounded_json import parse_json

HOOKS_FILE = ".agents/hooks.json"
SETTINGS_FILES = (".claude/settings.json", ".claude/settings.local.json")
HOOK_FILES = (HOOKS_FILE, *SETTINGS_FILES)
"""Relative to the repository's root and to the user's home."""
HookEvent = Literal[
    "PreToolUse", "PermissionRequest", "PostToolUse", "PostToolUseFailure", "UserPromptSubmit", "Stop", "SubagentStop",
    "SessionStart", "SessionEnd", "PreCompact", "Notification",
]  # fmt: skip
HOOK_EVENTS: tuple[HookEvent, ...] = get_args(HookEvent)
CALL_EVENTS: tuple[HookEvent, ...] = (
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PostToolUseFailure",
)
"""Events whose matchers match tools."""
GUARD_EVENT: HookEvent = "PreToolUse"
"""A hook of this event refuses the call if it cannot be run or understood."""
DEFAULT_TIMEOUT, LONGEST_TIMEOUT = 600.0, 3600.0
"""Seconds that a hook may take by default, and at most."""
ROOT_VARIABLE = "CLAUDE_PROJECT_DIR"
"""The variable that holds the repository's root."""


_ROOT_REFERENCE = re.compile(
    rf"\$\{{(?P<braced>{ROOT_VARIABLE}|{PLUGIN_VARIABLE})\}}"
    rf"|\$(?P<plain>{ROOT_VARIABLE}|{PLUGIN_VARIABLE})\b"
)
_EXACT = re.compile(r"[\w|, -]+")
"""A matcher that is a list of names, not a regular expression."""


class Hook(Value):
    """A command and the event that runs it.

    `own`: it is the user's, not the repository's or a plugin's. `timeout` is in seconds. `callback`
    is the id of a function of the client (`fugu sdk`). `rule` is a permission rule that narrows it
    to some calls. `apart`: nobody waits for it. `fault` says why a guard cannot be run. `content` is
    a hash of the files that a repository's or plugin's hook names. `plugin` names the plugin that
    brings it, which lies in `plugin_root`.
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
    plugin: str = ""
    plugin_root: str = ""

    def matches(self, names: Iterable[str]) -> bool:
        """Return whether the matcher fits one of the names, ignoring case.

        "" and * fit everything. A matcher of plain words is a list of whole names, and `mcp__SERVER`
        stands for all tools of that server. Any other matcher is a regular expression.
        """
        if self.matcher in {"", "*"}:
            return True
        if not _EXACT.fullmatch(self.matcher):
            return any(re.search(self.matcher, name, re.IGNORECASE) for name in names)
        words = [word.strip().casefold() for word in re.split(r"[|,]", self.matcher)]
        servers = tuple(f"{word}__" for word in words if word.startswith(MCP))
        folded = [name.casefold() for name in names]
        return any(name in words or name.startswith(servers) for name in folded)

    @property
    def description(self) -> str:
        """The first line of the command, at most 80 characters."""
        if self.callback:
            return self.callback
        first, *more = self.command.strip().splitlines() or ["(no command)"]
        return first if len(first) <= 80 and not more else f"{first[:77]}..."


@dataclass(frozen=True)
class DeclaredHooks:
    """The hooks that may run, the user's before the repository's.

    `notes` say in sentences what is left out. `untrusted` are files whose hooks wait for the user
    to trust their folder.
    """

    hooks: tuple[Hook, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted: tuple[Path, ...] = ()


class _Command(BaseModel):
    """A hook as written in a file. Unknown keys are ignored, since other tools have their own."""

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
        """The command line. Separate arguments become quoted words, in which the root's variable
        still works.
        """
        if self.args is None:
            return self.command

        def between_double_quotes(match: re.Match[str]) -> str:
            variable = match["braced"] or match["plain"]
            return "'\"${" + variable + "}\"'"  # ends the single quotes, and begins them again

        words = [shlex.quote(word) for word in (self.command, *self.args)]
        return " ".join(_ROOT_REFERENCE.sub(between_double_quotes, word) for word in words)


def read_hooks(user: Path, own: Path | None, *, trusted: bool) -> DeclaredHooks:
    """Read the hooks of the home `user` and of the repository `own`, which run only if `trusted`."""
    hooks: list[Hook] = []
    notes: list[str] = []
    untrusted: list[Path] = []
    for folder, is_user in ((user, True), (own, False)):
        if folder is None:
            continue
        for name in HOOK_FILES:
            path = folder / name
            file_hooks, file_notes = _read_file(path, folder, is_user=is_user)
            if file_hooks and not is_user and not trusted:
                moments = ", ".join(dict.fromkeys(hook.moment for hook in file_hooks))
                untrusted.append(path)
                notes.append(
                    f"{path} names hooks ({moments}): none is run until you run `fugu trust` here"
                )
            else:
                hooks += file_hooks
                notes += file_notes
    return DeclaredHooks(tuple(hooks), tuple(notes), tuple(untrusted))


def files_named_by_hooks(folder: Path) -> Iterator[Path]:
    """Yield the files in `folder` that define hooks, and those that the hooks would run."""
    for name in HOOK_FILES:
        hooks, _ = _read_file(folder / name, folder, is_user=False)
        if hooks and name in SETTINGS_FILES:
            yield folder / name
        for hook in hooks:
            yield from _scripts(hook.command, folder)


def words_of_hooks(folder: Path) -> Iterator[str]:
    """Yield the words of the commands of a folder's hooks."""
    for name in HOOK_FILES:
        hooks, _ = _read_file(folder / name, folder, is_user=False)
        for hook in hooks:
            for words in command_words(hook.command, folder):
                yield from words


def command_words(command: str, folder: Path) -> list[list[str]]:
    """Return the words of each command in a hook's line, [] where it is more than plain commands."""
    line = parse_line(_ROOT_REFERENCE.sub(lambda _: str(folder), command))
    if line.fault:
        return []
    return [[word.text for word in part.words] for part in line.commands]


def content_of(path: Path) -> bytes:
    """Return the content that directs fugu: of Claude Code's settings only the hooks. Raises OSError."""
    data = path.read_bytes()
    if path.parent.name != ".claude" or not path.name.startswith("settings."):
        return data
    try:
        settings = parse_json(data)
    except ValueError:
        return data
    if isinstance(settings, dict):
        settings = {key: settings.get(key) for key in ("hooks", "disableAllHooks")}
    return json.dumps(settings, sort_keys=True).encode()


def hash_of_named_files(command: str, folder: Path) -> str:
    """Hash the current content of the files in `folder` that the command names."""
    digest = hashlib.sha256()
    for path in _scripts(command, folder):
        try:
            digest.update(path.read_bytes())
        except OSError as error:
            digest.update(str(error.errno).encode())
    return digest.hexdigest()


def _scripts(command: str, folder: Path) -> Iterator[Path]:
    for word in _words(_ROOT_REFERENCE.sub(lambda _: str(folder), command)):
        yield from files_of_word(folder, word)


def _words(command: str) -> Sequence[str]:
    parser = shlex.shlex(command, posix=True, punctuation_chars=True)
    parser.whitespace_split = True
    try:
        return list(parser)
    except ValueError:
        return command.split()


def _read_file(path: Path, folder: Path, *, is_user: bool) -> tuple[list[Hook], list[str]]:
    """Return the hooks of a file in its order, and notes about what is left out."""
    try:
        events = _events(path)
    except SettingsFault as fault:
        return [], [f"{path}{fault}; its hooks are left out"]
    return _read_events(events, str(path), folder, is_user=is_user)


def read_plugin_hooks(
    plugin: str, folder: Path, path: Path, inline: JsonValue | None
) -> DeclaredHooks:
    """Read the hooks of a plugin in `folder`: those of the file `path`, or the `inline` ones of its
    manifest.
    """
    source = f"the plugin {plugin} ({path.relative_to(folder).as_posix()})"
    try:
        events = _events(path) if inline is None else _events_of(inline, path)
    except SettingsFault as fault:
        return DeclaredHooks((), (f"{source}{fault}; its hooks are left out",))
    hooks, notes = _read_events(events, source, folder, is_user=False)
    marks = {"plugin": plugin, "plugin_root": str(folder)}
    return DeclaredHooks(tuple(hook.model_copy(update=marks) for hook in hooks), tuple(notes))


def _read_events(
    events: dict[str, JsonValue], source: str, folder: Path, *, is_user: bool
) -> tuple[list[Hook], list[str]]:
    from fugu_cli.extensions import hook_protocol

    hooks: list[Hook] = []
    notes: list[str] = []
    for event, groups in events.items():
        moment = next((moment for moment in HOOK_EVENTS if moment == event), None)
        if moment is None:
            notes.append(f"{source}, hooks.{event}: fugu has no such event; its hooks are left out")
            continue
        for hook in _hooks_of_event(moment, groups, source, is_user=is_user):
            if hook.fault and moment != GUARD_EVENT:
                notes.append(f"{source}, hooks.{moment}{hook.fault}; the hook is left out")
                continue
            if hook.fault:
                notes.append(
                    f"{source}, hooks.{moment}{hook.fault}; it cannot be run, so it says no"
                )
            elif moment in CALL_EVENTS and (mistake := _matcher_mistake(hook.matcher)):
                notes.append(
                    f"{source}, hooks: the matcher `{hook.matcher}` of {moment} fits no tool: "
                    f"{mistake}"
                )
            if hook.rule:
                mistake = rule_matching.pattern_fault(hook_protocol.fugu_rule(hook.rule))
                if mistake:
                    notes.append(
                        f"{source}, hooks.{moment}: its `if` cannot be read, so it is run for every "
                        f"call: {mistake}"
                    )
            if not is_user:
                content = hash_of_named_files(hook.command, folder)
                hook = hook.model_copy(update={"content": content})
            hooks.append(hook)
    return hooks, notes


def _events(path: Path) -> dict[str, JsonValue]:
    """Return the groups of each event in the file, {} if there is no file. Raises SettingsFault."""
    return _events_of(_read_object(path), path)


def _events_of(settings: JsonValue, path: Path) -> dict[str, JsonValue]:
    if not isinstance(settings, dict) or settings.get("disableAllHooks") is True:
        return {}
    if "hooks" not in settings and settings.keys() & set(HOOK_EVENTS):
        return settings  # in a plugin's manifest the events may stand alone
    if "hooks" not in settings and path.name == Path(HOOKS_FILE).name:
        raise SettingsFault(", hooks: it is missing")
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsFault(", hooks: it should be one object, event by event")
    return hooks


def _hooks_of_event(
    moment: HookEvent, groups: JsonValue, source: str, *, is_user: bool
) -> Iterator[Hook]:
    """Yield the hooks of an event; for each unreadable entry one that has only a `fault`."""
    common: dict[str, object] = {"moment": moment, "source": source, "own": is_user}
    if not isinstance(groups, list):
        yield Hook.model_validate(common | {"fault": ": it should be a list"})
        return
    for number, group in enumerate(groups):
        matcher = (group.get("matcher") or "") if isinstance(group, dict) else ""
        entries = group.get("hooks") if isinstance(group, dict) else None
        if not isinstance(entries, list):
            fault = f".{number}.hooks: it should be a list"
            yield Hook.model_validate(common | {"fault": fault})
            continue
        matcher_fault = _matcher_fault(matcher)
        for index, entry in enumerate(entries):
            if matcher_fault:
                fault = f".{number}.matcher: {matcher_fault}"
                yield Hook.model_validate(common | {"fault": fault})
                continue
            try:
                yield Hook.model_validate(common | {"matcher": matcher} | _fields(entry))
            except SettingsFault as error:
                fault = f".{number}.hooks.{index}{error}"
                yield Hook.model_validate(common | {"matcher": matcher, "fault": fault})


def _fields(entry: JsonValue) -> dict[str, object]:
    """Return the fields of Hook for an entry. Raises SettingsFault."""
    try:
        command = _Command.model_validate(entry)
    except ValidationError as error:
        raise SettingsFault(_first_error(error)) from error
    return {
        "command": command.line,
        "timeout": min(command.timeout, LONGEST_TIMEOUT),
        "rule": command.rule,
        "apart": command.runs_apart,
    }


def _matcher_fault(matcher: object) -> str:
    if not isinstance(matcher, str):
        return "it should be a string"
    try:
        re.compile(matcher if matcher != "*" else "")
    except re.error as error:
        return f"it is not a regular expression: {error}"
    return ""


def _matcher_mistake(matcher: str) -> str:
    """Return why a matcher can fit no tool, "" if it may fit one, of an MCP server perhaps."""
    from fugu_cli.extensions import hook_protocol

    tools = {*tool_names(), *hook_protocol.UNSUPPORTED_TOOLS}
    for tool in TOOLS.values():
        tools.update(tool.claude_code)
    if "mcp" in matcher.casefold():
        return ""
    if Hook(moment=GUARD_EVENT, matcher=matcher, source="", own=True).matches(tools):
        return ""
    if rule := re.fullmatch(r"(\w+)\(.*\)", matcher):
        return (
            f"it goes by a tool's name alone, `{rule[1]}`; the key `if` of a hook takes such a rule"
        )
    if _EXACT.fullmatch(matcher):
        return rule_matching.unknown_tool(re.split(r"[|,]", matcher)[0].strip())
    return ""


def _read_object(path: Path) -> JsonValue:
    """Return the object in the file, None if there is no file. Raises SettingsFault."""
    text = settings_text(path)
    if not text and not path.exists():
        return None
    settings = parsed_settings(text)
    if not isinstance(settings, dict):
        raise SettingsFault(': it should hold one object, {"hooks": {"PreToolUse": [...]}}')
    return settings


def _first_error(error: ValidationError) -> str:
    """Describe the first error, with its key."""
    first = error.errors()[0]
    path = "".join(f".{part}" for part in first["loc"])
    if first["type"] == "missing":
        return f"{path}: it is missing"
    if first["type"] == "value_error":
        return f"{path}: {first['ctx']['error']}"
    return f"{path}: {first['msg'][:1].lower()}{first['msg'][1:]}"
