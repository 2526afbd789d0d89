"""The language servers that may start with and without a sandbox."""

from pathlib import Path

import pytest

from fugu_cli.extensions.language_servers import installed_servers


def test_without_a_sandbox_no_server_runs_a_toolchain_that_the_repository_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("rust-analyzer", "clangd"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    root = tmp_path / "repo"
    assert {".c", ".rs"} <= installed_servers(root, confined=True).keys()
    without = installed_servers(root, confined=False)
    assert (".c" in without, ".rs" in without) == (True, False)
