"""Where torch computes, and what becomes of its failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from fugu_cli.coordinators import torch_runtime


def test_all_sums_are_done_on_one_thread_without_gradients() -> None:
    one = torch_runtime.ComputeThread()
    found: list[tuple[int, bool]] = []

    def look() -> None:
        found.append(one("here", lambda: (threading.get_ident(), torch.is_inference_mode_enabled())))

    for thread in [threading.Thread(target=look) for _ in range(3)]:
        thread.start()
        thread.join()
    look()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert found[0][0] != threading.get_ident()
    assert found[0][1]


def test_what_fails_there_fails_where_it_was_asked_for() -> None:
    def fail() -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    with pytest.raises(MemoryError, match="to read 9 tokens"):
        torch_runtime.ComputeThread()("to read 9 tokens", fail)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), MemoryError),
        (RuntimeError("MPS backend out of memory"), MemoryError),
        (RuntimeError("shapes do not match"), RuntimeError),
    ],
)
def test_every_way_torch_runs_out_of_memory_is_known(error: Exception, expected: type[Exception]) -> None:
    with pytest.raises(expected), torch_runtime.out_of_memory_as_error("for this"):
        raise error


def test_the_processor_computes_in_bf16_and_is_taken_where_there_is_no_gpu() -> None:
    assert torch_runtime.dtype_of(torch.device("cpu")) == torch.bfloat16
    assert torch_runtime.device_of("cpu") == torch.device("cpu")
    expected = "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    assert torch_runtime.device_of("auto").type == expected


def test_a_torch_that_cannot_be_loaded_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError('libtorch.so: failed to map segment from shared object')")
    code = (
        "from fugu_cli.coordinators import torch_runtime\n"
        "from fugu_cli.errors import CoordinatorUnavailable\n"
        "try:\n    torch_runtime.start_torch()\n"
        "except CoordinatorUnavailable as error:\n    print(error, '|', error.hint)\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.startswith("torch cannot be loaded: libtorch.so: failed to map segment")
    assert "close other programs" in ran.stdout
