import subprocess
import sys

import pytest

from fugu_cli.config.known_models import context_of, price_of
from fugu_cli.session.events import Price


@pytest.mark.parametrize(
    ("provider", "model", "base_url", "price"),
    [
        ("openai", "gpt-5", "", Price(input=1.25, cached=0.125, output=10.0)),
        (
            "openai",
            "gpt-5",
            "https://api.openai.com/v1",
            Price(input=1.25, cached=0.125, output=10.0),
        ),
        ("anthropic", "claude-sonnet-4-5", "", Price(input=3.0, cached=0.3, output=15.0)),
        (
            "openai",
            "gpt-5",
            "http://127.0.0.1:8000/v1",
            Price(input=1.25, cached=0.125, output=10.0),
        ),
        (
            "openai",
            "anthropic/claude-sonnet-4-5",
            "https://gateway.example/v1",
            Price(input=3.0, cached=0.3, output=15.0),
        ),
        (
            "anthropic",
            "global.anthropic.claude-sonnet-4-5",
            "https://bedrock-mantle.us-east-1.api.aws/anthropic",
            Price(input=3.0, cached=0.3, output=15.0),
        ),
        ("openai", "gpt-oss-20b", "http://127.0.0.1:8000/v1", None),
        ("openai", "deepseek-v4-pro", "https://gateway.example/v1", None),
        ("openai", "no-such-model", "", None),
        ("local", "qwen2.5-coder-0.5b", "", Price(input=0.0, cached=0.0, output=0.0)),
        ("scripted", "demo.toml", "", None),
    ],
)
def test_prices_come_from_the_list_and_are_never_guessed(
    provider: str, model: str, base_url: str, price: Price | None
) -> None:
    assert price_of(provider, model, base_url) == price


@pytest.mark.parametrize(
    ("provider", "model", "base_url", "context"),
    [
        ("openai", "gpt-5", "", 400_000),
        ("openai", "gpt-5", "https://api.openai.com/v1", 400_000),
        (
            "openai",
            "gemini-4-argon",
            "https://generativelanguage.googleapis.com/v1beta/openai",
            1_048_576,
        ),
        ("anthropic", "claude-sonnet-4-5", "", 200_000),
        ("openai", "gpt-5", "http://127.0.0.1:8000/v1", 400_000),
        ("openai", "gpt-5", "http://[::1]:8000/v1", 400_000),
        ("openai", "gpt-5", "http://models.example/v1", 400_000),
        ("openai", "gpt-oss-20b", "http://[::1]:8000/v1", None),
        ("openai", "no-such-model", "", None),
        ("local", "qwen2.5-coder-0.5b", "", None),
        ("scripted", "demo.toml", "", None),
    ],
)
def test_context_windows_come_from_the_list_and_are_never_guessed(
    provider: str, model: str, base_url: str, context: int | None
) -> None:
    assert context_of(provider, model, base_url) == context


def test_the_list_is_not_loaded_for_a_server_nearby() -> None:
    program = """
import sys
from fugu_cli.config.known_models import context_of, price_of
for host in ("localhost", "127.0.0.1", "[::1]", "192.168.0.7"):
    asked = ("openai", "qwen3-coder", f"http://{host}:1/v1")
    assert (price_of(*asked), context_of(*asked)) == (None, None)
assert "genai_prices" not in sys.modules
assert price_of("openai", "gpt-5") is not None
assert "genai_prices" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
