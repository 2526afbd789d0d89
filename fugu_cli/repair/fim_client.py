"""Filling in the middle: a model that was trained to do so continues one side of a gap up to the
other.

Stands on http_client.py, beside chat_completions.py: the same llama.cpp, asked by /completion,
without a chat around the text. Its own /infill puts a project and a file's name before it, with
which a 0.5b filled in fewer lines right. One line is asked for: the answer ends where the line
does.
"""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from fugu_cli.errors import AgentError
from fugu_cli.messages import InfillHole, Prompt, Reply, Usage
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import HttpConnection, Json, ReplyProgress, ServerEvent
from fugu_cli.system.bounded_json import parse_json

BEFORE, AFTER, MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
"""The marks of Qwen2.5-Coder (arXiv 2409.12186, section 2.2) and of models that took them over."""


class _Timings(BaseModel):
    """Tokens: of the prompt read from the cache, read again, written."""

    cache_n: int = 0
    prompt_n: int = 0
    predicted_n: int = 0


class _Answer(BaseModel):
    """The parts of the server's answer that count here."""

    content: str
    stop_type: str = ""
    timings: _Timings = _Timings()


async def fill_in_middle(
    connection: HttpConnection, access: ModelEndpoint, prompt: Prompt, gap: InfillHole
) -> Reply:
    """The line as the model would write it, without what stands before it. Raises AgentError."""
    heard: list[_Answer] = []

    def take(event: ServerEvent) -> ReplyProgress:
        heard.append(_parsed(event.data, access))
        return ReplyProgress.SAID

    await connection.post("/completion", _payload(prompt, gap), take)
    if not heard:
        raise AgentError(
            f"{access.name}: the server ended without an answer", kind="network", retry=True
        )
    answer = heard[-1]
    took = answer.timings
    return Reply(
        text=answer.content,
        usage=Usage(
            input=took.cache_n + took.prompt_n, cached=took.cache_n, output=took.predicted_n
        ),
        model=access.model,
        stop="length" if answer.stop_type == "limit" else "end",
    )


def _payload(prompt: Prompt, gap: InfillHole) -> Json:
    return {
        "prompt": f"{BEFORE}{gap.before}{AFTER}{gap.after}{MIDDLE}",
        "n_predict": prompt.max_tokens,
        "stop": ["\n"],
        "temperature": prompt.temperature or 0.0,
        "cache_prompt": True,
        **({"seed": prompt.seed} if prompt.seed is not None else {}),
    }


def _parsed(data: str, access: ModelEndpoint) -> _Answer:
    try:
        return _Answer.model_validate(parse_json(data))
    except (ValueError, ValidationError) as error:
        raise AgentError(
            f"{access.name}: /completion answered with something else: {data[:200]}",
            kind="protocol",
        ) from error
