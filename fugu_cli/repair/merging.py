"""Some functions of a file become the file again: small models leave out what they do not change.

Stands beside written.py, under the text protocol; languages of braces are merged by merging_braces.py. Pure. It adds
and replaces definitions and never takes one away; what cannot be read it leaves alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher

from fugu_cli.repair.elided import filled, readable, stands_in
from fugu_cli.repair.merging_braces import completed_in_braces
from fugu_cli.repair.python_code import Definition, Function, Import, is_main, paired, parsed, span

Assignment = ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Edit:
    """Lines `start` to `end` of the file, from 0, and what stands there instead."""

    start: int
    end: int
    lines: list[str]


def completed(shown: str, body: str) -> str:
    """`body` with what it leaves out of the file `shown`: its definitions, or some of them, put into the file; the
    docstring on top. As it is where nothing is left out, and `shown` where what it only stands in for is not found."""
    old, new = parsed(shown), parsed(body)
    if old is None and new is None:
        return completed_in_braces(shown, body)
    body = readable(shown, body) if old is not None else body
    new = parsed(body)
    if old is None or new is None:
        known = {line.strip() for line in shown.split("\n")}
        told = [line for line in body.split("\n") if line.strip() not in known and line.strip(" .…")]
        return shown if any(stands_in(line, sure=True) for line in told) else body
    fitted = _with_the_files_indentation(shown, body)
    whole, elided = filled(shown, fitted)
    if whole != fitted:
        body, new = whole, ast.parse(whole)
    if not any(isinstance(node, Definition) for node in new.body):
        return shown if elided else body
    if not elided and not _leaves_out(old.body, new.body) and not _needs(old, new):
        bare = ast.get_docstring(old) is not None and ast.get_docstring(new) is None
        head = shown.split("\n")[: span(old.body[0])[1]] if bare else []
        return "\n".join([*head, "", body.lstrip("\n")]) if head else body
    pairs = paired(old.body, new.body)[0]
    if not pairs and not all(isinstance(node, Definition | Import) or _is_text(node) for node in new.body):
        return body  # another file, and not a part of this one
    fitted = _with_the_files_indentation(shown, body)
    merged = _merged(shown, fitted) if fitted != body else _merged(shown, body)
    return filled(shown, merged)[0] if parsed(merged) is not None else body


def _merged(shown: str, body: str) -> str:
    old, new = ast.parse(shown), ast.parse(body)
    pairs, added = paired(old.body, new.body)
    edits = [edit for node, other in pairs for edit in _rewritten(node, other, shown, body)]
    lines = shown.split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    end = len(lines)
    below = max((span(node)[1] for node in old.body if isinstance(node, Definition)), default=end)
    for node in added:
        member = _member(old, node, shown, body)
        if member is None:
            edits.append(Edit(below, below, ["", "", *_lines(node, body)]))
        else:
            indent = " " * member.col_offset if lines[member.lineno - 1].startswith(" ") else "\t"
            edits.append(Edit(*span(member), [indent + line if line.strip() else line for line in _lines(node, body)]))
    edits += _imported(old, new, shown, body)
    edits += _assigned(old.body, new.body, _below_imports(old), body)
    edits += [Edit(end, end, ["", "", *_lines(node, body)]) for node in _kept_besides(old, new)]
    edits += [Edit(*span(was), _lines(node, body)) for was, node in _main_blocks(old, new)]
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


def _edited(lines: list[str], edits: Sequence[Edit]) -> list[str]:
    """From the end, so that the lines before stay where they are; at one place in the order given, and above what is
    replaced there."""
    for _, edit in sorted(enumerate(edits), key=lambda one: (-one[1].start, one[1].start == one[1].end, -one[0])):
        lines[edit.start : edit.end] = edit.lines
    return lines


def mended(part: str, body: str) -> list[tuple[str, str]]:
    """Old and new text of each definition in `part` that `body` writes anew, its imports above the first; [] where none
    is found. What else `body` holds is left: a copy of what stands elsewhere in the file, or a test."""
    old, new = parsed(part), parsed(body)
    if old is None or new is None:
        return []
    imports = [line for node in new.body if isinstance(node, Import) for line in _lines(node, body)]
    found: list[tuple[str, str]] = []
    for node, other in paired(old.body, new.body)[0]:
        before, after = _lines(node, part), _lines(other, body)
        if before != after:
            above = [*imports, "", ""] if imports and not found else []
            found.append(("\n".join(before), "\n".join([*above, *after])))
    return found


def _leaves_out(old: Sequence[ast.stmt], new: Sequence[ast.stmt]) -> bool:
    """`new` lacks a definition of `old`, or a member of one of its classes; or it holds definitions and nothing else,
    where `old` has imports, constants or a block that runs."""
    pairs, _ = paired(old, new)
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


def _rewritten(node: Definition, other: Definition, shown: str, body: str) -> Iterator[Edit]:
    """What puts `other` in the place of `node`; of a class that leaves something out, its members."""
    if not (isinstance(node, ast.ClassDef) and isinstance(other, ast.ClassDef) and _class_leaves_out(node, other)):
        yield Edit(*span(node), _lines(other, body))
        return
    pairs, added = paired(node.body, other.body)
    if other.bases or other.keywords or other.decorator_list:
        yield Edit(span(node)[0], span(node.body[0])[0], body.split("\n")[span(other)[0] : span(other.body[0])[0]])
    for member, written in pairs:
        yield from _rewritten(member, written, shown, body)
    for written in added:
        twins = [member for member in node.body if isinstance(member, Definition) and member.name == written.name]
        end = span(twins[-1] if twins else node)[1]
        yield Edit(end, end, ["", *_lines(written, body)])
    first = next((member for member in node.body if isinstance(member, Definition)), None)
    yield from _assigned(node.body, other.body, span(first)[0] if first is not None else span(node)[1], body)


def _assigned(old: Sequence[ast.stmt], new: Sequence[ast.stmt], place: int, body: str) -> Iterator[Edit]:
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
            yield Edit(*span(was), _lines(node, body))
    if fresh:
        yield Edit(place, place, [*fresh, ""])


def _target(node: Assignment) -> str:
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _below_imports(module: ast.Module) -> int:
    """The first line below the docstring and the imports."""
    top = [
        node for number, node in enumerate(module.body) if isinstance(node, Import) or (number == 0 and _is_text(node))
    ]
    place = max((span(node)[1] for node in top), default=0)
    first = next((span(node)[0] for node in module.body if span(node)[0] >= place), place)
    return first if top else 0


def _imported(old: ast.Module, new: ast.Module, shown: str, body: str) -> Iterator[Edit]:
    """What `new` imports and `old` does not: below the imports there are; from the future right below the docstring."""
    known = {ast.unparse(node) for node in old.body}
    wanted = [node for node in new.body if isinstance(node, Import) and ast.unparse(node) not in known]
    text = [node for node in old.body[:1] if _is_text(node)]
    imports = [node for node in old.body if isinstance(node, Import)]
    top = max((span(node)[1] for node in text), default=0)
    place = max((span(node)[1] for node in imports), default=top)
    for future in (True, False):
        lines = [line for node in wanted if _is_future(node) == future for line in _lines(node, body)]
        at = top if future else place
        above = [""] if lines and text and at == top else []
        below = [""] if lines and at == top and shown.split("\n")[at : at + 1] != [""] else []
        if lines:
            yield Edit(at, at, [*above, *lines, *below])


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
    start, end = span(node)
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
    return text if parsed(text) is not None else body


def _unit(text: str) -> str:
    """What one step of its indentation is, as the first one shows."""
    module = parsed(text)
    blocks = [node.body[0] for node in module.body if isinstance(node, Definition)] if module else []
    inside = next((node for node in blocks if node.col_offset), None)
    return text.split("\n")[span(inside)[0]][: inside.col_offset] if inside is not None else ""
