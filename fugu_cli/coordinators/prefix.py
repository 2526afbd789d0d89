"""The prefix: what every transcript begins with (in the chat format the template's system message), read once, kept.

A new process finds its keys, values and hidden states on the disk and reads on from there. Stands beside backbone.py.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli import atomic
from fugu_cli.coordinators.along import shared
from fugu_cli.coordinators.transcript import Line

if TYPE_CHECKING:
    from fugu_cli.coordinators.backbone import Backbone
    from fugu_cli.coordinators.checkpoint import Checkpoint


def constant(backbone: Backbone, checkpoint: Checkpoint) -> list[int]:
    """Tokens that every transcript in the checkpoint's format begins with: its first line is always the user's."""
    texts = [backbone.write((Line("user", word),), checkpoint.meta.format) for word in ("fix", "Why?")]
    return backbone.settled(shared(*texts))


def recall(backbone: Backbone, checkpoint: Checkpoint, store: Path) -> int:
    """Let `backbone`, with the checkpoint's offsets on it, know the constant beginning: from `store`, else by reading.

    Returns how many tokens that are. A file that is broken or of another kind is written anew.
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file, save_file

    tokens = constant(backbone, checkpoint)
    kind = f"{backbone.decoder.device.type}-{str(backbone.decoder.dtype).removeprefix('torch.')}"
    file = store / f"{backbone.identity[:16]}-{checkpoint.digest[:16]}-{kind}.safetensors"
    try:
        if backbone.restore(tokens, load_file(file, device=str(backbone.decoder.device))):
            return len(tokens)
    except (OSError, SafetensorError):
        pass
    try:
        known = backbone.snapshot(tokens)
        with atomic.beside(file) as draft:
            save_file(known, draft)
    except OSError:  # a disk without room: the next start reads it again
        return len(tokens)
    return len(tokens)
