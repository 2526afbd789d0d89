"""How many calls each kind of failure makes after each other kind, in `fugu run`, the interface,
`fugu serve` and `fugu acp`.

python -m tests.benchmarks.failures > tests/benchmarks/results/failures.md
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.acceptance import failing
from tests.acceptance.driving import Place
from tests.acceptance.failing import KINDS, NO_SERVER, REFUSED, Pair
from tests.acceptance.loopback import Loopback, running

SURFACES: dict[str, tuple[str, Callable[[Place, Loopback], list[Pair]]]] = {
    "fugu run": (
        "Agents of one run that fail one after the other; calls of the second agent.",
        failing.in_runs,
    ),
    "The interface": (
        "Two requests of one session with one agent; calls of the second. Behind a refused key it "
        "makes none; the number is that of `/retry NAME` after it.",
        partial(failing.in_interface, kinds=[*KINDS]),
    ),
    "fugu serve": (
        "Two requests to one endpoint with one agent, without tools; calls of the second, and its "
        "status.",
        partial(failing.in_serve, kinds=[*KINDS]),
    ),
    "fugu serve, with tools": (
        "The same with a tool of the client's.",
        partial(failing.in_serve_with_tools, kinds=[*KINDS]),
    ),
    "fugu acp": (
        "Two prompts of one session in an editor, with one agent; calls of the second.",
        partial(failing.in_acp, kinds=[*KINDS]),
    ),
}


def table(pairs: list[Pair]) -> list[str]:
    """The calls of each pair: a row for what failed before, a column for what failed then."""
    names = [
        kind
        for kind in [*KINDS, NO_SERVER]
        if any(kind in (pair.first, pair.second) for pair in pairs)
    ]
    lines = [f"| before \\ then | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for first in names:
        cells = []
        for second in names:
            found = [pair for pair in pairs if (pair.first, pair.second) == (first, second)]
            cells.append(_cell(found))
        lines.append(f"| {first} | {' | '.join(cells)} |")
    return lines


def _cell(pairs: list[Pair]) -> str:
    if not pairs:
        return ""
    worst = max(pairs, key=lambda pair: pair.calls)
    status = worst.end.partition(",")[0]
    return f"{worst.calls} ({status})" if status.isdigit() else str(worst.calls)


def main() -> None:
    print("# Failures after failures\n")
    print(
        "`python -m tests.benchmarks.failures`. A server on this machine fails as each request "
        "says, and counts what it is asked. A call that may pass later is tried five times, one "
        "with a broken answer as well; pauses between tries are shortened to a thousandth. "
        f"A refused key ({', '.join(REFUSED)}) is not asked again for two minutes: 0 calls."
    )
    for title, (what, drive) in SURFACES.items():
        with running() as server, tempfile.TemporaryDirectory() as folder:
            place = Place(Path(folder), server.url)
            place.begin()
            failing.hasty(place)
            pairs = drive(place, server)
        most = max(pair.calls for pair in pairs)
        print(f"\n## {title}\n\n{what} {len(pairs)} pairs, {most} calls at most.\n")
        print("\n".join(table(pairs)), flush=True)


if __name__ == "__main__":
    main()
