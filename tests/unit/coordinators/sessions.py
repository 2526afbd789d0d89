"""The sessions of `sessions.toml` as facts of the log, and what is right in each."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, get_args

from fugu_cli.coordinators import CoordinatorSettings, Decision
from fugu_cli.messages import Call, Media
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Event,
    Failed,
    Finished,
    Interrupted,
    Member,
    Opened,
    Permitted,
    Price,
    Role,
)
from tests.facts import asked, assigned, checked, ran, replied, rolled_back, write

DATA = Path(__file__).parent / "sessions.toml"
PICTURE = Media(name="shot.png", type="image/png", sha="a" * 64, size=1, width=1, height=1)
DEPLOY = Call.make("d", "bash", command="make deploy")


@dataclass(frozen=True)
class Session:
    """One of them. `next`, `never`: as they stand in the file."""

    name: str
    pool: tuple[Member, ...]
    events: tuple[Event, ...]
    next: tuple[str, ...]
    never: tuple[str, ...] = ()
    known: Mapping[str, str] = field(default_factory=dict)
    settings: CoordinatorSettings = field(default_factory=CoordinatorSettings)

    def is_right(self, decision: Decision) -> bool:
        return any(_fits(decision, one) for one in self.next)

    def is_forbidden(self, decision: Decision) -> bool:
        """Also, where the request is over, whatever is no end."""
        over = all(one.startswith("end ") for one in self.next)
        return any(_fits(decision, one) for one in self.never) or (
            over and not self.is_right(decision)
        )


def shown(decision: Decision) -> str:
    """As `next` says it."""
    match decision:
        case Assigned():
            return f"{decision.agent} {decision.role}"
        case Finished():
            return f"end {decision.reason}"
        case _:
            raise AssertionError(f"{decision} is no decision over one turn")


def _fits(decision: Decision, wanted: str) -> bool:
    (names, role), (name, does) = wanted.split(), shown(decision).split()
    known = names.split("/") if names != "any" else [name] * (name != "end")
    return name in known and role in (does, "any")


def sessions() -> list[Session]:
    """All of them, in the file's order."""
    data = tomllib.loads(DATA.read_text(encoding="utf-8"))
    pools = {
        name: tuple(_member(*item) for item in pool.items()) for name, pool in data["pools"].items()
    }
    return [_session(one, pools[one["pool"]]) for one in data["session"]]


def _member(name: str, told: Sequence[Any]) -> Member:
    vendor, slot, cost, *more = told
    assert set(more) <= {"needs_tests", "vision"}, more
    return Member(
        name=name,
        provider="local" if vendor == "alibaba" else "openai",
        model=name,
        vendor=vendor,
        slot=slot,
        price=Price(input=cost, output=cost),
        needs_tests="needs_tests" in more,
        vision="vision" in more,
    )


def _session(told: dict[str, Any], pool: tuple[Member, ...]) -> Session:
    kept = told.keys() - {
        "name",
        "pool",
        "facts",
        "next",
        "never",
        "known",
        "turns",
        "opt_out",
        "verify_answers",
    }
    assert not kept, f"{told['name']}: {kept}"
    return Session(
        name=told["name"],
        pool=pool,
        events=_events(told["facts"], pool),
        next=tuple(told["next"]),
        never=tuple(told.get("never", ())),
        known=told.get("known", {}),
        settings=CoordinatorSettings(
            turns=told.get("turns", 5),
            opt_out=frozenset(told.get("opt_out", ())),
            verify_answers=told.get("verify_answers", False),
        ),
    )


def _events(facts: Sequence[str], pool: tuple[Member, ...]) -> tuple[Event, ...]:
    opened = Opened(version="1", repo="/repo", pool=pool)
    events: list[Event] = [opened]
    turn = 0
    for fact in facts:
        if fact.startswith("asks"):
            turn = 0
            events.append(_request(fact))
        elif fact in ("tests pass", "tests fail"):
            place = len(events)  # tells the calls of one turn apart
            events += checked(turn, ok=fact == "tests pass", id=f"e{place}.")
        elif fact.startswith("ends: "):
            events.append(Finished(reason=fact.removeprefix("ends: ")))  # type: ignore[arg-type]
        elif fact == "is opened again":
            events.append(opened)
        else:
            turn += 1
            events += _turn(fact, turn, {member.name for member in pool})
    return tuple(events)


def _request(fact: str) -> Asked:
    how, _, text = fact.partition(": ")
    found = asked(text, judged=how == "asks until tests pass")
    assert how in ("asks", "asks until tests pass", "asks with a picture"), fact
    return found.model_copy(update={"media": (PICTURE,)}) if "picture" in how else found


def _turn(fact: str, turn: int, names: set[str]) -> list[Event]:
    """`NAME does[ as ROLE][: TEXT]`."""
    found = re.fullmatch(r"(\S+) ([a-z ]+?)(?: as (\w+))?(?:: (.*))?", fact, re.DOTALL)
    assert found and found[1] in names and found[2] in TURNS, fact
    name, does, role, text = found[1], found[2], found[3], found[4] or ""
    usual: Role = {"judges": "verifier", "revises": "verifier", "thinks": "thinker"}.get(
        does, "worker"
    )  # type: ignore[assignment]
    assert role is None or role in get_args(Role), fact
    return [assigned(turn, name, role or usual), *TURNS[does](turn, name, text)]  # type: ignore[arg-type]


def _wrote(turn: int, name: str, *, ok: bool = True) -> list[Event]:
    call = write(f"w{turn}", f"a{turn}.py")
    path = f"a{turn}.py" if ok else ""
    return [
        replied(turn, name, "", call),
        *ran(turn, call, "ok" if ok else "no match", ok=ok, path=path),
    ]


def _says(turn: int, name: str, text: str, stop: str = "end") -> list[Event]:
    return [replied(turn, name, text).model_copy(update={"stop": stop})]


def _broke(turn: int, name: str, text: str) -> list[Event]:
    return [Failed(turn=turn, what=name, kind=text, message="no reply")]


def _denied(turn: int, name: str, text: str) -> list[Event]:
    refused = Permitted(
        turn=turn, call=DEPLOY, allowed=False, by="headless", reason="it runs something"
    )
    return [replied(turn, name, "", DEPLOY), refused, replied(turn, name, text or "I may not.")]


TURNS: Mapping[str, Callable[[int, str, str], list[Event]]] = {
    "works": lambda turn, name, text: [
        *_wrote(turn, name),
        *_says(turn, name, text or "I changed it."),
    ],
    "answers": _says,
    "thinks": _says,
    "judges": _says,
    "revises": lambda turn, name, text: _says(turn, name, f"REVISE: {text}"),
    "edits in vain": lambda turn, name, text: [
        *_wrote(turn, name, ok=False),
        *_says(turn, name, "I changed it."),
    ],
    "is cut": lambda turn, name, text: _wrote(turn, name),
    "stops short": lambda turn, name, text: _says(turn, name, text, "length"),
    "refuses": lambda turn, name, text: _says(turn, name, text, "refusal"),
    "fails": _broke,
    "breaks off": lambda turn, name, text: [*_wrote(turn, name), *_broke(turn, name, text)],
    "is interrupted": lambda turn, name, text: [Interrupted(turn=turn)],
    "is rolled back": lambda turn, name, text: [
        *_wrote(turn, name),
        *checked(turn, ok=False),
        rolled_back(turn),
    ],
    "is denied": _denied,
    "gives up": lambda turn, name, text: _says(turn, name, f"UNABLE: {text}"),
    "is denied and gives up": lambda turn, name, text: _denied(turn, name, f"UNABLE: {text}"),
}
