"""The published layout at its full size: a randomly initialised Qwen3-0.6B takes a vector of 19,456 numbers."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from fugu_cli.coordinators import backbone_files, svf
from fugu_cli.coordinators import checkpoint as coordinators_checkpoint
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.checkpoint import PUBLISHED_ROWS, Checkpoint, import_published
from fugu_cli.coordinators.decoder import Decoder, ModelShape
from fugu_cli.coordinators.svf import SvfAdapter
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
def weights() -> dict[str, torch.Tensor]:
    """All weights of transformers' own Qwen3-0.6B by their names, 1.2 GB of one random block over and over."""
    from transformers import Qwen3Config, Qwen3ForCausalLM  # takes seconds

    with torch.device("meta"):
        model = Qwen3ForCausalLM(Qwen3Config(**CONFIG))
    block = torch.randn(1 << 20, generator=torch.Generator().manual_seed(0)).mul(0.02).bfloat16()
    made = {}
    for name, place in model.model.state_dict().items():
        one = torch.empty(place.shape, dtype=torch.bfloat16).view(-1)
        for piece in one.split(len(block)):
            piece.copy_(block[: len(piece)])
        made[name] = one.view(place.shape) if place.dim() > 1 else torch.ones(place.shape, dtype=torch.bfloat16)
    return made


@pytest.fixture(scope="module")
def checkpoint(shape: ModelShape, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    path = tmp_path_factory.mktemp("vector") / "a.npy"
    np.save(path, np.random.default_rng(0).normal(0, 0.1, 19456))
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    return import_published(path, {"gpt-5": "strong"}, "random", shape, sha256=found)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spectra on the disk. The embedding's takes long at this size: any basis will do for shapes."""
    folder = tmp_path_factory.mktemp("spectra")
    basis = torch.linalg.qr(torch.randn(1024, 1024, generator=torch.Generator().manual_seed(1))).Q
    save_file({"values": torch.linspace(9, 1, 1024), "basis": basis.contiguous()}, folder / "embedding.safetensors")
    return folder


def test_every_block_has_the_rank_of_its_matrix(shape: ModelShape, weights: dict[str, torch.Tensor]) -> None:
    decoder = Decoder(shape, weights)
    layer = decoder.layers[26]
    nine = [decoder.embedding, *(getattr(layer, name) for name in svf.LAYER_BLOCKS), decoder.embedding]
    assert tuple(min(matrix.shape) for matrix in nine) == svf.ranks(shape) == (1024,) * 9
    assert sum(svf.ranks(shape)) + len(PUBLISHED_ROWS) * 1024 + 3 * 1024 == 19456


@pytest.mark.parametrize("tied", ["untied", "authors"])
def test_the_vector_changes_layer_26_and_the_embedding_and_the_backbone_reads(
    shape: ModelShape, weights: dict[str, torch.Tensor], checkpoint: Checkpoint, store: Path, tied: svf.Tied
) -> None:
    decoder = Decoder(shape, weights)
    plain = Backbone(decoder, tiny.tokenizer(), "random")
    before = plain.read(range(1, 9)).hidden
    SvfAdapter(decoder, store).apply(checkpoint.offsets, tied)
    plain.forget()
    after = plain.read(range(1, 9)).hidden
    assert decoder.embedding_map is not None
    assert decoder.embedding_map.shape == (1024, 1024)
    same = [torch.equal(one.q, weights[f"layers.{i}.self_attn.q_proj.weight"]) for i, one in enumerate(decoder.layers)]
    assert same == [index != 26 for index in range(28)]
    assert after.shape == before.shape == (1024,)
    assert np.isfinite(after).all()
    assert not np.allclose(before, after)
    assert (checkpoint.head @ after).shape == (10,)


def test_only_qwen3s_own_numbers_are_those_of_the_published_file() -> None:
    wanted = {"hidden_size": "width", "num_hidden_layers": "layers", "num_attention_heads": "heads"}
    wanted |= {"num_key_value_heads": "kv_heads", "head_dim": "head_dim", "intermediate_size": "inner"}
    wanted |= {"vocab_size": "vocab"}
    assert {name: CONFIG[key] for key, name in wanted.items()} == coordinators_checkpoint.PUBLISHED_SHAPE
