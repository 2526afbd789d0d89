"""What an answer only stands in for stays as it is in the file."""

from __future__ import annotations

import pytest

from fugu_cli.repair.code_structure import is_elision
from fugu_cli.repair.partial_files import complete_file

FILE = '''"""A cart."""

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
MENDED = FILE.replace("/ 2", "/ len(values)")
SCRIPT = """const fs = require('fs');

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
DONE = SCRIPT.replace("all[0]", "all[1]")


@pytest.mark.parametrize(
    "line", ["# ... existing code ...", "  // rest of the code remains unchanged", "...", "/* … */"]
)
def test_a_line_may_stand_for_code(line: str) -> None:
    assert is_elision(line)


@pytest.mark.parametrize(
    "line", ["# rest of the list", "# add all the items", "x = ...", "return [...all]", "", "# 1, 2, ..."]
)
def test_other_lines_are_what_they_are(line: str) -> None:
    assert not is_elision(line)


@pytest.mark.parametrize(
    "body",
    [
        f"import math\n\n# ... rest unchanged ...\n\n{MEAN}",
        f"import math\n\nclass Cart:\n    # ... existing code ...\n\n{MEAN}",
        f"import math\n\nclass Cart:\n    def __init__(self):\n        ...\n\n    def total(self): ...\n\n{MEAN}",
        f"import math\n\nclass Cart:\n    def __init__(self):\n        pass\n        # unchanged\n\n{MEAN}",
        f"class Cart:\n    def total(self):\n        # ... existing code ...\n        return 0\n\n{MEAN}",
        f"class Cart:\n    def total(self):\n        return 1\n        # the rest of the method is unchanged\n\n{MEAN}",
        f"class Cart:\n    def total(self):\n        # existing code\n\n{MEAN}",
        f"{MEAN}\n...\n",
    ],
)
def test_what_python_only_stands_in_for_stays(body: str) -> None:
    assert complete_file(FILE, body) == MENDED


@pytest.mark.parametrize(
    "body",
    [
        f"{NEW}\n// rest of the code remains unchanged\n",
        f"{NEW}\n...\n",
        f"{NEW}\nfunction read(name) {{\n  // ... existing code ...\n}}\n\nmodule.exports = {{ mean, read }};\n",
        f"{NEW}\nfunction read(name) {{\n  // unchanged\n}}\n",
    ],
)
def test_what_a_language_of_braces_only_stands_in_for_stays(body: str) -> None:
    assert complete_file(SCRIPT, body) == DONE


def test_members_that_a_class_only_stands_in_for_stay() -> None:
    shown = "class Cart {\n  a() {\n    return 1;\n  }\n\n  b() {\n    return 2;\n  }\n}\n\nmodule.exports = Cart;\n"
    body = "class Cart {\n  // ... other methods\n\n  b() {\n    return 3;\n  }\n\n  // ...\n}\n"
    assert complete_file(shown, body) == shown.replace("return 2", "return 3")


def test_what_cannot_be_put_back_is_not_written() -> None:
    shown = "a: 1\nb:\n  - x\n"
    assert complete_file(shown, "a: 2\n# ... rest unchanged ...\n") == shown
    assert complete_file(shown, "a: 2\nb:\n  - x\n") == "a: 2\nb:\n  - x\n"


def test_a_function_that_was_three_dots_may_be_written() -> None:
    assert complete_file("def f():\n    ...\n", "def f():\n    return 1\n") == "def f():\n    return 1\n"
    assert complete_file("def f():\n    pass\n", "def f():\n    ...\n") == "def f():\n    ...\n"


def test_a_docstring_that_an_answer_leaves_out_stays() -> None:
    body = (
        "class Cart:\n    def total(\n        self,\n    ):  # all\n        # of them\n        return sum(self.items)\n"
    )
    told = '        """The sum.\n\n        >>> Cart().total()\n        0\n        """\n'
    head = "    def total(\n        self,\n    ):  # all\n"
    old = f"    def total(self):\n{told}        return len(self.items)\n"
    assert complete_file(FILE, body) == FILE.replace(
        old, f"{head}{told}        # of them\n        return sum(self.items)\n"
    )


def test_imports_and_the_block_that_runs_stay_where_an_answer_leaves_out_nothing_else() -> None:
    shown = 'import math\n\n\ndef up(x):\n    return x\n\n\nif __name__ == "__main__":\n    print(up(1))\n'
    expected = shown.replace("return x", "return math.ceil(x)")
    assert complete_file(shown, "def up(x):\n    return math.ceil(x)\n\nprint(up(2))\n") == expected
    assert complete_file(shown, "import math\n\ndef up(x):\n    return math.ceil(x)\n") == expected


def test_what_is_told_below_a_function_stays() -> None:
    shown = '\ndef up(x):\n    return x\n\n\n"""\nOne more.\n\n>>> up(1)\n2\n"""\n'
    assert complete_file(shown, "def up(x):\n    return x + 1\n") == shown.replace("return x", "return x + 1")


def test_new_functions_stand_above_what_runs() -> None:
    helper = "def both(values):\n    return sum(values)\n"
    body = f"{helper}\n\ndef mean(values):\n    return both(values)\n"
    rest = 'if __name__ == "__main__":\n    print(mean([1]))\n'
    expected = FILE.replace("return sum(values) / 2", "return both(values)").replace(rest, f"{helper}\n\n{rest}")
    assert complete_file(FILE, body) == expected


def test_a_block_that_only_checks_does_not_take_the_place_of_the_one_that_runs() -> None:
    body = f'{MEAN}\n\nif __name__ == "__main__":\n    assert mean([2]) == 2\n'
    assert complete_file(FILE, body) == MENDED


def test_a_method_alone_is_the_one_of_its_name_that_is_most_like_it() -> None:
    shown = "class A:\n    def f(self, x):\n        return x - 1\n\n\nclass B:\n    def f(self):\n        return 2\n"
    assert complete_file(shown, "def f(self, x):\n    return x + 1\n") == shown.replace("x - 1", "x + 1")


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
        "const fs = require('fs');\n\nfunction read(name) {\n  return fs.readSync(name);\n}\n\nmodule.exports = read;\n"
    )
    assert complete_file(shown, body) == shown.replace("readSync", "statSync")


def test_a_package_is_named_once() -> None:
    shown = 'package calc\n\nimport "fmt"\n\nfunc Mean(x int) int {\n\tfmt.Println(x)\n\treturn 2\n}\n'
    body = (
        "package main\n\nfunc Mean(x int) int {\n\tfmt.Println(x)\n\treturn 3\n}\n\nfunc More() int {\n\treturn 1\n}\n"
    )
    assert complete_file(shown, body) == shown.replace("return 2", "return 3") + (
        "\nfunc More() int {\n\treturn 1\n}\n"
    )


def test_functions_with_their_types_before_their_names_are_told_apart() -> None:
    shown = (
        "#include <a.h>\n\nint add(int a, int b) {\n    return a - b;\n}\n\nint main(void) {\n    return add(1);\n}\n"
    )
    assert complete_file(shown, "int add(int a, int b) {\n    return a + b;\n}\n") == shown.replace("a - b", "a + b")


def test_a_new_member_alone_does_not_take_the_place_of_the_others() -> None:
    shown = "class Cart {\n  a() {\n    return 1;\n  }\n}\n"
    body = "class Cart {\n  b() {\n    return 2;\n  }\n}\n"
    assert complete_file(shown, body) == "class Cart {\n  a() {\n    return 1;\n  }\n\n  b() {\n    return 2;\n  }\n}\n"
