"""What the web page costs `fugu serve`: start, first byte, memory and processor time, beside an
earlier tree in the same run.

    python tests/benchmarks/web.py EARLIER_TREE
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import astuple, dataclass
from pathlib import Path

TREE = Path(__file__).parents[2]
sys.path.insert(0, str(TREE))

import httpx

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, running

ROUNDS = 3
REQUESTS, WARM_UP = 12, 2
IDLE_SECONDS = 10.0
BODY = {"model": "one", "stream": True, "messages": [{"role": "user", "content": "x"}]}


@dataclass(frozen=True)
class Measured:
    """One server: seconds until it listens, milliseconds to the first byte (median), MB of memory,
    processor seconds of start and requests, and percent of a core afterwards.
    """

    start: float
    first_byte: float
    memory: float
    processor: float
    idle: float


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory_megabytes(process: int) -> float:
    """Return the resident memory of a process."""
    match = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024


def measure(place: Place, tree: Path, *, web: bool, with_page: bool = False) -> Measured:
    """Start the server of a tree, ask it, and leave it alone, perhaps with an open page."""
    command = [sys.executable, "-m", "fugu_cli", "serve", "--port", "0"]
    command += ["--web"] if web else []
    environ = {**place.environ(), "PYTHONPATH": str(tree), "PYTHONWARNINGS": ""}
    begun = time.perf_counter()
    with (
        subprocess.Popen(
            command, cwd=place.repo, env=environ, stderr=subprocess.PIPE, text=True
        ) as process,
        httpx.Client(timeout=30) as client,
        ExitStack() as streams,
    ):
        streams.callback(process.terminate)
        assert process.stderr is not None
        last_line = "web page: " if web else "listening on "
        lines = ""
        while last_line not in lines:
            lines += process.stderr.readline()
        start = time.perf_counter() - begun
        match = re.search(r"listening on (\S+)/v1", lines)
        assert match is not None
        url = match[1]
        first_bytes = []
        for _ in range(REQUESTS):
            asked = time.perf_counter()
            with client.stream("POST", f"{url}/v1/chat/completions", json=BODY) as answer:
                pieces = answer.iter_raw()
                next(pieces)
                first_bytes.append(1000 * (time.perf_counter() - asked))
                list(pieces)
        if with_page:
            signed_in = client.get(lines.split("web page: ")[1].split()[0])
            base = re.search(r"url=(/web/[^\"]+)/", signed_in.text)
            assert base is not None
            streams.enter_context(client.stream("GET", f"{url}{base[1]}/stream"))
        time.sleep(1)
        used = processor_seconds(process.pid)
        time.sleep(IDLE_SECONDS)
        idle = 100 * (processor_seconds(process.pid) - used) / IDLE_SECONDS
        first_byte = statistics.median(first_bytes[WARM_UP:])
        return Measured(start, first_byte, memory_megabytes(process.pid), used, idle)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("earlier", type=Path)
    earlier = parser.parse_args().earlier.resolve()
    measured: dict[str, list[Measured]] = {}
    with tempfile.TemporaryDirectory() as folder, running() as server:
        place = prepare(Path(folder), server)
        for _ in range(ROUNDS):
            for name, tree, web, with_page in (
                ("before", earlier, False, False),
                ("now", TREE, False, False),
                ("now, --web", TREE, True, False),
                ("now, --web, an open page", TREE, True, True),
            ):
                result = measure(place, tree, web=web, with_page=with_page)
                measured.setdefault(name, []).append(result)
    print("| | start, s | first byte, ms | memory, MB | processor, s | afterwards, % of a core |")
    print("|---|---|---|---|---|---|")
    for name, results in measured.items():
        columns = zip(*map(astuple, results), strict=True)
        print(f"| {name} | " + " | ".join(f"{statistics.median(c):.1f}" for c in columns) + " |")
    return 0


def prepare(folder: Path, server: Loopback) -> Place:
    """Make a repository and a configuration with one agent."""
    place = Place(folder, server.url)
    place.begin()
    place.configure(Agent("one"))
    server.react("one", lambda asked: Says("fine"))
    return place


if __name__ == "__main__":
    raise SystemExit(main())
