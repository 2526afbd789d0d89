"""The model server's life, with a real small model: shared, replaced when dead, gone when nobody
needs it.
"""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from fugu_cli.errors import ModelFileError
from fugu_cli.local.server import ServerSettings, ServerState, physical_cores
from fugu_cli.local.server_lease import Lease, lease_server
from fugu_cli.local.sources import ModelFolder, default_sources
from fugu_cli.local.store import Store

MODEL = "smollm2-135m"
IDLE = 0.6
PATIENCE = 60.0

HOLD_A_LEASE = """
import asyncio, pathlib, sys
from fugu_cli.local.server_lease import lease_server

async def hold():
    held = await lease_server("smollm2-135m", context=1024, cache=pathlib.Path(sys.argv[1]), idle=float(sys.argv[2]))
    print(held.base_url, flush=True)
    await asyncio.sleep(600)

asyncio.run(hold())
"""


@pytest.fixture(scope="session")
def model_folder(real_cache: Path) -> Path:
    """The folder that holds the real model, fetched once."""
    asyncio.run(Store(real_cache, sources=default_sources(os.environ)).pull(MODEL))
    return real_cache / "models"


@pytest.fixture
def cache(model_folder: Path, tmp_path: Path) -> Path:
    """A cache of the test's own with the model in it, so that its servers are nobody else's."""
    asyncio.run(Store(tmp_path, sources=[ModelFolder(model_folder)]).pull(MODEL))
    return tmp_path


def leased(cache: Path, idle: float = IDLE) -> "asyncio.Future[Lease]":
    return asyncio.ensure_future(lease_server(MODEL, context=1024, cache=cache, idle=idle))


def state(cache: Path) -> ServerState:
    [folder] = (cache / "servers").iterdir()
    found = ServerState.read(folder)
    assert found is not None
    return found


def alive(pid: int) -> bool:
    words = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout
    return bool(words.strip()) and not words.startswith("Z")


def comes_true(what: Callable[[], bool]) -> bool:
    limit = time.monotonic() + PATIENCE
    while time.monotonic() < limit:
        if what():
            return True
        time.sleep(0.05)
    return False


async def asked(base_url: str, words: str) -> httpx.Response:
    async with httpx.AsyncClient(timeout=PATIENCE, trust_env=False) as client:
        body = {"messages": [{"role": "user", "content": words}], "max_tokens": 4, "temperature": 0}
        return await client.post(f"{base_url}/chat/completions", json=body)


@pytest.mark.real
def test_one_server_answers_for_every_lease_and_ends_when_all_are_closed(cache: Path) -> None:
    async def two_at_once() -> int:
        first, second = await asyncio.gather(leased(cache), leased(cache))
        assert (first.base_url, first.model, first.context) == (second.base_url, MODEL, 8192)
        answer = (await asked(first.base_url, "Say hello.")).json()
        assert (answer["model"], answer["usage"]["completion_tokens"]) == (MODEL, 4)
        await first.close()
        await first.close()
        await asyncio.sleep(3 * IDLE)
        assert (await asked(second.base_url, "And again.")).status_code == 200
        pid = state(cache).pid
        await second.close()
        return pid

    pid = asyncio.run(two_at_once())
    assert comes_true(lambda: not alive(pid))
    [folder] = (cache / "servers").iterdir()
    assert not (folder / "state.json").exists()


@pytest.mark.real
def test_a_server_is_reached_only_by_its_secret_path(cache: Path) -> None:
    async def without_it() -> tuple[int, int]:
        async with await leased(cache):
            bare = f"http://127.0.0.1:{state(cache).port}/v1"
            [folder] = (cache / "servers").iterdir()
            return (await asked(bare, "Hello?")).status_code, (
                folder / "state.json"
            ).stat().st_mode & 0o777

    assert asyncio.run(without_it()) == (404, 0o600)


@pytest.mark.real
def test_a_prompt_that_begins_like_the_last_one_is_read_from_there(cache: Path) -> None:
    async def twice() -> tuple[int, int]:
        async with await leased(cache) as held:
            long = "These are the rules of the house. " * 20
            await asked(held.base_url, f"{long} What is first?")
            await asked(held.base_url, "Something else altogether, to take its place. " * 9)
            usage = (await asked(held.base_url, f"{long} What is last?")).json()["usage"]
            return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]

    tokens, cached = asyncio.run(twice())
    assert cached > 0.8 * tokens


@pytest.mark.real
def test_no_server_outlives_a_client_that_was_killed(cache: Path) -> None:
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", HOLD_A_LEASE, str(cache), str(IDLE)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environ) as client:
        assert client.stdout is not None
        assert client.stdout.readline().startswith("http://127.0.0.1:")
        pid = state(cache).pid
        time.sleep(3 * IDLE)
        assert alive(pid)
        os.kill(client.pid, signal.SIGKILL)
    assert comes_true(lambda: not alive(pid))


@pytest.mark.real
def test_a_server_that_died_is_replaced(cache: Path) -> None:
    async def after_a_kill() -> tuple[int, str, str]:
        first = await leased(cache)
        pid = state(cache).pid
        os.kill(pid, signal.SIGKILL)
        assert comes_true(lambda: not alive(pid))
        async with await leased(cache) as second:
            assert (await asked(second.base_url, "Still there?")).status_code == 200
            await first.close()
            return pid, first.base_url, second.base_url

    pid, first, second = asyncio.run(after_a_kill())
    assert first != second
    assert state(cache).pid != pid


@pytest.mark.real
def test_a_damaged_model_is_an_error_in_llama_cpps_words(cache: Path) -> None:
    damaged = cache / "damaged.gguf"
    with (cache / "models" / f"{MODEL}.gguf").open("rb") as source:
        damaged.write_bytes(source.read(2_000_000))
    with pytest.raises(
        ModelFileError, match=r"The model .*damaged.gguf could not be loaded: (.|\n)*error loading"
    ) as caught:
        asyncio.run(lease_server(str(damaged), context=1024, cache=cache))
    assert str(damaged) in caught.value.hint


def test_a_model_that_is_not_here_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(ModelFileError) as caught:
        asyncio.run(lease_server(MODEL, context=1024, cache=tmp_path))
    assert (str(caught.value), caught.value.hint) == (
        f"The model '{MODEL}' is not on this machine yet.",
        f"Fetch it with: fugu models pull {MODEL}",
    )


def test_a_file_that_is_no_model_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "page.gguf").write_text("<html>Not found</html>")
    with pytest.raises(ModelFileError, match="could not be loaded"):
        asyncio.run(lease_server(str(tmp_path / "page.gguf"), context=1024, cache=tmp_path))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"pid": 1, "port": "no", "prefix": "/a"}'])
def test_a_state_that_makes_no_sense_is_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "state.json").write_text(text)
    assert ServerState.read(tmp_path) is None


def test_a_state_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    written = ServerState(7, 8080, "/secret")
    written.write(tmp_path)
    assert ServerState.read(tmp_path) == written
    assert written.base_url == "http://127.0.0.1:8080/secret/v1"


def test_a_server_takes_no_more_threads_than_there_are_cores() -> None:
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)
    assert ServerSettings("m", 1, "f").threads == 1
