"""apply_patch: both forms, tolerant of what models get wrong, all files or none."""

from __future__ import annotations

import difflib
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.errors import StorageError
from fugu_cli.tools.apply_patch import apply_hunks
from fugu_cli.tools.text_edits import FilePatch, Hunk, PatchError, parse_patch
from fugu_cli.tools.workspace import Workspace
from tests.unit.conftest import Build, use

A = "".join(f"line {n}\n" for n in range(1, 21))
B = "def f():\n    return 1\n\n\ndef g():\n    return 1\n"


def read_all(workspace: Workspace) -> None:
    for path in workspace.root.rglob("*"):
        if path.is_file():
            use(workspace, "read", path=path.relative_to(workspace.root).as_posix())


def texts(workspace: Workspace) -> dict[str, str]:
    root = workspace.root
    return {
        p.relative_to(root).as_posix(): p.read_text()
        for p in sorted(root.rglob("*"))
        if p.is_file()
    }


@pytest.fixture
def tree(plain: Build) -> Workspace:
    workspace = plain({"a.txt": A, "src/b.py": B, "old.txt": "gone\n"})
    read_all(workspace)
    return workspace


UNIFIED = """\
diff --git a/a.txt b/a.txt
index 1234567..89abcde 100644
--- a/a.txt
+++ b/a.txt
@@ -1,4 +1,4 @@
 line 1
-line 2
+line two
 line 3
 line 4
@@ -17,4 +17,5 @@ some heading
 line 17
 line 18
 line 19
-line 20
+line twenty
+line 21
diff --git a/old.txt b/old.txt
deleted file mode 100644
--- a/old.txt
+++ /dev/null
@@ -1 +0,0 @@
-gone
diff --git a/new/c.txt b/new/c.txt
new file mode 100644
--- /dev/null
+++ b/new/c.txt
@@ -0,0 +1,2 @@
+one
+two
diff --git a/src/b.py b/src/c.py
similarity index 80%
rename from src/b.py
rename to src/c.py
--- a/src/b.py
+++ b/src/c.py
@@ -4,3 +4,3 @@

 def g():
-    return 1
+    return 2
-- \n2.39.5
"""

FITS = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-line 1\n+x\n"

MARKED = """\
*** Begin Patch
*** Update File: a.txt
@@
 line 1
-line 2
+line two
 line 3
@@
 line 19
-line 20
+line twenty
+line 21
*** End of File
*** Delete File: old.txt
*** Add File: new/c.txt
+one
+two
*** Update File: src/b.py
*** Move to: src/c.py
@@ def g():
-    return 1
+    return 2
*** End Patch
"""

PATCHED = {
    "a.txt": A.replace("line 2\n", "line two\n").replace("line 20\n", "line twenty\nline 21\n"),
    "new/c.txt": "one\ntwo\n",
    "src/c.py": B[:-2] + "2\n",
}


@pytest.mark.parametrize(
    "patch",
    [UNIFIED, MARKED, f"Here it is:\n```diff\n{UNIFIED}```\nDone.", UNIFIED.replace("\n", "\r\n")],
)
def test_a_patch_of_either_form_changes_creates_deletes_and_moves(
    patch: str, tree: Workspace
) -> None:
    told = use(tree, "apply_patch", patch=patch)
    assert told.text.split("\n") == [
        "Changed a.txt.",
        "Deleted old.txt.",
        "Created new/c.txt.",
        "Deleted src/b.py.",
        "Created src/c.py.",
    ]
    assert texts(tree) == PATCHED


def test_wrong_counts_and_line_numbers_are_overlooked(tree: Workspace) -> None:
    patch = (
        "--- a.txt\n+++ a.txt\n@@ -99,7 +3,1 @@\n line 4\n-line 5\n+five\n line 6\n"
        "--- src/b.py\n+++ src/b.py\n@@ -1,9 +1,9 @@\n def f():\n-    return 1\n+    return 0\n\n"
    )
    assert use(tree, "apply_patch", patch=patch).text == "Changed a.txt.\nChanged src/b.py."
    assert texts(tree)["a.txt"] == A.replace("line 5\n", "five\n")
    assert texts(tree)["src/b.py"] == B.replace("return 1", "return 0", 1)


def test_a_hunk_with_other_indentation_is_fitted(tree: Workspace) -> None:
    patch = (
        "--- a/src/b.py\n+++ b/src/b.py\n@@ -5,2 +5,3 @@\n   def g():\n-      return 1\n+      x "
        "= 2\n+      return x\n"
    )
    assert use(tree, "apply_patch", patch=patch).ok
    assert texts(tree)["src/b.py"] == B[:-13] + "    x = 2\n    return x\n"


def test_of_several_places_the_one_nearest_to_the_line_named_is_taken(tree: Workspace) -> None:
    patch = "--- a/src/b.py\n+++ b/src/b.py\n@@ -6 +6 @@\n-    return 1\n+    return 6\n"
    assert use(tree, "apply_patch", patch=patch).ok
    assert texts(tree)["src/b.py"] == B[:-2] + "6\n"


@pytest.mark.parametrize(
    ("patch", "fault"),
    [
        (f"{FITS}--- a/src/b.py\n+++ b/src/b.py\n@@ -1 +1 @@\n-nothing\n+x\n",
         "Hunk 1 of src/b.py does not fit: its lines are not in the file."),
        ("*** Begin Patch\n*** Update File: a.txt\n-line 1\n+x\n*** Update File: "
            "missing.txt\n-x\n+y\n*** End Patch",
         "There is no file missing.txt."),
        ("*** Begin Patch\n*** Add File: a.txt\n+x\n*** End Patch", ("a.txt exists already. "
            "Update it, or delete")),
        ("*** Begin Patch\n*** Update File: a.txt\n*** Move to: old.txt\n-line 1\n+x\n", "old.txt exists already"),
        ("--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-line 1\n+line 1\n", "The patch changes nothing."),
        ("just words", "This is not a patch: no file is named in it"),
        ("", "This is not a patch: no file is named in it"),
        ("@@ -1 +1 @@\n-a\n+b\n", "This is not a patch: a hunk comes before the file it belongs to"),
        ("--- a/a.txt\n+++ b/a.txt\n", "This is not a patch: no hunk"),
        ("--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\nline 1\n", ("`line 1`: lines of a hunk start "
            "with")),
        ("diff --git a/p b/p\nGIT binary patch\nliteral 3\n", ("This is not a patch: it changes a "
            "binary file")),
        ("*** Begin Patch\n*** Add File: x\nno plus\n*** End Patch", ("every line of an added "
            "file starts with +")),
    ],
)  # fmt: skip
def test_a_patch_that_does_not_fit_changes_nothing_and_says_why(
    patch: str, fault: str, tree: Workspace
) -> None:
    before = texts(tree)
    told = use(tree, "apply_patch", patch=patch)
    assert (told.ok, fault in told.text, "Nothing was changed." in told.text) == (
        False,
        True,
        True,
    ) or (fault in told.text and "changes nothing" in told.text)
    assert texts(tree) == before


def test_a_hunk_that_quotes_the_file_needs_no_reading_and_one_that_does_not_needs_it(
    plain: Build,
) -> None:
    workspace = plain({"a.txt": "1\n", "b.txt": "1\n"})
    head = "--- a/{0}\n+++ b/{0}\n"
    quoting = head.format("a.txt") + "@@ -1 +1 @@\n-1\n+2\n"
    assert use(workspace, "apply_patch", patch=quoting).text == "Changed a.txt."
    adding = head.format("b.txt") + "@@ -1,0 +2 @@\n+2\n"
    for patch in (adding, "*** Begin Patch\n*** Delete File: b.txt\n*** End Patch"):
        told = use(workspace, "apply_patch", patch=patch)
        assert told.text.startswith(
            "b.txt exists and its present content was not read yet. Read it first"
        ), told.text
    use(workspace, "read", path="b.txt")
    assert use(workspace, "apply_patch", patch=adding).ok


def test_a_hunk_that_fits_no_more_says_who_changed_the_file(plain: Build) -> None:
    workspace = plain({"a.txt": "1\n"})
    use(workspace, "read", path="a.txt")
    (workspace.root / "a.txt").write_text("by hand\n")
    patch = "--- a/a.txt\n+++ b/a.txt\n@@ -1 +1 @@\n-1\n+2\n"
    told = use(workspace, "apply_patch", patch=patch).text
    assert told.startswith(
        "a.txt was changed since it was read, by a command, or somebody outside of fugu. Hunk 1"
    )


def test_what_cannot_be_written_takes_the_rest_back(tree: Workspace) -> None:
    before = texts(tree)
    patch = (
        "*** Begin Patch\n*** Update File: a.txt\n-line 1\n+x\n*** Add File: "
        "old.txt/inner\n+x\n*** End Patch"
    )
    told = use(tree, "apply_patch", patch=patch)
    assert (told.ok, told.text.endswith("Nothing was changed."), texts(tree)) == (
        False,
        True,
        before,
    )


def test_the_newline_at_the_end_follows_the_patch(tree: Workspace) -> None:
    patch = (
        "--- a/old.txt\n+++ b/old.txt\n@@ -1 +1 @@\n-gone\n+here\n\\ No newline at end of file\n"
    )
    assert use(tree, "apply_patch", patch=patch).ok
    assert texts(tree)["old.txt"] == "here"


def test_a_last_line_that_the_patch_leaves_alone_keeps_its_end(plain: Build) -> None:
    workspace = plain({"a.txt": "one\ntwo"})
    read_all(workspace)
    use(
        workspace,
        "apply_patch",
        patch="--- a/a.txt\n+++ b/a.txt\n@@ -1,2 +1,2 @@\n-one\n+1\n two\n",
    )
    assert (workspace.root / "a.txt").read_text() == "1\ntwo"
    use(
        workspace,
        "apply_patch",
        patch="*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+2\n*** End Patch",
    )
    assert (workspace.root / "a.txt").read_text() == "1\n2\n"


def test_lines_around_a_change_stay_as_the_file_has_them(plain: Build) -> None:
    workspace = plain({"a.md": "one  \ntwo\nthree\t\n", "mixed.txt": b"one\r\ntwo\nthree\r\n"})
    read_all(workspace)
    for name in ("a.md", "mixed.txt"):
        patch = f"--- a/{name}\n+++ b/{name}\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
        assert use(workspace, "apply_patch", patch=patch).ok
    assert (workspace.root / "a.md").read_bytes() == b"one  \n2\nthree\t\n"
    assert (workspace.root / "mixed.txt").read_bytes() == b"one\r\n2\nthree\r\n"


def test_a_file_that_moves_keeps_its_permissions(plain: Build) -> None:
    workspace = plain({"run.sh": "one\n"})
    (workspace.root / "run.sh").chmod(0o750)
    read_all(workspace)
    patch = (
        "*** Begin Patch\n*** Update File: run.sh\n*** Move to: bin/go.sh\n@@\n-one\n+two\n*** "
        "End Patch"
    )
    assert use(workspace, "apply_patch", patch=patch).ok
    moved = workspace.root / "bin" / "go.sh"
    assert (moved.read_text(), moved.stat().st_mode & 0o777, (workspace.root / "run.sh").exists()) == (
        "two\n", 0o750, False,
    )  # fmt: skip


def test_what_git_says_without_hunks_is_done(tree: Workspace) -> None:
    (tree.root / "a.txt").chmod(0o640)
    (tree.root / "empty").touch()
    use(tree, "read", path="empty")
    patch = (
        "diff --git a/pkg/__init__.py b/pkg/__init__.py\nnew file mode 100644\nindex "
        "0000000..e69de29\n"
        "diff --git a/empty b/empty\ndeleted file mode 100644\nindex e69de29..0000000\n"
        "diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100755\n"
        "diff --git a/run.sh b/run.sh\nnew file mode 100755\n--- /dev/null\n+++ b/run.sh\n@@ "
        "-0,0 +1 @@\n+true\n"
    )
    told = use(tree, "apply_patch", patch=patch)
    assert told.text.splitlines() == [
        "Created pkg/__init__.py.",
        "Deleted empty.",
        "Changed a.txt.",
        "Created run.sh.",
    ]
    found = texts(tree)
    assert (found["pkg/__init__.py"], found["a.txt"], found["run.sh"], "empty" in found) == (
        "",
        A,
        "true\n",
        False,
    )
    modes = [
        stat.S_IMODE((tree.root / name).stat().st_mode)
        for name in ("a.txt", "run.sh", "pkg/__init__.py")
    ]
    assert (modes[0], modes[1] & 0o100, modes[2] & 0o111) == (0o750, 0o100, 0)
    again = use(
        tree, "apply_patch", patch="diff --git a/a.txt b/a.txt\nold mode 100644\nnew mode 100755\n"
    )
    assert again.text == "The patch changes nothing.\nNothing was changed."


@pytest.mark.parametrize(
    ("header", "fault"),
    [
        ("similarity index 90%\ncopy from a.txt\ncopy to c.txt", "it copies a file; add c.txt"),
        ("index 1..2 100644\nBinary files a/a.txt and b/a.txt differ", "it changes a binary file"),
        ("deleted file mode 120000", "a link or a repository in this one"),
        ("new file mode 160000", "a link or a repository in this one"),
    ],
)
def test_what_a_patch_of_gits_asks_for_and_cannot_have_stops_the_rest(
    header: str, fault: str, tree: Workspace
) -> None:
    before = texts(tree)
    other = "--- a/src/b.py\n+++ b/src/b.py\n@@ -1,1 +1,1 @@\n-def f():\n+def h():\n"
    told = use(tree, "apply_patch", patch=f"diff --git a/a.txt b/a.txt\n{header}\n{other}")
    assert (told.ok, fault in told.text, texts(tree)) == (False, True, before)


def test_a_name_in_gits_quotes_is_the_files(tree: Workspace) -> None:
    (tree.root / "é.txt").write_text("one\n")
    use(tree, "read", path="é.txt")
    name = "\\303\\251.txt"
    header = f'diff --git "a/{name}" "b/{name}"\n'
    patch = f'{header}--- "a/{name}"\n+++ "b/{name}"\n@@ -1 +1 @@\n-one\n+two\n'
    assert use(tree, "apply_patch", patch=patch).ok
    assert use(tree, "apply_patch", patch=f"{header}old mode 100644\nnew mode 100755\n").ok
    assert (tree.root / "é.txt").read_text() == "two\n"


def test_what_a_link_leads_to_is_not_deleted_by_the_links_name(tree: Workspace) -> None:
    (tree.root / "link").symlink_to("a.txt")
    for patch in (
        "*** Delete File: link",
        "*** Update File: link\n*** Move to: c.txt\n@@\n-line 1\n+line one",
    ):
        told = use(tree, "apply_patch", patch=f"*** Begin Patch\n{patch}\n*** End Patch")
        assert (told.ok, told.text.startswith("link is a link")) == (False, True)
    assert (tree.root / "a.txt").read_text() == A


def test_a_hunk_that_fits_in_several_places_is_refused_unless_as_many_hunks_are_alike(
    plain: Build,
) -> None:
    workspace = plain({"a.txt": "x\none\nx\ntwo\n"})
    read_all(workspace)
    hunk = "@@\n-x\n+y\n"
    told = use(
        workspace,
        "apply_patch",
        patch=f"*** Begin Patch\n*** Update File: a.txt\n{hunk}*** End Patch",
    )
    assert told.text.startswith(
        "Hunk 1 of a.txt fits in 2 places (lines 1, 3). Give more lines around it, or a heading"
    )
    both = f"*** Begin Patch\n*** Update File: a.txt\n{hunk * 2}*** End Patch"
    assert use(workspace, "apply_patch", patch=f"apply_patch <<'EOF'\n{both}\nEOF").ok
    assert (workspace.root / "a.txt").read_text() == "y\none\ny\ntwo\n"


def test_a_hunk_under_two_headings_belongs_to_the_inner_one(plain: Build) -> None:
    workspace = plain(
        {"a.py": "class A:\n    def f(self):\n        x\n\nclass B:\n    def f(self):\n        x\n"}
    )
    read_all(workspace)
    patch = (
        "*** Begin Patch\n*** Update File: a.py\n@@ class B:\n@@ def f(self):\n-        x\n+     "
        "   y\n*** End Patch"
    )
    assert use(workspace, "apply_patch", patch=patch).ok
    assert (
        (workspace.root / "a.py")
        .read_text()
        .endswith("        x\n\nclass B:\n    def f(self):\n        y\n")
    )


def test_both_forms_read_as_the_same_values() -> None:
    marked = parse_patch("*** Begin Patch\n*** Update File: x\n@@\n-a\n+b\n c\n*** End Patch")
    unified = parse_patch("--- a/x\n+++ b/x\n@@\n-a\n+b\n c\n")
    assert marked == unified == [FilePatch("update", "x", (Hunk(("a", "c"), ("b", "c")),))]


line = st.sampled_from(["a", "b", "", "  c", "-d", "+e", "@@ f", "*** g", "\\ h"])


@given(old=st.lists(line, max_size=12), new=st.lists(line, max_size=12))
def test_any_diff_difflib_writes_is_applied(old: list[str], new: list[str]) -> None:
    before, after = "".join(f"{x}\n" for x in old), "".join(f"{x}\n" for x in new)
    diff = "".join(
        difflib.unified_diff(before.splitlines(True), after.splitlines(True), "a/x", "b/x")
    )
    if before != after:
        (patch,) = parse_patch(diff)
        assert apply_hunks(before, patch) == after


@given(st.text(alphabet=st.sampled_from(list("@-+ \n*ab/\\1,`")), max_size=120))
def test_any_text_is_a_patch_or_a_fault(text: str) -> None:
    try:
        parse_patch(text)
    except PatchError as error:
        assert str(error)


def test_a_file_that_cannot_be_written_is_named_and_the_others_are_put_back(plain: Build) -> None:
    workspace = plain({"a.py": "1\n", "b.py": "1\n"})
    use(workspace, "read", path="a.py")
    patch = (
        "--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n-1\n+2\n--- /dev/null\n+++ b/b.py/c.py\n@@ -0,0 +1 "
        "@@\n+3\n"
    )
    result = use(workspace, "apply_patch", patch=patch)
    assert (result.ok, result.text) == (
        False,
        "b.py/c.py cannot be written: Not a directory.\nNothing was changed.",
    )
    assert [(workspace.root / name).read_text() for name in ("a.py", "b.py")] == ["1\n", "1\n"]


def test_where_the_disk_refuses_more_than_one_file_the_others_are_taken_back(
    plain: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = plain({"a.txt": "a\n", "b.txt": "b\n", "c.txt": "c\n"})
    write = Workspace.write
    is_full = False

    def fills(self: Workspace, path: Path, data: bytes, mode: int | None = None) -> None:
        nonlocal is_full
        is_full = is_full or path.name == "c.txt"
        if is_full and path.name != "a.txt":
            raise StorageError(f"{path.name} could not be written", hint="make room")
        write(self, path, data, mode)

    monkeypatch.setattr(Workspace, "write", fills)
    hunks = "".join(f"*** Update File: {n}.txt\n@@\n-{n}\n+{n}{n}\n" for n in "abc")
    with pytest.raises(StorageError, match=r"c\.txt could not be written"):
        use(workspace, "apply_patch", patch=f"*** Begin Patch\n{hunks}*** End Patch")
    assert texts(workspace) == {"a.txt": "a\n", "b.txt": "bb\n", "c.txt": "c\n"}
