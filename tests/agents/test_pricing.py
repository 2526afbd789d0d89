import pytest

from fugu_cli.config.pricing import price_of
from fugu_cli.session.events import Price


@pytest.mark.parametrize(
    ("provider", "model", "base_url", "price"),
    [
        ("openai", "gpt-5", "", Price(input=1.25, cached=0.125, output=10.0)),
        ("openai", "gpt-5", "https://api.openai.com/v1", Price(input=1.25, cached=0.125, output=10.0)),
        ("anthropic", "claude-sonnet-4-5", "", Price(input=3.0, cached=0.3, output=15.0)),
        ("openai", "gpt-5", "http://127.0.0.1:8000/v1", None),
        ("openai", "no-such-model", "", None),
        ("local", "qwen2.5-coder-0.5b", "", Price(input=0.0, cached=0.0, output=0.0)),
        ("scripted", "demo.toml", "", None),
    ],
)
def test_prices_come_from_the_list_and_are_never_guessed(
    provider: str, model: str, base_url: str, price: Price | None
) -> None:
    assert price_of(provider, model, base_url) == price
