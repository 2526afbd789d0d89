"""Offsets by gradient: the fit lowers the loss."""

from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import backbone, svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.training.fitting import (
    DescentSettings,
    HeadExamples,
    LastLayers,
    fit_head,
    fit_offsets,
    score_head,
)
from fugu_cli.training.sft import WarmStart, WarmStartSettings
from tests.research.training.test_sft import SEATS, textual
from tests.unit.coordinators import tiny


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    return backbone.load_backbone(
        tiny.folder(tmp_path_factory.mktemp("offsets") / "backbone"), device="cpu"
    )


def test_the_fit_lowers_the_loss_and_touches_one_layer_only(loaded: Backbone) -> None:
    texts = [
        loaded.tokens(f"user: {'alpha' if n % 2 else 'omega'} number {n * 7} of the list")
        for n in range(24)
    ]
    hidden = np.stack([loaded.read(tokens).hidden for tokens in texts])
    rows = np.array([(0.9, 0.1) if n % 2 else (0.1, 0.9) for n in range(24)], np.float32)
    examples = HeadExamples(
        hidden, rows, np.zeros(24, np.int64), np.ones(24, np.float32), ("g",) * 24
    )
    head = fit_head(examples, 3, l2=0.05)
    found = LastLayers(loaded, svf.SvfAdapter(loaded.model), wide=True)
    blocks = fit_offsets(
        found, texts, examples, head, DescentSettings(epochs=6, batch=8, rate=0.02)
    )
    assert [len(block) for block in blocks] == list(found.ranks)
    assert not blocks[0].any()
    assert not blocks[8].any()
    assert all(block.any() for block in blocks[1:8])
    offsets = np.concatenate(blocks[1:8])[None]
    moved = np.concatenate([found.states(found.below(tokens[:-1]), offsets) for tokens in texts])
    changed = HeadExamples(moved, rows, examples.roles, examples.weights, examples.groups)
    assert (
        score_head(fit_head(changed, 3, l2=0.05), changed).kl < 0.8 * score_head(head, examples).kl
    )


def test_a_warm_start_with_offsets_leaves_the_backbone_as_it_was(
    loaded: Backbone, tmp_path: Path
) -> None:
    tokens = loaded.tokens("user: a text")
    loaded.forget()
    before = loaded.read(tokens).hidden
    recipe = WarmStartSettings(
        SEATS[:2], long_stories=0, folds=2, descent=DescentSettings(epochs=1)
    )
    tasks = [type(task)(task.task, task.prompt, task.rows[:2]) for task in textual(4)]
    made = WarmStart(recipe, loaded, tmp_path).run(tasks, "synthetic", lambda _: None).checkpoint
    assert any(block.any() for block in made.offsets)
    loaded.forget()
    assert np.array_equal(loaded.read(tokens).hidden, before)
