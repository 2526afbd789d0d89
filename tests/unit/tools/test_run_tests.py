"""run_tests: the exit code decides, the failing assertion is told, equal runs read equal."""

from __future__ import annotations

import asyncio
import shutil
import sys
from pathlib import Path

import pytest

from fugu_cli.session.events import TestReport
from fugu_cli.session.recognized_tests import failed_count
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.run_tests import digest_output, unshown_places, without_network
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build, use

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"
SUITE: dict[str, str | bytes] = {
    "calc.py": "def add(a, b):\n    return a - b\n",
    "test_calc.py": (
        "import pytest\nfrom calc import add\n\n\n"
        "@pytest.mark.parametrize('n', range(30))\ndef test_add(n):\n    print('noise ' * 400)\n"
        "    long = 'x' * 3000\n    assert add(n, n) == 2 * n\n\n\ndef test_zero():\n    assert "
        "add(0, 0) == 0\n"
    ),
}


def test_passing_tests_are_told_in_a_line_and_leave_nothing_behind(repo: Build) -> None:
    workspace = repo({"test_a.py": "def test_a():\n    assert True\n"})
    workspace.test_command = PYTEST
    before = asyncio.run(workspace.history.snapshot())
    assert use(workspace, "run_tests") == ToolResult(
        text="1 passed", tests=TestReport(passed=1, by_id=True)
    )
    assert asyncio.run(workspace.history.snapshot()) == before
    assert sorted(path.name for path in workspace.root.iterdir()) == [".git", "test_a.py"]


def test_failing_tests_are_told_with_assertion_place_and_counts_in_few_characters(
    plain: Build,
) -> None:
    workspace = plain(SUITE)
    workspace.test_command = PYTEST
    told = use(workspace, "run_tests")
    assert (told.ok, failed_count(told.text), len(told.text) < 4500) == (False, 29, True)
    assert ">       assert add(n, n) == 2 * n\nE       assert 0 == (2 * 1)" in told.text
    assert "test_calc.py:9: AssertionError" in told.text
    assert told.text.endswith("29 failed, 2 passed\n[exit code 1]")
    assert use(workspace, "run_tests") == told


def test_one_target_is_run_and_nothing_else_passes_for_one(plain: Build) -> None:
    workspace = plain(SUITE)
    workspace.test_command = PYTEST
    passed = ToolResult(text="1 passed", tests=TestReport(passed=1, by_id=True))
    assert use(workspace, "run_tests", target="test_calc.py::test_zero") == passed
    assert (
        use(workspace, "run_tests", target="missing.py").text == "There is no test file missing.py."
    )
    for target in ("--collect-only", "-k x", "../outside", "/etc"):
        assert use(workspace, "run_tests", target=target) == ToolResult(
            text=f"`{target}` is not a test file or test id in this repository.",
            ok=False,
            tests=TestReport(unable="the tests could not be run: their target is no test"),
        )


def test_a_change_of_one_character_within_a_second_is_noticed(plain: Build) -> None:
    workspace = plain(
        {"calc.py": "def add(a, b):\n    return a - b\n", "test_calc.py": SUITE["test_calc.py"]}
    )
    workspace.test_command = PYTEST
    assert not use(workspace, "run_tests").ok
    workspace.write(workspace.root / "calc.py", b"def add(a, b):\n    return a + b\n")
    assert use(workspace, "run_tests") == ToolResult(
        text="31 passed", tests=TestReport(passed=31, by_id=True)
    )


def test_tests_that_never_end_are_ended(plain: Build, tmp_path: Path) -> None:
    root = plain({}).root
    workspace = Workspace(
        root, tmp_path / "store", test_command="echo started; sleep 1000", test_timeout=0.5
    )
    result = use(workspace, "run_tests")
    assert result.text == "started\n[It did not end within 0.5 s and was ended.]"
    assert result.tests is not None
    assert result.tests.unable.startswith("the tests did not finish in")
    workspace = Workspace(
        root, tmp_path / "store", test_command="echo started; sleep 1000", test_timeout=600.0
    )
    result = use(workspace, "run_tests", seconds=0.4)
    assert result.text == "started\n[It did not end within 0.4 s and was ended.]"
    workspace = Workspace(
        root, tmp_path / "store", test_command="echo started; sleep 1000", test_timeout=0.5
    )
    assert "0.5 s" in use(workspace, "run_tests", seconds=60.0).text, (
        "never longer than the user allows"
    )


def test_without_a_test_command_it_is_said_what_to_do(plain: Build) -> None:
    told = use(plain({}), "run_tests")
    assert (told.ok, told.text.endswith("Start fugu with --test-command to name one.")) == (
        False,
        True,
    )


def test_other_runners_take_no_target_and_say_so(plain: Build) -> None:
    workspace = plain({})
    workspace.test_command = "echo fine"
    assert use(workspace, "run_tests", target="x") == ToolResult(
        text="fine\n(target is for pytest alone: `echo fine` was run without it)"
    )


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_node_tests_are_told_by_their_failures(plain: Build) -> None:
    passing = "".join(f"test('fine {n}', () => {{}});\n" for n in range(100))
    workspace = plain(
        {
            "a.test.js": ("const test = require('node:test'); const assert = "
                "require('node:assert');\n")
            + passing + "test('adds', () => { assert.strictEqual(1 + 1, 3); });\n"
        }
    )  # fmt: skip
    workspace.test_command = "node --test --test-reporter=tap"
    told = use(workspace, "run_tests")
    assert (told.ok, failed_count(told.text), len(told.text) < 2000) == (False, 1, True)
    assert "not ok 101 - adds" in told.text
    assert "2 !== 3" in told.text


@pytest.mark.skipif(shutil.which("node") is None, reason="needs node")
def test_where_node_only_names_a_place_in_a_test_what_stands_there_is_shown(plain: Build) -> None:
    test = (
        "const test = require('node:test'); const assert = require('node:assert');\n"
        "const { add } = require('./add.js');\n"
        "console.assert = (condition) => assert.ok(condition);\n"
        "test('adds', () => {\n  console.assert(\n    add(1,\n      2) === 3\n  );\n});\n"
    )
    secret = (
        "const key = 'k';\nexports.add = (a, b) => { if (b > 5) throw new Error(key); return a - "
        "b; };\n"
    )
    workspace = plain({"add.test.js": test, "add.js": secret})
    workspace.test_command = "node --test --test-reporter=tap"
    told = use(workspace, "run_tests").text
    assert "add.test.js:5:11)\n      > console.assert( add(1, 2) === 3 );" in told
    assert "node:async" not in told
    workspace = plain({"add.test.js": test.replace("2)", "9)"), "add.js": secret})
    workspace.test_command = "node --test --test-reporter=tap"
    told = use(workspace, "run_tests").text
    assert "add.js:2:" in told
    assert "> exports.add" not in told, "the file may be kept from the agent that reads this"


def test_where_a_stack_of_java_names_a_place_in_a_test_what_stands_there_is_shown(
    plain: Build,
) -> None:
    test = (
        "class CartTest {\n    void total() {\n        assertEquals(345,\n            "
        "cart.total());\n    }\n}\n"
    )
    code = "class Cart {\n    int total() {\n        return prices[0];\n    }\n}\n"
    workspace = plain(
        {"src/test/java/CartTest.java": test, "src/main/java/Cart.java": code, "mvn": MVN}
    )
    workspace.test_command = "sh ./mvn test"
    told = use(workspace, "run_tests").text
    assert "CartTest.java:3)\n      > assertEquals(345, cart.total());" in told
    assert "> return prices" not in told, "the file may be kept from the agent that reads this"


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("mvn -B -ntp test", "mvn -o -B -ntp test"),
        ("./mvnw test", "./mvnw -o test"),
        ("cd api && mvn test", "cd api && mvn -o test"),
        ("mvn --offline test", "mvn --offline test"),
        ("npm test", "npm test"),
        ("sh mvn.sh test", "sh mvn.sh test"),
    ],
)
def test_maven_is_told_that_there_is_no_network(command: str, told: str) -> None:
    assert without_network(command) == told


MVN = """\
cat <<'END'
[ERROR] CartTest.total -- Time elapsed: 0.02 s <<< ERROR!
java.lang.IndexOutOfBoundsException: 0
\tat Cart.total(Cart.java:3)
\tat CartTest.total(CartTest.java:3)

[ERROR] Tests run: 1, Failures: 0, Errors: 1, Skipped: 0
END
exit 1
"""


def test_what_a_runner_has_framed_is_not_shown_twice() -> None:
    told = (
        "  ● adds\n\n    > 3 |   expect(add(1, 2)).toBe(3);\n\n      at Object.<anonymous> "
        "(add.test.js:3:21)"
    )
    assert unshown_places(told) == []
    assert unshown_places(told.replace("> 3 |", "3")) == [(4, "add.test.js", 3)]


UNITTEST = """\
..F.
======================================================================
FAIL: test_b (tests.test_a.T.test_b)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "/repo/tests/test_a.py", line 6, in test_b
    self.assertEqual(1, 2)
AssertionError: 1 != 2

----------------------------------------------------------------------
Ran 4 tests in 0.001s

FAILED (failures=1)
"""

CARGO = """\
   Compiling my-lib v0.1.0 (/repo)
    Finished `test` profile [unoptimized + debuginfo] target(s) in 0.88s
running 2 tests
test tests::ok ... ok
test tests::adds ... FAILED

failures:

---- tests::adds stdout ----

thread 'tests::adds' (28828) panicked at src/lib.rs:3:47:
assertion `left == right` failed
  left: -1
 right: 3

failures:
    tests::adds

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.12s

error: test failed, to rerun pass `--lib`
"""

NEXTEST = """\
────────────
 Nextest run ID ff1973df with nextest profile: default
    Starting 2 tests across 1 binary
        PASS [   0.012s] (1/2) my-lib tests::ok
        FAIL [   0.755s] (2/2) my-lib tests::adds
  stderr ───

    thread 'tests::adds' (28828) panicked at src/lib.rs:3:47:
    assertion `left == right` failed
      left: -1
     right: 3

────────────
     Summary [   0.782s] 2 tests run: 1 passed, 1 failed, 0 skipped
        FAIL [   0.755s] (2/2) my-lib tests::adds
error: test run failed
"""

GO = """\
=== RUN   TestAdd
--- FAIL: TestAdd (0.00s)
    calc_test.go:7: got 1, want 3
=== RUN   TestSub
--- PASS: TestSub (0.00s)
FAIL
FAIL\texample.org/calc\t0.003s
ok  \texample.org/other\t0.002s
"""


MAVEN = """\
[INFO] Running shop.CartTest
[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0, Time elapsed: 0.157 s <<< FAILURE! -- in shop.CartTest
[ERROR] shop.CartTest.totalOfAll -- Time elapsed: 0.026 s <<< FAILURE!
org.opentest4j.AssertionFailedError: expected: <345> but was: <45>
\tat org.junit.jupiter.api.AssertEquals.failNotEqual(AssertEquals.java:197)
\tat shop.CartTest.totalOfAll(CartTest.java:18)
\tat java.base/java.util.ArrayList.forEach(ArrayList.java:1511)

[INFO] Results:
[ERROR] Failures:
[ERROR]   CartTest.totalOfAll:18 expected: <345> but was: <45>
[ERROR] Tests run: 2, Failures: 1, Errors: 0, Skipped: 0
[INFO] BUILD FAILURE
[INFO] Total time:  3.667 s
[ERROR] Failed to execute goal org.apache.maven.plugins:maven-surefire-plugin:3.2.5:test (default-test)
[ERROR] -> [Help 1]
"""
JAVAC = """\
[ERROR] COMPILATION ERROR :
[ERROR] /repo/src/main/java/shop/Cart.java:[17,22] incompatible types: java.lang.String cannot be converted to int
[INFO] 1 error
[ERROR] Failed to execute goal org.apache.maven.plugins:maven-compiler-plugin:3.13.0:compile (default-compile)
"""


@pytest.mark.parametrize(
    ("command", "output", "kept"),
    [
        (
            "mvn test",
            MAVEN,
            [
                "<45>\n\tat shop.CartTest.totalOfAll(CartTest.java:18)\n[ERROR] Tests run: 2, "
                "Failures: 1,"
            ],
        ),
        ("mvn test", JAVAC, ["[ERROR] src/main/java/shop/Cart.java:[17,22] incompatible types"]),
        (
            "python3 -m unittest",
            UNITTEST,
            ["FAIL: test_b", 'File "tests/test_a.py", line 6', "1 != 2", "failures=1"],
        ),
        (
            "cargo test",
            CARGO,
            ["---- tests::adds stdout ----", "panicked at src/lib.rs:3:47", "left: -1", "1 failed"],
        ),
        (
            "cargo nextest run",
            NEXTEST,
            ["FAIL my-lib tests::adds\n", "panicked at src/lib.rs:3:47", "left: -1", "1 failed"],
        ),
        ("go test ./...", GO, ["--- FAIL: TestAdd", "calc_test.go:7: got 1, want 3"]),
        ("make test", UNITTEST, ["FAIL: test_b", "1 != 2", "failures=1"]),
    ],
)
def test_each_runners_failures_are_kept_and_its_noise_is_not(
    command: str, output: str, kept: list[str]
) -> None:
    noise = "".join(f"compiling thing number {n}\n" for n in range(400))
    told = digest_output(noise + output, command, "/repo", ok=False)
    assert [part for part in kept if part not in told] == []
    assert "compiling thing" not in told
    assert len(told) < 1200


def test_unknown_output_keeps_its_end() -> None:
    told = digest_output(
        "".join(f"step {n}\n" for n in range(2000)) + "it broke\n", "./check.sh", "/repo", ok=False
    )
    assert told.startswith("[... ")
    assert told.endswith("step 1999\nit broke")
    assert len(told) <= 4000


def test_what_differs_from_run_to_run_is_taken_out() -> None:
    def told(seconds: str, address: str, folder: str) -> str:
        text = (
            f"E   <X at {address}> /tmp/pytest-of-me/pytest-{folder}/a\n=== 1 failed in "
            f"{seconds}s ===\n"
        )
        return digest_output(text, "pytest", "/repo", ok=False)

    assert told("0.12", "0x7f3a21bc", "1") == told("12.50", "0x7ffe9912", "27")
    assert told("0.12", "0x7f3a21bc", "1").endswith("=== 1 failed ===")
