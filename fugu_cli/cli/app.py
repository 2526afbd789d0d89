"""The commands of fugu. Each declares its flags and calls one function of a module beside this one,
which is imported only then.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import typer

from fugu_cli.cli import root
from fugu_cli.cli.command_flags import (
    AcpFlags,
    CommitFlags,
    LoginFlags,
    McpAddFlags,
    McpScopeFlag,
    McpServeFlags,
    PluginAddFlags,
    PullRequestFlags,
    ReplayFlags,
    ReviewFlags,
    ServeFlags,
    SessionsFlags,
)
from fugu_cli.cli.flags import (
    AllFoldersFlag,
    JsonFlag,
    RequestFlag,
    SdkFlags,
    SessionArgument,
    SessionFlag,
    TurnFlag,
    YesFlag,
    flags_as_parameters,
    option,
)
from fugu_cli.cli.root import CONTEXT
from fugu_cli.cli.training_flags import (
    ConductorFlags,
    EvalFlags,
    EvolveFlags,
    ImportFlags,
    KindsFlags,
    MatrixFlags,
    RouteFlags,
    SftFlags,
)
from fugu_cli.errors import UsageError

app = root.app
app.command()(root.run)


def group(help: str, default: Callable[[], int] | None = None) -> typer.Typer:
    """Return a group of commands. The word alone calls `default`, or shows the help without one."""
    commands = typer.Typer(
        cls=root.CommandGroup,
        help=help,
        invoke_without_command=default is not None,
        no_args_is_help=default is None,
        rich_markup_mode=None,
        context_settings=CONTEXT,
    )

    def alone(context: typer.Context) -> int:
        return default() if default is not None and context.invoked_subcommand is None else 0

    commands.callback(help=help)(alone)
    return commands


def show_configured() -> int:
    """Run `fugu coordinator` without a subcommand."""
    return coordinator_show()


coordinator = group("Show, import, export or time the learned coordinator.", show_configured)


@coordinator.command("show")
def coordinator_show(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="the configured one when left out")
    ] = None,
    as_json: JsonFlag = False,
) -> int:
    """Describe a checkpoint (.safetensors) or a flat vector (.npy), and say whether it fits
    here.
    """
    from fugu_cli.cli import coordinator as command

    return command.show_checkpoint(file, as_json)


@coordinator.command("import")
@flags_as_parameters(ImportFlags)
def coordinator_import(flags: ImportFlags) -> int:
    """Make a checkpoint for your pool: fugu coordinator import FILE --map gpt-5=strong --map
    gemma-3-27b=small.
    """
    from fugu_cli.cli import coordinator as command

    return command.import_checkpoint(flags)


@coordinator.command("export")
def coordinator_export(
    out: Annotated[Path, typer.Argument(metavar="OUT")],
    file: Annotated[
        Path | None,
        typer.Option("--from", metavar="FILE", help="this checkpoint, not the configured one"),
    ] = None,
    npy: Annotated[
        bool, typer.Option("--npy", help="the flat vector alone; implied by a name ending in .npy")
    ] = False,
) -> int:
    """Write a checkpoint's numbers to OUT: in fugu's own form, or as the flat vector."""
    from fugu_cli.cli import coordinator as command

    return command.export_checkpoint(out, file, npy)


@coordinator.command("bench")
def coordinator_bench(
    repeats: Annotated[
        int, typer.Option("--repeats", min=1, max=100, help="of each; medians are shown")
    ] = 5,
    as_json: JsonFlag = False,
) -> int:
    """Measure how long a decision takes on this machine, with and without reading the kind."""
    from fugu_cli.cli import coordinator_bench as command

    return command.bench_decisions(repeats, as_json)


@flags_as_parameters(RouteFlags)
def route(flags: RouteFlags) -> int:
    """Decide who would be next, and nothing else.

    fugu route "fix the failing tests"
    """
    from fugu_cli.cli import coordinator as command

    return command.decide(flags)


training = group("Train the coordinator for your own pool and tasks.")


@training.command("matrix")
@flags_as_parameters(MatrixFlags)
def train_matrix(flags: MatrixFlags) -> int:
    """Run every agent on every task: can routing pay?

    It says so before money is spent on training.
    """
    from fugu_cli.cli import train as command

    return command.train_matrix(flags)


@training.command("sft")
@flags_as_parameters(SftFlags)
def train_sft(flags: SftFlags) -> int:
    """Fit a head to a pass matrix, as a warm start."""
    from fugu_cli.cli import train as command
    from fugu_cli.cli.coordinator import as_usage_errors

    with as_usage_errors():
        return command.train_sft(flags)


@training.command("kinds")
@flags_as_parameters(KindsFlags)
def train_kinds(flags: KindsFlags) -> int:
    """Fit the head that tells the kind of a request.

    For another backbone, or from your own requests.
    """
    from fugu_cli.cli import train as command

    return command.train_kinds(flags)


@training.command("evolve")
@flags_as_parameters(EvolveFlags)
def train_evolve(flags: EvolveFlags) -> int:
    """Evolve a coordinator's head with sep-CMA-ES by the value of its decisions. A stopped run is
    continued.
    """
    from fugu_cli.cli.coordinator import as_usage_errors

    with as_usage_errors():
        from fugu_cli.cli import train_evolve as command

        return command.evolve(flags)


@training.command("conductor")
@flags_as_parameters(ConductorFlags)
def train_conductor(flags: ConductorFlags) -> int:
    """Train a planner of workflows with GRPO.

    Goes on where it was stopped.
    """
    from fugu_cli.cli import train_conductor as command

    return command.train_conductor(flags)


@training.command(
    "sessions",
    hidden=True,
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
)
def train_sessions() -> int:
    """Say what took its place."""
    from fugu_cli.cli import train as command

    return command.refuse_train_sessions()


def list_mcp_servers() -> int:
    """Run `fugu mcp` without a subcommand."""
    return mcp_list()


def list_plugins() -> int:
    """Run `fugu plugin` without a subcommand."""
    return plugin_list()


POOL_HELP = "Show the agents, prices and success rates; `check` calls each."
pool = typer.Typer(
    cls=root.CommandGroup, help=POOL_HELP, rich_markup_mode=None, context_settings=CONTEXT
)


@pool.callback(help=POOL_HELP, invoke_without_command=True)
def pool_show(
    context: typer.Context,
    skills: Annotated[
        bool, typer.Option("--skills", help="how often each agent is right, and where that is from")
    ] = False,
    forget_outcomes: Annotated[
        bool, typer.Option("--forget-outcomes", help="let no outcome count that there is so far")
    ] = False,
) -> int:
    """Show the agents of the pool."""
    if context.invoked_subcommand is not None:
        return 0
    from fugu_cli.cli import pool as command

    if forget_outcomes:
        return command.forget_outcomes()
    if not skills:
        return command.show_pool()
    from fugu_cli.cli.pool_skills import show_skills

    return show_skills()


models = group("List, fetch or remove the embedded models.")
mcp = group("List, add, remove or log in at MCP servers; be one.", list_mcp_servers)
app.add_typer(mcp, name="mcp")
plugin = group("List, add or remove plugins.", list_plugins)
app.add_typer(plugin, name="plugin")
app.add_typer(pool, name="pool")
app.add_typer(models, name="models")
app.add_typer(coordinator, name="coordinator")
app.add_typer(training, name="train")
app.command()(route)


@app.command()
def trace(
    session: SessionArgument = "latest",
    turn: TurnFlag = None,
    request: RequestFlag = None,
    as_json: JsonFlag = False,
    plain: Annotated[bool, typer.Option("--plain", help="print it, in a terminal too")] = False,
) -> int:
    """Show who was chosen each turn, against whom, and the outcome."""
    from fugu_cli.cli import history as command

    if not plain and not as_json and turn is None and request is None and command.can_open_trace():
        return command.open_trace(session)
    return command.print_trace(session, turn, request, as_json)


@app.command()
def export(
    session: SessionArgument = "latest",
    shape: Annotated[
        str | None,
        option(
            "--format",
            help="md, html or json; by the file's ending when left out",
            metavar="FORMAT",
        ),
    ] = None,
    file: Annotated[
        Path | None, option("-o", "--output", help="a new file", metavar="FILE")
    ] = None,
) -> int:
    """Print or write a session as Markdown, HTML or JSON."""
    from fugu_cli.cli import sessions as command

    return command.export(session, shape, file)


@app.command()
@flags_as_parameters(SessionsFlags)
def sessions(flags: SessionsFlags) -> int:
    """List the sessions of this folder, the newest first."""
    from fugu_cli.cli import sessions as command

    return command.list_or_change_sessions(flags)


@app.command()
def attach(
    session: Annotated[
        str | None,
        typer.Argument(metavar="ID", help="a running session; lists them when left out"),
    ] = None,
    inline: Annotated[
        bool, typer.Option("--inline", help="in the scrollback instead of a full screen")
    ] = False,
) -> int:
    """Open a running session in this terminal, too.

    Both terminals show the same, and either may answer, send messages and interrupt. Leaving does
    not end it.
    """
    from fugu_cli.cli import attach as command

    return command.attach(session, inline=inline)


@app.command()
def undo(
    yes: YesFlag = False,
    session: SessionFlag = None,
    redo: Annotated[
        bool, typer.Option("--redo", help="bring back what the newest undo took")
    ] = False,
) -> int:
    """Put the files back to before the newest request."""
    from fugu_cli.cli import history as command

    if redo:
        return command.redo(session or "latest", yes)
    return command.undo(session or "latest", yes)


@app.command(hidden=True)
def redo(yes: YesFlag = False, session: SessionFlag = None) -> int:
    """Bring back what the newest undo took, as `fugu undo --redo` does."""
    from fugu_cli.cli import history as command

    return command.redo(session or "latest", yes)


@app.command()
def rewind(
    point: Annotated[
        str | None,
        typer.Argument(
            metavar="N", help="a request, or N.M for turn M of it; lists them when left out"
        ),
    ] = None,
    session: SessionFlag = None,
    files: Annotated[bool, typer.Option("--files", help="only the files")] = False,
    conversation: Annotated[
        bool, typer.Option("--conversation", help="only the conversation")
    ] = False,
    yes: YesFlag = False,
) -> int:
    """Go back to before a request or a turn.

    The files are put back, and the conversation goes on in a copy of the session.
    """
    from fugu_cli.cli import history as command

    return command.rewind(
        point, session or "latest", files=files, conversation=conversation, yes=yes
    )


@app.command()
def init(
    source: Annotated[
        str | None,
        typer.Option("--from", metavar="AGENT", help="claude-code, codex, opencode or aider"),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="say what would be taken over, and write nothing")
    ] = False,
) -> int:
    """Take over the settings of another agent.

    fugu init --from claude-code
    """
    from fugu_cli.cli import init as command

    return command.init(source, dry_run=dry_run)


@app.command()
@flags_as_parameters(LoginFlags)
def login(flags: LoginFlags) -> int:
    """Try the key of a provider, typed or piped, and keep it.

    fugu login openai
    """
    if flags.base_url is None:
        if flags.model is not None or flags.wire is not None:
            raise UsageError("--model and --wire belong to --base-url")
        from fugu_cli.cli import login as command

        return command.login(flags.provider, remove=flags.remove, check=not flags.no_check)
    if flags.provider is not None or flags.remove:
        raise UsageError("--base-url goes without a provider and without --remove")
    from fugu_cli.cli.login_server import login_server

    wire = flags.wire or "chat"
    return login_server(flags.base_url, wire, flags.model, check=not flags.no_check)


@pool.command("check")
def pool_check() -> int:
    """Call each agent once: does it answer, stream, use tools, keep to a schema, and how fast?"""
    from fugu_cli.cli import pool as command

    return command.check_pool()


@mcp.command("list")
def mcp_list() -> int:
    """List the MCP servers that are used here, and those that are not. `fugu doctor` tries them."""
    from fugu_cli.cli import mcp as command

    return command.list_servers()


@mcp.command("add")
@flags_as_parameters(McpAddFlags)
def mcp_add(flags: McpAddFlags) -> int:
    """Add a server: fugu mcp add docs https://docs.example.org/mcp, fugu mcp add db -- npx -y
    db-server.
    """
    from fugu_cli.cli import mcp as command

    return command.add_server(flags)


@mcp.command("remove")
def mcp_remove(
    name: Annotated[str, typer.Argument(metavar="NAME")], scope: McpScopeFlag = None
) -> int:
    """Remove a server."""
    from fugu_cli.cli import mcp as command

    return command.remove_server(name, scope)


@mcp.command("login")
def mcp_login(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    remove: Annotated[bool, typer.Option("--remove", help="forget the login")] = False,
    timeout: Annotated[
        float,
        option(
            "--timeout", help="how long to wait for the browser (300)", metavar="SECONDS", above=0
        ),
    ] = 300.0,
) -> int:
    """Log in at a server over OAuth, in the browser."""
    from fugu_cli.cli import mcp as command

    return command.login(name, remove, timeout)


@mcp.command("serve")
@flags_as_parameters(McpServeFlags)
def mcp_serve(flags: McpServeFlags) -> int:
    """Be an MCP server: another agent, which starts this, gives fugu work."""
    from fugu_cli.cli import mcp_serve as command

    return command.serve_client(flags)


@plugin.command("list")
def plugin_list() -> int:
    """List the plugins, what each brings, and what is not used."""
    from fugu_cli.cli import plugin as command

    return command.list_plugins()


@plugin.command("add")
@flags_as_parameters(PluginAddFlags)
def plugin_add(flags: PluginAddFlags) -> int:
    """Show what a plugin brings, and add it if you trust it. A plugin that you have is replaced by
    the new version.
    """
    from fugu_cli.cli import plugin as command

    return command.add_plugin(flags)


@plugin.command("remove")
def plugin_remove(name: Annotated[str, typer.Argument(metavar="NAME")]) -> int:
    """Remove a plugin."""
    from fugu_cli.cli import plugin as command

    return command.remove(name)


@models.command("list")
def models_list() -> int:
    """List the embedded models and show which are downloaded."""
    from fugu_cli.cli import pool as command

    return command.list_models()


@models.command("pull")
def models_pull(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="NAME...", help="all that the pool needs by default"),
    ] = None,
) -> int:
    """Fetch models; goes on where it was interrupted and checks the hash."""
    from fugu_cli.cli import pool as command

    return command.pull_models(names or [])


@models.command("remove")
def models_remove(names: Annotated[list[str], typer.Argument(metavar="NAME...")]) -> int:
    """Delete models from this machine."""
    from fugu_cli.cli import pool as command

    return command.remove_models(names)


@models.command("path")
def models_path(name: Annotated[str, typer.Argument(metavar="NAME")] = "") -> int:
    """Print where a model's file is, or the folder of all."""
    from fugu_cli.cli import pool as command

    return command.print_model_path(name)


@app.command()
def cost(
    by: Annotated[
        str, typer.Option("--by", metavar="WHAT", help="day, agent, session or project")
    ] = "day",
    days: Annotated[
        int | None, typer.Option("--days", metavar="N", min=1, help="of the last days only")
    ] = None,
    everywhere: AllFoldersFlag = False,
    as_json: JsonFlag = False,
) -> int:
    """Show what was spent here, and what is left of the budgets."""
    from fugu_cli.cli import sessions as command

    return command.show_cost(by, days, everywhere, as_json)


@app.command()
def blame(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="a file; without one, what the newest session changed"),
    ] = None,
    session: SessionFlag = None,
    shape: Annotated[Literal["text", "json"], option("--format", help="text or json")] = "text",
) -> int:
    """Show which agent wrote each line, and what that cost."""
    from fugu_cli.cli import history as command

    return command.blame(path, session, shape)


@app.command()
@flags_as_parameters(CommitFlags)
def commit(flags: CommitFlags) -> int:
    """Commit what is staged; an agent writes the message.

    Trailers and a git note say which agent wrote what.
    """
    from fugu_cli.cli import git as command

    return command.commit(flags)


@app.command("pr")
@flags_as_parameters(PullRequestFlags)
def pull_request(flags: PullRequestFlags) -> int:
    """Make a pull or merge request with gh or glab.

    An agent writes title and description.
    """
    from fugu_cli.cli import git as command

    return command.open_pull_request(flags)


@app.command()
@flags_as_parameters(ReviewFlags)
def review(flags: ReviewFlags) -> int:
    """Look for what is wrong with a change.

    Another agent judges each finding. Nothing is changed.
    """
    from fugu_cli.cli import review as command

    return command.review(flags)


@app.command()
@flags_as_parameters(ReplayFlags)
def replay(flags: ReplayFlags) -> int:
    """Decide a session again with another coordinator. No agent is called."""
    from fugu_cli.cli import replay as command

    return command.replay(flags)


@app.command()
@flags_as_parameters(ServeFlags)
def serve(flags: ServeFlags) -> int:
    """Answer other programs as one endpoint over the pool.

    Chat Completions, Responses and Messages.
    """
    from fugu_cli.cli import pool as command

    return command.serve(flags)


@app.command()
@flags_as_parameters(AcpFlags)
def acp(flags: AcpFlags) -> int:
    """Work in an editor, over the Agent Client Protocol.

    The editor starts this.
    """
    from fugu_cli.cli import acp as command

    return command.work_for_editor(flags)


@app.command()
@flags_as_parameters(SdkFlags)
def sdk(flags: SdkFlags) -> int:
    """Answer an SDK that speaks Claude Code's protocol.

    The SDK calls this as fugu --input-format stream-json.
    """
    from fugu_cli.cli import sdk as command

    return command.answer_sdk(flags)


@app.command("eval")
@flags_as_parameters(EvalFlags)
def evaluate(flags: EvalFlags) -> int:
    """Compare coordinators on the same tasks, with your pool.

    fugu eval TASKS --arm trinity --arm single
    """
    from fugu_cli.cli import eval as command

    return command.evaluate(flags)


@app.command()
def skills() -> int:
    """List the skills, commands and subagents that count here.

    What is left out is listed, too, and why.
    """
    from fugu_cli.cli import current_folder as command

    return command.show_skills()


@app.command()
def doctor() -> int:
    """Show what fugu finds here and what is missing."""
    from fugu_cli.cli import doctor as command

    return command.doctor()


@app.command()
def update(yes: YesFlag = False) -> int:
    """Say which fugu is the newest, and get it.

    You are asked first. It calls pip, pipx or uv: whichever installed fugu.
    """
    from fugu_cli.cli import update as command

    return command.update(yes)


@app.command("help")
def help_page(topic: Annotated[str, typer.Argument(metavar="TOPIC")] = "") -> int:
    """Show a page of the manual, or list the pages."""
    from fugu_cli.cli import interface

    return interface.show_page(topic)


@app.command()
def trust(
    folder: Annotated[Path | None, typer.Argument(metavar="FOLDER")] = None,
    remove: Annotated[bool, typer.Option("--remove", help="take the trust back")] = False,
) -> int:
    """Let what this folder brings count, or no longer.

    That is its .fugurc, AGENTS.md, MCP servers, hooks, skills, commands and subagents. Servers are
    started with your rights, hooks in the sandbox: see .mcp.json and .agents first (`fugu help
    safety`).
    """
    from fugu_cli.cli import current_folder as command

    return command.untrust(folder) if remove else command.trust(folder)


@app.command(hidden=True)
def untrust(folder: Annotated[Path | None, typer.Argument(metavar="FOLDER")] = None) -> int:
    """Take the trust in this folder back, as `fugu trust --remove` does."""
    from fugu_cli.cli import current_folder as command

    return command.untrust(folder)
