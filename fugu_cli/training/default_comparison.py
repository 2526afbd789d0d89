"""The comparison of a trained checkpoint with the default coordinator, at the end of training.

Both play tasks that the checkpoint was not trained on. They are paired by task and measured by
reward.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean

from fugu_cli.formatting import plural
from fugu_cli.training.evaluation.intervals import Mean, bootstrap

FEWEST_TASKS = 8
"""With fewer held-out tasks an interval over tasks means nothing."""


@dataclass(frozen=True)
class PlayedTask:
    """One run on a held-out task: the share solved (0..1), and its relative cost."""

    task: str
    solved: float
    cost: float


@dataclass(frozen=True)
class DefaultComparison:
    """The result of a comparison on `tasks` tasks, and its text for the user.

    `gain` is the reward of the checkpoint less that of the default, with its 95 % interval.
    """

    tasks: int
    gain: Mean
    text: str

    @property
    def is_recommended(self) -> bool:
        """Return whether the checkpoint is better than the default with confidence."""
        return self.tasks >= FEWEST_TASKS and self.gain.low > 0


def compare_with_default(
    trained: Sequence[PlayedTask], default: Sequence[PlayedTask], cost_weight: float
) -> DefaultComparison:
    """Compare two coordinators on the tasks that both have played. Reward is the share solved less
    `cost_weight` times the cost; several runs of a task count as one group.
    """
    trained_rewards = _rewards_by_task(trained, cost_weight)
    default_rewards = _rewards_by_task(default, cost_weight)
    common = sorted(trained_rewards.keys() & default_rewards.keys())
    gains = [trained_rewards[task] - default_rewards[task] for task in common]
    gain = bootstrap([[gain] for gain in gains])
    comparison = DefaultComparison(len(common), gain, "")
    lines = []
    for name, runs in (("checkpoint, held out", trained), ("default", default)):
        if runs:
            solved = mean(run.solved for run in runs)
            cost = mean(run.cost for run in runs)
            lines.append(f"{name}: solved {solved:.1%}, cost {cost:.3f}")
    lines.append(
        f"in reward the checkpoint is {gain.value:+.3f} [{gain.low:+.3f}, {gain.high:+.3f}] ahead "
        f"of the default (95 %, {plural(len(common), 'held-out task')})"
    )
    if comparison.is_recommended:
        lines.append("use the checkpoint: it is surely better than the default")
    elif len(common) < FEWEST_TASKS:
        lines.append(f"keep the default: fewer than {FEWEST_TASKS} held-out tasks tell nothing")
    else:
        lines.append("keep the default: the checkpoint is not surely better")
    return replace(comparison, text="\n".join(lines))


def _rewards_by_task(runs: Sequence[PlayedTask], cost_weight: float) -> dict[str, float]:
    rewards: dict[str, list[float]] = defaultdict(list)
    for run in runs:
        rewards[run.task].append(run.solved - cost_weight * run.cost)
    return {task: mean(values) for task, values in rewards.items()}
