"""How much of a result an agent gets, and which failing tests it is told first."""

from __future__ import annotations

import pytest

from tests.unit.conftest import Build, use

LINES = "".join(f"line {number} of a long file\n" for number in range(3000))


@pytest.mark.parametrize(("window", "most"), [(None, 50_000), (200_000, 50_000), (32_000, 12_000)])
def test_a_reading_is_as_long_as_the_window_allows_and_says_how_to_go_on(
    plain: Build, window: int | None, most: int
) -> None:
    workspace = plain({"a.txt": LINES}).for_call(window, None)
    shown = use(workspace, "read", path="a.txt").text
    assert 0.9 * most < len(shown) < most + 100
    last = shown.splitlines()[-2].partition("\t")[0]
    assert shown.endswith(f"go on with offset={int(last) + 1})")


def test_a_stated_number_of_lines_is_shown_whole(plain: Build) -> None:
    shown = use(plain({"a.txt": LINES}), "read", path="a.txt", limit=1000).text
    assert "lines 1-1000 of 3,000" in shown


def test_every_failing_test_is_named_before_the_details(plain: Build) -> None:
    tests = "".join(f"def test_{n}():\n    assert {n} == {n} + 1, 'x' * 300\n" for n in range(20))
    workspace = plain({"test_a.py": tests})
    workspace.test_command = "python3 -m pytest -q -p no:cacheprovider"
    told = use(workspace, "run_tests").text
    assert told.startswith("20 tests fail:\n  test_a.py::test_0\n")
    assert "  test_a.py::test_19\n" in told


def test_several_targets_are_run_at_once(plain: Build) -> None:
    workspace = plain({"test_a.py": "def test_a(): pass\n", "test_b.py": "def test_b(): pass\n"})
    workspace.test_command = "python3 -m pytest -q -p no:cacheprovider"
    for target in ("test_a.py test_b.py::test_b", ["test_a.py", "test_b.py"]):
        assert "2 passed" in use(workspace, "run_tests", target=target).text
    missing = use(workspace, "run_tests", target="test_a.py test_c.py").text
    assert missing == "There is no test file test_c.py."


def test_an_unknown_argument_is_refused_with_the_right_name(plain: Build) -> None:
    told = use(plain({"a.txt": "1\n"}), "read", path="a.txt", lines=3, offst=2)
    assert not told.ok
    assert "no argument `lines`" in told.text and "(did you mean `offset`?)" in told.text
    assert use(plain({}), "bash", command="true", description="it does nothing").ok
