"""What an agent can do, found by asking it: does it answer, stream, call tools, keep to a schema, fill in a line.

Under `fugu pool check`. A few small calls to the bare agent, without the wrapper of its protocol: the point is to learn
which protocol it could speak. Must not know providers.
"""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass

from fugu_cli.agents import Agent, Pause, Say
from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Gap, Prompt, Reply, ToolSpec

LIMIT = 200
"""Tokens of a probe's reply: a model that runs on to it has not understood."""
THOUGHT = 4096
"""Tokens of a second try, where the first was used up before a word of the answer: a model that reasons first."""
TOOL = ToolSpec(
    name="add_numbers",
    description="Add two whole numbers and return the sum.",
    parameters='{"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, '
    '"required": ["a", "b"]}',
)
SCHEMA = (
    '{"type": "object", "properties": {"capital": {"type": "string"}}, "required": ["capital"], '
    '"additionalProperties": false}'
)


HOLE = Gap(
    before="def double(number):\n    return ",
    after="\n\n\nassert double(21) == 42\n",
    number=1,
    start=1,
    end=2,
    place="double.py:2",
)
FILLED = re.compile(r"number ?\* ?2|2 ?\* ?number|number ?\+ ?number|number << 1")


@dataclass(frozen=True)
class Probe:
    """What was found. Seconds of the first call; with `failure`, a call failed and the rest is unknown."""

    streams: bool = False
    tools: bool = False
    schema: bool = False
    first: float = 0.0
    seconds: float = 0.0
    output: int = 0
    fills: bool | None = None
    """None: not asked for."""
    failure: str = ""

    @property
    def speed(self) -> float:
        """Tokens a second once it has begun; 0 where there is too little to tell."""
        writing = self.seconds - self.first
        return self.output / writing if writing > 0.05 and self.output > 1 else 0.0


async def probe(agent: Agent, *, fills: bool = False) -> Probe:
    """Three calls, one after the other, and one more where the agent is said to fill in lines. Failures are part of the
    answer and never raised."""
    started = time.monotonic()
    pieces: list[float] = []
    try:
        prompt = Prompt(
            system="You answer briefly.",
            messages=(FromUser(text="Write the numbers from 1 to 10, separated by commas."),),
            max_tokens=LIMIT,
        )
        reply = await _asked(agent, prompt, lambda text: pieces.append(time.monotonic() - started))
        seconds = time.monotonic() - started
        return Probe(
            streams=len(pieces) > 1,
            tools=await _calls_tools(agent),
            schema=await _keeps_schema(agent),
            fills=await _fills_in(agent) if fills else None,
            first=pieces[0] if pieces else seconds,
            seconds=seconds,
            output=reply.usage.output,
        )
    except AgentError as error:
        return Probe(failure=f"{error}" + (f"; {error.hint}" if error.hint else ""))


async def _asked(agent: Agent, prompt: Prompt, say: Say) -> Reply:
    reply = await agent.reply(prompt, say, _nobody)
    if reply.stop == "length" and not reply.text and not reply.calls:
        return await agent.reply(prompt.model_copy(update={"max_tokens": THOUGHT}), say, _nobody)
    return reply


def _unable(error: AgentError) -> bool:
    """The server does not take such a request. Whatever else went wrong says nothing of what it can do."""
    return error.kind in ("invalid", "absent", "protocol")


async def _calls_tools(agent: Agent) -> bool:
    prompt = Prompt(
        system="Use the tools you are given.",
        messages=(FromUser(text="What is 18 + 24? Use the tool."),),
        tools=(TOOL,),
        max_tokens=LIMIT,
    )
    try:
        reply = await _asked(agent, prompt, _unheard)
        return any(json.loads(call.arguments) == {"a": 18, "b": 24} for call in reply.calls)
    except AgentError as error:
        if not _unable(error):
            raise
        return False
    except ValueError:
        return False


async def _keeps_schema(agent: Agent) -> bool:
    prompt = Prompt(
        system="You answer in JSON.",
        messages=(FromUser(text="What is the capital of France?"),),
        max_tokens=LIMIT,
        reply_schema=SCHEMA,
    )
    try:
        reply = await _asked(agent, prompt, _unheard)
        return list(json.loads(reply.text)) == ["capital"]
    except AgentError as error:
        if not _unable(error):
            raise
        return False
    except (ValueError, TypeError):
        return False


async def _fills_in(agent: Agent) -> bool:
    prompt = Prompt(system="", messages=(FromUser(text=f"{HOLE.before}...{HOLE.after}"),), max_tokens=64, gap=HOLE)
    try:
        reply = await agent.reply(prompt, _unheard, _nobody)
        return FILLED.search(reply.text) is not None
    except AgentError as error:
        if not _unable(error):
            raise
        return False


def _unheard(text: str) -> None:
    del text


def _nobody(pause: Pause) -> None:
    del pause
