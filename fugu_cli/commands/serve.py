"""`fugu serve`: the pool behind one endpoint, until it is told to stop."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import Any

from fugu_cli.commands.flags import ServeFlags
from fugu_cli.errors import UsageError
from fugu_cli.serve import places


def serve(flags: ServeFlags) -> int:
    """Listens and answers. Returns 0 after a stop that was asked for. Raises FuguError for what cannot begin."""
    if not all(map(math.isfinite, (flags.max_request_mb, flags.request_timeout, flags.grace))):
        raise UsageError("limits must be finite numbers", hint="`fugu serve --help` lists them")
    token = os.environ.get(flags.token_env, "").strip() or None
    place = places.Place(flags.host, flags.port, token, flags.grace)
    bounds = places.Bounds(round(flags.max_request_mb * 1024 * 1024), flags.request_timeout, flags.max_concurrent)
    places.check(place, bounds, flags.token_env)
    import asyncio

    from fugu_cli import serve_wiring, signals
    from fugu_cli.commands.embedded import check_embedded
    from fugu_cli.commands.here import here, say

    loaded = here(_settings(flags))
    for note in check_embedded(loaded.config, os.environ):
        say(note)

    async def served() -> int:
        code = await serve_wiring.serve(loaded, place, bounds, say)
        signals.decided(asyncio.get_running_loop(), code)
        return code

    return asyncio.run(served())


def _settings(flags: ServeFlags) -> Mapping[str, Any]:
    said: dict[str, Any] = {
        "coordinator": f"single:{flags.agent}" if flags.agent else flags.coordinator,
        "opt_out": flags.opt_out or None,
        "max_budget_usd": flags.max_budget_usd,
        "max_turns": flags.max_turns,
    }
    return {key: value for key, value in said.items() if value is not None}
