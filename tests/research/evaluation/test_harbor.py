"""Harbor's own runner with its adapter for fugu: the real `harbor` and the real `fugu`, each trial
in its own root.
"""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import fugu_cli
from tests.acceptance.driving import Agent
from tests.acceptance.loopback import KEY, Asked, Says, Use, running
from tests.unit.ui import atif_rules

HARBOR = shutil.which("harbor")
ROOT = Path(fugu_cli.__file__).parent.parent
TASK = """schema_version = "1.0"
[task]
name = "fugu/{name}"
authors = []
keywords = []
[verifier]
timeout_sec = 60.0
[agent]
timeout_sec = 120.0
[environment]
"""
TASKS = {
    "repair": ("Write `fixed` into calc.txt.", "grep -q fixed /app/calc.txt"),
    "create": (
        'Create notes.txt with the word hello; don\'t "touch" calc.txt.',
        "grep -q hello /app/notes.txt",
    ),
    "refuse": ("Do what nobody can.", "false"),
}
SAYS = {
    "Write `fixed`": Says(
        "", (Use("bash", {"command": "echo fixed > calc.txt"}),), tokens=(1000, 100)
    ),
    "Create notes.txt": Says(
        "", (Use("write", {"path": "notes.txt", "content": "hello\n"}),), tokens=(1000, 100)
    ),
}

pytestmark = pytest.mark.skipif(
    HARBOR is None or sys.platform != "linux" or os.getuid() != 0,
    reason="harbor is not on PATH, or no mount namespace can be made",
)


def laid(folder: Path) -> None:
    """Three tasks as Harbor wants them."""
    for name, (instruction, check) in TASKS.items():
        task = folder / name
        (task / "environment").mkdir(parents=True)
        (task / "tests").mkdir()
        (task / "environment" / "Dockerfile").write_text("FROM scratch\n")
        (task / "environment" / "calc.txt").write_text("broken\n")
        (task / "task.toml").write_text(TASK.format(name=name))
        (task / "instruction.md").write_text(instruction + "\n")
        reward = "/logs/verifier/reward.txt"
        (task / "tests" / "test.sh").write_text(
            f"#!/bin/bash\n{check} && echo 1 > {reward} || echo 0 > {reward}\n"
        )


def answered(asked: Asked) -> Says:
    """A worker that does the one thing, then says so; a judge that accepts."""
    if "ACCEPT" in asked.text and "REVISE" in asked.text:
        return Says("ACCEPT. It is there.", tokens=(10, 1))
    if not asked.results:
        return next(
            (says for begin, says in SAYS.items() if begin in asked.text),
            Says("I cannot.", tokens=(10, 1)),
        )
    return Says("Done.", tokens=(10, 1))


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """`harbor run` with a `fugu` on PATH."""
    assert HARBOR is not None
    fugu = folder / "bin" / "fugu"
    fugu.parent.mkdir()
    fugu.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m fugu_cli "$@"\n')
    fugu.chmod(0o755)
    paths = f"{ROOT}{os.pathsep}{Path(__file__).parent}"
    where = ("-o", str(folder / "jobs"), "--job-name", "job", "-p", str(folder / "tasks"))
    who = (
        "-e",
        "harbor_local:LocalEnvironment",
        "-a",
        "fugu_cli.training.evaluation.harbor:FuguAgent",
    )
    return subprocess.run(
        [HARBOR, "run", "-y", "-q", "-n", "1", *where, *who, *words],
        env={
            **os.environ,
            "PATH": f"{fugu.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": paths,
            "LOOPBACK_KEY": KEY,
            "HOME": str(folder),
            "DO_NOT_TRACK": "1",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def results(folder: Path) -> dict[str, dict[str, Any]]:
    """Harbor's result of each task."""
    found = [
        json.loads(path.read_text()) for path in (folder / "jobs" / "job").glob("*/result.json")
    ]
    return {result["task_name"].rpartition("/")[2]: result for result in found}


def test_three_tasks_run_through_harbor_with_rewards_costs_and_trajectories(tmp_path: Path) -> None:
    laid(tmp_path / "tasks")
    with running() as server:
        server.react("harbor-worker", answered)
        agents = [Agent("harbor-worker", price="{ input = 1.0, output = 10.0 }").entry(server.url)]
        config = tmp_path / "pool.toml"
        config.write_text("\n".join(['coordinator = "single:harbor-worker"', *agents]))
        done = run(
            tmp_path, "--ak", f"config={config}", "--ak", "max_turns=3", "--ak", "max_budget_usd=1"
        )
    found = results(tmp_path)
    assert {
        name: one["verifier_result"] and one["verifier_result"]["rewards"]
        for name, one in found.items()
    } == {
        "repair": {"reward": 1},
        "create": {"reward": 1},
        "refuse": {"reward": 0},
    }, done.stdout + done.stderr
    used = found["repair"]["agent_result"]
    assert (used["n_input_tokens"], used["n_output_tokens"]) == (1010, 101)
    assert used["cost_usd"] == pytest.approx((1010 + 10 * 101) / 1e6)
    assert found["repair"]["agent_info"]["name"] == "fugu"
    assert found["repair"]["agent_info"]["version"] == fugu_cli.__version__
    for trajectory in (tmp_path / "jobs" / "job").glob("*/agent/trajectory.json"):
        atif_rules.check(json.loads(trajectory.read_text()))


def test_without_fugu_and_a_wheel_harbor_says_what_to_name(tmp_path: Path) -> None:
    laid(tmp_path / "tasks")
    done = run(tmp_path, "--ak", "wheel=", "--ae", "PATH=/usr/bin:/bin", "-i", "repair")
    said = json.dumps(results(tmp_path)) + done.stdout + done.stderr
    assert "name the wheel of fugu: --ak wheel=" in said
