"""The kind head: tells from a backbone's hidden state which kind of work a request asks for.

    P(k|h) = softmax(W_k h / |h|)     W_k (kinds, width), without a bias

The backbone reads a raw transcript: one example of each kind in several languages, then `user: ` with
the request, cut to `REQUEST_TOKENS`, and the beginning of the line that would name its kind. h is
the sum of two states of length one: that at the penultimate token, the colon of that line, and the
mean over the request's own tokens. The first tells the kind best; the second moves little where
words around the request change. The examples are read when the model is loaded. W_k knows no agent;
it is valid for one backbone and one prompt.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from fugu_cli.coordinators.composed import KindReading
from fugu_cli.coordinators.skills import KINDS
from fugu_cli.coordinators.trinity import EMBEDDED, milliseconds_since
from fugu_cli.errors import CoordinatorUnavailable, InfrastructureError
from fugu_cli.messages import Value
from fugu_cli.session.events import DecisionTimings
from fugu_cli.system import atomic_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.composed import KindReader

FORMAT_VERSION = 2
"""1 was read at the penultimate token alone."""
PROMPT = (Path(__file__).parent / "data" / "kinds_prompt.txt").read_text(encoding="utf-8")
"""Holds `{request}`. Another prompt needs another head."""
REQUEST_TOKENS = 96
"""Tokens of a request that are read, from its beginning."""
SHIPPED = Path(__file__).parent / "data" / "kinds.safetensors"
"""The kind head that comes with the package, for the embedded backbone."""
_TRAIN_HINT = "make one with `fugu train kinds`"


class KindHeadMeta(Value):
    """The backbone and the kinds that a head is valid for, and how it was made."""

    format_version: int = FORMAT_VERSION
    backbone: str
    """The backbone's identity (backbone_files.backbone_identity)."""
    prompt: str = PROMPT
    kinds: tuple[str, ...] = KINDS
    training: str = ""
    """For people: the data and the accuracy on held-out rows."""


@dataclass(frozen=True)
class KindHead:
    """`weights` (kinds, width), fp32, for states of unit length."""

    meta: KindHeadMeta
    weights: NDArray[np.float32]

    def probabilities(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return P(k|h) for one hidden state (width,)."""
        import numpy as np

        logits = self.weights @ (hidden / np.linalg.norm(hidden))
        chances = np.exp(logits - logits.max())
        shares: NDArray[np.float32] = chances / chances.sum()
        return shares


def save(head: KindHead, path: Path) -> None:
    """Write a head, atomically."""
    import numpy as np
    from safetensors.numpy import save as pack

    weights = np.ascontiguousarray(head.weights, dtype=np.float32)
    data = pack({"weights": weights}, metadata={"fugu": head.meta.model_dump_json()})
    with atomic_files.replacement_file(path) as draft:
        draft.write_bytes(data)


def load(path: Path) -> KindHead:
    """Read a head. Raise CoordinatorUnavailable, saying what is wrong with the file."""
    import numpy as np
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="numpy") as file:
            meta = KindHeadMeta.model_validate_json((file.metadata() or {})["fugu"])
            weights = file.get_tensor("weights")
    except FileNotFoundError as error:
        raise CoordinatorUnavailable(
            f"there is no kind head at {path}", hint=_TRAIN_HINT
        ) from error
    except (OSError, SafetensorError, KeyError, ValueError, ValidationError) as error:
        raise CoordinatorUnavailable(
            f"{path} is not a kind head of fugu: {error}", hint=_TRAIN_HINT
        ) from error
    fits = (meta.format_version, meta.prompt, meta.kinds) == (FORMAT_VERSION, PROMPT, KINDS)
    if not fits or weights.ndim != 2 or len(weights) != len(KINDS):
        raise CoordinatorUnavailable(
            f"{path} was made by another version of fugu", hint=_TRAIN_HINT
        )
    if not np.isfinite(weights).all():
        raise CoordinatorUnavailable(f"{path} holds numbers that are not finite", hint=_TRAIN_HINT)
    return KindHead(meta, weights.astype(np.float32))


def head_file(heads: Path, identity: str) -> Path:
    """Return where the user's own head for a backbone lies, in the folder `heads`."""
    return heads / f"kinds-{identity[:16]}.safetensors"


@dataclass(frozen=True)
class RequestReading:
    """`hidden` (width,): h of one request. `tokens` were read; times in milliseconds."""

    hidden: NDArray[np.float32]
    tokens: int
    tokenise: float
    forward: float


def read_request(backbone: Backbone, text: str) -> RequestReading:
    """Read a request with the backbone. Blocking, 0.1 to 1 s. Raises what Backbone.read raises."""
    import numpy as np

    started = time.perf_counter()
    before, after = PROMPT.split("{request}")
    examples, role = before.rsplit("\n", 1)
    # tokenised in pieces, so that the examples are the same tokens whatever the request is
    example_tokens = backbone.tokens(examples + "\n")
    request = backbone.tokens(role + text)[:REQUEST_TOKENS]
    tokens = [*example_tokens, *request, *backbone.tokens(after)]
    # the first piece of the request is joined with the role's last, so it is left out of the mean
    end = len(example_tokens) + len(request)
    start = min(len(example_tokens) + len(backbone.tokens(role)), end - 1)
    tokenise = milliseconds_since(started)
    tokenised = time.perf_counter()
    state = backbone.read(tokens, mean_of=range(start, end))
    forward = milliseconds_since(tokenised)
    assert state.mean is not None
    hidden = state.hidden / np.linalg.norm(state.hidden) + state.mean / np.linalg.norm(state.mean)
    return RequestReading(hidden, state.tokens, tokenise, forward)


@dataclass(frozen=True)
class KindFiles:
    """A backbone's folder or hub name (the embedded one where None), the cache that holds models,
    and the folder of the user's own kind heads.
    """

    backbone: str | None
    cache: Path
    heads: Path


ReportStep = Callable[[str], None]
REPORT_SECONDS = 5.0
"""Seconds between two reports while a request waits for the model to be converted."""


class BackboneKindReader:
    """Reads kinds with a backbone that it loads on a thread of its own, once.

    `report` is told, on the event loop, how far the conversion of the model is that a request waits
    for.
    """

    def __init__(self, load_parts: Callable[[ReportStep], tuple[KindHead, Backbone]]) -> None:
        """`load_parts` blocks, reports its step, and raises CoordinatorUnavailable or
        MemoryError.
        """
        self.report: ReportStep = lambda step: None
        self._load_parts = load_parts
        self._loading: Future[tuple[KindHead, Backbone]] | None = None
        self._step = ""

    def warm(self, *, retry: bool = False) -> Future[tuple[KindHead, Backbone]]:
        """Start loading and return at once. May be called again; `retry`: also after a failure."""
        failed = self._loading is not None and self._loading.done() and not self.is_loaded
        if self._loading is None or (retry and failed):
            thread = ThreadPoolExecutor(1, thread_name_prefix="kinds")
            self._loading = thread.submit(self._load_parts, self._set_step)
            thread.shutdown(wait=False)
        return self._loading

    @property
    def is_loaded(self) -> bool:
        """Return whether a request can be read without waiting."""
        loading = self._loading
        return loading is not None and loading.done() and loading.exception() is None

    async def read(self, text: str) -> KindReading:
        """Return the kinds' probabilities. Raise CoordinatorUnavailable without torch, without the
        files of the model, or without the memory for it.
        """
        try:
            started = time.perf_counter()
            loading = asyncio.wrap_future(self.warm())
            reported = ""
            while not (await asyncio.wait({loading}, timeout=REPORT_SECONDS))[0]:
                if self._step not in ("", reported):
                    reported = self._step
                    self.report(reported)
            head, backbone = await loading
            waited = milliseconds_since(started)
            reading = await asyncio.to_thread(_read, head, backbone, text)
        except MemoryError as error:
            raise CoordinatorUnavailable(
                f"the kind of the request cannot be read: {error}", hint="close other programs"
            ) from error
        timings = reading.milliseconds.model_copy(update={"load": waited})
        return replace(reading, milliseconds=timings)

    def _set_step(self, step: str) -> None:
        self._step = step


def _read(head: KindHead, backbone: Backbone, text: str) -> KindReading:
    state = read_request(backbone, text)
    probabilities = head.probabilities(state.hidden)
    timings = DecisionTimings(tokenise=state.tokenise, forward=state.forward)
    return KindReading(tuple(float(share) for share in probabilities), state.tokens, timings)


@functools.lru_cache(maxsize=4)
def build_kind_reader(files: KindFiles) -> BackboneKindReader:
    """Return the process's reader for these files. It reads no file before it is warmed or used,
    and never downloads.
    """
    return BackboneKindReader(functools.partial(_load_parts, files))


def _load_parts(files: KindFiles, report: ReportStep) -> tuple[KindHead, Backbone]:
    """Load the head and its backbone, which is converted once. Raise CoordinatorUnavailable and
    MemoryError.
    """
    from fugu_cli.coordinators import backbone, backbone_files

    # said before a missing model: without torch, fetching one is no help
    backbone.require_torch()
    with backbone_files.required_libraries():
        try:
            if files.backbone is not None:
                folder = backbone_files.locate_backbone(files.backbone, download=False)
            else:
                gguf = files.cache / "models" / f"{EMBEDDED}.gguf"
                folder = backbone_files.backbone_folder(
                    gguf,
                    files.cache,
                    lambda share, step: report(f"made ready, once: {share:.0%}, {step}"),
                )
                report("")
        except InfrastructureError as error:
            raise CoordinatorUnavailable(str(error), hint=error.hint) from error
        # the head is small and read first: without one for this backbone nothing else is loaded
        identity = backbone_files.backbone_identity(folder, files.cache / "backbones")
        own_head = head_file(files.heads, identity)
        head = load(own_head if own_head.is_file() else SHIPPED)
        width = backbone_files.shape_of(folder).width
        if head.meta.backbone != identity or head.weights.shape[1] != width:
            raise CoordinatorUnavailable(
                f"there is no kind head for the backbone in {folder}", hint=_TRAIN_HINT
            )
        loaded = backbone.load_backbone(folder, cache=files.cache / "backbones")
        read_request(loaded, "")  # the examples, so that a decision waits less
        return head, loaded


if TYPE_CHECKING:

    def _fits(reader: BackboneKindReader) -> KindReader:
        return reader
