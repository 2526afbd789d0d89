"""The replay of recorded outcomes: told as the coordinator reads, exact in expectation, learned across repositories."""

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
from fugu_cli.coordinators.trinity import Trinity
from fugu_cli.errors import ConfigError
from fugu_cli.session.events import ROLES, Assigned, Member, Opened
from fugu_cli.training import frontier, recorded_outcomes, study
from fugu_cli.training.pass_matrix import HeadRow, RowRates, TaskRates
from fugu_cli.training.planning import PathPlan
from fugu_cli.training.recorded_outcomes import Issue, ReplayCase, random_pool
from fugu_cli.training.replay import CheckRates, Replay, ReplayRules, TrialResult
from fugu_cli.training.search import Candidates, HeadCandidates, HiddenStates
from fugu_cli.training.study import HeadTrainingSettings, surely_better
from fugu_cli.training.synthetic_sessions import ReplaySessionWriter, ReplayStep, TranscriptSettings
from tests.coordinators import tiny

SEATS = tuple(HeadRow(slot, slot) for slot in ("cheap", "middle", "strong"))
SURE = ReplayRules(CheckRates(1.0, 0.0), turns=4, talk=0.0)


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return backbone.load_backbone(tiny.folder(tmp_path_factory.mktemp("replay") / "backbone"), device="cpu")


def case(name: str, oks: tuple[int, int, int], group: str = "r") -> ReplayCase:
    costs = (0.05, 0.2, 1.0)
    rows = tuple(RowRates(float(ok), 0.5, cost, cost) for ok, cost in zip(oks, costs, strict=True))
    return ReplayCase(TaskRates(name, f"issue {name}", rows), group, (3, 5, 9))


def writer(loaded: Backbone) -> ReplaySessionWriter:
    return ReplaySessionWriter(SEATS, loaded, TranscriptSettings())


def packed(loaded: Backbone, head: np.ndarray) -> Checkpoint:
    shape = loaded.decoder.shape
    meta = CheckpointMeta(
        backbone=loaded.identity, width=shape.width, ranks=svf.ranks(shape), rows=tuple(s.row for s in SEATS)
    )
    return make(svf.join([np.zeros(size, np.float32) for size in meta.ranks], head), meta)


class Scripted:
    """Candidates that decide by the text: `turns` gives row and role by how many Workers have acted."""

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
    assert (scene.roles_out, scene.spent) == ((ROLES.index("worker"), ROLES.index("thinker")), (0, 2))
    assert writer(loaded).scene(case("a", (0, 1, 1)), ()).roles_out == (ROLES.index("verifier"),)


def test_a_scene_is_decided_as_trinity_decides_on_the_same_log(loaded: Backbone) -> None:
    told = writer(loaded)
    draw = np.random.default_rng(4)
    pool = tuple(Member(name=seat.row, provider="local", model="m", slot=seat.row) for seat in SEATS)  # type: ignore[arg-type]
    decided = set()
    for number in range(6):
        made = packed(loaded, draw.normal(size=(6, loaded.width)).astype(np.float32))
        for path in ((), (ReplayStep(0, False),), (ReplayStep(1, False), ReplayStep(2, True))):
            one = case(f"c{number}", (0, 1, 1))
            loaded.forget()
            scene = told.scene(one, path)
            hidden = loaded.read(loaded.tokens(scene.text)).hidden
            rows, roles = scene.choose((made.head @ hidden)[None])
            events = [Opened(version="1", repo="/r", pool=pool), *told.events(one, path)]
            found = asyncio.run(Trinity(made, loaded, pool, CoordinatorSettings()).decide(events))
            assert isinstance(found, Assigned)
            assert found.role == ROLES[int(roles[0])]
            if SEATS[int((made.head[:3] @ hidden).argmax())].row not in {SEATS[step.row].row for step in path}:
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
    np.testing.assert_allclose(checked.solved[0, 0], 0.8 * 1.0)  # wrong work that passes ends it: 0.2
    np.testing.assert_allclose(checked.cost[0, 0], 0.05 + 0.8 * (1.0 + 0.1 * 0.2))


def test_the_replay_of_a_cascade_is_that_cascade(loaded: Backbone) -> None:
    cases = [case(f"{number}", tuple(int(digit) for digit in f"{number:03b}")) for number in range(8)]  # type: ignore[arg-type]
    check = CheckRates(0.9, 0.2)
    played = Replay(writer(loaded), ReplayRules(check, turns=4, talk=0.0)).play(Scripted([(0, 0), (2, 0)]), cases)
    fixed = frontier.sequence_policy("cheap > strong", cases, (0, 2), check)
    ended = Replay(writer(loaded), ReplayRules(check, turns=2, talk=0.0)).play(Scripted([(0, 0), (2, 0)]), cases)
    np.testing.assert_allclose(ended.solved[0], fixed.solved)
    np.testing.assert_allclose(ended.cost[0], fixed.cost)
    assert played.cost.sum() > ended.cost.sum()


def test_turns_of_words_alone_end_a_replay(loaded: Backbone) -> None:
    played = Replay(writer(loaded), SURE).play(Scripted([(0, 1)], [(0, 0), (0, 1)]), [case("a", (0, 1, 1))])
    np.testing.assert_allclose(played.solved[:, 0], [0, 0])
    np.testing.assert_allclose(played.turns[:, 0], [1, 2])


def test_the_prior_is_the_best_that_the_checks_word_allows() -> None:
    cases = [case(f"{number}", (number % 2, 1, 1)) for number in range(4)]
    advice = {one.path: one for one in PathPlan(cases, SURE, 0.1).advice()}
    assert int(np.argmax(advice[()].rows)) == 0  # then the middle one, for the other half: 0.15 in all
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
    """The cheap model solves every second issue, the strong one nearly all; the text says nothing."""
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


def test_outcomes_become_rates_and_relative_costs(tmp_path: Path) -> None:
    issues = recorded_outcomes.read_issues(file_of(tmp_path / "o.jsonl.gz", lines(4)))
    pool = recorded_outcomes.named_pool(issues, ["small", "mid", "big"], {})
    assert pool.unit == 1.0
    first = recorded_outcomes.pool_cases(issues, pool)[1]
    assert (first.group, first.calls) == ("repo1", (4, 5, 6))
    assert [rate.first for rate in first.task.rows] == [0.0, 1.0, 1.0]
    assert [rate.first_cost for rate in first.task.rows] == [0.02, 0.1, 1.0]


def test_drawn_pools_are_ordered_by_price_and_repeat_with_their_seed(tmp_path: Path) -> None:
    rows = lines(6)
    for row in rows:
        for result in row["outcomes"].values():  # type: ignore[attr-defined]
            result.pop("cost")
    issues = recorded_outcomes.read_issues(file_of(tmp_path / "o.jsonl", rows))
    pools = [recorded_outcomes.random_pool(issues, 3, random.Random(seed), {}) for seed in range(40)]
    assert pools == [recorded_outcomes.random_pool(issues, 3, random.Random(seed), {}) for seed in range(40)]
    assert all(list(pool.prices) == sorted(pool.prices) for pool in pools)
    assert any(None in pool.models for pool in pools)
    assert len({pool.models for pool in pools}) > 3


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "there are no outcomes"), (b"{}\n", "o.jsonl:1: not a line of outcomes"), (b"\x1f\x8bxx", "cannot be read")],
)
def test_a_file_that_holds_no_outcomes_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "o.jsonl"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        recorded_outcomes.read_issues(path)
    with pytest.raises(ConfigError, match="no outcomes of nobody"):
        recorded_outcomes.named_pool(recorded_outcomes.read_issues(file_of(path, lines(2))), ["nobody"], {})


def test_a_study_learns_across_repositories_and_keeps_its_parts(loaded: Backbone, tmp_path: Path) -> None:
    issues = recorded_outcomes.read_issues(file_of(tmp_path / "o.jsonl.gz", lines(12)))
    pool = recorded_outcomes.named_pool(issues, ["small", "mid", "big"], {})
    hidden_states = HiddenStates(loaded, tmp_path / "states", lambda _: None)
    question = study.StudySettings(prices=(0.3,), checks=(CheckRates(0.95, 0.1),), folds=2, sample=4)
    cases = recorded_outcomes.pool_cases(issues, pool)
    one = study.Study(cases, ["small", "mid", "big"], writer(loaded), hidden_states)
    found = one.run(question, pool.unit, tmp_path / "answers.jsonl", lambda _: None)
    answer = found.answers[0]
    assert answer.fixed.reward(0.3).mean() >= max(arm.reward(0.3).mean() for arm in found.singles)
    assert answer.ours.reward(0.3).mean() > found.singles[2].reward(0.3).mean()
    assert answer.trained.reward(0.3).mean() <= answer.fixed.reward(0.3).mean()
    text = study.study_report(found)
    assert "| small > mid > big |" in text
    assert study.not_worse(answer.over(answer.ours, answer.ours))
    assert "| 0.3 | " in text
    kept = (tmp_path / "answers.jsonl").read_text()
    again = one.run(question, pool.unit, tmp_path / "answers.jsonl", lambda _: None)
    assert (tmp_path / "answers.jsonl").read_text() == kept
    np.testing.assert_array_equal(again.answers[0].ours.cost, answer.ours.cost)  # a rounded cost is another way's


def test_every_known_case_is_learned_from(loaded: Backbone, tmp_path: Path) -> None:
    known = study.sample_cases([case(f"{number}", (0, 0, 0), "known") for number in range(12)], 12, 0)
    known = [*known[:8], *(case(one.task.task, (0, 0, 1), "known") for one in known[8:])]
    cases = [*known, case("judged", (0, 0, 1), "judged")]
    hidden_states = HiddenStates(loaded, tmp_path / "states", lambda _: None)
    one = study.Study(cases, ["small", "mid", "big"], writer(loaded), hidden_states)
    question = study.StudySettings(prices=(0.1,), checks=(CheckRates(1.0, 0.0),), folds=2)
    (answer,) = one.run(question, 1.0, tmp_path / "answers.jsonl", lambda _: None).answers
    assert answer.ours.solved[-1] == 1.0


def test_heads_share_the_states_of_a_text(loaded: Backbone, tmp_path: Path) -> None:
    hidden_states = HiddenStates(loaded, tmp_path, lambda _: None)
    heads = np.random.default_rng(0).normal(size=(3, 6, loaded.width)).astype(np.float32)
    texts = ["user: a", "user: b"]
    found = HeadCandidates(heads, hidden_states).logits(texts)
    np.testing.assert_allclose(found[2, 1], heads[2] @ hidden_states(["user: b"])[0], rtol=1e-4, atol=1e-4)
    assert found.shape == (3, 2, 6)


@pytest.mark.parametrize("looped", [False, True])
def test_a_cascade_ends_where_its_check_cannot_fail_any_more(looped: bool) -> None:
    rows = tuple(RowRates(1.0, 1.0, cost, cost) for cost in (0.1, 1.0))
    sure = ReplayCase(TaskRates("a", "issue a", rows), "r", (3, 5), looped=looped)
    never = ReplayCase(
        TaskRates("b", "issue b", tuple(RowRates(0.0, 0.0, cost, cost) for cost in (0.1, 1.0))), "r", (3, 5)
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
    played = Replay(writer(loaded), SURE).play(stubborn, [case("a", (0, 0, 0)), case("b", (0, 0, 1))])
    np.testing.assert_allclose(played.turns, [[3, 3]])
    np.testing.assert_allclose(played.solved, [[0, 1]])


def test_work_that_passed_is_verified_by_the_cheapest() -> None:
    cases = [case(f"{number}", (number % 2, 1, 1)) for number in range(4)]
    advice = {one.path: one for one in PathPlan(cases, ReplayRules(CheckRates(1.0, 0.0), turns=4), 0.1).advice()}
    verify = advice[(ReplayStep(2, True),)]
    assert verify.role == ROLES.index("verifier")
    assert verify.rows[0] > 0.99


def test_where_cost_weighs_much_fewer_turns_are_given() -> None:
    cases = [case(f"{number}", (number % 2, 0, number % 4 != 1)) for number in range(8)]
    budgets = [study.best_turn_limit(cases, SURE, price) for price in (0.0, 0.1, 2.0)]
    assert budgets == [2, 2, 1]


def test_the_first_decision_is_shown_with_the_most_texts() -> None:
    course = HeadTrainingSettings(shown=10)
    assert [course.texts(weight) for weight in (1.0, 0.5, 0.1)] == [40, 20, 10]


def test_evolution_is_kept_only_where_validation_is_sure_of_it() -> None:
    lucky, better = np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]), np.array([[0.0, 0.0, 0.0], [0.5, 0.4, 0.6]])
    assert [surely_better(Held(solved), Held(solved), 0.1) for solved in (lucky, better)] == [False, True]
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
        return None if self._solved is None else TrialResult(self._solved, none, none, none, none, 0)


def test_a_fixed_way_chosen_without_hindsight_is_each_parts_others_choice() -> None:
    first = frontier.PolicyScores("first", np.array([1.0, 1.0, 0.0, 0.0]), np.full(4, 0.1))
    second = frontier.PolicyScores("second", np.array([0.0, 0.0, 1.0, 0.5]), np.full(4, 0.2))
    folds = [np.array([True, True, False, False]), np.array([False, False, True, True])]
    arm = frontier.best_fixed_without_hindsight(
        [first, second], folds, 0.1
    )  # each part is decided as the other one would have it
    assert (arm.solved.tolist(), arm.cost.tolist()) == ([0.0] * 4, [0.2, 0.2, 0.1, 0.1])
    assert frontier.best_fixed([first, second], 0.1) is first


def test_a_pool_is_drawn_of_models_that_there_are() -> None:
    issues = [Issue.model_validate({"id": "i", "text": "t", "outcomes": {"a": {"ok": True}, "b": {"ok": False}}})]
    with pytest.raises(ConfigError, match="outcomes of 3 models at least are needed; there are a, b"):
        random_pool(issues, 3, random.Random(0), {})
