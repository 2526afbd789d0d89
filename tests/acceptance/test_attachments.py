"""`@` in a request by the real binary: the provider is sent the content, and an edit right after is
accepted.
"""

import json
import os
import re

import pytest

from fugu_cli.session.events import Asked, Permitted, ToolRan
from tests.acceptance.driving import Agent, Place, objects
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_workflows import lists, plans

MEND = Use("edit", {"path": "calc.txt", "old": "broken", "new": "fixed"})
DONE = Says("It is done.")
ACCEPT = Says("ACCEPT: it holds.")


def first(server: Loopback, model: str, number: int = 0) -> str:
    """What the first message of the user said, without what the session and the turn are told."""
    messages = server.asked(model)[number].body["messages"]
    said: str = next(message["content"] for message in messages if message["role"] == "user")
    return said.partition("\n\n[The session when")[0]


def ran(place: Place) -> list[tuple[str, bool]]:
    return [(event.call.tool, event.ok) for event in place.events() if isinstance(event, ToolRan)]


def test_a_file_is_sent_with_the_request_and_edited_right_after(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), Agent("judge", "strong"))
    server.play("worker", Says("", (MEND,)), DONE)
    server.play("judge", ACCEPT)
    done = place.fugu("run", "mend @calc.txt, ask me@calc.txt about @property and @types/node")
    assert done.code == 0, done.err
    asked = "mend @calc.txt, ask me@calc.txt about @property and @types/node"
    assert first(server, "worker") == f"{asked}\n\n[read calc.txt]\n1\tbroken"
    assert ran(place)[:2] == [("read", True), ("edit", True)]
    assert [event.attachments for event in place.events() if isinstance(event, Asked)] == [
        ("calc.txt",)
    ]
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_a_session_that_goes_on_sends_the_same_and_still_lets_it_be_edited(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), Agent("judge", "strong"))
    server.play("worker", Says("It says broken."))
    assert place.fugu("run", "what is in @calc.txt?").code == 0
    before = first(server, "worker")
    server.play("worker", Says("", (MEND,)), DONE)
    server.play("judge", ACCEPT)
    done = place.fugu("run", "--continue", "mend it")
    assert done.code == 0, done.err
    assert (
        first(server, "worker") == before == "what is in @calc.txt?\n\n[read calc.txt]\n1\tbroken"
    )
    assert ran(place)[:2] == [("read", True), ("edit", True)]


def test_lines_folders_and_names_with_spaces_are_attached_as_the_tools_show_them(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    place.files(
        {
            "a b.txt": "1\n2\n3\n4\n",
            "src/x.py": "x\n",
            "odd#L1": "odd\n",
            "long.txt": "word\n" * 9000,
        }
    )
    server.play("worker", DONE)
    done = place.fugu("run", 'see @"a b.txt"#L2-3, @src, @calc.txt#L1. @odd#L1 (@long.txt)')
    assert done.code == 0, done.err
    shown = first(server, "worker")
    assert shown.partition("\n\n")[2].startswith(
        "[read a b.txt]\n2\t2\n3\t3\n(lines 2-3 of 4; go on with offset=4)\n\n[list src]\nx.py\n\n"
        "[read calc.txt]\n1\tbroken\n\n[read odd#L1]\n1\todd\n\n[read long.txt]\n1\tword\n2\tword\n"
    )
    cut = re.search(r"\n\(lines 1-([\d,]+) of 9,000; go on with offset=(\d+)\)$", shown)
    assert cut is not None and int(cut[1].replace(",", "")) + 1 == int(cut[2]) < 9000


def test_what_may_not_or_cannot_be_read_costs_a_line_and_the_request_goes_on(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    (place.folder / "out.txt").write_text("outside\n")
    place.files({".env": "KEY=abc\n", "data.bin": b"\0\1\2" * 99, "big.txt": "x" * 3_000_000})
    server.play("worker", DONE)
    done = place.fugu("run", "see @.env @../out.txt @data.bin @big.txt")
    assert done.code == 0, done.err
    assert len(server.asked("worker")) == 1
    shown = server.asked("worker")[0].text
    assert "abc" not in shown and "outside\\n" not in shown and "xxx" not in shown
    assert ran(place) == [("read", False), ("read", False)]
    words = " ".join(done.err.split())
    for text in ("read .env not allowed: ", "out.txt not allowed: ", "data.bin is", "big.txt is"):
        assert words.count(text) == 1, text
    assert done.err.count("not allowed: ") == 2
    judged = [event.allowed for event in place.events() if isinstance(event, Permitted)]
    assert judged == [False, False, True, True]


def test_a_users_hook_holds_for_what_is_attached(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    hook = {"type": "command", "command": "echo not this one >&2; exit 2", "timeout": 30}
    (place.home / ".agents").mkdir()
    (place.home / ".agents/hooks.json").write_text(
        json.dumps({"hooks": {"PreToolUse": [{"matcher": "read", "hooks": [hook]}]}})
    )
    server.play("worker", DONE)
    done = place.fugu("run", "--output-format", "stream-json", "see @calc.txt")
    assert done.code == 0, done.err
    assert (
        "\n\n[read calc.txt]\nNot allowed: a hook forbids it: not this one. Go on without it"
        in first(server, "worker")
    )
    told = [one for one in objects(done.out) if one.get("subtype") == "evidence"]
    assert [(one["input"], one["ok"]) for one in told] == [({"path": "calc.txt"}, False)]


def test_a_custom_command_attaches_what_its_text_names(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    (place.home / ".agents/commands").mkdir(parents=True)
    (place.home / ".agents/commands/look.md").write_text("Look at @$1 well.\n")
    server.play("worker", DONE)
    done = place.fugu("run", "/look calc.txt")
    assert done.code == 0, done.err
    assert first(server, "worker") == "Look at @calc.txt well.\n\n[read calc.txt]\n1\tbroken"


def test_every_step_of_a_workflow_is_sent_it_and_may_edit_it(
    place: Place, server: Loopback
) -> None:
    place.configure(
        Agent("a"), Agent("c", "strong"), more='conductor = { agent = "c", rounds = 1 }'
    )
    plan = Says(lists((0, "Mend it.", []), (1, "Say whether it holds.", [0])))
    server.react("c", lambda asked: plan if plans(asked) else Says("It holds."))
    server.play("a", Says("", (MEND,)), DONE)
    done = place.fugu("run", "--tier", "ultra", "mend @calc.txt")
    assert (place.repo / "calc.txt").read_text() == "fixed\n", done.err
    for model, number in (("a", 0), ("c", 1)):
        assert first(server, model, number).startswith(
            "mend @calc.txt\n\n[read calc.txt]\n1\tbroken"
        )
        assert server.asked(model)[number].text.count("broken") == 1
    assert ran(place)[:2] == [("read", True), ("edit", True)]


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_nobody_may_read_is_said(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    (place.repo / "calc.txt").chmod(0)
    server.play("worker", DONE)
    done = place.fugu("run", "see @calc.txt")
    assert done.code == 0, done.err
    assert (
        first(server, "worker")
        == "see @calc.txt\n\n[read calc.txt]\ncalc.txt cannot be read: Permission denied."
    )


def test_a_file_that_is_not_there_is_said_and_other_words_are_not(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", DONE)
    done = place.fugu(
        "run", "see @nope.png, @src/nope.py, @property, @calc.txt, @pytest.fixture and a@b.png"
    )
    assert done.code == 0, done.err
    said = "there is no such file; agents get the name alone"
    told = [line.strip() for line in done.err.splitlines() if said in line]
    assert [line.rpartition("@")[2] for line in told] == [
        f"nope.png: {said}",
        f"src/nope.py: {said}",
    ]
