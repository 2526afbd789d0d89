"""The real binary and keys: kept by `fugu login`, used like those of the environment, seen by no
agent. And the servers of models on this machine that `fugu pool` finds."""

import asyncio
import io
import json
import os
import stat
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fugu_cli.__main__ import called
from fugu_cli.cli.current_folder import LOGIN_NOTE, check_embedded
from fugu_cli.config import Config
from fugu_cli.local.store import Store
from fugu_cli.providers.local_servers import find_local_servers
from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import KEY, Loopback, Says, Use
from tests.unit.ui.tui.terminal import Terminal

VARIABLE = "XAI_API_KEY"


def kept(place: Place) -> Path:
    data = Path(place.variables.get("XDG_DATA_HOME", place.home / "data"))
    return data / "fugu" / "keys" / "credentials.json"


def keep(place: Place) -> None:
    done = place.fugu("login", "xai", "--no-check", stdin=f"{KEY}\n".encode())
    assert (done.code, done.err) == (0, "")
    assert KEY not in done.out


def use_kept_key(place: Place, more: str = "") -> None:
    """The agent's key is that of xAI, which the environment does not have."""
    place.configure(Agent("worker"), more=more)
    file = place.home / ".fugurc"
    file.write_text(file.read_text().replace("LOOPBACK_KEY", VARIABLE))


def test_a_kept_key_is_for_the_user_alone_and_goes_with_the_agents_calls(
    place: Place, server: Loopback
) -> None:
    use_kept_key(place)
    server.play("worker", Says("ACCEPT Hello."))
    before = place.fugu("run", "hi")
    assert (before.code, f"{VARIABLE} is not set" in before.err) == (1, True)
    keep(place)
    assert (
        stat.S_IMODE(kept(place).stat().st_mode),
        stat.S_IMODE(kept(place).parent.stat().st_mode),
    ) == (0o600, 0o700)
    assert json.loads(kept(place).read_text()) == {VARIABLE: KEY}
    done = place.fugu("run", "hi")
    assert done.code == 0, done.err
    assert server.asked("worker")[0].headers["authorization"] == f"Bearer {KEY}"


def test_the_environment_wins_over_a_kept_key(place: Place, server: Loopback) -> None:
    use_kept_key(place)
    keep(place)
    place.variables[VARIABLE] = KEY
    server.play("worker", Says("ACCEPT Hello."))
    assert place.fugu("run", "hi").code == 0
    told = place.fugu("login", "xai", "--no-check", stdin=b"another-key-0123456789")
    assert "XAI_API_KEY is set in the environment: that key is used" in told.err
    assert [
        line.split() for line in place.fugu("login").out.splitlines() if line.startswith("xai")
    ] == [["xai", VARIABLE, "in", "the", "environment"]]


@pytest.mark.parametrize("elsewhere", [False, True])
def test_no_command_of_an_agent_reads_a_kept_key(
    place: Place, server: Loopback, elsewhere: bool
) -> None:
    """Neither from the file, disguised as it may be, nor from the environment; nor where `data_dir`
    is another.
    """
    use_kept_key(place, f'data_dir = "{place.folder}/elsewhere"' if elsewhere else "")
    if elsewhere:  # deeper than files of secrets are looked for
        place.variables["XDG_DATA_HOME"] = str(place.home / "a" / "b" / "c" / "data")
    keep(place)
    command = f"base64 {kept(place)} || echo GONE; echo ${{{VARIABLE}:-UNSET}}; echo {KEY}"
    server.play("worker", Says("", (Use("bash", {"command": command}),)), Says("ACCEPT Done."))
    done = place.fugu("run", "--yolo", "go")
    assert done.code == 0, done.err
    (result,) = server.asked("worker")[-1].results
    assert "GONE" in result and "UNSET" in result
    assert KEY not in result + done.out + done.err
    folder = place.folder / "elsewhere" if elsewhere else place.home / "data" / "fugu"
    assert [log for log in folder.rglob("*.jsonl") if KEY in log.read_text()] == []


def test_a_kept_key_is_forgotten(place: Place) -> None:
    keep(place)
    assert place.fugu("login", "--remove", "xai").out == "the key of xai is forgotten\n"
    assert place.fugu("login", "--remove", "xai").out == "no key of xai was kept\n"
    assert json.loads(kept(place).read_text()) == {}


def test_a_kept_key_brings_its_providers_agents(place: Place) -> None:
    keep(place)
    names = [line.split()[0] for line in place.fugu("pool").out.splitlines()]
    assert names[:3] == ["name", "grok-4.3", "grok-4.7"]


@pytest.mark.parametrize(
    ("words", "given", "said"),
    [
        (["grook"], b"k", "there is no provider 'grook'"),
        (["gorq"], b"k", "did you mean 'groq'?"),
        (["xai"], b"", "there is no key"),
        (["xai"], b"\n", "there is no key"),
        (["xai"], b"two words", "the key holds a space or the end of a line"),
        (["xai"], b"one\ntwo\n", "the key holds a space or the end of a line"),
        (["xai"], "schlüssel".encode(), "the key holds a character that no key has"),
        (["xai"], b"a\0b", "the key holds a character that no key has"),
        (["xai"], b"\xff\xfe", "the key holds a character that no key has"),
        (["xai"], b"x" * 100_000, "a key has at most 8,192 characters"),
        (["--remove"], b"", "--remove needs a provider"),
        (["--base-url", "nowhere"], b"", "that is no address of a server"),
        (["--base-url", "http://me:key@host"], b"", "the address holds a password or a key"),
        (["--base-url", "http://host", "--no-check"], b"", "--no-check needs --model"),
        (["xai", "--model", "x"], b"", "--model and --wire belong to --base-url"),
        (["--remove", "nobody"], b"", "there is no provider 'nobody'"),
    ],
)
def test_what_is_no_key_or_no_provider_is_refused_and_nothing_is_kept(
    words: list[str],
    given: bytes,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(given)))
    code, told = called(["login", *words]), capsys.readouterr()
    assert (code, told.out, said in told.err) == (1, "", True)
    assert list(Path.home().rglob("credentials.json")) == []


def test_a_file_that_others_may_read_is_closed_to_them_and_that_is_said(place: Place) -> None:
    keep(place)
    kept(place).chmod(0o644)
    assert "could be read by others and is closed to them now" in place.fugu("pool").err
    assert stat.S_IMODE(kept(place).stat().st_mode) == 0o600
    assert place.fugu("pool").err == ""


@pytest.mark.parametrize("content", ["", "{", "[]", '{"XAI_API_KEY": 1}'])
def test_a_file_that_login_did_not_write_is_not_used_and_not_overwritten(
    place: Place, content: str
) -> None:
    kept(place).parent.mkdir(parents=True)
    kept(place).write_text(content)
    kept(place).chmod(0o600)
    done = place.fugu("login", "xai", "--no-check", stdin=KEY.encode())
    assert (done.code, "it is not what `fugu login` wrote" in done.err) == (2, True)
    assert kept(place).read_text() == content
    pool = place.fugu("pool")
    assert (pool.code, "it is not what `fugu login` wrote" in pool.err) == (0, True)


def test_a_link_in_place_of_the_file_is_not_followed(place: Place) -> None:
    keep(place)
    other = place.folder / "other.json"
    kept(place).rename(other)
    kept(place).symlink_to(other)
    assert f"the keys in {kept(place)} are not used" in place.fugu("pool").err


def test_a_place_that_cannot_be_written_is_said(place: Place) -> None:
    (place.home / "data").write_text("a file where the folder should be")
    done = place.fugu("login", "xai", "--no-check", stdin=KEY.encode())
    assert (done.code, f"cannot write {kept(place)}" in done.err) == (2, True)
    assert KEY not in done.err


def test_the_first_run_without_a_key_names_the_login(place: Place) -> None:
    done = place.fugu("run", "hi")
    assert (done.code, "`fugu login`" in done.err) == (2, True)


def test_a_key_without_a_known_model_is_named_by_the_pool_with_the_entry_to_add(
    place: Place,
) -> None:
    place.variables["DASHSCOPE_API_KEY"] = "k-0123456789"
    out = place.fugu("pool").out
    assert "not in the pool: dashscope: DASHSCOPE_API_KEY is set" in out
    assert '    api_key_env = "DASHSCOPE_API_KEY"' in out
    assert "k-0123456789" not in out


@contextmanager
def answering(status: int, body: bytes) -> Iterator[int]:
    """The port of a server on this machine that answers everything so."""

    class Exchange(BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("location", "http://127.0.0.1:1/v1/models")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Exchange)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


MODELS = json.dumps({"object": "list", "data": [{"id": "qwen3:8b"}, {"id": "gemma4"}]}).encode()


def test_a_server_on_this_machine_is_offered_with_a_command_that_works(place: Place) -> None:
    with answering(200, MODELS) as ollama, answering(200, MODELS) as llama:
        place.variables |= {"OLLAMA_HOST": f"127.0.0.1:{ollama}", "LLAMA_ARG_PORT": str(llama)}
        out = place.fugu("pool").out
        url = f"http://127.0.0.1:{ollama}/v1"
        command = f"login --base-url {url} --model qwen3:8b"
        offer = f"found: {url}, where Ollama listens, offers qwen3:8b, gemma4; `fugu {command}`"
        assert offer in out
        assert f"found: http://127.0.0.1:{llama}/v1, where llama.cpp listens" in out
        assert f"{url}, where Ollama listens, offers 2 models" in place.fugu("doctor").out
        assert place.fugu(*command.split()).code == 0
        after = place.fugu("pool").out
    assert after.splitlines()[1].split()[:4] == ["qwen3-8b", "strong", "openai", "qwen3:8b"]
    assert f"found: {url}" not in after


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, b"<html>hello</html>"),
        (200, b"[" * 100_000),
        (200, b'{"data": "x"}'),
        (200, b'{"data": [1, {"id": 2}, {"id": "\\u001b[2J"}]}'),
        (200, b'{"data": []}'),
        (200, b" " * 2_000_000),
        (302, MODELS),
        (500, MODELS),
    ],
)
def test_a_server_that_answers_with_something_else_is_ignored(status: int, body: bytes) -> None:
    with answering(status, body) as port:
        found = asyncio.run(find_local_servers({"OLLAMA_HOST": f":{port}"}))
    assert [server for server in found if server.name == "Ollama"] == []


def test_a_server_on_another_machine_is_not_asked(place: Place) -> None:
    with answering(200, MODELS) as port:
        place.variables["OLLAMA_HOST"] = f"192.0.2.1:{port}"
        assert f":{port}" not in place.fugu("pool").out


def test_a_run_asks_no_server_on_this_machine(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    server.play("worker", Says("ACCEPT Hello."))
    asked: list[str] = []

    class Counting(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)

    with ThreadingHTTPServer(("127.0.0.1", 0), Counting) as other:
        thread = threading.Thread(target=other.serve_forever, daemon=True)
        thread.start()
        place.variables["OLLAMA_HOST"] = f"127.0.0.1:{other.server_port}"
        assert place.fugu("run", "hi").code == 0
        other.shutdown()
    assert asked == []


REFUSAL = b'{"error": {"message": "This key was revoked: sk-loopback-0123456789"}}'


@pytest.mark.parametrize(
    ("status", "body", "code", "reason"),
    [
        (401, REFUSAL, 1, "(401): This key was revoked: ***"),
        (404, b"", 2, "--no-check keeps a key untried"),
        (200, b"<html>hello</html>", 2, "an HTML page instead of a list of models"),
        (200, b'{"data": []}', 2, "answers without a key, too"),
        (429, b"", 2, "rate limited"),
    ],
)
def test_a_key_that_its_provider_does_not_accept_is_not_kept_without_a_terminal(
    status: int,
    body: bytes,
    code: int,
    reason: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(KEY.encode())))
    with answering(status, body) as port:
        monkeypatch.setenv("XAI_BASE_URL", f"http://127.0.0.1:{port}/v1")
        assert called(["login", "xai"]) == code
    captured = capsys.readouterr()
    assert (captured.out, reason in captured.err, KEY in captured.err) == ("", True, False)
    assert list(Path.home().rglob("credentials.json")) == []


def test_a_model_of_an_own_server_joins_the_agents_that_keys_bring(
    place: Place, server: Loopback
) -> None:
    place.variables["DEEPSEEK_API_KEY"] = "k-0123456789"
    address = server.url.removesuffix("/v1")
    words = ["login", "--base-url", address]
    refused = place.fugu(*words, stdin=b"sk-other-0123456789")
    assert (refused.code, "(401): Incorrect API key provided" in refused.err) == (1, True)
    unnamed = place.fugu(*words, stdin=KEY.encode())
    assert f"{server.url} offers worker, checker" in unnamed.out
    assert (unnamed.code, "no model was named" in unnamed.err) == (1, True)
    typo = place.fugu(*words, "--model", "wroker", stdin=KEY.encode())
    assert "did you mean 'worker'?" in typo.err
    assert not (place.home / ".fugurc").exists()
    done = place.fugu(*words, "--model", "worker", stdin=KEY.encode())
    assert "those that your keys bring were added to it: deepseek-v4-flash" in done.out, done.err
    rows = [line.split() for line in place.fugu("pool").out.splitlines()[1:3]]
    assert [(row[0], row[3]) for row in rows] == [
        ("deepseek-v4-flash", "deepseek-v4-flash"),
        ("worker", "worker"),
    ]
    assert KEY not in (place.home / ".fugurc").read_text()
    server.play("worker", Says("ACCEPT Hello."))
    assert place.fugu("run", "--model", "worker", "hi").code == 0
    assert server.asked("worker")[0].headers["authorization"] == f"Bearer {KEY}"
    untried = ["--no-check", "--model", "worker"]
    new_key = "sk-new-0123456789"
    renewed = place.fugu("login", "--base-url", server.url, *untried, stdin=new_key.encode())
    assert "the new key of worker is saved as SERVER_" in renewed.out, renewed.err
    elsewhere = f"{server.url.removesuffix('/v1')}/elsewhere/v1"
    place.fugu("login", "--base-url", elsewhere, *untried, stdin=KEY.encode())
    assert sorted(json.loads(kept(place).read_text()).values()) == [KEY, new_key]
    again = place.fugu("login", "--base-url", server.url, *untried, stdin=b"")
    assert (again.code, "already, as worker" in again.err) == (1, True)


@contextmanager
def asking(place: Place) -> Iterator[Terminal]:
    """`fugu login xai` on a terminal, waiting for the key."""
    terminal = Terminal(
        [sys.executable, "-m", "fugu_cli", "login", "xai"], place.repo, place.environ()
    )
    try:
        terminal.sees("(it is not shown):")
        yield terminal
        terminal.ended()
    finally:
        terminal.close()


def test_a_typed_key_is_not_shown_and_kept_once_its_provider_accepts_it(
    place: Place, server: Loopback
) -> None:
    place.variables["XAI_BASE_URL"] = server.url
    with asking(place) as terminal:
        terminal.keys("sk-another-0123456789\r")
        terminal.sees("(401): Incorrect API key provided", "try another key")
        terminal.until(lambda screen: screen.count("(it is not shown):") == 2)
        terminal.keys(f"{KEY}\r")
        terminal.sees(f"accepted by {server.url[7:-3]}, 2 models")
    assert terminal.code == 0
    assert KEY.encode() not in terminal.raw
    assert json.loads(kept(place).read_text()) == {VARIABLE: KEY}


@pytest.mark.parametrize(("answer", "keys"), [("n\r", {}), ("y\r", {VARIABLE: KEY})])
def test_a_typed_key_that_cannot_be_tried_is_kept_after_a_yes(
    place: Place, answer: str, keys: dict[str, str]
) -> None:
    place.variables["XAI_BASE_URL"] = "http://127.0.0.1:1/v1"
    with asking(place) as terminal:
        terminal.keys(f"{KEY}\r")
        terminal.sees("the key could not be tried: xai: no connection to 127.0.0.1:1")
        terminal.keys(answer)
    file = kept(place)
    assert (json.loads(file.read_text()) if file.exists() else {}) == keys


@pytest.mark.parametrize(("keys", "code"), [("\r", 1), ("\x04", 1), ("\x03", 4)])
def test_whoever_types_no_key_keeps_none(place: Place, keys: str, code: int) -> None:
    with asking(place) as terminal:
        terminal.keys(keys)
    assert (terminal.code, kept(place).exists()) == (code, False)
    assert b"Traceback" not in terminal.raw


KEYRING = """
import json, os, pathlib
from keyring import errors

FILE = pathlib.Path(os.environ["RING"])

class Backend:
    priority = int(os.environ["RING_PRIORITY"].replace("missing", "0"))

def get_keyring():
    if os.environ["RING_PRIORITY"] == "missing":
        raise ModuleNotFoundError("no such backend")
    return Backend()

def _held():
    if "RING_LOCKED" in os.environ:
        raise errors.KeyringError("locked")
    return json.loads(FILE.read_text()) if FILE.exists() else {}

def set_password(service, name, key):
    FILE.write_text(json.dumps({**_held(), f"{service}/{name}": key}))

def get_password(service, name):
    return _held().get(f"{service}/{name}")

def delete_password(service, name):
    held = _held()
    del held[f"{service}/{name}"]
    FILE.write_text(json.dumps(held))
"""
ERRORS = "class KeyringError(Exception): ...\nclass PasswordDeleteError(KeyringError): ...\n"


def install_keyring(place: Place, priority: str) -> Path:
    """A package `keyring` that keeps its passwords in a file, which is given back."""
    package = place.folder / "site" / "keyring"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(KEYRING)
    (package / "errors.py").write_text(ERRORS)
    file = place.folder / "ring.json"
    path = f"{place.environ()['PYTHONPATH']}{os.pathsep}{package.parent}"
    place.variables |= {"PYTHONPATH": path, "RING": str(file), "RING_PRIORITY": priority}
    return file


def test_a_keyring_that_works_keeps_the_key_and_the_file_does_not(
    place: Place, server: Loopback
) -> None:
    ring = install_keyring(place, "5")
    use_kept_key(place)
    done = place.fugu("login", "xai", "--no-check", stdin=KEY.encode())
    assert "saved in the system's keyring" in done.out
    assert json.loads(ring.read_text()) == {f"fugu/{VARIABLE}": KEY}
    assert json.loads(kept(place).read_text()) == {VARIABLE: None}
    server.play("worker", Says("ACCEPT Hello."))
    assert place.fugu("run", "hi").code == 0
    assert server.asked("worker")[0].headers["authorization"] == f"Bearer {KEY}"
    place.variables["RING_LOCKED"] = "1"
    assert f"{VARIABLE} cannot be read from the keyring: unlock it" in place.fugu("pool").err
    assert place.fugu("login", "--remove", "xai").code == 2
    del place.variables["RING_LOCKED"]
    assert place.fugu("login", "--remove", "xai").code == 0
    assert (json.loads(ring.read_text()), json.loads(kept(place).read_text())) == ({}, {})


@pytest.mark.parametrize("priority", ["0", "-1", "missing"])
def test_a_keyring_without_a_usable_backend_is_left_alone(place: Place, priority: str) -> None:
    ring = install_keyring(place, priority)
    keep(place)
    assert (ring.exists(), json.loads(kept(place).read_text())) == (False, {VARIABLE: KEY})


def test_the_first_session_of_the_embedded_models_names_the_login_and_later_ones_do_not() -> None:
    store = Store(Config().cache)
    store.folder.mkdir(parents=True)
    for model in store.models:
        file = store.folder / model.filename
        file.touch()
        noted = {"size": 0, "mtime_ns": file.stat().st_mtime_ns, "sha256": model.sha256}
        Path(f"{file}.json").write_text(json.dumps(noted))
    assert check_embedded(Config(), {}) == (LOGIN_NOTE,)
    assert check_embedded(Config(), {"OPENAI_API_KEY": "k"}) == ()
    (Config().data / "sessions").mkdir(parents=True)
    assert check_embedded(Config(), {}) == ()
