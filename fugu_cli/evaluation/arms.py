"""What is compared: the names of arms, as they are written on a command line, for the pool at hand.

An arm is a coordinator over the whole pool. Words without an agent mean every agent (`single`, `one-pass`,
`retry-same`) or the strongest one (`self-reflection`, `prompted`). Knows names only; wiring builds what they mean.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from fugu_cli.coordinators import slots
from fugu_cli.errors import UsageError
from fugu_cli.events import Member

RULES = ("trinity", "conductor", "cascade", "random", "mixture-of-agents", "panel-judge-merge")
EACH = ("one-pass", "single", "retry-same")
ALL = (*RULES[:2], *EACH[:2], "random", "self-reflection", *RULES[4:], "prompted", "cascade", "retry-same")
"""Every arm there is, in the order of the report."""
DEFAULT = ("trinity", "single", "random", "cascade")


def expand(words: Sequence[str], members: Sequence[Member], opted_out: Collection[str] = ()) -> tuple[str, ...]:
    """The arms that `words` name, each once, in their order; `all` names every one. `opted_out`: agents that the user
    keeps out, which are none of the `members`. Raises UsageError."""
    found: list[str] = []
    names = [member.name for member in members]
    for word in (one for given in words for one in (ALL if given == "all" else (given,))):
        kind, _, name = word.partition(":")
        if kind not in ALL or (name and kind in RULES):
            raise UsageError(f"there is no arm {word!r}", hint=f"arms are {', '.join(ALL)}, or all")
        if name in opted_out:
            raise UsageError(f"{word!r} names an agent that is opted out", hint=f"take {name} out of opt_out")
        if name and name not in names:
            raise UsageError(f"{word!r} names no agent of the pool", hint=f"the pool has {', '.join(names)}")
        if name or kind in RULES:
            found.append(word)
        elif kind in EACH:
            found += [f"{kind}:{one}" for one in names]
        else:
            found.append(f"{kind}:{slots.by_strength(members)[-1].name}")
    return tuple(dict.fromkeys(found))


def place(arm: str) -> tuple[int, str]:
    """Where an arm stands in a report: by its kind, then by its name."""
    kind = arm.partition(":")[0]
    return ALL.index(kind) if kind in ALL else len(ALL), arm
