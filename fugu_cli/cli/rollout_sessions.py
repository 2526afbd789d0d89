"""Open a rollout's session: the user's configuration, changed to an arm's."""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import JsonValue

from fugu_cli import prompts, wiring
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import pool_variables, usable_pool
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.coordinators.baselines import FixedWorkflow
from fugu_cli.engine.environment import Permission
from fugu_cli.messages import Call
from fugu_cli.providers import Agent
from fugu_cli.safety import policy
from fugu_cli.training.evaluation import runner
from fugu_cli.training.evaluation.engine import LocalEngine
from fugu_cli.training.evaluation.paid_calls import (
    PaidAgent,
    ReplyLocks,
    RolloutBilling,
    SpendingAccount,
    task_literals,
)
from fugu_cli.training.evaluation.rollout import (
    OpenRolloutSession,
    RolloutContext,
    RolloutSession,
)

CONDUCTOR = "conductor"
PAID_FILE = "paid.jsonl"
"""The paid calls, in the folder of an evaluation or a training."""
REPLY_SETTINGS = (
    "provider",
    "model",
    "base_url",
    "protocol",
    "temperature",
    "max_tokens",
    "effort",
    "context",
)
"""Fields of an entry that change its answers. Not its name: two entries of one model share what was
paid for.
"""


@dataclass(frozen=True)
class RolloutSessionFactory:
    """Opens sessions for the arms of an evaluation in `folder`, paid within its limits."""

    config: Config
    environ: Mapping[str, str]
    folder: Path

    def __call__(self, spending: SpendingAccount) -> OpenRolloutSession:
        """Return a function that opens a session in a folder, as `fugu run` does, with nobody to
        ask.
        """
        from fugu_cli.coordinators.action_space import by_strength

        add_python_to_path()
        entries = {entry.name: entry for entry in usable_pool(self.config, self.environ)}
        opted_out = self.config.opt_out
        able = [entry.member() for name, entry in entries.items() if name not in opted_out]
        strongest = by_strength(able)[-1].name

        locks = ReplyLocks()

        async def opened(context: RolloutContext) -> RolloutSession:
            billing = RolloutBilling(
                rollout=str(context.data.parent.relative_to(self.folder)),
                repository=context.repository,
                seed=context.seed,
                folder=self.folder,
                spending=spending,
                locks=locks,
                named=task_literals(context.task),
            )
            spending.begin_rollout(billing.rollout)

            def paid(agent: Agent) -> Agent:
                entry = entries[agent.name]
                return PaidAgent(agent, entry.member(), reply_settings(entry), billing)

            config = rollout_config(self.config, context, strongest)
            loaded = LoadedConfig(
                config=config, files=(), notes=(), root=context.repository, trusted=False
            )
            session = wiring.build_session(
                loaded,
                self.environ,
                _deny,
                context.resume,
                paid,
                learns=False,
                somebody_to_ask=False,
            )
            if context.steps:
                session.team = replace(session.team, coordinator=FixedWorkflow(context.steps))
            return session

        return opened


def local_engine(
    config: Config, spending: SpendingAccount, folder: Path, cores: int | None = None
) -> LocalEngine:
    """Return an engine for the user's pool, with keys from this process's environment."""
    factory = RolloutSessionFactory(config, pool_variables(config, os.environ), folder)
    return LocalEngine(factory(spending), spending, folder, cores)


def add_python_to_path() -> None:
    """Add the Python that runs fugu to the end of PATH, for tasks whose commands need one."""
    interpreter, path = str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)
    if interpreter not in path.split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join([path, interpreter])


def rollout_config(config: Config, context: RolloutContext, strongest: str) -> Config:
    """Return the user's configuration for a rollout. `strongest` is the agent that advises.

    The tests that a task shows must pass in the end. Random choices differ between tasks and seeds.
    Commands run unasked, because the repository is a copy.
    """
    is_planned = context.arm == CONDUCTOR
    shows_tests = bool(context.task.test_files)
    coordinator = config.coordinator if is_planned else context.arm
    advisor = config.advisor
    rule, _, worker = context.arm.partition(":")
    if rule == runner.ADVISED:
        coordinator, advisor = f"single:{worker}", strongest
    if context.steps:
        coordinator = "cascade"
    if context.checkpoint is not None:
        chosen = {"checkpoint": context.checkpoint.file, "sample": context.checkpoint.sample}
        config = config.model_copy(update=chosen)
    return config.model_copy(
        update={
            "coordinator": coordinator,
            "advisor": advisor,
            "tier": "ultra" if is_planned else "fugu",
            "data_dir": context.data,
            "permission_mode": "auto",
            "allow": (*config.allow, "bash", "acceptance_check"),
            "test_command": context.task.test_command if shows_tests else None,
            "tests": config.tests.model_copy(update={"until": (), "until_pass": shows_tests}),
            "test_timeout": context.task.timeout,
            "verify_answers": context.question or config.verify_answers,
            "seed": zlib.crc32(context.task.id.encode()) + context.seed,
        }
    )


def reply_settings(entry: AgentEntry) -> dict[str, JsonValue]:
    """Return everything of an entry that its replies depend on, the prompts of its protocol
    included.
    """
    settings = entry.model_dump(mode="json", include=set(REPLY_SETTINGS))
    if entry.protocol != "native":
        prompt_texts = "".join(
            prompts.load(f"local/{name}") for name in ("rewrite", "correct", "change")
        )
        settings["asked"] = hashlib.sha256(prompt_texts.encode()).hexdigest()[:16]
    return settings


async def _deny(_call: Call, _judgement: policy.Judgement) -> Permission:
    """Deny the call: nobody can be asked."""
    return "headless"
