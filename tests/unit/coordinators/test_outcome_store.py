"""The store of outcomes: which sessions count where, what is read again, what is forgotten."""

import json
import os
import time
from pathlib import Path

import pytest

from fugu_cli.coordinators import outcome_store
from fugu_cli.coordinators.outcome_store import CACHE, OTHER_REPOSITORY_SHARE, OutcomeStore
from fugu_cli.session import store
from fugu_cli.session.events import Event, Member, Opened
from fugu_cli.session.log import Log
from tests.facts import asked, assigned, checked, ran, replied, write

AGENT = Member(name="agent", provider="openai", model="model-1", slot="middle")


def session_in(data: Path, root: Path, *, ok: bool = True) -> Path:
    """A session in which the agent's work passed the tests, or did not."""
    path = store.new_path(data, root)
    log = Log.create(path)
    call = write("w1")
    events: list[Event] = [
        Opened(version="1", repo=str(root), pool=(AGENT,)),
        asked(),
        assigned(1, "agent"),
        replied(1, "agent", "", call),
        *ran(1, call, path="a.py"),
        replied(1, "agent", "Done."),
        *checked(1, ok=ok),
    ]
    for event in events:
        log.append(event)
    log.close()
    return path


def trials(data: Path, root: Path, *, trusted: bool = True) -> tuple[float, float]:
    """Successes and trials of the agent as they count in `root`."""
    known = OutcomeStore(data, root, lambda _: trusted).known((AGENT,), ())
    return sum(c.successes for c in known.counts), sum(c.trials for c in known.counts)


@pytest.fixture
def here(tmp_path: Path) -> Path:
    return tmp_path / "here"


def test_all_sessions_of_the_repository_count(tmp_path: Path, here: Path) -> None:
    session_in(tmp_path, here)
    session_in(tmp_path, here, ok=False)
    assert trials(tmp_path, here) == (1.0, 2.0)


def test_outcomes_of_other_repositories_count_less(tmp_path: Path, here: Path) -> None:
    session_in(tmp_path, tmp_path / "elsewhere")
    assert trials(tmp_path, here) == (OTHER_REPOSITORY_SHARE, OTHER_REPOSITORY_SHARE)


def test_a_folder_that_is_not_trusted_counts_for_itself_only(tmp_path: Path, here: Path) -> None:
    session_in(tmp_path, here)
    assert trials(tmp_path, here, trusted=False) == (1.0, 1.0)
    assert trials(tmp_path, tmp_path / "elsewhere", trusted=False) == (0, 0)


def test_a_copy_of_a_session_counts_once(tmp_path: Path, here: Path) -> None:
    store.fork_session(tmp_path, here, session_in(tmp_path, here))
    assert trials(tmp_path, here) == (1.0, 1.0)


def test_what_is_forgotten_counts_no_more_and_new_outcomes_do(tmp_path: Path, here: Path) -> None:
    session_in(tmp_path, here)
    outcomes = OutcomeStore(tmp_path, here, lambda _: True)
    outcomes.forget()
    assert outcomes.known((AGENT,), ()).counts == ()
    session_in(tmp_path, here, ok=False)
    assert trials(tmp_path, here) == (0.0, 1.0)


def test_only_sessions_that_changed_are_read_again(
    tmp_path: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = session_in(tmp_path, here)
    trials(tmp_path, here)
    newer = session_in(tmp_path, here)
    opened: list[Path] = []
    read = outcome_store.log.examine
    monkeypatch.setattr(
        outcome_store.log, "examine", lambda file: (opened.append(file), read(file))[1]
    )
    assert trials(tmp_path, here) == (2.0, 2.0)
    assert opened == [newer]
    os.utime(path, (time.time() + 5, time.time() + 5))
    trials(tmp_path, here)
    assert opened == [newer, path]


def test_a_cache_or_a_log_that_cannot_be_read_costs_nothing_else(
    tmp_path: Path, here: Path
) -> None:
    path = session_in(tmp_path, here)
    session_in(tmp_path, here)
    path.write_text("no log\n", encoding="utf-8")
    (tmp_path / CACHE).write_text("{", encoding="utf-8")
    assert trials(tmp_path, here) == (1.0, 1.0)
    assert json.loads((tmp_path / CACHE).read_text("utf-8"))["sessions"]


def test_a_session_that_was_deleted_counts_no_more(tmp_path: Path, here: Path) -> None:
    path = session_in(tmp_path, here)
    trials(tmp_path, here)
    store.delete_session(tmp_path, path)
    assert trials(tmp_path, here) == (0, 0)
