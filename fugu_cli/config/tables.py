"""The tables that some keys of `.fugurc` take instead of a number, and what all of its models have in common.

Under `Config`, in `__init__.py`. Each key's description is its line in the pages of `fugu help`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Tag

from fugu_cli.events import Price

Named = TypeVar("Named", Path, str)


def _in_a_known_home(path: Named) -> Named:
    try:
        Path(path).expanduser()
    except RuntimeError as error:
        raise ValueError(f"there is no user {Path(path).parts[0][1:]} here") from error
    return path


Place = Annotated[Path, AfterValidator(_in_a_known_home)]
"""A path; one that begins with `~NAME` is meant from the home of a user that there is."""
PlaceOrId = Annotated[str, AfterValidator(_in_a_known_home)]
"""The same, or a name on a hub."""


class Settings(BaseModel):
    """Frozen, closed: an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True)


class Money(Settings):
    """The table `max_budget_usd`: USD at most, each kept before a call is made."""

    request: float | None = Field(default=None, gt=0)
    """for one request"""
    session: float | None = Field(default=None, gt=0)
    """for a session"""
    day: float | None = Field(default=None, gt=0)
    """for a day on this machine, all sessions together"""
    project: float | None = Field(default=None, gt=0)
    """for everything ever done in this folder"""


class TimeLimit(Settings):
    """The table `time_limit`. Seconds."""

    request: float | None = Field(default=None, gt=0)
    """for one request"""
    wait: float | None = Field(default=None, ge=0)
    """that a request waits when no agent is available; 180, where a server says how long, when left out"""


class Phases(Settings):
    """The table `timeout` of an agent. Seconds."""

    connect: float | None = Field(default=None, gt=0)
    """for the connection"""
    first: float | None = Field(default=None, gt=0)
    """to the first sign of a reply"""
    between: float | None = Field(default=None, gt=0)
    """between two pieces of it"""
    total: float | None = Field(default=None, gt=0)
    """for the whole call"""


def _sendable(headers: dict[str, str]) -> dict[str, str]:
    for name, value in headers.items():
        if not HEADER.fullmatch(name) or not (value.isascii() and (value.isprintable() or not value)):
            raise ValueError(f"{name!r} is no header: names are letters, digits and dashes, values printable ASCII")
    return headers


def _costing(price: Price) -> Price:
    if min(price.input, price.cached or 0.0, price.output) < 0:
        raise ValueError("must not be negative")
    missing = [name for name in ("input", "output") if name not in price.model_fields_set]
    if missing:
        raise ValueError(f"says no {' and no '.join(missing)}: give both, 0 where it is free")
    return price


HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
Headers = Annotated[dict[str, str], AfterValidator(_sendable)]
Rates = Annotated[Price, AfterValidator(_costing)]


def form(value: object) -> str:
    return "table" if isinstance(value, dict | BaseModel) else "number"


Positive = Annotated[float, Field(gt=0), Tag("number")]
"""A number alone stands for the table's commonest key."""

FORMS = ("number", "table")
"""The two ways, as they stand in the place of a fault."""
