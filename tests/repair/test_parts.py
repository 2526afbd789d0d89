"""What takes the place of a part of a long file: the function that was shown, whatever an answer has around it."""

import pytest

from fugu_cli.messages import FromUser, Prompt
from fugu_cli.repair.reply_trimming import closest_body, part_edits

METHOD = '    def total(self):\n        """The sum."""\n        return 1'
BETTER = '    def total(self):\n        """The sum."""\n        return 2'
BARE = 'def total(self):\n    """The sum."""\n    return 2\n'


def put(part: str, answer: str, path: str = "a.py", said: str = "", *, judged: bool = True) -> list[tuple[str, str]]:
    messages = (FromUser(text=said),)
    return part_edits(Prompt(system="", messages=messages, target=path, part=part, judged=judged), answer)


@pytest.mark.parametrize(
    "answer",
    [
        f"class Cart:\n{BETTER}\n",
        f"class Cart:\n    def __init__(self):\n        self.items = []\n\n{BETTER}\n\n    def mean(self): ...\n",
        f"{BETTER}\n",
        BARE,
        f"{BARE}\n\nassert Cart().total() == 2\n",
        f"{BETTER}\n\n\ncart = Cart()\nprint(cart.total())\n",
        f"import math\n\n\n{BARE}",
    ],
)
@pytest.mark.parametrize("judged", [True, False])
def test_of_an_answer_only_the_method_takes_its_place(answer: str, judged: bool) -> None:
    assert put(METHOD, answer, judged=judged) == [(METHOD, BETTER)]


def test_of_two_classes_with_such_a_method_the_one_most_like_it_is_meant() -> None:
    other = "class Order:\n    def total(self):\n        for item in self:\n            item.close()\n"
    assert put(METHOD, f"class Cart:\n{BETTER}\n\n\n{other}") == [(METHOD, BETTER)]


def test_a_method_is_indented_by_tabs_where_its_file_is() -> None:
    part = "\tdef total(self):\n\t\treturn 1"
    for answer in ("def total(self):\n\treturn 2\n", "class Cart:\n\tdef total(self):\n\t\treturn 2\n"):
        assert put(part, answer) == [(part, "\tdef total(self):\n\t\treturn 2")]
    assert put("\ttotal(x) {\n\t\treturn 1;\n\t}", "total(x) {\n\treturn 2;\n}", "a.js") == [
        ("\ttotal(x) {\n\t\treturn 1;\n\t}", "\ttotal(x) {\n\t\treturn 2;\n\t}")
    ]


def test_a_line_of_a_string_at_the_margin_stays_there() -> None:
    part = '    def told(self):\n        return """\nText\n"""'
    new = part.replace("Text", "Words")
    assert put(part, f"class Cart:\n{new}\n") == put(part, new) == [(part, new)]


def test_a_docstring_stays_where_tests_judge() -> None:
    other = BARE.replace("The sum.", "Adds all.")
    assert put(METHOD, other) == [(METHOD, BETTER)]
    assert put(METHOD, other, judged=False) == [(METHOD, BETTER.replace("The sum.", "Adds all."))]


FUNCTION = "def total(items):\n    return math.fsum(items) - 1"


def test_imports_come_along_where_the_file_is_not_known_to_have_them() -> None:
    new = FUNCTION.replace(" - 1", "")
    answer = f"import json\nimport math\n\n\n{new}\n\n\nprint(total([1]))\n"
    assert put(FUNCTION, answer) == [(FUNCTION, new)]
    assert put(FUNCTION, answer, said="NameError: name 'math' is not defined") == [
        (FUNCTION, f"import math\n\n\n{new}")
    ]
    assert put(FUNCTION, f"import math\n\n{FUNCTION}\n", said="E   name 'math' is not defined.") == [
        (FUNCTION, f"import math\n\n\n{FUNCTION}")
    ]
    more = new.replace("math.fsum(items)", "reduce(add, items)")
    assert put(FUNCTION, f"from functools import reduce\nfrom operator import add\n{more}\n") == [
        (FUNCTION, f"from functools import reduce\nfrom operator import add\n\n\n{more}")
    ]


def test_an_import_for_a_method_stands_in_it() -> None:
    new = "    def total(self):\n        return fsum(self)"
    answer = f"from math import fsum\n\n\nclass Cart:\n{new}\n"
    expected = "    def total(self):\n        from math import fsum\n        return fsum(self)"
    assert put("    def total(self):\n        return 1", answer) == [
        ("    def total(self):\n        return 1", expected)
    ]
    told = '    def total(self):\n        """The sum."""\n        from math import fsum\n        return fsum(self)'
    assert put(METHOD, answer.replace("return", '"""The sum."""\n        return')) == [(METHOD, told)]


def test_python_that_cannot_be_read_takes_no_place() -> None:
    assert put(METHOD, "def total(self:\n    return 2\n") == []
    assert put(METHOD, "\n") == []


def test_an_answer_without_the_function_takes_the_place_as_it_is() -> None:
    assert put(METHOD, "def sum(self):\n    return 2\n") == [(METHOD, "    def sum(self):\n        return 2")]


def test_another_file_does_not_take_the_place() -> None:
    assert put(METHOD, "class Line:\n    price: int\n\n\ndef sum(self):\n    return 2\n") == []


JS = "/** The sum. */\nfunction total(items) {\n  return items.length;\n}"
RUST = "    /// The sum.\n    pub fn total(&self) -> u32 {\n        1\n    }"


def test_of_an_answer_in_braces_only_the_function_takes_its_place() -> None:
    new = JS.replace("items.length", "items.size")
    tried = f"const assert = require('assert');\n{new}\n\nconsole.log(total([1]));\nmodule.exports = {{ total }};\n"
    assert put(JS, tried, "a.js") == [(JS, new)]
    assert put(JS, new.partition("\n")[2], "a.js") == [(JS, new)]
    better = RUST.replace("1\n", "2\n")
    assert put(RUST, f"impl Cart {{\n{better}\n}}\n", "a.rs") == [(RUST, better)]
    method = "  total(items) {\n    return 1;\n  }"
    assert put(method, "class Cart {\n  total(items) {\n    return 2;\n  }\n}\n", "a.js") == [
        (method, method.replace("1", "2"))
    ]


def test_what_a_function_in_braces_uses_anew_is_imported_in_it() -> None:
    new = JS.replace("items.length", "fs.readFileSync(items)")
    expected = new.replace("{\n", "{\n  const fs = require('fs');\n")
    assert put(JS, f"const fs = require('fs');\n\n{new}\n", "a.js") == [(JS, expected)]
    assert put(JS, f"import fs from 'fs';\n\n{new}\n", "a.js") == [(JS, f"import fs from 'fs';\n{new}")]
    used = "fn total() -> u32 {\n    HashMap::new().len()\n}"
    assert put(used.replace("HashMap", "Map"), f"use std::collections::HashMap;\n{used}", "a.rs")[0][1] == (
        "fn total() -> u32 {\n    use std::collections::HashMap;\n    HashMap::new().len()\n}"
    )


def test_the_helpers_that_a_function_in_braces_calls_anew_stand_below_it() -> None:
    new = JS.replace("items.length", "count(items)")
    size = "function size(items) {\n  return items.length;\n}"
    count = "function count(items) {\n  return size(items);\n}"
    tried = f"{size}\n\n// Counts.\n{count}\n\n{new}\n\nfunction demo() {{\n  total([1]);\n}}\ndemo();\n"
    assert put(JS, tried, "a.js") == [(JS, f"{new}\n\n{size}\n\n// Counts.\n{count}")]
    assert put(JS.replace("items.length", "count(items.length)"), f"{count}\n\n{new}\n", "a.js")[0][1] == new
    better = RUST.replace("1\n", "self.one()\n")
    one = "    fn one(&self) -> u32 {\n        1\n    }"
    assert put(RUST, f"impl Cart {{\n{better}\n\n{one}\n}}\n", "a.rs") == [(RUST, f"{better}\n\n{one}")]


def test_a_function_whose_end_is_not_found_is_not_cut() -> None:
    answer = "function total(\n  items,\n) {\n  return items.size;\n}"
    assert put(JS, answer, "a.js")[0][1].endswith(answer)


def test_the_block_meant_is_the_one_like_the_part_however_it_is_indented() -> None:
    usage = "cart = Cart()\ncart.items = [1, 2, 3]\nprint(cart.total())\nprint(cart.items)\nprint(cart)\n"
    assert closest_body(f"```python\n{BARE}```\nUse it:\n```python\n{usage}```\n", METHOD) == (BARE, True)
    assert closest_body("Nothing.", METHOD) == ("", True)


def test_a_part_that_an_answer_only_stands_in_for_stays_and_so_does_its_docstring() -> None:
    one = "def f(x):\n    y = x\n    return y"
    assert put(one, "def f(x):\n    # ... existing code ...\n    return 2\n") == [(one, one)]
    bare = "    def total(self):\n        return 2\n"
    assert put(METHOD, f"class Cart:\n{bare}") == [(METHOD, BETTER)]
    assert put("function f(x) {\n  return x;\n}", "function f(x) {\n  // ... existing code ...\n}\n", "a.js") == []


def test_imports_that_were_shown_above_the_function_are_not_written_again() -> None:
    shown = "Of the file `a.py`:\n```\nimport math\n\n\ndef area(radius):\n    return radius\n```\n"
    part = "def area(radius):\n    return radius"
    answer = "import math\nimport cmath\n\n\ndef area(radius):\n    return math.pi * radius**2 + cmath.inf\n"
    (_, new), *more = put(part, answer, said=shown)
    assert not more
    assert "import math\n" not in new
    assert "import cmath" in new
    elsewhere = "The file `tests/test_a.py`:\n```\nimport math\n```\n" + shown.replace("import math\n\n\n", "")
    assert "import math" in put(part, answer, said=elsewhere)[0][1], "a test has it, and not the file"
