"""The replay of recorded outcomes: told as the coordinator reads, exact in expectation, learned
across repositories.
"""

import asyncio
import gzip
import json
import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import CoordinatorSettings, backbone, svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, make
from fugu_cli.coordinators.trinity import Trinity, reader_with
from fugu_cli.errors import ConfigError
from fugu_cli.session.events import ROLES, Assigned, Member, Opened
from fugu_cli.training.evolution import TrialResult
from fugu_cli.training.pass_matrix import HeadRow, RowRates, TaskRates
from fugu_cli.training.search import Candidates, HeadCandidates, HiddenStates
from tests.benchmarks.slots import frontier
from tests.benchmarks.slots import outcomes as recorded_outcomes
from tests.benchmarks.slots.lessons import HeadTrainingSettings, surely_better
from tests.benchmarks.slots.outcomes import Issue, ReplayCase, random_pool
from tests.benchmarks.slots.plans import PathPlan
from tests.benchmarks.slots.replay import (
    CheckRates,
    Replay,
    ReplayRules,
    ReplaySessionWriter,
    ReplayStep,
    TranscriptSettings,
)
from tests.unit.coordinators import tiny

SEATS = tuple(HeadRow(slot, slot) for slot in ("cheap", "middle", "strong"))
SURE = ReplayRules(CheckRates(1.0, 0.0), turns=4, talk=0.0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return backbone.load_backbone(
        tiny.folder(tmp_path_factory.mktemp("replay") / "backbone"), device="cpu"
    )


def case(name: str, oks: tuple[int, int, int], group: str = "r") -> ReplayCase:
    costs = (0.05, 0.2, 1.0)
    rows = tuple(RowRates(float(ok), 0.5, cost, cost) for ok, cost in zip(oks, costs, strict=True))
    return ReplayCase(TaskRates(name, f"issue {name}", rows), group, (3, 5, 9))


def writer(loaded: Backbone) -> ReplaySessionWriter:
    return ReplaySessionWriter(SEATS, loaded, TranscriptSettings())


def packed(loaded: Backbone, head: np.ndarray) -> Checkpoint:
    shape = loaded.shape
    meta = CheckpointMeta(
        backbone=loaded.identity,
        width=shape.width,
        ranks=svf.ranks(shape),
        rows=tuple(s.row for s in SEATS),
    )
    return make(svf.join([np.zeros(size, np.float32) for size in meta.ranks], head), meta)


class Scripted:
    """Candidates that decide by the text: `turns` gives row and role by how many Workers have
    acted.
    """

    def __init__(self, *candidates: list[tuple[int, int]]) -> None:
        self._minds = candidates

    @property
    def size(self) -> int:
        return len(self._minds)

    def logits(self, texts: list[str]) -> np.ndarray:
        found = np.zeros((self.size, len(texts), 6), np.float32)
        for who, turns in enumerate(self._minds):
            for place, text in enumerate(texts):
                passed = "tests passed" in text.rpartition("Worker")[2]
                row, role = (1, 2) if passed else turns[min(text.count("Worker ("), len(turns) - 1)]
                found[who, place, [row, 3 + role]] = 1
        return found


def test_a_run_is_told_by_its_calls_and_the_checks_word(loaded: Backbone) -> None:
    scene = writer(loaded).scene(case("a", (0, 1, 1)), (ReplayStep(0, False), ReplayStep(2, True)))
    assert scene.text == (
        "user: issue a\n"
        "system: tests failed 3\n"
        "assistant: Worker (cheap):\n[bash ok x2; edit ok; tests failed 1; 3 calls]\n"
        "assistant: Worker (strong):\n[bash ok x8; edit ok; tests passed 7; 9 calls]"
    )
    assert (scene.roles_out, scene.spent) == (
        (ROLES.index("worker"), ROLES.index("thinker")),
        (0, 2),
    )
    assert writer(loaded).scene(case("a", (0, 1, 1)), ()).roles_out == (ROLES.index("verifier"),)


def test_a_scene_is_decided_as_trinity_decides_on_the_same_log(loaded: Backbone) -> None:
    told = writer(loaded)
    draw = np.random.default_rng(4)
    pool = tuple(
        Member(name=seat.row, provider="local", model="m", slot=seat.row) for seat in SEATS
    )  # type: ignore[arg-type]
    decided = set()
    for number in range(6):
        made = packed(loaded, draw.normal(size=(6, loaded.shape.width)).astype(np.float32))
        for path in ((), (ReplayStep(0, False),), (ReplayStep(1, False), ReplayStep(2, True))):
            one = case(f"c{number}", (0, 1, 1))
            loaded.forget()
            scene = told.scene(one, path)
            hidden = loaded.read(loaded.tokens(scene.text)).hidden
            rows, roles = scene.choose((made.head @ hidden)[None])
            events = [Opened(version="1", repo="/r", pool=pool), *told.events(one, path)]
            found = asyncio.run(
                Trinity(reader_with(made, loaded), pool, CoordinatorSettings()).decide(events)
            )
            assert isinstance(found, Assigned)
            assert found.role == ROLES[int(roles[0])]
            if SEATS[int((made.head[:3] @ hidden).argmax())].row not in {
                SEATS[step.row].row for step in path
            }:
                assert found.agent == SEATS[int(rows[0])].row
            decided.add((found.agent, found.role))
    assert len(decided) > 2


def test_what_is_expected_is_exact(loaded: Backbone) -> None:
    cases = [case("a", (0, 1, 1)), case("b", (1, 0, 0))]
    candidates = Scripted([(0, 0), (2, 0)], [(2, 0), (0, 0)])
    played = Replay(writer(loaded), SURE).play(candidates, cases)
    np.testing.assert_allclose(played.solved, [[1, 1], [1, 1]])
    np.testing.assert_allclose(played.cost, [[1.05, 0.05], [1.0, 1.05]])
    np.testing.assert_allclose(played.turns, [[3, 2], [2, 3]])
    checked = Replay(writer(loaded), ReplayRules(CheckRates(0.9, 0.2), turns=4, talk=0.0)).play(
        Scripted([(0, 0), (2, 0)]), cases
    )
    np.testing.assert_allclose(
        checked.solved[0, 0], 0.8 * 1.0
    )  # wrong work that passes ends it: 0.2
    np.testing.assert_allclose(checked.cost[0, 0], 0.05 + 0.8 * (1.0 + 0.1 * 0.2))


def test_the_replay_of_a_cascade_is_that_cascade(loaded: Backbone) -> None:
    cases = [
        case(f"{number}", tuple(int(digit) for digit in f"{number:03b}")) for number in range(8)
    ]  # type: ignore[arg-type]
    check = CheckRates(0.9, 0.2)
    played = Replay(writer(loaded), ReplayRules(check, turns=4, talk=0.0)).play(
        Scripted([(0, 0), (2, 0)]), cases
    )
    fixed = frontier.sequence_policy("cheap > strong", cases, (0, 2), check)
    ended = Replay(writer(loaded), ReplayRules(check, turns=2, talk=0.0)).play(
        Scripted([(0, 0), (2, 0)]), cases
    )
    np.testing.assert_allclose(ended.solved[0], fixed.solved)
    np.testing.assert_allclose(ended.cost[0], fixed.cost)
    assert played.cost.sum() > ended.cost.sum()


def test_turns_of_words_alone_end_a_replay(loaded: Backbone) -> None:
    played = Replay(writer(loaded), SURE).play(
        Scripted([(0, 1)], [(0, 0), (0, 1)]), [case("a", (0, 1, 1))]
    )
    np.testing.assert_allclose(played.solved[:, 0], [0, 0])
    np.testing.assert_allclose(played.turns[:, 0], [1, 2])


def test_the_prior_is_the_best_that_the_checks_word_allows() -> None:
    cases = [case(f"{number}", (number % 2, 1, 1)) for number in range(4)]
    advice = {one.path: one for one in PathPlan(cases, SURE, 0.1).advice()}
    assert (
        int(np.argmax(advice[()].rows)) == 0
    )  # then the middle one, for the other half: 0.15 in all
    assert advice[(ReplayStep(1, True),)].role == ROLES.index("verifier")
    assert int(np.argmax(advice[(ReplayStep(0, False),)].rows)) == 1
    worth = PathPlan(cases, SURE, 0.1).worth((), np.array([[0.0] * 4, [1.0] * 4]))
    np.testing.assert_allclose(worth, [1 - 0.1 * (0.05 + 0.5 * 0.2), 1 - 0.1 * 0.2, 1 - 0.1 * 1.0])


def test_what_is_best_followed_is_the_cascade_it_describes() -> None:
    cases = [case(f"{number}", (number % 2, 1, 1)) for number in range(4)]
    check = CheckRates(0.9, 0.2)
    solved, cost = PathPlan(cases, ReplayRules(check, turns=2, talk=0.0), 2.0).followed()
    fixed = frontier.sequence_policy("cheap > middle", cases, (0, 1), check)
    np.testing.assert_allclose(solved, fixed.solved)
    np.testing.assert_allclose(cost, fixed.cost)


def lines(count: int) -> list[dict[str, object]]:
    """The cheap model solves every second issue, the strong one nearly all; the text says
    nothing.
    """
    return [
        {
            "id": f"i{number}",
            "source": "s",
            "repo": f"repo{number % 4}",
            "text": f"issue {number}",
            "outcomes": {
                "small": {"ok": number % 2 == 0, "cost": 0.02, "calls": 4},
                "mid": {"ok": number % 3 != 0, "cost": 0.1, "calls": 5},
                "big": {"ok": number % 7 != 0, "cost": 1.0, "calls": 6},
            },
        }
        for number in range(count)
    ]


def file_of(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))
    return path


def test_drawn_pools_are_ordered_by_price_and_repeat_with_their_seed(tmp_path: Path) -> None:
    rows = lines(6)
    for row in rows:
        for result in row["outcomes"].values():  # type: ignore[attr-defined]
            result.pop("cost")
    issues = recorded_outcomes.read_issues(file_of(tmp_path / "o.jsonl", rows))
    pools = [
        recorded_outcomes.random_pool(issues, 3, random.Random(seed), {}) for seed in range(40)
    ]
    assert pools == [
        recorded_outcomes.random_pool(issues, 3, random.Random(seed), {}) for seed in range(40)
    ]
    assert all(list(pool.prices) == sorted(pool.prices) for pool in pools)
    assert any(None in pool.models for pool in pools)
    assert len({pool.models for pool in pools}) > 3


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "there are no outcomes"),
        (b"{}\n", "o.jsonl:1: not a line of outcomes"),
        (b"\x1f\x8bxx", "cannot be read"),
    ],
)
def test_a_file_that_holds_no_outcomes_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "o.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        recorded_outcomes.read_issues(path)


def test_heads_share_the_states_of_a_text(loaded: Backbone, tmp_path: Path) -> None:
    hidden_states = HiddenStates(loaded, tmp_path, lambda _: None)
    heads = np.random.default_rng(0).normal(size=(3, 6, loaded.shape.width)).astype(np.float32)
    texts = ["user: a", "user: b"]
    found = HeadCandidates(heads, hidden_states).logits(texts)
    np.testing.assert_allclose(
        found[2, 1], heads[2] @ hidden_states(["user: b"])[0], rtol=1e-4, atol=1e-4
    )
    assert found.shape == (3, 2, 6)


@pytest.mark.parametrize("looped", [False, True])
def test_a_cascade_ends_where_its_check_cannot_fail_any_more(looped: bool) -> None:
    rows = tuple(RowRates(1.0, 1.0, cost, cost) for cost in (0.1, 1.0))
    sure = ReplayCase(TaskRates("a", "issue a", rows), "r", (3, 5), looped=looped)
    never = ReplayCase(
        TaskRates("b", "issue b", tuple(RowRates(0.0, 0.0, cost, cost) for cost in (0.1, 1.0))),
        "r",
        (3, 5),
    )
    arm = frontier.sequence_policy("both", [sure, never], (0, 1), CheckRates(1.0, 0.0))
    assert (arm.solved.tolist(), arm.cost.tolist()) == ([1.0, 0.0], [0.1, 1.1])
    blind = frontier.sequence_policy("both", [never], (0, 0, 1), CheckRates(1.0, 1.0))
    assert (blind.solved.tolist(), blind.cost.tolist()) == ([0.0], [0.1])


def test_a_cascade_pays_for_its_verdicts_as_a_head_does() -> None:
    rows = tuple(RowRates(rate, rate, cost, cost) for rate, cost in ((0.5, 0.1), (1.0, 1.0)))
    one = ReplayCase(TaskRates("a", "issue a", rows), "r", (3, 5), looped=True)
    arm = frontier.sequence_policy("both", [one], (0, 1, 1), CheckRates(1.0, 0.0), talk=0.3)
    np.testing.assert_allclose(arm.solved, [1.0])
    np.testing.assert_allclose(arm.cost, [0.1 + 0.5 * 1.0 + 0.5 * 0.3 * 1.0 + 0.5 * 0.3 * 0.1])
    last = frontier.sequence_policy("both", [one], (0, 1), CheckRates(1.0, 0.0), talk=0.3)
    np.testing.assert_allclose(
        last.cost, [0.1 + 0.5 * 1.0 + 0.5 * 0.3 * 1.0]
    )  # no turn is left to look at the last one


def test_a_request_ends_where_every_row_has_worked(loaded: Backbone) -> None:
    stubborn = Scripted([(0, 0), (1, 0), (2, 0), (2, 2)])
    played = Replay(writer(loaded), SURE).play(
        stubborn, [case("a", (0, 0, 0)), case("b", (0, 0, 1))]
    )
    np.testing.assert_allclose(played.turns, [[3, 3]])
    np.testing.assert_allclose(played.solved, [[0, 1]])


def test_work_that_passed_is_verified_by_the_cheapest() -> None:
    cases = [case(f"{number}", (number % 2, 1, 1)) for number in range(4)]
    advice = {
        one.path: one
        for one in PathPlan(cases, ReplayRules(CheckRates(1.0, 0.0), turns=4), 0.1).advice()
    }
    verify = advice[(ReplayStep(2, True),)]
    assert verify.role == ROLES.index("verifier")
    assert verify.rows[0] > 0.99


def test_the_first_decision_is_shown_with_the_most_texts() -> None:
    course = HeadTrainingSettings(shown=10)
    assert [course.texts(weight) for weight in (1.0, 0.5, 0.1)] == [40, 20, 10]


def test_evolution_is_kept_only_where_validation_is_sure_of_it() -> None:
    lucky, better = (
        np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]),
        np.array([[0.0, 0.0, 0.0], [0.5, 0.4, 0.6]]),
    )
    assert [surely_better(Held(solved), Held(solved), 0.1) for solved in (lucky, better)] == [
        False,
        True,
    ]
    assert surely_better(Held(None), Held(None), 0.1)


class Held:
    """A trial, and candidates, whose validation is known."""

    def __init__(self, solved: np.ndarray | None) -> None:
        self._solved = solved

    size = 2

    def logits(self, texts: Sequence[str]) -> np.ndarray:
        raise AssertionError("nothing is read here")

    def play(self, candidates: Candidates, iteration: int) -> TrialResult:
        raise AssertionError("nothing is played here")

    def validate(self, candidates: Candidates) -> TrialResult | None:
        none = np.zeros((2, 3))
        return (
            None if self._solved is None else TrialResult(self._solved, none, none, none, none, 0)
        )


def test_a_pool_is_drawn_of_models_that_there_are() -> None:
    issues = [
        Issue.model_validate(
            {"id": "i", "text": "t", "outcomes": {"a": {"ok": True}, "b": {"ok": False}}}
        )
    ]
    with pytest.raises(
        ConfigError, match="outcomes of 3 models at least are needed; there are a, b"
    ):
        random_pool(issues, 3, random.Random(0), {})
