"""llama.cpp's /infill: a model that was trained to fill in the middle continues one side of a gap up to the other.

Stands on http.py, beside openai.py: the same server, another question. The server knows the model's own marks for the
two sides, cuts what is too long, and refuses models that have none. One line: it ends with the first line's end.
"""

from __future__ import annotations

import json

from pydantic import BaseModel, ConfigDict, ValidationError

from fugu_cli.agents.access import Access
from fugu_cli.agents.http import Connection, Json
from fugu_cli.agents.sse import Heard, ServerEvent
from fugu_cli.errors import AgentError
from fugu_cli.messages import Gap, Prompt, Reply, Usage


class _Timings(BaseModel):
    """Tokens: of the prompt read from the cache, read anew, written."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    cache_n: int = 0
    prompt_n: int = 0
    predicted_n: int = 0


class _Answer(BaseModel):
    """The parts of the server's answer that count here."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    content: str
    stop_type: str = ""
    timings: _Timings = _Timings()


async def fill(connection: Connection, access: Access, prompt: Prompt, gap: Gap) -> Reply:
    """The line as the model would write it, without what stands before it. Raises AgentError."""
    heard: list[_Answer] = []

    def take(event: ServerEvent) -> Heard:
        heard.append(_parsed(event.data, access))
        return Heard.SAID

    await connection.post("/infill", _payload(prompt, gap), take)
    if not heard:
        raise AgentError(f"{access.name}: the server ended without an answer", kind="network", retry=True)
    answer = heard[-1]
    took = answer.timings
    return Reply(
        text=answer.content,
        usage=Usage(input=took.cache_n + took.prompt_n, cached=took.cache_n, output=took.predicted_n),
        model=access.model,
        stop="length" if answer.stop_type == "limit" else "end",
    )


def _payload(prompt: Prompt, gap: Gap) -> Json:
    return {
        "input_prefix": gap.before,
        "input_suffix": gap.after,
        "n_predict": prompt.max_tokens,
        "stop": ["\n"],
        "temperature": prompt.temperature or 0.0,
        "cache_prompt": True,
        **({"seed": prompt.seed} if prompt.seed is not None else {}),
    }


def _parsed(data: str, access: Access) -> _Answer:
    try:
        return _Answer.model_validate(json.loads(data))
    except (ValueError, ValidationError) as error:
        raise AgentError(
            f"{access.name}: /infill answered with something else: {data[:200]}", kind="protocol"
        ) from error
