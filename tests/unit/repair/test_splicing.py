"""What a small model left out of a file, or only stands in for, stays as it is."""

from __future__ import annotations

import pytest

from fugu_cli.repair import splicing
from fugu_cli.repair.splicing import edit_between, is_elision, replace_part

ENDINGS = {"impl": "rs", "fn ": "rs", "/// ": "rs", "package": "go", "class Cart {": "js", "'use": "js", "const": "js",
    "import {": "ts", "#include": "c", "a: 1": "yaml"}  # fmt: skip


def complete_file(shown: str, body: str, *, judged: bool = True) -> str:
    """In the language that the file begins in."""
    ending = next((ending for start, ending in ENDINGS.items() if shown.startswith(start)), "py")
    return splicing.complete_file(f"a.{ending}", shown, body, judged=judged)


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
    body = (
        "import json\nimport math\n\n@cache\ndef total(cart):\n    return math.fsum(cart.items)\n"
    )
    expected = FILE.replace("import json\n", "import json\nimport math\n")
    expected = expected.replace(
        "def total(cart):\n    return sum", "@cache\ndef total(cart):\n    return math.fsum"
    )
    assert complete_file(FILE, body) == expected
    assert complete_file(
        '"""Sums."""\n\n\ndef a():\n    pass\n', "import os\n\n\ndef b():\n    pass\n"
    ) == ('"""Sums."""\n\nimport os\n\n\ndef a():\n    pass\n\n\ndef b():\n    pass\n')


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
        "x = 1\n",
    ],
)
def test_what_is_whole_and_what_holds_no_definition_stays_as_it_is(body: str) -> None:
    assert complete_file(FILE, body) == body


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
    assert complete_file(SCRIPT, f"{new}\n") == SCRIPT.replace("one - two", "one + two"), (
        "with the comment above it"
    )
    bare = (
        SCRIPT.replace("/** The sum. */\n", "")
        .replace("// The first.\n", "")
        .replace("one - two", "one + two")
    )
    assert complete_file(SCRIPT, bare) == SCRIPT.replace("one - two", "one + two"), (
        "and so do comments"
    )
    own = f"/** Both. */\n{new}"
    assert complete_file(SCRIPT, own) == SCRIPT.replace("one - two", "one + two").replace(
        "The sum.", "Both."
    )
    more = (
        "const path = require('path');\n\nfunction last(all) {\n  return "
        "all.at(-1);\n}\n\nmodule.exports = { added };"
    )
    last = "function last(all) {\n  return all.at(-1);\n}\n"
    merged = SCRIPT.replace("one - two", "one + two").replace(
        "all[1];\n};\n", f"all[1];\n}};\n\n{last}"
    )
    merged = merged.replace("require('fs');\n", "require('fs');\nconst path = require('path');\n")
    assert complete_file(SCRIPT, f"{new}\n\n{more}\n") == merged


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
    body = (
        f'from __future__ import annotations\nimport os\n\nSIGN = "-"\nLIMIT = '
        f"11\n\n{SLUG}\n\nregistry.add(slug)\n"
    )
    expected = MENDED.replace("LIMIT = 10", "LIMIT = 11")
    expected = expected.replace("import re\n\n", "import re\nimport os\n\n").replace(
        "11\n", '11\nSIGN = "-"\n', 1
    )
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
    setter = (
        "    @fahrenheit.setter\n    def fahrenheit(self, value):\n        self.celsius = value "
        "/ 2\n"
    )
    both = right.replace("= value\n", "= value / 2\n")
    assert complete_file(PROPERTY, f"class Heat:\n{getter}\n{setter}") == both
    overloads = (
        "@overload\ndef f(x: int): ...\n@overload\ndef f(x: str): ...\ndef f(x):\n    return "
        "x\n\ndef g():\n    pass\n"
    )
    assert complete_file(overloads, "def f(x):\n    return 2\n") == overloads.replace(
        "return x", "return 2"
    )


def test_a_method_alone_goes_into_its_class_and_a_class_keeps_what_its_answer_leaves_out() -> None:
    assert complete_file(
        FILE, "def add(self, price):\n    self.items += [price]\n"
    ) == FILE.replace("self.items.append(price)", "self.items += [price]")
    own = "    SCALE: int = 2\n\n    def __init__(self):\n        self.x = 1\n"
    body = f"@dataclass\nclass Heat(Base):\n    UNIT = 'F'\n{own}"
    expected = PROPERTY.replace('UNIT = "C"', "UNIT = 'F'")
    expected = expected.replace(
        "\n    def __init__(self, celsius):\n        self.celsius = celsius\n",
        own,
    )
    assert complete_file(PROPERTY, body) == expected


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
    sums = (
        "import c from 'c';\n\nexport function total(items) {\n  return "
        "2;\n}\n\nconsole.log(total([1]));\n"
    )
    expected = CLASS.replace("items.length", "2").replace(
        "from 'x';\n", "from 'x';\nimport c from 'c';\n"
    )
    assert complete_file(CLASS, sums) == expected
    added = CLASS.replace("push(x)", "unshift(x)")
    assert (
        complete_file(
            CLASS, "export class Cart {\n  add(x) {\n    this.items.unshift(x);\n  }\n}\n"
        )
        == added
    )
    assert complete_file(GO, 'func (b *B) String() string {\n\treturn "c"\n}\n') == GO.replace(
        '"b"', '"c"'
    )
    limited = "const LIMIT = 3;\n\nfunction added(one, two) {\n  return LIMIT;\n}\n"
    expected = SCRIPT.replace("one - two", "LIMIT").replace(
        "require('fs');\n", "require('fs');\nconst LIMIT = 3;\n"
    )
    assert complete_file(SCRIPT, limited) == expected


MEANS = '''"""A cart."""

import math


class Cart:
    def __init__(self):
        self.items = []

    def total(self):
        """The sum.

        >>> Cart().total()
        0
        """
        return len(self.items)


def mean(values):
    return sum(values) / 2


if __name__ == "__main__":
    print(mean([1]))
'''
MEAN = "def mean(values):\n    return sum(values) / len(values)\n"
MEANT = MEANS.replace("/ 2", "/ len(values)")
READER = """const fs = require('fs');

/* The mean. */
const mean = (all) => {
  return all[0];
};

function read(name) {
  return fs.readFileSync(name);
}

module.exports = { mean, read };
"""
NEW = "const mean = (all) => {\n  return all[1];\n};\n"
DONE = READER.replace("all[0]", "all[1]")


@pytest.mark.parametrize(
    "line", ["# ... existing code ...", "  // rest of the code remains unchanged", "...", "/* … */"]
)
def test_a_line_may_stand_for_code(line: str) -> None:
    assert is_elision(line)


@pytest.mark.parametrize(
    "line",
    ["# rest of the list", "# add all the items", "x = ...", "return [...all]", "", "# 1, 2, ..."],
)
def test_other_lines_are_what_they_are(line: str) -> None:
    assert not is_elision(line)


@pytest.mark.parametrize(
    "body",
    [
        f"import math\n\n# ... rest unchanged ...\n\n{MEAN}",
        f"import math\n\nclass Cart:\n    # ... existing code ...\n\n{MEAN}",
        f"import math\n\nclass Cart:\n    def __init__(self):\n        ...\n\n    def "
        f"total(self): ...\n\n{MEAN}",
        f"import math\n\nclass Cart:\n    def __init__(self):\n        pass\n        # "
        f"unchanged\n\n{MEAN}",
        f"class Cart:\n    def total(self):\n        # ... existing code ...\n        return "
        f"0\n\n{MEAN}",
        f"class Cart:\n    def total(self):\n        return 1\n        # the rest of the method "
        f"is unchanged\n\n{MEAN}",
        f"class Cart:\n    def total(self):\n        # existing code\n\n{MEAN}",
        f"{MEAN}\n...\n",
    ],
)
def test_what_python_only_stands_in_for_stays(body: str) -> None:
    assert complete_file(MEANS, body) == MEANT


@pytest.mark.parametrize(
    "body",
    [
        f"{NEW}\n// rest of the code remains unchanged\n",
        f"{NEW}\n...\n",
        f"{NEW}\nfunction read(name) {{\n  // ... existing code ...\n}}\n\nmodule.exports = "
        f"{{ mean, read }};\n",
        f"{NEW}\nfunction read(name) {{\n  // unchanged\n}}\n",
    ],
)
def test_what_a_language_of_braces_only_stands_in_for_stays(body: str) -> None:
    assert complete_file(READER, body) == DONE


def test_members_that_a_class_only_stands_in_for_stay() -> None:
    shown = (
        "class Cart {\n  a() {\n    return 1;\n  }\n\n  b() {\n    return 2;\n  "
        "}\n}\n\nmodule.exports = Cart;\n"
    )
    body = "class Cart {\n  // ... other methods\n\n  b() {\n    return 3;\n  }\n\n  // ...\n}\n"
    assert complete_file(shown, body) == shown.replace("return 2", "return 3")


def test_what_cannot_be_put_back_is_not_written() -> None:
    shown = "a: 1\nb:\n  - x\n"
    assert complete_file(shown, "a: 2\n# ... rest unchanged ...\n") == shown
    assert complete_file(shown, "a: 2\nb:\n  - x\n") == "a: 2\nb:\n  - x\n"


def test_a_function_that_was_three_dots_may_be_written() -> None:
    assert (
        complete_file("def f():\n    ...\n", "def f():\n    return 1\n")
        == "def f():\n    return 1\n"
    )


def test_a_docstring_that_an_answer_leaves_out_stays() -> None:
    body = (
        "class Cart:\n    def total(\n        self,\n    ):  # all\n        return "
        "sum(self.items)\n"
    )
    told = '        """The sum.\n\n        >>> Cart().total()\n        0\n        """\n'
    head = "    def total(\n        self,\n    ):  # all\n"
    old = f"    def total(self):\n{told}        return len(self.items)\n"
    assert complete_file(MEANS, body) == MEANS.replace(
        old, f"{head}{told}        return sum(self.items)\n"
    )


def test_imports_and_the_block_that_runs_stay_where_an_answer_leaves_out_nothing_else() -> None:
    shown = (
        'import math\n\n\ndef up(x):\n    return x\n\n\nif __name__ == "__main__":\n    '
        "print(up(1))\n"
    )
    expected = shown.replace("return x", "return math.ceil(x)")
    assert complete_file(shown, "def up(x):\n    return math.ceil(x)\n\nprint(up(2))\n") == expected
    assert complete_file(shown, "import math\n\ndef up(x):\n    return math.ceil(x)\n") == expected


def test_what_is_told_below_a_function_stays() -> None:
    shown = '\ndef up(x):\n    return x\n\n\n"""\nOne more.\n\n>>> up(1)\n2\n"""\n'
    assert complete_file(shown, "def up(x):\n    return x + 1\n") == shown.replace(
        "return x", "return x + 1"
    )


def test_new_functions_stand_above_what_runs() -> None:
    helper = "def both(values):\n    return sum(values)\n"
    body = f"{helper}\n\ndef mean(values):\n    return both(values)\n"
    rest = 'if __name__ == "__main__":\n    print(mean([1]))\n'
    expected = MEANS.replace("return sum(values) / 2", "return both(values)").replace(
        rest, f"{helper}\n\n{rest}"
    )
    assert complete_file(MEANS, body) == expected


def test_a_block_that_only_checks_does_not_take_the_place_of_the_one_that_runs() -> None:
    body = f'{MEAN}\n\nif __name__ == "__main__":\n    assert mean([2]) == 2\n'
    assert complete_file(MEANS, body) == MEANT


@pytest.mark.parametrize(
    "body",
    [
        "function read(name) {\n  return fs.statSync(name);\n}\n",
        "function read(name) {\n  return fs.statSync(name);\n}\n\nmodule.exports = read;\n",
        "function read(name) {\n  return fs.statSync(name);\n}\n\nconsole.log(read('x'));\n",
    ],
)
def test_the_one_function_of_a_script_alone_keeps_its_imports_and_exports(body: str) -> None:
    shown = (
        "const fs = require('fs');\n\nfunction read(name) {\n  return "
        "fs.readSync(name);\n}\n\nmodule.exports = read;\n"
    )
    assert complete_file(shown, body) == shown.replace("readSync", "statSync")


def test_a_package_is_named_once() -> None:
    shown = (
        'package calc\n\nimport "fmt"\n\nfunc Mean(x int) int {\n\tfmt.Println(x)\n\treturn 2\n}\n'
    )
    body = (
        "package main\n\nfunc Mean(x int) int {\n\tfmt.Println(x)\n\treturn 3\n}\n\nfunc More() "
        "int {\n\treturn 1\n}\n"
    )
    assert complete_file(shown, body) == shown.replace("return 2", "return 3") + (
        "\nfunc More() int {\n\treturn 1\n}\n"
    )


def test_functions_with_their_types_before_their_names_are_told_apart() -> None:
    shown = (
        "#include <a.h>\n\nint add(int a, int b) {\n    return a - b;\n}\n\nint main(void) {\n   "
        " return add(1);\n}\n"
    )
    assert complete_file(shown, "int add(int a, int b) {\n    return a + b;\n}\n") == shown.replace(
        "a - b", "a + b"
    )


def test_a_new_member_alone_does_not_take_the_place_of_the_others() -> None:
    shown = "class Cart {\n  a() {\n    return 1;\n  }\n}\n"
    body = "class Cart {\n  b() {\n    return 2;\n  }\n}\n"
    assert (
        complete_file(shown, body)
        == "class Cart {\n  a() {\n    return 1;\n  }\n\n  b() {\n    return 2;\n  }\n}\n"
    )


METHOD = '    def total(self):\n        """The sum."""\n        return 1'
BETTER = '    def total(self):\n        """The sum."""\n        return 2'
BARE = 'def total(self):\n    """The sum."""\n    return 2\n'
CART = f"class Cart:\n    rate = 1\n\n{METHOD}\n\n    def other(self):\n        return 3\n"


def put(
    part: str, answer: str, around: str = "{}", path: str = "a.py", *, judged: bool = True
) -> str:
    """What stands in the place of the part in its file."""
    content = around.replace("{}", part)
    new = replace_part(path, content, part, answer, judged=judged)
    start, end = around.split("{}")
    assert new.startswith(start) and new.endswith(end)
    return new.removeprefix(start).removesuffix(end)


@pytest.mark.parametrize(
    "answer",
    [
        f"class Cart:\n{BETTER}\n",
        f"class Cart:\n    def __init__(self):\n        self.items = []\n\n{BETTER}\n\n    def "
        f"mean(self): ...\n",
        f"{BETTER}\n",
        BARE,
        f"{BARE}\n\nassert Cart().total() == 2\n",
        f"{BETTER}\n\n\ncart = Cart()\nprint(cart.total())\n",
        f"import math\n\n\n{BARE}",
        "class Cart:\n    def total(self):\n        return 2\n",
    ],
)
@pytest.mark.parametrize("judged", [True, False])
def test_of_an_answer_to_a_part_only_its_function_takes_its_place(
    answer: str, judged: bool
) -> None:
    assert put(METHOD, answer, CART.replace(METHOD, "{}"), judged=judged) == BETTER


def test_a_part_is_indented_as_its_file_is() -> None:
    for answer in (
        "def total(self):\n\treturn 2\n",
        "class Cart:\n\tdef total(self):\n\t\treturn 2\n",
    ):
        assert (
            put("\tdef total(self):\n\t\treturn 1", answer, "class Cart:\n{}\n")
            == "\tdef total(self):\n\t\treturn 2"
        )


def test_a_docstring_stays_where_tests_judge() -> None:
    other = BARE.replace("The sum.", "Adds all.")
    around = "class Cart:\n{}\n"
    assert put(METHOD, other, around) == BETTER
    assert put(METHOD, other, around, judged=False) == BETTER.replace("The sum.", "Adds all.")


def test_what_a_function_needs_and_its_file_has_not_comes_along() -> None:
    file = "import os\n\n\ndef total(items):\n    return 1\n"
    part = "def total(items):\n    return 1"
    new = "def total(items):\n    return fsum(half(items))"
    half = "def half(items):\n    return items[1:]"
    answer = f"import json\nfrom math import fsum\n\n\n{half}\n\n\n{new}\n\n\nprint(total([1]))\n"
    assert (
        replace_part("a.py", file, part, answer)
        == f"import os\nfrom math import fsum\n\n\n{new}\n\n\n{half}\n"
    )


@pytest.mark.parametrize(
    "answer",
    [
        "def total(self:\n    return 2\n",
        "\n",
        "def sum(self):\n    return 2\n",
        "def total(self):\n    # ...\n    return 2\n",
    ],
)
def test_what_cannot_be_read_or_is_something_else_takes_no_place(answer: str) -> None:
    assert put(METHOD, answer, "class Cart:\n{}\n") == METHOD


JS = "/** The sum. */\nfunction total(items) {\n  return items.length;\n}"
IN_RUST = "    /// The sum.\n    pub fn total(&self) -> u32 {\n        1\n    }"


def test_in_braces_only_the_function_takes_its_place_too() -> None:
    new = JS.replace("items.length", "items.size")
    tried = f"{new}\n\nconsole.log(total([1]));\nmodule.exports = {{ total }};\n"
    assert put(JS, tried, "{}\n", "a.js") == put(JS, new.partition("\n")[2], "{}\n", "a.js") == new
    better = IN_RUST.replace("1\n", "2\n")
    assert put(IN_RUST, f"impl Cart {{\n{better}\n}}\n", "impl Cart {\n{}\n}\n", "a.rs") == better


@pytest.mark.parametrize(
    "added",
    [
        "\n\n# Test cases\nassert total([1]) == 1\nassert total([]) == 0\n",
        "\n\nfor prices, all in [([1], 2)]:\n    assert total(prices) == all\n",
        "\n\ndef check_solution():\n    assert total([1]) == 2\n    "
        "print('fine')\n\ncheck_solution()\n",
        "\n\ndef test_total(prices):\n    assert total(prices)\n",
    ],
)
def test_where_tests_judge_what_tries_an_answer_out_is_left_out(added: str) -> None:
    stub = 'def total(prices):\n    """What all come to."""\n    pass\n'
    done = stub.replace("pass", "return sum(prices)")
    assert complete_file(stub, done + added) == done
    assert complete_file(stub, done + added, judged=False) == done + added
    assert (
        complete_file(stub, f"{done}\n\ndef checkout():\n    pass\n")
        == f"{done}\n\ndef checkout():\n    pass\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "edit"),
    [
        ("a\nb\nc\n", "a\nx\nc\n", ("b", "x")),
        ("a\nb\na\nb\n", "a\nb\nx\nb\n", ("b\na\nb", "b\nx\nb")),
        ("a\nb\n", "a\nx\nb\n", ("a\nb", "a\nx\nb")),
        ("a\n", "a\n", None),
    ],
)
def test_an_edit_stands_for_lines_that_are_in_the_file_once(
    old: str, new: str, edit: tuple[str, str] | None
) -> None:
    assert edit_between(old, new) == edit
