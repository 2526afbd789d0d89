"""The Verifier's word by the real binary: what accepts work, what sends it back, and what ends a
request unaccepted.
"""

import pytest

from fugu_cli.session.events import Assigned, ToolRan
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

READ = Says("", (Use("read", {"path": "calc.txt"}),))
WRITE = Says("", (Use("write", {"path": "calc.txt", "content": "fixed\n"}),))
MORE = Says("", (Use("edit", {"path": "calc.txt", "old": "fixed", "new": "fixed well"}),))
DONE = Says("I wrote it.")


@pytest.fixture(params=["", "cascade"], ids=["default", "cascade"])
def team(request: pytest.FixtureRequest, place: Place, server: Loopback) -> Place:
    place.files({"calc.txt": "broken\n", "check.sh": "grep -q fixed calc.txt\n"})
    place.commit()
    place.configure(
        Agent("worker"),
        Agent("judge", "middle"),
        Agent("expert", "strong"),
        coordinator=request.param,
    )
    server.play("worker", READ, WRITE, DONE, Says("ACCEPT"))
    server.play("expert", Says("ACCEPT"))
    return place


def turns(place: Place) -> list[tuple[str, str]]:
    return [(event.agent, event.role) for event in place.events() if isinstance(event, Assigned)]


@pytest.mark.parametrize("said", ["ACCEPT", "The tests pass, so I accept the change."])
def test_a_leading_accept_or_the_only_verdict_accepts(
    team: Place, server: Loopback, said: str
) -> None:
    server.play("judge", Says(said))
    done = team.fugu("run", "mend calc.txt")
    assert (done.code, turns(team)) == (0, [("worker", "worker"), ("judge", "verifier")]), done.err
    assert "verified by judge" in done.err


@pytest.mark.parametrize("said", ["REVISE: the file has to be fixed well.", "It looks good to me."])
def test_any_other_word_sends_the_work_back_and_the_worker_is_shown_why(
    team: Place, server: Loopback, said: str
) -> None:
    server.play("judge", Says(said), READ, MORE, DONE)
    done = team.fugu("run", "mend calc.txt")
    assert done.code == 0, done.err
    assert [role for _, role in turns(team)] == ["worker", "verifier", "worker", "verifier"]
    revision = server.asked("judge")[1].text
    assert said in revision
    assert "[The diff of the whole request.]" in revision
    assert "How these tests stood" not in revision, "no test fails and none was removed"
    assert (team.repo / "calc.txt").read_text() == "fixed well\n"


def test_work_that_no_verifier_accepts_is_not_accepted(team: Place, server: Loopback) -> None:
    server.play("judge", Says("REVISE: it is not fixed well."))
    server.play("worker", READ, WRITE, DONE, Says("REVISE: not well."))
    done = team.fugu("run", "--max-turns", "4", "mend calc.txt")
    assert done.code == 3, done.err
    assert "verified by" not in done.err


def test_a_verifier_runs_a_reproduction_and_cannot_write_the_repository(
    team: Place, server: Loopback
) -> None:
    script = "cp calc.txt $TMPDIR/copy && python3 -c 'print(open(\"calc.txt\").read() * 2)'"
    commands = (script, "echo spoilt > calc.txt; touch new.txt; ls", "curl -s https://example.com")
    server.play(
        "judge",
        Says("", tuple(Use("bash", {"command": command}) for command in commands)),
        Says("It says so twice.\nVERDICT: ACCEPT"),
    )
    done = team.fugu("run", "mend calc.txt")
    assert (done.code, (team.repo / "calc.txt").read_text()) == (0, "fixed\n"), done.err
    assert not (team.repo / "new.txt").exists()
    ran = [event for event in team.events() if isinstance(event, ToolRan) and event.turn == 2]
    reproduced, spoilt = (event for event in ran if event.call.tool == "bash")
    assert "fixed\nfixed" in reproduced.output
    assert "calc.txt: " in spoilt.output
    assert "in the sandbox, that need no approval" in server.asked("judge")[1].text


def test_an_accept_against_failing_tests_does_not_count(team: Place, server: Loopback) -> None:
    wrong = Says("", (Use("write", {"path": "calc.txt", "content": "still broken\n"}),))
    server.play("worker", READ, wrong, DONE)
    server.play("judge", Says("ACCEPT. I am sure."))
    done = team.fugu("run", "--max-turns", "3", "--until-tests-pass", "mend calc.txt")
    assert done.code == 3, done.err
    assert "verified by" not in done.err


REQUESTS = (
    "修复 calc.txt",
    "Refactor everything, then write down why.",
)


@pytest.mark.parametrize("asked", REQUESTS)
def test_right_work_that_is_refused_once_is_accepted_whatever_was_asked(
    team: Place, server: Loopback, asked: str
) -> None:
    """By whoever decides where nobody is named, in as few turns as that takes."""
    server.play("judge", Says("REVISE: the file has to be fixed well."), READ, MORE, DONE)
    done = team.fugu("run", asked)
    assert (done.code, (team.repo / "calc.txt").read_text()) == (0, "fixed well\n"), done.err
    assert [role for _, role in turns(team)] == ["worker", "verifier", "worker", "verifier"]


def test_a_run_of_the_tests_that_was_asked_for_wrongly_is_no_failure(
    place: Place, server: Loopback
) -> None:
    place.files({"test_calc.py": "def test_it():\n    assert True\n", "calc.txt": "broken\n"})
    place.commit()
    place.configure(Agent("worker"), Agent("judge", "middle"))
    wrong = Says("", (Use("run_tests", {"folder": "src"}),))
    server.play("worker", wrong, READ, WRITE, DONE)
    server.play("judge", Says("ACCEPT"))
    done = place.fugu("run", "mend calc.txt")
    assert done.code == 0, done.err
    assert "it has no argument `folder`" in server.asked("worker")[1].text
    assert "tests not run" in done.err
    assert "tests fail" not in done.err
    assert "failed before" not in done.err
