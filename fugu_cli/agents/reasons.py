"""Why a reply of a Chat Completions server ended, in the words of the servers met so far.

Under openai_stream.py. Pure values.
"""

from __future__ import annotations

from typing import Literal

Stop = Literal["end", "calls", "length", "refusal", "cut"]

STOPS: dict[str, Stop] = {
    "stop": "end",
    "eos": "end",
    "tool_calls": "calls",
    "function_call": "calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "model_context_window_exceeded": "length",
    "content_filter": "refusal",
    "refusal": "refusal",
    "safety": "refusal",
    "recitation": "refusal",
    "blocklist": "refusal",
    "prohibited_content": "refusal",
    "spii": "refusal",
    "sensitive": "refusal",
}
"""`finish_reason` of the servers met so far, up to a colon and in small letters; any other is an end."""

BROKEN = {
    "error",
    "abort",
    "insufficient_system_resource",
    "malformed_function_call",
    "function_call_filter",
    "network_error",
}
"""Those that say: this is no answer, ask again (OpenRouter, vLLM, DeepSeek, Google, Z.ai)."""


def word(reason: str) -> str:
    """What counts of a `finish_reason`."""
    return reason.lower().partition(":")[0].strip()
