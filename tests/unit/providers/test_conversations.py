import json

import pytest
import validate
from conversations import CONVERSATIONS, PINNED, rendered

CHECKS = {
    "openai": validate.openai,
    "responses": validate.responses,
    "anthropic": validate.anthropic,
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_each_provider_is_sent_what_is_pinned(name: str) -> None:
    assert rendered(name) == json.loads((PINNED / f"{name}.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_what_is_pinned_is_valid(name: str) -> None:
    for target, requests in json.loads(
        (PINNED / f"{name}.json").read_text(encoding="utf-8")
    ).items():
        for request in requests:
            CHECKS[target](json.dumps(request).encode())


def test_nothing_else_is_pinned() -> None:
    assert {path.stem for path in PINNED.iterdir()} == set(CONVERSATIONS)
