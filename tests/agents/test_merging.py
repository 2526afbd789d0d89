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
