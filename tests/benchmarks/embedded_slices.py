"""The loop measured in slices, so that arms can be compared in seconds: models are loaded before
the first request of a slice, every arm is the first of a task in its turn, and the clock stands
still while the machine is suspended or the whole measurement is stopped (SIGSTOP, to let something
else have both cores).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from arms import measure_arms
from on_tasks import tell

from fugu_cli.config.agent_pool import EMBEDDED, LOCAL_CONTEXT
from fugu_cli.models.server_lease import lease_server
from fugu_cli.training.evaluation import results_folder, rollout
from fugu_cli.training.tasks import Task

BEAT, STILL = 0.05, 2.0
"""Seconds between two looks at the clock, and between two that say that this process was
stopped.
"""


async def measure(
    tasks: Sequence[Task],
    arms: Sequence[str],
    open_session: rollout.OpenRolloutSession,
    file: Path,
    until: float,
) -> None:
    """Fill the table tasks x arms in `file`; begins nothing after `until` (of the monotonic
    clock).
    """
    clock = leave_out_stops()
    models = sorted({entry.model for entry in EMBEDDED})
    leases = [await lease_server(model, context=LOCAL_CONTEXT) for model in models] if arms else []
    try:
        for number, task in enumerate(tasks):
            first = number % max(len(arms), 1)
            for arm in (*arms[first:], *arms[:first]):
                known = {
                    (row.task, row.arm)
                    for row in results_folder.read_rows(file, rollout.RolloutOutcome)
                }
                if (task.id, arm) not in known and time.monotonic() + clock.left_out < until:
                    before = clock.left_out
                    await measure_arms([task], [arm], open_session, file, tell)
                    if stopped := clock.left_out - before:
                        tell(f"  stopped for {stopped:.1f} s meanwhile, left out")
    finally:
        for held in leases:
            await held.close()


class Clock:
    """A monotonic clock that leaves out the time for which this process was stopped: whoever asks,
    and a thread that asks all the time, finds the clock moved on by more than STILL."""

    def __init__(self, real: Callable[[], float]) -> None:
        self._real = real
        self._lock = threading.Lock()
        self._last = real()
        self.left_out = 0.0

    def now(self) -> float:
        """Seconds."""
        with self._lock:
            found = self._real()
            if found - self._last > STILL:
                self.left_out += found - self._last - BEAT
            self._last = max(found, self._last)
            return self._last - self.left_out

    def beat(self) -> None:
        """For a thread: never returns."""
        while True:
            time.sleep(BEAT)
            self.now()


def leave_out_stops() -> Clock:
    """From now on `time.monotonic`, which limits and costs are measured by, stands still while this
    process does.
    """
    clock = Clock(time.monotonic)
    threading.Thread(target=clock.beat, daemon=True).start()
    time.monotonic = clock.now
    return clock
