"""Kills `run`, `undo` and `redo` at random moments, each followed by what a person would do next,
and counts where something was lost.

python tests/benchmarks/kills.py [--moments 36] [--seed 7] > tests/benchmarks/results/kills.md
"""

from __future__ import annotations

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from fugu_cli.session.log import HEARTBEAT_SECONDS
from tests.acceptance.test_jobs import script
from tests.acceptance.test_killed import REQUEST, count, count_of, furnished, killed, worked
from tests.acceptance.test_undo import DONE, files

MINE = {"later.txt": "by hand\n"}
NEXT = {
    "run": ("undo", "run --continue", "run"),
    "undo": ("undo", "redo", "run"),
    "redo": ("redo", "undo", "run"),
}


def loss(command: str, next_command: str, moment: int, folder: Path) -> str:
    """What was lost; "" where nothing was."""
    if command == "run":
        place = furnished(folder)
        before, after = files(place.repo), None
        ended = killed(place, moment)
    else:
        work = worked(folder, command)
        place, before, after = work.place, work.before, work.after
        ended = killed(place, moment, command, "--yes")
    if ended.returncode != -signal.SIGKILL:
        return f"it was not killed: {ended.stderr[-200:]}"
    sessions = place.sessions()
    time.sleep(3 * HEARTBEAT_SECONDS)  # what is saved sooner is asked about
    (place.repo / "later.txt").write_text("by hand\n")
    words: tuple[str, ...] = (next_command, "--yes")
    if next_command == "run":
        words = ("run", *script(place, *DONE), "go on")
    elif next_command == "run --continue":
        words = ("run", "--continue", *script(place, *REQUEST))
    told = [place.fugu(*words)]
    if sessions:
        of_session = ("--yes", "--session", sessions[0].stem)
        told.append(place.fugu("redo", *of_session))
        if after is not None and files(place.repo) != after | MINE:
            return f"redo does not bring all back: {told}"
        told.append(place.fugu("undo", *of_session))
    if files(place.repo) != before | MINE:
        return f"undo does not bring the files back: {told}"
    if drafts := list(place.repo.rglob(".fugu-*")):
        return f"drafts are left: {drafts}"
    return next((one.err for one in told if "Traceback" in one.err), "")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--moments", type=int, default=36)
    parser.add_argument("--seed", type=int, default=7)
    flags = parser.parse_args()
    chance, kinds, losses = random.Random(flags.seed), Counter[tuple[str, str]](), list[str]()
    for number in range(flags.moments):
        command = ("run", "undo", "redo")[number % 3]
        next_command = chance.choice(NEXT[command])
        most = count() if command == "run" else count_of(command)
        moment = 1 + chance.randrange(most)
        with tempfile.TemporaryDirectory() as folder:
            lost = loss(command, next_command, moment, Path(folder))
        kinds[command, next_command] += 1
        if lost:
            losses.append(
                f"- `{command}` killed at {moment} of {most}, then `{next_command}`: {lost}"
            )
    print("# Killed at random moments\n")
    print(f"`python tests/benchmarks/kills.py --moments {flags.moments} --seed {flags.seed}`:")
    print(f"{flags.moments} kills, {len(losses)} with a loss.\n")
    print("A process is ended by SIGKILL before one of the things it does to the outside (a file")
    print(
        "opened, a program started, a folder made), drawn at random. A second later the user saves"
    )
    print(
        "a file and does what a person would do next. Nothing is lost where redo brings all of the work"
    )
    print(
        "back, undo all of the files before it, the user's own file stays, and no draft is left.\n"
    )
    print("| killed | next | times |\n|---|---|---:|")
    for (command, next_command), times in sorted(kinds.items()):
        print(f"| {command} | {next_command} | {times} |")
    print("\n".join(["", *losses]) if losses else "", end="")


if __name__ == "__main__":
    main()
