"""A Ray cluster on this machine: each node is a session of processes that can be killed at once."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

RAY = str(Path(sys.executable).with_name("ray"))
ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_health_check_period_ms": "1000"}
HEALTH = {"RAY_health_check_failure_threshold": "3", "RAY_health_check_initial_delay_ms": "2000"}
"""A node that is gone is missed after 3 seconds, not after 25."""


@dataclass
class Node:
    """The processes of `ray start`."""

    process: subprocess.Popen[bytes]

    def cpu_seconds(self) -> dict[int, float]:
        """Return the processor time of each of them by its id."""
        seconds = {}
        for pid in _session(self.process.pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            ticks = sum(int(field) for field in fields[11:15])
            seconds[pid] = ticks / os.sysconf("SC_CLK_TCK")
        return seconds

    def kill(self) -> None:
        """Send SIGKILL to all of them, rollouts included."""
        for pid in _session(self.process.pid):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait()


@dataclass
class Cluster:
    """Nodes with the address of the first."""

    address: str
    environ: dict[str, str]
    nodes: list[Node] = field(default_factory=list)

    def add_node(self, cpus: int, *prefix: str) -> Node:
        """Start a node with the command `prefix` before it, and wait until it says so."""
        where = ["--address", self.address]
        if not self.nodes:
            port = self.address.rpartition(":")[2]
            where = ["--head", "--port", port, "--include-dashboard", "false"]
        start = [RAY, "start", "--block", "--num-cpus", str(cpus), "--node-ip-address", "127.0.0.1"]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [*prefix, *start, *where, "--object-store-memory", "100000000"],
                env=self.environ,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
            node = Node(process)
            self.nodes.append(node)
            deadline = time.monotonic() + 60
            while not output.seek(0) and "Ray runtime started" not in output.read():
                if process.poll() is not None or time.monotonic() > deadline:
                    output.seek(0)
                    raise RuntimeError(f"ray start failed: {output.read()}")
                time.sleep(0.1)
        return node


def _session(leader: int) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == leader:
            pids.append(int(entry.name))
    return pids


@contextmanager
def running(environ: dict[str, str], cpus: tuple[int, ...]) -> Iterator[Cluster]:
    """A cluster with a node for each of `cpus`."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    cluster = Cluster(f"127.0.0.1:{port}", environ | ENVIRONMENT | HEALTH)
    try:
        for count in cpus:
            cluster.add_node(count)
        yield cluster
    finally:
        for node in reversed(cluster.nodes):
            node.kill()
