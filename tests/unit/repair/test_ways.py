"""What a small model is asked for first where a failing test leads to several functions."""

from __future__ import annotations

from fugu_cli.repair.search import FEW, RepairTask, repair_candidates

SHOP = '''\
def net(lines):
    """What all lines come to."""
    found = []
    for line in lines:
        found.append(priced(line))
    return sum(found)


def priced(line):
    """The price of a line."""
    return rounded(line.price * line.count)


def rounded(cents):
    """Whole cents."""
    return int(cents)
'''
LONG = (
    "def long(x):\n" + "".join(f"    x += {number}\n" for number in range(FEW)) + "    return x\n"
)
FILES = {"shop.py": SHOP}


def places(found: list[RepairTask]) -> list[str]:
    return [way.gap.place.removeprefix("shop.py:") if way.gap else way.key for way in found]


def ordered(output: str, files: dict[str, str] | None = None) -> list[str]:
    return places(repair_candidates(files or FILES, output, "fix it", lines=True, parts=True))


def test_after_the_lines_of_what_a_test_calls_come_those_of_what_that_calls_then_all_is_written_anew() -> (
    None
):
    assert ordered("assert net([]) == 3") == [
        "3",
        "4",
        "5",
        "6",
        "11",
        "shop.py:1 net rewritten",
        "shop.py",
    ]


def test_the_line_where_it_broke_comes_first() -> None:
    assert ordered("shop.py:5: AttributeError\nnet()")[:5] == ["5", "3", "4", "6", "11"]
    assert ordered("shop.py:9: TypeError\nnet()")[:2] == ["11", "3"], (
        "no line of a body: its function is the shorter one"
    )


def test_of_two_functions_the_shorter_one_is_tried_first_and_a_long_one_written_anew_before() -> (
    None
):
    assert ordered("net() == priced()")[:5] == ["11", "3", "4", "5", "6"]
    of_long = ordered(
        "net() == long()", {"shop.py": SHOP, "long.py": f'{LONG[:13]}    """Adds."""\n{LONG[13:]}'}
    )
    assert of_long.index("shop.py:6".removeprefix("shop.py:")) < of_long.index(
        "long.py:1 long rewritten"
    )
    assert of_long.index("long.py:1 long rewritten") < of_long.index("long.py:3")


def test_every_way_stands_there_once_and_nothing_is_lost() -> None:
    output = "shop.py:5: AttributeError\nnet() == priced()"
    found = ordered(output)
    assert len(found) == len(set(found))
    plain = places(repair_candidates(FILES, output, "fix it", lines=False, parts=True))
    assert plain == ["shop.py", "shop.py:1 net rewritten", "shop.py:9 priced rewritten"]
    assert set(plain) <= set(found)
    assert {"3", "4", "5", "6", "11"} <= set(found)


def test_of_a_file_that_is_not_short_functions_are_asked_for_and_all_of_it_last() -> None:
    files = {
        "shop.py": SHOP
        + "".join(f"\n\ndef other_{number}(x):\n    return x + {number}\n" for number in range(40))
    }
    found = repair_candidates(files, "net([])", "fix it", lines=False, parts=True)
    assert places(found) == ["shop.py:1 net", "shop.py:1 net rewritten", "shop.py"]
    assert found[0].part.startswith("def net(lines)")
    unwritten = {"shop.py": f"{files['shop.py']}\n\ndef new(x):\n    raise NotImplementedError\n"}
    assert places(
        repair_candidates(unwritten, "new(1) == net([])", "fix it", lines=False, parts=True)
    ) == [
        "shop.py",
        "shop.py:1 net rewritten",
    ]
    long = {"shop.py": files["shop.py"] + "# a remark\n" * 600}
    assert places(repair_candidates(long, "net([])", "fix it", lines=False, parts=True)) == [
        "shop.py:1 net",
        "shop.py:1 net rewritten",
    ]


def test_of_the_line_where_it_broke_the_word_that_was_not_found_comes_first() -> None:
    output = (
        "E  AttributeError: 'list' object has no attribute 'append'\nshop.py:5: "
        "AttributeError\nnet()"
    )
    found = repair_candidates(FILES, output, "fix it", lines=True, parts=True)
    assert places(found)[:3] == ["5:15", "5", "3"]
    gap = found[0].gap
    assert gap is not None
    assert gap.before.endswith("    for line in lines:\n        found.")
    assert gap.after.startswith("(priced(line))\n    return sum(found)\n")
    quoted = {"shop.py": SHOP.replace("found.append(priced(line))", 'found.add("append")')}
    assert ordered(output, quoted)[:2] == ["5", "3"], "it stands in a text alone"
