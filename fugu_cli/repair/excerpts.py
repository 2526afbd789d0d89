"""The functions of a file that a small model is to mend: asked for the whole file, it writes for minutes.

Below prompt.py, which shows them in the file's place and has the answer put back there. What a failing test calls, and
where it broke, says which they are; several are shown together first (Python), then each has its draw. Pure.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from fugu_cli.repair import functions, intent
from fugu_cli.repair.functions import Span
from fugu_cli.repair.stubs import is_stub
from fugu_cli.repair.text import LONG

MOST = 6000
"""Characters of a function: a longer one is asked for by edits, like all of its file."""
SHORT = 1200
"""Characters of a file that is asked for whole first: some 350 tokens, a quarter of a minute of writing. Up to `LONG`
it is where functions do not help, or some of it is still to be written."""

ABOVE = 800
"""Characters of what stands outside of functions that are shown with one."""

_CALLED = re.compile(r"\b(\w{2,})\(")
_ANOTHER = re.compile(
    r"\b(?:add|create|write|implement|introduce|make|extract|define)\b[^.\n]*\b(?:function|method|class|helper|constant|alias"
    r"|variant|version|overload|command|decorator|wrapper)(?:e?s)?\b|\b(?:new|another|everywhere|all|every|each|both)\b",
    re.IGNORECASE,
)
"""What a request says that wants more than one function changed."""


def in_turn(path: str, content: str, output: str) -> list[str]:
    """What is to be mended, draw by draw: lines without the last one's end. [] where the file is short, or nothing in
    the tests' output leads to a function."""
    found = list(blamed(path, content, output)) if len(content) > (LONG if is_stub(content) else SHORT) else []
    together = "\n\n\n".join(found)
    if (
        len(found) > 1
        and len(together) <= MOST // 2
        and path.endswith(".py")
        and not any(one[0].isspace() for one in found)
    ):
        return [together, *found]
    return found


def blamed(path: str, content: str, output: str) -> tuple[str, ...]:
    """The functions that the tests' output leads to, each once: where it broke, the last place first; then what is
    called, in the order of the output."""
    spans = functions.spans(path, content)
    found: list[Span] = []
    for place in reversed(places(path, output)):
        found += [span for span in spans if span[1] < place <= span[2]][-1:]
    for name in dict.fromkeys(_CALLED.findall(output)):
        found += [span for span in spans if span[0] == name]
    return _texts(content, found)


def name_of(path: str, part: str) -> str:
    """The name of the function that a part of the file is, or of the first in it; the file's where there is none."""
    return next((name for name, _, _ in functions.spans(path, textwrap.dedent(part))), path)


def above(path: str, content: str) -> str:
    """What a function of a Python file finds in it, beside other functions and classes: its imports and constants,
    shortened; "" for others."""
    try:
        nodes = ast.parse(content).body if path.endswith((".py", ".pyi")) else []
    except (SyntaxError, ValueError, RecursionError):
        return ""
    named = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    texts = [
        "\n".join(content.split("\n")[node.lineno - 1 : node.end_lineno]) for node in nodes if isinstance(node, named)
    ]
    found = "\n".join(texts)
    return found if len(found) <= ABOVE else found[:ABOVE].rpartition("\n")[0]


def places(path: str, output: str) -> list[int]:
    """The lines of the file, from 1, that the tests' output names, each as often as it does."""
    named = rf'(?:^|[\s"(/]){re.escape(path)}(?::|", line )(\d+)'
    return [int(number) for number in re.findall(named, output, re.MULTILINE)]


def meant(path: str, content: str, request: str) -> tuple[str, ...]:
    """The functions that the request names, else the one function there is."""
    spans = functions.spans(path, content)
    words = set(re.findall(r"\w+", request))
    return _texts(content, [span for span in spans if span[0] in words] or (spans if len(spans) == 1 else []))


def told(path: str, content: str, request: str) -> tuple[str, ...]:
    """The one function of which the request says what is to become of it; () where it names none or several, wants
    something else beside it, or may use its name as a word ("add a test" is not about a function `add`)."""
    only_tests = intent.is_for_tests(request) and not intent.wants_tests_beside(request)
    if only_tests or not intent.wants_change(request) or intent.takes_away(request) or _ANOTHER.search(request):
        return ()
    named = [span for span in functions.spans(path, content) if _names(request, span[0])]
    return _texts(content, named) if len(named) == 1 else ()


def _names(request: str, name: str) -> bool:
    word = re.escape(name)
    if re.search(rf"[`.]{word}\b|\b{word}(?:`|\()|\b(?:function|method)\s+{word}\b", request):
        return True
    return re.search(rf"(?<![\w/]){word}(?![\w/]|\.\w)", request) is not None and not intent.wants_change(f"{name} it")


def _texts(content: str, spans: Sequence[Span]) -> tuple[str, ...]:
    """Those that are not too long and can be found again."""
    lines = content.split("\n")
    texts = ["\n".join(lines[start:end]) for _, start, end in spans]
    return tuple(dict.fromkeys(text for text in texts if len(text) <= MOST and content.count(text) == 1))
