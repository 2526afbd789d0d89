"""Tables of what was measured, as Markdown: counts with their intervals, costs, and arms compared task by task.

Pure: rows in, text out. It must not know how a row was made; a number that is not among the rows is not in the report.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from statistics import fmean

from fugu_cli.evaluation.loop import Outcome
from fugu_cli.evaluation.one_pass import Attempt
from fugu_cli.statistics import mcnemar, wilson

Sources = Mapping[str, str]
"""The source of each task, by its id: rows of other tasks are left out, and every source gets a column."""


def one_pass_table(attempts: Sequence[Attempt], sources: Sources) -> str:
    """A line for each answer of each agent, in the order in which a request asks for them; then any of them."""
    rows = [row for row in attempts if row.task in sources]
    columns = _columns(sources)
    lines = []
    for agent in _unique(row.agent for row in rows):
        own = [row for row in rows if row.agent == agent]
        for repeat in sorted({row.repeat for row in own}):
            lines.append([agent, _answer(repeat), *_tallied([row for row in own if row.repeat == repeat], sources)])
        lines.append([agent, "any of them", *_tallied(own, sources)[: 2 + len(columns)], *["-"] * 3])
    return _table(["agent", "answer", "solved", "95 %", *columns, "s an answer", "tokens in", "tokens out"], lines)


def _answer(repeat: int) -> str:
    return f"{repeat + 1}: {'written anew' if repeat % 2 else 'mended'}, {'sampled' if repeat > 1 else 'greedy'}"


def _tallied(rows: Sequence[Attempt], sources: Sources) -> list[str]:
    """Tasks that any of the rows solved, and the rows' mean costs."""
    solved = {task: any(row.ok for row in rows if row.task == task) for task in _unique(row.task for row in rows)}
    shares = [_share(solved.values()), _interval(solved.values()), *_by_source(solved, sources, _columns(sources))]
    return [*shares, *_costs(rows)]


def loop_table(outcomes: Sequence[Outcome], sources: Sources) -> str:
    """An arm a line, then the oracle over the single agents: what perfect routing among them could reach."""
    rows = [row for row in outcomes if row.task in sources]
    columns = _columns(sources)
    head = ["arm", "solved", "95 %", *columns, "accepted", "accepted, but wrong", "turns", "model calls"]
    lines = []
    for arm in _unique(row.arm for row in rows):
        own = [row for row in rows if row.arm == arm]
        solved = {row.task: row.ok for row in own}
        lines.append(
            [
                f"`{arm}`",
                _share(solved.values()),
                _interval(solved.values()),
                *_by_source(solved, sources, columns),
                str(sum(row.accepted for row in own)),
                str(sum(row.accepted and not row.ok for row in own)),
                f"{fmean(row.turns for row in own):.1f}",
                f"{fmean(row.calls for row in own):.1f}",
                f"{fmean(row.model_seconds for row in own):.0f}",
                f"{fmean(row.seconds for row in own):.0f}",
                f"{fmean(row.input for row in own):.0f}",
                f"{fmean(row.output for row in own):.0f}",
            ]
        )
    if oracle := _oracle(rows):
        shown = [_share(oracle.values()), _interval(oracle.values()), *_by_source(oracle, sources, columns)]
        lines.append(["oracle of the single agents", *shown, *["-"] * 8])
    return _table([*head, "model s", "wall s", "tokens in", "tokens out"], lines)


def paired_table(outcomes: Sequence[Outcome], sources: Sources) -> str:
    """Every two arms on the tasks that both were run on."""
    solved = _solved([row for row in outcomes if row.task in sources])
    lines = []
    for first, second in combinations(solved, 2):
        pair = mcnemar(solved[first], solved[second])
        counts = [str(count) for count in (pair.both, pair.first_only, pair.second_only, pair.neither)]
        lines.append([f"`{first}`", f"`{second}`", *counts, f"{pair.p:.3f}"])
    return _table(["first", "second", "both", "first only", "second only", "neither", "p"], lines)


def endings(outcomes: Sequence[Outcome], sources: Sources) -> str:
    """How the requests of each arm ended, by the engine's own word."""
    rows = [row for row in outcomes if row.task in sources]
    reasons = sorted({row.reason for row in rows})
    lines = [
        [f"`{arm}`", *(str(sum(row.arm == arm and row.reason == reason for row in rows)) for reason in reasons)]
        for arm in _unique(row.arm for row in rows)
    ]
    return _table(["arm", *reasons], lines)


def _solved(rows: Sequence[Outcome]) -> dict[str, dict[str, bool]]:
    solved: dict[str, dict[str, bool]] = {}
    for row in rows:
        solved.setdefault(row.arm, {})[row.task] = row.ok
    return solved


def _oracle(rows: Sequence[Outcome]) -> dict[str, bool]:
    """Whether any single agent solved the task, over the tasks that all of them were run on; {} below two of them."""
    singles = [tasks for arm, tasks in _solved(rows).items() if arm.startswith("single:")]
    if len(singles) < 2:
        return {}
    common = set.intersection(*(set(tasks) for tasks in singles))
    return {task: any(tasks[task] for tasks in singles) for task in sorted(common)}


def _columns(sources: Sources) -> list[str]:
    return _unique(sources.values())


def _by_source(solved: Mapping[str, bool], sources: Sources, columns: Sequence[str]) -> list[str]:
    return [_share(ok for task, ok in solved.items() if sources[task] == source) for source in columns]


def _share(solved: Iterable[bool]) -> str:
    found = list(solved)
    return f"{sum(found)} / {len(found)}"


def _interval(solved: Iterable[bool]) -> str:
    found = list(solved)
    share = wilson(sum(found), len(found))
    return f"{100 * share.low:.0f}-{100 * share.high:.0f} %"


def _costs(rows: Sequence[Attempt]) -> list[str]:
    if not rows:
        return ["-"] * 3
    seconds, sent, written = (
        fmean(values) for values in zip(*((r.seconds, r.input, r.output) for r in rows), strict=True)
    )
    return [f"{seconds:.0f}", f"{sent:.0f}", f"{written:.0f}"]


def _unique(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def _table(head: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    if not lines:
        return "Not measured yet.\n"
    rule = ["---"] * len(head)
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, rule, *lines))
