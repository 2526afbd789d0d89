"""Sends random input to `fugu` in a pseudo-terminal and counts what goes wrong.

python -m tests.benchmarks.interface_fuzz [--actions 2000] [SEED...]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import running
from tests.unit.ui.tui.terminal import Terminal
from tests.unit.ui.tui.test_robust import WIDE_ENOUGH, send_random_input


def fuzz(seed: int, actions: int) -> tuple[int, str]:
    """Return how many actions were sent and what went wrong, "" where nothing did."""
    opened: list[Terminal] = []
    with running() as server, tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), server.url)
        place.begin()
        place.configure(Agent("m", more='protocol = "native"'))

        def start(**environ: str) -> Terminal:
            command = [sys.executable, "-m", "fugu_cli"]
            environ = {**place.environ(), **environ}
            opened.append(Terminal(command, place.repo, environ, WIDE_ENOUGH))
            return opened[-1]

        written: list[str] = []
        finding = ""
        try:
            send_random_input(place, server, start, seed, actions, written)
        except AssertionError as error:
            finding = str(error)
        for terminal in opened:
            terminal.close()
    return len(written), finding


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--actions", type=int, default=2000)
    parser.add_argument("seeds", type=int, nargs="*", default=[48])
    flags = parser.parse_args()
    print("| seed | actions | seconds | finding |\n|---:|---:|---:|---|")
    for seed in flags.seeds:
        started = time.monotonic()
        actions, finding = fuzz(seed, flags.actions)
        seconds = time.monotonic() - started
        print(f"| {seed} | {actions:,} | {seconds:.0f} | {finding or 'none'} |", flush=True)


if __name__ == "__main__":
    main()
