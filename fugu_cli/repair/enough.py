"""Has a reply said all that is wanted of it? What a small model adds to that takes seconds, and nobody reads it.

Under openai.py, for the embedded models: where tokens are not paid for, a reply may be left in its middle. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from fugu_cli.code_blocks import FENCE, Block, blocks, lines_of
from fugu_cli.messages import Prompt
from fugu_cli.repair.defining import defined
from fugu_cli.repair.repeating import begins
from fugu_cli.repair.trying_out import beyond
from fugu_cli.views.verdicts import leads_with_accept


def over(prompt: Prompt, said: Sequence[str], shown: str) -> str:
    """Why nothing more of the reply is wanted after the newest piece of it; "" where it goes on."""
    if enough(prompt, said):
        return "stop"
    now = "\n" in said[-1] or not len(said) % 50
    return "length" if now and begins("".join(said), shown) is not None else ""


def enough(prompt: Prompt, said: Sequence[str]) -> bool:
    """Whether nothing more is wanted after the newest of the pieces: an ACCEPT where that is all that counts, the block
    that the reply began in, or the function that was asked for, in a block that has ended; or a line that goes further
    than the code that was asked for. What was written without it may be any beginning."""
    if prompt.verdict:
        return leads_with_accept("".join(said))
    if prompt.stands and "\n" in said[-1] and further(prompt.stands, _whole_lines(prompt.begun, said)) is not None:
        return True
    if not (prompt.part or prompt.begun) or not {"`", "\n"} & set(said[-1]):
        return False
    ended = [block.body for block in blocks("".join([prompt.begun, *said])) if block.closed]
    wanted = defined(prompt.target, textwrap.dedent(prompt.part))
    return (
        bool(ended) if prompt.begun else bool(wanted) and any(wanted <= defined(prompt.target, body) for body in ended)
    )


def kept(prompt: Prompt, text: str) -> str:
    """The reply's text without what its code goes on with behind what was asked for, which the block ends before."""
    found = further(prompt.stands, text) if prompt.stands else None
    if found is None:
        return text
    block, line = found
    lines = lines_of(text)
    opening = FENCE.fullmatch(lines[block.start].lstrip())
    return "\n".join([*lines[:line], opening.group(1) if opening else "```", *lines[block.end :]])


def further(stands: str, text: str) -> tuple[Block, int] | None:
    """The first block of the text that goes further than what `stands` there, and the text's line where it does."""
    for block in blocks(text):
        if (line := beyond(stands, block.body)) is not None:
            return block, block.start + 1 + line
    return None


def _whole_lines(begun: str, said: Sequence[str]) -> str:
    return "".join([begun, *said]).rpartition("\n")[0] + "\n"
