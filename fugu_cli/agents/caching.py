"""Prompt caches of Chat Completions servers: which ones want a word said, and what is said.

Beside openai.py. Most servers keep the beginning of a prompt by themselves (OpenAI, DeepSeek, Gemini, llama.cpp, vLLM)
and only want it to stay the same; history.py sees to that. OpenAI also wants to know which requests belong together;
OpenRouter passes Anthropic's marks on. Pure.
"""

from __future__ import annotations

import hashlib

from pydantic import JsonValue

from fugu_cli.agents.access import Access
from fugu_cli.messages import Prompt

MARK: JsonValue = {"type": "ephemeral"}
MARKED = ("anthropic/", "~anthropic/")
"""Models that OpenRouter forwards to a provider which keeps nothing without a mark."""


def wants_a_key(access: Access) -> bool:
    """The server sends requests with the same key to the same machine, whose cache is warm."""
    return access.host == "api.openai.com" or (access.azure and "/openai/v1" in access.base_url)


def key(prompt: Prompt) -> str:
    """The same for every call of one conversation, and for no other: its beginning."""
    first = next((message.model_dump_json() for message in prompt.messages), "")
    return hashlib.sha256(f"{prompt.system}\n{first}".encode("utf-8", "replace")).hexdigest()[:32]


def wants_marks(access: Access) -> bool:
    """The model behind the server keeps a prompt only up to where it was told."""
    return access.host == "openrouter.ai" and access.model.startswith(MARKED)


def writing_costs(access: Access) -> bool:
    """What is put into the cache is billed above the price of input, by Anthropic and by OpenAI from gpt-5.6 on, which
    reports nothing of it for older models."""
    return wants_marks(access) or wants_a_key(access)


def mark(messages: list[dict[str, JsonValue]]) -> None:
    """Two marks, as anthropic.py sets them: after the system text, and at the end of what has been said."""
    system = messages[:1] if messages and messages[0]["role"] == "system" else []
    last = [message for message in messages if isinstance(message.get("content"), str)][-1:]
    for message in {id(one): one for one in (*system, *last)}.values():
        message["content"] = [{"type": "text", "text": message["content"], "cache_control": MARK}]
