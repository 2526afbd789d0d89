"""Numbers and places on the command lines of `fugu train` and `fugu eval`: what makes no sense is
refused at once.
"""

import json
from pathlib import Path

import pytest

from fugu_cli.__main__ import called

ROW = {"task": "t", "agent": "a", "repeat": 0, "ok": True, "seconds": 1, "prompt": "fix `a.py`"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("eval", "t.jsonl", "--max-budget-usd", "nan"),
            "--max-budget-usd must be finite: it is nan",
        ),
        (("eval", "t.jsonl", "--limit", "-1"), "--limit must be 1 or more"),
        (("eval", "t.jsonl", "--seeds", "0"), "--seeds must be 1 or more"),
        (("eval", "t.jsonl", "--rollouts", "0"), "--rollouts must be 1 or more"),
        (("eval", "t.jsonl", "--out", ""), "--out is empty"),
        (("train", "matrix", "t.jsonl", "--repeats", "0"), "--repeats must be 1 or more"),
        (("train", "sft", "m.jsonl", "--tau", "0"), "--tau must be more than 0"),
        (
            ("train", "sft", "m.jsonl", "--cost", "nan"),
            "--cost must be finite: it is nan",
        ),
        (("train", "sft", "m.jsonl", "--out", ""), "--out is empty"),
        (
            ("train", "sft", "m.jsonl", "--row", "a=a*0"),
            "--row a=a*0: write ROW=AGENT or ROW=AGENT*ATTEMPTS",
        ),
        (("train", "sft", "m.jsonl", "--row", "a=a", "--row", "a=a"), "two rows are called a"),
        (("train", "sft", "m.jsonl", "--row", "b=nobody"), "m.jsonl has no run of nobody"),
        (("train", "sft", "nan.jsonl"), "nan.jsonl:1: not a row of a pass matrix"),
        (("train", "evolve", "t.jsonl", "--replications", "0"), "--replications must be 1 or more"),
        (("train", "evolve", "t.jsonl", "--sigma", "0"), "--sigma must be more than 0"),
        (
            ("train", "evolve", "t.jsonl", "--w-cost", "nan"),
            "--w-cost must be finite: it is nan",
        ),
        (("train", "evolve", "t.jsonl", "--w-turn", "nan"), "--w-turn"),
        (("train", "evolve", "t.jsonl", "--seed", "-1"), "--seed must be 0 or more"),
        (("train", "evolve", "t.jsonl", "--population", "0"), "--population must be 4 or more"),
        (("train", "evolve", "t.jsonl", "--patience", "-1"), "--patience must be 0 or more"),
    ],
)
def test_numbers_and_places_that_make_no_sense_are_refused(
    words: tuple[str, ...],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m.jsonl").write_text(json.dumps(ROW) + "\n")
    (tmp_path / "nan.jsonl").write_text(
        json.dumps({**ROW, "seconds": -1}) + "\n" + json.dumps(ROW) + "\n"
    )
    assert called(list(words)) == 1
    assert said in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.jsonl", "nan.jsonl"]
