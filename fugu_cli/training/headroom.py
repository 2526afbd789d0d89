"""Headroom: what a pass matrix says before anybody spends money on training.

headroom = oracle - best single agent. An oracle that picks each task's luckiest agent with hindsight is too good: where
there are repeats, it picks with half of them and is judged by the other half. Pure numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from statistics import mean

from fugu_cli.statistics import Mean, bootstrap, repeated

RANDOM = ""
"""No agent has this name."""
Ranks = Mapping[str, tuple[float, float]]
"""Over all tasks: an agent's rate, then how little it costs."""


@dataclass(frozen=True)
class Draw:
    """One run of an agent on a task. `cost` in USD, or in seconds where calls cost nothing."""

    task: str
    agent: str
    repeat: int
    ok: bool
    cost: float


@dataclass(frozen=True)
class Headroom:
    """`agents`: mean rate and cost each; `solved` the rate of each and of a RANDOM choice among them. `oracle` with
    hindsight, `fair` judged on other repeats than it chose by (None without repeats). Shares have Wilson's interval,
    for a bootstrap over tasks that were all solved would be sure of 100 %; `headroom`, a difference, has a bootstrap.
    `disagreement`: the share of tasks on which two agents differ, mean over pairs."""

    agents: Mapping[str, tuple[float, float]]
    solved: Mapping[str, Mean]
    best: str
    oracle: Mean
    fair: Mean | None
    headroom: Mean
    disagreement: float
    tasks: int
    repeats: int
    unit: str

    @property
    def pays(self) -> bool:
        """More is solved by knowing whom to ask, and not only by luck."""
        return self.headroom.low > 0

    @property
    def cheaper(self) -> str | None:
        """An agent that costs less than the best and is right where the best one is, nearly as often: routing can save
        money even without headroom."""
        rate, cost = self.agents[self.best]
        found = [name for name, (own, price) in self.agents.items() if price < 0.5 * cost and own > 0.5 * rate]
        return min(found, key=lambda name: self.agents[name][1], default=None)


def headroom(draws: Sequence[Draw], unit: str) -> Headroom:
    """Of the tasks that every agent was run on. Raises ValueError where there is none."""
    agents = list(dict.fromkeys(draw.agent for draw in draws))
    table: dict[str, dict[str, list[bool]]] = {}
    for draw in sorted(draws, key=lambda draw: draw.repeat):
        table.setdefault(draw.task, {}).setdefault(draw.agent, []).append(draw.ok)
    table = {task: row for task, row in table.items() if len(row) == len(agents)}
    if not table:
        raise ValueError("no task was run with every agent")
    tasks = list(table)
    rates = {agent: mean(mean(table[task][agent]) for task in tasks) for agent in agents}
    costs = {agent: mean(draw.cost for draw in draws if draw.agent == agent and draw.task in table) for agent in agents}
    ranks = {agent: (rates[agent], -costs[agent]) for agent in agents}
    best = max(agents, key=ranks.__getitem__)
    repeats = min(len(oks) for row in table.values() for oks in row.values())
    rows = list(table.values())
    gains = [_gain(row, best, ranks) for row in rows]
    solved = {agent: _interval(rate, [row[agent] for row in rows]) for agent, rate in rates.items()}
    solved[RANDOM] = _interval(mean(rates.values()), [list(chain.from_iterable(row.values())) for row in rows])
    luckiest = [max(row.values(), key=mean) for row in rows]
    fair = [_fair(row, ranks) for row in rows] if repeats > 1 else []
    return Headroom(
        agents={agent: (rates[agent], costs[agent]) for agent in agents},
        solved=solved,
        best=best,
        oracle=_interval(mean(mean(oks) for oks in luckiest), luckiest),
        fair=_interval(mean(map(_halves, fair)), [[*one, *other] for one, other in fair]) if fair else None,
        headroom=bootstrap([[gain] for gain in gains]),
        disagreement=_disagreement(rows, agents),
        tasks=len(tasks),
        repeats=repeats,
        unit=unit,
    )


def _interval(value: float, tries: Sequence[Sequence[bool]]) -> Mean:
    """A mean over tasks, each of which counts alike, with Wilson's interval of all its `tries`."""
    share = repeated(tries)
    return Mean(value, min(value, share.low), max(value, share.high))


def _gain(row: Mapping[str, Sequence[bool]], best: str, ranks: Ranks) -> float:
    """What choosing adds on one task; with repeats, chosen by some of them and judged by the others."""
    fair = min(len(oks) for oks in row.values()) > 1
    return (_halves(_fair(row, ranks)) if fair else max(mean(oks) for oks in row.values())) - mean(row[best])


def _fair(row: Mapping[str, Sequence[bool]], ranks: Ranks) -> tuple[Sequence[bool], Sequence[bool]]:
    """Both halves of the repeats choose an agent, whose tries in the other half come back. Ties go to the agent that is
    better on all tasks: by their place in the pool, headroom would depend on the order in which somebody wrote it
    down."""
    chosen = [max(row, key=lambda agent: (mean(row[agent][half::2]), ranks[agent])) for half in (0, 1)]
    return row[chosen[0]][1::2], row[chosen[1]][0::2]


def _halves(tries: tuple[Sequence[bool], Sequence[bool]]) -> float:
    return mean(map(mean, tries))


def _disagreement(rows: Sequence[Mapping[str, Sequence[bool]]], agents: Sequence[str]) -> float:
    pairs = list(combinations(agents, 2))
    if not pairs:
        return 0.0
    return mean(mean(row[a][0] != row[b][0] for row in rows) for a, b in pairs)


def report(found: Headroom, missing: int = 0) -> str:
    """For people: the table, and whether training a coordinator on this pool can pay: with runs `missing`, nothing."""
    lines = [
        f"{found.tasks} tasks, {found.repeats} run{'s' if found.repeats > 1 else ''} of each agent on each",
        "",
        f"| agent | solved | 95 % | {found.unit} a run |",
        "|---|---|---|---|",
    ]
    lines += [_row(agent, found.solved[agent], f"{cost:.4g}") for agent, (_, cost) in found.agents.items()]
    costs = [cost for _, cost in found.agents.values()]
    lines.append(_row("random choice", found.solved[RANDOM], f"{mean(costs):.4g}"))
    lines.append(_row("oracle, with hindsight", found.oracle, "-"))
    if found.fair is not None:
        lines.append(_row("oracle, judged on other runs than it chose by", found.fair, "-"))
    gain = found.headroom
    lines += [
        "",
        f"headroom over {found.best}: {100 * gain.value:+.1f} points "
        f"(95 % {100 * gain.low:+.1f} to {100 * gain.high:+.1f})",
        f"disagreement between two agents: {found.disagreement:.1%} of the tasks",
        "",
        _missing(missing) if missing else _verdict(found),
    ]
    return "\n".join(lines)


def _row(name: str, solved: Mean, cost: str) -> str:
    return f"| {name} | {solved.value:.1%} | {solved.low:.1%} to {solved.high:.1%} | {cost} |"


def _missing(runs: int) -> str:
    return f"{runs} runs are missing: whether routing can pay is not said before they are there."


def _verdict(found: Headroom) -> str:
    if found.pays and found.repeats == 1:
        return (
            "Routing may pay, but with one run of each agent luck looks like skill: run it again with --repeats 4 "
            "before you train."
        )
    if found.pays:
        return "Routing can pay: choosing the right agent for a task solves more than the best agent alone."
    if found.cheaper is not None:
        return (
            f"Choosing by the task does not solve more than {found.best} alone. It can save money: "
            f"{found.cheaper} costs less than half and solves more than half as much, so trying it first and "
            "escalating when a check fails can pay. Train on whole sessions (`fugu train evolve`), not on the "
            "request's text."
        )
    alone = f"{found.best} alone does as well as any choice, and nobody is much cheaper."
    return f"Routing cannot pay on these tasks: {alone}"
