"""The files of a plugin, copied from where the user named them."""

import os
import subprocess
from pathlib import Path

import pytest

from fugu_cli.errors import UsageError
from fugu_cli.extensions import plugin_sources


def test_a_repository_that_sends_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, os.devnull)
    source = tmp_path / "source"
    source.mkdir()
    (source / "plugin.bin").write_bytes(os.urandom(300_000))
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    for words in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-q", "-m", "one")):
        subprocess.run(["git", *words], cwd=source, check=True)
    address = plugin_sources.parse_address(source.as_uri(), "", "")
    files, _ = plugin_sources.read_files(address)
    assert len(files[0].data) == 300_000
    monkeypatch.setattr(plugin_sources, "LARGEST_FETCH", 100_000)
    with pytest.raises(UsageError, match="holds more than"):
        plugin_sources.read_files(address)
