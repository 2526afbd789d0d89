"""The rules of ATIF 1.8 as a strict check: closed objects, required fields, what only an agent's
step may carry.
"""

from __future__ import annotations

from datetime import datetime

ROOT = {
    "schema_version", "session_id", "trajectory_id", "agent", "steps", "notes", "final_metrics",
    "continued_trajectory_ref", "extra", "subagent_trajectories",
}  # fmt: skip
AGENT = {"name", "version", "model_name", "tool_definitions", "extra"}
STEP = {
    "step_id", "timestamp", "source", "model_name", "reasoning_effort", "message", "reasoning_content", "tool_calls",
    "observation", "metrics", "is_copied_context", "llm_call_count", "extra",
}  # fmt: skip
ONLY_AGENT = {"model_name", "reasoning_effort", "reasoning_content", "tool_calls", "metrics"}
METRICS = {
    "prompt_tokens", "completion_tokens", "cached_tokens", "cost_usd", "prompt_token_ids", "completion_token_ids",
    "logprobs", "extra",
}  # fmt: skip
FINAL = {
    "total_prompt_tokens", "total_completion_tokens", "total_cached_tokens", "total_cost_usd", "total_steps", "extra",
}  # fmt: skip
CALL = {"tool_call_id", "function_name", "arguments", "extra"}
RESULT = {"source_call_id", "content", "subagent_trajectory_ref", "extra"}


def check(document: dict[str, object]) -> None:
    """Raises AssertionError that names the first rule broken."""
    closed(document, ROOT, {"schema_version", "agent", "steps"})
    assert document["schema_version"] == "ATIF-v1.8"
    closed(document["agent"], AGENT, {"name", "version"})
    closed(document["final_metrics"], FINAL, set())
    steps = document["steps"]
    assert isinstance(steps, list) and steps, "at least one step"
    assert [step["step_id"] for step in steps] == list(range(1, len(steps) + 1)), "numbered from 1"
    for step in steps:
        check_step(step)


def check_step(step: dict[str, object]) -> None:
    closed(step, STEP, {"step_id", "source", "message"})
    assert step["source"] in {"system", "user", "agent"} and isinstance(step["message"], str)
    if "timestamp" in step:
        datetime.fromisoformat(str(step["timestamp"]))
    if step["source"] != "agent":
        assert not ONLY_AGENT & set(step), "only an agent's step may carry these"
    if "metrics" in step:
        closed(step["metrics"], METRICS, set())
    calls = step.get("tool_calls", [])
    assert isinstance(calls, list)
    for call in calls:
        closed(call, CALL, {"tool_call_id", "function_name", "arguments"})
        assert isinstance(call["arguments"], dict)
    observation = step.get("observation", {"results": []})
    assert isinstance(observation, dict)
    for result in observation["results"]:
        closed(result, RESULT, set())
        assert isinstance(result["content"], str)
        known = {call["tool_call_id"] for call in calls}
        assert result.get("source_call_id") is None or result["source_call_id"] in known, (
            "a result of no call"
        )


def closed(value: object, allowed: set[str], required: set[str]) -> None:
    assert isinstance(value, dict)
    assert set(value) <= allowed, f"unknown: {set(value) - allowed}"
    assert required <= set(value), f"missing: {required - set(value)}"
