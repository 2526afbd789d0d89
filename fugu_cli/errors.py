"""The world's failures: one small tree. Each says whether a retry can help, and the exit code it
leads to.

FuguError                    code  retry ├── UsageError                 1    no    the command line
    or the surroundings are wrong │   └── ConfigError            1    no    a .fugurc, a key, a pool
    that cannot be used ├── InfrastructureError        2    no    something outside failed and stays
    failed │   ├── ModelFileError         2    no    a model's file is missing, cut short, or has a
    wrong hash │   ├── StorageError           2    no    the disk is full, the log cannot be written
    │   ├── SessionBusy            2    no    another process writes this session │   └── AgentError
    2    -     an agent did not answer; `retry` says whether it may yet └── CoordinatorUnavailable
    -    no    no torch, no backbone, a checkpoint that does not fit: success rates decide

A model's own mistakes (a tool call that does not parse, an edit that does not match) are values,
sent back to it. Our own bugs are not caught. A message says what happened, why, and what to do
next; the last part goes into `hint`.
"""

from __future__ import annotations

import shlex
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fugu_cli.messages import Usage


class FuguError(Exception):
    """Anything the world does to us. `str(error)` is the message for people, `hint` what they can
    do about it.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class UsageError(FuguError):
    """The request itself cannot be carried out as it was given."""

    exit_code = 1


class ConfigError(UsageError):
    """A configuration that cannot be used; the message names file, line and key."""


class InfrastructureError(FuguError):
    """A failure outside fugu that ends a request."""


class ModelFileError(InfrastructureError):
    """A model's file is missing, incomplete, or not the one the manifest describes."""


class StorageError(InfrastructureError):
    """Writing or reading the user's data failed (no space, no permission, a log that is not
    one).
    """


class SessionBusy(InfrastructureError):
    """A second process asked to write a session that already has a writer."""


class AgentError(InfrastructureError):
    """An agent gave no usable reply.

    `kind` is one of: refused (401, or a 403 that names the key or the account), absent (404: no
    such model or address), invalid (other 4xx), limited (429), overloaded (5xx), network, timeout,
    protocol (an answer that does not follow the protocol), credit (402 or an exhausted quota),
    unavailable (not asked, because its key was refused a short time ago).

    `retry` says whether the same request may succeed later, `after` how many seconds the server
    asks to wait, and `tries` how often a retry is worth it at most, if that is known. `too_long`: a
    shorter prompt may succeed. `status` is the HTTP status. `usage` is what the provider reported
    as used nevertheless, None if it reported nothing. `unreachable` names a host to which no
    connection could be made, and the reason, as in "api.example (its name is not found)": no agent
    at that host can answer. It is "" for other failures.
    """

    tries: int | None = None
    unreachable: str = ""
    too_long: bool = False
    prompt_was_sent: bool = False
    """The server had the request, sent no refusal, and fell silent."""
    status: int | None = None
    usage: Usage | None = None

    def __init__(
        self,
        message: str,
        *,
        kind: str,
        retry: bool = False,
        after: float | None = None,
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.kind = kind
        self.retry = retry
        self.after = after


def note_usage(error: BaseException, usage: Usage) -> None:
    """Let a cancelled call say what it had used, for whoever records the interruption."""
    error.usage = usage  # type: ignore[attr-defined]


def noted_usage(error: BaseException) -> Usage | None:
    """Return the usage of a failed or cancelled call, None if unknown."""
    return getattr(error, "usage", None)


class CoordinatorUnavailable(FuguError):
    """The learned coordinator cannot decide here; the declared rule takes its place and the trace
    says why.
    """


def installing(*packages: str) -> str:
    """Return the command that installs packages where fugu runs. The `pip` on the PATH may belong
    to another Python, and an environment made by uv has none.
    """
    pip = (
        [sys.executable, "-m", "pip", "install"]
        if find_spec("pip")
        else ["uv", "pip", "install", "-p", sys.executable]
    )
    return f"`{shlex.join([*pip, *packages])}`"
