"""One request from beginning to end, nothing scripted: the real command, a real model, the default
coordinator.

The smallest embedded coder works. It is too weak to be sure to solve
anything, so what is held is that the whole machinery does what it says it did.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fugu_cli.coordinators.trinity import EMBEDDED
from fugu_cli.session import log, store
from fugu_cli.session.events import Assigned, Replied
from fugu_cli.session.state import SessionState

pytestmark = pytest.mark.real

POOL = f"""
[[agents]]
name = "small"
provider = "local"
model = "{EMBEDDED}"
slot = "cheap"
"""
FILES = {
    "calc.py": 'def add(a, b):\n    """The sum of a and b."""\n    return a - b\n',
    "test_calc.py": "from calc import add\n\n\ndef test_add():\n    assert add(2, 3) == 5\n",
}


def test_a_real_model_carries_a_request_to_its_end(
    tmp_path: Path, real_cache: Path, pulled: Callable[[str], Path]
) -> None:
    pulled(EMBEDDED)
    repo, home = tmp_path / "repo", tmp_path / "home"
    for folder in (repo, home):
        folder.mkdir()
    for name, text in FILES.items():
        (repo / name).write_text(text)
    (home / ".fugurc").write_text(POOL)
    for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "commit", "-qm", "start"]):
        subprocess.run(command, cwd=repo, check=True)
    environ = {
        **os.environ,
        "HOME": str(home),
        "FUGU_CACHE_DIR": str(real_cache),
        "FUGU_DATA_DIR": str(home / "data"),
    }
    environ |= {"FUGU_LOCAL_IDLE": "2"}
    done = subprocess.run(
        [sys.executable, "-m", "fugu_cli", "run", "--coordinator=trinity", "--max-turns=3",
         "--output-format=json", "fix the failing test"],
        cwd=repo, env=environ, capture_output=True, text=True, timeout=600, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode in (0, 3), done.stderr
    result = json.loads(done.stdout)
    events = [record.event for record in log.read(store.session_paths(home / "data")[0])]
    end = SessionState(events).request.finished
    assert end is not None
    assert (
        (end.reason in ("accepted", "answered"))
        == (done.returncode == 0)
        == (not result["is_error"])
    )
    assigned = [event for event in events if isinstance(event, Assigned)]
    assert assigned and all(event.by == "trinity" and event.scores for event in assigned)
    replies = [event for event in events if isinstance(event, Replied)]
    assert replies and all(reply.model == EMBEDDED for reply in replies)
    assert any(reply.usage.output > 0 for reply in replies), "the model itself wrote something"
    before, after = SessionState(events).request.first_tests, SessionState(events).request.tests
    assert before is not None and not before.ok, "the failing test was run before anything was done"
    changed = subprocess.run(
        ["git", "status", "--porcelain"], cwd=repo, capture_output=True, text=True, check=True
    )
    assert sorted(SessionState(events).request.changes) == sorted(
        line[3:] for line in changed.stdout.splitlines()
    )
    if done.returncode == 0:
        assert after is not None and after.ok
        subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"], cwd=repo, check=True
        )
