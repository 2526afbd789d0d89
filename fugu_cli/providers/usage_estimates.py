"""Estimates the tokens of calls whose usage the server did not report, from the bytes sent and
received.
"""

from __future__ import annotations

import math

from fugu_cli.messages import BYTES_PER_TOKEN, Prompt, Reply, Usage


def usage_of_reply(reply: Reply, prompt: Prompt) -> Usage:
    """Return the usage of a whole reply, with estimates for missing counts."""
    if reply.usage.output:
        return _with_estimates(reply.usage, prompt, received_bytes=0)
    texts = [reply.text]
    texts += [block.text for block in reply.thinking]
    for call in reply.calls:
        texts += [call.tool, call.arguments]
    received_bytes = sum(len(text.encode("utf-8", "replace")) for text in texts)
    return _with_estimates(reply.usage, prompt, received_bytes)


def usage_of_broken_call(reported: Usage, prompt: Prompt, received_bytes: int) -> Usage:
    """Return the usage of a call that broke off after `received_bytes` of text, reasoning and
    arguments.
    """
    return _with_estimates(reported, prompt, received_bytes)


def _with_estimates(reported: Usage, prompt: Prompt, received_bytes: int) -> Usage:
    estimated_input = 0 if reported.input else math.ceil(prompt.estimated_tokens)
    received = math.ceil(received_bytes / BYTES_PER_TOKEN)
    estimated_output = max(received - reported.output, 0)
    return reported.model_copy(
        update={
            "input": reported.input + estimated_input,
            "output": reported.output + estimated_output,
            "estimated_input": reported.estimated_input + estimated_input,
            "estimated_output": reported.estimated_output + estimated_output,
        }
    )
