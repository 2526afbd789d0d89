"""Trinity (arXiv 2512.04695), the coordinator of a checkpoint: a small model reads the transcript,
and a linear head on one hidden state chooses the next agent and its role. Where it cannot be loaded,
`Fallback` asks the composed head and says so. Must not import torch itself: the backbone is handed
in and runs on a thread.

l = W h,  agent ~ softmax(l[:L] / T),  role ~ softmax(l[L:] / T), independent; a mask is -inf before
the softmax.

Departures: argmax unless `sample`; a request that a Worker answered without a change ends there;
where the head is for a Verifier that may not act yet, a Worker acts. In product mode (without roles)
the chosen agent goes on, with nothing read, until nothing speaks against its work or its turns are
used up; where it cannot act another one is chosen.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import hashlib
import math
import random
import threading
import time
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from fugu_cli.coordinators import (
    Coordinator,
    CoordinatorSettings,
    Decision,
    action_space,
    transcript,
)
from fugu_cli.errors import CoordinatorUnavailable, InfrastructureError
from fugu_cli.session.events import (
    ROLES,
    Assigned,
    DecisionTimings,
    Finished,
    Member,
    Role,
    Scores,
)
from fugu_cli.session.state import SessionState

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.checkpoint import Checkpoint, CheckpointMeta


def logits(head: Sequence[Sequence[float]], hidden: Sequence[float]) -> list[float]:
    """Return one number per row of `head` (rows, width) for a hidden state (width,)."""
    return [
        math.fsum(weight * value for weight, value in zip(row, hidden, strict=True)) for row in head
    ]


def probabilities(
    scores: Sequence[float], masked: Collection[int], temperature: float
) -> list[float]:
    """Return the softmax of `scores` / temperature without the masked rows, which get 0. At least
    one row must be left.
    """
    divisor = max(temperature, 1e-6)
    top = max(score for index, score in enumerate(scores) if index not in masked)
    weights = [
        0.0 if index in masked else math.exp((score - top) / divisor)
        for index, score in enumerate(scores)
    ]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def pick_row(chances: Sequence[float], draw: random.Random | None) -> int:
    """Return the most probable row (the first of equals), or one drawn with its probability."""
    if draw is None:
        return max(range(len(chances)), key=chances.__getitem__)
    return draw.choices(range(len(chances)), weights=chances)[0]


def margin(scores: Sequence[float], masked: Collection[int] = ()) -> float:
    """Return the lead of the highest score that is not masked over the second; infinite if there
    is no second.
    """
    ordered = sorted(
        (score for index, score in enumerate(scores) if index not in masked), reverse=True
    )
    return ordered[0] - ordered[1] if len(ordered) > 1 else math.inf


def rounded_for_log(values: Sequence[float]) -> tuple[float, ...]:
    """Round numbers for the log: bf16 has no more than four digits."""
    return tuple(float(f"{value:.4g}") for value in values)


@dataclass(frozen=True)
class ReadTranscript:
    """A transcript's text, the head's logits for it (rows, then roles), and the time of each part.
    Of the `tokens`, `cached` had been read before.
    """

    text: str
    logits: tuple[float, ...]
    tokens: int
    cached: int
    milliseconds: DecisionTimings


def milliseconds_since(started: float) -> float:
    """Return the milliseconds since `started` (perf_counter)."""
    return round(1e3 * (time.perf_counter() - started), 3)


class HeadReader:
    """Reads logs for the head of one checkpoint. The backbone is loaded at the first need or when
    it is warmed.
    """

    def __init__(
        self, meta: CheckpointMeta, load: Callable[[], tuple[Checkpoint, Backbone]]
    ) -> None:
        """Create the reader. `load` is blocking and raises CoordinatorUnavailable and MemoryError."""
        self.meta = meta
        self._load = load
        self._loading: Future[tuple[Checkpoint, Backbone]] | None = None

    def warm(self) -> Future[tuple[Checkpoint, Backbone]]:
        """Start loading on a thread of its own. Returns at once; may be called again."""
        if self._loading is None:
            thread = ThreadPoolExecutor(1, thread_name_prefix="coordinator")
            self._loading = thread.submit(self._load)
            thread.shutdown(wait=False)
        return self._loading

    async def read(
        self, state: SessionState, settled: Callable[[Sequence[float]], bool]
    ) -> ReadTranscript:
        """Return the logits of this log. `settled` returns whether rounding errors cannot change
        the decision that the logits give.
        """
        checkpoint, backbone = await asyncio.shield(asyncio.wrap_future(self.warm()))
        return await asyncio.to_thread(_read, checkpoint, backbone, state, settled)


def _read(
    checkpoint: Checkpoint,
    backbone: Backbone,
    state: SessionState,
    settled: Callable[[Sequence[float]], bool],
) -> ReadTranscript:
    """Format, cut, tokenise and read. Rounding depends on the pieces in which a text was read, so
    one that is not settled is read again at once. Blocking.
    """
    started = time.perf_counter()
    text = transcript.transcript_text(backbone, checkpoint.meta, state)
    written = time.perf_counter()
    tokens = backbone.tokens(text)
    tokenised = time.perf_counter()
    reading = backbone.read(tokens)
    scores = logits(checkpoint.head.tolist(), reading.hidden.tolist())
    if reading.cached and not settled(scores):
        reading = backbone.read(tokens, fresh=True)
        scores = logits(checkpoint.head.tolist(), reading.hidden.tolist())
    spent = DecisionTimings(
        format=round(1e3 * (written - started), 3),
        tokenise=round(1e3 * (tokenised - written), 3),
        forward=milliseconds_since(tokenised),
    )
    return ReadTranscript(text, tuple(scores), reading.tokens, reading.cached, spent)


class Fallback:
    """Asks the coordinator that `factory` makes. Once that has raised CoordinatorUnavailable, it
    asks `rule` instead, and records the reason in every Assigned (`fallback`).
    """

    def __init__(self, factory: Callable[[], Coordinator], rule: Coordinator) -> None:
        self._learned = functools.cache(factory)
        self._rule = rule
        self._failed: CoordinatorUnavailable | None = None

    async def decide(self, state: SessionState) -> Decision:
        """Return the learned decision, or the rule's."""
        if self._failed is None:
            try:
                return await self._learned().decide(state)
            except CoordinatorUnavailable as error:
                self._failed = error
            except MemoryError as error:
                why = f"out of memory: {error}".rstrip(": ")
                self._failed = CoordinatorUnavailable(why, hint="close other programs")
        decision = await self._rule.decide(state)
        if not isinstance(decision, Assigned):
            return decision
        reason = f"{self._failed} ({self._failed.hint})" if self._failed.hint else str(self._failed)
        return decision.model_copy(update={"fallback": reason})


if TYPE_CHECKING:

    def _fits(fallback: Fallback) -> Coordinator:
        return fallback


EMBEDDED = "qwen2.5-coder-0.5b"
"""The embedded model that is the backbone where no other is named."""
LOGIT_NOISE = 0.1
"""Logits that are nearer may change places with the pieces a text was read in: bf16 moved one by
.10 at most in 500 texts."""


@dataclass(frozen=True)
class TrinityFiles:
    """The places of the parts: a checkpoint, a backbone's folder or hub id (None: the embedded
    one), and the cache for models and values computed once per backbone.
    """

    checkpoint: Path
    backbone: str | None
    cache: Path


class Trinity:
    """Decides with what a reader gives: the logits of a checkpoint's head."""

    def __init__(
        self, reader: HeadReader, members: Sequence[Member], settings: CoordinatorSettings
    ) -> None:
        """Raises CoordinatorUnavailable when the checkpoint is of another pool."""
        reader.meta.check_pool([member.name for member in members])
        self._reader = reader
        self._meta = reader.meta
        self._members = tuple(members)
        self._settings = replace(settings, roles=settings.roles and reader.meta.roles)

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """Return the next turn, or the end of the request. Raise CoordinatorUnavailable when memory
        runs out.
        """
        end = action_space.request_end(
            state, turns=self._settings.turns, verify_answers=self._settings.verify_answers
        )
        if end is not None:
            return end
        if not self._settings.roles and (end := product_end(state)) is not None:
            return end
        excluded = action_space.agents_out_of_turn(state, self._settings, self._members)
        seats = action_space.agents_by_name(self._meta.rows, self._members, excluded)
        if not self._settings.roles:
            kept = action_space.kept_assignment(state, self._members, excluded)
            if kept is not None:
                return kept
        if all(seat.member is None for seat in seats):
            rows = {name: why for name, why in excluded.items() if name in self._meta.rows}
            return action_space.finish_without_agents(state, rows)
        return self._assign(state, await self._read(state, seats), seats)

    async def _read(
        self, state: SessionState, seats: Sequence[action_space.RowAgent]
    ) -> ReadTranscript:
        try:
            return await self._reader.read(
                state, lambda scores: self._settled(state, seats, scores)
            )
        except MemoryError as error:
            raise CoordinatorUnavailable(
                f"the coordinator ran out of memory: {error}",
                hint="close other programs, or use a smaller backbone",
            ) from error

    def _settled(
        self,
        state: SessionState,
        seats: Sequence[action_space.RowAgent],
        scores: Sequence[float],
    ) -> bool:
        """Return whether the first option is well ahead of the second. If decisions are drawn,
        nothing is settled, so that a training run repeats exactly.
        """
        rows, roles = scores[: len(seats)], self._role_logits(scores)
        empty = {index for index, seat in enumerate(seats) if seat.member is None}
        masked_roles = {ROLES.index(role) for role in self._roles_out(state, roles)}
        ahead = min(margin(rows, empty), margin(roles, masked_roles), margin(roles))
        return ahead >= LOGIT_NOISE and not self._settings.sample

    def _role_logits(self, scores: Sequence[float]) -> Sequence[float]:
        """Return the logits of the roles; none in product mode."""
        return scores[len(self._meta.rows) :] if self._settings.roles else ()

    def _assign(
        self, state: SessionState, read: ReadTranscript, seats: Sequence[action_space.RowAgent]
    ) -> Assigned:
        started = time.perf_counter()
        scores, role_scores = read.logits[: len(seats)], self._role_logits(read.logits)
        empty = {index for index, seat in enumerate(seats) if seat.member is None}
        chances = probabilities(scores, empty, self._settings.temperature)
        draw = self._draw(state)
        seat = seats[pick_row(chances, draw)]
        role, by_head, role_chances = self._role(state, role_scores, draw)
        if role == "verifier":
            members = [row.member for row in seats if row.member is not None]
            barred = action_space.verifiers_out(state, {}, members)
            if seat.member is not None and seat.member.name in barred:
                barred_rows = {
                    index
                    for index, row in enumerate(seats)
                    if row.member is not None and row.member.name in barred
                }
                among_others = probabilities(
                    scores, empty | barred_rows, self._settings.temperature
                )
                seat = seats[pick_row(among_others, draw)]
        assert seat.member is not None
        timings = read.milliseconds.model_copy(update={"head": milliseconds_since(started)})
        unavailable = [(seat.row, seat.why) for seat in seats if seat.member is None]
        reason = seat.row
        if role != by_head:
            reason += f"; the Thinker asked for a {role} instead of a {by_head}"
        return Assigned(
            turn=action_space.next_turn_number(state),
            agent=seat.member.name,
            role=role,
            by="trinity",
            reason=reason,
            scores=Scores(
                rows=tuple(row.row for row in seats),
                row_logits=rounded_for_log(scores),
                row_probabilities=rounded_for_log(chances),
                role_logits=rounded_for_log(role_scores),
                role_probabilities=role_chances,
                masked=(*unavailable, *self._roles_out(state, role_scores).items()),
                read=read.text,
                tokens=read.tokens,
                cached_tokens=read.cached,
                temperature=self._settings.temperature,
            ),
            override=by_head if by_head != role else None,
            milliseconds=timings,
        )

    def _role(
        self, state: SessionState, scores: Sequence[float], draw: random.Random | None
    ) -> tuple[Role, Role, tuple[float, ...]]:
        """Return the role taken, the role the head chose, and the probabilities. Without roles: a
        Worker.
        """
        if not self._settings.roles:
            return "worker", "worker", ()
        masked = {ROLES.index(role) for role in self._roles_out(state, scores)}
        chances = probabilities(scores, masked, self._settings.temperature)
        by_head = ROLES[pick_row(chances, draw)]
        return action_space.thinker_suggestion(state) or by_head, by_head, rounded_for_log(chances)

    def _roles_out(self, state: SessionState, scores: Sequence[float]) -> dict[Role, str]:
        """Return the roles that cannot be chosen now, with the reason. Where the head is for a
        Verifier and none may act, no Thinker does either unless one is due: how it orders the two
        roles that it is against means nothing, and only a Worker's turn brings the Verifier nearer.
        `scores`: of the roles; none without roles.
        """
        if not scores:
            return {}
        excluded = action_space.roles_out(state)
        if excluded.keys() == {"verifier"} and ROLES[pick_row(scores, None)] == "verifier":
            why = "a Verifier was chosen, and a Worker comes before it"
            return {**excluded, "thinker": why}
        return excluded

    def _draw(self, state: SessionState) -> random.Random | None:
        """Return a generator for this position in the log, so that a replay draws the same."""
        if not self._settings.sample:
            return None
        return random.Random(
            f"{self._settings.seed}/{len(state.requests)}/{action_space.next_turn_number(state)}"
        )


def build_trinity(
    places: TrinityFiles,
    members: Sequence[Member],
    settings: CoordinatorSettings,
    rule: Coordinator,
) -> tuple[Fallback, str | None, Callable[[], None]]:
    """Return a Trinity that loads when first needed and gives way to `rule` where it cannot; the
    checkpoint's sha256; and what starts loading in the background. Touches nothing but its file.
    """
    path = places.checkpoint
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    reader = functools.cache(lambda: reader_of(places))

    def warm() -> None:
        with contextlib.suppress(CoordinatorUnavailable):  # said when it is asked to decide
            reader().warm()

    return Fallback(lambda: Trinity(reader(), members, settings), rule), digest, warm


def reader_of(places: TrinityFiles) -> HeadReader:
    """Return the reader for the checkpoint of these files. Raises CoordinatorUnavailable if there
    is none.
    """
    from fugu_cli.coordinators import checkpoint as checkpoints

    path = places.checkpoint

    def load() -> tuple[Checkpoint, Backbone]:
        from fugu_cli.coordinators import backbone

        # said before a missing model: without torch, fetching one is no help
        backbone.require_torch()
        folder = backbone_folder(places.backbone, places.cache)
        return load_parts(path, folder, places.cache)

    return HeadReader(checkpoints.read_meta(path), load)


def load_parts(path: Path, folder: Path, cache: Path) -> tuple[Checkpoint, Backbone]:
    """Return the checkpoint, and the backbone with its offsets, which others read with too.
    Blocking. Raises CoordinatorUnavailable and MemoryError.
    """
    from fugu_cli.coordinators import backbone_files
    from fugu_cli.coordinators import checkpoint as checkpoints

    with backbone_files.required_libraries():
        checkpoint = checkpoints.load(path)
    return checkpoint, _backbones.load(checkpoint, folder, cache)


class _BackboneCache:
    """The loaded backbones by folder and offsets. Checkpoints that differ only in their heads share
    one. The newest stays loaded without a user, for a pin, an exclusion or the next session; others
    are freed with their last user.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._in_use: WeakValueDictionary[tuple[Path, str], Backbone] = WeakValueDictionary()
        self._newest: Backbone | None = None

    def load(self, checkpoint: Checkpoint, folder: Path, cache: Path) -> Backbone:
        """Return the backbone with the checkpoint's offsets, loaded if it is not yet. Blocking.
        Raises CoordinatorUnavailable and MemoryError.
        """
        key = folder, _offsets_digest(checkpoint)
        with self._lock:
            backbone = self._in_use.get(key)
            if backbone is None:
                self._newest = None  # makes room for the next
                backbone = _load_with_offsets(checkpoint, folder, cache)
                self._in_use[key] = backbone
            self._newest = backbone
        checkpoint.check(backbone.identity, backbone.shape)
        return backbone


_backbones = _BackboneCache()


def _offsets_digest(checkpoint: Checkpoint) -> str:
    digest = hashlib.sha256(checkpoint.meta.tied.encode())
    for block in checkpoint.offsets:
        digest.update((block + 0.0).tobytes())  # -0.0 is no other offset than 0.0
    return digest.hexdigest()


def _load_with_offsets(checkpoint: Checkpoint, folder: Path, cache: Path) -> Backbone:
    """Load a backbone of its own and put the checkpoint's offsets on it. Blocking. `cache` is a
    folder for what is computed once per backbone. Raises CoordinatorUnavailable and MemoryError.
    """
    from fugu_cli.coordinators import backbone, backbone_files
    from fugu_cli.coordinators.svf import SvfAdapter

    with backbone_files.required_libraries():
        loaded = backbone.load_backbone(folder, cache=cache / "backbones")
        checkpoint.check(loaded.identity, loaded.shape)
        try:
            adapter = functools.partial(
                SvfAdapter, loaded.model, cache / "svf" / loaded.identity[:16]
            )
            loaded.compute(
                "for the offsets", lambda: adapter().apply(checkpoint.offsets, checkpoint.meta.tied)
            )
        except ValueError as error:
            raise CoordinatorUnavailable(
                f"the checkpoint's offsets cannot be applied: {error}"
            ) from error
    return loaded


def backbone_folder(backbone: str | None, cache: Path) -> Path:
    """Return the folder of a backbone, the embedded one where None, which is converted at the first
    call. Raise CoordinatorUnavailable.
    """
    from fugu_cli.coordinators import backbone_files

    if backbone is not None:
        return backbone_files.locate_backbone(backbone)
    try:
        return backbone_files.backbone_folder(cache / "models" / f"{EMBEDDED}.gguf", cache)
    except InfrastructureError as error:
        raise CoordinatorUnavailable(str(error), hint=error.hint) from error


def product_end(state: SessionState) -> Finished | None:
    """Return the end of a request without roles: since nobody verifies, a Worker's answer ends it
    unless something speaks against the work. None if the request goes on.
    """
    turns = state.request.turns
    if not turns or turns[-1].failed or turns[-1].interrupted or not turns[-1].replies:
        return None
    if not (turns[-1].concluded or turns[-1].changes) or turns[-1].unable is not None:
        return None
    return (
        None
        if state.request.acceptance_blocker
        else Finished(reason="answered", message="answered by one agent")
    )


if TYPE_CHECKING:

    def _trinity_fits(trinity: Trinity) -> Coordinator:
        return trinity
