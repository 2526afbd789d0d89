"""Hooks as the files declare them.

The files are `.agents/hooks.json` and, in the same shape, `.claude/settings.json` and
`.claude/settings.local.json`. Read with the configuration, which says whether the repository is
trusted. Nothing here runs anything. A fault leaves out one hook; a guard with a fault is kept and
refuses, for nobody knows what it would have said.
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
    SettingsFault,
    files_of_word,
    parsed_settings,
    settings_text,
)
from fugu_cli.messages import Value
from fugu_cli.safety.policy import rule_matching
from fugu_cli.system.bounded_json import parse_json

HOOKS_FILE = ".agents/hooks.json"
SETTINGS_FILES = (".claude/settings.json", ".claude/settings.local.json")
HOOK_FILES = (HOOKS_FILE, *SETTINGS_FILES)
"""Below the repository's root and below the user's home."""
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
    """One command and when it is run. `own`: it is the user's, not the repository's. `timeout` in
    seconds. `callback`: it is a function of the client's (`fugu sdk`), under this id.

    `rule` narrows it to calls such a permission rule is for. `apart`: nobody waits for it. `fault`
    says why it cannot be run, of a guard alone. `content` is the hash of the files that the command
    names, of a repository's hook alone.
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
        """Whether it is for what has these names. Letter case does not matter; "" and * are all. A
        matcher of plain words is a list of whole names, `mcp__SERVER` among them; any other a
        regular expression for a part of one."""
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
    """The hooks that count, the user's before the repository's. `notes` are sentences for people:
    what is left out; `untrusted` are files whose hooks do not count before the user trusts their
    folder.
    """

    hooks: tuple[Hook, ...] = ()
    notes: tuple[str, ...] = ()
    untrusted: tuple[Path, ...] = ()


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
        """The command line. Arguments given apart are words of their own; the root's place is
        filled in there too.
        """
        if self.args is None:
            return self.command
        unquoted = f"""'"${{{ROOT_VARIABLE}}}"'"""
        return " ".join(
            _PLACE.sub(lambda _: unquoted, shlex.quote(word)) for word in (self.command, *self.args)
        )


def read_hooks(user: Path, own: Path | None, *, trusted: bool) -> DeclaredHooks:
    """The hooks of the home `user` and those of the repository `own`, the latter only where it is
    `trusted`.
    """
    hooks: list[Hook] = []
    notes: list[str] = []
    untrusted: list[Path] = []
    for folder, mine in ((user, True), (own, False)):
        if folder is None:
            continue
        for path in (folder / name for name in HOOK_FILES):
            found, said = _read_file(path, folder, mine=mine)
            if found and not mine and not trusted:
                moments = ", ".join(dict.fromkeys(hook.moment for hook in found))
                untrusted.append(path)
                notes.append(
                    f"{path} names hooks ({moments}): none is run until you run `fugu trust` here"
                )
            else:
                hooks += found
                notes += said
    return DeclaredHooks(tuple(hooks), tuple(notes), tuple(untrusted))


def files_named_by_hooks(folder: Path) -> Iterator[Path]:
    """Files in `folder` that tell which hooks are run, and those that its hooks would have run:
    whoever may change them may change what is run."""
    for name in HOOK_FILES:
        hooks, _ = _read_file(folder / name, folder, mine=False)
        if hooks and name in SETTINGS_FILES:
            yield folder / name
        for hook in hooks:
            yield from _scripts(hook.command, folder)


def content_of(path: Path) -> bytes:
    """What of a file tells fugu what to do: of another tool's settings the hooks alone. Raises
    OSError.
    """
    data = path.read_bytes()
    if path.parent.name != ".claude" or not path.name.startswith("settings."):
        return data
    try:
        found = parse_json(data)
    except ValueError:
        return data
    told = (
        {key: found.get(key) for key in ("hooks", "disableAllHooks")}
        if isinstance(found, dict)
        else found
    )
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
    from fugu_cli.extensions import hook_protocol

    notes: list[str] = []
    try:
        events = _events(path)
    except SettingsFault as fault:
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
                notes.append(
                    f"{path}, hooks: the matcher `{hook.matcher}` of {moment} fits no tool: {why}"
                )
            if hook.rule and (
                why := rule_matching.pattern_fault(hook_protocol.fugu_rule(hook.rule))
            ):
                notes.append(
                    f"{path}, hooks.{moment}: its `if` cannot be read, so it is run for every "
                    f"call: {why}"
                )
            hooks.append(
                hook
                if mine
                else hook.model_copy(update={"content": hash_of_named_files(hook.command, folder)})
            )
    return hooks, notes


def _events(path: Path) -> dict[str, JsonValue]:
    """Event -> groups, as they stand in the file; nothing where there is none. Raises
    SettingsFault.
    """
    found = _parsed(path)
    if not isinstance(found, dict) or found.get("disableAllHooks") is True:
        return {}
    if "hooks" not in found and path.name == Path(HOOKS_FILE).name:
        raise SettingsFault(", hooks: it is missing")
    hooks = found.get("hooks", {})
    if not isinstance(hooks, dict):
        raise SettingsFault(", hooks: it should be one object, event by event")
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
            yield Hook(
                moment=moment,
                source=str(path),
                own=mine,
                fault=f".{number}.hooks: it should be a list",
            )
            continue
        why = _unreadable(matcher)
        for index, one in enumerate(held):
            spot = f".{number}.hooks.{index}"
            entry: dict[str, object] = {"moment": moment, "source": str(path), "own": mine}
            try:
                if why:
                    spot = f".{number}.matcher"
                    raise SettingsFault(f": {why}")
                yield Hook.model_validate(entry | {"matcher": matcher} | _entry(one))
            except SettingsFault as fault:
                yield Hook.model_validate(
                    entry | {"matcher": "" if why else matcher, "fault": f"{spot}{fault}"}
                )


def _entry(one: JsonValue) -> dict[str, object]:
    """The fields of one hook. Raises SettingsFault."""
    try:
        found = _Command.model_validate(one)
    except ValidationError as error:
        raise SettingsFault(_said(error)) from error
    seconds = min(found.timeout, LONGEST_TIMEOUT)
    return {
        "command": found.line,
        "timeout": seconds,
        "rule": found.rule,
        "apart": found.runs_apart,
    }


def _unreadable(matcher: object) -> str:
    if not isinstance(matcher, str):
        return "it should be a string"
    try:
        re.compile(matcher if matcher != "*" else "")
    except re.error as error:
        return f"it is not a regular expression: {error}"
    return ""


def _unfit(matcher: str) -> str:
    """Why a matcher can fit no tool; "" where it does, or where only a server's tools could
    tell.
    """
    from fugu_cli.extensions import hook_protocol

    known = {
        *rule_matching.known_tools(),
        *(name for names in hook_protocol.CLAUDE_CODE_NAMES.values() for name in names),
        *hook_protocol.UNSUPPORTED_TOOLS,
    }
    if (
        Hook(moment=GUARD_EVENT, matcher=matcher, source="", own=True).matches(known)
        or "mcp" in matcher.casefold()
    ):
        return ""
    if rule := re.fullmatch(r"(\w+)\(.*\)", matcher):
        return (
            f"it goes by a tool's name alone, `{rule[1]}`; the key `if` of a hook takes such a rule"
        )
    return (
        rule_matching.unknown_tool(re.split(r"[|,]", matcher)[0].strip())
        if _EXACT.fullmatch(matcher)
        else ""
    )


def _parsed(path: Path) -> JsonValue:
    """None where there is no file. Raises SettingsFault."""
    text = settings_text(path)
    if not text and not path.exists():
        return None
    found = parsed_settings(text)
    if not isinstance(found, dict):
        raise SettingsFault(': it should hold one object, {"hooks": {"PreToolUse": [...]}}')
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
