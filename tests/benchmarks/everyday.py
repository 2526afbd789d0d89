"""Everyday requests to the embedded pool: is what was asked for there afterwards, and does the exit code say so?

python tests/benchmarks/everyday.py OUT.jsonl --label before=FOLDER --label after=FOLDER [--limit SECONDS]
python tests/benchmarks/everyday.py OUT.jsonl --report

Each request runs as `fugu run` in a small repository of its own, where all tests pass (or nothing is there), and is
checked by a script afterwards. FOLDER is a checkout of fugu; several versions alternate, request by request. A row that
is there is not measured again.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

PRICES = """import re, os
import json
from decimal import Decimal


def parse_price(text):
    cleaned = re.sub(r"[^0-9.,]", "", text).replace(",", ".")
    if not cleaned:
        raise ValueError(f"no price in {text!r}")
    return Decimal(cleaned)


def add_tax(price, rate=Decimal("0.19")):
    return (price * (1 + rate)).quantize(Decimal("0.01"))


def old_format(price):
    return "%s EUR" % price


def format_price(price, currency="EUR"):
    return f"{price:.2f} {currency}"
"""
CART = """from decimal import Decimal

from shopkit.prices import add_tax


class Cart:
    def __init__(self):
        self.items = []

    def add(self, name, price, count=1):
        if count < 1:
            raise ValueError("count must be positive")
        self.items.append((name, Decimal(price), count))

    def calc(self):
        return sum((price * count for _, price, count in self.items), Decimal(0))

    def total_with_tax(self):
        return add_tax(self.calc())
"""
SLUGS = """import re


def slugify(title):
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
"""
TEST_PRICES = """from decimal import Decimal

import pytest

from shopkit.prices import add_tax, format_price, parse_price


def test_parse_price():
    assert parse_price("EUR 3,50") == Decimal("3.50")


def test_parse_price_needs_digits():
    with pytest.raises(ValueError):
        parse_price("free")


def test_add_tax():
    assert add_tax(Decimal("100")) == Decimal("119.00")


def test_format_price():
    assert format_price(Decimal("3.5")) == "3.50 EUR"
"""
TEST_CART = """from decimal import Decimal

from shopkit.cart import Cart


def test_total():
    cart = Cart()
    cart.add("tea", "3.50", 2)
    cart.add("cup", "5")
    assert cart.calc() == Decimal("12.00")
    assert cart.total_with_tax() == Decimal("14.28")
"""
PYTHON = {
    "pyproject.toml": '[project]\nname = "shopkit"\nversion = "0.3.0"\n\n'
    '[tool.pytest.ini_options]\npythonpath = ["src"]\n',
    "README.md": "# shopkit\n\nSmall helpers for a web shop: prices, carts and slugs.\n",
    "src/shopkit/__init__.py": "",
    "src/shopkit/prices.py": PRICES,
    "src/shopkit/cart.py": CART,
    "src/shopkit/slugs.py": SLUGS,
    "tests/test_prices.py": TEST_PRICES,
    "tests/test_cart.py": TEST_CART,
}
NODE = {
    "package.json": '{\n  "name": "textkit",\n  "version": "1.0.0",\n  "main": "index.js",\n'
    '  "scripts": { "test": "node --test" }\n}\n',
    "index.js": """function words(text) {
  return text.split(/\\s+/).filter(Boolean);
}

function capitalize(text) {
  return text.charAt(0).toUpperCase() + text.slice(1);
}

function truncate(text, length) {
  if (text.length <= length) return text;
  return text.slice(0, length) + "...";
}

module.exports = { words, capitalize, truncate };
""",
    "index.test.js": """const test = require("node:test");
const assert = require("node:assert");
const { words, capitalize, truncate } = require("./index.js");

test("words", () => {
  assert.deepStrictEqual(words("a  b c"), ["a", "b", "c"]);
});

test("capitalize", () => {
  assert.strictEqual(capitalize("abc"), "Abc");
});

test("truncate", () => {
  assert.strictEqual(truncate("abcdef", 3), "abc...");
});
""",
}


@dataclass(frozen=True)
class Done:
    """What a request left: the folder, and what fugu printed."""

    root: Path
    said: str

    def text(self, path: str) -> str:
        """The file's content, "" where there is none."""
        file = self.root / path
        return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""

    def changed(self) -> set[str]:
        """Paths that git sees as changed or new."""
        ran = self.run("git", "status", "--porcelain", "-uall")
        paths = {line[3:] for line in ran.stdout.splitlines()}
        return {path for path in paths if "__pycache__" not in path and ".pytest_cache" not in path}

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A command in the folder."""
        given = {**os.environ, "PYTHONPATH": "src", "PYTHONDONTWRITEBYTECODE": "1"}
        return subprocess.run(
            command, cwd=self.root, env=given, capture_output=True, text=True, timeout=60, check=False
        )

    def python(self, code: str) -> bool:
        """The code runs without an error, with the package in reach."""
        return self.run(sys.executable, "-c", code).returncode == 0

    def node(self, code: str) -> bool:
        """The code runs without an error."""
        head = 'const assert = require("node:assert"); const t = require("./index.js"); '
        return self.run("node", "-e", head + code).returncode == 0

    def tests(self) -> int:
        """How many tests pass; -1 where one fails."""
        if (self.root / "package.json").exists():
            ran = self.run("node", "--test")
            found = re.search(r"^[#ℹ] pass (\d+)", ran.stdout, re.MULTILINE)
        else:
            ran = self.run(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
            found = re.search(r"(\d+) passed", ran.stdout)
        return int(found.group(1)) if found and ran.returncode == 0 else -1


def functions(source: str) -> list[ast.FunctionDef | ast.ClassDef]:
    """All functions and classes of a Python file; [] where it cannot be read."""
    try:
        tree = ast.parse(source)
    except SyntaxError:
        return []
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)]


def hinted(done: Done) -> bool:
    found = [node for node in functions(done.text("src/shopkit/prices.py")) if isinstance(node, ast.FunctionDef)]
    return len(found) == 4 and all(node.returns and all(arg.annotation for arg in node.args.args) for node in found)


def documented(done: Done) -> bool:
    found = [node for node in functions(done.text("src/shopkit/cart.py")) if node.name != "__init__"]
    return len(found) == 4 and all(ast.get_docstring(node) for node in found)


def renamed(done: Done) -> bool:
    files = [done.text(path) for path in ("src/shopkit/cart.py", "tests/test_cart.py")]
    return all("calc" not in text and "subtotal" in text for text in files)


def removed(done: Done) -> bool:
    names = {node.name for node in functions(done.text("src/shopkit/prices.py"))}
    return names == {"parse_price", "add_tax", "format_price"}


Check = Callable[[Done], bool]
SLUGS_PATH = "src/shopkit/slugs.py"
A_CART = "from shopkit.cart import Cart\nc = Cart()\nc.add('a', '1')\n"
FIVE, THREE = 5, 3
"""Tests that pass before."""
SEEN: Sequence[tuple[str, dict[str, str], Check]] = (
    ("add type hints to prices.py", PYTHON, lambda done: hinted(done) and done.tests() == FIVE),
    ("write tests for slugify", PYTHON, lambda done: done.tests() > FIVE and done.text(SLUGS_PATH) == SLUGS),
    ("rename calc to subtotal everywhere", PYTHON, lambda done: renamed(done) and done.tests() == FIVE),
    ("remove the unused function old_format", PYTHON, lambda done: removed(done) and done.tests() == FIVE),
    (
        "create a .gitignore for python",
        PYTHON,
        lambda done: ".pyc" in done.text(".gitignore") and len(done.changed()) == 1,
    ),
    (
        "Cart needs a remove method that takes a name. Add a test too.",
        PYTHON,
        lambda done: done.tests() > FIVE and done.python(f"{A_CART}c.remove('a')\nassert c.items == []"),
    ),
    ("add docstrings to cart.py", PYTHON, lambda done: documented(done) and done.tests() == FIVE),
    ("what changed in the last commit?", PYTHON, lambda done: "shopkit" in done.said and not done.changed()),
    (
        "add a function reverse(text) with a test",
        NODE,
        lambda done: done.tests() > THREE and "reverse" in done.text("index.test.js"),
    ),
    ("add a README", NODE, lambda done: "truncate" in done.text("README.md") and len(done.changed()) == 1),
)
"""Requests that the loop was changed by."""
FRESH: Sequence[tuple[str, dict[str, str], Check]] = (
    (
        "slugify should keep underscores",
        PYTHON,
        lambda done: (
            done.python("from shopkit.slugs import slugify\nassert slugify('A_b c') == 'a_b-c'")
            and done.tests() >= FIVE
        ),
    ),
    (
        "add a function discount(price, percent) to prices.py",
        PYTHON,
        lambda done: (
            done.python(
                "from decimal import Decimal\nfrom shopkit.prices import discount\n"
                "assert discount(Decimal(200), 10) == 180"
            )
            and done.tests() >= FIVE
        ),
    ),
    (
        "write tests for words with an empty string",
        NODE,
        lambda done: done.tests() > THREE and "index.js" not in done.changed(),
    ),
    (
        "Cart.add should return the cart itself, so that calls can be chained",
        PYTHON,
        lambda done: (
            done.python("from shopkit.cart import Cart\nc = Cart()\nassert c.add('a', '1').add('b', '2') is c")
            and done.tests() >= FIVE
        ),
    ),
    (
        "capitalize should turn the rest of the text into lower case",
        NODE,
        lambda done: done.node('assert.strictEqual(t.capitalize("aBC"), "Abc")') and done.tests() >= THREE,
    ),
    (
        "add a method count to Cart that returns the number of items, with tests",
        PYTHON,
        lambda done: done.tests() > FIVE and done.python(f"{A_CART}assert c.count() == 1"),
    ),
    (
        "write a python script primes.py that prints the prime numbers below 50",
        {},
        lambda done: re.findall(r"\d+", done.run(sys.executable, "primes.py").stdout)[-3:] == ["41", "43", "47"],
    ),
    (
        "suggest a commit message for my changes",
        PYTHON,
        lambda done: "slug" in done.said.lower() and done.changed() == {SLUGS_PATH},
    ),
)
"""Requests that were written down with their checks before the loop saw them."""
EDITED = {"suggest a commit message for my changes": (SLUGS_PATH, SLUGS.replace("-z0-9]", "-z0-9_]"))}


def measure(request: str, files: dict[str, str], check: Check, source: str, limit: int) -> dict[str, object]:
    """One request in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "shop"
        root.mkdir()
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text, encoding="utf-8")
        named = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
        commit = [*named, "commit", "-q", "--allow-empty", "-m", "shopkit, its first version"]
        for command in (["init", "-q"], ["add", "-A"], commit):
            subprocess.run(["git", *command], cwd=root, check=True)
        if request in EDITED:
            path, text = EDITED[request]
            (root / path).write_text(text, encoding="utf-8")
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        given = {**os.environ, "PYTHONPATH": source, "XDG_DATA_HOME": folder, "PATH": path}
        started = time.monotonic()
        ran = subprocess.run(
            [sys.executable, "-m", "fugu_cli", "run", "--time-limit", str(limit), request],
            cwd=root, env=given, capture_output=True, text=True, check=False,
        )  # fmt: skip
        seconds = round(time.monotonic() - started, 1)
        said = ran.stdout.partition("\nanswered\n")[2] or ran.stdout
        return {"exit": ran.returncode, "done": check(Done(root, said)), "seconds": seconds}


def report(rows: Sequence[dict[str, object]]) -> str:
    """The table of all rows, Markdown."""
    labels = list(dict.fromkeys(str(row["label"]) for row in rows))
    head = ["request", *(f"{label}: {what}" for label in labels for what in ("done", "exit", "s"))]
    lines = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    known = {(row["label"], row["request"]): row for row in rows}
    for kind, cases in (("seen", SEEN), ("fresh", FRESH)):
        counted = [case for case in cases if all((label, case[0]) in known for label in labels)]
        for request, _, _ in counted:
            cells = [known[label, request] for label in labels]
            told = (f"{'yes' if row['done'] else 'no'} | {row['exit']} | {row['seconds']:.0f}" for row in cells)
            lines.append(f"| {request} | {' | '.join(told)} |")
        sums = []
        for label in labels:
            own = [known[label, request] for request, _, _ in counted]
            wrong = sum(row["exit"] == 0 and not row["done"] for row in own)
            mean = sum(float(str(row["seconds"])) for row in own) / max(len(own), 1)
            sums.append(f"{sum(bool(row['done']) for row in own)} of {len(own)} | {wrong} wrong with 0 | {mean:.0f}")
        lines.append(f"| **{kind}** | {' | '.join(sums)} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Exit code 0."""
    given = argparse.ArgumentParser(description=__doc__)
    given.add_argument("out", type=Path)
    given.add_argument("--label", action="append", default=[], metavar="NAME=FOLDER")
    given.add_argument("--limit", type=int, default=120)
    given.add_argument("--report", action="store_true")
    options = given.parse_args()
    lines = options.out.read_text(encoding="utf-8").splitlines() if options.out.exists() else []
    rows = [json.loads(line) for line in lines]
    known = {(row["label"], row["request"]) for row in rows}
    versions = [label.partition("=")[::2] for label in options.label]
    for number, (request, files, check) in enumerate((*FRESH, *SEEN)):
        for label, source in versions if number % 2 else versions[::-1]:
            if (label, request) not in known and not options.report:
                row = {"label": label, "request": request, **measure(request, files, check, source, options.limit)}
                rows.append(row)
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                print(time.strftime("%H:%M:%S"), row, file=sys.stderr, flush=True)
    print(report(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main())
