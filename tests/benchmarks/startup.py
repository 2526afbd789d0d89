"""From the command to the first byte at the model's server: `fugu run --agent X "hi"` against a
server on this machine.

    python tests/benchmarks/startup.py [--rounds 11] [--checkout NAME=FOLDER ...]

Peers that are on PATH (codex, claude, opencode, aider) are started at the same server. Beside it:
the size of the first request, and what a program ends with where the server refuses every key
(401), within a minute. `acp` is `fugu acp` with an editor that opens a session and prompts at once.
`default` names no agent: the default coordinator chooses among three, and the choice does not
depend on the kind of the request.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

ENTRY = """\
[[agents]]
name = "{name}"
provider = "openai"
model = "{name}"
base_url = "{url}"
api_key_env = "LOOPBACK_KEY"
price = {{ input = {price}, output = {price} }}
context = 100000
"""
AGENTS = {"one": 1.0, "two": 4.0, "three": 16.0}
"""Names, and prices of a million tokens."""
CODEX = (
    *(
        "codex",
        "exec",
        "--skip-git-repo-check",
        "-c",
        'model="one"',
        "-c",
        'model_provider="loopback"',
    ),
    *(
        "-c",
        'model_providers.loopback={{name="loopback",base_url="{url}",wire_api="responses",env_key="LOOPBACK_KEY"}}',
    ),
    "hi",
)
OPENCODE = (
    '{{"provider": {{"loopback": {{"npm": "@ai-sdk/openai-compatible", '
    '"options": {{"baseURL": "{url}", "apiKey": "none"}}, "models": {{"one": {{}}}}}}}}}}'
)
PEERS: dict[str, tuple[Sequence[str], dict[str, str]]] = {
    "codex": (CODEX, {}),
    "claude": (
        ("claude", "-p", "hi"),
        {"ANTHROPIC_BASE_URL": "{server}", "ANTHROPIC_API_KEY": "none"},
    ),
    "opencode": (
        ("opencode", "run", "--model", "loopback/one", "hi"),
        {"OPENCODE_CONFIG_CONTENT": OPENCODE},
    ),
    "aider": (
        ("aider", "--model", "openai/one", "--message", "hi", "--yes"),
        {"OPENAI_API_BASE": "{url}"},
    ),
}
TIMEOUT = 60.0
PROMPT = 2
"""The number of the first prompt, whose answer is not waited for."""


@dataclass(frozen=True)
class Start:
    """One start: seconds to the first byte, CPU seconds up to there (children that ended included),
    modules, and the bytes of the first request, None where it does not say."""

    seconds: float
    cpu: float
    modules: int
    size: int | None


Command = tuple[list[str], dict[str, str]]
"""The words, and the environment."""


def cpu_seconds(process: int) -> float:
    """Of a process and its children that ended; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def start(
    words: Sequence[str], environment: dict[str, str], repo: Path, listener: socket.socket
) -> Start:
    """Starts a program, waits for the first byte of the first request that has a body, and ends
    it.
    """
    with tempfile.TemporaryFile() as errors:
        begun = time.perf_counter()
        streams = subprocess.PIPE if words[-1] == "acp" else subprocess.DEVNULL
        process = subprocess.Popen(
            words,
            cwd=repo,
            env=environment,
            stdin=streams,
            stdout=streams,
            stderr=errors,
            start_new_session=True,
        )
        try:
            if words[-1] == "acp":
                prompt_editor(process, repo)
            while True:
                connection, _ = listener.accept()
                connection.settimeout(TIMEOUT)
                with connection:
                    head = connection.recv(4)
                    took, cpu = time.perf_counter() - begun, cpu_seconds(process.pid)
                    if head == b"POST":  # not a question for the models or the version
                        size = content_length(connection)
                        break
        except TimeoutError:
            errors.seek(0)
            raise SystemExit(
                f"{words[0]} sent no request:\n{errors.read().decode()[-2000:]}"
            ) from None
        finally:
            os.killpg(
                process.pid, signal.SIGKILL
            )  # codex and opencode are programs that a script starts
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()
            drop_waiting(listener)
        errors.seek(0)
        return Start(took, cpu, errors.read().count(b"import time:"), size)


def prompt_editor(process: subprocess.Popen[bytes], repo: Path) -> None:
    """As an editor does: a session, and its first prompt."""
    assert process.stdin is not None and process.stdout is not None

    def ask(number: int, method: str, **given: object) -> dict[str, Any]:
        assert process.stdin is not None
        frame = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
        process.stdin.write(json.dumps(frame).encode() + b"\n")
        process.stdin.flush()
        while number < PROMPT and process.stdout is not None:
            answer = json.loads(process.stdout.readline())
            if answer.get("id") == number:
                return dict(answer["result"])
        return {}

    ask(0, "initialize", protocolVersion=1)
    session = ask(1, "session/new", cwd=str(repo), mcpServers=[])["sessionId"]
    ask(PROMPT, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "hi"}])


def drop_waiting(listener: socket.socket) -> None:
    """Connections that a program left, so that the next one's are its own."""
    listener.settimeout(0.1)
    with suppress(TimeoutError):
        while True:
            listener.accept()[0].close()
    listener.settimeout(TIMEOUT)


def content_length(connection: socket.socket) -> int | None:
    """What the rest of a request's head says about its body; None where it comes in chunks."""
    with connection.makefile("rb") as lines:
        for line in lines:
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                return int(value)
            if not line.strip():
                break
    return None


class Refusing(BaseHTTPRequestHandler):
    """A server of models that knows nobody's key."""

    def do_POST(self) -> None:
        """401, as OpenAI and Anthropic word it."""
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        error = (
            b'{"type": "authentication_error", "message": "invalid key", "code": "invalid_api_key"}'
        )
        body = b'{"type": "error", "error": ' + error + b"}"
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def refused(command: Command, repo: Path) -> str:
    """What a program ends with where its key is refused: `1 in 2 s`."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        command[0], cwd=repo, env=command[1], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        code = process.wait(TIMEOUT)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        return f"still tries after {TIMEOUT:.0f} s"
    return f"{code} in {time.perf_counter() - begun:.0f} s"


@contextmanager
def prepared(named: dict[str, Path], port: int) -> Iterator[tuple[Path, dict[str, Command]]]:
    """A repository of one file, and every program's command at the server of that port."""
    with tempfile.TemporaryDirectory() as folder:
        repo, home = Path(folder) / "repo", Path(folder) / "home"
        home.mkdir()
        repo.mkdir()
        (repo / "calc.py").write_text("def double(number):\n    return number * 2\n")
        for words in (
            ["init", "-q"],
            ["add", "-A"],
            ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "a"],
        ):
            subprocess.run(["git", *words], cwd=repo, check=True)
        server = f"http://127.0.0.1:{port}"
        places = {"server": server, "url": f"{server}/v1"}
        entries = [ENTRY.format(name=name, price=price, **places) for name, price in AGENTS.items()]
        (home / ".fugurc").write_text("\n".join(entries))
        base = {
            "PATH": os.environ["PATH"],
            "HOME": str(home),
            "LOOPBACK_KEY": "none",
            "OPENAI_API_KEY": "none",
        }
        commands: dict[str, Command] = {}
        code = "from fugu_cli.__main__ import main; main()"
        for name, checkout in named.items():
            words = [sys.executable, "-c", code, "run", "--agent", "one", "hi"]
            commands[name] = words, {**base, "PYTHONPATH": str(checkout)}
            commands[f"{name} acp"] = [*words[:3], "acp"], commands[name][1]
            commands[f"{name} default"] = [*words[:3], "run", "hi"], commands[name][1]
        for name, (given, more) in PEERS.items():
            if shutil.which(name):
                words = [word.format(**places) for word in given]
                commands[name] = (
                    words,
                    {**base, **{key: value.format(**places) for key, value in more.items()}},
                )
        yield repo, commands


def measure(named: dict[str, Path], rounds: int) -> dict[str, list[Start]]:
    """Every program in turn, `rounds` times, after one start that warms the caches."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        prepared(named, listener.getsockname()[1]) as places,
    ):
        listener.settimeout(TIMEOUT)
        repo, commands = places
        found: dict[str, list[Start]] = {name: [] for name in commands}
        for turn in range(rounds + 1):
            for name, (words, environment) in commands.items():
                one = start(words, environment, repo, listener)
                found[name] += [one] if turn else []
        for name in named:
            for way in ("", " default"):
                words, environment = commands[name + way]
                timed = [words[0], "-X", "importtime", *words[1:]]
                modules = start(timed, environment, repo, listener).modules
                found[name + way] = [replace(one, modules=modules) for one in found[name + way]]
        return found


def endings(named: dict[str, Path]) -> dict[str, str]:
    """What every program ends with where its key is refused."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        with prepared(named, server.server_port) as (repo, commands):
            ended = {
                name: "" if name.endswith(" acp") else refused(one, repo)
                for name, one in commands.items()
            }
        server.shutdown()
    return ended


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=FOLDER")
    given = parser.parse_args()
    named = {name: Path(folder) for name, folder in (pair.split("=", 1) for pair in given.checkout)}
    named = named or {"fugu": Path(__file__).parents[2]}
    ended = endings(named)
    print(
        f"| | first byte, s (median of {given.rounds}) | fastest, s | CPU, s | modules | "
        f"request, kB | key refused |"
    )
    print("|---|---:|---:|---:|---:|---:|---|")
    for name, starts in measure(named, given.rounds).items():
        seconds = [one.seconds for one in starts]
        cpu = statistics.median(one.cpu for one in starts)
        size = "" if starts[0].size is None else f"{starts[0].size / 1000:.0f}"
        row = (
            f"{statistics.median(seconds):.2f} | {min(seconds):.2f} | {cpu:.2f} | "
            f"{starts[0].modules or ''} | {size}"
        )
        print(f"| {name} | {row} | {ended.get(name, '')} |")


if __name__ == "__main__":
    main()
