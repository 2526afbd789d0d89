"""An evaluation's report as an example in results/: what `fugu eval` wrote, with its picture.

fugu eval TASKS --only hefix-py --only quixbugs --limit 6 --time-limit 150 --out DIR -a trinity ...
python tests/benchmarks/eval_example.py DIR
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.training.evaluation.report import PICTURE

RESULT = Path(__file__).parent / "results" / "evaluation.md"
WORDS = """# A small example of what `fugu eval` reports

So few tasks prove nothing about any arm: look at the intervals. It shows what a report looks like and what each arm
does with the embedded pool. Written by `fugu eval`, copied by `tests/benchmarks/eval_example.py`. Measured on two cores
of a processor without AVX-512 (10 to 15 tokens a second of the larger model), with short tests at the lowest priority
beside it. An arm that asks what another has asked before gets that reply without waiting: its limit of 150 s then
leaves it more calls than it would have alone, and arms that run later gain by it.
"""


def copied(folder: Path) -> None:
    """The report and its picture, under names of their own."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    text = WORDS + text.partition("\n")[2]
    own = f"evaluation-{PICTURE}"
    RESULT.with_name(own).write_text(
        (folder / PICTURE).read_text(encoding="utf-8"), encoding="utf-8"
    )
    text = text.replace(f"({PICTURE})", f"({own})")
    RESULT.write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Exit code 0, or 1 without a folder."""
    if len(arguments) != 1 or not (Path(arguments[0]) / "report.md").is_file():
        print(__doc__, file=sys.stderr)
        return 1
    copied(Path(arguments[0]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
