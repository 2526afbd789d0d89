"""What the tests of models that cannot call tools share."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fugu_cli.engine.environment import Environment, NextStep, RequestLimits
from fugu_cli.safety import policy
from fugu_cli.session.events import Event, Member
from fugu_cli.session.state import SessionState
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import build_harness, build_toolbox
from tests.reacting import never, repository

Next = Callable[[Sequence[Event], Member], NextStep]


@pytest.fixture
def next_step(tmp_path: Path) -> Next:
    """What the newest turn of these facts needs next, in a repository of one file."""
    workspace = Workspace(
        repository(tmp_path / "repo", {"a.py": "pass\n"}), tmp_path / "store", test_command="pytest"
    )
    environment = Environment(
        build_toolbox(), workspace, policy.Rules(trusted=True), never, RequestLimits(replies=5)
    )
    return lambda events, member: build_harness(member).next_step(
        SessionState(events), member, environment
    )
