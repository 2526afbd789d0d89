"""No line that the reader calls a read changes a file, starts a program outside its table, or opens
a path outside the repository.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.unit.safety.policy.reader_fuzz import WatchedRepository, random_line

LINES = 600
"""Of these about one in five is called a read, and run."""


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
def test_what_is_called_a_read_only_reads(tmp_path: Path) -> None:
    repository, chance = WatchedRepository(tmp_path), random.Random(49)
    findings = [finding for _ in range(LINES) for finding in repository.check(random_line(chance))]
    assert findings == []
