"""`.agents/hooks.json` and `.claude/settings.json`: what counts, what is left out, and the words
for it.
"""

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from fugu_cli.config import trust
from fugu_cli.config.loader import load_config
from fugu_cli.extensions.hook_protocol import describe_call, rule_fits
from fugu_cli.extensions.hook_settings import (
    HOOK_EVENTS,
    DeclaredHooks,
    Hook,
    files_named_by_hooks,
    read_hooks,
)
from fugu_cli.messages import Call

FORMAT = {"type": "command", "command": "sh lint.sh", "timeout": 5}
GUARD: dict[str, Any] = {
    "hooks": {
        "PreToolUse": [
            {"matcher": "bash|edit", "hooks": [{"type": "command", "command": "sh guard.sh"}]}
        ]
    }
}


def written(folder: Path, content: object, name: str = ".agents/hooks.json") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_every_event_is_read_in_the_order_of_the_file(tmp_path: Path) -> None:
    groups = [
        {"matcher": "edit|mcp__.*", "hooks": [FORMAT]},
        {"hooks": [{"type": "command", "command": "true"}]},
    ]
    path = written(tmp_path, {"hooks": {moment: groups for moment in HOOK_EVENTS}})
    assert read_hooks(tmp_path, None, trusted=False) == DeclaredHooks(
        tuple(
            hook
            for moment in HOOK_EVENTS
            for hook in (
                Hook(
                    moment=moment,
                    matcher="edit|mcp__.*",
                    command="sh lint.sh",
                    timeout=5.0,
                    source=str(path),
                    own=True,
                ),
                Hook(moment=moment, command="true", timeout=600.0, source=str(path), own=True),
            )
        )
    )


@pytest.mark.parametrize(
    ("matcher", "tools"),
    [
        ("", ["bash", "edit", "write", "mcp__docs__find"]),
        ("*", ["bash", "edit", "write", "mcp__docs__find"]),
        ("Bash|Edit", ["bash", "edit"]),
        ("Edit, MultiEdit, Write", ["edit", "write"]),
        ("bash", ["bash"]),
        ("ed", []),
        ("Ed.*", ["edit"]),
        ("^(Write|Edit)$", ["edit", "write"]),
        ("mcp__docs__.*", ["mcp__docs__find"]),
        ("mcp__docs__find", ["mcp__docs__find"]),
        ("mcp__docs", ["mcp__docs__find"]),
        ("mcp__.*__find", ["mcp__docs__find"]),
        ("NotebookEdit", []),
    ],
)
def test_a_matcher_is_for_names_of_tools_there_and_here(matcher: str, tools: list[str]) -> None:
    hook = Hook(moment="PreToolUse", matcher=matcher, command="x", source="f", own=True)
    of = {
        name: describe_call(Call.make("1", name), Path("/r"))[0].names
        for name in ("bash", "edit", "write", "mcp__docs__find")
    }
    assert [name for name, names in of.items() if hook.matches(names)] == tools


def one(moment: str = "Stop", **entry: object) -> object:
    return {"hooks": {moment: [{"hooks": [{"type": "command", "command": "x"} | entry]}]}}


def matched(matcher: str) -> object:
    return {"hooks": {"PreToolUse": [{"matcher": matcher, "hooks": [FORMAT]}]}}


WHOLE: dict[str, tuple[object, str]] = {
    "json": ('{"hooks": ', ", line 1, column 11: not valid JSON: expecting value"),
    "list": ([], ': it should hold one object, {"hooks": {"PreToolUse": [...]}}'),
    "nothing": ({}, ", hooks: it is missing"),
    "events": ({"hooks": []}, ", hooks: it should be one object, event by event"),
}


@pytest.mark.parametrize("case", WHOLE)
def test_a_file_that_cannot_be_read_is_named_and_left_out_while_the_other_counts(
    tmp_path: Path, case: str
) -> None:
    content, said = WHOLE[case]
    bad = written(tmp_path / "home", content)
    written(tmp_path / "repo", GUARD)
    found = read_hooks(tmp_path / "home", tmp_path / "repo", trusted=True)
    assert [hook.command for hook in found.hooks] == ["sh guard.sh"]
    assert found.notes == (f"{bad}{said}; its hooks are left out",)


FAULTS: dict[str, tuple[object, str]] = {
    "event": (
        {"hooks": {"WorktreeCreate": []}},
        ".WorktreeCreate: fugu has no such event; its hooks are left out",
    ),
    "group": ({"hooks": {"Stop": {}}}, ".Stop: it should be a list; the hook is left out"),
    "no hooks": (
        {"hooks": {"Stop": [{"matcher": "x"}]}},
        ".Stop.0.hooks: it should be a list; the hook is left out",
    ),
    "matcher": (
        {"hooks": {"Stop": [{"matcher": "(", "hooks": [FORMAT]}]}},
        ".Stop.0.matcher: it is not a regular expression: missing ), unterminated subpattern at "
        "position 0; "
        "the hook is left out",
    ),
    "type": (
        one(type="prompt"),
        ".Stop.0.hooks.0.type: input should be 'command'; the hook is left out",
    ),
    "command": (
        one(command=" "),
        ".Stop.0.hooks.0.command: it is empty or holds a NUL character; the hook is left out",
    ),
    "number": (
        one(command=5),
        ".Stop.0.hooks.0.command: input should be a valid string; the hook is left out",
    ),
    "timeout": (
        one(timeout=0),
        ".Stop.0.hooks.0.timeout: input should be greater than 0; the hook is left out",
    ),
}


@pytest.mark.parametrize("case", FAULTS)
def test_a_fault_leaves_out_itself_alone(tmp_path: Path, case: str) -> None:
    content, said = FAULTS[case]
    assert isinstance(content, dict)
    bad = written(tmp_path, {"hooks": content["hooks"] | GUARD["hooks"]})
    found = read_hooks(tmp_path, None, trusted=True)
    assert [hook.command for hook in found.hooks] == ["sh guard.sh"]
    assert found.notes == (f"{bad}, hooks{said}",)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (one("PreToolUse", type="prompt"), ".0.hooks.0.type: input should be 'command'"),
        ({"hooks": {"PreToolUse": "x"}}, ": it should be a list"),
        (
            matched("("),
            ".0.matcher: it is not a regular expression: missing ), unterminated subpattern at "
            "position 0",
        ),
    ],
)
def test_a_guard_that_cannot_be_run_is_kept_to_say_no(
    tmp_path: Path, content: object, fault: str
) -> None:
    path = written(tmp_path, content)
    guard = Hook(moment="PreToolUse", source=str(path), own=True, fault=fault)
    note = f"{path}, hooks.PreToolUse{fault}; it cannot be run, so it says no"
    assert read_hooks(tmp_path, None, trusted=True) == DeclaredHooks((guard,), (note,))


@pytest.mark.parametrize(
    ("matcher", "why"),
    [
        ("bahs|edti", "there is none called `bahs`; did you mean bash?"),
        (
            "Bash(git *)",
            "it goes by a tool's name alone, `Bash`; the key `if` of a hook takes such a rule",
        ),
        ("Task|WebSearch", ""),
        ("mcp__docs__*", ""),
    ],
)
def test_a_matcher_that_fits_no_tool_is_said(tmp_path: Path, matcher: str, why: str) -> None:
    path = written(tmp_path, matched(matcher))
    said = (
        (f"{path}, hooks: the matcher `{matcher}` of PreToolUse fits no tool: {why}",)
        if why
        else ()
    )
    assert read_hooks(tmp_path, None, trusted=True).notes == said


@pytest.mark.parametrize(
    ("rule", "call", "fit"),
    [
        ("Bash(git push:*)", Call.make("1", "bash", command="ls && git push origin"), True),
        ("Bash(git push *)", Call.make("1", "bash", command="git status"), False),
        ("Edit(*.ts)", Call.make("1", "edit", path="src/a.ts", old="a", new="b"), True),
        ("Edit(/src/**)", Call.make("1", "edit", path="lib/a.ts", old="a", new="b"), False),
        ("Read(//etc/**)", Call.make("1", "read", path="/etc/hostname"), True),
        (
            "WebFetch(domain:example.org)",
            Call.make("1", "web_fetch", url="https://example.org/x"),
            True,
        ),
        ("Bash", Call.make("1", "read", path="a"), False),
        ("not ( a rule", Call.make("1", "read", path="a"), True),
    ],
)
def test_a_rule_narrows_a_hook_to_calls(tmp_path: Path, rule: str, call: Call, fit: bool) -> None:
    assert rule_fits(rule, call, tmp_path) is fit


def test_arguments_given_apart_are_words_of_their_own(tmp_path: Path) -> None:
    written(tmp_path, one(command="${CLAUDE_PROJECT_DIR}/run me.sh", args=["a b", "$HOME"]))
    (hook,) = read_hooks(tmp_path, None, trusted=True).hooks
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\n' {hook.command}"],
        env={"CLAUDE_PROJECT_DIR": "/the place"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.splitlines() == ["/the place/run me.sh", "a b", "$HOME"]


def test_settings_of_claude_code_are_read_beside_and_their_other_keys_are_no_fault(
    tmp_path: Path,
) -> None:
    written(tmp_path, GUARD | {"description": "ours"})
    written(tmp_path, {"permissions": {"allow": []}} | one(command="a"), ".claude/settings.json")
    local = written(tmp_path, one(command="b"), ".claude/settings.local.json")
    found = read_hooks(tmp_path, None, trusted=False)
    assert ([hook.command for hook in found.hooks], found.notes) == (["sh guard.sh", "a", "b"], ())
    written(tmp_path, {"disableAllHooks": True} | one(command="b"), ".claude/settings.local.json")
    assert [hook.command for hook in read_hooks(tmp_path, None, trusted=False).hooks] == [
        "sh guard.sh",
        "a",
    ]
    local.write_text("{}")
    written(tmp_path, {}, ".claude/settings.json")
    assert read_hooks(tmp_path, None, trusted=False).notes == ()


def test_no_file_and_one_that_is_no_text_are_no_crash(tmp_path: Path) -> None:
    assert read_hooks(tmp_path / "none", tmp_path / "a" / "none", trusted=True) == DeclaredHooks()
    path = written(tmp_path, "x")
    path.write_bytes(b"\xff\xfe")
    assert read_hooks(tmp_path, None, trusted=True).notes == (
        f"{path} is not UTF-8 text (byte 0); its hooks are left out",
    )


def test_a_repositorys_hooks_count_once_it_is_trusted_after_the_users_own(tmp_path: Path) -> None:
    written(Path.home(), {"hooks": {"Stop": [{"hooks": [FORMAT]}]}})
    path = written(tmp_path, GUARD)
    (tmp_path / ".git").mkdir()
    note = f"{path} names hooks (PreToolUse): none is run until you run `fugu trust` here"
    loaded = load_config(tmp_path, {})
    assert ([hook.moment for hook in loaded.hooks.hooks], loaded.hooks.notes) == (["Stop"], (note,))
    loaded = load_config(tmp_path, {}, trust=True)
    assert [(hook.moment, hook.own) for hook in loaded.hooks.hooks] == [
        ("Stop", True),
        ("PreToolUse", False),
    ]
    assert loaded.hooks.notes == ()


def test_in_the_home_itself_the_users_file_is_read_once() -> None:
    written(Path.home(), GUARD)
    assert [hook.own for hook in load_config(Path.home(), {}).hooks.hooks] == [True]


@pytest.mark.parametrize("changed", [".agents/hooks.json", "tools/guard.py", "tools/link.sh"])
def test_a_changed_hooks_file_or_script_that_it_names_asks_again(
    tmp_path: Path, changed: str
) -> None:
    root, data = tmp_path / "repo", tmp_path / "data"
    (root / "tools").mkdir(parents=True)
    (root / "tools/guard.py").write_text("pass")
    (root / "tools/real.sh").write_text("true")
    (root / "tools/link.sh").symlink_to("real.sh")
    command = "python3 tools/guard.py --strict && sh ./tools/link.sh; echo it\\'s done"
    content = {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}}
    written(root, content)
    assert [path.relative_to(root).as_posix() for path in files_named_by_hooks(root)] == [
        "tools/guard.py",
        "tools/link.sh",
    ]
    assert trust.trust(data, root)
    assert trust.is_trusted(data, root)
    path = root / changed
    path.write_text(path.read_text() + " ")
    assert not trust.is_trusted(data, root)
    assert trust.changed_files(data, root) == (changed,)


def test_a_script_named_by_another_way_into_the_folder_is_watched_too(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "guard.sh").write_text("true")
    (tmp_path / "way").symlink_to("repo")
    command = f"sh {tmp_path}/way/guard.sh"
    written(root, {"hooks": {"Stop": [{"hooks": [{"type": "command", "command": command}]}]}})
    assert trust.trust(tmp_path / "data", root)
    (root / "guard.sh").write_text("false")
    assert trust.changed_files(tmp_path / "data", root) == ("guard.sh",)


def test_of_settings_only_the_hooks_are_watched(tmp_path: Path) -> None:
    root, data = tmp_path / "repo", tmp_path / "data"
    (root / ".claude/hooks").mkdir(parents=True)
    (root / ".claude/hooks/guard.sh").write_text("true")
    command = 'bash "$CLAUDE_PROJECT_DIR"/.claude/hooks/guard.sh'
    settings = one("PreToolUse", command=command)
    assert isinstance(settings, dict)
    path = written(root, settings, ".claude/settings.json")
    assert trust.trust(data, root)
    path.write_text(json.dumps({"permissions": {"allow": ["Bash(ls)"]}} | settings))
    assert trust.is_trusted(data, root)
    (root / ".claude/hooks/guard.sh").write_text("false")
    assert trust.changed_files(data, root) == (".claude/hooks/guard.sh",)
    path.write_text(json.dumps(settings | {"disableAllHooks": True}))
    assert ".claude/settings.json" in trust.changed_files(data, root)
