"""What `fugu pool check` finds out about an agent, on scripted ones."""

import asyncio
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.cli.pool import AgentProbe, probe_agent
from fugu_cli.messages import Reply
from fugu_cli.providers import Wait
from fugu_cli.providers.scripted import Script, Scripted
from tests.acceptance.loopback import KEY, Says, running

COUNTS = {"text": "1, 2, 3,\n4, 5\n", "usage": {"output": 20}}
CALLS = {"calls": [{"tool": "add_numbers", "arguments": {"a": 18, "b": 24}}]}
QUOTED = {"calls": [{"tool": "add_numbers", "arguments": {"b": "24", "a": "18"}}]}
LOOKS_UP = {"calls": [{"tool": "pieces_in_stock", "arguments": {"article": "A17"}}]}
KEEPS = {"text": '{"capital": "Paris"}'}


def found(*steps: dict[str, object]) -> AgentProbe:
    return asyncio.run(probe_agent(Scripted("agent", Script.model_validate({"step": steps}))))


@pytest.mark.parametrize(
    ("steps", "streams", "tools", "schema"),
    [
        ((COUNTS, CALLS, KEEPS), True, True, True),
        (
            ({"text": "one piece"}, {"text": "42"}, {"text": "I cannot know."}, {"text": "Paris"}),
            False,
            False,
            False,
        ),
        ((COUNTS, {"text": "42"}, LOOKS_UP, KEEPS), True, True, True),
        ((COUNTS, QUOTED, KEEPS), True, True, True),
        (
            (COUNTS, {"calls": [{"tool": "add_numbers", "arguments": "{18, 24"}]}, {"text": "[1]"}),
            True,
            False,
            False,
        ),
        (
            (COUNTS, {"calls": [{"tool": "add_numbers", "arguments": {"a": 1, "b": 2}}]}, KEEPS),
            True,
            False,
            True,
        ),
    ],
)
def test_what_an_agent_can_do_is_seen_from_what_it_does(
    steps: tuple[dict[str, object], ...], streams: bool, tools: bool, schema: bool
) -> None:
    probed = found(*steps)
    assert (probed.streams, probed.tools, probed.schema, probed.failure) == (
        streams,
        tools,
        schema,
        "",
    )


@pytest.mark.parametrize(
    ("line", "fills"), [("number * 2", True), ("return 42", False), ("", False)]
)
def test_an_agent_that_is_said_to_fill_in_lines_is_asked_for_one(line: str, fills: bool) -> None:
    async def fill(before: str, behind: str, wait: Wait) -> Reply:
        return Reply(text=line)

    script = Script.model_validate({"step": (COUNTS, CALLS, KEEPS)})
    assert asyncio.run(probe_agent(Scripted("agent", script), fill)).fills is fills
    assert found(COUNTS, CALLS, KEEPS).fills is None


def test_a_model_that_reasons_first_is_given_room_for_it() -> None:
    thought = {"stop": "length"}
    probed = found(thought, COUNTS, thought, CALLS, thought, KEEPS)
    assert (probed.streams, probed.tools, probed.schema, probed.output) == (True, True, True, 20)


def test_each_key_is_tried(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = (
        '[[agents]]\nname = "{name}"\nprovider = "openai"\nmodel = "m"\nbase_url = '
        '"{url}"\napi_key_env = "{key}"\n'
    )
    monkeypatch.setenv("GOOD_KEY", KEY)
    monkeypatch.setenv("OLD_KEY", "sk-expired")
    with running() as server:
        server.play("m", Says("1, 2"))
        keys = {"one": "GOOD_KEY", "again": "GOOD_KEY", "two": "OLD_KEY"}
        entries = [entry.format(name=name, url=server.url, key=key) for name, key in keys.items()]
        (Path.home() / ".fugurc").write_text("".join(entries))
        assert called(["pool", "check"]) == 2
        assert len(server.asked("m")) == 4
    one, again, two = capsys.readouterr().out.splitlines()
    assert one.startswith("one: answers") and again.startswith("again: answers")
    assert two.startswith("two: does not answer: two: the key in OLD_KEY was refused")


def test_an_agent_that_refuses_is_said_to_not_answer_with_what_to_do() -> None:
    refused = {
        "error": {"kind": "refused", "message": "the key was refused", "hint": "set another"}
    }
    assert found(refused) == AgentProbe(failure="agent: the key was refused; set another")


def test_a_limit_in_the_middle_does_not_say_what_an_agent_cannot_do() -> None:
    limited = {"error": {"kind": "limited", "message": "too many requests"}}
    assert found(COUNTS, limited) == AgentProbe(failure="agent: too many requests")
    unable = {"error": {"kind": "invalid", "message": "tools are not supported"}}
    assert found(COUNTS, unable, KEEPS).tools is False


def test_speed_is_only_told_where_there_is_enough_to_tell() -> None:
    assert AgentProbe(first=1.0, seconds=3.0, output=50).speed == 25.0
    assert AgentProbe(first=1.0, seconds=1.01, output=50).speed == 0.0
    assert AgentProbe(first=1.0, seconds=3.0, output=1).speed == 0.0


def test_the_command_ends_with_2_when_an_agent_does_not_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Path("script.toml").write_text('[[step]]\nerror = { kind = "refused", message = "no" }\n')
    entry = '[[agents]]\nname = "a"\nprovider = "scripted"\nmodel = "script.toml"\n'
    (Path.home() / ".fugurc").write_text(entry)
    assert called(["pool", "check"]) == 2
    assert capsys.readouterr().out.startswith("a: does not answer: ")
