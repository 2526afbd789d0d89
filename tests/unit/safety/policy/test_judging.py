"""The judge against a table of real commands, paths, rules and modes."""

from __future__ import annotations

import shlex
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fugu_cli.messages import Call
from fugu_cli.safety.paths import quoted_path, unquoted_path
from fugu_cli.safety.policy import Judgement, Mode, Rules, judge
from fugu_cli.safety.policy.shell_line import parse_line

TESTS = "python3 -m pytest -q -p no:cacheprovider"

MODES: tuple[Mode, ...] = ("plan", "ask", "edit", "auto", "yolo")
VERDICTS = {
    level: dict(zip(MODES, verdicts.split(), strict=True))
    for level, verdicts in {
        "reads": "allow allow allow allow allow",
        "command": "deny ask allow allow allow",
        "edit": "deny ask allow allow allow",
        "outside": "deny ask ask deny allow",
        "lost": "deny deny deny deny allow",
    }.items()
}
"""The verdict of each mode where the sandbox holds, by the class of the command."""
ROWS = [
    (row[:8].strip(), row[9] == "!", row[11:].replace("⏎", "\n"))
    for row in ((Path(__file__).parent / "commands.txt").read_text("utf-8").splitlines())
]
"""The table: the class of a command, whether it is an attack, the command. A row is `CLASS !
COMMAND`, ⏎ a line break.
"""
ALIASES = """
[alias]
    st = status --short
    last = log -1
    ci = "commit -v"
    up = push
    twice = up
    sup = !git push origin
    z = clean -fdx ; as the one below
    wipe = "!cd src && git clean -fdx"
    loop = loop
[include]
    path = ../inc
"""


def commands(*levels: str) -> list[str]:
    return [command for level, _, command in ROWS if level in levels]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with code, secrets, and a link that leads out."""
    tmp_path = tmp_path_factory.mktemp("policy")
    root = (tmp_path / "repo").resolve()
    for name in (
        "src/app.py",
        "tests/test_app.py",
        "README.md",
        "script.sh",
        "config/.env.local",
        ".aws/config",
        ".env",
        "package.json",
        "vendor/bare/objects/x",
        "vendor/bare/refs/x",
        "vendor/bare/HEAD",
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x = 1\n")
    for name in ("config", "HEAD", "hooks/pre-push"):
        (root / ".git" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / ".git" / name).write_text("")
    (root / ".git/config").write_text(ALIASES)
    (root / "inc").write_text('[alias "included"]\ncommand = push\n')
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "hosts").write_text("")
    (root / "outside").symlink_to(tmp_path / "elsewhere")
    return root


def bash(
    command: str, root: Path, mode: Mode = "edit", *, holds: bool = False, **rules: tuple[str, ...]
) -> Judgement:
    call = Call.make("1", "bash", command=command)
    return judge(call, Rules(mode=mode, test_command=TESTS, **rules), root, sandbox_holds=holds)


def verdicts(command: str, root: Path, *, holds: bool) -> dict[str, str]:
    return {mode: bash(command, root, mode, holds=holds).verdict for mode in MODES}


def test_the_table_holds_600_commands_half_of_them_attacks() -> None:
    assert len({command for _, _, command in ROWS}) == len(ROWS) >= 600
    assert sum(attack for _, attack, _ in ROWS) >= 300


def test_every_command_of_the_table_is_judged_in_every_mode_as_the_table_says(root: Path) -> None:
    judged = {command: verdicts(command, root, holds=True) for _, _, command in ROWS}
    wrong = [
        (level, command, judged[command])
        for level, _, command in ROWS
        if judged[command] != VERDICTS[level]
    ]
    assert wrong == []


def test_no_attack_of_the_table_is_a_read(root: Path) -> None:
    assert [command for level, attack, command in ROWS if attack and level == "reads"] == []


def test_without_a_sandbox_other_commands_are_asked_about_and_refused_where_nobody_is_asked(
    root: Path,
) -> None:
    without = VERDICTS | {"command": VERDICTS["outside"]}
    judged = {command: verdicts(command, root, holds=False) for _, _, command in ROWS}
    wrong = [c for level, _, c in ROWS if judged[c] != without[level] and level != "edit"]
    assert [command for command in wrong if "/tmp" not in command] == []
    refused = bash("make all", root, "auto")
    assert (refused.verdict, refused.way_out) == (
        "deny",
        "The user can allow it with --allow 'bash(make all)'",
    )
    assert bash("make all", root, "auto", allow=("bash(make *)",)).verdict == "allow"


def test_a_remembered_yes_does_not_cover_what_pushes_or_leaves_the_repository(root: Path) -> None:
    for command in ("git push", "cat /etc/passwd", "sudo ls", "eval x", "cat .env"):
        assert bash(command, root, "edit", allow=("bash(*)",)).every_time, command


def test_what_cannot_be_read_is_refused_in_every_mode_where_a_rule_forbids_a_command(
    root: Path,
) -> None:
    for command in ("eval ls", "case x in x) y;; esac", "cat <(ls)", "f() { ls; }; f", "a `b`"):
        judged = [bash(command, root, mode, deny=("bash(git push *)",)).verdict for mode in MODES]
        assert judged == ["deny"] * 5, command


def test_what_destroys_more_than_undo_can_restore_is_denied_unless_a_rule_names_it(
    root: Path,
) -> None:
    allow = ("bash", "bash(*)")
    assert [
        c for c in commands("lost") if bash(c, root, "auto", allow=allow).verdict != "deny"
    ] == []
    assert bash("git stash drop", root, allow=("bash(git stash drop)",)).verdict == "allow"
    assert bash("git stash drop", root).reason == (
        "it destroys what undo cannot restore (only a rule that allows this very command permits it)"
    )


@pytest.mark.parametrize("mode", ["ask", "edit"])
def test_a_long_line_does_not_hide_what_destroys(root: Path, mode: Mode) -> None:
    line = "; ".join([*(f"echo {number}" for number in range(300)), "git stash drop"])
    judged = bash(line, root, mode)
    assert judged.verdict == "deny" and "git stash drop" in judged.reason


@pytest.mark.parametrize(
    "call", [Call.make("1", "bash", command=f"  {TESTS} "), Call.make("1", "run_tests")]
)
def test_the_tests_run_where_the_sandbox_holds_and_are_asked_about_once_where_there_is_none(
    call: Call, root: Path
) -> None:
    judged = {
        (mode, holds): judge(call, Rules(mode=mode, test_command=TESTS), root, sandbox_holds=holds)
        for mode in MODES
        for holds in (True, False)
    }
    assert {key: judgement.verdict for key, judgement in judged.items()} == {
        ("plan", True): "deny",
        ("plan", False): "deny",
        ("ask", True): "allow",
        ("ask", False): "ask",
        ("edit", True): "allow",
        ("edit", False): "ask",
        ("auto", True): "allow",
        ("auto", False): "deny",
        ("yolo", True): "allow",
        ("yolo", False): "allow",
    }
    assert judged["edit", False].once_a_session
    assert bash(f"{TESTS}; rm -rf /", root).verdict == "deny"


@pytest.mark.parametrize("command", ["git restore src/app.py", "git checkout -- src/app.py"])
def test_git_puts_single_files_back_as_an_edit_would(command: str, root: Path) -> None:
    assert verdicts(command, root, holds=True) == VERDICTS["edit"]
    assert verdicts(command, root, holds=False) == VERDICTS["edit"]
    for other in (f"{command}; make", "git restore .", "git checkout -- .env", "git restore src"):
        assert bash(other, root, "edit", holds=True).verdict == "ask", other


@pytest.mark.parametrize(
    ("rules", "command", "way_out"),
    [
        (
            Rules(allow=("run_tests",)),
            "pytest -q",
            "Use run_tests with target=FILE_OR_ID for tests. ",
        ),
        (Rules(), "pytest -q", ""),
        (Rules(), "sed -i s/a/b/ src/app.py", "Use edit or write to change files. "),
        (Rules(), "echo x >> src/app.py", "Use edit or write to change files. "),
        (Rules(mode="ask"), "echo x >> src/app.py", ""),
        (Rules(), "find . -name x | xargs ls", "Use glob and grep to search files. "),
        (Rules(), "make", ""),
        (Rules(), "python3 - <<'E'\nprint('*')\nE", ""),
    ],
)
def test_where_nobody_can_be_asked_a_refusal_names_a_tool_that_runs_and_a_rule_that_counts(
    rules: Rules, command: str, way_out: str, root: Path
) -> None:
    call = Call.make("1", "bash", command=command)
    judged = judge(call, rules, root, somebody_to_ask=False)
    assert judged.verdict == "deny"
    assert "nobody can be asked" in judged.reason
    advice, _, shown = judged.way_out.partition("The user can allow it with --allow ")
    assert advice == way_out
    (rule,) = shlex.split(shown)
    allowing = rules.model_copy(update={"allow": (*rules.allow, rule)})
    assert judge(call, allowing, root, somebody_to_ask=False).verdict == "allow"


@pytest.mark.parametrize("path", [".github/workflows/ci.yml", ".husky/pre-commit", ".envrc"])
def test_a_file_that_others_run_is_asked_about_every_time_unless_the_users_own_rule_names_it(
    path: str, root: Path
) -> None:
    call = Call.make("1", "write", path=path, content="x")

    def judged(mode: Mode = "edit", **rules: tuple[str, ...]) -> Judgement:
        return judge(call, Rules(mode=mode, **rules), root, sandbox_holds=True)

    folder = path.split("/")[0]
    rule = f"write({folder}/**)" if "/" in path else f"write({path})"
    assert (judged().verdict, judged().every_time) == ("ask", True)
    assert judged("auto").verdict == "deny"
    assert judged(allow=("write", "edit(**)")).verdict == "ask"
    assert judged("auto", allow=(rule,)).verdict == "allow"
    assert judged("auto", allow=(rule,), from_folder=(rule,)).verdict == "deny"


@pytest.mark.parametrize("path", ["conftest.py", "Makefile", "package.json", "node_modules/x.js"])
def test_a_file_that_tests_run_is_free_where_they_run_in_the_sandbox(path: str, root: Path) -> None:
    call = Call.make("1", "write", path=path, content="x")
    judged = {
        (mode, holds): judge(call, Rules(mode=mode), root, sandbox_holds=holds).verdict
        for mode in MODES
        for holds in (True, False)
    }
    assert [judged[mode, True] for mode in MODES] == ["deny", "ask", "allow", "allow", "allow"]
    assert [judged[mode, False] for mode in MODES] == ["deny", "ask", "ask", "deny", "allow"]


FREE = {"plan": "allow", "ask": "allow", "edit": "allow", "auto": "allow", "yolo": "allow"}
WRITTEN = {"plan": "deny", "ask": "ask", "edit": "allow", "auto": "allow", "yolo": "allow"}
READ_ASKED = {"plan": "deny", "ask": "ask", "edit": "ask", "auto": "deny", "yolo": "allow"}
WRITE_ASKED = {"plan": "deny", "ask": "ask", "edit": "ask", "auto": "deny", "yolo": "allow"}


@pytest.mark.parametrize(
    ("tool", "path", "expected"),
    [
        ("read", "src/app.py", FREE),
        ("read", "missing.py", FREE),
        ("read", "AGENTS.md", FREE),
        ("read", ".env.example", FREE),
        ("read", ".github/workflows/ci.yml", FREE),
        ("list", ".", FREE),
        ("grep", "src", FREE),
        ("glob", "src/../tests", FREE),
        ("read", "../elsewhere/hosts", READ_ASKED),
        ("read", "outside/hosts", READ_ASKED),
        ("read", "/etc/passwd", READ_ASKED),
        ("read", "~/.ssh/id_rsa", READ_ASKED),
        ("read", ".env", READ_ASKED),
        ("read", "config/.env.local", READ_ASKED),
        ("read", "deploy/server.PEM", READ_ASKED),
        ("read", ".git/config", READ_ASKED),
        ("read", "vendor/lib/.Git/config", READ_ASKED),
        ("list", "..", READ_ASKED),
        ("grep", "/", READ_ASKED),
        ("read", "", READ_ASKED),
        ("read", "a\0b", READ_ASKED),
        ("write", "src/app.py", WRITTEN),
        ("write", "src/new/deep.py", WRITTEN),
        ("edit", "README.md", WRITTEN),
        ("edit", ".github/workflows/ci.yml", WRITE_ASKED),
        ("write", "src/secrets.py", WRITTEN),
        ("write", "outside/hosts", WRITE_ASKED),
        ("write", "src/../../x", WRITE_ASKED),
        ("write", ".git/hooks/pre-commit", WRITE_ASKED),
        ("edit", ".fugurc", WRITE_ASKED),
        ("edit", "docs/agents.MD", WRITE_ASKED),
        ("write", ".mcp.json", WRITE_ASKED),
        ("write", ".env", WRITE_ASKED),
        ("write", "id_ed25519", WRITE_ASKED),
        ("edit", '"outside/h\\157sts"', WRITE_ASKED),
    ],
)
def test_a_path_is_judged_where_it_leads(
    tool: str, path: str, expected: dict[str, str], root: Path
) -> None:
    call = Call.make("1", tool, path=path)
    assert {mode: judge(call, Rules(mode=mode), root).verdict for mode in MODES} == expected


@pytest.mark.parametrize(
    ("patch", "expected"),
    [
        ("--- a/src/app.py\n+++ b/src/app.py\n@@ -1 +1 @@\n-x\n+y\n", WRITTEN),
        ("--- /dev/null\n+++ b/new.py\n@@ -0,0 +1 @@\n+y\n", WRITTEN),
        ("*** Begin Patch\n*** Update File: src/app.py\n-x\n+y\n*** End Patch", WRITTEN),
        ("--- a/src/app.py\n+++ b/../x\n@@ -1 +1 @@\n-x\n+y\n", WRITE_ASKED),
        ("--- a/src/app.py\n+++ b/src/app.py\nrename to .git/hooks/x\n", WRITE_ASKED),
        (
            "*** Begin Patch\n*** Update File: src/app.py\n*** Move to: /etc/x\n*** End Patch",
            WRITE_ASKED,
        ),
        ("*** Begin Patch\n*** Add File: .env\n+KEY=1\n*** End Patch", WRITE_ASKED),
        ("text\n*** Delete File: outside/hosts\n", WRITE_ASKED),
        ("diff --git a/new.py b/new.py\nnew file mode 100644\n", WRITTEN),
        ("diff --git a/outside/x b/outside/x\nnew file mode 100644\n", WRITE_ASKED),
        (
            'diff --git "a/outside/h\\157sts" "b/outside/h\\157sts"\nold mode 100644\nnew mode 100755\n',
            WRITE_ASKED,
        ),
    ],
)
def test_a_patch_is_judged_by_every_path_it_names(
    patch: str, expected: dict[str, str], root: Path
) -> None:
    call = Call.make("1", "apply_patch", patch=patch)
    assert {mode: judge(call, Rules(mode=mode), root).verdict for mode in MODES} == expected


def test_rules_go_before_the_mode_and_deny_before_all(root: Path) -> None:
    def edit(path: str, **rules: tuple[str, ...]) -> str:
        return judge(
            Call.make("1", "edit", path=path), Rules(mode="edit", test_command=None, **rules), root
        ).verdict

    assert bash("npm test", root, allow=("bash(npm test)",)).verdict == "allow"
    assert bash("npm test -- --watch", root, allow=("bash(npm test:*)",)).verdict == "allow"
    assert bash("npm test && npm run lint", root, allow=("bash(npm test)",)).verdict == "ask"
    assert bash("npm test && ls", root, allow=("bash(npm test)",)).verdict == "allow"
    assert bash("npm test | tee .env", root, allow=("bash",)).verdict == "ask"
    assert bash("ls", root, ask=("bash",)).verdict == "ask"
    assert bash("ls && git log", root, deny=("bash(git *)",)).verdict == "deny"
    assert bash("env git log", root, "yolo", deny=("bash(git *)",)).verdict == "deny"
    assert bash("git push", root, allow=("bash(git *)",)).verdict == "ask"
    assert bash("git push", root, allow=("bash(git push)",)).verdict == "allow"
    assert edit("src/app.py", deny=("edit(src/**)",)) == "deny"
    assert edit("src/app.py", deny=("write(src)",)) == "deny"
    assert edit("src/../src/app.py", ask=("edit(src/*.py)",)) == "ask"
    assert edit("README.md", deny=("edit(src/**)",)) == "allow"
    assert edit(".env", allow=("edit",)) == "ask"
    assert edit(".env", allow=(f"edit({root}/.env)",)) == "allow"
    assert edit("README.md", deny=("read",)) == "allow"


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git push",
            "/usr/bin/git push",
            "git -C . push",
            "git --no-pager push",
            "x=`git  push`",
            "'git' push",
        ),
        *(
            "sudo git push origin",
            "sudo -n -u x git push",
            "sudo A=1 git push",
            "sudo --unknown git push",
        ),
        *(
            "doas git push",
            "xargs sudo git push < README.md",
            "echo | sudo -- /usr/bin/git -C . push",
        ),
        *(
            "time -p git push",
            "time -- git push",
            "bash -c -- 'git push'",
            "bash -c -e 'git push'",
            "eval 'git push'",
        ),
        *(
            "bash <<< 'git push'",
            "echo 'git push' | sh",
            "bash -c $'git push'",
            "uv run git push",
            "npx -y git push",
        ),
        *(
            "uv run --with x -- git push",
            "poetry run bash -c 'git push'",
            "watch -n 5 'git push'",
            "flock l git push",
        ),
        *(
            "taskset -c 0-3 git push",
            "flock -n l -c 'git push'",
            "python -m uv run git push",
            "su -c 'git push' x",
        ),
        *(
            "if true; then git push; fi",
            "case x in x) git push;; esac",
            "f() { git push; }; f",
            "nice git push -f",
        ),
    ],
)
def test_what_a_rule_forbids_is_forbidden_however_it_is_written(command: str, root: Path) -> None:
    assert bash(command, root, "yolo", deny=("bash(git push *)",)).verdict == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "echo git push",
        "uv run git.py push",
        "npm run git push",
        "docker run git push",
        "uv run x y git push",
    ],
)
def test_what_only_has_a_rules_words_in_it_is_not_forbidden(command: str, root: Path) -> None:
    assert bash(command, root, "yolo", deny=("bash(git push *)",)).verdict == "allow"


def test_a_runner_is_judged_by_what_it_runs_and_allowed_by_its_own_name(root: Path) -> None:
    allow = ("bash(uv run *)", "bash(python -m *)")
    assert bash("uv run pytest -x", root, allow=allow).verdict == "allow"
    assert bash("uv run git push", root, allow=allow).verdict == "ask"
    assert bash("uv run rm -rf ..", root, allow=allow).verdict == "deny"
    assert bash("python -m twine upload dist/x", root, allow=allow).verdict == "ask"
    assert (
        bash("python -m pip install x", root, allow=allow, deny=("bash(pip install *)",)).verdict
        == "deny"
    )
    assert bash("uv run rm src/app.py", root, "auto", deny=("edit(src/**)",)).verdict == "deny"


@pytest.mark.parametrize(
    "command", ["npx " * 200 + "git push", "npx " + "-a npx " * 200 + "git push"]
)
def test_a_runner_of_runners_is_not_followed_for_long(command: str, root: Path) -> None:
    assert bash(command, root, "yolo", deny=("bash(git push *)",)).verdict == "deny"


def test_a_line_that_cannot_be_read_is_refused_where_a_rule_forbids_commands(root: Path) -> None:
    line = "case x in x) perform y;; esac"
    assert bash(line, root, "yolo").verdict == "allow"
    refused = bash(line, root, "yolo", deny=("mcp__x", "bash(rm *)"))
    assert (refused.verdict, refused.reason) == (
        "deny",
        "the rule bash(rm *) may forbid it: policy cannot read it: `case` (write "
        "simple commands, with their names and arguments in plain words, and one call for each)",
    )


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("cat config/.env.local", "deny"),
        ("cat con*/.env.local", "deny"),
        ("cd config; cat .env.local", "deny"),
        ("sort < config/.env.local", "deny"),
        ("bash -c 'head config/.env.local'", "deny"),
        ("grep -r x config", "deny"),
        ("echo x > src/app.py", "deny"),
        ("sed -i s/x/y/ src/app.py", "deny"),
        ("rm -rf src", "deny"),
        ("cat src/app.py", "allow"),
        ("sed -n 1p src/app.py", "allow"),
        ("git show HEAD:config/.env.local", "deny"),
        ("git show HEAD:config/gone", "deny"),
        ("git show :config/gone", "deny"),
        ("git show :2:config/gone", "deny"),
        ("git show ':(top,literal)config/gone' ", "deny"),
        ("git cat-file -p HEAD~1:./config/gone", "deny"),
        ("git show 'HEAD@{1 day ago 12:00}:config/gone'", "deny"),
        ("git -C config show HEAD:./gone", "deny"),
        ("git log -L1,5:config/gone", "deny"),
        ("sudo cat config/gone", "deny"),
        ("sudo tee src/app.py < README.md", "deny"),
        ("git show 'HEAD^{/see http://x}:config/gone'", "deny"),
        ("cp config/.env.local x", "deny"),
        ("cp -r config x", "deny"),
        ("ln -s config x", "deny"),
        ('cat "$PWD/config/gone"', "deny"),
        ("cat ~+/config/gone", "deny"),
        ("cat $PWD/README.md", "allow"),
        ("echo config/gone | xargs cat", "deny"),
        ("xargs cat <<< config/gone", "deny"),
        ("git mv config/gone x", "deny"),
        ("echo src/app.py | xargs rm", "deny"),
        ("echo src/app.py | xargs cat", "allow"),
        ("dd of=src/app.py", "deny"),
        ("git mv src/app.py x", "deny"),
        ("git rm -f src/app.py", "deny"),
        ("find src -delete", "deny"),
        ("git log src/app.py", "allow"),
        ("git show HEAD:src/app.py", "allow"),
        ("git diff -- . ':!config' ':(exclude)config/*' ':^config'", "allow"),
        ("echo config/x", "allow"),
    ],
)
def test_a_rule_that_forbids_files_forbids_commands_that_name_them(
    command: str, expected: str, root: Path
) -> None:
    assert bash(command, root, "yolo", deny=("read(config/**)", "edit(src/**)")).verdict == expected


def test_a_rule_for_a_folder_holds_for_the_folder_itself(root: Path) -> None:
    for rule in ("read(src/**)", f"read({root}/src/**)"):
        assert (
            judge(
                Call.make("1", "grep", path="src", pattern="x"), Rules(deny=(rule,)), root
            ).verdict
            == "deny"
        )


def test_a_rule_for_a_command_allows_no_variables_that_it_does_not_name(root: Path) -> None:
    assert bash("GIT_EXTERNAL_DIFF=x git diff", root, allow=("bash(git diff*)",)).verdict == "ask"
    assert bash("env LD_PRELOAD=./x.so ls", root, allow=("bash(ls *)",)).verdict == "ask"
    assert bash("FOO=1 make all", root, allow=("bash(FOO=1 make *)",)).verdict == "allow"
    assert bash("LANG=C make all", root, allow=("bash(make *)",)).verdict == "allow"


def test_a_rule_for_a_command_writes_no_file_where_writing_is_asked_about(root: Path) -> None:
    assert bash("echo x > src/app.py", root, "ask", allow=("bash(echo *)",)).verdict == "ask"
    assert bash("echo x 2> /dev/null", root, "ask", allow=("bash(echo *)",)).verdict == "allow"
    assert (
        bash("echo x > src/app.py", root, "ask", allow=("bash(echo *)", "edit(src/**)")).verdict
        == "allow"
    )
    assert bash("echo x > src/app.py", root, "ask", allow=("bash",)).verdict == "allow"
    assert bash("echo x > src/app.py", root, "edit", allow=("bash(echo *)",)).verdict == "allow"


def test_what_git_keeps_in_a_bare_repository_belongs_to_git(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    asked = {path: "ask" for path in ("hooks/post-checkout", "config", "info/attributes", "HEAD")}

    def given(folder: str) -> dict[str, str]:
        calls = {
            path: Call.make("1", "write", path=f"{folder}/{path}", content="x")
            for path in (*asked, "src/config")
        }
        return {path: judge(call, Rules(), root).verdict for path, call in calls.items()}

    assert given(".") == given("inner") == dict.fromkeys((*asked, "src/config"), "allow")
    for folder in (".", "inner"):
        subprocess.run(["git", "init", "-q", "--bare", folder], cwd=root, check=True)
        assert given(folder) == asked | {"src/config": "allow"}
    assert bash("cat inner/config", root).verdict == "ask"
    (root / "inner/HEAD").unlink()
    assert given("inner")["HEAD"] == "ask", "it would be a git folder again"


def test_a_tool_policy_does_not_know_is_asked_about(root: Path) -> None:
    call = Call(id="1", tool="mcp__files__delete", arguments="{}")
    assert {mode: judge(call, Rules(mode=mode), root).verdict for mode in MODES} == {
        "plan": "deny", "ask": "ask", "edit": "ask", "auto": "deny", "yolo": "allow",
    }  # fmt: skip
    assert judge(call, Rules(allow=("mcp_*",)), root).verdict == "allow"


def test_a_rule_for_a_servers_tool_goes_by_its_name_alone(root: Path) -> None:
    call = Call.make("1", "mcp__files__delete", path="x")
    given = {
        rule: judge(call, Rules(allow=(rule,)), root).verdict
        for rule in (
            "mcp__files__*",
            "mcp__files__delete",
            "mcp__files",
            "mcp__file",
            "mcp__other__*",
            "*(y)",
        )
    }
    assert list(given.values()) == ["allow", "allow", "allow", "ask", "ask", "ask"]
    assert judge(call, Rules(deny=("*(y)",)), root).verdict == "deny"


def test_a_deny_rule_holds_for_what_the_session_itself_did(root: Path) -> None:
    call = Call(id="1", tool="diff", arguments="{}")
    assert [judge(call, Rules(mode=mode), root).verdict for mode in MODES] == ["allow"] * 5
    assert judge(call, Rules(deny=("diff",)), root).verdict == "deny"


def test_arguments_that_do_not_parse_are_left_to_the_tool_that_refuses_them(root: Path) -> None:
    found = judge(Call(id="1", tool="bash", arguments='{"command": "sudo'), Rules(), root)
    assert (found.verdict, found.reason.startswith("nothing will run")) == ("allow", True)


@pytest.mark.parametrize("line", ["echo $\\\n(git push)", 'echo "$\\\n(git push)"'])
def test_an_expansion_that_is_broken_over_two_lines_is_asked_about(line: str, root: Path) -> None:
    assert bash(line, root, "edit").verdict == "ask"
    assert bash(line, root, "yolo", deny=("bash(git push *)",)).verdict == "deny"


def test_a_rule_for_a_tool_alone_forbids_it_everywhere(root: Path) -> None:
    call = Call.make("1", "read", path="/etc/hosts")
    assert judge(call, Rules(mode="yolo", deny=("read",)), root).verdict == "deny"


def test_what_a_terminal_would_obey_is_not_shown_as_it_is() -> None:
    assert quoted_path("a\x1b[31m\n.py") == '"a\\033[31m\\012.py"'


def test_a_judgement_says_why_and_what(root: Path) -> None:
    assert bash("ls && sudo reboot", root) == Judgement(
        verdict="ask",
        reason="it takes other rights, in `sudo reboot`",
        target="bash(ls && sudo reboot)",
        every_time=True,
        way_out="The user can allow it with --allow 'bash(ls && sudo reboot)'",
    )
    assert bash("rm -rf /", root, "yolo").reason.startswith(
        "yolo: everything is allowed, although it deletes"
    )
    assert judge(Call.make("1", "read", path="src/app.py"), Rules(), root) == Judgement(
        verdict="allow",
        reason="it reads inside the repository",
        target=f"read({root}/src/app.py)",
        paths=(root / "src/app.py",),
    )


@pytest.mark.parametrize("mode", ["ask", "edit"])
@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("bash", {"command": "python script.py"}),
        ("bash", {"command": "make build"}),
        ("bash", {"command": "sed -i s/a/b/ src/app.py"}),
        ("bash", {"command": "rm -r build"}),
        ("bash", {"command": "pytest -q"}),
        ("edit", {"path": "src/app.py"}),
        ("write", {"path": "conftest.py"}),
        ("write", {"path": ".github/workflows/ci.yml"}),
        ("write", {"path": "/etc/hosts"}),
        ("run_tests", {}),
    ],
)
def test_a_question_says_why_it_is_asked_and_repeats_neither_command_nor_path(
    tool: str, arguments: dict[str, object], holds: bool, mode: Mode, root: Path
) -> None:
    rules = Rules(mode=mode, test_command="pytest -q")
    judgement = judge(Call.make("1", tool, **arguments), rules, root, sandbox_holds=holds)
    if judgement.verdict == "allow":
        return
    assert judgement.verdict == "ask"
    words = str(next(iter(arguments.values()), "run_tests")).split()
    assert not any(word.strip("/") in judgement.reason for word in words if word != "-q")
    if "command" in arguments:
        expected = "the sandbox keeps it from all others" if holds else "no sandbox holds here"
        assert expected in judgement.reason


@pytest.mark.parametrize("rule", ["bash(git *", "(x)", "", "two words", "bash)x("])
def test_a_malformed_rule_is_refused_by_name(rule: str) -> None:
    with pytest.raises(ValidationError, match="is not a rule"):
        Rules(allow=(rule,))


@given(
    st.text(alphabet=st.sampled_from(list("ls rm-f/.~'\"\\$`(){};|&<>\n=*?EOF2#,!x0")), max_size=60)
)
@example("rm *0")
def test_any_text_is_judged_without_an_error(text: str) -> None:
    for mode in MODES:
        assert judge(
            Call.make("1", "bash", command=text), Rules(mode=mode), Path("/nowhere/repo")
        ).verdict


@pytest.mark.parametrize(
    "name", ["x" * 300, f"{'x' * 300}.key", f"{'x' * 300}/config", "a/" * 3000 + "config"]
)
def test_a_name_that_no_file_can_have_is_judged(name: str, root: Path) -> None:
    assert (
        judge(
            Call.make("1", "bash", command=f"cat {name}"), Rules(deny=("read(x/**)",)), root
        ).verdict
        == "allow"
    )
    assert judge(
        Call.make("1", "bash", command=f"touch {name}"), Rules(mode="edit"), root
    ).verdict in {"allow", "ask"}
    for tool in ("read", "write", "edit", "list", "glob", "grep"):
        assert judge(Call.make("1", tool, path=name), Rules(), root).verdict in {"allow", "ask"}


@given(st.text(max_size=30))
def test_a_shown_name_leads_back_to_the_file(name: str) -> None:
    foreign = name.encode("utf-8", "surrogatepass").decode("utf-8", "surrogateescape")
    assert unquoted_path(quoted_path(foreign)) == foreign
    quoted_path(foreign).encode()


PIECES = [
    *(
        "x",
        "y ",
        " ",
        "'",
        '"',
        "\\",
        "$",
        ";",
        "|",
        "&&",
        "(",
        ")",
        "\n",
        "#",
        "{x,y}",
        "<<E",
        "\nE\n",
        "<<'E'",
        "$(",
    ),
    *(
        "`",
        "\\\n",
        "$'",
        "x=",
        "if ",
        "then ",
        "fi",
        "; do ",
        "done",
        "while ",
        "! ",
        "<(",
        "2>&1",
        " >f ",
        "*",
    ),
]
LOGGED = "command_not_found_handle() { { printf '%s\\x1f' \"$@\"; printf '\\x1e'; } >> log; }\n"


@pytest.mark.parametrize("line", ["''x=", 'x""=1', "\\x=1"])
def test_a_name_with_quotes_in_it_is_a_command_and_no_assignment(line: str) -> None:
    (command,) = parse_line(line).commands
    assert len(command.words) == 1


@pytest.mark.skipif(not Path("/bin/bash").exists(), reason="needs bash")
@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=12).map("".join))
@settings(max_examples=60, deadline=None)
def test_whatever_bash_runs_of_a_line_without_faults_is_among_its_commands(text: str) -> None:
    line = parse_line(text)
    words = [word for command in line.commands for word in command.words]
    if line.fault or not all(word.plain and "=" not in word.text for word in words):
        return
    with tempfile.TemporaryDirectory() as folder:
        command = ["/bin/bash", "--norc", "-c", f'{LOGGED}eval "$1"', "bash", text]
        subprocess.run(command, cwd=folder, env={"PATH": "/nonexistent"}, capture_output=True, check=False,
                       timeout=30, stdin=subprocess.DEVNULL)  # fmt: skip
        log = Path(folder) / "log"
        logged = log.read_bytes().decode(errors="surrogateescape") if log.exists() else ""
    ran = {tuple(call.split("\x1f")[:-1]) for call in logged.split("\x1e") if call}
    assert ran <= {tuple(word.text for word in command.words) for command in line.commands}


def test_a_number_at_the_end_of_a_line_is_a_word_and_before_a_redirection_a_descriptor() -> None:
    words = [
        [word.text for word in command.words]
        for line in ("head -n 1", "ls 5", "ls 2>/dev/null", "head -n 1 2>&1")
        for command in parse_line(line).commands
    ]
    assert words == [["head", "-n", "1"], ["ls", "5"], ["ls"], ["head", "-n", "1"]]


@pytest.mark.parametrize("tool", ["read", "write"])
def test_a_file_tool_that_is_refused_in_tmp_says_that_bash_has_another(
    tool: str, root: Path
) -> None:
    call = Call.make("1", tool, path="/tmp/repro.py", content="")
    private = judge(call, Rules(), root, sandbox_holds=True, somebody_to_ask=False)
    assert private.way_out.startswith("Commands have a /tmp of their own")
    shared = judge(call, Rules(), root, sandbox_holds=False, somebody_to_ask=False)
    assert "/tmp of their own" not in shared.way_out
