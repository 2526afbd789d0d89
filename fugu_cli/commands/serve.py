"""`fugu serve`: the pool behind one endpoint, until it is told to stop."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fugu_cli import housing
from fugu_cli.commands.embedded import check_embedded
from fugu_cli.commands.flags import ServeFlags
from fugu_cli.commands.here import here
from fugu_cli.config_files import Loaded
from fugu_cli.errors import UsageError
from fugu_cli.serve import running
from fugu_cli.serve.service import Bounds, Service
from fugu_cli.serve.traces import Traces


def serve(flags: ServeFlags) -> int:
    """Listens and answers. Returns 0 after a stop that was asked for. Raises FuguError for what cannot begin."""
    place = _place(flags, os.environ)
    loaded = here(_settings(flags))
    for note in check_embedded(loaded.config, os.environ):
        _say(note)
    return asyncio.run(_serve(loaded, place, _bounds(flags)))


async def _serve(loaded: Loaded, place: running.Place, bounds: Bounds) -> int:
    with tempfile.TemporaryDirectory(prefix="fugu-serve-") as scratch:
        house = housing.build(loaded, os.environ, Path(scratch))
        service = Service(house, Traces(loaded.config.data), bounds)
        _say(f"models: fugu, fugu-ultra, {', '.join(house.members)}; decided by {house.opened.coordinator}")
        return await running.serve(service, place, _say)


def _place(flags: ServeFlags, environ: Mapping[str, str]) -> running.Place:
    token = environ.get(flags.token_env, "").strip() or None
    place = running.Place(flags.host, flags.port, token, flags.grace)
    running.check(place, flags.token_env)
    return place


def _bounds(flags: ServeFlags) -> Bounds:
    if min(flags.max_request_mb, flags.max_concurrent, flags.request_timeout) <= 0:
        raise UsageError("limits must be above 0", hint="`fugu serve --help` lists them")
    return Bounds(round(flags.max_request_mb * 1024 * 1024), flags.request_timeout, flags.max_concurrent)


def _settings(flags: ServeFlags) -> Mapping[str, Any]:
    said: dict[str, Any] = {
        "coordinator": f"single:{flags.agent}" if flags.agent else flags.coordinator,
        "opt_out": flags.opt_out or None,
        "max_budget_usd": flags.max_budget_usd,
        "max_turns": flags.max_turns,
    }
    return {key: value for key, value in said.items() if value is not None}


def _say(text: str) -> None:
    print(f"fugu: {text}", file=sys.stderr, flush=True)
