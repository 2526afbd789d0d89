"""What a model costs and how much it reads, from the price list that genai-prices carries with it. No network is asked.

Wiring uses it for entries that give no price of their own. It must not guess: a model the list does not know has none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from fugu_cli.session.events import Price

if TYPE_CHECKING:
    from genai_prices import Usage

EMBEDDED = Price(input=0.0, cached=0.0, output=0.0)
"""A model on this machine costs electricity, which is not counted."""

HERE = ("localhost", "127.0.0.1", "::1")
"""Hosts of servers on this machine: no list knows what they offer."""

PROBE = 1000
"""Tokens a price is asked for: below every threshold from which a provider charges more."""


def price_of(provider: str, model: str, base_url: str = "") -> Price | None:
    """USD per million tokens, None for what the list does not know.

    `provider` is an entry's (openai, anthropic, local, scripted); `base_url` tells who is behind `openai`: the list
    finds providers by their address. Of prices with thresholds the lowest is given.
    """
    if provider in ("local", "scripted"):
        return EMBEDDED if provider == "local" else None
    from genai_prices import Usage

    full = _cost(Usage(input_tokens=PROBE, output_tokens=0), provider, model, base_url)
    cached = _cost(Usage(input_tokens=PROBE, cache_read_tokens=PROBE, output_tokens=0), provider, model, base_url)
    output = _cost(Usage(input_tokens=0, output_tokens=PROBE), provider, model, base_url)
    if full is None or output is None:
        return None
    return Price(input=full, cached=cached, output=output)


def context_of(model: str, base_url: str) -> int | None:
    """Tokens of a model's context at this address, None for what the list does not know."""
    if urlsplit(base_url).hostname in (None, *HERE):
        return None
    from genai_prices import Usage, calc_price

    try:
        return calc_price(Usage(), model, provider_api_url=base_url).model.context_window
    except LookupError:
        return None


def _cost(usage: Usage, provider: str, model: str, base_url: str) -> float | None:
    from genai_prices import calc_price

    try:
        if base_url:
            found = calc_price(usage, model, provider_api_url=base_url)
        else:
            found = calc_price(usage, model, provider_id=provider)
    except LookupError:
        return None
    return float(round(found.total_price * 1_000_000 / PROBE, 6))
