"""A GGUF file becomes a folder transformers can map; the model has a few kilobytes and is written
here.
"""

import hashlib
import json
from pathlib import Path

import numpy
import pytest
import torch
from gguf import GGUFWriter

from fugu_cli.coordinators.backbone_files import (
    CONVERSION_FORMAT,
    BackboneNote,
    backbone_folder,
    read_note,
)
from fugu_cli.errors import ModelFileError

WIDTH, LAYERS, HEADS, KV_HEADS, INNER = 16, 2, 4, 2, 24
LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
TOKENS = [*LETTERS, "Ġ", "ab", "abc", "<|endoftext|>", "<|im_end|>"]
MERGES = ["a b", "ab c"]
SHAPES = {
    "attn_q": (WIDTH, WIDTH),
    "attn_k": (WIDTH // HEADS * KV_HEADS, WIDTH),
    "attn_v": (WIDTH // HEADS * KV_HEADS, WIDTH),
    "attn_output": (WIDTH, WIDTH),
    "ffn_gate": (INNER, WIDTH),
    "ffn_up": (INNER, WIDTH),
    "ffn_down": (WIDTH, INNER),
}


def written(path: Path, architecture: str = "qwen2", seed: int = 0) -> Path:
    """A qwen2 model with random weights and a tokenizer of 31 tokens."""
    values = numpy.random.default_rng(seed)
    writer = GGUFWriter(path, architecture)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 2) + [3, 3])
    writer.add_token_merges(MERGES)
    writer.add_bos_token_id(len(TOKENS) - 2)
    writer.add_eos_token_id(len(TOKENS) - 1)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, values.standard_normal(shape).astype(numpy.float32))

    add("output.weight", len(TOKENS), WIDTH)
    add("token_embd.weight", len(TOKENS), WIDTH)
    add("output_norm.weight", WIDTH)
    for layer in range(LAYERS):
        for part, shape in SHAPES.items():
            add(f"blk.{layer}.{part}.weight", *shape)
        for part in ("attn_q", "attn_k", "attn_v"):
            add(f"blk.{layer}.{part}.bias", SHAPES[part][0])
        for part in ("attn_norm", "ffn_norm"):
            add(f"blk.{layer}.{part}.weight", WIDTH)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_the_folder_holds_the_weights_of_the_file_in_bf16(tmp_path: Path) -> None:
    source = written(tmp_path / "tiny.gguf")
    told: list[tuple[float, str]] = []
    folder = backbone_folder(source, tmp_path, lambda done, what: told.append((done, what)))
    from transformers import (
        AutoModel,
    )  # takes seconds; every process that runs tests loads this module

    model = AutoModel.from_pretrained(folder, dtype=torch.bfloat16, local_files_only=True)
    values = numpy.random.default_rng(0)
    values.standard_normal((len(TOKENS), WIDTH))
    expected = torch.from_numpy(
        values.standard_normal((len(TOKENS), WIDTH)).astype(numpy.float32)
    ).to(torch.bfloat16)
    assert torch.equal(model.embed_tokens.weight, expected)
    assert {
        name: tuple(tensor.shape) for name, tensor in model.layers[1].self_attn.state_dict().items()
    } == {
        "q_proj.weight": (16, 16),
        "q_proj.bias": (16,),
        "k_proj.weight": (8, 16),
        "k_proj.bias": (8,),
        "v_proj.weight": (8, 16),
        "v_proj.bias": (8,),
        "o_proj.weight": (16, 16),
    }
    with torch.no_grad():
        hidden = model(torch.tensor([[1, 2, 3]])).last_hidden_state
    assert (tuple(hidden.shape), bool(hidden.isfinite().all())) == ((1, 3, WIDTH), True)
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert told[-1] == (1.0, "the backbone is ready")


def test_the_head_is_left_out_and_tied_to_the_embedding(tmp_path: Path) -> None:
    folder = backbone_folder(written(tmp_path / "tiny.gguf"), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert (config["tie_word_embeddings"], config["hidden_size"], config["num_hidden_layers"]) == (
        True,
        WIDTH,
        LAYERS,
    )
    assert b"lm_head" not in (folder / "model.safetensors").read_bytes()


def test_the_tokenizer_comes_along(tmp_path: Path) -> None:
    folder = backbone_folder(written(tmp_path / "tiny.gguf"), tmp_path)
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    assert tokenizer("abc ab")["input_ids"] == [
        TOKENS.index("abc"),
        TOKENS.index("Ġ"),
        TOKENS.index("ab"),
    ]


def test_the_folder_is_made_once_and_says_what_it_was_made_from(tmp_path: Path) -> None:
    source = written(tmp_path / "tiny.gguf")
    folder = backbone_folder(source, tmp_path)
    made = (folder / "model.safetensors").stat().st_mtime_ns
    assert backbone_folder(source, tmp_path, lambda done, what: pytest.fail(what)) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made
    now = source.stat()
    assert read_note(folder) == BackboneNote(
        source_sha256=hashlib.sha256(source.read_bytes()).hexdigest(),
        format=CONVERSION_FORMAT,
        size=now.st_size,
        mtime_ns=now.st_mtime_ns,
    )


def test_a_source_that_was_only_touched_keeps_its_folder_a_new_one_does_not(tmp_path: Path) -> None:
    source = written(tmp_path / "tiny.gguf")
    folder = backbone_folder(source, tmp_path)
    before = (folder / "model.safetensors").read_bytes()
    source.touch()
    backbone_folder(source, tmp_path, lambda done, what: pytest.fail(what))
    written(source, seed=1)
    assert backbone_folder(source, tmp_path) == folder
    assert (folder / "model.safetensors").read_bytes() != before


def test_what_a_killed_conversion_left_is_no_backbone_and_in_nobodys_way(tmp_path: Path) -> None:
    source = written(tmp_path / "tiny.gguf")
    left = tmp_path / "backbones" / f"tiny-{CONVERSION_FORMAT}.new"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half")
    folder = backbone_folder(source, tmp_path)
    assert sorted(path.name for path in folder.parent.iterdir() if path.suffix != ".lock") == [
        f"tiny-{CONVERSION_FORMAT}"
    ]


def test_a_file_that_is_no_model_is_named(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>")
    with pytest.raises(ModelFileError, match=r"page\.gguf cannot be read as a GGUF file"):
        backbone_folder(tmp_path / "page.gguf", tmp_path)
    with pytest.raises(ModelFileError, match=r"none\.gguf is not there"):
        backbone_folder(tmp_path / "none.gguf", tmp_path)


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ModelFileError, match="is a 'llama' model; only 'qwen2' GGUF files can become a backbone"
    ):
        backbone_folder(written(tmp_path / "other.gguf", "llama"), tmp_path)
