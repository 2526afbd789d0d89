"""What `.agents/hooks.json` says: the hooks a user or a repository names, as values, and what is wrong with a file.

Read with the configuration (config/files.py), which says whether the repository is trusted. The shape is that of Claude
Code. Nothing here runs anything; a file with a fault is left out whole, never a session.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError, field_validator

from fugu_cli.messages import Value
from fugu_cli.policy import patterns
from fugu_cli.tools.mcp.declared import meant

NAME = ".agents/hooks.json"
"""Below the repository's root and below the user's home."""
Moment = Literal["PreToolUse", "PostToolUse", "UserPromptSubmit", "Stop"]
MOMENTS: tuple[Moment, ...] = get_args(Moment)
AROUND_CALLS: tuple[Moment, ...] = ("PreToolUse", "PostToolUse")
"""Those whose matchers are looked at."""
USUAL, LONGEST = 60.0, 3600.0
"""Seconds a hook may take, unless it says otherwise; and the most it may say."""


_PLAIN = re.compile(r"[\w*-]*")
_SERVERS = re.compile(r"mcp__[\w-]+?__[\w-]+", re.IGNORECASE)


class Hook(Value):
    """One command and when it is run. `own`: it is the user's, not the repository's. `timeout` in seconds."""

    moment: Moment
    matcher: str = ""
    command: str
    timeout: float = USUAL
    source: str
    own: bool

    def matches(self, tool: str) -> bool:
        """Whether it is for this tool: the matcher is a regular expression for the whole name; "" and * are all."""
        return self.matcher in {"", "*"} or re.fullmatch(self.matcher, tool, re.IGNORECASE) is not None

    @property
    def said(self) -> str:
        """The command, for people: its first line, and no more of it than fits in one."""
        first, *others = self.command.strip().splitlines()
        return first if len(first) <= 80 and not others else f"{first[:77]}..."


@dataclass(frozen=True)
class Declared:
    """The hooks that count, the user's before the repository's. `notes` are sentences for people: what is left out."""

    hooks: tuple[Hook, ...] = ()
    notes: tuple[str, ...] = ()


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Command(_Strict):
    type: Literal["command"]
    command: str
    timeout: Annotated[float, Field(gt=0, le=LONGEST)] = USUAL

    @field_validator("command")
    @classmethod
    def _runnable(cls, command: str) -> str:
        if not command.strip() or "\0" in command:
            raise ValueError("it is empty or holds a NUL character")
        return command


class _Group(_Strict):
    matcher: str = ""
    hooks: list[_Command]

    @field_validator("matcher")
    @classmethod
    def _readable(cls, matcher: str) -> str:
        try:
            re.compile(matcher if matcher != "*" else "")
        except re.error as error:
            raise ValueError(f"it is not a regular expression: {error}") from error
        return matcher


class _File(_Strict):
    hooks: dict[Moment, list[_Group]]

    @field_validator("hooks")
    @classmethod
    def _fit(cls, hooks: dict[Moment, list[_Group]]) -> dict[Moment, list[_Group]]:
        for moment in AROUND_CALLS:
            for group in hooks.get(moment, ()):
                if why := _unfit(group.matcher):
                    raise ValueError(f"the matcher `{group.matcher}` of {moment} fits no tool: {why}")
        return hooks


def _unfit(matcher: str) -> str:
    """Why a matcher can fit no tool; "" where it does, or where only a server's tools could tell."""
    if matcher in {"", "*"} or any(re.fullmatch(matcher, tool, re.IGNORECASE) for tool in patterns.TOOLS):
        return ""
    if rule := re.fullmatch(r"(\w+)\(.*\)", matcher):
        return f"it goes by a tool's name alone, `{rule[1].lower()}`; a hook reads from `tool_input` what is called"
    parts = matcher.split("|")
    if not all(map(_PLAIN.fullmatch, parts)) or any(map(_SERVERS.fullmatch, parts)):
        return ""
    server = re.match(r"mcp__\w+?(?=_*\*|$)", matcher)
    return f"it is a regular expression; write `{server[0]}__.*`" if server else patterns.unknown(parts[0])


class _Fault(Exception):
    """Why a file cannot be used."""


def read(user: Path, own: Path | None, *, trusted: bool) -> Declared:
    """The hooks of the user's file and those of the repository's `own`, the latter only where it is `trusted`."""
    hooks: list[Hook] = []
    notes: list[str] = []
    for path, mine in ((user, True), (own, False)):
        if path is None:
            continue
        try:
            found = _hooks(path, mine=mine)
        except _Fault as fault:
            notes.append(f"{path}{fault}; its hooks are left out")
            continue
        if found and not mine and not trusted:
            moments = ", ".join(dict.fromkeys(hook.moment for hook in found))
            notes.append(f"{path} names hooks ({moments}): none is run until you run `fugu trust` here")
        else:
            hooks += found
    return Declared(tuple(hooks), tuple(notes))


def named_files(folder: Path) -> Iterator[Path]:
    """Files in `folder` that its hooks file would have run: whoever may change them may change what is run."""
    try:
        hooks = _hooks(folder / NAME, mine=False)
    except _Fault:
        return
    for hook in hooks:
        for word in _words(hook.command):
            yield from meant(folder, word)


def _words(command: str) -> Sequence[str]:
    parser = shlex.shlex(command, posix=True, punctuation_chars=True)
    parser.whitespace_split = True
    try:
        return list(parser)
    except ValueError:
        return command.split()


def _hooks(path: Path, *, mine: bool) -> list[Hook]:
    """What the file names, in its order. Raises _Fault."""
    found = _parsed(path)
    if found is None:
        return []
    try:
        file = _File.model_validate(found)
    except ValidationError as error:
        raise _Fault(_said(error)) from error
    return [
        Hook(
            moment=moment,
            matcher=group.matcher,
            command=one.command,
            timeout=one.timeout,
            source=str(path),
            own=mine,
        )
        for moment, groups in file.hooks.items()
        for group in groups
        for one in group.hooks
    ]


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
    place = [part for part in first["loc"] if part != "[key]"]
    spot = ".".join(str(part) for part in place)
    match first["type"]:
        case "extra_forbidden":
            said = "there is no such key"
        case "missing":
            said = "it is missing"
        case "literal_error" if len(place) == 2:
            said = f"there is no such event; there are {', '.join(MOMENTS)}"
        case "value_error":
            said = str(first["ctx"]["error"])
        case _:
            said = f"{first['msg'][:1].lower()}{first['msg'][1:]}"
    return f", {spot}: {said}"
