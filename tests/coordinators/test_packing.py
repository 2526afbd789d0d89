"""Packed weights: the same numbers, faster; what they were made from can still be read."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from fugu_cli.coordinators import backbone, torch_runtime
from tests.coordinators import tiny
from tests.coordinators.test_along import REPLY, build, next_decision
from tests.coordinators.test_stopping import BROKEN
from tests.facts import assigned, replied

DRAW = torch.Generator().manual_seed(3)
bf16_only = pytest.mark.skipif(
    not torch_runtime.gains_from_packing(torch.zeros(1, dtype=torch.bfloat16)),
    reason="this processor does not multiply bf16 numbers",
)


def drawn(*size: int) -> torch.Tensor:
    return torch.randn(size, generator=DRAW).bfloat16()


@bf16_only
@pytest.mark.parametrize("tokens", [1, 5, 70])
@pytest.mark.parametrize("bias", [None, drawn(48)])
def test_a_packed_weight_gives_the_products_of_the_stored_one(tokens: int, bias: torch.Tensor | None) -> None:
    x, weight = drawn(tokens, 32), drawn(48, 32)
    with torch.inference_mode():
        found = torch_runtime.linear(x, torch_runtime.pack_weight(weight), bias)
    torch.testing.assert_close(found, torch.nn.functional.linear(x, weight, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_only_bf16_is_packed(dtype: torch.dtype) -> None:
    assert not torch_runtime.gains_from_packing(torch.zeros(1, dtype=dtype))


def test_a_torch_without_the_operations_keeps_the_weights_as_they_are_stored() -> None:
    code = (
        "import torch\n"
        "from fugu_cli.coordinators import torch_runtime\n"
        "weight = torch.zeros(8, 8, dtype=torch.bfloat16)\n"
        "def refuse(*given): raise RuntimeError('no such operation')\n"
        "torch.ops.mkldnn._linear_pointwise = refuse\n"
        "print(torch_runtime.gains_from_packing(weight))\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "False\n"


def resident() -> int:
    """Kilobytes of files in this process's memory."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssFile"))
    return int(line.split()[1])


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="memory is given back on Linux only")
def test_memory_of_a_mapped_file_is_given_back_and_read_again(tmp_path: Path) -> None:
    stored = drawn(4096, 2048)
    save_file({"weight": stored}, tmp_path / "w.safetensors")
    with safe_open(tmp_path / "w.safetensors", framework="pt") as opened:
        mapped = opened.get_tensor("weight")
    assert torch.equal(mapped, stored)
    before = resident()
    assert torch_runtime.release_mapped([mapped]) > 15 << 20
    assert resident() < before - (15 << 10)
    assert torch.equal(mapped, stored)


def test_what_is_in_no_file_is_left_alone() -> None:
    weight = drawn(2048, 2048)
    before = weight.clone()
    assert torch_runtime.release_mapped([weight]) == 0
    assert torch.equal(weight, before)


@bf16_only
def test_a_backbone_reads_the_same_when_its_layers_are_packed_one_by_one(tmp_path: Path) -> None:
    loaded = backbone.load_backbone(tiny.folder(tmp_path / "backbone"), device="cpu")
    tokens = loaded.tokens("user: the last element is never compared\nassistant: I see")
    before = loaded.read(tokens).hidden
    for left in (True, True, False):
        assert loaded.pack(threading.Event(), 2) is left
        loaded.forget()
        torch.testing.assert_close(
            torch.from_numpy(loaded.read(tokens).hidden), torch.from_numpy(before), atol=0.05, rtol=0.05
        )


@bf16_only
def test_packing_stops_when_told(tmp_path: Path) -> None:
    loaded = backbone.load_backbone(tiny.folder(tmp_path / "backbone"), device="cpu")
    stop = threading.Event()
    stop.set()
    assert loaded.pack(stop, tiny.LAYERS)
    stop.clear()
    assert loaded.pack(stop, tiny.LAYERS)
    assert not loaded.pack(stop, 1)


@bf16_only
def test_a_weight_that_is_replaced_counts_though_the_layer_was_packed(tmp_path: Path) -> None:
    loaded = backbone.load_backbone(tiny.folder(tmp_path / "backbone"), device="cpu")
    tokens = loaded.tokens("user: the last element is never compared")
    loaded.pack(threading.Event(), tiny.LAYERS)
    before = loaded.read(tokens).hidden
    loaded.forget()
    with torch.inference_mode():
        loaded.decoder.replace(2, down=loaded.decoder.layers[2].down * 2)
        changed = loaded.read(tokens).hidden
        assert loaded.pack(threading.Event(), 1)
        loaded.forget()
        packed = loaded.read(tokens).hidden
    assert abs(changed - before).max() > 0.1
    torch.testing.assert_close(torch.from_numpy(packed), torch.from_numpy(changed), atol=0.05, rtol=0.05)


@bf16_only
def test_reading_along_packs_the_weights_and_changes_no_decision(tmp_path: Path) -> None:
    folder = tiny.folder(tmp_path / "backbone")
    coordinator = build(folder)
    events = [*BROKEN, assigned(1, "strong")]
    for said in (REPLY[:40], REPLY[:80], REPLY):
        asyncio.run(coordinator.ahead(events, said, threading.Event()))
    assert not coordinator.backbone.pack(threading.Event(), 1), "all are packed"
    done = [*events, replied(1, "strong", REPLY)]
    packed, cold = next_decision(coordinator, done), next_decision(build(folder), done)
    assert (packed.agent, packed.role) == (cold.agent, cold.role)
    assert packed.scores is not None
    assert cold.scores is not None
    assert packed.scores.row_logits == pytest.approx(cold.scores.row_logits, abs=0.3)


@pytest.fixture(params=[False, True], ids=["bf16 kernels", "no bf16 kernels"])
def lacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether products are made as on a processor that has no kernels for bf16."""
    lacks: bool = request.param
    monkeypatch.setattr(torch_runtime, "_lacks_bf16_kernels", lambda: lacks)
    return lacks


def test_without_bf16_kernels_products_of_more_than_a_few_tokens_are_in_fp32(lacking: bool) -> None:
    assert torch_runtime.computes_in_fp32(drawn(2, 2), torch_runtime.FP32_FROM_TOKENS) is lacking
    assert not torch_runtime.computes_in_fp32(drawn(2, 2), torch_runtime.FP32_FROM_TOKENS - 1)
    assert not torch_runtime.computes_in_fp32(drawn(2, 2).half(), torch_runtime.FP32_FROM_TOKENS)
    assert not torch_runtime.computes_in_fp32(drawn(2, 2).float(), torch_runtime.FP32_FROM_TOKENS)


@pytest.mark.parametrize("tokens", [1, torch_runtime.FP32_FROM_TOKENS, 70])
@pytest.mark.parametrize("bias", [None, drawn(48)])
def test_a_product_in_fp32_is_the_one_in_bf16(lacking: bool, tokens: int, bias: torch.Tensor | None) -> None:
    x, weight = drawn(tokens, 32), drawn(48, 32)
    exact = torch.nn.functional.linear(x.double(), weight.double(), None if bias is None else bias.double())
    found = torch_runtime.linear(x, weight, bias)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), exact, atol=0.05, rtol=0.01)


def test_a_text_read_in_parts_gives_the_state_of_one_pass_with_either_kind_of_product(
    tmp_path: Path, lacking: bool
) -> None:
    folder = tiny.folder(tmp_path / "backbone")
    read, fresh = backbone.load_backbone(folder, device="cpu"), backbone.load_backbone(folder, device="cpu")
    tokens = fresh.tokens("user: the last element is never compared\nassistant: I see, it stops before the last one")
    assert len(tokens) > 3 * torch_runtime.FP32_FROM_TOKENS
    for end in (
        torch_runtime.FP32_FROM_TOKENS + 2,
        torch_runtime.FP32_FROM_TOKENS + 5,
        3 * torch_runtime.FP32_FROM_TOKENS,
        len(tokens),
    ):
        read.read(tokens[:end])
    torch.testing.assert_close(
        torch.from_numpy(read.read(tokens).hidden), torch.from_numpy(fresh.read(tokens).hidden), atol=0.06, rtol=0.05
    )


def test_both_kinds_of_product_read_a_text_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = backbone.load_backbone(tiny.folder(tmp_path / "backbone"), device="cpu")
    tokens = loaded.tokens("user: the last element is never compared\nassistant: I see, it stops before the last one")
    states = []
    for lacks in (False, True):
        monkeypatch.setattr(torch_runtime, "_lacks_bf16_kernels", lambda lacks=lacks: lacks)
        loaded.forget()
        states.append(torch.from_numpy(loaded.read(tokens).hidden))
    torch.testing.assert_close(states[1], states[0], atol=0.06, rtol=0.05)
