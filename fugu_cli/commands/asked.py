"""What `fugu run` was asked for: the text as it is, or what a custom command or a named skill makes of it.

Between the words of the command line and the session: a command may name an agent and a tier, unless flags do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from fugu_cli.commands.flags import RunFlags
from fugu_cli.config.files import Loaded
from fugu_cli.config.pool import pool
from fugu_cli.errors import UsageError
from fugu_cli.skills import asking
from fugu_cli.skills.asking import Request


def asked(text: str, flags: RunFlags, loaded: Loaded, environ: Mapping[str, str]) -> tuple[Request, Loaded]:
    """The request, and the configuration it is to run with. Raises UsageError for a command, a skill or an agent that
    is not there."""
    wanted = asking.headless(text, loaded.library)
    changed: dict[str, str] = {}
    if wanted.agent and not (flags.agent or flags.coordinator or flags.script):
        known = [entry.name for entry in pool(loaded.config, environ)]
        if wanted.agent not in known:
            what = f"{text.split()[0]} is for the agent {wanted.agent!r}, which is not in the pool"
            raise UsageError(what, hint=f"the pool has: {', '.join(known)}; --agent NAME takes another")
        changed["coordinator"] = f"single:{wanted.agent}"
    if wanted.tier and flags.tier is None:
        changed["tier"] = wanted.tier
    return wanted, replace(loaded, config=loaded.config.model_copy(update=changed))
