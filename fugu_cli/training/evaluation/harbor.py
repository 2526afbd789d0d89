"""Harbor's adapter: fugu as an agent of benchmarks that Harbor runs (terminal-bench, SWE-bench
Verified).

    harbor run -d terminal-bench@2.0 -a fugu_cli.training.evaluation.harbor:FuguAgent --ak
    wheel=fugu_cli-0.2.0-py3-none-any.whl

Imported by Harbor alone, in its own Python: it needs Harbor and nothing of fugu's libraries. A
task's container gets the wheel, without torch (the cascade decides) unless `learned` is set, the
`.fugurc` that `config` names and the keys that this names. fugu writes the trajectory (ATIF) and
the costs; this reads them.
"""

from __future__ import annotations

import json
import os
import shlex
import tomllib
from pathlib import Path
from typing import Annotated, Any

from harbor.agents.capabilities import AgentCapabilities
from harbor.agents.installed.base import BaseInstalledAgent, with_prompt_template
from harbor.agents.options import Cli, InstalledAgentOptions
from harbor.environments.base import BaseEnvironment
from harbor.models.agent.context import AgentContext
from pydantic import Field

from fugu_cli import __version__

KEYS = ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "OPENROUTER_API_KEY")
"""Variables that go into the container where no `.fugurc` names others."""
FOLDER, LOGS = "/installed-agent", "/logs/agent"
CHECKPOINT = f"{FOLDER}/checkpoint.safetensors"
LIGHT = "printf \"torch ; sys_platform == 'none'\\ntransformers ; sys_platform == 'none'\\n\""
"""Leaves out what only the learned coordinator needs: 1.3 GB in each container."""
NOT_ACCEPTED = 3
"""fugu's exit code for a limit, and for work that was not accepted: the task's own tests judge all
the same.
"""


class FuguOptions(InstalledAgentOptions):  # type: ignore[misc, unused-ignore]
    """`--ak NAME=VALUE`; `config` is a `.fugurc` with the pool."""

    wheel: str = Field(
        default="", description="The wheel of fugu, a path here or a name that uv can install."
    )
    learned: bool = Field(
        default=False, description="Install torch too, for the learned coordinator."
    )
    checkpoint: str = Field(
        default="",
        description="A checkpoint of this machine, for the learned coordinator; implies learned.",
    )
    enter: bool = Field(
        default=False,
        description="Work in the only folder of the task's folder, where `harbor exec --scan` puts "
        "a repository.",
    )
    permission_mode: Annotated[str | None, Cli("--permission-mode")] = Field(
        default=None, description="plan, edit, auto or yolo; yolo when left out."
    )
    coordinator: Annotated[str | None, Cli("--coordinator")] = Field(
        default=None, description="Who decides."
    )
    tier: Annotated[str | None, Cli("--tier")] = Field(default=None, description="fugu or ultra.")
    max_turns: Annotated[int | None, Cli("--max-turns")] = Field(
        default=None, description="Turns at most."
    )
    max_budget_usd: Annotated[float | None, Cli("--max-budget-usd")] = Field(
        default=None, description="USD at most for each task."
    )
    time_limit: Annotated[float | None, Cli("--time-limit")] = Field(
        default=None,
        description="Seconds at most; less than the task's own, so that all is written down.",
    )
    reasoning_effort: Annotated[str | None, Cli("--effort")] = Field(
        default=None, description="As --effort."
    )


class FuguAgent(BaseInstalledAgent):  # type: ignore[misc, unused-ignore]
    """fugu in a task's container."""

    capabilities = AgentCapabilities(atif=True, native_config=True, reasoning_effort=True)
    options_model = FuguOptions

    @staticmethod
    def name() -> str:
        return "fugu"

    def get_version_command(self) -> str | None:
        return f"{_PATH} fugu --version"

    def parse_version(self, stdout: str) -> str:
        return stdout.strip().removeprefix("fugu ")

    async def install(self, environment: BaseEnvironment) -> None:
        """Install with uv, which brings its own Python. Raises RuntimeError if no wheel is named."""
        if (await environment.exec(command=f"{_PATH} command -v fugu")).return_code == 0:
            return
        wheel = self.options.wheel or ""
        if not wheel:
            raise RuntimeError("name the wheel of fugu: --ak wheel=fugu_cli-0.2.0-py3-none-any.whl")
        await self.ensure_system_dependencies(environment, ("curl", "git"))
        if Path(wheel).is_file():
            await environment.upload_file(wheel, f"{FOLDER}/{Path(wheel).name}")
            wheel = f"{FOLDER}/{Path(wheel).name}"
        learned = self.options.learned or self.options.checkpoint
        left_out = "" if learned else f'{LIGHT} > "$HOME/left-out"; '
        how = "--torch-backend cpu" if learned else '--overrides "$HOME/left-out"'
        await self.exec_as_agent(
            environment,
            f"{_PATH} command -v uv || curl -LsSf https://astral.sh/uv/install.sh | sh; {left_out}"
            f"uv tool install --python 3.12 {how} {shlex.quote(wheel)} && fugu --version",
        )

    async def configure(self, environment: BaseEnvironment) -> None:
        """Upload the user's `.fugurc` and checkpoint if they are given."""
        if isinstance(self.config_source, Path):
            await environment.upload_file(self.config_source, f"{FOLDER}/fugurc")
        if self.options.checkpoint:
            await environment.upload_file(self.options.checkpoint, CHECKPOINT)

    @with_prompt_template  # type: ignore[untyped-decorator, unused-ignore]
    async def run(
        self, instruction: str, environment: BaseEnvironment, context: AgentContext
    ) -> None:
        """Run one request. The container is the sandbox, so everything is allowed; where a mode is
        named, it and fugu's own sandbox hold.
        """
        mode = ""
        settings: dict[str, str] = {}
        if not self.options.permission_mode:
            mode = "--yolo "
            settings["FUGU_SANDBOX"] = '{ mode = "off" }'
        enter = "cd -- */ && " if self.options.enter else ""
        if self.options.checkpoint:
            settings["FUGU_CHECKPOINT"] = CHECKPOINT
        model = ""
        if self.model_name:
            model = f"--model {shlex.quote(self.model_name.rpartition('/')[2])} "
        output = f"{LOGS}/fugu.txt"
        await self.exec_as_agent(
            environment,
            f'{_PATH} if [ -f {FOLDER}/fugurc ]; then cp {FOLDER}/fugurc "$HOME/.fugurc"; fi; '
            f"{enter}fugu run -p {shlex.quote(instruction)} {mode}{model}{self.build_cli_flags()} "
            f"--output-dir {LOGS} "
            f"< /dev/null > {output} 2>&1 || "
            f"{{ code=$?; tail -n 20 {output}; test $code -eq {NOT_ACCEPTED}; }}",
            env={**self._keys(), **settings},
        )

    def _keys(self) -> dict[str, str]:
        """Return this machine's keys that the pool needs; `--ae NAME=VALUE` gives others."""
        names: tuple[str, ...] = KEYS
        if isinstance(self.config_source, Path):
            agents = tomllib.loads(self.config_source.read_text(encoding="utf-8")).get("agents", [])
            names = tuple(agent["api_key_env"] for agent in agents if "api_key_env" in agent)
        return {name: os.environ[name] for name in names if name in os.environ}

    def populate_context_post_run(self, context: AgentContext) -> None:
        """Report tokens and cost as fugu counted them, and the agents."""
        try:
            metrics = json.loads((self.logs_dir / "trajectory.json").read_text())["final_metrics"]
            summary: dict[str, Any] = json.loads((self.logs_dir / "summary.json").read_text())
        except (OSError, ValueError, KeyError) as error:
            self.logger.warning(f"fugu left no trajectory: {error}")
            return
        context.n_input_tokens = metrics["total_prompt_tokens"]
        context.n_cache_tokens = metrics["total_cached_tokens"]
        context.n_output_tokens = metrics["total_completion_tokens"]
        context.cost_usd = metrics["total_cost_usd"]
        own = summary.get("fugu", {})
        context.metadata = {
            "fugu": {
                "version": __version__,
                **{k: own.get(k) for k in ("reason", "end", "routing")},
            }
        }


_PATH = 'export PATH="$HOME/.local/bin:$PATH"; '
