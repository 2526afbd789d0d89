"""What a user may set about deciding; the same for every coordinator. Values only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """`turns` is TRINITY's K; `sample`, `temperature` and `seed` only matter to coordinators that draw.

    `verify_answers`: an answer that changed nothing needs a Verifier too. `opt_out` names agents never to be assigned.
    """

    turns: int = 5
    verify_answers: bool = False
    opt_out: frozenset[str] = frozenset()
    roles: bool = True
    """False: one agent a request and no roles (arXiv 2606.21228), also with a checkpoint that has them."""
    sample: bool = False
    temperature: float = 1.0
    seed: int = 0
