"""list, glob and grep."""

from __future__ import annotations

import os

import pytest

from fugu_cli.safety.policy import rule_matching
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build, lay, use


@pytest.fixture
def tree(repo: Build) -> Workspace:
    return repo(
        {
            "README.md": "# Title\nuse main\n", "src/main.py": "def main():\n    pass\n", "src/deep/util.py": "x = 1\n",
            "src/deep/util.ts": "main()\n", ".gitignore": "*.log\nnode_modules/\n", "trace.log": "main\n",
            "node_modules/x/index.js": "main\n", ".env": "KEY=main\n", ".github/ci.yml": "main: 1\n",
            "pic.bin": b"main\0\1",
        }
    )  # fmt: skip


def test_a_folder_is_listed_folders_first(tree: Workspace) -> None:
    (tree.root / "link").symlink_to("src")
    assert use(tree, "list").text.split("\n") == [
        ".github/", "link -> src", "node_modules/", "src/", ".env", ".gitignore", "README.md", "pic.bin", "trace.log",
    ]  # fmt: skip
    assert use(tree, "list", path="src", depth=2).text == "deep/\n  util.py\n  util.ts\nmain.py"
    assert use(tree, "list", path="README.md") == ToolResult(
        text="README.md is a file; use read.", ok=False
    )
    assert use(tree, "list", path="nowhere") == ToolResult(text="nowhere is not there.", ok=False)


def test_a_link_to_itself_stands_among_the_others(repo: Build) -> None:
    workspace = repo({"a.py": "", "b/c.py": ""})
    (workspace.root / "loop").symlink_to("loop")
    (workspace.root / "out").symlink_to("nowhere")
    assert use(workspace, "list", depth=2) == ToolResult(
        text="b/\n  c.py\na.py\nloop -> loop\nout -> nowhere"
    )


def test_files_are_found_by_name_or_path_and_ignored_ones_are_not(tree: Workspace) -> None:
    assert use(tree, "glob", pattern="*.py").text == "src/deep/util.py\nsrc/main.py"
    assert use(tree, "glob", pattern="src/*.py").text == "src/main.py"
    assert use(tree, "glob", pattern="**/util.{py,ts}").text == "src/deep/util.py\nsrc/deep/util.ts"
    assert use(tree, "glob", pattern="./**/*.yml").text == ".github/ci.yml"
    assert use(tree, "glob", pattern="*.py", path="src/deep").text == "src/deep/util.py"
    assert use(tree, "glob", pattern="*.js") == ToolResult(
        text="No file matches *.js (files git ignores are not looked at)."
    )
    assert use(tree, "glob", pattern="*", path="nowhere").ok is False


def test_brackets_of_a_name_and_the_folder_before_a_pattern_are_taken_as_they_are(
    repo: Build,
) -> None:
    workspace = repo(
        {"app/[id]/page.tsx": "x\n", "app/i/page.tsx": "x\n", "app/(x)/page.tsx": "x\n"}
    )
    both = "app/[id]/page.tsx\napp/i/page.tsx"
    assert use(workspace, "glob", pattern="app/[id]/*.tsx").text == both
    assert use(workspace, "glob", pattern=f"{workspace.root}/app/[id]/*.tsx").text == both
    assert (
        use(workspace, "grep", pattern="x", glob="app/[id]/*.tsx").text
        == "app/[id]/page.tsx:1:x\napp/i/page.tsx:1:x"
    )


def test_lines_are_found_with_path_and_number_secrets_ignored_and_binary_files_left_out(
    tree: Workspace,
) -> None:
    assert use(tree, "grep", pattern="main").text.split("\n") == [
        ".github/ci.yml:1:main: 1", "README.md:2:use main", "src/deep/util.ts:1:main()", "src/main.py:1:def main():",
    ]  # fmt: skip
    assert (
        use(tree, "grep", pattern="MAIN", ignore_case=True, glob="*.ts").text
        == "src/deep/util.ts:1:main()"
    )
    assert use(tree, "grep", pattern="pass", path="src/main.py", context=1).text == (
        "src/main.py-1-def main():\nsrc/main.py:2:    pass"
    )
    assert use(tree, "grep", pattern="KEY", path=".env").text == ".env:1:KEY=main"
    assert use(tree, "grep", pattern="KEY", glob=".env").text == "Nothing in . matches KEY."
    assert use(tree, "grep", pattern="repositoryformat", glob="config").text.startswith(
        "Nothing in . matches"
    )
    assert use(tree, "grep", pattern="-x", path=".").text == "Nothing in . matches -x."
    assert use(tree, "grep", pattern="x", path="nowhere").ok is False
    os.mkfifo(tree.root / "pipe")
    assert (
        use(tree, "grep", pattern="x", path="pipe").text == "pipe is neither a file nor a folder."
    )


def test_lines_of_files_that_a_rule_forbids_to_read_or_in_folders_of_keys_are_not_found(
    tree: Workspace,
) -> None:
    lay(tree.root, {"private/plan.md": "use main\n", ".kube/config": "use main\n"})
    tree.unread = rule_matching.read_denial(("read(private/**)", "edit(README.md)"))
    assert use(tree, "grep", pattern="use main").text == "README.md:2:use main"
    assert use(tree, "grep", pattern="use main", path=".kube").text == ".kube/config:1:use main"


def test_a_name_with_a_line_break_is_one_line_in_quotes(repo: Build) -> None:
    workspace = repo(
        {"new\nline.txt": "one\ntwo\n", "-- \n--\nx": "two\n", "plain.txt": "two\n\n\n\n\ntwo\n"}
    )
    (workspace.root / "bytes").write_bytes(b"two\n\0")
    assert use(workspace, "grep", pattern="two", context=1).text.splitlines() == [
        '"-- \\012--\\012x":1:two', "--", '"new\\012line.txt"-1-one', '"new\\012line.txt":2:two', "--",
        "plain.txt:1:two", "plain.txt-2-", "--", "plain.txt-5-", "plain.txt:6:two",
    ]  # fmt: skip
    assert use(workspace, "grep", pattern="two", path="bytes").text.startswith(
        "bytes: binary file matches"
    )


def test_a_pattern_that_is_no_regular_expression_is_explained(tree: Workspace) -> None:
    told = use(tree, "grep", pattern="f(")
    assert (told.ok, "regex parse error" in told.text) == (False, True)
    for pattern in ("a\nb", r"a\nb"):
        told = use(tree, "grep", pattern=pattern)
        assert told == ToolResult(
            text="The search goes line by line: a pattern cannot hold a line break.", ok=False
        )


def test_many_and_long_matches_are_cut_with_a_count(repo: Build) -> None:
    workspace = repo({"a.txt": "match\n" * 500, "b.txt": "match " + "x" * 100_000})
    told = use(workspace, "grep", pattern="match").text
    assert told.endswith("(301 more lines; narrow the search)")
    assert len(use(workspace, "grep", pattern="match", path="b.txt").text) < 500
    lay(workspace.root, {f"f{n}.md": "" for n in range(250)})
    assert use(workspace, "glob", pattern="*.md").text.endswith("(50 more; use a narrower pattern)")


def test_a_match_far_inside_a_long_line_is_shown(repo: Build) -> None:
    line = "x" * 5000 + "needle" + "y" * 5000
    workspace = repo(
        {
            "min.js": f"short\n{line}\nneedle at once {'z' * 1000}\n",
            "utf16.txt": line.encode("utf-16"),
        }
    )
    deep, near = use(workspace, "grep", pattern="needle", path="min.js").text.splitlines()
    assert (
        deep == f"min.js:2:[... 4,900 bytes ...]{'x' * 100}needle{'y' * 194}[... 4,806 bytes more]"
    )
    assert near.startswith("min.js:3:needle at once zzz") and len(near) < 400
    beside = use(workspace, "grep", pattern="needle at", path="min.js", context=1).text.splitlines()
    assert beside[0].startswith("min.js-2-xxx") and len(beside[0]) < 400
    assert use(workspace, "grep", pattern="needle", path="utf16.txt").text.startswith(
        "utf16.txt:1:xxx"
    )


def test_what_may_not_be_looked_into_is_named_and_the_rest_is_found(tree: Workspace) -> None:
    lay(tree.root, {"data/rows": "use main\n"})
    (tree.root / "data").chmod(0)
    try:
        if os.access(tree.root / "data", os.X_OK):
            pytest.skip("rights do not hold for root")
        aside = "\n(could not be looked into: data)"
        assert use(tree, "grep", pattern="use main").text == f"README.md:2:use main{aside}"
        assert use(tree, "grep", pattern="nothing") == ToolResult(
            text=f"Nothing in . matches nothing.{aside}"
        )
        assert use(tree, "glob", pattern="*.md").text == f"README.md{aside}"
        assert "data/ (Permission denied)\n" in use(tree, "list", depth=2).text
        for tool in ("read", "grep", "list", "glob"):
            told = use(tree, tool, path="data/rows", pattern="main")
            assert (told.ok, told.text.split("\n")[0]) == (
                False,
                "data/rows cannot be used: Permission denied.",
            )
        assert (
            use(tree, "glob", pattern="*", path="data").text
            == "The search could not be started: Permission denied."
        )
    finally:
        (tree.root / "data").chmod(0o755)
