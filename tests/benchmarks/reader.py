"""The reader of command lines: lines as strong agents write them, and random lines under strace.

python tests/benchmarks/reader.py [--lines 20000] [--seeds 1 2 3]

Prints how many of the lines in agent_lines.txt run, are asked about and are refused, in each mode,
with and without a sandbox that holds; then how many of so many random lines the reader calls a
read, and what those did that no read may do: with each seed, and with each hostile setting of the
repository's own. `<<'E'` at the end of a line stands for a heredoc.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import get_args

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from fugu_cli.messages import Call
from fugu_cli.safety.policy import Mode, Rules, judge
from fugu_cli.safety.policy.readers import is_read
from tests.unit.safety.policy.reader_fuzz import HOSTILE_SETTINGS, WatchedRepository, random_line

LINES = Path(__file__).with_name("agent_lines.txt").read_text("utf-8").splitlines()


def judge_lines(root: Path) -> None:
    """Print how many of the lines run, are asked about and are refused."""
    print("| mode | sandbox | run | asked | refused |\n|---|---|---|---|---|")
    for mode in get_args(Mode):
        for holds in (True, False):
            verdicts = Counter(_verdict(line, root, mode, holds) for line in LINES)
            counts = [str(verdicts[verdict]) for verdict in ("allow", "ask", "deny")]
            print(f"| {mode} | {'holds' if holds else 'none'} | {' | '.join(counts)} |")
    reads = [line for line in LINES if is_read(line, root)]
    print(f"\n{len(reads)} of {len(LINES)} lines are reads.")
    asked = [line for line in LINES if _verdict(line, root, "edit", True) != "allow"]
    print("Asked about in edit mode where the sandbox holds:\n")
    for line in asked:
        print(f"    {line}")


def _verdict(line: str, root: Path, mode: Mode, holds: bool) -> str:
    command = f"{line}\nx\nE\n" if line.endswith("<<'E'") else line
    call = Call.make("1", "bash", command=command)
    rules = Rules(mode=mode, test_command="pytest -q")
    return judge(call, rules, root, sandbox_holds=holds).verdict


def watch_random_lines(folder: Path, lines: int, seed: int, setting: str = "") -> None:
    """Print how many random lines are reads, and what those did that no read may do.

    `setting` is one that the repository's own configuration of git has.
    """
    repository, chance = WatchedRepository(folder, setting), random.Random(seed)
    reads, findings = 0, []
    for _ in range(lines):
        line = random_line(chance)
        reads += is_read(line, repository.root)
        findings += repository.check(line)
    print(f"| {setting or '-'} | {seed} | {lines:,} | {reads:,} | {len(findings)} |", flush=True)
    for finding in findings:
        print(f"    {finding.line!r}: {finding.did}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=20_000)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder, "plain").resolve()
        for name in ("src/app.py", "tests/test_app.py", "README.md", "package.json"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("x = 1\n")
        judge_lines(root)
        print("\n| setting | seed | lines | reads that ran | findings |\n|---|---|---|---|---|")
        for seed in arguments.seeds:
            watch_random_lines(Path(folder, str(seed)), arguments.lines, seed)
        for setting in HOSTILE_SETTINGS:
            watch_random_lines(
                Path(folder, setting), arguments.lines // 5, arguments.seeds[0], setting
            )


if __name__ == "__main__":
    main()
