"""Has a reply said all that is wanted of it? What a small model adds to that takes seconds, and nobody reads it.

Under openai.py, for the embedded models: where tokens are not paid for, a reply may be left in its middle. Pure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from fugu_cli.agents.defining import defined
from fugu_cli.agents.fences import blocks
from fugu_cli.messages import Prompt
from fugu_cli.views.outcome import leads_with_accept


def enough(prompt: Prompt, said: Sequence[str]) -> bool:
    """Whether nothing more is wanted after the newest of the pieces: an ACCEPT where that is all that counts, the block
    that the reply began in, or the function that was asked for, in a block that has ended. What was written without it
    may be any beginning."""
    if prompt.verdict:
        return leads_with_accept("".join(said))
    if not (prompt.part or prompt.begun) or not {"`", "\n"} & set(said[-1]):
        return False
    ended = [block.body for block in blocks("".join([prompt.begun, *said])) if block.closed]
    wanted = defined(prompt.target, textwrap.dedent(prompt.part))
    return (
        bool(ended) if prompt.begun else bool(wanted) and any(wanted <= defined(prompt.target, body) for body in ended)
    )
