"""Which files a request means that names none."""

from pathlib import Path

import pytest

from fugu_cli.repair.localization import SMALL_REPOSITORY, retrieve
from tests.unit.conftest import lay

PRICES = (
    "def net_total(items):\n    return sum(items)\n\n\ndef gross(n):\n    return round(n * RATE, "
    "2)\n"
)
CART = (
    "from shop.prices import net_total\n\n\nclass CartView:\n    total = net_total\n    again = "
    "net_total\n"
)
TREE: dict[str, str | bytes] = {
    "shop/prices.py": PRICES + "x = 1\n" * (SMALL_REPOSITORY // 6),
    "shop/cart.py": CART,
    "shop/mail.py": "def send(message):\n    connect().send(message)\n",
    "tests/test_prices.py": (
        "from shop.prices import net_total\n\n\ndef test_sum():\n    assert net_total([1]) == 1\n"
    ),
    "notes.txt": "net_total and rounding",
    "empty.py": "",
    "node_modules/net.js": "net_total",
}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (
            "Rename net_total to subtotal everywhere.",
            ["shop/cart.py", "shop/prices.py", "tests/test_prices.py"],
        ),
        ("What does `CartView` do?", ["shop/cart.py"]),
        ("what does gross() return?", ["shop/prices.py"]),
        ("Which function rounds the result?", ["shop/prices.py"]),
        ("Let the messages that are sent end with a newline", ["shop/mail.py"]),
        ("Change the cart", ["shop/cart.py"]),
        ("fix the failing tests", []),
        ("what is a monad?", []),
        ("", []),
    ],
)
def test_files_are_found_by_the_names_and_the_words_of_a_request(
    request_: str, expected: list[str], tmp_path: Path
) -> None:
    lay(tmp_path, TREE)
    assert [path for path in retrieve(request_, tmp_path)] == expected


def test_a_small_repository_is_shown_whole_where_nothing_is_found(tmp_path: Path) -> None:
    lay(tmp_path, {"a.py": "def f():\n    return 1\n", "b.py": "import a\n", "README.md": "# A\n"})
    assert [path for path in retrieve("Create a README.md", tmp_path)] == ["a.py", "b.py"]


def test_pages_and_their_styles_are_found(tmp_path: Path) -> None:
    lay(
        tmp_path,
        {
            "style.css": "body { background: #fff }\n",
            "index.html": "<h1>Hello</h1>\n",
            "app.js": "run()\n",
        },
    )
    found = retrieve("Make the background of the page dark", tmp_path)
    assert found == ["style.css"]


def test_at_most_four_files_are_meant(tmp_path: Path) -> None:
    lay(tmp_path, {f"f{number}.py": "shared_name = 1\n" for number in range(9)})
    assert len(retrieve("what is shared_name?", tmp_path)) == 4


LEGS = (
    "A restaurant has 40 tables with 4 legs and 50 tables with 3 legs. Calculate the total "
    "number of legs"
)
EXERCISE: dict[str, str | bytes] = {
    "cards.py": "def total(cards):\n    pass\n",
    "cards_test.py": (
        "from cards import total\n\nTABLES = [4, 3]\n\n\ndef test_number():\n    "
        "assert total([4]) == 4\n"
    ),
}


@pytest.mark.parametrize(
    "request_",
    [
        LEGS,
        f"{LEGS}.",
        "Janey has 3 more than twice the number of books that Sally has. If Sally has 9, how "
        "many has Janey?",
        "what is a monad?",
        "Why is the sky blue?",
    ],
)
def test_a_question_about_something_else_is_shown_no_file(request_: str, tmp_path: Path) -> None:
    lay(tmp_path, EXERCISE)
    assert retrieve(request_, tmp_path) == []
    lay(tmp_path, TREE)
    assert retrieve(request_, tmp_path) == []


@pytest.mark.parametrize(
    "request_",
    [
        "How does it work?",
        "What do the cards add up to?",
        "How do I run this?",
        "Calculate the total of the cards",
        "Make everything shorter and remember that the readers of these lines are tired, hungry "
        "people",
    ],
)
def test_a_small_repository_is_shown_to_a_question_about_it_and_to_any_work(
    request_: str, tmp_path: Path
) -> None:
    lay(tmp_path, EXERCISE)
    assert retrieve(request_, tmp_path)[:1] == ["cards.py"]


def test_in_a_repository_of_few_files_words_that_all_of_them_hold_say_something(
    tmp_path: Path,
) -> None:
    filler = "x = 1\n" * (SMALL_REPOSITORY // 6)
    lay(
        tmp_path,
        {
            "cart.py": f"def vouchers():\n    pass\n{filler}",
            "test_cart.py": "import cart  # vouchers\n",
        },
    )
    found = retrieve("Let vouchers be taken off twice", tmp_path)
    assert found == ["cart.py", "test_cart.py"]
