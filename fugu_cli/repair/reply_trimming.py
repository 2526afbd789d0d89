"""What of a reply is used: where it repeats itself or has said enough, without what only tries it out, cut to the
part that was asked for.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Sequence

from fugu_cli.messages import FromUser, Prompt
from fugu_cli.providers.code_blocks import FENCE, Block, blocks, lines_of, parses, similarity
from fugu_cli.repair import code_structure
from fugu_cli.repair.code_structure import (
    Definition,
    Import,
    fill_elisions,
    is_elision,
    line_span,
    parse_python,
    with_parsable_elisions,
)
from fugu_cli.repair.edit_parser import defined_functions
from fugu_cli.repair.partial_files import changed_definitions
from fugu_cli.session.turns import leading_verdict

LINES = 6
"""Of a passage that may be repeated."""
ONCE, SEVERAL = 8, 5
"""How often a line, and a passage of several, stands there in a row: files hold tables, but few so even."""
SHORTEST = 8
"""Characters of a passage: brackets may close in a row."""
_WITHIN = re.compile(r"(?s)(.{2,40}?)\1{24,}.{0,40}\Z")
_TAIL = 1600


def repetition_start(text: str, known: str = "") -> int | None:
    """The place in `text` behind the first of the repetitions in which it ends, None where it does not end in any, or
    `known` (what the model was shown) holds them as well."""
    lines = text.split("\n")
    done, rest = lines[:-1], lines[-1]
    for length in range(1, min(LINES, len(done)) + 1):
        passage = done[-length:]
        if sum(len(line.strip()) for line in passage) < SHORTEST:
            continue
        times = 1
        while done[-length * (times + 1) : -length * times] == passage:
            times += 1
        if times >= (ONCE if length == 1 else SEVERAL) and "\n".join(passage * 3) not in known:
            return len("\n".join(done[: len(done) - length * (times - 1)])) + 1
    found = _WITHIN.search(rest[-_TAIL:])
    if found is None or found.group(1) * 12 in known or not found.group(1).strip():
        return None
    return len(text) - len(rest) + max(len(rest) - _TAIL, 0) + found.end(1)


MOST = 4
"""Stops that every server takes."""
_DEFINES = re.compile(r"\s*(?:async )?(?:def|class) (\w+)")
_STATEMENT = re.compile(r"(?!(?:async|class|def|import|from|else|elif|except|finally)\b)[A-Za-z_]")
"""At the beginning of a line of a module; no definition, no import, and nothing that belongs to a line before."""
_ASSIGNED = re.compile(r"(\w+)\s*(?::[^=]+)?=(?!=)")
_QUOTES = re.compile(r"\"{3}|'{3}")
_TESTED = re.compile(r"^[> ]*def (\w+)\(", re.MULTILINE)
_NAMED = re.compile(r"(?:run_)?(?:tests?|checks?)(?:_\w+)?$|Test[A-Z]\w*$")
_RUNS = frozenset({"unittest.main", "doctest.testmod", "pytest.main"})
Documented = ast.Module | Definition


def self_test_starts(path: str, shown: str, told: str) -> tuple[str, ...]:
    """Texts with which such a part of the file begins: the reply may end there. None is in the code `shown`; some are
    the heads of the tests' own functions, as they stand in `told`, the request with what the tests print. A head that
    the request gives of what is wanted is none: only what is named like a test is."""
    comment = "#" if path.endswith((".py", ".pyi")) else "//"
    marks = [f"\n{comment} Test", f"\n{comment} Example"]
    names = dict.fromkeys(_TESTED.findall(told)) if comment == "#" else {}
    marks += [f"\ndef {name}(" for name in names if _NAMED.match(name) and f"def {name}(" not in shown]
    return tuple(mark for mark in marks if mark not in f"\n{shown}")[:MOST]


def extra_code_start(shown: str, body: str) -> int | None:
    """The line of `body`, whole lines of Python written in the place of `shown`, from which on it goes further than
    that: all that `shown` defines stands before it. None where it does not, and where `shown` ends with statements
    itself, or defines nothing. A name that is used above, or is there, may be given a value."""
    before, wanted = shown.split("\n"), set[str]()
    for line in before:
        wanted |= set(_DEFINES.findall(line))
    last = max((number for number, line in enumerate(before) if _DEFINES.match(line)), default=len(before))
    if not wanted or _statements(before[last:]):
        return None
    lines, seen = body.split("\n"), set[str]()
    fresh = [number for number in _statements(lines) if lines[number].rstrip() not in before]
    for number, line in enumerate(lines):
        if number in fresh and wanted <= seen:
            assigned = _ASSIGNED.match(line)
            if assigned is None or not re.search(rf"\b{assigned[1]}\b", "\n".join([shown, *lines[:number]])):
                return number
        seen |= set(_DEFINES.findall(line))
    return None


def _statements(lines: Sequence[str]) -> list[int]:
    """The lines at which a statement of the module begins, outside of quoted texts."""
    found, quoted = [], False
    for number, line in enumerate(lines):
        if not quoted and _STATEMENT.match(line):
            found.append(number)
        quoted ^= len(_QUOTES.findall(line)) % 2 == 1
    return found


def without_self_tests(shown: str, body: str, said: str = "") -> str:
    """`body`, written in the place of `shown`, with the docstrings of `shown` and without what tries it out. What is
    named in `said`, the request with what the tests print, was asked for."""
    old, new = parse_python(shown), parse_python(body)
    if old is None or new is None:
        return body
    lines, before = body.split("\n"), set(shown.split("\n"))
    gone: set[int] = set()
    for node in _added(old, new, said):
        start, end = line_span(node)
        while start and lines[start - 1] not in before - {""} and re.match(r"#|\s*$", lines[start - 1]):
            start -= 1
        gone |= set(range(start, end))
    for told, was in _told_otherwise(old, new):
        first, last = line_span(told)
        indent = lines[first][: len(lines[first]) - len(lines[first].lstrip())]
        lines[first] = indent + "\n".join(shown.split("\n")[slice(*line_span(was))]).lstrip()
        gone |= set(range(first + 1, last))
    kept = "\n".join(line for number, line in enumerate(lines) if number not in gone)
    return body if kept == body and not body.endswith("\n\n") else f"{kept.rstrip()}\n"


def _added(old: ast.Module, new: ast.Module, said: str) -> list[ast.stmt]:
    """The statements of the module that only try out what it holds, where there were none of their kind."""
    known = {node.name for node in old.body if isinstance(node, Definition)}
    own = {node.name for node in new.body if isinstance(node, Definition)} - known
    kinds = {type(node) for node in old.body if _is_self_test(node, own)}
    found = [node for node in new.body if type(node) not in kinds and _is_self_test(node, own)]
    kept = [node for node in new.body if node not in found]
    for node in kept:
        used = {one.id for other in kept if other is not node for one in ast.walk(other) if isinstance(one, ast.Name)}
        spare = isinstance(node, Definition) and node.name in own and (_NAMED.match(node.name) or _is_case(node))
        if spare and isinstance(node, Definition) and node.name not in used and not _wanted(node.name, said):
            found.append(node)
    return found


def _is_case(node: Definition) -> bool:
    """A class of unittest's, whatever its name."""
    return isinstance(node, ast.ClassDef) and any(ast.unparse(base).endswith("TestCase") for base in node.bases)


def _wanted(name: str, said: str) -> bool:
    """The request or its tests speak of it, and do not define it themselves."""
    own = re.escape(name)
    return re.search(rf"\b{own}\b", said) is not None and not re.search(rf"\b(?:def|class) {own}\b", said)


def _is_self_test(node: ast.stmt, own: set[str]) -> bool:
    """An assertion, or a call of a function of its `own` that checks; also in a loop."""
    if isinstance(node, ast.For):
        return all(_is_self_test(inner, own) for inner in node.body) and not node.orelse
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        called = node.value.func
        checks = isinstance(called, ast.Name) and called.id in own and _NAMED.match(called.id) is not None
        return checks or ast.unparse(called) in _RUNS
    return isinstance(node, ast.Assert)


def _told_otherwise(old: ast.Module, new: ast.Module) -> list[tuple[ast.stmt, ast.stmt]]:
    """The docstring of everything in the module that has another one now, and the one it had: it says what is wanted,
    and its examples may be the tests."""
    before, after = _documented(old), _documented(new)
    both = [(after[name], before[name]) for name in after if name in before]
    return [
        (node.body[0], was.body[0])
        for node, was in both
        if ast.get_docstring(node, clean=False) != ast.get_docstring(was, clean=False)
    ]


def _documented(module: ast.Module) -> dict[str, Documented]:
    """What has a docstring on lines of its own, by its name in the module; what shares its name with another is left
    out."""
    found: dict[str, list[Documented]] = {"": [module]}
    for node in module.body:
        if isinstance(node, Definition):
            found.setdefault(node.name, []).append(node)
        if isinstance(node, ast.ClassDef):
            for member in node.body:
                if isinstance(member, Definition):
                    found.setdefault(f"{node.name}.{member.name}", []).append(member)
    return {name: nodes[0] for name, nodes in found.items() if len(nodes) == 1 and _has_docstring(nodes[0])}


def _has_docstring(node: Documented) -> bool:
    """One that does not stand on the line of the head."""
    return ast.get_docstring(node) is not None and (isinstance(node, ast.Module) or node.body[0].lineno > node.lineno)


def stop_reason(prompt: Prompt, said: Sequence[str], shown: str) -> str:
    """Why nothing more of the reply is wanted after the newest piece of it; "" where it goes on."""
    if is_complete(prompt, said):
        return "stop"
    now = "\n" in said[-1] or not len(said) % 50
    return "length" if now and repetition_start("".join(said), shown) is not None else ""


def is_complete(prompt: Prompt, said: Sequence[str]) -> bool:
    """Whether nothing more is wanted after the newest of the pieces: an ACCEPT where that is all that counts, the block
    that the reply began in, or the function that was asked for, in a block that has ended; or a line that goes further
    than the code that was asked for. What was written without it may be any beginning."""
    if prompt.verdict:
        lead = leading_verdict("".join(said))
        return lead is not None and lead.verdict == "ACCEPT" and bool(lead.rest)  # else a word may go on
    if (
        prompt.stands
        and "\n" in said[-1]
        and first_extending_block(prompt.stands, _whole_lines(prompt.begun, said)) is not None
    ):
        return True
    if not (prompt.part or prompt.begun) or not {"`", "\n"} & set(said[-1]):
        return False
    ended = [block.body for block in blocks("".join([prompt.begun, *said])) if block.closed]
    wanted = defined_functions(prompt.target, textwrap.dedent(prompt.part))
    return (
        bool(ended)
        if prompt.begun
        else bool(wanted) and any(wanted <= defined_functions(prompt.target, body) for body in ended)
    )


def without_extra_code(prompt: Prompt, text: str) -> str:
    """The reply's text without what its code goes on with behind what was asked for, which the block ends before."""
    found = first_extending_block(prompt.stands, text) if prompt.stands else None
    if found is None:
        return text
    block, line = found
    lines = lines_of(text)
    opening = FENCE.fullmatch(lines[block.start].lstrip())
    return "\n".join([*lines[:line], opening.group(1) if opening else "```", *lines[block.end :]])


def first_extending_block(stands: str, text: str) -> tuple[Block, int] | None:
    """The first block of the text that goes further than what `stands` there, and the text's line where it does."""
    for block in blocks(text):
        if (line := extra_code_start(stands, block.body)) is not None:
            return block, block.start + 1 + line
    return None


def _whole_lines(begun: str, said: Sequence[str]) -> str:
    return "".join([begun, *said]).rpartition("\n")[0] + "\n"


_BRACES_IMPORT = re.compile(r"use\s+[\w:]+.*;|import\b.*|(?:const|let|var)\b.*\brequire\(.*")
_CALLED = re.compile(r"\b(\w+)\s*\(")
_INSIDE = re.compile(r"(?!import\b)")
"""Of imports in languages of braces, those that may stand in a function."""


def closest_body(text: str, part: str) -> tuple[str, bool]:
    """The body most like `part`, however it is indented, else the longest, and whether it is whole; ("", True) without
    one."""
    bare = _moved(part, "")
    best = max(
        blocks(text),
        key=lambda one: (max(similarity(part, one.body), similarity(bare, one.body)), len(one.body)),
        default=None,
    )
    return (best.body, best.closed) if best else ("", True)


def part_edits(prompt: Prompt, body: str) -> list[tuple[str, str]]:
    """Old and new text of what `body` changes of the prompt's part; [] where it is empty, or is to be Python and cannot
    be read."""
    written = body.strip("\n")
    if not written.strip():
        return []
    part = _moved(prompt.part, "")
    if not prompt.target.endswith((".py", ".pyi")):
        text = _in_braces(prompt.part, written) or _moved(written, _margin(prompt.part))
        known = {line.strip() for line in part.split("\n")}
        left = (line.strip() not in known and is_elision(line, sure=True) for line in text.split("\n"))
        return [] if any(left) else [(prompt.part, text)]
    written = with_parsable_elisions(part, written)
    bare = _moved(written, "")
    if parses(part) and parses(bare):
        said = "\n".join(message.text for message in prompt.messages if isinstance(message, FromUser))
        return _in_python(prompt, part, written, said)
    return [] if parses(part) else [(prompt.part, _moved(written, _margin(prompt.part)))]


def _in_python(prompt: Prompt, part: str, written: str, said: str) -> list[tuple[str, str]]:
    """`part`: the prompt's, not indented; `said`: what the tests' output stands in."""
    old, new, margin = ast.parse(part), ast.parse(_moved(written, "")), _margin(prompt.part)
    known = _used(old.body) - set(re.findall(r"name '(\w+)' is not defined", said))
    names = [node.name for node in old.body if isinstance(node, Definition)]
    found = [node for name in names if (node := _named(new, name, written, part)) is not None]
    if not found and len([node for node in new.body if isinstance(node, Definition)]) > len(names) > 0:
        return []  # it is another file of those that were shown
    if not found:
        rest = without_self_tests(part, _moved(written, ""), said) if prompt.judged else written
        return [(prompt.part, _moved(rest.strip("\n"), margin))] if rest.strip() else []
    there = _shown_above(prompt.part, said)
    imports = [line for line in _imports(new, written, found, known) if line not in there]
    texts = [_text(node, written) for node in found]
    plain = "\n\n\n".join(_moved(text, "") for text in texts)
    answer = fill_elisions(part, plain)[0]
    asked = without_self_tests(part, answer, said).rstrip("\n") if prompt.judged else answer
    if not margin:
        above = [*imports, "", ""] if imports else []
        first = _text(old.body[0], part)
        return changed_definitions(part, "\n".join([*above, asked])) or [(first, "\n".join([*above, first]))]
    if asked == plain and not imports:
        return [(prompt.part, _moved(texts[0], margin))]
    return [(prompt.part, _moved(_with_imports(asked, imports), margin))]


def _named(module: ast.Module, name: str, written: str, part: str) -> Definition | None:
    """The definition of that name: the last of the module, else the one inside another that is most like `part`."""
    top = [node for node in module.body if isinstance(node, Definition) and node.name == name]
    inner = [node for node in ast.walk(module) if isinstance(node, Definition) and node.name == name]
    return (
        top[-1]
        if top
        else max(inner, key=lambda node: similarity(part, _moved(_text(node, written), "")), default=None)
    )


def _imports(new: ast.Module, written: str, found: Sequence[Definition], known: set[str]) -> list[str]:
    """The imports of the answer that the definitions `found` need, of names that are not `known` to the file."""
    lacking = _used(found) - known
    lines: list[str] = []
    for node in new.body:
        if isinstance(node, Import) and lacking & {one.asname or one.name.partition(".")[0] for one in node.names}:
            lines += _moved(_text(node, written), "").split("\n")
    return lines


def _shown_above(part: str, said: str) -> list[str]:
    """The lines that were shown above the part, in the same block: the file has them."""
    before, found, _ = said.partition("\n" + part.split("\n")[0])
    return before.rpartition("```")[2].split("\n") if found else []


def _used(nodes: Sequence[ast.stmt]) -> set[str]:
    return {one.id for node in nodes for one in ast.walk(node) if isinstance(one, ast.Name)}


def _with_imports(function: str, imports: Sequence[str]) -> str:
    """The function with the imports below its docstring: above it they would stand in a class. As it is where its body
    stands on one line with its head."""
    node, lines = ast.parse(function).body[0], function.split("\n")
    if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) or node.body[0].lineno == node.lineno:
        return function
    told = ast.get_docstring(node) is not None
    place = (node.body[0].end_lineno or 0) if told else line_span(node.body[0])[0]
    indent = " " * node.body[0].col_offset if "\t" not in _margin(lines[node.body[0].lineno - 1]) else "\t"
    return "\n".join([*lines[:place], *(indent + line for line in imports), *lines[place:]])


def _text(node: ast.stmt, text: str) -> str:
    return "\n".join(text.split("\n")[slice(*line_span(node))])


def _in_braces(part: str, written: str) -> str:
    """The part's function as `written` has it, below the comment that it had where it has none; "" where it is not
    found, or not to its end."""
    shown, lines = part.split("\n"), written.split("\n")
    name = next((span[0] for span in code_structure.brace_functions(shown)), "")
    found = ["\n".join(lines[start:end]) for own, start, end in code_structure.brace_functions(lines) if own == name]
    found = [text for text in found if text.count("{") == text.count("}")]
    if not found:
        return ""
    best = max(reversed(found), key=lambda text: similarity(_moved(part, ""), _moved(text, "")))
    above = next(number for number, line in enumerate(shown) if code_structure.function_name_on(line) == name)
    own = _moved(best, _margin(part)).split("\n")
    head = next(number for number, line in enumerate(own) if code_structure.function_name_on(line) == name)
    imports = _missing_in_braces(lines, best, part)
    inside = [line for line in imports if _INSIDE.match(line) and own[head].rstrip().endswith("{")]
    outside = [line for line in imports if line not in inside] if not _margin(part) else []
    indent = _margin(own[head + 1]) if head + 1 < len(own) else ""
    kept = [] if head else shown[:above]
    helpers = _helpers(lines, best, {name, *_CALLED.findall(part)})
    beside = [line for text in helpers for line in ("", *_moved(text, _margin(part)).split("\n"))]
    whole = [*own[: head + 1], *(indent + line for line in inside), *own[head + 1 :]]
    return "\n".join([*outside, *kept, *whole, *beside])


def _helpers(lines: Sequence[str], best: str, known: set[str]) -> list[str]:
    """The functions beside `best` that it or another of them calls, in order, without those of a `known` name."""
    depth = _margin(best)
    every = [(name, "\n".join(lines[start:end])) for name, start, end in code_structure.brace_functions(lines)]
    free = {name: text for name, text in every if name not in known and text != best and _margin(text) == depth}
    wanted, new = set[str](), {best}
    while new:
        called = {name for text in new for name in _CALLED.findall(text)} & free.keys() - wanted
        wanted |= called
        new = {free[name] for name in called}
    return [text for name, text in free.items() if name in wanted and text.count("{") == text.count("}")]


def _missing_in_braces(lines: Sequence[str], best: str, part: str) -> list[str]:
    """The lines that import a name which the function uses now and did not use before."""
    used = set(re.findall(r"\w+", best)) - set(re.findall(r"\w+", part))
    found: list[str] = []
    for line in lines:
        bound = re.split(r"=|\bfrom\b", line)[0].rpartition("::")[2]
        if (
            _BRACES_IMPORT.fullmatch(line)
            and (set(re.findall(r"\w+", bound)) - {"const", "let", "var", "import"}) & used
        ):
            found.append(line)
    return found


def _moved(text: str, margin: str) -> str:
    """`text` indented by `margin` instead of what its first line is indented by. A line that is indented less, in a
    string, stays as it is."""
    own = _margin(text)
    return "\n".join(
        margin + line[len(own) :] if line.strip() and line.startswith(own) else line for line in text.split("\n")
    )


def _margin(text: str) -> str:
    """The white space that the first line begins with."""
    first = text.split("\n", 1)[0]
    return first[: len(first) - len(first.lstrip())]
