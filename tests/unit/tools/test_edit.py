"""edit: exact, else tolerant of white space; unique; a miss shows the nearest lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.snapshots import repository_files
from fugu_cli.tools import text_edits
from fugu_cli.tools.edit import replace_piece
from fugu_cli.tools.result import ToolResult
from tests.unit.conftest import Build, use

CODE = """def first(items):
    for item in items:
        if item > 0:
            return item
    return None


def second(items):
    return items[1]
"""


def test_an_exact_piece_is_replaced(plain: Build) -> None:
    workspace = plain({"a.py": CODE})
    use(workspace, "read", path="a.py")
    assert use(workspace, "edit", path="a.py", old="items[1]", new="items[2]") == ToolResult(
        text="Changed a.py: 1 place."
    )
    assert (workspace.root / "a.py").read_text() == CODE.replace("items[1]", "items[2]")


def test_other_indentation_is_found_and_the_new_text_is_indented_as_the_file_is(
    plain: Build,
) -> None:
    workspace = plain({"a.py": CODE})
    use(workspace, "read", path="a.py")
    old = "if item > 0:\n  return item"
    new = "if item >= 0:\n  log(item)\n  if deep:\n      pass\n  return item\nelse:\n  continue"
    assert use(workspace, "edit", path="a.py", old=old, new=new).text == (
        "Changed a.py: 1 place (found but for white space; indented as the file is)."
    )
    assert (workspace.root / "a.py").read_text() == CODE.replace(
        "        if item > 0:\n            return item\n",
        "        if item >= 0:\n            log(item)\n            if deep:\n                pass\n"
        "            return item\n        else:\n            continue\n",
    )


def test_line_numbers_copied_from_read_do_not_matter() -> None:
    old, new = (
        "8\tdef second(items):\n9\t    return items[1]\n",
        "8\tdef second(items):\n9\t    return 1\n",
    )
    assert replace_piece(CODE, old, new) == (CODE.replace("items[1]", "1"), 1, True)


def test_trailing_space_and_blank_lines_around_do_not_matter() -> None:
    assert replace_piece("a  \nb\t\nc\n", "\na\nb\n", "\nx\ny\n") == ("x\ny\nc\n", 1, True)


def test_tabs_of_the_file_replace_the_spaces_of_the_model() -> None:
    text = "if x:\n\tif y:\n\t\tgo()\n"
    assert replace_piece(text, "    if y:\n        go()", "    if y:\n        stop()\n        go()") == (
        "if x:\n\tif y:\n\t\tstop()\n\t\tgo()\n", 1, True,
    )  # fmt: skip


def test_a_piece_that_stands_twice_is_refused_with_its_lines_unless_all_are_meant() -> None:
    assert replace_piece("a\nb\na\n", "a", "c") == ToolResult(
        text="old stands 2 times (lines 1, 3). Give more lines around it, or set replace_all.",
        ok=False,
    )
    assert replace_piece("  a\nb\n\ta\n", "    a\n", "    c\n") == ToolResult(
        text="old stands 2 times (lines 1, 3). Give more lines around it, or set replace_all.",
        ok=False,
    )
    assert replace_piece("a\nb\na\n", "a", "c", every=True) == ("c\nb\nc\n", 2, False)
    assert replace_piece("  a\nb\n\ta\n", "    a\n", "    c\n", every=True) == (
        "  c\nb\n\tc\n",
        2,
        True,
    )


def test_a_miss_shows_the_nearest_lines_with_their_numbers(plain: Build) -> None:
    workspace = plain({"a.py": CODE})
    use(workspace, "read", path="a.py")
    told = use(
        workspace,
        "edit",
        path="a.py",
        old="        if item >= 0:\n            return items\n",
        new="x",
    )
    assert told == ToolResult(
        text="a.py: the old text was not found in the file. The nearest lines are:\n"
        "1\tdef first(items):\n2\t    for item in items:\n3\t        if item > 0:\n4\t           "
        " return item\n"
        "5\t    return None\n6\t\n7\t",
        ok=False,
    )
    assert (
        "nor anything like it" in use(workspace, "edit", path="a.py", old="zzz qqq", new="x").text
    )
    assert (workspace.root / "a.py").read_text() == CODE


def test_a_file_with_both_kinds_of_line_ends_keeps_those_it_has(plain: Build) -> None:
    workspace = plain({"a.txt": b"a\r\nb\nc\r\nd\r\ne"})
    use(workspace, "read", path="a.txt")
    assert use(workspace, "edit", path="a.txt", old="b\nc\n", new="b\nx\nc\n").ok
    assert (workspace.root / "a.txt").read_bytes() == b"a\r\nb\nx\r\nc\r\nd\r\ne"
    assert use(workspace, "edit", path="a.txt", old="d\r\ne", new="d\nf").ok
    assert (workspace.root / "a.txt").read_bytes() == b"a\r\nb\nx\r\nc\r\nd\r\nf"
    patch = "*** Begin Patch\n*** Update File: a.txt\n a\n-b\n+B\n x\n*** End Patch"
    assert use(workspace, "apply_patch", patch=patch).ok
    assert (workspace.root / "a.txt").read_bytes() == b"a\r\nB\nx\r\nc\r\nd\r\nf"


ENDED = st.lists(
    st.tuples(st.sampled_from(["", "a", "b", "ab"]), st.sampled_from(["\n", "\r\n"])), max_size=12
)


@given(ENDED, st.integers(0, 12), st.lists(st.sampled_from(["", "a", "new"]), max_size=4))
def test_a_line_that_no_change_touches_keeps_its_end(
    lines: list[tuple[str, str]], at: int, put: list[str]
) -> None:
    data = "".join(line + end for line, end in lines).encode()
    file = repository_files.decode_text(data)
    assert file.encode(file.text) == data
    texts = [line for line, _ in lines]
    written = file.encode("".join(f"{line}\n" for line in [*texts[:at], "unique", *put])).decode()
    assert written.startswith("".join(line + end for line, end in lines[:at]))
    assert written.replace("\r\n", "\n").split("\n")[:-1] == [*texts[:at], "unique", *put]


def test_edits_that_change_nothing_or_name_nothing_are_refused(plain: Build) -> None:
    workspace = plain({"a.py": CODE, "pic": b"\0\1"})
    use(workspace, "read", path="a.py")
    assert use(workspace, "edit", path="a.py", old="x", new="x").text == (
        "a.py: old and new are the same: nothing changed."
    )
    assert use(workspace, "edit", path="a.py", old="", new="x").text == (
        "a.py: old is empty; name the piece to replace, or use write."
    )
    assert (
        use(workspace, "edit", path="pic", old="a", new="x").text == "pic is binary data: not text."
    )
    assert (
        use(workspace, "edit", path="b.py", old="a", new="x").text
        == "There is no file b.py. Did you mean a.py?"
    )


def test_line_ends_of_the_model_do_not_get_into_the_file() -> None:
    assert replace_piece("a\nb\nc\n", "a\r\nb\r\n", "x\r\ny\r\n") == ("x\ny\nc\n", 1, False)


def test_lines_that_an_edit_repeats_keep_their_trailing_space() -> None:
    assert replace_piece("a  \nb\nc\t\n", "a\nb\nc", "a\nB\nc") == ("a  \nB\nc\t\n", 1, True)


def test_the_nearest_lines_of_a_large_file_are_found_by_their_words() -> None:
    file = [f"call_{n}(first, second, {n})" for n in range(5_000)]
    near = [f"call_{n}(first, second, other)" for n in range(4_000, 4_040)]
    assert text_edits.nearest_lines(file, near) == (4_000, 4_040)


def test_a_piece_can_be_deleted() -> None:
    assert replace_piece("a\nb\nc\n", "b\n", "") == ("a\nc\n", 1, False)
    assert replace_piece("a\n  b\nc\n", "    b\n", "") == ("a\nc\n", 1, True)


lines = st.lists(st.sampled_from(["a", "b = 1", "if x:", "", "return"]), min_size=1, max_size=5)


@given(
    before=lines,
    piece=lines,
    after=lines,
    indent=st.sampled_from(["", "  ", "    ", "\t"]),
    seed=st.integers(0, 9),
)
def test_a_piece_with_another_indentation_is_found_wherever_it_is_unique(
    before: list[str], piece: list[str], after: list[str], indent: str, seed: int
) -> None:
    marked = [f"mark {seed}", *piece]
    file = [*before, *(indent + line if line else "" for line in marked), *after]
    new = ["changed", *piece]
    found = replace_piece("\n".join(file) + "\n", "\n".join(marked), "\n".join(new))
    expected = [*before, *(indent + line if line else "" for line in new), *after]
    assert not isinstance(found, ToolResult)
    assert found[0] == "\n".join(expected) + "\n"
