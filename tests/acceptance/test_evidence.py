"""Requests on the real binary, one row each: what was asked and done -> turns, calls, suite runs,
end, exit code.
"""

import json
from dataclasses import dataclass

import pytest

from fugu_cli.session.events import Assigned, Finished, Replied, ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Answer, Asked, Loopback, Reaction, Says, Use
from tests.acceptance.test_failing_over import WIRES

SUITE = {
    "calc.py": "def add(a, b):\n    return a + b\n\n\ndef legacy(a):\n    return a\n",
    "README.md": "A calculater.\n",
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
    "test_legacy.py": (
        "from calc import legacy\n\n\ndef test_legacy():\n    assert legacy(1) == 1\n"
    ),
}
RED = {**SUITE, "calc.py": SUITE["calc.py"].replace("a + b", "a - b")}
TYPO = Use("bash", {"command": "sed -i s/calculater/calculator/ README.md"})
BREAK = Use("bash", {"command": "sed -i 's/a + b/a - b/' calc.py"})
MEND = Use("bash", {"command": "sed -i 's/a - b/a + b/' calc.py"})
RETIRE = Use("bash", {"command": "rm test_legacy.py; sed -i '/^def legacy/,$d' calc.py"})
CHECK = Use("acceptance_check", {"command": "grep -q calculator README.md"})


@dataclass(frozen=True)
class Row:
    """A request and what an agent does as a Worker, call by call; what must have happened in the
    end.
    """

    request: str
    files: dict[str, str]
    calls: tuple[Use, ...]
    roles: str
    """w and v, turn by turn."""
    replies: int
    suites: str
    """Each whole run of the tests: p passed, f failed; b where the failing ones were looked up on
    the files before.
    """
    end: str
    code: int
    line: str
    flags: tuple[str, ...] = ()


STILL = "1 test still fails (it failed before)"
ROWS = {
    "a question under red tests": Row("Warum schlägt der Test fehl?", RED, (), "w", 1, "", "answered", 0, "done"),
    "a question quotes an assertion": Row(
        "why does this fail?\nassert add(2, 3) == 5", RED, (), "w", 1, "", "answered", 0, "done"
    ),
    "a text edit under red tests": Row(
        "Fix the typo in the README", RED, (TYPO,), "wv", 3, "fb", "accepted", 0, f"verified by two · {STILL}"
    ),
    "a text edit under green tests": Row(
        "Fix the typo in the README", SUITE, (TYPO,), "wv", 3, "p", "accepted", 0, "verified by two · 2 tests pass"
    ),
    "a broken test": Row(
        "When the sum is negative, add should return zero",
        SUITE, (BREAK,), "www", 5, "fb", "turn_limit", 3, ("stopped: turn limit · 1 test fails "
            "that passed before"),
        ("--max-turns", "3"),
    ),
    "a test that is mended": Row(
        "calc.py のバグを直して", RED, (MEND,), "wv", 3, "p", "accepted", 0, ("verified by two · 2 tests "
            "pass")
    ),
    "tests that go with the code": Row(
        "删除 legacy 函数和它的测试", SUITE, (RETIRE,), "wv", 3, "pb", "accepted", 0, ("verified by two · "
            "1 test passes")
    ),
    "until the tests pass, and they do not": Row(
        "Fix the typo in the README", RED, (TYPO,), "www", 5, "fb", "turn_limit", 3, f"stopped: turn limit · {STILL}",
        ("--until-tests-pass", "--max-turns", "3"),
    ),
    "until a command passes": Row(
        "Fix it", SUITE, (TYPO,), "wv", 3, "p", "accepted", 0, "verified by two · 2 tests pass",
        ("--until", "grep -q calculator README.md"),
    ),
    "an agent sets a check": Row(
        "Fix it", SUITE, (CHECK, TYPO), "wv", 4, "p", "accepted", 0, ("verified by two · 2 tests "
            "pass")
    ),
}  # fmt: skip


def works(calls: tuple[Use, ...]) -> Reaction:
    """A Worker that makes each call once in the whole request, then says its last word; a Verifier
    that accepts.
    """
    made = 0

    def react(asked: Asked) -> Answer:
        nonlocal made
        newest = json.dumps(_messages(asked)[-1:], ensure_ascii=False)
        if (
            "You are the Verifier now" in newest
            or "You are the Verifier now" in _after_the_last_word(asked)
        ):
            return Says("ACCEPT\nIt does what was asked.")
        if made < len(calls):
            made += 1
            return Says("", (calls[made - 1],))
        return Says("It is as it should be.")

    return react


def _messages(asked: Asked) -> list[object]:
    found = asked.body.get("messages") or asked.body.get("input") or []
    assert isinstance(found, list)
    return found


def _after_the_last_word(asked: Asked) -> str:
    """What the newest turn was told, whatever came after it."""
    texts = [json.dumps(message, ensure_ascii=False) for message in _messages(asked)]
    roles = [
        text
        for text in texts
        if "You are the Worker now" in text or "You are the Verifier now" in text
    ]
    return roles[-1] if roles else ""


def run(place: Place, server: Loopback, row: Row, wire: str = "chat") -> None:
    for name in place.repo.iterdir():
        if name.name in ("calc.txt", "check.sh"):
            name.unlink()
    place.files(dict(row.files))
    place.commit()
    place.configure(
        Agent("one", "cheap", **WIRES[wire]),
        Agent("two", "strong", **WIRES[wire]),
        more='permission_mode = "yolo"\ntest_command = "python -m pytest -q -p no:cacheprovider"',
    )
    react = works(row.calls)
    server.react("one", react)
    server.react("two", react)
    done = place.fugu("run", *row.flags, row.request)
    events = place.events()
    letters = {"worker": "w", "verifier": "v", "thinker": "t"}
    suites = [
        "b" if event.call.tool == "tests_before" else "p" if event.ok else "f"
        for event in events
        if isinstance(event, ToolRan) and event.call.tool in ("run_tests", "tests_before")
    ]
    end = [event for event in events if isinstance(event, Finished)][-1]
    found = (
        "".join(letters[event.role] for event in events if isinstance(event, Assigned)),
        sum(isinstance(event, Replied) for event in events),
        "".join(suites),
        end.reason,
        done.code,
    )
    assert found == (row.roles, row.replies, row.suites, row.end, row.code), done.err
    assert row.line in done.err


@pytest.mark.parametrize("name", ROWS)
def test_a_request_ends_as_its_person_would_expect(
    place: Place, server: Loopback, name: str
) -> None:
    run(place, server, ROWS[name])


@pytest.mark.parametrize(
    ("name", "wire"), [("a broken test", "responses"), ("an agent sets a check", "messages")]
)
def test_whatever_wire_the_agents_speak(
    place: Place, server: Loopback, name: str, wire: str
) -> None:
    run(place, server, ROWS[name], wire)


def test_a_file_that_a_script_changed_without_naming_it_is_verified(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), Agent("other"), coordinator="cascade")
    place.files({"a.txt": "one\n"})
    script = 'python3 -c \'import pathlib; pathlib.Path(chr(97) + ".txt").write_text("two")\''
    edit = Says(calls=(Use("bash", {"command": script}),))
    server.play("worker", edit, Says("It says two."))
    server.play("other", Says("It does.\nVERDICT: ACCEPT"))
    done = place.fugu("run", "make a.txt say two")
    assert (done.code, len(server.asked("other"))) == (0, 1), done.err
    assert "verified by other" in done.err
