"""The Python calls of one `fugu run`: how many, in how many modules, and what is derived twice.

    python tests/benchmarks/one_run.py [--checkout NAME=FOLDER ...]

A server on this machine answers three model calls; the second is answered with a bash call. fugu
runs in a process that notes every call of its own functions (sys.setprofile). A checkout is another
copy of the repository with its own .venv. Prints a table with a column for each checkout.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if sys.argv[1:2] != ["--result"]:
    sys.path.insert(0, str(ROOT))
MARK = "marked-by-the-profiler"
COMMAND = f"grep -rn add calc.py | head -5 && test -n {MARK}"
"""Its output does not hold the mark."""
CONFIGURATION = """\
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
JUDGED = ("fugu_cli.safety.policy", "judge")
PARSED = ("fugu_cli.safety.policy.shell_line", "parse_line")
ARGUMENTS = ("fugu_cli.session.call_arguments", "_parse_repeated")
APPENDED = ("fugu_cli.session.log", "append")


class Profile:
    """Counts calls of functions of the package `fugu_cli` in this process."""

    def __init__(self) -> None:
        self.calls: Counter[tuple[str, str]] = Counter()
        self.calls_of_event: Counter[tuple[str, str]] = Counter()
        self.most_per_event: Counter[tuple[str, str]] = Counter()
        self.for_command: Counter[tuple[str, str]] = Counter()
        self.modules_with_text: set[str] = set()
        """Modules with a function that is given the call's text, alone or in its arguments."""
        self.modules_with_command: set[str] = set()
        """These, and modules with a function that is given the call or an event that holds it."""
        self.functions_with_command: set[tuple[str, str]] = set()
        self.events = 0
        self._names: dict[CodeType, tuple[str, str] | None] = {}

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if event != "call":
            return
        code = frame.f_code
        if code not in self._names:
            module = frame.f_globals.get("__name__", "")
            is_ours = module.startswith("fugu_cli") and code.co_name != "<module>"
            self._names[code] = (module, code.co_qualname.rpartition(".")[2]) if is_ours else None
        name = self._names[code]
        if name is None:
            return
        self.calls[name] += 1
        self.calls_of_event[name] += 1
        if name == APPENDED:
            self.events += 1
            self.most_per_event |= self.calls_of_event
            self.calls_of_event.clear()
        arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
        values = [frame.f_locals.get(argument) for argument in arguments]
        if any(_has_text(value) for value in values):
            self.modules_with_text.add(name[0])
        if any(_has_command(value) for value in values):
            self.modules_with_command.add(name[0])
            self.functions_with_command.add(name)
            self.for_command[name] += 1

    def report(self) -> dict[str, Any]:
        self.most_per_event |= self.calls_of_event
        derived: dict[str, tuple[int, int]] = {}
        for (module, function), most in self.most_per_event.items():
            is_fold = module.startswith("fugu_cli.session.") and not module.endswith(".views")
            if is_fold and function in DERIVED:
                counts = (self.calls[module, function], most)
                derived[function] = max(counts, derived.get(function, (0, 0)))
        return {
            "calls": self.calls.total(),
            "modules": len({module for module, _ in self.calls}),
            "events": self.events,
            "judged": self.for_command[JUDGED],
            "parsed": self.for_command[PARSED],
            "arguments": self.for_command[ARGUMENTS],
            "modules_with_text": sorted(self.modules_with_text),
            "modules_with_command": sorted(self.modules_with_command),
            "top": [(".".join(name), count) for name, count in self.calls.most_common(60)],
            "functions_with_command": len(self.functions_with_command),
            "derived": derived,
        }


DERIVED = (
    "turns",
    "effective",
    "tests",
    "first_tests",
    "tests_before",
    "checks",
    "changes",
    "workflows",
    "pool",
    "cost",
    "failed_agents",
    "acceptance_blocker",
    "finished",
    "request",
)
"""Values that are derived from the events of a session, by the names of their functions."""


def _has_text(value: object) -> bool:
    """Return whether an argument is the call's text, or a collection or parsed arguments with it."""
    if isinstance(value, dict):
        value = list(value.values())
    texts = value if isinstance(value, list | tuple) else [value, getattr(value, "command", "")]
    return any(isinstance(text, str) and MARK in text for text in texts)


def _has_command(value: object) -> bool:
    """Return whether an argument has the call's text, or is the call or an event that holds it."""
    call = getattr(value, "call", value)
    return _has_text(value) or _has_text(getattr(call, "arguments", ""))


def profile_run(words: list[str], result: Path) -> None:
    """Run the command line `words` in this process and write what was counted to `result`."""
    from fugu_cli.__main__ import called

    profile = Profile()
    sys.setprofile(profile)
    try:
        code = called(words)
    finally:
        sys.setprofile(None)
    result.write_text(json.dumps({"exit_code": code, **profile.report()}))


def measure(checkout: Path) -> dict[str, Any]:
    """Profile one run of the fugu in `checkout`."""
    from tests.acceptance.loopback import KEY, Says, Use, running

    with tempfile.TemporaryDirectory(prefix="fugu-one-run-") as name, running() as loopback:
        folder = Path(name)
        repository, home, result = folder / "repository", folder / "home", folder / "result.json"
        repository.mkdir()
        home.mkdir()
        (repository / "calc.py").write_text("def add(a, b):\n    return a - b\n")
        git = ["git", "-C", str(repository), "-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-qm", "one"], check=True)
        loopback.play(
            "one",
            Says("I look at the file.", (Use("read", {"path": "calc.py"}),)),
            Says("I search for its uses.", (Use("bash", {"command": COMMAND}),)),
            Says("add(a, b) returns a - b."),
        )
        (home / ".fugurc").write_text(CONFIGURATION.format(url=loopback.url))
        program = [
            str(checkout / ".venv/bin/python"),
            str(Path(__file__).resolve()),
            "--result",
            str(result),
        ]
        words = ["run", "what does add return?"]
        environment = {**os.environ, "HOME": str(home), "LOOPBACK_KEY": KEY}
        environment["PYTHONPATH"] = str(checkout)
        process = subprocess.run(
            [*program, *words], cwd=repository, env=environment, capture_output=True, text=True
        )
        if not result.exists():
            raise SystemExit(process.stdout + process.stderr)
        return json.loads(result.read_text())


def report(results: dict[str, dict[str, Any]]) -> str:
    """The counts as a table in Markdown, a column for each checkout."""
    lines = [f"| | {' | '.join(results)} |", f"|---|{'---|' * len(results)}"]

    def add_row(title: str, cells: list[object]) -> None:
        lines.append(f"| {title} | {' | '.join(map(str, cells))} |")

    every = list(results.values())
    add_row("events", [result["events"] for result in every])
    add_row("calls of fugu's functions", [f"{result['calls']:,}" for result in every])
    add_row("modules with one", [result["modules"] for result in every])
    add_row("the bash call is judged", [result["judged"] for result in every])
    add_row("its line is parsed", [result["parsed"] for result in every])
    add_row("its arguments are parsed", [result["arguments"] for result in every])
    add_row("modules given its text", [len(result["modules_with_text"]) for result in every])
    add_row(
        "modules given the text, the call or its events",
        [len(result["modules_with_command"]) for result in every],
    )
    add_row("functions given one of these", [result["functions_with_command"] for result in every])
    for name in DERIVED:
        counts = [result["derived"].get(name, (0, 0)) for result in every]
        cells = [f"{count} ({most})" for count, most in counts]
        add_row(f"`{name}` derived (most for one event)", [*cells])
    return "\n".join(lines)


def main() -> None:
    """Print the table."""
    if sys.argv[1:2] == ["--result"]:
        profile_run(sys.argv[3:], Path(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkout", action="append", default=[], metavar="NAME=FOLDER")
    parser.add_argument(
        "--details", action="store_true", help="list modules given the text and frequent calls"
    )
    given = parser.parse_args()
    folders = {"this": ROOT}
    for checkout in given.checkout:
        name, _, folder = checkout.partition("=")
        folders[name] = Path(folder)
    results = {name: measure(folder) for name, folder in folders.items()}
    print(report(results))
    if given.details:
        for name, result in results.items():
            print(f"\n{name}, modules given its text:", *result["modules_with_text"], sep="\n")
            print("\nmodules given the call:", *result["modules_with_command"], sep="\n")
            print("", *(f"{count:6} {function}" for function, count in result["top"]), sep="\n")


if __name__ == "__main__":
    main()
