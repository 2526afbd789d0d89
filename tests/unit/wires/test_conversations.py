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
def test_each_provider_is_sent_what_is_pinned_which_its_vendor_accepts(name: str) -> None:
    pinned = json.loads((PINNED / f"{name}.json").read_text(encoding="utf-8"))
    assert rendered(name) == pinned
    for target, requests in pinned.items():
        for request in requests:
            CHECKS[target](json.dumps(request).encode())
