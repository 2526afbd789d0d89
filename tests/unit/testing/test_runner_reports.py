"""What a run says of each test: by real runners, and by recorded output of those that are not
everywhere.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.session.events import TestReport
from fugu_cli.testing.runner_commands import recognise_runner
from fugu_cli.testing.runner_results import (
    GoEvents,
    TestOutcomes,
    read_results,
    summarise_results,
    with_report,
)
from fugu_cli.tools.shell_commands import run_command
from tests.unit.conftest import Build, use

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"


def told(command: str, output: str, root: Path) -> TestOutcomes | None:
    """What is read from the output of a command that writes no report."""
    invocation = recognise_runner(command, root)
    assert invocation is not None
    return read_results(with_report(invocation, root, root), output, root)


ODD = """\
import unittest
import pytest
from tests.base import Base

@pytest.mark.parametrize("x", ["a > b", "c/d::e", "[1]"])
def test_p(x): assert not x

class TestC:
    def test_m(self): assert 0
    class TestI:
        def test_i(self): assert 0

class TestB(Base): pass

@pytest.fixture
def bad(): raise OSError

def test_setup(bad): pass

@pytest.fixture
def late():
    yield
    raise OSError

def test_late(late): pass

@pytest.mark.skip
def test_skipped(): pass

@pytest.mark.xfail
def test_expected(): assert 0

class TestU(unittest.TestCase):
    def test_u(self): self.fail()

def test_fine(): pass
"""
FAILING = (
    *("test_p[a > b]", "test_p[c/d::e]", "test_p[[1]]", "TestC::test_m", "TestC::TestI::test_i"),
    *("TestB::test_inherited", "test_setup", "test_late", "TestU::test_u"),
)


@pytest.mark.parametrize(
    ("folder", "path"), [("", "tests/test_odd.py"), ("cd tests && ", "test_odd.py")]
)
def test_pytest_ids_can_be_given_back_to_it(folder: str, path: str, plain: Build) -> None:
    base = "class Base:\n    def test_inherited(self): assert 0\n"
    workspace = plain(
        {
            "tests/__init__.py": "",
            "tests/base.py": base,
            "tests/test_odd.py": ODD,
            "conftest.py": "",
        }
    )
    workspace.test_command = f"{folder}{PYTEST}"
    names = tuple(f"{path}::{name}" for name in FAILING)
    assert use(workspace, "run_tests").tests == TestReport(
        passed=1, failed=9, skipped=2, failing=names, by_id=True
    )


def test_a_file_that_pytest_cannot_load_is_named_by_its_path(plain: Build) -> None:
    workspace = plain({"tests/test_a.py": "import nothing_there\n"})
    workspace.test_command = PYTEST
    assert use(workspace, "run_tests").tests == TestReport(
        failed=1, failing=("tests/test_a.py",), by_id=True
    )


def test_a_runner_that_refuses_to_report_runs_as_it_was_told(plain: Build) -> None:
    workspace = plain({"test_a.py": "def test_a(): assert 0\n"})
    workspace.test_command = f"{PYTEST} -p no:junitxml"
    found = use(workspace, "run_tests")
    assert found.tests == TestReport(failed=1)
    assert found.text.endswith("1 failed\n[exit code 1]")


def test_a_report_of_the_users_own_is_left_alone(plain: Build) -> None:
    workspace = plain({"test_a.py": "def test_a(): pass\n"})
    workspace.test_command = f"{PYTEST} --junitxml=mine.xml"
    assert use(workspace, "run_tests").tests == TestReport(passed=1)
    assert (workspace.root / "mine.xml").exists()


def test_a_run_that_fails_without_a_failing_test_is_known_by_counts_only(plain: Build) -> None:
    late = "import os\n\n\ndef pytest_unconfigure():\n    os._exit(3)\n"
    workspace = plain({"test_a.py": "def test_a(): pass\n", "conftest.py": late})
    workspace.test_command = PYTEST
    found = use(workspace, "run_tests")
    assert (found.ok, found.tests) == (False, TestReport(passed=1))


ENTITIES = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 100}">' for n in range(1, 9))
CASE = '<testcase classname="test_a" name="test_a"/>'


@pytest.mark.parametrize(
    ("report", "outcomes"),
    [
        (
            f'<!DOCTYPE x [<!ENTITY e0 "{"a" * 1000}">{ENTITIES}]><testsuite '
            f'name="&e8;">{CASE}</testsuite>',
            None,
        ),
        (
            "<!DOCTYPE x [<!ENTITY e SYSTEM "
            '"/etc/passwd">]><testsuite><testcase>&e;</testcase></testsuite>',
            None,
        ),
        (f'<?xml version="1.0" encoding="nonsense"?><testsuite>{CASE}</testsuite>', None),
        (f'<?xml version="1.0" encoding="shift_jis"?><testsuite>{CASE}</testsuite>', None),
        (f"<testsuite>{CASE}", None),
        ("", None),
        (
            f"{'<testsuite>' * 20_000}{CASE}{'</testsuite>' * 20_000}",
            {"test_a.py::test_a": "passed"},
        ),
        (f"<testsuites>{CASE}</testsuites>", {"test_a.py::test_a": "passed"}),
        (
            f"<testsuite>{CASE}<system-out>{'a' * 50_000_000}</system-out></testsuite>",
            {"test_a.py::test_a": "passed"},
        ),
        (None, None),
        (Path("/dev/zero"), None),
    ],
    ids=[
        "bomb",
        "outside",
        "encoding",
        "wide",
        "truncated",
        "empty",
        "deep",
        "beside",
        "large",
        "pipe",
        "link",
    ],
)
def test_a_hostile_report_is_read_or_left(
    tmp_path: Path, report: str | Path | None, outcomes: TestOutcomes | None
) -> None:
    (tmp_path / "test_a.py").touch()
    invocation = recognise_runner("pytest", tmp_path)
    assert invocation is not None
    reporting = with_report(invocation, tmp_path, tmp_path / "reports")
    assert reporting.file is not None
    reporting.file.parent.mkdir()
    if report is None:
        os.mkfifo(reporting.file)
    elif isinstance(report, Path):
        reporting.file.symlink_to(report)
    else:
        reporting.file.write_text(report)
    assert read_results(reporting, "", tmp_path) == outcomes


UNIT = """\
import unittest

class T(unittest.TestCase):
    def test_fine(self): pass
    def test_bad(self):
        "What it says."
        self.fail()
    def test_parts(self):
        for n in range(3):
            with self.subTest(n=n): self.assertEqual(n, 0)
    @unittest.expectedFailure
    def test_expected(self): self.fail()
    @unittest.expectedFailure
    def test_unexpected(self): pass
    @unittest.skip("later")
    def test_skipped(self): pass

class S(unittest.TestCase):
    @classmethod
    def setUpClass(cls): raise OSError
    def test_never(self): pass
"""


def test_unittest_names_what_fails(plain: Build) -> None:
    files: dict[str, str | bytes] = {"test_a.py": UNIT, "test_b.py": "import nothing_there\n"}
    workspace = plain(files)
    workspace.test_command = f"{sys.executable} -m unittest"
    found = use(workspace, "run_tests").tests
    assert found is not None
    assert (found.failed, found.skipped, found.by_id) == (5, 1, True)
    names = {
        "test_b",
        "test_a.S",
        *(f"test_a.T.test_{name}" for name in ("bad", "parts", "unexpected")),
    }
    assert set(found.failing) == names


def test_names_of_unittest_before_python_3_11(tmp_path: Path) -> None:
    output = (
        f"{'=' * 70}\nFAIL: test_b (tests.test_a.T)\nSays so.\n{'-' * 70}\nTraceback\n\n"
        f"{'=' * 70}\nERROR: tests.test_x "
        f"(unittest.loader._FailedTest)\n{'-' * 70}\nImportError\n\n"
        f"{'-' * 70}\nRan 2 tests in 0.001s\n\nFAILED (failures=1, errors=1)\n"
    )
    expected = {"tests.test_a.T.test_b": "failed", "tests.test_x": "failed"}
    assert told("python3 -m unittest", output, tmp_path) == expected
    assert told("python3 -m unittest", output.replace("errors=1", "errors=2"), tmp_path) is None


@pytest.mark.skipif(shutil.which("go") is None, reason="needs go")
def test_what_go_says_reads_as_without_the_report(plain: Build, tmp_path: Path) -> None:
    test = (
        'package calc\n\nimport (\n\t"fmt"\n\t"testing"\n)\n\n'
        'func TestFine(t *testing.T) { fmt.Println("chatter") }\n\n'
        'func TestBad(t *testing.T) {\n\tt.Run("one", func(t *testing.T) { t.Error("no") })\n'
        '\tt.Error("neither")\n}\n\n'
        'func TestLater(t *testing.T) { t.Skip("later") }\n'
    )
    unbuilt = 'package other\n\nimport "testing"\n\nfunc TestX(t *testing.T) { nothing() }\n'
    workspace = plain(
        {"go.mod": "module e.org/calc\n\ngo 1.19\n", "a_test.go": test, "other/b_test.go": unbuilt}
    )
    workspace.test_command = f"GOCACHE={tmp_path}/go-cache go test ./..."
    found = use(workspace, "run_tests")
    names = ("e.org/calc TestBad/one", "e.org/calc/other")
    assert found.tests == TestReport(passed=1, failed=2, skipped=1, failing=names, by_id=True)
    bare = asyncio.run(
        run_command(workspace.test_command, workspace.root, 100, lambda said: None)
    ).output

    def lines(text: str) -> set[str]:
        kept = (line.partition("(")[0].strip() for line in text.splitlines() if "\t0." not in line)
        return {line for line in kept if line and line != "FAIL" and not line.startswith("[exit")}

    assert lines(found.text) - {"FAIL\te.org/calc"} == lines(bare) - {"chatter"}


def test_go_says_in_events_what_could_not_be_built() -> None:
    events = GoEvents()
    stream = (
        b'{"ImportPath":"e.org/b","Action":"build-output","Output":"./b.go:3: undefined: x\\n"}\n'
        b'{"ImportPath":"e.org/b","Action":"build-fail"}\n{"Action":"start","Package":"e.org/b"}\n'
        b'{"Action":"output","Package":"e.org/b","Output":"FAIL\\te.org/b [build failed]\\n"}\n'
        b'{"Action":"fail","Package":"e.org/b","Elapsed":0}\nplain\n{"Action":"ou'
    )
    said = b"".join(events.take(stream[place : place + 7]) for place in range(0, len(stream), 7))
    assert said == b"./b.go:3: undefined: x\nFAIL\te.org/b [build failed]\nplain\n"
    assert (events.broken, events.rest()) == (["e.org/b"], '{"Action":"ou\n')


NEXTEST = """\
<testsuites name="nextest-run" tests="4" failures="2">
  <testsuite name="calc" tests="2" failures="1">
    <testcase name="tests::two" classname="calc"/>
    <testcase name="tests::red" classname="calc">
      <failure type="test failure with exit code 101">panicked</failure>
    </testcase>
  </testsuite>
  <testsuite name="calc::it" tests="2" failures="1">
    <testcase name="shaky" classname="calc::it">
      <flakyFailure type="test failure with exit code 101">panicked</flakyFailure>
    </testcase>
    <testcase name="aborts" classname="calc::it">
      <failure type="test abort">SIGABRT</failure>
    </testcase>
  </testsuite>
</testsuites>
"""
CARGO = """\
     Running unittests src/lib.rs (target/debug/deps/calc-1234567890abcdef)
running 3 tests
test tests::two ... ok
test tests::boom - should panic ... FAILED
test tests::later ... ignored, too slow
test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s
     Running tests/it.rs (target/debug/deps/it-abcdef1234567890)
running 1 test
test tests::two ... FAILED
test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s
   Doc-tests calc
running 1 test
test src/lib.rs - add (line 12) ... ok
test result: ok. 1 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.31s
"""


def test_cargo_and_nextest_name_a_test_with_its_binary(tmp_path: Path) -> None:
    assert told("cargo test", CARGO, tmp_path) == {
        "calc tests::two": "passed",
        "calc tests::boom": "failed",
        "calc tests::later": "skipped",
        "it tests::two": "failed",
        "calc src/lib.rs - add": "passed",
    }
    invocation = recognise_runner("cargo nextest run -p calc", tmp_path)
    assert invocation is not None
    reporting = with_report(invocation, tmp_path, tmp_path)
    assert reporting.command == (
        f"cargo nextest run --tool-config-file fugu:{tmp_path}/nextest.toml --no-fail-fast -p calc"
    )
    assert read_results(reporting, "4 tests run: 2 passed, 2 failed", tmp_path) is None
    (tmp_path / "nextest.xml").write_text(NEXTEST)
    assert read_results(reporting, "", tmp_path) == {
        "calc tests::two": "passed",
        "calc tests::red": "failed",
        "calc::it shaky": "passed",
        "calc::it aborts": "failed",
    }


@pytest.mark.parametrize(
    "output",
    [
        CARGO.replace("test tests::two ... FAILED", "test tests::two ... chatter\nFAILED"),
        f'{CARGO}error: could not compile `calc` (test "other") due to 1 previous error\n',
        "error: could not compile `calc`\n",
    ],
)
def test_an_output_that_does_not_add_up_says_nothing_by_name(output: str, tmp_path: Path) -> None:
    assert told("cargo test", output, tmp_path) is None


SUREFIRE = """\
<testsuite name="shop.CartTest" tests="4">
  <testcase name="two" classname="shop.CartTest" time="0.01"/>
  <testcase name="red" classname="shop.CartTest"><failure message="no">at CartTest</failure></testcase>
  <testcase name="each(int)[1]" classname="shop.CartTest"><error type="E"/></testcase>
  <testcase name="later" classname="shop.CartTest"><skipped/></testcase>
</testsuite>
"""


@pytest.mark.parametrize(
    ("command", "place"),
    [
        ("mvn test", "api/target/surefire-reports"),
        ("./gradlew test", "api/build/test-results/test"),
    ],
)
def test_only_the_reports_of_this_run_count(command: str, place: str, tmp_path: Path) -> None:
    folder = tmp_path / place
    folder.mkdir(parents=True)
    (folder / "TEST-old.xml").write_text(SUREFIRE.replace("shop.CartTest", "shop.OldTest"))
    invocation = recognise_runner(command, tmp_path)
    assert invocation is not None
    asked = with_report(invocation, tmp_path, tmp_path / "report")
    (folder / "TEST-shop.CartTest.xml").write_text(SUREFIRE)
    assert read_results(asked, "", tmp_path) == {
        "shop.CartTest#two": "passed",
        "shop.CartTest#red": "failed",
        "shop.CartTest#each(int)[1]": "failed",
        "shop.CartTest#later": "skipped",
    }
    (folder / "TEST-shop.CartTest.xml").write_text(SUREFIRE[:100])
    assert read_results(asked, "", tmp_path) is None


TAP = """\
TAP version 13
# Subtest: add
    # Subtest: one
    ok 1 - one
      ---
      duration_ms: 1
      ...
    # Subtest: two
    not ok 2 - two
      ---
      error: |-
        # Subtest: none
        not ok 9 - of this
      ...
    1..2
not ok 1 - add
  ---
  failureType: 'subtestsFailed'
  ...
# Subtest: alone \\# 1
not ok 2 - alone \\# 1
# Subtest: later
ok 3 - later # SKIP
1..3
# tests 4
# pass 1
# fail 2
"""


def test_node_names_a_test_with_those_around_it(tmp_path: Path) -> None:
    invocation = recognise_runner("node --test", tmp_path)
    assert invocation is not None
    asked = with_report(invocation, tmp_path, tmp_path)
    (tmp_path / "node.tap").write_text(TAP)
    found = read_results(asked, "", tmp_path)
    assert found == {
        "add > one": "passed",
        "add > two": "failed",
        "add": "failed",
        "alone # 1": "failed",
        "later": "skipped",
    }
    expected = TestReport(
        passed=1, failed=2, skipped=1, failing=("add > two", "alone # 1"), by_id=True
    )
    assert summarise_results(found, TAP, ok=False) == expected
    (tmp_path / "node.tap").write_text(TAP.partition("# tests")[0])
    assert read_results(asked, "", tmp_path) is None


def test_more_failing_tests_than_a_log_holds_are_not_said_to_be_all() -> None:
    found = summarise_results({f"t{n}": "failed" for n in range(501)}, "", ok=False)
    assert found is not None
    assert (found.failed, len(found.failing), found.by_id) == (501, 500, False)


def test_counts_where_nothing_better_is_there() -> None:
    assert summarise_results(None, "2 failed, 3 passed, 1 skipped in 0.1s", ok=False) == TestReport(
        passed=3, failed=2, skipped=1
    )
    assert summarise_results(None, "all fine", ok=True) is None
    assert summarise_results({"a": "passed"}, "it broke", ok=False) is None


@given(st.text())
def test_no_output_breaks_the_reading_and_what_is_no_event_stays(output: str) -> None:
    for command in ("python -m unittest", "cargo test"):
        found = told(command, output, Path("/nowhere"))
        assert {*(found or {}).values()} <= {"passed", "failed", "skipped"}
    events = GoEvents()
    read = events.take(output.encode()).decode() + events.rest()
    assert read.removesuffix("\n") == output.removesuffix("\n")


@given(text=st.text() | st.sampled_from(["0", "{}", '{"testResults": 1}', "<a/>", "<testcase/>"]))
def test_no_report_breaks_the_reading(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.mktemp("report")
    for command, name in (
        ("pytest", "pytest.xml"),
        ("jest", "report.json"),
        ("node --test", "node.tap"),
        ("cargo nextest run", "nextest.xml"),
    ):
        (folder / name).write_text(text, encoding="utf-8")
        invocation = recognise_runner(command, folder)
        assert invocation is not None
        read_results(with_report(invocation, folder, folder), "", folder)


def test_a_test_that_passed_unexpectedly_is_not_counted_as_passed() -> None:
    line = "1 passed, 2 xfailed, 1 xpassed in 0.1s"
    found = summarise_results({"a": "passed", "b": "passed"}, line, ok=True)
    assert found is not None and found.passed == 1
