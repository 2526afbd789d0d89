"""Repositories with one or two faults put into them: what small models do where a fault is deeper
than its test.

    python tests/benchmarks/mutants.py --out DIR [--single 12] [--double 8] [--seed 1] python
    tests/benchmarks/embedded_pool.py --tasks DIR --out OUT --only mutants --arms trinity --limit
    150

The first writes DIR/mutants.jsonl, tasks as `fugu eval` takes them: the repositories below, each
several modules that call one another, with one token of one or two functions changed (or a
statement left out) so that tests fail. Nothing is drawn from where models have learned: both were
written for fugu. Which tests fail is seen by running them.
"""

from __future__ import annotations

import argparse
import io
import json
import random
import subprocess
import sys
import tempfile
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from fugu_cli.local import functions as source_functions

HERE = Path(__file__).parent
REPOSITORIES = (HERE / "repositories" / "formulas", HERE.parent / "demo" / "invoices")
MENDED = {"invoices/columns.py": ("lines.add(", "lines.append(")}
"""The fault that the demonstration has of its own."""
COMMAND = "python -m pytest -q -p no:cacheprovider tests"
PROMPT = (
    f"Some tests in this repository fail. Find the cause and fix the code so that `{COMMAND}` "
    f"passes. "
)
PROMPT += "Do not change the tests."
SWAPS = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==", "+": "-", "-": "+", "*": "+", "//": "%",
    "/": "*", "+=": "-=", "and": "or", "or": "and", "not": "", "append": "add", "ljust": "rjust", "rjust": "ljust",
    "max": "min", "min": "max", "upper": "lower", "0": "1", "1": "2", "2": "1", "100": "10", "50": "0",
}  # fmt: skip
SECONDS = 20.0


@dataclass(frozen=True)
class Mutant:
    """One line of a file, changed: `number` from 0; the name of the function it is in."""

    path: str
    function: str
    number: int
    line: str


def mutants(path: str, content: str) -> Iterator[Mutant]:
    """Every change of one token in a function of a Python file, and every plain statement left
    out.
    """
    lines = content.split("\n")
    inside = {
        number: one.name
        for one in source_functions.functions(path, content)
        for number in range(one.start + 1, one.end)
    }
    for token in tokenize.generate_tokens(io.StringIO(content).readline):
        number, (_, begin), (_, end) = token.start[0] - 1, token.start, token.end
        if number in inside and token.start[0] == token.end[0] and token.string in SWAPS:
            line = lines[number]
            if not line.lstrip().startswith(("def ", "@")):
                yield Mutant(
                    path, inside[number], number, line[:begin] + SWAPS[token.string] + line[end:]
                )
    for number, name in inside.items():
        words = lines[number].split()
        if (
            len(words) > 2
            and words[1] in ("=", "+=")
            and lines[number].count("(") == lines[number].count(")")
        ):
            yield Mutant(path, name, number, "")


def put(files: Mapping[str, str], changes: tuple[Mutant, ...]) -> dict[str, str]:
    """The files with the changes in them; a statement that is left out takes its line with it."""
    made = dict(files)
    for change in sorted(changes, key=lambda one: -one.number):
        lines = made[change.path].split("\n")
        lines[change.number : change.number + 1] = [change.line] if change.line else []
        made[change.path] = "\n".join(lines)
    return made


def failing(files: Mapping[str, str]) -> frozenset[str]:
    """The tests that fail; none where they hang or cannot be collected."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_text(text, encoding="utf-8")
        words = [sys.executable, "-B", *COMMAND.split()[1:], "-rf", "--tb=no"]
        try:
            ended = subprocess.run(
                words, cwd=folder, capture_output=True, text=True, timeout=SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            return frozenset()
    told = (line.split()[1] for line in ended.stdout.splitlines() if line.startswith("FAILED "))
    return frozenset(told) if ended.returncode == 1 else frozenset()


def read(root: Path) -> dict[str, str]:
    """The repository's files without its fault."""
    paths = sorted(path for path in root.rglob("*") if path.suffix in (".py", ".toml", ".md"))
    files = {path.relative_to(root).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    for path, (old, new) in MENDED.items():
        if path in files:
            files[path] = files[path].replace(old, new)
    return files


def tasks(
    root: Path, single: int, double: int, chance: random.Random
) -> Iterator[dict[str, object]]:
    """The tasks of one repository: single faults in functions as different as can be, then pairs in
    two modules.
    """
    files = read(root)
    found: dict[str, list[Mutant]] = {}
    for path, content in files.items():
        if path.endswith(".py") and not path.startswith("tests/"):
            for one in mutants(path, content):
                found.setdefault(f"{path}:{one.function}", []).append(one)
    for one in found.values():
        chance.shuffle(one)
    names = sorted(found)
    chance.shuffle(names)
    seen: list[tuple[Mutant, frozenset[str]]] = []
    rounds = max(len(one) for one in found.values())
    for name in (name for _ in range(rounds) for name in names if found[name]):
        if len(seen) == single + 2 * double:
            break
        mutant = found[name].pop() if found[name] else None
        if mutant and (broken := failing(put(files, (mutant,)))):
            seen.append((mutant, broken))
    for number, (mutant, _) in enumerate(seen[:single]):
        yield task(root, files, (mutant,), f"{root.name}-{number:02d}")
    rest = [mutant for mutant, _ in seen[single:]]
    for number in range(double):
        first = rest.pop()
        other = next((one for one in rest if one.path != first.path), None)
        if other is None:
            break
        rest.remove(other)
        yield task(root, files, (first, other), f"{root.name}-two-{number:02d}")


def task(
    root: Path, files: Mapping[str, str], changes: tuple[Mutant, ...], name: str
) -> dict[str, object]:
    """One line of the file of tasks."""
    paths = sorted({one.path for one in changes})
    return {
        "id": name,
        "source": root.name,
        "language": "python",
        "kind": "fix",
        "instruction": PROMPT,
        "test_command": COMMAND,
        "grade_command": COMMAND,
        "timeout_s": 60,
        "test_files": sorted(path for path in files if path.startswith("tests/")),
        "hidden_files": [],
        "solution_files": paths,
        "needs": ["pytest"],
        "repo": put(files, changes),
        "hidden": {},
        "solution": {path: files[path] for path in paths},
    }


def main(arguments: list[str]) -> int:
    """Exit code: 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="the folder of mutants.jsonl")
    parser.add_argument(
        "--single",
        type=int,
        default=6,
        help="tasks with one fault of each repository (%(default)s)",
    )
    parser.add_argument(
        "--double", type=int, default=4, help="tasks with two faults of each (%(default)s)"
    )
    parser.add_argument(
        "--seed", type=int, default=1, help="another one, other faults (%(default)s)"
    )
    given = parser.parse_args(arguments)
    given.out.mkdir(parents=True, exist_ok=True)
    made = [
        one
        for root in REPOSITORIES
        for one in tasks(
            root, given.single, given.double, random.Random(f"{given.seed} {root.name}")
        )
    ]
    (given.out / "mutants.jsonl").write_text(
        "".join(json.dumps(one) + "\n" for one in made), encoding="utf-8"
    )
    print(f"{len(made)} tasks in {given.out / 'mutants.jsonl'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
