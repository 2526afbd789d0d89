"""Some functions of a file become the file again: small models leave out what they do not change."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from fugu_cli.repair import code_structure
from fugu_cli.repair.code_structure import (
    Definition,
    Function,
    Import,
    fill_elisions,
    is_elision,
    is_main,
    line_span,
    pair_definitions,
    parse_python,
    with_parsable_elisions,
)

_IMPORT = re.compile(r"\s*(?:(?:import|use|#include|package|using)\b|(?:const|let|var)\b.*\brequire\()")
_PACKAGE = re.compile(r"\s*package\b")
_ABOVE = re.compile(r"\s*(?://|/\*|\*|#\[|@)")
_CLOSING = re.compile(r"\s*[)\]}]")
_RECEIVER = re.compile(r"\s*func\s+\(\s*\w*\s*\*?\s*([\w.]+)")
_HELD = re.compile(
    r"\s*(?:(?:export|default|pub(?:\([^)]*\))?|abstract|static|public|private|protected|final|declare|data|unsafe)\s+)*"
    r"(class|struct|enum|trait|interface|impl|mod|type|namespace|record|object|protocol|extension)\b\s*([^{;=]*)"
)
_NAMED = re.compile(
    r"\s*(?:(?:export|default|pub(?:\([^)]*\))?|static|public|private|protected|final)\s+)*"
    r"(?:const|let|var|static|val)\s+(?:mut\s+)?(\w+)"
)
_EXPORT = re.compile(r"module\.exports\b|export (?:default\b|\{)|['\"]use strict")
_BINDING = frozenset(
    {
        "import",
        "use",
        "include",
        "package",
        "const",
        "let",
        "var",
        "require",
        "from",
        "as",
        "pub",
        "crate",
        "self",
        "std",
    }
)
_CALL = re.compile(r"[\w.]+\(")
MERGED = frozenset({"class", "impl", "mod", "trait", "interface", "namespace", "object", "extension"})
"""Kinds of pieces whose members are merged one by one."""


@dataclass(frozen=True)
class Declaration:
    """Lines `start` to `end`, from 0; its head is on the line `head`. `kind` and `name` say what it declares."""

    kind: str
    name: str
    start: int
    head: int
    end: int

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return self.kind, self.name


def complete_brace_file(shown: str, body: str) -> str:
    """`body` with what it leaves out of the file `shown`; as it is where it leaves nothing out, or is no part of it;
    and `shown` where it only stands in for something that cannot be put back."""
    lines, written = shown.split("\n"), body.split("\n")
    known = {line.strip() for line in lines}
    inside = {
        number for _, start, end in code_structure.brace_functions(written) for number in range(start + 1, end - 1)
    }
    marks = {n for n, line in enumerate(written) if line.strip() not in known and is_elision(line, sure=n in inside)}
    marks -= {n for n in marks - inside if not _declared(_pieces(lines)) and not written[n].strip(" .…")}
    kept = [line for number, line in enumerate(written) if number not in marks - inside]
    merged = _merge_braces(lines, kept, whole=not marks)
    if merged is not None and not any(n in inside and written[n] in merged for n in marks):
        return "\n".join(merged)
    return shown if marks else body


def _merge_braces(lines: list[str], written: list[str], *, whole: bool = True) -> list[str] | None:
    """None where there is nothing to merge: `written` may be the `whole` file, and leaves nothing out."""
    old, new = _pieces(lines), _pieces(written)
    before, after = _declared(old), _declared(new)
    both = [key for key in before if key in after]
    if len(before) < _count(old) or len(after) < _count(new):
        return None
    if not both:
        return _into_one(lines, old, written, new)
    texts = {key: _replaced_declaration(lines, before[key], written, after[key]) for key in both}
    bare = [key for key in both if texts[key] != written[after[key].start : after[key].end]]
    if whole and not (before.keys() - after.keys() or bare or _lacks(lines, old, written, new)):
        return None
    known = {_text(lines, piece) for piece in old}
    others = [piece for piece in new if piece.kind == "other" and _text(written, piece) not in known]
    if not all(_EXPORT.match(written[piece.head]) or _CALL.match(written[piece.head]) for piece in others):
        return None
    fresh = [piece for piece in new if piece.key not in before and piece.kind not in ("other", "import")]
    added = [piece for piece in fresh if piece.kind != "constant"]
    last = max(before[key].end for key in both)
    result = list(lines)
    first = {key: (before[key].start, before[key].end) for key in both}
    result[last:last] = [line for piece in added for line in ("", *written[piece.start : piece.end])]
    for key, (start, end) in sorted(first.items(), key=lambda one: -one[1][0]):
        result[start:end] = texts[key]
    packaged = any(_PACKAGE.match(lines[piece.head]) for piece in old)
    imports = [
        piece
        for piece in new
        if piece.kind == "import"
        and _text(written, piece) not in known
        and not (packaged and _PACKAGE.match(written[piece.head]))
    ]
    top = min(before[key].start for key in both)
    place = max((piece.end for piece in old if piece.kind == "import" and piece.end <= top), default=0)
    constants = [line for piece in fresh if piece.kind == "constant" for line in written[piece.start : piece.end]]
    above = [line for piece in imports for line in written[piece.head : piece.end]]
    if constants:
        above += ["", *constants] if place else [*constants, ""]
    result[place:place] = above
    return result


def _lacks(
    lines: Sequence[str], old: Sequence[Declaration], written: Sequence[str], new: Sequence[Declaration]
) -> bool:
    """`new` holds definitions and nothing else, where `old` has imports, exports or code that runs; or it uses a name
    that only `old` imports."""
    others = [
        piece for piece in new if piece.kind == "import" or (piece.kind == "other" and not _tries(written, piece))
    ]
    if not others:
        return any(piece.kind in ("import", "other") for piece in old)
    imported = _words(lines, [piece for piece in old if piece.kind == "import"])
    own = _words(written, [piece for piece in new if piece.kind == "import"]) | {piece.name for piece in new}
    used = _words(written, [piece for piece in new if piece.kind != "import"])
    return bool((imported & used) - own - _BINDING)


def _tries(lines: Sequence[str], piece: Declaration) -> bool:
    return _CALL.match(lines[piece.head]) is not None


def _words(lines: Sequence[str], pieces: Sequence[Declaration]) -> set[str]:
    return {word for piece in pieces for word in re.findall(r"\w+", "\n".join(lines[piece.head : piece.end]))}


def _into_one(
    lines: list[str], old: Sequence[Declaration], written: list[str], new: Sequence[Declaration]
) -> list[str] | None:
    """Functions alone that are all members of one class or block of the file go into it."""
    wanted = {piece.name for piece in new if piece.kind == "function"}
    if not wanted or len(wanted) < len(new):
        return None
    for piece in old:
        inside = lines[piece.head + 1 : piece.end - 1]
        members, depth = _dedented(inside)
        if piece.kind in MERGED and wanted <= {one.name for one in _pieces(members) if one.kind == "function"}:
            merged = _merge_braces(members, _dedented(written)[0])
            if merged is not None:
                full = [depth + line if line.strip() else line for line in merged]
                return [*lines[: piece.head + 1], *full, *lines[piece.end - 1 :]]
    return None


def _replaced_declaration(
    lines: Sequence[str], was: Declaration, written: Sequence[str], now: Declaration
) -> list[str]:
    """The lines of `now` with the comment of `was`, where it has none, and with the members that it leaves out."""
    if was.kind not in MERGED and _elided(written[now.head + 1 : now.end]):
        own = lines[was.head + 1 : was.end]
        return list(written[now.start : now.end] if _elided(own) else lines[was.start : was.end])
    above = list(written[now.start : now.head]) or list(lines[was.start : was.head])
    inside = list(written[now.head : now.end])
    if was.kind in MERGED and was.end - was.head > 2:
        members = _inside(lines[was.head + 1 : was.end - 1], written[now.head + 1 : now.end - 1])
        inside = inside if members is None else [inside[0], *members, inside[-1]]
    return [*above, *inside]


def _elided(lines: Sequence[str]) -> bool:
    """Of a function's lines below its head, one stands for others, or all that are no brackets do."""
    said = [line for line in lines if line.strip(" \t()[]{};,")]
    return any(is_elision(line, sure=True) for line in lines) or (bool(said) and all(map(is_elision, said)))


def _inside(lines: Sequence[str], written: Sequence[str]) -> list[str] | None:
    """The members of a piece, merged as those of a file are."""
    (old, depth), (new, _) = _dedented(lines), _dedented(written)
    before, after = _pieces(old), _pieces(new)
    members = {piece.key for piece in before}
    if after and all(piece.kind == "function" and piece.key not in members for piece in after):
        return [depth + line if line.strip() else line for line in [*old, "", *new]]
    merged = _merge_braces(old, new)
    return None if merged is None else [depth + line if line.strip() else line for line in merged]


def _dedented(lines: Sequence[str]) -> tuple[list[str], str]:
    full = [line for line in lines if line.strip()]
    width = min((len(line) - len(line.lstrip()) for line in full), default=0)
    return [line[width:] for line in lines], full[0][:width] if full else ""


def _pieces(lines: Sequence[str]) -> list[Declaration]:
    found: list[Declaration] = []
    number = 0
    while number < len(lines):
        if not lines[number].strip():
            number += 1
            continue
        start = number
        while number < len(lines) and (
            _ABOVE.match(lines[number]) or (number > start and _commented(lines, start, number))
        ):
            number += 1
        if number == len(lines) or not lines[number].strip():
            found.append(Declaration("other", "", start, start, number))
            continue
        head, number = number, number + 1
        while number < len(lines) and _goes_on(lines, head, number):
            number += 1
        while number > head + 1 and not lines[number - 1].strip():
            number -= 1
        found.append(Declaration(*_declares(lines[head]), start, head, number))
    return found


def _commented(lines: Sequence[str], start: int, number: int) -> bool:
    """The line is inside a comment that begins with a star and is not closed yet."""
    text = "\n".join(lines[start:number])
    return text.rfind("/*") > text.rfind("*/")


def _goes_on(lines: Sequence[str], head: int, number: int) -> bool:
    """The line belongs to the piece that began on the line `head`: it is indented, empty, or closes what is open."""
    line = lines[number]
    if not line.strip() or line[0].isspace():
        return True
    return _CLOSING.match(line) is not None and not _closed(lines, head, number)


def _closed(lines: Sequence[str], head: int, number: int) -> bool:
    before = next((lines[n] for n in range(number - 1, head - 1, -1) if lines[n].strip()), "")
    return number - 1 > head and not before[:1].isspace() and before.rstrip().endswith(("}", "};"))


def _declares(line: str) -> tuple[str, str]:
    """Kind and name of what begins on this line; "other" and the line where it declares nothing."""
    if _IMPORT.match(line):
        return "import", line.strip()
    if held := _HELD.match(line):
        return held[1], " ".join(held[2].split())
    if name := code_structure.function_name_on(line):
        receiver = _RECEIVER.match(line)
        return "function", f"{receiver[1]}.{name}" if receiver else name
    if named := _NAMED.match(line):
        return "constant", named[1]
    return "other", line.strip()


def _declared(pieces: Sequence[Declaration]) -> Mapping[tuple[str, str], Declaration]:
    return {piece.key: piece for piece in pieces if piece.kind not in ("other", "import")}


def _count(pieces: Sequence[Declaration]) -> int:
    return sum(piece.kind not in ("other", "import") for piece in pieces)


def _text(lines: Sequence[str], piece: Declaration) -> str:
    return "\n".join(line.strip() for line in lines[piece.head : piece.end])


Assignment = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class LineReplacement:
    """Lines `start` to `end` of the file, from 0, and what stands there instead."""

    start: int
    end: int
    lines: list[str]


def complete_file(shown: str, body: str) -> str:
    """`body` with what it leaves out of the file `shown`: its definitions, or some of them, put into the file; the
    docstring on top. As it is where nothing is left out, and `shown` where what it only stands in for is not found."""
    old, new = parse_python(shown), parse_python(body)
    if old is None and new is None:
        return complete_brace_file(shown, body)
    body = with_parsable_elisions(shown, body) if old is not None else body
    new = parse_python(body)
    if old is None or new is None:
        known = {line.strip() for line in shown.split("\n")}
        told = [line for line in body.split("\n") if line.strip() not in known and line.strip(" .…")]
        return shown if any(is_elision(line, sure=True) for line in told) else body
    fitted = _with_the_files_indentation(shown, body)
    whole, elided = fill_elisions(shown, fitted)
    if whole != fitted:
        body, new = whole, ast.parse(whole)
    if not any(isinstance(node, Definition) for node in new.body):
        return shown if elided else body
    if not elided and not _leaves_out(old.body, new.body) and not _needs(old, new):
        bare = ast.get_docstring(old) is not None and ast.get_docstring(new) is None
        head = shown.split("\n")[: line_span(old.body[0])[1]] if bare else []
        return "\n".join([*head, "", body.lstrip("\n")]) if head else body
    pairs = pair_definitions(old.body, new.body)[0]
    if not pairs and not all(isinstance(node, Definition | Import) or _is_text(node) for node in new.body):
        return body  # another file, and not a part of this one
    fitted = _with_the_files_indentation(shown, body)
    merged = _merge_python(shown, fitted) if fitted != body else _merge_python(shown, body)
    return fill_elisions(shown, merged)[0] if parse_python(merged) is not None else body


def _merge_python(shown: str, body: str) -> str:
    old, new = ast.parse(shown), ast.parse(body)
    pairs, added = pair_definitions(old.body, new.body)
    edits = [edit for node, other in pairs for edit in _replaced_definition(node, other, shown, body)]
    lines = shown.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    end = len(lines)
    below = max((line_span(node)[1] for node in old.body if isinstance(node, Definition)), default=end)
    for node in added:
        member = _member(old, node, shown, body)
        if member is None:
            edits.append(LineReplacement(below, below, ["", "", *_lines(node, body)]))
        else:
            indent = " " * member.col_offset if lines[member.lineno - 1].startswith(" ") else "\t"
            edits.append(
                LineReplacement(
                    *line_span(member), [indent + line if line.strip() else line for line in _lines(node, body)]
                )
            )
    edits += _imported(old, new, shown, body)
    edits += _assigned(old.body, new.body, _below_imports(old), body)
    edits += [LineReplacement(end, end, ["", "", *_lines(node, body)]) for node in _kept_besides(old, new)]
    edits += [LineReplacement(*line_span(was), _lines(node, body)) for was, node in _main_blocks(old, new)]
    return "\n".join(_edited(lines, edits)) + "\n" * shown.endswith("\n")


def _member(module: ast.Module, node: Definition, shown: str, body: str) -> Definition | None:
    """The method of the file that is meant by a function that takes `self` or `cls` and stands in no class: of several
    of its name the one most like it."""
    taken = node.args.args[:1] if isinstance(node, Function) else []
    if not taken or taken[0].arg not in {"self", "cls"}:
        return None
    classes = [other for other in module.body if isinstance(other, ast.ClassDef)]
    found = [one for held in classes for one in held.body if isinstance(one, Definition) and one.name == node.name]
    if len(found) < 2:
        return next(iter(found), None)
    written = [line.strip() for line in _lines(node, body)]
    likeness = [SequenceMatcher(None, [t.strip() for t in _lines(one, shown)], written).ratio() for one in found]
    best = max(likeness)
    return found[likeness.index(best)] if likeness.count(best) == 1 else None


def _edited(lines: list[str], edits: Sequence[LineReplacement]) -> list[str]:
    """From the end, so that the lines before stay where they are; at one place in the order given, and above what is
    replaced there."""
    for _, edit in sorted(enumerate(edits), key=lambda one: (-one[1].start, one[1].start == one[1].end, -one[0])):
        lines[edit.start : edit.end] = edit.lines
    return lines


def changed_definitions(part: str, body: str) -> list[tuple[str, str]]:
    """Old and new text of each definition in `part` that `body` rewrites, its imports above the first; [] where
    none is found. What else `body` holds is left: a copy of what stands elsewhere in the file, or a test."""
    old, new = parse_python(part), parse_python(body)
    if old is None or new is None:
        return []
    imports = [line for node in new.body if isinstance(node, Import) for line in _lines(node, body)]
    found: list[tuple[str, str]] = []
    for node, other in pair_definitions(old.body, new.body)[0]:
        before, after = _lines(node, part), _lines(other, body)
        if before != after:
            above = [*imports, "", ""] if imports and not found else []
            found.append(("\n".join(before), "\n".join([*above, *after])))
    return found


def _leaves_out(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> bool:
    """`new` lacks a definition of `old`, or a member of one of its classes; or it holds definitions and nothing else,
    where `old` has imports, constants or a block that runs."""
    pairs, _ = pair_definitions(old, new)
    defined = [node for node in old if isinstance(node, Definition)]
    if len(pairs) < len(defined) or _bare(old, new):
        return True
    return any(
        isinstance(node, ast.ClassDef) and isinstance(other, ast.ClassDef) and _class_leaves_out(node, other)
        for node, other in pairs
    )


def _needs(old: ast.Module, new: ast.Module) -> bool:
    """`new` uses a name that `old` imports or assigns, and has it from nowhere; or it lacks the block that runs, or all
    that is told below the definitions."""
    given = {name for node in old.body if isinstance(node, Import | Assignment) for name in _bound(node)}
    used = {one.id for one in ast.walk(new) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load)}
    runs, ran = (any(map(is_main, module.body)) for module in (old, new))
    told, tells = (any(map(_is_text, module.body[1:])) for module in (old, new))
    return bool((given & used) - _bound(new)) or (runs and not ran) or (told and not tells)


def _bound(node: ast.AST) -> set[str]:
    """The names that something in it gives a value."""
    found: set[str] = set()
    for one in ast.walk(node):
        if isinstance(one, ast.Name) and not isinstance(one.ctx, ast.Load):
            found.add(one.id)
        elif isinstance(one, ast.alias):
            found.add(one.asname or one.name.partition(".")[0])
        elif isinstance(one, ast.arg):
            found.add(one.arg)
        elif isinstance(one, Definition):
            found.add(one.name)
    return found


def _class_leaves_out(node: ast.ClassDef, other: ast.ClassDef) -> bool:
    told = ast.get_docstring(node) is not None and ast.get_docstring(other) is None
    return told or _leaves_out(node.body, other.body)


def _bare(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> bool:
    return any(map(_stands_by_itself, old)) and not any(map(_stands_by_itself, new))


def _stands_by_itself(node: ast.stmt) -> bool:
    return not isinstance(node, Definition | ast.Pass) and not _is_text(node)


def _replaced_definition(node: Definition, other: Definition, shown: str, body: str) -> Iterator[LineReplacement]:
    """What puts `other` in the place of `node`; of a class that leaves something out, its members."""
    if not (isinstance(node, ast.ClassDef) and isinstance(other, ast.ClassDef) and _class_leaves_out(node, other)):
        yield LineReplacement(*line_span(node), _lines(other, body))
        return
    pairs, added = pair_definitions(node.body, other.body)
    if other.bases or other.keywords or other.decorator_list:
        yield LineReplacement(
            line_span(node)[0],
            line_span(node.body[0])[0],
            body.split("\n")[line_span(other)[0] : line_span(other.body[0])[0]],
        )
    for member, written in pairs:
        yield from _replaced_definition(member, written, shown, body)
    for written in added:
        twins = [member for member in node.body if isinstance(member, Definition) and member.name == written.name]
        end = line_span(twins[-1] if twins else node)[1]
        yield LineReplacement(end, end, ["", *_lines(written, body)])
    first = next((member for member in node.body if isinstance(member, Definition)), None)
    yield from _assigned(node.body, other.body, line_span(first)[0] if first is not None else line_span(node)[1], body)


def _assigned(old: Sequence[ast.stmt], new: Sequence[ast.stmt], place: int, body: str) -> Iterator[LineReplacement]:
    """The assignments of `new`: in the place of the one of that name, and new ones at `place`."""
    known = {_target(node): node for node in old if isinstance(node, Assignment)}
    fresh: list[str] = []
    for node in new:
        if not isinstance(node, Assignment):
            continue
        was = known.get(_target(node))
        if was is None:
            fresh += _lines(node, body)
        elif ast.unparse(was) != ast.unparse(node):
            yield LineReplacement(*line_span(was), _lines(node, body))
    if fresh:
        yield LineReplacement(place, place, [*fresh, ""])


def _target(node: Assignment) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _below_imports(module: ast.Module) -> int:
    """The first line below the docstring and the imports."""
    top = [
        node for number, node in enumerate(module.body) if isinstance(node, Import) or (number == 0 and _is_text(node))
    ]
    place = max((line_span(node)[1] for node in top), default=0)
    first = next((line_span(node)[0] for node in module.body if line_span(node)[0] >= place), place)
    return first if top else 0


def _imported(old: ast.Module, new: ast.Module, shown: str, body: str) -> Iterator[LineReplacement]:
    """What `new` imports and `old` does not: below the imports there are; from the future right below the docstring."""
    known = {ast.unparse(node) for node in old.body}
    wanted = [node for node in new.body if isinstance(node, Import) and ast.unparse(node) not in known]
    text = [node for node in old.body[:1] if _is_text(node)]
    imports = [node for node in old.body if isinstance(node, Import)]
    top = max((line_span(node)[1] for node in text), default=0)
    place = max((line_span(node)[1] for node in imports), default=top)
    for future in (True, False):
        lines = [line for node in wanted if _is_future(node) == future for line in _lines(node, body)]
        at = top if future else place
        above = [""] if lines and text and at == top else []
        below = [""] if lines and at == top and shown.split("\n")[at : at + 1] != [""] else []
        if lines:
            yield LineReplacement(at, at, [*above, *lines, *below])


def _is_future(node: ast.stmt) -> bool:
    return isinstance(node, ast.ImportFrom) and node.module == "__future__"


def _kept_besides(old: ast.Module, new: ast.Module) -> list[ast.stmt]:
    """Of the other statements of `new` those that do more than try out what it defines."""
    known = {ast.unparse(node) for node in old.body}
    own = {node.name for node in new.body if isinstance(node, Definition)} | {"print"}
    found = []
    for node in new.body:
        calls = node.value.func if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) else None
        tries = calls is None or (isinstance(calls, ast.Name) and calls.id in own)
        if not tries and ast.unparse(node) not in known:
            found.append(node)
    return found


def _main_blocks(old: ast.Module, new: ast.Module) -> list[tuple[ast.stmt, ast.stmt]]:
    """The block that runs the file as a program, where both have one and the new one does more than check."""
    before, after = ([node for node in module.body if is_main(node)] for module in (old, new))
    known, fresh = ({node.name for node in module.body if isinstance(node, Definition)} for module in (old, new))
    calls = {f"{name}()" for name in fresh - known}
    checks = after and all(isinstance(one, ast.Assert) or ast.unparse(one) in calls for one in after[0].body)
    return [(before[0], after[0])] if before and after and not checks else []


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _lines(node: ast.stmt, text: str) -> list[str]:
    start, end = line_span(node)
    return text.split("\n")[start:end]


def _with_the_files_indentation(shown: str, body: str) -> str:
    """`body` indented as `shown` is: by tabs, or by as many spaces."""
    wanted, given = _unit(shown), _unit(body)
    if not wanted or not given or wanted == given:
        return body
    lines = []
    for line in body.split("\n"):
        depth = 0
        while line.startswith(given, depth * len(given)):
            depth += 1
        lines.append(wanted * depth + line[depth * len(given) :])
    text = "\n".join(lines)
    return text if parse_python(text) is not None else body


def _unit(text: str) -> str:
    """What one step of its indentation is, as the first one shows."""
    module = parse_python(text)
    blocks = [node.body[0] for node in module.body if isinstance(node, Definition)] if module else []
    inside = next((node for node in blocks if node.col_offset), None)
    return text.split("\n")[line_span(inside)[0]][: inside.col_offset] if inside is not None else ""
