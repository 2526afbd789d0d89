"""An evaluation's report as an example in results/: what `fugu eval` wrote, with its pictures.

fugu eval TASKS --only hefix-py --only quixbugs --limit 2 --time-limit 240 --out DIR -a trinity -a conductor ...
python tests/benchmarks/eval_example.py DIR
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.evaluation.pages import PICTURES

RESULT = Path(__file__).parent / "results" / "evaluation.md"
WORDS = """# A small example of what `fugu eval` reports

So few tasks prove nothing about any arm: look at the intervals. It shows what a report looks like and what each arm
does with the embedded pool. Written by `fugu eval`, copied by `tests/benchmarks/eval_example.py`. Measured in slices on
two cores that others used as well, so seconds are an upper bound; some replies were kept from an earlier evaluation of
the same tasks. A third task was begun and, for want of time, not finished by every arm: it is left out.
"""


def copied(folder: Path) -> None:
    """The report and its pictures, under names of their own."""
    text = (folder / "report.md").read_text(encoding="utf-8")
    text = WORDS + text.partition("\n")[2]
    for name in PICTURES:
        own = f"evaluation-{name}"
        RESULT.with_name(own).write_text((folder / name).read_text(encoding="utf-8"), encoding="utf-8")
        text = text.replace(f"({name})", f"({own})")
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
