"""How a rollout's session is opened: the user's configuration, the arm as coordinator, agents that pay once.

Between `fugu eval` (and training) and wiring. A value that can be sent to other machines: it names the configuration
and the environment's keys, and holds nothing open.
"""

from __future__ import annotations

import hashlib
import os
import sys
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from fugu_cli import policy, prompts, wiring
from fugu_cli.agents import Agent
from fugu_cli.budgets import PRICE_HINT, UNPRICED
from fugu_cli.config import Config
from fugu_cli.config.entry import AgentEntry
from fugu_cli.config.files import Loaded
from fugu_cli.config.pool import SERVICES, pool
from fugu_cli.errors import ConfigError
from fugu_cli.evaluation.loop import Open, Place, Session
from fugu_cli.evaluation.paid_replies import Account, Paying, named
from fugu_cli.evaluation.spending import Spending
from fugu_cli.loop.environment import Permission
from fugu_cli.messages import Call

CONDUCTOR = "conductor"
SETTINGS = ("provider", "model", "base_url", "protocol", "temperature", "max_tokens", "effort", "context")
"""Fields of an entry that change its answers. Not its name: two entries of one model share what was paid for."""


@dataclass(frozen=True)
class Opening:
    """Opens sessions for the arms of an evaluation in `folder`, paid within its limits."""

    config: Config
    environ: tuple[tuple[str, str], ...]
    folder: Path

    def __call__(self, spending: Spending) -> Open:
        """What opens a session for a place. `python` in a task's commands is from then on the one that runs fugu."""
        interpreter, path = str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)
        if path.split(os.pathsep)[0] != interpreter:
            os.environ["PATH"] = os.pathsep.join([interpreter, path])
        return _Opened(self, spending).open


class _Opened:
    def __init__(self, opening: Opening, spending: Spending) -> None:
        self._opening = opening
        self._spending = spending
        self._environ = dict(opening.environ)
        self._entries = {entry.name: entry for entry in pool(opening.config, self._environ)}
        out = opening.config.opt_out
        unpriced = [name for name, entry in self._entries.items() if entry.rates is None and name not in out]
        if spending.limits.usd is not None and unpriced:
            raise ConfigError(f"{', '.join(unpriced)}: {UNPRICED}", hint=PRICE_HINT)

    async def open(self, place: Place) -> Session:
        """A session as `fugu run` opens it, with nobody to ask."""
        name = str(place.data.parent.relative_to(self._opening.folder))
        folder, own = self._opening.folder, named(place.task)
        account = Account(name, place.repository, place.seed, folder, self._spending, own)

        def around(agent: Agent) -> Agent:
            entry = self._entries[agent.name]
            return Paying(agent, entry.member(), settings(entry), account)

        config = configured(self._opening.config, place)
        loaded = Loaded(config=config, files=(), notes=(), root=place.repository, trusted=False)
        return await wiring.open_session(loaded, self._environ, _no, place.resume, around)


def keys(config: Config, environ: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """The variables that hold keys of the pool, and nothing else of the environment."""
    named = {entry.api_key_env for entry in config.agents} | {service.variable for service in SERVICES}
    return tuple(sorted((name, value) for name, value in environ.items() if name in named))


def configured(config: Config, place: Place) -> Config:
    """The user's configuration, changed to what the place asks for: the tests that a task shows must pass in the end.
    Draws differ from task to task and seed to seed. Commands run unasked: the repository is a copy of the task's."""
    conductor, shown = place.arm == CONDUCTOR, bool(place.task.test_files)
    return config.model_copy(
        update={
            "coordinator": config.coordinator if conductor else place.arm,
            "tier": "ultra" if conductor else "fugu",
            "data_dir": place.data,
            "permission_mode": "auto",
            "allow": (*config.allow, "bash", "acceptance_check"),
            "test_command": place.task.test_command if shown else None,
            "tests": config.tests.model_copy(update={"until": (), "until_pass": shown}),
            "test_timeout": place.task.timeout,
            "verify_answers": place.question or config.verify_answers,
            "seed": zlib.crc32(place.task.id.encode()) + place.seed,
        }
    )


def settings(entry: AgentEntry) -> dict[str, JsonValue]:
    """Everything of an entry that its replies depend on, the words of its protocol among it."""
    found = entry.model_dump(mode="json", include=set(SETTINGS))
    if entry.protocol in ("schema", "text"):
        found["asked"] = hashlib.sha256(prompts.load(f"protocols/{entry.protocol}").encode()).hexdigest()[:16]
    return found


async def _no(_call: Call, _judgement: policy.Judgement) -> Permission:
    """Nobody is there to ask."""
    return "headless"
