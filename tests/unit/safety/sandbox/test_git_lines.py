"""Which command lines are git alone: only those write the git folder, that of the repository they
work in.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from fugu_cli.safety.sandbox.git_access import git_folder_written_by

ALONE = r"""
git add -A; git commit -qm 'x y'
git add new && git commit -q -m "$(cat <<'EOF'<NL>new<NL><NL>It's (more) "of" `it`; rm -rf $HOME<NL>EOF<NL>)"
git commit -am "fix: it's done" > /dev/null
git stash
git stash pop
cd sub && git add . && git commit -m x | tail -3
git -C sub commit -m x
git -c user.name=x -c user.email=y commit -m z
GIT_AUTHOR_DATE=x git commit -m y
git --no-pager log --oneline -5; git tag v1
git rebase main
git merge --no-ff -m x y
git pull --rebase origin main
git fetch origin
git fetch https://example.org/x.git main
git push -u origin HEAD
git cherry-pick abc
git bisect start && git bisect bad
git submodule update --init
git worktree add -b x ../y
git checkout -b feature/x 2>&1
git branch -D "$x"
git rm --cached -r *.py
git status
echo two > a.txt && git add -A && git commit -qm two && git log --oneline | head -1
git checkout -b f && mkdir -p src && touch src/x && rm -f old && git add -A; git commit -m x
cat > new.py <<'E'<NL>import os<NL>E<NL>git add -A && git commit -qm x
printf 'x\n' >> sub/a; git add sub/a
"""

NOT_ALONE = r"""
git tag "v$(date +%Y)"
(cd sub; git add .)
git commit -m "$(git log -1 --format=%s)"
pytest && git commit -m x
git status; rm x; make
git status & make
git add x | xargs rm
git add x > y
git checkout other && echo x > a && git add a
git stash pop; echo x > a; git add a
git merge x; touch a; git add a
echo x > .git/HEAD; git add a
echo x > g/HEAD; git add a
echo x > "$(echo .git/HEAD)"; git add a
echo x > .g*/HEAD; git add a
printf -v PATH .; git add a
printf -vPATH .; git add a
rm -rf .git/refs; git add a
rm -rf $x; git add a
mkdir .git/rebase-merge; git add a
ln -s .git l; echo x > l/HEAD; git add a
cp -a links l; echo x > l/HEAD; git add a
mv link l; echo x > l/HEAD; git add a
sed -i s/x/y/ a; git add a
touch a | python3; git add a
X=1 echo x > a; git add a
git commit -m "$(./x)"
git commit -m "$(cat <<EOF<NL>$(./x)<NL>EOF<NL>)"
git commit -m "$(cat <<'EOF'<NL>x<NL>EOF<NL>./x<NL>cat <<'EOF'<NL>x<NL>EOF<NL>)"
echo '$(cat <<'EOF'<NL>'; ./x; echo '<NL>EOF<NL>)'; git add x
cat <<"$(A)"<NL>$(A)<NL>./x<NL>$(A)<NL>git add x
python3 - <<'E'<NL>x<NL>E<NL>git add x
for x in a; do python $x; git add x; done
x=1; git add $x
export A=b; git add x
PATH=. git add x
GIT_EDITOR=x git commit
GIT_DIR=nested/.git git add x
env git add x
command git add x
/usr/bin/git add x
./git add x
git $x
eval git add x
git st
git config a.b c
git -c core.editor=x commit
git --git-dir=nested/.git add x
git --exec-path=. add x
git -C $x add x
git -C nowhere add x
cd nowhere && git add x
cd /tmp && git add x
cd sub && cd .. && git add x
cd sub && git -C . add x
git -C nested add x; git add x
git -C bare status
cd bare && git status
env -C nested git status; git add x
git rebase -x make main
git rebase -qx make main
git rebase --exec=make main
git bisect run make
git submodule foreach make
git filter-branch -f
git difftool -x make y
git merge -s evil x
git merge --strategy=evil x
git fetch ../evil
git fetch --upload-pack=evil origin
git push ./evil x
git push --repo=./evil x
git push file:///evil x
git log --output=x
git log $x
git diff --outp=x
git apply --unsafe-paths x
git read-tree --index-output=x HEAD
make
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for words in (["init", "-q"], ["init", "-q", "nested"], ["init", "-q", "--bare", "bare"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    (tmp_path / "sub").mkdir()
    (tmp_path / "g").symlink_to(".git")
    return tmp_path.resolve()


def lines(table: str) -> list[str]:
    return [line.replace("<NL>", "\n") for line in table.strip().splitlines()]


def test_lines_of_git_and_what_does_no_harm_beside_it_write_the_repository_they_work_in(
    root: Path,
) -> None:
    assert [
        line for line in lines(ALONE) if git_folder_written_by(line, root) != root / ".git"
    ] == []
    assert git_folder_written_by("cd nested && git commit -m x", root) == root / "nested" / ".git"
    assert git_folder_written_by("git -C nested commit -m x", root) == root / "nested" / ".git"


def test_other_lines_write_no_git_folder(root: Path) -> None:
    assert [
        line for line in lines(NOT_ALONE) if git_folder_written_by(line, root) is not None
    ] == []


def test_without_a_repository_there_is_nothing_to_write(tmp_path: Path) -> None:
    assert git_folder_written_by("git add x", tmp_path) is None
