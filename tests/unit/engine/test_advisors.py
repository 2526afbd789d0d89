"""Who may advise whom, and that an agent's tools stay the same."""

from dataclasses import replace
from pathlib import Path

import pytest

from fugu_cli.engine.advisors import advisors_of
from fugu_cli.engine.environment import Environment
from fugu_cli.safety import policy
from fugu_cli.safety.path_rules import Denials
from fugu_cli.session.events import (
    Asked,
    Event,
    Finished,
    Member,
    Opened,
    OutcomeCount,
    OutcomesKnown,
)
from fugu_cli.session.state import SessionState
from fugu_cli.tools.workspace import Workspace
from fugu_cli.wiring import build_toolbox
from tests.reacting import never


def member(name: str, skill: float, *, protocol: str = "native") -> Member:
    return Member(
        name=name, provider="openai", model=name, slot="middle", skill=skill, protocol=protocol
    )


WEAK, STRONG, STRONGEST = member("weak", -3), member("strong", 3), member("strongest", 4.5)
SMALL = member("small", -4, protocol="text")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    return Environment(
        build_toolbox(advised=True),
        Workspace(tmp_path, tmp_path / "store"),
        policy.Rules(),
        never,
        advisor="auto",
    )


def session(*pool: Member, later: tuple[Event, ...] = ()) -> SessionState:
    opened = Opened(version="0", repo="/r", pool=pool)
    return SessionState([opened, Asked(text="do it"), *later])


@pytest.mark.parametrize(
    ("asker", "changes", "expected"),
    [
        ("weak", {}, ("strongest", "strong")),
        ("strongest", {}, ()),
        ("small", {}, ()),
        ("weak", {"advisor": "off"}, ()),
        ("weak", {"advisor": "strong"}, ("strong",)),
        ("strongest", {"advisor": "strong"}, ("strong",)),
        ("strong", {"advisor": "strong"}, ()),
        ("weak", {"never_advise": frozenset({"strongest"})}, ("strong",)),
        ("weak", {"never_advise": frozenset({"strong"}), "advisor": "strong"}, ()),
        ("nobody", {}, ()),
    ],
)
def test_advice_comes_from_the_named_agent_or_from_those_that_are_more_often_right(
    environment: Environment, asker: str, changes: dict[str, object], expected: tuple[str, ...]
) -> None:
    state = session(SMALL, WEAK, STRONG, STRONGEST)
    assert advisors_of(asker, state, replace(environment, **changes)) == expected


def test_an_agent_that_files_are_kept_from_advises_nobody(
    environment: Environment, tmp_path: Path
) -> None:
    kept = replace(environment, denials=Denials({"secrets/**": ("strongest",)}, tmp_path))
    assert advisors_of("weak", session(WEAK, STRONG, STRONGEST), kept) == ("strong",)
    assert advisors_of("weak", session(WEAK), environment) == ()


def test_who_may_advise_stays_as_the_first_request_found_it(environment: Environment) -> None:
    known = OutcomesKnown(
        counts=(
            OutcomeCount(agent="weak", kind="bug_fix", successes=60, trials=60),
            OutcomeCount(agent="strong", kind="bug_fix", successes=0, trials=60),
        )
    )
    later = (Finished(reason="answered"), Asked(text="and now?"), known)
    assert advisors_of("weak", session(WEAK, STRONG, later=later), environment) == ("strong",)
    assert advisors_of("weak", session(WEAK, STRONG, later=(known,)), environment) == ()
