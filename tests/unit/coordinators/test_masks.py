"""Roles and agents that cannot be chosen now, and why."""

from fugu_cli.coordinators import CoordinatorSettings, action_space
from fugu_cli.messages import Call, Media
from fugu_cli.session.events import Event, Exclusion, Failed, FileChange, Interrupted, ToolRan
from fugu_cli.session.state import SessionState
from tests.facts import POOL, asked, assigned, checked, opened, ran, replied, write

FREE: list[Event] = [opened(), asked("rename a to b", judged=False)]
WORKED: list[Event] = [
    assigned(1, "coder"),
    replied(1, "coder", "", write("w")),
    *ran(1, write("w"), path="a.py"),
    replied(1, "coder", "done"),
]
DUE = dict.fromkeys(("worker", "thinker"), action_space.VERDICT_DUE)


def test_a_verifier_is_not_asked_before_there_is_an_answer_nor_while_a_check_fails() -> None:
    start: list[Event] = [opened(), asked(), *checked(0, ok=False)]
    assert action_space.roles_out(SessionState(start)) == {
        "verifier": "there is no Worker answer yet"
    }
    out = {"verifier": "the tests must pass and do not, and no verdict changes that"}
    assert action_space.roles_out(SessionState([*start, *WORKED])) == out, "they have not run since"
    assert action_space.roles_out(SessionState([*start, *WORKED, *checked(1, ok=False)])) == out
    assert action_space.roles_out(SessionState([*start, *WORKED, *checked(1, ok=True)])) == DUE


def test_tests_that_failed_before_keep_nobody_from_verifying() -> None:
    failing = [*FREE, *checked(0, ok=False), *WORKED, *checked(1, ok=False)]
    assert action_space.roles_out(SessionState(failing)) == DUE


def test_no_verifier_is_asked_while_tests_fail_that_passed_before() -> None:
    before = [*FREE, *checked(0, ok=True), *WORKED]
    out = {"verifier": "tests that passed before fail now, and no verdict changes that"}
    assert action_space.roles_out(SessionState([*before, *checked(1, ok=False)])) == out
    assert action_space.roles_out(SessionState([*before, *checked(1, ok=True)])) == DUE


def test_work_is_verified_before_anybody_works_or_thinks_again() -> None:
    assert action_space.roles_out(SessionState([*FREE, *WORKED])) == DUE
    judging = [*FREE, *WORKED, assigned(2, "small", "verifier")]
    assert action_space.roles_out(SessionState([*judging, Interrupted(turn=2)])) == DUE, (
        "it has judged nothing"
    )
    failed = Failed(turn=2, what="small", kind="network", message="reset")
    assert action_space.roles_out(SessionState([*judging, failed])) == DUE
    refused = [*judging, replied(2, "small", "REVISE\nThe README says otherwise.")]
    out = {"verifier": "nobody has worked since the newest verdict"}
    assert action_space.roles_out(SessionState(refused)) == out
    thought = [*refused, assigned(3, "strong", "thinker"), replied(3, "strong", "Read the README.")]
    assert action_space.roles_out(SessionState(thought)) == {
        **out,
        "thinker": "a Thinker has just spoken",
    }
    again = [*thought, assigned(4, "coder"), replied(4, "coder", "Done.")]
    assert action_space.roles_out(SessionState(again)) == DUE


def test_work_that_came_to_no_last_word_goes_on_unless_the_tests_pass_or_a_thinker_has_seen_it() -> (
    None
):
    cut_short, out = [*FREE, *WORKED[:-1]], {"verifier": "the work came to no last word"}
    assert action_space.roles_out(SessionState(cut_short)) == out
    thought = [assigned(2, "strong", "thinker"), replied(2, "strong", "It is whole.")]
    assert action_space.roles_out(SessionState([*cut_short, *thought])) == {
        "thinker": "a Thinker has just spoken"
    }
    assert action_space.roles_out(SessionState([*cut_short, *checked(1, ok=True)])) == DUE
    later = ToolRan(
        turn=2,
        call=Call(id="x", tool="bash"),
        output="",
        ok=True,
        changes=(FileChange(path="b.py", before="", after="b"),),
    )
    assert (
        action_space.roles_out(
            SessionState([*cut_short, *checked(1, ok=True), assigned(2, "coder"), later])
        )
        == out
    )


OPTED_OUT = Exclusion(message="opted out")


def test_an_agent_does_not_verify_its_own_newest_work_while_another_one_can() -> None:
    out = {"coder": Exclusion(message="it wrote a part of what is to be verified")}
    assert (
        action_space.agents_out_for_turn(
            SessionState([*FREE, *WORKED]), CoordinatorSettings(), POOL
        )
        == out
    )
    assert action_space.agents_out(SessionState([*FREE, *WORKED]), (), POOL) == {}, (
        "a workflow's steps are the planner's choice"
    )
    others = ["small", "strong"]
    assert action_space.agents_out_for_turn(
        SessionState([*FREE, *WORKED]), CoordinatorSettings(opt_out=frozenset(others)), POOL
    ) == dict.fromkeys(others, OPTED_OUT)
    refused = [*FREE, *WORKED, assigned(2, "strong", "verifier"), replied(2, "strong", "REVISE")]
    assert (
        action_space.agents_out_for_turn(SessionState(refused), CoordinatorSettings(), POOL) == {}
    ), "now somebody works, maybe the same"


def test_an_agent_that_sees_no_pictures_is_out_while_the_newest_request_has_one_and_somebody_else_can_act() -> (
    None
):
    sees = [member.model_copy(update={"vision": member.name == "strong"}) for member in POOL]
    shot = Media(name="shot.png", type="image/png", sha="a" * 64, size=1, width=1, height=1)
    out = dict.fromkeys(
        ("small", "coder"), Exclusion(message="it does not see pictures, and there are some")
    )
    came = FREE[1].model_copy(update={"media": (shot,)})
    read = ToolRan(
        turn=1, call=Call.make("x", "read", path="shot.png"), output="", ok=True, media=(shot,)
    )
    for events in ([FREE[0], came], [*FREE, assigned(1, "coder"), read]):
        assert action_space.agents_out(SessionState(events), members=sees) == out
        assert action_space.agents_out(SessionState(events), members=POOL) == {}, "nobody sees"
        assert action_space.agents_out(SessionState(events), ["strong"], sees) == {
            "strong": OPTED_OUT
        }, "nobody else is left"
        assert (
            action_space.agents_out(SessionState([*events, asked("and now?")]), members=sees) == {}
        ), "it was another request"
    report = shot.model_copy(update={"type": "application/pdf"})
    assert (
        action_space.agents_out(
            SessionState([FREE[0], FREE[1].model_copy(update={"media": (report,)})]), members=sees
        )
        == {}
    )


def test_an_agent_that_needs_tests_is_out_while_no_check_judges_and_somebody_else_can_act() -> None:
    weak = [member.model_copy(update={"needs_tests": member.name == "small"}) for member in POOL]
    out = {"small": Exclusion(message="no acceptance check judges this request")}
    assert action_space.agents_out(SessionState(FREE), members=weak) == out
    assert action_space.agents_out(SessionState(FREE)) == {}, "nobody says who may be chosen from"
    assert action_space.agents_out(SessionState([opened(), asked()]), members=weak) == {}, (
        "the tests must pass"
    )
    assert action_space.agents_out(SessionState(FREE), ["coder", "strong"], weak) == dict.fromkeys(
        ["coder", "strong"], OPTED_OUT
    )
    assert action_space.agents_out(SessionState(FREE), ["coder"], weak) == {
        "coder": OPTED_OUT,
        **out,
    }
    failed = [
        *FREE,
        assigned(1, "coder"),
        Failed(turn=1, what="coder", kind="network", message="reset"),
    ]
    assert set(action_space.agents_out(SessionState(failed), ["strong"], weak)) == {
        "coder",
        "strong",
    }, "nobody else is left"


def test_what_a_thinker_suggests_is_followed_if_the_role_may_act_and_the_turn_was_not_cut() -> None:
    def thought(role: str) -> list[Event]:
        words = f"Look first. <suggested_role>{role}</suggested_role>"
        return [*FREE, assigned(1, "coder", "thinker"), replied(1, "coder", words)]

    assert action_space.thinker_suggestion(SessionState(FREE)) is None
    assert action_space.thinker_suggestion(SessionState(thought("worker"))) == "worker"
    assert action_space.thinker_suggestion(SessionState(thought("verifier"))) is None, (
        "there is nothing to verify"
    )
    assert (
        action_space.thinker_suggestion(SessionState([*thought("worker"), Interrupted(turn=1)]))
        is None
    )
    failed = Failed(turn=1, what="coder", kind="network", message="reset")
    assert action_space.thinker_suggestion(SessionState([*thought("worker"), failed])) is None
