"""Files that hold secrets, changed by an agent that was shown marks in their place."""

from __future__ import annotations

from fugu_cli.masking import Mask
from tests.tools.conftest import Build, use

FORM = "sk-abcdefghijklmnopqrstuvwx"


def test_a_file_with_secrets_keeps_them_when_an_agent_rewrites_it(plain: Build) -> None:
    content = f"# settings\nDB_PASSWORD='pa ss word'\nKEY={FORM}\nOTHER=1\n"
    workspace = plain({"settings.ini": content})
    shown = Mask({"DB_PASSWORD": "pa ss word"}).text(content)
    assert "pa ss word" not in shown and FORM not in shown
    assert use(workspace, "read", path="settings.ini").ok
    assert use(workspace, "write", path="settings.ini", content=shown.replace("OTHER=1", "OTHER=2")).ok
    assert (workspace.root / "settings.ini").read_text() == content.replace("OTHER=1", "OTHER=2")
    old = next(line for line in shown.splitlines() if line.startswith("KEY="))
    assert use(workspace, "edit", path="settings.ini", old=old, new=f"{old}\nNEW=1").ok
    assert f"KEY={FORM}\nNEW=1\n" in (workspace.root / "settings.ini").read_text()
