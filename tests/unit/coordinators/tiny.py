"""Tiny random backbones in the layout of real ones: quick to make, the same arithmetic."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from fugu_cli.coordinators import svf
from fugu_cli.coordinators.backbone import Backbone
from fugu_cli.coordinators.backbone_files import shape_of
from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta, make
from fugu_cli.coordinators.trinity import HeadReader

WIDTH, INNER, LAYERS, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 48, 4, 4, 2, 8, 300
TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)


def crowd(backbone: Backbone) -> None:
    """Let `backbone` find no memory for its next pass."""

    def refuse(*_: object) -> None:
        hook.remove()
        raise RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 9 bytes"
        )

    hook = backbone.model.layers[1].register_forward_pre_hook(refuse)


def reader(checkpoint: Checkpoint, backbone: Backbone) -> HeadReader:
    """A reader for a backbone that carries the checkpoint's offsets already."""
    checkpoint.check(backbone.identity, backbone.shape)
    return HeadReader(checkpoint.meta, lambda: (checkpoint, backbone))


def config(kind: str = "qwen3", *, tied: bool = True) -> dict[str, object]:
    return {
        "model_type": kind,
        "hidden_size": WIDTH,
        "intermediate_size": INNER,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "vocab_size": VOCAB,
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": tied,
        "max_position_embeddings": 4096,
    }


def weights(
    kind: str = "qwen3", *, seed: int = 0, dtype: torch.dtype = torch.bfloat16
) -> dict[str, torch.Tensor]:
    draw = torch.Generator().manual_seed(seed)
    sizes = {"embed_tokens.weight": (VOCAB, WIDTH), "norm.weight": (WIDTH,)}
    for index in range(LAYERS):
        layer = {
            "self_attn.q_proj.weight": (HEADS * HEAD_DIM, WIDTH),
            "self_attn.k_proj.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            "self_attn.v_proj.weight": (KV_HEADS * HEAD_DIM, WIDTH),
            "self_attn.o_proj.weight": (WIDTH, HEADS * HEAD_DIM),
            "mlp.gate_proj.weight": (INNER, WIDTH),
            "mlp.up_proj.weight": (INNER, WIDTH),
            "mlp.down_proj.weight": (WIDTH, INNER),
            "input_layernorm.weight": (WIDTH,),
            "post_attention_layernorm.weight": (WIDTH,),
        }
        if kind == "qwen2":
            layer |= {
                f"self_attn.{name}_proj.bias": layer[f"self_attn.{name}_proj.weight"][:1]
                for name in "qkv"
            }
        if kind == "qwen3":
            layer |= {
                "self_attn.q_norm.weight": (HEAD_DIM,),
                "self_attn.k_norm.weight": (HEAD_DIM,),
            }
        sizes |= {f"layers.{index}.{name}": size for name, size in layer.items()}
    return {
        name: (torch.randn(size, generator=draw) * 0.3 + ("norm" in name)).to(dtype)
        for name, size in sizes.items()
    }


def tokenizer() -> Tokenizer:
    """One token per byte, and a few pairs."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {letter: number for number, letter in enumerate(alphabet)}
    merges = [("e", "r"), ("r", "k"), ("Ġ", "t")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    made = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    return made


def folder(path: Path, kind: str = "qwen3", *, tied: bool = True, seed: int = 0) -> Path:
    """A backbone's folder at `path`."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(config(kind, tied=tied)))
    (path / "chat_template.jinja").write_text(TEMPLATE)
    named = {f"model.{name}": weight for name, weight in weights(kind, seed=seed).items()}
    save_file(named, path / "model.safetensors")
    tokenizer().save(str(path / "tokenizer.json"))
    (path / "fugu.json").write_text(
        json.dumps({"source_sha256": f"tiny-{kind}-{seed}", "format": 1})
    )
    return path


def meta(path: Path, **changes: object) -> CheckpointMeta:
    """What a checkpoint of the backbone at `path` is valid for; with roles unless said otherwise."""
    shape = shape_of(path)
    identity = json.loads((path / "fugu.json").read_text())["source_sha256"]
    about = {
        "backbone": identity,
        "width": shape.width,
        "ranks": svf.ranks(shape),
        "rows": ("small", "coder", "strong"),
    }
    return CheckpointMeta.model_validate({**about, **changes})


def checkpoint(about: CheckpointMeta, *, seed: int = 0, offsets: float = 0.0) -> Checkpoint:
    """Random numbers of the right count; `offsets` is how far the SVF blocks are from zero."""
    draw = torch.Generator().manual_seed(seed)
    blocks = torch.randn(sum(about.ranks), generator=draw) * offsets
    head = torch.randn(about.head_rows * about.width, generator=draw)
    return make(torch.cat((blocks, head)).numpy(), about)
