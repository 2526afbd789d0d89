"""How torch is loaded and computes on this machine: its libraries mapped without blocking other threads, device and
number type, the one thread that computes, and running out of memory. Must not know what a layer or a token is.

Where the processor has no bf16 kernels products of more than a few tokens are made in fp32: in a fifth to two fifths
of the time.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fugu_cli.errors import CoordinatorUnavailable, installing

if TYPE_CHECKING:
    import torch
    from torch import Tensor

LIBRARIES = ("libtorch_global_deps.so", "libtorch_python.so")


def preload_torch() -> None:
    """Map them. Does nothing where torch is loaded or missing, or where libraries are called otherwise."""
    found = None if "torch" in sys.modules or os.name != "posix" else importlib.util.find_spec("torch")
    if found is None or found.submodule_search_locations is None:
        return
    folder = Path(found.submodule_search_locations[0]) / "lib"
    system = ctypes.CDLL(None)  # a call through it gives the interpreter away
    system.dlopen.restype = ctypes.c_void_p
    system.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
    for name in LIBRARIES:
        if (folder / name).is_file():
            mode = os.RTLD_NOW | (os.RTLD_GLOBAL if name == LIBRARIES[0] else 0)  # as torch itself asks for them
            system.dlopen(os.fsencode(folder / name), mode)


T = TypeVar("T")


class ComputeThread:
    """All sums of a backbone are done on one thread: torch gives every thread that computes helpers of its own, and
    with two such groups in a process each pass over few tokens takes a third longer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="backbone")

    def __call__(self, what: str, work: Callable[[], T]) -> T:
        """What `work` gives, without gradients. Blocking. Raises MemoryError: no memory `what`."""
        import torch

        def sums() -> T:
            with torch.inference_mode(), out_of_memory_as_error(what):
                return work()

        return self._thread.submit(sums).result()


@contextmanager
def out_of_memory_as_error(what: str) -> Iterator[None]:
    """Torch says in several ways that memory ran out; here they become one MemoryError."""
    import torch

    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error) or "out of mem" in str(error):
            raise MemoryError(f"no memory {what}") from error
        raise


def require_torch() -> None:
    """Raises CoordinatorUnavailable where torch is not installed; imports nothing."""
    if sys.modules.get("torch") is None and importlib.util.find_spec("torch") is None:
        raise CoordinatorUnavailable(
            "torch is not installed, so the learned coordinator cannot run", hint=installing("torch>=2.4,<3")
        )


def start_torch() -> None:
    """Import torch, told to let other programs have the cores between two of its loops: local agents need them too.

    The setting is read when its OpenMP library is loaded and is not left behind for child processes.
    """
    set_here = "OMP_WAIT_POLICY" not in os.environ
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        require_torch()
        import torch  # noqa: F401
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


FP32_FROM_TOKENS = 8
"""From so many tokens on a product in fp32 is faster, widening its weight included, where bf16 has no kernels."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` (tokens, in) times a weight (out, in); (tokens, out)."""
    import torch.nn.functional as F

    if computes_in_fp32(x, len(x)):
        return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
    return F.linear(x, weight, bias)


def computes_in_fp32(like: Tensor, tokens: int) -> bool:
    """A product of so many tokens in the type and on the device of `like` is made in fp32."""
    import torch

    return (
        tokens >= FP32_FROM_TOKENS
        and like.dtype == torch.bfloat16
        and like.device.type == "cpu"
        and _lacks_bf16_kernels()
    )


@lru_cache(maxsize=1)
def _lacks_bf16_kernels() -> bool:
    """An x86 processor of the years of AVX2: oneDNN's products of bf16 want AVX-512, torch's own take each alone."""
    return _has("avx2") and not _has("avx512_f") and not _has("avx_ne_convert")


def _has(name: str) -> bool:
    import torch

    asked: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()  # older ones cannot tell
    return bool(asked.get(name))
