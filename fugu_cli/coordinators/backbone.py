"""The backbone: tokenizes a transcript, gives the hidden state at its penultimate token, and remembers what it has
read. A transcript that grew costs only its new tokens; the beginning that all transcripts share is kept on disk.
Must not know what the text means.

Departures from the authors' code: plain bf16 torch without flash attention; the last token is never computed, since
the state at the penultimate one cannot depend on it.
"""

from __future__ import annotations

import functools
import re
import threading
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.coordinators import backbone_files, transcript
from fugu_cli.coordinators.decoder import Decoder
from fugu_cli.coordinators.read_ahead import common_prefix
from fugu_cli.coordinators.torch_runtime import ComputeThread, device_of, dtype_of, out_of_memory_as_error, start_torch
from fugu_cli.coordinators.transcript import TranscriptFormat, TranscriptMessage, render_raw
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.system import atomic_files

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from tokenizers import Tokenizer
    from torch import Tensor

    from fugu_cli.coordinators.checkpoint import Checkpoint

HALVES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no tokenizer takes: a stream may have been cut between them, a file name be no UTF-8."""
TAIL_CHARACTERS = 64
"""Characters at the end of a text that what follows it may join to another token."""


class IncrementalTokenizer:
    """Remembers the newest text, its tokens and where in the text each begins. May be called from several threads."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._known: tuple[str, list[int], list[int]] = ("", [], [])

    def tokens(self, text: str) -> list[int]:
        """What the tokenizer gives for the whole of `text`."""
        text = without_surrogates(text)
        known, ids, starts = self._known
        shared = _shared(known, text)
        cut = _line(text, shared - 2 * TAIL_CHARACTERS)
        index = bisect_left(starts, cut)
        if cut and starts[index : index + 1] == [cut]:
            found = self._tokenizer.encode(text[cut:])
            same = bisect_left(starts, shared - TAIL_CHARACTERS) - 1 - index
            if same > 0 and found.ids[:same] == ids[index : index + same]:
                ids = ids[:index] + found.ids
                self._known = text, ids, starts[:index] + [cut + at for at, _ in found.offsets]
                return list(ids)
        found = self._tokenizer.encode(text)
        self._known = text, found.ids, [at for at, _ in found.offsets]
        return list(found.ids)


def without_surrogates(text: str) -> str:
    """`text` as a tokenizer takes it."""
    return HALVES.sub("\ufffd", text)


def _shared(one: str, other: str) -> int:
    """How many characters the two have in common at their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


def _line(text: str, limit: int) -> int:
    """Where the last line before `limit` begins that begins with a letter; 0 where there is none."""
    at = limit
    while at > 0:
        at = text.rfind("\n", 0, at)
        if at >= 0 and text[at + 1 : at + 2].isascii() and text[at + 1 : at + 2].isalpha():
            return at + 1
    return 0


CHUNK = 512
"""Tokens of one forward pass; a longer text is read in several, which bounds the memory of a pass."""
REMEMBERED_COUNTS = 1024
"""Texts whose number of tokens is remembered."""
CONTINUATIONS = ("x", "0", " x", ".", "\n", "\n\n", ")", "_")
"""What may follow, one of each kind of character that tokenizers tell apart."""


@dataclass(frozen=True)
class HiddenState:
    """`hidden` (width,) fp32, final layer, penultimate token; of `tokens` read, `cached` were known when it was asked
    for. `at_once`: none were when its own pass began, so that the text alone made the state."""

    hidden: NDArray[np.float32]
    tokens: int
    cached: int
    at_once: bool


class Backbone:
    """A loaded backbone. One reader at a time: calls from several threads wait for each other."""

    def __init__(self, decoder: Decoder, tokenizer: Tokenizer, identity: str, template: str = "") -> None:
        self.decoder = decoder
        self.identity = identity
        self.tokenizer = tokenizer
        self._growing = IncrementalTokenizer(tokenizer)
        self._template = template
        self._cache = decoder.new_cache()
        self._known: list[int] = []
        self._lock = threading.Lock()
        self.compute = ComputeThread()
        """Where all that is computed with its weights is computed."""
        self._waiting: set[int] = set()
        self.count = functools.lru_cache(maxsize=REMEMBERED_COUNTS)(functools.partial(_count, tokenizer))
        """How many tokens a text has. Remembers: the lines of a transcript that grew are mostly the same. It does not
        know the backbone, whose memory would else wait for the garbage collector."""

    @property
    def width(self) -> int:
        """Numbers in a hidden state."""
        return self.decoder.shape.width

    def write(self, lines: Sequence[TranscriptMessage], format: TranscriptFormat) -> str:
        """The transcript as text: plain lines, or through the backbone's chat template, as TRINITY's authors did."""
        return render_raw(lines) if format == "raw" else transcript.render_chat(self._template, lines)

    def tokens(self, text: str) -> list[int]:
        """Token numbers of `text`."""
        return self._growing.tokens(text)

    def settled(self, text: str) -> list[int]:
        """Tokens of `text` that stay the same whatever is written after it: all but those of its last word or so."""
        ids, tail = self.tokens(text), text[-TAIL_CHARACTERS:]
        found = _encoded(self.tokenizer, tail)
        kept = min(_common(found, _encoded(self.tokenizer, tail + more)) for more in CONTINUATIONS)
        return ids[: max(len(ids) - (len(found) - kept), 0)]

    def read(self, tokens: Sequence[int], *, fresh: bool = False) -> HiddenState:
        """The hidden state at the penultimate of `tokens` (of a single one: its own), `fresh`: with nothing kept from
        before, whoever else reads. Blocking: call it on a thread.

        Raises ValueError for no tokens, MemoryError when there is no room for them, CoordinatorUnavailable where what
        was computed is no number.
        """
        if not tokens:
            raise ValueError("nothing to read: a transcript has at least one token")
        wanted = list(tokens[:-1] or tokens)
        cached = 0 if fresh else _common(self._known, wanted)
        with self._awaited(), self._lock:
            kept = self._keep_common(() if fresh else wanted)
            self._extend(wanted)
            last = self._cache.hidden[len(wanted) - 1].float().cpu()
            if not last.isfinite().all():
                raise CoordinatorUnavailable(
                    "the backbone computes numbers that are not finite", hint=backbone_files.REPLACE_HINT
                )
            return HiddenState(last.numpy(), len(tokens), cached, kept == 0)

    def feed(self, tokens: Sequence[int], stop: threading.Event, chunk: int = 16) -> int:
        """Read along: take in what is there of a transcript still being written, by chunks, until `stop` is set.

        Returns how many of `tokens` are known now. A `read` in between waits for one chunk and ends it. Blocking;
        raises MemoryError.
        """
        while not stop.is_set() and not self._waiting:
            with self._lock:
                done = _common(self._known, tokens)
                if done == len(tokens):  # what is known beyond them stays
                    return done
                self._keep_common(tokens)
                self._extend(tokens[: done + min(chunk, CHUNK)])
        with self._lock:
            return _common(self._known, tokens)

    @contextmanager
    def _awaited(self) -> Iterator[None]:
        """Tell whoever reads along that a decision waits."""
        me = threading.get_ident()
        self._waiting.add(me)
        try:
            yield
        finally:
            self._waiting.discard(me)

    def snapshot(self, tokens: Sequence[int]) -> dict[str, Tensor]:
        """Read `tokens` and give what is known of them, for `restore` in another process."""
        with self._lock:
            self._keep_common(tokens)
            self._extend(tokens)
            return self.compute("for a copy", lambda: self._cache.state(len(tokens)))

    def restore(self, tokens: Sequence[int], state: Mapping[str, Tensor]) -> bool:
        """Know `tokens` from a snapshot of them. False, and nothing changed, where it is of another shape."""
        with self._lock:
            if not self.compute("for what is known", lambda: self._cache.put(state, len(tokens))):
                return False
            self._known = list(tokens)
            return True

    def forget(self) -> None:
        """Drop everything read: the weights were changed, or the next text has nothing to do with the last."""
        with self._lock:
            self._cache.crop(0)
            self._known = []

    def _keep_common(self, wanted: Sequence[int]) -> int:
        common = _common(self._known, wanted)
        self._cache.crop(common)
        del self._known[common:]
        return common

    def _extend(self, wanted: Sequence[int]) -> None:
        """Compute what of `wanted` is not in the cache yet; the cache holds a prefix of it."""
        import torch

        try:
            for start in range(len(self._known), len(wanted), CHUNK):
                piece = wanted[start : start + CHUNK]
                tokens = torch.tensor(piece, device=self.decoder.device)
                extend = functools.partial(self.decoder.extend, tokens, self._cache)
                self.compute(f"to read {len(wanted)} tokens", extend)
                self._known += piece
        except MemoryError:
            self._cache = self.decoder.new_cache()
            self._known = []
            raise


def load_backbone(folder: Path, *, device: str = "auto", cache: Path | None = None) -> Backbone:
    """A backbone from its folder, in bf16, memory-mapped on the CPU, on the GPU where there is one.

    `cache` is a folder for small notes (the hash of weights without a sidecar). Raises CoordinatorUnavailable, and
    MemoryError where the weights find no room.
    """
    start_torch()
    shape = backbone_files.shape_of(folder)
    with ThreadPoolExecutor(1) as beside:  # a tokenizer is a large JSON text: it is parsed while the weights are mapped
        tokenizer = beside.submit(backbone_files.tokenizer_of, folder)
        target = device_of(device)
        with out_of_memory_as_error(f"for the backbone on {target}"):
            weights = backbone_files.weights_of(folder, dtype_of(target))
            backbone_files.check_sizes(folder, shape, weights)
            placed = {name: weight.to(target) for name, weight in weights.items()}
        try:
            decoder = Decoder(shape, placed)
        except KeyError as error:
            raise CoordinatorUnavailable(
                f"the weights in {folder} lack {error}", hint=backbone_files.REPLACE_HINT
            ) from error
        identity, template = backbone_files.backbone_identity(folder, cache), backbone_files.chat_template_of(folder)
        if tokenizer.result().get_vocab_size() > shape.vocab:
            raise CoordinatorUnavailable(
                f"the tokenizer in {folder} is of a larger model", hint=backbone_files.REPLACE_HINT
            )
        return Backbone(decoder, tokenizer.result(), identity, template)


def _encoded(tokenizer: Tokenizer, text: str) -> Sequence[int]:
    ids: Sequence[int] = tokenizer.encode(without_surrogates(text)).ids
    return ids


def _count(tokenizer: Tokenizer, text: str) -> int:
    return len(_encoded(tokenizer, text))


def _common(known: Sequence[int], wanted: Sequence[int]) -> int:
    """Length of the longest common prefix."""
    limit = min(len(known), len(wanted))
    if known[:limit] == wanted[:limit]:
        return limit
    return next((index for index in range(limit) if known[index] != wanted[index]), limit)


def constant_prefix(backbone: Backbone, checkpoint: Checkpoint) -> list[int]:
    """Tokens that every transcript in the checkpoint's format begins with: its first line is always the user's."""
    texts = [backbone.write((TranscriptMessage("user", word),), checkpoint.meta.format) for word in ("fix", "Why?")]
    return backbone.settled(common_prefix(*texts))


def restore_prefix(backbone: Backbone, checkpoint: Checkpoint, store: Path) -> int:
    """Let `backbone`, with the checkpoint's offsets on it, know the constant beginning: from `store`, else by reading.

    Returns how many tokens that are. A file that is broken or of another kind is rewritten.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    tokens = constant_prefix(backbone, checkpoint)
    kind = f"{backbone.decoder.device.type}-{str(backbone.decoder.dtype).removeprefix('torch.')}"
    file = store / f"{backbone.identity[:16]}-{checkpoint.digest[:16]}-{kind}.safetensors"
    try:
        if backbone.restore(tokens, load_file(file, device=str(backbone.decoder.device))):
            return len(tokens)
    except (OSError, SafetensorError):
        pass
    try:
        known = backbone.snapshot(tokens)
        with atomic_files.replacement_file(file) as draft:
            save_file(known, draft)
    except OSError:  # a disk without room: the next start reads it again
        return len(tokens)
    return len(tokens)
