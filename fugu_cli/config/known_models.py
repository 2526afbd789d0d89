"""Facts about known models, for entries that leave them out: vendor and vision by name; price and
context from the list in genai-prices.

No network is used, and nothing is guessed about unknown names. genai-prices names the seller of a
model, which may be anybody. Loading its list takes longer than the rest of a start, so it is not
used for local servers.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fugu_cli.session.events import Price

if TYPE_CHECKING:
    from genai_prices import Usage
    from genai_prices.types import PriceCalculation

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
    """Return whether a model of this name is known to see pictures."""
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
    "meta": r"llama|\bmuse-",
    "minimax": r"minimax",
    "microsoft": r"\bphi-?\d",
    "amazon": r"\bnova-(?:micro|lite|pro|premier)",
    "cohere": r"\bcommand-",
    "nvidia": r"nemotron",
    "ibm": r"granite",
    "xiaomi": r"\bmimo",
    "stepfun": r"\bstep-\d",
}
"""Vendors, and how their models are called."""
_FAMILY = re.compile(
    "|".join(f"(?P<{vendor}>{names})" for vendor, names in FAMILIES.items()), re.IGNORECASE
)


def vendor_of(model: str) -> str:
    """Return the vendor of a model, "" if unknown.

    The name of a distilled model has two families. The first counts, because the model answers like
    its teacher.
    """
    match = _FAMILY.search(model)
    return (match.lastgroup or "") if match else ""


EMBEDDED = Price(input=0.0, cached=0.0, output=0.0)
"""A model on this machine costs electricity, which is not counted."""

SELLERS = {"anthropic": "anthropic", "openai": "openai", "google": "google", "xai": "x-ai"}
"""Vendors that keep their models to themselves, and their ids in the list."""
OPEN_WEIGHTS = re.compile(r"gpt-oss|gemma", re.IGNORECASE)

AMAZON_PREFIX = re.compile(r"^(?:[a-z]+\.){1,2}(?=[a-z])")
"""The region and the vendor before a model's name at Amazon Bedrock: "global.anthropic."."""

PROBE = 1000
"""Tokens a price is asked for: below every threshold from which a provider charges more."""


def price_of(provider: str, model: str, base_url: str = "") -> Price | None:
    """Return the price in USD per million tokens, None if unknown.

    `provider` is an entry's (openai, anthropic, local, scripted); `base_url` tells who is behind
    `openai`, since the list finds sellers by address. At an unknown address a model costs what its
    vendor asks, and one with open weights what all its sellers ask. Of prices with thresholds the
    lowest is returned.
    """
    if provider == "local":
        return EMBEDDED
    if not _may_be_listed(provider, model, base_url):
        return None
    from genai_prices import Usage

    full = _cost(Usage(input_tokens=PROBE, output_tokens=0), provider, model, base_url)
    cached = _cost(
        Usage(input_tokens=PROBE, cache_read_tokens=PROBE, output_tokens=0),
        provider,
        model,
        base_url,
    )
    output = _cost(Usage(input_tokens=0, output_tokens=PROBE), provider, model, base_url)
    if full is None or output is None:
        return None
    return Price(input=full, cached=cached, output=output)


def context_of(provider: str, model: str, base_url: str = "") -> int | None:
    """Return the context window in tokens, None if unknown. The arguments are those of `price_of`."""
    if not _may_be_listed(provider, model, base_url):
        return None
    from genai_prices import Usage

    calculation = _calculation(
        Usage(input_tokens=PROBE, output_tokens=0), provider, model, base_url
    )
    return calculation.model.context_window if calculation is not None else None


def is_assumed(provider: str, model: str, base_url: str) -> bool:
    """Return whether a model's price and context are those of other sellers, not of the server at
    `base_url`.
    """
    if not base_url or not _may_be_listed(provider, model, base_url):
        return False
    from genai_prices import Usage

    usage = Usage(input_tokens=PROBE, output_tokens=0)
    if _served_at(base_url, usage, model) is not None:
        return False
    return bool(_seller(model)) or _only_price(usage, model) is not None


def _seller(model: str) -> str:
    """Return the vendor's id in the list for a model that only its vendor sells, else ""."""
    name = model.rpartition("/")[2]
    return "" if OPEN_WEIGHTS.search(name) else SELLERS.get(vendor_of(name), "")


def _may_be_listed(provider: str, model: str, base_url: str) -> bool:
    """Return whether the list may know the model: not if it runs on this machine or in its network."""
    if provider in ("local", "scripted"):
        return False
    if _seller(model):
        return True
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_private
    except ValueError:  # a name
        return host != "localhost"


def _cost(usage: Usage, provider: str, model: str, base_url: str) -> float | None:
    calculation = _calculation(usage, provider, model, base_url)
    return (
        float(round(calculation.total_price * 1_000_000 / PROBE, 6))
        if calculation is not None
        else None
    )


def _calculation(usage: Usage, provider: str, model: str, base_url: str) -> PriceCalculation | None:
    if not base_url:
        return _sold_by(provider, usage, model)
    listed = _served_at(base_url, usage, model)
    if listed is not None:
        return listed
    seller = _seller(model)
    if seller:
        return _sold_by(seller, usage, AMAZON_PREFIX.sub("", model.rpartition("/")[2]))
    return _only_price(usage, model)


def _only_price(usage: Usage, model: str) -> PriceCalculation | None:
    """Return the price of a model if all providers that sell it ask the same, else None."""
    from genai_prices.data_snapshot import get_snapshot

    names = dict.fromkeys((model, model.rpartition("/")[2]))
    offers = []
    for provider in get_snapshot().providers:
        for name in names:
            offer = _sold_by(provider.id, usage, name)
            if offer is not None:
                offers.append(offer)
    prices = {offer.total_price for offer in offers}
    return offers[0] if len(prices) == 1 else None


def _served_at(base_url: str, usage: Usage, model: str) -> PriceCalculation | None:
    from genai_prices import calc_price

    try:
        return calc_price(usage, model, provider_api_url=base_url)
    except LookupError:
        return None


def _sold_by(provider: str, usage: Usage, model: str) -> PriceCalculation | None:
    from genai_prices import calc_price

    try:
        return calc_price(usage, model, provider_id=provider)
    except LookupError:
        return None
