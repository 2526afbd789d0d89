"""A small task with one wrong line, a hidden test, and its solution."""

import pytest

from fugu_cli.training.tasks import Task

BROKEN = "def double(n):\n    return n + n + 1\n"
SOLVED = "def double(n):\n    return 2 * n\n"
TEST = "from double import double\n\n\ndef test_two():\n    assert double(2) == 4\n"
HIDDEN = "from double import double\n\n\ndef test_text():\n    assert double('a') == 'aa'\n"
PYTEST = "python -m pytest -q -p no:cacheprovider"
LEAN = f"{PYTEST} -p no:hypothesispytest -p no:anyio -p no:xdist -p no:timeout"
"""Without the plugins that are installed beside it: half of what a short run costs is loading
them.
"""


@pytest.fixture(autouse=True)
def plugins(isolated: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the plugins that are installed here: solutions may misuse them."""
    monkeypatch.delenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD")


@pytest.fixture
def task() -> Task:
    return Task(
        id="double",
        source="own",
        language="python",
        kind="fix",
        prompt="`double` in `double.py` is wrong. Fix it.",
        files={"double.py": BROKEN, "test_double.py": TEST},
        hidden={"test_hidden.py": HIDDEN},
        solution={"double.py": SOLVED},
        test_files=("test_double.py",),
        test_command="python -m pytest -q -p no:cacheprovider test_double.py",
        grade_command=f"{LEAN} test_double.py test_hidden.py",
        timeout=30,
    )
