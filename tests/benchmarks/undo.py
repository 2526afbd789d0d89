"""What a snapshot costs in a repository of 100,000 files, against `git status` on the same tree;
and what a request costs where 600 MB and 20,000 small files lie untracked, in the real binary of
one or several checkouts.

python tests/benchmarks/undo.py [--files 100000] [--checkout NAME=FOLDER ...] >
tests/benchmarks/results/undo.md
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from fugu_cli.snapshots.file_history import FileHistory
from fugu_cli.tools.workspace import Workspace

ROUNDS = 5


async def restore(history: FileHistory, tree: str) -> None:
    await history.take_back(await history.since(tree))


def lay(root: Path, files: int) -> None:
    for number in range(files):
        folder = root / f"{number // 5000:03}" / f"{number // 50 % 100:02}"
        if number % 50 == 0:
            folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.py").write_text(f"value = {number}\n")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "gc.auto=0", *arguments], cwd=root, check=True, capture_output=True
    )


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
        git(root, "repack", "-adq")  # as in a clone, and no collection in the background
        git(root, "status")
        workspace = Workspace(root, Path(folder) / "store")
        rows = [
            (
                "the first snapshot of a repository",
                timed(lambda: asyncio.run(workspace.history.snapshot()), 1),
            )
        ]
        before = asyncio.run(workspace.history.snapshot())
        rows.append(
            (
                "a snapshot, nothing changed",
                timed(lambda: asyncio.run(workspace.history.snapshot())),
            )
        )
        count = iter(range(1000))

        def changed() -> None:
            (root / "000" / "00" / "0.py").write_text(f"changed {next(count)}\n")
            asyncio.run(workspace.history.snapshot())

        rows.append(("a snapshot, one file changed", timed(changed)))

        def undone() -> None:
            (root / "000" / "00" / "1.py").write_text(f"changed {next(count)}\n")
            asyncio.run(restore(workspace.history, before or ""))

        rows.append(("undo of one changed file", timed(undone)))
        rows.append(("git status", timed(lambda: git(root, "status", "--porcelain"))))
        return rows


STEPS = {
    "a question (reads one file)": ("read", {"path": "a.txt"}),
    "a change by the edit tool": ("edit", {"path": "a.txt", "old": "one", "new": "two"}),
    "a change by a command": ("bash", {"command": "echo two > a.txt; echo new > small/0/0.txt"}),
}


def script(tool: str, given: dict[str, str]) -> str:
    """A scripted agent that reads a file, makes one call and says that it is done."""
    calls = [("read", {"path": "a.txt"}), (tool, given)]
    steps = (
        f"calls = [{{ tool = {json.dumps(t)}, arguments = {json.dumps(json.dumps(g))} }}]"
        for t, g in calls
    )
    text = "".join(f'[[step]]\ntext = ""\n{step}\n' for step in steps)
    return text + '[[step]]\ntext = "Done."\ncalls = []\n[[step]]\ntext = "ACCEPT"\ncalls = []\n'


def request(checkout: Path, place: Path, tool: str, given: dict[str, str]) -> tuple[float, float]:
    """The first request of a new home in `place`/repo: its seconds, and the megabytes it left in
    fugu's data.
    """
    home = Path(tempfile.mkdtemp(dir=place))
    (home / "script.toml").write_text(script(tool, given))
    (place / "repo" / "a.txt").write_text("one\n")
    (place / "repo" / "small" / "0" / "0.txt").write_text("value = 0\n")
    environment = {"PATH": os.environ["PATH"], "HOME": str(home), "PYTHONPATH": str(checkout)}
    words = ["run", "--yolo", "--script", str(home / "script.toml"), "do it"]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", "from fugu_cli.__main__ import main; main()", *words],
        cwd=place / "repo", env=environment, capture_output=True, check=False,
    )  # fmt: skip
    took = time.perf_counter() - started
    if done.returncode not in (0, 3):
        raise SystemExit(done.stderr.decode())
    size = sum(
        path.lstat().st_blocks * 512
        for path in (home / ".local" / "share").rglob("*")
        if path.is_file()
    )
    shutil.rmtree(home)
    return took, size / 1e6


def untracked(root: Path) -> None:
    """600 MB in six files and 20,000 small ones."""
    for number in range(20_000):
        folder = root / "small" / str(number // 100)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{number}.txt").write_text(f"value = {number}\n" * 20)
    (root / "data").mkdir()
    for number in range(6):
        (root / "data" / f"{number}.bin").write_bytes(os.urandom(100_000_000))


def requests(checkouts: dict[str, Path]) -> None:
    """Print what each request costs, beside the same one in a repository without the untracked
    files.
    """
    print("\n# Requests where 600 MB and 20,000 small files lie untracked\n")
    print(
        "The first request of a session with a scripted agent, medians of 3; `more` is what it "
        "takes longer than in a"
    )
    print(
        "repository of two small files. The last column is what fugu's data folder holds "
        "afterwards.\n"
    )
    print("| | checkout | seconds | more | MB |\n|---|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / name for name in ("small", "large")]
        for place in places:
            (place / "repo" / "small" / "0").mkdir(parents=True)
            git(place / "repo", "init", "-q")
            (place / "repo" / "a.txt").write_text("one\n")
            git(place / "repo", "add", "a.txt")
            git(
                place / "repo",
                "-c",
                "user.name=a",
                "-c",
                "user.email=a@b",
                "commit",
                "-q",
                "-m",
                "start",
            )
        untracked(places[1] / "repo")
        for what, (tool, given) in STEPS.items():
            for name, checkout in checkouts.items():
                (base, _), (took, size) = (
                    map(
                        statistics.median,
                        zip(
                            *(request(checkout, place, tool, given) for _ in range(3)), strict=True
                        ),
                    )
                    for place in places
                )
                print(
                    f"| {what} | {name} | {took:.1f} | {took - base:.1f} | {size:,.1f} |",
                    flush=True,
                )


def snapshots(checkouts: dict[str, Path], files: int) -> None:
    """Print what snapshots cost, each checkout in a process of its own."""
    print(f"# Snapshots and undo in {files:,} files\n")
    print(
        f"`python tests/benchmarks/undo.py`; medians of {ROUNDS} runs, {os.cpu_count()} cores, "
        f"warm caches.\n"
    )
    print("| | checkout | milliseconds | times `git status` |\n|---|---|---:|---:|")
    for name, checkout in checkouts.items():
        command = [sys.executable, __file__, "--measure", "--files", str(files)]
        environment = {**os.environ, "PYTHONPATH": str(checkout)}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True)
        rows = json.loads(done.stdout)
        for what, took in rows:
            print(f"| {what} | {name} | {took:,.0f} | {took / rows[-1][1]:.1f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=100_000)
    parser.add_argument("--checkout", action="append", default=[])
    parser.add_argument(
        "--measure", action="store_true", help="print the rows of one checkout as JSON"
    )
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.files)))
        return
    named = dict(pair.split("=", 1) for pair in given.checkout) or {
        "this one": str(Path(__file__).parents[2])
    }
    checkouts = {name: Path(folder) for name, folder in named.items()}
    snapshots(checkouts, given.files)
    requests(checkouts)


if __name__ == "__main__":
    main()
