"""The answer of a Responses server, piece by piece: server-sent events in, text to show and at last a Reply out.

Sans IO, the second half of responses.py. The stream is a list of items (thoughts, messages, calls) that are opened,
filled and done; the last event holds the whole response, which is also what a server sends that does not stream. A
thought is kept as the provider's own JSON: sealed, it is worth nothing if a byte changes, or its place.
"""

from __future__ import annotations

import json
from collections.abc import Callable

from pydantic import BaseModel, ConfigDict, JsonValue

from fugu_cli.agents import caching, failures
from fugu_cli.agents.access import Access
from fugu_cli.agents.bounds import Held
from fugu_cli.agents.history import paired
from fugu_cli.agents.reasons import Stop
from fugu_cli.agents.sse import Heard, ServerEvent
from fugu_cli.agents.weaving import mark
from fugu_cli.errors import AgentError
from fugu_cli.messages import Call, Reply, Thinking, Usage

ENDS = ("response.completed", "response.incomplete", "response.failed", "response.cancelled", "response.done")


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _Cached(_Wire):
    cached_tokens: int | None = None
    cache_write_tokens: int | None = None


class _Reasoned(_Wire):
    reasoning_tokens: int | None = None


class _Usage(_Wire):
    input_tokens: int | None = None
    output_tokens: int | None = None
    input_tokens_details: _Cached | None = None
    output_tokens_details: _Reasoned | None = None

    def neutral(self, *, writing_costs: bool) -> Usage:
        read, made = self.input_tokens_details, self.output_tokens_details
        return Usage(
            input=self.input_tokens or 0,
            cached=(read.cached_tokens if read else None) or 0,
            written=(read.cache_write_tokens if read and writing_costs else None) or 0,
            output=self.output_tokens or 0,
            reasoning=(made.reasoning_tokens if made else None) or 0,
        )


class _Why(_Wire):
    reason: str | None = None


class _Response(_Wire):
    """`output` as it came: a thought goes back as it is."""

    model: str | None = None
    status: str | None = None
    output: list[dict[str, JsonValue]] | None = None
    usage: _Usage | None = None
    error: JsonValue = None
    incomplete_details: _Why | None = None


class _Event(_Wire):
    type: str = ""
    object: str | None = None
    response: _Response | None = None
    item: dict[str, JsonValue] | None = None
    output_index: int = 0
    delta: JsonValue = None
    error: JsonValue = None


class Decoding:
    """One answer. `finished` once nothing more is expected; `reply` may then be asked for."""

    def __init__(self, access: Access, new_id: Callable[[int], str]) -> None:
        self._access = access
        self._new_id = new_id
        self._held = Held(access.name, access.host)
        self._items: dict[int, dict[str, JsonValue]] = {}
        self._texts: dict[int, list[str]] = {}
        self._last = _Response()
        self._begun = False
        self.used = Usage()
        """What the server has reported so far, whatever becomes of the reply."""
        self.finished = False

    @property
    def heard(self) -> Heard:
        """How far the reply has come. A thought is none of it yet: it is opened at once and may take minutes."""
        return Heard.WHOLE if self.finished else Heard.BEGUN if self._begun else Heard.NOTHING

    @property
    def phased(self) -> bool:
        """The server says of a message whether it is commentary or the answer (OpenAI's models from gpt-5.4 on)."""
        return any(isinstance(item.get("phase"), str) for item in self._items.values())

    def feed(self, event: ServerEvent) -> str:
        """Takes one event; returns the text it adds. Raises AgentError for an error inside the stream or no JSON."""
        data = event.data.strip()
        if not data or self.finished or data == "[DONE]":
            return ""
        try:
            parsed: object = json.loads(data)
            taken = _Event.model_validate(parsed)
            whole = _Response.model_validate(parsed) if taken.object == "response" else None
        except (ValueError, RecursionError) as error:
            if not event.whole:
                return ""  # the connection broke inside this event; reply() says so
            raise failures.no_part(
                self._access,
                data,
                error,
                "response",
                f'Check that {self._access.address} speaks the Responses API, or say `api = "chat"`.',
            ) from error
        if taken.type == "error" or event.name == "error" or (taken.error and whole is None):
            raise failures.in_stream(self._access, _without_its_kind(parsed))
        return self._take_whole(whole) if whole is not None else self._take(taken)

    def reply(self) -> Reply:
        """The whole reply. Raises AgentError(kind="network") where the stream ended before it did."""
        if not self.finished:
            raise AgentError(f"{self._access.name}: {self._access.host} cut the stream", kind="network", retry=True)
        text, calls, thinking, refused = "", list[Call](), list[Thinking](), False
        for index in sorted(self._items.keys() | self._texts.keys()):
            item = self._items.get(index, {})
            match item.get("type", "message"):
                case "message":
                    said, no = self._said(index, item)
                    text, refused = text + said, refused or no
                case "function_call":
                    calls.append(self._call(item, calls))
                case "reasoning":
                    thinking.append(_thought(item, (len(text), len(calls))))
        return Reply(
            text=text,
            thinking=tuple(one for one in thinking if one.text or one.data),
            calls=tuple(calls),
            usage=self.used,
            model=self._last.model or self._access.model,
            stop="refusal" if refused else self._stop(bool(calls)),
        )

    def _stop(self, calls: bool) -> Stop:
        why = self._last.incomplete_details.reason if self._last.incomplete_details else None
        if self._last.status == "incomplete" or why:
            return "refusal" if why == "content_filter" else "length"
        return "calls" if calls else "end"

    def _take(self, event: _Event) -> str:
        match event.type:
            case "response.output_item.added" | "response.output_item.done" if event.item is not None:
                self._begun = self._begun or event.item.get("type") != "reasoning"
                self._items[event.output_index] = event.item
                self._held.add(*map(str, event.item.values()))
                self._held.parts(len(self._items))
            case "response.output_text.delta" | "response.refusal.delta" if isinstance(event.delta, str):
                self._begun = True
                self._texts.setdefault(event.output_index, []).append(event.delta)
                self._held.add(event.delta)
                self._held.parts(len(self._texts))
                return event.delta
            case _ if event.type in ENDS and event.response is not None:
                return self._take_whole(event.response)
            case "response.function_call_arguments.delta":
                self._begun = True
        return ""  # the lifecycle, and whatever is added to this protocol later

    def _take_whole(self, response: _Response) -> str:
        """The last word. Its items stand for those that came before, unless it holds none."""
        self._last, self.finished = response, True
        if response.usage is not None:
            self.used = response.usage.neutral(writing_costs=caching.writing_costs(self._access))
        if response.error or response.status in ("failed", "cancelled"):
            raise failures.in_stream(self._access, response.error or {"message": f"the response {response.status}"})
        if response.output:
            shown = bool(self._texts)
            self._items, self._texts = dict(enumerate(response.output)), {}
            return "" if shown else "".join(self._said(index, item)[0] for index, item in self._items.items())
        return ""

    def _said(self, index: int, item: dict[str, JsonValue]) -> tuple[str, bool]:
        """The text of a message, and whether it is a refusal."""
        if item.get("type", "message") != "message":
            return "", False
        content = item.get("content")
        parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
        refused = any(part.get("type") == "refusal" for part in parts)
        whole = "".join(str(part.get("text") or part.get("refusal") or "") for part in parts)
        return paired(whole or "".join(self._texts.get(index, []))), refused

    def _call(self, item: dict[str, JsonValue], before: list[Call]) -> Call:
        given, arguments = item.get("call_id") or item.get("id"), item.get("arguments")
        taken = {call.id for call in before}
        written = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return Call(
            id=given if isinstance(given, str) and given not in taken else self._new_id(len(before)),
            tool=paired(str(item.get("name") or "")),
            arguments="{}" if arguments is None or not written.strip() else paired(written),
        )


def _without_its_kind(parsed: object) -> object:
    """An error event without the word that it is one, which is no kind of error."""
    if isinstance(parsed, dict) and not parsed.get("error"):
        return {name: value for name, value in parsed.items() if name != "type"}
    return parsed


def _thought(item: dict[str, JsonValue], after: tuple[int, int]) -> Thinking:
    """A summary of it, or all of it where the server tells; sealed it goes back."""
    told = [item.get("summary"), item.get("content")]
    parts = [part for list_ in told if isinstance(list_, list) for part in list_ if isinstance(part, dict)]
    text = "\n\n".join(str(part.get("text") or "") for part in parts).strip()
    sealed = item.get("encrypted_content")
    return Thinking(text=paired(text), data=json.dumps({**item, **mark(after)}) if sealed else "")
