"""Makes the checkpoint over slots that ships, which reads a digest: random pools of recorded
models, what is best at every decision, hidden states, a fitted head.

    python tests/benchmarks/slot_checkpoint.py --outcomes FILE --out FOLDER [--pools 480] [--words]

FILE has one JSON object a line: {"id", "repo", "text", "outcomes": {"MODEL": {"ok"}}}. It has no
prices, so each pool draws its own. A check passes 100, 95, 90 or 80 % of right and 0, 10, 20 or 40
% of wrong work. A session tells which, where the user has undone earlier work as often as such a
check accepts wrong one; where it tells nothing, all four count alike. What is read is kept, so that
a second run reads nothing.

Every fourth pool is drawn from repositories that the others do not know and is not learned from:
there the head is compared with the rule cascade and with what is best. --words puts a request in
front of each digest, in wordings drawn at random. At the end: how often one of ten other wordings
changes the first decision on twenty requests.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean

import numpy as np

from fugu_cli.cli.current_folder import current_config
from fugu_cli.cli.train import backbone_for_checkpoint, save_checkpoint, say_progress
from fugu_cli.coordinators import action_space, checkpoint, svf
from fugu_cli.coordinators.action_space import SLOTS
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, TrainingOrigin
from fugu_cli.coordinators.digest import DIGEST_TOKENS, digest
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    EVIDENCE,
    ROLES,
    Asked,
    Assigned,
    Event,
    FileChange,
    Finished,
    Member,
    Opened,
    Permitted,
    Price,
    Replied,
    Role,
    ToolRan,
    Undone,
)
from fugu_cli.training import fitting
from fugu_cli.training.evaluation.outcome_replay import CHECKS, PRICE_OF_COST, SETTINGS, TURNS
from fugu_cli.training.pass_matrix import softmax

Numbers = np.ndarray
HELD_OUT, HELD_OUT_TREES = 4, 30
"""Every so many pools one is not learned from."""
WHOLE_TREES = 90
"""Of further pools the first two decisions are learned: they depend most on prices."""
TAU = 0.02
RARE = 0.02
"""Decisions that are met more seldom are not learned from."""
DRAWN_MODELS, DRAWN_TASKS = 16, 200
"""Models and tasks that are drawn for a pool."""
PRICE_NOISE = 0.2
"""How far prices are from what models can do, in powers of ten."""
LUCK = 0.8
"""How much of a run is luck: a model that solves a share r of tasks solves one that it failed with
r * .8 / 1.8 the next time. Recorded repeats say about that: of models that solve .74, a retry
solves .33 of the failures."""
VENDORS = ("anthropic", "openai", "google", "deepseek", "moonshot", "xai", "")
JUDGES = ("user", "tests", "verifier")
CONFIRM, DOUBT = (0.75, 0.2, 0.05), (0.05, 0.25, 0.7)
"""Who verifies, which no outcome tells: a cheap agent where the tests have passed, a strong one
where nothing else judges, and a strong one thinks."""
EDITS: tuple[Callable[[str], str], ...] = (
    lambda text: f"Please {text[0].lower()}{text[1:]}",
    lambda text: f"{text} Thanks!",
    lambda text: f"{text}.",
    lambda text: text.rstrip("."),
    lambda text: f"Hi! {text}",
    lambda text: f"{text} please",
    lambda text: text.lower(),
    lambda text: f"Could you {text[0].lower()}{text[1:]}?",
    lambda text: f"{text}\n\nThank you very much in advance.",
    lambda text: f"I would like you to do this: {text}",
)


@dataclass(frozen=True)
class RandomPool:
    """`right` (tasks,) by agent, and how earlier work of the session ended: `undone` of `accepted`.
    `checks` that the work may be judged by."""

    members: tuple[Member, ...]
    right: Mapping[str, Numbers]
    judge: str
    checks: Sequence[tuple[float, float]]
    accepted: int
    undone: int
    bare: bool

    def cost(self, name: str) -> float:
        """Of a run, beside one of the dearest agent."""
        costs = {member.name: action_space.blended_price(member.price) for member in self.members}
        return costs[name] / max(costs.values())


def random_pool(rows: Sequence[Mapping[str, bool]], draw: random.Random) -> RandomPool:
    """Two to five agents, the dearest up to a hundred times as dear as the cheapest. Nobody knows
    which models they are: each time others are drawn for them. Who is ten times as dear has the
    better model; of two at nearly one price that is a throw of a coin."""
    count = draw.randint(2, 5)
    span, cheapest = draw.uniform(0.1, 2.0), 10 ** draw.uniform(-1, 0.5)
    places = [0.0, *sorted(draw.random() for _ in range(count - 2)), 1.0]
    costs = [cheapest * 10 ** (span * place) for place in places]
    prices = {f"agent{number}": Price(input=cost, output=cost) for number, cost in enumerate(costs)}
    slots = action_space.assign_slots(prices)
    members = [
        Member(
            name=name,
            provider="openai",
            model=name,
            slot=slots[name],
            price=price,
            vendor=draw.choice(VENDORS),
        )
        for name, price in prices.items()
    ]
    right: dict[str, list[float]] = {name: [] for name in prices}
    luck = random.Random(repr(costs))
    rates = {name: mean(row[name] for row in rows if name in row) for row in rows for name in row}
    for _ in range(DRAWN_MODELS):
        chosen = draw.sample(sorted(rates), count)
        known = [row for row in rows if set(chosen) <= row.keys()]
        chosen.sort(key=lambda name: rates[name] + draw.gauss(0, 0.05))
        order = sorted(
            prices, key=lambda name: np.log10(prices[name].input) + luck.gauss(0, PRICE_NOISE)
        )
        for row in draw.choices(known, k=DRAWN_TASKS):
            for name, model in zip(order, chosen, strict=True):
                right[name].append(float(row[model]))
    checks, accepted, undone = list(CHECKS), 0, 0
    if draw.random() < 0.6:
        checks = [draw.choice(CHECKS)]
        passed, wrong = checks[0]
        accepted = draw.randint(6, 30)
        undone = round(accepted * wrong / (passed + wrong))
    return RandomPool(
        tuple(draw.sample(members, count)),
        {name: np.array(found) for name, found in right.items()},
        draw.choice(JUDGES),
        checks,
        accepted,
        undone,
        draw.random() < 0.5,
    )


@dataclass
class DecisionNode:
    """A point at which a Worker is chosen. `agents`: whom each slot would mean; `after` that its
    work has failed.
    """

    events: tuple[Event, ...]
    agents: Mapping[str, str]
    after: dict[str, DecisionNode] = field(default_factory=dict)
    worth: dict[str, float] = field(default_factory=dict)
    reach: float = 0.0

    def nodes(self) -> Iterator[DecisionNode]:
        yield self
        for child in self.after.values():
            yield from child.nodes()


class SessionTree:
    """Every session over a pool in which all work fails, and others that branch off it: work that
    is to be verified.
    """

    def __init__(self, pool: RandomPool, draw: random.Random) -> None:
        self.pool = pool
        self._draw = draw
        self.labels = {member.name: member.slot for member in pool.members}
        self._costs = {member.name: member for member in pool.members}
        self.others: list[tuple[tuple[Event, ...], Role, Sequence[float]]] = []
        """Events, the role that is wanted, and targets over the slots."""
        opened, *begun = self._begun()
        newest = max(n for n, event in enumerate(begun) if isinstance(event, Asked))
        last = max(
            (n for n, event in enumerate(begun[:newest]) if isinstance(event, Asked)),
            default=newest,
        )
        self._before = begun[:last]
        """Earlier requests of which only the digest tells."""
        self.root = self._grow((opened, *begun[last:]), ())

    def read(self, events: Sequence[Event]) -> str:
        """The digest of a session of this tree."""
        return digest([events[0], *self._before, *events[1:]], self.labels)

    def _begun(self) -> Iterator[Event]:
        yield Opened(version="", repo="/", pool=self.pool.members)
        undone = set(self._draw.sample(range(self.pool.accepted), self.pool.undone))
        for number in range(self.pool.accepted):
            yield Asked(text="x", snapshot="", test_command="check")
            yield from self._worked(1, self._draw.choice(self.pool.members).name, f"r{number}")
            yield Finished(reason="accepted")
            if number in undone:
                yield Undone(snapshot="")
        judge = self.pool.judge
        until = ("check",) if judge == "user" else ()
        yield Asked(
            text="x",
            snapshot="",
            test_command=None if judge == "verifier" else "check",
            until=until,
        )
        if judge != "verifier" and not self.pool.bare:
            yield from self._tests(0, ok=judge == "tests")

    def _worked(self, turn: int, name: str, place: str = "") -> Iterator[Event]:
        """A Worker's turn that changes something."""
        draw, bare = self._draw, self.pool.bare
        usage = (
            Usage()
            if bare
            else Usage(input=int(10 ** draw.uniform(3, 5)), output=int(10 ** draw.gauss(3, 0.2)))
        )
        yield Assigned(turn=turn, agent=name, role="worker", by="replay", snapshot="")
        calls = [Call.make(f"w{place}{turn}", "write")]
        if not bare:
            content = "x\n" * int(10 ** draw.uniform(0.5, 2.3))
            files = range(min(int(draw.expovariate(0.4)) + 1, 12))
            calls = [Call.make(f"w{place}{turn}-{n}", "write", content=content) for n in files]
            calls += [
                Call(id=f"b{place}{turn}-{n}", tool="bash")
                for n in range(8 + int(draw.expovariate(0.2)))
            ]
        yield Replied(turn=turn, agent=name, calls=tuple(calls), stop="calls", usage=usage)
        for n, call in enumerate(calls):
            yield Permitted(turn=turn, call=call, allowed=True, by="policy")
            change = (
                (FileChange(path=f"f{n}", before=None, after=call.id),)
                if call.tool == "write"
                else ()
            )
            yield ToolRan(turn=turn, call=call, output="", ok=True, changes=change)
        if bare or draw.random() > 0.1:
            yield Replied(turn=turn, agent=name, text="Done.", usage=usage)

    def _tests(self, turn: int, *, ok: bool) -> Iterator[Event]:
        call = Call(id=f"e{turn}", tool="run_tests")
        failed, passed = (
            self._draw.randint(1, 6) if not self.pool.bare else 1,
            self._draw.randint(0, 50),
        )
        output = f"{passed} passed" if ok else f"{failed} failed, {passed} passed"
        yield Permitted(turn=turn, call=call, allowed=True, by=EVIDENCE)
        yield ToolRan(turn=turn, call=call, output=output, ok=ok)

    def _said(self, turn: int, name: str, role: Role, text: str) -> Iterator[Event]:
        usage = (
            Usage()
            if self.pool.bare
            else Usage(input=int(10 ** self._draw.uniform(3, 5)), output=200)
        )
        yield Assigned(turn=turn, agent=name, role=role, by="replay", snapshot="")
        yield Replied(turn=turn, agent=name, text=text, usage=usage)

    def _grow(self, events: tuple[Event, ...], failed: tuple[str, ...]) -> DecisionNode:
        if "worker" in action_space.roles_out_for_turn(
            events, SETTINGS, self.pool.members
        ):  # a Thinker is due
            self.others.append((events, "thinker", DOUBT))
            events = (
                *events,
                *self._said(
                    action_space.next_turn_number(events), self._seat(events, 2), "thinker", "x"
                ),
            )
        node = DecisionNode(events, self._agents(events))
        if len(failed) == TURNS or _ended(events):
            node.agents = {}
        for slot, name in node.agents.items():
            node.after[slot] = self._grow(tuple(self._refused(events, name)), (*failed, name))
        return node

    def _agents(self, events: tuple[Event, ...]) -> dict[str, str]:
        out = action_space.agents_out_for_turn(events, SETTINGS, self.pool.members)
        seats = action_space.agents_by_slot(SLOTS, self.pool.members, out, events)
        return {seat.row: seat.member.name for seat in seats if seat.member is not None}

    def _seat(self, events: tuple[Event, ...], level: int) -> str:
        """Who stands for this slot, or for the next one that has somebody."""
        agents = self._agents(events)
        return agents[min(agents, key=lambda slot: abs(SLOTS.index(slot) - level))]

    def _refused(self, events: tuple[Event, ...], name: str) -> Iterator[Event]:
        """`name` works, and tests or a Verifier refuse it."""
        turn = action_space.next_turn_number(events)
        worked = (*events, *self._worked(turn, name))
        judge = self.pool.judge
        by_tests = judge == "user" or (judge == "tests" and self._draw.random() < 0.5)
        if judge != "verifier":
            passed = (*worked, *self._tests(turn, ok=True))
            self.others.append((passed, "verifier", CONFIRM))
            worked = (*worked, *self._tests(turn, ok=False)) if by_tests else passed
        elif isinstance(worked[-1], Replied):
            self.others.append((worked, "verifier", DOUBT))
        yield from worked
        if not by_tests and isinstance(worked[-1], Replied | ToolRan):
            level = 0 if judge == "tests" else 2
            if "worker" in action_space.roles_out(worked):
                yield from self._said(
                    turn + 1, self._seat(worked, level), "verifier", "REVISE: it is wrong."
                )

    def plan(self) -> None:
        """What each choice is worth at every node, if what is best follows: solved, less the price
        of its cost.
        """
        tasks = len(next(iter(self.pool.right.values())))
        weights = np.zeros((len(self.pool.checks), 2, tasks))
        weights[:, 1] = 1 / weights[:, 1].size
        self._plan(self.root, weights)

    def _plan(self, node: DecisionNode, weights: Numbers, failures: tuple[str, ...] = ()) -> float:
        """`weights` (checks, right or wrong, tasks): how likely each stands here, after these have
        failed.
        """
        node.reach = float(weights.sum())
        if not node.agents:
            return float(weights[:, 0].sum())
        worth = {}
        for slot, name in node.agents.items():
            solved, failed = self._step(weights, name, failures)
            cost = PRICE_OF_COST * self.pool.cost(name) * node.reach
            worth[slot] = solved - cost + self._plan(node.after[slot], failed, (*failures, name))
        node.worth = {slot: value / node.reach for slot, value in worth.items()}
        return max(worth.values())

    def _step(
        self, weights: Numbers, name: str, failures: tuple[str, ...]
    ) -> tuple[float, Numbers]:
        """Right work that passes, and what fails."""
        right = self.pool.right[name]
        if tries := failures.count(name):
            right = (LUCK * right.mean() + right) / (LUCK + tries)
        passes, wrong = (
            np.array([check[n] for check in self.pool.checks])[:, None] for n in (0, 1)
        )
        mass = weights.sum(1)
        solved = float((mass * right * passes).sum())
        return solved, np.stack([mass * right * (1 - passes), mass * (1 - right) * (1 - wrong)], 1)

    def follow(self, choose: Choose) -> tuple[float, float]:
        """Share solved and relative cost of a way to choose, in expectation."""
        tasks = len(next(iter(self.pool.right.values())))
        weights = np.zeros((len(self.pool.checks), 2, tasks))
        weights[:, 1] = 1 / weights[:, 1].size
        node, solved, cost, failures = self.root, 0.0, 0.0, ()
        while node.agents and weights.sum() > 1e-9:
            slot = choose(node)
            cost += float(weights.sum()) * self.pool.cost(node.agents[slot])
            passed, weights = self._step(weights, node.agents[slot], failures)
            failures = (*failures, node.agents[slot])
            solved, node = solved + passed, node.after[slot]
        return solved + float(weights[:, 0].sum()), cost


def _ended(events: Sequence[Event]) -> bool:
    return action_space.request_end(events, turns=SETTINGS.turns, verify_answers=False) is not None


ReadTree = Callable[[SessionTree, Sequence[Event]], str]
"""What is read of a session of a tree."""
Choose = Callable[[DecisionNode], str]
"""The slot that is chosen."""


def trees_of(
    rows: Sequence[tuple[str, Mapping[str, bool]]], count: int, seed: int
) -> list[SessionTree]:
    """So many pools; every fourth from repositories of its own."""
    repos = sorted({repo for repo, _ in rows})
    held = set(random.Random(seed).sample(repos, max(len(repos) // HELD_OUT, 1)))
    parts = [[row for repo, row in rows if (repo in held) == out] for out in (False, True)]
    found = []
    for number in range(count):
        draw = random.Random(f"{seed}/{number}")
        tree = SessionTree(random_pool(parts[number % HELD_OUT == 0], draw), draw)
        tree.plan()
        found.append(tree)
    return found


@dataclass
class Lessons:
    """Texts to be read, and what is wanted after each."""

    texts: list[str] = field(default_factory=list)
    rows: list[Sequence[float]] = field(default_factory=list)
    roles: list[int] = field(default_factory=list)
    weights: list[float] = field(default_factory=list)
    groups: list[str] = field(default_factory=list)

    def add(self, text: str, rows: Sequence[float], role: Role, about: tuple[float, str]) -> None:
        """`about`: the weight, and the pool."""
        self.texts.append(text)
        self.rows.append(rows)
        self.roles.append(ROLES.index(role))
        self.weights.append(about[0])
        self.groups.append(about[1])

    def examples(self, hidden: Numbers) -> fitting.HeadExamples:
        return fitting.HeadExamples(
            hidden,
            np.array(self.rows, np.float32),
            np.array(self.roles, np.int64),
            np.array(self.weights, np.float32),
            tuple(self.groups),
        )


def lessons_of(trees: Sequence[SessionTree], read: ReadTree) -> Lessons:
    """Every decision of these trees that is met often enough, and some that branch off."""
    told = Lessons()
    for number, tree in enumerate(trees):
        whole = number < WHOLE_TREES
        for node in tree.root.nodes() if whole else [tree.root, *tree.root.after.values()]:
            if node.agents and node.reach >= RARE:
                worth = [node.worth.get(slot, -np.inf) for slot in SLOTS]
                told.add(
                    read(tree, node.events),
                    softmax(worth, TAU),
                    "worker",
                    (node.reach, str(number)),
                )
        others = random.Random(number).sample(tree.others, min(3 * whole, len(tree.others)))
        for events, role, rows in others:
            told.add(read(tree, events), rows, role, (0.1, str(number)))
    return told


def by_head(head: Numbers, seen: Mapping[int, Numbers]) -> Choose:
    """The slot with the highest logit among those that somebody stands for."""

    def choose(node: DecisionNode) -> str:
        scores = head[: len(SLOTS)] @ seen[id(node)]
        return max(node.agents, key=lambda slot: scores[SLOTS.index(slot)])

    return choose


def cascade_choice(tree: SessionTree) -> Choose:
    rule = Cascade(tree.pool.members, SETTINGS)

    def choose(node: DecisionNode) -> str:
        decision = asyncio.run(rule.decide(node.events))
        assert isinstance(decision, Assigned)
        slot = tree.labels[decision.agent]
        return slot if slot in node.agents else max(node.agents, key=SLOTS.index)

    return choose


@dataclass(frozen=True)
class WayResult:
    """A way to choose, over the same pools: share solved, relative cost, and points of reward below
    the best plan with the standard error of that."""

    name: str
    solved: float
    cost: float
    below: float
    error: float


def compared(
    trees: Sequence[SessionTree], ways: Mapping[str, Callable[[SessionTree], Choose]]
) -> list[WayResult]:
    """Each way beside the best plan."""

    def played(way: Callable[[SessionTree], Choose]) -> Numbers:
        return np.array([tree.follow(way(tree)) for tree in trees])

    best = played(lambda _: lambda node: max(node.worth, key=node.worth.__getitem__))
    results = []
    for name, found in [
        ("best plan, which knows the models' rates", best),
        *((n, played(w)) for n, w in ways.items()),
    ]:
        gap = 100 * (best - found) @ (1, -PRICE_OF_COST)
        error = float(gap.std(ddof=1)) / len(gap) ** 0.5
        results.append(WayResult(name, *map(float, found.mean(0)), float(gap.mean()), error))
    return results


def table_of(results: Sequence[WayResult]) -> str:
    """As Markdown."""
    lines = ["| way | solved | cost | points of reward below the best plan |", "|---|---|---|---|"]
    lines += [
        f"| {one.name} | {one.solved:.1%} | {one.cost:.3f} | {one.below:.2f} ± {one.error:.2f} |"
        for one in results
    ]
    return "\n".join(lines)


def changed_choices(
    head: Numbers,
    see: Callable[[Sequence[str]], Numbers],
    trees: Sequence[SessionTree],
    requests: Sequence[str],
) -> str:
    """How often another wording of a request changes the first choice over a pool."""
    lines = []
    for tree in trees:
        text, agents = tree.read(tree.root.events), tree.root.agents
        places = [SLOTS.index(slot) for slot in agents]

        def chosen(
            wordings: Sequence[str], text: str = text, places: Sequence[int] = tuple(places)
        ) -> Numbers:
            scores = (
                see([f"request: {wording}\n{text}" for wording in wordings]) @ head[: len(SLOTS)].T
            )
            return scores[:, list(places)].argmax(1)

        first = chosen(requests)
        flips = sum(int((chosen([edit(one) for one in requests]) != first).sum()) for edit in EDITS)
        lines.append(
            f"{flips} of {len(EDITS) * len(requests)} first choices change ({tree.pool.judge}, {', '.join(agents)})"
        )
    return "\n".join(lines)


def main() -> None:
    """Draw, plan, read, fit, compare, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--outcomes", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--pools", type=int, default=480)
    parser.add_argument("--l2", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--words", action="store_true")
    asked = parser.parse_args()
    issues = [
        json.loads(line) for line in gzip.decompress(asked.outcomes.read_bytes()).splitlines()
    ]
    rows = [
        (one["repo"], {name: bool(run["ok"]) for name, run in one["outcomes"].items()})
        for one in issues
    ]
    trees = trees_of(rows, asked.pools, asked.seed)
    texts = [" ".join(one["text"].split())[:160] for one in issues]

    def read(tree: SessionTree, events: Sequence[Event]) -> str:
        text = tree.read(events)
        draw = random.Random(f"{asked.seed}/{text}/{len(events)}")
        return (
            f"request: {draw.choice(EDITS)(draw.choice(texts[:-20]))}\n{text}"
            if asked.words
            else text
        )

    learned = [tree for number, tree in enumerate(trees) if number % HELD_OUT]
    held = trees[: HELD_OUT * HELD_OUT_TREES : HELD_OUT]
    told = lessons_of(learned, read)
    say_progress(f"{len(told.texts)} examples, {len(set(told.texts))} different")
    if not asked.out.exists():
        asked.out.mkdir(parents=True)
    backbone, states = backbone_for_checkpoint(current_config().config)
    hidden = states(told.texts)
    head = fitting.fit_head(told.examples(hidden), len(ROLES), l2=asked.l2)
    nodes = [(tree, node) for tree in held for node in tree.root.nodes() if node.agents]
    seen_states = states([read(tree, node.events) for tree, node in nodes])
    seen = {id(node): state for (_, node), state in zip(nodes, seen_states, strict=True)}
    results = compared(
        held,
        {
            "head": lambda _: by_head(head, seen),
            "cascade": cascade_choice,
            "strongest first": lambda _: lambda node: max(node.agents, key=SLOTS.index),
            "cheapest first": lambda _: lambda node: min(node.agents, key=SLOTS.index),
        },
    )
    print(table_of(results))
    if asked.words:
        several = [tree for tree in held if len(tree.root.agents) > 1 and not tree.pool.accepted]
        by_judge = {tree.pool.judge: tree for tree in several}
        print(changed_choices(head, states, list(by_judge.values()), texts[-20:]))
    report = {
        f"{one.name}: {what}": round(getattr(one, what), 4)
        for one in results
        for what in ("below", "error")
    }
    training = TrainingOrigin(
        stage="warm start",
        data=f"{len(issues)} recorded issues of SWE-bench Pro, {len(learned)} random pools; report: points of reward "
        f"below the best plan, on {len(held)} pools of repositories held out",
        examples=len(told.texts),
        seed=asked.seed,
        report=tuple(report.items()),
    )
    save_checkpoint(packed(head, backbone, training), asked.out / "checkpoint.safetensors")
    print(asked.out / "checkpoint.safetensors")


def packed(head: Numbers, backbone: Backbone, training: TrainingOrigin) -> Checkpoint:
    """The checkpoint; its offsets are zero."""
    sizes = svf.ranks(backbone.shape)
    meta = CheckpointMeta(
        backbone=backbone.identity,
        width=backbone.shape.width,
        ranks=sizes,
        rows=SLOTS,
        format="digest",
        budget=DIGEST_TOKENS,
        training=training,
    )
    return checkpoint.make(
        svf.join(tuple(np.zeros(size, np.float32) for size in sizes), head), meta
    )


if __name__ == "__main__":
    main()
