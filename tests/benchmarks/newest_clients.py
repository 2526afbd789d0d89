"""Try the newest version of each client of `fugu serve` and print a table.

    python -m tests.benchmarks.newest_clients [NAME...]

Each client is installed by its package manager into a temporary folder, and the tests that drive it
run against the real endpoint with that version. Needs npm and pip, and the registries they are set
up for. Nothing here gates a change: a client that broke us overnight is a row to read.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

SERVE = "tests/acceptance/serve"
OWN_TOOLS = f"{SERVE}/test_clients.py::test_a_client_works_with_its_own_tools"


@dataclass(frozen=True)
class Client:
    """A client and the tests that drive it. `manager` is npm for programs, pip for libraries."""

    manager: str
    package: str
    tests: str
    calls: str


CLIENTS = {
    "codex": Client(
        "npm", "@openai/codex", f"{OWN_TOOLS}[codex]", "a command of its own, after --write-client"
    ),
    "claude-code": Client("npm", "@anthropic-ai/claude-code", f"{OWN_TOOLS}[claude]", "the same"),
    "opencode": Client("npm", "opencode-ai", f"{OWN_TOOLS}[opencode]", "the same"),
    "qwen-code": Client("npm", "@qwen-code/qwen-code", f"{OWN_TOOLS}[qwen]", "a command"),
    "openai": Client("pip", "openai", f"{SERVE}/test_openai_sdk.py", "all tests of the SDK"),
    "anthropic": Client(
        "pip", "anthropic", f"{SERVE}/test_anthropic_sdk.py", "all tests of the SDK"
    ),
    "claude-agent-sdk": Client(
        "pip", "claude-agent-sdk", "tests/acceptance/test_sdk.py", "all tests of `fugu sdk`"
    ),
    "mcp": Client("pip", "mcp", "tests/acceptance/test_mcp.py", "all tests of MCP servers"),
}


@dataclass(frozen=True)
class Trial:
    """The newest version of a client, "" if it could not be installed, and what came of it."""

    version: str
    result: str


def install(client: Client, folder: Path) -> str:
    """Install the newest version into `folder` and return its number, "" if that fails."""
    if client.manager == "npm":
        command = ["npm", "install", "--silent", "--prefix", str(folder), client.package]
        if subprocess.run(command, capture_output=True).returncode:
            return ""
        metadata = folder / "node_modules" / client.package / "package.json"
        return _printed(["node", "-p", f"require({str(metadata)!r}).version"], {})
    pip = [sys.executable, "-m", "pip", "install", "-q", "--upgrade", "--target", str(folder)]
    if subprocess.run([*pip, client.package], capture_output=True).returncode:
        return ""
    code = f"from importlib.metadata import version; print(version({client.package!r}))"
    return _printed([sys.executable, "-c", code], {"PYTHONPATH": str(folder)})


def _printed(command: list[str], variables: dict[str, str]) -> str:
    environ = {**os.environ, **variables}
    return subprocess.run(command, capture_output=True, text=True, env=environ).stdout.strip()


def run_trial(client: Client, folder: Path) -> Trial:
    """Install a client, run its tests and say how they ended."""
    version = install(client, folder)
    if not version:
        return Trial("", "could not be installed")
    environ = dict(os.environ)
    if client.manager == "npm":
        environ["PATH"] = f"{folder / 'node_modules' / '.bin'}{os.pathsep}{environ['PATH']}"
    else:
        environ["PYTHONPATH"] = str(folder)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-rs", client.tests]
    tests = subprocess.run(command, capture_output=True, text=True, env=environ)
    if tests.returncode:
        failed = [line for line in tests.stdout.splitlines() if line.startswith("FAILED")]
        return Trial(version, f"{len(failed) or 'some'} failed: {'; '.join(failed[:3])}")
    return Trial(version, "not run: skipped" if "SKIPPED" in tests.stdout else "works")


def main(names: list[str]) -> None:
    unknown = set(names) - CLIENTS.keys()
    if unknown:
        sys.exit(f"no client {', '.join(sorted(unknown))}; there are {', '.join(CLIENTS)}")
    print("| client | version | what was called | result |\n| --- | --- | --- | --- |")
    for name in names or CLIENTS:
        client = CLIENTS[name]
        with tempfile.TemporaryDirectory(prefix="fugu-client-") as folder:
            trial = run_trial(client, Path(folder))
        row = (name, trial.version or "-", client.calls, trial.result)
        print(f"| {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
