"""Files a failing test or a request names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.repair.localization import PROMPT_ROOM, fitting, implicated_files, shown_for
from tests.unit.conftest import lay

TREE: dict[str, str | bytes] = {
    "shop/__init__.py": "from .money import Money\n",
    "shop/money.py": "import json\nclass Money: pass\n",
    "shop/invoice.py": "from .money import Money\n",
    "shop/layout.py": "",
    "src/pkg/core.py": "",
    "src/pkg/__init__.py": "",
    "tests/helpers.py": "from shop.layout import *\n",
    "tests/test_invoice.py": ("import pytest\nfrom shop.invoice import total\nfrom . import "
        "helpers\n"),
    "tests/test_money.py": "from shop import Money\n",
    "tests/test_core.py": "import pkg.core\n",
    "quick.py": "", "README.md": "# shop\n", "package.json": "{}", "Makefile": "all:\n", ".gitignore": "x\n",
    "toolbox/deep/chart.py": "",
    "tests/test_chart.py": "import json, chart\n",
    "test_quick.py": "from quick import sort\n",
    "lib/add.js": "",
    "lib/add.test.js": "const add = require('./add');\nimport x from '../lib/other'\n",
    "lib/other.ts": "",
    "rust/src/lib.rs": "",
    "calc/calc.go": "package calc\n",
    "calc/calc_test.go": "package calc\n",
    "java/src/main/java/shop/Cart.java": ("package shop;\npublic class Cart { private Price sum; "
        "}\n"),
    "java/src/main/java/shop/Price.java": "package shop;\npublic record Price(int cents) {}\n",
    "java/src/test/java/shop/CartTest.java": ("package shop;\nclass CartTest { @Test void a() { "
        "new Cart(); } }\n"),
    "ruby/lib/bill.rb": "class Bill\nend\n",
    "ruby/spec/bill_spec.rb": "require_relative '../lib/bill'\n",
    "c/src/queue.h": "", "c/src/queue.c": '#include "queue.h"\n',
    "c/tests/check_queue.c": '#include "../src/queue.h"\n#include <stdio.h>\n',
    ".venv/lib/site-packages/dep.py": "",
    "node_modules/dep/index.js": "",
    "same/a/twin.py": "", "same/b/twin.py": "", "same/c/twin.py": "",
}  # fmt: skip


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("implicated")
    lay(folder / "repo", TREE)
    lay(folder, {"outside.py": ""})
    (folder / "repo" / "link.py").symlink_to(folder / "outside.py")
    return (folder / "repo").resolve()


@pytest.mark.parametrize(
    ("output", "request_", "expected"),
    [
        ("", "fix the failing tests", []),
        ("", "there is a bug in money.py", ["shop/money.py"]),
        ("", "look at `shop/layout.py` and README", ["shop/layout.py", "README.md"]),
        ("", "Explain total in the readme", ["README.md"]),
        ("", "add a target to the Makefile", ["Makefile"]),
        ("", "ignore logs in the .gitignore", [".gitignore"]),
        ("", "bump the version to 1.1.0", []),
        ("", "which version of Python is this?", []),
        ("", "change the version parsing", []),
        ("", "It is slow. " * 40 + "I have read the README.", []),
        ("", "make changes to dependency injection", []),
        ("", "pkg.core.run is wrong", ["src/pkg/core.py"]),
        ("", "compare /etc/passwd, ../outside.py and link.py", []),
        ("", "twin.py", []),
        ("tests/test_invoice.py:12: Error", "", ["shop/invoice.py", "shop/layout.py", "tests/test_invoice.py"]),
        ("FAILED tests/test_money.py::test_add - assert 1 == 2", "",
         ["shop/money.py", "tests/test_money.py"]),
        ("FAILED tests/test_core.py::test_it", "", ["src/pkg/core.py", "tests/test_core.py"]),
        ("tests/test_chart.py:3: AssertionError", "", ["toolbox/deep/chart.py", "tests/test_chart.py"]),
        ("test_quick.py:3: AssertionError\nFAILED test_quick.py::test_sort", "", ["quick.py", "test_quick.py"]),
        ('  File "{root}/shop/money.py", line 3, in add', "", ["shop/money.py"]),
        ('Traceback:\n  File "{root}/tests/test_money.py", line 1\n  File "shop/invoice.py", '
            'line 2\n'
         '  File "shop/money.py", line 3\n  File "/usr/lib/python3/json/__init__.py", line 1', "",
         ["shop/money.py", "shop/invoice.py", "tests/test_money.py"]),
        ("error[E0425]: cannot find value\n --> rust/src/lib.rs:1:41", "", ["rust/src/lib.rs"]),
        ("  location: '{root}/lib/add.test.js:2:1'\n    at x (file://{root}/lib/add.js:1:2)", "",
         ["lib/add.js", "lib/other.ts", "lib/add.test.js"]),
        ("--- FAIL: TestAdd\n    calc_test.go:7: got 1", "", ["calc/calc.go", "calc/calc_test.go"]),
        ("[ERROR] shop.CartTest.total <<< FAILURE!\n\tat shop.CartTest.total(CartTest.java:18)", "",
         ["java/src/main/java/shop/Cart.java", "java/src/main/java/shop/Price.java",
          "java/src/test/java/shop/CartTest.java"]),
        ("rspec ./ruby/spec/bill_spec.rb:4 # Bill adds", "", ["ruby/lib/bill.rb", "ruby/spec/bill_spec.rb"]),
        ("check_queue: c/tests/check_queue.c:9: Assertion `n == 1' failed.", "",
         ["c/src/queue.c", "c/src/queue.h", "c/tests/check_queue.c"]),
        ("", 'It crashes:\n  File "/home/me/work/src/pkg/core.py", line 6, in run\n'
         '  File "/usr/lib/python3.11/money.py", line 22', ["src/pkg/core.py"]),
        ("", "TypeError at run (/app/lib/add.js:10:5)", ["lib/add.js"]),
        ("", r'File "C:\Users\me\src\pkg\core.py", line 6', ["src/pkg/core.py"]),
        ("", "see https://example.com/docs/money.py, /tmp/x/money.py and /srv/same/twin.py", []),
        ("", "explain @shop/layout.py", ["shop/layout.py"]),
        (".venv/lib/site-packages/dep.py:3: Error\nnode_modules/dep/index.js:1", "", []),
    ],
)  # fmt: skip
def test_named_files_and_imports_are_found(
    output: str, request_: str, expected: list[str], root: Path
) -> None:
    assert implicated_files(output.replace("{root}", str(root)), request_, root) == expected


@given(st.text(max_size=200))
def test_any_text_is_searched_without_an_error(text: str) -> None:
    assert implicated_files(text, text, Path("/nowhere")) == []


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("def f():\n    return 1\n", ["a.py", "SPEC.md"]),
        ("def f():\n    pass\n", ["a.py", "SPEC.md", "test_a.py"]),
        (None, ["SPEC.md", "test_a.py", "test_b.py"]),
    ],
)
def test_tests_are_shown_where_the_code_is_a_stub_or_missing(
    code: str | None, expected: list[str], tmp_path: Path
) -> None:
    if code is not None:
        (tmp_path / "a.py").write_text(code)
    found = ["a.py"] if code is not None else []
    assert (
        shown_for(
            "make the tests pass",
            "1 error",
            [*found, "SPEC.md", "test_a.py", "test_b.py"],
            tmp_path,
        )
        == expected
    )


def test_tests_are_not_shown_where_their_output_tells_what_they_assert(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    pass\n")
    output = "E  AssertionError: None != 1"
    assert shown_for("make the tests pass", output, ["a.py", "test_a.py"], tmp_path) == ["a.py"]


@pytest.mark.parametrize(
    "request_", ["rename f to g", "add a test for f to test_a.py", "what does f do?"]
)
def test_tests_are_shown_where_the_request_is_about_something_else_or_asks_for_them(
    request_: str, tmp_path: Path
) -> None:
    (tmp_path / "a.py").write_text("def f():\n    return 1\n")
    assert shown_for(request_, "", ["a.py", "test_a.py"], tmp_path) == ["a.py", "test_a.py"]


def test_where_tests_are_to_be_written_those_of_the_code_are_shown_or_else_how_others_are_written(
    tmp_path: Path,
) -> None:
    lay(tmp_path, {"a.py": "def first():\n    return 1\n", "b.py": "def second():\n    return 2\n"})
    lay(
        tmp_path,
        {
            "tests/test_a.py": "def test_first():\n    assert first() == 1\n",
            "tests/conftest.py": "x = 1\n",
        },
    )
    assert shown_for("write tests for first", "", [], tmp_path) == ["a.py", "tests/test_a.py"]
    assert shown_for("add a function third to b.py", "", ["b.py"], tmp_path) == ["b.py"]


def test_beside_a_document_that_is_to_be_written_what_it_is_about_is_shown(tmp_path: Path) -> None:
    (tmp_path / "cart.js").write_text("function total(items) {\n  return items.length;\n}\n")
    (tmp_path / "README.md").write_text("# shop\n")
    request = "Write a README section that explains total"
    assert shown_for(request, "", ["README.md"], tmp_path) == ["README.md", "cart.js"]
    assert shown_for("What does total do, says the README?", "", ["README.md"], tmp_path) == [
        "README.md"
    ]
    assert shown_for("Explain total in cart.js", "", ["cart.js"], tmp_path) == ["cart.js"]


def test_of_code_that_does_not_compile_the_test_that_holds_its_names_is_found(
    tmp_path: Path,
) -> None:
    lay(
        tmp_path,
        {
            "src/lib.rs": "pub fn keep(f: ???) -> Vec<i32> {\n    todo!()\n}\n",
            "tests/other.rs": "fn helper() {}\n",
            "tests/strain.rs": "use strain::keep;\n#[test]\nfn all() { keep(|x| x > 1); }\n",
        },
    )
    request_ = "Implement src/lib.rs so that the tests pass"
    assert shown_for(request_, "error: could not compile", ["src/lib.rs"], tmp_path) == [
        "src/lib.rs",
        "tests/strain.rs",
    ]
    (tmp_path / "tests/strain.rs").unlink()
    assert shown_for(request_, "error: could not compile", ["src/lib.rs"], tmp_path) == [
        "src/lib.rs"
    ]


def test_where_only_an_assertion_failed_what_the_tested_code_imports_is_found_too(
    tmp_path: Path,
) -> None:
    lay(
        tmp_path,
        {
            "stock.py": "from parsing import line\n\n\ndef load(text):\n    return line(text)\n",
            "parsing.py": "def line(text):\n    return text\n",
            "test_stock.py": "from stock import load\n",
        },
    )
    failed = "    assert load('a') == 1\ntest_stock.py:4: AssertionError"
    assert implicated_files(failed, "", tmp_path) == ["stock.py", "parsing.py", "test_stock.py"]
    assert implicated_files(f"stock.py:5: KeyError\n{failed}", "", tmp_path) == [
        "stock.py",
        "test_stock.py",
    ]
    lay(
        tmp_path,
        {
            "stock.py": (
                "from parsing import line\n\n\ndef load(text):\n    raise NotImplementedError\n"
            )
        },
    )
    assert implicated_files(failed, "", tmp_path) == ["stock.py", "test_stock.py"]


def test_of_what_a_test_imports_comes_first_what_defines_a_name_that_the_failure_calls(
    tmp_path: Path,
) -> None:
    files = {name: f"def use_{name[0]}():\n    return 1\n" for name in ("a.py", "b.py", "c.py")}
    lay(tmp_path, {**files, "test_all.py": "import a\nimport b\nimport c\n"})
    failed = "    assert b.use_b() == 2\ntest_all.py:7: AssertionError"
    assert implicated_files(failed, "", tmp_path) == ["b.py", "a.py", "c.py", "test_all.py"]


def test_files_that_would_not_fit_beside_likelier_ones_are_left_out(tmp_path: Path) -> None:
    third = "x" * (PROMPT_ROOM // 3)
    lay(tmp_path, {"a": third, "b": third * 2, "c": third * 2, "d": third[1:], "long": third * 4})
    assert fitting(["a", "b", "c"], tmp_path) == ["a", "b"]
    assert fitting(["a", "d", "b", "d"], tmp_path) == ["a", "d", "d"]
    assert fitting(["long", "a"], tmp_path) == ["long", "a"], "functions of it may be shown"
    assert fitting(["long", "a", "long", "long", "d"], tmp_path) == ["long", "a", "long", "d"]


def test_a_package_only_passes_on_what_the_test_uses(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {
        "bills/__init__.py": "from bills.layout import as_text\n",
        "bills/layout.py": (
            "from bills.columns import aligned\n\ndef as_text(x):\n    return aligned(x)\n"
        ),
        "bills/columns.py": "from bills.deep import cut\n\ndef aligned(x):\n    return cut(x)\n",
        "bills/deep.py": "def cut(x):\n    return x\n",
        "tests/test_bills.py": "from bills import as_text\n",
    }
    lay(tmp_path, files)
    found = implicated_files(
        "tests/test_bills.py:3: AssertionError: assert as_text(1) == 2",
        "fix it",
        tmp_path.resolve(),
    )
    code = ["bills/layout.py", "bills/columns.py", "bills/__init__.py"]
    assert found == [*code, "tests/test_bills.py"], (
        "one step further than what it names, and not all"
    )


def test_a_module_that_is_only_named_leads_further_one_that_broke_does_not(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "pkg/sheet.py": "from pkg.value import of\n",
            "pkg/value.py": "def of(x):\n    return x\n",
        },
    )
    lay(tmp_path, {"tests/test_sheet.py": "from pkg.sheet import Sheet\n"})
    root, test = tmp_path.resolve(), "tests/test_sheet.py:3: AssertionError"
    assert implicated_files(f"assert sheet.value('A1') == 2\n{test}", "fix it", root)[:2] == [
        "pkg/sheet.py",
        "pkg/value.py",
    ]
    assert implicated_files(f"{test}\npkg/sheet.py:1: ImportError", "fix it", root) == [
        "pkg/sheet.py",
        "tests/test_sheet.py",
    ]
    assert "pkg/value.py" not in implicated_files(
        f"assert sheet.value('A1') == 2\n{test}", "correct pkg/sheet.py", root
    )
