"""Where torch computes, and what becomes of its failures."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from fugu_cli.coordinators import backbone
from tests.unit.coordinators import tiny


def test_all_sums_are_done_on_one_thread_without_gradients(tmp_path: Path) -> None:
    loaded = backbone.load_backbone(tiny.folder(tmp_path / "backbone"), device="cpu")
    found: list[tuple[int, bool]] = []

    def look() -> None:
        found.append(
            loaded.compute("here", lambda: (threading.get_ident(), torch.is_grad_enabled()))
        )

    for thread in [threading.Thread(target=look) for _ in range(3)]:
        thread.start()
        thread.join()
    look()
    assert len(found) == 4
    assert len(set(found)) == 1
    assert found[0][0] != threading.get_ident()
    assert not found[0][1]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (torch.OutOfMemoryError("CUDA out of memory"), MemoryError),
        (RuntimeError("MPS backend out of memory"), MemoryError),
        (RuntimeError("shapes do not match"), RuntimeError),
    ],
)
def test_every_way_torch_runs_out_of_memory_is_known(
    error: Exception, expected: type[Exception]
) -> None:
    with pytest.raises(expected), backbone.out_of_memory_as_error("for this"):
        raise error


def test_the_processor_is_taken_where_there_is_no_gpu() -> None:
    assert backbone.dtype_of(torch.device("cpu")) in (torch.bfloat16, torch.float32)
    assert backbone.device_of("cpu") == torch.device("cpu")
    expected = (
        "cuda"
        if torch.cuda.is_available()
        else "mps"
        if torch.backends.mps.is_available()
        else "cpu"
    )
    assert backbone.device_of("auto").type == expected


def test_a_torch_that_cannot_be_loaded_is_not_said_to_be_missing(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text(
        "raise ImportError('libtorch.so: failed to map segment from shared object')"
    )
    code = (
        "from fugu_cli.coordinators import backbone\n"
        "from fugu_cli.errors import CoordinatorUnavailable\n"
        "try:\n    backbone.start_torch()\n"
        "except CoordinatorUnavailable as error:\n    print(error, '|', error.hint)\n"
    )
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(__file__).parents[3])])
    }
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert ran.stdout.startswith("torch cannot be loaded: libtorch.so: failed to map segment")
    assert "close other programs" in ran.stdout
