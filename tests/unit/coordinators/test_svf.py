"""SVF against the definition: an explicit SVD, energy preserved, exact at zero."""

from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import PreTrainedModel

from fugu_cli.coordinators import backbone, svf
from fugu_cli.coordinators.backbone_files import ModelShape, model_of, shape_of
from tests.unit.coordinators import tiny


def by_definition(weight: torch.Tensor, offsets: np.ndarray) -> torch.Tensor:
    u, s, vt = torch.linalg.svd(weight.double(), full_matrices=False)
    scaled = (1 + torch.from_numpy(offsets).double()) * s
    return (u * scaled) @ vt * (s.sum() / scaled.sum())


def draw(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.1, size).astype(np.float32)


@pytest.mark.parametrize("size", [(40, 12), (12, 40), (16, 16), (1, 9), (9, 1)])
def test_a_changed_weight_is_what_the_svd_says(size: tuple[int, int]) -> None:
    weight = torch.randn(size, generator=torch.Generator().manual_seed(2))
    offsets = draw(min(size))
    found = svf.updated_weight(weight, svf.spectrum(weight), offsets)
    torch.testing.assert_close(found.double(), by_definition(weight, offsets), atol=1e-5, rtol=1e-5)


def test_the_spectrum_is_that_of_the_svd_largest_first() -> None:
    weight = torch.randn(30, 10, generator=torch.Generator().manual_seed(2)).bfloat16()
    torch.testing.assert_close(svf.spectrum(weight).values, torch.linalg.svdvals(weight.float()))


def test_the_energy_stays() -> None:
    weight = torch.randn(20, 20, generator=torch.Generator().manual_seed(5))
    found = svf.updated_weight(weight, svf.spectrum(weight), draw(20))
    assert float(torch.linalg.svdvals(found).sum()) == pytest.approx(
        float(torch.linalg.svdvals(weight).sum()), rel=1e-4
    )


def test_a_weight_without_full_rank_is_no_trouble() -> None:
    weight = torch.ones(6, 4)
    offsets = np.array([0.2, 0.3, -0.1, 0.0], dtype=np.float32)
    torch.testing.assert_close(svf.updated_weight(weight, svf.spectrum(weight), offsets), weight)


def test_zero_offsets_give_the_very_same_tensor() -> None:
    weight = torch.randn(5, 5).bfloat16()
    assert svf.updated_weight(weight, svf.spectrum(weight), np.zeros(5, np.float32)) is weight


def test_offsets_that_cancel_the_singular_values_are_refused() -> None:
    weight = torch.randn(5, 5)
    with pytest.raises(ValueError, match="cancel"):
        svf.updated_weight(weight, svf.spectrum(weight), np.full(5, -1.0, np.float32))


def test_the_flat_vector_splits_and_joins() -> None:
    sizes, width = (4, 2, 2, 2, 4, 4, 4, 4, 4), 6
    vector = np.arange(30 + 5 * width, dtype=np.float32)
    blocks, head = svf.split(vector, sizes, width)
    assert [len(block) for block in blocks] == list(sizes)
    assert (blocks[0][0], blocks[1][0], blocks[8][-1], head.shape, head[1][0]) == (
        0,
        4,
        29,
        (5, 6),
        36,
    )
    assert np.array_equal(svf.join(blocks, head), vector)


@pytest.mark.parametrize("size", [30, 31, 29, 0])
def test_a_vector_of_another_length_does_not_split(size: int) -> None:
    with pytest.raises(ValueError):
        svf.split(np.zeros(size, np.float32), (4, 2, 2, 2, 4, 4, 4, 4, 4), 6)


def test_the_published_layout_is_that_of_qwen3() -> None:
    full = ModelShape(1024, 28, 16, 8, 128, 3072, 151936, True)
    assert svf.ranks(full) == (1024,) * 9
    assert sum(svf.ranks(full)) + 10 * 1024 == 19456


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tiny.folder(tmp_path / "backbone")


def decoder(folder: Path) -> PreTrainedModel:
    return model_of(folder, torch.bfloat16)


def hidden(made: PreTrainedModel) -> torch.Tensor:
    with torch.no_grad():
        return made(input_ids=torch.arange(20)[None]).last_hidden_state[0].float()


def blocks(folder: Path, **nonzero: int) -> tuple[np.ndarray, ...]:
    """Nine blocks of zeros, but for the named ones, drawn with the given seed."""
    sizes = zip(svf.BLOCKS, svf.ranks(shape_of(folder)), strict=True)
    return tuple(
        draw(size, nonzero[name]) if name in nonzero else np.zeros(size, np.float32)
        for name, size in sizes
    )


def test_all_nine_zero_changes_nothing_at_all(folder: Path) -> None:
    made = decoder(folder)
    before = hidden(made)
    svf.SvfAdapter(made).apply(blocks(folder))
    assert torch.equal(hidden(made), before)


def test_offsets_are_put_on_the_original_and_come_off_again(folder: Path) -> None:
    made = decoder(folder)
    before = hidden(made)
    adapter = svf.SvfAdapter(made)
    adapter.apply(blocks(folder, q=1, down=2, embedding=3))
    once = hidden(made)
    adapter.apply(blocks(folder, q=1, down=2, embedding=3))
    assert torch.equal(hidden(made), once)
    assert not torch.equal(once, before)
    adapter.apply(blocks(folder))
    assert torch.equal(hidden(made), before)


def test_only_the_second_to_last_layer_is_touched(folder: Path) -> None:
    made = decoder(folder)
    originals = {name: weight.clone() for name, weight in made.state_dict().items()}
    svf.SvfAdapter(made).apply(blocks(folder, **dict.fromkeys(svf.LAYER_BLOCKS, 1)))
    changed = {
        name
        for name, weight in made.state_dict().items()
        if not torch.equal(weight, originals[name])
    }
    parts = {
        name: "mlp" if name in ("gate", "up", "down") else "self_attn" for name in svf.LAYER_BLOCKS
    }
    names = {name: f"layers.2.{part}.{name}_proj.weight" for name, part in parts.items()}
    assert changed == set(names.values())
    for name in names.values():
        original = originals[name].float()
        expected = by_definition(original, draw(min(original.shape), 1)).float()
        torch.testing.assert_close(made.state_dict()[name].float(), expected, atol=0.02, rtol=0.02)


def test_looked_up_rows_are_those_of_the_changed_table(folder: Path) -> None:
    made = decoder(folder)
    table = made.embed_tokens.weight.detach().float().clone()
    offsets = blocks(folder, embedding=4)
    svf.SvfAdapter(made).apply(offsets)
    rows = made.embed_tokens(torch.tensor([3, 77, 3])).detach().float()
    torch.testing.assert_close(
        rows, by_definition(table, offsets[0])[[3, 77, 3]].float(), atol=0.02, rtol=0.02
    )
    assert torch.equal(made.embed_tokens.weight.float(), table)


def test_with_tied_embeddings_the_first_block_moves_the_input_and_for_the_authors_the_ninth(
    folder: Path,
) -> None:
    made = decoder(folder)
    adapter = svf.SvfAdapter(made)
    both = blocks(folder, embedding=1, lm_head=2)
    adapter.apply(blocks(folder, embedding=1))
    first = hidden(made)
    adapter.apply(blocks(folder, embedding=2))
    ninth = hidden(made)
    adapter.apply(both, "untied")
    assert torch.equal(hidden(made), first)
    adapter.apply(both, "authors")
    assert torch.equal(hidden(made), ninth)
    assert not torch.equal(first, ninth)


def test_without_tied_embeddings_the_ninth_block_never_matters(tmp_path: Path) -> None:
    folder = tiny.folder(tmp_path / "untied", tied=False)
    made = decoder(folder)
    before = hidden(made)
    svf.SvfAdapter(made).apply(blocks(folder, lm_head=2), "authors")
    assert torch.equal(hidden(made), before)


def test_spectra_are_computed_once_and_read_from_the_disk_afterwards(
    folder: Path, tmp_path: Path
) -> None:
    store = tmp_path / "svf"
    offsets = blocks(folder, k=1, embedding=2)
    first = decoder(folder)
    svf.SvfAdapter(first, store).apply(offsets)
    files = {path.name: path.stat().st_mtime_ns for path in store.iterdir()}
    assert set(files) == {"k.safetensors", "embedding.safetensors"}
    second = decoder(folder)
    svf.SvfAdapter(second, store).apply(offsets)
    assert {path.name: path.stat().st_mtime_ns for path in store.iterdir()} == files
    assert torch.equal(hidden(first), hidden(second))


def test_a_spectrum_cut_short_on_the_disk_is_computed_again(folder: Path, tmp_path: Path) -> None:
    store = tmp_path / "svf"
    store.mkdir()
    (store / "k.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
    made, whole = decoder(folder), decoder(folder)
    svf.SvfAdapter(made, store).apply(blocks(folder, k=1))
    svf.SvfAdapter(whole).apply(blocks(folder, k=1))
    assert torch.equal(hidden(made), hidden(whole))
    assert (store / "k.safetensors").stat().st_size > 100


def test_a_read_after_a_change_starts_anew(folder: Path) -> None:
    loaded = backbone.load_backbone(folder, device="cpu")
    tokens = loaded.tokens("user: a text that is long enough")
    before = loaded.read(tokens).hidden
    svf.SvfAdapter(loaded.model).apply(blocks(folder, v=1, o=2))
    loaded.forget()
    assert not np.array_equal(loaded.read(tokens).hidden, before)
    assert loaded.read(tokens).cached == len(tokens) - 2
