"""How good each agent is as Verifier: from the logs of sessions whose end was graded.

    python tests/benchmarks/verifiers.py --rows FILE... [--out FILE]

Counts Verifier turns after which nothing was changed any more, so that the grade of the session is the truth about what
was judged. Each row of FILE names its session's log, relative to the file. `tests passed` and `tests failed`: what the
Verifier was shown; `no tests`: it had only the code and its own tools.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from fugu_cli import log, views
from fugu_cli.events import Event


def judged(events: Sequence[Event]) -> Iterator[tuple[str, str, bool]]:
    """(agent, what the tests said, accepted) of each Verifier turn after the last change."""
    turns = views.turns(events)
    last = max((place for place, turn in enumerate(turns) if turn.changes), default=-1)
    for place, turn in enumerate(turns):
        if place <= last or turn.assigned.role != "verifier" or not turn.replies:
            continue
        before = [run for one in turns[: place + 1] for run in one.runs if run.permitted.call.tool == views.RUN_TESTS]
        known = [run.result for run in before if run.result is not None]
        state = "no tests" if not known else "tests passed" if known[-1].ok else "tests failed"
        yield turn.assigned.agent, state, views.verdict_of(turn.text) == "ACCEPT"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, nargs="+", required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "verifiers.md")
    given = parser.parse_args()
    counts: dict[tuple[str, str], Counter[tuple[bool, bool]]] = defaultdict(Counter)
    read = 0
    for file in given.rows:
        for line in file.read_text().splitlines():
            row = json.loads(line)
            path = file.parent / row["session"]
            if not path.is_file():
                continue
            read += 1
            for agent, state, accepted in judged([record.event for record in log.read(path)]):
                counts[agent, state][row["ok"], accepted] += 1
    lines = [
        "# Verifiers of the embedded pool",
        "",
        f"Written by `tests/benchmarks/verifiers.py` from {read} graded sessions: turns after the last change.",
        "A rate is followed by the counts it stands on. None of these sessions wrote a reproduction first.",
        "",
        "| agent | it was shown | right work accepted | wrong work accepted |",
        "|---|---|---|---|",
    ]
    for (agent, state), found in sorted(counts.items()):
        cells = [rate(found[truth, True], found[truth, True] + found[truth, False]) for truth in (True, False)]
        lines.append(f"| {agent} | {state} | {cells[0]} | {cells[1]} |")
    given.out.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


def rate(count: int, total: int) -> str:
    return f"{count / total:.0%} ({count} of {total})" if total else "- (none)"


if __name__ == "__main__":
    main()
