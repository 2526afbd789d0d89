"""What the user allowed for good in one project is allowed from then on, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu_cli.errors import ConfigError, StorageError
from fugu_cli.messages import Call
from fugu_cli.safety import policy, saved_permissions

EDIT = Call.make("1", "edit", path="src/a.py", old="x", new="y")
BASH = Call.make("1", "bash", command="make (x) > out.txt")
GLOB = Call.make("1", "bash", command="make -C [a-c] x? *")
STARS = Call.make("1", "write", path="a*/{b,c}[1].txt", content="x")
PAGE = Call.make("1", "web_fetch", url="http://[::1]:8000/a?b=c")
MCP = Call.make("1", "mcp__notes__add", text="x")
PATCH = Call.make(
    "1", "apply_patch", patch="*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch\n"
)


def judged(call: Call, root: Path, *allow: str) -> policy.Judgement:
    return policy.judge(call, policy.Rules(mode="ask", allow=allow), root)


@pytest.mark.parametrize(
    ("call", "rule", "other"),
    [
        (EDIT, "edit({root}/src/a.py)", Call.make("1", "edit", path="src/b.py", old="x", new="y")),
        (PATCH, "apply_patch({root}/a.txt)", Call.make("1", "write", path="b.txt", content="x")),
        (PAGE, "web_fetch([::1]:8000)", Call.make("1", "web_fetch", url="http://[::1]:8001/")),
        (BASH, "bash(make (x) > out.txt)", Call.make("1", "bash", command="make (y) > out.txt")),
        (
            GLOB,
            "bash(make -C [[]a-c] x[?] [*])",
            Call.make("1", "bash", command="make -C b xy all"),
        ),
        (
            GLOB,
            "bash(make -C [[]a-c] x[?] [*])",
            Call.make("1", "bash", command="make -C [a-c] x? all"),
        ),
        (
            STARS,
            "write({root}/a[*]/[{]b,c}[[]1].txt)",
            Call.make("1", "write", path="ab/{b,c}[1].txt", content="x"),
        ),
        (
            STARS,
            "write({root}/a[*]/[{]b,c}[[]1].txt)",
            Call.make("1", "write", path="a*/b1.txt", content="x"),
        ),
        (MCP, "mcp__notes__add", Call.make("1", "mcp__notes__remove", text="x")),
    ],
)
def test_the_rule_of_a_yes_allows_that_call_and_no_other(
    call: Call, rule: str, other: Call, tmp_path: Path
) -> None:
    before = judged(call, tmp_path)
    made = saved_permissions.rule_for(call, before)
    assert (before.verdict, made) == ("ask", rule.replace("{root}", str(tmp_path)))
    assert judged(call, tmp_path, made).verdict == "allow"
    assert judged(other, tmp_path, made).verdict == "ask"


def test_rules_are_kept_once_in_a_file_that_says_what_it_is(tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "repo"
    assert saved_permissions.load_rules(data, root) == ()
    rules = ("bash(echo 'a\nb' \"c\" \\\\)", "edit(/x/é.py)")
    for rule in (*rules, rules[0]):
        saved_permissions.add_rule(data, root, rule)
    assert saved_permissions.load_rules(data, root) == rules
    first = (
        saved_permissions.permissions_file(data, root).read_text(encoding="utf-8").splitlines()[0]
    )
    assert first == f"# Calls in {root} that need no question. Remove a line to be asked again."


@pytest.mark.parametrize("name", ["caf\udce9", "two\nlines", "bell\x07", "gone\x7f"])
def test_whatever_a_folder_and_a_command_are_called_the_file_can_be_read_again(
    name: str, tmp_path: Path
) -> None:
    data, root = tmp_path / "data", tmp_path / name
    rules = ("bash(printf '\x7f\x1b')", "bash(make)")
    for rule in rules:
        saved_permissions.add_rule(data, root, rule)
    assert saved_permissions.load_rules(data, root) == rules


def test_a_path_that_is_no_utf8_is_not_allowed_for_good(tmp_path: Path) -> None:
    root = tmp_path / "caf\udce9"
    assert judged(EDIT, root, saved_permissions.rule_for(EDIT, judged(EDIT, root))).verdict == "ask"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("allow = [", "cannot read"),
        ('allow = ["("]', "`(` is not a rule"),
        ("allow = [1]", "1 is not a rule"),
        ('allow = "bash(ls)"', "`allow` is no list of rules"),
        (
            'allow = ["bash(ls)", "bahs(ls)"]',
            "`bahs(ls)` fits no tool: there is none called `bahs`; did you mean bash?",
        ),
    ],
)
def test_a_file_with_a_fault_is_named_with_the_way_to_mend_it(
    text: str, wrong: str, tmp_path: Path
) -> None:
    path = saved_permissions.permissions_file(tmp_path, tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(ConfigError, match=str(path)) as refused:
        saved_permissions.load_rules(tmp_path, tmp_path)
    assert wrong in str(refused.value) and "remove it" in refused.value.hint


def test_a_rule_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    root = tmp_path / "repo"
    (tmp_path / "nowhere").symlink_to(tmp_path / "gone")
    with pytest.raises(StorageError, match="cannot write"):
        saved_permissions.add_rule(tmp_path / "nowhere", root, "bash(ls)")
