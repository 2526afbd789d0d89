"""The flags of most commands, as frozen dataclasses. `flags.py` has those that `fugu` and `fugu
run` need at their start, `training_flags.py` those of training.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from fugu_cli.cli.flags import (
    AddDirFlag,
    AgentFlag,
    AllFoldersFlag,
    AppendFlag,
    BackboneFlag,
    BareFlag,
    BaseFlag,
    CheckpointFlag,
    CoordinatorFlag,
    DryRunFlag,
    EffortFlag,
    JsonFlag,
    MaxBudgetFlag,
    MaxTurnsFlag,
    OptOutFlag,
    PermissionModeFlag,
    RequestFlag,
    SampleFlag,
    SeedFlag,
    SessionArgument,
    TierFlag,
    TimeLimitFlag,
    TrustFlag,
    VerifyFlag,
    YesFlag,
    option,
)


@dataclass(frozen=True)
class CommitFlags:
    """The flags of `fugu commit`."""

    paths: Annotated[
        list[str] | None,
        typer.Argument(metavar="PATH...", help="these files alone; without one, what is staged"),
    ] = None
    every: Annotated[bool, option("-a", "--all", help="every change of tracked files")] = False
    message: Annotated[
        list[str] | None,
        option("-m", "--message", help="the message; repeatable, for paragraphs", metavar="TEXT"),
    ] = None
    yes: YesFlag = False
    dry_run: DryRunFlag = False
    no_blame: Annotated[
        bool, option("--no-blame", help="no trailers and no note of who wrote what")
    ] = False
    agent: AgentFlag = None


@dataclass(frozen=True)
class PullRequestFlags:
    """The flags of `fugu pr`."""

    base: BaseFlag = None
    title: Annotated[str | None, option("--title", help="your own title", metavar="TEXT")] = None
    push: Annotated[
        bool, option("--push", help="push the branch first, with the notes of who wrote what")
    ] = False
    draft: Annotated[bool, option("--draft", help="as a draft")] = False
    yes: YesFlag = False
    dry_run: DryRunFlag = False
    agent: AgentFlag = None


@dataclass(frozen=True)
class ReviewFlags:
    """The flags of `fugu review`."""

    base: BaseFlag = None
    format: Annotated[
        Literal["text", "json", "sarif"], option("--format", help="text, json or sarif")
    ] = "text"
    agent: AgentFlag = None
    opt_out: OptOutFlag = None
    effort: EffortFlag = None
    max_budget_usd: MaxBudgetFlag = None
    time_limit: TimeLimitFlag = None


@dataclass(frozen=True)
class SessionsFlags:
    """The flags of `fugu sessions`: which sessions are listed, or what is done with one."""

    search: Annotated[
        str, typer.Argument(metavar="TEXT", help="only those in which this was said")
    ] = ""
    repaired: Annotated[
        str,
        typer.Argument(
            metavar="ID", help="after the word repair: copy a damaged session up to its fault"
        ),
    ] = ""
    everywhere: AllFoldersFlag = False
    latest: Annotated[bool, option("--latest", help="only the newest")] = False
    paths: Annotated[bool, option("--path", help="only the paths of their logs")] = False
    fork: Annotated[
        str | None, option("--fork", help="copy a session under a new id", metavar="ID")
    ] = None
    rename: Annotated[
        tuple[str, str] | None,
        option("--rename", help="give a session another title", metavar="ID TITLE"),
    ] = None
    archive: Annotated[
        str | None, option("--archive", help="leave a session out of lists", metavar="ID")
    ] = None
    restore: Annotated[
        str | None, option("--restore", help="have an archived one in them again", metavar="ID")
    ] = None
    archived: Annotated[bool, option("--archived", help="list those that are archived")] = False
    delete: Annotated[
        str | None, option("--delete", help="remove a session for good", metavar="ID")
    ] = None
    yes: YesFlag = False


ClientName = Literal["codex", "claude-code", "opencode"]
"""A program that `fugu serve --write-client` can point at the endpoint."""


@dataclass(frozen=True)
class ServeFlags:
    """The flags of `fugu serve`. Limits are those of one answer."""

    host: Annotated[
        str, option("--host", help="address to listen on; others than this machine's need a token")
    ] = "127.0.0.1"
    port: Annotated[
        int, option("--port", help="port to listen on, 0 for any free one (8484)", metavar="N")
    ] = 8484
    token_env: Annotated[
        str,
        option(
            "--token-env",
            help="the variable that holds the bearer token (FUGU_SERVE_TOKEN)",
            metavar="NAME",
        ),
    ] = "FUGU_SERVE_TOKEN"
    allow_origin: Annotated[
        list[str] | None,
        option(
            "--allow-origin",
            help="a web page that may use it with the token; may be repeated",
            metavar="URL",
        ),
    ] = None
    coordinator: CoordinatorFlag = None
    agent: AgentFlag = None
    opt_out: OptOutFlag = None
    max_turns: MaxTurnsFlag = None
    max_budget_usd: MaxBudgetFlag = None
    max_request_mb: Annotated[
        float, option("--max-request-mb", help="longest request (32)", metavar="MB")
    ] = 32.0
    max_concurrent: Annotated[
        int, option("--max-concurrent", help="answers at once (128)", metavar="N")
    ] = 128
    request_timeout: Annotated[
        float, option("--request-timeout", help="time an answer may take (1800)", metavar="SECONDS")
    ] = 1800.0
    grace: Annotated[
        float, option("--grace", help="time for answers after a stop (30)", metavar="SECONDS")
    ] = 30.0
    replica: Annotated[
        bool, option("--replica", help="other machines answer the same clients (help serve)")
    ] = False
    web: Annotated[
        bool, option("--web", help="serve a web page with sessions, traces and approvals too")
    ] = False
    web_origin: Annotated[
        str,
        option(
            "--web-origin",
            help="https:// address of the page where a proxy with TLS stands in front",
            metavar="URL",
        ),
    ] = ""
    write_client: Annotated[
        ClientName | None,
        option(
            "--write-client",
            help="point codex, claude-code or opencode here in its own configuration, and end",
            metavar="CLIENT",
        ),
    ] = None
    remove: Annotated[bool, option("--remove", help="with --write-client: take that back")] = False


@dataclass(frozen=True)
class LoginFlags:
    """The flags of `fugu login`."""

    provider: Annotated[
        str | None, typer.Argument(metavar="PROVIDER", help="lists them when left out")
    ] = None
    remove: Annotated[bool, option("--remove", help="forget its key")] = False
    base_url: Annotated[
        str | None,
        option("--base-url", help="add a model of your own server to the pool", metavar="URL"),
    ] = None
    wire: Annotated[
        Literal["chat", "responses", "anthropic"] | None,
        option("--wire", help="what that server speaks: chat, responses or anthropic (chat)"),
    ] = None
    model: Annotated[
        str | None, option("--model", help="the model of that server", metavar="NAME")
    ] = None
    no_check: Annotated[bool, option("--no-check", help="keep a key without trying it")] = False


McpScopeFlag = Annotated[
    Literal["user", "project"] | None,
    option(
        "--scope",
        "-s",
        help="user: ~/.mcp.json; project: the repository's .mcp.json",
        metavar="SCOPE",
    ),
]


@dataclass(frozen=True)
class McpAddFlags:
    """The flags of `fugu mcp add`."""

    name: Annotated[str, typer.Argument(metavar="NAME")]
    target: Annotated[
        list[str], typer.Argument(metavar="URL | -- COMMAND...", help="what is called or started")
    ]
    scope: McpScopeFlag = None
    transport: Annotated[
        Literal["stdio", "http", "sse"] | None,
        option(
            "--transport",
            "-t",
            help="stdio, http or sse; by what is named when left out",
            metavar="KIND",
        ),
    ] = None
    env: Annotated[
        list[str] | None,
        option(
            "--env",
            "-e",
            help="a variable of a program's environment; repeatable",
            metavar="NAME=VALUE",
        ),
    ] = None
    cwd: Annotated[
        str | None,
        option(
            "--cwd",
            help="the folder a program is started in, from the repository's root",
            metavar="FOLDER",
        ),
    ] = None
    header: Annotated[
        list[str] | None,
        option("--header", "-H", help="a header sent to a URL; repeatable", metavar="NAME: VALUE"),
    ] = None
    client_id: Annotated[
        str | None,
        option("--client-id", help="the OAuth client at a URL; else fugu registers", metavar="ID"),
    ] = None
    client_secret: Annotated[
        str | None,
        option(
            "--client-secret",
            help="its secret; '${NAME}' is filled in when it is used",
            metavar="TEXT",
        ),
    ] = None
    callback_port: Annotated[
        int | None,
        option(
            "--callback-port", help="the port to which the browser comes back", metavar="N", least=0
        ),
    ] = None


@dataclass(frozen=True)
class AcpFlags:
    """The flags of `fugu acp`. They hold in every session until the editor sets something else."""

    tier: TierFlag = None
    permission_mode: PermissionModeFlag = None
    agent: AgentFlag = None
    max_turns: MaxTurnsFlag = None
    max_budget_usd: MaxBudgetFlag = None
    append_system_prompt: AppendFlag = None
    add_dirs: AddDirFlag = None
    bare: BareFlag = False
    trust: TrustFlag = False
    login: Annotated[
        bool, option("--login", help="ask for a provider's key in this terminal, and end")
    ] = False


@dataclass(frozen=True)
class McpServeFlags:
    """The flags of `fugu mcp serve`. They hold for every call of the client."""

    tier: TierFlag = None
    permission_mode: PermissionModeFlag = None
    agent: AgentFlag = None
    max_turns: MaxTurnsFlag = None
    max_budget_usd: MaxBudgetFlag = None
    append_system_prompt: AppendFlag = None
    add_dirs: AddDirFlag = None
    bare: BareFlag = False
    trust: TrustFlag = False


@dataclass(frozen=True)
class PluginAddFlags:
    """The flags of `fugu plugin add`."""

    source: Annotated[
        str, typer.Argument(metavar="FOLDER|ADDRESS", help="a folder, or a git address")
    ]
    path: Annotated[
        str | None, option("--path", help="the plugin's folder in it", metavar="FOLDER")
    ] = None
    ref: Annotated[
        str | None,
        option("--ref", help="a branch, tag or commit of a git address", metavar="REF"),
    ] = None
    yes: YesFlag = False


@dataclass(frozen=True)
class ReplayFlags:
    """The flags of `fugu replay`. None stands for a flag that was not given."""

    session: SessionArgument = "latest"
    request: RequestFlag = None
    as_json: JsonFlag = False
    coordinator: CoordinatorFlag = None
    agent: AgentFlag = None
    checkpoint: CheckpointFlag = None
    backbone: BackboneFlag = None
    opt_out: OptOutFlag = None
    present_pool: Annotated[
        bool,
        option(
            "--present-pool",
            help="choose among today's agents, not the session's",
        ),
    ] = False
    skills: Annotated[
        Literal["now"] | None,
        option(
            "--skills",
            help="now: decide by the outcomes there are today, not by those of then",
            metavar="now",
        ),
    ] = None
    max_turns: MaxTurnsFlag = None
    verify_answers: VerifyFlag = False
    sample: SampleFlag = False
    seed: SeedFlag = None
