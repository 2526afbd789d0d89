"""What a model filled in for a line that was left out, or a word of it, becomes an edit of that line.

Stands beside parts.py, under the text protocol. Pure. A line that says the same as before is no change, and one after
which Python cannot be read is none either, nor is more than a word where one was left out: none is worth a run of the
tests.
"""

from __future__ import annotations

import json
import re
import textwrap

from fugu_cli.agents.history import call_id
from fugu_cli.code_blocks import parses
from fugu_cli.messages import Call, Gap, Prompt, Reply

AS_IT_IS = ": as it is"
"""How the text of a reply ends that leaves the line."""


_WORD = re.compile(r"-?\w+(?:(?:\.|::)\w+)*")


def filled(prompt: Prompt, reply: Reply) -> Reply:
    """The reply with the edit of the prompt's gap, without one where it changes nothing; its text says which line."""
    gap = prompt.gap
    assert gap is not None
    lines = prompt.part.split("\n")
    old = lines[gap.number]
    said = reply.text.split("\n")[0].rstrip()
    if gap.head or gap.tail:
        said = _word(said, gap)
        new = f"{gap.head}{said}{gap.tail}"
    else:
        new = said if gap.more else old[: len(old) - len(old.lstrip())] + said.lstrip()
    beside = lines[gap.number : gap.number + 2] if gap.more else [old]
    if not said.strip() or any(_same(prompt.target, line, new) for line in beside):
        return reply.model_copy(update={"text": f"{gap.place}{AS_IT_IS}" if said or gap.more else "", "calls": ()})
    told = f"{gap.place}: `{said.strip()}`"
    written = [old, new] if gap.more else [new]
    whole = "\n".join([*lines[: gap.number], *written, *lines[gap.number + 1 :]])
    broken = prompt.target.endswith((".py", ".pyi")) and not parses(textwrap.dedent(whole))
    broken = broken or (bool(gap.head or gap.tail) and not _fits(said, gap))
    if broken or reply.stop == "length":
        return reply.model_copy(update={"text": told, "calls": ()})
    given = {
        "path": prompt.target,
        "old": "\n".join(lines[gap.start : gap.end]),
        "new": "\n".join([*lines[gap.start : gap.number], *written, *lines[gap.number + 1 : gap.end]]),
    }
    call = Call(id=call_id(prompt, 0), tool="edit", arguments=json.dumps(given, ensure_ascii=False))
    return reply.model_copy(update={"text": told, "calls": (call,), "stop": "calls"})


def _fits(said: str, gap: Gap) -> bool:
    """It is a word or a number; or, between quotes, any text that does not end them."""
    quote = gap.tail[:1]
    quoted = quote in {'"', "'", "`"} and gap.head.endswith(quote)
    return quote not in said if quoted else _WORD.fullmatch(said) is not None


def _word(said: str, gap: Gap) -> str:
    """Without the end of the line, where the model has written that again."""
    rest = gap.tail.strip()
    return (said.rstrip().removesuffix(rest) if rest else said).strip()


def _same(path: str, old: str, new: str) -> bool:
    """Nothing but white space differs, a semicolon at the end, or a comment behind the code."""
    return _code(path, old) == _code(path, new)


def _code(path: str, line: str) -> str:
    mark = "#" if path.endswith((".py", ".pyi", ".rb", ".sh")) else "//"
    code = line.partition(f" {mark}")[0] if not {'"', "'", "`"} & set(line) else line
    return "".join(code.split()).rstrip(";")
