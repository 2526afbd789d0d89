"""The embedded backbone itself: its tokens, its agreement with itself, its size. Needs the pulled
model.
"""

import json
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import backbone
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.backbone_files import backbone_folder
from fugu_cli.coordinators.transcript import TranscriptMessage, render_raw
from fugu_cli.coordinators.trinity import EMBEDDED

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
