import re
import xml.etree.ElementTree as xml
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from fugu_cli.cli.eval import rollouts_at_once
from fugu_cli.cli.training_flags import EvalFlags
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.session.events import Member
from fugu_cli.training.evaluation import report as evaluation_report
from fugu_cli.training.evaluation import runner
from fugu_cli.training.evaluation.engine import RolloutEngine
from fugu_cli.training.evaluation.intervals import Mean, PairedCounts, Proportion, bootstrap, wilson
from fugu_cli.training.evaluation.rollout import AgentSpending, AgentUse, RolloutOutcome
from fugu_cli.training.evaluation.summary import EvaluationSummary, summarise

SOURCES = {"a": "one", "b": "one", "c": "two"}


def row(
    arm: str,
    task: str,
    ok: bool,
    *,
    seed: int = 0,
    turns: int = 1,
    usd: float = 0.0,
    agent: str = "small",
) -> RolloutOutcome:
    return RolloutOutcome(
        task=task,
        arm=arm,
        ok=ok,
        accepted=ok or task == "c",
        reason="accepted",
        turns=turns,
        seconds=2.0,
        spent=(
            AgentSpending(
                agent=agent, calls=1, input=100, cached=0, output=10, seconds=float(turns)
            ),
        ),
        session="",
        seed=seed,
        usd=usd,
        uses=(AgentUse(agent=agent, role="worker", turns=turns),),
    )


ROWS = [
    row("cascade", "a", True, turns=1),
    row("cascade", "b", True, turns=3),
    row("cascade", "c", False, turns=3),
    row("single:small", "a", True),
    row("single:small", "b", False, turns=2),
    row("single:large", "a", False),
    row("single:large", "b", True),
    row("single:large", "elsewhere", True),
]


def test_arms_pairs_and_the_oracle_are_counted_from_the_rows() -> None:
    found = summarise(ROWS, SOURCES)
    cascade = found.arms[0]
    assert (cascade.name, cascade.solved, cascade.by_source) == (
        "cascade",
        wilson(2, 3),
        {"one": (2, 2), "two": (0, 1)},
    )
    assert (cascade.accepted, cascade.wrongly, cascade.turns, cascade.tokens_in) == (
        3,
        1,
        7 / 3,
        100,
    )
    assert found.uses["cascade"] == {("small", "worker"): 7}
    assert found.oracle == Proportion(2, 2, wilson(2, 2).low, 1.0)
    assert [(pair.first, pair.second, pair.paired) for pair in found.pairs] == [
        ("cascade", "single:small", PairedCounts(1, 1, 0, 0, 1.0)),
        ("cascade", "single:large", PairedCounts(1, 1, 0, 0, 1.0)),
        ("single:small", "single:large", PairedCounts(0, 1, 1, 0, 1.0)),
    ]
    assert found.pairs[0].difference.value == -0.5
    assert not found.priced


def test_repeated_tasks_are_paired_by_seed_and_their_interval_is_over_tasks() -> None:
    repeated = [
        row("cascade", task, task == "a", seed=seed, usd=0.5) for task in "ab" for seed in range(3)
    ]
    repeated += [
        row("random", task, True, seed=seed, usd=1.5) for task in "ab" for seed in range(2)
    ]
    found = summarise(repeated, SOURCES)
    cascade = found.arms[0]
    assert (cascade.once, cascade.solved.count, cascade.solved.total) == (False, 3, 6)
    assert (cascade.solved.low, cascade.solved.high) == (wilson(1, 2).low, wilson(1, 2).high)
    assert found.pairs[0].paired == PairedCounts(2, 0, 2, 0, 1.0)
    assert found.pairs[0].difference == Mean(1.0, 1.0, 1.0)


def test_of_many_arms_each_is_compared_with_the_first() -> None:
    many = [row(f"single:{name}", "a", True) for name in "abcdef"]
    assert [(pair.first, pair.second) for pair in summarise(many, SOURCES).pairs] == [
        ("single:a", f"single:{name}") for name in "bcdef"
    ]


def test_a_bootstrap_holds_its_mean_and_is_the_same_each_time() -> None:
    groups = [[float(n), float(n) + 1] for n in range(10)]
    first = bootstrap(groups)
    assert first == bootstrap(groups)
    assert first.value == 5.0
    assert 2.5 < first.low < 5.0 < first.high < 7.5
    assert bootstrap([[1.0], []]) == Mean(1.0, 1.0, 1.0)
    assert bootstrap([]) == Mean(0.0, 0.0, 0.0)


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], [row("single:<b>&", "a", False, turns=0)], []])
def test_a_picture_is_well_formed_and_names_its_arms(rows: list[RolloutOutcome]) -> None:
    summary = summarise(rows, SOURCES)
    picture = xml.fromstring(evaluation_report.accuracy_against_cost(summary))
    words = {element.text for element in picture.iter("{http://www.w3.org/2000/svg}text")}
    assert {arm.name for arm in summary.arms} <= words
    assert "nan" not in xml.tostring(picture, "unicode")


def test_a_point_stands_where_its_cost_and_share_are() -> None:
    picture = evaluation_report.accuracy_against_cost(summarise(ROWS[:3], SOURCES))
    (x, y) = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)"', picture)[0]
    assert float(x) == pytest.approx(50 + 500 * (7 / 3) / 2.5, abs=0.1)
    assert float(y) == pytest.approx(30 + 260 / 3, abs=0.1)


def test_an_axis_is_divided_by_round_numbers() -> None:
    steps = [
        evaluation_report.axis_step(largest) for largest in (0.0, 0.00012, 1.0, 80.0, 94.0, 12345.0)
    ]
    assert steps == pytest.approx([1.0, 0.00002, 0.2, 10.0, 20.0, 2000.0])


def test_names_of_many_equal_arms_stand_below_each_other_inside_the_picture() -> None:
    many = [
        row(f"single:{name}", "a", False, turns=turns)
        for turns, name in enumerate("abcdefghijkl", start=1)
    ]
    picture = evaluation_report.accuracy_against_cost(summarise(many, SOURCES))
    named = re.findall(r'y="([\d.]+)" style="fill[^>]*>single:(\w)', picture)
    heights = sorted(float(y) for y, _ in named)
    assert len(named) == 12
    assert min(after - before for before, after in pairwise(heights)) >= 14
    assert heights[-1] < float(re.findall(r'viewBox="0 0 \d+ (\d+)"', picture)[0])


def test_the_report_is_written_twice_and_can_say_that_nothing_is_there(tmp_path: Path) -> None:
    report = evaluation_report.ReportNotes(
        "Evaluation <x>", {"pool": "small & large"}, ("Refused: t: it passes.",)
    )
    page, html = evaluation_report.write_report(tmp_path, report, summarise(ROWS, SOURCES))
    assert page.read_text().startswith(
        "# Evaluation \\<x>\n\n- pool: small & large\n\nRefused: t: it passes.\n\n## Solved\n"
    )
    assert "![accuracy-cost](accuracy-cost.svg)" in page.read_text()
    assert "<h1>Evaluation &lt;x&gt;</h1>" in html.read_text()
    assert "<svg " in html.read_text() and "<td>single:small</td>" in html.read_text()
    assert [path.name for path in tmp_path.glob("*.svg")] == ["accuracy-cost.svg"]
    empty = evaluation_report.as_markdown(report, summarise([], SOURCES))
    assert "There are no rows yet." in empty
    with pytest.raises(StorageError, match="the report cannot be written"):
        evaluation_report.write_report(
            tmp_path / "absent", report, EvaluationSummary(False, (), (), {}, None)
        )


MEMBERS = [
    Member(name="large", provider="openai", model="l", slot="strong"),
    Member(name="small", provider="openai", model="s", slot="cheap"),
]


def test_names_that_mean_something_to_markdown_are_shown_as_they_are() -> None:
    found = summarise([row("cascade", "a", True)], {"a": "a|b <i>*c*"})
    report = evaluation_report.ReportNotes(
        "Evaluation", {"tasks": "1 of a|b"}, ("Refused: <script>: its tests\nsay `no`.",)
    )
    page = evaluation_report.as_markdown(report, found)
    assert "- tasks: 1 of a\\|b\n\nRefused: \\<script>: its tests say \\`no\\`.\n" in page
    head = next(line for line in page.splitlines() if line.startswith("| arm | solved"))
    assert head == "| arm | solved | 95 % | a\\|b \\<i>\\*c\\* | accepted | accepted, but wrong |"


LONG = "retry-same:a-model-with-a-very-long-name-20251101"


def test_names_of_any_length_stand_inside_the_picture() -> None:
    found = summarise(
        [row(arm, "a", True, agent=f"{arm}-agent") for arm in ("cascade", LONG, f"{LONG}-b")],
        SOURCES,
    )
    picture = xml.fromstring(evaluation_report.accuracy_against_cost(found))
    width = float(picture.attrib["viewBox"].split()[2])
    for text in picture.iter("{http://www.w3.org/2000/svg}text"):
        x, room = float(text.attrib["x"]), 6 * len(text.text or "")
        anchor = text.attrib.get("text-anchor", "start")
        left = x - {"start": 0, "middle": room / 2, "end": room}[anchor]
        assert left >= 0 and left + room <= width, text.text


def test_words_for_arms_mean_every_agent_or_the_strongest() -> None:
    assert runner.expand_arms(["single", "prompted", "single:small", "random"], MEMBERS) == (
        *("single:large", "single:small", "prompted:large", "random"),
    )
    assert runner.expand_arms(["all"], MEMBERS) == (
        *(
            "trinity",
            "conductor",
            "one-pass:large",
            "one-pass:small",
            "single:large",
            "single:small",
            "advised:small",
            "random",
        ),
        *(
            "self-reflection:large",
            "mixture-of-agents",
            "panel-judge-merge",
            "prompted:large",
            "cascade",
        ),
        *("retry-same:large", "retry-same:small"),
    )


@pytest.mark.parametrize("word", ["magic", "single:nobody", "advised:large", "cascade:small", ""])
def test_an_arm_that_is_none_is_refused(word: str) -> None:
    with pytest.raises(UsageError):
        runner.expand_arms([word], MEMBERS)


def test_an_arm_of_an_agent_that_is_opted_out_is_refused_and_says_so() -> None:
    with pytest.raises(
        UsageError, match="'single:other' names an agent that is opted out"
    ) as caught:
        runner.expand_arms(["single:other"], MEMBERS, ["other"])
    assert caught.value.hint == "take other out of opt_out"


def test_as_many_rollouts_run_at_once_as_were_asked_for_and_without_a_word_a_few() -> None:
    engine = cast(RolloutEngine, SimpleNamespace(cores=16))
    assert rollouts_at_once(EvalFlags(rollouts=8), MEMBERS, engine) == 8
    assert rollouts_at_once(EvalFlags(), MEMBERS, engine) == 4
