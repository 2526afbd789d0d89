"""A hundred requests in one process: nothing but the log grows."""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections import Counter
from pathlib import Path

import httpx
import pytest
from pydantic import BaseModel

from fugu_cli import wiring
from fugu_cli.config.loader import load_config
from fugu_cli.ui import headless
from tests.acceptance import loopback
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Says, Use
from tests.acceptance.serve.endpoint import endpoint, says

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="files and processes as /proc shows them"
)
CACHED = "fugu_cli.engine.message_history._Past"
"""What prompts are made of, of the newest 256 earlier requests."""
STATE = {
    f"fugu_cli.session.{name}"
    for name in (
        "checks.CheckFold",
        "outcome.WorkFold",
        "request_state.RequestState",
        "turns.EffectiveFold",
        "turns.Turn",
        "turns.TurnFold",
    )
}
"""What a log knows of each of its requests."""
WARM, ALL = 25, 105
"""Requests after which everything that is kept on purpose is there; and all."""


def counts() -> Counter[str]:
    """Open files, threads, processes, objects of fugu's classes and asyncio's; no facts, for a log
    is made of them.

    Cancelled timers are left out: asyncio drops them once there are a hundred.
    """
    gc.collect()
    objects = [
        one
        for one in gc.get_objects()
        if not (issubclass(type(one), asyncio.Handle) and one.cancelled())
    ]
    found = Counter(
        f"{kind.__module__}.{kind.__qualname__}"
        for kind in map(type, objects)
        if str(kind.__module__).startswith(("fugu_cli", "asyncio", "_asyncio"))
        and not issubclass(kind, BaseModel)
    )
    found["files"] = len(list(Path("/proc/self/fd").iterdir()))
    found["threads"] = threading.active_count()
    found["processes"] = sum(
        len(path.read_text().split()) for path in Path("/proc/self/task").glob("*/children")
    )
    return found


def grown(before: Counter[str], after: Counter[str]) -> dict[str, tuple[int, int]]:
    """What there is more of. What a tenth of the requests left behind is no chance."""
    more = {
        what: (before[what], now)
        for what, now in after.items()
        if now - before[what] > (ALL - WARM) // 10
    }
    return {what: numbers for what, numbers in more.items() if what not in {CACHED, *STATE}}


def test_a_session_of_many_requests_keeps_nothing_but_its_facts(tmp_path: Path) -> None:
    with loopback.running() as server:
        place = Place(tmp_path, server.url)
        place.begin()
        (Path.home() / ".fugurc").write_text(
            f'coordinator = "cascade"\n{Agent("many").entry(server.url)}'
        )
        read = Says("", (Use("read", {"path": "calc.txt"}),))
        server.react("many", lambda asked: Says("42") if asked.results[-1:] else read)
        measured: list[Counter[str]] = []

        async def work() -> None:
            environ = {**os.environ, "LOOPBACK_KEY": loopback.KEY}
            session = wiring.build_session(
                load_config(place.repo, environ), environ, headless.deny_headless
            )
            for number in range(1, ALL + 1):
                await session.ask(f"what is calc.txt? ({number})")
                assert (await session.run()).reason == "answered"
                if number in (WARM, ALL):
                    measured.append(counts())
            await session.close()

        asyncio.run(work())
    assert grown(*measured) == {}


def test_an_endpoint_keeps_nothing_of_its_requests(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("one two"))
    measured: list[Counter[str]] = []
    with place.serving():
        for number in range(1, ALL + 1):
            body = {
                "model": "small",
                "messages": [{"role": "user", "content": "tell"}],
                "stream": number % 2 == 0,
            }
            assert httpx.post(f"{place.url}/v1/chat/completions", json=body).status_code == 200
            if number in (WARM, ALL):
                measured.append(counts())
    assert grown(*measured) == {}


def test_what_grows_would_be_seen() -> None:
    before = counts()
    kept = [asyncio.Event() for _ in range(ALL)]
    assert list(grown(before, counts())) == ["asyncio.locks.Event"]
    assert len(kept) == ALL
