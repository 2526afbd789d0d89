"""`--engine ray`: two nodes on this machine, one of them killed. A tier of its own, since it needs
Ray: `pip install 'fugu-cli[ray]'`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="the extra `ray` is not installed")

from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.paid_calls import PaidCall
from fugu_cli.training.evaluation.rollout import RolloutOutcome
from tests.acceptance.loopback import KEY, Answer, Asked, Loopback
from tests.acceptance.loopback import running as running_server
from tests.ray.clusters import Cluster
from tests.ray.clusters import running as running_cluster
from tests.research.evaluation.pool import configured, fixes, idles, suite, task

ARMS = ("single:worker", "cascade")
TASKS = 3


def slowly(asked: Asked) -> Answer:
    time.sleep(0.3)
    return fixes(asked)


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with running_server() as loopback:
        loopback.react("idler", idles)
        loopback.react("worker", slowly)
        yield loopback


@pytest.fixture(scope="module")
def here(server: Loopback, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tasks, and a home with the pool in it."""
    folder = tmp_path_factory.mktemp("ray")
    (folder / "home").mkdir()
    configured(folder / "home", server, ("idler", "cheap"), ("worker", "strong"))
    suite(folder, *(task(f"t{number}") for number in range(TASKS)))
    return folder


@pytest.fixture(scope="module")
def environ(here: Path) -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    return kept | {"HOME": str(here / "home"), "LOOPBACK_KEY": KEY}


@pytest.fixture(scope="module")
def cluster(here: Path, environ: dict[str, str]) -> Iterator[Cluster]:
    """Two nodes. The second one sees another folder `unseen` where bubblewrap is installed."""
    (here / "unseen").mkdir()
    bubblewrap = shutil.which("bwrap")
    hide = [bubblewrap, "--dev-bind", "/", "/", "--tmpfs", str(here / "unseen"), "--"]
    with running_cluster(environ, (2,)) as cluster:
        cluster.add_node(2, *(hide if bubblewrap else ()))
        yield cluster


@dataclass(frozen=True)
class Command:
    """A running command of fugu, and the file of what it prints."""

    process: subprocess.Popen[bytes]
    output: Path

    def ended(self) -> tuple[int, str]:
        """Wait for its exit code and its output."""
        return self.process.wait(120), self.output.read_text()


def evaluate(folder: Path, environ: dict[str, str], out: Path, *words: str) -> Command:
    """`fugu eval` of the tasks."""
    arms = [word for arm in ARMS for word in ("--arm", arm)]
    command = [sys.executable, "-m", "fugu_cli", "eval", "own.jsonl", "--out", str(out)]
    output = folder / f"{out.name}.txt"
    with output.open("wb") as file:
        process = subprocess.Popen(
            [*command, *arms, *words],
            cwd=folder,
            env=environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
            stdout=file,
            stderr=file,
        )
    return Command(process, output)


def rows(out: Path) -> list[RolloutOutcome]:
    return results_folder.read_rows(out / "rows.jsonl", RolloutOutcome)


def cells(out: Path) -> list[tuple[str, str, int, bool, int]]:
    return sorted((row.arm, row.task, row.seed, row.ok, row.turns) for row in rows(out))


def test_a_node_that_does_not_see_the_folder_is_refused(
    here: Path, environ: dict[str, str], cluster: Cluster
) -> None:
    if shutil.which("bwrap") is None:
        pytest.skip("without bubblewrap all nodes here see the same folders")
    out = here / "unseen"
    on_cluster = environ | {"RAY_ADDRESS": cluster.address}
    code, output = evaluate(here, on_cluster, out, "--engine", "ray").ended()
    assert code == 1
    assert f"{out} is not the same folder on the node " in output
    assert "--out must be on a disk that all nodes see" in output


def test_one_account_bounds_the_calls_of_all_nodes(
    here: Path, environ: dict[str, str], cluster: Cluster, server: Loopback
) -> None:
    before = len(server.asked("worker")) + len(server.asked("idler"))
    out = here / "bounded"
    on_cluster = environ | {"RAY_ADDRESS": cluster.address}
    words = ("--engine", "ray", "--rollouts", "8", "--max-requests", "5")
    code, output = evaluate(here, on_cluster, out, *words).ended()
    assert (code, "5 of 5 requests are made" in output) == (3, True), output
    asked = len(server.asked("worker")) + len(server.asked("idler")) - before
    assert asked == len(results_folder.read_rows(out / "paid.jsonl", PaidCall)) == 5


def test_a_killed_node_loses_no_row_and_pays_no_reply_twice(
    here: Path, environ: dict[str, str], cluster: Cluster, server: Loopback
) -> None:
    alone = here / "alone"
    assert evaluate(here, environ, alone, "--rollouts", "1").ended()[0] == 0
    before = len(server.asked("worker")) + len(server.asked("idler"))
    out = here / "killed"
    on_cluster = environ | {"RAY_ADDRESS": cluster.address}
    running = evaluate(here, on_cluster, out, "--engine", "ray")
    while len(rows(out)) < 2:
        assert running.process.poll() is None, running.ended()
        time.sleep(0.1)
    cluster.nodes.pop().kill()
    code, output = running.ended()
    assert code == 0, output
    assert cells(out) == cells(alone)
    paid = results_folder.read_rows(out / "paid.jsonl", PaidCall)
    asked = len(server.asked("worker")) + len(server.asked("idler")) - before
    assert len(paid) == asked
    lost = [call for call in paid if call.lost]
    assert sum(row.calls for row in rows(out)) == len(paid) - len(lost)
