"""The embedded backbone itself: its tokens, its agreement with itself, its size. Needs the pulled
model.
"""

import asyncio
import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import CoordinatorSettings, backbone
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.backbone_files import backbone_folder
from fugu_cli.coordinators.checkpoint import load
from fugu_cli.coordinators.digest import DIGEST_TOKENS, digest, tokens_at_most
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.coordinators.transcript import TranscriptMessage, render_raw
from fugu_cli.coordinators.trinity import EMBEDDED, SHIPPED, TrinityFiles, build_trinity
from fugu_cli.session.events import Assigned, Event, Role
from tests.facts import POOL, asked, assigned, opened, replied
from tests.unit.coordinators.test_stopping import BROKEN, said, worked

pytestmark = pytest.mark.real
CASES = json.loads(
    (Path(__file__).parent / "data" / "token_counts.json").read_text(encoding="utf-8")
)["cases"]


@pytest.fixture(scope="module")
def loaded(real_cache: Path, pulled: Callable[[str], Path]) -> Backbone:
    return backbone.load_backbone(backbone_folder(pulled(EMBEDDED), real_cache), device="cpu")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_a_transcript_has_the_tokens_it_is_known_to_have(
    loaded: Backbone, case: dict[str, object]
) -> None:
    messages = case["messages"]
    assert isinstance(messages, list)
    text = render_raw([TranscriptMessage(role, content) for role, content in messages])
    assert loaded.count(text) == case["tokens"]


def test_a_grown_text_gives_the_state_of_a_cold_pass(loaded: Backbone) -> None:
    words = [word for case in CASES for _, content in case["messages"] for word in content.split()]
    draw = random.Random(0)
    for _ in range(3):
        tokens = loaded.tokens("user: " + " ".join(draw.choices(words, k=60)))
        loaded.forget()
        cold = loaded.read(tokens).hidden
        loaded.forget()
        loaded.read(tokens[:40])
        warm = loaded.read(tokens)
        assert warm.cached == 39
        assert (
            float(cold @ warm.hidden / np.linalg.norm(cold) / np.linalg.norm(warm.hidden)) > 0.998
        )


SUM: list[Event] = [
    opened(),
    asked("Ana has 23 stamps and gets 18 more. How many has she got?", judged=False),
]
FUNCTION: list[Event] = [
    opened(),
    asked("Write a Python function that reverses the words of a line.", judged=False),
]
LONG = (
    "To find how many stamps Ana has, we follow these steps:\n\n1. She begins with 23 "
    "stamps.\n2. She gets 18 more.\n\n"
    "We add both:\n\\[ 23 + 18 = 41 \\]\n\nTherefore, Ana has \\(\\boxed{41}\\) stamps."
)
CODE = (
    "Sure:\n\n```python\ndef reversed_words(line):\n    return ' "
    "'.join(reversed(line.split()))\n```"
)
REFUSAL = "REVISE: the steps do not fit the question."


def spoke(turn: int, agent: str, text: str, role: Role = "worker") -> list[Event]:
    """A turn of words alone."""
    return [assigned(turn, agent, role), replied(turn, agent, text)]


STATES: dict[str, tuple[list[Event], Role]] = {
    "tests fail and nobody worked": (BROKEN, "worker"),
    "tests fail after a Worker": ([*BROKEN, *worked(1, ok=False)], "worker"),
    "a Worker only talked": ([*BROKEN, *said(1, "I cannot find it.")], "worker"),
    "tests pass after a Worker": ([*BROKEN, *worked(1, ok=True)], "verifier"),
    "a question": ([opened(), asked("What does this repository do?", judged=False)], "worker"),
    "a question was answered at length": ([*SUM, *spoke(1, "coder", LONG)], "verifier"),
    "a question was answered in a word": ([*SUM, *spoke(1, "strong", "Answer: 41")], "verifier"),
    "a question was answered in code": ([*FUNCTION, *spoke(1, "small", CODE)], "verifier"),
    "an answer was refused": (
        [*SUM, *spoke(1, "small", LONG), *spoke(2, "strong", REFUSAL, "verifier")],
        "worker",
    ),
}
"""Texts that the checkpoint was not trained on."""


@pytest.mark.parametrize("state", list(STATES))
def test_the_shipped_checkpoint_gives_the_role_that_the_state_asks_for(
    loaded: Backbone, real_cache: Path, state: str
) -> None:
    events, role = STATES[state]
    coordinator, digest, _ = build_trinity(
        TrinityFiles(None, None, real_cache),
        POOL,
        CoordinatorSettings(verify_answers=True),
        Cascade(POOL, CoordinatorSettings()),
    )
    found = asyncio.run(coordinator.decide(events))
    assert isinstance(found, Assigned)
    assert (found.by, found.role) == ("trinity", role), found.reason
    assert digest is not None
    load(SHIPPED).check(loaded.identity, loaded.shape)


@pytest.mark.parametrize("state", list(STATES))
def test_a_digest_has_no_more_tokens_than_were_counted(loaded: Backbone, state: str) -> None:
    events, _ = STATES[state]
    turns = [fact for turn in range(5, 60) for fact in worked(turn, ok=False)]
    for facts in (events, [*events, *turns]):
        text = digest(facts, {member.name: member.slot for member in POOL})
        assert loaded.count(text) <= tokens_at_most(text) <= DIGEST_TOKENS
