"""What a client chooses for one request beside its words: headers first, then `metadata` of the body. Pure.

    x-fugu-opt-out: name, name      metadata.opt_out          agents that must not see this request
    x-fugu-tier: fugu | ultra       metadata.tier
    x-fugu-max-budget-usd: 0.05     metadata.max_budget_usd   also `budget`
    x-fugu-verify: true | false     metadata.verify           whether a Verifier looks at an answer

Metadata keys may carry a `fugu_` prefix. Values of metadata are text in OpenAI's wire; a list or a number is taken too.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from pydantic import JsonValue

from fugu_cli.serve.asking import Options, Refused, Tier

NAMES: Mapping[str, tuple[str, ...]] = {
    "opt_out": ("opt_out",),
    "tier": ("tier",),
    "budget": ("max_budget_usd", "budget_usd", "budget"),
    "verify": ("verify",),
}


def read(headers: Mapping[str, str], metadata: Mapping[str, JsonValue]) -> Options:
    """The options of a request. Raises Refused (400) that names what cannot be understood."""
    return Options(
        opt_out=frozenset(_names(_said("opt_out", headers, metadata))),
        tier=_tier(_said("tier", headers, metadata)),
        budget=_money(_said("budget", headers, metadata)),
        verify=_switch(_said("verify", headers, metadata)),
    )


def _said(option: str, headers: Mapping[str, str], metadata: Mapping[str, JsonValue]) -> JsonValue:
    for name in NAMES[option]:
        value = headers.get(f"x-fugu-{name.replace('_', '-')}")
        if value is not None:
            return value
    for name in NAMES[option]:
        for key in (f"fugu_{name}", name):
            if metadata.get(key) is not None:
                return metadata[key]
    return None


def _names(value: JsonValue) -> list[str]:
    if value is None:
        return []
    parts = value if isinstance(value, list) else str(value).split(",")
    return [text for part in parts if (text := str(part).strip())]


def _tier(value: JsonValue) -> Tier | None:
    match value:
        case None | "":
            return None
        case "fugu":
            return "fugu"
        case "ultra":
            return "ultra"
    raise Refused(400, f"the tier {value!r} does not exist: fugu or ultra", code="invalid_tier")


def _money(value: JsonValue) -> float | None:
    if value in (None, ""):
        return None
    try:
        amount = float(str(value))
    except ValueError:
        amount = math.nan
    if not (math.isfinite(amount) and amount > 0):
        raise Refused(400, f"the budget {value!r} is no amount of USD above 0", code="invalid_budget")
    return amount


def _switch(value: JsonValue) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    word = str(value).strip().lower()
    if word in ("true", "1", "yes", "on"):
        return True
    if word in ("false", "0", "no", "off"):
        return False
    raise Refused(400, f"verify is true or false, not {value!r}", code="invalid_verify")
