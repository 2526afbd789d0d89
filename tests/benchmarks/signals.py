"""What is worth reading before a decision? One choice rule, a softmax of linear scores, learned
three times on the same recorded outcomes: from the numbers of the digest (a logistic rule), from
the hidden state of the digest (what the coordinator's model adds), and from both; beside the tuned
list and the rule cascade, in the cells of the gate.

    python tests/benchmarks/signals.py ships --train swebench_pro.jsonl.gz --judge
    mcpmark.even.jsonl.gz:A,B,C ... python tests/benchmarks/signals.py own --judge
    mcpmark.even.jsonl.gz:A,B,C

`ships` learns over slots from SWE-bench Pro under drawn pools, all that may ship, with nothing of
the request in the digest; `own` learns over agents from parts of the judged set itself, whole
categories (or repositories) held out: what a user's own outcomes would add. `--no-hidden` leaves
out what needs the coordinator's model. Prints Markdown for results/signals.md.

What is learned: at each point where some runs have failed, the expected reward (solved, less 0.1
for a run of the dearest model) of each next run followed by the best fixed continuation on the
training tasks; the rule maximises the mean reward of its softmax over all of them at once (full
information, no sampling). A Verifier is not played: the check judges. Of calls and tokens only the
tokens of a run against the model's usual are known.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean

import numpy as np

from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.train import hidden_states_folder, load_backbone, say_progress
from fugu_cli.config.known_models import vendor_of
from fugu_cli.coordinators import action_space
from fugu_cli.coordinators.action_space import SLOTS
from fugu_cli.coordinators.digest import DIGEST_TOKENS
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.transcript import transcript_text
from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    BUDGET,
    EVIDENCE,
    Asked,
    Assigned,
    Event,
    Exclusion,
    FileChange,
    Finished,
    Masked,
    Member,
    Opened,
    Permitted,
    Price,
    Replied,
    ToolRan,
    Undone,
)
from fugu_cli.training.evaluation import outcome_replay
from fugu_cli.training.evaluation.intervals import bootstrap
from fugu_cli.training.evaluation.outcome_replay import (
    BUDGETS,
    CHECKS,
    PRICE_OF_COST,
    SETTINGS,
    TURNS,
    ArmResult,
    CellResult,
    NextModel,
    OutcomeLimits,
    OutcomeRun,
    OutcomeTask,
    TaskDraw,
)
from fugu_cli.training.search import HiddenStates
from tests.benchmarks.slots.replay import TranscriptSettings

POOLS, EARLIER, FOLDS, DRAWS = 32, 20, 5, 8
STRENGTHS = (1e-6, 1e-5, 1e-4, 1e-3)
"""Weights of the penalty that are tried, by cross-validation on the training data."""
USUAL_TOKENS = 4000
UNDONE = {"hardly ever": 0.02, "seldom": 0.1, "sometimes": 0.2, "often": 0.4}
"""Shares of accepted work that was taken back, where the digest says them in words."""
SEE = Callable[[Sequence[str]], np.ndarray]


@dataclass(frozen=True)
class SignalRun(OutcomeRun):
    """`tokens`: written, against the model's usual (0: not recorded). `early`: it did not end with
    its last word.
    """

    tokens: float = 0.0
    early: bool = False


@dataclass(frozen=True)
class SignalTask(OutcomeTask):
    """`group` is held out as a whole; `kind` is what sort of work it is."""

    group: str = ""
    kind: str = ""


def read_tasks(path: Path, models: Sequence[str]) -> list[SignalTask]:
    """Those with outcomes of all models, and how each run ended where that was recorded."""
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).decode().splitlines()]
    usual = {
        name: mean(
            [
                run.get("out", 0)
                for row in rows
                for run in row["outcomes"].get(name, {}).get("runs", [])
            ]
            or [0]
        )
        for name in models
    }
    tasks = []
    for row in rows:
        runs = {
            name: tuple(
                SignalRun(
                    bool(run["ok"]),
                    float(run.get("cost", 0.0)),
                    run.get("out", 0) / usual[name] if usual[name] else 0.0,
                    bool(run.get("err")),
                )
                for run in told.get("runs", [told])
                if run.get("cost", 0.0) is not None
            )
            for name in models
            if (told := row["outcomes"].get(name))
        }
        if all(runs.get(name) for name in models):
            group = row.get("category") or row.get("repo") or row["id"]
            tasks.append(
                SignalTask(row["id"], runs, row.get("text", ""), group, row.get("service", ""))
            )
    return tasks


# What a coordinator would read.


def session(
    members: Sequence[Member],
    failed: Sequence[tuple[str, SignalRun]],
    text: str,
    undone: int | None,
) -> Iterator[Event]:
    """A session with earlier accepted work, of which the user took some back (None: there was
    none), and a request on which some agents worked in vain. Earlier work shows how many tokens an
    agent usually writes."""
    yield Opened(version="", repo="/", pool=tuple(members))
    usual = EARLIER if undone is not None else len(members)
    for number in range(usual):
        yield Asked(text="Earlier.", snapshot="tree")
        yield from _worked(1, members[number % len(members)].name, USUAL_TOKENS, early=False)
        yield Finished(reason="accepted" if undone is not None else "turn_limit")
        if undone is not None and number < undone:
            yield Undone(snapshot="tree")
    yield Asked(text=text, test_command="check", until=("check",), snapshot="tree")
    for turn, (name, run) in enumerate(failed, start=1):
        yield from _worked(turn, name, round(USUAL_TOKENS * (run.tokens or 1)), early=run.early)
        check = Call(id=f"c{turn}", tool="run_tests")
        yield Permitted(turn=turn, call=check, allowed=True, by=EVIDENCE)
        yield ToolRan(turn=turn, call=check, output="1 failed", ok=False)


def _worked(turn: int, name: str, tokens: int, *, early: bool) -> Iterator[Event]:
    call = Call.make(f"w{turn}", "write", content="x")
    yield Assigned(turn=turn, agent=name, role="worker", by="cascade", snapshot="tree")
    yield Replied(
        turn=turn, agent=name, calls=(call,), stop="calls", usage=Usage(output=tokens // 2)
    )
    yield Permitted(turn=turn, call=call, allowed=True, by="policy")
    changed = FileChange(path="a", before=str(turn - 1), after=str(turn))
    yield ToolRan(turn=turn, call=call, output="", ok=True, changes=(changed,))
    said = "" if early else "Done."
    yield Replied(
        turn=turn,
        agent=name,
        text=said,
        stop="length" if early else "end",
        usage=Usage(output=tokens - tokens // 2),
    )


def digest_of(events: Sequence[Event], labels: Mapping[str, str]) -> str:
    """What a checkpoint that reads the digest is shown."""
    return transcript_text(
        FourCharacters(), TranscriptSettings("digest", budget=DIGEST_TOKENS), events, labels
    )


class FourCharacters:
    """Reckons a token at four characters: the study's digests are short."""

    template = ""

    def count(self, text: str) -> int:
        return len(text) // 4


def numbers(text: str, rows: Sequence[str]) -> list[float]:
    """The digest's numbers: failures by row, prices against the cheapest, vendors that failed,
    early ends, tokens against the usual of the newest failure, and how much accepted work was taken
    back."""
    turns = re.findall(r"^Worker (\S+) ?(.*?): (.*)$", text, re.MULTILINE)
    prices = dict(
        re.findall(
            r"([\w.@-]+) ([\d.e+]+)(?:,|$)",
            next(iter(re.findall(r"^prices: (.*)$", text, re.M)), ""),
        )
    )
    logs = [math.log(float(prices.get(row, 1.0))) for row in rows]
    told = re.search(r"(\d+) accepted, (\d+) of them undone", text)
    said = next((share for words, share in UNDONE.items() if f"was {words} undone" in text), 0.0)
    undone = int(told[2]) / int(told[1]) if told else said
    tokens = re.search(r"([\d.e+-]+) times its usual tokens", turns[-1][2]) if turns else None
    early = ["ended early" in what or "failed, " in what for _, _, what in turns]
    return [
        1.0,
        *(float(sum(row == name for name, _, _ in turns)) for row in rows),
        *(float(bool(turns) and turns[-1][0] == row) for row in rows),
        *logs,
        float(len(turns)),
        float(len({vendor for _, vendor, _ in turns})),
        float(sum(early)),
        float(early[-1]) if early else 0.0,
        math.log(float(tokens[1])) if tokens else 0.0,
        undone,
        undone * max(logs),
        undone * len(turns),
    ]


# What is best, by the training tasks.


@dataclass(frozen=True)
class Cases:
    """Draws of tasks for one pool, by the names of `rows`: results and costs (tries, cases)."""

    rows: tuple[str, ...]
    draws: tuple[TaskDraw, ...]
    ok: Mapping[str, np.ndarray]
    cost: Mapping[str, np.ndarray]
    limits: OutcomeLimits

    @staticmethod
    def of(rows: Sequence[str], draws: Sequence[TaskDraw], limits: OutcomeLimits) -> Cases:
        def table(value: Callable[[OutcomeRun], float], name: str) -> np.ndarray:
            return np.array(
                [[value(d.runs[name][k % len(d.runs[name])]) for d in draws] for k in range(TURNS)]
            )

        return Cases(
            tuple(rows),
            tuple(draws),
            {name: table(lambda run: float(run.ok), name) for name in rows},
            {name: table(lambda run: run.cost, name) for name in rows},
            limits,
        )


@dataclass(frozen=True)
class Point:
    """After `failed`: how likely each case is still open, and each row's reward by case (cases,
    rows), -inf where it is too dear."""

    failed: tuple[str, ...]
    open: np.ndarray
    reward: np.ndarray


def points(cases: Cases) -> list[Point]:
    """Every point that is met where one goes on with one of the two best rows; a row's reward
    counts the best fixed continuation after it."""
    unit, found = max(cases.limits.costs.values()), []
    right, wrong = cases.limits.check

    def at(
        failed: tuple[str, ...], left: np.ndarray, spent: np.ndarray, *, keep: bool
    ) -> np.ndarray:
        rewards = np.full((len(cases.draws), len(cases.rows)), -np.inf)
        for place, name in enumerate(cases.rows):
            k = failed.count(name)
            ok, cost = cases.ok[name][k], cases.cost[name][k]
            passed = np.where(ok > 0, right, wrong)
            going = ok
            if len(failed) < TURNS - 1:
                after = at((*failed, name), left * (1 - passed), spent + cost, keep=False)
                going = np.where(np.isneginf(after), ok, after)
            able = cases.limits.costs[name] <= cases.limits.budget - spent
            rewards[able, place] = (
                passed * ok - PRICE_OF_COST * cost / unit + (1 - passed) * going
            )[able]
        sums = np.where(np.isneginf(rewards), 0, rewards * left[:, None]).sum(0) / np.maximum(
            (~np.isneginf(rewards) * left[:, None]).sum(0), 1e-9
        )
        order = np.argsort(-sums)
        if keep:
            found.append(Point(failed, left, rewards))
            for place in order[:2] if len(failed) < TURNS - 1 else ():
                name = cases.rows[place]
                k = failed.count(name)
                passed = np.where(cases.ok[name][k] > 0, right, wrong)
                still = left * (1 - passed) * ~np.isneginf(rewards[:, place])
                if still.mean() > 0.02:
                    at((*failed, name), still, spent + cases.cost[name][k], keep=True)
        best = np.full(len(cases.draws), -np.inf)
        for place in reversed(order):
            best = np.where(np.isneginf(rewards[:, place]), best, rewards[:, place])
        return best

    at((), np.ones(len(cases.draws)), np.zeros(len(cases.draws)), keep=True)
    return found


@dataclass(frozen=True)
class Lessons:
    """Texts with the rewards (n, rows) of each next run, how much each counts, and what a split
    never divides.
    """

    texts: tuple[str, ...]
    kinds: tuple[str, ...]
    reward: np.ndarray
    weight: np.ndarray
    groups: tuple[str, ...]


def learn(features: np.ndarray, lessons: Lessons, strength: float) -> np.ndarray:
    """The rows (rows, features) that maximise the mean reward of softmax(W x)."""
    import torch

    x = torch.from_numpy(features).double()
    reward = torch.from_numpy(lessons.reward).double()
    able = torch.isfinite(reward)
    gain = torch.where(able, reward, torch.zeros_like(reward))
    weight = torch.from_numpy(lessons.weight / lessons.weight.sum()).double()
    w = torch.zeros(reward.shape[1], x.shape[1], dtype=torch.float64, requires_grad=True)
    search = torch.optim.LBFGS([w], max_iter=200, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        search.zero_grad()
        chances = (x @ w.T).masked_fill(~able, -torch.inf).softmax(1)
        loss = strength * w.square().sum() - (weight * (chances * gain).sum(1)).sum()
        loss.backward()
        return loss

    search.step(closure)
    return w.detach().numpy()


class Rule:
    """A choice rule: how a text becomes features, and what was learned of them."""

    def __init__(
        self,
        features: Callable[[Sequence[str], Sequence[str]], np.ndarray],
        lessons: Lessons,
        strength: float | None = None,
    ) -> None:
        """The penalty's `strength` is found by cross-validation where it is not given."""
        self._features = features
        raw = features(lessons.texts, lessons.kinds)
        self._scale = np.maximum(np.sqrt(np.square(raw).mean(0)), 1e-6)
        x = raw / self._scale
        self.strength = self._strength(x, lessons) if strength is None else strength
        self._rows = learn(x, lessons, self.strength)

    def logits(self, text: str, kind: str) -> np.ndarray:
        """(rows,)."""
        return np.asarray(self._rows @ (self._features([text], [kind])[0] / self._scale))

    @staticmethod
    def _strength(x: np.ndarray, lessons: Lessons) -> float:
        names = sorted(set(lessons.groups))
        fold_of = {
            name: place % 2 for place, name in enumerate(random.Random(0).sample(names, len(names)))
        }
        fold = np.array([fold_of[group] for group in lessons.groups])

        def held_out(strength: float) -> float:
            total = 0.0
            for number in range(2):
                kept = fold != number
                part = Lessons((), (), lessons.reward[kept], lessons.weight[kept], ())
                scores = x[~kept] @ learn(x[kept], part, strength).T
                reward = lessons.reward[~kept]
                chosen = np.where(np.isfinite(reward), scores, -np.inf).argmax(1)
                total += float(
                    (lessons.weight[~kept] * reward[np.arange(len(reward)), chosen]).sum()
                )
            return total

        return max(STRENGTHS, key=held_out)


def rules_for(
    rows: Sequence[str], kinds: Sequence[str], see: SEE | None
) -> dict[str, Callable[[Sequence[str], Sequence[str]], np.ndarray]]:
    """Features by the name of the arm."""

    def told(texts: Sequence[str], _kinds: Sequence[str]) -> np.ndarray:
        return np.array([numbers(text, rows) for text in texts])

    def plain(texts: Sequence[str], given: Sequence[str]) -> np.ndarray:
        """Who has failed, and nothing of how."""
        found = told(texts, given)
        return found[:, : 1 + 2 * len(rows)]

    def sort_of(texts: Sequence[str], given: Sequence[str]) -> np.ndarray:
        return np.hstack(
            [told(texts, given), [[float(kind == one) for one in kinds] for kind in given]]
        )

    found = {"numbers": told}
    if kinds:
        found = {"who failed": plain, "numbers": told, "numbers, kind of task": sort_of}
    if see is not None:
        found["hidden state"] = lambda texts, _kinds: np.asarray(see(texts), np.float64)
        found["hidden state, numbers"] = lambda texts, given: np.hstack(
            [np.asarray(see(texts), np.float64) / 10, told(texts, given)]
        )
    return found


# Over slots, from what may ship.


def undone_of(check: tuple[float, float], rate: float) -> int:
    """Of the accepted requests those that were wrong, where models are right at this rate."""
    right, wrong = check[0] * rate, check[1] * (1 - rate)
    return round(EARLIER * wrong / (right + wrong))


def pro_lessons(path: Path) -> Lessons:
    """Two or three models a pool, at drawn prices: who costs more is mostly better. Under each of
    the four checks.
    """
    names = sorted({name for row in gzip.decompress(path.read_bytes()).decode().splitlines()
                    for name in json.loads(row)["outcomes"]})  # fmt: skip
    texts, rewards, weights, groups = [], [], [], []
    for number in range(POOLS):
        draw = random.Random(f"pool {number}")
        rows = draw.choice([SLOTS, SLOTS, SLOTS, SLOTS[::2], SLOTS[:2], SLOTS[1:]])
        chosen = draw.sample(names, len(rows))
        tasks = read_tasks(path, chosen)
        rate = {name: mean(task.runs[name][0].ok for task in tasks) for name in chosen}
        chosen.sort(key=lambda name, rate=rate, draw=draw: rate[name] + draw.gauss(0, 0.05))
        named = dict(zip(rows, chosen, strict=True))
        steps = [1.0, *(10 ** draw.uniform(0.3, 1) for _ in rows[1:])]
        costs = dict(zip(rows, np.cumprod(steps).tolist(), strict=True))
        members = [
            Member(name=slot, provider="openai", model=name, slot=slot, vendor=vendor_of(name),
                   price=Price(input=costs[slot], output=costs[slot]))
            for slot, name in named.items()
        ]  # fmt: skip
        draws = []
        for task in tasks:
            runs = {
                slot: (SignalRun(task.runs[name][0].ok, costs[slot]),)
                for slot, name in named.items()
            }
            draws.append(TaskDraw(runs, (), ()))
        places = [SLOTS.index(slot) for slot in rows]
        for check in CHECKS:
            undone = undone_of(check, mean(rate.values()))
            for point in points(Cases.of(rows, draws, OutcomeLimits(check, math.inf, costs))):
                failed = [(name, SignalRun(ok=False, cost=0.0)) for name in point.failed]
                texts.append(
                    digest_of(
                        [*session(members, failed, "", undone)], {slot: slot for slot in rows}
                    )
                )
                reward = np.full(len(SLOTS), -np.inf)
                reward[places] = (point.reward * point.open[:, None]).sum(0) / point.open.sum()
                rewards.append(reward)
                weights.append(float(point.open.mean()))
                groups.append(f"pool {number}")
    return Lessons(
        tuple(texts), ("",) * len(texts), np.array(rewards), np.array(weights), tuple(groups)
    )


def over_slots(rule: Rule, members: Sequence[Member], undone: int) -> NextModel:
    """Decides as a session would: with its masks, and by slot."""
    known: dict[tuple[tuple[str, ...], frozenset[str]], str | None] = {}

    def following(failed: tuple[str, ...], too_dear: frozenset[str]) -> str | None:
        key = failed, too_dear
        if key not in known:
            events = [
                *session(
                    members, [(name, SignalRun(ok=False, cost=0.0)) for name in failed], "", undone
                )
            ]
            text = digest_of(events, {member.name: member.slot for member in members})
            events.append(
                Masked(
                    agents=tuple(
                        (n, Exclusion(kind=BUDGET, message="dear")) for n in sorted(too_dear)
                    )
                )
            )
            out = action_space.agents_out_for_turn(events, SETTINGS, members)
            seats = action_space.agents_by_slot(SLOTS, members, out, events)
            scores = [score if seat.member else -math.inf
                      for score, seat in zip(rule.logits(text, ""), seats, strict=True)]  # fmt: skip
            best = seats[int(np.argmax(scores))].member
            known[key] = best.name if best else None
        return known[key]

    return following


def ships(asked: argparse.Namespace, see: SEE | None) -> None:
    """Learn from what may ship, judge on other sets."""
    lessons = pro_lessons(asked.train)
    say_progress(f"{len(lessons.texts)} points, {len(set(lessons.texts))} texts")
    rules = {}
    for name, features in rules_for(SLOTS, (), see).items():
        rules[name] = Rule(features, lessons)
        say_progress(f"{name}: learned with a penalty of {rules[name].strength:g}")
    for file, models in map(pool, asked.judge):
        judge(file, models, rules)


def judge(file: Path, models: Sequence[str], rules: Mapping[str, Rule]) -> None:
    """All ways in the cells of the gate."""
    tasks = read_tasks(file, models)
    members = outcome_replay.members_of(tasks, {name: vendor_of(name) for name in models})
    rate = mean(run.ok for task in tasks for runs in task.runs.values() for run in runs)
    draws = [
        [outcome_replay.draw_of(task, draw) for draw in range(outcome_replay.DRAWS)]
        for task in tasks
    ]
    comparison = outcome_replay.OutcomeComparison(members, draws)
    costs = {member.name: action_space.blended_price(member.price) for member in members}
    cells = []
    for check in CHECKS:
        deciding = {
            name: over_slots(rule, members, undone_of(check, rate)) for name, rule in rules.items()
        }
        for budget in BUDGETS:
            cell = comparison.cell(check, budget)
            limits = OutcomeLimits(check, budget * cell.unit, costs)
            more = {
                name: outcome_replay.played(name, lambda _, by=by: by, draws, limits)
                for name, by in deciding.items()
            }
            best = outcome_replay.tuned("tuned list", cell.lists, PRICE_OF_COST / cell.unit)
            cells.append(replace(cell, arms={**cell.arms, **more, "tuned list": best}))
            say_progress(f"{check} {budget}")
    wanted = ["cascade", "random order", *rules]
    print_table(file.name, cells, wanted)
    for name in ("cascade", *rules):
        print(
            f"- {name}: fails the gate in {len(outcome_replay.gate_failures(name, cells))} places"
        )


# Over agents, from the user's own outcomes.


def own(asked: argparse.Namespace, see: SEE | None) -> None:
    """Learn from some groups of the tasks, judge on the others."""
    for file, models in map(pool, asked.judge):
        judge_own(file, models, asked.folds, see)


def judge_own(file: Path, models: Sequence[str], folds: int, see: SEE | None) -> None:
    """With the middle budget, and a sure and an unsure check."""
    tasks = read_tasks(file, models)
    members = outcome_replay.members_of(tasks, {name: vendor_of(name) for name in models})
    costs = {member.name: action_space.blended_price(member.price) for member in members}
    unit, names = max(costs.values()), [member.name for member in members]
    labels = {name: name for name in names}
    groups = sorted({task.group for task in tasks})
    order = random.Random(0).sample(groups, len(groups))
    fold_of = {group: place % folds for place, group in enumerate(order)}
    texts: dict[object, str] = {}
    kind_of = {task.text: task.kind for task in tasks}

    def text_of(draw: TaskDraw, failed: Sequence[str]) -> str:
        runs = []
        for place, name in enumerate(failed):
            runs.append((name, draw.runs[name][failed[:place].count(name) % len(draw.runs[name])]))
        key = (draw.text, tuple((name, run.early, f"{run.tokens:.1g}") for name, run in runs))
        if key not in texts:
            texts[key] = digest_of([*session(members, runs, draw.text, None)], labels)
        return texts[key]

    drawn = {
        task.id: [outcome_replay.draw_of(task, draw) for draw in range(DRAWS)] for task in tasks
    }
    arms = rules_for(
        names, sorted(set(kind_of.values())) if len(set(kind_of.values())) > 1 else [""], see
    )
    strengths: dict[tuple[str, int], float] = {}
    checks = [CHECKS[0], CHECKS[2]]
    cells = []
    for check in checks:
        for budget in BUDGETS[1:2]:
            limits = OutcomeLimits(check, budget * unit, costs)
            every = outcome_replay.every_list([drawn[task.id] for task in tasks], limits)
            solved, spent = {name: np.zeros(len(tasks)) for name in (*arms, "tuned list")}, {}
            spent = {name: np.zeros(len(tasks)) for name in solved}
            for number in range(folds):
                known = [i for i, task in enumerate(tasks) if fold_of[task.group] != number]
                judged = [i for i in range(len(tasks)) if i not in set(known)]
                best = max(every.values(), key=lambda one: sum(
                    one.solved[i] - PRICE_OF_COST * one.cost[i] / unit for i in known))  # fmt: skip
                for i in judged:
                    solved["tuned list"][i], spent["tuned list"][i] = best.solved[i], best.cost[i]
                if min(costs.values()) > limits.budget:
                    continue
                lessons = own_lessons([tasks[i] for i in known], drawn, names, limits, text_of)
                for name, features in arms.items():
                    rule = Rule(features, lessons, strengths.get((name, number)))
                    strengths[name, number] = rule.strength
                    for i in judged:
                        played = [
                            outcome_replay.play(
                                draw,
                                over_agents(rule, draw, names, kind_of[draw.text], text_of),
                                limits,
                            )
                            for draw in drawn[tasks[i].id]
                        ]
                        solved[name][i] = mean(one.solved for one in played)
                        spent[name][i] = mean(one.spent for one in played)
            found = {
                name: ArmResult(name, tuple(solved[name]), tuple(spent[name])) for name in solved
            }
            cascade = outcome_replay.DecidedByLog(Cascade(members, SETTINGS), members)
            found["cascade"] = outcome_replay.played(
                "cascade", cascade.on, [drawn[task.id] for task in tasks], limits
            )
            cells.append(CellResult(check, budget, unit, found, list(every.values())))
            say_progress(f"{check} {budget}: {len(texts)} texts")
    print_table(file.name, cells, ["cascade", *arms])


def own_lessons(
    tasks: Sequence[SignalTask],
    drawn: Mapping[str, Sequence[TaskDraw]],
    names: Sequence[str],
    limits: OutcomeLimits,
    text_of: Callable[[TaskDraw, Sequence[str]], str],
) -> Lessons:
    """A lesson for each case at each point: how its own runs ended is what it reads."""
    draws = [draw for task in tasks for draw in drawn[task.id][:3]]
    of = [task for task in tasks for _ in drawn[task.id][:3]]
    texts, kinds, rewards, weights, groups = [], [], [], [], []
    for point in points(Cases.of(names, draws, limits)):
        for place, draw in enumerate(draws):
            if point.open[place] < 0.01 or np.isneginf(point.reward[place]).all():
                continue
            texts.append(text_of(draw, point.failed))
            kinds.append(of[place].kind)
            rewards.append(point.reward[place])
            weights.append(point.open[place])
            groups.append(of[place].group)
    return Lessons(tuple(texts), tuple(kinds), np.array(rewards), np.array(weights), tuple(groups))


def over_agents(
    rule: Rule,
    draw: TaskDraw,
    names: Sequence[str],
    kind: str,
    text_of: Callable[[TaskDraw, Sequence[str]], str],
) -> NextModel:
    """The row with the highest score among those that can be paid."""

    def following(failed: tuple[str, ...], too_dear: frozenset[str]) -> str | None:
        able = [name for name in names if name not in too_dear]
        if not able:
            return None
        scores = dict(zip(names, rule.logits(text_of(draw, failed), kind), strict=True))
        return max(able, key=scores.__getitem__)

    return following


def print_table(title: str, cells: Sequence[CellResult], wanted: Sequence[str]) -> None:
    """By check and budget each arm's reward against the tuned list's, in points, with a 95 %
    interval over tasks.
    """
    print(
        f"\n### {title}\n\n| check, budget | tuned list: solved, spent | "
        + " | ".join(wanted)
        + " |"
    )
    print("|---" * (2 + len(wanted)) + "|")

    def gap(cell: CellResult, name: str) -> list[float]:
        one, two = cell.arms[name], cell.arms["tuned list"]
        return [a - b - PRICE_OF_COST * (c - d) / cell.unit
                for a, b, c, d in zip(one.solved, two.solved, one.cost, two.cost, strict=True)]  # fmt: skip

    def shown(values: Sequence[float]) -> str:
        found = bootstrap([[value] for value in values])
        return f"{100 * found.value:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"

    paid = [cell for cell in cells if any(cell.arms["tuned list"].cost)]
    for cell in paid:
        best = cell.arms["tuned list"]
        where = f"{cell.check[0]:.0%}/{cell.check[1]:.0%}, ${cell.budget * cell.unit:.2f}"
        print(f"| {where} | {mean(best.solved):.1%}, ${mean(best.cost):.3f} | "
              + " | ".join(shown(gap(cell, name)) for name in wanted) + " |")  # fmt: skip
    means = {
        name: [mean(values) for values in zip(*(gap(cell, name) for cell in paid), strict=True)]
        for name in wanted
    }
    print("| **mean** | | " + " | ".join(shown(means[name]) for name in wanted) + " |", flush=True)


def pool(words: str) -> tuple[Path, list[str]]:
    """A file and whom its pool has."""
    file, _, models = words.partition(":")
    return Path(file), models.split(",")


def main() -> None:
    """One study."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("study", choices=["ships", "own"])
    parser.add_argument("--train", type=Path)
    parser.add_argument("--judge", action="append", required=True, metavar="FILE:MODEL,MODEL,...")
    parser.add_argument("--folds", type=int, default=FOLDS)
    parser.add_argument("--no-hidden", action="store_true")
    asked = parser.parse_args()
    see = None
    if not asked.no_hidden:
        config = current_config().config
        see = HiddenStates(
            load_backbone(config), hidden_states_folder(config) / "signals", say_progress
        )
    {"ships": ships, "own": own}[asked.study](asked, see)


if __name__ == "__main__":
    main()
