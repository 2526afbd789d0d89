"""The published layout at its full size: a randomly initialised Qwen3-0.6B takes a vector of 19,456
numbers.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from transformers import Qwen3Config, Qwen3Model

from fugu_cli.coordinators import backbone_files, svf
from fugu_cli.coordinators import checkpoint as coordinators_checkpoint
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.backbone_files import ModelShape
from fugu_cli.coordinators.checkpoint import PUBLISHED_ROWS, Checkpoint, import_published
from fugu_cli.coordinators.svf import SvfAdapter, layer_matrices
from tests.unit.coordinators import tiny

CONFIG = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
}


@pytest.fixture(scope="module")
def shape(tmp_path_factory: pytest.TempPathFactory) -> ModelShape:
    folder = tmp_path_factory.mktemp("qwen3")
    (folder / "config.json").write_text(json.dumps(CONFIG))
    return backbone_files.shape_of(folder)


@pytest.fixture(scope="module")
def model() -> Qwen3Model:
    """transformers' own Qwen3-0.6B, 1.2 GB of one random block over and over."""
    with torch.device("meta"):
        made = Qwen3Model(Qwen3Config(**CONFIG))
    block = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)).mul(0.02).bfloat16()
    weights = {}
    for name, place in made.state_dict().items():
        one = torch.empty(place.shape, dtype=torch.bfloat16).view(-1)
        for piece in one.split(len(block)):
            piece.copy_(block[: len(piece)])
        weights[name] = (
            one.view(place.shape)
            if place.dim() > 1
            else torch.ones(place.shape, dtype=torch.bfloat16)
        )
    made.load_state_dict(weights, assign=True)
    made.rotary_emb = type(made.rotary_emb)(config=made.config)
    return made.eval()


@pytest.fixture(scope="module")
def checkpoint(shape: ModelShape, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("vector") / "a.npy"
    np.save(path, np.random.default_rng(0).normal(0, 0.1, 19456))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    return import_published(path, {"gpt-5": "strong"}, "random", shape, sha256=found)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spectra on the disk. The embedding's takes long at this size: any basis will do for
    shapes.
    """
    folder = tmp_path_factory.mktemp("spectra")
    basis = torch.linalg.qr(torch.randn(1024, 1024, generator=torch.Generator().manual_seed(1))).Q
    save_file(
        {"values": torch.linspace(9, 1, 1024), "basis": basis.contiguous()},
        folder / "embedding.safetensors",
    )
    return folder


def test_every_block_has_the_rank_of_its_matrix(shape: ModelShape, model: Qwen3Model) -> None:
    table, seven = (
        model.embed_tokens.weight,
        [one.weight for one in layer_matrices(model.layers[26]).values()],
    )
    assert (
        tuple(min(matrix.shape) for matrix in [table, *seven, table])
        == svf.ranks(shape)
        == (1024,) * 9
    )
    assert sum(svf.ranks(shape)) + len(PUBLISHED_ROWS) * 1024 + 3 * 1024 == 19456


@pytest.mark.parametrize("tied", ["untied", "authors"])
def test_the_vector_changes_layer_26_and_the_embedding_and_the_backbone_reads(
    shape: ModelShape, model: Qwen3Model, checkpoint: Checkpoint, store: Path, tied: svf.Tied
) -> None:
    plain, originals = (
        Backbone(model, tiny.tokenizer(), shape, "random"),
        [_query(layer) for layer in model.layers],
    )
    row = model.embed_tokens(torch.tensor([5]))
    before = plain.read(range(1, 9)).hidden
    adapter = SvfAdapter(model, store)
    adapter.apply(checkpoint.offsets, tied)
    plain.forget()
    after = plain.read(range(1, 9)).hidden
    assert not torch.equal(model.embed_tokens(torch.tensor([5])), row)
    same = [
        torch.equal(_query(layer), original)
        for layer, original in zip(model.layers, originals, strict=True)
    ]
    assert same == [index != 26 for index in range(28)]
    assert after.shape == before.shape == (1024,)
    assert np.isfinite(after).all()
    assert not np.allclose(before, after)
    assert (checkpoint.head @ after).shape == (10,)
    adapter.apply([np.zeros(1024, np.float32)] * 9)


def _query(layer: torch.nn.Module) -> torch.Tensor:
    return layer_matrices(layer)["q"].weight.data


def test_only_qwen3s_own_numbers_are_those_of_the_published_file() -> None:
    wanted = {"hidden_size": "width", "num_hidden_layers": "layers", "num_attention_heads": "heads"}
    wanted |= {
        "num_key_value_heads": "kv_heads",
        "head_dim": "head_dim",
        "intermediate_size": "inner",
    }
    wanted |= {"vocab_size": "vocab"}
    assert {
        name: CONFIG[key] for key, name in wanted.items()
    } == coordinators_checkpoint.PUBLISHED_SHAPE
