from hypothesis import given, settings
from hypothesis import strategies as st

from fugu_cli.ui.column import Column, Fragment
from fugu_cli.ui.drawing import DARK, LIGHT, plain_text, wrap_lines

WIDTH = 20


def piece(text: str) -> Fragment:
    return Fragment(lambda width, palette: wrap_lines(text, width), text)


def column(texts: list[str]) -> Column:
    made = Column(WIDTH)
    for index, text in enumerate(texts):
        made.put(index, [piece(text)])
    return made


def shown(made: Column, y: int, height: int) -> list[str]:
    return [plain_text(made.line(line) or []) for line in range(y, y + height)]


def whole(texts: list[str]) -> list[str]:
    return [plain_text(line) for text in texts for line in wrap_lines(text, WIDTH)]


blocks = st.lists(st.text(alphabet="ab \n", max_size=120), min_size=1, max_size=30)


@given(blocks)
def test_painted_from_the_top_it_is_all_lines_in_order(texts: list[str]) -> None:
    made = column(texts)
    y, lines = 0, []
    while y < made.stack.total:
        made.paint_window(y, 1)
        lines.append(plain_text(made.line(y) or []))
        y += 1
    assert lines == whole(texts)


@given(blocks, st.integers(min_value=1, max_value=12))
def test_the_end_shows_the_last_lines(texts: list[str], height: int) -> None:
    made = column(texts)
    top = made.paint_end(height)
    expected = whole(texts)[-height:]
    assert shown(made, top, len(expected)) == expected


@settings(max_examples=200)
@given(
    blocks,
    st.integers(min_value=1, max_value=8),
    st.lists(st.integers(min_value=-5, max_value=5), max_size=20),
)
def test_moving_by_lines_moves_the_text_by_as_many(
    texts: list[str], height: int, moves: list[int]
) -> None:
    lines = whole(texts)
    made = column(texts)
    y = made.paint_end(height)
    at = max(len(lines) - height, 0)
    for by in moves:
        y, at = made.move(y, by), max(at + by, 0)
        if at > max(len(lines) - height, 0):
            y, at = made.paint_end(height), max(len(lines) - height, 0)
        y = made.paint_window(y, height)
        assert shown(made, y, min(height, len(lines) - at)) == lines[at : at + height]


@given(blocks, st.data())
def test_a_block_that_changes_changes_only_itself(texts: list[str], data: st.DataObject) -> None:
    made = column(texts)
    made.paint_end(10)
    index = data.draw(st.integers(min_value=0, max_value=len(texts) - 1))
    text = data.draw(st.text(alphabet="xy \n", max_size=90))
    made.put(index, [piece(text), piece("and more")])
    expected = [*texts[:index], text, "and more", *texts[index + 1 :]]
    made.paint_end(10_000)
    assert shown(made, 0, made.stack.total) == whole(expected)
    assert made.block_at(made.top_of(index)) == index


def test_cut_drops_the_block_and_all_after_it() -> None:
    made = column(["a", "b", "c"])
    made.paint_end(10)
    made.cut(1)
    assert (len(made), shown(made, 0, made.stack.total)) == (1, ["a"])
    assert made.line(1) is None
    made.put(1, [piece("d")])
    made.paint_end(10)
    assert shown(made, 0, made.stack.total) == ["a", "d"]


def test_another_width_or_palette_paints_anew() -> None:
    painted: list[tuple[int, str]] = []

    def paint(width: int, palette: object) -> list[list[object]]:
        painted.append((width, getattr(palette, "name", "")))
        return [[]]

    made = Column(WIDTH, DARK)
    made.put(0, [Fragment(paint)])  # type: ignore[arg-type]
    for _ in range(3):
        made.paint_end(5)
    made.stack.fit(30, DARK)
    made.paint_end(5)
    made.stack.fit(30, LIGHT)
    made.paint_end(5)
    assert painted == [(20, "dark"), (30, "dark"), (30, "light")]


def test_another_width_leaves_what_is_read_in_its_place() -> None:
    words = " ".join(f"w{number}" for number in range(400))
    made = column(["above " * 30, words, "below " * 30])
    made.paint_end(10_000)
    y = made.top_of(1) + 60
    seen = plain_text(made.line(y) or []).split()[0]
    y = made.stack.fit(WIDTH * 2, DARK, y)
    assert seen in " ".join(shown(made, y - 1, 3)).split()
    assert (made.stack.fit(WIDTH * 2, LIGHT, y), Column(WIDTH).stack.fit(WIDTH * 2, DARK, 7)) == (
        y,
        0,
    )


def test_only_what_is_seen_is_painted() -> None:
    painted: list[int] = []

    def numbered(number: int) -> Fragment:
        def paint(width: int, palette: object) -> list[list[object]]:
            painted.append(number)
            return [[], []]

        return Fragment(paint, exact=2)  # type: ignore[arg-type]

    made = Column(WIDTH)
    for index in range(1000):
        made.put(index, [numbered(index)])
    top = made.paint_end(10)
    assert (made.stack.total, top, sorted(painted)) == (2000, 1990, [995, 996, 997, 998, 999])


def test_pieces_that_stay_keep_their_lines() -> None:
    painted: list[str] = []

    def noted(text: str) -> Fragment:
        def paint(width: int, palette: object) -> list[list[object]]:
            painted.append(text)
            return [[]]

        return Fragment(paint, text)  # type: ignore[arg-type]

    made, first = Column(WIDTH), noted("first")
    for tail in ("t", "ta", "tai"):
        made.put(0, [first, noted(tail)])
        made.paint_end(5)
    assert painted == ["t", "first", "ta", "tai"]
