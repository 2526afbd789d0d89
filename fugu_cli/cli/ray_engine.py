"""`--engine ray`: rollouts on a Ray cluster. A rollout is one Ray task, with its job as JSON in and
its row as JSON out. It takes one CPU of the cluster, so its tests and commands run one at a time.

Ray starts a task again if its process or node dies. The rollout goes on from its log, because its
folder is on a disk that all nodes see. Keys come from each node's own environment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fugu_cli import __version__
from fugu_cli.cli.rollout_sessions import PAID_FILE, add_python_to_path, local_engine
from fugu_cli.config import Config
from fugu_cli.config.kept_keys import add_kept_keys
from fugu_cli.errors import FuguError, StorageError, UsageError
from fugu_cli.messages import Value
from fugu_cli.system.atomic_files import write_atomically
from fugu_cli.training.evaluation.paid_calls import Spending, SpendingAccount, SpendingLimits
from fugu_cli.training.evaluation.rollout import RolloutJob, RolloutLost, RolloutOutcome
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import TaskCheck, check_task

SETTINGS_FILE = "cluster.json"
RETRIES = 3
"""Times that Ray may start a task again after its process or node has died."""
NODE_SECONDS = 120.0
"""Seconds within which a node must show that it sees the folder."""


class ClusterSettings(Value):
    """The settings that every node reads from the folder. `token` is new for each run, so that
    another folder of the same name is noticed.
    """

    token: str
    version: str
    config: Config


class RayEngine:
    """Runs rollouts as tasks of Ray, and their account as an actor beside the driver."""

    def __init__(self, config: Config, limits: SpendingLimits, folder: Path) -> None:
        """Connect to the cluster that RAY_ADDRESS names, else start one on this machine. Raises
        UsageError where a node does not see `folder`.
        """
        self._folder = folder
        self._token = secrets.token_hex(8)
        settings = ClusterSettings(token=self._token, version=__version__, config=config)
        data = settings.model_dump_json().encode()
        write_atomically(folder / SETTINGS_FILE, data, mode=0o600)
        _connect()
        _check_nodes(folder, self._token)
        driver_node = _on_node(ray.get_runtime_context().get_node_id())
        account = ray.remote(Spending).options(num_cpus=0, scheduling_strategy=driver_node)
        self._account = account.remote(folder / PAID_FILE, limits)

    @property
    def spending(self) -> SpendingAccount:
        return remote_account(self._account)

    @property
    def cores(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    async def do(self, job: RolloutJob) -> RolloutOutcome:
        task = _rollout_task.options(name=job.name)
        with _own_errors(_rollout_lost):
            row = await task.remote(self._folder, self._token, job.model_dump_json(), self._account)
        return RolloutOutcome.model_validate_json(row)

    async def check(self, task: Task) -> TaskCheck:
        with _own_errors(_rollout_lost):
            check = await _check_task.options(name=task.id).remote(task.model_dump_json())
        return TaskCheck.model_validate_json(check)

    async def close(self) -> None:
        ray.shutdown()


class _AccountProxy:
    """Calls the methods of the account in its actor."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, method: str) -> Callable[..., Any]:
        def call(*arguments: object) -> Any:
            with _own_errors(_account_lost):
                return ray.get(getattr(self._actor, method).remote(*arguments))

        return call


def remote_account(actor: Any) -> SpendingAccount:
    """Return the account that an actor keeps for all nodes."""
    return cast(SpendingAccount, _AccountProxy(actor))


@contextmanager
def _own_errors(lost: Callable[[RayError], FuguError]) -> Iterator[None]:
    """Raise the error of a task or actor itself, and `lost` if Ray could not finish it."""
    try:
        yield
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise lost(error) from error


def _rollout_lost(error: RayError) -> FuguError:
    return RolloutLost(
        f"its process or node died {RETRIES + 1} times: {type(error).__name__}",
        hint="`ray status` and the logs of Ray say why",
    )


def _account_lost(error: RayError) -> FuguError:
    return StorageError(
        f"the process with the account of all rollouts has ended: {error}",
        hint="run the same command again; it goes on from what is recorded",
    )


def _connect() -> None:
    address = os.environ.get("RAY_ADDRESS", "local")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    only_local = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", **only_local)
    except (RayError, ConnectionError, RuntimeError, OSError) as error:
        raise UsageError(
            f"no Ray cluster can be used at {address}: {error}",
            hint="`ray status` says whether it is up; one that demands a token needs "
            "RAY_AUTH_MODE=token; without RAY_ADDRESS one is started here",
        ) from error


def _check_nodes(folder: Path, token: str) -> None:
    """Raise UsageError where a node does not see the folder or runs another fugu."""
    nodes = {node["NodeID"]: node["NodeManagerAddress"] for node in _living_nodes()}
    checks = {
        node: ray.remote(_read_settings)
        .options(num_cpus=0, scheduling_strategy=_on_node(node))
        .remote(folder, token)
        for node in nodes
    }
    for node, check in checks.items():
        try:
            ray.get(check, timeout=NODE_SECONDS)
        except RayError as error:
            cause = error.cause if isinstance(error, RayTaskError) else error
            if isinstance(cause, UsageError):
                raise cause from error
            if any(living["NodeID"] == node for living in _living_nodes()):
                raise UsageError(
                    f"the node {nodes[node]} cannot run rollouts: {cause}",
                    hint="fugu must be installed on every node, in the Python that Ray runs on",
                ) from error


def _living_nodes() -> list[dict[str, Any]]:
    return [node for node in ray.nodes() if node["Alive"]]


def _on_node(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


def _read_settings(folder: Path, token: str) -> ClusterSettings:
    """Return the settings in the folder. Raises UsageError if this node does not see the folder, or
    cannot write there, or has another version of fugu.
    """
    address = ray.util.get_node_ip_address()
    unshared = UsageError(
        f"{folder} is not the same folder on the node {address}",
        hint="--out must be on a disk that all nodes see",
    )
    try:
        settings = ClusterSettings.model_validate_json((folder / SETTINGS_FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise unshared from error
    if settings.token != token or not os.access(folder, os.W_OK):
        raise unshared
    if settings.version != __version__:
        raise UsageError(
            f"the node {address} has fugu {__version__}, and this is fugu {settings.version}",
            hint="install the same version on every node",
        )
    return settings


def _do_job(folder: Path, token: str, job: str, account: Any) -> str:
    """Run or resume a rollout."""
    settings = _read_settings(folder, token)
    # Ray would raise SystemExit anywhere, also while an event is being written
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    add_kept_keys(os.environ)
    engine = local_engine(settings.config, remote_account(account), folder, cores=1)
    return asyncio.run(engine.do(RolloutJob.model_validate_json(job))).model_dump_json()


def _check(task: str) -> str:
    """Check a task of an evaluation."""
    add_python_to_path()
    return asyncio.run(check_task(Task.model_validate_json(task))).model_dump_json()


_as_task = ray.remote(num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD")
_rollout_task = _as_task(_do_job)
_check_task = _as_task(_check)
