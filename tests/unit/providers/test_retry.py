import asyncio
from datetime import UTC, datetime

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from servers import ACCESS, Server, quiet, recorded, stream, unhurried

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromUser, Prompt, Usage
from fugu_cli.providers import Pause
from fugu_cli.providers.error_mapping import (
    limit_reset,
    reset_in_body,
    retry_after,
    retry_delay,
)
from fugu_cli.providers.retry import Backoff, RetryClock, Retrying
from fugu_cli.wires.chat_completions import OpenAI
from fugu_cli.wires.messages import Anthropic

PROMPT = Prompt(system="s", messages=(FromUser(text="u"),))
WHOLE = "Der Fehler ist in Zeile 7 – behoben ✓"
CUT = (
    b'data: {"choices":[{"index":0,"delta":{"content":"Der Feh"}}]}\n\n',
    httpx.ReadError("Connection reset by peer"),
)


class Watched:
    """Time that passes only when it is slept, and a chance that is always the same."""

    def __init__(self, chance: float = 1.0) -> None:
        self.now = 0.0
        self.time = RetryClock(sleep=self.sleep, now=lambda: self.now, chance=lambda: chance)

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


def run(
    *answers: httpx.Response | Exception, backoff: Backoff | None = None, chance: float = 1.0
) -> tuple[str | AgentError, list[tuple[str, float]], list[str]]:
    """What came of it, the waits that were told, and the text that was said."""
    waits: list[tuple[str, float]] = []
    said: list[str] = []
    agent = Retrying(OpenAI(ACCESS, Server(*answers)), backoff, Watched(chance).time)
    try:
        reply = asyncio.run(
            agent.reply(PROMPT, said.append, lambda pause: waits.append((pause.why, pause.seconds)))
        )
    except AgentError as error:
        return error, waits, said
    return reply.text, waits, said


def limited(after: str | None = None) -> httpx.Response:
    return httpx.Response(429, headers={} if after is None else {"retry-after": after})


LIMITED = "strong: rate limited by api.example.org (429)"


def test_a_server_that_says_when_is_asked_again_then() -> None:
    assert run(limited("7"), limited("0.5"), recorded("openai/text.sse"))[:2] == (
        WHOLE,
        [(LIMITED, 7.0), (LIMITED, 0.5)],
    )


@pytest.mark.parametrize("wish", ["0", "0.0", "-1", "Sun, 01 Nov 2020 12:00:00 GMT"])
def test_a_wish_that_is_none_does_not_use_up_the_tries_at_once(wish: str) -> None:
    _, waits, _ = run(limited(wish))
    assert [seconds for _, seconds in waits] == [1, 2, 4, 8]


def test_google_says_in_the_body_when_it_wants_to_be_asked_again() -> None:
    details: list[object] = [
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": []},
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.074824224s"},
    ]
    error = {
        "code": 429,
        "message": "Quota exceeded.",
        "status": "RESOURCE_EXHAUSTED",
        "details": details,
    }
    refused = httpx.Response(429, json=[{"error": error}])
    _, waits, _ = run(refused, limited("7"), recorded("openai/text.sse"))
    assert [seconds for _, seconds in waits] == [34.074824224, 7.0]


def test_waits_double_up_to_the_longest_and_are_drawn_from_the_upper_half() -> None:
    backoff = Backoff(attempts=6, first=1, longest=5, total=100)
    broken = httpx.Response(500)
    waits = [seconds for _, seconds in run(broken, backoff=backoff)[1]]
    assert waits == [1, 2, 4, 5, 5]
    waits = [seconds for _, seconds in run(broken, backoff=backoff, chance=0.0)[1]]
    assert waits == [0.5, 1, 2, 2.5, 2.5]


def test_the_last_failure_is_raised_when_the_tries_are_used_up() -> None:
    outcome, waits, _ = run(httpx.ReadError("reset"), backoff=Backoff(attempts=3))
    assert str(outcome).startswith("strong: api.example.org closed the connection")
    assert len(waits) == 2


def test_a_server_that_cannot_be_reached_at_all_is_tried_twice() -> None:
    for failure in (httpx.ConnectError("no such host"), httpx.ConnectTimeout("")):
        _, waits, _ = run(failure)
        assert [seconds for _, seconds in waits] == [1]


def test_a_certificate_that_nobody_vouches_for_is_not_tried_again() -> None:
    outcome, waits, _ = run(httpx.ConnectError("CERTIFICATE_VERIFY_FAILED"))
    assert isinstance(outcome, AgentError)
    assert (outcome.retry, waits) == (False, [])


def test_no_wait_reaches_beyond_the_time_in_all() -> None:
    _, waits, _ = run(
        httpx.Response(503), backoff=Backoff(attempts=50, first=10, longest=10, total=35)
    )
    assert [seconds for _, seconds in waits] == [10, 10, 10]


def test_a_server_that_asks_for_too_long_is_left_to_another_agent() -> None:
    outcome, waits, _ = run(limited("3600"))
    assert isinstance(outcome, AgentError)
    assert (outcome.kind, outcome.after, waits) == ("limited", 3600.0, [])


def test_a_stream_that_was_cut_begins_anew_and_says_so() -> None:
    assert run(stream(*CUT), recorded("openai/text.sse")) == (
        WHOLE,
        [("strong: the connection to api.example.org was lost: Connection reset by peer", 1.0)],
        ["Der Feh", "Der Fehler", " ist in Zeile ", "7 – behoben ✓"],
    )


BEGUN = (
    b"event: message_start\ndata: "
    b'{"type":"message_start","message":{"model":"m","usage":{"input_tokens":200000,'
    b'"output_tokens":1}}}\n\n'
)
READ = Usage(input=200000, output=1)


def test_what_broken_tries_used_is_counted_with_the_reply_that_comes_at_last() -> None:
    server = Server(
        stream(BEGUN, httpx.ReadError("reset")), stream(BEGUN), recorded("anthropic/text.sse")
    )
    alone = asyncio.run(
        Anthropic(ACCESS, Server(recorded("anthropic/text.sse"))).reply(PROMPT, quiet, unhurried)
    )
    told: list[Usage] = []
    agent = Retrying(Anthropic(ACCESS, server), None, Watched().time)
    reply = asyncio.run(agent.reply(PROMPT, quiet, lambda pause: told.append(pause.used)))
    assert reply.usage == READ + READ + alone.usage
    assert told == [READ, READ + READ]


def test_what_broken_tries_used_is_counted_with_the_last_failure() -> None:
    server = Server(*(stream(BEGUN) for _ in range(3)))
    agent = Retrying(Anthropic(ACCESS, server), Backoff(attempts=3), Watched().time)
    with pytest.raises(AgentError) as raised:
        asyncio.run(agent.reply(PROMPT, quiet, unhurried))
    assert raised.value.usage == READ + READ + READ


def test_a_call_is_not_tried_again_where_whoever_waits_forbids_it() -> None:
    def forbids(pause: Pause) -> None:
        raise AgentError("no more", kind="budget")

    server = Server(httpx.Response(500), recorded("openai/text.sse"))
    with pytest.raises(AgentError, match="no more"):
        asyncio.run(
            Retrying(OpenAI(ACCESS, server), None, Watched().time).reply(PROMPT, quiet, forbids)
        )


@pytest.mark.parametrize("status", [400, 401, 402, 403, 404, 413, 422, 501])
def test_what_cannot_pass_is_not_tried_again(status: int) -> None:
    outcome, waits, _ = run(httpx.Response(status), recorded("openai/text.sse"))
    assert isinstance(outcome, AgentError)
    assert waits == []


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_what_may_pass_is_tried_again(status: int) -> None:
    assert run(httpx.Response(status), recorded("openai/text.sse"))[0] == WHOLE


NOW = datetime(2026, 11, 1, 12, 0, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Sun, 01 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sun, 01 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "Sun, 01 Nov 2026 12:00:30"}, 30.0),
        ({"retry-after-ms": "250", "retry-after": "1"}, 0.25),
    ],
)
def test_what_a_server_wishes_is_read(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


def resets(prefix: str, value: str, left: str = "0", *, before: bool = True) -> dict[str, str]:
    """A limit's headers, `reset` before or after its name."""
    names = [
        f"{prefix}{word}-tokens" if before else f"{prefix}tokens-{word}"
        for word in ("reset", "remaining")
    ]
    return {names[0]: value, names[1]: left}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        (resets("x-ratelimit-", "6m0s"), 360.0),
        (resets("x-ratelimit-", "1.5s"), 1.5),
        (resets("x-ratelimit-", "120ms"), 0.12),
        (resets("x-ratelimit-", "1d2h"), 93600.0),
        (resets("anthropic-ratelimit-", "2026-11-01T12:00:30Z", before=False), 30.0),
        (resets("anthropic-ratelimit-", "2026-11-01T11:00:00Z", before=False), 0.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1793534440000"}, 40.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1793534440"}, 40.0),
        ({"ratelimit-remaining": "0", "ratelimit-reset": "50"}, 50.0),
        (
            {
                **resets("x-ratelimit-", "9s"),
                "x-ratelimit-remaining-requests": "0",
                "x-ratelimit-reset-requests": "3m",
            },
            180.0,
        ),
        (resets("x-ratelimit-", "9s", left="3"), None),
        (resets("x-ratelimit-", "soon"), None),
        ({"x-ratelimit-reset-tokens": "9s"}, None),
        (
            {
                "anthropic-ratelimit-unified-5h-status": "rejected",
                "anthropic-ratelimit-unified-5h-reset": "1793541600",
                "anthropic-ratelimit-unified-7d-status": "allowed",
                "anthropic-ratelimit-unified-7d-reset": "1793934400",
            },
            7200.0,
        ),
        ({}, None),
    ],
)
def test_the_reset_of_a_limit_that_is_used_up_is_read(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert limit_reset(headers, NOW) == seconds


@given(
    value=st.one_of(st.text(), st.floats().map(str), st.integers().map(lambda number: f"{number}s"))
)
def test_no_reset_breaks_the_reader(value: str) -> None:
    for seconds in (
        limit_reset(resets("x-ratelimit-", value), NOW),
        retry_delay(f"try again in {value}"),
    ):
        assert seconds is None or 0 <= seconds < float("inf")


@given(value=st.text())
def test_no_wish_breaks_the_reader(value: str) -> None:
    seconds = retry_after({"retry-after": value}, NOW)
    assert seconds is None or seconds >= 0


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        ('{"error": {"type": "usage_limit_reached", "resets_at": 1793541600}}', 7200.0),
        ('{"error": {"resets_in_seconds": 90, "resets_at": null}}', 90.0),
        ('{"message": "{\\"resetsAt\\": \\"2026-11-01T14:00:00Z\\"}"}', 7200.0),
        ("Claude AI usage limit reached|1793541600", 7200.0),
        ('{"resets_at": 1}', 1.0),
        ('{"resets_at": "soon"}', None),
        ("the limit resets at: noon", None),
        ("", None),
    ],
)
def test_the_end_of_a_plans_window_is_read_from_the_error(body: str, seconds: float | None) -> None:
    assert reset_in_body(body, NOW) == seconds
