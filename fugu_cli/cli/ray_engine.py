"""`--engine ray`: rollouts on a Ray cluster. A rollout is one Ray task, with its job as JSON in and
its row as JSON out. It takes one CPU of the cluster, so its tests and commands run one at a time.

If the process or node of a task dies, Ray starts the task again. It goes on from its log, because
its folder is on a disk that all nodes see. Keys come from each node's own environment.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import tempfile
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import ray
from ray.exceptions import RayError, RayTaskError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from fugu_cli import __version__
from fugu_cli.cli.rollout_sessions import (
    PAID_FILE,
    RolloutSessionFactory,
    add_python_to_path,
)
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import pool_variables
from fugu_cli.config.kept_keys import add_kept_keys
from fugu_cli.errors import SessionBusy, StorageError, UsageError
from fugu_cli.messages import Value
from fugu_cli.system.atomic_files import write_atomically
from fugu_cli.training.evaluation.engine import LocalEngine, RolloutEngine
from fugu_cli.training.evaluation.paid_calls import (
    AgentUnanswered,
    PaidCall,
    Spending,
    SpendingAccount,
    SpendingLimits,
)
from fugu_cli.training.evaluation.rollout import RolloutJob, RolloutLost, RolloutOutcome
from fugu_cli.training.tasks import Task
from fugu_cli.training.tasks.grading import TaskCheck, check_task

RETRIES = 3
"""Times that Ray may start a task again after its process or node has died."""
NODE_SECONDS = 120.0
"""Seconds within which a node must show that it sees the folder."""
OBJECT_STORE_BYTES = 200_000_000
"""Memory for objects of a local cluster: jobs and rows are small."""
SETTINGS_FILE = "cluster.json"

Result = TypeVar("Result")


class ClusterSettings(Value):
    """The settings that every node reads from the folder. `token` is new for each run: a node that
    reads another token, or none, sees another folder of the same name.
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
        self._settings = ClusterSettings(
            token=secrets.token_hex(8), version=__version__, config=config
        )
        _connect()
        try:
            self._write_settings()
            self._check_nodes()
            driver_node = _on_node(ray.get_runtime_context().get_node_id())
            account = ray.remote(Spending).options(num_cpus=0, scheduling_strategy=driver_node)
            self._account = account.remote(folder / PAID_FILE, limits)
            self._spending = RemoteSpending(self._account)
            self._spending.total_usd()
        except BaseException:  # an interrupt too: the cluster that was started must not stay
            ray.shutdown()
            raise

    @property
    def spending(self) -> SpendingAccount:
        return self._spending

    @property
    def cores(self) -> int:
        return max(1, int(ray.cluster_resources().get("CPU", 1)))

    async def do(self, job: RolloutJob) -> RolloutOutcome:
        task = _task(_do_job, job.name)
        row = await _result(
            task.remote(self._folder, self._settings.token, job.model_dump_json(), self._account)
        )
        return RolloutOutcome.model_validate_json(row)

    async def check(self, task: Task) -> TaskCheck:
        check = await _result(_task(_check_task, task.id).remote(task.model_dump_json()))
        return TaskCheck.model_validate_json(check)

    async def close(self) -> None:
        ray.shutdown()

    def _write_settings(self) -> None:
        data = self._settings.model_dump_json().encode()
        write_atomically(self._folder / SETTINGS_FILE, data, mode=0o600)

    def _check_nodes(self) -> None:
        """Raise UsageError where a node does not see the folder or runs another fugu."""
        with tempfile.TemporaryDirectory(dir=self._folder, prefix=".nodes-") as answers:
            for node in ray.nodes():
                if not _is_alive(node["NodeID"]):
                    continue
                address = node["NodeManagerAddress"]
                answer = Path(answers) / node["NodeID"]
                check = ray.remote(_answer_from_node).options(
                    num_cpus=0, scheduling_strategy=_on_node(node["NodeID"])
                )
                try:
                    ray.get(
                        check.remote(self._folder, self._settings.token, answer),
                        timeout=NODE_SECONDS,
                    )
                except RayTaskError as error:
                    if isinstance(error.cause, UsageError):
                        raise error.cause from error
                    raise _unusable_node(address, error.cause) from error
                except RayError as error:
                    if not _is_alive(node["NodeID"]):
                        continue  # it died meanwhile: nothing will run there
                    raise _unusable_node(address, error) from error
                if not answer.is_file():
                    raise _unshared_folder(self._folder, address)


class RemoteSpending:
    """The account in its actor. Fits SpendingAccount."""

    def __init__(self, account: Any) -> None:
        self._account = account

    def total_usd(self) -> float:
        return float(_wait(self._account.total_usd.remote()))

    def is_down(self, agent: str) -> bool:
        return bool(_wait(self._account.is_down.remote(agent)))

    def begin_rollout(self, rollout: str) -> None:
        _wait(self._account.begin_rollout.remote(rollout))

    def begin_call(self, call: PaidCall, worst: float) -> str:
        return str(_wait(self._account.begin_call.remote(call, worst)))

    def update_call(self, key: str, call: PaidCall, worst: float) -> None:
        _wait(self._account.update_call.remote(key, call, worst))

    def end_call(self, key: str, call: PaidCall | None) -> None:
        _wait(self._account.end_call.remote(key, call))

    def record_answer(self, agent: str) -> None:
        _wait(self._account.record_answer.remote(agent))

    def record_failure(self, agent: str, kind: str, message: str, hint: str) -> AgentUnanswered:
        failure = _wait(self._account.record_failure.remote(agent, kind, message, hint))
        assert isinstance(failure, AgentUnanswered)
        return failure


def _connect() -> None:
    address = os.environ.get("RAY_ADDRESS")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    local = {"include_dashboard": False, "object_store_memory": OBJECT_STORE_BYTES}
    try:
        ray.init(
            address=address or "local",
            log_to_driver=False,
            logging_level="ERROR",
            **({} if address else local),
        )
    except (RayError, ConnectionError, RuntimeError, OSError) as error:
        raise UsageError(
            f"no Ray cluster can be used at {address or 'this machine'}: {error}",
            hint="`ray status` says whether it is up; without RAY_ADDRESS one is started here",
        ) from error


def _is_alive(node: str) -> bool:
    return any(entry["NodeID"] == node and entry["Alive"] for entry in ray.nodes())


def _on_node(node: str) -> NodeAffinitySchedulingStrategy:
    return NodeAffinitySchedulingStrategy(node, soft=False)


def _task(function: object, name: str) -> Any:
    return ray.remote(function).options(
        num_cpus=1, max_retries=RETRIES, scheduling_strategy="SPREAD", name=name
    )


async def _result(reference: Awaitable[Result]) -> Result:
    """Return a task's result. Raises the task's own error, and RolloutLost if Ray has given it up."""
    try:
        return await reference
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise RolloutLost(
            f"its process or node died {RETRIES + 1} times: {type(error).__name__}",
            hint="`ray status` and the logs of Ray say why",
        ) from error


def _wait(reference: object) -> Any:
    try:
        return ray.get(reference)
    except RayTaskError as error:
        raise error.cause from error
    except RayError as error:
        raise StorageError(
            f"the process with the account of all rollouts has ended: {error}",
            hint="run the same command again; it goes on from what is recorded",
        ) from error


def _unshared_folder(folder: Path, address: str) -> UsageError:
    return UsageError(
        f"{folder} is not the same folder on the node {address}",
        hint="--out must be on a disk that all nodes see",
    )


def _unusable_node(address: str, error: object) -> UsageError:
    return UsageError(
        f"the node {address} cannot run rollouts: {error}",
        hint="fugu must be installed on every node, in the Python that Ray runs on",
    )


def _read_settings(folder: Path, token: str) -> ClusterSettings:
    address = ray.util.get_node_ip_address()
    try:
        settings = ClusterSettings.model_validate_json((folder / SETTINGS_FILE).read_bytes())
    except (OSError, ValueError) as error:
        raise _unshared_folder(folder, address) from error
    if settings.token != token:
        raise _unshared_folder(folder, address)
    if settings.version != __version__:
        raise UsageError(
            f"the node {address} has fugu {__version__}, and this is fugu {settings.version}",
            hint="install the same version on every node",
        )
    return settings


def _answer_from_node(folder: Path, token: str, answer: Path) -> None:
    """Show that this node sees the folder. Ray runs it on each node."""
    _read_settings(folder, token)
    try:
        answer.touch()
    except OSError as error:
        raise _unshared_folder(folder, ray.util.get_node_ip_address()) from error


def _do_job(folder: Path, token: str, job: str, account: Any) -> str:
    """Run or resume a rollout, as a task of Ray."""
    settings = _read_settings(folder, token)
    environ = dict(os.environ)
    add_kept_keys(environ)
    factory = RolloutSessionFactory(
        settings.config, pool_variables(settings.config, environ), folder
    )
    spending = RemoteSpending(account)

    async def run() -> RolloutOutcome:
        engine = LocalEngine(factory(spending), spending, folder, cores=1)
        return await engine.do(RolloutJob.model_validate_json(job))

    with _ended_by_signals():
        try:
            return asyncio.run(run()).model_dump_json()
        except SessionBusy as error:  # a node that was cut off still works on it
            raise RolloutLost(f"another process works on it: {error}") from error


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let signals end the process at once; the session's log survives that. Ray's handlers would
    raise SystemExit anywhere, also while an event is being written.
    """
    handlers = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _check_task(task: str) -> str:
    """Check a task of an evaluation, as a task of Ray."""
    add_python_to_path()
    return asyncio.run(check_task(Task.model_validate_json(task))).model_dump_json()


if TYPE_CHECKING:

    def _fits(engine: RayEngine, spending: RemoteSpending) -> tuple[RolloutEngine, SpendingAccount]:
        return engine, spending
