"""Turns a server's refusal into an AgentError that tells what happened, why, and what to do next.

Used by http_client.py (statuses) and the wires (errors inside a stream). Pure. It does not know the
wire: all of them put a message, a type or a code somewhere into a JSON object, or send a page for
people.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from pydantic import ValidationError

from fugu_cli.errors import AgentError
from fugu_cli.formatting import CLOCK_TIME_FROM, clock_time
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.quota_windows import LONGEST_WINDOW
from fugu_cli.system.bounded_json import parse_json

CLIP = 1000
"""Characters of a server's message that are shown."""
CLIP_OF_TEXT = 300
"""Characters of an answer without such a message that are shown."""

NO_CREDIT = (
    "insufficient_quota",
    "billing_error",
    "billing_not_active",
    "credit balance",
    "insufficient balance",
    "insufficient credits",
    "key limit exceeded",
    "all available credits",
    "spending limit",
    "api usage limits",
    "billing_hard_limit",
    "arrearage",
)
BAD_KEY = re.compile(
    r"(incorrect|invalid) api[ _-]?key|api[ _-]?key (is )?(not valid|invalid)", re.IGNORECASE
)
"""Words of servers that answer 400 for a wrong key."""

_KEY_OR_ACCOUNT = (
    r"(?:(?:api|access|secret|licen[cs]e)?[ _-]?keys?|(?:api|access|auth\w*|bearer|security|session)"
    r"[ _-]?token|credentials?|account(?! number| detail| holder| information)|organi[sz]ation"
    r"|project|team|workspace|subscription|tenant|billing|authentication)(?:\b|(?=_|:))(?!['’]s)"
    r"(?: included in the request)?"
)
_UNUSABLE = (
    r"(?:\b(?:invalid|incorrect|wrong|unknown|missing|expired|revoked|disabled|deactivated|suspended"
    r"|blocked|banned|leaked|restricted|closed|terminated|inactive|unauthori[sz]ed|insufficient"
    r"|required|reported|exceeded|overdue|lacks?|has no|good standing)\b"
    r"|(?:\bnot|n['’]t) (?:been )?(?:valid|active|allowed|permitted|authori[sz]ed|enabled|verified|found"
    r"|recogni[sz]ed|have|exist|belong)\b)"
)
_SAME_CLAUSE = r"(?:(?!prompt|request|message|content|input|policy|guardrail)[^.;,!?\n]){0,60}?"
KEY_REFUSED = re.compile(
    rf"\b{_KEY_OR_ACCOUNT}{_SAME_CLAUSE}{_UNUSABLE}"
    rf"|(?:{_UNUSABLE}|\bno|bad|without|another|provide|supply|need|use)"
    rf"(?: (?:an?|the|your|this|that|valid|different))* {_KEY_OR_ACCOUNT}"
    r"|(?:invalid|expired|revoked|missing) token\b"
    r"|invalid_api_key|authentication_error|account_(?:disabled|deactivated|suspended)",
    re.IGNORECASE,
)
"""Words of a 403 that refuses the key or the account. Any other 403 belongs to the request, which a
guardrail, a firewall or a filter has stopped.
"""

TOO_LONG = re.compile(
    r"context.{0,20}(length|size|window|limit)|prompt (is too long|length)|too many tokens|input "
    r"token count"
    r"|input is too long|exceed\w* max length|prompt token count|exceeded model token limit|too "
    r"large for model with"
    r"|request too large for .*tokens|(maximum model|range of input) length|must (be <=|have "
    r"less than) \d+( tokens|\.)"
    r"|(tokens?|token length|messages) .{0,20}exceed\w* .{0,30}(limit|number of (input "
    r")?tokens|max message tokens)"
    r"|maximum number of input tokens|tokens_limit_reached|too many total text bytes|超长|超限",
    re.IGNORECASE,
)
FILTERED = re.compile(
    r"content[ _-]?(filter|management policy|policy)|usage policy|requires "
    r"moderation|(was|were|been) flagged"
    r"|data_inspection_failed|inappropriate content",
    re.IGNORECASE,
)
REGION_BLOCKED = re.compile(
    r"(country|region|location)\b.{0,40}\bnot (supported|available)|not available in your "
    r"(country|region)",
    re.IGNORECASE,
)
NO_TOOLS = re.compile(
    r"not support (tools|tool use|tool calling|functions?|function calling)\b|support tool use"
    r"|tool[ _-]?choice.*requires|(tools|tool_choice) param requires",
    re.IGNORECASE,
)
NO_MODEL = re.compile(
    r"model.{0,60} does not exist|model_not_found|not a valid model", re.IGNORECASE
)
PAGE = "an HTML page"
RETRY_INFO = re.compile(r'"retryDelay"\s*:\s*"(\d+(?:\.\d+)?)s"')
_DURATION = (
    r"(?:(\d{1,9})d)?(?:(\d{1,9})h)?(?:(\d{1,9})m(?!s))?(?:(\d{1,9}(?:\.\d+)?) "
    r"?(s|ms)(?:ec(?:ond)?s?)?\b)?"
)
DURATION = re.compile(_DURATION)
"""As Go writes it: `6m0s`, `1.5s`, `120ms`."""
RETRY_IN_WORDS = re.compile(rf"(?:again in|retry in|retry after) {_DURATION}", re.IGNORECASE)
RESETS_IN_BODY = re.compile(
    r"""resets?_?(?:at|in_seconds)\\?["']?\s*:\s*\\?["']?([\w:.+-]+)|limit reached\|(\d{10,13})\b""",
    re.IGNORECASE,
)
RESET = re.compile(r".*rate-?limit.*-reset.*")
LEAST_TIMESTAMP = 1e9
"""Smaller numbers are durations in seconds; from here on seconds since 1970, and from 1000 times
this number on milliseconds since 1970."""
PERMANENT = (501, 505)
TRANSIENT = (409, 424, 425)
"""Statuses of temporary refusals, caused by another request or another server."""
STATUS_OF_TYPE = {
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "insufficient_quota": 402,
    "api_error": 500,
    "server_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
    "invalid_request_error": 400,
    "context_length_exceeded": 400,
    "content_filter": 400,
    "invalid_prompt": 400,
}
"""The HTTP status that each type of an error inside a stream stands for."""


def retry_after(headers: Mapping[str, str], time: datetime) -> float | None:
    """Return the seconds that the server asks to wait (RFC 9110 10.2.3: a number or a date; also in
    ms), or None.
    """
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        if not value:
            continue
        try:
            seconds = float(value) * unit
        except ValueError:
            try:
                moment = parsedate_to_datetime(value)
            except ValueError:
                continue
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=UTC)
            seconds = (moment - time).total_seconds()
        if math.isfinite(seconds):
            return max(0.0, seconds)
    return None


def retry_delay(body: str) -> float | None:
    """Return the seconds that a server asks to wait in its body, or None.

    Google sends google.rpc.RetryInfo; OpenAI, Groq and Azure name the time in their message.
    """
    match = RETRY_INFO.search(body)
    if match:
        return float(match[1])
    match = RETRY_IN_WORDS.search(body)
    return _duration(match) if match else None


def _duration(match: re.Match[str]) -> float | None:
    """Return the seconds of a `DURATION`, or None if it is empty."""
    days, hours, minutes, seconds, unit = match.groups()
    if not any(match.groups()):
        return None
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60
    return whole + float(seconds or 0) * (0.001 if unit == "ms" else 1.0)


def limit_reset(headers: Mapping[str, str], time: datetime) -> float | None:
    """Return the seconds until the exhausted limits in a server's headers are reset, or None if no
    limit is exhausted.

    OpenAI, Azure, Groq (`x-ratelimit-reset-tokens: 6m0s`), Anthropic
    (`anthropic-ratelimit-tokens-reset`, a date), OpenRouter (`x-ratelimit-reset`, milliseconds
    since 1970) and the IETF draft (`ratelimit-reset`, seconds) write the time differently. All have
    a header with `remaining` in place of `reset`; the windows of Claude's plans
    (`anthropic-ratelimit-unified-reset`) one with `status`.
    """
    resets: list[float] = []
    for name, value in headers.items():
        if not RESET.fullmatch(name.lower()):
            continue
        remaining = headers.get(name.lower().replace("reset", "remaining"), "").strip()
        status = headers.get(name.lower().replace("reset", "status"), "").strip()
        seconds = _seconds_until(value.strip(), time)
        if (_number(remaining) == 0 or status == "rejected") and seconds is not None:
            resets.append(seconds)
    return max(resets, default=None)


def reset_in_body(body: str, time: datetime) -> float | None:
    """Return the seconds until the time that a server's error names for the end of a plan's window,
    or None.

    ChatGPT's plans say `"resets_at": 1767225600` and `"resets_in_seconds": 3600`, Claude's
    `usage limit reached|1767225600`.
    """
    seconds = [
        _seconds_until(match[1] or match[2], time) for match in RESETS_IN_BODY.finditer(body)
    ]
    return max((value for value in seconds if value is not None), default=None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _seconds_until(text: str, time: datetime) -> float | None:
    """Return the seconds from `time` to the end of a wait, or None if the text names none.

    The text is a number of seconds, a time since 1970 in seconds or milliseconds, a `DURATION`, or
    a date.
    """
    number = _number(text)
    if number is not None:
        if number < LEAST_TIMESTAMP:
            return max(0.0, number)
        is_milliseconds = number >= 1000 * LEAST_TIMESTAMP
        timestamp = number / 1000 if is_milliseconds else number
        return max(0.0, timestamp - time.timestamp())
    match = DURATION.fullmatch(text)
    duration = _duration(match) if match else None
    if duration is not None:
        return duration
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return max(0.0, (date - time).total_seconds())


def message_of_body(body: str) -> tuple[str, str]:
    """Return the message in a server's answer, and its type or code. Both may be empty."""
    text = body.strip()
    if text.startswith("<"):
        return PAGE, ""
    try:
        parsed: object = parse_json(text)
    except ValueError:
        return text[:CLIP_OF_TEXT], ""
    return message_of_object(parsed)


def message_of_object(parsed: object) -> tuple[str, str]:
    """Return the message of an error object, however deeply nested, and its type or code."""
    if isinstance(parsed, list) and parsed:
        return message_of_object(parsed[0])
    if not isinstance(parsed, dict):
        return str(parsed)[:CLIP_OF_TEXT], ""
    inner = parsed.get("error", parsed)
    if not isinstance(inner, dict):
        return str(inner)[:CLIP], ""
    message = inner.get("message") or inner.get("detail") or inner.get("msg") or ""
    if not isinstance(message, str):
        message = json.dumps(message)
    metadata = inner.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if raw:  # OpenRouter: the message of the server behind it, which alone names the cause
        cause, _ = message_of_body(raw) if isinstance(raw, str) else message_of_object(raw)
        message = f"{message}: {cause}"
    kinds = [
        str(inner[key]) for key in ("code", "type", "status") if inner.get(key) not in (None, "")
    ]
    return message[:CLIP] or json.dumps(inner)[:CLIP_OF_TEXT], " ".join(kinds)


def error_in_stream(endpoint: ModelEndpoint, parsed: object) -> AgentError:
    """Return the error for an error object in place of a piece of the reply."""
    message, kind = message_of_object(parsed)
    status = 500
    for part in kind.split():
        if part.isdigit() and 400 <= int(part) < 600:
            status = int(part)
            break
        if part in STATUS_OF_TYPE:
            status = STATUS_OF_TYPE[part]
            break
    return error_of_status(
        endpoint,
        status,
        f"{message.rstrip('.')} ({kind})" if kind else message,
        retry_delay(message),
    )


def error_of_part(
    endpoint: ModelEndpoint, data: str, error: Exception, what: str, hint: str
) -> AgentError:
    """Return the error for data that is not a part of a `what` (completion, message, response)."""
    reason = str(error)
    if isinstance(error, ValidationError):
        fault = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(str(step) for step in fault["loc"])
        reason = f"{field}: {fault['msg']}" if field else fault["msg"]
    return AgentError(
        f"{endpoint.name}: {endpoint.host} sent a piece that is no part of a {what} ({reason}): "
        f"{endpoint.hidden(data)[:80]!r}",
        kind="protocol",
        hint=hint,
    )


def error_of_status(
    endpoint: ModelEndpoint, status: int, message: str, after: float | None = None
) -> AgentError:
    """Return the error for an HTTP status, with the server's `message` and the seconds that it asks
    to wait.
    """
    error = _map_status(endpoint, status, message, after)
    error.status = status
    return error


def _map_status(
    endpoint: ModelEndpoint, status: int, message: str, after: float | None
) -> AgentError:
    details = f" ({status}): {endpoint.hidden(message)}" if message else f" ({status})"
    says_no_credit = any(sign in message.lower() for sign in NO_CREDIT)
    if status == 402 or (status in (400, 403, 429) and says_no_credit):
        return AgentError(
            f"{endpoint.name}: the account at {endpoint.host} has no credit left{details}",
            kind="credit",
            after=after,
            hint=(
                f"Add credit or raise a limit there, or leave the agent out with `--opt-out "
                f"{endpoint.name}`."
            ),
        )
    is_forbidden_key = status == 403 and KEY_REFUSED.search(message)
    is_bad_key = status == 400 and BAD_KEY.search(message)
    if status == 401 or is_forbidden_key or is_bad_key:
        return _key_refused(endpoint, details)
    if (error := _map_message(endpoint, status, message, details)) is not None:
        return error
    if status == 429:
        return AgentError(
            f"{endpoint.name}: rate limited by {endpoint.host}{details}",
            kind="limited",
            retry=True,
            after=after,
            hint=f"{_waiting_advice(after)}, or add another agent to the pool.",
        )
    if status in (408, 504):
        return AgentError(
            f"{endpoint.name}: {endpoint.host} gave up waiting{details}",
            kind="timeout",
            retry=True,
            after=after,
        )
    # llama.cpp answers a prompt that is too long like this
    overflow = status == 500 and "context" in message and TOO_LONG.search(message)
    if (status >= 500 or status in TRANSIENT) and not overflow:
        return AgentError(
            f"{endpoint.name}: {endpoint.host} is overloaded or broken{details}",
            kind="overloaded",
            retry=status not in PERMANENT,
            after=after,
            hint="Try later, or let another agent of the pool do it.",
        )
    return _request_refused(endpoint, status, details)


def _waiting_advice(after: float | None) -> str:
    """Return what to do about a limit that ends in so many seconds."""
    if after is None or after < CLOCK_TIME_FROM:
        return "Wait a while"
    end = clock_time(datetime.now(UTC).timestamp() + min(after, LONGEST_WINDOW))
    return f"Wait until {end}, when it is asked again"


def _map_message(
    endpoint: ModelEndpoint, status: int, message: str, details: str
) -> AgentError | None:
    """Return the error that the server's message identifies better than its status, or None."""
    host = endpoint.host
    if status in (413, 429) and TOO_LONG.search(message) and "too large" in message.lower():
        return _request_refused(endpoint, status, details)
    if status in (400, 403, 422) and FILTERED.search(message):
        what = f"the content filter of {host} stopped it"
        hint = "Say it in other words, or let another agent of the pool do it."
    elif status in (400, 403, 451) and REGION_BLOCKED.search(message):
        what = f"{host} does not serve the place it is called from"
        hint = (
            f"Leave the agent out with `--opt-out {endpoint.name}`, or reach its model through "
            f"another provider."
        )
    elif status == 403 and message == PAGE:
        what = f"something before {host} does not let the request through"
        hint = f"Check HTTPS_PROXY, a firewall, and `base_url`: {endpoint.address}"
    elif status in (400, 404, 422, 500) and NO_TOOLS.search(message):
        what = f"{endpoint.model} at {host} takes no tools as it is"
        hint = (
            f'Give the entry {endpoint.name} in .fugurc `protocol = "text"`, or start the server '
            f"with tool calls."
        )
    else:
        return None
    return AgentError(f"{endpoint.name}: {what}{details}", kind="invalid", hint=hint)


def _key_refused(endpoint: ModelEndpoint, details: str) -> AgentError:
    where = f" in {endpoint.key_env}" if endpoint.key_env else ""
    if endpoint.key:
        what = f"the key{where} was refused by {endpoint.host}{details}"
        hint = "Keep another key with `fugu login`."
        if endpoint.key_env:
            hint = f"Correct {endpoint.key_env}, or keep another key with `fugu login`."
    else:
        what = f"API key missing for {endpoint.host}{details}"
        hint = (
            f"Set {endpoint.key_env}, or keep a key with `fugu login`."
            if endpoint.key_env
            else f"Set `api_key_env` for {endpoint.name} in .fugurc."
        )
    return AgentError(f"{endpoint.name}: {what}", kind="refused", hint=hint)


def _request_refused(endpoint: ModelEndpoint, status: int, details: str) -> AgentError:
    kind, too_long = "invalid", False
    entry = f"the entry {endpoint.name} in .fugurc"
    if status == 404 or NO_MODEL.search(details):
        kind = "absent"
        purpose = f" for {endpoint.model}" if endpoint.model else ""
        what = f"nothing at {endpoint.address} answers{purpose}"
        hint = f"Check `model` and `base_url` of {entry}, or choose another one with `--agent`."
    elif status == 403:
        what = f"{endpoint.host} does not let this request through"
        hint = f"Check what the request holds, a firewall, and `base_url` of {entry}."
    elif 300 <= status < 400:
        kind = "absent"
        what = f"{endpoint.address} points somewhere else"
        hint = f"Check `base_url` of {entry}."
    elif status in (413, 429) or TOO_LONG.search(details):
        too_long = True
        what = f"the request is longer than {endpoint.model} can read"
        if status in (413, 429):
            what = f"the request is too large for {endpoint.host}"
        hint = f"To shorten it, begin a new session, or give {entry} the right `context`."
    else:
        what = f"{endpoint.host} does not accept the request"
        hint = f"Check `model` and `context` of {entry}."
    error = AgentError(f"{endpoint.name}: {what}{details}", kind=kind, hint=hint)
    error.too_long = too_long
    return error
