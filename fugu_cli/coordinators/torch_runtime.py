"""How torch is loaded and computes on this machine: its libraries mapped without blocking other threads, device and
number type, the one thread that computes, running out of memory, and weights laid out for the processor's matrix
kernels. Must not know what a layer or a token is.

oneDNN rearranges a stored weight at every product; a copy that is rearranged once halves the time of a pass over
few tokens. Where the processor has no bf16 kernels nothing is copied: products of more than a few tokens are made
in fp32.
"""

from __future__ import annotations

import ctypes
import importlib.util
import mmap
import os
import sys
from collections.abc import Callable, Iterable, Iterator
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


_DONTNEED = 4
"""MADV_DONTNEED of Linux."""
FP32_FROM_TOKENS = 8
"""From so many tokens on a product in fp32 is faster, widening its weight included, where bf16 has no kernels."""


def gains_from_packing(weight: Tensor) -> bool:
    """Products with `weight` gain from another layout here: bf16 on a processor that multiplies such numbers."""
    import torch

    return weight.device.type == "cpu" and weight.dtype == torch.bfloat16 and multiplies_bf16() and _can_pack()


def pack_weight(weight: Tensor) -> Tensor:
    """A copy of `weight` (out, in) for `linear`, as large and of the same numbers. Only where it `helps`."""
    import torch

    made: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight)
    return made


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`x` (tokens, in) times a weight (out, in), as stored or packed; (tokens, out)."""
    import torch
    import torch.nn.functional as F

    if computes_in_fp32(x, len(x)):
        return F.linear(x.float(), weight.float(), None if bias is None else bias.float()).to(x.dtype)
    if not weight.is_mkldnn:
        return F.linear(x, weight, bias)
    product: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return product


def release_mapped(weights: Iterable[Tensor]) -> int:
    """Give back the memory of those that are mapped from a file; they can be read as before, from the file again.

    Others are left alone: their content is nowhere else. Returns the bytes given back; 0 where this is not Linux.
    """
    if sys.platform != "linux":
        return 0
    files, given = _mapped_files(), 0
    advise = ctypes.CDLL(None).madvise
    for weight in weights:
        start = -(-weight.data_ptr() // mmap.PAGESIZE) * mmap.PAGESIZE
        size = (weight.data_ptr() + weight.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if size > 0 and any(low <= start and start + size <= high for low, high in files):
            given += size if advise(ctypes.c_void_p(start), ctypes.c_size_t(size), _DONTNEED) == 0 else 0
    return given


def _mapped_files() -> list[tuple[int, int]]:
    """Where this process has files with weights in its memory, as its own or to read only: address and end."""
    found = []
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        addresses, _, _, _, inode, *path = line.split(maxsplit=5)
        if inode != "0" and path and path[0].endswith(".safetensors"):
            low, high = addresses.split("-")
            found.append((int(low, 16), int(high, 16)))
    return found


@lru_cache(maxsize=1)
def multiplies_bf16() -> bool:
    """This processor multiplies bf16 numbers, and torch has the library that lets it."""
    import torch

    return torch.backends.mkldnn.is_available() and any(_has(name) for name in ("avx512_bf16", "amx_bf16"))


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


@lru_cache(maxsize=1)
def _can_pack() -> bool:
    """This build of torch has the two operations, and they give what a plain product gives. They are what its compiler
    uses; its documentation does not promise them, so they are tried."""
    import torch

    try:
        with torch.inference_mode():
            weight = torch.eye(32, dtype=torch.bfloat16)
            return bool(torch.equal(linear(weight[:3], pack_weight(weight)), weight[:3]))
    except (AttributeError, TypeError, RuntimeError):  # not there, called otherwise, or not for this processor
        return False
