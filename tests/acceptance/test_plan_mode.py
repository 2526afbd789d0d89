"""Plan mode: one turn that changes nothing makes a plan, and the user accepts or changes it."""

from __future__ import annotations

import asyncio
import json

import pytest

from fugu_cli.session.events import Asked as Request
from fugu_cli.session.events import Assigned, Finished
from tests.acceptance.driving import Agent, Place
from tests.acceptance.editor import Editor, editing, words
from tests.acceptance.loopback import Asked, Loopback, Says, Use
from tests.acceptance.test_python_api import events
from tests.acceptance.test_sdk import Client

READ = Says(calls=(Use("read", {"path": "calc.txt"}),))
PLAN = Says("1. calc.txt: write `fixed`.\n2. Run sh check.sh.")
WRITE = Says(calls=(Use("write", {"path": "calc.txt", "content": "fixed\n"}),))
ACCEPT = Says("It is right.\nVERDICT: ACCEPT")


def offered(request: Asked) -> set[str]:
    return {tool["function"]["name"] for tool in request.body["tools"]}


def test_a_plan_is_one_turn_and_another_agent_carries_it_out(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("plans"), Agent("works", "strong"))
    server.play("plans", READ, PLAN)
    planned = place.fugu(
        "run", "--permission-mode", "plan", "--verify-answers", "--until-tests-pass", "fix it"
    )
    assert planned.code == 0, planned.err
    assert planned.out == f"{PLAN.text}\n"
    assert "fugu run --continue --accept-plan" in planned.err
    assert not offered(server.asked("plans")[0]) & {"write", "edit", "apply_patch", "run_tests"}
    assert [event.role for event in place.events() if isinstance(event, Assigned)] == ["worker"]

    refused = place.fugu("run", "--continue")
    assert refused.code == 1
    assert "--accept-plan" in refused.err

    place.files({"since.txt": "new\n"})
    server.play("works", WRITE, Says("Fixed."), ACCEPT)
    done = place.fugu("run", "--continue", "--accept-plan", "--agent", "works")
    assert done.code == 0, done.err
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    told = str(server.asked("works")[0].body["messages"])
    assert "fix it" in told
    assert "`plans` made this plan, and the user wants it carried out" in told
    assert told.count("1. calc.txt: write `fixed`.") == told.count("fix it") == 1
    assert "have changed since the plan was begun" in told
    assert "since.txt" in told
    assert "calc.txt]" not in told
    (_, accepted) = (event for event in place.events() if isinstance(event, Request))
    assert (accepted.mode, accepted.said) == ("edit", "Carry out the plan of plans, in edit mode.")

    assert accepted.wanted == "fix it"

    again = place.fugu("run", "--continue", "--accept-plan")
    assert (again.code, again.out) == (1, "")
    assert "there is no plan to accept" in again.err


def test_what_is_said_after_a_plan_changes_it_in_the_same_turn(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("plans"))
    server.play("plans", PLAN)
    place.fugu("run", "--permission-mode", "plan", "fix it")
    server.play("plans", Says("1. calc.txt and notes.txt: write `fixed`."))
    changed = place.fugu(
        "run", "--continue", "--permission-mode", "plan", "--output-format", "json", "notes.txt too"
    )
    assert changed.code == 0, changed.err
    result = json.loads(changed.out)
    assert result["result"] == "1. calc.txt and notes.txt: write `fixed`."
    assert result["fugu"]["plan_by"] == "plans"
    events = place.events()
    assert len([event for event in events if isinstance(event, Request | Assigned)]) == 2
    assert len([event for event in events if isinstance(event, Finished)]) == 2
    (request,) = server.asked("plans")
    *_, plan, message = request.body["messages"]
    assert plan["content"] == PLAN.text
    assert message["content"].endswith("notes.txt too")

    server.play("plans", WRITE, Says("Fixed."), ACCEPT)
    done = place.fugu("run", "--continue", "--accept-plan")
    assert done.code == 0, done.err
    told = str(server.asked("plans")[0].body)
    assert told.count("1. calc.txt and notes.txt: write `fixed`.") == 1
    assert "You made a plan for this" in told


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (("--accept-plan",), "--accept-plan needs a session"),
        (("-c", "--accept-plan", "do it"), "--accept-plan takes no prompt"),
        (("-c", "--accept-plan", "--permission-mode", "plan"), "plan mode carries nothing out"),
    ],
)
def test_flags_that_contradict_an_accepted_plan_are_refused(
    place: Place, flags: tuple[str, ...], why: str
) -> None:
    done = place.fugu("run", *flags)
    assert done.code == 1
    assert why in done.err


def test_in_ultra_the_planner_makes_the_plan_in_words(place: Place, server: Loopback) -> None:
    place.configure(Agent("cheap"), Agent("plans", "strong"))
    server.play("plans", PLAN)
    done = place.fugu("run", "--tier", "ultra", "--permission-mode", "plan", "fix it")
    assert (done.code, done.out) == (0, f"{PLAN.text}\n"), done.err
    (turn,) = (event for event in place.events() if isinstance(event, Assigned))
    assert (turn.agent, turn.plan) == ("plans", 0)


def test_an_editor_is_asked_and_a_no_waits_for_words_that_change_the_plan(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("plans"))
    server.play("plans", READ, PLAN, Says("Another plan."), WRITE, Says("Fixed."), ACCEPT)
    editor = Editor()
    answers = iter(["feedback", "session"])
    editor.answer = lambda asked: next(answers)

    async def plan() -> None:
        async with editing(place, editor, "--permission-mode", "plan") as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            answer = await agent.prompt(session_id=id, prompt=words("fix it"))
            assert answer.stop_reason == "end_turn"
            assert answer.field_meta["fugu"]["fugu"]["plan_by"] == "plans"
            answer = await agent.prompt(session_id=id, prompt=words("another one"))
            assert answer.stop_reason == "end_turn"
            modes = [update["currentModeId"] for update in editor.of(id, "current_mode_update")]
            assert modes == ["edit"]
            ended = [update["toolCallId"] for update in editor.of(id, "tool_call_update")]
            assert {asked["toolCallId"] for asked in editor.asked} <= set(ended)

    asyncio.run(plan())
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    first, second = editor.asked
    assert (first["kind"], first["title"]) == ("switch_mode", "Carry out the plan of plans?")
    assert first["content"][0]["content"]["text"] == PLAN.text
    assert second["content"][0]["content"]["text"] == "Another plan."
    assert first["options"] == {
        "session": "allow_always",
        "once": "allow_once",
        "feedback": "reject_once",
    }


def test_an_sdk_is_asked_as_about_exit_plan_mode(place: Place, server: Loopback) -> None:
    place.configure(Agent("plans"))
    server.play("plans", READ, PLAN, Says("Another plan."), WRITE, Says("Fixed."), ACCEPT)
    client = Client(place, "--permission-prompt-tool", "stdio", "--permission-mode", "plan")
    client.control(subtype="initialize", hooks=None)
    client.say("fix it")
    question = client.until("control_request")
    assert question["request"]["tool_name"] == "ExitPlanMode"
    assert question["request"]["input"] == {"plan": PLAN.text}
    client.answer(question, behavior="deny", message="another one")
    question = client.until("control_request")
    assert question["request"]["input"] == {"plan": "Another plan."}
    update = question["request"]["permission_suggestions"]
    client.answer(question, behavior="allow", updatedPermissions=update)
    assert client.until("result")["result"] == "Fixed."
    assert client.leave() == (0, "")
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_a_program_is_asked_and_accepts_a_plan_later(place: Place, server: Loopback) -> None:
    place.configure(Agent("plans"))
    server.play("plans", PLAN)
    *_, asked, result = events(place, "permission_mode='plan', answer=answer", answer="False")
    assert (asked["type"], asked["tool"]) == ("asked", "accept_plan")
    assert (result["result"], result["fugu"]["plan_by"]) == (PLAN.text, "plans")
    server.play("plans", WRITE, Says("Fixed."), ACCEPT)
    *_, result = events(place, "resume='latest', accept_plan=True", prompt="")
    assert (result["result"], result["fugu"]["plan_by"]) == ("Fixed.", None)
