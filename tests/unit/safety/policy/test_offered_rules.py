"""The rule that a yes may be remembered as."""

from __future__ import annotations

from pathlib import Path

import pytest

from fugu_cli.messages import Call
from fugu_cli.safety import offered_rules, policy


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for folder in ("src/deep", "tests"):
        (tmp_path / folder).mkdir(parents=True)
    return tmp_path.resolve()


def offered(root: Path, call: Call, mode: policy.Mode = "ask") -> str:
    rules = policy.Rules(mode=mode)
    return offered_rules.offered_rule(call, policy.judge(call, rules, root), rules, root)


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("pytest -x", "bash(pytest *)"),
        ("pytest tests", "bash(pytest *)"),
        ("pytest tests/a.py::b -k 'x y'", "bash(pytest *)"),
        ("git commit -m x", "bash(git commit *)"),
        ("npm run build", "bash(npm run build *)"),
        ("make test", "bash(make test *)"),
        ("ruff check .", "bash(ruff check *)"),
        ("python -m pytest -q tests/a.py", "bash(python -m pytest *)"),
        ("uv run pytest", "bash(uv run pytest *)"),
        ("pnpm exec eslint src", "bash(pnpm exec eslint *)"),
    ],
)
def test_a_plain_command_may_be_allowed_with_other_arguments(
    root: Path, line: str, rule: str
) -> None:
    assert offered(root, Call.make("1", "bash", command=line)) == rule


@pytest.mark.parametrize(
    "line",
    [
        "pytest && rm x",
        "pytest; ls",
        "pytest | tail",
        "pytest > out",
        "pytest $X",
        "pytest $(ls)",
        "A=1 pytest",
        "env pytest",
        "timeout 5 pytest",
        "sudo pytest",
        "xargs pytest",
        "sh -c pytest",
        "uv run --with x pytest",
        "uv run deploy",
        "python -m http.server",
        "python -m timeit x",
        "python -m pytest && python x.py",
        "python -m $X pytest",
        "python -mpytest",
        "python -c pytest",
        "./python -m pytest",
        "sudo python -m pytest",
        "env python -m pytest",
        "xargs python -m pytest",
        "uv run python -m pytest",
        "python x.py",
        "npx foo",
        "npm run",
        "npm install x",
        "pip install x",
        "go get x",
        "./run.sh",
        "rm x",
        "curl https://a.example",
        "docker run x",
        "git push",
        "git -C x commit",
        "make",
        "eval x",
        "if true; then pytest; fi",
        "",
    ],
)
def test_what_is_compound_wrapped_or_runs_whatever_it_is_given_gets_no_wide_rule(
    root: Path, line: str
) -> None:
    assert offered(root, Call.make("1", "bash", command=line)) == ""


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("src/a.py", "edit(src/**)"),
        ("src/deep/a.py", "edit(src/deep/**)"),
        ("a.py", "edit(a.py)"),
        ("src/[a]/b.py", "edit(src/[[]a]/**)"),
        ("../a.py", ""),
        (".git/config", ""),
        ("src/.env", ""),
        ("a\x1b/b.py", ""),
    ],
)
def test_a_file_may_be_allowed_with_its_folder(root: Path, path: str, rule: str) -> None:
    assert offered(root, Call.make("1", "write", path=path, content="x")) == rule


def test_a_patch_may_be_allowed_with_the_folder_that_holds_all_its_files(root: Path) -> None:
    def patch(*names: str) -> str:
        adds = "".join(f"*** Add File: {name}\n+x\n" for name in names)
        return offered(
            root, Call.make("1", "apply_patch", patch=f"*** Begin Patch\n{adds}*** End Patch")
        )

    assert patch("src/a.py", "src/deep/b.py") == "edit(src/**)"
    assert patch("src/a.py", "tests/b.py") == ""
    assert patch("src/a.py", "../b.py") == ""


def test_the_rule_covers_what_it_says_and_nothing_else(root: Path) -> None:
    allow = ("bash(pytest *)", "bash(python -m pytest *)", "edit(src/**)")
    rules = policy.Rules(mode="ask", allow=allow)

    def verdict(tool: str, **given: str) -> str:
        return policy.judge(Call.make("1", tool, **given), rules, root).verdict

    assert verdict("bash", command="pytest -q") == "allow"
    assert verdict("bash", command="python -m pytest -q -k a") == "allow"
    assert verdict("bash", command="python -m pytest; python -c x") == "ask"
    assert verdict("bash", command="python -m pytest $(touch x)") == "ask"
    assert verdict("bash", command="python -c x") == "ask"
    assert verdict("bash", command="python -m pytest_other") == "ask"
    assert verdict("bash", command="pytest -q && make") == "ask"
    assert verdict("bash", command="pytest -q; git push") == "ask"
    assert verdict("edit", path="src/deep/a.py", old="a", new="b") == "allow"
    assert verdict("edit", path="tests/a.py", old="a", new="b") == "ask"
    assert verdict("write", path="src/../a.py", content="") == "ask"


@pytest.mark.parametrize("command", ["pytest -x", "make \x1b[2Jtest"])
def test_what_a_user_s_own_rule_asks_about_gets_no_rule(root: Path, command: str) -> None:
    rules = policy.Rules(mode="ask", ask=("bash(*)",))
    call = Call.make("1", "bash", command=command)
    assert offered_rules.offered_rule(call, policy.judge(call, rules, root), rules, root) == ""
