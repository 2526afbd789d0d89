"""Which well-known models see pictures, by their names. An entry's own `vision` counts first, and an unknown model sees
none. genai-prices, from which prices and context windows come, does not say.
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
