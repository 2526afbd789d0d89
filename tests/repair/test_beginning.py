"""What a small model need not write."""

import pytest

from fugu_cli.repair.excerpts import prefix_of_rewrite, prefix_of_stub
from fugu_cli.session.events import Event, Member
from tests.facts import asked, opened, prompt_of
from tests.repair.test_filling_turns import BODY, FAILING, FILE, FILLER, asked_for, begun

BLANK = "raise NotImplementedError  # TODO: implement"
HEAD = 'def f():\n    """Say one."""\n'
DOCUMENTED = "/** Says one. */\nfunction f() {\n"


@pytest.mark.parametrize(
    ("shown", "head"),
    [
        (f"{HEAD}    {BLANK}", HEAD),
        (f"import re\n\n\n{HEAD}    {BLANK}\n\n\ndef g():\n    return 2\n", f"import re\n\n\n{HEAD}"),
        (f"{DOCUMENTED}  {BLANK}\n}}", DOCUMENTED),
        (f'"""\nSays one.\n"""\n\ndef f():\n    {BLANK}', '"""\nSays one.\n"""\n\ndef f():\n'),
        (f"# Says one.\n@cache\ndef f(\n    a,\n):\n    {BLANK}", "# Says one.\n@cache\ndef f(\n    a,\n):\n"),
        (f"def f():\n    {BLANK}", ""),
        (f"import re\n\n\ndef f():\n    {BLANK}", ""),
        ("def f():\n    return 1", ""),
    ],
)
def test_what_is_shown_above_a_body_is_not_written_again(shown: str, head: str) -> None:
    assert prefix_of_rewrite(shown, BLANK) == head


@pytest.mark.parametrize(
    ("path", "content", "head"),
    [
        ("a.py", f"{HEAD}    pass\n", HEAD),
        ("a.py", f"import re\n\n\n{HEAD}    raise NotImplementedError\n\n", f"import re\n\n\n{HEAD}"),
        ("a.py", f"{HEAD}    pass\n\n\nprint(f())\n", ""),
        ("a.py", f"{HEAD}    pass\n\n\ndef g():\n    pass\n", ""),
        ("a.py", "def f():\n    pass\n", ""),
        ("a.js", "function f() {\n  pass\n}\n", ""),
        ("a.py", "", ""),
    ],
)
def test_the_only_stub_at_the_end_of_a_file_is_not_written_from_its_beginning(
    path: str, content: str, head: str
) -> None:
    assert prefix_of_stub(path, content) == head


def test_only_a_model_that_goes_on_from_there_is_given_a_beginning() -> None:
    anew = next(prompt for prompt in asked_for(FILLER, 5) if prompt.unwritten)
    assert anew.begun == FILE.removesuffix(f"{BODY}\n")
    assert all(not prompt.begun for prompt in asked_for(FILLER, 12) if not prompt.unwritten)
    other = FILLER.model_copy(update={"infill": False})
    assert [prompt.begun for prompt in asked_for(other, 2)] == ["", ""]


@pytest.mark.parametrize(("protocol", "given"), [("text", True), ("schema", False), ("native", False)])
def test_a_stub_is_begun_where_replies_are_plain_text(protocol: str, given: bool) -> None:
    head = FILE.removesuffix(f"{BODY}\n")
    member = Member.model_validate(FILLER.model_dump() | {"protocol": protocol})
    events: list[Event] = [opened(), asked(), *FAILING, *begun(file=f"{head}    pass\n")]
    assert prompt_of(events, member, ()).begun == (head if given else "")
