"""Roles that make no sense now."""

from fugu_cli.coordinators import masks
from fugu_cli.events import Change, Event, Failed, Interrupted, ToolRan
from fugu_cli.messages import Call
from tests.facts import POOL, asked, assigned, checked, opened, ran, replied, write


def test_a_verifier_is_not_asked_before_there_is_an_answer_nor_while_the_tests_that_judge_it_fail() -> None:
    start: list[Event] = [opened(), asked(), *checked(0, ok=False)]
    assert masks.roles_out(start) == {"verifier": "there is no Worker answer yet"}
    worked = [assigned(1, "coder"), replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py")]
    assert masks.roles_out([*start, *worked]) == {}, "nobody has run them since: a Verifier's turn does"
    failing = [*start, *worked, *checked(1, ok=False)]
    assert masks.roles_out(failing) == {"verifier": "the tests fail, and no verdict changes that"}
    free: list[Event] = [opened(), asked(judged=False), *worked, *checked(1, ok=False)]
    assert masks.roles_out(free) == {}, "the tests are not what the request is about"
    later = ToolRan(
        turn=2, call=Call(id="x", tool="bash"), output="", ok=True, changes=(Change(path="b.py", before="", after="b"),)
    )
    assert masks.roles_out([*failing, assigned(2, "coder"), later]) == {}


def test_once_the_tests_that_judge_it_pass_a_verifier_is_asked_before_anybody_works_again() -> None:
    worked = [assigned(1, "coder"), replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py")]
    passing = [opened(), asked(), *checked(0, ok=False), *worked, *checked(1, ok=True)]
    out = {"worker": "the tests pass, and no Verifier has judged it yet"}
    assert masks.roles_out(passing) == out
    judging = [*passing, assigned(2, "small", "verifier")]
    assert masks.roles_out([*judging, Interrupted(turn=2)]) == out, "it has judged nothing"
    looking = [*passing, assigned(2, "strong", "verifier"), replied(2, "strong", "", Call(id="r", tool="diff"))]
    looking += ran(2, Call(id="r", tool="diff"))
    assert masks.roles_out([*looking, Interrupted(turn=2)]) == out
    assert masks.roles_out([*looking, Failed(turn=2, what="strong", kind="network", message="reset")]) == out
    refused = [*judging, replied(2, "small", "REVISE\nThe README says otherwise.")]
    assert "worker" not in masks.roles_out(refused)
    assert masks.roles_out([*judging, replied(2, "small", "ACCEPT")]) == {}, "it is judged"
    before: list[Event] = [opened(), asked(), *checked(0, ok=True), *worked, *checked(1, ok=True)]
    assert masks.roles_out(before) == {}, "they passed before: they do not say what was wanted"
    free: list[Event] = [opened(), asked("rename it", judged=False), *passing[2:]]
    assert masks.roles_out(free) == {}, "the request is about something else"
    strong = [event.model_copy(update={"agent": "strong"}) if hasattr(event, "agent") else event for event in worked]
    assert masks.roles_out([*passing[:4], *strong, *checked(1, ok=True)]) == {}, "of strong models that is learned"
    wanted: list[Event] = [opened(), asked("fix the failing tests and add tests for a()"), *passing[2:]]
    assert masks.roles_out(wanted) == {}


def test_no_verifier_is_asked_while_tests_fail_that_passed_before_whatever_the_request_is_about() -> None:
    worked = [assigned(1, "coder"), replied(1, "coder", "", write("w")), *ran(1, write("w"), path="a.py")]
    before: list[Event] = [opened(), asked("rename a to b", judged=False), *checked(0, ok=True)]
    out = {"verifier": "tests that passed before fail now, and no verdict changes that"}
    assert masks.roles_out([*before, *worked, *checked(1, ok=False)]) == out
    assert masks.roles_out([*before, *worked, *checked(1, ok=True)]) == {}


def test_a_refusal_stands_until_somebody_has_worked() -> None:
    start: list[Event] = [
        opened(),
        asked("what is 2 + 3?", judged=False),
        assigned(1, "small"),
        replied(1, "small", "6"),
    ]
    refusal = [assigned(2, "coder", "verifier"), replied(2, "coder", "2 and 3 make 5, and not 6.")]
    thought = [assigned(3, "strong", "thinker"), replied(3, "strong", "Add them.")]
    again = [assigned(4, "coder"), replied(4, "coder", "5")]
    out = {"verifier": "a Verifier refused it, and nobody has worked since"}
    assert masks.roles_out(start) == {}
    assert masks.roles_out([*start, *refusal]) == out
    assert masks.roles_out([*start, *refusal, *thought]) == out
    assert masks.roles_out([*start, *refusal, *thought, *again]) == {}
    cut = [assigned(2, "coder", "verifier"), replied(2, "coder", "2 and"), Interrupted(turn=2)]
    assert masks.roles_out([*start, *cut]) == {}, "it has judged nothing"
    accepted = [assigned(2, "coder", "verifier"), replied(2, "coder", "ACCEPT")]
    assert masks.roles_out([*start, *accepted]) == {}


def test_an_agent_that_needs_tests_is_out_where_none_judge_the_request_and_somebody_else_can_act() -> None:
    weak = [member.model_copy(update={"needs_tests": member.name == "small"}) for member in POOL]
    out = {"small": "no tests judge this request"}
    free: list[Event] = [opened(), asked("rename a to b", judged=False)]
    assert masks.agents_out(free, members=weak) == out
    assert masks.agents_out(free) == {}, "nobody says who may be chosen from"
    assert masks.agents_out([opened(), asked()], members=weak) == {}, "the tests judge it"
    assert masks.agents_out([opened(), asked(), *checked(0, ok=False)], members=weak) == {}
    assert masks.agents_out([opened(), asked(), *checked(0, ok=True)], members=weak) == out, "they pass as things are"
    assert masks.agents_out([opened(), asked("write tests for f"), *checked(0, ok=True)], members=weak) == out
    assert masks.agents_out([opened(), asked("write tests for f"), *checked(0, ok=False)], members=weak) == out
    assert masks.agents_out(free, ["coder", "strong"], weak) == dict.fromkeys(["coder", "strong"], "opted out")
    assert masks.agents_out(free, ["coder"], weak) == {"coder": "opted out", **out}
    failed = [*free, assigned(1, "coder"), Failed(turn=1, what="coder", kind="network", message="reset")]
    assert set(masks.agents_out(failed, ["strong"], weak)) == {"coder", "strong"}, "nobody else is left"


def test_no_verifier_is_asked_about_words_of_a_small_model_where_a_change_was_asked_for() -> None:
    read = ran(1, Call.make("e1-0", "read", path="a.py"), "x = 1", by="evidence")

    def answered(text: str, agent: str = "small", *more: Event) -> dict[str, str]:
        events = [opened(), asked(text, judged=False), assigned(1, agent), *read, *more, replied(1, agent, "Done.")]
        return {str(role): why for role, why in masks.roles_out(events).items()}

    out = {"verifier": "a change was asked for, and nothing was changed"}
    assert answered("a.py should say 2") == out
    assert answered("write tests for f") == out
    assert answered("what does a.py say?") == {}
    assert answered("a.py should say 2", "strong") == {}, "with tools of its own it may have looked, and be right"
    changed = ran(1, write("w"), path="a.py")
    assert answered("a.py should say 2", "small", replied(1, "small", "", write("w")), *changed) == {}
    tests = {"verifier": "tests were asked for as well, and none was written"}
    assert answered("add f to a.py with a test", "small", replied(1, "small", "", write("w")), *changed) == tests
    assert answered("add f to a.py with a test", "strong", replied(1, "strong", "", write("w")), *changed) == {}
    more = ran(1, write("v", "test_a.py"), path="test_a.py")
    calls = replied(1, "small", "", write("w"), write("v", "test_a.py"))
    assert answered("add f to a.py with a test", "small", calls, *changed, *more) == {}


def test_what_a_thinker_suggests_is_followed_if_the_role_may_act_and_the_turn_was_not_cut() -> None:
    start: list[Event] = [opened(), asked("rename a to b", judged=False)]

    def thought(role: str) -> list[Event]:
        words = f"Look first. <suggested_role>{role}</suggested_role>"
        return [*start, assigned(1, "coder", "thinker"), replied(1, "coder", words)]

    assert masks.suggestion(start) is None
    assert masks.suggestion(thought("worker")) == "worker"
    assert masks.suggestion(thought("verifier")) is None, "there is nothing to verify"
    assert masks.suggestion([*thought("worker"), Interrupted(turn=1)]) is None
    failed = Failed(turn=1, what="coder", kind="network", message="reset")
    assert masks.suggestion([*thought("worker"), failed]) is None


def test_that_failing_tests_pass_is_not_answered_in_words_where_there_are_none() -> None:
    def said(text: str, agent: str) -> list[Event]:
        request = asked(text, judged=False).model_copy(update={"test_command": None})
        return [opened(), request, assigned(1, agent), replied(1, agent, "hello.py")]

    for text in ("fix the failing tests", "Some tests fail. Make them pass.", "get all tests to pass"):
        assert masks.only_words(said(text, "coder"), "coder")
        assert masks.roles_out(said(text, "coder")) == {"verifier": "a change was asked for, and nothing was changed"}
        assert not masks.only_words(said(text, "strong"), "strong"), "a strong one may say that there are none"
    for text in ("why do the tests fail?", "fix the bug in a.py", "explain the failing test"):
        assert not masks.only_words(said(text, "coder"), "coder")
    changed = [*said("fix the failing tests", "coder"), *ran(1, write("w"), path="a.py")]
    assert not masks.only_words(changed, "coder")
    judged: list[Event] = [opened(), asked("fix the failing tests"), *checked(0, ok=True), assigned(1, "coder")]
    assert not masks.only_words(judged, "coder"), "they pass"
