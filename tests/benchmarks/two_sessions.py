"""Seconds a `write` takes in the real binary, where one session works in a repository alone, and
where two work in it at the same time.

    python tests/benchmarks/two_sessions.py [--files 20000] [--writes 10] > FILE.md
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from pathlib import Path

from fugu_cli.session import log as logs
from fugu_cli.session.events import Replied, ToolRan
from tests.acceptance.driving import Agent, Place, ended
from tests.acceptance.loopback import Loopback, Says, Use, running

ROUNDS = 3


def write_seconds(path: Path) -> list[float]:
    """Return how long each write of a session took, from the model's reply to the logged result."""
    seconds: list[float] = []
    replied_at = 0.0
    for record in logs.read(path):
        match record.event:
            case Replied():
                replied_at = record.at
            case ToolRan(call=call, ok=True) if call.tool == "write":
                seconds.append(record.at - replied_at)
            case _:
                pass
    return seconds


def measure(place: Place, server: Loopback, sessions: int, writes: int) -> list[float]:
    """Run as many sessions at once; return the seconds of all their writes."""
    earlier = set(place.sessions())
    processes = []
    for number in range(sessions):
        model = f"m{number}"
        calls = [
            Says(calls=(Use("write", {"path": f"made-{number}-{index}.txt", "content": "x\n"}),))
            for index in range(writes)
        ]
        server.play(model, *calls, Says("ACCEPT All is written."))
        processes.append(
            place.start("run", "--agent", model, "--permission-mode", "edit", "write the files")
        )
    for process in processes:
        done = ended(process, timeout=300)
        assert done.code == 0, done.err
    made = set(place.sessions()) - earlier
    seconds = [value for path in made for value in write_seconds(path)]
    assert len(seconds) == sessions * writes, seconds
    for path in place.repo.glob("made-*"):
        path.unlink()
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--writes", type=int, default=10)
    options = parser.parse_args()
    rows: dict[int, list[float]] = {1: [], 2: []}
    with tempfile.TemporaryDirectory() as folder, running() as server:
        place = Place(Path(folder), server.url)
        place.begin()
        place.files({f"{n // 100:04}/{n}.py": f"value = {n}\n" for n in range(options.files)})
        place.commit()
        place.configure(Agent("m0"), Agent("m1"), more="")
        measure(place, server, 1, options.writes)  # the first snapshot, warm caches
        for _ in range(ROUNDS):
            for sessions, seconds in rows.items():
                seconds += measure(place, server, sessions, options.writes)
    alone = statistics.median(rows[1])
    print("# Writes of two sessions in one repository\n")
    print(
        f"`python tests/benchmarks/two_sessions.py --files {options.files} --writes {options.writes}`; "
        f"{ROUNDS} rounds, {os.cpu_count()} cores. A write takes from the model's reply to its logged "
        "result, with the snapshot before it.\n"
    )
    print("| sessions at once | median, ms | slowest, ms | median, times one alone |")
    print("|---|---:|---:|---:|")
    for sessions, seconds in rows.items():
        median = statistics.median(seconds)
        print(
            f"| {sessions} | {median * 1000:.0f} | {max(seconds) * 1000:.0f} | {median / alone:.1f} |"
        )


if __name__ == "__main__":
    main()
