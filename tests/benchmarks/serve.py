"""What the endpoint costs: milliseconds added to a request in `single` mode, memory under 64
streams at once.

    python tests/benchmarks/serve.py            measures and writes results/serve.md

A model's server on this machine (tests/acceptance/loopback.py) is asked directly and through `fugu
serve --agent NAME`, in turns, so that a busy moment falls on both. Everything is the real program:
its process, its sockets, its traces.
"""

from __future__ import annotations

import asyncio
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.acceptance import loopback

RESULTS = Path(__file__).parent / "results" / "serve.md"
PAIRS = 200
STREAMS = 64
ROUNDS = 5
WORDS = 150
MODEL = "m"


@dataclass(frozen=True)
class Endpoint:
    """A running `fugu serve`."""

    url: str
    pid: int

    def processor(self) -> float:
        """Milliseconds of processor time so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * 1000 / os.sysconf("SC_CLK_TCK")

    def memory(self) -> float:
        """Resident memory in MB."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(re.search(r"VmRSS:\s+(\d+)", status).group(1)) / 1024  # type: ignore[union-attr]


@contextmanager
def serving(
    server: str, settings: str = "", prepare: Callable[[Path], None] = lambda data: None
) -> Iterator[Endpoint]:
    """An endpoint with these lines in its configuration, after `prepare` has filled its data
    folder.
    """
    with tempfile.TemporaryDirectory() as home:
        prepare(Path(home) / "data" / "fugu")
        (Path(home) / ".fugurc").write_text(
            f'{settings}[[agents]]\nname = "one"\nprovider = "openai"\nmodel = "{MODEL}"\nbase_url = '
            f'"{server}"\n'
            'api_key_env = "LOOPBACK_KEY"\nprice = { input = 1.0, output = 2.0 }\n'
        )
        environ = {
            **os.environ,
            "HOME": home,
            "LOOPBACK_KEY": loopback.KEY,
            "XDG_DATA_HOME": f"{home}/data",
        }
        environ["PYTHONPATH"] = str(ROOT)
        command = [sys.executable, "-m", "fugu_cli", "serve", "--port", "0", "--agent", "one"]
        process = subprocess.Popen(
            command, cwd=home, env=environ, stderr=subprocess.PIPE, text=True
        )
        try:
            assert process.stderr is not None
            line = next(line for line in process.stderr if "listening on" in line)
            yield Endpoint(line.split("listening on ")[1].strip(), process.pid)
        finally:
            process.terminate()
            process.wait(30)


def body(*, stream: bool, model: str = MODEL) -> dict[str, object]:
    return {
        "model": model,
        "stream": stream,
        "messages": [{"role": "user", "content": "hello " * 200}],
    }


def one(client: httpx.Client, url: str, model: str) -> tuple[float, float]:
    """Milliseconds to the first byte and to the end of a streamed answer."""
    began = time.perf_counter()
    with client.stream(
        "POST", f"{url}/chat/completions", json=body(stream=True, model=model)
    ) as answer:
        assert answer.status_code == 200, answer.read()
        pieces = answer.iter_raw()
        next(pieces)
        first = time.perf_counter()
        for _ in pieces:
            pass
    return 1e3 * (first - began), 1e3 * (time.perf_counter() - began)


def added(server: loopback.Loopback, place: Endpoint) -> dict[str, tuple[list[float], list[float]]]:
    """Times without and with the endpoint, for the first byte and the whole answer."""
    server.play(MODEL, loopback.Says("The answer is forty-two, as everybody knows."))
    direct = httpx.Client(headers={"authorization": f"Bearer {loopback.KEY}"}, timeout=30)
    through = httpx.Client(timeout=30)
    times: dict[str, tuple[list[float], list[float]]] = {
        "first byte": ([], []),
        "whole answer": ([], []),
    }
    with direct, through:
        for number in range(PAIRS + 20):
            without, with_it = one(direct, server.url, MODEL), one(through, place.url, "fugu")
            if number >= 20:
                for index, name in enumerate(times):
                    times[name][0].append(without[index])
                    times[name][1].append(with_it[index])
    return times


async def together(server: loopback.Loopback, place: Endpoint) -> tuple[list[float], float]:
    """Resident memory at the height of each round of streams, and how many streams a second were
    served.
    """
    server.play(MODEL, loopback.Says("word " * WORDS, slow=0.005))
    heights = []
    began = time.perf_counter()
    async with httpx.AsyncClient(
        timeout=120, limits=httpx.Limits(max_connections=STREAMS)
    ) as client:

        async def stream() -> int:
            asked = client.stream(
                "POST", f"{place.url}/chat/completions", json=body(stream=True, model="fugu")
            )
            async with asked as answer:
                return sum([len(piece) async for piece in answer.aiter_raw()])

        for _ in range(ROUNDS):
            round = asyncio.gather(*(stream() for _ in range(STREAMS)))
            height = 0.0
            while not round.done():
                height = max(height, place.memory())
                await asyncio.sleep(0.05)
            sizes = await round
            assert min(sizes) > WORDS, sizes
            heights.append(height)
    return heights, ROUNDS * STREAMS / (time.perf_counter() - began)


def percentile(values: list[float], share: float) -> float:
    return sorted(values)[min(int(share * len(values)), len(values) - 1)]


def report(
    times: dict[str, tuple[list[float], list[float]]],
    heights: list[float],
    rate: float,
    idle: float,
    each: float,
) -> str:
    lines = [
        "# What the endpoint costs",
        "",
        f"`python tests/benchmarks/serve.py` on {os.cpu_count()} shared cores (load"
        f" {os.getloadavg()[0]:.1f}). A model's server on this machine is asked directly and "
        f"through `fugu serve"
        f" --agent one`, {PAIRS} pairs of streamed requests in turns.",
        "",
        "| milliseconds | directly, median | through fugu, median | added, median | added, 95 % |",
        "|---|---|---|---|---|",
    ]
    for name, (without, with_it) in times.items():
        more = [b - a for a, b in zip(without, with_it, strict=True)]
        lines.append(
            f"| {name} | {statistics.median(without):.2f} | {statistics.median(with_it):.2f}"
            f" | {statistics.median(more):.2f} | {percentile(more, 0.95):.2f} |"
        )
    lines += [
        "",
        f"The endpoint's own processor time is {each:.1f} ms a request: what is added where no "
        f"core is busy.",
    ]
    shown = ", ".join(f"{height:.0f}" for height in heights)
    lines += [
        "",
        f"{STREAMS} streams at once of {WORDS} words each, {ROUNDS} rounds, {rate:.0f} streams a "
        f"second: resident"
        f" memory {idle:.0f} MB before, at the height of each round {shown} MB.",
        "",
    ]
    return "\n".join(lines)


def main() -> None:
    with loopback.running() as server, serving(server.url) as place:
        before = place.processor()
        times = added(server, place)
        each = (place.processor() - before) / (PAIRS + 20)
        idle = place.memory()
        heights, rate = asyncio.run(together(server, place))
    text = report(times, heights, rate, idle, each)
    RESULTS.write_text(text)
    print(text)


if __name__ == "__main__":
    main()
