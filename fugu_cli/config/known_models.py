"""What the name of a well-known model says: who made it, and whether it sees pictures. The pool uses it for entries
that do not say. It must not guess: of a name that it does not know it says nothing. genai-prices, from which prices and
context windows come, names who sells a model, which may be anybody.
"""

from __future__ import annotations

import re

SEES = re.compile(
    r"claude-(?!2|instant)"
    r"|gpt-(?!oss|3|4-?(?:0|1106|base|32k|$))|chatgpt-4o|\bo(?:[13](?!-mini|-preview)|4)\b|codex-mini"
    r"|gemini|gemma-?[34]|paligemma"
    r"|grok-(?:[4-9]|\d\d|2-vision|vision)(?!.*code)"
    r"|pixtral|mistral-(?:small|medium|large)-(?:latest|3|4|25(?:0[3-9]|1)|2[6-9])|ministral-3"
    r"|llama-?4|llama-?3\.2-(?:11|90)b|llava|bakllava|moondream|minicpm-?v|internvl|molmo|smolvlm"
    r"|qwen.*-?vl|qwq?-?omni|qwen-?(?:3\.[5-9]|[4-9])(?!.*coder)|qvq"
    r"|kimi-(?:k2\.[5-9]|k[3-9]|vl|latest)|glm-?\d(?:\.\d)?v|phi-?[34].*(?:vision|multimodal)|nova-(?:lite|pro|premier)"
    r"|vision",
    re.IGNORECASE,
)


def sees_pictures(model: str) -> bool:
    """A model of this name is known to see pictures."""
    return SEES.search(model) is not None


FAMILIES = {
    "anthropic": r"claude",
    "openai": r"gpt|codex-mini|\bo[134](?![a-z0-9])",
    "google": r"gemini|gemma",
    "deepseek": r"deepseek",
    "mistral": r"mistral|ministral|mixtral|codestral|devstral|magistral|pixtral",
    "xai": r"grok",
    "moonshot": r"kimi|moonshot",
    "zai": r"\bglm",
    "alibaba": r"qwen|qwq|qvq",
    "meta": r"llama",
    "minimax": r"minimax",
    "microsoft": r"\bphi-?\d",
    "amazon": r"\bnova-(?:micro|lite|pro|premier)",
    "cohere": r"\bcommand-",
    "nvidia": r"nemotron",
    "ibm": r"granite",
}
"""Vendors, and how their models are called."""
_FAMILY = re.compile("|".join(f"(?P<{vendor}>{names})" for vendor, names in FAMILIES.items()), re.IGNORECASE)


def vendor_of(model: str) -> str:
    """Who made a model of this name; "" where nobody knows. Of a distilled model, whose name has two families, the
    first: its answers are those of the model that taught it."""
    found = _FAMILY.search(model)
    return (found.lastgroup or "") if found else ""
