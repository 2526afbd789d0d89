"""`fugu acp` with the SDK's own client: permissions, cancelling, settings, sessions side by side
and again.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("acp")

from acp.exceptions import RequestError
from acp.schema import (
    AuthCapabilities,
    ClientCapabilities,
    ElicitationCapabilities,
    ElicitationFormCapabilities,
    EmbeddedResourceContentBlock,
    EnvVariable,
    ImageContentBlock,
    McpServerStdio,
    ResourceContentBlock,
    TextContentBlock,
    TextResourceContents,
)

from fugu_cli.session import log as logs
from fugu_cli.session.events import Asked, Assigned, Interrupted, Permitted, Steered, ToolRan
from tests.acceptance.driving import MARK, Agent, Place
from tests.acceptance.editor import Editor, editing, words
from tests.acceptance.loopback import KEY, Loopback, Says, Use, once_there
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE
from tests.pictures import picture

SERVER = Path(__file__).parents[1] / "unit" / "extensions" / "mcp" / "server.py"
SDK_SERVER = SERVER.parent / "sdk_server.py"
WAIT = Says("I wait.", (Use("bash", {"command": "echo begun; sleep 300", "timeout": 600}),))


def fixing(place: Place, server: Loopback) -> None:
    """A worker that mends the file, and a judge that accepts."""
    place.configure(
        Agent("worker", price="{ input = 1.0, output = 2.0 }"), Agent("judge", "strong")
    )
    server.play("worker", READ, WRITE, DONE)
    server.play("judge", ACCEPT)


def permissions(place: Place) -> list[tuple[str, bool, str]]:
    """Who decided about the agents' calls of the newest session."""
    return [
        (one.call.tool, one.allowed, one.by)
        for one in place.events()
        if isinstance(one, Permitted) and one.by != "evidence"
    ]


async def refused(request: object) -> str:
    """What a request that must be refused is answered."""
    with pytest.raises(RequestError) as error:
        await request  # type: ignore[misc]
    return str(error.value)


def test_an_edit_is_asked_about_with_its_diff_made_and_told(place: Place, server: Loopback) -> None:
    fixing(place, server)
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor, "--permission-mode", "ask") as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            answer = await agent.prompt(session_id=id, prompt=words("fix the tests"))
            assert answer.stop_reason == "end_turn"
            assert answer.usage is not None
            assert (answer.usage.input_tokens, answer.usage.output_tokens) == (400, 40)
            fugu = answer.field_meta["fugu"]
            assert (fugu["subtype"], [turn["agent"] for turn in fugu["fugu"]["routing"]]) == (
                "success",
                ["worker", "judge"],
            )
            [asked] = editor.asked
            file = str(place.repo / "calc.txt")
            assert asked["options"] == {
                "once": "allow_once",
                "session": "allow_always",
                "always": "allow_always",
                "no": "reject_once",
            }
            reason, change = asked["content"]
            assert (
                reason["content"]["text"] == "asked because in ask mode every change is asked about"
            )
            assert change == {
                "type": "diff",
                "path": file,
                "oldText": "broken\n",
                "newText": "fixed\n",
            }
            calls = {call["toolCallId"]: call for call in editor.of(id, "tool_call")}
            ends = {update["toolCallId"]: update for update in editor.of(id, "tool_call_update")}
            shown = [
                (call["title"], call["kind"], ends[name]["status"]) for name, call in calls.items()
            ]
            assert shown == [
                ("read calc.txt", "read", "completed"),
                ("write calc.txt", "edit", "completed"),
                ("run_tests", "execute", "completed"),
                ("diff", "read", "completed"),
            ]
            made = ends[asked["toolCallId"]]
            assert (made["content"], made["locations"]) == ([change], [{"path": file}])
            assert "turn 1  worker as worker" in editor.text(id, "agent_thought_chunk")
            routed = [
                one["_meta"]["fugu"].get("routing")
                for one in editor.of(id, "agent_thought_chunk")
                if "_meta" in one
            ]
            assert [(one["agent"], one["role"]) for one in routed if one] == [
                ("worker", "worker"),
                ("judge", "verifier"),
            ]
            spent = editor.of(id, "usage_update")[-1]
            assert (spent["used"], spent["cost"]) == (110, {"amount": 0.00036, "currency": "USD"})

    asyncio.run(edit())
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    assert permissions(place) == [("read", True, "policy"), ("write", True, "user")]


def test_a_cost_that_nobody_counted_is_marked_for_the_editor(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker", price="{ input = 1.0, output = 2.0 }"))
    server.play("worker", Says("It is so.", tokens=None))
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor) as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            await agent.prompt(session_id=id, prompt=words("what is it?"))
            spent = editor.of(id, "usage_update")[-1]["_meta"]["fugu"]
            assert spent["estimated_cost_usd"] == spent["cost_usd"] > 0

    asyncio.run(edit())


def test_a_no_is_a_no_and_a_yes_for_always_is_remembered(place: Place, server: Loopback) -> None:
    fixing(place, server)
    first, second, third = (
        Says("", (Use("bash", {"command": f"seq {count}"}),)) for count in (1, 2, 3)
    )
    editor = Editor()
    editor.answer = lambda asked: "no"

    async def edit() -> None:
        async with editing(place, editor, "--permission-mode", "ask") as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            server.play("worker", READ, WRITE, DONE)
            await agent.prompt(session_id=id, prompt=words("fix the tests"))
            assert (place.repo / "calc.txt").read_text() == "broken\n"
            [asked] = editor.asked
            assert [
                one["status"]
                for one in editor.of(id, "tool_call_update")
                if one["toolCallId"] == asked["toolCallId"]
            ] == ["failed"]
            editor.answer = lambda asked: "always"
            server.play("worker", READ, WRITE, first, second, DONE)
            await agent.prompt(session_id=id, prompt=words("fix the tests"))
            thoughts = "".join(
                one["content"]["text"] for one in editor.of(id, "agent_thought_chunk")
            )
            assert "from now on allowed in this project: bash(seq *)" in thoughts
            (place.repo / "calc.txt").write_text("broken\n")
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            server.play("worker", READ, WRITE, third, DONE)
            await agent.prompt(session_id=id, prompt=words("fix the tests"))
            assert len(editor.asked) == 3

    asyncio.run(edit())
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    assert permissions(place) == [(tool, True, "policy") for tool in ("read", "write", "bash")]


def test_a_cancel_in_the_middle_of_a_tool_ends_its_processes_and_the_session_goes_on(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", WAIT)
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor, "--permission-mode", "yolo") as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            prompt = asyncio.create_task(agent.prompt(session_id=id, prompt=words("wait")))
            await editor.until(lambda one: "begun" in json.dumps(one.of(id, "tool_call_update")))
            more = asyncio.create_task(agent.prompt(session_id=id, prompt=words("and more")))
            while not any(isinstance(one, Steered) for one in place.events()):
                await asyncio.sleep(0.02)
            await agent.cancel(session_id=id)
            assert [(await one).stop_reason for one in (prompt, more)] == ["cancelled"] * 2
            assert [command for command in place.left_behind() if "sleep 300" in command] == []
            assert editor.of(id, "tool_call_update")[-1]["status"] == "failed"
            server.play("worker", Says("Then not."))
            assert (
                await agent.prompt(session_id=id, prompt=words("never mind"))
            ).stop_reason == "end_turn"
            assert editor.text(id).endswith("Then not.")
            assert "and more" in server.asked("worker")[0].text  # nobody had read it

    asyncio.run(edit())
    assert [one.turn for one in place.events() if isinstance(one, Interrupted)] == [1]


def test_what_a_subtask_says_is_a_thought_and_a_cancel_ends_it_with_its_turn(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more="")
    asks = Says("I ask.", (Use("task", {"description": "look", "prompt": "Look at calc.txt."}),))
    server.play(
        "worker", asks, Says("It is broken."), Says("Calc is broken."), asks, Says("", pause=60.0)
    )
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor) as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            assert (
                await agent.prompt(session_id=id, prompt=words("what is it?"))
            ).stop_reason == "end_turn"
            assert editor.text(id) == "I ask.Calc is broken."
            assert "It is broken." in editor.text(id, "agent_thought_chunk")
            prompt = asyncio.create_task(agent.prompt(session_id=id, prompt=words("and now?")))
            await asyncio.to_thread(server.wait_for, "worker", 5)
            await agent.cancel(session_id=id)
            assert (await prompt).stop_reason == "cancelled"
            assert (
                editor.text(id, "agent_thought_chunk").count("interrupted; /continue goes on") == 1
            )
            assert editor.of(id, "tool_call_update")[-1]["status"] == "failed"

    asyncio.run(edit())
    assert [one.turn for one in place.events() if isinstance(one, Interrupted)] == [2, 1]


def test_a_cancel_while_permission_is_asked_leaves_the_call_undone(
    place: Place, server: Loopback
) -> None:
    fixing(place, server)
    editor = Editor()
    editor.hold.clear()

    async def edit() -> None:
        async with editing(place, editor, "--permission-mode", "ask") as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            prompt = asyncio.create_task(agent.prompt(session_id=id, prompt=words("fix the tests")))
            await editor.until(lambda one: bool(one.asked))
            await agent.cancel(session_id=id)
            assert (await prompt).stop_reason == "cancelled"
            editor.hold.set()
            server.play("worker", READ, WRITE, DONE)
            assert (
                await agent.prompt(session_id=id, prompt=words("/continue"))
            ).stop_reason == "end_turn"

    asyncio.run(edit())
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_a_session_is_loaded_with_its_conversation_and_resumed_without(
    place: Place, server: Loopback
) -> None:
    fixing(place, server)
    first, again, resumed = Editor(), Editor(), Editor()

    async def edit() -> None:
        async with editing(place, first) as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            await agent.prompt(session_id=id, prompt=words("fix the tests"))
        async with editing(place, again) as agent:
            listed = await agent.list_sessions(cwd=str(place.repo))
            assert [(one.session_id, one.cwd, one.title) for one in listed.sessions] == [
                (id, str(place.repo), "fix the tests")
            ]
            assert "there is no session" in await refused(
                agent.load_session(cwd=str(place.repo), session_id=id[:8])
            )
            loaded = await agent.load_session(cwd=str(place.repo), session_id=id)
            assert loaded.modes is not None and loaded.modes.current_mode_id == "edit"
            assert again.text(id, "user_message_chunk") == "fix the tests"
            assert again.text(id) == first.text(id)
            titles = [[call["title"] for call in one.of(id, "tool_call")] for one in (first, again)]
            assert titles[0] == titles[1]
            ends = [
                [
                    (one["status"], one.get("content"))
                    for one in some.of(id, "tool_call_update")
                    if one["status"] != "in_progress"
                ]
                for some in (first, again)
            ]
            assert ends[0] == ends[1]
            server.play("worker", Says("I did."))
            await agent.prompt(session_id=id, prompt=words("did you?"))
            assert "fix the tests" in server.asked("worker")[0].text
        async with editing(place, resumed) as agent:
            await agent.resume_session(cwd=str(place.repo), session_id=id)
            server.play("worker", Says("Yes."))
            await agent.prompt(session_id=id, prompt=words("sure?"))
            assert (resumed.text(id), resumed.of(id, "user_message_chunk")) == ("Yes.", [])

    asyncio.run(edit())
    assert [one.text for one in place.events() if isinstance(one, Asked)] == [
        "fix the tests",
        "did you?",
        "sure?",
    ]


def test_a_loaded_session_keeps_a_mode_that_allows_less(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("I would change calc.txt."))
    editor = Editor()
    editor.answer = lambda asked: "feedback"  # the plan stays as it is

    async def edit() -> list[str]:
        modes: list[str] = []
        async with editing(place, editor) as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            for mode in ("plan", "yolo"):
                await agent.set_session_mode(session_id=id, mode_id=mode)
                await agent.prompt(session_id=id, prompt=words("plan it"))
                await agent.close_session(session_id=id)
                loaded = await agent.load_session(cwd=str(place.repo), session_id=id)
                assert loaded is not None and loaded.modes is not None
                modes.append(loaded.modes.current_mode_id)
        return modes

    assert asyncio.run(edit()) == ["plan", "edit"]


def test_an_editor_is_told_how_a_key_is_kept(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))

    async def edit(terminal: bool) -> Any:
        async with editing(place, Editor()) as agent:
            capabilities = ClientCapabilities(auth=AuthCapabilities(terminal=terminal))
            greeting = await agent.initialize(protocol_version=1, client_capabilities=capabilities)
            assert "no way to log in" in await refused(agent.authenticate(method_id="x"))
            (method,) = greeting.auth_methods or []
            await agent.authenticate(method_id=method.id)
            return method

    in_terminal, by_hand = asyncio.run(edit(True)), asyncio.run(edit(False))
    assert (in_terminal.type, in_terminal.args) == ("terminal", ["--login"])
    assert "fugu login" in by_hand.description
    place.variables["OPENAI_BASE_URL"] = server.url
    kept = place.fugu("acp", "--login", stdin=f"openai\n{KEY}\n".encode())
    assert (kept.code, "openai key saved" in kept.out) == (0, True), kept.err


def test_mode_agent_tier_and_effort_are_set_from_the_editor(place: Place, server: Loopback) -> None:
    fixing(place, server)
    server.play("judge", READ, WRITE, DONE)
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor, "--permission-mode", "ask") as agent:
            new = await agent.new_session(cwd=str(place.repo))
            id = new.session_id
            assert new.modes is not None and new.config_options is not None
            assert [mode.id for mode in new.modes.available_modes] == [
                "plan",
                "ask",
                "edit",
                "auto",
                "yolo",
            ]
            assert [(one.id, one.current_value) for one in new.config_options] == [
                ("mode", "ask"),
                ("agent", "auto"),
                ("tier", "fugu"),
                ("effort", "auto"),
            ]
            await agent.set_session_mode(session_id=id, mode_id="yolo")
            changed = await agent.set_config_option(config_id="agent", session_id=id, value="judge")
            assert [one.current_value for one in changed.config_options] == [
                "yolo",
                "judge",
                "fugu",
                "auto",
            ]
            await agent.set_config_option(config_id="effort", session_id=id, value="low")
            assert "no mode 'no'" in await refused(
                agent.set_session_mode(session_id=id, mode_id="no")
            )
            for option, value in (
                ("agent", "nobody"),
                ("tier", "three"),
                ("effort", "some"),
                ("colour", "red"),
            ):
                assert "there is no" in await refused(
                    agent.set_config_option(config_id=option, session_id=id, value=value)
                )
            await agent.prompt(session_id=id, prompt=words("fix the tests"))
            assert (editor.asked, editor.of(id, "current_mode_update")[0]["currentModeId"]) == (
                [],
                "yolo",
            )

    asyncio.run(edit())
    assert {one.agent for one in place.events() if isinstance(one, Assigned)} == {"judge"}
    assert [one.effort for one in place.events() if isinstance(one, Asked)] == ["low"]
    assert permissions(place) == [("read", True, "policy"), ("write", True, "policy")]


def test_two_sessions_work_at_once_in_one_process(place: Place, server: Loopback) -> None:
    fixing(place, server)
    mending = (READ, WRITE, DONE)
    server.react(
        "worker",
        lambda asked: mending[len(asked.results)] if "fix" in asked.text else Says("It is broken."),
    )
    editor = Editor()
    editor.hold.clear()

    async def edit() -> None:
        async with editing(place, editor, "--permission-mode", "ask") as agent:
            one = (await agent.new_session(cwd=str(place.repo))).session_id
            other = (await agent.new_session(cwd=str(place.repo))).session_id
            asking = asyncio.create_task(
                agent.prompt(session_id=one, prompt=words("fix the tests"))
            )
            await editor.until(lambda some: bool(some.asked))
            answered = await agent.prompt(session_id=other, prompt=words("what is in calc.txt?"))
            assert (answered.stop_reason, editor.text(other), asking.done()) == (
                "end_turn",
                "It is broken.",
                False,
            )
            editor.hold.set()
            await asking
            assert [asked["session"] for asked in editor.asked] == [one]
            await agent.close_session(session_id=other)
            assert "no open session" in await refused(
                agent.prompt(session_id=other, prompt=words("and now?"))
            )

    asyncio.run(edit())
    asked = [
        [record.event.text for record in logs.read(path) if isinstance(record.event, Asked)]
        for path in place.sessions()
    ]
    assert sorted(asked) == [["fix the tests"], ["what is in calc.txt?"]]


def test_files_are_mentioned_selections_come_beside_and_commands_are_run(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker", more="vision = true\n"))
    place.files(
        {
            ".agents/commands/ask.md": (
                "---\ndescription: ask about a thing\n---\nWhat about $ARGUMENTS?\n"
            )
        }
    )
    place.commit()
    server.play("worker", Says("So it is."))
    editor = Editor()
    shot, broken = (
        ImageContentBlock(type="image", data=base64.b64encode(data).decode(), mime_type="image/png")
        for data in (picture(8, 6), b"hi")
    )
    file = (place.repo / "calc.txt").as_uri()

    async def edit() -> None:
        async with editing(place, editor, "--trust") as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            await editor.until(lambda one: bool(one.of(id, "available_commands_update")))
            [told] = editor.of(id, "available_commands_update")
            assert [one["name"] for one in told["availableCommands"]] == [
                "continue",
                "undo",
                "redo",
                "compact",
                "ask",
            ]
            blocks = [
                TextContentBlock(type="text", text="compare"),
                ResourceContentBlock(type="resource_link", name="calc.txt", uri=file),
                TextContentBlock(type="text", text="with"),
                EmbeddedResourceContentBlock(
                    type="resource",
                    resource=TextResourceContents(uri=f"{file}#L1", text="not saved\n"),
                ),
            ]
            await agent.prompt(session_id=id, prompt=blocks)
            shown = server.asked("worker")[0].text
            assert f"compare @calc.txt with {file}#L1" in shown
            assert (shown.count("broken"), shown.count("not saved")) == (1, 1)
            await agent.prompt(session_id=id, prompt=words("/ask tea"))
            assert "What about tea?" in server.asked("worker")[1].text
            assert "there is no command /nonsense" in await refused(
                agent.prompt(session_id=id, prompt=words("/nonsense"))
            )
            await agent.prompt(session_id=id, prompt=[*words("what is this?"), shot])
            assert "8x6" in server.asked("worker")[2].text and "image_url" in str(
                server.asked("worker")[2].body
            )
            assert "no picture that can be shown" in await refused(
                agent.prompt(session_id=id, prompt=[broken])
            )
            assert "says nothing" in await refused(agent.prompt(session_id=id, prompt=words("  ")))
            assert "no unfinished request" in await refused(
                agent.prompt(session_id=id, prompt=words("/continue"))
            )

    asyncio.run(edit())
    assert [one.said for one in place.events() if isinstance(one, Asked)] == [
        f"compare @calc.txt with {file}#L1",
        "/ask tea",
        "what is this?",
    ]


def test_the_todo_list_is_the_plan_and_what_a_command_prints_is_shown(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    items = [
        {"text": "look", "status": "done"},
        {"text": "mend", "status": "in_progress"},
        {"text": "tell", "status": "pending"},
    ]
    calls = (Use("todo", {"items": items}), Use("bash", {"command": "echo one; exit 3"}))
    server.play("worker", Says("", calls), Says("Done."))
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor, "--permission-mode", "yolo") as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            await agent.prompt(session_id=id, prompt=words("begin"))
            [plan] = editor.of(id, "plan")
            assert [(entry["content"], entry["status"]) for entry in plan["entries"]] == [
                ("look", "completed"),
                ("mend", "in_progress"),
                ("tell", "pending"),
            ]
            [command] = [call for call in editor.of(id, "tool_call") if call["kind"] == "execute"]
            ended = [
                one
                for one in editor.of(id, "tool_call_update")
                if one["toolCallId"] == command["toolCallId"]
            ][-1]
            assert ended["status"] == "failed"
            assert "one\n" in ended["content"][0]["content"]["text"]

    asyncio.run(edit())


def test_undo_takes_back_what_was_done(place: Place, server: Loopback) -> None:
    fixing(place, server)
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor) as agent:
            id = (await agent.new_session(cwd=str(place.repo))).session_id
            await agent.prompt(session_id=id, prompt=words("fix the tests"))
            assert (place.repo / "calc.txt").read_text() == "fixed\n"
            await agent.prompt(session_id=id, prompt=words("/undo"))
            assert (place.repo / "calc.txt").read_text() == "broken\n"
            assert "1 file put back" in editor.text(id)

    asyncio.run(edit())


def test_an_mcp_server_of_the_editors_is_called_after_a_yes(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    listed = place.folder / "listed"
    server.play(
        "worker",
        once_there(listed),
        Says("", (Use("mcp__small__echo", {"text": "hello"}),)),
        Says("It echoes."),
    )
    editor = Editor()
    env = [EnvVariable(name=MARK, value=place.mark), EnvVariable(name="LISTED", value=str(listed))]
    small = McpServerStdio(name="small", command=sys.executable, args=[str(SERVER)], env=env)

    async def edit() -> None:
        async with editing(place, editor) as agent:
            wrong = small.model_copy(update={"command": " "})
            assert "has no command" in await refused(
                agent.new_session(cwd=str(place.repo), mcp_servers=[wrong])
            )
            assert "not the absolute path" in await refused(agent.new_session(cwd="repo"))
            id = (await agent.new_session(cwd=str(place.repo), mcp_servers=[small])).session_id
            await agent.prompt(session_id=id, prompt=words("echo"))
            assert [asked["title"] for asked in editor.asked] == [
                'mcp__small__echo {"text": "hello"}'
            ]

    asyncio.run(edit())
    assert [(one.call.tool, one.output) for one in place.events() if isinstance(one, ToolRan)][
        1:
    ] == [("mcp__small__echo", "you said hello")]


@pytest.mark.parametrize("shown", [True, False])
def test_what_an_mcp_server_asks_is_a_form_of_the_editors(
    place: Place, server: Loopback, shown: bool
) -> None:
    place.configure(Agent("worker"), more='allow = ["mcp__sdk__*"]')
    book = Says("", (Use("mcp__sdk__book"),))
    server.play("worker", book, Says("Booked."), book, Says("Not booked."))
    sdk = McpServerStdio(name="sdk", command=sys.executable, args=[str(SDK_SERVER)], env=[])
    can = ClientCapabilities(
        elicitation=ElicitationCapabilities(form=ElicitationFormCapabilities()) if shown else None
    )
    editor = Editor()

    async def edit() -> None:
        async with editing(place, editor, can=can) as agent:
            id = (await agent.new_session(cwd=str(place.repo), mcp_servers=[sdk])).session_id
            for filled in ({"day": "Monday", "colour": "red"}, None):
                editor.filled = filled
                await agent.prompt(
                    session_id=id, prompt=words("/mcp:sdk:plan Oslo")
                )  # it waits for the server
            unseen = (
                "the MCP server sdk asks something, and nobody can answer here: When do you travel?"
            )
            assert (unseen in editor.text(id, "agent_thought_chunk")) is not shown
            forms = [
                (form["message"], form["sessionId"], [*form["requestedSchema"]["properties"]])
                for form in editor.forms
            ]
            form = ("sdk asks: When do you travel?", id, ["day", "seats", "colour", "insured"])
            assert forms == ([form, form] if shown else [])

    asyncio.run(edit())
    accepted = 'accept: {"day":"Monday","seats":1,"colour":"red","insured":false}'
    said = [
        one.output
        for one in place.events()
        if isinstance(one, ToolRan) and one.call.tool == "mcp__sdk__book"
    ]
    assert said == ([accepted, "decline: -"] if shown else ["cancel: -", "cancel: -"])
