"""`fugu train matrix` with a pool that speaks the real wire format: whose runs it measures and
counts.
"""

import json
import os
from pathlib import Path

import pytest

from fugu_cli.cli import train as command
from fugu_cli.cli.training_flags import MatrixFlags
from tests.acceptance.loopback import KEY, running
from tests.research.evaluation.pool import configured, fixes, idles, suite, task


def test_an_agent_that_is_opted_out_is_neither_paid_for_nor_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LOOPBACK_KEY", KEY)
    monkeypatch.chdir(tmp_path)
    rc = Path(os.environ["HOME"]) / ".fugurc"
    with running() as server:
        configured(rc.parent, server, ("other", "cheap"), ("idler", "middle"), ("worker", "strong"))
        rc.write_text(f'opt_out = ["other"]\n{rc.read_text()}')
        server.react("idler", idles)
        server.react("worker", fixes)
        flags = MatrixFlags(
            suites=[str(suite(tmp_path, task("one"), task("two")))], out=tmp_path / "out"
        )
        assert command.train_matrix(flags) == 0
        assert server.asked("other") == []
    cells = [
        json.loads(line)
        for line in (tmp_path / "out" / command.MATRIX_FILE).read_text().splitlines()
    ]
    assert {cell["agent"] for cell in cells} == {"idler", "worker"}
    said = capsys.readouterr().out
    assert "These tasks do not show that routing pays" in said
    assert "missing" not in said
