"""The decoder against transformers' own models, and its cache against a pass without one."""

from itertools import pairwise

import pytest
import torch

from fugu_cli.coordinators import torch_runtime
from fugu_cli.coordinators.decoder import Decoder, KeyValueCache, ModelShape
from tests.unit.coordinators import tiny

KINDS = ("Qwen2", "Qwen3", "Llama")
SHAPE = ModelShape(
    width=tiny.WIDTH,
    layers=tiny.LAYERS,
    heads=tiny.HEADS,
    kv_heads=tiny.KV_HEADS,
    head_dim=tiny.HEAD_DIM,
    inner=tiny.INNER,
    vocab=tiny.VOCAB,
    eps=1e-6,
    theta=10000.0,
    tied=True,
)
TEXT = torch.randint(0, tiny.VOCAB, (90,), generator=torch.Generator().manual_seed(1))


def read(decoder: Decoder, *pieces: torch.Tensor) -> torch.Tensor:
    cache = decoder.new_cache()
    with torch.inference_mode():
        for piece in pieces:
            decoder.extend(piece, cache)
    return cache.hidden[: cache.length]


def theirs(kind: str, weights: dict[str, torch.Tensor]) -> torch.Tensor:
    """The final hidden states of TEXT as transformers' own model gives them."""
    import transformers  # takes seconds; every process that runs tests loads this module

    name = next(name for name in KINDS if name.lower() == kind)
    of_config, of_model = getattr(transformers, f"{name}Config"), getattr(transformers, f"{name}Model")
    with torch.device("cpu"):
        model = of_model(of_config(**{k: v for k, v in tiny.config(kind).items() if k != "model_type"})).eval()
    for name, parameter in model.named_parameters():
        parameter.data = weights[name]
    with torch.inference_mode():
        states: torch.Tensor = model(TEXT[None]).last_hidden_state[0]
    return states


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", [name.lower() for name in KINDS])
def test_hidden_states_are_those_of_transformers(
    kind: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_runtime, "_lacks_bf16_kernels", lambda: False)
    weights = tiny.weights(kind, dtype=dtype)
    assert torch.equal(read(Decoder(SHAPE, weights), TEXT), theirs(kind, weights))


@pytest.mark.parametrize("kind", [name.lower() for name in KINDS])
def test_without_kernels_for_bf16_they_are_as_near_to_the_exact_ones(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch_runtime, "_lacks_bf16_kernels", lambda: True)
    weights = tiny.weights(kind, dtype=torch.bfloat16)
    exact = theirs(kind, {name: weight.float() for name, weight in weights.items()})
    own, other = read(Decoder(SHAPE, weights), TEXT), theirs(kind, weights)
    assert own.dtype == torch.bfloat16
    assert (own - exact).square().mean() < 1.5 * (other - exact).square().mean()


@pytest.mark.parametrize("cuts", [(1,), (40,), (1, 2, 60), (30, 31, 89)])
def test_a_text_read_in_pieces_gives_what_it_gives_in_one(cuts: tuple[int, ...]) -> None:
    decoder = Decoder(SHAPE, tiny.weights("qwen2", dtype=torch.float32))
    ends = (0, *cuts, len(TEXT))
    pieces = [TEXT[start:end] for start, end in pairwise(ends)]
    torch.testing.assert_close(read(decoder, *pieces), read(decoder, TEXT), atol=1e-4, rtol=1e-4)


def test_a_cropped_cache_forgets_what_was_cut_off() -> None:
    decoder = Decoder(SHAPE, tiny.weights("qwen3", dtype=torch.float32))
    cache = decoder.new_cache()
    with torch.inference_mode():
        decoder.extend(TEXT[:50], cache)
        cache.crop(20)
        decoder.extend(TEXT[60:70], cache)
    expected = read(decoder, torch.cat((TEXT[:20], TEXT[60:70])))
    torch.testing.assert_close(cache.hidden[:30], expected, atol=1e-4, rtol=1e-4)


def test_a_cache_that_outgrows_its_room_keeps_what_it_holds() -> None:
    decoder = Decoder(SHAPE, tiny.weights("qwen3", dtype=torch.float32))
    cache = KeyValueCache(SHAPE, torch.float32, torch.device("cpu"), capacity=4)
    with torch.inference_mode():
        for token in TEXT[:30]:
            decoder.extend(token[None], cache)
    torch.testing.assert_close(cache.hidden[:30], read(decoder, TEXT[:30]), atol=1e-4, rtol=1e-4)


def test_a_missing_weight_is_named() -> None:
    weights = tiny.weights("qwen3")
    del weights["layers.2.mlp.up_proj.weight"]
    with pytest.raises(KeyError, match=r"layers\.2\.mlp\.up_proj"):
        Decoder(SHAPE, weights)


def test_a_long_text_read_in_pieces_of_all_sizes_is_read_as_in_one() -> None:
    decoder = Decoder(SHAPE, tiny.weights("qwen2"))
    text = torch.randint(0, tiny.VOCAB, (4420,), generator=torch.Generator().manual_seed(2))
    cache = decoder.new_cache()
    with torch.inference_mode():
        for start, end in pairwise((0, 4000, 4390, 4391, 4393, 4395)):
            decoder.extend(text[start:end], cache)
        cache.crop(4380)
        decoder.extend(text[4380:4420], cache)
    whole = read(decoder, text)
    assert torch.nn.functional.cosine_similarity(cache.hidden[4380:4420].float(), whole[4380:].float()).min() > 0.995
