"""Which files a request means that names none."""

from pathlib import Path

import pytest

from fugu_cli.tools.lookup import SMALL, meant
from tests.tools.conftest import lay

PRICES = "def net_total(items):\n    return sum(items)\n\n\ndef gross(n):\n    return round(n * RATE, 2)\n"
CART = "from shop.prices import net_total\n\n\nclass CartView:\n    total = net_total\n    again = net_total\n"
TREE: dict[str, str | bytes] = {
    "shop/prices.py": PRICES + "x = 1\n" * (SMALL // 6),
    "shop/cart.py": CART,
    "shop/mail.py": "def send(message):\n    connect().send(message)\n",
    "tests/test_prices.py": "from shop.prices import net_total\n\n\ndef test_sum():\n    assert net_total([1]) == 1\n",
    "notes.txt": "net_total and rounding",
    "empty.py": "",
    "node_modules/net.js": "net_total",
}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        ("Rename net_total to subtotal everywhere.", ["shop/prices.py", "shop/cart.py", "tests/test_prices.py"]),
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
    assert [path.relative_to(tmp_path).as_posix() for path in meant(request_, tmp_path)] == expected


def test_a_small_repository_is_shown_whole_where_nothing_is_found(tmp_path: Path) -> None:
    lay(tmp_path, {"a.py": "def f():\n    return 1\n", "b.py": "import a\n", "README.md": "# A\n"})
    assert [path.name for path in meant("Create a README.md", tmp_path)] == ["a.py", "b.py"]


def test_pages_and_their_styles_are_found(tmp_path: Path) -> None:
    lay(tmp_path, {"style.css": "body { background: #fff }\n", "index.html": "<h1>Hello</h1>\n", "app.js": "run()\n"})
    found = meant("Make the background of the page dark", tmp_path)
    assert [path.name for path in found] == ["style.css"]


def test_at_most_four_files_are_meant(tmp_path: Path) -> None:
    lay(tmp_path, {f"f{number}.py": "shared_name = 1\n" for number in range(9)})
    assert len(meant("what is shared_name?", tmp_path)) == 4
