"""Trinity: the decision against its definition, masks, override, sampling, and what it writes
down.
"""

import asyncio
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import Coordinator, CoordinatorSettings, backbone, checkpoint, trinity
from fugu_cli.coordinators.checkpoint import Checkpoint
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.svf import split
from fugu_cli.coordinators.transcript import transcript_text
from fugu_cli.coordinators.trinity import Fallback, Trinity, TrinityFiles, margin
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.session.events import (
    Assigned,
    DecisionTimings,
    Event,
    Failed,
    Finished,
    Member,
    Opened,
)
from fugu_cli.session.state import SessionState
from tests.facts import CODER, POOL, SMALL, STRONG, asked, assigned, checked, opened, replied
from tests.unit.coordinators import tiny
from tests.unit.coordinators.test_stopping import BROKEN, said, verified, worked

ROWS = ("small", "coder", "strong")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.folder(tmp_path_factory.mktemp("trinity") / "backbone")


def built(
    folder: Path,
    made: Checkpoint,
    settings: CoordinatorSettings | None = None,
    members: tuple[Member, ...] = POOL,
) -> Trinity:
    loaded = backbone.load_backbone(folder, device="cpu")
    return Trinity(tiny.reader(made, loaded), members, settings or CoordinatorSettings())


def decide(coordinator: Coordinator, events: list[Event]) -> Assigned:
    found = asyncio.run(coordinator.decide(SessionState(events)))
    assert isinstance(found, Assigned), found
    return found


def leaning(folder: Path, events: list[Event], row: int, role: int, **about: object) -> Checkpoint:
    """A checkpoint whose head chooses `row` and `role` on the transcript of `events`."""
    blank = tiny.checkpoint(tiny.meta(folder, **about))
    state = hidden(folder, blank, events)
    head = np.zeros((blank.meta.head_rows, tiny.WIDTH), np.float32)
    head[row] = state / np.linalg.norm(state)
    if blank.meta.roles:
        head[len(blank.meta.rows) + role] = head[row]
    return Checkpoint(blank.meta, head, blank.offsets)


def hidden(folder: Path, made: Checkpoint, events: list[Event]) -> np.ndarray:
    """The state behind the transcript of `events`."""
    loaded = backbone.load_backbone(folder, device="cpu")
    return loaded.read(
        loaded.tokens(transcript_text(loaded, made.meta, SessionState(events)))
    ).hidden


def softmax(values: list[float]) -> list[float]:
    top = max(values)
    weights = [math.exp(value - top) for value in values]
    return [weight / sum(weights) for weight in weights]


def test_a_decision_is_the_head_times_the_state_at_the_penultimate_token(folder: Path) -> None:
    made = tiny.checkpoint(tiny.meta(folder), seed=1)
    found = decide(built(folder, made), [*BROKEN, *worked(1, ok=False)])
    loaded = backbone.load_backbone(folder, device="cpu")
    text = (
        "user: fix the tests\nsystem: tests failed 1\nassistant: Worker (small):\n[write a.py "
        "ok; tests failed 1]"
    )
    logits = (made.head @ loaded.read(loaded.tokens(text)).hidden).tolist()
    scores = found.scores
    assert scores is not None
    assert (scores.rows, scores.read, scores.tokens) == (ROWS, text, len(loaded.tokens(text)))
    assert scores.row_logits == pytest.approx(logits[:3], rel=1e-3)
    assert scores.role_logits == pytest.approx(logits[3:], rel=1e-3)
    assert scores.row_probabilities == pytest.approx(softmax(logits[:3]), rel=1e-2, abs=1e-4)
    assert scores.role_probabilities == pytest.approx(
        [*softmax(logits[3:5]), 0.0], rel=1e-2, abs=1e-4
    )
    assert found.agent == POOL[int(np.argmax(logits[:3]))].name
    masked = (("verifier", "the tests must pass and do not, and no verdict changes that"),)
    assert found.role == ("worker", "thinker")[int(np.argmax(logits[3:5]))]
    assert (found.turn, found.by, scores.masked) == (2, "trinity", masked)
    assert found.milliseconds.total > 0
    assert found.milliseconds.forward > 0


@pytest.mark.parametrize(("row", "member"), [(0, SMALL), (1, CODER), (2, STRONG)])
def test_the_agent_with_the_highest_logit_gets_the_turn(
    folder: Path, row: int, member: Member
) -> None:
    found = decide(built(folder, leaning(folder, BROKEN, row, 1)), BROKEN)
    assert (found.agent, found.role, found.reason) == (
        member.name,
        "thinker",
        member.name,
    )


@pytest.mark.parametrize(("gap", "warm"), [(0.05, False), (0.2, True)])
def test_where_rounding_could_decide_a_grown_text_is_read_again_at_once(
    folder: Path, gap: float, warm: bool
) -> None:
    events = [*BROKEN, *worked(1, ok=False)]
    made = leaning(folder, events, 1, 0)
    made.head[0] = made.head[1] * (1 - gap / float(np.linalg.norm(hidden(folder, made, events))))
    coordinator = built(folder, made)
    decide(coordinator, BROKEN)
    found = decide(coordinator, events)
    assert found.scores is not None
    first, second = sorted(found.scores.row_logits, reverse=True)[:2]
    assert (found.agent, first - second) == ("coder", pytest.approx(gap, rel=0.05))
    assert (found.scores.cached_tokens > 0) == warm


def test_a_row_that_is_masked_leads_nobody() -> None:
    assert margin([3.0, 1.0, 2.5]) == 0.5
    assert margin([3.0, 1.0, 2.5], {0}) == 1.5
    assert margin([3.0], ()) == margin([1.0, 2.0], {0}) == math.inf


def test_an_agent_that_has_left_the_pool_is_named_as_well(folder: Path) -> None:
    gone = STRONG.model_copy(update={"name": "gpt-9-turbo"})
    before = [Opened(version="1", repo="/r", pool=(gone,)), asked("a"), assigned(1, "gpt-9-turbo")]
    events = [*before, replied(1, "gpt-9-turbo", "hello"), Finished(reason="answered"), *BROKEN]
    scores = decide(built(folder, tiny.checkpoint(tiny.meta(folder))), events).scores
    assert scores is not None
    assert scores.read.startswith(
        "user: a\nassistant: Worker (gpt-9-turbo): hello\nuser: fix the tests"
    )


def test_a_pool_checkpoint_chooses_agents_by_name(folder: Path) -> None:
    made = leaning(folder, BROKEN, 1, 0, rows=("strong", "small", "gone"))
    found = decide(built(folder, made), BROKEN)
    assert (found.agent, found.reason) == ("small", "small")
    assert found.scores is not None
    assert found.scores.masked == (
        ("gone", "not in the pool"),
        ("verifier", "there is no Worker answer yet"),
    )


def test_a_masked_row_keeps_its_logit_and_loses_its_probability(folder: Path) -> None:
    made = leaning(folder, BROKEN, 2, 0)
    failed = [assigned(1, "strong"), Failed(turn=1, what="strong", kind="limited", message="429")]
    events = [*BROKEN, *failed]
    found = decide(built(folder, leaning(folder, events, 2, 0)), events)
    scores = found.scores
    assert scores is not None
    assert found.agent != "strong"
    assert scores.row_logits[2] == max(scores.row_logits)
    assert scores.row_probabilities[2] == 0
    assert scores.masked[0] == ("strong", "limited: 429")
    opted = decide(built(folder, made, CoordinatorSettings(opt_out=frozenset({"strong"}))), BROKEN)
    assert opted.scores is not None
    assert opted.scores.masked[0] == ("strong", "opted out")


def test_there_is_no_verifier_before_there_is_work(folder: Path) -> None:
    found = decide(built(folder, leaning(folder, BROKEN, 0, 2)), BROKEN)
    assert found.role == "worker", "what the head thinks of a Thinker means nothing here"
    assert found.scores is not None
    assert found.scores.masked == (
        ("verifier", "there is no Worker answer yet"),
        ("thinker", "a Verifier was chosen, and a Worker comes before it"),
    )
    assert found.scores.role_probabilities == (1, 0, 0)
    assert decide(built(folder, leaning(folder, BROKEN, 0, 1)), BROKEN).role == "thinker", (
        "the head is for it"
    )
    done = [*BROKEN, *worked(1, ok=True)]
    assert decide(built(folder, leaning(folder, done, 0, 2)), done).role == "verifier"


def test_a_thinkers_suggestion_replaces_the_heads_role_for_one_turn(folder: Path) -> None:
    text = "Verify it.\n<suggested_role>verifier</suggested_role>"
    thought = [assigned(2, "strong", "thinker"), replied(2, "strong", text)]
    unfinished = [
        event for event in worked(1, ok=True)[:-2]
    ]  # no last word, and no tests ran: both may come next
    events = [opened(), asked(judged=False), *unfinished, *thought]
    found = decide(built(folder, leaning(folder, events, 0, 0)), events)
    assert (found.role, found.override) == ("verifier", "worker")
    assert found.reason == "coder; the Thinker asked for a verifier instead of a worker"
    later = [*events, *verified(3, "REVISE")]
    after = decide(built(folder, leaning(folder, later, 0, 0)), later)
    assert (after.role, after.override) == ("worker", None)


def test_the_newest_worker_is_masked_where_its_work_is_to_be_verified(folder: Path) -> None:
    events = [*BROKEN, *worked(1, ok=True)]
    found = decide(built(folder, leaning(folder, events, 0, 0)), events)
    assert (found.agent != "small", found.role) == (True, "verifier")
    assert found.scores is not None
    assert ("small", "it wrote a part of what is to be verified") in found.scores.masked


def test_a_suggestion_that_makes_no_sense_yet_is_ignored(folder: Path) -> None:
    thought = [
        assigned(1, "strong", "thinker"),
        replied(1, "strong", "<suggested_role>verifier</suggested_role>"),
    ]
    found = decide(built(folder, leaning(folder, [*BROKEN, *thought], 0, 0)), [*BROKEN, *thought])
    assert (found.role, found.override) == ("worker", None)


def test_samples_repeat_with_their_seed_and_spread_over_the_rows(folder: Path) -> None:
    made = tiny.checkpoint(tiny.meta(folder))

    def drawn(seed: int) -> tuple[str, str]:
        hot = CoordinatorSettings(sample=True, temperature=50.0, seed=seed)
        found = decide(Trinity(tiny.reader(made, loaded), POOL, hot), BROKEN)
        return found.agent, found.role

    loaded = backbone.load_backbone(folder, device="cpu")
    assert drawn(3) == drawn(3)
    assert len({drawn(seed) for seed in range(30)}) > 3


@pytest.mark.parametrize("scale", [1.0, 100.0])
def test_what_is_drawn_depends_on_the_text_alone_however_large_the_logits_are(
    folder: Path, scale: float
) -> None:
    made, loaded = tiny.checkpoint(tiny.meta(folder)), backbone.load_backbone(folder, device="cpu")
    louder = Checkpoint(made.meta, made.head * np.float32(scale), made.offsets)
    coordinator = Trinity(tiny.reader(louder, loaded), POOL, CoordinatorSettings(sample=True))
    events = [*BROKEN, *worked(1, ok=False)]
    found = []
    for before in ([], BROKEN, [*BROKEN, *worked(1, ok=True)]):
        loaded.forget()
        if before:
            decide(coordinator, before)
        scores = decide(coordinator, events).scores
        assert scores is not None
        found.append((scores.cached_tokens, scores.row_logits, scores.role_logits))
    assert found == [found[0]] * 3
    assert found[0][0] == 0


def test_a_request_that_is_over_is_not_read(folder: Path) -> None:
    coordinator = built(folder, tiny.checkpoint(tiny.meta(folder)))
    found = asyncio.run(
        coordinator.decide(SessionState([*BROKEN, *worked(1, ok=True), *verified(2, "ACCEPT")]))
    )
    assert found == Finished(
        reason="accepted", message="verified by coder", accepted_by="verifier", judge="coder"
    )


def test_a_pool_where_nobody_can_act_ends_the_request(folder: Path) -> None:
    everyone = CoordinatorSettings(opt_out=frozenset(member.name for member in POOL))
    found = asyncio.run(
        built(folder, tiny.checkpoint(tiny.meta(folder)), everyone).decide(SessionState(BROKEN))
    )
    assert isinstance(found, Finished)
    assert (found.reason, "(coder: opted out; small: opted out" in found.message) == (
        "failed",
        True,
    )


def test_without_roles_one_agent_works_until_the_tests_pass(folder: Path) -> None:
    made = leaning(folder, BROKEN, 1, 0, roles=False)
    coordinator = built(folder, made)
    first = decide(coordinator, BROKEN)
    assert (first.agent, first.role) == ("coder", "worker")
    assert first.scores is not None
    assert (first.scores.role_logits, first.scores.masked) == ((), ())
    assert decide(coordinator, [*BROKEN, *worked(1, ok=False)]).role == "worker"
    end = asyncio.run(coordinator.decide(SessionState([*BROKEN, *worked(1, ok=True)])))
    assert end == Finished(reason="answered", message="answered by one agent")


def test_without_roles_who_was_chosen_goes_on_and_nothing_is_read(folder: Path) -> None:
    """Though the head would choose another one now; until that agent is out."""
    failing = [*BROKEN, *worked(1, ok=False)]
    coordinator = built(folder, leaning(folder, failing, 2, 0, roles=False))
    on = decide(coordinator, failing)
    assert (on.turn, on.agent, on.role, on.reason, on.scores) == (
        2,
        "small",
        "worker",
        "it has the request",
        None,
    )
    failed = [
        *failing,
        assigned(2, "small"),
        Failed(turn=2, what="small", kind="network", message="away"),
    ]
    anew = decide(coordinator, failed)
    assert anew.agent != "small" and anew.scores is not None
    then = decide(
        coordinator,
        [*failed, assigned(3, anew.agent), replied(3, anew.agent, "I see."), *checked(3, ok=False)],
    )
    assert (then.agent, then.scores) == (anew.agent, None)
    next_request = decide(coordinator, [*failing, asked("and now this")])
    assert next_request.scores is not None


def test_roles_can_be_left_out_of_a_checkpoint_that_has_them(folder: Path) -> None:
    made = leaning(folder, BROKEN, 1, 2)
    found = decide(built(folder, made, CoordinatorSettings(roles=False)), BROKEN)
    whole = decide(built(folder, made), BROKEN)
    assert (found.agent, found.role) == ("coder", "worker")
    assert found.scores is not None
    assert whole.scores is not None
    assert found.scores.row_logits == whole.scores.row_logits
    assert found.scores.role_logits == ()


def test_running_out_of_memory_while_reading_leaves_the_decision_to_the_cascade_and_says_so(
    folder: Path,
) -> None:
    reader = tiny.reader(
        tiny.checkpoint(tiny.meta(folder)), backbone.load_backbone(folder, device="cpu")
    )
    tiny.crowd(reader.warm().result()[1])
    coordinator = Trinity(reader, POOL, CoordinatorSettings())
    found = asyncio.run(
        Fallback(lambda: coordinator, Cascade(POOL, CoordinatorSettings())).decide(
            SessionState(BROKEN)
        )
    )
    assert isinstance(found, Assigned)
    assert (found.by, found.agent) == ("cascade", "small")
    assert "the coordinator ran out of memory: no memory to read" in found.fallback
    assert "close other programs" in found.fallback


def test_a_second_decision_reads_only_what_is_new(folder: Path) -> None:
    coordinator = built(folder, tiny.checkpoint(tiny.meta(folder)))
    first = decide(coordinator, BROKEN).scores
    second = decide(coordinator, [*BROKEN, *said(1, "I see nothing.")]).scores
    assert first is not None
    assert second is not None
    assert (first.cached_tokens, second.cached_tokens) == (0, first.tokens - 1)


def test_a_long_session_stays_within_the_budget(folder: Path) -> None:
    made = tiny.checkpoint(tiny.meta(folder, budget=300))
    events = [opened()]
    for number in range(40):
        events += [
            asked(f"request {number} " + "x" * 50, judged=False),
            assigned(1, "small"),
            replied(1, "small", "y" * 90),
        ]
    found = decide(built(folder, made), [*events, asked("now " + "z" * 5000, judged=False)])
    assert found.scores is not None
    assert found.scores.tokens <= 310
    assert "user: request 0 x" in found.scores.read


def test_decisions_of_a_grown_log_are_those_of_a_cold_start(folder: Path) -> None:
    made = tiny.checkpoint(tiny.meta(folder))
    warm = built(folder, made)
    events = list(BROKEN)
    for turn in range(1, 4):
        events += worked(turn, ok=False)
        one, other = decide(warm, events), decide(built(folder, made), events)
        assert one.scores is not None
        assert other.scores is not None
        assert one.scores.row_logits == pytest.approx(other.scores.row_logits, abs=0.3)
        assert (one.agent, one.role) == (other.agent, other.role)


def test_the_checkpoints_offsets_are_on_the_backbone_when_it_is_ready(
    folder: Path, tmp_path: Path
) -> None:
    plain, moved = (
        tiny.checkpoint(tiny.meta(folder)),
        tiny.checkpoint(tiny.meta(folder), offsets=0.3),
    )
    scores = []
    for number, made in enumerate((plain, moved)):
        vector = np.concatenate([*made.offsets, plain.head.reshape(-1)])
        made = Checkpoint(made.meta, split(vector, made.meta.ranks, tiny.WIDTH)[1], made.offsets)
        checkpoint.save(made, tmp_path / f"{number}.safetensors")
        files = TrinityFiles(tmp_path / f"{number}.safetensors", str(folder), tmp_path / "cache")
        found = decide(Trinity(trinity.reader_of(files), POOL, CoordinatorSettings()), BROKEN)
        scores.append(found.scores)
    assert scores[0] is not None
    assert scores[1] is not None
    assert scores[0].row_logits != scores[1].row_logits


def test_checkpoints_that_differ_in_their_heads_share_one_backbone(
    folder: Path, tmp_path: Path
) -> None:
    readers = []
    for number, offsets in enumerate((0.0, 0.0, 0.3)):
        path = tmp_path / f"{number}.safetensors"
        made = tiny.checkpoint(tiny.meta(folder), offsets=offsets)
        checkpoint.save(Checkpoint(made.meta, made.head + number, made.offsets), path)
        readers.append(trinity.reader_of(TrinityFiles(path, str(folder), tmp_path / "cache")))
    loading = [reader.warm() for reader in readers]
    first, second, other_offsets = (load.result() for load in loading)
    assert first[1] is second[1] is not other_offsets[1]
    assert np.allclose(second[0].head, first[0].head + 1)


def test_a_checkpoint_of_another_backbone_or_pool_is_refused(folder: Path) -> None:
    other = tiny.checkpoint(tiny.meta(folder).model_copy(update={"backbone": "0" * 64}))
    with pytest.raises(CoordinatorUnavailable, match="made for the backbone"):
        built(folder, other)
    with pytest.raises(CoordinatorUnavailable, match="none is in the pool"):
        built(folder, tiny.checkpoint(tiny.meta(folder, rows=("a", "b"))))


def test_what_is_built_from_places_decides_and_names_its_checkpoint(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.save(tiny.checkpoint(tiny.meta(folder)), path)
    places = TrinityFiles(path, str(folder), tmp_path / "cache")
    coordinator, digest, warm = trinity.build_trinity(
        places, POOL, CoordinatorSettings(), Cascade(POOL, CoordinatorSettings())
    )
    warm()
    found = asyncio.run(coordinator.decide(SessionState(BROKEN)))
    assert isinstance(found, Assigned)
    assert (found.by, len(digest or "")) == ("trinity", 64)


def test_what_a_session_read_is_kept_for_the_next_and_for_another_head(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    own = shutil.copytree(folder, tmp_path / "backbone")  # nothing was read with it before
    checkpoint.save(tiny.checkpoint(tiny.meta(own)), path)
    places = TrinityFiles(path, str(own), tmp_path / "cache")

    def cached(opt_out: str) -> int:
        settings = CoordinatorSettings(opt_out=frozenset({opt_out}))
        found = decide(
            trinity.build_trinity(places, POOL, settings, Cascade(POOL, settings))[0], BROKEN
        )
        assert found.scores is not None
        return found.scores.tokens - 1 - found.scores.cached_tokens

    first, pinned = cached("small"), cached("coder")
    checkpoint.save(tiny.checkpoint(tiny.meta(own), seed=1), path)
    assert (first > 5, pinned, cached("small")) == (True, 1, 1)


def test_without_the_embedded_model_the_cascade_decides_and_says_so(
    folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / "a.safetensors"
    checkpoint.save(tiny.checkpoint(tiny.meta(folder)), path)
    coordinator, _, _ = trinity.build_trinity(
        TrinityFiles(path, None, tmp_path),
        POOL,
        CoordinatorSettings(),
        Cascade(POOL, CoordinatorSettings()),
    )
    found = asyncio.run(coordinator.decide(SessionState(BROKEN)))
    assert isinstance(found, Assigned)
    assert (found.agent, found.by) == ("small", "cascade")
    assert "the checkpoint does not decide" in found.why
    assert "fugu models pull qwen2.5-coder-0.5b" in found.fallback


def test_without_a_checkpoint_the_cascade_decides_and_there_is_no_digest(
    folder: Path, tmp_path: Path
) -> None:
    places = TrinityFiles(tmp_path / "none.safetensors", str(folder), tmp_path)
    coordinator, digest, _ = trinity.build_trinity(
        places, POOL, CoordinatorSettings(), Cascade(POOL, CoordinatorSettings())
    )
    found = asyncio.run(coordinator.decide(SessionState(BROKEN)))
    assert isinstance(found, Assigned)
    assert digest is None
    assert "there is no checkpoint at" in found.fallback
    assert found.milliseconds == DecisionTimings()
