"""fugu's own time per turn late in a session: everything but models and tools.

    python tests/benchmarks/overhead.py [--events 1000 10000] [--repeat 25] [--checkout NAME=FOLDER ...]

A session of many requests lies in a file; one more request is driven by agents that answer at once,
with a reader that prints every fact, as `fugu run` does. Measured is the whole request, less what
was spent inside agents and inside tools' own functions. What git takes to photograph the working
tree is shown apart. A checkout is another copy of the repository with its own .venv; its runs and
those of this one alternate. Writes results/overhead.md.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if sys.argv[1:2] != ["--measure"]:  # else the package of another checkout is on the path
    sys.path.insert(0, str(ROOT))

from fugu_cli.engine import orchestrator
from fugu_cli.engine.environment import Environment
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.providers import Agent, Say, Wait
from fugu_cli.session.events import (
    RECORDED,
    Assigned,
    Compacted,
    Event,
    FileEffects,
    Finished,
    Member,
    Recorded,
)
from fugu_cli.session.log import Log
from fugu_cli.tools.result import Say as ToolSay
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.toolbox import AnyTool, Toolbox
from fugu_cli.tools.workspace import Workspace
from fugu_cli.ui import headless
from fugu_cli.ui.terminal_output import TerminalOutput
from fugu_cli.wiring import build_toolbox

try:
    from fugu_cli.snapshots.file_history import FileHistory
except ModuleNotFoundError:  # where the module was in earlier checkouts
    from fugu_cli.tools.file_history import FileHistory  # type: ignore[import-not-found,no-redef]

from tests.facts import asked, assigned, checked, opened, ran, replied
from tests.reacting import Reacting, Stage, calls, repository, results, role

LIMIT = 20.0
"""Milliseconds a turn may take of fugu's own."""
WORKER = Member(name="strong", provider="openai", model="m", slot="cheap")
JUDGE = Member(name="coder", provider="openai", model="m", slot="strong")


@dataclass
class Spent:
    """Seconds, on the clock and of this process's CPU, by what they went into: models, tools, git.
    Outermost counts.
    """

    clock: dict[str, float] = field(default_factory=dict)
    cpu: dict[str, float] = field(default_factory=dict)
    inside: bool = False

    @contextmanager
    def on(self, what: str) -> Iterator[None]:
        if self.inside:
            yield
            return
        self.inside = True
        clock, cpu = time.perf_counter(), time.process_time()
        try:
            yield
        finally:
            self.inside = False
            self.clock[what] = self.clock.get(what, 0.0) + time.perf_counter() - clock
            self.cpu[what] = self.cpu.get(what, 0.0) + time.process_time() - cpu


@dataclass
class Timed:
    """An agent whose time is counted."""

    agent: Agent
    spent: Spent

    @property
    def name(self) -> str:
        return self.agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        with self.spent.on("models"):
            return await self.agent.reply(prompt, say, wait)

    async def close(self) -> None:
        await self.agent.close()


def timed(tool: AnyTool, spent: Spent) -> AnyTool:
    """A tool whose time is counted."""

    async def run(arguments: object, workspace: Workspace, say: ToolSay) -> ToolResult:
        with spent.on("tools"):
            return await tool.run(arguments, workspace, say)

    return replace(tool, run=run)


class Photographed(FileHistory):
    """A history whose snapshots are counted."""

    spent = Spent()

    async def snapshot(self) -> str | None:
        with self.spent.on("git"):
            return await super().snapshot()

    async def effects_between(self, a: str, b: str) -> FileEffects:
        with self.spent.on("git"):
            return await super().effects_between(a, b)


def works(prompt: Prompt) -> Reply:
    """A Worker that reads, edits and says so; a Verifier that accepts."""
    if role(prompt) == "verifier":
        return Reply(text="ACCEPT")
    done = [result.tool for result in results(prompt)]
    if not done:
        return calls(Call.make("1", "read", path="calc.txt"))
    return (
        Reply(text="done")
        if "write" in done
        else calls(Call.make("2", "write", path="calc.txt", content="fixed\n"))
    )


SUMMARY_EVERY = 10
"""Requests between two summaries of a session that was summed up as it grew."""


def session(size: int, *, summed_up: bool = False) -> list[Event]:
    """A long session: requests of two turns with some reading and a change, one after the other.

    `summed_up`: a summary stands for what is longer ago, as in a session that has grown so long.
    Without one, the request that is measured has to sum up everything.
    """
    events: list[Event] = [opened()]
    count = 0
    while len(events) < size:
        if summed_up and count and count % SUMMARY_EVERY == 0:
            events.append(Compacted(summary="Some files were read.", upto=len(events) - 1))
        count += 1
        events += [asked(), *checked(0, ok=False), assigned(1, "strong")]
        for number in range(4):
            call = Call.make(f"t1-0-{number}", "read", path=f"src/module_{number}.py")
            events += [
                replied(1, "strong", "I look at the next file.", call),
                *ran(1, call, "a line of code\n" * 60),
            ]
        events += [
            replied(1, "strong", "It is done."),
            *checked(1, ok=True),
            assigned(2, "coder", "verifier"),
        ]
        events += [replied(2, "coder", "ACCEPT"), Finished(reason="accepted")]
    return events


async def measure(folder: Path, events: list[Event]) -> dict[str, float]:
    """Milliseconds per turn of one more request: fugu's own, git's, and what models and tools
    took.
    """
    root = repository(folder / "repo")
    stage = Stage(root, folder / "store", (WORKER, JUDGE), {})
    path = folder / "session.jsonl"
    lines = [
        RECORDED.dump_json(Recorded(seq=seq, at=0.0, event=event)) + b"\n"
        for seq, event in enumerate(events)
    ]
    path.write_bytes(b"".join(lines))
    log = Log.open(path)
    spent = Spent()
    workspace = Workspace(root, folder / "store", test_command=stage.test_command)
    workspace.history = Photographed(workspace.root, workspace.store)
    workspace.history.spent = spent
    await stage.begin(log)
    agents = {member.name: Timed(Reacting(member.name, works), spent) for member in stage.members}
    box = build_toolbox()
    toolbox = Toolbox([timed(box[name], spent) for name in box.names])
    environment: Environment = replace(stage.environment(), toolbox=toolbox, workspace=workspace)
    reader = asyncio.create_task(
        headless.follow_text(log, TerminalOutput(io.StringIO(), io.StringIO()), len(log.records))
    )
    await asyncio.sleep(0)
    await workspace.history.snapshot()
    toolbox.specs(toolbox)
    spent.clock.clear()
    spent.cpu.clear()
    begin, cpu = time.perf_counter(), time.process_time()
    end = await orchestrator.run(log, replace(stage.team(), agents=agents), environment)
    whole, worked = time.perf_counter() - begin, time.process_time() - cpu
    log.close()
    await reader
    assert end.reason == "accepted", end
    turns = sum(isinstance(event, Assigned) for event in log.events[len(events) :])
    each = 1000 / turns
    return {
        "own": (whole - sum(spent.clock.values())) * each,
        "cpu": (worked - sum(spent.cpu.values())) * each,
        "git": spent.clock["git"] * each,
    }


def repeated(events: list[Event], repeat: int) -> list[dict[str, float]]:
    """Each time in a new repository with a new copy of the session; the first run, which imports,
    is left out.
    """
    runs = []
    for _ in range(repeat + 1):
        folder = Path(tempfile.mkdtemp(prefix="fugu-overhead-"))
        try:
            runs.append(asyncio.run(measure(folder, events)))
        finally:
            shutil.rmtree(folder)
    return runs[1:]


def repeated_in(checkout: Path, size: int, summed_up: bool, repeat: int) -> list[dict[str, float]]:
    """Measure the fugu in `checkout` in a process of its own."""
    python = str(checkout / ".venv/bin/python")
    words = [python, __file__, "--measure", str(size), str(int(summed_up)), str(repeat)]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    process = subprocess.run(words, env=environment, capture_output=True, text=True)
    if process.returncode:
        raise SystemExit(process.stdout + process.stderr)
    runs: list[dict[str, float]] = json.loads(process.stdout)
    return runs


Row = tuple[str, int, bool]
"""A checkout's name, the events in the log, and whether they were summed up as the log grew."""


def report(rows: dict[Row, list[dict[str, float]]], command: str) -> str:
    """The result as a page."""
    lines = [
        "# fugu's own time per turn",
        "",
        f"`{command}` on {platform.machine()}, {os.cpu_count()} cores, load "
        f"{os.getloadavg()[0]:.1f}, Python {platform.python_version()}.",
        "",
        "Milliseconds per turn, median (and the lowest) of repeated requests at the end of a session: a",
        "Worker turn with three model calls, a read, a write and the tests, then a Verifier turn. Agents",
        "answer at once; tools' time is not counted. `own`: loop, state, prompts, the coordinator's rule,",
        "policy, the log with its fsync, the printed lines; on a busy machine the CPU time tells more.",
        "`git`: snapshots of the working tree around decisions and writing tools. A session of 1,000",
        f"events that is `summed up` has a summary for every {SUMMARY_EVERY} requests, as it needs; in the others",
        "the measured request finds that nothing fits any more and sums up everything.",
        "",
        "| events in the log | summed up | fugu | runs | own | own, CPU | git |",
        "|---|---|---|---|---|---|---|",
    ]
    for (name, size, summed_up), runs in rows.items():
        lines.append(
            f"| {size:,} | {'yes' if summed_up else 'no'} | {name} | {len(runs)} | "
            f"{_cell(runs, 'own')} | {_cell(runs, 'cpu')} | {_cell(runs, 'git')} |"
        )
    return "\n".join([*lines, "", f"The limit for `own` at 1,000 events is {LIMIT:g} ms.", ""])


def _cell(runs: list[dict[str, float]], part: str) -> str:
    values = [run[part] for run in runs]
    return f"{statistics.median(values):.1f} ({min(values):.1f})"


def main(say: Callable[[str], None] = print) -> int:
    """Measures and writes; 1 when the limit is exceeded."""
    if sys.argv[1:2] == ["--measure"]:
        size, summed_up, repeat = map(int, sys.argv[2:5])
        say(json.dumps(repeated(session(size, summed_up=bool(summed_up)), repeat)))
        return 0
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, nargs="+", default=[1000])
    parser.add_argument("--repeat", type=int, default=25)
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=FOLDER")
    given = parser.parse_args()
    for name in ("AUTHOR", "COMMITTER"):
        os.environ |= {f"GIT_{name}_NAME": "A. Tester", f"GIT_{name}_EMAIL": "tester@example.org"}
    folders = {"this": ROOT}
    for checkout in given.checkout:
        name, _, folder = checkout.partition("=")
        folders[name] = Path(folder)
    rows: dict[Row, list[dict[str, float]]] = {}
    for size, summed_up in [(10, False), *((n, s) for n in given.events for s in (True, False))]:
        for name, folder in folders.items():
            rows[name, size, summed_up] = repeated_in(folder, size, summed_up, given.repeat)
    sizes = " ".join(map(str, given.events))
    beside = "".join(f" --checkout {name}=FOLDER" for name in folders if name != "this")
    command = (
        f"python tests/benchmarks/overhead.py --events {sizes} --repeat {given.repeat}{beside}"
    )
    text = report(rows, command)
    (Path(__file__).parent / "results" / "overhead.md").write_text(text)
    say(text)
    own = [run["own"] for run in rows["this", given.events[0], True]]
    return int(statistics.median(own) > LIMIT)


if __name__ == "__main__":
    sys.exit(main())
