"""try_answer: the code of an answer in words, tried with the assertions that the question holds. fugu runs it as
evidence, like the tests; no agent is told of it.

A model wrote the code and nobody was asked about it, so it runs in the sandbox or not at all.
"""

from __future__ import annotations

import ast
import builtins
import json
import re
import secrets
import shlex
from collections.abc import Sequence

from fugu_cli import intent
from fugu_cli.tools import Result, Say, Tool, run_examples
from fugu_cli.tools.bash import outcome
from fugu_cli.tools.clip import clip
from fugu_cli.tools.files import Given
from fugu_cli.tools.process import Around, run_command
from fugu_cli.tools.tests import python_of
from fugu_cli.tools.workspace import Workspace

MOST, LINES = 50, 12
"""Assertions that are taken, and lines that one may have."""
SECONDS = 20.0
NO_SANDBOX = "It was not tried: what a model writes in an answer runs in the sandbox only, and there is none."
_BEGINS = re.compile(r"assert\b|import\s+\w|from\s+\w[\w.]*\s+import\b")
_IN_ANSWER = re.compile(r'"[^"\n]*/answer\.py"')
"""Its place, of which nobody else knows."""


class TryAnswer(Given):
    """Arguments of try_answer: Python code, and the statements that must pass after it."""

    code: str
    assertions: tuple[str, ...]


def to_hold(request: str, workspace: Workspace) -> tuple[str, ...]:
    """What a request that asks for code to be shown says of it; () where that code could not be tried."""
    found = assertions(request) if intent.asks_for_code(request) else ()
    return found if found and _confined(workspace) else ()


def assertions(request: str) -> tuple[str, ...]:
    """The Python assertions of a request that call something which it does not define, with the imports beside them;
    () where there are none. A request that holds more than `MOST` is no question with examples."""
    lines = request.replace("\r\n", "\n").split("\n")
    found: list[ast.stmt] = []
    number = 0
    while number < len(lines):
        length, statement = _statement(lines, number) if _BEGINS.match(lines[number]) else (1, None)
        found += [statement] if statement is not None else []
        number += length
    statements = tuple(map(ast.unparse, found))
    return statements if called(statements) and len(found) <= MOST else ()


def _statement(lines: list[str], start: int) -> tuple[int, ast.stmt | None]:
    """How many lines from `start` on are one statement, and which; one line and None where they are none."""
    for length in range(1, LINES + 1):
        try:
            body = ast.parse("\n".join(lines[start : start + length])).body
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            continue
        wanted = len(body) == 1 and isinstance(body[0], ast.Assert | ast.Import | ast.ImportFrom)
        return length, body[0] if wanted else None
    return 1, None


def called(statements: Sequence[str]) -> tuple[str, ...]:
    """The functions that the assertions call and that neither Python nor an import beside them defines."""
    nodes = [node for statement in statements for node in ast.walk(ast.parse(statement))]
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom)]
    imported = {alias.asname or alias.name for node in imports for alias in node.names}
    names = [node.func.id for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    return tuple(name for name in dict.fromkeys(names) if name not in imported and not hasattr(builtins, name))


async def try_answer(given: TryAnswer, workspace: Workspace, say: Say) -> Result:
    """Load the code, then run each assertion, away from the repository."""
    if not _confined(workspace):
        return Result(text=NO_SANDBOX, ok=False)
    command = f"cd /tmp && exec {python_of(workspace.root)} -I {shlex.quote(run_examples.__file__)} -"
    token = secrets.token_hex(8)
    sent = json.dumps({"code": given.code, "assertions": given.assertions, "token": token}).encode()
    try:
        ended = await run_command(command, workspace.root, SECONDS, say, Around(box=workspace.box, given=sent))
    except OSError as error:
        return Result(text=f"It could not be tried: {error.strerror}.", ok=False)
    printed, _, summed = ended.output.rpartition(token)
    said = _IN_ANSWER.sub('"answer.py"', f"{printed.strip()}\n{summed.strip()}".strip())
    ok = ended.code == 0 and token in ended.output and summed.strip() == run_examples.summary(0, len(given.assertions))
    return Result(text=clip(said) if ok else f"{clip(said)}\n{outcome(ended, SECONDS)}".lstrip(), ok=ok)


def _confined(workspace: Workspace) -> bool:
    return workspace.box is not None and workspace.box.held.kind != "none"


TRY_ANSWER = Tool(name="try_answer", effect="runs", arguments=TryAnswer, run=try_answer)
