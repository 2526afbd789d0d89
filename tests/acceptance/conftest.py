"""One loopback server for all, and a place per test: a repository whose tests fail, a home, no
orphans afterwards.
"""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.driving import Place
from tests.acceptance.loopback import Loopback, running


@pytest.fixture(scope="session")
def server() -> Iterator[Loopback]:
    with running() as loopback:
        yield loopback


@pytest.fixture
def place(server: Loopback, tmp_path: Path) -> Iterator[Place]:
    """Nothing that a run started may outlive it."""
    found = Place(tmp_path, server.url)
    found.begin()
    yield found
    end = time.monotonic() + 5
    while (left := found.left_behind()) and time.monotonic() < end:
        time.sleep(0.05)
    assert left == []
