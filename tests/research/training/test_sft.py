"""The warm start from end to end, on a tiny backbone: what depends on the text is learned, saved
and decided by.
"""

import asyncio
import random
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import CoordinatorSettings, action_space, backbone
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.trinity import Trinity
from fugu_cli.errors import ConfigError
from fugu_cli.session.events import Assigned, Member, Opened
from fugu_cli.session.state import SessionState
from fugu_cli.training.pass_matrix import (
    HeadRow,
    RowRates,
    TaskRates,
    ValueSettings,
    row_values,
    softmax,
)
from fugu_cli.training.search import HiddenStates
from fugu_cli.training.sft import (
    DecisionExample,
    DefaultPolicy,
    WarmStart,
    WarmStartSettings,
    matrix_examples,
    parse_head_row,
    session_after,
)
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


def examples(count: int = 4) -> list[DecisionExample]:
    return list(matrix_examples(TASK, SEATS, ValueSettings(), count, random.Random(3)))


def test_one_task_is_too_few_to_tell_what_was_learned(folder: Path, tmp_path: Path) -> None:
    loaded = backbone.load_backbone(folder, cache=tmp_path / "cache", device="cpu")
    states = HiddenStates(loaded, tmp_path, lambda _: None)
    with pytest.raises(ConfigError, match="1 tasks are too few"):
        WarmStart(WarmStartSettings(SEATS), loaded, states).run([TASK], "a table", lambda _: None)


def test_an_example_leads_to_what_the_loop_would_ask_for_next() -> None:
    for example in examples():
        assert sum(example.rows) == pytest.approx(1)
        run = SessionState(example.events).request.tests
        turns = SessionState(example.events).request.turns
        assert (example.role == "verifier") == (bool(turns) and (run is None or run.ok))
        assert (
            action_space.request_end(SessionState(example.events), turns=9, verify_answers=False)
            is None
        )


def test_failures_aim_at_the_values_of_their_state() -> None:
    events = session_after(TASK, SEATS, (1, 0))
    assert [turn.assigned.agent for turn in SessionState(events).request.turns] == [
        "middle",
        "cheap",
    ]
    assert [check.suite for check in SessionState(events).request.unmet_checks] == [True]
    wanted = softmax(row_values(TASK, (0,), ValueSettings()), ValueSettings().tau)
    failed_once = session_after(TASK, SEATS, (0,))
    assert [example.rows for example in examples() if example.events == failed_once] == [wanted]


def test_nobody_is_taught_to_verify_own_work() -> None:
    rows = [seat.row for seat in SEATS]
    for example in examples():
        if example.role == "verifier":
            author = SessionState(example.events).request.turns[-1].assigned.agent
            assert example.rows[rows.index(author)] == 0


def test_examples_repeat_with_their_seed() -> None:
    assert examples() == examples()


def test_states_are_read_once_and_kept(folder: Path, tmp_path: Path) -> None:
    loaded = backbone.load_backbone(folder, device="cpu")
    texts = ["user: a", "user: b", "user: a"]
    first = HiddenStates(loaded, tmp_path, lambda _: None)(texts)
    kept = HiddenStates(loaded, tmp_path, lambda _: None)
    loaded.read = lambda *_: pytest.fail("was read before")  # type: ignore[method-assign]
    assert np.array_equal(first, kept(texts))
    assert np.array_equal(first[0], first[2])
    del loaded.read
    (file,) = tmp_path.glob("states-*.npz")
    file.write_bytes(file.read_bytes()[:-30])
    cut = HiddenStates(loaded, tmp_path, lambda _: None)
    assert np.array_equal(cut(texts), first)


def test_texts_that_are_asked_for_singly_do_not_write_the_store_each_time(
    folder: Path, tmp_path: Path
) -> None:
    states = HiddenStates(backbone.load_backbone(folder, device="cpu"), tmp_path, lambda _: None)
    for number in range(5):
        states([f"user: {number}"])
    assert not list(tmp_path.glob("states-*.npz"))
    states.save()
    assert len(list(tmp_path.glob("states-*.npz"))) == 1


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
    recipe = WarmStartSettings(SEATS, ValueSettings(turns=2), l2=1e-4, longer_histories=0, folds=3)
    states = HiddenStates(loaded, tmp_path, lambda _: None)
    result = WarmStart(recipe, loaded, states).run(textual(16), "made", lambda _: None)
    assert "learned, held out" in result.report
    scored = dict(result.checkpoint.meta.training.report)
    assert scored["learned, held out: solved"] > 0.8
    assert scored["random: solved"] < 0.4
    pool = tuple(
        Member(name=seat.row, provider="local", model="m", slot=seat.row) for seat in SEATS
    )  # type: ignore[arg-type]
    trinity = Trinity(tiny.reader(result.checkpoint, loaded), pool, CoordinatorSettings())
    right = 0
    for task in textual(16)[:8]:
        opened = Opened(version="1", repo="/r", pool=pool)
        events = [opened, *session_after(task, SEATS, ())]
        found = asyncio.run(trinity.decide(SessionState(events)))
        assert isinstance(found, Assigned)
        assert found.role == "worker"
        right += found.agent == ("strong" if "aaaa" in task.prompt else "cheap")
    assert right >= 7


def test_a_head_that_reads_the_request_is_recommended_over_a_default_that_does_not(
    folder: Path, tmp_path: Path
) -> None:
    loaded = backbone.load_backbone(folder, device="cpu")
    recipe = WarmStartSettings(SEATS, ValueSettings(turns=2), l2=1e-4, longer_histories=0, folds=3)
    pool = tuple(
        Member(name=seat.row, provider="openai", model="m", slot=seat.row)  # type: ignore[arg-type]
        for seat in SEATS
    )
    default = DefaultPolicy(Cascade(pool, CoordinatorSettings()), pool)
    states = HiddenStates(loaded, tmp_path, lambda _: None)
    told: list[str] = []
    report = WarmStart(recipe, loaded, states, default).run(textual(16), "made", told.append).report
    assert "use the checkpoint: it is surely better than the default" in report
    assert len(told) > 4
    few = WarmStart(recipe, loaded, states, default).run(textual(6), "made", told.append).report
    assert "keep the default: fewer than 8 held-out tasks tell nothing" in few


@pytest.mark.parametrize("text", ["cheap", "=a", "cheap=", "cheap=a*", "cheap=a*x"])
def test_a_row_that_cannot_be_read_is_named(text: str) -> None:
    with pytest.raises(ConfigError, match="write ROW=AGENT"):
        parse_head_row(text)
