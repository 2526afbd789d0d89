"""Attention: every way of computing it gives what the definition gives."""

from __future__ import annotations

import pytest
import torch

from fugu_cli.coordinators import decoder
from fugu_cli.coordinators.decoder import AttentionSpan, PassBuffers, ScoreBuffers, attend, attention_span, rounded_up

HEADS, KV_HEADS, WIDTH = 6, 2, 16
TYPES = torch.float32, torch.bfloat16


def place(start: int, end: int, dtype: torch.dtype) -> AttentionSpan:
    return attention_span((start, end), (WIDTH, 1e4), (HEADS, KV_HEADS), torch.zeros(1, dtype=dtype), PassBuffers())


def drawn(start: int, end: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(7)
    sizes = (HEADS, end - start), (KV_HEADS, rounded_up(end)), (KV_HEADS, rounded_up(end))
    q, keys, values = (torch.randn(*size, WIDTH, generator=draw).to(dtype) for size in sizes)
    keys[:, end:], values[:, end:] = 9, 9  # what is left there of a longer text
    return 3 * q, keys, values


def defined(q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, start: int) -> torch.Tensor:
    """Softmax of scaled products, in fp64, each token looking back from where it stands."""
    end = start + q.shape[1]
    keys, values = (x[:, :end].double().repeat_interleave(HEADS // KV_HEADS, 0) for x in (keys, values))
    scores = q.double() @ keys.transpose(1, 2) / WIDTH**0.5
    later = torch.ones(scores.shape[1:], dtype=torch.bool).triu(start + 1)
    return scores.masked_fill(later, -torch.inf).softmax(-1) @ values


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(
    ("start", "end"),
    [(0, 1), (0, 40), (39, 40), (300, 312), (4200, 4212), (4096, 4108), (4300, 4352), (2000, 2020), (2000, 2150)],
)
def test_every_way_gives_the_softmax_of_scaled_products(start: int, end: int, dtype: torch.dtype) -> None:
    q, keys, values = drawn(start, end, dtype)
    found = attend(q, keys, values, place(start, end, dtype)).double()
    rounding = 1e-5 if dtype == torch.float32 else 2e-2
    torch.testing.assert_close(found, defined(q, keys, values, start), atol=rounding, rtol=rounding)


def test_scores_computed_at_once_are_as_exact_as_those_of_torchs_own_kernel() -> None:
    q, keys, values = drawn(500, 512, torch.bfloat16)
    ahead = torch.full((12, 12), -torch.inf).triu(1).repeat(HEADS // KV_HEADS, 1)
    mask = torch.full((12, 512), -torch.inf, dtype=torch.bfloat16).triu(501).repeat(HEADS // KV_HEADS, 1)
    like = place(500, 512, torch.bfloat16)
    exact = defined(q, keys, values, 500)

    def error(where: AttentionSpan) -> float:
        return float((attend(q, keys, values, where).double() - exact).square().mean().sqrt())

    room = [torch.empty(KV_HEADS, 512, WIDTH), *(torch.empty(KV_HEADS, len(ahead), 512, dtype=t) for t in TYPES)]
    at_once = error(AttentionSpan(500, 512, like.cos, like.sin, room=ScoreBuffers(ahead, *room)))
    kernel = error(AttentionSpan(500, 512, like.cos, like.sin, mask=mask))
    assert at_once < 1.5 * kernel


@pytest.mark.parametrize(
    ("start", "end"),
    [(900, 1000), (3000, 3002), (2000, 2003), (decoder.MOST_PRODUCTS // 64 - 63, decoder.MOST_PRODUCTS // 64 + 1)],
)
def test_few_to_look_at_few_to_read_or_many_are_left_to_the_kernel_that_needs_no_room(start: int, end: int) -> None:
    assert place(start, end, torch.bfloat16).room is None
    assert place(start, end, torch.bfloat16).mask is not None


def test_passes_one_after_another_compute_in_the_same_memory() -> None:
    buffers = PassBuffers()
    first = buffers.take("scores", (2, 100), torch.float32)
    smaller = buffers.take("scores", (3, 50), torch.float32)
    assert smaller.data_ptr() == first.data_ptr()
    assert buffers.take("keys", (2, 100), torch.float32).data_ptr() != first.data_ptr()
    assert buffers.take("scores", (40, 100), torch.float32).shape == (40, 100)


def test_the_precision_of_products_is_left_as_it_was() -> None:
    before = torch.get_float32_matmul_precision()
    attend(*drawn(4200, 4212, torch.bfloat16), place(4200, 4212, torch.bfloat16))
    assert torch.get_float32_matmul_precision() == before
