"""What a small model left out of a Python file."""

from __future__ import annotations

import pytest

from fugu_cli.repair.partial_files import changed_definitions, complete_file

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
    assert complete_file(FILE, f"{new}\n") == f"{FILE}\n\n{new}\n"


def test_a_function_alone_takes_the_place_of_the_one_of_its_name_and_brings_its_imports() -> None:
    body = "import json\nimport math\n\n@cache\ndef total(cart):\n    return math.fsum(cart.items)\n"
    expected = FILE.replace("import json\n", "import json\nimport math\n")
    expected = expected.replace("def total(cart):\n    return sum", "@cache\ndef total(cart):\n    return math.fsum")
    assert complete_file(FILE, body) == expected
    assert complete_file('"""Sums."""\n\n\ndef a():\n    pass\n', "import os\n\n\ndef b():\n    pass\n") == (
        '"""Sums."""\n\nimport os\n\n\ndef a():\n    pass\n\n\ndef b():\n    pass\n'
    )


def test_a_class_with_some_of_its_methods_keeps_the_others() -> None:
    method = "    def remove(self, price):\n        self.items.remove(price)\n"
    body = f"class Cart:\n    def add(self, price):\n        self.items += [price]\n\n{method}"
    expected = FILE.replace("self.items.append(price)\n", f"self.items += [price]\n\n{method}")
    assert complete_file(FILE, body) == expected


def test_the_docstring_of_the_file_stays() -> None:
    rest = FILE.partition("\n\n")[2].replace("sum", "min")
    assert complete_file(FILE, rest) == FILE.replace("sum", "min")


@pytest.mark.parametrize(
    "body",
    [
        FILE.replace("sum", "min"),
        "def total(cart:\n    return 1\n",
        "x = 1\n",
    ],
)
def test_what_is_whole_and_what_holds_no_definition_stays_as_it_is(body: str) -> None:
    assert complete_file(FILE, body) == body


def test_of_a_part_each_function_is_put_where_it_stood_and_nothing_else_is_taken() -> None:
    one, two = "def one(x):\n    return x", "@cache\ndef two(x):\n    return x"
    new = "def two(x):\n    return math.sqrt(x)"
    body = f"import math\n\n{one}\n\n\n{new}\n\n\ndef three(x):\n    return x\n\n\nassert two(4) == 2\n"
    assert changed_definitions(f"{one}\n\n\n{two}", body) == [(two, f"import math\n\n\n{new}")]
    assert (
        changed_definitions(one, f"{new}\n")
        == changed_definitions(one, "def one(x:\n")
        == changed_definitions(one, one)
        == []
    )


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
    assert complete_file(SCRIPT, f"{new}\n") == SCRIPT.replace("one - two", "one + two"), "with the comment above it"
    bare = SCRIPT.replace("/** The sum. */\n", "").replace("// The first.\n", "").replace("one - two", "one + two")
    assert complete_file(SCRIPT, bare) == SCRIPT.replace("one - two", "one + two"), "and so do comments"
    own = f"/** Both. */\n{new}"
    assert complete_file(SCRIPT, own) == SCRIPT.replace("one - two", "one + two").replace("The sum.", "Both.")
    more = (
        "const path = require('path');\n\nfunction last(all) {\n  return all.at(-1);\n}\n\nmodule.exports = { added };"
    )
    merged = SCRIPT.replace("one - two;\n}\n", "one + two;\n}\n\nfunction last(all) {\n  return all.at(-1);\n}\n")
    merged = merged.replace("require('fs');\n", "require('fs');\nconst path = require('path');\n")
    assert complete_file(SCRIPT, f"{new}\n\n{more}\n") == merged


def test_in_languages_of_braces_what_is_more_than_functions_is_the_file() -> None:
    whole = SCRIPT.replace("one - two", "one + two")
    alone = "fn added(one: u32) -> u32 {\n    one\n}\n"
    twice = f"{alone}\n{alone}"
    cases = [
        (SCRIPT, whole),
        (SCRIPT, "function other(one) {\n  return one;\n}\n"),
        (SCRIPT, "no code"),
        (f"impl Sums {{\n    fn first() {{\n    }}\n}}\n\n{alone}", "fn second() {\n}\n"),
        (f"{twice}\nfn more() {{\n    1\n}}\n", alone),
    ]
    for shown, body in cases:
        assert complete_file(shown, body) == body


CONSTANTS = '''"""Text."""
import re

LIMIT = 10


def slug(s):
    return s.lower()


def title(s):
    return s.upper()


if __name__ == "__main__":
    print(slug("A B"))
'''
SLUG = 'def slug(s):\n    return s.lower().replace(" ", "-")\n'
MENDED = CONSTANTS.replace("s.lower()", 's.lower().replace(" ", "-")')


@pytest.mark.parametrize(
    "body",
    [
        SLUG,
        f'{SLUG}\n\nassert slug("A B") == "a-b"\n',
        f'{SLUG}\n\nprint(slug("A B"))\n',
        f"{SLUG}\n\ndef title(s):\n    return s.upper()\n",
        f'import re\n\n{SLUG}\n\nif __name__ == "__main__":\n    print(slug("A B"))\n',
    ],
)
def test_a_part_of_a_file_never_takes_the_place_of_all_of_it(body: str) -> None:
    assert complete_file(CONSTANTS, body) == MENDED


def test_what_a_part_brings_that_is_new_comes_with_it() -> None:
    body = f'from __future__ import annotations\nimport os\n\nSIGN = "-"\nLIMIT = 11\n\n{SLUG}\n\nregistry.add(slug)\n'
    expected = MENDED.replace("LIMIT = 10", "LIMIT = 11").replace(
        '"""\n', '"""\n\nfrom __future__ import annotations\n\n', 1
    )
    expected = expected.replace("import re\n\n", 'import re\nimport os\n\nSIGN = "-"\n\n') + "\n\nregistry.add(slug)\n"
    assert complete_file(CONSTANTS, body) == expected


PROPERTY = """class Heat:
    UNIT = "C"

    def __init__(self, celsius):
        self.celsius = celsius

    @property
    def fahrenheit(self):
        return self.celsius

    @fahrenheit.setter
    def fahrenheit(self, value):
        self.celsius = value
"""


def test_members_of_one_name_are_told_apart_by_their_decorators() -> None:
    getter = "    @property\n    def fahrenheit(self):\n        return self.celsius * 2\n"
    right = PROPERTY.replace("return self.celsius\n", "return self.celsius * 2\n")
    assert complete_file(PROPERTY, f"class Heat:\n{getter}") == right
    setter = "    @fahrenheit.setter\n    def fahrenheit(self, value):\n        self.celsius = value / 2\n"
    both = right.replace("= value\n", "= value / 2\n")
    assert complete_file(PROPERTY, f"class Heat:\n{getter}\n{setter}") == both
    overloads = (
        "@overload\ndef f(x: int): ...\n@overload\ndef f(x: str): ...\ndef f(x):\n    return x\n\ndef g():\n    pass\n"
    )
    assert complete_file(overloads, "def f(x):\n    return 2\n") == overloads.replace("return x", "return 2")


def test_a_method_alone_goes_into_its_class_and_a_class_keeps_what_its_answer_leaves_out() -> None:
    assert complete_file(FILE, "def add(self, price):\n    self.items += [price]\n") == FILE.replace(
        "self.items.append(price)", "self.items += [price]"
    )
    body = (
        "@dataclass\nclass Heat(Base):\n    UNIT = 'F'\n    SCALE: int = 2\n\n    def __init__(self):\n        pass\n"
    )
    expected = PROPERTY.replace("class Heat:\n", "@dataclass\nclass Heat(Base):\n").replace('UNIT = "C"', "UNIT = 'F'")
    expected = expected.replace(
        "    def __init__(self, celsius):\n        self.celsius = celsius\n",
        "    SCALE: int = 2\n\n    def __init__(self):\n        pass\n",
    )
    assert complete_file(PROPERTY, body) == expected


def test_an_answer_is_indented_as_the_file_is() -> None:
    tabs = FILE.replace("    ", "\t")
    body = "class Cart:\n  def add(self, price):\n    if price:\n      self.items += [price]\n"
    expected = tabs.replace("\t\tself.items.append(price)", "\t\tif price:\n\t\t\tself.items += [price]")
    assert complete_file(tabs, body) == expected


RUST = """/// The sum.
pub fn total(prices: &[i32]) -> i32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        assert_eq!(total(&[1]), 1);
    }
}
"""
CLASS = """import {
  a,
  b,
} from 'x';

export const RATE = 0.2;

export class Cart {
  constructor() {
    this.items = [];
  }

  /** Adds. */
  add(x) {
    this.items.push(x);
  }
}

export function total(items) {
  return items.length;
}
"""
GO = """package x

type A struct{ v int }

func (a A) String() string {
\treturn "a"
}

func (b *B) String() string {
\treturn "b"
}
"""


def test_in_languages_of_braces_tests_classes_constants_and_methods_stay() -> None:
    new = "pub fn total(prices: &[i32]) -> i32 {\n    prices.iter().sum()\n}\n"
    assert complete_file(RUST, new) == RUST.replace("    0\n", "    prices.iter().sum()\n")
    sums = "import c from 'c';\n\nexport function total(items) {\n  return 2;\n}\n\nconsole.log(total([1]));\n"
    expected = CLASS.replace("items.length", "2").replace("from 'x';\n", "from 'x';\nimport c from 'c';\n")
    assert complete_file(CLASS, sums) == expected
    added = CLASS.replace("push(x)", "unshift(x)")
    assert complete_file(CLASS, "export class Cart {\n  add(x) {\n    this.items.unshift(x);\n  }\n}\n") == added
    assert complete_file(CLASS, "add(x) {\n  this.items.unshift(x);\n}\n") == added
    assert complete_file(GO, 'func (b *B) String() string {\n\treturn "c"\n}\n') == GO.replace('"b"', '"c"')
    limited = "const LIMIT = 3;\n\nfunction added(one, two) {\n  return LIMIT;\n}\n"
    expected = SCRIPT.replace("one - two", "LIMIT").replace("require('fs');\n", "require('fs');\n\nconst LIMIT = 3;\n")
    assert complete_file(SCRIPT, limited) == expected
