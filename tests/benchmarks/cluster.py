"""Evaluation and training on a cluster of this machine: what a killed node changes, what Ray adds.

    python -m tests.benchmarks.cluster killed      20 tasks x 2 arms: one process, and two nodes, one killed half-way
    python -m tests.benchmarks.cluster evolve      the checkpoint at 1 and 8 rollouts, and on two nodes, one killed
    python -m tests.benchmarks.cluster overhead 100 16    so many rollouts of 5 seconds on so many slots, and the same
                                                   number of tasks that only sleep
    python -m tests.benchmarks.cluster concurrent  100 rollouts at 1 and at 64 at once

The models are played by a loopback server. Results: results/scale.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from fugu_cli.coordinators import checkpoint
from fugu_cli.training.evaluation import results_folder
from fugu_cli.training.evaluation.paid_calls import PaidCall
from fugu_cli.training.evaluation.rollout import RolloutOutcome
from tests.acceptance.loopback import KEY, Answer, Asked, Loopback, Says
from tests.acceptance.loopback import running as running_server
from tests.ray.clusters import Cluster
from tests.ray.clusters import running as running_cluster
from tests.research.evaluation.pool import configured, fixes, idles, suite, task
from tests.unit.coordinators import tiny

ROOT = Path(__file__).parents[2]
TASK_SECONDS = 5.0
Result = TypeVar("Result")


@dataclass(frozen=True)
class Ended:
    """A command that has ended: its exit code, its seconds, and its own processor time."""

    code: int
    seconds: float
    cpu: float


@dataclass(frozen=True)
class Bench:
    """A folder with tasks, a home with a pool, and the server that plays it."""

    folder: Path
    server: Loopback
    environ: dict[str, str]

    def start(self, *words: str, cluster: Cluster | None = None) -> subprocess.Popen[bytes]:
        environ = dict(self.environ)
        if cluster is not None:
            environ["RAY_ADDRESS"] = cluster.address
            words = (*words, "--engine", "ray")
        log = (self.folder / "log.txt").open("ab")
        return subprocess.Popen(
            [sys.executable, "-m", "fugu_cli", *words],
            cwd=self.folder,
            env=environ,
            stdout=log,
            stderr=log,
        )

    def run(self, *words: str, cluster: Cluster | None = None) -> Ended:
        begun, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        code = self.start(*words, cluster=cluster).wait()
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Ended(code, time.monotonic() - begun, cpu)

    def asked(self) -> int:
        return len(self.server.asked("worker")) + len(self.server.asked("idler"))

    def rows(self, out: str) -> list[RolloutOutcome]:
        return results_folder.read_rows(self.folder / out / "rows.jsonl", RolloutOutcome)

    def cells(self, out: str) -> list[tuple[str, str, int, bool, int]]:
        return sorted((row.arm, row.task, row.seed, row.ok, row.turns) for row in self.rows(out))

    def calls(self, out: str) -> str:
        paid = results_folder.read_rows(self.folder / out / "paid.jsonl", PaidCall)
        lost = sum(call.lost for call in paid)
        in_rows = sum(row.calls for row in self.rows(out))
        return f"{in_rows} calls in rows, {len(paid)} paid, {lost} of them under way at a kill"


@contextmanager
def bench(seconds: float) -> Iterator[Bench]:
    """A bench whose agents answer after so many seconds."""

    def worker(asked: Asked) -> Answer:
        time.sleep(seconds)
        if "Answer with a number" in asked.text:
            return Says("Answer: 4")
        return fixes(asked)

    with tempfile.TemporaryDirectory() as folder, running_server() as server:
        home = Path(folder, "home")
        home.mkdir()
        configured(home, server, ("idler", "cheap"), ("worker", "strong"))
        server.react("worker", worker)
        server.react("idler", idles)
        environ = {**os.environ, "HOME": str(home), "LOOPBACK_KEY": KEY, "PYTHONPATH": str(ROOT)}
        yield Bench(Path(folder), server, environ)


def wait_for_rows(command: subprocess.Popen[bytes], file: Path, count: int) -> None:
    while not file.exists() or file.read_bytes().count(b"\n") < count:
        assert command.poll() is None, "the command ended too early"
        time.sleep(0.1)


def killed() -> None:
    with bench(0.2) as here, running_cluster(here.environ, (2, 2)) as cluster:
        suite(here.folder, *(task(f"t{number}") for number in range(20)))
        words = ("eval", "own.jsonl", "-a", "single:worker", "-a", "cascade", "--out")
        alone = here.run(*words, "alone", "--rollouts", "1")
        print(f"one process, one rollout: {alone.seconds:.0f} s; {here.calls('alone')}")
        before = here.asked()
        begun = time.monotonic()
        command = here.start(*words, "killed", cluster=cluster)
        wait_for_rows(command, here.folder / "killed" / "rows.jsonl", 20)
        cluster.nodes.pop().kill()
        code = command.wait()
        print(
            f"two nodes, one killed after 20 rows: exit code {code}, "
            f"{time.monotonic() - begun:.0f} s; {here.calls('killed')}; "
            f"the server was asked {here.asked() - before} times"
        )
        rows = here.rows("killed")
        print(f"{len(rows)} rows, {len(set(here.cells('killed')))} distinct")
        print(f"equal to one process: {here.cells('killed') == here.cells('alone')}")


def evolve() -> None:
    with bench(0.2) as here, running_cluster(here.environ, (2, 2)) as cluster:
        suite(here.folder, *(task(f"t{number}") for number in range(3)))
        backbone = tiny.folder(here.folder / "backbone")
        start = tiny.checkpoint(tiny.meta(backbone, rows=("idler", "worker")))
        checkpoint.save(start, here.folder / "start.safetensors")
        rc = here.folder / "home" / ".fugurc"
        rc.write_text(
            f'backbone = "{backbone}"\ncheckpoint = "{here.folder}/start.safetensors"\n'
            + rc.read_text()
        )
        words = ("train", "evolve", "own.jsonl", "--population", "4", "--iterations", "2")
        words = (*words, "--replications", "2", "--sigma", "0.5", "--seed", "7", "--out")
        for out, rollouts in (("one", "1"), ("eight", "8")):
            ended = here.run(*words, out, "--rollouts", rollouts)
            print(f"{rollouts} rollout(s) at once: {ended.seconds:.0f} s, {digest(here, out)}")
        command = here.start(*words, "nodes", "--rollouts", "8", cluster=cluster)
        wait_for_rows(command, here.folder / "nodes" / "rollouts.jsonl", 5)
        cluster.nodes.pop().kill()
        code = command.wait()
        print(f"two nodes, one killed after 5 rollouts: exit code {code}, {digest(here, 'nodes')}")


def digest(here: Bench, out: str) -> str:
    data = (here.folder / out / "checkpoint.safetensors").read_bytes()
    return f"checkpoint {hashlib.sha256(data).hexdigest()[:12]}"


def overhead() -> None:
    count, slots = int(sys.argv[2]), int(sys.argv[3])
    nodes = (slots // 2, slots - slots // 2)
    with bench(TASK_SECONDS) as here, running_cluster(here.environ, nodes) as cluster:
        questions = [
            {"id": f"q{n}", "question": f"{n} - {n} + 4? Answer with a number.", "answer": "4"}
            for n in range(count)
        ]
        lines = "".join(json.dumps(question) + "\n" for question in questions)
        (here.folder / "questions.jsonl").write_text(lines)
        print(f"{count} of {TASK_SECONDS:g} s on {slots} slots: ideal", end=" ")
        print(f"{-(-count // slots) * TASK_SECONDS:.0f} s")
        command = [sys.executable, "-m", "tests.benchmarks.cluster", "sleep", str(count)]
        environ = {**here.environ, "RAY_ADDRESS": cluster.address}
        print_cpu(cluster, lambda: subprocess.run(command, env=environ, cwd=ROOT, check=True))
        words = ("eval", "questions.jsonl", "-a", "one-pass:worker", "--out", "out")
        ended = print_cpu(cluster, lambda: here.run(*words, cluster=cluster))
        first = (here.folder / "out" / "cluster.json").stat().st_mtime
        last = (here.folder / "out" / "rows.jsonl").stat().st_mtime
        again = here.run(*words, cluster=cluster)
        print(
            f"{len(here.rows('out'))} rollouts: {last - first:.1f} s from the settings to the last "
            f"row; driver {1000 * (ended.cpu - again.cpu) / count:.0f} ms of CPU a rollout, and "
            f"{again.cpu:.1f} s for its start"
        )


def print_cpu(cluster: Cluster, run: Callable[[], Result]) -> Result:
    """Run something on the cluster and print what the processes of its nodes used meanwhile."""
    seconds: dict[int, float] = {}
    over = threading.Event()

    def sample() -> None:
        while not over.wait(0.3):
            for node in cluster.nodes:
                seconds.update(node.cpu_seconds())

    sampler = threading.Thread(target=sample)
    before = {pid: cpu for node in cluster.nodes for pid, cpu in node.cpu_seconds().items()}
    sampler.start()
    try:
        return run()
    finally:
        over.set()
        sampler.join()
        used = sum(cpu - before.get(pid, 0) for pid, cpu in seconds.items())
        print(f"    nodes: {used:.1f} s of CPU, load {os.getloadavg()[0]:.1f}")


def sleep() -> None:
    """Run tasks of Ray that only sleep, on the cluster that RAY_ADDRESS names."""
    import ray

    ray.init(os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR")
    begun = time.monotonic()
    task = ray.remote(num_cpus=1, scheduling_strategy="SPREAD")(lambda: time.sleep(TASK_SECONDS))
    ray.get([task.remote() for _ in range(int(sys.argv[2]))])
    print(f"tasks of Ray that only sleep: {time.monotonic() - begun:.1f} s")


def concurrent() -> None:
    with bench(1.0) as here:
        names = [f"t{number}" for number in range(20)]
        test = "import calc\n\ndef test_it():\n    assert calc.value == 'fixed'\n"
        tasks = []
        for name in names:
            line = task(
                name,
                language="python",
                test_command=f"{sys.executable} -m pytest -q -p no:cacheprovider test_calc.py",
                timeout_s=4,
                test_files=["test_calc.py"],
                repo={"calc.txt": f"broken {name}\n", "calc.py": READS, "test_calc.py": test},
            )
            tasks.append(line)
        suite(here.folder, *tasks)
        for rollouts in ("1", "64"):
            words = ("eval", "own.jsonl", "-a", "single:worker", "--seeds", "5", "--out", rollouts)
            ended = here.run(*words, "--rollouts", rollouts)
            rows = here.rows(rollouts)
            solved, accepted = sum(row.ok for row in rows), sum(row.accepted for row in rows)
            turns = sum(row.turns for row in rows) / len(rows)
            setup = json.loads((here.folder / rollouts / "setup.json").read_text())
            limits = setup["rollouts_at_once"], setup["commands_at_once"]
            print(
                f"--rollouts {rollouts}: {len(rows)} rows, {solved} solved, {accepted} accepted, "
                f"{turns:.2f} turns, {ended.seconds:.0f} s, setup {limits}"
            )
        print(f"the same rows: {here.cells('1') == here.cells('64')}")


READS = (
    "from pathlib import Path\n\nvalue = Path(__file__).with_name('calc.txt').read_text().strip()\n"
)

if __name__ == "__main__":
    {
        "killed": killed,
        "evolve": evolve,
        "overhead": overhead,
        "sleep": sleep,
        "concurrent": concurrent,
    }[sys.argv[1]]()
