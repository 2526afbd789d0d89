"""What a snapshot costs in a repository of 100,000 files, against `git status` on the same tree.

python tests/benchmarks/undo.py [--files 100000] > tests/benchmarks/results/undo.md
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fugu_cli.tools.workspace import Workspace

ROUNDS = 7


def lay(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"{number // 5000:03}" / f"{number // 50 % 100:02}"
        if number % 50 == 0:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.py").write_text(f"value = {number}\n")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True)


def timed(what: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of some runs, in milliseconds."""
    found = []
    for _ in range(rounds):
        started = time.perf_counter()
        what()
        found.append((time.perf_counter() - started) * 1000)
    return statistics.median(found)


def measure(files: int) -> list[tuple[str, float]]:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repo"
        root.mkdir()
        git(root, "init", "-q")
        lay(root, files)
        git(root, "add", "-A")
        git(root, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "start")
        git(root, "status")
        workspace = Workspace(root, Path(folder) / "store")
        rows = [("the first snapshot of a repository", timed(lambda: asyncio.run(workspace.snapshot()), 1))]
        before = asyncio.run(workspace.snapshot())
        rows.append(("a snapshot, nothing changed", timed(lambda: asyncio.run(workspace.snapshot()))))
        count = iter(range(1000))

        def changed() -> None:
            (root / "000" / "00" / "0.py").write_text(f"changed {next(count)}\n")
            asyncio.run(workspace.snapshot())

        rows.append(("a snapshot, one file changed", timed(changed)))

        def undone() -> None:
            (root / "000" / "00" / "1.py").write_text(f"changed {next(count)}\n")
            asyncio.run(workspace.restore(before or ""))

        rows.append(("undo of one changed file", timed(undone)))
        rows.append(("git status", timed(lambda: git(root, "status", "--porcelain"))))
        return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    files = parser.parse_args().files
    rows = measure(files)
    status = rows[-1][1]
    print(f"# Snapshots and undo in {files:,} files\n")
    print(f"`python tests/benchmarks/undo.py`; medians of {ROUNDS} runs, {os.cpu_count()} cores, warm caches.\n")
    print("| | milliseconds | times `git status` |\n|---|---:|---:|")
    for what, took in rows:
        print(f"| {what} | {took:,.0f} | {took / status:.1f} |")


if __name__ == "__main__":
    main()
