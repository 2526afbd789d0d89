import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import quiet, unhurried

from fugu_cli.errors import AgentError, StorageError
from fugu_cli.messages import FromUser, Prompt
from fugu_cli.providers.scripted import Script, Scripted, ScriptedStep
from fugu_cli.providers.wrappers import CachedAgent, reply_key

PROMPT = Prompt(system="s", messages=(FromUser(text="ü"),))
SETTINGS = {"model": "m", "temperature": 0.5}


def scripted(*texts: str) -> Scripted:
    return Scripted("demo", Script(step=tuple(ScriptedStep(text=text) for text in texts)))


def test_the_same_call_is_made_once_and_said_again(tmp_path: Path) -> None:
    said: list[str] = []
    agent = CachedAgent(scripted("one\ntwo"), tmp_path, SETTINGS)
    first = asyncio.run(agent.reply(PROMPT, quiet, unhurried))
    again = CachedAgent(scripted(), tmp_path, {"temperature": 0.5, "model": "m"})
    assert asyncio.run(again.reply(PROMPT, said.append, unhurried)) == first
    assert said == ["one\ntwo"]


@given(seed=st.integers(), system=st.text())
def test_every_difference_is_another_call(seed: int, system: str) -> None:
    other = PROMPT.model_copy(update={"seed": seed, "system": f"not s{system}"})
    assert (
        len(
            {
                reply_key(SETTINGS, PROMPT),
                reply_key(SETTINGS, other),
                reply_key({"model": "m"}, PROMPT),
            }
        )
        == 3
    )


def test_a_damaged_reply_is_asked_for_again(tmp_path: Path) -> None:
    asyncio.run(CachedAgent(scripted("one"), tmp_path, SETTINGS).reply(PROMPT, quiet, unhurried))
    (kept,) = tmp_path.rglob("*.json")
    kept.write_bytes(kept.read_bytes()[:10])
    reply = asyncio.run(
        CachedAgent(scripted("two"), tmp_path, SETTINGS).reply(PROMPT, quiet, unhurried)
    )
    assert reply.text == "two"


def test_a_failure_is_not_kept(tmp_path: Path) -> None:
    agent = CachedAgent(scripted(), tmp_path, SETTINGS)
    with pytest.raises(AgentError):
        asyncio.run(agent.reply(PROMPT, quiet, unhurried))
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StorageError, match="a reply could not be kept"):
        asyncio.run(
            CachedAgent(scripted("one"), tmp_path / "file", SETTINGS).reply(
                PROMPT, quiet, unhurried
            )
        )
