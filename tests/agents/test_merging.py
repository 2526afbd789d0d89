"""What a small model left out of a Python file."""

from __future__ import annotations

import pytest

from fugu_cli.agents.merging import completed, mended

FILE = '''"""A cart."""

import json


class Cart:
    """Things."""

    def __init__(self):
        self.items = []

    def add(self, price):
        self.items.append(price)


def total(cart):
    return sum(cart.items)
'''


def test_a_new_function_alone_is_added_to_the_file() -> None:
    new = "def empty(cart):\n    return not cart.items"
    assert completed(FILE, f"{new}\n") == f"{FILE}\n\n{new}\n"


def test_a_function_alone_takes_the_place_of_the_one_of_its_name_and_brings_its_imports() -> None:
    body = "import json\nimport math\n\n@cache\ndef total(cart):\n    return math.fsum(cart.items)\n"
    expected = FILE.replace("import json\n", "import json\nimport math\n")
    expected = expected.replace("def total(cart):\n    return sum", "@cache\ndef total(cart):\n    return math.fsum")
    assert completed(FILE, body) == expected
    assert completed('"""Sums."""\n\n\ndef a():\n    pass\n', "import os\n\n\ndef b():\n    pass\n") == (
        '"""Sums."""\n\nimport os\n\n\ndef a():\n    pass\n\n\ndef b():\n    pass\n'
    )


def test_a_class_with_some_of_its_methods_keeps_the_others() -> None:
    method = "    def remove(self, price):\n        self.items.remove(price)\n"
    body = f"class Cart:\n    def add(self, price):\n        self.items += [price]\n\n{method}"
    expected = FILE.replace("self.items.append(price)\n", f"self.items += [price]\n\n{method}")
    assert completed(FILE, body) == expected


def test_the_docstring_of_the_file_stays() -> None:
    rest = FILE.partition("\n\n")[2].replace("sum", "min")
    assert completed(FILE, rest) == FILE.replace("sum", "min")


@pytest.mark.parametrize(
    "body",
    [
        FILE.replace("sum", "min"),
        "def total(cart):\n    return 1\n\n\nprint(total(1))\n",
        "def total(cart:\n    return 1\n",
        "x = 1\n",
    ],
)
def test_what_is_whole_and_what_is_more_than_definitions_stays_as_it_is(body: str) -> None:
    assert completed(FILE, body) == body


def test_of_a_part_each_function_is_put_where_it_stood_and_nothing_else_is_taken() -> None:
    one, two = "def one(x):\n    return x", "@cache\ndef two(x):\n    return x"
    new = "def two(x):\n    return math.sqrt(x)"
    body = f"import math\n\n{one}\n\n\n{new}\n\n\ndef three(x):\n    return x\n\n\nassert two(4) == 2\n"
    assert mended(f"{one}\n\n\n{two}", body) == [(two, f"import math\n\n\n{new}")]
    assert mended(one, f"{new}\n") == mended(one, "def one(x:\n") == mended(one, one) == []


SCRIPT = """'use strict';
const fs = require('fs');

/** The sum. */
function added(one, two) {
  return one - two;
}

// The first.
const first = (all) => {
  return all[1];
};

module.exports = { added, first };
"""


def test_in_languages_of_braces_what_is_left_out_stays_too() -> None:
    new = "function added(one, two) {\n  return one + two;\n}"
    assert completed(SCRIPT, f"{new}\n") == SCRIPT.replace("one - two", "one + two"), "with the comment above it"
    bare = SCRIPT.replace("/** The sum. */\n", "").replace("// The first.\n", "").replace("one - two", "one + two")
    assert completed(SCRIPT, bare) == SCRIPT.replace("one - two", "one + two"), "and so do comments"
    own = f"/** Both. */\n{new}"
    assert completed(SCRIPT, own) == SCRIPT.replace("one - two", "one + two").replace("The sum.", "Both.")
    more = (
        "const path = require('path');\n\nfunction last(all) {\n  return all.at(-1);\n}\n\nmodule.exports = { added };"
    )
    merged = SCRIPT.replace("one - two;\n}\n", "one + two;\n}\n\nfunction last(all) {\n  return all.at(-1);\n}\n")
    merged = merged.replace("require('fs');\n", "require('fs');\nconst path = require('path');\n")
    assert completed(SCRIPT, f"{new}\n\n{more}\n") == merged


def test_in_languages_of_braces_what_is_more_than_functions_is_the_file() -> None:
    whole = SCRIPT.replace("one - two", "one + two")
    alone = "fn added(one: u32) -> u32 {\n    one\n}\n"
    twice = f"{alone}\n{alone}"
    cases = [
        (SCRIPT, whole),
        (SCRIPT, "const LIMIT = 3;\n\nfunction added(one, two) {\n  return LIMIT;\n}\n"),
        (SCRIPT, "function other(one) {\n  return one;\n}\n"),
        (SCRIPT, "no code"),
        (f"impl Sums {{\n    fn first() {{\n    }}\n}}\n\n{alone}", "fn first() {\n}\n"),
        (f"{twice}\nfn more() {{\n    1\n}}\n", alone),
    ]
    for shown, body in cases:
        assert completed(shown, body) == body
