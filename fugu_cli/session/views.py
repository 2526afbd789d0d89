"""Functions of lists of events, for readers that do not hold a state yet; see state.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fugu_cli.session import costs, verdicts
from fugu_cli.session.checks import *  # noqa: F403
from fugu_cli.session.checks import CheckStatus
from fugu_cli.session.costs import CACHE_WRITE_FACTOR as CACHE_WRITE_FACTOR
from fugu_cli.session.costs import PaidEvent as PaidEvent
from fugu_cli.session.costs import estimate_field as estimate_field
from fugu_cli.session.costs import has_assumed_price as has_assumed_price
from fugu_cli.session.costs import orchestration_usage as orchestration_usage
from fugu_cli.session.costs import paid_for_checking as paid_for_checking
from fugu_cli.session.costs import price as price
from fugu_cli.session.costs import usage as usage
from fugu_cli.session.events import BUDGET as BUDGET
from fugu_cli.session.events import FIND_TOOLS as FIND_TOOLS
from fugu_cli.session.events import (
    Asked,
    Compacted,
    Event,
    Exclusion,
    FileChange,
    FileEffects,
    Finished,
    Member,
    Merged,
    Opened,
    ToolRan,
)
from fugu_cli.session.open_work import *  # noqa: F403
from fugu_cli.session.open_work import RecordedJob, TodoItem, UndoHistory
from fugu_cli.session.outcome import *  # noqa: F403
from fugu_cli.session.outcome import TestOutcome, TestRun
from fugu_cli.session.recognized_tests import *  # noqa: F403
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.state import state_of
from fugu_cli.session.turns import *  # noqa: F403
from fugu_cli.session.turns import Turn, Verdict
from fugu_cli.session.verdicts import END_WORDS as END_WORDS
from fugu_cli.session.verdicts import STOPPED_BY as STOPPED_BY
from fugu_cli.session.verdicts import UNREACHABLE_HINT as UNREACHABLE_HINT
from fugu_cli.session.verdicts import EndLine as EndLine
from fugu_cli.session.verdicts import suggested_role as suggested_role
from fugu_cli.session.workflows import *  # noqa: F403

Events = Sequence[Event]


def _request(events: Events) -> RequestState:
    return state_of(events).request


def asked(events: Events) -> Asked | None:
    return _request(events).asked


def turns(events: Events) -> tuple[Turn, ...]:
    return _request(events).turns


def every_turn(events: Events) -> tuple[Turn, ...]:
    return _request(events).every_turn


def open_subtasks(events: Events) -> tuple[Turn, ...]:
    return _request(events).open_subtasks


def failed_agents(events: Events) -> dict[str, Exclusion]:
    return _request(events).failed_agents


def finished(events: Events) -> Finished | None:
    return _request(events).finished


def tests(events: Events) -> TestRun | None:
    return _request(events).tests


def first_tests(events: Events) -> TestRun | None:
    return _request(events).first_tests


def regressions(events: Events) -> tuple[str, ...]:
    return _request(events).regressions


def has_regressions(events: Events) -> bool:
    return _request(events).has_regressions


def test_outcome(ran: ToolRan, events: Events) -> TestOutcome:
    return _request(events).test_outcome(ran)


def answer(events: Events) -> str:
    return _request(events).answer


def changes(events: Events) -> dict[str, FileChange]:
    return _request(events).changes


def file_effects(events: Events) -> FileEffects:
    return _request(events).file_effects


def checks(events: Events) -> tuple[CheckStatus, ...]:
    return _request(events).checks


def unmet_checks(events: Events) -> tuple[CheckStatus, ...]:
    return _request(events).unmet_checks


def acceptance_blocker(events: Events) -> str:
    return _request(events).acceptance_blocker


def has_worker_answer(events: Events) -> bool:
    return _request(events).has_worker_answer


def merges(events: Events) -> tuple[Merged, ...]:
    return _request(events).merges


def opened(events: Events) -> Opened | None:
    return state_of(events).opened


def served(events: Events) -> bool:
    return state_of(events).served


def pool(events: Events) -> dict[str, Member]:
    return dict(state_of(events).pool)


def todo(events: Events) -> tuple[TodoItem, ...]:
    return state_of(events).todo


def jobs(events: Events) -> dict[str, RecordedJob]:
    return dict(state_of(events).jobs)


def newest_compaction(events: Events) -> Compacted | None:
    return state_of(events).newest_compaction


def undo_history(events: Events) -> UndoHistory:
    return state_of(events).undo_history


def request(events: Events) -> Events:
    return _request(events).events


def requests(events: Events) -> list[Events]:
    return [request.events for request in state_of(events).requests]


def turn_of(events: Events, number: int) -> Turn | None:
    return _request(events).turn(number)


def events_of_turn(events: Events, number: int) -> Events:
    return state_of(events).of_turn(number).events


def verdict(events: Events, turn: Turn) -> Verdict | None:
    return _request(events).verdict(turn)


def after_compaction(events: Events) -> tuple[str, Events]:
    newest = newest_compaction(events)
    summary = newest.summary if newest is not None else ""
    return summary, state_of(events).after_compaction


def cost(events: Events, members: Mapping[str, Member] | None = None) -> float:
    return costs.cost(events, pool(events) if members is None else members)


def unpriced(events: Events, members: Mapping[str, Member] | None = None) -> tuple[str, ...]:
    return costs.unpriced(events, pool(events) if members is None else members)


def estimated_cost(events: Events, members: Mapping[str, Member] | None = None) -> float:
    return costs.estimated_cost(events, pool(events) if members is None else members)


def is_estimated(events: Events, members: Mapping[str, Member] | None = None) -> bool:
    return costs.is_estimated(events, pool(events) if members is None else members)


def end_line(events: Events, end: Finished | None = None) -> EndLine:
    return verdicts.end_line(_request(events), end)
