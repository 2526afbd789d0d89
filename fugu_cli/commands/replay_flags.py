"""The flags of `fugu replay`. Imported by cli.py at start-up: nothing heavy may be imported here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from fugu_cli.commands.flags import Mode, Tier, option

WITH_RUN = (
    *("tier", "max_budget_usd", "time_limit", "permission_mode", "yolo", "allow", "deny", "output_dir", "script"),
    "test_timeout",
)
"""Flags that say nothing where nothing is called."""


@dataclass(frozen=True)
class SessionReplayFlags:
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
    tier: Annotated[Tier | None, option("--tier", help="with --run: fugu or ultra", metavar="TIER")] = None
    max_budget_usd: Annotated[
        float | None, option("--max-budget-usd", help="with --run: money a request may cost", metavar="USD")
    ] = None
    time_limit: Annotated[
        float | None, option("--time-limit", help="with --run: time a request may take", metavar="SECONDS")
    ] = None
    permission_mode: Annotated[
        Mode | None, option("--permission-mode", help="with --run: plan, ask, edit, auto or yolo", metavar="MODE")
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
        mode = Mode.yolo if self.yolo else self.permission_mode
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
