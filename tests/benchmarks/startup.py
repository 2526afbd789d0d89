"""From the command to the first byte at the model's server: `fugu run --agent X "hi"` against a server on this machine.

python tests/benchmarks/startup.py [--rounds 11] [--checkout NAME=FOLDER ...]
Peers that are on PATH (codex, claude, opencode, aider) are started at the same server.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

FUGURC = """\
[[agents]]
name = "one"
provider = "openai"
model = "one"
base_url = "{url}"
api_key_env = "LOOPBACK_KEY"
slot = "strong"
price = {{ input = 1.0, output = 1.0 }}
context = 100000
"""
CODEX = (
    *("codex", "exec", "--skip-git-repo-check", "-c", 'model="one"', "-c", 'model_provider="loopback"'),
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
    "claude": (("claude", "-p", "hi"), {"ANTHROPIC_BASE_URL": "{server}", "ANTHROPIC_API_KEY": "none"}),
    "opencode": (("opencode", "run", "--model", "loopback/one", "hi"), {"OPENCODE_CONFIG_CONTENT": OPENCODE}),
    "aider": (("aider", "--model", "openai/one", "--message", "hi", "--yes"), {"OPENAI_API_BASE": "{url}"}),
}
TIMEOUT = 60.0


@dataclass(frozen=True)
class Start:
    """One start: seconds to the first byte, CPU seconds up to there (children that ended included), modules."""

    seconds: float
    cpu: float
    modules: int


def cpu_seconds(process: int) -> float:
    """Of a process and its children that ended; 0 where the system does not say."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def start(words: Sequence[str], environment: dict[str, str], repo: Path, listener: socket.socket) -> Start:
    """Starts a program, waits for the first byte of the first request that has a body, and ends it."""
    with tempfile.TemporaryFile() as errors:
        begun = time.perf_counter()
        process = subprocess.Popen(
            words, cwd=repo, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=errors
        )
        try:
            while True:
                connection, _ = listener.accept()
                connection.settimeout(TIMEOUT)
                with connection:
                    head = connection.recv(4)
                    took, cpu = time.perf_counter() - begun, cpu_seconds(process.pid)
                    if head == b"POST":  # not a question for the models or the version
                        break
        except TimeoutError:
            errors.seek(0)
            raise SystemExit(f"{words[0]} sent no request:\n{errors.read().decode()[-2000:]}") from None
        finally:
            process.kill()
            process.wait()
        errors.seek(0)
        return Start(took, cpu, errors.read().count(b"import time:"))


def measure(named: dict[str, Path], rounds: int) -> dict[str, list[Start]]:
    """Every program in turn, `rounds` times, after one start that warms the caches."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(TIMEOUT)
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
        server = f"http://127.0.0.1:{listener.getsockname()[1]}"
        places = {"server": server, "url": f"{server}/v1"}
        (home / ".fugurc").write_text(FUGURC.format(**places))
        base = {"PATH": os.environ["PATH"], "HOME": str(home), "LOOPBACK_KEY": "none", "OPENAI_API_KEY": "none"}
        commands: dict[str, tuple[list[str], dict[str, str]]] = {}
        code = "from fugu_cli.__main__ import main; main()"
        for name, checkout in named.items():
            words = [sys.executable, "-c", code, "run", "--agent", "one", "hi"]
            commands[name] = words, {**base, "PYTHONPATH": str(checkout)}
        for name, (given, more) in PEERS.items():
            if shutil.which(name):
                words = [word.format(**places) for word in given]
                commands[name] = words, {**base, **{key: value.format(**places) for key, value in more.items()}}
        found: dict[str, list[Start]] = {name: [] for name in commands}
        for turn in range(rounds + 1):
            for name, (words, environment) in commands.items():
                one = start(words, environment, repo, listener)
                found[name] += [one] if turn else []
        for name in named:
            words, environment = commands[name]
            counted = start([words[0], "-X", "importtime", *words[1:]], environment, repo, listener)
            found[name] = [Start(one.seconds, one.cpu, counted.modules) for one in found[name]]
        return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=FOLDER")
    given = parser.parse_args()
    named = dict(pair.split("=", 1) for pair in given.checkout) or {"fugu": str(Path(__file__).parents[2])}
    print(f"| | first byte, s (median of {given.rounds}) | fastest, s | CPU, s | modules |\n|---|---:|---:|---:|---:|")
    for name, starts in measure({name: Path(folder) for name, folder in named.items()}, given.rounds).items():
        seconds = [one.seconds for one in starts]
        cpu = statistics.median(one.cpu for one in starts)
        modules = starts[0].modules or ""
        print(f"| {name} | {statistics.median(seconds):.2f} | {min(seconds):.2f} | {cpu:.2f} | {modules} |")


if __name__ == "__main__":
    main()
