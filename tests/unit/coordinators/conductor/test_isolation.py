"""Isolation: over random workflows, nothing reaches an agent but what the plan opens.

Every text in a session carries a mark of its own. What an agent was shown is compared with what it
may see: its own history, the requests, the answers to earlier ones, the outputs its access list
opens, and what the tool memory still knows from earlier workflows.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.conductor.conductor import ConductorSettings
from fugu_cli.coordinators.conductor.step_context import step_manifest
from fugu_cli.messages import Call, FromTool, Prompt, Reply, Thinking
from fugu_cli.session.events import Assigned, Event, Member, Planned, Recorded, Replied, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from tests.reacting import Reacting, calls, repository, results, says
from tests.unit.coordinators.conductor.staging import POOL, Play, everything, lists, plans

MARK = re.compile(r"mark-[a-z]+-\d+")
FILES = {f"f{number}.txt": f"mark-file-{number}\n" for number in range(3)}


class Marking:
    """Agents whose every text is unlike any other; what is in a file is known by the file."""

    def __init__(self, scripts: Sequence[str], reads: Sequence[int]) -> None:
        self._scripts = list(scripts)
        self._reads = list(reads)
        self._count = 0
        self.shown: list[tuple[str, Prompt, int]] = []
        self.log: Log

    def react(self, name: str, prompt: Prompt) -> Reply:
        self._count += 1
        if plans(prompt):
            text = self._scripts.pop(0) if self._scripts else "no more plans"
            return Reply(text=text, thinking=(Thinking(text=f"mark-planning-{self._count}"),))
        self.shown.append((name, prompt, len(self.log.events)))
        read = self._reads[self._count % len(self._reads)] if self._reads else 0
        called = isinstance(prompt.messages[-1], FromTool)
        if read and not called:
            call = Call.make("x", "read", path=f"f{read - 1}.txt")
            thought = (Thinking(text=f"mark-thought-{self._count}"),)
            return Reply(
                text=f"mark-said-{self._count}", thinking=thought, calls=(call,), stop="calls"
            )
        return Reply(text=f"mark-output-{self._count}")


@st.composite
def workflows(draw: st.DrawFn) -> str:
    size = draw(st.integers(1, 5))
    steps = []
    for place in range(size):
        some = st.lists(st.integers(0, place - 1), unique=True) if place else st.just([])
        access = draw(st.one_of(some, st.just(["all"])))
        steps.append(
            (draw(st.integers(0, 2)), f"mark-subtask-{draw(st.integers(0, 10**6))}", access)
        )
    return lists(*steps)


@given(
    st.lists(workflows(), min_size=1, max_size=3),
    st.lists(st.integers(0, 3), min_size=1, max_size=7),
)
@settings(max_examples=12, deadline=None)
def test_nothing_else_ever_reaches_an_agent(scripts: list[str], reads: list[int]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log, marking = played(Path(folder), scripts, reads)
        assert marking.shown
        for name, prompt, upto in marking.shown:
            shown = set(MARK.findall(everything(prompt)))
            allowed = may_see(log.records[:upto], name)
            assert shown <= allowed, f"{name} was shown {shown - allowed}"


def played(folder: Path, scripts: list[str], reads: list[int]) -> tuple[Log, Marking]:
    """One request a plan; in each the plan, then whatever comes of it."""
    root = repository(folder / "repo", FILES)
    marking = Marking(scripts, reads)
    agents = {
        member.name: Reacting(
            member.name, lambda prompt, name=member.name: marking.react(name, prompt)
        )  # type: ignore[misc]
        for member in POOL
    }
    play = Play(
        root,
        agents,
        bounds=ConductorSettings(agent="c", rounds=1, depth=0),
        settings=CoordinatorSettings(turns=9),
    )
    marking.log = play.log
    for number in range(len(scripts)):
        play.run(f"mark-request-{number}")
    return play.log, marking


def may_see(records: Sequence[Recorded], name: str) -> set[str]:
    """Marks that belong to the agent whose newest open turn in these records is looked at."""
    events = [record.event for record in records]
    now = newest_of(events, name)
    allowed = {
        mark
        for event in events
        if event.type == "asked"
        for mark in MARK.findall(event.model_dump_json())
    }
    allowed |= set(MARK.findall(now.instruction))
    opened = set(now.sees) if isinstance(now.sees, tuple) else set()
    for facts in [request.events for request in SessionState(events).requests]:
        own = {e.turn for e in facts if isinstance(e, Assigned) and e.agent == name}
        for event in facts:
            mine = getattr(event, "turn", 0) in own
            if mine:
                allowed |= set(MARK.findall(event.model_dump_json()))
            if mine and isinstance(event, Assigned):  # what it was shown then
                opened_then = set(event.sees) if isinstance(event.sees, tuple) else set()
                allowed |= outputs(facts, opened_then)
                allowed |= {
                    m for line in event.remembers for m in MARK.findall(_ran(events[line]).output)
                }
                allowed |= divided_part(facts, event)
    allowed |= outputs(SessionState(events).request.events, opened)
    allowed |= {
        mark
        for request in SessionState(events).requests[:-1]
        for mark in MARK.findall(request.answer)
    }
    before = [
        event
        for facts in [request.events for request in SessionState(events).requests][:-1]
        for event in facts
    ]
    known = [event for event in before if isinstance(event, ToolRan)]
    return allowed | {mark for event in known for mark in MARK.findall(event.output)}


def _ran(event: Event) -> ToolRan:
    assert isinstance(event, ToolRan)
    return event


def newest_of(events: Sequence[Event], name: str) -> Assigned:
    return next(e for e in reversed(events) if isinstance(e, Assigned) and e.agent == name)


def outputs(facts: Sequence[Event], turns: set[int]) -> set[str]:
    """Marks of the last words of these turns."""
    found: set[str] = set()
    for number in turns:
        words = [e.text for e in facts if isinstance(e, Replied) and e.turn == number]
        found |= set(MARK.findall(words[-1])) if words else set()
    return found


def divided_part(facts: Sequence[Event], assignment: Assigned) -> set[str]:
    """Marks of the steps into which the assignment's own step was divided: their instructions and
    their last words. An agent that takes the whole part over is shown them.
    """
    found: set[str] = set()
    plans = [e for e in facts if isinstance(e, Planned)]
    for number, plan in enumerate(plans, start=1):
        if plan.within is None or tuple(plan.within) != (assignment.plan, assignment.step):
            continue
        found |= {mark for step in plan.steps for mark in MARK.findall(step.instruction)}
        turns = {e.turn for e in facts if isinstance(e, Assigned) and e.plan == number}
        found |= outputs(facts, turns)
    return found


TWO = lists((0, "Look.", []), (1, "Say it.", [0]))
AGAIN = lists((2, "Say it again.", []))


def follow_up(tmp_path: Path, member: Member = POOL[2]) -> str:
    """What `c` reads in a second request, where `a` took a step of the first and `b` answered
    it.
    """
    scripts = [TWO, AGAIN]
    agents = {
        m.name: Reacting(m.name, says(f"mark-output-{number} " * 40))
        for number, m in enumerate(POOL)
    }
    agents["c"] = Reacting(
        "c", lambda prompt: Reply(text=scripts.pop(0) if plans(prompt) else "again")
    )
    play = Play(
        repository(tmp_path / "repo", FILES),
        agents,
        bounds=ConductorSettings(agent="c", rounds=1, depth=0),
    )
    play.members = (*POOL[:2], member)
    play.run("what is mark-request-0?")
    play.run("and mark-request-1?")
    return everything(agents["c"].shown[-1])


def test_a_step_is_shown_what_was_answered_before_whoever_said_it(tmp_path: Path) -> None:
    text = follow_up(tmp_path)
    assert set(MARK.findall(text)) == {"mark-request-0", "mark-output-1", "mark-request-1"}
    assert text.index("mark-request-0") < text.index("mark-output-1") < text.index("mark-request-1")


def test_where_an_agents_own_turns_have_no_room_it_is_shown_the_answer(tmp_path: Path) -> None:
    def a(prompt: Prompt) -> Reply:
        if "mark-request-1" in everything(prompt):
            return Reply(text="It is as I said.")
        return (
            Reply(text="mark-output-0")
            if results(prompt)
            else calls(*(Call.make(name, "read", path=name) for name in files))
        )

    agents = {
        member.name: Reacting(member.name, says(lists((0, "Say it.", [])))) for member in POOL
    }
    agents["a"] = Reacting("a", a)
    files = {f"f{number}.txt": "mark-file-0\n" * 500 for number in range(4)}
    root = repository(tmp_path / "repo", files)
    play = Play(root, agents, bounds=ConductorSettings(agent="c", rounds=1, depth=0))
    play.members = tuple(member.model_copy(update={"context": 4000}) for member in POOL)
    play.run("mark-request-0")
    play.run("mark-request-1")
    last = agents["a"].shown[-1]
    assert "mark-output-0" in everything(last)
    assert not results(last), "the calls of the earlier turn are not shown"


def test_in_a_long_session_a_step_is_shown_the_newest_of_its_agents_turns(tmp_path: Path) -> None:
    said = [f"mark-output-{number} " * 200 for number in range(3)]
    agents = {
        member.name: Reacting(member.name, lambda prompt: Reply(text=lists((0, "Say it.", []))))
        for member in POOL
    }
    agents["a"] = Reacting("a", lambda prompt: Reply(text=said[len(agents["a"].shown) - 1]))
    play = Play(
        repository(tmp_path / "repo", FILES),
        agents,
        bounds=ConductorSettings(agent="c", rounds=1, depth=0),
    )
    play.members = tuple(member.model_copy(update={"context": 4000}) for member in POOL)
    for number in range(3):
        play.run(f"mark-request-{number}")
    shown = set(MARK.findall(everything(agents["a"].shown[-1])))
    assert shown == {"mark-request-0", "mark-request-1", "mark-request-2", "mark-output-1"}


def test_the_manifest_says_what_was_shown_and_what_was_not(tmp_path: Path) -> None:
    plan = lists((0, "One.", []), (1, "Two.", []), (0, "Three.", [1]))
    log, _ = played(tmp_path, [plan], [0])
    seen = step_manifest(log.state, 3)
    assert (seen.own, seen.outputs, seen.memory, seen.hidden) == ((1,), ((1, 2),), (), ())
    other = step_manifest(log.state, 2)
    assert (other.own, other.outputs, other.hidden) == ((), (), (1,))


def test_the_memory_offers_what_is_unchanged_and_never_what_is_stale(tmp_path: Path) -> None:
    plan = lists((0, "Read.", []))
    later = lists((1, "Read again.", []))
    root = repository(tmp_path / "repo", FILES)
    marking = Marking([plan, later, later, later], [1])
    agents = {
        member.name: Reacting(
            member.name, lambda prompt, name=member.name: marking.react(name, prompt)
        )  # type: ignore[misc]
        for member in POOL
    }
    play = Play(root, agents, bounds=ConductorSettings(agent="c", rounds=1, depth=0))
    marking.log = play.log
    play.run("first")
    marking._reads = [0]
    play.run("second")
    told = everything(marking.shown[-1][1])
    assert "mark-file-0" in told and "still true" in told
    (root / "f0.txt").write_text("mark-file-9\n")
    play.run("third")
    told = everything(marking.shown[-1][1])
    assert "mark-file-0" not in told.rpartition("third")[2]
    remembered = [event.remembers for event in play.log.events if isinstance(event, Assigned)]
    assert [len(lines) for lines in remembered] == [0, 1, 0]
    (root / "f0.txt").write_text("mark-file-0\n")
    play.run("fourth")
    assert "mark-file-0" in everything(marking.shown[-1][1]).rpartition("fourth")[2], (
        "as it was: true again"
    )
