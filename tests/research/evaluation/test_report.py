from fugu_cli.training.evaluation.rollout import AgentSpending, RolloutOutcome
from tests.benchmarks.one_pass import (
    OnePassAttempt,
    endings_table,
    loop_table,
    one_pass_table,
    paired_table,
)

SOURCES = {"q1": "quixbugs", "q2": "quixbugs", "h1": "hefix"}


def answer(agent: str, task: str, repeat: int, ok: bool) -> OnePassAttempt:
    return OnePassAttempt(
        task=task,
        agent=agent,
        repeat=repeat,
        ok=ok,
        seconds=10.0 + repeat,
        input=500,
        cached=0,
        output=100,
        stop="end",
        prompt="",
        prompt_sha="",
        reply="",
    )


def outcome(arm: str, task: str, ok: bool, reason: str = "accepted") -> RolloutOutcome:
    cost = AgentSpending(agent="small", calls=2, input=900, cached=0, output=200, seconds=12.0)
    return RolloutOutcome(
        task=task,
        arm=arm,
        ok=ok,
        accepted=reason == "accepted",
        reason=reason,
        turns=3,
        seconds=20.0,
        spent=(cost, cost),
        session="",
    )


OUTCOMES = [
    outcome("single:small", "q1", False, "turn_limit"),
    outcome("single:small", "q2", True),
    outcome("single:small", "h1", False),
    outcome("single:coder", "q1", True),
    outcome("single:coder", "q2", False, "turn_limit"),
    outcome("single:coder", "h1", False, "time_limit"),
    outcome("cascade", "q1", True),
    outcome("cascade", "q2", True),
]


def test_one_pass_counts_every_answer_and_any_of_them() -> None:
    attempts = [
        answer("small", "q1", 0, True),
        answer("small", "q2", 0, False),
        answer("small", "h1", 0, False),
        answer("small", "q2", 1, True),
        answer("small", "h1", 1, False),
        answer("coder", "elsewhere", 0, True),
    ]
    assert one_pass_table(attempts, SOURCES) == (
        "| agent | answer | solved | 95 % | quixbugs | hefix | s an answer | tokens in | tokens "
        "out |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| small | 1: mended, greedy | 1 / 3 | 6-79 % | 1 / 2 | 0 / 1 | 10 | 500 | 100 |\n"
        "| small | 2: written anew, greedy | 1 / 2 | 9-91 % | 1 / 1 | 0 / 1 | 11 | 500 | 100 |\n"
        "| small | any of them | 2 / 3 | 21-94 % | 2 / 2 | 0 / 1 | - | - | - |\n"
    )


def test_the_loop_table_shows_every_arm_and_the_oracle_of_the_single_agents() -> None:
    assert loop_table(OUTCOMES, SOURCES) == (
        "| arm | solved | 95 % | quixbugs | hefix | accepted | accepted, but wrong | turns | "
        "model calls | model s "
        "| wall s | tokens in | tokens out |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |\n"
        "| `single:small` | 1 / 3 | 6-79 % | 1 / 2 | 0 / 1 | 2 | 1 | 3.0 | 4.0 | 24 | 20 | 1800 "
        "| 400 |\n"
        "| `single:coder` | 1 / 3 | 6-79 % | 1 / 2 | 0 / 1 | 1 | 0 | 3.0 | 4.0 | 24 | 20 | 1800 "
        "| 400 |\n"
        "| `cascade` | 2 / 2 | 34-100 % | 2 / 2 | 0 / 0 | 2 | 0 | 3.0 | 4.0 | 24 | 20 | 1800 | "
        "400 |\n"
        "| oracle of the single agents | 2 / 3 | 21-94 % | 2 / 2 | 0 / 1 | - | - | - | - | - | - "
        "| - | - |\n"
    )


def test_there_is_no_oracle_over_one_agent() -> None:
    assert "oracle" not in loop_table(OUTCOMES[:3] + OUTCOMES[6:], SOURCES)


def test_arms_are_compared_on_the_tasks_that_both_were_run_on() -> None:
    assert paired_table(OUTCOMES, SOURCES) == (
        "| first | second | both | first only | second only | neither | p |\n"
        "| --- | --- | --- | --- | --- | --- | --- |\n"
        "| `single:small` | `single:coder` | 0 | 1 | 1 | 1 | 1.000 |\n"
        "| `single:small` | `cascade` | 1 | 0 | 1 | 0 | 1.000 |\n"
        "| `single:coder` | `cascade` | 1 | 0 | 1 | 0 | 1.000 |\n"
    )


def test_endings_are_counted_by_the_engines_own_word() -> None:
    assert endings_table(OUTCOMES, SOURCES) == (
        "| arm | accepted | time_limit | turn_limit |\n"
        "| --- | --- | --- | --- |\n"
        "| `single:small` | 2 | 0 | 1 |\n"
        "| `single:coder` | 1 | 1 | 1 |\n"
        "| `cascade` | 2 | 0 | 0 |\n"
    )


def test_a_table_without_rows_says_so() -> None:
    tables = [
        one_pass_table([], SOURCES),
        loop_table([], SOURCES),
        paired_table([], SOURCES),
        endings_table([], SOURCES),
    ]
    assert tables == ["Not measured yet.\n"] * 4
