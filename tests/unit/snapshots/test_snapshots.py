"""Snapshots and restoring: exact, and nothing of the user's is touched."""

from __future__ import annotations

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fugu_cli.errors import StorageError
from fugu_cli.session.events import FileChange, FileEffects
from fugu_cli.snapshots.file_history import Restored
from fugu_cli.snapshots.git_repositories import blob_id
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build, git, lay, restore

Tree = dict[str, tuple[str, bytes]]


def contents(root: Path) -> Tree:
    """Every file, link and empty folder below `root` but .git: (kind or mode, content)."""
    found: Tree = {}
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name != ".git"]
        for name in [*files, *(f for f in folders if (Path(folder) / f).is_symlink())]:
            path = Path(folder) / name
            key = path.relative_to(root).as_posix()
            if path.is_symlink():
                found[key] = ("link", os.fsencode(path.readlink()))
            else:
                mode = f"{stat.S_IMODE(path.stat().st_mode):o}"
                found[key] = ({"644": "-", "755": "x"}.get(mode, mode), path.read_bytes())
        if not folders and not files and Path(folder) != root:
            found[Path(folder).relative_to(root).as_posix()] = ("empty", b"")
    return found


def users(root: Path) -> dict[str, bytes]:
    """Every byte of the user's .git folder."""
    return {
        p.relative_to(root).as_posix(): p.read_bytes()
        for p in (root / ".git").rglob("*")
        if p.is_file()
    }


def make(root: Path, tree: Tree) -> None:
    """Replace all files below `root` but .git by those of `tree`."""
    for entry in root.iterdir():
        if entry.name == ".git":
            continue
        shutil.rmtree(entry) if entry.is_dir() and not entry.is_symlink() else entry.unlink()
    for name, (kind, content) in tree.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind == "link":
            path.symlink_to(os.fsdecode(content))
        elif kind == "empty":
            path.mkdir()
        else:
            path.write_bytes(content)
            path.chmod({"-": 0o644, "x": 0o755}.get(kind) or int(kind, 8))


names = st.lists(
    st.sampled_from(["a", "b", "src", "deep", "ü", "with space", "-dash", "*", "caf\udce9", '"q"', "new\nline"]),
    min_size=1, max_size=3,
).map("/".join)  # fmt: skip
entries = st.tuples(
    st.sampled_from(["-", "x", "600", "640", "700", "444", "link", "empty"]),
    st.one_of(
        st.binary(max_size=40),
        st.sampled_from([b"", b"a\r\nb\r\n", b"\xef\xbb\xbftext\n", b"$Id$\n", b"\0\xff" * 9]),
    ),
)


def without_conflicts(tree: Tree) -> Tree:
    """No path is also a folder of another; no link without a target."""
    kept: Tree = {}
    for name, (kind, content) in tree.items():
        parents = {"/".join(name.split("/")[:n]) for n in range(1, name.count("/") + 1)}
        if parents & kept.keys() or any(other.startswith(name + "/") for other in kept):
            continue
        target = content.replace(b"\0", b"").replace(b"/", b"") or b"target"
        kept[name] = (kind, target if kind == "link" else b"" if kind == "empty" else content)
    return kept


trees = st.dictionaries(names, entries, max_size=6).map(without_conflicts)


@given(committed=trees, before=trees, after=trees, autocrlf=st.booleans())
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree_is_put_back_exactly_and_the_users_git_is_untouched(
    committed: Tree, before: Tree, after: Tree, autocrlf: bool
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repo"
        root.mkdir()
        git(root, "init", "-q", "-b", "main")
        git(root, "config", "core.autocrlf", "true" if autocrlf else "false")
        (root / ".git" / "info" / "attributes").write_text("* text=auto ident\n")
        make(root, committed)
        git(root, "add", "-A")
        make(root, before)
        mine = users(root)
        workspace = Workspace(root, Path(folder) / "store")
        trees_taken = [asyncio.run(workspace.history.snapshot())]
        make(root, after)
        trees_taken.append(asyncio.run(workspace.history.snapshot()))
        for tree, expected in ((0, before), (1, after), (0, before)):
            asyncio.run(restore(workspace, trees_taken[tree] or ""))
            assert contents(root) == expected
            assert asyncio.run(workspace.history.snapshot()) == trees_taken[tree]
        assert users(root) == mine


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with ignore rules, a nested repository and a submodule, each with a commit, to
    be copied.
    """
    folder = tmp_path_factory.mktemp("furnished")
    author = (
        "-c",
        "user.name=A",
        "-c",
        "user.email=a@example.org",
        "-c",
        "protocol.file.allow=always",
    )
    for name in ("library", "repo", "repo/nested"):
        git(folder, "init", "-q", "-b", "main", name)
        git(folder / name, *author, "commit", "-q", "--allow-empty", "-m", "start")
    root = folder / "repo"
    git(root, *author, "submodule", "--quiet", "add", str(folder / "library"), "library")
    lay(root, {".gitignore": "ignored/\n*.log\n"})
    git(root, "add", ".gitignore")
    git(root, *author, "commit", "-q", "-m", "furnished")
    return root


ALONE = ("nested", "library", "ignored")


@given(before=st.tuples(*[trees] * 4), after=st.tuples(*[trees] * 4))
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_tree_is_put_back_and_ignored_files_nested_repositories_and_submodules_are_left_alone(
    furnished: Path, before: tuple[Tree, ...], after: tuple[Tree, ...]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repo"
        shutil.copytree(furnished, root, symlinks=True)
        (root / "ours").mkdir()
        workspace = Workspace(root, Path(folder) / "store")

        def become(state: tuple[Tree, ...]) -> None:
            for name, tree in zip(("ours", *ALONE), state, strict=True):
                (root / name).mkdir(exist_ok=True)
                kept = (
                    (root / name / ".git").read_bytes() if (root / name / ".git").is_file() else b""
                )
                make(root / name, tree)
                assert not kept or (root / name / ".git").read_bytes() == kept
            lay(root, {"a.log": str(len(state[0]))})

        become(before)
        snapshot = asyncio.run(workspace.history.snapshot()) or ""
        become(after)
        left = {name: contents(root / name) for name in ALONE}
        asyncio.run(restore(workspace, snapshot))
        assert contents(root / "ours") == before[0]
        assert {name: contents(root / name) for name in ALONE} == left
        assert (root / "a.log").read_text() == str(len(after[0]))
        made = asyncio.run(workspace.history.since(snapshot))
        assert made.changes == () and all(one.nested for one in made.attributes)


def test_an_empty_folder_in_the_place_of_a_file_and_the_other_way_round(repo: Build) -> None:
    workspace = repo({"b": "", "a.py": "1\n"})
    states: tuple[Tree, Tree] = ({"b": ("-", b"")}, {"a": ("-", b""), "b": ("empty", b"")})
    (workspace.root / "ours").mkdir()
    taken = []
    for state in states:
        make(workspace.root / "ours", state)
        taken.append(asyncio.run(workspace.history.snapshot()) or "")
    for number in (0, 1, 0):
        asyncio.run(restore(workspace, taken[number]))
        assert contents(workspace.root / "ours") == states[number]
        assert asyncio.run(workspace.history.snapshot()) == taken[number]


def test_ignored_files_are_neither_taken_nor_touched(repo: Build) -> None:
    workspace = repo({"a.py": "1\n", ".gitignore": "*.log\nbuild/\n"})
    lay(workspace.root, {"x.log": "mine", "build/out.bin": "mine"})
    before = asyncio.run(workspace.history.snapshot())
    lay(
        workspace.root, {"x.log": "changed", "build/new.bin": "new", "a.py": "2\n", "b.py": "new\n"}
    )
    assert set(asyncio.run(restore(workspace, before or ""))) == {"a.py", "b.py"}
    assert contents(workspace.root) == {
        "a.py": ("-", b"1\n"), ".gitignore": ("-", b"*.log\nbuild/\n"), "x.log": ("-", b"changed"),
        "build/out.bin": ("-", b"mine"), "build/new.bin": ("-", b"new"),
    }  # fmt: skip


def test_a_file_that_was_ignored_at_the_snapshot_survives_although_the_ignore_rules_were_deleted_since(
    repo: Build,
) -> None:
    workspace = repo({"a.py": "1\n", ".gitignore": "*.log\n"})
    lay(workspace.root, {"x.log": "precious"})
    before = asyncio.run(workspace.history.snapshot())
    (workspace.root / ".gitignore").unlink()
    lay(workspace.root, {"new.txt": "new"})
    asyncio.run(workspace.history.snapshot())
    assert set(asyncio.run(restore(workspace, before or ""))) == {".gitignore", "new.txt"}
    assert contents(workspace.root) == {
        "a.py": ("-", b"1\n"), ".gitignore": ("-", b"*.log\n"), "x.log": ("-", b"precious"),
    }  # fmt: skip


def test_a_file_that_became_ignored_is_put_back_to_how_it_was(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    lay(workspace.root, {"notes.txt": "before"})
    before = asyncio.run(workspace.history.snapshot())
    lay(workspace.root, {".gitignore": "notes.txt\n", "notes.txt": "after"})
    after = asyncio.run(workspace.history.snapshot())
    lay(workspace.root, {"notes.txt": "later"})
    assert asyncio.run(workspace.history.snapshot()) == after
    asyncio.run(restore(workspace, before or ""))
    assert contents(workspace.root) == {"a.py": ("-", b"1\n"), "notes.txt": ("-", b"before")}


def test_a_tracked_file_that_is_ignored_belongs_to_the_snapshot(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    lay(workspace.root, {".gitignore": "*.lock\n", "my.lock": "1", "other.lock": "1"})
    git(workspace.root, "add", "-f", "my.lock", ".gitignore")
    before = asyncio.run(workspace.history.snapshot())
    lay(workspace.root, {"my.lock": "2", "other.lock": "2"})
    assert asyncio.run(restore(workspace, before or "")) == ("my.lock",)
    assert (workspace.root / "other.lock").read_text() == "2"


def test_the_users_own_ignore_files_count(
    repo: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = repo({"a.py": "1\n"})
    (tmp_path / "ignore").write_text("*.swp\n")
    (workspace.root / ".git" / "info" / "exclude").write_text("private/\n")
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\n\texcludesFile = {tmp_path}/ignore\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    first = asyncio.run(workspace.history.snapshot())
    lay(workspace.root, {"a.swp": "x", "private/key": "x"})
    assert asyncio.run(workspace.history.snapshot()) == first


def test_nested_repositories_are_left_alone(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    for name in ("empty", "full"):
        lay(workspace.root / name, {"x": "1"})
        git(workspace.root / name, "init", "-q")
    git(workspace.root / "full", "add", "-A")
    git(workspace.root / "full", "commit", "-q", "-m", "x")
    before = asyncio.run(workspace.history.snapshot())
    lay(workspace.root, {"a.py": "2\n", "full/x": "2", "empty/y": "2"})
    assert asyncio.run(restore(workspace, before or "")) == ("a.py",)
    assert ((workspace.root / "full/x").read_text(), (workspace.root / "empty/y").read_text()) == (
        "2",
        "2",
    )


def test_a_file_can_take_a_folders_place_and_back(repo: Build) -> None:
    workspace = repo({"thing": "file\n", "other/deep/x": "1\n"})
    before = asyncio.run(workspace.history.snapshot())
    (workspace.root / "thing").unlink()
    shutil.rmtree(workspace.root / "other")
    lay(workspace.root, {"thing/inner": "2\n", "other": "now a file\n"})
    asyncio.run(restore(workspace, before or ""))
    assert contents(workspace.root) == {"thing": ("-", b"file\n"), "other/deep/x": ("-", b"1\n")}


def test_what_an_ignored_file_blocks_is_said_and_the_rest_is_put_back(repo: Build) -> None:
    workspace = repo({"thing": "file\n", "a.py": "1\n", ".gitignore": "*.log\n"})
    before = asyncio.run(workspace.history.snapshot())
    (workspace.root / "thing").unlink()
    lay(workspace.root, {"thing/x.log": "ignored", "a.py": "2\n"})
    with pytest.raises(StorageError, match="1 of 2 files could not be put back: thing"):
        asyncio.run(restore(workspace, before or ""))
    assert (workspace.root / "a.py").read_text() == "1\n"


def test_a_link_to_where_nobody_may_look_is_taken_and_put_back(repo: Build) -> None:
    workspace = repo({"a": "a\n"})
    link = workspace.root / "link"
    link.symlink_to("x" * 300)  # following it fails, as into a folder that may not be entered
    before = asyncio.run(workspace.history.snapshot()) or ""
    link.unlink()
    link.symlink_to("a")
    assert asyncio.run(restore(workspace, before)) == ("link",)
    assert str(link.readlink()) == "x" * 300


def test_restoring_never_writes_through_a_link_that_leads_out(repo: Build, tmp_path: Path) -> None:
    workspace = repo({"src/a.py": "1\n"})
    before = asyncio.run(workspace.history.snapshot())
    lay(tmp_path / "elsewhere", {"a.py": "not ours"})
    shutil.rmtree(workspace.root / "src")
    (workspace.root / "src").symlink_to(tmp_path / "elsewhere")
    asyncio.run(restore(workspace, before or ""))
    assert contents(workspace.root) == {"src/a.py": ("-", b"1\n")}
    assert (tmp_path / "elsewhere" / "a.py").read_text() == "not ours"


def test_a_diff_names_each_change_with_its_blobs(repo: Build) -> None:
    workspace = repo({"a.py": "1\n", "b.py": "1\n", "run.sh": "x\n"})
    before = asyncio.run(workspace.history.snapshot()) or ""
    lay(workspace.root, {"a.py": "2\n", "c.py": "3\n"})
    (workspace.root / "b.py").unlink()
    (workspace.root / "run.sh").chmod(0o755)
    after = asyncio.run(workspace.history.snapshot()) or ""
    one, two, three, x = (blob_id(data) for data in (b"1\n", b"2\n", b"3\n", b"x\n"))
    assert asyncio.run(workspace.history.effects_between(before, after)).changes == (
        FileChange(path="a.py", before=one, after=two),
        FileChange(path="b.py", before=one, after=None),
        FileChange(path="c.py", before=None, after=three),
        FileChange(path="run.sh", before=x, after=x, mode="100755", mode_before="100644"),
    )
    assert asyncio.run(workspace.history.blob(two)) == b"2\n"
    assert asyncio.run(workspace.history.blob(one)) == b"1\n"


def test_a_patch_applies_with_git_byte_for_byte(repo: Build, tmp_path: Path) -> None:
    workspace = repo({"a.txt": b"caf\xe9\r\nline\n", "pic": bytes(range(256))})
    before = asyncio.run(workspace.history.snapshot()) or ""
    lay(
        workspace.root,
        {"a.txt": b"caf\xe9\r\nother\n", "pic": bytes(reversed(range(256))), "new": "x"},
    )
    after = asyncio.run(workspace.history.snapshot()) or ""
    (tmp_path / "patch").write_bytes(asyncio.run(workspace.patch(before, after, whole=True)))
    expected = contents(workspace.root)
    asyncio.run(restore(workspace, before))
    git(workspace.root, "apply", str(tmp_path / "patch"))
    assert contents(workspace.root) == expected


def test_a_folder_inside_a_repository_is_snapshotted_alone(repo: Build, tmp_path: Path) -> None:
    top = repo({"sub/a.py": "1\n", "other.py": "1\n", ".gitignore": "*.log\n"}).root
    workspace = Workspace(top / "sub", tmp_path / "store2")
    before = asyncio.run(workspace.history.snapshot())
    lay(top, {"sub/a.py": "2\n", "other.py": "2\n", "sub/x.log": "ignored", "sub/b.py": "new\n"})
    sparse(top / "sub" / "large.bin", 1 << 30)
    assert [one.path for one in asyncio.run(workspace.history.since(before or "")).attributes] == [
        "large.bin"
    ]
    assert set(asyncio.run(restore(workspace, before or ""))) == {"a.py", "b.py"}
    assert (top / "other.py").read_text() == "2\n"
    assert (top / "sub" / "x.log").read_text() == "ignored"


def test_a_folder_its_repository_ignores_counts_as_outside_git(repo: Build, tmp_path: Path) -> None:
    top = repo({".gitignore": "projects/\n"}).root
    (top / "projects" / "one").mkdir(parents=True)
    assert not Workspace(top / "projects" / "one", tmp_path / "store2").in_git


def test_looking_for_a_folders_repository_runs_nothing_that_its_configuration_names(
    repo: Build, tmp_path: Path
) -> None:
    top = repo({"sub/a.py": "1\n"}).root
    git(top, "config", "core.fsmonitor", f"touch {tmp_path}/ran #")
    assert Workspace(top / "sub", tmp_path / "store2").in_git
    assert not (tmp_path / "ran").exists()


def test_an_empty_repository_and_a_worktree_can_be_snapshotted(repo: Build, tmp_path: Path) -> None:
    workspace = repo({})
    assert asyncio.run(workspace.history.snapshot()) == "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    git(workspace.root, "worktree", "add", "-q", str(tmp_path / "tree"), "-b", "other")
    other = Workspace(tmp_path / "tree", tmp_path / "store2")
    lay(other.root, {"a": "1"})
    before = asyncio.run(other.history.snapshot())
    lay(other.root, {"a": "2"})
    assert asyncio.run(restore(other, before or "")) == ("a",)


def test_snapshots_are_taken_one_at_a_time_and_a_lock_left_behind_is_no_obstacle(
    repo: Build,
) -> None:
    workspace = repo({"a.py": "1\n"})
    other = Workspace(workspace.root, workspace.store)

    async def many() -> set[str | None]:
        return set(await asyncio.gather(*(w.history.snapshot() for w in (workspace, other) * 4)))

    first = asyncio.run(workspace.history.snapshot())
    (workspace.store / "index.lock").touch()
    lay(workspace.root, {"a.py": "2\n"})
    (second,) = asyncio.run(many())
    assert first != second


def test_another_process_that_took_a_snapshot_in_between_is_noticed(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    asyncio.run(workspace.history.snapshot())
    lay(workspace.root, {"a.py": "2\n"})
    theirs = asyncio.run(Workspace(workspace.root, workspace.store).history.snapshot())
    assert asyncio.run(workspace.history.snapshot()) == theirs


def test_a_broken_index_is_made_anew(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    first = asyncio.run(workspace.history.snapshot())
    (workspace.store / "index").write_bytes(b"nonsense")
    assert asyncio.run(workspace.history.snapshot()) == first


def test_a_store_that_cannot_be_written_is_said(repo: Build, tmp_path: Path) -> None:
    root = repo({"a.py": "1\n"}).root
    (tmp_path / "blocked").write_text("a file, not a folder")
    with pytest.raises(StorageError, match="cannot be kept in"):
        asyncio.run(Workspace(root, tmp_path / "blocked" / "store").history.snapshot())


def test_outside_git_the_files_fugu_changed_can_be_put_back(plain: Build) -> None:
    workspace = plain({"a.txt": "1\n", "b.txt": "1\n"})
    root = workspace.root
    assert (workspace.in_git, asyncio.run(workspace.history.snapshot())) == (False, None)
    changes = (
        FileChange(path="a.txt", before=blob_id(b"1\n"), after=blob_id(b"2\n")),
        FileChange(path="b.txt", before=blob_id(b"1\n"), after=blob_id(b"2\n")),
        FileChange(path="new.txt", before=None, after=blob_id(b"3\n")),
        FileChange(path="a.txt", before=blob_id(b"2\n"), after=blob_id(b"4\n")),
    )
    for name, data in (
        ("a.txt", b"2\n"),
        ("b.txt", b"2\n"),
        ("new.txt", b"3\n"),
        ("a.txt", b"4\n"),
    ):
        workspace.write(root / name, data)
    lay(root, {"b.txt": "somebody else\n"})
    restored = asyncio.run(workspace.take_back(FileEffects(changes)))
    assert (restored.paths, restored.left) == (("a.txt", "new.txt"), ("b.txt",))
    assert contents(root) == {"a.txt": ("-", b"1\n"), "b.txt": ("-", b"somebody else\n")}
    assert asyncio.run(workspace.take_back(FileEffects(changes))) == Restored((), ("b.txt",))


def test_a_submodule_is_left_alone_whatever_happens_in_and_around_it(
    repo: Build, tmp_path: Path
) -> None:
    workspace = repo({"a.txt": "1\n"})
    root = workspace.root
    git(tmp_path, "init", "-q", "-b", "main", "library")
    lay(tmp_path / "library", {"lib.py": "x = 1\n"})
    git(tmp_path / "library", "add", "-A")
    git(tmp_path / "library", "commit", "-q", "-m", "start")
    git(
        root,
        "-c",
        "protocol.file.allow=always",
        "submodule",
        "add",
        "-q",
        str(tmp_path / "library"),
        "vendor/library",
    )
    git(root, "commit", "-q", "-m", "a submodule")
    before = asyncio.run(workspace.history.snapshot())
    lay(
        root,
        {
            "vendor/library/lib.py": "x = 2\n",
            "vendor/library/new.py": "",
            "vendor/own.py": "",
            "a.txt": "2\n",
        },
    )
    assert set(asyncio.run(restore(workspace, before or ""))) == {"vendor/own.py", "a.txt"}
    assert (root / "vendor" / "library" / "lib.py").read_text() == "x = 2\n"
    assert (root / "vendor" / "library" / "new.py").exists()
    assert git(root, "submodule", "status").startswith(b" ")


def library_in(workspace: Workspace, folder: Path) -> Path:
    """A submodule of the workspace, made by git."""
    git(folder, "init", "-q", "-b", "main", "library")
    lay(folder / "library", {"lib.py": "x = 1\n", ".gitignore": "*.o\n"})
    git(folder / "library", "add", "-A")
    git(folder / "library", "commit", "-q", "-m", "start")
    added = ("submodule", "add", "-q", str(folder / "library"), "vendor/library")
    git(workspace.root, "-c", "protocol.file.allow=always", *added)
    git(workspace.root, "commit", "-q", "-m", "a submodule")
    return workspace.root / "vendor" / "library"


def nested_after(workspace: Workspace, act: Callable[[], object]) -> tuple[str, ...]:
    """The nested repositories that undo would leave alone after this."""
    before = asyncio.run(workspace.history.snapshot()) or ""
    act()
    return workspace.history.standing(asyncio.run(workspace.history.since(before))).nested


@pytest.mark.parametrize(
    "act",
    [
        lambda library: lay(library, {"lib.py": "x = 2\n"}),
        lambda library: lay(library, {"new.py": ""}),
        lambda library: (library / "lib.py").unlink(),
        lambda library: git(library, "commit", "-q", "--allow-empty", "-m", "more"),
        lambda library: git(library, "checkout", "-q", "--detach"),
        lambda library: (lay(library, {"lib.py": "x = 2\n"}), git(library, "add", "lib.py")),
        lambda library: shutil.rmtree(library),
    ],
    ids=["edit", "new", "removal", "commit", "checkout", "staged", "gone"],
)
def test_a_change_inside_of_a_submodule_is_named(
    repo: Build, tmp_path: Path, act: Callable[[Path], object]
) -> None:
    workspace = repo({"a.txt": "1\n"})
    library = library_in(workspace, tmp_path)
    assert nested_after(workspace, lambda: act(library)) == ("vendor/library",)


@pytest.mark.parametrize(
    "act",
    [
        lambda library: os.utime(library / "lib.py", (1, 1)),
        lambda library: lay(library, {"lib.o": "compiled"}),
        lambda library: git(library, "status"),
        lambda library: (
            lay(library, {"lib.py": "x = 2\n"}),
            git(library, "checkout", "-q", "lib.py"),
        ),
        lambda library: (
            git(library, "checkout", "-q", "--detach"),
            git(library, "checkout", "-q", "main"),
        ),
    ],
    ids=["touched", "ignored", "looked at", "there and back", "head there and back"],
)
def test_a_submodule_that_is_as_it_was_is_not_named(
    repo: Build, tmp_path: Path, act: Callable[[Path], object]
) -> None:
    workspace = repo({"a.txt": "1\n"})
    library = library_in(workspace, tmp_path)
    assert nested_after(workspace, lambda: act(library)) == ()


def test_a_repository_that_a_command_clones_is_named_and_its_filters_never_run(
    repo: Build, tmp_path: Path
) -> None:
    workspace = repo({"a.txt": "1\n"})
    library = library_in(workspace, tmp_path)
    clone = ("clone", "-q", str(tmp_path / "library"), "third/party")
    assert nested_after(workspace, lambda: git(workspace.root, *clone)) == ("third/party",)
    git(library, "config", "filter.odd.clean", f"touch {tmp_path / 'ran'}; cat")
    lay(library, {".gitattributes": "*.py filter=odd\n", "lib.py": "x = 3\n"})
    assert nested_after(workspace, lambda: lay(library, {"lib.py": "x = 4\n"})) == (
        "vendor/library",
    )
    assert not (tmp_path / "ran").exists()


def test_a_file_comes_back_with_its_own_permissions_and_an_empty_folder_with_none(
    repo: Build,
) -> None:
    workspace = repo({"key": "secret\n", "run.sh": "#!/bin/sh\n"})
    root = workspace.root
    (root / "key").chmod(0o600)
    (root / "run.sh").chmod(0o750)
    (root / "kept" / "deep").mkdir(parents=True)
    before = asyncio.run(workspace.history.snapshot())
    (root / "key").unlink()
    lay(root, {"key": "other\n", "kept/deep/file": ""})
    (root / "run.sh").chmod(0o644)
    (root / "made").mkdir()
    asyncio.run(restore(workspace, before or ""))
    assert contents(root) == {
        "key": ("600", b"secret\n"), "run.sh": ("750", b"#!/bin/sh\n"), "kept/deep": ("empty", b""),
    }  # fmt: skip
    assert asyncio.run(workspace.history.snapshot()) == before


def test_contents_that_were_taken_out_of_the_store_are_copied_again(repo: Build) -> None:
    workspace = repo({"a.py": "1\n"})
    lay(workspace.root, {"new.py": "2\n"})
    first = asyncio.run(workspace.history.snapshot()) or ""
    shutil.rmtree(workspace.store / "objects")
    shutil.rmtree(workspace.root / ".git")
    git(workspace.root, "init", "-q")
    again = Workspace(workspace.root, workspace.store)
    assert asyncio.run(again.history.snapshot()) == first
    (workspace.root / "a.py").unlink()
    (workspace.root / "new.py").unlink()
    assert set(asyncio.run(restore(again, first))) == {"a.py", "new.py"}


def size(folder: Path) -> int:
    """Bytes of the files below a folder as they lie on the disk."""
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def sparse(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)


def test_large_files_that_git_does_not_track_are_not_copied_and_their_change_is_told(
    repo: Build,
) -> None:
    workspace = repo({"a.py": "1\n"})
    root = workspace.root
    for name in ("data/one.bin", "data/two.bin", "data/three.bin"):
        sparse(root / name, 30 << 30)
    lay(root, {"data/notes.txt": "small\n"})
    before = asyncio.run(workspace.history.snapshot()) or ""
    assert asyncio.run(workspace.history.snapshot()) == before
    assert asyncio.run(Workspace(root, workspace.store).history.snapshot()) == before, (
        "another process sees the same"
    )
    (root / "data/one.bin").unlink()
    sparse(root / "data/two.bin", 1 << 30)
    lay(root, {"a.py": "2\n", "data/notes.txt": "other\n"})
    sparse(root / "made.bin", 1 << 30)
    made = asyncio.run(workspace.history.since(before))
    assert [change.path for change in made.changes] == ["a.py", "data/notes.txt"]
    assert [one.path for one in made.attributes if one.large] == [
        "data/one.bin",
        "data/two.bin",
        "made.bin",
    ]
    done = asyncio.run(workspace.take_back(made))
    assert (set(done.paths), done.left) == (
        {"a.py", "data/notes.txt"},
        ("data/one.bin", "data/two.bin", "made.bin"),
    )
    assert (root / "data/notes.txt").read_text() == "small\n"
    assert ((root / "data/two.bin").stat().st_size, (root / "made.bin").exists()) == (1 << 30, True)
    assert size(workspace.store) < 1 << 20


def test_a_large_file_that_becomes_small_or_tracked_is_never_taken_for_a_new_one(
    repo: Build,
) -> None:
    workspace = repo({"a.py": "1\n"})
    root = workspace.root
    (root / "one.bin").write_bytes(os.urandom(7 << 20))
    sparse(root / "two.bin", 7 << 20)
    before = asyncio.run(workspace.history.snapshot()) or ""
    lay(root, {"one.bin": "small\n"})
    git(root, "add", "two.bin")
    after = asyncio.run(workspace.history.snapshot()) or ""
    assert asyncio.run(workspace.history.effects_between(before, after)).changes == ()
    assert asyncio.run(restore(workspace, before)) == ()
    lay(root, {"one.bin": "other\n", "two.bin": "small\n"})
    assert set(asyncio.run(restore(workspace, after))) == {"one.bin", "two.bin"}
    assert ((root / "one.bin").read_text(), (root / "two.bin").stat().st_size) == (
        "small\n",
        7 << 20,
    )


def test_the_smallest_new_files_are_copied_first(repo: Build) -> None:
    workspace = repo({})
    for number in range(9):
        (workspace.root / f"{number}.bin").write_bytes(os.urandom(1 << 20))
    (workspace.root / "notes.ipynb").write_bytes(os.urandom(64 << 10))
    before = asyncio.run(workspace.history.snapshot()) or ""
    lay(workspace.root, {f"{number}.bin": "" for number in range(9)} | {"notes.ipynb": ""})
    made = asyncio.run(workspace.history.since(before))
    assert [change.path for change in made.changes if change.before] == [
        *(f"{number}.bin" for number in range(5)), "notes.ipynb",
    ]  # fmt: skip
    assert [one.path for one in made.attributes] == [f"{number}.bin" for number in range(5, 9)]


def test_many_new_files_are_one_pack(repo: Build) -> None:
    workspace = repo({})
    lay(workspace.root, {f"d{number // 50}/{number}.txt": f"{number}\n" for number in range(1000)})
    before = asyncio.run(workspace.history.snapshot()) or ""
    assert size(workspace.store) < 1 << 20
    shutil.rmtree(workspace.root / "d3")
    asyncio.run(restore(workspace, before))
    assert (workspace.root / "d3" / "151.txt").read_text() == "151\n"


def test_many_tracked_files_whose_bytes_git_has_otherwise_are_one_pack_that_outlives_the_repository(
    repo: Build,
) -> None:
    workspace = repo({f"{number}.txt": f"{number}\n" for number in range(1000)})
    git(workspace.root, "config", "core.autocrlf", "true")
    wanted = {f"{number}.txt": f"{number}\r\n" for number in range(1000)}
    lay(workspace.root, wanted)
    git(workspace.root, "add", "-A")
    before = asyncio.run(workspace.history.snapshot()) or ""
    assert size(workspace.store) < 1 << 20
    shutil.rmtree(workspace.root / ".git" / "objects")
    for name in wanted:
        (workspace.root / name).unlink()
    asyncio.run(restore(workspace, before))
    assert contents(workspace.root) == {name: ("-", text.encode()) for name, text in wanted.items()}


def test_named_pipes_come_back_and_go(repo: Build) -> None:
    workspace = repo({"src/a.py": "1\n"})
    root = workspace.root
    os.mkfifo(root / "src" / "kept")
    (root / "src" / "kept").chmod(0o620)
    (root / "alone").mkdir()
    os.mkfifo(root / "alone" / "other")
    before = asyncio.run(workspace.history.snapshot()) or ""
    (root / "src" / "kept").unlink()
    shutil.rmtree(root / "alone")
    os.mkfifo(root / "made")
    assert set(asyncio.run(restore(workspace, before))) == {"src/kept", "alone/other", "made"}
    assert (root / "src" / "kept").is_fifo() and (root / "alone" / "other").is_fifo()
    assert stat.S_IMODE((root / "src" / "kept").stat().st_mode) == 0o620
    assert not (root / "made").exists()
    assert asyncio.run(workspace.history.snapshot()) == before


def test_a_file_the_command_made_executable_and_private_goes_back_to_both(repo: Build) -> None:
    workspace = repo({"run.sh": "x\n"})
    before = asyncio.run(workspace.history.snapshot()) or ""
    (workspace.root / "run.sh").chmod(0o700)
    after = asyncio.run(workspace.history.snapshot()) or ""
    asyncio.run(restore(workspace, before))
    assert contents(workspace.root) == {"run.sh": ("-", b"x\n")}
    asyncio.run(restore(workspace, after))
    assert contents(workspace.root) == {"run.sh": ("700", b"x\n")}


def test_what_was_compared_just_now_is_not_compared_again(repo: Build) -> None:
    workspace = repo({"a.txt": "1\n"})
    trees = []
    for text in ("2\n", "3\n"):
        lay(workspace.root, {"a.txt": text})
        trees.append(asyncio.run(workspace.history.snapshot()) or "")
    before = asyncio.run(workspace.history.effects_between(*trees))
    shutil.rmtree(workspace.store / "objects")
    assert asyncio.run(workspace.history.effects_between(*trees)) == before
    with pytest.raises(StorageError):
        asyncio.run(workspace.history.effects_between(*reversed(trees)))
