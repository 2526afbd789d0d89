"""Trinity: a small model reads the transcript, a linear head on one hidden state says who is next and in which role.

The default coordinator (TRINITY, arXiv 2512.04695). Takes the log, gives one Assigned with all it saw and computed.
Must not import torch itself: the backbone is handed in, and reads on a thread so that the event loop never waits.

Departures: argmax unless `sample`; rows may be slots; a request that a Worker answered without a change ends there. In
product mode (without roles) the one chosen agent goes on, with nothing read, until nothing speaks against its work
or its turns are used up; where it cannot act another one is chosen.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import views
from fugu_cli.coordinators import Coordinator, along, head, loading, masks, readings, slots, stopping
from fugu_cli.coordinators.fallback import Fallback, with_fallback
from fugu_cli.coordinators.readings import Read
from fugu_cli.coordinators.settings import Settings
from fugu_cli.errors import CoordinatorUnavailable, InfrastructureError
from fugu_cli.events import ROLES, Assigned, Event, Finished, Member, Milliseconds, Role, Scores

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.checkpoint import Checkpoint, Meta

SHIPPED = Path(__file__).parent / "data" / "slots.safetensors"
"""The slot checkpoint that comes with the package, for the embedded backbone."""
EMBEDDED = "qwen2.5-coder-0.5b"
"""The embedded model that is the backbone where no other is named."""
NOISE = 0.1
"""Logits that are nearer may change places with the pieces a text was read in: bf16 moved one by .10 at most
in 500 texts (tests/benchmarks/results/coordinator-agreement.md)."""
CONTINUATION = " and"
"""Where a reply stands for one that goes on: what differs then is not read along."""
GUESSED = 8
"""Tokens that are read along as if the reply ended here, though they change when it goes on."""

PACKED = 2
"""Layers that are laid out for faster passes after each piece that was read along."""


@dataclass(frozen=True)
class Places:
    """Where the parts are: a checkpoint (the shipped one when None), a backbone's folder or hub id (the embedded one
    when None), and the cache that holds models and what is computed once per backbone."""

    checkpoint: Path | None
    backbone: str | None
    cache: Path


class Trinity:
    """Decides with a checkpoint on a backbone that carries its offsets already (`ready`)."""

    def __init__(
        self, checkpoint: Checkpoint, backbone: Backbone, members: Sequence[Member], settings: Settings
    ) -> None:
        """Raises CoordinatorUnavailable when the checkpoint is of another backbone or another pool."""
        checkpoint.check(backbone.identity, backbone.decoder.shape)
        checkpoint.check_pool([member.name for member in members])
        checkpoint = checkpoint if settings.roles else checkpoint.without_roles()
        self._checkpoint = checkpoint
        self._head = checkpoint.head.tolist()
        self.backbone = backbone
        """What reads; others of the same files share it."""
        self._members = tuple(members)
        self._settings = settings
        self._deciding = 0

    async def decide(self, events: Sequence[Event]) -> Assigned | Finished:
        """The next turn, or the end of the request. Raises CoordinatorUnavailable when memory runs out."""
        end = stopping.stop(events, turns=self._settings.turns, verify_answers=self._settings.verify_answers)
        if end is not None:
            return end
        meta = self._checkpoint.meta
        if not meta.roles and (end := _product_end(events)) is not None:
            return end
        out = masks.turn_out(events, self._settings.opt_out, self._members)
        if meta.kind == "slots":
            seats = slots.slot_seats(meta.rows, self._members, out, events)
        else:
            seats = slots.agent_seats(meta.rows, self._members, out)
        if not meta.roles and (holder := self._holder(events, out)):
            return Assigned(
                turn=masks.next_turn(events), agent=holder, role="worker", by="trinity", reason="it has the request"
            )
        if all(seat.member is None for seat in seats):
            rows = {name: why for name, why in out.items() if meta.kind == "slots" or name in meta.rows}
            return masks.nobody(rows)
        self._deciding += 1
        try:
            read = await self.read(events, {index for index, seat in enumerate(seats) if seat.member is None})
        finally:
            self._deciding -= 1
        return self._assign(events, read, seats)

    def _holder(self, events: Sequence[Event], out: Mapping[str, str]) -> str:
        """Who was chosen for this request and can go on; "" where somebody is to be chosen."""
        turns = views.turns(events)
        name = turns[-1].assigned.agent if turns and not turns[-1].assigned.plan else ""
        return name if name not in out and any(member.name == name for member in self._members) else ""

    @property
    def shares_processor(self) -> bool:
        """The backbone computes on the CPU, like local agents."""
        return bool(self.backbone.decoder.device.type == "cpu")

    async def ahead(self, events: Sequence[Event], said: str, stop: threading.Event) -> None:
        """Read along (along.ReadsAlong): what the next transcript begins with if the reply goes on from `said`."""

        def feed() -> None:
            with suppress(MemoryError, CoordinatorUnavailable):  # the next decision will say so
                same = [self._write(ending) for ending in along.endings(events, said, CONTINUATION)]
                settled, ended = self.backbone.settled(along.shared(*same)), self.backbone.tokens(same[0])
                near = len(ended) - len(settled) <= GUESSED and ended[: len(settled)] == settled
                self.backbone.feed(ended if near else settled, stop)
                self.backbone.pack(stop, PACKED)

        if not self._deciding and not self._settings.sample:  # a decision reads the same, and more; a drawn one anew
            await asyncio.to_thread(feed)

    def _write(self, events: Sequence[Event]) -> str:
        return readings.write(self.backbone, self._checkpoint.meta, events, self._members)

    async def read(self, events: Sequence[Event], out: Collection[int] = ()) -> Read:
        """What the coordinator reads of this log, and the hidden state it ends in. `out`: rows nobody stands behind."""
        try:
            return await asyncio.to_thread(self._settled, events, out)
        except MemoryError as error:
            raise CoordinatorUnavailable(
                f"the coordinator ran out of memory: {error}", hint="close other programs, or use a smaller backbone"
            ) from error

    def _settled(self, events: Sequence[Event], out: Collection[int]) -> Read:
        """Rounding depends on the pieces in which a text was read. Where the first is hardly ahead of the second it
        would decide: such a text is read again at once. Where decisions are drawn every text is, so that a training
        repeats exactly, however large the logits of its candidates are. Blocking."""
        drawn = self._settings.sample
        found = readings.read(self.backbone, self._checkpoint.meta, events, self._members, anew=drawn)
        if found.reading.at_once:
            return found
        scores = head.logits(self._head, found.reading.hidden.tolist())
        rows = len(self._checkpoint.meta.rows)
        roles = {ROLES.index(role) for role in masks.roles_out(events)}
        ahead = min(head.lead(scores[:rows], out), head.lead(scores[rows:], roles))
        return readings.again(self.backbone, found) if ahead < NOISE else found

    def _assign(self, events: Sequence[Event], read: Read, seats: Sequence[slots.Seat]) -> Assigned:
        started = time.perf_counter()
        rows = len(seats)
        scores = head.logits(self._head, read.reading.hidden.tolist())
        empty = {index for index, seat in enumerate(seats) if seat.member is None}
        chances = head.probabilities(scores[:rows], empty, self._settings.temperature)
        draw = self._draw(events)
        seat = seats[head.pick(chances, draw)]
        assert seat.member is not None
        role, by_head, role_chances = self._role(events, scores[rows:], draw)
        now = Milliseconds(**{**read.milliseconds.model_dump(), "head": readings.since(started)})
        return Assigned(
            turn=masks.next_turn(events),
            agent=seat.member.name,
            role=role,
            by="trinity",
            reason=_reason(f"{seat.row} slot" if self._checkpoint.meta.kind == "slots" else seat.row, role, by_head),
            scores=Scores(
                rows=tuple(s.row for s in seats),
                row_logits=head.rounded(scores[:rows]),
                row_probabilities=head.rounded(chances),
                role_logits=head.rounded(scores[rows:]),
                role_probabilities=role_chances,
                masked=_masked(events, seats, self._checkpoint.meta),
                read=read.text,
                tokens=read.reading.tokens,
                cached_tokens=read.reading.cached,
                temperature=self._settings.temperature,
            ),
            override=by_head if by_head != role else None,
            milliseconds=now,
        )

    def _role(
        self, events: Sequence[Event], scores: Sequence[float], draw: random.Random | None
    ) -> tuple[Role, Role, tuple[float, ...]]:
        """The role taken, the role the head chose, and the probabilities. Without roles: a Worker."""
        if not self._checkpoint.meta.roles:
            return "worker", "worker", ()
        out = masks.roles_out(events)
        chances = head.probabilities(scores, {ROLES.index(role) for role in out}, self._settings.temperature)
        by_head = ROLES[head.pick(chances, draw)]
        return masks.suggestion(events) or by_head, by_head, head.rounded(chances)

    def _draw(self, events: Sequence[Event]) -> random.Random | None:
        """A generator of this very place in the log, so that a replay draws the same."""
        if not self._settings.sample:
            return None
        return random.Random(f"{self._settings.seed}/{len(views.requests(events))}/{masks.next_turn(events)}")


def build(
    places: Places, members: Sequence[Member], settings: Settings, rule: Coordinator
) -> tuple[Fallback, str | None, Callable[[], None]]:
    """A Trinity that loads when first needed and gives way to `rule` where it cannot; the checkpoint's sha256; and what
    starts loading in the background. Touches nothing but the checkpoint's file."""
    path = places.checkpoint or SHIPPED
    digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None

    def factory() -> Trinity:
        stamp = path.stat().st_mtime_ns if path.is_file() else 0
        return Trinity(*_kept(path, stamp, backbone_folder(places), places.cache), members, settings)

    made = with_fallback(factory, rule)
    return made, digest, made.warm


@functools.lru_cache(maxsize=1)
def _kept(checkpoint: Path, stamp: int, folder: Path, cache: Path) -> tuple[Checkpoint, Backbone]:
    """Loaded once a process: a pin, an exclusion or the next session finds it as the last one left it."""
    return prepared(checkpoint, folder, cache)


def ready(checkpoint: Path, folder: Path, crew: tuple[Sequence[Member], Settings], cache: Path) -> Trinity:
    """A Trinity from files: the checkpoint, the backbone's folder, and the checkpoint's offsets put on it. Blocking.

    `cache` is a folder for what is computed once per backbone. Raises CoordinatorUnavailable and MemoryError.
    """
    return Trinity(*prepared(checkpoint, folder, cache), *crew)


@loading.libraries()
def prepared(checkpoint: Path, folder: Path, cache: Path) -> tuple[Checkpoint, Backbone]:
    """The checkpoint, and its backbone with the offsets on it and the transcript's constant beginning read."""
    from fugu_cli.coordinators import backbone as backbones
    from fugu_cli.coordinators import checkpoint as checkpoints
    from fugu_cli.coordinators import prefix, preloading
    from fugu_cli.coordinators.svf import Adapter

    preloading.preload()
    chosen = checkpoints.load(checkpoint)
    loaded = backbones.load(folder, cache=cache / "backbones")
    chosen.check(loaded.identity, loaded.decoder.shape)
    try:
        adapter = functools.partial(Adapter, loaded.decoder, cache / "svf" / loaded.identity[:16])
        loaded.compute("for the offsets", lambda: adapter().apply(chosen.offsets, chosen.meta.tied))
    except ValueError as error:
        raise CoordinatorUnavailable(f"the checkpoint's offsets cannot be applied: {error}") from error
    prefix.recall(loaded, chosen, cache / "prefixes")
    return chosen, loaded


def backbone_folder(places: Places) -> Path:
    """Where the backbone is; the embedded one is converted at the first call. Raises CoordinatorUnavailable."""
    from fugu_cli.coordinators import convert

    if places.backbone is not None:
        return loading.locate(places.backbone)
    try:
        return convert.backbone_folder(places.cache / "models" / f"{EMBEDDED}.gguf", places.cache)
    except InfrastructureError as error:
        raise CoordinatorUnavailable(str(error), hint=error.hint) from error


def _product_end(events: Sequence[Event]) -> Finished | None:
    """Without roles nobody verifies: a Worker's answer ends the request unless something speaks against it."""
    turns = views.turns(events)
    if not turns or turns[-1].failed or turns[-1].interrupted or not turns[-1].replies:
        return None
    if not (turns[-1].concluded or turns[-1].changes):
        return None
    return None if views.against(events) else Finished(reason="answered", message="answered by one agent")


def _masked(events: Sequence[Event], seats: Sequence[slots.Seat], meta: Meta) -> tuple[tuple[str, str], ...]:
    rows = [(seat.row, seat.why) for seat in seats if seat.member is None]
    roles = list(masks.roles_out(events).items()) if meta.roles else []
    return (*rows, *roles)


def _reason(row: str, role: Role, by_head: Role) -> str:
    return row if role == by_head else f"{row}; the Thinker asked for a {role}, the head chose {by_head}"


if TYPE_CHECKING:

    def _fits(trinity: Trinity) -> Coordinator:
        return trinity
