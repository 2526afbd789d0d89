"""Git's aliases, configuration and repositories, and rules that none of them may get round."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fugu_cli.messages import Call
from fugu_cli.safety.policy import Judgement, Mode, Rules, judge

PUSH = ("bash(git push *)",)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository."""
    root = tmp_path.resolve() / "repo"
    root.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def bash(command: str, root: Path, mode: Mode = "yolo", **rules: tuple[str, ...]) -> Judgement:
    return judge(
        Call.make("1", "bash", command=command), Rules(mode=mode, **rules), root, sandbox_holds=True
    )


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git up",
            "git UP origin main",
            "git sup origin",
            "git deep",
            "cd src; git up",
            "git -c color.ui=no up",
        ),
        *(
            "GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=alias.p GIT_CONFIG_VALUE_0=push git p",
            "git -c alias.p=push p",
        ),
        *(
            "git -c include.path=inc p",
            "git -c core.pager='git push' log",
            "git --config-env=alias.p=P p",
        ),
        *(
            "export GIT_CONFIG_GLOBAL=inc; git p",
            "HOME=. git p",
            "git --git-dir=x log",
            "GIT_DIR=x git log",
        ),
        *(
            "$(echo git) push",
            "x=push; git $x",
            "`echo git` push",
            "$x",
            '"$x" push',
            "git $(echo push)",
            "g=git; $g push",
        ),
        *(
            "git pu?h",
            "git p*",
            "g?t push",
            "echo push | xargs git",
            "xargs git < x",
            "find . -exec git {} \\;",
            "env $x",
        ),
        *(
            "xargs -I{} git {} x",
            "parallel git ::: push",
            "at now <<< 'git push'",
            "git {push,pull}",
            "GIT push",
            "git-push",
            "{git,push}",
        ),
        *(
            "/usr/lib/git-core/git-push x",
            "git bisect run git push",
            "git submodule foreach 'git push'",
            "git $1 origin",
        ),
        *(
            "git rebase --exec 'git push' x",
            "uv run git up",
            "eval git push",
            ". ./x",
            "cat <(git push)",
            "sh < x",
        ),
        *(
            'cat <<"$(A)"\n$(A)\ngit push\n$(...)\n',
            "x=$(git push)",
            'bash -c "$x"',
            "trap 'git push' EXIT",
            "git odd",
            "git psuh",
            "env -S'git push'",
            "git archive --exec='git push' --remote=x",
            "valgrind git push",
            "pnpm dlx git push",
        ),
        *(
            "setarch -R git push",
            "su root -c 'git push'",
            "/lib64/ld-linux-x86-64.so.2 /usr/bin/git push",
        ),
        *(
            "mapfile -C 'git push #' -c 1 < x",
            "git grep -O'git push' x",
            "git difftool --extcmd='git push' x",
        ),
        *('x=nice; "$x" git push', '"$x" 5 git -C . push', "n*e git push"),
        *("declare -n r=HOME; r=.; git p", "printf -v HOME .; git p", "rbash -c ls", "pwsh -c ls"),
        *(
            "f() { git push; }; f",
            "coproc git push",
            "alias p='git push'",
            "x='a[$(git push)]'; echo $((x))",
            "zsh -c ls",
        ),
    ],
)
def test_a_rule_against_pushing_is_got_round_by_no_way_to_write_it(
    command: str, root: Path
) -> None:
    assert {mode: bash(command, root, mode, deny=PUSH).verdict for mode in ("auto", "yolo")} == {
        "auto": "deny",
        "yolo": "deny",
    }


@pytest.mark.parametrize(
    "command",
    [
        *(
            "git status",
            "git log $x",
            "ls $x",
            'cat "$file"',
            "git pull $x",
            'git commit -m "$x"',
        ),
        *(
            "python3 - <<'E'\nprint('git push')\nE",
            "make && git status",
            "./git.sh x",
        ),
        *(
            "sed -n 1p *.py",
            "git log -- *.py",
            "sh -c 'make all'",
        ),
    ],
)
def test_a_rule_against_pushing_does_not_touch_what_cannot_push(command: str, root: Path) -> None:
    assert bash(command, root, deny=PUSH).verdict == "allow"


def test_a_refusal_says_which_rule_what_is_not_clear_and_how_to_write_it(root: Path) -> None:
    plainly = (
        "(write simple commands, with their names and arguments in plain words, and one call for "
        "each)"
    )
    assert bash("x=push; git $x", root, deny=PUSH).reason == (
        f"the rule bash(git push *) may forbid it: `git $x` is known only when it runs {plainly}"
    )
    assert bash("eval ls", root, deny=PUSH).reason == (
        f"the rule bash(git push *) may forbid it: policy cannot read it: `eval`, after which "
        f"words may mean something "
        f"else {plainly}"
    )
    assert bash("x=push; git $x", root, ask=PUSH, mode="auto").verdict == "ask"


def test_a_rule_that_allows_reading_does_not_allow_an_option_that_writes_or_runs(
    root: Path,
) -> None:
    def said(command: str, rule: str) -> list[str]:
        call = Call.make("1", "bash", command=command)
        modes: tuple[Mode, ...] = ("ask", "edit")
        return [judge(call, Rules(mode=mode, allow=(rule,)), root).verdict for mode in modes]

    assert said("git diff --stat", "bash(git diff *)") == ["allow", "allow"]
    assert said("git diff --output=x", "bash(git diff *)") == ["ask", "ask"]
    assert said("git log --ext-diff -p", "bash(git *)") == ["ask", "ask"]
    assert said("git grep -Ovim x", "bash(git grep *)") == ["ask", "ask"]
    assert said("sort -o x y", "bash(sort *)") == ["ask", "ask"]
    assert said("rg --pre ./x y", "bash(rg *)") == ["ask", "ask"]
    assert said("git diff --output=x", "bash(git diff --output=*)") == ["allow", "allow"]
    assert said("git diff --output=x", "bash(*)") == ["allow", "allow"]
    assert said("sed -i s/a/b/ x", "bash(sed *)") == ["allow", "allow"]
    for rule, command in (
        ("go test", "go test -exec 'sh -c evil' ./..."),
        ("cargo test", "cargo test --config=build.rustc-wrapper='x'"),
        ("make test", "make test SHELL=x"),
        ("make", "make --ev=x test"),
        ("npm run build", "npm run build --script-shell=x"),
        ("tar", "tar xf a --to-com=x"),
        ("git bisect", "git bisect run x"),
        ("git fetch", "git fetch --upload-pack=x origin"),
        ("npm test", "npm test {--script-shell,-x}=./x"),
        ("npm test", "npm test --script*"),
        ("go test", "go test $X"),
        ("git bisect", "git bisect {run,x} x"),
    ):
        assert said(command, f"bash({rule} *)") == ["ask", "ask"], command
    assert said("git bisect run x", "bash(git bisect run *)") == ["allow", "allow"]
    assert said("go test -exec x ./...", "bash(go test -exec x *)") == ["allow", "allow"]
    assert said("go test -v ./...", "bash(go test *)") == ["allow", "allow"]
    assert said("npm test tests/*.js", "bash(npm test *)") == ["allow", "allow"]


def test_a_word_before_a_subcommand_may_be_an_option(root: Path) -> None:
    assert bash('git "$x" push', root, deny=("bash(git push)",)).verdict == "deny"


def test_a_git_folder_that_keeps_the_rest_somewhere_else_is_not_the_users_own(root: Path) -> None:
    (root / "x").mkdir()
    (root / "x/HEAD").write_text("ref: refs/heads/main\n")
    (root / "x/commondir").write_text("../y\n")
    (root / "y").mkdir()
    (root / "y/config").write_text("[alias]\nlog-it = push\n")
    assert bash("git -C x status", root, "ask").verdict == "ask"
    assert bash("cd x && git log-it", root, deny=PUSH).verdict == "deny"


def test_a_bare_repository_in_the_repository_is_not_the_users_own(root: Path) -> None:
    bare = root / "vendor/bare"
    subprocess.run(["git", "init", "-q", "--bare", str(bare)], check=True)
    subprocess.run(["git", "init", "-q", str(root / "sub")], check=True)
    (root / "src").mkdir()

    def said(command: str) -> list[str]:
        return [bash(command, root, mode).verdict for mode in ("ask", "auto")]

    assert said("git -C src status") == ["allow", "allow"]
    assert said("git -C vendor status") == ["allow", "allow"]
    assert said("git -C sub status") == said("cd sub && git log") == ["ask", "allow"]
    assert (
        said("git -C vendor/bare status") == said("cd vendor/bare && git log") == ["ask", "allow"]
    )
    (bare / "config").write_text("[alias]\nlog-it = push\n")
    assert bash("cd vendor/bare && git log-it", root, deny=PUSH).verdict == "deny"


def test_a_file_that_is_called_like_an_option_may_be_one(root: Path) -> None:
    for name in ("a.py", "b.py"):
        (root / name).touch()
    lines = (
        "sed -n 1p *",
        "git diff *",
        "sort ?*",
        "find * -type f",
    )
    before = {line: bash(line, root, "ask").verdict for line in lines}
    (root / "-i").touch()
    after = {
        line: bash(line, root, "ask").verdict for line in (*lines, "sed -n 1p *.py", "sort ./*")
    }
    assert before == dict.fromkeys(lines, "allow")
    assert after == dict.fromkeys(lines, "ask") | {
        "sed -n 1p *.py": "allow",
        "sort ./*": "allow",
    }


def test_an_alias_can_stand_for_anything(root: Path) -> None:
    judgement = bash("git one", root, "edit")
    assert (judgement.verdict, judgement.every_time) == ("ask", True)
    assert "an alias of git can stand for anything" in judgement.reason
