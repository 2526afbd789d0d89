"""Reading along: what is read ahead, when it pauses, and that it changes no decision."""

import asyncio
import json
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fugu_cli import wiring
from fugu_cli.config.loader import load_config
from fugu_cli.coordinators import CoordinatorSettings, Decision, backbone, checkpoint
from fugu_cli.coordinators.read_ahead import ReadsAhead, common_prefix, local_agent_computes, reading_ahead
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.trinity import Trinity, with_fallback
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.messages import Call
from fugu_cli.session.events import Assigned, Event, Finished
from fugu_cli.session.live_events import TextStreamed
from fugu_cli.session.log import Log
from tests.facts import POOL, assigned, checked, ran, replied
from tests.reacting import never, repository
from tests.unit.coordinators import tiny
from tests.unit.coordinators.test_stopping import BROKEN, worked

REPLY = "I read the file a.py and see that the loop ends one too early.\n\nThe last element is never compared. " * 2


class Listening:
    """Reads along by writing down what it was given."""

    def __init__(self, *, shares: bool = True) -> None:
        self.shares_processor = shares
        self.given: list[tuple[int, str]] = []
        self.stops: list[threading.Event] = []

    async def decide(self, events: Sequence[Event]) -> Decision:
        return Finished(reason="answered")

    async def ahead(self, events: Sequence[Event], said: str, stop: threading.Event) -> None:
        self.given.append((len(events), said))
        self.stops.append(stop)


def build(folder: Path, **about: object) -> Trinity:
    made = tiny.checkpoint(tiny.meta(folder, **about))
    return Trinity(made, backbone.load_backbone(folder, device="cpu"), POOL, CoordinatorSettings())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "backbone")


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def heard(coordinator: Listening, log: Log, *items: Event | TextStreamed) -> list[tuple[int, str]]:
    """What was read along while these were told."""

    async def told() -> None:
        async with reading_ahead(log, coordinator):
            await settle()
            for item in items:
                if isinstance(item, TextStreamed):
                    log.tell(item)
                else:
                    log.append(item)
                await settle()

    asyncio.run(told())
    return coordinator.given


def said(text: str, agent: str = "strong") -> TextStreamed:
    return TextStreamed(turn=1, agent=agent, text=text)


def test_what_is_in_the_log_is_read_first_then_what_is_being_said() -> None:
    log = Log.memory(BROKEN)
    found = heard(Listening(), log, assigned(1, "strong"), said("a" * 30), said("b" * 30))
    assert found == [(4, ""), (5, ""), (5, "a" * 30), (5, "a" * 30 + "b" * 30)]


def test_the_first_word_is_heard() -> None:
    coordinator, log = Listening(), Log.memory([*BROKEN, assigned(1, "strong")])

    async def told() -> None:
        async with reading_ahead(log, coordinator):
            log.tell(said("a" * 30))
            await settle()

    asyncio.run(told())
    assert coordinator.given[-1] == (5, "a" * 30)


def test_a_few_characters_wait_for_more() -> None:
    log = Log.memory([*BROKEN, assigned(1, "strong")])
    found = heard(Listening(), log, said("a" * 30), said("b" * 3), said("c" * 3), said("d" * 3))
    assert [len(text) for _, text in found] == [0, 30, 39]


def test_an_agent_that_pauses_is_read_up_to_there() -> None:
    coordinator, log = Listening(), Log.memory([*BROKEN, assigned(1, "strong")])

    async def told() -> None:
        async with reading_ahead(log, coordinator):
            await settle()
            log.tell(said("short"))
            while len(coordinator.given) < 2:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(told(), 20))
    assert coordinator.given == [(5, ""), (5, "short")]


def test_a_reply_that_is_recorded_is_no_longer_being_said() -> None:
    log = Log.memory([*BROKEN, assigned(1, "strong")])
    found = heard(Listening(), log, said("a" * 30), replied(1, "strong", "a" * 30))
    assert found[-1] == (6, "")


def test_it_pauses_while_a_local_agent_computes_and_shares_the_processor() -> None:
    events = [*BROKEN, assigned(1, "coder")]
    assert heard(Listening(), Log.memory(events), said("a" * 30, "coder")) == []
    assert len(heard(Listening(shares=False), Log.memory(events), said("a" * 30, "coder"))) == 2


def test_reading_is_interrupted_when_a_local_agent_begins() -> None:
    coordinator = Listening()
    log = Log.memory(BROKEN)
    heard(coordinator, log, assigned(1, "coder"))
    assert [stop.is_set() for stop in coordinator.stops] == [True]


CALL = Call(id="t1", tool="bash")


@pytest.mark.parametrize(
    ("events", "computes"),
    [
        (BROKEN, False),
        ([*BROKEN, assigned(1, "coder")], True),
        ([*BROKEN, assigned(1, "strong")], False),
        ([*BROKEN, assigned(1, "coder"), ran(1, CALL)[0]], False),
        ([*BROKEN, assigned(1, "coder"), *ran(1, CALL)], True),
        ([*BROKEN, assigned(1, "coder"), replied(1, "coder", "done")], False),
        ([*BROKEN, assigned(1, "coder"), replied(1, "coder", "done"), *checked(1, ok=False)], True),
        ([*BROKEN, *worked(1, ok=True), Finished(reason="accepted")], False),
    ],
)
def test_a_local_agent_computes_from_its_assignment_except_while_tools_run(events: list[Event], computes: bool) -> None:
    assert local_agent_computes(events) is computes


def test_a_rule_is_left_alone() -> None:
    rule = Cascade(POOL, CoordinatorSettings())
    assert not isinstance(rule, ReadsAhead)

    async def opened() -> int:
        log = Log.memory(BROKEN)
        async with reading_ahead(log, rule):
            await settle()
            return len(asyncio.all_tasks())

    assert asyncio.run(opened()) == 1


def test_nothing_is_left_running_when_it_ends() -> None:
    async def opened() -> int:
        async with reading_ahead(Log.memory(BROKEN), Listening()):
            await settle()
        return len(asyncio.all_tasks())

    assert asyncio.run(opened()) == 1


def next_decision(coordinator: Trinity, events: list[Event]) -> Assigned:
    found = asyncio.run(coordinator.decide(events))
    assert isinstance(found, Assigned)
    assert found.scores is not None
    return found


@pytest.mark.parametrize("format", ["raw", "chat"])
def test_a_decision_after_reading_along_reads_only_the_end_and_is_the_same(folder: Path, format: str) -> None:
    events = [*BROKEN, assigned(1, "strong")]
    done = [*events, replied(1, "strong", REPLY)]
    coordinator = build(folder, format=format)
    for upto in range(0, len(REPLY), 40):
        asyncio.run(coordinator.ahead(events, REPLY[:upto], threading.Event()))
    asyncio.run(coordinator.ahead(events, REPLY, threading.Event()))
    read_along, cold = next_decision(coordinator, done), next_decision(build(folder, format=format), done)
    assert read_along.scores is not None
    assert cold.scores is not None
    assert cold.scores.cached_tokens == 0
    assert read_along.scores.tokens - read_along.scores.cached_tokens < 24
    assert (read_along.agent, read_along.role, read_along.scores.read) == (cold.agent, cold.role, cold.scores.read)
    assert read_along.scores.row_logits == pytest.approx(cold.scores.row_logits, abs=0.3)


def test_what_the_tools_did_is_not_read_before_the_reply_ends(folder: Path) -> None:
    coordinator = build(folder)
    events = [*BROKEN, assigned(1, "strong"), replied(1, "strong", "", CALL), *ran(1, CALL)]
    asyncio.run(coordinator.ahead(events, "So the loop", threading.Event()))
    done = next_decision(coordinator, [*events, replied(1, "strong", "So the loop is wrong.")])
    assert done.scores is not None
    whole, before = done.scores.read, "Worker (strong): So the"
    assert whole.endswith("Worker (strong): So the loop is wrong.\n[bash ok]")
    count = tiny.tokenizer().encode
    least = len(count(whole[: whole.index(before) + len(before)]).ids)
    assert least <= done.scores.cached_tokens <= least + len(" loop ")


def test_a_reply_that_called_nothing_is_read_to_its_end_while_the_tests_run(folder: Path) -> None:
    coordinator = build(folder)
    done = [*BROKEN, assigned(1, "strong"), replied(1, "strong", REPLY)]
    asyncio.run(coordinator.ahead(done, "", threading.Event()))
    found = next_decision(coordinator, [*done, *checked(1, ok=False)])
    assert found.scores is not None
    assert found.scores.tokens - found.scores.cached_tokens < len("\n[tests failed 1]") + 12


def test_what_is_known_beyond_the_certain_is_kept(folder: Path) -> None:
    coordinator = build(folder)
    done = [*BROKEN, assigned(1, "strong"), replied(1, "strong", REPLY)]
    asyncio.run(coordinator.ahead(done, "", threading.Event()))
    asyncio.run(coordinator.ahead(done[:-1], "", threading.Event()))
    found = next_decision(coordinator, done)
    assert found.scores is not None
    assert found.scores.tokens - found.scores.cached_tokens < 24


def test_a_long_reply_that_will_be_cut_is_read_up_to_the_cut(folder: Path) -> None:
    coordinator = build(folder, budget=400)
    events = [*BROKEN, assigned(1, "strong")]
    long = "word and word " * 60
    for upto in range(0, len(long), 100):
        asyncio.run(coordinator.ahead(events, long[:upto], threading.Event()))
    found = next_decision(coordinator, [*events, replied(1, "strong", long)])
    assert found.scores is not None
    assert "[... cut ...]" in found.scores.read
    assert found.scores.cached_tokens > 20


def test_what_cannot_be_written_or_is_half_a_character_does_not_end_the_reading(folder: Path) -> None:
    events = [*BROKEN, assigned(1, "strong")]
    asyncio.run(build(folder).ahead(events, "cut in the middle of \ud83d", threading.Event()))
    deaf = build(folder, format="chat")
    deaf.backbone._template = ""
    asyncio.run(deaf.ahead(events, "said", threading.Event()))
    with pytest.raises(CoordinatorUnavailable, match="no chat template"):
        asyncio.run(deaf.decide(BROKEN))


def test_without_a_loaded_coordinator_nothing_is_read_along() -> None:
    def refuse() -> Cascade:
        raise CoordinatorUnavailable("no torch")

    rule = Cascade(POOL, CoordinatorSettings())
    coordinator = with_fallback(refuse, rule)
    asyncio.run(coordinator.ahead(BROKEN, "", threading.Event()))
    coordinator.warm()
    asyncio.run(coordinator.decide(BROKEN))
    asyncio.run(coordinator.ahead(BROKEN, "", threading.Event()))
    assert coordinator.shares_processor


def test_a_loaded_coordinator_reads_along_behind_the_fallback(folder: Path) -> None:
    coordinator = with_fallback(lambda: build(folder), Cascade(POOL, CoordinatorSettings()))
    events = [*BROKEN, assigned(1, "strong")]
    asyncio.run(coordinator.decide(BROKEN))
    asyncio.run(coordinator.ahead(events, REPLY, threading.Event()))
    found = asyncio.run(coordinator.decide([*events, replied(1, "strong", REPLY)]))
    assert isinstance(found, Assigned)
    assert found.scores is not None
    assert found.scores.tokens - found.scores.cached_tokens < 24


def thinking(folder: Path, path: Path) -> None:
    """A checkpoint that makes every turn a Thinker's, as far as one can say."""
    made = tiny.checkpoint(tiny.meta(folder, budget=8000))
    one = backbone.load_backbone(folder, device="cpu")
    state = one.read(one.tokens("user: think")).hidden
    made.head[:] = 0
    made.head[4] = state / np.linalg.norm(state)
    checkpoint.save(made, path)


LINES = "".join(f"{number}. the loop ends one too early in file {number}\n" for number in range(12))


def test_a_session_reads_along_and_ends_as_one_that_does_not(folder: Path, tmp_path: Path) -> None:
    thinking(folder, tmp_path / "c.safetensors")
    script = tmp_path / "script.toml"
    step = f"[[step]]\ntext = {json.dumps(LINES)}\n"
    script.write_text(step + "pace = 0.1\n" + step)
    settings = [
        f'checkpoint = "{tmp_path / "c.safetensors"}"\nbackbone = "{folder}"\nmax_turns = 2',
        f'[[agents]]\nname = "strong"\nprovider = "scripted"\nmodel = "{script}"\nslot = "strong"',
    ]
    (Path.home() / ".fugurc").write_text("\n".join(settings))
    repo = repository(tmp_path / "repo").resolve()

    async def driven() -> list[Event]:
        session = await wiring.open_session(load_config(repo, {}, {}), {}, never)
        session.warm()
        await session.ask("think")
        await session.run()
        await session.close()
        return list(session.log.events)

    events = asyncio.run(asyncio.wait_for(driven(), 60))
    decisions = [event for event in events if isinstance(event, Assigned)]
    assert [(one.by, one.role) for one in decisions] == [("trinity", "thinker"), ("trinity", "worker")]
    second = decisions[1].scores
    assert second is not None
    assert LINES.strip() in second.read
    before = tiny.tokenizer().encode(second.read[: second.read.index(LINES[:40])]).ids
    assert second.cached_tokens > len(before)


@pytest.mark.parametrize(
    ("texts", "same"), [(("abc", "abd"), "ab"), (("ab", "abc"), "ab"), (("", "x"), ""), (("abc",), "abc")]
)
def test_the_longest_common_beginning(texts: tuple[str, ...], same: str) -> None:
    assert common_prefix(*texts) == same
