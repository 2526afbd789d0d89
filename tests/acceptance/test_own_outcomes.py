"""Outcomes of sessions decide the next ones; a request that was decided stays as it was."""

import json
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.config import Config
from fugu_cli.session import store
from fugu_cli.session.events import Asked, Assigned, Member, Opened, OutcomesKnown, Price
from fugu_cli.session.log import Log
from tests.acceptance.driving import Agent
from tests.facts import assigned, checked, ran, replied, write

PAIR = (
    Agent("first", price="{ input = 1.0, output = 2.0 }"),
    Agent("second", price="{ input = 1.0, output = 2.0 }"),
)
"""Two agents that nothing tells apart."""


def session_of(data: Path, root: Path, agent: str, *, ok: bool) -> None:
    """Keep a session in which the agent's work passed its tests, or did not."""
    member = Member(
        name=agent, provider="openai", model=agent, slot="cheap", price=Price(input=1, output=2)
    )
    journal = Log.create(store.new_path(data, root))
    call = write("w1")
    for event in (
        Opened(version="1", repo=str(root), pool=(member,)),
        Asked(text="fix it", snapshot="tree", test_command="check", until=("check",)),
        assigned(1, agent),
        replied(1, agent, "", call),
        *ran(1, call, path="a.py"),
        replied(1, agent, "Done."),
        *checked(1, ok=ok),
    ):
        journal.append(event)
    journal.close()


def replayed(capsys: pytest.CaptureFixture[str], *more: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert called(["replay", *more, "--coordinator", "trinity", "--json"]) == 0
    made: list[dict[str, object]] = json.loads(capsys.readouterr().out)["decisions"]
    return made


def test_outcomes_decide_what_comes_next_and_change_nothing_that_was_decided(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    monkeypatch.chdir(root)
    data = Config().data
    entries = "".join(agent.entry("http://127.0.0.1:9/v1") for agent in PAIR)
    (Path.home() / ".fugurc").write_text(f'coordinator = "trinity"\n{entries}')
    monkeypatch.setenv("LOOPBACK_KEY", "k")
    members = tuple(
        Member(name=a.name, provider="openai", model=a.name, slot="cheap",
               price=Price(input=1, output=2))
        for a in PAIR
    )  # fmt: skip
    path = store.new_path(data, root)
    journal = Log.create(path)
    for event in (
        Opened(version="1", repo=str(root), pool=members, coordinator="trinity"),
        Asked(text="fix it", snapshot="tree", test_command="check", until=("check",)),
        OutcomesKnown(),
        Assigned(turn=1, agent="first", role="worker", by="trinity"),
    ):
        journal.append(event)
    journal.close()
    assert [row["same_agent"] for row in replayed(capsys, path.stem)] == [True]
    for _ in range(8):
        session_of(data, root, "first", ok=False)
        session_of(data, root, "second", ok=True)
    assert [row["same_agent"] for row in replayed(capsys, path.stem)] == [True]
    assert [row["same_agent"] for row in replayed(capsys, path.stem, "--skills", "now")] == [False]
    capsys.readouterr()
    assert called(["route", "fix it", "--json"]) == 0
    decision = json.loads(capsys.readouterr().out)
    assert decision["agent"] == "second"
    assert [round(row["own_outcomes"]) for row in decision["estimates"]] == [8, 8]
    assert called(["pool"]) == 0
    pool = capsys.readouterr().out
    assert "(8 outcomes)" in pool and "first: second" in pool
