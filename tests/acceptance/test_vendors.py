"""Vendors of agents by the real binary: who goes on with work that failed, and what `fugu pool`
says of an entry.
"""

from fugu_cli.session.events import Assigned
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Loopback, Says, Use

READ = Says("", (Use("read", {"path": "calc.txt"}),))
WRONG = Says("", (Use("write", {"path": "calc.txt", "content": "still broken\n"}),))
RIGHT = Says("", (Use("write", {"path": "calc.txt", "content": "fixed\n"}),))
DONE = Says("I wrote it.")
"""Said twice where tests fail: a Worker is shown that once in its turn."""
NEAR, FAR = "{ input = 3.0, output = 15.0 }", "{ input = 50.0, output = 250.0 }"


def turns(place: Place) -> list[tuple[str, str]]:
    return [(event.agent, event.role) for event in place.events() if isinstance(event, Assigned)]


def begin(place: Place, *agents: Agent) -> None:
    place.files({"calc.txt": "broken\n", "check.sh": "grep -q fixed calc.txt\n"})
    place.commit()
    place.configure(*agents)


def test_work_that_fails_goes_to_another_vendor_in_the_next_slot(
    place: Place, server: Loopback
) -> None:
    begin(
        place,
        Agent("first", price=NEAR, more='vendor = "ours"'),
        Agent("kin", "strong", price=NEAR, more='vendor = "ours"'),
        Agent(
            "stranger", "strong", price="{ input = 4.0, output = 20.0 }", more='vendor = "theirs"'
        ),
    )
    server.play("first", READ, WRONG, DONE, DONE)
    server.play("stranger", READ, RIGHT, DONE)
    server.play("kin", Says("ACCEPT"))
    done = place.fugu("run", "--until-tests-pass", "mend calc.txt")
    assert done.code == 0, done.err
    assert turns(place) == [("first", "worker"), ("stranger", "worker"), ("kin", "verifier")]


def test_an_agent_that_is_far_cheaper_than_the_next_tries_twice_where_a_check_fails(
    place: Place, server: Loopback
) -> None:
    begin(place, Agent("first", price=NEAR), Agent("dear", "strong", price=FAR))
    server.play("first", READ, WRONG, DONE, DONE, READ, RIGHT, DONE)
    server.play("dear", Says("ACCEPT"))
    done = place.fugu("run", "--until-tests-pass", "mend calc.txt")
    assert done.code == 0, done.err
    assert turns(place) == [("first", "worker"), ("first", "worker"), ("dear", "verifier")]


def test_where_both_have_failed_the_other_one_thinks_before_the_strongest_works_again(
    place: Place, server: Loopback
) -> None:
    begin(place, Agent("first", price=NEAR), Agent("dear", "strong", price=NEAR))
    other = Says("", (Use("write", {"path": "calc.txt", "content": "broken otherwise\n"}),))
    server.play(
        "first",
        *(READ, WRONG, DONE, DONE),
        Says("The word that is looked for is missing."),
        Says("ACCEPT"),
    )
    server.play("dear", READ, other, DONE, DONE, READ, RIGHT, DONE)
    done = place.fugu("run", "--until-tests-pass", "mend calc.txt")
    assert done.code == 0, done.err
    assert turns(place) == [
        ("first", "worker"),
        ("dear", "worker"),
        ("first", "thinker"),
        ("dear", "worker"),
        ("first", "verifier"),
    ]
    assert "The word that is looked for is missing." in server.asked("dear")[4].text


def test_the_pool_says_who_made_each_model_and_an_entry_may_say_it_itself(place: Place) -> None:
    begin(place, Agent("gpt-9"), Agent("claude-9", more='vendor = "Mine"'), Agent("some-model"))
    done = place.fugu("pool")
    rows = {
        line.split()[0]: line.split()[4]
        for line in done.out.splitlines()
        if line.split()[2:3] == ["openai"]
    }
    assert rows == {"gpt-9": "openai", "claude-9": "mine", "some-model": "?"}, done.out
