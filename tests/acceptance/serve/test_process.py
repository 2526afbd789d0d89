"""The real `fugu serve`: its process, its signals, its words, its traces."""

import itertools
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fugu_cli.errors import InfrastructureError
from fugu_cli.safety.redaction import mark_for
from fugu_cli.server import ListenAddress
from fugu_cli.server.http_server import listen
from fugu_cli.session.events import Finished
from fugu_cli.session.log import read
from tests.acceptance import forked, loopback
from tests.acceptance.loopback import Breaks, Loopback, Says

BODY = {"model": "fugu", "messages": [{"role": "user", "content": "tell"}]}


def entry(server: Loopback, name: str, slot: str) -> str:
    return (
        f'[[agents]]\nname = "{name}"\nprovider = "openai"\nmodel = "{name}"\nbase_url = '
        f'"{server.url}"\n'
        f'api_key_env = "LOOPBACK_KEY"\nslot = "{slot}"\nprice = {{ input = 1.0, output = 2.0 }}\n'
    )


@pytest.fixture(scope="module")
def server() -> Iterator[Loopback]:
    with loopback.running() as server:
        yield server


@contextmanager
def process(
    server: Loopback, *arguments: str, files: int = 0
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program and its address, ended with the block if it has not ended yet. `files`: how many
    it may open.
    """

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))

    settings = (
        'coordinator = "cascade"\n' + entry(server, "one", "cheap") + entry(server, "two", "strong")
    )
    (Path.home() / ".fugurc").write_text(settings)
    command = [sys.executable, "-m", "fugu_cli", "serve", "--port", "0", *arguments]
    environ = {
        **os.environ,
        "LOOPBACK_KEY": loopback.KEY,
        "PYTHONPATH": str(forked.ROOT),
        "PYTHONWARNINGS": "error",
    }
    with subprocess.Popen(
        command,
        env=environ,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=limited if files else None,
    ) as made:
        try:
            assert made.stderr is not None
            line = next((line for line in made.stderr if "listening on" in line), "")
            yield made, re.sub(r".*listening on (\S+)/v1\s*", r"\1", line)
        finally:
            made.kill()


def fugu(*words: str) -> tuple[int, str, str]:
    """The exit code and what is said of another command."""
    more = {"LOOPBACK_KEY": loopback.KEY, "PYTHONPATH": str(forked.ROOT), "PYTHONWARNINGS": "error"}
    done = forked.run(words, Path.cwd(), {**os.environ, **more})
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_it_answers_leaves_a_trace_and_lets_answers_end_when_it_is_stopped(
    server: Loopback,
) -> None:
    server.play("one", Says("slow but sure", slow=0.1))
    server.play("two", Says("ACCEPT"))
    answers: list[httpx.Response] = []
    with process(server) as (made, url):
        ask = threading.Thread(
            target=lambda: answers.append(httpx.post(f"{url}/v1/chat/completions", json=BODY))
        )
        ask.start()
        server.wait_for("one")
        made.send_signal(signal.SIGTERM)
        ask.join(20)
        assert made.wait(20) == 0
        assert made.stderr is not None
        assert "stopping after 1 answer;" in made.stderr.read()
    answer = answers[0].json()
    assert answer["choices"][0]["message"]["content"] == "slow but sure"
    _, shown, _ = fugu("trace", answer["id"])
    assert "request 1: tell" in shown
    assert re.search(r"1 +worker +one", shown)
    assert re.search(r"2 +verifier +two", shown)


def test_a_turn_in_full_makes_up_no_prompt_for_what_a_client_sent(server: Loopback) -> None:
    server.play("two", Says("it is 42"))
    said = [
        {"role": "assistant", "content": "ask me"},
        {"role": "user", "content": "and the answer?"},
    ]
    with process(server) as (made, url):
        body = {"model": "two", "messages": [*BODY["messages"], *said]}
        trace = httpx.post(f"{url}/v1/chat/completions", json=body, timeout=30).json()["id"]
        made.send_signal(signal.SIGTERM)
        assert made.wait(20) == 0
    turns = [fugu("trace", trace, "--turn", "1", "--request", request)[1] for request in ("1", "2")]
    assert "\nask me\n" in turns[0] and "was shown" not in turns[0]
    assert (
        "What two was shown ─" in turns[1]
        and "  the conversation as the client of `fugu serve` sent it" in turns[1]
    )
    assert "\nit is 42\n" in turns[1]
    assert "You are the Worker now" not in "".join(turns)


def test_a_second_signal_ends_it_at_once_and_the_trace_is_there(server: Loopback) -> None:
    server.play("one", Breaks("hang_middle"))
    ended: list[tuple[int, str]] = []
    with process(server) as (made, url):

        def ask() -> None:
            answer = httpx.post(f"{url}/v1/chat/completions", json=BODY, timeout=30)
            ended.append((answer.status_code, answer.json()["error"]["message"]))

        asking = threading.Thread(target=ask)
        asking.start()
        server.wait_for("one")
        made.send_signal(signal.SIGINT)
        time.sleep(0.2)
        made.send_signal(signal.SIGINT)
        assert made.wait(20) == 0
        asking.join(20)
        assert made.stderr is not None
        assert "Traceback" not in made.stderr.read()
    traces = list(Path.home().glob("**/served/*.jsonl"))
    assert '"type":"interrupted"' in traces[0].read_text()
    assert read(traces[0])[-1].event == Finished(
        reason="interrupted", message="the endpoint was stopped"
    )
    assert ended == [(503, "the endpoint is stopping")]


def test_a_stream_that_has_begun_ends_with_the_reason_when_the_endpoint_is_stopped(
    server: Loopback,
) -> None:
    server.play("one", Says("word " * 200, slow=0.1))
    with process(server, "--grace", "1") as (made, url):
        asked = {**BODY, "model": "one", "stream": True}
        with httpx.stream("POST", f"{url}/v1/chat/completions", json=asked, timeout=30) as answer:
            pieces = answer.iter_text()
            said = next(pieces)
            made.send_signal(signal.SIGTERM)
            said += "".join(pieces)
        assert made.wait(20) == 0
        assert made.stderr is not None
        assert "Traceback" not in made.stderr.read()
    assert [line for line in said.splitlines() if "the endpoint is stopping" in line]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--host", "0.0.0.0"), 1, "no token protects it"),
        (("--max-concurrent", "0"), 1, "limits must be above 0"),
        (("--agent", "nobody"), 1, "no agent or model named nobody"),
        (("--replica",), 1, "replicas cannot keep the budget of a day or project"),
    ],
)
def test_what_cannot_begin_says_why(
    server: Loopback, arguments: tuple[str, ...], code: int, words: str
) -> None:
    budget = "max_budget_usd = { day = 1.0, project = 2.0 }\n"
    (Path.home() / ".fugurc").write_text(budget + entry(server, "one", "cheap"))
    done, _, said = fugu("serve", *arguments)
    assert (done, words in said) == (code, True), said


@pytest.mark.parametrize(
    ("host", "why"),
    [
        ("a..b", "it is no name of a host"),
        ("127.0.0.1:80", "known|service"),
        ("192.0.2.1", "assign requested address"),
    ],
)
def test_an_address_that_is_not_of_this_machine_says_so(host: str, why: str) -> None:
    with pytest.raises(InfrastructureError, match=why) as raised:
        listen(ListenAddress(host=host, port=0))
    assert (
        raised.value.hint
        == "--host takes an address of this machine: 127.0.0.1, ::1, 0.0.0.0 for all of them"
    )


def test_a_port_that_is_taken_says_so(server: Loopback) -> None:
    with process(server) as (_, url):
        port = url.rpartition(":")[2]
        code, _, said = fugu("serve", "--port", port)
    assert (code, f"cannot listen on 127.0.0.1 port {port}" in said) == (2, True), said


def test_a_secret_in_two_streamed_pieces_reaches_no_client(server: Loopback) -> None:
    asks: list[tuple[str, dict[str, str]]] = [
        ("one", {}),
        ("fugu", {}),
        ("fugu", {"x-fugu-verify": "false"}),
    ]
    with process(server) as (_, url):
        for (model, headers), stream in itertools.product(asks, [True, False]):
            server.play("one", Says(f"The key is {loopback.KEY}, and that is all."))
            server.play("two", Says("ACCEPT"))
            body = {**BODY, "model": model, "stream": stream}
            answer = httpx.post(
                f"{url}/v1/chat/completions", json=body, headers=headers, timeout=30
            ).text
            if stream:
                chunks = [
                    json.loads(line[6:])
                    for line in answer.splitlines()
                    if line.startswith("data: {")
                ]
                said = (
                    choice["delta"].get("content") or ""
                    for chunk in chunks
                    for choice in chunk["choices"]
                )
                answer = "".join(said)
                assert answer == f"The key is {mark_for(loopback.KEY)}, and that is all.", (
                    model,
                    headers,
                )
            assert mark_for(loopback.KEY) in answer, (model, headers)
            assert loopback.KEY[:8] not in answer, (model, headers)


def test_a_client_with_tools_of_its_own_gets_secrets_as_they_are(server: Loopback) -> None:
    server.play("one", Says(f"The key is {loopback.KEY}."))
    tools = [{"type": "function", "function": {"name": "write", "parameters": {"type": "object"}}}]
    with process(server) as (_, url):
        answer = httpx.post(
            f"{url}/v1/chat/completions", json={**BODY, "tools": tools}, timeout=30
        ).json()
    assert answer["choices"][0]["message"]["content"] == f"The key is {loopback.KEY}."
