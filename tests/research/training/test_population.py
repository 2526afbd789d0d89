"""A population's shared pass gives each candidate the state that its own changed weights give."""

from pathlib import Path

import numpy as np
import pytest

from fugu_cli.coordinators import backbone, svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.training.fitting import LastLayers
from tests.unit.coordinators import tiny

TEXT = "user: fix the tests\nassistant: Worker (cheap): done\n[edit a.py ok; tests failed 2]"


@pytest.fixture(scope="module", params=["qwen2", "qwen3"])
def loaded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Backbone:
    folder: Path = tmp_path_factory.mktemp("population") / "backbone"
    return backbone.load_backbone(tiny.folder(folder, request.param), device="cpu")


def one_by_one(
    loaded: Backbone, tokens: list[int], offsets: np.ndarray, sizes: tuple[int, ...]
) -> np.ndarray:
    adapter = svf.SvfAdapter(loaded.model)
    zero = [np.zeros(size, np.float32) for size in svf.ranks(loaded.shape)]
    found = []
    for one in offsets:
        adapter.apply([zero[0], *np.split(one, np.cumsum(sizes)[:-1]), zero[8]])
        loaded.forget()
        found.append(loaded.read(tokens).hidden)
    adapter.apply(zero)
    loaded.forget()
    return np.array(found)


def near(first: np.ndarray, second: np.ndarray) -> float:
    cosines = (
        (first * second).sum(1) / np.linalg.norm(first, axis=1) / np.linalg.norm(second, axis=1)
    )
    return float(cosines.min())


@pytest.mark.parametrize("wide", [False, True])
def test_every_candidate_gets_the_state_of_its_own_weights(loaded: Backbone, wide: bool) -> None:
    adapter = svf.SvfAdapter(loaded.model)
    shared = LastLayers(loaded, adapter, wide=wide)
    tokens = loaded.tokens(TEXT)
    below = shared.below(tokens[:-1])
    offsets = (
        np.random.default_rng(0).normal(scale=0.2, size=(5, sum(shared.sizes))).astype(np.float32)
    )
    expected = one_by_one(loaded, tokens, offsets, shared.sizes)
    whole = shared.states(below, offsets)
    assert near(whole, expected) > 0.999
    assert near(whole[:1], expected[1:2]) < near(whole[:1], expected[:1])
    by_two = LastLayers(loaded, adapter, wide=wide, at_once=2 * below.shape[1])
    np.testing.assert_allclose(by_two.states(below, offsets), whole, atol=0.05)


def test_without_offsets_it_is_the_backbones_own_state(loaded: Backbone) -> None:
    shared = LastLayers(loaded, svf.SvfAdapter(loaded.model), wide=False)
    tokens = loaded.tokens(TEXT)
    state = shared.states(shared.below(tokens[:-1]), np.zeros((1, sum(shared.sizes)), np.float32))
    loaded.forget()
    assert near(state, loaded.read(tokens).hidden[None]) > 0.999
