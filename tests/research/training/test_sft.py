"""The warm start from end to end, on a tiny backbone: what depends on the text is learned, saved and decided by."""

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import CoordinatorSettings, action_space, backbone
from fugu_cli.coordinators.trinity import Trinity
from fugu_cli.errors import ConfigError
from fugu_cli.session import views
from fugu_cli.session.events import Assigned, Member, Opened
from fugu_cli.training.pass_matrix import HeadRow, RowRates, TaskRates, ValueSettings, row_values, softmax
from fugu_cli.training.search import hidden_states_of
from fugu_cli.training.sft import WarmStart, WarmStartSettings, parse_head_row
from fugu_cli.training.synthetic_sessions import MatrixSession, MatrixSessionWriter, general_requests
from tests.unit.coordinators import tiny

SEATS = (HeadRow("cheap", "small"), HeadRow("middle", "coder"), HeadRow("strong", "coder", 3))
TASK = TaskRates(
    "t", "fix `stats.py`", (RowRates(0.1, 0.1, 0.1, 0.1), RowRates(0.3, 0.2, 0.4, 0.4), RowRates(0.6, 0.5, 1, 1))
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
        assert run is not None
        assert (story.role == "verifier") == (run.ok and views.turns(story.events)[-1].assigned.role == "worker")
        assert action_space.request_end(story.events, turns=9, verify_answers=False) is None


def test_failures_aim_at_the_values_of_their_state() -> None:
    for story in told():
        if story.history is not None:
            assert story.rows == softmax(row_values(TASK, story.history, ValueSettings()), ValueSettings().tau)
            failed = [turn.assigned.agent for turn in views.turns(story.events)]
            assert failed == [SEATS[row].row for row in story.history]
            assert [check.suite for check in views.unmet_checks(story.events)] == [True]


def test_a_row_with_attempts_leaves_its_draws_rolled_back() -> None:
    events = MatrixSessionWriter(SEATS, random.Random(0)).failing(TASK, (2,))
    turn = views.turns(events)[-1]
    assert (len(turn.draws), turn.replies, turn.changes) == (3, (), ())


def test_stories_repeat_with_their_seed() -> None:
    assert told() == told()


def test_general_requests_ask_for_a_verifier_only_after_work() -> None:
    general = general_requests()
    writer = MatrixSessionWriter(SEATS, random.Random(0))
    roles = [story.role for story in writer.change(general.changes[0])]
    assert roles == ["worker", *["verifier", "worker"] * 3]
    told = [story for text in general.questions for story in writer.question(text, general.answers)]
    for story in told:
        turns = views.turns(story.events)
        answered = bool(turns) and turns[-1].assigned.role == "worker"
        assert answered == (story.role == "verifier")
        assert not answered or turns[-1].text in general.answers
    assert {len(views.turns(story.events)) for story in told} == {0, 1, 2, 3}


def test_everyday_questions_are_many_in_many_words_and_the_same_for_a_seed() -> None:
    questions = general_requests().questions
    assert len(set(questions)) == len(questions) > 150
    assert len({text[-20:] for text in questions}) > 60
    assert not any("{" in text for text in questions)
    assert general_requests().questions == questions != general_requests(1).questions


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
    assert np.array_equal(hidden_states_of(loaded, texts, tmp_path, lambda *now: calls.append(now)), first), (
        "one that was cut"
    )
    assert calls[3:] == [(1, 2), (2, 2)]


def textual(count: int) -> list[TaskRates]:
    """Tasks whose best row can be read off the request: `aaaa` wants the strong one, `zzzz` the cheap one."""
    free = RowRates(0.9, 0.9, 0.0, 0.0)
    none = RowRates(0.02, 0.02, 0.0, 0.0)
    strong, cheap = ("aaaa ", (none, none, free)), ("zzzz ", (free, none, none))
    kinds = [strong if n % 2 else cheap for n in range(count)]
    return [TaskRates(f"t{n}", word * 6 + f"number {n}", rates) for n, (word, rates) in enumerate(kinds)]


def test_what_the_text_says_is_learned_and_decided_by(folder: Path, tmp_path: Path) -> None:
    loaded = backbone.load_backbone(folder, device="cpu")
    recipe = WarmStartSettings(SEATS, ValueSettings(turns=2), l2=1e-4, long_stories=0, folds=3)
    result = WarmStart(recipe, loaded, tmp_path).run(textual(16), "synthetic", lambda _: None)
    assert "learned, held out" in result.report
    scored = dict(result.checkpoint.meta.training.report)
    assert scored["learned, held out: solved"] > 0.8
    assert scored["random: solved"] < 0.4
    pool = tuple(Member(name=f"my-{one.row}", provider="local", model="m", slot=one.row) for one in SEATS)  # type: ignore[arg-type]
    trinity = Trinity(result.checkpoint, loaded, pool, CoordinatorSettings())
    right = 0
    for task in textual(16)[:8]:
        opened = Opened(version="1", repo="/r", pool=pool)
        events = [opened, *MatrixSessionWriter(SEATS, random.Random(task.task)).failing(task, ())]
        found = asyncio.run(trinity.decide(events))
        assert isinstance(found, Assigned)
        assert found.role == "worker"
        right += found.agent == ("my-strong" if "aaaa" in task.prompt else "my-cheap")
    assert right >= 7


@pytest.mark.parametrize("text", ["cheap", "=a", "cheap=", "cheap=a*", "cheap=a*x"])
def test_a_row_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="write ROW=AGENT"):
        parse_head_row(text)
