"""Hooks written for Claude Code come to the same verdicts here, or to stricter ones."""

import json
from pathlib import Path

import pytest

from fugu_cli.extensions.hook_settings import read_hooks
from fugu_cli.messages import Call
from tests.reacting import repository
from tests.unit.extensions.hooks.claude_code import CASES, Made
from tests.unit.extensions.hooks.test_running import Play


def ours(made: Made) -> Call:
    tool, given = made
    if tool == "Bash":
        return Call.make("1", "bash", command=given["command"])
    return Call.make("1", "write", path=given["file_path"], content=given["content"])


@pytest.mark.parametrize("name", CASES)
def test_a_hook_written_for_claude_code_comes_to_its_verdict(tmp_path: Path, name: str) -> None:
    case, root = CASES[name], tmp_path / "repo"
    repository(root)
    (root / "mk.sh").write_text("touch made\n")
    (root / ".claude").mkdir()
    (root / ".claude/settings.json").write_text(json.dumps({"hooks": {"PreToolUse": case.hooks}}))
    hooks = read_hooks(root, None, trusted=True).hooks
    play = Play(tmp_path, hooks, ours(case.call), rules={"allow": ("bash(touch *)",)})
    play.run()
    ((allowed, _, reason),) = play.permitted()
    verdict = "asks" if play.questions else "runs" if allowed else "refused"
    assert (verdict, (root / case.made).exists()) == (case.here or case.there, allowed)
    assert case.says in reason
