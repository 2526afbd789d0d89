"""`.agents/hooks.json`: what counts, what is left out, and the words for it."""

import json
from pathlib import Path

import pytest

from fugu_cli.config import trust_store
from fugu_cli.config.files import load
from fugu_cli.hooks.declared import MOMENTS, Declared, Hook, named_files, read

FORMAT = {"type": "command", "command": "sh lint.sh", "timeout": 5}
GUARD = {"hooks": {"PreToolUse": [{"matcher": "bash|edit", "hooks": [{"type": "command", "command": "sh guard.sh"}]}]}}


def written(folder: Path, content: object) -> Path:
    path = folder / ".agents/hooks.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_every_event_is_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    groups = [{"matcher": "edit|mcp__.*", "hooks": [FORMAT]}, {"hooks": [{"type": "command", "command": "true"}]}]
    path = written(tmp_path, {"hooks": {moment: groups for moment in MOMENTS}})
    assert read(path, None, trusted=False) == Declared(
        tuple(
            hook
            for moment in MOMENTS
            for hook in (
                Hook(
                    moment=moment,
                    matcher="edit|mcp__.*",
                    command="sh lint.sh",
                    timeout=5.0,
                    source=str(path),
                    own=True,
                ),
                Hook(moment=moment, command="true", timeout=60.0, source=str(path), own=True),
            )
        )
    )


@pytest.mark.parametrize(
    ("matcher", "tools"),
    [
        ("", ["bash", "edit", "mcp__docs__find"]),
        ("*", ["bash", "edit", "mcp__docs__find"]),
        ("bash|edit", ["bash", "edit"]),
        ("Bash", ["bash"]),
        ("ed", []),
        ("mcp__docs__.*", ["mcp__docs__find"]),
    ],
)
def test_a_matcher_is_for_whole_names_of_tools_whatever_their_case(matcher: str, tools: list[str]) -> None:
    hook = Hook(moment="PreToolUse", matcher=matcher, command="x", source="f", own=True)
    assert [tool for tool in ("bash", "edit", "mcp__docs__find") if hook.matches(tool)] == tools


def one(**entry: object) -> object:
    return {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "x"} | entry]}]}}


def matched(matcher: str) -> object:
    return {"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": []}]}}


MATCHER, UNFIT = ", hooks: the matcher", " of PreToolUse fits no tool:"
FAULTS: dict[str, tuple[object, str]] = {
    "json": ('{"hooks": ', ", line 1, column 11: not valid JSON: expecting value"),
    "list": ([], ': it should hold one object, {"hooks": {"PreToolUse": [...]}}'),
    "nothing": ({}, ", hooks: it is missing"),
    "more": ({"hooks": {}, "mcpServers": {}}, ", mcpServers: there is no such key"),
    "event": (
        {"hooks": {"SessionStart": []}},
        ", hooks.SessionStart: there is no such event; there are PreToolUse, PostToolUse, UserPromptSubmit, Stop",
    ),
    "group": ({"hooks": {"Stop": {}}}, ", hooks.Stop: input should be a valid list"),
    "no hooks": ({"hooks": {"Stop": [{"matcher": "x"}]}}, ", hooks.Stop.0.hooks: it is missing"),
    "matcher": (
        {"hooks": {"Stop": [{"matcher": "(", "hooks": []}]}},
        ", hooks.Stop.0.matcher: it is not a regular expression: missing ), unterminated subpattern at position 0",
    ),
    "slip": (matched("bahs|edti"), f"{MATCHER} `bahs|edti`{UNFIT} there is none called `bahs`; did you mean bash?"),
    "rule": (
        matched("Bash(git *)"),
        f"{MATCHER} `Bash(git *)`{UNFIT} it goes by a tool's name alone, `bash`; "
        "a hook reads from `tool_input` what is called",
    ),
    "server": (
        matched("mcp__docs__*"),
        f"{MATCHER} `mcp__docs__*`{UNFIT} it is a regular expression; write `mcp__docs__.*`",
    ),
    "type": (one(type="prompt"), ", hooks.Stop.0.hooks.0.type: input should be 'command'"),
    "key": (one(commnad="y"), ", hooks.Stop.0.hooks.0.commnad: there is no such key"),
    "command": (one(command=" "), ", hooks.Stop.0.hooks.0.command: it is empty or holds a NUL character"),
    "number": (one(command=5), ", hooks.Stop.0.hooks.0.command: input should be a valid string"),
    "timeout": (one(timeout=0), ", hooks.Stop.0.hooks.0.timeout: input should be greater than 0"),
    "words": (one(timeout="60"), ", hooks.Stop.0.hooks.0.timeout: input should be a valid number"),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_bad_file_is_named_with_its_key_and_left_out_while_the_other_counts(tmp_path: Path, case: str) -> None:
    content, said = FAULTS[case]
    bad, good = written(tmp_path / "home", content), written(tmp_path / "repo", GUARD)
    found = read(bad, good, trusted=True)
    assert [hook.command for hook in found.hooks] == ["sh guard.sh"]
    assert found.notes == (f"{bad}{said}; its hooks are left out",)


def test_no_file_and_one_that_is_no_text_are_no_crash(tmp_path: Path) -> None:
    assert read(tmp_path / "none.json", tmp_path / "a" / "none.json", trusted=True) == Declared()
    path = written(tmp_path, "x")
    path.write_bytes(b"\xff\xfe")
    assert read(path, None, trusted=True).notes == (f"{path} is not UTF-8 text (byte 0); its hooks are left out",)


def test_a_repositorys_hooks_count_once_it_is_trusted_after_the_users_own(tmp_path: Path) -> None:
    written(Path.home(), {"hooks": {"Stop": [{"hooks": [FORMAT]}]}})
    path = written(tmp_path, GUARD)
    (tmp_path / ".git").mkdir()
    note = f"{path} names hooks (PreToolUse): none is run until you run `fugu trust` here"
    loaded = load(tmp_path, {})
    assert ([hook.moment for hook in loaded.hooks.hooks], loaded.hooks.notes) == (["Stop"], (note,))
    loaded = load(tmp_path, {}, trust=True)
    assert [(hook.moment, hook.own) for hook in loaded.hooks.hooks] == [("Stop", True), ("PreToolUse", False)]
    assert loaded.hooks.notes == ()


def test_in_the_home_itself_the_users_file_is_read_once() -> None:
    written(Path.home(), GUARD)
    assert [hook.own for hook in load(Path.home(), {}).hooks.hooks] == [True]


@pytest.mark.parametrize("changed", [".agents/hooks.json", "tools/guard.py", "tools/link.sh"])
def test_a_changed_hooks_file_or_script_that_it_names_asks_again(tmp_path: Path, changed: str) -> None:
    root, data = tmp_path / "repo", tmp_path / "data"
    (root / "tools").mkdir(parents=True)
    (root / "tools/guard.py").write_text("pass")
    (root / "tools/real.sh").write_text("true")
    (root / "tools/link.sh").symlink_to("real.sh")
    command = "python3 tools/guard.py --strict && sh ./tools/link.sh; echo it\\'s done"
    content = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}
    written(root, content)
    assert [path.relative_to(root).as_posix() for path in named_files(root)] == ["tools/guard.py", "tools/link.sh"]
    assert trust_store.trust(data, root)
    assert trust_store.trusted(data, root)
    path = root / changed
    path.write_text(path.read_text() + " ")
    assert not trust_store.trusted(data, root)
    assert trust_store.changed(data, root) == (changed,)


def test_a_script_named_by_another_way_into_the_folder_is_watched_too(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "guard.sh").write_text("true")
    (tmp_path / "way").symlink_to("repo")
    command = f"sh {tmp_path}/way/guard.sh"
    written(root, {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    assert trust_store.trust(tmp_path / "data", root)
    (root / "guard.sh").write_text("false")
    assert trust_store.changed(tmp_path / "data", root) == ("guard.sh",)
