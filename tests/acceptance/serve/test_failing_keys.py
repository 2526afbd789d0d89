"""What one client's request does to the others': nothing, unless a key was refused."""

from pathlib import Path

import httpx
import pytest

from fugu_cli.messages import Prompt, Reply
from tests.acceptance.serve.endpoint import Endpoint, React, endpoint, fails, says

TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


def post(place: Endpoint, text: str, model: str = "fugu", *, tools: bool = False) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": text}]}
    more = {"tools": [TOOL]} if tools else {}
    return httpx.post(f"{place.url}/v1/chat/completions", json={**body, **more}, timeout=60)


def blocked(kind: str) -> React:
    """Fails with `kind` for a prompt with BAD in it, and answers others."""

    def react(prompt: Prompt) -> Reply:
        if any("BAD" in getattr(message, "text", "") for message in prompt.messages):
            return fails(kind)(prompt)
        return says("fine")(prompt)

    return react


@pytest.mark.parametrize("tools", [True, False])
def test_a_request_that_is_refused_for_its_content_is_refused_alone(
    tmp_path: Path, tools: bool
) -> None:
    react = blocked("invalid")
    with endpoint(tmp_path, react, react).serving() as place:
        assert post(place, "BAD", tools=tools).status_code == 400
        assert post(place, "good", tools=tools).status_code == 200


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("kind", ["overloaded", "network", "timeout", "protocol", "credit"])
def test_where_all_are_unavailable_the_next_request_tries_one(
    tmp_path: Path, kind: str, tools: bool
) -> None:
    react = blocked(kind)
    with endpoint(tmp_path, react, react).serving() as place:
        assert post(place, "BAD", tools=tools).status_code >= 400
        assert post(place, "good", tools=tools).status_code == 200


@pytest.mark.parametrize("tools", [True, False])
def test_a_refused_key_is_tried_once_whoever_asks(tmp_path: Path, tools: bool) -> None:
    react = fails("refused")
    with endpoint(tmp_path, react, react).serving() as place:
        first = post(place, "x", tools=tools)
        later = [
            post(place, "x", model, tools=tools)
            for model in ("fugu", "small", "strong", "fugu")
            for _ in range(3)
        ]
    assert first.status_code == 403
    assert {answer.status_code for answer in later} == {503}
    assert all(100 <= int(answer.headers["retry-after"]) <= 120 for answer in later)
    assert [len(agent.shown) for agent in place.agents.values()] == [1, 1]
