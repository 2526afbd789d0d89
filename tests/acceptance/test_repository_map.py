"""The map of the repository: who is shown it, and what of the files is in it."""

from __future__ import annotations

import json
import os

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked, Loopback, Says

HEADING = "[A map of the repository"
FILES = {
    ".gitignore": "generated.py\n",
    "generated.py": "def ignored_function(): ...\n",
    "secret.py": "def denied_function(): ...\n",
    "shop/prices.py": "class Price:\n    def total(self): ...\n\n\ndef round_price(price, digits=2): ...\n",
    "shop/cart.py": "from shop.prices import round_price\n\n\ndef add(cart, item): ...\n",
    "shop/cart.ts": "export const checkout = (cart: Cart): void => {}\n",
    "data.bin": b"\0\1",
}
PLAN = '[{"agent": "a", "task": "Look.", "reads": []}]'


def text_of(request: Asked) -> str:
    return "\n".join(str(message["content"]) for message in request.body["messages"])


def test_a_planner_is_shown_definitions_and_a_first_turn_where_it_is_configured(
    place: Place, server: Loopback
) -> None:
    place.files(FILES)
    (place.repo / "link.py").symlink_to(place.repo / "secret.py")
    place.configure(Agent("a"), more='deny = ["read(secret.py)"]')
    server.react("a", lambda asked: Says(PLAN if "You plan." in asked.text else "Done."))
    assert place.fugu("run", "--tier", "ultra", "round to 3 digits").code == 0
    plan, step = (text_of(request) for request in server.asked("a")[:2])
    assert "shop/: cart.py cart.ts prices.py" in plan
    assert "  1: class Price: total\n  5: def round_price(price, digits=2)" in plan
    assert "  1: checkout = (cart: Cart): void" in plan
    assert "ignored_function" not in plan and "denied_function" not in plan
    assert "link.py" not in plan and HEADING not in step
    assert "repository map: " in place.fugu("trace").out

    place.configure(Agent("a"), more='repository_map = "first"')
    place.fugu("run", "round to 3 digits")
    place.fugu("run", "--continue", "and now?")
    first, second = (text_of(request) for request in server.asked("a")[-2:])
    assert first.count(HEADING) == second.count(HEADING) == 1
    assert "def round_price(price, digits=2)" in first
    requests = json.loads(place.fugu("trace", "--json").out)["requests"]
    assert [bool(request["repository_map"]["first_turn"]) for request in requests] == [True, False]


def test_files_that_keep_a_parser_busy_cost_their_own_lines_at_most(
    place: Place, server: Loopback
) -> None:
    hostile = {
        "deep.js": "[\n" * 190_000,
        "deep.tsx": "<a>\n" * 90_000,
        "indented.py": "".join(" " * depth + "class A:\n" for depth in range(800)),
        "minified.js": "function a(){};" * 20_000,
        "foreign.py": b"def \xff\xfe(): ...\nclass \xc3\x84rger: ...\n",
    }
    place.files({**hostile, "shop/prices.py": FILES["shop/prices.py"]})
    os.mkfifo(place.repo / "pipe.py")
    place.configure(Agent("a"), more='repository_map = "first"')
    server.play("a", Says("Done."))
    assert place.fugu("run", f"what is in {', '.join(hostile)} and pipe.py?").code == 0
    (request,) = server.asked("a")
    assert "def round_price(price, digits=2)" in text_of(request)
    assert "class Ärger" in text_of(request)
