"""The backbone: a causal language model that is read and never generates. Gives the hidden state at
a text's penultimate token, and keeps keys and values of what it has read, so that a text that grew
costs only its new tokens. Also how torch is started on this machine. Must not know what the text
means.

Departures from the authors' code: no flash attention; the last token is never computed, since the
state at the penultimate one cannot depend on it.
"""

from __future__ import annotations

import functools
import importlib.util
import inspect
import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from fugu_cli.coordinators import backbone_files
from fugu_cli.coordinators.backbone_files import ModelShape
from fugu_cli.errors import CoordinatorUnavailable, installing

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from transformers import PreTrainedModel

T = TypeVar("T")
HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no tokenizer takes: a stream may have been cut between them, a file
name be no UTF-8.
"""
MEAN_LAYER = -3
"""Of the states of all layers, those after the last layer but two."""
CHUNK = 512
"""Tokens of one forward pass; a longer text is read in several, which bounds the memory of a
pass.
"""
REMEMBERED_COUNTS = 1024
"""Texts whose number of tokens is remembered."""


@dataclass(frozen=True)
class HiddenState:
    """The final layer's state at the second-to-last token: `hidden` (width,), fp32. `tokens` were
    read, `cached` of them in earlier calls. `at_once`: none were cached, so the text alone made the
    state. `mean` (width,), if asked for, is the mean of some tokens' states at `MEAN_LAYER`.
    """

    hidden: NDArray[np.float32]
    tokens: int
    cached: int
    mean: NDArray[np.float32] | None = None

    @property
    def at_once(self) -> bool:
        return not self.cached


class Backbone:
    """A loaded backbone. Calls from several threads wait for each other."""

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: Tokenizer,
        shape: ModelShape,
        identity: str,
        template: str = "",
    ) -> None:
        self.model = model
        self.shape = shape
        self.identity = identity
        self.tokenizer = tokenizer
        self.template = template
        self._lock = threading.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="backbone")
        self.count = functools.lru_cache(maxsize=REMEMBERED_COUNTS)(
            functools.partial(_count, tokenizer)
        )
        """Counts the tokens of a text. It holds no reference to the backbone, whose memory would
        otherwise wait for the garbage collector.
        """
        names = inspect.signature(model.forward).parameters
        self._cache_name = (
            "cache" if "cache" in names else "past_key_values"
        )  # of older transformers
        self._known: list[int] = []
        self._reset()

    def tokens(self, text: str) -> list[int]:
        """Return the token numbers of `text`."""
        return list(_encoded(self.tokenizer, text))

    def read(
        self, tokens: Sequence[int], *, fresh: bool = False, mean_of: range | None = None
    ) -> HiddenState:
        """Return the hidden state at the second-to-last of `tokens` (of a single token: at that
        one), and the mean over the positions `mean_of`. With `fresh` nothing from earlier calls is
        used. Blocking: call it on a thread.

        Raises ValueError without tokens, MemoryError if there is not enough memory, and
        CoordinatorUnavailable if a result is not a finite number.
        """
        if not tokens:
            raise ValueError("nothing to read: a transcript has at least one token")
        prefix = list(tokens[:-1] or tokens)
        with self._lock:
            kept = 0 if fresh else min(_common_length(self._known, prefix), len(prefix) - 1)
            if mean_of is not None:
                kept = min(kept, mean_of.start)
            try:
                last, mean = self.compute(
                    f"to read {len(prefix)} tokens", lambda: self._extend(prefix, kept, mean_of)
                )
            except MemoryError:
                self._reset()
                raise
            self._known = prefix
        if not last.isfinite().all() or (mean is not None and not mean.isfinite().all()):
            self.forget()
            raise CoordinatorUnavailable(
                "the backbone computes numbers that are not finite",
                hint=backbone_files.REPLACE_HINT,
            )
        return HiddenState(
            last.numpy(), len(tokens), kept, mean.numpy() if mean is not None else None
        )

    def compute(self, what: str, work: Callable[[], T]) -> T:
        """Return the result of `work`, computed without gradients. Raises MemoryError: no memory
        `what`.

        All work runs on one thread: torch gives every computing thread helpers of its own, and with
        two such groups in a process each pass over few tokens takes a third longer.
        """
        import torch

        def sums() -> T:
            with torch.no_grad(), out_of_memory_as_error(what):
                return work()

        return self._thread.submit(sums).result()

    def forget(self) -> None:
        """Drop all cached states: the weights have changed, or the next text is unrelated."""
        with self._lock:
            self._reset()

    def _reset(self) -> None:
        from transformers import DynamicCache

        self._cache = DynamicCache()
        self._known = []

    def _extend(
        self, prefix: Sequence[int], kept: int, mean_of: range | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Read `prefix` on top of the cached tokens. Return the final state of its last token, and
        the mean at `MEAN_LAYER` of the tokens in `mean_of`.
        """
        import torch

        if kept:
            if more := len(self._known) - kept:
                self._cache.crop(-more)
        else:
            self._reset()
        total = torch.zeros(self.shape.width)
        for start in range(kept, len(prefix), CHUNK):
            piece = torch.tensor([prefix[start : start + CHUNK]], device=self.model.device)
            output = self.model(
                input_ids=piece,
                use_cache=True,
                output_hidden_states=mean_of is not None,
                **{self._cache_name: self._cache},
            )
            if mean_of is not None:
                first = max(mean_of.start - start, 0)
                end = max(mean_of.stop - start, 0)
                total += output.hidden_states[MEAN_LAYER][0, first:end].float().sum(0).cpu()
        last: torch.Tensor = output.last_hidden_state[0, -1].float().cpu()
        return last, total / len(mean_of) if mean_of else None


def load_backbone(folder: Path, *, device: str = "auto", cache: Path | None = None) -> Backbone:
    """Return a backbone from its folder, in bf16 where the machine computes in it, on the GPU where
    there is one.

    `cache` is a folder for small notes (the hash of weights without a sidecar). Raises
    CoordinatorUnavailable, and MemoryError where the weights find no room.
    """
    start_torch()
    shape, tokenizer = backbone_files.shape_of(folder), backbone_files.tokenizer_of(folder)
    if tokenizer.get_vocab_size() > shape.vocab:
        raise CoordinatorUnavailable(
            f"the tokenizer in {folder} is of a larger model", hint=backbone_files.REPLACE_HINT
        )
    target = device_of(device)
    with out_of_memory_as_error(f"for the backbone on {target}"):
        model = backbone_files.model_of(folder, dtype_of(target)).to(target)
    identity, template = (
        backbone_files.backbone_identity(folder, cache),
        backbone_files.chat_template_of(folder),
    )
    return Backbone(model, tokenizer, shape, identity, template)


def _encoded(tokenizer: Tokenizer, text: str) -> Sequence[int]:
    ids: Sequence[int] = tokenizer.encode(HALVES.sub("\ufffd", text)).ids
    return ids


def _count(tokenizer: Tokenizer, text: str) -> int:
    return len(_encoded(tokenizer, text))


def _common_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the length of the longest common prefix."""
    for index, (token, other_token) in enumerate(zip(first, second, strict=False)):
        if token != other_token:
            return index
    return min(len(first), len(second))


@contextmanager
def out_of_memory_as_error(what: str) -> Iterator[None]:
    """Turn the different errors by which torch reports missing memory into MemoryError."""
    import torch

    try:
        yield
    except RuntimeError as error:  # torch.OutOfMemoryError is one
        if (
            isinstance(error, torch.OutOfMemoryError)
            or "allocate memory" in str(error)
            or "out of mem" in str(error)
        ):
            raise MemoryError(f"no memory {what}") from error
        raise


def require_torch() -> None:
    """Raise CoordinatorUnavailable if torch is not installed. Imports nothing."""
    if sys.modules.get("torch") is None and importlib.util.find_spec("torch") is None:
        raise CoordinatorUnavailable(
            "torch is not installed, so the learned coordinator cannot run",
            hint=installing("torch>=2.4,<3"),
        )


def start_torch() -> None:
    """Import torch so that its idle threads leave the cores to other programs, such as local
    agents. The setting is read when its OpenMP library is loaded, and is not passed to child
    processes.
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


def device_of(name: str) -> torch.device:
    """Return the device to compute on; for `auto` CUDA, else Apple's MPS, else the CPU."""
    import torch

    if name != "auto":
        return torch.device(name)
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def dtype_of(device: torch.device) -> torch.dtype:
    """Return the type to compute in: bf16; fp16 on a GPU without bf16; fp32 on a processor without
    bf16 kernels, where bf16 would take five times as long, although fp32 takes twice the memory.
    """
    import torch

    if device.type == "cpu":
        return torch.float32 if _lacks_bf16_kernels() else torch.bfloat16
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        return torch.float16
    if device.type == "mps" and not torch.backends.mps.is_macos_or_newer(14, 0):
        return torch.float16
    return torch.bfloat16


def _lacks_bf16_kernels() -> bool:
    """Return whether this is an x86 processor of the AVX2 era: oneDNN's bf16 products need AVX-512,
    and torch's own are slow.
    """
    import torch

    has: dict[str, object] = getattr(
        torch.cpu, "get_capabilities", dict
    )()  # older ones cannot tell
    return bool(has.get("avx2")) and not has.get("avx512_f") and not has.get("avx_ne_convert")
