import asyncio
from pathlib import Path

import pytest
from servers import quiet, unhurried

from fugu_cli.errors import AgentError, ConfigError
from fugu_cli.messages import Call, FromUser, Prompt, Reply, Thinking, Usage
from fugu_cli.providers.retry import RetryClock, Retrying
from fugu_cli.providers.scripted import Script, Scripted, load_script

PROMPT = Prompt(system="s", messages=(FromUser(text="u"),))

SCRIPT = """
[[step]]
text = "I look.\\nThen I act."
calls = [{ tool = "read", arguments = { path = "ü.py" } }, { tool = "edit", arguments = "{broken", id = "mine" }]
usage = { input = 120, cached = 100, output = 12 }

[[step]]
text = "Half a sen"
error = { kind = "limited", message = "slow down", retry = true, after = 2.0 }

[[step]]
text = "Done."
thinking = "hm"
model = "served-by"
stop = "length"
"""

FIRST = Reply(
    text="I look.\nThen I act.",
    calls=(
        Call(id="demo-0-0", tool="read", arguments='{"path": "ü.py"}'),
        Call(id="mine", tool="edit", arguments="{broken"),
    ),
    usage=Usage(input=120, cached=100, output=12),
    model="demo",
    stop="calls",
)
LAST = Reply(text="Done.", thinking=(Thinking(text="hm"),), model="served-by", stop="length")


@pytest.fixture
def script(tmp_path: Path) -> Script:
    path = tmp_path / "demo.toml"
    path.write_text(SCRIPT, encoding="utf-8")
    return load_script(path)


def ask(agent: Scripted | Retrying) -> Reply:
    return asyncio.run(agent.reply(PROMPT, quiet, unhurried))


def test_the_steps_are_answered_in_order_and_the_end_is_said(script: Script) -> None:
    agent = Scripted("demo", script)
    assert ask(agent) == FIRST
    with pytest.raises(AgentError) as limited:
        ask(agent)
    assert (str(limited.value), limited.value.kind, limited.value.retry, limited.value.after) == (
        "demo: slow down",
        "limited",
        True,
        2.0,
    )
    assert ask(agent) == LAST
    with pytest.raises(
        AgentError, match="the script ends after 2 replies and one more is asked for"
    ):
        ask(agent)


def test_a_killed_session_goes_on_behind_the_replies_it_has(script: Script) -> None:
    with pytest.raises(AgentError, match="slow down"):
        ask(Scripted("demo", script, done=1))
    with pytest.raises(AgentError, match="ends after 2 replies"):
        ask(Scripted("demo", script, done=2))
    with pytest.raises(AgentError, match="ends after 7 replies"):
        ask(Scripted("demo", script, done=7))


def test_it_can_be_tried_again_like_any_other(script: Script) -> None:
    waits: list[tuple[str, float]] = []
    said: list[str] = []

    async def no_sleep(seconds: float) -> None:
        pass

    agent = Retrying(Scripted("demo", script, done=1), time=RetryClock(sleep=no_sleep))
    reply = asyncio.run(
        agent.reply(PROMPT, said.append, lambda pause: waits.append((pause.why, pause.seconds)))
    )
    assert (reply, waits, said) == (LAST, [("demo: slow down", 2.0)], ["Half a sen", "Done."])


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[[step]", "is no TOML"),
        ("[[step]]\ntxt = 'a'", "step.1.txt: Extra inputs are not permitted"),
        ("[[step]]\n[[step]]\nerror = { kind = 'odd' }", "step.2.error.kind: Input should be"),
        ("", "step: Field required"),
    ],
)
def test_a_bad_script_is_named_with_its_place(text: str, fault: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        load_script(path)
    assert str(path) in str(raised.value) and fault in str(raised.value)


def test_a_missing_script_is_a_configuration_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        load_script(tmp_path / "none.toml")
