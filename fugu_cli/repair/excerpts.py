"""The part of a file that a small model is to write: a function, a function without its body, one line that is left
out.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import takewhile

from fugu_cli.messages import FromUser, InfillHole, Prompt, ToolSpec
from fugu_cli.repair import code_structure, intent
from fugu_cli.repair.code_structure import Span, body_to_write, has_no_body, is_stub
from fugu_cli.repair.protocols import LONG

LONGEST_EXCERPT = 6000
"""Characters of a function: a longer one is asked for by edits, like all of its file."""
SHORT_FILE = 1200
"""Characters of a file that is asked for whole first: some 350 tokens, a quarter of a minute of writing. Up to `LONG`
it is where functions do not help, or some of it is still to be written."""

MOST_ABOVE = 800
"""Characters of what stands outside of functions that are shown with one."""

_CALLED = re.compile(r"\b(\w{2,})\(")
_ANOTHER = re.compile(
    r"\b(?:add|create|write|implement|introduce|make|extract|define)\b[^.\n]*\b(?:function|method|class|helper|constant|alias"
    r"|variant|version|overload|command|decorator|wrapper)(?:e?s)?\b|\b(?:new|another|everywhere|all|every|each|both)\b",
    re.IGNORECASE,
)
"""What a request says that wants more than one function changed."""


def excerpts_in_turn(path: str, content: str, output: str) -> list[str]:
    """What is to be mended, draw by draw: lines without the last one's end. [] where the file is short, or nothing in
    the tests' output leads to a function."""
    found = (
        list(blamed_functions(path, content, output))
        if len(content) > (LONG if is_stub(content) else SHORT_FILE)
        else []
    )
    together = "\n\n\n".join(found)
    if (
        len(found) > 1
        and len(together) <= LONGEST_EXCERPT // 2
        and path.endswith(".py")
        and not any(one[0].isspace() for one in found)
    ):
        return [together, *found]
    return found


def blamed_functions(path: str, content: str, output: str) -> tuple[str, ...]:
    """The functions that the tests' output leads to, each once: where it broke, the last place first; then what is
    called, in the order of the output."""
    spans = code_structure.function_spans(path, content)
    found: list[Span] = []
    for place in reversed(lines_in_output(path, output)):
        found += [span for span in spans if span[1] < place <= span[2]][-1:]
    for name in dict.fromkeys(_CALLED.findall(output)):
        found += [span for span in spans if span[0] == name]
    return _texts(content, found)


def excerpt_name(path: str, part: str) -> str:
    """The name of the function that a part of the file is, or of the first in it; the file's where there is none."""
    return next((name for name, _, _ in code_structure.function_spans(path, textwrap.dedent(part))), path)


def context_above(path: str, content: str) -> str:
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
    return found if len(found) <= MOST_ABOVE else found[:MOST_ABOVE].rpartition("\n")[0]


def lines_in_output(path: str, output: str) -> list[int]:
    """The lines of the file, from 1, that the tests' output names, each as often as it does."""
    named = rf'(?:^|[\s"(/]){re.escape(path)}(?::|", line )(\d+)'
    return [int(number) for number in re.findall(named, output, re.MULTILINE)]


def requested_functions(path: str, content: str, request: str) -> tuple[str, ...]:
    """The functions that the request names, else the one function there is."""
    spans = code_structure.function_spans(path, content)
    words = set(re.findall(r"\w+", request))
    return _texts(content, [span for span in spans if span[0] in words] or (spans if len(spans) == 1 else []))


def described_function(path: str, content: str, request: str) -> tuple[str, ...]:
    """The one function of which the request says what is to become of it; () where it names none or several, wants
    something else beside it, or may use its name as a word ("add a test" is not about a function `add`)."""
    only_tests = intent.is_for_tests(request) and not intent.wants_tests_beside(request)
    if only_tests or not intent.wants_change(request) or intent.takes_away(request) or _ANOTHER.search(request):
        return ()
    named = [span for span in code_structure.function_spans(path, content) if _names(request, span[0])]
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
    return tuple(dict.fromkeys(text for text in texts if len(text) <= LONGEST_EXCERPT and content.count(text) == 1))


MOST_REWRITTEN_LINES = 60
"""Of a body that is rewritten: what a longer one does is in no docstring."""
MOST_DESCRIPTION = 2000
"""Characters shown of what a file says of a function outside of it."""

MARK = "TODO: implement"
_PLACEHOLDERS = {
    (".py", ".pyi"): f"raise NotImplementedError  # {MARK}",
    (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx"): f'throw new Error("not implemented"); // {MARK}',
    (".rs",): f"todo!() // {MARK}",
    (".go",): f'panic("not implemented") // {MARK}',
    (".java", ".kt"): f'throw new UnsupportedOperationException("not implemented"); // {MARK}',
}
_WORDS = re.compile(r"(?!\s*(?:@|#\[)).*\w{2,}")
"""In the comment above a function: no attribute."""
_COMMENT_WITH_WORDS = re.compile(r"\s*#.*\w{2,}")


@dataclass(frozen=True)
class FunctionRewrite:
    """The `shown` lines, in which `placeholder` stands for the body of a function that is to be written. `told`: what
    the file says of it outside of them."""

    shown: str
    placeholder: str
    told: str = ""

    @property
    def alone(self) -> str:
        """What is shown where the rest of the file is not."""
        return "\n".join(filter(None, [self.told, self.shown]))


def without_body(path: str, content: str, function: str) -> FunctionRewrite | None:
    """The `function`, a part of the file's `content`, without its body; None where nothing says what it is to do,
    where it is long, and where it has no body to leave out."""
    placeholder = next((line for suffixes, line in _PLACEHOLDERS.items() if path.endswith(suffixes)), f"// {MARK}")
    if MARK in content:
        return None
    cut = _python_body if path.endswith((".py", ".pyi")) else _brace_body
    lines = function.split("\n")
    found = cut(lines, content)
    if found is None or not 0 < found[1] - found[0] <= MOST_REWRITTEN_LINES:
        return None
    start, end, told = found
    indent = lines[start][: len(lines[start]) - len(lines[start].lstrip())]
    return FunctionRewrite("\n".join([*lines[:start], f"{indent}{placeholder}", *lines[end:]]), placeholder, told)


def rewrites_in_file(path: str, content: str, output: str, request: str) -> tuple[tuple[str, FunctionRewrite], ...]:
    """Each function that the tests' `output` leads to, or else the request, and the whole file without its body; of one
    inside another, the outer one's."""
    found = blamed_functions(path, content, output) or requested_functions(path, content, request)
    outer = [one for one in found if not any(one in other and one != other for other in found)]
    cut = [(function, without_body(path, content, function)) for function in outer]
    return tuple(
        (old, FunctionRewrite(content.replace(old, new.shown), new.placeholder)) for old, new in cut if new is not None
    )


def _python_body(lines: list[str], content: str) -> tuple[int, int, str] | None:
    """First line of the body after its docstring, the line after its last, and what is said of the function elsewhere
    where it has no docstring."""
    try:
        tree, file = ast.parse(textwrap.dedent("\n".join(lines))), ast.parse(content)
    except (SyntaxError, ValueError, RecursionError):
        return None
    node = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return None
    first, documented = node.body[0], ast.get_docstring(node) is not None
    if has_no_body(node):
        return None  # it is as it would be shown
    start = (first.end_lineno or first.lineno) if documented else first.lineno - 1
    told = "" if documented else _comment_above(lines, content) or _described_by(file, node.name, content)
    on_own_lines = start >= node.lineno and not (documented and len(node.body) == 1)
    return (start, len(lines), told) if (documented or told) and on_own_lines else None


def _described_by(file: ast.Module, name: str, content: str) -> str:
    """The texts of the file's own that are about this function, for they name it, or there is no other, as they stand
    there, and a line's end; "" without any."""
    texts = [
        (node.value.value, "\n".join(content.split("\n")[node.lineno - 1 : node.end_lineno]))
        for node in file.body
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    others = [node for node in file.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)]
    sole = len(others) == 1
    found = [text for said, text in texts if sole or re.search(rf"\b{re.escape(name)}\b", said)]
    told = "\n\n".join(found)
    return (
        f"{told if len(told) <= MOST_DESCRIPTION else told[:MOST_DESCRIPTION].rpartition(chr(10))[0]}\n\n"
        if found
        else ""
    )


def _comment_above(lines: list[str], content: str) -> str:
    """The lines of the comment right above the function; "" where there is none."""
    before = content[: content.index("\n".join(lines))].rstrip("\n").split("\n")
    found = list(takewhile(lambda line: line.lstrip().startswith("#"), reversed(before)))[::-1]
    return "\n".join(found) if found and _COMMENT_WITH_WORDS.match(found[-1]) else ""


def _brace_body(lines: list[str], _content: str) -> tuple[int, int, str] | None:
    """The same where a line that ends with a brace opens the body, and the last line closes it."""
    head = next((number for number, line in enumerate(lines) if code_structure.function_name_on(line)), len(lines))
    opened = next((number for number in range(head, len(lines)) if lines[number].rstrip().endswith("{")), None)
    if opened is None or not any(_WORDS.match(line) for line in lines[:head]):
        return None
    if is_stub("\n".join(lines[opened + 1 : -1])):
        return None
    return (opened + 1, len(lines) - 1, "")


MOST_INFILL_LINES = 60
"""Of a function: each line costs reading those after it."""
MOST_INFILLS = 40
"""Lines of a file that are filled in at most."""
INFILL_TOKENS = 64
"""Of a line: one that is cut is none."""
INFILL_ABOVE, INFILL_BELOW = 3000, 1500
"""Characters of the file before and behind the function that are read, both before it: once for all of its lines."""

_QUOTED = re.compile(r"""\"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|`[^`]*`""")
_TRIVIAL = re.compile(r"[\W_]*(?:else|try|finally|do|pass|begin|end)?[\W_]*|\s*return[\s;]*")
"""It says nothing that could be wrong. `return []`, `break` and `continue` do."""
_COMMENT_LINE = re.compile(r"\s*(?:#(?!\[|include)|//|/\*|\*(?:\s|/|$)|--\s)")


@dataclass(frozen=True)
class LineInfill:
    """A `gap` in the function `part`, lines of the file that stand there once."""

    part: str
    gap: InfillHole


def infill_prompt(path: str, filling: LineInfill, tools: Sequence[ToolSpec], tried: int) -> Prompt:
    """The call that asks for the line. The model reads what stands around it, and no request. `tried`: 0 for the
    likeliest line, else the seed of another."""
    gap = filling.gap
    return Prompt(
        system="",
        messages=(FromUser(text=f"{gap.before}[the line that is to be filled in]{gap.after}"),),
        tools=tuple(tools),
        max_tokens=INFILL_TOKENS,
        temperature=0.8 if tried else None,
        seed=tried or None,
        target=path,
        part=filling.part,
        judged=True,
        gap=gap,
    )


def line_infills(
    path: str, content: str, output: str, request: str | None, *, more: bool = False
) -> tuple[LineInfill, ...]:
    """The lines to be filled in of the functions that the tests' `output` leads to, or else the request, if any; of one
    inside another, the outer one's. () where there is none, or they are long. `more`: the places behind them."""
    found = blamed_functions(path, content, output) or (
        () if request is None else requested_functions(path, content, request)
    )
    outer = [one for one in found if not any(one in other and one != other for other in found)]
    filled = [LineInfill(part, gap) for part in outer for gap in _gaps(path, content, part, more)]
    return tuple(filled) if len(filled) <= MOST_INFILLS else ()


def word_infills(filling: LineInfill, content: str, wanted: re.Pattern[str]) -> tuple[LineInfill, ...]:
    """Of a line that is to be filled in, each of the `wanted` words alone, outside of quoted texts."""
    lines = filling.part.split("\n")
    line, number = lines[filling.gap.number], filling.gap.number
    bare = _QUOTED.sub(lambda found: "\0" * len(found[0]), line)
    around = _around_of(content, filling.part)
    found = []
    for word in wanted.finditer(bare):
        head, tail = line[: word.start()], line[word.end() :]
        gap = filling.gap.model_copy(
            update={
                "before": around + "\n".join([*lines[:number], head]),
                "after": "\n".join([tail, *lines[number + 1 :], ""]),
                "place": f"{filling.gap.place}:{word.start() + 1}",
                "head": head,
                "tail": tail,
            }
        )
        found.append(LineInfill(filling.part, gap))
    return tuple(found)


def _gaps(path: str, content: str, part: str, more: bool) -> list[InfillHole]:
    lines = part.split("\n")
    if len(lines) > MOST_INFILL_LINES:
        return []
    first = content.count("\n", 0, content.index(part))
    around = _around_of(content, part)
    found = []
    for number in _worth(path, lines):
        line, rest = lines[number], lines[number + 1 :]
        start, end = unique_lines_around(content, lines, number)
        above = [*lines[: number + 1], ""] if more else [*lines[:number], line[: len(line) - len(line.lstrip())]]
        found.append(
            InfillHole(
                before=around + "\n".join(above),
                after="\n".join([*rest, ""] if more else ["", *rest, ""]),
                number=number,
                more=more,
                start=start,
                end=end,
                place=f"{path}:{first + number + 1}{'+' if more else ''}",
            )
        )
    return found


def _around_of(content: str, part: str) -> str:
    place = content.index(part)
    return _around(content[:place], content[place + len(part) :])


def _around(above: str, below: str) -> str:
    """What is read before the function."""
    return (
        f"{below[:INFILL_BELOW].strip(chr(10))}\n\n\n{above[-INFILL_ABOVE:]}"
        if below.strip()
        else above[-INFILL_ABOVE:]
    )


def _worth(path: str, lines: Sequence[str]) -> list[int]:
    """Lines of the body that say something, without comments and docstrings."""
    body = _python_lines(lines) if path.endswith((".py", ".pyi")) else _brace_lines(lines)
    return [
        number for number in body if not _TRIVIAL.fullmatch(lines[number]) and not _COMMENT_LINE.match(lines[number])
    ]


def _python_lines(lines: Sequence[str]) -> list[int]:
    """Lines of statements behind the head; of a function inside, its head and docstring are left out as well."""
    try:
        tree = ast.parse(textwrap.dedent("\n".join(lines)))
    except (SyntaxError, ValueError, RecursionError):
        return []
    outer = tree.body[0] if len(tree.body) == 1 else None
    if not isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) or has_no_body(outer):
        return []
    out: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            told = ast.get_docstring(node) is not None
            end = (node.body[0].end_lineno or node.lineno) + 1 if told else max(node.body[0].lineno, node.lineno + 1)
            start = min([node.lineno, *(one.lineno for one in node.decorator_list)])
            out.update(range(start - 1, end - 1))
    return [number for number in range(len(lines)) if number not in out]


def _brace_lines(lines: Sequence[str]) -> list[int]:
    """Lines behind the head, which may take several, without the bracket that closes it."""
    start = next((number for number, line in enumerate(lines) if code_structure.function_name_on(line)), 0)
    opened = next((number for number in range(start, len(lines)) if lines[number].rstrip().endswith("{")), start)
    return list(range(opened + 1, len(lines) - 1))


def unique_lines_around(content: str, lines: Sequence[str], number: int) -> tuple[int, int]:
    """The fewest whole lines around a line of a part that stand in the file once, as places in the part."""
    start, end = number, number + 1
    while content.count("\n".join(lines[start:end])) > 1 and (start > 0 or end < len(lines)):
        start, end = max(start - 1, 0), min(end + 1, len(lines))
    return start, end


_HEAD = re.compile(r"\s*(?:async )?def \w")


def prefix_of_rewrite(shown: str, placeholder: str) -> str:
    """The lines above the one that stands for what is to be written; "" where nothing is said there of
    the function: below a bare head a model puts a docstring of its own, which takes as long."""
    lines = shown.split("\n")
    at = next((number for number, line in enumerate(lines) if line.strip() == placeholder), 0)
    return _told(lines[:at])


def prefix_of_stub(path: str, content: str) -> str:
    """The same of a file of Python that ends with a function that is still to be written, and has no other."""
    lines = content.rstrip().split("\n")
    return _told(lines[:-1]) if path.endswith(".py") and body_to_write(lines) == len(lines) - 1 else ""


def _told(lines: list[str]) -> str:
    """The lines with what they say of the function: Python says it below the head, other languages above; so does a
    Python file that has a comment or a text right above it."""
    said = len(lines) > 1 and (not lines[-1].rstrip().endswith(":") or _said_above(lines))
    return "\n".join(lines) + "\n" if said else ""


def _said_above(lines: list[str]) -> bool:
    head = max((number for number, line in enumerate(lines) if _HEAD.match(line)), default=0)
    above = [line.strip() for line in lines[:head] if line.strip() and not line.lstrip().startswith("@")]
    return bool(above) and above[-1].startswith(("#", '"""', "'''")) | above[-1].endswith(('"""', "'''"))
