"""What everyday.py asks of the embedded pool: small repositories, requests, and what must be there
afterwards.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
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
            command,
            cwd=self.root,
            env=given,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
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
    found = [
        node
        for node in functions(done.text("src/shopkit/prices.py"))
        if isinstance(node, ast.FunctionDef)
    ]
    return len(found) == 4 and all(
        node.returns and all(arg.annotation for arg in node.args.args) for node in found
    )


def documented(done: Done) -> bool:
    found = [
        node for node in functions(done.text("src/shopkit/cart.py")) if node.name != "__init__"
    ]
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
    (
        "write tests for slugify",
        PYTHON,
        lambda done: done.tests() > FIVE and done.text(SLUGS_PATH) == SLUGS,
    ),
    (
        "rename calc to subtotal everywhere",
        PYTHON,
        lambda done: renamed(done) and done.tests() == FIVE,
    ),
    (
        "remove the unused function old_format",
        PYTHON,
        lambda done: removed(done) and done.tests() == FIVE,
    ),
    (
        "create a .gitignore for python",
        PYTHON,
        lambda done: ".pyc" in done.text(".gitignore") and len(done.changed()) == 1,
    ),
    (
        "Cart needs a remove method that takes a name. Add a test too.",
        PYTHON,
        lambda done: (
            done.tests() > FIVE and done.python(f"{A_CART}c.remove('a')\nassert c.items == []")
        ),
    ),
    ("add docstrings to cart.py", PYTHON, lambda done: documented(done) and done.tests() == FIVE),
    (
        "what changed in the last commit?",
        PYTHON,
        lambda done: "shopkit" in done.said and not done.changed(),
    ),
    (
        "add a function reverse(text) with a test",
        NODE,
        lambda done: done.tests() > THREE and "reverse" in done.text("index.test.js"),
    ),
    (
        "add a README",
        NODE,
        lambda done: "truncate" in done.text("README.md") and len(done.changed()) == 1,
    ),
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
            done.python(
                "from shopkit.cart import Cart\nc = Cart()\nassert c.add('a', '1').add('b', '2') "
                "is c"
            )
            and done.tests() >= FIVE
        ),
    ),
    (
        "capitalize should turn the rest of the text into lower case",
        NODE,
        lambda done: (
            done.node('assert.strictEqual(t.capitalize("aBC"), "Abc")') and done.tests() >= THREE
        ),
    ),
    (
        "add a method count to Cart that returns the number of items, with tests",
        PYTHON,
        lambda done: done.tests() > FIVE and done.python(f"{A_CART}assert c.count() == 1"),
    ),
    (
        "write a python script primes.py that prints the prime numbers below 50",
        {},
        lambda done: (
            re.findall(r"\d+", done.run(sys.executable, "primes.py").stdout)[-3:]
            == ["41", "43", "47"]
        ),
    ),
    (
        "suggest a commit message for my changes",
        PYTHON,
        lambda done: "slug" in done.said.lower() and done.changed() == {SLUGS_PATH},
    ),
)
"""Requests that were written down with their checks before the loop saw them."""

PRICES_PATH = "src/shopkit/prices.py"
NAMED = (
    "from decimal import Decimal\nfrom shopkit.prices import add_tax, format_price, parse_price\n"
)
RAISES = """from shopkit.slugs import slugify
try:
    slugify(3)
except TypeError:
    pass
else:
    raise SystemExit(1)
"""
RATE = "add_tax(Decimal(100)) == 107"
LATER: Sequence[tuple[str, dict[str, str], Check]] = (
    (
        "bump the version to 0.4.0",
        PYTHON,
        lambda done: (
            'version = "0.4.0"' in done.text("pyproject.toml")
            and done.changed() == {"pyproject.toml"}
            and done.tests() == FIVE
        ),
    ),
    (
        "what does add_tax do?",
        PYTHON,
        lambda done: "tax" in done.said.lower() and not done.changed(),
    ),
    (
        "where is the total with tax calculated?",
        PYTHON,
        lambda done: "cart" in done.said.lower() and not done.changed(),
    ),
    (
        "change the default tax rate to 7 %",
        PYTHON,
        lambda done: done.python(f"{NAMED}assert {RATE}") and done.tests() >= FIVE,
    ),
    (
        "make parse_price accept negative prices",
        PYTHON,
        lambda done: (
            done.python(f"{NAMED}assert parse_price('-3,50') == Decimal('-3.50')")
            and done.tests() >= FIVE
        ),
    ),
    (
        "slugify should raise a TypeError if the title is not a string",
        PYTHON,
        lambda done: done.python(RAISES) and done.tests() >= FIVE,
    ),
    (
        "truncate should append the character \u2026 instead of three dots",
        NODE,
        lambda done: (
            done.node('assert.strictEqual(t.truncate("abcdef", 3), "abc\u2026")')
            and done.tests() >= THREE
        ),
    ),
    (
        "add a function countVowels(text)",
        NODE,
        lambda done: (
            done.node('assert.strictEqual(t.countVowels("banana"), 3)') and done.tests() >= THREE
        ),
    ),
    (
        "add a LICENSE file (MIT)",
        PYTHON,
        lambda done: (
            "Permission is hereby granted" in done.text("LICENSE") and done.changed() == {"LICENSE"}
        ),
    ),
    (
        "add a docstring to slugify",
        PYTHON,
        lambda done: (
            done.changed() == {SLUGS_PATH}
            and any(ast.get_docstring(node) for node in functions(done.text(SLUGS_PATH)))
            and done.python("from shopkit.slugs import slugify\nassert slugify('A b') == 'a-b'")
        ),
    ),
    (
        "explain how the cart computes its total",
        PYTHON,
        lambda done: "price" in done.said.lower() and not done.changed(),
    ),
    (
        "add a usage section to the README",
        PYTHON,
        lambda done: (
            "usage" in done.text("README.md").lower()
            and "Small helpers" in done.text("README.md")
            and done.changed() == {"README.md"}
        ),
    ),
    (
        "create a flask app with a /health endpoint in app.py",
        {},
        lambda done: (
            "/health" in done.text("app.py")
            and "flask" in done.text("app.py").lower()
            and bool(functions(done.text("app.py")))
        ),
    ),
    (
        "format_price should show thousands separators",
        PYTHON,
        lambda done: (
            done.python(f"{NAMED}assert format_price(Decimal(1234567)) == '1,234,567.00 EUR'")
            and done.tests() >= FIVE
        ),
    ),
    (
        "add a CHANGELOG.md with an entry for version 0.3.0",
        PYTHON,
        lambda done: "0.3.0" in done.text("CHANGELOG.md") and done.changed() == {"CHANGELOG.md"},
    ),
    (
        "write a shell script test.sh that runs the tests",
        PYTHON,
        lambda done: "pytest" in done.text("test.sh") and done.changed() == {"test.sh"},
    ),
    (
        "use a constant for the tax rate in prices.py",
        PYTHON,
        lambda done: (
            bool(
                re.search(
                    r"^[A-Z_]+\s*=\s*Decimal\(.0\.19.\)", done.text(PRICES_PATH), re.MULTILINE
                )
            )
            and done.tests() >= FIVE
        ),
    ),
    (
        "is there a test for slugify?",
        PYTHON,
        lambda done: bool(re.search(r"\bno\b|not", done.said.lower())) and not done.changed(),
    ),
    (
        "change the default tax rate to 7 % and update the tests",
        PYTHON,
        lambda done: done.python(f"{NAMED}assert {RATE}") and done.tests() >= FIVE,
    ),
)
"""Requests that were written down, with their checks, after those; the last one when the others had
been seen.
"""
EDITED = {
    "suggest a commit message for my changes": (SLUGS_PATH, SLUGS.replace("-z0-9]", "-z0-9_]"))
}
