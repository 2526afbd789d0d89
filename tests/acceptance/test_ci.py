"""The GitHub action and the GitLab template: linted, and their steps run as a runner runs them, in
a clean clone.
"""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Refuses, Says, Use

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "fugu" / "action.yml"
GITLAB = ROOT / ".gitlab" / "fugu.yml"
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FIXED = Use("write", {"path": "calc.txt", "content": "fixed\n"})
HOSTILE = 'fix it"; touch owned; $(touch owned) `touch owned` ${{ secrets.X }}\n::set-env name=A::b'


def loaded(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def clone(place: Place) -> Path:
    place.configure(Agent("worker"), Agent("large", slot="strong"))
    found = place.folder / "clone"
    subprocess.run(
        ["git", "clone", "-q", str(place.repo), str(found)], check=True, env=place.environ()
    )
    commands = place.folder / "bin"
    commands.mkdir()
    (commands / "fugu").write_text(f'#!/bin/sh\nexec {sys.executable} -m fugu_cli "$@"\n')
    (commands / "fugu").chmod(0o755)
    place.variables["PATH"] = f"{commands}{os.pathsep}{os.environ['PATH']}"
    return found


def run_action(place: Place, folder: Path, **inputs: str) -> tuple[int, dict[str, str], str]:
    """The action's shell steps, as a runner runs them: the last exit code, the outputs, and the
    job's summary.
    """
    action = loaded(ACTION)
    given = {
        name: inputs.get(name.replace("-", "_"), str(one.get("default", "")))
        for name, one in action["inputs"].items()
    }
    runner = place.folder / "runner"
    runner.mkdir()
    files = {
        name: runner / name.lower()
        for name in ("GITHUB_OUTPUT", "GITHUB_STEP_SUMMARY", "GITHUB_ENV", "GITHUB_PATH")
    }
    for file in files.values():
        file.touch()
    known = {
        "GITHUB_RUN_ID": "1",
        "RUNNER_TEMP": str(runner),
        "GITHUB_ACTION_PATH": str(ACTION.parent),
    }
    known |= {name: str(file) for name, file in files.items()}
    outputs: dict[str, str] = {}

    def value(text: str) -> str:
        text = re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], text)
        return re.sub(
            r"\$\{\{ steps\.run\.outputs\.([\w-]+) \}\}", lambda found: outputs[found[1]], text
        )

    code = 0
    for step in action["runs"]["steps"]:
        if "run" not in step or ("if" in step and not given["prompt"]):
            continue
        variables = {name: value(text) for name, text in step.get("env", {}).items()}
        words = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
        done = subprocess.run(
            words,
            cwd=folder,
            env=place.environ() | known | variables,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        outputs = dict(
            line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines()
        )
        code = done.returncode
    assert files["GITHUB_ENV"].read_text() == ""
    return code, outputs, files["GITHUB_STEP_SUMMARY"].read_text()


def test_the_action_repairs_a_clean_clone_and_tells_it_in_the_summary(
    place: Place, server: Loopback
) -> None:
    folder = clone(place)
    reads = Says(calls=(Use("read", {"path": "calc.txt"}),))
    server.play("worker", reads, Says(calls=(FIXED,)), Says("Done.\n```\nnot a fence"))
    server.play("large", Says("ACCEPT"))
    code, outputs, summary = run_action(
        place, folder, prompt=HOSTILE, budget="5", until_tests_pass="true"
    )
    assert (code, outputs["exit-code"]) == (0, "0")
    assert (folder / "calc.txt").read_text() == "fixed\n"
    kept = Path(outputs["folder"])
    assert json.loads((kept / "summary.json").read_text())["subtype"] == "success"
    assert "+fixed" in (kept / "changes.patch").read_text() and (kept / "session.jsonl").is_file()
    assert summary.startswith("## fugu: exit code 0\n\n    Done.\n    ```\n    not a fence\n")
    assert re.search(
        r"^    .*worker +worker", summary, re.MULTILINE
    ) and "    calc.txt | " in summary.replace("     ", "    ")
    asked = server.asked("worker")[0].body["messages"]
    assert HOSTILE in json.dumps(asked, ensure_ascii=False).replace("\\n", "\n").replace('\\"', '"')
    assert list(place.folder.rglob("owned")) == []


def test_the_action_names_one_agent_and_ends_as_fugu_did(place: Place, server: Loopback) -> None:
    folder = clone(place)
    server.play("large", Refuses(401, "no"))
    server.play("worker", Says("never"))
    code, outputs, summary = run_action(place, folder, prompt="explain", model="large")
    assert (code, outputs["exit-code"], server.asked("worker")) == (2, "2", [])
    assert summary.startswith("## fugu: exit code 2\n")


def test_a_wrong_input_is_the_end_of_the_job_and_still_in_the_summary(place: Place) -> None:
    code, outputs, summary = run_action(place, clone(place), prompt="x", budget="--yolo")
    assert (code, outputs["exit-code"], summary.startswith("## fugu: exit code 1")) == (
        1,
        "1",
        True,
    )


def test_without_a_prompt_the_action_only_installs(place: Place, server: Loopback) -> None:
    folder = clone(place)
    server.play("worker", Says("never"))
    assert run_action(place, folder, prompt="") == (0, {}, "")
    conditions = {step.get("if") for step in loaded(ACTION)["runs"]["steps"]}
    assert conditions == {None, "inputs.prompt != ''", "always() && steps.run.outputs.folder != ''"}


def run_job(place: Place, folder: Path, name: str, **variables: str) -> int:
    """A GitLab job's commands in one shell, as its runner does."""
    jobs = loaded(GITLAB)
    job, base = jobs[name], jobs[jobs[name]["extends"]]
    said = {**base["variables"], **job["variables"], **variables}
    text = "\n".join(["set -e", *base["before_script"], *job["script"]])
    environ = place.environ() | {name: str(value) for name, value in said.items()}
    return subprocess.run(
        ["sh", "-c", text], cwd=folder, env=environ, stdin=subprocess.DEVNULL, check=False
    ).returncode


def test_the_gitlab_job_repairs_a_clean_clone(place: Place, server: Loopback) -> None:
    folder = clone(place)
    reads = Says(calls=(Use("read", {"path": "calc.txt"}),))
    server.play("worker", reads, Says(calls=(FIXED,)), Says("Done."))
    server.play("large", Says("ACCEPT"))
    assert run_job(place, folder, ".fugu", FUGU_PROMPT=HOSTILE, FUGU_UNTIL_TESTS_PASS="true") == 0
    assert json.loads((folder / "fugu-output" / "summary.json").read_text())["subtype"] == "success"
    assert (folder / "calc.txt").read_text() == "fixed\n"
    assert list(place.folder.rglob("owned")) == []


def test_the_gitlab_review_fails_where_something_was_found(place: Place, server: Loopback) -> None:
    folder = clone(place)
    (folder / "calc.txt").write_text("worse\n")
    branch = subprocess.run(
        ["git", "branch", "--show-current"], cwd=folder, capture_output=True, text=True, check=True
    )
    found = {"file": "calc.txt", "line": 1, "end_line": 1, "severity": "error", "category": "bug"}
    server.play(
        "large",
        Says(json.dumps({"findings": [{**found, "title": "Worse.", "explanation": "So."}]})),
    )
    server.play(
        "worker",
        Says(json.dumps({"verdicts": [{"number": 1, "confirmed": True, "reason": "Yes."}]})),
    )
    assert (
        run_job(
            place, folder, ".fugu-review", CI_MERGE_REQUEST_TARGET_BRANCH_NAME=branch.stdout.strip()
        )
        == 3
    )


def test_nothing_is_put_into_a_command_line() -> None:
    steps = list(loaded(ACTION)["runs"]["steps"])
    for path in WORKFLOWS:
        steps += [step for job in loaded(path)["jobs"].values() for step in job["steps"]]
    assert [step["run"] for step in steps if "${{" in step.get("run", "")] == []
    assert "$[[" not in GITLAB.read_text()


def importing() -> dict[str, str]:
    """The environment of a linter that is a Python package."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize(
    ("schema", "paths"),
    [("github-actions", [ACTION]), ("github-workflows", WORKFLOWS), ("gitlab-ci", [GITLAB])],
)
def test_the_files_follow_their_published_schemas(schema: str, paths: list[Path]) -> None:
    if importlib.util.find_spec("check_jsonschema") is None:
        pytest.skip("check-jsonschema is not installed")
    words = [
        sys.executable,
        "-m",
        "check_jsonschema",
        "--builtin-schema",
        f"vendor.{schema}",
        *map(str, paths),
    ]
    done = subprocess.run(words, env=importing(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_actionlint_has_nothing_to_say() -> None:
    program = shutil.which("actionlint")
    if program is None:
        pytest.skip("actionlint is not installed")
    words = [program, *map(str, WORKFLOWS)]
    done = subprocess.run(
        words, cwd=ROOT, env=importing(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
