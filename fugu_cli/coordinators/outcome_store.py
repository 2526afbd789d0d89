"""The outcomes of all sessions: a view over their logs with a cache.

The cache holds what each log told when it was read, so only sessions that changed since are read
again, a bounded number of bytes at a time. Deleting the cache loses nothing but what was to be
forgotten. A folder that the user does not trust counts for itself only.
"""

from __future__ import annotations

import contextlib
import functools
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import BaseModel, ValidationError

from fugu_cli.coordinators.outcomes import (
    SessionOutcomes,
    count_outcomes,
    session_outcomes,
)
from fugu_cli.errors import StorageError
from fugu_cli.session import log, store
from fugu_cli.session.events import Asked, KindRead, Member, OutcomesKnown, Recorded
from fugu_cli.session.state import SessionState
from fugu_cli.system import atomic_files

CACHE = "outcomes.json"
CACHE_FORMAT = 1
"""Raised when more is read from a log than before, so that cached logs are read again."""
OTHER_REPOSITORY_SHARE = 0.5
"""The weight of an outcome from another repository."""
MOST_SESSIONS = 500
"""Of the newest sessions, how many count."""
READ_BYTES = 8_000_000
"""Bytes of logs that are read at a time; what is left is read the next time."""
LARGEST_LOG_BYTES = 30_000_000
"""A larger log is not read."""


class _SessionEntry(BaseModel):
    """A session log that was read: its time and size at that moment, its folder, and the time of
    each request.
    """

    changed_ns: int
    size: int
    repo: str
    asked_at: tuple[float, ...]
    outcomes: SessionOutcomes
    format: int = 0
    kinds_of_others: tuple[KindRead, ...] = ()
    """Kinds that were read in this session for requests of other ones."""


class _Cache(BaseModel):
    """`forgotten_at`: requests that were asked before it (seconds since the epoch) do not count."""

    forgotten_at: float = 0.0
    sessions: dict[str, _SessionEntry] = {}


@dataclass(frozen=True)
class UnreadRequest:
    """A request whose kind has not been read yet: its log, and its number there, from 1."""

    path: Path
    number: int


@dataclass(frozen=True)
class OutcomeStore:
    """The outcomes of sessions below `data`, as they count in the repository `root`.

    `is_trusted` says whether the user trusts a folder.
    """

    data: Path
    root: Path
    is_trusted: Callable[[Path], bool]

    def known(
        self, members: Sequence[Member], newest: Sequence[Recorded], own_log: Path | None = None
    ) -> OutcomesKnown:
        """Return what is known of these agents. `newest`: the records of the open session, whose
        log is at `own_log`. Blocking. A log or cache that cannot be read counts for nothing.
        """
        cache = self._refreshed(own_log)
        entries = _entries(cache, newest, own_log)
        own_sessions, elsewhere = self._split(list(entries.values()), cache.forgotten_at)
        sessions = [*own_sessions, *(_reduced(outcomes) for outcomes in elsewhere)]
        requests_by_kind: dict[str, float] = defaultdict(float)
        for outcomes in own_sessions:
            for shares in outcomes.kinds.values():
                for name, share in shares.items():
                    requests_by_kind[name] += share
        return OutcomesKnown(
            counts=count_outcomes(sessions, members),
            kinds=tuple(
                (name, round(count, 3)) for name, count in sorted(requests_by_kind.items())
            ),
        )

    def unread(
        self, newest: Sequence[Recorded], own_log: Path | None = None
    ) -> list[UnreadRequest]:
        """Return the requests of this repository that have no kind, the open session's and then the
        newest first. Blocking.
        """
        cache = self._refreshed(own_log)
        own_root = store.recorded_root(self.root)
        requests = [
            UnreadRequest(path, number)
            for path, entry in _entries(cache, newest, own_log).items()
            if entry.repo == own_root
            for number, kinds in sorted(entry.outcomes.kinds.items(), reverse=True)
            if not kinds and entry.asked_at[number - 1] > cache.forgotten_at
        ]
        return sorted(requests, key=lambda request: request.path != own_log)

    def forget(self) -> None:
        """Let no request count that was asked before now. Raises StorageError."""
        _write_cache(self.data / CACHE, _Cache(forgotten_at=time.time()))

    def _refreshed(self, own_log: Path | None) -> _Cache:
        """Return the cache with changed sessions read again, and keep it."""
        file = self.data / CACHE
        cache = _read_cache(file)
        try:
            paths = store.session_paths(self.data)[:MOST_SESSIONS]
        except StorageError:
            return cache
        sessions: dict[str, _SessionEntry] = {}
        left = READ_BYTES
        for path in paths:
            if path == own_log:
                continue
            entry = cache.sessions.get(str(path))
            try:
                state = path.stat()
            except OSError:
                continue
            read_as = (state.st_mtime_ns, state.st_size, CACHE_FORMAT)
            if entry is None or (entry.changed_ns, entry.size, entry.format) != read_as:
                if state.st_size > LARGEST_LOG_BYTES:
                    continue
                if left > 0:
                    left -= state.st_size
                    with contextlib.suppress(StorageError):
                        records = log.examine(path).records
                        entry = _read_entry(records, state.st_mtime_ns, state.st_size)
            if entry is not None:
                sessions[str(path)] = entry
        refreshed = _Cache(forgotten_at=cache.forgotten_at, sessions=sessions)
        if refreshed != cache:
            with contextlib.suppress(StorageError):
                _write_cache(file, refreshed)
        return refreshed

    def _split(
        self, entries: Sequence[_SessionEntry], forgotten_at: float
    ) -> tuple[list[SessionOutcomes], list[SessionOutcomes]]:
        """Return the outcomes of this repository and of others that count here. What a copy of a
        session repeats counts once.
        """
        trusted = functools.cache(lambda repo: self.is_trusted(Path(repo)))
        own_root = store.recorded_root(self.root)
        own_sessions: list[SessionOutcomes] = []
        elsewhere: list[SessionOutcomes] = []
        counted_times: set[float] = set()
        for entry in entries:
            counted = {
                number
                for number, asked_at in enumerate(entry.asked_at, start=1)
                if asked_at > forgotten_at and asked_at not in counted_times
            }
            counted_times.update(entry.asked_at)
            outcomes = _of_requests(entry.outcomes, counted)
            if entry.repo == own_root:
                own_sessions.append(outcomes)
            elif outcomes.attempts and trusted(entry.repo):
                elsewhere.append(outcomes)
        return own_sessions, elsewhere


def _entries(
    cache: _Cache, newest: Sequence[Recorded], own_log: Path | None
) -> dict[Path, _SessionEntry]:
    """Return every session with the kinds that were read for it, also by later sessions."""
    entries = {Path(key): entry for key, entry in cache.sessions.items() if key != str(own_log)}
    if newest:
        entries[own_log or Path()] = _read_entry(newest, changed_ns=0, size=0)
    kinds_read: dict[str, dict[int, dict[str, float]]] = defaultdict(dict)
    for entry in entries.values():
        for reading in entry.kinds_of_others:
            kinds_read[reading.session][reading.request] = dict(reading.kinds)
    for path, entry in entries.items():
        if path.stem in kinds_read:
            outcomes = _with_kinds(entry.outcomes, kinds_read[path.stem])
            entries[path] = entry.model_copy(update={"outcomes": outcomes})
    return entries


def _with_kinds(
    outcomes: SessionOutcomes, kinds_read: Mapping[int, Mapping[str, float]]
) -> SessionOutcomes:
    """Return outcomes with the kinds of requests that had none."""
    missing = {
        number: kinds
        for number, kinds in kinds_read.items()
        if number in outcomes.kinds and not outcomes.kinds[number]
    }
    return SessionOutcomes(
        attempts=tuple(
            replace(attempt, kinds=missing.get(attempt.request, attempt.kinds))
            for attempt in outcomes.attempts
        ),
        prices=tuple(
            replace(price, kinds=missing.get(price.request, price.kinds))
            for price in outcomes.prices
        ),
        solo_prices=tuple(
            replace(solo, kinds=missing.get(solo.request, solo.kinds))
            for solo in outcomes.solo_prices
        ),
        kinds={**outcomes.kinds, **missing},
    )


def _read_entry(records: Sequence[Recorded], changed_ns: int, size: int) -> _SessionEntry:
    events = [record.event for record in records]
    opened = SessionState(events).opened
    return _SessionEntry(
        changed_ns=changed_ns,
        size=size,
        format=CACHE_FORMAT,
        repo=opened.repo if opened else "",
        asked_at=tuple(record.at for record in records if isinstance(record.event, Asked)),
        outcomes=session_outcomes(SessionState(events)),
        kinds_of_others=tuple(
            event for event in events if isinstance(event, KindRead) and event.session
        ),
    )


def _of_requests(outcomes: SessionOutcomes, numbers: set[int]) -> SessionOutcomes:
    return SessionOutcomes(
        attempts=tuple(attempt for attempt in outcomes.attempts if attempt.request in numbers),
        prices=tuple(price for price in outcomes.prices if price.request in numbers),
        solo_prices=tuple(solo for solo in outcomes.solo_prices if solo.request in numbers),
        kinds={number: kinds for number, kinds in outcomes.kinds.items() if number in numbers},
    )


def _reduced(outcomes: SessionOutcomes) -> SessionOutcomes:
    """Return the outcomes of another repository with the smaller weight that they have here."""
    return replace(
        outcomes,
        attempts=tuple(
            replace(attempt, weight=attempt.weight * OTHER_REPOSITORY_SHARE)
            for attempt in outcomes.attempts
        ),
    )


def _read_cache(file: Path) -> _Cache:
    try:
        return _Cache.model_validate_json(file.read_bytes())
    except (OSError, ValidationError):
        return _Cache()


def _write_cache(file: Path, cache: _Cache) -> None:
    try:
        with atomic_files.replacement_file(file, 0o600) as draft:
            draft.write_text(cache.model_dump_json(), encoding="utf-8")
    except OSError as error:
        raise StorageError(
            f"cannot write {file}: {error.strerror}",
            hint="check free space and permissions with `df -h` and `ls -l`",
        ) from error
