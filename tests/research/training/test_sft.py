"""The warm start from end to end, on a tiny backbone: what depends on the text is learned, saved
and decided by.
"""

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import CoordinatorSettings, action_space, backbone
from fugu_cli.coordinators.trinity import Trinity, reader_with
from fugu_cli.errors import ConfigError
from fugu_cli.session import views
from fugu_cli.session.events import Assigned, Member, Opened, Price
from fugu_cli.training.pass_matrix import (
    HeadRow,
    RowRates,
    TaskRates,
    ValueSettings,
    row_values,
    softmax,
)
from fugu_cli.training.search import hidden_states_of
from fugu_cli.training.sft import WarmStart, WarmStartSettings, parse_head_row
from fugu_cli.training.synthetic_sessions import MatrixSession, MatrixSessionWriter
from tests.unit.coordinators import tiny

SEATS = (HeadRow("cheap", "small"), HeadRow("middle", "coder"), HeadRow("strong", "coder", 3))
TASK = TaskRates(
    "t",
    "fix `stats.py`",
    (RowRates(0.1, 0.1, 0.1, 0.1), RowRates(0.3, 0.2, 0.4, 0.4), RowRates(0.6, 0.5, 1, 1)),
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("sft") / "backbone")


def told(count: int = 4) -> list[MatrixSession]:
    return list(MatrixSessionWriter(SEATS, random.Random(3)).task(TASK, ValueSettings(), count))


def test_one_task_is_too_few_to_tell_what_was_learned(folder: Path, tmp_path: Path) -> None:
    loaded = backbone.load_backbone(folder, cache=tmp_path / "cache", device="cpu")
    with pytest.raises(ConfigError, match="1 tasks are too few"):
        WarmStart(WarmStartSettings(SEATS), loaded, tmp_path).run([TASK], "a table", lambda _: None)


def test_a_story_leads_to_what_the_loop_would_ask_for_next() -> None:
    for story in told():
        assert sum(story.rows) == pytest.approx(1)
        run = views.tests(story.events)
        assert (story.role == "verifier") == (
            (run is None or run.ok)
            and bool(views.turns(story.events))
            and views.turns(story.events)[-1].assigned.role == "worker"
        )
        assert action_space.request_end(story.events, turns=9, verify_answers=False) is None


def test_failures_aim_at_the_values_of_their_state() -> None:
    for story in told():
        if story.history is not None:
            assert story.rows == softmax(
                row_values(TASK, story.history, ValueSettings()), ValueSettings().tau
            )
            failed = [turn.assigned.agent for turn in views.turns(story.events)]
            assert failed == [SEATS[row].row for row in story.history]
            assert [check.suite for check in views.unmet_checks(story.events)] == [True]


def test_a_row_with_attempts_leaves_its_draws_rolled_back() -> None:
    events = MatrixSessionWriter(SEATS, random.Random(0)).failing(TASK, (2,))
    turn = views.turns(events)[-1]
    assert (len(turn.draws), turn.replies, turn.changes) == (3, (), ())


def test_stories_repeat_with_their_seed() -> None:
    assert told() == told()


def test_where_no_tests_judge_a_verifier_does_and_work_goes_on_after_a_revise() -> None:
    stories = [story for story in told() if views.tests(story.events) is None]
    assert [story.role for story in stories] == ["worker", "verifier", "worker"]
    (_, worked, revised) = [views.turns(story.events) for story in stories]
    assert [turn.assigned.role for turn in revised] == ["worker", "verifier"]
    row = [seat.row for seat in SEATS].index(worked[0].assigned.agent)
    assert stories[2].rows == softmax(
        row_values(TASK, (row,), ValueSettings()), ValueSettings().tau
    )


def test_states_are_computed_once(folder: Path, tmp_path: Path) -> None:
    loaded = backbone.load_backbone(folder, device="cpu")
    calls: list[tuple[int, int]] = []
    texts = ["user: a", "user: b", "user: a"]
    first = hidden_states_of(loaded, texts, tmp_path, lambda *now: calls.append(now))
    second = hidden_states_of(loaded, [*texts, "user: c"], tmp_path, lambda *now: calls.append(now))
    assert calls == [(1, 2), (2, 2), (1, 1)]
    assert np.array_equal(first, second[:3])
    assert np.array_equal(first[0], first[2])
    (file,) = tmp_path.glob("states-*.npz")
    file.write_bytes(file.read_bytes()[:-30])
    assert np.array_equal(
        hidden_states_of(loaded, texts, tmp_path, lambda *now: calls.append(now)), first
    ), "one that was cut"
    assert calls[3:] == [(1, 2), (2, 2)]


def textual(count: int) -> list[TaskRates]:
    """Tasks whose best row can be read off the request: `aaaa` wants the strong one, `zzzz` the
    cheap one.
    """
    free = RowRates(0.9, 0.9, 0.0, 0.0)
    none = RowRates(0.02, 0.02, 0.0, 0.0)
    strong, cheap = ("aaaa ", (none, none, free)), ("zzzz ", (free, none, none))
    kinds = [strong if n % 2 else cheap for n in range(count)]
    return [
        TaskRates(f"t{n}", word * 6 + f"number {n}", rates) for n, (word, rates) in enumerate(kinds)
    ]


def test_what_the_text_says_is_learned_and_decided_by(folder: Path, tmp_path: Path) -> None:
    loaded = backbone.load_backbone(folder, device="cpu")
    recipe = WarmStartSettings(SEATS, ValueSettings(turns=2), l2=1e-4, long_stories=0, folds=3)
    result = WarmStart(recipe, loaded, tmp_path).run(textual(16), "synthetic", lambda _: None)
    assert "learned, held out" in result.report
    scored = dict(result.checkpoint.meta.training.report)
    assert scored["learned, held out: solved"] > 0.8
    assert scored["random: solved"] < 0.4
    pool = tuple(
        Member(name=f"my-{one.row}", provider="local", model="m", slot=one.row) for one in SEATS
    )  # type: ignore[arg-type]
    trinity = Trinity(reader_with(result.checkpoint, loaded), pool, CoordinatorSettings())
    right = 0
    for task in textual(16)[:8]:
        opened = Opened(version="1", repo="/r", pool=pool)
        events = [opened, *MatrixSessionWriter(SEATS, random.Random(task.task)).failing(task, ())]
        found = asyncio.run(trinity.decide(events))
        assert isinstance(found, Assigned)
        assert found.role == "worker"
        right += found.agent == ("my-strong" if "aaaa" in task.prompt else "my-cheap")
    assert right >= 7


def test_a_digest_tells_what_the_rows_cost(folder: Path, tmp_path: Path) -> None:
    """So a head trained on it reads the same words in a session over a pool of such prices."""
    loaded = backbone.load_backbone(folder, device="cpu")
    rates = (RowRates(0.6, 0.0, 0.1, 0.1), RowRates(0.1, 0.1, 0.5, 0.5), RowRates(0.9, 0.5, 1, 1))
    tasks = [TaskRates(f"t{n}", f"number {n}", rates) for n in range(6)]
    recipe = WarmStartSettings(
        (*SEATS[:2], HeadRow("strong", "opus")), l2=1e-4, format="digest", budget=256, folds=2
    )
    made = WarmStart(recipe, loaded, tmp_path).run(tasks, "synthetic", lambda _: None).checkpoint
    costs = {"cheap": 0.2, "middle": 1.0, "strong": 2.0}
    pool = tuple(
        Member(
            name=f"my-{slot}",
            provider="local",
            model=slot,
            slot=slot,
            price=Price(input=cost, output=cost),
        )  # type: ignore[arg-type]
        for slot, cost in costs.items()
    )
    trinity = Trinity(reader_with(made, loaded), pool, CoordinatorSettings())
    opened = Opened(version="1", repo="/r", pool=pool)
    found = asyncio.run(
        trinity.decide(
            [opened, *MatrixSessionWriter(SEATS, random.Random(0)).failing(tasks[0], ())]
        )
    )
    assert isinstance(found, Assigned) and found.scores is not None
    assert (found.agent, found.role) == ("my-cheap", "worker")
    assert "prices: cheap 1, middle 5, strong 10\n" in found.scores.read


@pytest.mark.parametrize("text", ["cheap", "=a", "cheap=", "cheap=a*", "cheap=a*x"])
def test_a_row_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="write ROW=AGENT"):
        parse_head_row(text)
