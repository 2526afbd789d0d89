"""read and write, and what files may hold."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.snapshots.repository_files import decode_text
from fugu_cli.tools.result import ToolResult
from tests.unit.conftest import Build, lay, use


def test_a_file_is_shown_with_line_numbers(plain: Build) -> None:
    workspace = plain({"a.py": "one\n\nthree", "empty.py": ""})
    assert use(workspace, "read", path="a.py") == ToolResult(text="1\tone\n2\t\n3\tthree")
    assert use(workspace, "read", path="a.py", offset=2, limit=1) == ToolResult(
        text="2\t\n(lines 2-2 of 3; go on with offset=3)"
    )
    assert use(workspace, "read", path="a.py", plain=True) == ToolResult(text="one\n\nthree")
    assert use(workspace, "read", path="empty.py") == ToolResult(text="(the file is empty)")
    assert use(workspace, "read", path="a.py", offset=9) == ToolResult(
        text="a.py has only 3 lines.", ok=False
    )


def test_a_name_that_unicode_writes_in_two_ways_is_one_file(plain: Build) -> None:
    workspace = plain({"cafe\u0301/re\u0301sume\u0301.txt": "one\n"})
    assert use(workspace, "read", path="caf\u00e9/r\u00e9sum\u00e9.txt") == ToolResult(
        text="1\tone"
    )
    assert use(workspace, "write", path="caf\u00e9/r\u00e9sum\u00e9.txt", content="two\n").ok
    assert [path.read_text() for path in workspace.root.rglob("*.txt")] == ["two\n"]


def test_a_long_file_is_shown_in_parts_that_fit_together(plain: Build) -> None:
    lines = [f"line {n} " + "x" * 50 for n in range(1, 3001)]
    workspace = plain({"a.txt": "\n".join(lines) + "\n"})
    found, offset = [], 1
    while True:
        text = use(workspace, "read", path="a.txt", offset=offset).text
        assert len(text) < 50_200
        shown, _, note = text.partition("\n(lines ")
        found += [line.split("\t", 1)[1] for line in shown.split("\n")]
        if not note:
            break
        offset = int(note.rsplit("offset=", 1)[1].rstrip(")"))
    assert found == lines


def test_what_is_not_a_text_file_is_said(plain: Build, tmp_path: Path) -> None:
    workspace = plain({"src/main.py": "x\n", "pic": b"\x89PNG\r\n\x1a\n\0\0"})
    os.mkfifo(workspace.root / "pipe")
    damaged = "pic is no picture that can be shown: it is damaged, or not PNG, JPEG, WebP or GIF."
    assert use(workspace, "read", path="pic").text == damaged
    assert (
        use(workspace, "read", path="src").text == "src is a folder. Use list to see what is in it."
    )
    assert use(workspace, "read", path="pipe").text == "pipe is not a regular file."
    assert (
        use(workspace, "read", path="main.py").text
        == "There is no file main.py. Did you mean src/main.py?"
    )
    assert (
        use(workspace, "read", path="src/mian.py").text
        == "There is no file src/mian.py. Did you mean src/main.py?"
    )
    assert (
        use(workspace, "read", path="zzz").text
        == "There is no file zzz. Use glob or list to find the file."
    )
    assert (
        use(workspace, "read", path="a\0b").text
        == "`a\0b` is not a path: the path holds a NUL character."
    )


def test_a_large_file_is_read_in_parts_only(plain: Build) -> None:
    workspace = plain({})
    with (workspace.root / "big.log").open("wb") as file:
        for n in range(1, 500_001):
            file.write(b"line %d " % n + b"x" * 90 + b"\n")
    told = use(workspace, "read", path="big.log")
    assert not told.ok
    assert told.text.startswith(
        "big.log is large: 51,388,895 bytes. Read a part with offset and limit"
    )
    part = use(workspace, "read", path="big.log", offset=400_000, limit=2)
    x = "x" * 90
    assert part.text == (
        f"400000\tline 400000 {x}\n400001\tline 400001 {x}\n(lines 400000-400001; go on with "
        f"offset=400002)"
    )


def test_a_large_file_of_one_line_is_cut(plain: Build) -> None:
    workspace = plain({"big.json": "[" + "1," * 1_500_000 + "1]"})
    text = use(workspace, "read", path="big.json", limit=1).text
    assert text.startswith("1\t[1,1,1,")
    assert len(text) < 3_000


def test_bytes_that_are_not_utf8_are_shown_and_survive_an_edit_but_not_a_write(
    plain: Build,
) -> None:
    workspace = plain({"a.txt": b"caf\xe9\nplain\n"})
    assert use(workspace, "read", path="a.txt") == ToolResult(
        text="1\tcaf\ufffd\n2\tplain\n(1 bytes are not UTF-8 and shown as \ufffd)"
    )
    assert use(workspace, "write", path="a.txt", content="cafe\n").text == (
        "a.txt is not UTF-8: writing it whole would lose 1 bytes. Use edit for single places."
    )
    assert use(workspace, "edit", path="a.txt", old="plain", new="fancy").ok
    assert (workspace.root / "a.txt").read_bytes() == b"caf\xe9\nfancy\n"


def test_no_utf8_is_written_into_a_file_of_another_encoding(plain: Build) -> None:
    latin = "# caf\u00e9\na = 1\n".encode("latin-1")
    workspace = plain({"latin.py": latin, "both.py": "# \u00e9\na = 1\n".encode() + b"# \xff\n"})
    for name in ("latin.py", "both.py"):
        use(workspace, "read", path=name)
    said = "latin.py is not UTF-8, and `\u00fc` would be written as UTF-8. "
    said += "Write ASCII, or use a command that knows the encoding."
    assert use(workspace, "edit", path="latin.py", old="a = 1", new="a = '\u00fc'") == ToolResult(
        text=f"{said} Nothing was changed.", ok=False
    )
    patch = "--- a/latin.py\n+++ b/latin.py\n@@ -2 +2 @@\n-a = 1\n+a = '\u00fc'\n"
    assert use(workspace, "apply_patch", patch=patch) == ToolResult(
        text=f"{said}\nNothing was changed.", ok=False
    )
    assert use(workspace, "edit", path="both.py", old="a = 1", new="a = '\ufffd'").ok is False
    assert (workspace.root / "latin.py").read_bytes() == latin
    assert use(workspace, "edit", path="both.py", old="a = 1", new="a = '\u00fc'").ok
    assert use(workspace, "edit", path="latin.py", old="a = 1", new="a = 2").ok
    assert (workspace.root / "latin.py").read_bytes() == latin.replace(b"1", b"2")


def test_names_that_are_not_utf8_are_listed_found_and_read(repo: Build) -> None:
    workspace = repo({os.fsdecode(b"caf\xe9.txt"): "found\n"})
    name = '"caf\\351.txt"'
    assert use(workspace, "list").text == name
    assert use(workspace, "glob", pattern="*.txt").text == name
    assert use(workspace, "read", path=name).text == "1\tfound"
    assert use(workspace, "write", path=name, content="new\n").ok
    assert (workspace.root / os.fsdecode(b"caf\xe9.txt")).read_text() == "new\n"


def test_a_place_that_is_quoted_may_be_changed_in_a_file_that_was_not_read(plain: Build) -> None:
    workspace = plain({"a.py": "a = 1\nb = 2\n"})
    assert use(workspace, "edit", path="a.py", old="a = 1", new="a = 3").ok
    lay(workspace.root, {"a.py": "a = 3\nb = 4\n"})
    assert use(workspace, "edit", path="a.py", old="a = 3", new="a = 5").ok
    assert not use(workspace, "write", path="a.py", content="a = 5\nb = 2\n").ok
    use(workspace, "read", path="a.py")
    lay(workspace.root, {"a.py": "a = 5\nb = 6\n"})
    assert use(workspace, "edit", path="a.py", old="a = 5", new="a = 7").ok
    refused = use(workspace, "write", path="a.py", content="a = 7\nb = 4\n")
    assert refused.text.startswith("a.py was changed since it was read, by an agent, a command, or")
    assert (workspace.root / "a.py").read_text() == "a = 7\nb = 6\n"


def test_a_place_that_another_agent_changed_is_missed_with_its_name(plain: Build) -> None:
    workspace = plain({"a.py": "a = 1\nb = 2\n"})
    mine, theirs = workspace.apart("cheap"), workspace.apart("strong")
    use(mine, "read", path="a.py")
    assert use(theirs, "edit", path="a.py", old="a = 1", new="a = 3").ok
    told = use(mine, "edit", path="a.py", old="a = 1", new="a = 4").text
    assert told.startswith("a.py was changed since it was read, by the agent `strong`. a.py: the")
    assert use(mine, "edit", path="a.py", old="b = 2", new="b = 5").ok


def test_a_file_that_a_rule_keeps_from_being_read_is_not_shown_by_a_wrong_quote(
    plain: Build,
) -> None:
    workspace = plain({"a.py": "password = 1\n"})
    workspace.unread = lambda path, root: path.name == "a.py"
    told = use(workspace, "edit", path="a.py", old="password = 2", new="x")
    assert (told.ok, "password" in told.text) == (False, False)


def test_a_file_that_was_not_read_or_changed_since_is_not_overwritten(plain: Build) -> None:
    workspace = plain({"a.py": "1\n"})
    refused = use(workspace, "write", path="a.py", content="2\n")
    assert refused == ToolResult(
        text="a.py exists and its present content was not read yet. Read it first, then change it.",
        ok=False,
    )
    use(workspace, "read", path="a.py")
    assert (
        use(workspace, "write", path="a.py", content="2\n").text
        == "Wrote a.py (1 line before, 1 line now)."
    )
    assert use(workspace, "write", path="a.py", content="3\n").ok
    lay(workspace.root, {"a.py": "by hand\n"})
    told = use(workspace, "write", path="a.py", content="4\n")
    assert (told.ok, told.text) == (
        False,
        "a.py was changed since it was read, by a command, or somebody outside of fugu. Read it "
        "again, then change it.",
    )
    assert (workspace.root / "a.py").read_text() == "by hand\n"


def test_writing_what_is_there_already_is_no_success(plain: Build) -> None:
    workspace = plain({"a.py": "1\n2\n"})
    same = ToolResult(text="This is the same as what is in a.py: nothing changed.", ok=False)
    assert use(workspace, "write", path="a.py", content="1\n2\n") == same
    assert use(workspace, "write", path="a.py", content="1\n2") == same


def test_a_new_file_is_created_with_its_folders(plain: Build) -> None:
    workspace = plain({})
    assert (
        use(workspace, "write", path="src/deep/a.py", content="1\n").text
        == "Created src/deep/a.py (1 line)."
    )
    assert (workspace.root / "src/deep/a.py").read_text() == "1\n"
    assert use(workspace, "write", path="src/deep/a.py/b", content="1\n").ok is False
    assert use(workspace, "write", path="src", content="1\n").text == (
        "src is a folder. Use list to see what is in it."
    )


@pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
@pytest.mark.parametrize("newline", [b"\n", b"\r\n"])
def test_line_ends_byte_order_mark_and_mode_stay(
    plain: Build, start: bytes, newline: bytes
) -> None:
    workspace = plain({"run.sh": start + newline.join([b"one", b"two", b""])})
    path = workspace.root / "run.sh"
    path.chmod(0o750)
    use(workspace, "read", path="run.sh")
    use(workspace, "write", path="run.sh", content="one\n2\n3\n")
    assert path.read_bytes() == start + newline.join([b"one", b"2", b"3", b""])
    use(workspace, "edit", path="run.sh", old="2\n3", new="two")
    assert path.read_bytes() == start + newline.join([b"one", b"two", b""])
    assert path.stat().st_mode & 0o777 == 0o750


def test_in_a_file_of_both_kinds_of_line_ends_lines_that_stay_keep_theirs(plain: Build) -> None:
    workspace = plain({"a.txt": b"one\r\ntwo\nthree\r\n\r\nfour\r\nfive"})
    use(workspace, "read", path="a.txt")
    same = use(workspace, "write", path="a.txt", content="one\ntwo\nthree\n\nfour\nfive")
    assert same == ToolResult(
        text="This is the same as what is in a.txt: nothing changed.", ok=False
    )
    assert use(workspace, "write", path="a.txt", content="one\ntwo\n2.5\n\nfour\nfive\nsix").ok
    assert (workspace.root / "a.txt").read_bytes() == b"one\r\ntwo\n2.5\r\n\r\nfour\r\nfive\r\nsix"
    assert use(workspace, "write", path="a.txt", content="one\r\ntwo\n").ok
    assert (workspace.root / "a.txt").read_bytes() == b"one\r\ntwo\n"


def test_a_links_target_is_written_and_the_link_stays(plain: Build) -> None:
    workspace = plain({"real.py": "1\n"})
    (workspace.root / "link.py").symlink_to("real.py")
    use(workspace, "read", path="link.py")
    assert use(workspace, "write", path="link.py", content="2\n").ok
    assert (workspace.root / "link.py").is_symlink()
    assert (workspace.root / "real.py").read_text() == "2\n"


@given(st.binary(max_size=60))
def test_any_bytes_survive_being_decoded_and_encoded(data: bytes) -> None:
    file = decode_text(data)
    assert file.encode(file.text) == data
    file.shown.encode()


FULL = """
import asyncio, resource, signal, sys
from pathlib import Path
from fugu_cli.errors import StorageError
from fugu_cli.tools.workspace import Workspace
workspace = Workspace(Path(sys.argv[1]), Path(sys.argv[2]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    workspace.write(workspace.root / "a.bin", bytes(range(256)) * 100)
except StorageError as error:
    print(f"{error}; {error.hint}")
"""


def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(
    plain: Build, tmp_path: Path
) -> None:
    workspace = plain({"a.bin": "old"})
    command = [sys.executable, "-c", FULL, str(workspace.root), str(tmp_path / "store")]
    told = subprocess.run(
        command, capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3]
    ).stdout
    assert told == (
        f"{workspace.root}/a.bin could not be written: File too large; "
        "make room on the disk, then continue the session\n"
    )
    assert [(path.name, path.read_text()) for path in workspace.root.iterdir()] == [
        ("a.bin", "old")
    ]


def test_a_writer_that_is_killed_leaves_a_whole_file(plain: Build, tmp_path: Path) -> None:
    workspace = plain({"a.txt": "old" * 1000})
    script = (
        "import sys, itertools\nfrom pathlib import Path\nfrom fugu_cli.system.atomic_files "
        "import write_atomically\n"
        "print('ready', flush=True)\n"
        "for n in itertools.count():\n    write_atomically(Path(sys.argv[1]), b'%d' % (n % 10) * "
        "300000)\n"
    )
    path = workspace.root / "a.txt"
    command = [sys.executable, "-c", script, str(path)]
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.PIPE, cwd=Path(__file__).parents[3])
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        while process.poll() is None and len(data := path.read_bytes()) == 3000:
            pass
        process.kill()
        process.communicate()
        data = path.read_bytes()
        assert (len(data), len(set(data))) == (300000, 1)


@pytest.mark.parametrize("tool", ["read", "write", "edit", "list", "glob", "grep"])
def test_a_name_that_no_file_can_have_is_said(tool: str, plain: Build) -> None:
    workspace = plain({"a.txt": "one\n"})
    (workspace.root / "round").symlink_to("round")
    more = {
        "read": {},
        "write": {"content": ""},
        "edit": {"old": "one", "new": "two"},
        "list": {},
        "glob": {"pattern": "one"},
        "grep": {"pattern": "one"},
    }
    for path, why in (
        ("x" * 300, "File name too long"),
        ("round", "Too many levels of symbolic links"),
    ):
        told = use(workspace, tool, path=path, **more[tool])
        assert (told.ok, f" cannot be used: {why}." in told.text) == (False, True)


def test_a_patch_of_a_name_that_no_file_can_have_changes_nothing(plain: Build) -> None:
    told = use(
        plain({}),
        "apply_patch",
        patch=f"*** Begin Patch\n*** Add File: {'x' * 300}\n+one\n*** End Patch",
    )
    assert (told.ok, "File name too long" in told.text) == (False, True)


def test_a_test_of_a_name_that_no_file_can_have_is_not_run(plain: Build) -> None:
    workspace = plain({})
    workspace.test_command = "python -m pytest"
    assert use(workspace, "run_tests", target=f"{'x' * 300}.py").text.startswith(
        "There is no test file xxx"
    )
