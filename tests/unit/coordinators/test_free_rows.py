"""With a checkpoint of the papers' head the slots of the cascade exclude nobody."""

import asyncio
from pathlib import Path

from fugu_cli.coordinators import CoordinatorSettings, action_space, backbone
from fugu_cli.coordinators.trinity import Trinity
from fugu_cli.session.events import Assigned
from fugu_cli.session.state import SessionState
from tests.facts import POOL, assigned, checked, ran, replied, write
from tests.unit.coordinators import tiny
from tests.unit.coordinators.test_stopping import BROKEN


def test_a_weaker_agent_may_be_chosen_after_the_strongest_has_failed(tmp_path: Path) -> None:
    call = write("w1")
    events = [
        *BROKEN,
        assigned(1, "strong"),
        replied(1, "strong", "", call),
        *ran(1, call, path="a.py"),
        *checked(1, ok=False),
    ]
    settings = CoordinatorSettings()
    assert action_space.agents_out_for_turn(SessionState(events), settings, POOL)
    folder = tiny.folder(tmp_path / "backbone")
    names = tuple(member.name for member in POOL)
    made = tiny.checkpoint(tiny.meta(folder, rows=names))
    loaded = backbone.load_backbone(folder, device="cpu")
    decision = asyncio.run(
        Trinity(tiny.reader(made, loaded), POOL, settings).decide(SessionState(events))
    )
    assert isinstance(decision, Assigned) and decision.scores is not None
    assert not {name for name, _ in decision.scores.masked} & set(names)
