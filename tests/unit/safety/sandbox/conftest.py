"""A world of each kind of sandbox that works here (worlds.py)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from fugu_cli.safety.sandbox.command_sandbox import SandboxSettings
from tests.unit.safety.sandbox import worlds
from tests.unit.safety.sandbox.worlds import KINDS, Unavailable, World

Make = Callable[[SandboxSettings], World]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make(kind: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Make]:
    """Builds the world with these rules."""
    monkeypatch.setenv(
        "HOME", ""
    )  # it leads into the world, and is put back by pytest where a test changes it
    try:
        found = worlds.working(kind)
    except Unavailable as why:
        pytest.skip(str(why))
    with ExitStack() as held:
        yield lambda rules: held.enter_context(worlds.world(found, rules))


@pytest.fixture
def world(make: Make) -> World:
    return make(SandboxSettings())
