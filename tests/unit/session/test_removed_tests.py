"""Which tests a request removed, by the texts of the files it changed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fugu_cli.session.events import FileChange
from fugu_cli.session.recognized_tests import removed_tests


def removed(*changes: tuple[str, str | None, str | None]) -> tuple[str, ...]:
    """Of files: path, text before and text after, None where there is no file."""
    return removed_tests(
        [FileChange(path=path, before=a, after=b) for path, a, b in changes],
        lambda content: content,
    )


PYTHON = (
    "import pytest\n\ndef helper(): ...\ndef test_a(): ...\n@pytest.mark.x\nasync def test_b():\n"
    "    def test_c(): ...\nclass TestD:\n    def setup(self): ...\n    def test_e(self): ...\n"
    "    class TestF:\n        def test_g(self): ...\n"
)


def test_a_file_that_is_gone_takes_its_tests_along() -> None:
    names = ("test_a", "test_b", "TestD::test_e", "TestD::TestF::test_g")
    assert removed(("tests/test_x.py", PYTHON, None)) == tuple(
        f"tests/test_x.py::{name}" for name in names
    )


def test_a_definition_that_is_gone_is_removed_and_a_changed_one_is_not() -> None:
    after = PYTHON.replace("def test_a(): ...", "def test_a(): assert 0").replace(
        "def test_e", "def _test_e"
    )
    assert removed(("test_x.py", PYTHON, after)) == ("test_x.py::TestD::test_e",)
    assert removed(("test_x.py", PYTHON, PYTHON.replace("def test_a", "# def test_a"))) == (
        "test_x.py::test_a",
    )


def test_a_moved_test_is_not_removed() -> None:
    assert (
        removed(
            ("test_x.py", "def test_a(): ...\n", None),
            ("tests/test_y.py", None, "def test_a(): ...\n"),
        )
        == ()
    )


def test_a_name_that_another_file_had_already_does_not_hide_a_removal() -> None:
    same = "def test_a(): ...\n"
    assert removed(("test_x.py", same, None), ("test_y.py", same, f"{same}#\n")) == (
        "test_x.py::test_a",
    )


def test_code_that_looks_like_a_test_and_new_tests_say_nothing() -> None:
    assert (
        removed(("shop.py", "def test_a(): ...\n", ""), ("test_x.py", None, "def test_a(): ...\n"))
        == ()
    )
    assert removed(("tests/data.json", "{}", '{"a": 1}')) == ()


def test_what_cannot_be_read_is_named_by_its_file_where_it_is_gone() -> None:
    assert removed(("tests/test_it.lua", "function test_a() end", None)) == ("tests/test_it.lua",)
    gone = [
        FileChange(path="test_x.py", before="a", after=None),
        FileChange(path="test_y.py", before="a", after="b"),
    ]
    assert removed_tests(gone, lambda content: None) == ("test_x.py",)


@pytest.mark.parametrize(
    ("path", "text", "names"),
    [
        (
            "a.test.ts",
            "// it('old', f)\ndescribe('s', () => { it('adds `1`', f); it.skip(\"it's\", f);"
            " test.each([[1, f(2)]])('of %d', f); await page.test('x'); submit('y') })",
            ["adds `1`", "it's", "of %d"],
        ),
        ("a_test.go", "func TestA(t *testing.T) {}\nfunc (s *S) TestB() {}\nfunc helper() {}", ["TestA", "TestB"]),
        (
            "src/lib.rs",
            "fn f() {}\n#[cfg(test)]\nmod tests {\n #[test]\n fn a() {}\n"
            " #[tokio::test]\n #[ignore]\n pub async fn b() {}\n}",
            ["a", "b"],
        ),
        (
            "src/test/CartTest.java",
            '/* @Test void old() {} */ @Test @DisplayName("x (y)") void total() { f(); }\n'
            "@ParameterizedTest\n@ValueSource(ints = {1})\npublic void each(int n) {}",
            ["total", "each"],
        ),
        ("CartTest.kt", "@Test\nfun `adds two`() {}", ["`adds two`"]),
        (
            "CartTests.cs",
            "[Fact]\npublic async Task Adds() {}\n[Theory]\n[InlineData(1)]\npublic void "
            "Each(int n) {}",
            ["Adds", "Each"],
        ),
        ("spec/a_spec.rb", "describe 'x' do\n  it 'adds' do\n  end\n  # it 'old' do\nend\n", ["adds"]),
        ("test/a_test.exs", 'test "adds" do\nend\n', ["adds"]),
        ("CartTest.php", "public function testTotal() {}", ["testTotal"]),
        ("CartTests.swift", "func testTotal() {}\n@Test func adds() {}", ["testTotal", "adds"]),
        ("a_test.cc", "TEST(Cart, Total) {}\nTEST_F(Cart, Each) {}", ["Cart, Total", "Cart, Each"]),
    ],
)  # fmt: skip
def test_each_language_has_its_own_definitions(path: str, text: str, names: list[str]) -> None:
    assert sorted(removed((path, text, None))) == sorted(f"{path}::{name}" for name in names)
    assert removed((path, text, text)) == ()


@given(
    st.text(max_size=200),
    st.sampled_from(["test_a.py", "a.test.js", "a_test.go", "a.rs", "ATest.java", "a_spec.rb"]),
)
def test_any_text_can_be_read_and_equal_ones_remove_nothing(text: str, path: str) -> None:
    assert removed((path, text, text)) == ()
    removed((path, text, None))
