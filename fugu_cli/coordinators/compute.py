"""Where torch computes: which device and number type, on which thread, and what it means when memory runs out.

Stands below backbone.py. Must not know weights or tokens.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from fugu_cli.errors import CoordinatorUnavailable, installing

if TYPE_CHECKING:
    import torch

T = TypeVar("T")


class OneThread:
    """All sums of a backbone are done on one thread: torch gives every thread that computes helpers of its own, and
    with two such groups in a process each pass over few tokens takes a third longer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="backbone")

    def __call__(self, what: str, work: Callable[[], T]) -> T:
        """What `work` gives, without gradients. Blocking. Raises MemoryError: no memory `what`."""
        import torch

        def sums() -> T:
            with torch.inference_mode(), enough_memory(what):
                return work()

        return self._thread.submit(sums).result()


@contextmanager
def enough_memory(what: str) -> Iterator[None]:
    """Torch says in several ways that memory ran out; here they become one MemoryError."""
    import torch

    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error) or "out of mem" in str(error):
            raise MemoryError(f"no memory {what}") from error
        raise


def start_torch() -> None:
    """Import torch, told to let other programs have the cores between two of its loops: local agents need them too.

    The setting is read when its OpenMP library is loaded and is not left behind for child processes.
    """
    set_here = "OMP_WAIT_POLICY" not in os.environ
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        import torch  # noqa: F401
    except ModuleNotFoundError as error:
        raise CoordinatorUnavailable(
            "torch is not installed, so the learned coordinator cannot run", hint=installing("torch>=2.4")
        ) from error
    except (ImportError, OSError) as error:  # a library of it: broken, or no memory to map it
        raise CoordinatorUnavailable(
            f"torch cannot be loaded: {error}", hint="close other programs, or install torch again"
        ) from error
    finally:
        if set_here:
            del os.environ["OMP_WAIT_POLICY"]


def device_of(wanted: str) -> torch.device:
    """`auto`: CUDA, else Apple's MPS, else the CPU."""
    import torch

    if wanted != "auto":
        return torch.device(wanted)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def dtype_of(device: torch.device) -> torch.dtype:
    """bf16, or fp16 on a GPU that has none."""
    import torch

    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    if device.type == "mps" and not torch.backends.mps.is_macos_or_newer(14, 0):
        return torch.float16
    return torch.bfloat16
