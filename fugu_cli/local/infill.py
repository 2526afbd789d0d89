"""Filling in the middle: a model that was trained to do so continues one side of a gap up to the
other.

llama.cpp is asked by /completion, without a chat around the text. Its own /infill puts a project and
a file's name before it, with which a 0.5b filled in fewer lines right. One line is asked for: the
answer ends where the line does.
"""

from __future__ import annotations

from pydantic import BaseModel, ValidationError

from fugu_cli.errors import AgentError
from fugu_cli.messages import Reply, Usage
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import HttpConnection, Json, ReplyProgress, ServerEvent
from fugu_cli.system.bounded_json import parse_json

BEFORE, AFTER, MIDDLE = "<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"
"""The marks of Qwen2.5-Coder (arXiv 2409.12186, section 2.2) and of models that took them over."""
MOST_TOKENS = 64
"""Tokens of a line."""


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
    connection: HttpConnection, endpoint: ModelEndpoint, before: str, behind: str
) -> Reply:
    """Return the likeliest rest of the line between the two texts. Raises AgentError."""
    answers: list[_Answer] = []

    def take(event: ServerEvent) -> ReplyProgress:
        try:
            parsed = _Answer.model_validate(parse_json(event.data))
        except (ValueError, ValidationError) as error:
            raise AgentError(
                f"{endpoint.name}: /completion answered with something else: {event.data[:200]}",
                kind="protocol",
            ) from error
        answers.append(parsed)
        return ReplyProgress.SAID

    payload: Json = {
        "prompt": f"{BEFORE}{before}{AFTER}{behind}{MIDDLE}",
        "n_predict": MOST_TOKENS,
        "stop": ["\n"],
        "temperature": 0.0,
        "cache_prompt": True,
    }
    await connection.post("/completion", payload, take)
    if not answers:
        raise AgentError(
            f"{endpoint.name}: the server ended without an answer", kind="network", retry=True
        )
    answer = answers[-1]
    timings = answer.timings
    return Reply(
        text=answer.content,
        usage=Usage(
            input=timings.cache_n + timings.prompt_n,
            cached=timings.cache_n,
            output=timings.predicted_n,
        ),
        model=endpoint.model,
        stop="length" if answer.stop_type == "limit" else "end",
    )
