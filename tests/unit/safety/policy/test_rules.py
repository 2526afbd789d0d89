"""Rules as people write them: what they cover, and that one which covers nothing is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic import ValidationError

from fugu_cli.messages import Call
from fugu_cli.safety.policy import Rules, judge


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository beside a folder that belongs to the user."""
    found = tmp_path.resolve() / "repo"
    for folder in (found / "src", found.parent / "notes"):
        folder.mkdir(parents=True)
    (found / "src/app.py").write_text("x = 1\n")
    return found


@pytest.mark.parametrize(
    ("rule", "call"),
    [
        ("Bash(git *)", Call.make("1", "bash", command="git log")),
        ("Bash(git:*)", Call.make("1", "bash", command="git log")),
        ("Read(src/**)", Call.make("1", "grep", path="src", pattern="x")),
        ("Edit", Call.make("1", "write", path="src/app.py", content="x")),
        ("read(~/notes/**)", Call.make("1", "read", path="~/notes/a")),
        ("read(../notes/**)", Call.make("1", "read", path="../notes/a")),
        ("read({outside}/linked/**)", Call.make("1", "read", path="../notes/a")),
        ("read({outside}/linked)", Call.make("1", "read", path="../notes/a")),
        ("read(//{outside}/notes/**)", Call.make("1", "read", path="../notes/a")),
        ("read(link/**)", Call.make("1", "read", path="src/app.py")),
        ("read(link/**)", Call.make("1", "bash", command="cat link/app.py")),
    ],
)
def test_a_rule_forbids_what_it_means_however_it_is_written(
    rule: str, call: Call, root: Path
) -> None:
    for folder in (root.parent / "notes", Path.home() / "notes"):
        folder.mkdir(parents=True, exist_ok=True)
    (root.parent / "linked").symlink_to(root.parent / "notes")
    (root / "link").symlink_to("src")
    rule = rule.replace("{outside}", str(root.parent))
    assert judge(call, Rules(mode="yolo", deny=(rule,)), root).verdict == "deny"
    assert (
        judge(Call.make("1", "list", path="config"), Rules(deny=(rule,)), root).verdict == "allow"
    )


def test_an_allow_rule_follows_no_link_that_an_agent_could_have_made(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "elsewhere")
    (root / "made").symlink_to("src")
    given = {
        (rule, path): judge(
            Call.make("1", "write", path=path, content="x"), Rules(mode="ask", allow=(rule,)), root
        ).verdict
        for rule, path in (
            ("edit(made/**)", "made/app.py"),
            ("edit(link)", "link"),
            ("edit(~/a.txt)", "~/a.txt"),
            ("edit(~/**)", "~/a.txt"),
        )
    }
    assert list(given.values()) == ["ask", "ask", "allow", "ask"]


@pytest.mark.parametrize(
    ("rule", "call", "covers"),
    [
        ("bash(git *)", Call.make("1", "bash", command="git"), True),
        ("bash(lsof)", Call.make("1", "bash", command="ls"), False),
        ("bash(git log)", Call.make("1", "bash", command="git log -p"), False),
        ("skill(git *)", Call.make("1", "bash", command="git log"), False),
        ("bash(src/**)", Call.make("1", "write", path="src/app.py", content="x"), False),
        ("read(src/**)", Call.make("1", "write", path="src/app.py", content="x"), False),
        ("edit(src/[a-c]pp.py)", Call.make("1", "write", path="src/app.py", content="x"), True),
        ("edit(src/[b-d]pp.py)", Call.make("1", "write", path="src/app.py", content="x"), False),
        ("edit(src/[!a-c]pp.py)", Call.make("1", "write", path="src/app.py", content="x"), False),
        ("edit(src/[!b-d]pp.py)", Call.make("1", "write", path="src/app.py", content="x"), True),
        ("edit(src/*.{py,toml})", Call.make("1", "write", path="src/app.py", content="x"), True),
        ("edit(src/*.{md,t*})", Call.make("1", "write", path="src/app.py", content="x"), False),
        ("edit(src/*.{md,p?})", Call.make("1", "write", path="src/app.py", content="x"), True),
        ("edit(src/[z-a].py)", Call.make("1", "write", path="src/[z-a].py", content="x"), True),
    ],
)
def test_a_rule_covers_what_it_says_and_nothing_beside_it(
    rule: str, call: Call, covers: bool, root: Path
) -> None:
    assert judge(call, Rules(mode="yolo", deny=(rule,)), root).verdict == (
        "deny" if covers else "allow"
    )


@pytest.mark.parametrize(
    ("rule", "meant"),
    [
        ("bahs(touch *)", "did you mean bash?"),
        ("WebFetch(docs.python.org)", "did you mean web_fetch?"),
        ("shell", "there are acceptance_check, "),
        ("bsh*", "did you mean bash?"),
        ("sh*", "there are "),
        ("mcp_docs__find", "there are "),
        ("run_tests(tests/**)", "write run_tests"),
        ("mcp__docs__find(x)", "write mcp__docs__find"),
    ],
)
def test_a_rule_that_can_fit_no_call_is_refused_with_what_is_meant(rule: str, meant: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(rule)) as refused:
        Rules(deny=(rule,))
    assert meant in str(refused.value)
