"""One answer to what a test file is."""

from fugu_cli.session import recognized_tests

TESTS = [
    *(
        "test_a.py",
        "a_test.py",
        "shop/tests.py",
        "conftest.py",
        "tests/data.json",
        "pkg/__tests__/x.js",
    ),
    *("a_test.go", "a_test.exs", "a_spec.rb", "spec/models/x.rb", "specs/a.md"),
    *(
        "src/a.test.tsx",
        "a.spec.mjs",
        "a-test.js",
        "test.cjs",
        "src/tests.rs",
        "src/parser_tests.rs",
    ),
    *(
        "src/ATest.java",
        "src/ATests.cs",
        "ASpec.scala",
        "LoginIT.java",
        "TestCart.java",
        "CartTestCase.php",
    ),
    *("a_test.cc", "a_unittest.cc", "FooTest.cpp"),
]
OTHERS = [
    *(
        "a.py",
        "attest.py",
        "latest.txt",
        "contest/a.py",
        "attestation.ts",
        "protest.go",
        "testing.md",
    ),
    *(
        "src/Latest.java",
        "ATest.py",
        "UNIT.java",
        "src/test.html",
        "my_tests_page/a.py",
        "Testament.java",
    ),
]


def test_what_looks_like_a_test_is_one_and_nothing_else() -> None:
    assert recognized_tests.tests_among([*TESTS, *OTHERS]) == TESTS
