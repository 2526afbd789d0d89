"""What a coordinator reads: the transcript of a log in a checkpoint's form, and the state it ends in.

Between the transcript (transcript.py) and the backbone that reads it; used live (trinity.py) and in training, so that
both see the same. Must not import torch itself.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fugu_cli import views
from fugu_cli.coordinators import transcript
from fugu_cli.events import Event, Member, Milliseconds

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone, Reading
    from fugu_cli.coordinators.checkpoint import Meta


@dataclass(frozen=True)
class Read:
    """A transcript as it was read: the text, the state behind it, and what each part took."""

    text: str
    reading: Reading
    milliseconds: Milliseconds


def labels(meta: Meta, members: Sequence[Member]) -> Mapping[str, str]:
    """How the transcript names the agents: by slot for a slot checkpoint, else by name."""
    return {member.name: member.slot if meta.kind == "slots" else member.name for member in members}


def write(backbone: Backbone, meta: Meta, events: Sequence[Event], members: Sequence[Member]) -> str:
    """The transcript of `events`, cut to the checkpoint's budget, in its format. Who has left the pool is named too."""
    known = {**views.pool(events), **{member.name: member for member in members}}
    lines = transcript.lines(events, labels(meta, tuple(known.values())), workers_only=meta.workers_only)
    return backbone.write(transcript.fit(lines, meta.budget, backbone.count), meta.format)


def read(
    backbone: Backbone, meta: Meta, events: Sequence[Event], members: Sequence[Member], *, anew: bool = False
) -> Read:
    """Format, cut, tokenise and read the transcript of `events`; `anew`: with nothing kept from before. Blocking."""
    started = time.perf_counter()
    text = write(backbone, meta, events, members)
    written = time.perf_counter()
    tokens = backbone.tokens(text)
    tokenised = time.perf_counter()
    reading = backbone.read(tokens, anew=anew)
    spent = Milliseconds(
        format=round(1e3 * (written - started), 3),
        tokenise=round(1e3 * (tokenised - written), 3),
        forward=since(tokenised),
    )
    return Read(text, reading, spent)


def again(backbone: Backbone, known: Read) -> Read:
    """The same text, read at once and with nothing kept from before. Blocking."""
    started = time.perf_counter()
    reading = backbone.read(backbone.tokens(known.text), anew=True)
    spent = known.milliseconds.model_copy(update={"forward": known.milliseconds.forward + since(started)})
    return Read(known.text, reading, spent)


def since(started: float) -> float:
    """Milliseconds since `started` (perf_counter)."""
    return round(1e3 * (time.perf_counter() - started), 3)
