"""Commands that could show a file in other words than its own, and those that cannot."""

from pathlib import Path

import pytest

from fugu_cli.safety.path_rules import may_disguise


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "src").mkdir()
    (tmp_path / "a.py").write_text("x = 1\n")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "cat */*",
        "grep -rn password . | sort | uniq",
        "git diff | head -50",
        "sed -n 1,20p a.py",
        "sed -i 's/a*/b/' a.py && cat a.py",
        "cat a.py | tr a-z A-Z",
        "python -m pytest -q && git status",
        "make test 2>&1 | tail -20",
        "cp a.py b.py; mkdir -p src/x",
        f"rev {'x' * 300}",
    ],
)
def test_what_shows_text_as_it_is_or_a_named_file_otherwise_does_not(
    root: Path, command: str
) -> None:
    assert not may_disguise(command, root)


@pytest.mark.parametrize(
    "command",
    [
        "cat */* | rev",
        "tar c . | base64",
        "grep -r x | cut -c1-3",
        "find . -type f -exec xxd {} +",
        "ls | xargs rev",
        "cd src && rev codes",
        "base64 < $(ls s*/c*)",
        "git show HEAD~1 | base64",
        "python show.py",
        "python -c 'print(1)'",
        "./build.sh",
        "git archive HEAD",
        "sh -c 'cat s*/* | rev'",
        "cat 'unclosed",
    ],
)
def test_what_could_show_any_file_in_other_words_does(root: Path, command: str) -> None:
    assert may_disguise(command, root)
