"""What a model wrote of the shown part of a long file, cut to what takes the part's place there, and indented like it.

Stands beside merging.py, under the text protocol. Pure. Of what else an answer holds (a class around the method, calls
that try it out, exports) nothing goes into the file but the imports it lacks (of names that only the answer uses, or
that the tests' output misses) and, in languages of braces, the helpers it calls. Where the answer does not have the
part's function, all of it takes the place.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence

from fugu_cli.code_blocks import alike, blocks, parses
from fugu_cli.messages import FromUser, Prompt
from fugu_cli.repair import functions
from fugu_cli.repair.elided import filled, readable, stands_in
from fugu_cli.repair.merging import mended
from fugu_cli.repair.python_code import Definition, Import, span
from fugu_cli.repair.trying_out import asked_only

_BRACES_IMPORT = re.compile(r"use\s+[\w:]+.*;|import\b.*|(?:const|let|var)\b.*\brequire\(.*")
_CALLED = re.compile(r"\b(\w+)\s*\(")
_INSIDE = re.compile(r"(?!import\b)")
"""Of imports in languages of braces, those that may stand in a function."""


def meant(text: str, part: str) -> tuple[str, bool]:
    """The body most like `part`, however it is indented, else the longest, and whether it is whole; ("", True) without
    one."""
    bare = _moved(part, "")
    best = max(
        blocks(text), key=lambda one: (max(alike(part, one.body), alike(bare, one.body)), len(one.body)), default=None
    )
    return (best.body, best.closed) if best else ("", True)


def in_place(prompt: Prompt, body: str) -> list[tuple[str, str]]:
    """Old and new text of what `body` changes of the prompt's part; [] where it is empty, or is to be Python and cannot
    be read."""
    written = body.strip("\n")
    if not written.strip():
        return []
    part = _moved(prompt.part, "")
    if not prompt.target.endswith((".py", ".pyi")):
        text = _in_braces(prompt.part, written) or _moved(written, _margin(prompt.part))
        known = {line.strip() for line in part.split("\n")}
        left = (line.strip() not in known and stands_in(line, sure=True) for line in text.split("\n"))
        return [] if any(left) else [(prompt.part, text)]
    written = readable(part, written)
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
        rest = asked_only(part, _moved(written, ""), said) if prompt.judged else written
        return [(prompt.part, _moved(rest.strip("\n"), margin))] if rest.strip() else []
    there = _shown_above(prompt.part, said)
    imports = [line for line in _imports(new, written, found, known) if line not in there]
    texts = [_text(node, written) for node in found]
    plain = "\n\n\n".join(_moved(text, "") for text in texts)
    answer = filled(part, plain)[0]
    asked = asked_only(part, answer, said).rstrip("\n") if prompt.judged else answer
    if not margin:
        above = [*imports, "", ""] if imports else []
        first = _text(old.body[0], part)
        return mended(part, "\n".join([*above, asked])) or [(first, "\n".join([*above, first]))]
    if asked == plain and not imports:
        return [(prompt.part, _moved(texts[0], margin))]
    return [(prompt.part, _moved(_with_imports(asked, imports), margin))]


def _named(module: ast.Module, name: str, written: str, part: str) -> Definition | None:
    """The definition of that name: the last of the module, else the one inside another that is most like `part`."""
    top = [node for node in module.body if isinstance(node, Definition) and node.name == name]
    inner = [node for node in ast.walk(module) if isinstance(node, Definition) and node.name == name]
    return top[-1] if top else max(inner, key=lambda node: alike(part, _moved(_text(node, written), "")), default=None)


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
    place = (node.body[0].end_lineno or 0) if told else span(node.body[0])[0]
    indent = " " * node.body[0].col_offset if "\t" not in _margin(lines[node.body[0].lineno - 1]) else "\t"
    return "\n".join([*lines[:place], *(indent + line for line in imports), *lines[place:]])


def _text(node: ast.stmt, text: str) -> str:
    return "\n".join(text.split("\n")[slice(*span(node))])


def _in_braces(part: str, written: str) -> str:
    """The part's function as `written` has it, below the comment that it had where it has none; "" where it is not
    found, or not to its end."""
    shown, lines = part.split("\n"), written.split("\n")
    name = next((span[0] for span in functions.in_braces(shown)), "")
    found = ["\n".join(lines[start:end]) for own, start, end in functions.in_braces(lines) if own == name]
    found = [text for text in found if text.count("{") == text.count("}")]
    if not found:
        return ""
    best = max(reversed(found), key=lambda text: alike(_moved(part, ""), _moved(text, "")))
    above = next(number for number, line in enumerate(shown) if functions.head(line) == name)
    own = _moved(best, _margin(part)).split("\n")
    head = next(number for number, line in enumerate(own) if functions.head(line) == name)
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
    every = [(name, "\n".join(lines[start:end])) for name, start, end in functions.in_braces(lines)]
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
