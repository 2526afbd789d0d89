"""Processes for which modes of files count: root may look and write everywhere."""

from __future__ import annotations

import os
import shutil
import subprocess

import pytest


def without_roots_rights() -> list[str]:
    """What starts a process that may look only where modes say so; the test is skipped where root
    has no such thing.
    """
    if os.geteuid():
        return []
    rights = "-dac_override,-dac_read_search"
    found = ["setpriv", f"--bounding-set={rights}", f"--inh-caps={rights}"]
    if (
        not shutil.which("setpriv")
        or subprocess.run([*found, "true"], capture_output=True, check=False).returncode
    ):
        pytest.skip("root cannot give up its rights here")
    return found
