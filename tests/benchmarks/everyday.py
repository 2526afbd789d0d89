"""Everyday requests to the embedded pool: is what was asked for there afterwards, and does the exit
code say so?

python tests/benchmarks/everyday.py OUT.jsonl --label before=FOLDER --label after=FOLDER [--limit
SECONDS] [--later] python tests/benchmarks/everyday.py OUT.jsonl --report

Each request runs as `fugu run` in a small repository of its own, where all tests pass (or nothing
is there), and is checked by a script afterwards. FOLDER is a checkout of fugu; several versions
alternate, request by request. A row that is there is not measured again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from everyday_requests import EDITED, FRESH, LATER, SEEN, Check, Done


def measure(
    request: str, files: dict[str, str], check: Check, source: str, limit: int
) -> dict[str, object]:
    """One request in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "shop"
        root.mkdir()
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        commit = [*named, "commit", "-q", "--allow-empty", "-m", "shopkit, its first version"]
        for command in (["init", "-q"], ["add", "-A"], commit):
            subprocess.run(["git", *command], cwd=root, check=True)
        if request in EDITED:
            path, text = EDITED[request]
            (root / path).write_text(text, encoding="utf-8")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = {**os.environ, "PYTHONPATH": source, "XDG_DATA_HOME": folder, "PATH": path}
        started = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-m", "fugu_cli", "run", "--time-limit", str(limit), request],
            cwd=root, env=given, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = round(time.monotonic() - started, 1)
        said = ran.stdout.partition("\ndone\n")[2] or ran.stdout
        return {"exit": ran.returncode, "done": check(Done(root, said)), "seconds": seconds}


def report(rows: Sequence[dict[str, object]]) -> str:
    """The table of all rows, Markdown."""
    labels = list(dict.fromkeys(str(row["label"]) for row in rows))
    head = ["request", *(f"{label}: {what}" for label in labels for what in ("done", "exit", "s"))]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    known = {(row["label"], row["request"]): row for row in rows}
    for kind, cases in (("seen", SEEN), ("fresh", FRESH), ("later", LATER)):
        counted = [case for case in cases if all((label, case[0]) in known for label in labels)]
        for request, _, _ in counted:
            cells = [known[label, request] for label in labels]
            told = (
                f"{'yes' if row['done'] else 'no'} | {row['exit']} | {row['seconds']:.0f}"
                for row in cells
            )
            lines.append(f"| {request} | {' | '.join(told)} |")
        sums = []
        for label in labels:
            own = [known[label, request] for request, _, _ in counted]
            wrong = sum(row["exit"] == 0 and not row["done"] for row in own)
            mean = sum(float(str(row["seconds"])) for row in own) / max(len(own), 1)
            sums.append(
                f"{sum(bool(row['done']) for row in own)} of {len(own)} | {wrong} wrong with 0 | "
                f"{mean:.0f}"
            )
        lines.append(f"| **{kind}** | {' | '.join(sums)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit code 0."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("out", type=Path)
    given.add_argument("--label", action="append", default=[], metavar="NAME=FOLDER")
    given.add_argument("--limit", type=int, default=120)
    given.add_argument(
        "--later", action="store_true", help="the requests that were written down last"
    )
    given.add_argument("--report", action="store_true")
    options = given.parse_args()
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    rows = [json.loads(line) for line in lines]
    known = {(row["label"], row["request"]) for row in rows}
    versions = [label.partition("=")[::2] for label in options.label]
    for number, (request, files, check) in enumerate(LATER if options.later else (*FRESH, *SEEN)):
        for label, source in versions if number % 2 else versions[::-1]:
            if (label, request) not in known and not options.report:
                row = {
                    "label": label,
                    "request": request,
                    **measure(request, files, check, source, options.limit),
                }
                rows.append(row)
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(time.strftime("%H:%M:%S"), row, file=sys.stderr, flush=True)
    print(report(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
