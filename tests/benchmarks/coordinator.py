"""What a decision costs: cold and warm, at several lengths; how long the start takes; how much
memory it holds.

    python tests/benchmarks/coordinator.py [--lengths 256 2048] [--repeats 5]

Uses the configured cache's embedded backbone (`fugu models pull qwen2.5-coder-0.5b`) and the
shipped checkpoint. Kinds alternate in one process, so that a busy machine slows all alike; the
ratio of their medians is the figure to trust, CPU-seconds beside wall-clock seconds. Starts are
measured in processes of their own. Writes tests/benchmarks/results/coordinator.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

from fugu_cli.config import Config
from fugu_cli.coordinators import trinity
from fugu_cli.training.evaluation import decision_latency
from fugu_cli.training.evaluation.decision_latency import LatencyReport, LatencyRow

RESULTS = Path(__file__).parent / "results" / "coordinator.md"
HEAD = """# What a decision costs

Written by `python {command}` on {machine}, {cores} cores, torch {torch}; load average {load:.1f} when it ended. Medians
of {repeats}. `warm +64` reads 64 new tokens after those known; `warm +1` one, the least a decision can cost. Other
programs may have run beside it: CPU seconds are the figure to trust, and about half of them pass on two free cores.

| tokens | decision | wall s | CPU s | times cheaper than cold: wall | CPU |
|---|---|---|---|---|---|
"""
CHILD = """
import json, sys
from pathlib import Path
from fugu_cli.training.evaluation import decision_latency
report = decision_latency.measure_latency(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), ([], 1))
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
print(json.dumps({"report": report.as_json(), "file": int(status["RssFile"].split()[0]) // 1024}))
"""


def places() -> tuple[Path, Path, Path]:
    """The shipped checkpoint, the embedded backbone's folder and the cache."""
    cache = Config.model_validate({"cache_dir": os.environ.get("FUGU_CACHE_DIR")}).cache
    return trinity.SHIPPED, trinity.backbone_folder(trinity.TrinityFiles(None, None, cache)), cache


def starts(where: tuple[Path, Path, Path], times: int) -> list[dict[str, float]]:
    """Fresh processes: torch's import, the start after it, the first decision; seconds."""
    found = []
    for _ in range(times):
        words = [sys.executable, "-c", CHILD, *map(str, where)]
        done = subprocess.run(
            words, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": "."}
        )
        said = json.loads(done.stdout)
        report = said["report"]
        parts = {
            f"{part}_{kind}": report[part][kind]
            for part in ("library", "start", "first")
            for kind in ("wall", "cpu")
        }
        found.append({**parts, "megabytes": report["megabytes"], "file": said["file"]})
    return found


def row(line: LatencyRow, cold: LatencyRow) -> str:
    ratio = f"{cold.cpu / line.cpu:.1f}" if line.cpu > 1e-4 else "-"
    return (
        f"| {line.tokens} | {line.kind} | {line.wall:.3f} | {line.cpu:.3f} | {line.ratio:.1f} | "
        f"{ratio} |"
    )


def rows(lines: tuple[LatencyRow, ...]) -> list[str]:
    cold = {line.tokens: line for line in lines if line.kind == "cold"}
    return [row(line, cold[line.tokens]) for line in lines]


def notes(report: LatencyReport, fresh: list[dict[str, float]]) -> list[str]:
    def median(name: str) -> float:
        return statistics.median(one[name] for one in fresh)

    said = ", ".join(f"{one['start_wall']:.2f}" for one in fresh)
    return [
        "",
        f"Starts of {len(fresh)} fresh processes, medians:",
        "",
        f"- torch's import: {median('library_wall'):.2f} s ({median('library_cpu'):.2f} CPU);",
        "- from there until the first decision can begin (transformers imported, model and "
        "tokenizer loaded, offsets "
        f"on): {median('start_wall'):.2f} s ({median('start_cpu'):.2f} CPU); each: {said};",
        f"- first decision, 15 tokens: {median('first_wall'):.2f} s ({median('first_cpu'):.2f} "
        f"CPU).",
        "",
        f"Memory: {median('megabytes'):.0f} MB resident after the first decision, "
        f"{median('file'):.0f} of them "
        f"file-backed (weights and libraries, given back when memory is short); "
        f"{report.megabytes} MB after all the "
        "decisions of the table, whose longest text is in the cache.",
        "",
        "On a GPU nothing was measured: none was at hand. `fugu coordinator bench` on a machine "
        "with CUDA does it.",
        "",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 2048])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--starts", type=int, default=5)
    given = parser.parse_args()
    where = places()
    fresh = starts(where, given.starts)
    report = decision_latency.measure_latency(*where, (given.lengths, given.repeats))
    head = HEAD.format(
        command="tests/benchmarks/coordinator.py",
        machine=platform.machine(),
        cores=os.cpu_count(),
        torch=report.torch,
        load=os.getloadavg()[0],
        repeats=given.repeats,
    )
    RESULTS.write_text(
        head + "\n".join([*rows(report.lines), *notes(report, fresh)]), encoding="utf-8"
    )
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
