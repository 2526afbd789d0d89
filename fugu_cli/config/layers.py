"""Settings from several sources laid over one another, and what a source may say that is not trusted. Pure.

Under config/files.py, which reads the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fugu_cli.config import ADDING, MODES, Config, TestsEntry
from fugu_cli.config.tables import Money, TimeLimit

HARMLESS = frozenset({"ask", "deny", "opt_out", "deny_agents", "verify_answers", "seed", "test_timeout"})
"""Keys an untrusted repository may set: they take rights away or cost nothing."""
LOWERED = ("max_turns", "max_budget_usd", "time_limit", "steps_per_turn")
"""Keys an untrusted repository may only lower."""


@dataclass(frozen=True)
class Layer:
    """One source of settings: only `config.model_fields_set` was said there."""

    source: str
    config: Config


def merged(layers: Sequence[Layer]) -> Config:
    """The layers laid over one another, the last on top."""
    values: dict[str, object] = {}
    for layer in layers:
        for key in layer.config.model_fields_set:
            value = getattr(layer.config, key)
            values[key] = _over(values.get(key), value) if key in ADDING else value
    return Config().model_copy(update=values)


def _over(before: object, value: object) -> object:
    """Lists and denials add up; a number or table of limits replaces only what it says."""
    if isinstance(value, tuple):
        return tuple(dict.fromkeys([*(before if isinstance(before, tuple) else ()), *value]))
    if isinstance(value, dict):
        both = dict(before) if isinstance(before, dict) else {}
        return both | {key: tuple(dict.fromkeys([*both.get(key, ()), *names])) for key, names in value.items()}
    if isinstance(before, TestsEntry) and isinstance(value, TestsEntry):
        update = value.model_dump(exclude_unset=True)
        return before.model_copy(update=update | {"until": (*before.until, *value.until)})
    if isinstance(before, Money | TimeLimit):
        given = value.model_dump(exclude_unset=True) if isinstance(value, Money | TimeLimit) else {"request": value}
        return before.model_copy(update=given)
    if isinstance(before, float) and isinstance(value, Money | TimeLimit):
        return value if "request" in value.model_fields_set else value.model_copy(update={"request": before})
    return value


def narrowed(layer: Layer, below: Config) -> tuple[Layer, tuple[str, ...]]:
    """What an untrusted repository's file may say, and the keys that were left out."""
    kept, ignored = {}, []
    for key in sorted(layer.config.model_fields_set):
        value = getattr(layer.config, key)
        if key in HARMLESS or _lowers(key, value, getattr(below, key)):
            kept[key] = value
        else:
            ignored.append(f"{key} (it may only be lowered)" if key in (*LOWERED, "permission_mode") else key)
    return Layer(layer.source, Config().model_copy(update=kept)), tuple(ignored)


def _lowers(key: str, value: float | str, before: float | str | None) -> bool:
    if key == "permission_mode":
        return MODES.index(value) <= MODES.index(before)
    if key not in LOWERED:
        return False
    if key not in ("max_budget_usd", "time_limit"):
        return value <= before  # type: ignore[operator]
    said, held = _limits(value), _limits(before)
    return all(limit <= held.get(name, 0.0 if name == "wait" else limit) for name, limit in said.items())


def _limits(value: object) -> dict[str, float]:
    """Limits by name; a wait that is not lowered to nothing counts as raised."""
    if isinstance(value, Money | TimeLimit):
        return {name: limit for name, limit in value.model_dump(exclude_unset=True).items() if limit is not None}
    return {} if value is None else {"request": float(str(value))}
