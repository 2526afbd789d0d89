"""What the tests of models that cannot call tools share."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from fugu_cli import policy
from fugu_cli.events import Event, Member
from fugu_cli.loop.environment import Bench, Limits, Step
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import build_toolbox, harness
from tests.reacting import never, repository

Next = Callable[[Sequence[Event], Member], Step]


@pytest.fixture
def next_step(tmp_path: Path) -> Next:
    """What the newest turn of these facts needs next, in a repository of one file."""
    workspace = Workspace(repository(tmp_path / "repo", {"a.py": "pass\n"}), tmp_path / "store", test_command="pytest")
    bench = Bench(build_toolbox(), workspace, policy.Rules(), never, Limits(replies=5))
    return lambda events, member: harness(member).next_step(events, member, bench)
