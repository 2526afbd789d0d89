"""The flags of `fugu`, `fugu run` and `fugu sdk`, as frozen dataclasses; each shared flag is
declared once, as a type. Also how a dataclass becomes a command's parameters. Imported at start-up:
nothing heavy may be imported here.
"""

# without `from __future__ import annotations`: strings would be compiled at every start
import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_type_hints

import typer

from fugu_cli.errors import UsageError

Flags = TypeVar("Flags")


class OutputFormat(StrEnum):
    """The output formats of `fugu run`."""

    text = "text"
    json = "json"
    stream = "stream-json"


def option(
    *names: str,
    help: str,
    metavar: str | None = None,
    least: float | None = None,
    above: float | None = None,
) -> Any:
    """Return an option whose default is the field's own.

    With `least` or `above` it must be a finite number, at least `least` and greater than `above`.
    """
    bounded = None if least is None and above is None else _bounded(names[0], least, above)
    return typer.Option(*names, help=help, metavar=metavar, show_default=False, callback=bounded)


def path_option(*names: str, help: str, metavar: str) -> Any:
    """Return an option for a path. An empty one is refused: it would be the current folder."""

    def named(text: str) -> Path:
        check_empty(**{names[0].lstrip("-"): text})
        return Path(text)

    return typer.Option(*names, help=help, metavar=metavar, show_default=False, parser=named)


def _bounded(
    name: str, least: float | None, above: float | None
) -> Callable[[float | None], float | None]:
    """Return a parser that raises UsageError for a number below `least`, for one that is not above
    `above`, and for one that is not finite.
    """

    def checked(value: float | None) -> float | None:
        if value is None:
            return None
        if least is not None and value < least:
            raise UsageError(f"{name} must be {least:g} or more: it is {value}")
        if above is not None and value <= above:
            raise UsageError(f"{name} must be more than {above:g}: it is {value}")
        if not math.isfinite(value):
            raise UsageError(f"{name} must be finite: it is {value}")
        return value

    return checked


def _transcript_format(text: str) -> str:
    """Parse `--format`. Raise UsageError unless it is `raw` or `chat`."""
    if text == "digest":
        raise UsageError(
            "--format digest is gone", hint="leave `checkpoint` out: counted outcomes decide better"
        )
    if text not in ("raw", "chat"):
        raise UsageError(f"--format {text}: there are raw and chat", hint="--format raw")
    return text


AddDirFlag = Annotated[
    list[str] | None,
    option(
        "--add-dir",
        help="a folder beside the repository to read and edit, too; repeatable",
        metavar="DIR",
    ),
]
AgentFlag = Annotated[
    str | None, option("--agent", "--model", help="let one agent do the work", metavar="NAME")
]
AllowFlag = Annotated[
    list[str] | None,
    option("--allow", help="allow calls, as in 'bash(make *)'; repeatable", metavar="RULE"),
]
AllFoldersFlag = Annotated[bool, option("--all", help="of every folder, not only this one")]
AppendFlag = Annotated[
    str | None,
    option(
        "--append-system-prompt",
        help="standing instructions for this run, after AGENTS.md",
        metavar="TEXT",
    ),
]
BareFlag = Annotated[
    bool,
    option("--bare", help="no hooks, skills, MCP servers and instruction files but those of flags"),
]
BackboneFlag = Annotated[
    str | None,
    option("--backbone", help="a folder or hub id of the coordinator's backbone", metavar="FOLDER"),
]
CheckpointFlag = Annotated[
    Path | None, option("--checkpoint", help="decide with this checkpoint", metavar="FILE")
]
ContinueFlag = Annotated[
    bool, option("-c", "--continue", help="go on with this folder's newest session")
]
BaseFlag = Annotated[
    str | None, option("--base", help="compare with this branch or commit", metavar="REF")
]
CoordinatorFlag = Annotated[
    str | None,
    option("--coordinator", help="trinity, cascade, random or single:NAME", metavar="RULE"),
]
DryRunFlag = Annotated[bool, option("--dry-run", help="print it, and make nothing")]
DenyFlag = Annotated[
    list[str] | None, option("--deny", help="forbid calls; repeatable", metavar="RULE")
]
ForkFlag = Annotated[bool, option("--fork-session", help="go on in a copy of the session")]
EffortFlag = Annotated[
    Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None,
    option(
        "--effort",
        help="how much agents may reason: low, medium, high; or none to max",
        metavar="LEVEL",
    ),
]
FormatFlag = Annotated[
    str | None,
    typer.Option(
        "--format",
        help="how the checkpoint was trained to read: raw or chat",
        show_default=False,
        metavar="raw|chat",
        parser=_transcript_format,
    ),
]
JsonFlag = Annotated[bool, option("--json", help="as one JSON document")]
JsonSchemaFlag = Annotated[
    str | None,
    option(
        "--json-schema",
        help="the answer must follow this JSON schema: a file, or the schema",
        metavar="FILE",
    ),
]
MaxBudgetFlag = Annotated[
    float | None, option("--max-budget-usd", help="money at most", metavar="USD", least=0)
]
MaxTurnsFlag = Annotated[int | None, option("--max-turns", help="turns at most", metavar="N")]
McpConfigFlag = Annotated[
    str | None,
    option(
        "--mcp-config", help="more MCP servers, for this run: a file, or its JSON", metavar="FILE"
    ),
]
OptOutFlag = Annotated[
    list[str] | None,
    option("--opt-out", help="never choose this agent; repeatable", metavar="NAME"),
]
OutputDirFlag = Annotated[
    str | None,
    option("--output-dir", help="leave session, diff, trajectory and summary there", metavar="DIR"),
]
"""No Path: the empty one would be the current folder."""
PermissionModeFlag = Annotated[
    Literal["plan", "ask", "edit", "auto", "yolo"] | None,
    option("--permission-mode", help="plan, ask, edit, auto or yolo", metavar="MODE"),
]
PromptFlag = Annotated[
    str | None, option("-p", "--prompt", help="what to do, as an option", metavar="TEXT")
]
RequestFlag = Annotated[
    int | None, option("--request", help="of this request, not the newest", metavar="N")
]
ResumeFlag = Annotated[
    str | None, option("-r", "--resume", help="go on with a session", metavar="ID")
]
SampleFlag = Annotated[
    bool, option("--sample", help="draw by probability instead of taking the likeliest")
]
ScriptFlag = Annotated[
    Path | None,
    option(
        "--script",
        help="answers from a script instead of a model, for demos and tests",
        metavar="FILE",
    ),
]
SEED = option("--seed", help="seed of everything that is drawn (0)", metavar="N", least=0)
SeedFlag = Annotated[int | None, SEED]
SessionArgument = Annotated[
    str, typer.Argument(metavar="SESSION", help="an id, the beginning of one, a file, or latest")
]
SessionFlag = Annotated[str | None, option("--session", help="of this session alone", metavar="ID")]
TestTimeoutFlag = Annotated[
    float | None, option("--test-timeout", help="limit of one test run", metavar="SECONDS")
]
TierFlag = Annotated[
    Literal["fugu", "ultra"] | None, option("--tier", help="fugu or ultra", metavar="TIER")
]
TimeLimitFlag = Annotated[
    float | None, option("--time-limit", help="time at most", metavar="SECONDS")
]
TrustFlag = Annotated[bool, option("--trust", help="trust this folder this time")]
TurnFlag = Annotated[int | None, option("--turn", help="one decision in full", metavar="N")]
VerifyFlag = Annotated[bool, option("--verify-answers", help="verify answers that changed nothing")]
WorktreeFlag = Annotated[
    str | None,
    option(
        "--worktree", help="work in a git worktree; --worktree=NAME in that one", metavar="[=NAME]"
    ),
]
YesFlag = Annotated[bool, option("-y", "--yes", help="do not ask")]
YoloFlag = Annotated[
    bool, option("--yolo", help="the same as --permission-mode yolo: everything is allowed")
]

CONFIG_KEYS = (
    *(
        "coordinator",
        "checkpoint",
        "backbone",
        "sample",
        "seed",
        "opt_out",
        "tier",
        "effort",
        "add_dirs",
        "bare",
        "max_turns",
        "max_budget_usd",
    ),
    *(
        "time_limit",
        "permission_mode",
        "allow",
        "deny",
        "test_command",
        "test_timeout",
        "verify_answers",
    ),
)
"""Fields of flags that are keys of the configuration."""


def settings_of(flags: object) -> dict[str, Any]:
    """Return the given flags that are configuration, by key."""
    values = {key: getattr(flags, key, None) for key in CONFIG_KEYS}
    check_empty(**{"add-dir": "" if "" in (values["add_dirs"] or ()) else None})
    if agent := getattr(flags, "agent", None):
        values["coordinator"] = f"single:{agent}"
    if getattr(flags, "yolo", False):
        values["permission_mode"] = "yolo"
    if values["checkpoint"] is not None:
        values["checkpoint"] = str(values["checkpoint"])
    return {
        key: value
        for key, value in values.items()
        if value is not None and value is not False and value != []
    }


@dataclass(frozen=True)
class RunFlags:
    """The flags of `fugu run`. None stands for a flag that was not given."""

    text: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="what to do; - reads it from standard input"),
    ] = None
    prompt: PromptFlag = None
    prompt_file: Annotated[
        Path | None, option("--prompt-file", help="read it from a file", metavar="FILE")
    ] = None
    output_format: Annotated[
        OutputFormat, option("--output-format", help="text, json or stream-json")
    ] = OutputFormat.text
    output_dir: OutputDirFlag = None
    background: Annotated[
        bool,
        option("--background", help="go on without this terminal, and print the session's id"),
    ] = False
    go_on: ContinueFlag = False
    resume: ResumeFlag = None
    fork_session: ForkFlag = False
    accept_plan: Annotated[
        bool, option("--accept-plan", help="carry out the plan that plan mode ended with")
    ] = False
    max_turns: MaxTurnsFlag = None
    max_budget_usd: MaxBudgetFlag = None
    time_limit: TimeLimitFlag = None
    coordinator: CoordinatorFlag = None
    agent: AgentFlag = None
    opt_out: OptOutFlag = None
    append_system_prompt: AppendFlag = None
    add_dirs: AddDirFlag = None
    bare: BareFlag = False
    mcp_config: McpConfigFlag = None
    json_schema: JsonSchemaFlag = None
    permission_mode: PermissionModeFlag = None
    yolo: YoloFlag = False
    allow: AllowFlag = None
    deny: DenyFlag = None
    trust: TrustFlag = False
    test_command: Annotated[
        str | None, option("--test-command", help="how the tests are run", metavar="COMMAND")
    ] = None
    test_timeout: TestTimeoutFlag = None
    until: Annotated[
        list[str] | None,
        option(
            "--until", help="a command that must pass in the end; repeatable", metavar="COMMAND"
        ),
    ] = None
    until_tests_pass: Annotated[
        bool, option("--until-tests-pass", help="the tests must pass in the end")
    ] = False
    verify_answers: VerifyFlag = False
    tier: TierFlag = None
    effort: EffortFlag = None
    seed: SeedFlag = None
    script: ScriptFlag = None
    worktree: WorktreeFlag = None

    def settings(self) -> Mapping[str, Any]:
        """Return the given flags that are configuration, by key."""
        for command in self.until or ():
            check_empty(until=command.strip())
        settings = dict(settings_of(self))
        tests: dict[str, object] = {}
        if self.until:
            tests["until"] = tuple(self.until)
        if self.until_tests_pass:
            tests["until_pass"] = True
        if tests:
            settings["tests"] = tests
        return settings


@dataclass(frozen=True)
class InterfaceFlags:
    """`fugu` alone: how the interface is opened. None means: not said here."""

    context: typer.Context = None  # type: ignore[assignment]  # typer fills it in
    version: Annotated[bool, option("--version", "-v", help="print the version and exit")] = False
    prompt: PromptFlag = None
    """For help and completion: such a line is read as one of `fugu run`, with all of its flags
    (`__main__.py`).
    """
    input_format: Annotated[
        Literal["stream-json"] | None,
        option("--input-format", help="answer an SDK, as `fugu sdk` does"),
    ] = None
    """The same, for `fugu sdk`."""
    inline: Annotated[
        bool, option("--inline", help="work in the scrollback instead of a full screen")
    ] = False
    go_on: ContinueFlag = False
    resume: ResumeFlag = None
    fork_session: ForkFlag = False
    tier: TierFlag = None
    effort: EffortFlag = None
    permission_mode: PermissionModeFlag = None
    agent: AgentFlag = None
    append_system_prompt: AppendFlag = None
    add_dirs: AddDirFlag = None
    bare: BareFlag = False
    mcp_config: McpConfigFlag = None
    trust: TrustFlag = False
    worktree: WorktreeFlag = None


@dataclass(frozen=True)
class SdkFlags:
    """The flags of `--input-format stream-json`: those that Claude Code's SDKs pass and that fugu
    supports, and fugu's own. None stands for a flag that was not given.
    """

    input_format: Annotated[
        Literal["stream-json"], option("--input-format", help="messages as JSON lines")
    ] = "stream-json"
    output_format: Annotated[
        Literal["stream-json"], option("--output-format", help="answers as JSON lines")
    ] = "stream-json"
    print_only: Annotated[
        bool, option("-p", "--print", help="without an interface, as it is anyway")
    ] = False
    verbose: Annotated[bool, option("--verbose", help="every message, as it is anyway")] = False
    partial: Annotated[
        bool,
        option("--include-partial-messages", help="pieces of text while they are written as well"),
    ] = False
    prompt_tool: Annotated[
        Literal["stdio"] | None,
        option("--permission-prompt-tool", help="stdio: approvals are asked on the stream"),
    ] = None
    system_prompt: Annotated[
        str | None, option("--system-prompt", help="standing instructions", metavar="TEXT")
    ] = None
    append_system_prompt: AppendFlag = None
    add_dirs: AddDirFlag = None
    bare: BareFlag = False
    allowed: Annotated[
        list[str] | None,
        option(
            "--allowedTools",
            "--allowed-tools",
            help="rules to allow, with commas between them",
            metavar="RULES",
        ),
    ] = None
    disallowed: Annotated[
        list[str] | None,
        option("--disallowedTools", "--disallowed-tools", help="rules to deny", metavar="RULES"),
    ] = None
    mode: Annotated[
        Literal[
            "default", "acceptEdits", "bypassPermissions", "dontAsk", "plan", "ask", "edit", "auto", "yolo"
        ]
        | None,
        option("--permission-mode", help="Claude Code's names and fugu's", metavar="MODE"),
    ] = None  # fmt: skip
    agent: AgentFlag = None
    coordinator: CoordinatorFlag = None
    tier: TierFlag = None
    effort: EffortFlag = None
    max_turns: MaxTurnsFlag = None
    max_budget_usd: MaxBudgetFlag = None
    json_schema: JsonSchemaFlag = None
    mcp_config: McpConfigFlag = None
    go_on: ContinueFlag = False
    resume: ResumeFlag = None
    fork_session: ForkFlag = False
    trust: TrustFlag = False


def check_empty(**values: str | None) -> None:
    """Raise UsageError for a flag with an empty value."""
    for name, value in values.items():
        if value == "":
            raise UsageError(
                f"--{name.replace('_', '-')} is empty",
                hint="a variable that is not set? give a value, or leave it out",
            )


def check_session(flags: InterfaceFlags | RunFlags | SdkFlags) -> None:
    """Raise UsageError if --continue, --resume and --fork-session contradict one another."""
    check_empty(
        resume=flags.resume,
        agent=flags.agent,
        append_system_prompt=flags.append_system_prompt,
        mcp_config=flags.mcp_config,
    )
    if flags.go_on and flags.resume:
        raise UsageError(
            "--continue and --resume exclude one another",
            hint="--continue takes this folder's newest session",
        )
    if flags.fork_session and not (flags.go_on or flags.resume):
        raise UsageError("--fork-session needs a session", hint="add --continue or --resume ID")


def flags_as_parameters(
    flags: type[Flags],
) -> Callable[[Callable[[Flags], int]], Callable[..., int]]:
    """Return a decorator that makes a command whose parameters are the fields of a frozen
    dataclass, since Typer reads flags from parameters. The command is called with an instance.
    """

    def decorate(command: Callable[[Flags], int]) -> Callable[..., int]:
        def called(**values: object) -> int:
            return command(flags(**values))

        hints = get_type_hints(flags, include_extras=True)
        own = inspect.get_annotations(flags)  # help lists a command's own flags first
        fields = sorted(dataclasses.fields(flags), key=lambda field: field.name not in own)  # type: ignore[arg-type]
        parameters = []
        annotations: dict[str, Any] = {}
        for field in fields:
            annotations[field.name] = hints[field.name]
            is_required = field.default is dataclasses.MISSING
            parameters.append(
                inspect.Parameter(
                    field.name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=inspect.Parameter.empty if is_required else field.default,
                    annotation=hints[field.name],
                )
            )
        called.__signature__ = inspect.Signature(parameters, return_annotation=int)  # type: ignore[attr-defined]
        called.__annotations__ = {**annotations, "return": int}
        called.__name__, called.__doc__ = command.__name__, command.__doc__
        return called

    return decorate


class RequestInput(NamedTuple):
    """`text` is the request, None where an earlier one is to go on; `piped` came from standard
    input beside it.
    """

    text: str | None
    piped: str = ""
