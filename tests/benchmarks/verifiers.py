"""How good each agent of the embedded pool is as Verifier: true and false accept rates on works
whose truth is known.

    python tests/benchmarks/verifiers.py --tasks DIR [--seconds 400] [--most 20]

Each work (verifiers_works.py) is put before each agent in the engine (verifiers_live.py): with
nothing to run, with a reproduction that the agent wrote first, with half of the tests, with both,
and with all tests. Rows stay in --out and are not measured again; --seconds begins nothing more
after that many, run it again to go on. The report is written at the end of every run. It also
counts the Verifier turns of whole sessions (`--rows`) after which nothing was changed.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import get_args

import one_pass
import verifiers_works
from on_tasks import measured, tell
from verifiers_live import Case, Judged, Script, Shown, judge, reproduce
from verifiers_works import Found, Work

from fugu_cli import __version__, prompts
from fugu_cli.session import log
from fugu_cli.session.events import Event
from fugu_cli.session.outcome import RUN_TESTS
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import verdict_of
from fugu_cli.training.evaluation import results_folder, rollout
from fugu_cli.training.evaluation.intervals import wilson
from fugu_cli.training.tasks import Task

HERE = Path(__file__).parent / "results"
AGENTS = ("small", "coder")
TITLES: dict[Shown, str] = {
    "nothing": "nothing run",
    "reproduction": "a reproduction",
    "half": "half of the tests",
    "half+reproduction": "half of the tests, a reproduction",
    "all": "all tests",
}
MEASURED: tuple[Shown, ...] = get_args(Shown)


@dataclass(frozen=True)
class Options:
    """The command line, parsed."""

    tasks: Path
    out: Path
    rows: Path
    shown: tuple[Shown, ...]
    most: int
    until: float


def options(arguments: Sequence[str]) -> Options:
    """Raises SystemExit with a usage line for what cannot be used."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--tasks", type=Path, required=True, help="a folder with quixbugs.jsonl and hefix-py.jsonl"
    )
    parser.add_argument(
        "--out", type=Path, default=HERE / "verifiers", help="where rows are kept (%(default)s)"
    )
    parser.add_argument(
        "--rows",
        type=Path,
        default=HERE / "embedded-pool",
        help="one_pass.jsonl, loop.jsonl and logs",
    )
    parser.add_argument(
        "--shown",
        nargs="+",
        default=MEASURED,
        choices=get_args(Shown),
        help="what is put before them",
    )
    parser.add_argument(
        "--most", type=int, default=20, help="tasks whose works are judged (%(default)s)"
    )
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="begin nothing after that many seconds"
    )
    given = parser.parse_args(arguments)
    until = time.monotonic() + given.seconds
    return Options(given.tasks, given.out, given.rows, tuple(given.shown), given.most, until)


async def measure(chosen: Options, tasks: Sequence[Task]) -> None:
    """Task by task, so that every agent has judged the same works in every way; the works first."""
    recorded = results_folder.read_rows(chosen.rows / "one_pass.jsonl", one_pass.OnePassAttempt)
    for task in tasks:
        found = _found(chosen).get(task.id)
        enough = sum(one.number is not None for one in _found(chosen).values()) >= chosen.most
        if time.monotonic() > chosen.until:
            return
        if found is None and not enough:
            found = await verifiers_works.find(task, recorded)
            results_folder.append_row(chosen.out / "works.jsonl", found)
            tell(f"{task.id}: {found.source or 'no wrong work found'}")
        works = verifiers_works.works(task, recorded, found) if found is not None else ()
        for agent in AGENTS if works else ():
            await _judged_by(chosen, task, works, agent)


async def _judged_by(chosen: Options, task: Task, works: Sequence[Work], agent: str) -> None:
    """What is missing of this agent's judgements of the task's works."""
    file = chosen.out / "judged.jsonl"
    known = {
        (row.task, row.right, row.agent, row.shown)
        for row in results_folder.read_rows(file, Judged)
    }
    for work in works:
        for shown in chosen.shown:
            if (task.id, work.right, agent, shown) in known:
                continue
            if time.monotonic() > chosen.until:
                return
            script = await _script(chosen, task, agent) if "reproduction" in shown else ""
            row = await judge(task, Case(work, agent, shown, script))
            results_folder.append_row(file, row)
            truth = "right" if work.right else "wrong"
            tell(
                f"{agent} {task.id}, {truth}, {shown}: {row.said}, {row.verdict}, "
                f"{row.seconds:.1f} s"
            )


async def _script(chosen: Options, task: Task, agent: str) -> str:
    file = chosen.out / "scripts.jsonl"
    kept = next(
        (
            row
            for row in results_folder.read_rows(file, Script)
            if (row.task, row.agent) == (task.id, agent)
        ),
        None,
    )
    if kept is None:
        kept = await reproduce(task, agent)
        results_folder.append_row(file, kept)
        tell(
            f"{agent} {task.id}: a reproduction of {len(kept.text)} characters, "
            f"{kept.seconds:.1f} s"
        )
    return kept.text


def _found(chosen: Options) -> dict[str, Found]:
    return {row.task: row for row in results_folder.read_rows(chosen.out / "works.jsonl", Found)}


def write_report(chosen: Options) -> None:
    """The report of all rows there are."""
    judged = results_folder.read_rows(chosen.out / "judged.jsonl", Judged)
    scripts = results_folder.read_rows(chosen.out / "scripts.jsonl", Script)
    measured = {row.task for row in judged}
    wrong = [row for row in _found(chosen).values() if row.task in measured]
    sources = Counter(row.source.partition(":")[0] for row in wrong)
    text = prompts.fill(
        Path(__file__).with_suffix(".template.md").read_text(encoding="utf-8"),
        version=__version__,
        machine=f"{os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        tasks=str(len(measured)),
        recorded=str(sources["recorded"]),
        slips=str(sources["slip"]),
        bugs=str(sources["another bug"]),
        hidden=str(sum(row.visible for row in wrong)),
        said=accepted_table(judged, lambda row: row.said == "ACCEPT"),
        verdicts=accepted_table(judged, lambda row: row.verdict == "ACCEPT"),
        runs=runs_table(judged),
        scripts=scripts_table(judged, scripts),
        costs=costs_table(judged, scripts),
        sessions=sessions_table(chosen.rows),
    )
    (HERE / "verifiers.md").write_text(text, encoding="utf-8")


def _groups(judged: Sequence[Judged]) -> Iterator[tuple[Shown, str, list[Judged]]]:
    for shown in TITLES:
        for agent in AGENTS:
            own = [row for row in judged if row.shown == shown and row.agent == agent]
            if own:
                yield shown, agent, own


def accepted_table(judged: Sequence[Judged], accepted: Callable[[Judged], bool]) -> str:
    """Accept rates of right and wrong works, with their intervals."""
    lines = [
        "| it was shown | agent | right work accepted | wrong work accepted |",
        "| --- | --- | --- | --- |",
    ]
    for shown, agent, own in _groups(judged):
        cells = [
            rate([accepted(row) for row in own if row.right is truth]) for truth in (True, False)
        ]
        lines.append(f"| {TITLES[shown]} | {agent} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def runs_table(judged: Sequence[Judged]) -> str:
    """What the runs themselves said, without anybody's word."""
    lines = [
        "| what was run | written by | failed before | passed after right work | passed after "
        "wrong work |",
        "| --- | --- | --- | --- | --- |",
    ]
    for shown, agent, own in _groups(judged):
        ran = [row for row in own if row.after is not None]
        if not ran or ("reproduction" not in shown and agent != AGENTS[0]):
            continue
        cells = [
            rate([row.after is True for row in ran if row.right is truth])
            for truth in (True, False)
        ]
        before = rate([row.before is False for row in ran if row.right])
        author = agent if "reproduction" in shown else "the task"
        lines.append(f"| {TITLES[shown]} | {author} | {before} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def scripts_table(judged: Sequence[Judged], scripts: Sequence[Script]) -> str:
    """What the reproductions are worth: a good one fails before any change, and passes after the
    right work.
    """
    lines = [
        "| agent | wrote one | failed with the bug | passed then with the right work | and "
        "failed with the wrong one |",
        "| --- | --- | --- | --- | --- |",
    ]
    for agent in AGENTS:
        written = [bool(row.text) for row in scripts if row.agent == agent]
        own = {
            (r.task, r.right): r for r in judged if r.agent == agent and r.shown == "reproduction"
        }
        pairs = [
            (row, own.get((row.task, False)))
            for row in own.values()
            if row.right and row.after is not None
        ]
        failed = [(row, other) for row, other in pairs if row.before is False]
        passed = [(row, other) for row, other in failed if row.after]
        told = [other.after is False for _, other in passed if other is not None]
        cells = [
            written,
            [row.before is False for row, _ in pairs],
            [bool(row.after) for row, _ in failed],
            told,
        ]
        lines.append(f"| {agent} | {' | '.join(rate(cell) for cell in cells)} |")
    return "\n".join(lines)


def costs_table(judged: Sequence[Judged], scripts: Sequence[Script]) -> str:
    """Means of one verdict, and of one reproduction."""
    lines = [
        "| call | agent | calls | s | tokens in | tokens out |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    kinds: list[tuple[str, str, Sequence[Judged | Script]]] = [
        *((f"verdict, {TITLES[shown]}", agent, own) for shown, agent, own in _groups(judged)),
        *(
            ("reproduction", agent, [row for row in scripts if row.agent == agent])
            for agent in AGENTS
        ),
    ]
    for name, agent, own in kinds:
        if own:
            sums = (
                sum(r.seconds for r in own),
                sum(r.usage.input for r in own),
                sum(r.usage.output for r in own),
            )
            seconds, read, written = (total / len(own) for total in sums)
            lines.append(
                f"| {name} | {agent} | {len(own)} | {seconds:.1f} | {read:.0f} | {written:.0f} |"
            )
    return "\n".join(lines)


def sessions_table(folder: Path) -> str:
    """The Verifier turns of whole sessions whose end was graded."""
    counts: dict[tuple[str, str], Counter[tuple[bool, bool]]] = defaultdict(Counter)
    for row in results_folder.read_rows(folder / "loop.jsonl", rollout.RolloutOutcome):
        if (folder / row.session).is_file():
            for agent, state, accepted in after_the_last_change(
                [one.event for one in log.read(folder / row.session)]
            ):
                counts[agent, state][row.ok, accepted] += 1
    if not counts:
        return "No logs of sessions are at hand."
    lines = [
        "| agent | it was shown | right work accepted | wrong work accepted |",
        "| --- | --- | --- | --- |",
    ]
    for (agent, state), found in sorted(counts.items()):
        cells = [
            rate([True] * found[truth, True] + [False] * found[truth, False])
            for truth in (True, False)
        ]
        lines.append(f"| {agent} | {state} | {cells[0]} | {cells[1]} |")
    return "\n".join(lines)


def after_the_last_change(events: Sequence[Event]) -> Iterator[tuple[str, str, bool]]:
    """(agent, what the tests said, accepted) of each Verifier turn whose work the session's grade
    is about.
    """
    turns = SessionState(events).request.turns
    last = max((place for place, turn in enumerate(turns) if turn.changes), default=-1)
    for place, turn in enumerate(turns):
        if place <= last or turn.assigned.role != "verifier" or not turn.replies:
            continue
        before = [
            run
            for one in turns[: place + 1]
            for run in one.runs
            if run.permitted.call.tool == RUN_TESTS
        ]
        known = [run.result for run in before if run.result is not None]
        state = "no tests" if not known else "tests passed" if known[-1].ok else "tests failed"
        yield turn.assigned.agent, state, verdict_of(turn.text) == "ACCEPT"


def rate(found: Sequence[bool]) -> str:
    """A share, its counts, its 95 % interval."""
    if not found:
        return "-"
    share = wilson(sum(found), len(found))
    return (
        f"{share.count / share.total:.0%} ({share.count} of {share.total}; {share.low:.0%} to "
        f"{share.high:.0%})"
    )


def main(arguments: Sequence[str]) -> int:
    """Exit code: 0, or that of the failure that ended the measurement."""
    chosen = options(arguments)
    code = measured(chosen.tasks, ("quixbugs", "hefix-py"), partial(measure, chosen))
    if code == 0:
        write_report(chosen)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
