"""`fugu eval outcomes:FILE`: what rules would have made of recorded outcomes, without any agent."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.acceptance.driving import Place

# Ten tasks: the cheap one solves the first six, the dear one all but the last.
CHEAP, DEAR = "gpt-mini", "claude-large"
RESULTS = [(number < 6, number < 9) for number in range(10)]


def outcomes(path: Path, rows: list[tuple[bool, bool]] = RESULTS, *, packed: bool = True) -> Path:
    """A file of them: a run of the cheap one costs $1, two of the dear one $4 each."""
    lines = [json.dumps(line(f"t{number}", *row)) for number, row in enumerate(rows)]
    data = "\n".join(lines).encode()
    path.write_bytes(gzip.compress(data) if packed else data)
    return path


def line(name: str, cheap: bool, dear: bool) -> Mapping[str, object]:
    runs = [{"ok": dear, "cost": 4.0}] * 2
    return {
        "id": name,
        "text": "...",
        "outcomes": {CHEAP: {"ok": cheap, "cost": 1.0}, DEAR: {"runs": runs}},
    }


def tables(out: str) -> list[dict[str, list[str]]]:
    """Every table of a report, its cells by the first one."""
    found: list[dict[str, list[str]]] = []
    for text in out.splitlines():
        cells = [cell.strip() for cell in text.strip("|").split("|")]
        if cells[0] in ("model", "way"):
            found.append({})
        elif text.startswith("| "):
            found[-1][cells[0]] = cells[1:]
    return found


def replayed(place: Place, *arguments: str) -> list[dict[str, list[str]]]:
    done = place.fugu("eval", *arguments)
    assert done.code == 0, done.err
    return tables(done.out)


def test_with_a_sure_check_each_way_solves_and_costs_what_can_be_reckoned(
    place: Place, tmp_path: Path
) -> None:
    file = outcomes(tmp_path / "runs.jsonl.gz")
    pool, sure, *unsure = replayed(place, f"outcomes:{file}", "--model", CHEAP, "--model", DEAR)
    assert {name: cells[:3] for name, cells in pool.items()} == {
        CHEAP: ["openai", "cheap", "1.000"],
        DEAR: ["anthropic", "strong", "4.000"],
    }
    # At most $2, $4 and $8 for a task. At $8 cheap solves 6 for $1, dear 3 more for $5, and the
    # last one is tried for $7: cheap, dear, and cheap twice, for another run of the dear one is not
    # left.
    solved_and_spent = {name: cells[::2] for name, cells in sure.items()}
    assert solved_and_spent["best single"] == ["60.0%, $1.000", "90.0%, $4.000", "90.0%, $4.000"]
    assert solved_and_spent["cascade"] == ["60.0%, $1.400", "60.0%, $2.200", "90.0%, $2.800"]
    assert solved_and_spent["oracle"] == ["60.0%, $1.000", "90.0%, $1.900", "90.0%, $1.900"]
    assert len(unsure) == 3


def test_a_check_that_passes_wrong_work_makes_every_way_but_the_single_one_worse(
    place: Place, tmp_path: Path
) -> None:
    file = outcomes(tmp_path / "runs.jsonl", packed=False)
    _, sure, *_, unsure = replayed(place, f"outcomes:{file}", "--model", CHEAP, "--model", DEAR)
    assert sure["best single"] == unsure["best single"][:1] + sure["best single"][1:]
    sure_share, unsure_share = (
        float(table["cascade"][4].split("%")[0]) for table in (sure, unsure)
    )
    assert unsure_share < sure_share == 90.0


def test_the_same_command_says_the_same(place: Place, tmp_path: Path) -> None:
    words = (f"outcomes:{outcomes(tmp_path / 'runs.jsonl.gz')}", "--model", CHEAP, "--model", DEAR)
    assert replayed(place, *words) == replayed(place, *words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["outcomes:{file}"], "at least 20 tasks with outcomes are needed, and it has 10"),
        (
            ["outcomes:{file}", "--model", CHEAP, "--model", CHEAP],
            "a pool of 2 to 5 models is needed",
        ),
        (
            ["outcomes:{file}", "--model", CHEAP, "--model", "o9"],
            "no outcomes of o9; there are claude-large, gpt-mini",
        ),
        (["outcomes:{file}", "tasks", "--model", CHEAP], "without other tasks"),
        (["tasks", "--model", CHEAP], "without other tasks"),
        (["outcomes:{file}", "outcomes:{bad}", "--model", CHEAP], "on one file at a time"),
        (["outcomes:{file}x", "--model", CHEAP, "--model", DEAR], "the outcomes cannot be read"),
        (
            ["outcomes:{bad}", "--model", CHEAP, "--model", DEAR],
            "bad.jsonl:1: not a line of outcomes",
        ),
        (
            ["outcomes:{few}", "--model", CHEAP, "--model", DEAR],
            "all these models are needed, and it has 2",
        ),
    ],
)
def test_what_cannot_be_replayed_is_refused_in_a_line(
    words: list[str], said: str, place: Place, tmp_path: Path
) -> None:
    (tmp_path / "bad.jsonl").write_text('{"id": "a"}\n')
    names = {
        "file": outcomes(tmp_path / "runs.jsonl.gz"),
        "bad": tmp_path / "bad.jsonl",
        "few": outcomes(tmp_path / "few.jsonl", RESULTS[:2]),
    }
    done = place.fugu("eval", *(word.format(**names) for word in words))
    assert (done.code, done.out) == (1, "")
    assert said in done.err and "Traceback" not in done.err
