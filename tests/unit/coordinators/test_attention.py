"""Attention: every way of computing it gives what the definition gives."""

from __future__ import annotations

import pytest
import torch

from fugu_cli.coordinators.decoder import AttentionSpan, attend, attention_span

HEADS, KV_HEADS, WIDTH = 6, 2, 16
TYPES = torch.float32, torch.bfloat16


def place(start: int, end: int, dtype: torch.dtype) -> AttentionSpan:
    return attention_span((start, end), (WIDTH, 1e4), (HEADS, KV_HEADS), torch.zeros(1, dtype=dtype))


def drawn(start: int, end: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draw = torch.Generator().manual_seed(7)
    sizes = (HEADS, end - start), (KV_HEADS, end + 30), (KV_HEADS, end + 30)
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
