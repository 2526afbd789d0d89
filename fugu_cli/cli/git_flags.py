"""The flags of the commands around git, as frozen dataclasses. Imported at start-up: it imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import typer

from fugu_cli.cli.flags import AgentFlag, EffortFlag, MaxBudgetFlag, OptOutFlag, TimeLimitFlag, option


@dataclass(frozen=True)
class CommitFlags:
    """`fugu commit`, as the user wrote it."""

    paths: Annotated[
        list[str] | None, typer.Argument(metavar="PATH...", help="these files alone; without one, what is staged")
    ] = None
    every: Annotated[bool, option("-a", "--all", help="every change of tracked files")] = False
    message: Annotated[
        list[str] | None, option("-m", "--message", help="the message; repeatable, for paragraphs", metavar="TEXT")
    ] = None
    yes: Annotated[bool, option("-y", "--yes", help="commit with the message as an agent wrote it")] = False
    dry_run: Annotated[bool, option("--dry-run", help="print a message and commit nothing")] = False
    no_blame: Annotated[bool, option("--no-blame", help="no trailers and no note of who wrote what")] = False
    agent: AgentFlag = None


@dataclass(frozen=True)
class PullRequestFlags:
    """`fugu pr`, as the user wrote it."""

    base: Annotated[
        str | None, option("--base", help="the branch to merge into; the remote's own by default", metavar="BRANCH")
    ] = None
    title: Annotated[str | None, option("--title", help="your own title", metavar="TEXT")] = None
    push: Annotated[bool, option("--push", help="push the branch first, with the notes of who wrote what")] = False
    draft: Annotated[bool, option("--draft", help="as a draft")] = False
    yes: Annotated[bool, option("-y", "--yes", help="do not ask")] = False
    dry_run: Annotated[bool, option("--dry-run", help="print title and description, and make nothing")] = False
    agent: AgentFlag = None


@dataclass(frozen=True)
class ReviewFlags:
    """`fugu review`, as the user wrote it."""

    base: Annotated[
        str | None, option("--base", help="review what was done since this branch or commit", metavar="REF")
    ] = None
    format: Annotated[Literal["text", "json", "sarif"], option("--format", help="text, json or sarif")] = "text"
    agent: Annotated[
        str | None, option("--agent", "--model", help="this agent looks; another one judges", metavar="NAME")
    ] = None
    opt_out: OptOutFlag = None
    effort: EffortFlag = None
    max_budget_usd: MaxBudgetFlag = None
    time_limit: TimeLimitFlag = None
