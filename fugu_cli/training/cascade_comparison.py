"""Proving: is what a mixture teaches never worse than the rule cascade, on either of its sources?

Beside mixture.py, which compares heads with the cascade; here heads are learned without what they are then judged on,
another checkpoint's head is put beside them, and the outcome becomes lines of the new checkpoint's record.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fugu_cli.coordinators.svf import Vector
from fugu_cli.training.frontier import Arm, Numbers
from fugu_cli.training.mixture import Mixture, Proof
from fugu_cli.training.replay_training import learn
from fugu_cli.training.search_vector import HiddenStates

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Proven:
    """By source: heads that had not seen what they were judged on, and `before`, another checkpoint's head on the same
    cases (which may have seen them)."""

    learned: tuple[Proof, ...]
    before: tuple[Proof, ...]

    @property
    def worse(self) -> tuple[str, ...]:
        """The sources on which the cascade is better by more than chance explains."""
        return tuple(proof.source for proof in self.learned if proof.worse)

    def record(self) -> dict[str, float]:
        """For a checkpoint's record."""
        found: dict[str, float] = {}
        for proof in self.learned:
            found |= {
                f"{proof.source}: cases": float(len(proof.ours.solved)),
                f"{proof.source}: solved, held out": _mean(proof.ours.solved),
                f"{proof.source}: cost, held out": _mean(proof.ours.cost),
                f"{proof.source}: solved by the cascade": _mean(proof.cascade.solved),
                f"{proof.source}: cost of the cascade": _mean(proof.cascade.cost),
                f"{proof.source}: reward over the cascade": round(proof.reward.difference, 4),
                f"{proof.source}: its standard error": round(proof.reward.error, 4),
            }
        for proof in self.before:
            found[f"{proof.source}: reward over the cascade, checkpoint before"] = round(proof.reward.difference, 4)
        return found

    def table(self) -> str:
        """As people read it."""
        lines = [
            "| judged on | cases | head | solved | cost | reward, against the cascade |",
            "|---|---|---|---|---|---|",
        ]
        for name, proofs in (("held out", self.learned), ("checkpoint before", self.before)):
            for proof in proofs:
                gap = f"{proof.reward.difference:+.4f} ± {proof.reward.error:.4f}"
                lines.append(f"| {proof.source} | {len(proof.ours.solved)} | {name} | {_arm(proof.ours)} | {gap} |")
        for proof in self.learned:
            lines.append(
                f"| {proof.source} | {len(proof.ours.solved)} | rule cascade | {_arm(proof.cascade)} | +0.0000 |"
            )
        return "\n".join(lines)


def prove(mixture: Mixture, hidden_states: HiddenStates, before: Vector | None, tell: Tell) -> Proven:
    """Every repository and task decided by a head that was learned without it, as the mixture's blend says."""

    def head_of(out: frozenset[str]) -> Vector:
        learned = learn(mixture.told(out), mixture.trial(out), mixture.blend.course, hidden_states, lambda _: None)
        tell(f"learned without {len(out)} repositories and tasks")
        return learned.head

    known = () if before is None else tuple(mixture.prove(lambda _: before))
    return Proven(tuple(mixture.prove(head_of)), known)


def _mean(values: Numbers) -> float:
    return round(float(values.mean()), 4)


def _arm(arm: Arm) -> str:
    return f"{arm.solved.mean():.1%} | {arm.cost.mean():.3f}"
