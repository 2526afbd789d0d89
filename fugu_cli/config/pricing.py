"""What a model costs and how much it reads, from the list that genai-prices carries with it. No network is asked.

The pool uses it for entries that do not say. It must not guess: a model the list does not know has neither. Loading
the list takes longer than the rest of a start, so it is not asked about servers nearby.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fugu_cli.session.events import Price

if TYPE_CHECKING:
    from genai_prices import Usage
    from genai_prices.types import PriceCalculation

EMBEDDED = Price(input=0.0, cached=0.0, output=0.0)
"""A model on this machine costs electricity, which is not counted."""

PROBE = 1000
"""Tokens a price is asked for: below every threshold from which a provider charges more."""


def price_of(provider: str, model: str, base_url: str = "") -> Price | None:
    """USD per million tokens, None for what the list does not know.

    `provider` is an entry's (openai, anthropic, local, scripted); `base_url` tells who is behind `openai`: the list
    finds providers by their address. Of prices with thresholds the lowest is given.
    """
    if provider == "local":
        return EMBEDDED
    if not _may_be_listed(provider, base_url):
        return None
    from genai_prices import Usage

    full = _cost(Usage(input_tokens=PROBE, output_tokens=0), provider, model, base_url)
    cached = _cost(Usage(input_tokens=PROBE, cache_read_tokens=PROBE, output_tokens=0), provider, model, base_url)
    output = _cost(Usage(input_tokens=0, output_tokens=PROBE), provider, model, base_url)
    if full is None or output is None:
        return None
    return Price(input=full, cached=cached, output=output)


def context_of(provider: str, model: str, base_url: str = "") -> int | None:
    """The context window in tokens, None for what the list does not know. The arguments are those of `price_of`."""
    if not _may_be_listed(provider, base_url):
        return None
    from genai_prices import Usage

    found = _calculation(Usage(input_tokens=PROBE, output_tokens=0), provider, model, base_url)
    return found.model.context_window if found is not None else None


def _may_be_listed(provider: str, base_url: str) -> bool:
    """False for what runs on this machine or in its own network: no list knows it."""
    if provider in ("local", "scripted"):
        return False
    host = urlsplit(base_url).hostname or ""
    try:
        return not ipaddress.ip_address(host).is_private
    except ValueError:  # a name
        return host != "localhost"


def _cost(usage: Usage, provider: str, model: str, base_url: str) -> float | None:
    found = _calculation(usage, provider, model, base_url)
    return float(round(found.total_price * 1_000_000 / PROBE, 6)) if found is not None else None


def _calculation(usage: Usage, provider: str, model: str, base_url: str) -> PriceCalculation | None:
    from genai_prices import calc_price

    try:
        if base_url:
            return calc_price(usage, model, provider_api_url=base_url)
        return calc_price(usage, model, provider_id=provider)
    except LookupError:
        return None
