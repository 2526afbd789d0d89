"""Counts the seconds that a request was worked on."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from fugu_cli.session.events import Asked, Assigned, Event, Finished, Opened, Recorded, Steered
from fugu_cli.ui.turn_notes import seconds_waited


class RequestClock:
    """The seconds of work on the newest request. They leave out the user's answers to questions,
    the pause before an ended request is taken up again, and the time in which no fugu ran.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._waited = 0.0
        self._last_at = 0.0
        self._has_ended = False

    @property
    def seconds(self) -> float:
        """The seconds up to the event that was added last."""
        return max(self._seconds, 0.0)

    @property
    def waited(self) -> float:
        """The seconds in which the user was waited for; they are not among `seconds`."""
        return self._waited

    def add_event(self, event: Event, at: float) -> None:
        """Count the time from the last event to this one. `at` is in epoch seconds."""
        if isinstance(event, Asked):
            self._seconds = self._waited = 0.0
        elif not self._has_ended and not isinstance(event, Opened):
            self._seconds += at - self._last_at
        self._last_at = at
        waited = seconds_waited(event)
        self._seconds -= waited
        self._waited += waited
        if isinstance(event, Finished):
            self._has_ended = True
        elif isinstance(event, Asked | Steered | Assigned):
            self._has_ended = False


def seconds_ended(records: Sequence[Recorded]) -> float:
    """Return the seconds between the ends of a request and the events with which it went on."""
    return sum(
        after.at - before.at
        for before, after in pairwise(records)
        if isinstance(before.event, Finished)
    )
