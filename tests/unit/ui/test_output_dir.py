"""`--output-dir` and the trajectory: what a run leaves for other programs."""

import json
from pathlib import Path

import pytest

from fugu_cli import __version__
from fugu_cli.errors import UsageError
from fugu_cli.session import log
from fugu_cli.ui import run_artifacts
from tests.unit.ui import atif_rules, example


def test_a_trajectory_keeps_the_formats_rules_at_every_line_of_a_session() -> None:
    records = example.records()
    for end in range(len(records) + 1):
        atif_rules.check(json.loads(json.dumps(run_artifacts.atif_trajectory(records[:end], "s1"))))


def test_a_trajectory_has_the_model_that_served_and_the_cost_of_every_step() -> None:
    steps = run_artifacts.atif_trajectory(example.records(), "s1")["steps"]
    assert isinstance(steps, list)
    assert [(step["source"], step.get("model_name")) for step in steps] == [
        ("user", None),
        ("system", None),
        ("system", None),
        ("agent", "m-coder"),
        ("agent", "m-coder"),
        ("system", None),
        ("system", None),
        ("agent", "m-coder"),
        ("agent", "m-coder"),
        ("system", None),
        ("system", None),
        ("system", None),
        ("system", None),
        ("agent", "m-strong"),
        ("agent", "m-strong"),
        ("system", None),
    ]
    assert steps[3] == {
        "step_id": 4,
        "timestamp": "2026-09-21T14:13:30.000+00:00",
        "source": "agent",
        "model_name": "m-coder",
        "message": "I read the file.",
        "metrics": {
            "prompt_tokens": 1200,
            "completion_tokens": 300,
            "cached_tokens": 200,
            "cost_usd": pytest.approx(0.0027),
        },
        "llm_call_count": 1,
        "extra": {"agent": "coder", "turn": 1, "seconds": 4.0, "stop": "calls"},
        "reasoning_content": "hm",
        "tool_calls": [
            {"tool_call_id": "t1-0-0", "function_name": "read", "arguments": {"path": "a.py"}}
        ],
        "observation": {
            "results": [
                {
                    "source_call_id": "t1-0-0",
                    "content": "1: x = 1",
                    "extra": {"ok": True, "seconds": 0.01},
                }
            ]
        },
    }


def test_the_totals_of_a_trajectory_are_those_of_its_steps() -> None:
    assert run_artifacts.atif_trajectory(example.records(), "s1")["final_metrics"] == {
        "total_prompt_tokens": 7200,
        "total_completion_tokens": 1800,
        "total_cached_tokens": 1200,
        "total_cost_usd": pytest.approx(0.0378),
        "total_steps": 16,
    }


def test_calls_without_a_result_say_why() -> None:
    call = example.READ
    facts = [
        *example.opening(),
        example.decision(1, "coder", "worker", None),
        example.said(1, "coder", "x", call),
    ]
    steps = run_artifacts.atif_trajectory(example.recorded(facts), "s")["steps"]
    assert isinstance(steps, list)
    assert steps[-1]["observation"]["results"][0]["content"] == "No result: the run was cut off."
    denied = run_artifacts.atif_trajectory(example.records(), "s")["steps"]
    assert isinstance(denied, list)
    assert denied[13]["observation"]["results"][0]["content"].startswith(
        "Not allowed: a force push"
    )


def test_the_folder_holds_the_session_the_patch_the_trajectory_and_the_summary() -> None:
    folder = run_artifacts.prepare_output_dir(Path("out/deep"))
    assert (
        run_artifacts.write_artifacts(
            folder, example.records(), "s1", {"is_error": False}, b"-a\n+\xff\n"
        )
        == []
    )
    assert sorted(path.name for path in folder.iterdir()) == [
        "changes.patch",
        "prediction.jsonl",
        "session.jsonl",
        "summary.json",
        "trajectory.json",
    ]
    assert log.read(folder / "session.jsonl") == example.records()
    assert (folder / "changes.patch").read_bytes() == b"-a\n+\xff\n"
    assert json.loads((folder / "summary.json").read_text()) == {"is_error": False}
    assert json.loads((folder / "prediction.jsonl").read_text()) == {
        "instance_id": "deep",
        "model_name_or_path": f"fugu-{__version__}",
        "model_patch": "-a\n+\ufffd\n",
    }
    atif_rules.check(json.loads((folder / "trajectory.json").read_text()))


def test_a_folder_that_is_made_inside_a_repository_is_hidden_from_git() -> None:
    Path("repo/.git").mkdir(parents=True)
    Path("repo/there").mkdir()
    assert (
        run_artifacts.prepare_output_dir(Path("repo/out/deep")) / ".gitignore"
    ).read_text() == "*\n"
    for folder in ("repo/there", "outside"):
        assert list(run_artifacts.prepare_output_dir(Path(folder)).iterdir()) == []


def test_a_folder_that_cannot_be_made_is_refused_before_the_run() -> None:
    Path("file").touch()
    with pytest.raises(UsageError, match="cannot write into --output-dir file"):
        run_artifacts.prepare_output_dir(Path("file"))


def test_a_file_that_cannot_be_written_does_not_keep_the_others_from_being_written() -> None:
    folder = run_artifacts.prepare_output_dir(Path("out"))
    (folder / "changes.patch").mkdir()
    (folder / "changes.patch" / "x").touch()
    (said,) = run_artifacts.write_artifacts(folder, example.records(), "s1", {}, b"p")
    assert said.startswith(f"cannot write {folder / 'changes.patch'}")
    assert (folder / "session.jsonl").is_file() and (folder / "summary.json").is_file()
