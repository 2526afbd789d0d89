"""The flags of all commands, as frozen dataclasses, and how a dataclass becomes a command's parameters. Imported at
start-up: nothing heavy may be imported here.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar, get_type_hints

import typer

from fugu_cli.errors import UsageError

Flags = TypeVar("Flags")


class OutputFormat(StrEnum):
    """What `fugu run` prints."""

    text = "text"
    json = "json"
    stream = "stream-json"


class TextOrJson(StrEnum):
    """For people, or one JSON document."""

    text = "text"
    json = "json"


class PermissionModeFlag(StrEnum):
    """Permission modes, the strictest first; the same as config.Mode."""

    plan = "plan"
    ask = "ask"
    edit = "edit"
    auto = "auto"
    yolo = "yolo"


class TierFlag(StrEnum):
    """Turn by turn, or workflows."""

    fugu = "fugu"
    ultra = "ultra"


def option(
    *names: str, help: str, metavar: str | None = None, least: float | None = None, above: float | None = None
) -> Any:
    """An option whose default is the field's own. With `least` or `above`, a finite number that is not less than the
    one and greater than the other."""
    bounded = None if least is None and above is None else _bounded(names[0], least, above)
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, callback=bounded)


def path_option(*names: str, help: str, metavar: str) -> Any:
    """An option for a file or a folder. An empty word is refused: it would be the current folder."""

    def named(text: str) -> Path:
        check_empty(**{names[0].lstrip("-"): text})
        return Path(text)

    return typer.Option(*names, help=help, metavar=metavar, show_default=False, parser=named)


def _bounded(name: str, least: float | None, above: float | None) -> Callable[[float | None], float | None]:
    floor = f"must be {least:g} or more" if least is not None else f"must be more than {above:g}"

    def checked(value: float | None) -> float | None:
        low = value is not None and ((least is not None and value < least) or (above is not None and value <= above))
        if value is not None and (low or not math.isfinite(value)):
            raise UsageError(f"{name} {floor}, and finite: it is {value}")
        return value

    return checked


@dataclass(frozen=True)
class RunFlags:
    """`fugu run`, as the user wrote it. None means: not said here."""

    text: Annotated[str | None, typer.Argument(metavar="PROMPT", help="what to do; - reads it from standard input")] = (
        None
    )
    prompt: Annotated[str | None, option("-p", "--prompt", help="the same as an option", metavar="TEXT")] = None
    prompt_file: Annotated[Path | None, option("--prompt-file", help="read it from a file", metavar="FILE")] = None
    output_format: Annotated[OutputFormat, option("--output-format", help="text, json or stream-json")] = (
        OutputFormat.text
    )
    output_dir: Annotated[
        str | None, option("--output-dir", help="leave session, diff, trajectory and summary there", metavar="DIR")
    ] = None
    """No Path: the empty one would be the current folder."""
    go_on: Annotated[bool, option("-c", "--continue", help="go on with this folder's newest session")] = False
    resume: Annotated[str | None, option("--resume", help="go on with a session", metavar="ID")] = None
    fork_session: Annotated[bool, option("--fork-session", help="go on in a copy of the session")] = False
    max_turns: Annotated[int | None, option("--max-turns", help="turns at most", metavar="N")] = None
    max_budget_usd: Annotated[float | None, option("--max-budget-usd", help="money at most", metavar="USD")] = None
    time_limit: Annotated[float | None, option("--time-limit", help="time at most", metavar="SECONDS")] = None
    coordinator: Annotated[
        str | None, option("--coordinator", help="trinity, cascade, random or single:NAME", metavar="RULE")
    ] = None
    agent: Annotated[str | None, option("--agent", help="let one agent take every turn", metavar="NAME")] = None
    opt_out: Annotated[
        list[str] | None, option("--opt-out", help="never choose this agent; repeatable", metavar="NAME")
    ] = None
    permission_mode: Annotated[
        PermissionModeFlag | None, option("--permission-mode", help="plan, ask, edit, auto or yolo", metavar="MODE")
    ] = None
    yolo: Annotated[bool, option("--yolo", help="the same as --permission-mode yolo: everything is allowed")] = False
    allow: Annotated[
        list[str] | None, option("--allow", help="allow calls, as in 'bash(make *)'; repeatable", metavar="RULE")
    ] = None
    deny: Annotated[list[str] | None, option("--deny", help="forbid calls; repeatable", metavar="RULE")] = None
    trust: Annotated[bool, option("--trust", help="trust this folder for this run")] = False
    test_command: Annotated[str | None, option("--test-command", help="how the tests are run", metavar="COMMAND")] = (
        None
    )
    test_timeout: Annotated[float | None, option("--test-timeout", help="limit of one test run", metavar="SECONDS")] = (
        None
    )
    until: Annotated[
        list[str] | None, option("--until", help="a command that must pass in the end; repeatable", metavar="COMMAND")
    ] = None
    until_tests_pass: Annotated[bool, option("--until-tests-pass", help="the tests must pass in the end")] = False
    verify_answers: Annotated[bool, option("--verify-answers", help="verify answers that changed nothing")] = False
    tier: Annotated[TierFlag | None, option("--tier", help="fugu or ultra", metavar="TIER")] = None
    seed: Annotated[int | None, option("--seed", help="seed of everything that is drawn", metavar="N")] = None
    script: Annotated[
        Path | None,
        option("--script", help="answers from a script instead of a model, for demos and tests", metavar="FILE"),
    ] = None

    def settings(self) -> Mapping[str, Any]:
        """What of these is configuration, by its key; only what was said."""
        mode = PermissionModeFlag.yolo if self.yolo else self.permission_mode
        said: dict[str, Any] = {
            "max_turns": self.max_turns,
            "max_budget_usd": self.max_budget_usd,
            "time_limit": self.time_limit,
            "coordinator": f"single:{self.agent}" if self.agent else self.coordinator,
            "opt_out": self.opt_out or None,
            "permission_mode": mode.value if mode else None,
            "allow": self.allow or None,
            "deny": self.deny or None,
            "test_command": self.test_command,
            "test_timeout": self.test_timeout,
            "tests": self._tests(),
            "verify_answers": self.verify_answers or None,
            "tier": self.tier.value if self.tier else None,
            "seed": self.seed,
        }
        return {key: value for key, value in said.items() if value is not None}

    def _tests(self) -> dict[str, object] | None:
        """What must pass in the end; None where nothing was said."""
        for command in self.until or ():
            check_empty(until=command.strip())
        said: dict[str, object] = {"until": tuple(self.until)} if self.until else {}
        return said | ({"until_pass": True} if self.until_tests_pass else {}) or None


@dataclass(frozen=True)
class InterfaceFlags:
    """`fugu` alone: how the interface is opened. None means: not said here."""

    context: typer.Context = None  # type: ignore[assignment]  # typer fills it in
    version: Annotated[bool, option("--version", help="print the version and exit")] = False
    inline: Annotated[bool, option("--inline", help="work in the scrollback instead of a full screen")] = False
    go_on: Annotated[bool, option("-c", "--continue", help="open this folder's newest session")] = False
    resume: Annotated[str | None, option("-r", "--resume", help="open a session", metavar="ID")] = None
    fork_session: Annotated[bool, option("--fork-session", help="open a copy of the session")] = False
    tier: Annotated[TierFlag | None, option("--tier", help="fugu or ultra", metavar="TIER")] = None
    permission_mode: Annotated[
        PermissionModeFlag | None, option("--permission-mode", help="plan, ask, edit, auto or yolo", metavar="MODE")
    ] = None
    agent: Annotated[str | None, option("--agent", help="let one agent take every turn", metavar="NAME")] = None
    trust: Annotated[bool, option("--trust", help="trust this folder this time")] = False

    def settings(self) -> Mapping[str, Any]:
        """What of these is configuration, by its key; only what was said."""
        said = {
            "tier": self.tier.value if self.tier else None,
            "permission_mode": self.permission_mode.value if self.permission_mode else None,
            "coordinator": f"single:{self.agent}" if self.agent else None,
        }
        return {key: value for key, value in said.items() if value is not None}


@dataclass(frozen=True)
class SessionsFlags:
    """`fugu sessions`: which are listed, or what is done with one."""

    search: Annotated[str, typer.Argument(metavar="TEXT", help="only those in which this was said")] = ""
    repaired: Annotated[
        str, typer.Argument(metavar="ID", help="after the word repair: copy a damaged session up to its fault")
    ] = ""
    everywhere: Annotated[bool, option("--all", help="of every folder, not only this one")] = False
    latest: Annotated[bool, option("--latest", help="only the newest")] = False
    paths: Annotated[bool, option("--path", help="only the paths of their logs")] = False
    fork: Annotated[str | None, option("--fork", help="copy a session under a new id", metavar="ID")] = None
    rename: Annotated[
        tuple[str, str] | None, option("--rename", help="give a session another title", metavar="ID TITLE")
    ] = None


@dataclass(frozen=True)
class ServeFlags:
    """`fugu serve`, as the user wrote it."""

    host: Annotated[str, option("--host", help="address to listen on; others than this machine's need a token")] = (
        "127.0.0.1"
    )
    port: Annotated[int, option("--port", help="port to listen on, 0 for any free one (8484)", metavar="N")] = 8484
    token_env: Annotated[
        str, option("--token-env", help="the variable that holds the bearer token (FUGU_SERVE_TOKEN)", metavar="NAME")
    ] = "FUGU_SERVE_TOKEN"
    coordinator: Annotated[
        str | None, option("--coordinator", help="trinity, cascade, random or single:NAME", metavar="RULE")
    ] = None
    agent: Annotated[str | None, option("--agent", help="let one agent answer everything", metavar="NAME")] = None
    opt_out: Annotated[
        list[str] | None, option("--opt-out", help="never choose this agent; repeatable", metavar="NAME")
    ] = None
    max_turns: Annotated[int | None, option("--max-turns", help="turns of one answer at most", metavar="N")] = None
    max_budget_usd: Annotated[
        float | None, option("--max-budget-usd", help="money a request may cost", metavar="USD")
    ] = None
    max_request_mb: Annotated[float, option("--max-request-mb", help="longest request (32)", metavar="MB")] = 32.0
    max_concurrent: Annotated[int, option("--max-concurrent", help="answers at once (128)", metavar="N")] = 128
    request_timeout: Annotated[
        float, option("--request-timeout", help="time an answer may take (1800)", metavar="SECONDS")
    ] = 1800.0
    grace: Annotated[float, option("--grace", help="time for answers after a stop (30)", metavar="SECONDS")] = 30.0


def check_empty(**given: str | None) -> None:
    """Raises UsageError for a flag that was given an empty word."""
    for name, value in given.items():
        if value == "":
            raise UsageError(
                f"--{name.replace('_', '-')} is empty",
                hint="a variable that is not set? give a value, or leave it out",
            )


def check_session(flags: InterfaceFlags | RunFlags) -> None:
    """Raises UsageError where --continue, --resume and --fork-session contradict one another, or say nothing."""
    check_empty(resume=flags.resume, agent=flags.agent)
    if flags.go_on and flags.resume:
        raise UsageError(
            "--continue and --resume exclude one another", hint="--continue takes this folder's newest session"
        )
    if flags.fork_session and not (flags.go_on or flags.resume):
        raise UsageError("--fork-session needs a session", hint="add --continue or --resume ID")


def _default(field: dataclasses.Field[object]) -> object:
    """What stands where nothing was said; a word that must be said has none in either."""
    return inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default


def flags_as_parameters(flags: type[Flags]) -> Callable[[Callable[[Flags], int]], Callable[..., int]]:
    """Make a command whose parameters are the fields of a frozen dataclass: it is called with one of those."""

    def decorate(command: Callable[[Flags], int]) -> Callable[..., int]:
        def called(**given: object) -> int:
            return command(flags(**given))

        hints = get_type_hints(flags, include_extras=True)
        fields = dataclasses.fields(flags)  # type: ignore[arg-type]
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [
                inspect.Parameter(
                    field.name, inspect.Parameter.KEYWORD_ONLY, default=_default(field), annotation=hints[field.name]
                )
                for field in fields
            ],
            return_annotation=int,
        )
        called.__annotations__ = {**{field.name: hints[field.name] for field in fields}, "return": int}
        called.__name__, called.__doc__ = command.__name__, command.__doc__
        return called

    return decorate


class TiedEmbedding(StrEnum):
    """Whose block moves an embedding that is one tensor with the LM head; the same as svf.Tied."""

    untied = "untied"
    authors = "authors"


class TranscriptFormat(StrEnum):
    """How a checkpoint was trained to read."""

    raw = "raw"
    chat = "chat"


@dataclass(frozen=True)
class ImportFlags:
    """`fugu coordinator import`."""

    file: Annotated[Path, typer.Argument(metavar="FILE", help="the published .npy, a .npy of your own, a checkpoint")]
    mapping: Annotated[
        list[str] | None,
        option("--map", help="the row of that name is this agent of your pool; repeatable", metavar="ROW=AGENT"),
    ] = None
    rows: Annotated[
        str | None, option("--rows", help="the rows of a .npy of your own, in order", metavar="NAME,NAME")
    ] = None
    roles: Annotated[bool, option("--roles/--no-roles", help="it has rows for the three roles")] = True
    format: Annotated[
        TranscriptFormat | None, option("--format", help="how it was trained to read: raw (where not said) or chat")
    ] = None
    tied: Annotated[
        TiedEmbedding | None,
        option("--tied", help="which block moves a tied embedding: untied (the first) or authors (the ninth)"),
    ] = None
    workers_only: Annotated[
        bool | None, option("--workers-only/--all-replies", help="whose replies its transcript shows")
    ] = None
    budget: Annotated[int | None, option("--budget", help="tokens of its transcript", metavar="N", least=64)] = None
    backbone: Annotated[
        str | None, option("--backbone", help="the folder or hub id of its backbone", metavar="FOLDER")
    ] = None
    out: Annotated[Path | None, option("--out", help="where to write it", metavar="FILE")] = None


@dataclass(frozen=True)
class RouteFlags:
    """`fugu route`, as the user wrote it. None means: not said here."""

    what: Annotated[
        str | None,
        typer.Argument(metavar="TEXT", help="a request, - for standard input, or a session: an id, a file, latest"),
    ] = None
    session: Annotated[str | None, option("--session", help="decide in this session", metavar="ID")] = None
    turn: Annotated[int | None, option("--turn", help="decide again what was decided at its turn N", metavar="N")] = (
        None
    )
    request: Annotated[int | None, option("--request", help="of this request, not the newest", metavar="N")] = None
    explain: Annotated[bool, option("--explain", help="show what was read and weighed")] = False
    as_json: Annotated[bool, option("--json", help="everything as one JSON document")] = False
    coordinator: Annotated[
        str | None, option("--coordinator", help="trinity, cascade, random or single:NAME", metavar="RULE")
    ] = None
    checkpoint: Annotated[Path | None, option("--checkpoint", help="decide with this checkpoint", metavar="FILE")] = (
        None
    )
    backbone: Annotated[
        str | None, option("--backbone", help="a folder or hub id of its backbone", metavar="FOLDER")
    ] = None
    roles: Annotated[
        bool | None, option("--roles/--no-roles", help="with a role for the agent, or one agent and no role")
    ] = None
    format: Annotated[
        TranscriptFormat | None, option("--format", help="refuse a checkpoint that reads another one: raw or chat")
    ] = None
    sample: Annotated[bool, option("--sample", help="draw by probability instead of taking the likeliest")] = False
    temperature: Annotated[float | None, option("--temperature", help="of the softmax; 1 by default", metavar="T")] = (
        None
    )
    seed: Annotated[int | None, option("--seed", help="seed of what is drawn", metavar="N")] = None
    opt_out: Annotated[
        list[str] | None, option("--opt-out", help="never choose this agent; repeatable", metavar="NAME")
    ] = None


class RequestInput(NamedTuple):
    """`text` is the request, None where an earlier one is to go on; `piped` came from standard input beside it."""

    text: str | None
    piped: str = ""


WITH_RUN = (
    *("tier", "max_budget_usd", "time_limit", "permission_mode", "yolo", "allow", "deny", "output_dir", "script"),
    "test_timeout",
)
"""Flags that say nothing where nothing is called."""


@dataclass(frozen=True)
class ReplayFlags:
    """`fugu replay`, as the user wrote it. None means: not said here."""

    session: Annotated[
        str, typer.Argument(metavar="SESSION", help="an id, the beginning of one, a file, or latest")
    ] = "latest"
    request: Annotated[int | None, option("--request", help="this request alone", metavar="N")] = None
    run: Annotated[bool, option("--run", help="carry the requests out again, each in a copy of its working tree")] = (
        False
    )
    as_json: Annotated[bool, option("--json", help="as one JSON document")] = False
    coordinator: Annotated[
        str | None, option("--coordinator", help="trinity, cascade, random or single:NAME", metavar="RULE")
    ] = None
    agent: Annotated[str | None, option("--agent", help="one agent takes every turn", metavar="NAME")] = None
    checkpoint: Annotated[Path | None, option("--checkpoint", help="decide with this checkpoint", metavar="FILE")] = (
        None
    )
    backbone: Annotated[
        str | None, option("--backbone", help="a folder or hub id of its backbone", metavar="FOLDER")
    ] = None
    opt_out: Annotated[
        list[str] | None, option("--opt-out", help="never choose this agent; repeatable", metavar="NAME")
    ] = None
    present_pool: Annotated[
        bool, option("--present-pool", help="choose among today's agents, not the session's (--run always does)")
    ] = False
    max_turns: Annotated[int | None, option("--max-turns", help="turns of a request at most", metavar="N")] = None
    verify_answers: Annotated[bool, option("--verify-answers", help="verify answers that changed nothing")] = False
    sample: Annotated[bool, option("--sample", help="draw by probability instead of taking the likeliest")] = False
    seed: Annotated[int | None, option("--seed", help="seed of everything that is drawn", metavar="N")] = None
    tier: Annotated[TierFlag | None, option("--tier", help="with --run: fugu or ultra", metavar="TIER")] = None
    max_budget_usd: Annotated[
        float | None, option("--max-budget-usd", help="with --run: money a request may cost", metavar="USD")
    ] = None
    time_limit: Annotated[
        float | None, option("--time-limit", help="with --run: time a request may take", metavar="SECONDS")
    ] = None
    permission_mode: Annotated[
        PermissionModeFlag | None,
        option("--permission-mode", help="with --run: plan, ask, edit, auto or yolo", metavar="MODE"),
    ] = None
    yolo: Annotated[bool, option("--yolo", help="with --run: everything is allowed")] = False
    allow: Annotated[
        list[str] | None, option("--allow", help="with --run: allow calls; repeatable", metavar="RULE")
    ] = None
    deny: Annotated[list[str] | None, option("--deny", help="with --run: forbid calls; repeatable", metavar="RULE")] = (
        None
    )
    test_timeout: Annotated[
        float | None, option("--test-timeout", help="with --run: limit of one test run", metavar="SECONDS")
    ] = None
    output_dir: Annotated[
        str | None, option("--output-dir", help="with --run: leave sessions and diffs there", metavar="DIR")
    ] = None
    script: Annotated[
        Path | None, option("--script", help="with --run: answers from a script instead of a model", metavar="FILE")
    ] = None

    def settings(self) -> Mapping[str, Any]:
        """What of these is configuration, by its key; only what was said."""
        mode = PermissionModeFlag.yolo if self.yolo else self.permission_mode
        said: dict[str, Any] = {
            "coordinator": f"single:{self.agent}" if self.agent else self.coordinator,
            "checkpoint": str(self.checkpoint) if self.checkpoint else None,
            "backbone": self.backbone,
            "opt_out": self.opt_out or None,
            "max_turns": self.max_turns,
            "verify_answers": self.verify_answers or None,
            "sample": self.sample or None,
            "seed": self.seed,
            "tier": self.tier.value if self.tier else None,
            "max_budget_usd": self.max_budget_usd,
            "time_limit": self.time_limit,
            "permission_mode": mode.value if mode else None,
            "allow": self.allow or None,
            "deny": self.deny or None,
            "test_timeout": self.test_timeout,
        }
        return {key: value for key, value in said.items() if value is not None}
