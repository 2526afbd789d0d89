"""How failing tests stood before a request, found out with the real runners on a copy of the files
as they were.
"""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli.engine.tests_before import EarlierResults, failing_before
from fugu_cli.session.events import TestReport
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build, lay, use

PYTEST = f"{sys.executable} -m pytest -q -p no:cacheprovider"
UNITTEST = "-m unittest discover -s tests"
ADD, WRONG = "def add(a, b):\n    return a + b\n", "def add(a, b):\n    return a - b\n"
Files = dict[str, str | bytes]


def needs(program: str) -> pytest.MarkDecorator:
    return pytest.mark.skipif(shutil.which(program) is None, reason=f"needs {program}")


def stood(
    workspace: Workspace, command: str, after: Files, *, gone: str = ""
) -> tuple[TestReport | None, EarlierResults]:
    """What a run says after the files are changed, and how what fails stood before. Nothing else is
    changed.
    """
    workspace.test_command = command
    before = asyncio.run(workspace.history.snapshot())
    lay(workspace.root, after)
    if gone:
        (workspace.root / gone).unlink()
    report = use(workspace, "run_tests").tests
    now = asyncio.run(workspace.history.snapshot())
    found = asyncio.run(failing_before(workspace, before, report, lambda said: None))
    assert asyncio.run(workspace.history.snapshot()) == now
    return report, found


def sorted_out(
    found: EarlierResults,
) -> tuple[tuple[str, ...], tuple[str, ...], tuple[str, ...], str]:
    return found.failed, found.passed, found.absent, found.unknown


CALC = (
    "from calc import add\n\n\ndef test_two():\n    assert add(1, 1) == 2\n\n\ndef test_red():\n "
    "   assert False\n\n\n"
    "class TestAdd:\n    def test_one(self):\n        assert add(0, 1) == 1\n"
)


def test_each_failing_test_failed_passed_or_was_not_there(repo: Build) -> None:
    workspace = repo({"calc.py": ADD, "test_calc.py": CALC})
    new = "def test_new():\n    assert False\n"
    after: Files = {"calc.py": "add = None\n", "test_calc.py": CALC + new, "test_new.py": new}
    report, found = stood(workspace, PYTEST, after)
    assert report is not None
    assert (report.passed, report.failed, report.by_id) == (0, 5, True)
    red, passed = (
        ("test_calc.py::test_red",),
        ("test_calc.py::test_two", "test_calc.py::TestAdd::test_one"),
    )
    assert sorted_out(found) == (
        red,
        passed,
        ("test_calc.py::test_new", "test_new.py::test_new"),
        "",
    )


def test_where_every_failing_test_is_new_none_of_them_is_unknown(repo: Build) -> None:
    workspace = repo({"test_calc.py": "def test_one():\n    pass\n"})
    after: Files = {
        "test_calc.py": "def test_one():\n    pass\n\n\ndef test_new():\n    assert 0\n"
    }
    _, found = stood(workspace, PYTEST, after)
    assert sorted_out(found) == ((), (), ("test_calc.py::test_new",), "")


def test_a_file_that_cannot_be_loaded_stood_as_its_tests_did(repo: Build) -> None:
    workspace = repo({"calc.py": ADD, "test_calc.py": CALC})
    assert sorted_out(stood(workspace, PYTEST, {"calc.py": ""})[1]) == (
        (),
        ("test_calc.py",),
        (),
        "",
    )


def test_tests_of_a_file_that_could_not_be_loaded_failed(repo: Build) -> None:
    workspace = repo({"calc.py": "", "test_calc.py": CALC})
    report, found = stood(workspace, PYTEST, {"calc.py": ADD})
    assert report is not None
    assert sorted_out(found) == (report.failing, (), (), "")


UNIT = (
    "import unittest\nfrom calc import add\n\n\nclass T(unittest.TestCase):\n"
    "    def test_two(self):\n        self.assertEqual(add(1, 1), 2)\n    def test_red(self):\n  "
    "      self.fail()\n"
)


def test_unittest_names_its_tests_as_well(repo: Build) -> None:
    workspace = repo({"calc.py": ADD, "tests/test_calc.py": UNIT})
    after: Files = {
        "calc.py": WRONG,
        "tests/test_calc.py": f"{UNIT}    def test_new(self):\n        self.fail()\n",
    }
    found = stood(workspace, f"{sys.executable} {UNITTEST}", after)[1]
    assert sorted_out(found) == (
        ("test_calc.T.test_red",),
        ("test_calc.T.test_two",),
        ("test_calc.T.test_new",),
        "",
    )


def installed(root: Path, files: Files) -> str:
    """An environment of Python in `root` with these files in site-packages; the command that runs
    the tests with it.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")], check=True)
    (packages,) = (root / ".venv/lib").glob("python3*/site-packages")
    lay(packages, files)
    return f".venv/bin/python {UNITTEST}"


FINDER = """\
import sys
from importlib.util import spec_from_file_location
MAPPING = {{"calc": "{root}/src/calc.py"}}
class Finder:
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return spec_from_file_location(name, MAPPING[name]) if name in MAPPING else None
sys.meta_path.append(Finder)
"""


@pytest.mark.parametrize(
    "files",
    [
        {"calc.pth": "{root}/src\n"},
        {
            "__editable__.calc.pth": "import __editable___calc_finder\n",
            "__editable___calc_finder.py": FINDER,
        },
    ],
    ids=["a path", "a finder"],
)
def test_an_editable_installation_is_led_to_the_copy(files: dict[str, str], repo: Build) -> None:
    workspace = repo({".gitignore": ".venv\n", "src/calc.py": ADD, "tests/test_calc.py": UNIT})
    command = installed(
        workspace.root, {name: text.format(root=workspace.root) for name, text in files.items()}
    )
    found = stood(workspace, command, {"src/calc.py": WRONG})[1]
    assert sorted_out(found) == (("test_calc.T.test_red",), ("test_calc.T.test_two",), (), "")


def test_code_loaded_from_the_repository_itself_says_nothing_of_the_state_before(
    repo: Build,
) -> None:
    workspace = repo({"src/calc.py": ADD, "tests/__init__.py": ""})
    bound = f"import sys\nsys.path.insert(0, '{workspace.root}/src')\n{UNIT}"
    lay(workspace.root, {"tests/test_calc.py": bound})
    found = stood(workspace, f"{sys.executable} -m unittest", {"src/calc.py": WRONG})[1]
    why = "the tests load the code from the repository itself, wherever they are run"
    assert sorted_out(found) == ((), (), (), f"{why} ({workspace.root}/src/calc.py)")


def test_where_nothing_says_which_code_was_loaded_nothing_is_said(repo: Build) -> None:
    workspace = repo(
        {"calc.py": ADD, "tests/test_calc.py": f"import sys\nsys.path.insert(0, '.')\n{UNIT}"}
    )
    found = stood(workspace, f"{sys.executable} -I {UNITTEST}", {"calc.py": WRONG})[1]
    assert sorted_out(found) == ((), (), (), "it cannot be told which code the tests loaded")


def test_ignored_files_come_along_and_built_ones_do_not(repo: Build) -> None:
    test = (
        "from pathlib import Path\n\n\ndef test_it():\n"
        "    here = [p for p in ('.env', 'data/x', 'build/x') if Path(p).exists()]\n"
        "    assert here == ['.env', 'data/x'] and Path('a').exists()\n"
    )  # fmt: skip
    workspace = repo({"a": "", ".gitignore": "data\n.env\nbuild\n", "test_it.py": test})
    lay(workspace.root, {".env": "A=1", "data/x": "", "build/x": ""})
    assert sorted_out(stood(workspace, PYTEST, {}, gone="a")[1]) == (
        (),
        ("test_it.py::test_it",),
        (),
        "",
    )


def test_a_test_that_writes_an_ignored_file_does_not_change_the_users(repo: Build) -> None:
    test = (
        "from pathlib import Path\n\n\ndef test_it():\n"
        "    Path('data/x').write_text('overwritten')\n    assert Path('a').exists()\n"
    )
    workspace = repo({"a": "", ".gitignore": "data\n", "test_it.py": test})
    workspace.test_command = PYTEST
    before = asyncio.run(workspace.history.snapshot())
    report = use(workspace, "run_tests").tests
    lay(workspace.root, {"data/x": "the user's"})
    found = asyncio.run(failing_before(workspace, before, report, lambda said: None))
    assert found.unknown == ""
    assert (workspace.root / "data" / "x").read_text() == "the user's"


def test_a_test_that_may_need_what_is_built_is_not_said_to_have_failed(repo: Build) -> None:
    test = (
        "from pathlib import Path\n\n\ndef test_it():\n    Path('dist/x').read_text()\n    "
        "Path('a').read_text()\n"
    )
    workspace = repo({"a": "", ".gitignore": "dist\n", "test_it.py": test})
    lay(workspace.root, {"dist/x": ""})
    found = stood(workspace, PYTEST, {}, gone="a")[1]
    assert sorted_out(found) == (
        (),
        (),
        (),
        "they may need dist, which is built and was not there before",
    )


def test_by_counts_where_a_command_names_no_tests(repo: Build) -> None:
    workspace = repo(
        {"check.sh": "cat said\nexit $(cat code)\n", "said": "3 passed\n", "code": "0"}
    )
    report, found = stood(workspace, "sh check.sh", {"said": "1 failed, 2 passed\n", "code": "1"})
    assert report == TestReport(passed=2, failed=1)
    assert found == EarlierResults(ok=True, report=TestReport(passed=3))


def test_what_cannot_be_found_out_is_said(repo: Build, plain: Build) -> None:
    report = TestReport(failed=1, failing=("test_a.py::test_a",), by_id=True)
    outside = plain({})
    outside.test_command = PYTEST
    found = asyncio.run(failing_before(outside, None, report, lambda said: None))
    assert found == EarlierResults(
        unknown="outside a git repository the files as they were cannot be laid out"
    )
    workspace = repo({})
    snapshot = asyncio.run(workspace.history.snapshot())
    none = asyncio.run(failing_before(workspace, snapshot, report, lambda said: None))
    assert none == EarlierResults(unknown="there is no test command")
    workspace.test_command = PYTEST
    lost = asyncio.run(failing_before(workspace, "0" * 40, report, lambda said: None))
    assert lost.unknown.startswith("the files as they were could not be laid out: ")
    workspace.test_command, workspace.test_timeout = "sleep 1000", 0.2
    late = asyncio.run(failing_before(workspace, snapshot, report, lambda said: None))
    assert late.unknown.startswith("on the files as they were the tests did not end within ")


NODE = (
    "const { test, describe, it } = require('node:test'); const assert = require('node:assert');\n"
    "const add = require('ADD');\n"
    "describe('add (all)', () => {\n  it('1 + 1', () => assert.equal(add(1, 1), 2));\n"
    "  it('red', () => assert.ok(0));\n});\n"
    "test('parts', async (t) => { await t.test('0 + 1', () => assert.equal(add(0, 1), 1)); });\n"
)  # fmt: skip
JS, JS_WRONG = "module.exports = (a, b) => a + b;\n", "module.exports = (a, b) => a - b;\n"


@needs("node")
@pytest.mark.parametrize("command", ["node --test", "npm test"])
def test_node_tests_by_name(command: str, repo: Build) -> None:
    if command == "npm test" and shutil.which("npm") is None:
        pytest.skip("needs npm")
    workspace = repo(
        {
            "add.js": JS,
            "a.test.js": NODE.replace("ADD", "./add.js"),
            "package.json": '{"scripts": {"test": "node --test a.test.js"}}',
        }
    )
    more = NODE.replace("ADD", "./add.js") + "test('new', () => { throw new Error('x'); });\n"
    found = stood(workspace, command, {"add.js": JS_WRONG, "a.test.js": more})[1]
    assert sorted_out(found) == (
        ("add (all) > red",),
        ("add (all) > 1 + 1", "parts > 0 + 1"),
        ("new",),
        "",
    )


HELPER = {
    "helper/package.json": '{"main": "index.js", "peerDependencies": {"@own/add": "*"}}',
    "helper/index.js": "module.exports = require('@own/add');\n",
}


@needs("node")
@pytest.mark.parametrize("package", ["@own/add", "helper", "pnpm"])
def test_a_package_of_the_repository_itself_is_led_to_the_copy(repo: Build, package: str) -> None:
    test = NODE.replace("ADD", "helper" if package == "pnpm" else package)
    workspace = repo(
        {".gitignore": "node_modules\n", "packages/add/index.js": JS, "a.test.js": test}
    )
    packages = workspace.root / "node_modules"
    if package == "pnpm":
        store = packages / ".pnpm/helper@1/node_modules"
        lay(store, HELPER)
        (packages / "helper").symlink_to(store / "helper")
        packages = store
    else:
        lay(packages, HELPER)
    (packages / "@own").mkdir()
    (packages / "@own/add").symlink_to(workspace.root / "packages/add")
    found = stood(workspace, "node --test", {"packages/add/index.js": JS_WRONG})[1]
    if package == "pnpm":  # its store stays where it is, and leads to the code as it is
        assert found.unknown.startswith(
            "node_modules/.pnpm/helper@1 is only linked to, and may load"
        )
        return
    assert sorted_out(found) == (
        ("add (all) > red",),
        ("add (all) > 1 + 1", "parts > 0 + 1"),
        (),
        "",
    )


VENDOR_LOADER = (
    "const path = require('path');\n"
    "module.exports = name => require(path.join(__dirname, '..', 'src', name));\n"
)


@needs("node")
@pytest.mark.parametrize("is_link", [False, True], ids=["folder", "link elsewhere"])
def test_ignored_dependencies_that_load_the_code_beside_them_load_the_copys(
    is_link: bool, repo: Build, tmp_path: Path
) -> None:
    test = NODE.replace("require('ADD')", "require('./vendor/load.js')('add.js')")
    workspace = repo({".gitignore": "vendor\n", "src/add.js": JS, "a.test.js": test})
    vendor = workspace.root / "vendor"
    if is_link:
        elsewhere = tmp_path / "dependencies"
        elsewhere.mkdir()
        (elsewhere / "load.js").write_text(
            VENDOR_LOADER.replace("__dirname, '..'", repr(str(workspace.root)))
        )
        vendor.symlink_to(elsewhere)
    else:
        vendor.mkdir()
        (vendor / "load.js").write_text(VENDOR_LOADER)
    earlier = stood(workspace, "node --test", {"src/add.js": JS_WRONG})[1]
    failed, passed, absent, unknown = sorted_out(earlier)
    if is_link:
        assert (failed, passed, absent) == ((), (), ()) and "vendor" in unknown
    else:
        assert (failed, passed) == (("add (all) > red",), ("add (all) > 1 + 1", "parts > 0 + 1"))
    assert (vendor / "load.js").is_file()


GO = (
    'package calc\n\nimport "testing"\n\n'
    'func TestTwo(t *testing.T) {\n\tif Add(1, 1) != 2 {\n\t\tt.Fatal("no")\n\t}\n}\n\n'
    'func TestRed(t *testing.T) {\n\tt.Run("sub one", func(t *testing.T) { t.Fatal("red") })\n}\n'
)
GO_ADD = "package calc\n\nfunc Add(a, b int) int { return a + b }\n"


@needs("go")
@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ("return a - b", (("e.org/calc TestRed/sub_one",), ("e.org/calc TestTwo",), (), "")),
        ("return", ((), ("e.org/calc",), (), "")),
    ],
    ids=["wrong", "not compiling"],
)
def test_go_tests_by_package_and_name(
    after: str, expected: object, repo: Build, tmp_path: Path
) -> None:
    workspace = repo(
        {"go.mod": "module e.org/calc\n\ngo 1.19\n", "add.go": GO_ADD, "add_test.go": GO}
    )
    command = f"GOCACHE={tmp_path}/go-cache go test ./..."
    found = stood(workspace, command, {"add.go": GO_ADD.replace("return a + b", after)})[1]
    assert sorted_out(found) == expected


RUST = (
    "pub fn add(a: i32, b: i32) -> i32 { a + b }\n#[cfg(test)]\nmod tests {\n    use super::*;\n"
    "    #[test] fn two() { assert_eq!(add(1, 1), 2) }\n    #[test] fn red() { panic!() }\n}\n"
)


def cargo() -> str:
    """cargo as it is installed, where HOME is another one."""
    found = shutil.which("cargo")
    assert found is not None
    kept = Path(found).parent.parent.parent / ".rustup"
    return f"RUSTUP_HOME={kept} cargo test" if kept.is_dir() else "cargo test"


@needs("cargo")
def test_cargo_tests_by_binary_and_name(repo: Build) -> None:
    manifest = '[package]\nname = "calc"\nversion = "0.1.0"\nedition = "2021"\n'
    workspace = repo({"Cargo.toml": manifest, "src/lib.rs": RUST})
    changed = RUST.replace("a + b", "a - b").replace(
        "#[test] fn red", "#[test] fn new() { panic!() } #[test] fn red"
    )
    found = stood(workspace, cargo(), {"src/lib.rs": changed})[1]
    assert sorted_out(found) == (
        ("calc tests::red",),
        ("calc tests::two",),
        ("calc tests::new",),
        "",
    )


JEST = (
    "describe('add', () => {\n  it('1 + 1', () => { expect(add(1, 1)).toBe(2); });\n"
    "  it('red', () => { expect(0).toBe(1); });\n});\n"
)
NEW = "it('new', () => { throw new Error('x'); });\n"


@needs("jest")
def test_jest_tests_by_file_and_name(repo: Build) -> None:
    test = f"const add = require('./add.js');\n{JEST}"
    workspace = repo({"package.json": "{}", "add.js": JS, "a.test.js": test})
    found = stood(workspace, "jest", {"add.js": JS_WRONG, "a.test.js": test + NEW})[1]
    assert sorted_out(found) == (
        ("a.test.js > add > red",),
        ("a.test.js > add > 1 + 1",),
        ("a.test.js > new",),
        "",
    )


@needs("vitest")
def test_vitest_tests_by_file_and_name(repo: Build) -> None:
    test = f"import add from './add.js';\n{JEST}"
    workspace = repo(
        {"package.json": "{}", "add.js": "export default (a, b) => a + b;\n", "a.test.js": test}
    )
    after: Files = {"add.js": "export default (a, b) => a - b;\n", "a.test.js": test + NEW}
    found = stood(workspace, "vitest run --globals", after)[1]
    assert sorted_out(found) == (
        ("a.test.js > add > red",),
        ("a.test.js > add > 1 + 1",),
        ("a.test.js > new",),
        "",
    )
