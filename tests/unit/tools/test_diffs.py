"""Diffs of recorded changes."""

from fugu_cli.tools.diff import unified_diff


def test_a_change_a_creation_and_a_deletion() -> None:
    assert unified_diff("a", b"x\n", b"y\n") == "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n+y\n"
    assert unified_diff("a", None, b"y\n") == "--- /dev/null\n+++ b/a\n@@ -0,0 +1 @@\n+y\n"
    assert unified_diff("a", b"x\n", None) == "--- a/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n"


def test_only_the_part_that_differs_counts_towards_what_is_too_large_to_compare() -> None:
    same = b"same\n" * 100_000
    assert unified_diff("a", same + b"x\n", same + b"y\n", largest=100) == (
        "--- a/a\n+++ b/a\n@@ -99998,4 +99998,4 @@\n same\n same\n same\n-x\n+y\n"
    )
    assert "too large to compare" in unified_diff("a", None, same, largest=100)


def test_a_missing_newline_at_the_end_is_said() -> None:
    assert unified_diff("a", b"x", b"x\n") == (
        "--- a/a\n+++ b/a\n@@ -1 +1 @@\n-x\n\\ No newline at end of file\n+x\n"
    )


def test_binary_contents_are_only_measured() -> None:
    assert unified_diff("a", b"\0", b"\0\0") == "--- a/a\n+++ b/a\nbinary file, 1 -> 2 bytes\n"


def test_bytes_that_are_no_utf8_survive() -> None:
    assert unified_diff("a", b"\xff\n", b"").encode("utf-8", "surrogateescape").endswith(b"-\xff\n")
