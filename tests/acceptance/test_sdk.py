"""`fugu --input-format stream-json`: the public claude-agent-sdk with its path set to fugu, where
it is installed, and its lines as it writes them."""

import asyncio
import base64
import json
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.session.events import Asked, Permitted, Steered, SteeringGiven
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Asked as LoopbackAsked
from tests.acceptance.loopback import Loopback, Says, Use
from tests.acceptance.test_run import ACCEPT, DONE, READ, WRITE
from tests.pictures import picture

Object = dict[str, Any]
FLAGS = (
    "--output-format",
    "stream-json",
    "--verbose",
    "--system-prompt",
    "",
    "--input-format",
    "stream-json",
)


class Client:
    """A client that writes the SDK's lines, and keeps what comes."""

    def __init__(self, place: Place, *flags: str) -> None:
        self.place = place
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fugu_cli", *FLAGS, *flags],
            cwd=place.repo,
            env=place.environ(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.seen: list[Object] = []
        self.limit = threading.Timer(60, self.process.kill)
        self.limit.start()

    def write(self, line: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write((line if isinstance(line, str) else json.dumps(line)) + "\n")
        self.process.stdin.flush()

    def say(self, content: object) -> None:
        self.write(
            {
                "type": "user",
                "message": {"role": "user", "content": content},
                "parent_tool_use_id": None,
            }
        )

    def until(self, kind: str) -> Object:
        """The next object of this type."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.seen.append(json.loads(line))
            if self.seen[-1]["type"] == kind:
                return self.seen[-1]
        raise AssertionError(
            f"no {kind} came: {self.process.stderr.read() if self.process.stderr else ''}"
        )

    def control(self, **request: object) -> Object:
        self.write({"type": "control_request", "request_id": "req_1", "request": request})
        answer = self.until("control_response")["response"]
        assert answer["request_id"] == "req_1"
        return answer

    def answer(self, question: Object, **answer: object) -> None:
        said = {"subtype": "success", "request_id": question["request_id"], "response": answer}
        self.write({"type": "control_response", "response": said})

    def leave(self) -> tuple[int, str]:
        """The exit code, and what stands on standard error, after the end of standard input."""
        assert (
            self.process.stdin is not None
            and self.process.stdout is not None
            and self.process.stderr is not None
        )
        self.process.stdin.close()
        self.seen += [json.loads(line) for line in self.process.stdout]
        said = self.process.stderr.read()
        code = self.process.wait(timeout=60)
        self.limit.cancel()
        self.process.stdout.close()
        self.process.stderr.close()
        return code, said


def permissions(place: Place) -> list[tuple[str, bool, str]]:
    return [
        (one.call.tool, one.allowed, one.by)
        for one in place.events()
        if isinstance(one, Permitted) and one.by != "evidence"
    ]


def fixing(place: Place, server: Loopback) -> None:
    place.configure(
        Agent("worker", price="{ input = 1.0, output = 2.0 }"), Agent("judge", "strong")
    )
    server.play("worker", READ, WRITE, DONE)
    server.play("judge", ACCEPT)


def test_a_request_is_carried_out_and_its_edit_is_asked_about(
    place: Place, server: Loopback
) -> None:
    fixing(place, server)
    client = Client(place, "--permission-prompt-tool", "stdio")
    greeting = client.control(subtype="initialize", hooks=None)["response"]
    assert [model["value"] for model in greeting["models"]] == ["default", "worker", "judge"]
    client.say("fix the tests")
    question = client.until("control_request")
    file = str(place.repo / "calc.txt")
    assert question["request"]["tool_name"] == "Write"
    assert question["request"]["input"]["file_path"] == file
    client.answer(question, behavior="allow", updatedInput=question["request"]["input"])
    result = client.until("result")
    assert (result["subtype"], result["is_error"], result["result"]) == (
        "success",
        False,
        DONE.text,
    )
    kinds = [(one["type"], one.get("subtype")) for one in client.seen]
    assert (
        kinds.index(("system", "init"))
        < kinds.index(("system", "routing"))
        < kinds.index(("assistant", None))
    )
    assert client.leave() == (0, "")
    assert (place.repo / "calc.txt").read_text() == "fixed\n"
    assert permissions(place) == [("read", True, "policy"), ("write", True, "user")]


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({"behavior": "deny", "message": "not this file"}, "not this file"),
        (
            {"behavior": "allow", "updatedInput": {"file_path": "other.txt", "content": "x"}},
            "changed the arguments",
        ),
        ({"behaviour": "allow"}, ""),
    ],
)
def test_anything_but_a_plain_yes_is_a_no(
    place: Place, server: Loopback, answer: Object, told: str
) -> None:
    fixing(place, server)
    client = Client(place, "--permission-prompt-tool", "stdio")
    client.say("fix the tests")
    client.answer(client.until("control_request"), **answer)
    client.until("result")
    client.leave()
    assert (place.repo / "calc.txt").read_text() == "broken\n"
    assert permissions(place)[1] == ("write", False, "user")
    assert told in server.asked("worker")[2].text


def test_without_somebody_who_is_asked_rules_alone_decide(place: Place, server: Loopback) -> None:
    fixing(place, server)
    client = Client(place, "--allowedTools", "Read,Bash(git log:*)")
    client.say("fix the tests")
    result = client.until("result")
    assert [denied["tool_name"] for denied in result["permission_denials"]] == ["write"]
    assert (result["subtype"], client.leave()[0]) == ("success", 0)  # it ended in words
    fixing(place, server)
    client = Client(place, "--allowedTools", "Write")
    client.say("fix the tests")
    assert client.until("result")["subtype"] == "success"
    assert client.leave()[0] == 0


def test_a_forbidden_tool_is_forbidden_under_all_its_names(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play(
        "worker",
        Says("", (Use("run_tests"),)),
        Says("", (Use("bash", {"command": "ls"}),)),
        Says("done"),
    )
    client = Client(place, "--disallowedTools", "Bash", "--permission-mode", "bypassPermissions")
    client.say("look")
    client.until("result")
    client.leave()
    assert [one[:2] for one in permissions(place)] == [("run_tests", False), ("bash", False)]


def test_several_requests_are_one_conversation_and_one_is_interrupted(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("Hello."), Says("Slow.", pause=60), Says("Again."))
    client = Client(place)
    client.say([{"type": "text", "text": "say hello"}])
    first = client.until("result")
    client.say("take your time")
    server.wait_for("worker", 2)
    assert client.control(subtype="interrupt")["subtype"] == "success"
    cut = client.until("result")
    client.say("and again")
    last = client.until("result")
    assert [one["subtype"] for one in (first, cut, last)] == ["success", "interrupted", "success"]
    assert (first["session_id"], last["result"]) == (last["session_id"], "Again.")
    assert client.leave() == (0, "")
    assert [one.text for one in place.events() if isinstance(one, Asked)] == [
        "say hello",
        "take your time",
        "and again",
    ]


@pytest.mark.parametrize(
    ("provider", "more"), [("openai", ""), ("anthropic", ""), ("openai", 'api = "responses"')]
)
def test_a_message_to_agents_at_work_comes_with_the_next_result_or_opens_one_more_reply(
    place: Place, server: Loopback, provider: str, more: str
) -> None:
    place.configure(Agent("worker", provider=provider, more=more))
    sent = threading.Event(), threading.Event()

    def after(message: threading.Event, answer: Says) -> Callable[[LoopbackAsked], Says]:
        def react(_: LoopbackAsked) -> Says:
            assert message.wait(30)
            return answer

        return react

    server.play(
        "worker", after(sent[0], READ), after(sent[1], Says("It says broken.")), Says("Both seen.")
    )
    client = Client(place)
    client.say("what does calc.txt say?")
    picture_block = {"type": "image", "source": {"type": "base64", "media_type": "image/png",
                                                 "data": base64.b64encode(picture()).decode()}}  # fmt: skip
    messages = [[{"type": "text", "text": "and the docs"}, picture_block], "in French"]
    for number, message in enumerate(messages):
        server.wait_for("worker", number + 1)
        client.say(message)
        while client.until("system")["subtype"] != "steered":
            pass
        sent[number].set()
    assert client.until("result")["result"] == "Both seen."
    assert client.leave() == (0, "")
    first, second, third = (asked.text for asked in server.asked("worker"))
    assert "docs" not in first
    if provider == "openai":  # what was sent before is cached; on the other wire markers move
        assert second.startswith(first[:-2])
        assert third.startswith(second[:-2])
    assert (
        second.index("broken") < second.index("The user sent this message") < second.index("docs")
    )
    assert third.index("It says broken.") < third.index("in French")
    events = place.events()
    assert sum(isinstance(event, Asked) for event in events) == 1
    given = [event for event in events if isinstance(event, SteeringGiven)]
    assert [(event.turn, event.agent, event.number) for event in given] == [
        (1, "worker", 1),
        (1, "worker", 2),
    ]


def test_mode_and_agent_are_changed_and_what_is_not_known_is_refused(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), Agent("other", "strong"))
    server.play("other", Says("It is me."))
    client = Client(place)
    refused = [
        client.control(subtype="initialize", hooks={"TeammateIdle": [{"hookCallbackIds": ["h"]}]}),
        client.control(subtype="initialize", hooks={"PreToolUse": ["Bash"]}),
        client.control(
            subtype="initialize", hooks={"PreToolUse": [{"matcher": "(", "hookCallbackIds": ["h"]}]}
        ),
        client.control(
            subtype="initialize",
            agents={"reviewer": {"description": "reviews", "prompt": "review"}},
        ),
        client.control(subtype="set_model", model="gpt-9"),
        client.control(subtype="set_permission_mode", mode="reckless"),
        client.control(subtype="rewind_files", user_message_id="1"),
    ]
    assert [one["subtype"] for one in refused] == ["error"] * 7
    assert ["hooks" in one["error"] for one in refused[:3]] == [True] * 3
    assert "the pool has: worker, other" in refused[4]["error"]
    assert client.control(subtype="set_model", model="other")["subtype"] == "success"
    assert client.control(subtype="set_permission_mode", mode="plan")["subtype"] == "success"
    client.say("who are you?")
    assert client.until("result")["result"] == "It is me."
    assert client.leave()[0] == 0


def test_lines_that_are_none_are_left_out_and_said(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("Hello."))
    client = Client(place)
    for line in ("", "{not json", '["a list"]', '{"type": "song"}', '{"type": "keep_alive"}'):
        client.write(line)
    for content in (None, [], [{"type": "audio"}], "  ", "/nowhere-command"):
        client.say(content)
        refused = client.until("result")
        assert (refused["is_error"], refused["num_turns"], len(refused["errors"])) == (True, 0, 2)
    client.say("say hello")
    assert client.until("result")["result"] == "Hello."
    code, said = client.leave()
    assert (code, said.count("was left out")) == (0, 3)


def test_words_that_cannot_be_meant_end_before_a_session_is_begun(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    for flags in (
        ("--model", "gpt-9"),
        ("--permission-mode", "reckless"),
        ("--allowedTools", "Bash(("),
        ("--setting-sources", "user"),
        ("--mcp-config", '{"mcpServers": {"mine": {"type": "telepathy"}}}'),
        ("--mcp-config", "nowhere.json"),
        ("--resume", "nobody"),
    ):
        code, said = Client(place, *flags).leave()
        assert (code, said.startswith("fugu: ")) == (1, True), flags
    assert place.sessions() == []


def test_a_client_that_goes_away_is_not_waited_for(place: Place, server: Loopback) -> None:
    fixing(place, server)
    client = Client(place, "--permission-prompt-tool", "stdio")
    client.say("fix the tests")
    client.until("control_request")
    client.leave()  # nobody answers the question
    assert permissions(place)[1][:2] == ("write", False)
    assert (place.repo / "calc.txt").read_text() == "broken\n"


def test_a_silent_command_ends_with_the_client_that_reads_nothing_any_more(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("", (Use("bash", {"command": "sleep 6543"}),)))
    client = Client(place, "--permission-mode", "bypassPermissions")
    client.say("wait")
    while not any("sleep 6543" in command for command in place.left_behind()):
        time.sleep(0.05)
    assert client.process.stdout is not None
    client.process.stdout.close()  # standard input stays open, as where somebody inherited it
    client.process.wait(timeout=20)
    assert place.left_behind() == []
    client.limit.cancel()
    for pipe in (client.process.stdin, client.process.stderr):
        assert pipe is not None
        pipe.close()


def test_pieces_of_text_come_where_they_are_wanted(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("one two three four five"))
    client = Client(place, "--include-partial-messages")
    client.say("count")
    client.until("result")
    client.leave()
    pieces = [one["event"]["delta"]["text"] for one in client.seen if one["type"] == "stream_event"]
    assert (len(pieces) > 1, "".join(pieces)) == (True, "one two three four five")


def test_a_picture_is_shown_and_an_answer_follows_a_schema(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker", more="vision = true"))
    server.play("worker", Says('{"colour": "red"}'))
    client = Client(place, "--json-schema", '{"type": "object", "required": ["colour"]}')
    data = base64.b64encode(picture()).decode()
    source = {"type": "base64", "media_type": "image/png", "data": data}
    client.say([{"type": "text", "text": "what colour?"}, {"type": "image", "source": source}])
    assert client.until("result")["structured_output"] == {"colour": "red"}
    client.say(
        [
            {"type": "text", "text": "and this?"},
            {"type": "image", "source": {**source, "data": "none"}},
        ]
    )
    assert "no picture" in client.until("result")["errors"][0]
    client.leave()
    shown = [part["type"] for part in server.asked("worker")[0].body["messages"][1]["content"]]
    assert shown == ["text", "image_url"]


# The real SDK.


def with_sdk(place: Place, use: Callable[[Any, Object], Awaitable[None]]) -> None:
    """Run `use` with the SDK and the options that let it start fugu."""
    sdk = pytest.importorskip("claude_agent_sdk", reason="the public SDK is not installed")
    binary = place.folder / "fugu"
    binary.write_text(f'#!/bin/sh\nexec {sys.executable} -m fugu_cli "$@"\n')
    binary.chmod(0o755)
    asyncio.run(use(sdk, {"cli_path": str(binary), "cwd": str(place.repo), "env": place.environ()}))


def test_the_sdk_runs_its_own_quick_start(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("4"))

    async def use(sdk: Any, options: Object) -> None:
        said = []
        async for message in sdk.query(
            prompt="What is 2 + 2?",
            options=sdk.ClaudeAgentOptions(
                system_prompt="You are a helpful assistant", max_turns=1, **options
            ),
        ):
            said.append(message)
            if isinstance(message, sdk.AssistantMessage):
                assert [block.text for block in message.content] == ["4"]
        assert isinstance(said[0], sdk.SystemMessage)
        assert (said[-1].subtype, said[-1].result) == ("success", "4")
        assert "You are a helpful assistant" in server.asked("worker")[0].text

    with_sdk(place, use)


def test_the_sdks_client_asks_its_callback_and_goes_on_talking(
    place: Place, server: Loopback
) -> None:
    fixing(place, server)

    async def use(sdk: Any, options: Object) -> None:
        asked = []

        async def may(name: str, given: Object, context: object) -> object:
            asked.append((name, Path(given["file_path"]).name))
            return sdk.PermissionResultAllow()

        options = sdk.ClaudeAgentOptions(can_use_tool=may, permission_mode="default", **options)
        async with sdk.ClaudeSDKClient(options=options) as client:
            await client.query("fix the tests")
            ends = [
                one async for one in client.receive_response() if isinstance(one, sdk.ResultMessage)
            ]
            server.play("worker", Says("It is fixed."))
            await client.query("and now?")
            ends += [
                one async for one in client.receive_response() if isinstance(one, sdk.ResultMessage)
            ]
        assert asked == [("Write", "calc.txt")]
        assert [one.subtype for one in ends] == ["success", "success"]
        assert ends[1].result == "It is fixed."

    with_sdk(place, use)
    assert (place.repo / "calc.txt").read_text() == "fixed\n"


def test_the_sdks_own_tools_are_called_in_its_process(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    given = []

    def react(asked: LoopbackAsked) -> Says:
        if "the sum is 5" in asked.results:
            return Says("Five.")
        if "mcp__calc__add" in json.dumps(asked.body["tools"]):
            return Says("I add.", (Use("mcp__calc__add", {"a": 2, "b": 3}),))
        return Says(
            "I look around.", (Use("glob", {"pattern": "*"}),), pause=0.2
        )  # the tools may join late

    server.react("worker", react)

    async def use(sdk: Any, options: Object) -> None:
        @sdk.tool("add", "Add two numbers", {"a": int, "b": int})
        async def add(args: Object) -> Object:
            given.append(args)
            return {"content": [{"type": "text", "text": f"the sum is {args['a'] + args['b']}"}]}

        calc = sdk.create_sdk_mcp_server("calc", tools=[add])
        options = sdk.ClaudeAgentOptions(
            mcp_servers={"calc": calc}, allowed_tools=["mcp__calc__add"], **options
        )
        async with sdk.ClaudeSDKClient(options=options) as client:
            await client.query("what is 2 + 3?")
            ends = [
                one async for one in client.receive_response() if isinstance(one, sdk.ResultMessage)
            ]
        assert [one.result for one in ends] == ["Five."]

    with_sdk(place, use)
    assert given == [{"a": 2, "b": 3}]


def test_the_sdks_hooks_judge_calls(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"), more="")
    write = Use("write", {"path": "new.txt", "content": "x"})
    server.play(
        "worker",
        Says("I write.", (write,)),
        Says("I look.", (Use("read", {"path": "calc.txt"}),)),
        Says("No."),
    )
    told: list[tuple[str, str]] = []

    async def use(sdk: Any, options: Object) -> None:
        async def before(given: Any, id: object, context: object) -> Object:
            told.append((given["hook_event_name"], given["tool_name"]))
            no = {"permissionDecision": "deny", "permissionDecisionReason": "nothing new"}
            return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **no}}

        async def asked(given: Any, id: object, context: object) -> Object:
            told.append((given["hook_event_name"], given["prompt"]))
            more = {"hookEventName": "UserPromptSubmit", "additionalContext": "Be brief."}
            return {"hookSpecificOutput": more}

        hooks = {
            "PreToolUse": [sdk.HookMatcher(matcher="Write", hooks=[before])],
            "UserPromptSubmit": [sdk.HookMatcher(hooks=[asked])],
        }
        options = sdk.ClaudeAgentOptions(permission_mode="acceptEdits", hooks=hooks, **options)
        async with sdk.ClaudeSDKClient(options=options) as client:
            await client.query("write something")
            ends = [
                one async for one in client.receive_response() if isinstance(one, sdk.ResultMessage)
            ]
        assert [one.result for one in ends] == ["No."]

    with_sdk(place, use)
    assert told == [("UserPromptSubmit", "write something"), ("PreToolUse", "Write")]
    assert not (place.repo / "new.txt").exists()
    assert "nothing new" in server.asked("worker")[1].text
    assert "Be brief." in server.asked("worker")[0].text


def test_a_message_that_a_hook_refuses_is_given_to_nobody_and_said_on_the_stream(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more="")
    refused = threading.Event()

    def answer(_: LoopbackAsked) -> Says:
        assert refused.wait(30)
        return Says("Done.")

    server.play("worker", answer)
    client = Client(place)
    hook = {"hookCallbackIds": ["hook_0"], "timeout": 60}
    client.control(subtype="initialize", hooks={"UserPromptSubmit": [hook]})
    for text, decision in (("look", {}), ("and leak it", {"decision": "block", "reason": "no"})):
        client.say(text)
        question = client.until("control_request")
        response = {"subtype": "success", "request_id": question["request_id"]}
        client.write({"type": "control_response", "response": {**response, "response": decision}})
        if not decision:
            server.wait_for("worker", 1)
    while (line := client.until("system"))["subtype"] != "steering_refused":
        pass
    assert line["error"].startswith("a hook refused the message: no")
    refused.set()
    assert client.until("result")["result"] == "Done."
    assert client.leave() == (0, "")
    assert not any(isinstance(event, Steered) for event in place.events())


def test_a_client_that_does_not_answer_for_a_hook_forbids_the_call(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more="")
    server.play(
        "worker", Says("I look.", (Use("read", {"path": "calc.txt"}),)), Says("I could not.")
    )
    client = Client(place)
    hook = {"matcher": "Read", "hookCallbackIds": ["hook_0"], "timeout": 60}
    assert (
        client.control(subtype="initialize", hooks={"PreToolUse": [hook]})["subtype"] == "success"
    )
    client.say("look")
    question = client.until("control_request")
    assert (question["request"]["subtype"], question["request"]["callback_id"]) == (
        "hook_callback",
        "hook_0",
    )
    said = {"subtype": "error", "request_id": question["request_id"], "error": "no such hook"}
    client.write({"type": "control_response", "response": said})
    assert client.until("result")["result"] == "I could not."
    assert "failed: no such hook" in server.asked("worker")[1].results[0]
    client.leave()
