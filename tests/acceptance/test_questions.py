"""A question of an agent's to the user, where somebody can be asked and where nobody can."""

from __future__ import annotations

import asyncio

from acp.schema import ClientCapabilities, ElicitationCapabilities, ElicitationFormCapabilities

from tests.acceptance.driving import Agent, Place
from tests.acceptance.editor import Editor, editing, words
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_sdk import Client

QUESTION = Use("ask_user", {"question": "Which one?", "choices": ["left", "right"]})


def test_headless_an_agent_is_told_that_nobody_can_be_asked(place: Place, server: Loopback) -> None:
    place.configure(Agent("a"))
    server.play("a", Says("", (QUESTION,)), Says("I took the left one."))
    done = place.fugu("run", "take one")
    assert done.out == "I took the left one.\n", done.err
    assert server.asked("a")[1].results[-1].startswith("Nobody can be asked in this session.")


def test_an_editor_shows_the_choices_and_a_form_where_there_are_none(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("a"))
    open_question = Use("ask_user", {"question": "Which name?"})
    server.play("a", Says("", (QUESTION,)), Says("", (open_question,)), Says("Done."))
    editor = Editor()
    editor.answer = lambda asked: "choice-2"
    editor.filled = {"answer": "Ada"}
    form = ElicitationCapabilities(form=ElicitationFormCapabilities())

    async def edit() -> None:
        async with editing(place, editor, can=ClientCapabilities(elicitation=form)) as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            await agent.prompt(session_id=id, prompt=words("take one"))

    asyncio.run(edit())
    [asked] = editor.asked
    assert asked["title"] == "An agent asks:"
    assert [content["content"]["text"] for content in asked["content"]] == ["Which one?"]
    assert [form["message"] for form in editor.forms] == ["An agent asks: Which name?"]
    answers = [request.results[-1] for request in server.asked("a")[1:]]
    assert answers == ["The user answers: right", "The user answers: Ada"]


def test_a_client_of_the_agent_sdk_answers_as_it_answers_claude_code(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("a"))
    server.play("a", Says("", (QUESTION,)), Says("Done."))
    client = Client(place, "--permission-prompt-tool", "stdio")
    client.say("take one")
    question = client.until("control_request")
    form = question["request"]["input"]
    assert question["request"]["tool_name"] == "AskUserQuestion"
    assert [option["label"] for option in form["questions"][0]["options"]] == ["left", "right"]
    answered = form | {"answers": {"Which one?": "right"}}
    client.answer(question, behavior="allow", updatedInput=answered)
    client.until("result")
    client.leave()
    assert server.asked("a")[1].results[-1] == "The user answers: right"
