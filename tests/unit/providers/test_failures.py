"""What providers say when they refuse, told for what it is: (kind, whether it is tried again, what
is said, a hint).
"""

import json
import re

import pytest
from servers import ACCESS

from fugu_cli.errors import AgentError
from fugu_cli.providers import error_mapping

FILTER = ("invalid", False, "the content filter of api.example.org stopped it", "in other words")
PLACE = (
    "invalid",
    False,
    "api.example.org does not serve the place it is called from",
    "--opt-out strong",
)
EMPTY = ("credit", False, "the account at api.example.org has no credit left", "raise a limit")
LONG = ("invalid", False, "the request is longer than gpt-5 can read", "`context`")
LARGE = ("invalid", False, "the request is too large for api.example.org", "`context`")
TOOLS = ("invalid", False, "gpt-5 at api.example.org takes no tools as it is", 'protocol = "text"')
BUSY = ("overloaded", True, "api.example.org is overloaded or broken", "Try later")

SAID: dict[str, tuple[int, str, tuple[str, bool, str, str]]] = {
    "a prompt that Azure filters": (
        400,
        '{"error": {"code": "content_filter", "message": "The response was filtered due to the '
        "prompt triggering a "
        'policy.", "innererror": {"code": "ResponsibleAIPolicyViolation"}}}',
        FILTER,
    ),
    "a prompt that is moderated behind OpenRouter": (
        403,
        '{"error": {"code": 403, "message": "a/b requires moderation on X. Your input was '
        'flagged for violence."}}',
        FILTER,
    ),
    "an answer that Anthropic holds back": (
        400,
        "Output blocked by content filtering policy",
        FILTER,
    ),
    "a country OpenAI does not serve": (
        403,
        '{"error": {"message": "Country, region, or territory not supported", "code": '
        '"unsupported_country"}}',
        PLACE,
    ),
    "a country Google does not serve": (
        400,
        "User location is not supported for the API use.",
        PLACE,
    ),
    "a page of a firewall": (
        403,
        "<html>Attention Required!</html>",
        (
            "invalid",
            False,
            "something before api.example.org does not let the request through",
            "HTTPS_PROXY",
        ),
    ),
    "a team of xAI without credits": (
        429,
        "Your team x has either used all available credits or reached its monthly spending limit.",
        EMPTY,
    ),
    "a limit of the user's own at Anthropic": (
        400,
        "You have reached your specified API usage limits.",
        EMPTY,
    ),
    "more than Bedrock's model reads": (
        400,
        '{"message": "Input is too long for requested model."}',
        LONG,
    ),
    "more than Copilot's model reads": (
        400,
        "prompt token count of 128500 exceeds the limit of 128000",
        LONG,
    ),
    "more than Kimi's model reads": (400, "Your request exceeded model token limit: 262144", LONG),
    "more than vLLM's model reads": (
        400,
        "The decoder prompt is longer than the maximum model length of 4096.",
        LONG,
    ),
    "more than Qwen's model reads": (400, "Range of input length should be [1, 129024]", LONG),
    "more than Together's model reads": (
        400,
        "`inputs` tokens + `max_new_tokens` must be <= 4097. Given: 5000",
        LONG,
    ),
    "more than gpt-5 reads": (
        400,
        "Input tokens exceed the configured limit of 272000 tokens.",
        LONG,
    ),
    "more than llama.cpp's model reads": (
        500,
        "the request exceeds the available context size",
        LONG,
    ),
    "more than Z.ai's model reads": (400, "Prompt exceeds max length", LONG),
    "more than a minute's tokens at OpenAI": (
        429,
        '{"error": {"message": "Request too large for gpt-5 on tokens per min (TPM): Limit '
        '30000, Requested 41000.", '
        '"type": "tokens", "code": "rate_limit_exceeded"}}',
        LARGE,
    ),
    "more than a minute's tokens at Groq": (
        413,
        "Request too large for model x on tokens per minute (TPM)",
        LARGE,
    ),
    "a model of Ollama without tools": (
        400,
        "registry.ollama.ai/library/gemma:2b does not support tools",
        TOOLS,
    ),
    "vLLM without a parser": (
        400,
        '"auto" tool choice requires --enable-auto-tool-choice to be set',
        TOOLS,
    ),
    "llama.cpp without a template": (
        500,
        '{"error": {"message": "tools param requires --jinja flag"}}',
        TOOLS,
    ),
    "no server with tools behind OpenRouter": (
        404,
        "No endpoints found that support tool use.",
        TOOLS,
    ),
    "a conflict": (409, "Conflict", BUSY),
    "a failure behind a gateway": (424, "Failed Dependency", BUSY),
}


@pytest.mark.parametrize("name", SAID)
def test_a_refusal_is_told_for_what_it_is(name: str) -> None:
    status, body, (kind, retry, what, hint) = SAID[name]
    message, code = error_mapping.message_of_body(body)
    error = error_mapping.error_of_status(
        ACCESS, status, f"{message} ({code})" if code else message
    )
    assert (error.kind, error.retry) == (kind, retry)
    assert str(error).startswith(f"strong: {what} ({status})")
    assert hint in error.hint
    assert error.too_long == (hint == "`context`")


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, "Invalid value for `messages`"),
        (403, "Project x does not have access to model gpt-5"),
        (
            429,
            "Rate limit reached for gpt-5 on tokens per min (TPM): Limit 30000, Used 29000, "
            "Requested 5000.",
        ),
        (429, "Too many tokens, please wait before trying again."),
    ],
)
def test_other_words_leave_it_at_the_status(status: int, message: str) -> None:
    error = error_mapping.error_of_status(ACCESS, status, message)
    assert (error.kind, error.too_long) == (
        {400: "invalid", 403: "refused", 429: "limited"}[status],
        False,
    )


KEY_NAMED = (
    "Your API key does not have permission to use the specified resource.",
    "This API key has been revoked",
    "no (invalid_api_key)",
    "Your account has been disabled",
    "This organization has been disabled.",
    "Your API key was reported as leaked. Please use another API key.",
    "Method doesn't allow unregistered callers. Please use API Key or other form of identity.",
    "Request had insufficient authentication scopes.",
    "The security token included in the request is invalid",
    "Access denied, please make sure your account is in good standing.",
    "This key isn't allowed to use the model",
    "Your account has been suspended for violating our usage policy",
    "API key required",
)
KEY_NOT_NAMED = (
    "Request blocked: prompt injection patterns detected (permission_denied)",
    "Forbidden",
    "",
    "The request is blocked.",
    "You are not allowed to do this (permission_error)",
    "Request blocked: the prompt contains an API key",
    "API key detected in prompt; request blocked",
    "Your API key was found in the prompt and is not allowed",
    "the key is valid, but the request was blocked by a guardrail",
    "The account number in your message is not allowed",
    "Request blocked by your organization's content policy",
    "Country, region, or territory not supported",
    error_mapping.PAGE,
)


@pytest.mark.parametrize("message", [*KEY_NAMED, *KEY_NOT_NAMED])
def test_a_403_is_about_the_key_where_its_words_name_the_key_or_the_account(message: str) -> None:
    error = error_mapping.error_of_status(ACCESS, 403, message)
    assert error.kind == ("refused" if message in KEY_NAMED else "invalid")
    assert error_mapping.error_of_status(ACCESS, 401, message).kind == "refused"


def in_stream(**error: object) -> AgentError:
    return error_mapping.error_in_stream(ACCESS, {"error": error})


def test_what_cannot_pass_is_not_tried_again_in_the_middle_of_a_stream_either() -> None:
    long = in_stream(
        code="context_length_exceeded",
        message="Your input exceeds the context window of this model.",
    )
    assert (long.kind, long.retry, long.too_long) == ("invalid", False, True)
    filtered = in_stream(code="content_filter", message="Filtered.")
    assert (filtered.kind, filtered.retry) == ("invalid", False)
    limited = in_stream(
        code="rate_limit_exceeded", message="Rate limit reached. Please try again in 1.5s."
    )
    assert (limited.kind, limited.retry, limited.after) == ("limited", True, 1.5)
    used_up = in_stream(code="rate_limit_exceeded", message="Please try again in 2h5m.")
    assert re.match(r"Wait until (\w+ )?\d\d:\d\d, when it is asked again", used_up.hint)


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("Please try again in 20s. Visit", 20.0),
        ("Please try again in 6ms.", 0.006),
        ("Please try again in 1m12.5s.", 72.5),
        ("Please try again in 2h5m.", 7500.0),
        ("Please retry after 23 seconds.", 23.0),
        ("Please retry after 1 second.", 1.0),
        (
            json.dumps(
                {
                    "error": {
                        "details": [{"retryDelay": "34s"}],
                        "message": "Please retry in 34.07s.",
                    }
                }
            ),
            34.0,
        ),
        ("Please try again in a while.", None),
        ("Too Many Requests", None),
    ],
)
def test_how_long_a_server_wants_to_be_left_alone_is_read_from_its_words(
    words: str, seconds: float | None
) -> None:
    assert error_mapping.retry_delay(words) == seconds
