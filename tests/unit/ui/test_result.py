"""How a request ended, for programs: exit codes and the final object."""

from collections.abc import Sequence
from typing import Any, cast

import pytest

from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    Asked,
    Compacted,
    Event,
    Failed,
    FileChange,
    Finished,
    Member,
    Opened,
    Permitted,
    Price,
    Recorded,
    Replied,
)
from fugu_cli.session.state import SessionState
from fugu_cli.ui.json_output import (
    EXIT_CODES,
    SUBTYPES,
    RunEnding,
    arguments_object,
    exit_code,
    result_object,
    run_ending,
)
from tests.unit.ui import example

REASONS = Finished.model_fields["reason"].annotation.__args__


def test_every_reason_has_an_exit_code_and_a_subtype() -> None:
    assert set(EXIT_CODES) == set(SUBTYPES) == set(REASONS)
    assert {reason: exit_code(reason) for reason in REASONS} == {
        "accepted": 0,
        "answered": 0,
        "unaccepted": 3,
        "turn_limit": 3,
        "budget": 3,
        "time_limit": 3,
        "interrupted": 4,
        "denied": 4,
        "failed": 2,
    }


def final_object(
    records: Sequence[Recorded], session: str, end: RunEnding, **run: int
) -> dict[str, Any]:
    return result_object(SessionState.of_records(records), records, session, end, **run)


def test_the_final_object_of_an_accepted_request() -> None:
    found = final_object(example.records(), "s1", RunEnding("accepted"))
    own = found.pop("fugu")
    models = found.pop("modelUsage")
    assert found == {
        "type": "result",
        "subtype": "success",
        "is_error": False,
        "duration_ms": 52000,
        "duration_api_ms": 24000,
        "num_turns": 3,
        "result": "The bug was `x = 1`; it is 3 now.",
        "session_id": "s1",
        "total_cost_usd": pytest.approx(0.0378),
        "usage": {
            "input_tokens": 6000,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 1200,
            "output_tokens": 1800,
        },
        "permission_denials": [
            {
                "tool_name": "bash",
                "tool_use_id": "t3-0-0",
                "tool_input": {"command": "git push --force"},
            }
        ],
    }
    assert models == {
        "m-coder": {
            "inputTokens": 4000,
            "outputTokens": 1200,
            "cacheReadInputTokens": 800,
            "cacheCreationInputTokens": 0,
            "costUSD": pytest.approx(0.0108),
            "contextWindow": 32768,
        },
        "m-strong": {
            "inputTokens": 2000,
            "outputTokens": 600,
            "cacheReadInputTokens": 400,
            "cacheCreationInputTokens": 0,
            "costUSD": pytest.approx(0.027),
            "contextWindow": 32768,
        },
    }
    assert isinstance(own, dict)
    routing = own.pop("routing")
    assert own == {
        "reason": "accepted",
        "message": "",
        "end": "verified by strong · 3 tests pass (1 failed before)",
        "verified_by": "strong",
        "plan_by": None,
        "tests": {
            "before": {"ok": False, "failed": 1},
            "after": {"ok": True, "passed": 3, "failed": 0, "skipped": 0},
            "fixed": [],
            "broken": [],
            "removed": [],
            "not_run": [],
        },
        "changed": ["a.py"],
        "failed_agents": {"small": "network: m-small: the server does not answer"},
        "orchestration": {
            "orchestration_input_tokens": 824,
            "orchestration_input_cached_tokens": 800,
            "orchestration_output_tokens": 0,
        },
        "unpriced": [],
        "ignored": [],
    }
    assert [(one["turn"], one["agent"], one["role"]) for one in routing] == [
        (1, "coder", "worker"),
        (2, "small", "verifier"),
        (3, "strong", "verifier"),
    ]


def test_only_this_run_is_counted_when_a_session_goes_on() -> None:
    records = example.records()
    start = next(record.seq for record in records if isinstance(record.event, example.Failed))
    found = final_object(records, "s1", RunEnding("accepted"), since=start, milliseconds=7)
    assert (found["duration_ms"], found["duration_api_ms"], found["total_cost_usd"]) == (
        7,
        8000,
        pytest.approx(0.027),
    )
    assert list(found["modelUsage"]) == ["m-strong"]  # type: ignore[call-overload]


def test_what_the_models_cost_adds_up_to_what_the_run_cost() -> None:
    pool = (
        Member(name="a", provider="openai", model="m-a", slot="cheap", price=Price(input=10.0)),
        Member(name="b", provider="openai", model="m-b", slot="strong", price=Price(input=20.0)),
    )
    used = Usage(input=100_000)
    facts: tuple[Event, ...] = (
        Opened(version="1", repo="/r", pool=pool),
        Asked(text="x"),
        Failed(turn=1, what="a", kind="network", message="cut", usage=used),
        Failed(turn=1, what="a", kind="refused", message="no key"),
        Replied(turn=2, agent="b", usage=used, model="m-b-2026", seconds=2.0),
        Compacted(summary="s", upto=4, agent="b", usage=used, seconds=3.0),
        Compacted(summary="s", upto=5),
    )
    found = final_object(
        [Recorded(seq=n, at=0.0, event=fact) for n, fact in enumerate(facts)],
        "s",
        RunEnding("answered"),
    )
    models = cast(dict[str, dict[str, float]], found["modelUsage"])
    assert {name: one["costUSD"] for name, one in models.items()} == {"m-a": 1.0, "m-b-2026": 4.0}
    assert (found["total_cost_usd"], found["duration_api_ms"]) == (5.0, 5000)


def test_nothing_but_success_is_success() -> None:
    for reason in REASONS:
        found = final_object(example.recorded(example.opening()), "s", RunEnding(reason))
        assert found["is_error"] == (reason not in ("accepted", "answered"))
        assert (found["subtype"] == "success") == (not found["is_error"])


def test_a_request_that_is_not_finished_ended_as_the_caller_says() -> None:
    assert run_ending(SessionState(example.events()), RunEnding("failed", "x")) == RunEnding(
        "accepted", ""
    )
    assert run_ending(SessionState(example.opening()), RunEnding("failed", "x")) == RunEnding(
        "failed", "x"
    )
    assert run_ending(SessionState(example.opening())).reason == "interrupted"


def test_results_of_tests_that_are_older_than_a_change_are_not_claimed() -> None:
    facts = [
        *example.opening(),
        *example.evidence(0, "e0", True),
        example.decision(1, "coder", "worker", None),
    ]
    facts += example.tool(1, example.WRITE, "ok", FileChange(path="a.py", before="1", after="2"))
    own = final_object(example.recorded(facts), "s", RunEnding("turn_limit"))["fugu"]
    assert isinstance(own, dict)
    assert (own["tests"]["before"], own["tests"]["after"]) == ({"ok": True, "failed": 0}, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [("{}", {}), ('{"a": 1}', {"a": 1}), ("[1]", {"text": "[1]"}), ("{x", {"text": "{x"})],
)
def test_arguments_are_an_object_whatever_the_model_wrote(
    text: str, value: dict[str, object]
) -> None:
    assert arguments_object(Call(id="1", tool="t", arguments=text)) == value
    denied = Permitted(
        turn=1, call=Call(id="1", tool="t", arguments=text), allowed=False, by="policy"
    )
    found = final_object(example.recorded([*example.opening(), denied]), "s", RunEnding("denied"))
    assert found["permission_denials"] == [
        {"tool_name": "t", "tool_use_id": "1", "tool_input": value}
    ]
