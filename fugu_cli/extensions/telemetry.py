"""OpenTelemetry: a log's facts as spans and metrics, in the semantic conventions for generative AI.

`Telemetry` reads one log: it gets each fact once it is written, secrets masked, and makes of it
what a collector reads. `CollectorLink` is the process's way to the collector; the SDK sends from
threads of its own. Only imported where the user's environment names an endpoint
(`OTEL_EXPORTER_OTLP_ENDPOINT`). A collector that fails costs a sentence.

    invoke_agent fugu           a request
        event fugu.route        a decision
        invoke_agent AGENT      a turn
            chat MODEL          a model call
            execute_tool TOOL   a call of a tool
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import requests
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from fugu_cli import __version__
from fugu_cli.messages import Call, Usage
from fugu_cli.session import views
from fugu_cli.session.costs import PaidEvent
from fugu_cli.session.events import (
    Asked,
    Assigned,
    Compacted,
    Event,
    Failed,
    Finished,
    Interrupted,
    Member,
    Opened,
    Permitted,
    Planned,
    Recorded,
    Replied,
    ToolRan,
)
from fugu_cli.session.live_events import Live
from fugu_cli.session.log import Log

CLOSING_SECONDS = 1.5
"""Seconds that the end of a session waits for what is still to be sent."""
PROVIDERS = {"google": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
"""Vendors whose name in the conventions is another one."""
STOPS = {
    "end": "stop",
    "calls": "tool_call",
    "length": "length",
    "refusal": "content_filter",
    "cut": "error",
}
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = tuple(4.0**power for power in range(14))
"""Bounds of the histograms, as the conventions give them."""
_ERRNO = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")

Attributes: TypeAlias = dict[str, str | int | float | bool | list[str]]


def is_wanted(environ: Mapping[str, str]) -> bool:
    """The user names an endpoint, and has not switched everything off."""
    off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not off and any(
        environ.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("", "TRACES_", "METRICS_")
    )


@dataclass(frozen=True)
class _Call:
    """A model call as its fact tells it."""

    turn: int
    member: Member | None
    seconds: float
    model: str = ""
    error: str = ""


class Telemetry:
    """What a log tells a collector, from now on until it is closed."""

    def __init__(self, log: Log, link: CollectorLink, id: str, above: str = "") -> None:
        """`id` is the session's, or that of a served request; `above`: the span above its requests,
        as a `traceparent`."""
        self._log = log
        self._link = link
        self._conversation: Attributes = {"gen_ai.conversation.id": id}
        self._above = TraceContextTextMapPropagator().extract({"traceparent": above})
        self._members = views.pool(log.events)
        self._request: trace.Span | None = None
        self._spent = 0.0
        self._turns: dict[int, trace.Span] = {}
        self._closed: set[int] = set()
        """Turns whose agent has said its last word; tests may still run in them."""
        self._now = self._before = time.time_ns()
        """Nanoseconds of the newest fact, and of the one before it."""
        log.listen(self._receive)

    def begin_request(self, asked: Asked | None) -> trace.Span:
        """The span of a request; of one that is gone on with (None), from here on."""
        about: Attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "fugu"}
        about |= {
            "gen_ai.provider.name": "fugu",
            "gen_ai.agent.version": __version__,
            **self._conversation,
        }
        if asked is None:
            about["fugu.resumed"] = True
        elif self._link.content:
            about["gen_ai.input.messages"] = _message(
                "user", [{"type": "text", "content": asked.whole}]
            )
        self._spent = 0.0
        self._request = self._link.tracer.start_span(
            "invoke_agent fugu", self._above, SpanKind.INTERNAL, about, start_time=self._now
        )
        return self._request

    def _receive(self, item: Recorded | Live | None) -> None:
        if item is None:
            self._end_request("interrupted")
        elif isinstance(item, Recorded):
            self._before, self._now = self._now, int(item.at * 1e9)
            self._tell(item.event)

    def _tell(self, event: Event) -> None:
        match event:
            case Opened():
                self._members = views.pool([event])
            case Asked():
                self._end_request("interrupted")
                self.begin_request(event)
            case Assigned():
                self._begin_turn(event)
            case Replied():
                self._chat(
                    event,
                    _Call(event.turn, self._members.get(event.agent), event.seconds, event.model),
                )
                self._closed |= set() if event.calls else {event.turn}
            case Planned():
                self._chat(
                    event, _Call(0, self._members.get(event.agent), event.seconds, event.model)
                )
            case Compacted() if event.agent:
                self._chat(event, _Call(0, self._members.get(event.agent), event.seconds))
            case Failed():
                if (member := self._members.get(event.what)) is not None:
                    self._chat(event, _Call(event.turn, member, 0.0, error=event.kind))
                self._closed.add(event.turn)
            case Permitted(allowed=False):
                self._tool(event.call, event.turn, 0.0, error="denied", result=event.reason)
            case ToolRan():
                self._ran(event)
            case Interrupted():
                self._end_turns({event.turn}, self._now)
            case Finished():
                self._end_request(event.reason, event.message)
            case _:
                pass

    def _begin_turn(self, event: Assigned) -> None:
        self._end_turns(self._closed, self._before)
        request = self._request or self.begin_request(None)
        scores = event.scores
        route: Attributes = {
            "fugu.turn": event.turn,
            "fugu.agent": event.agent,
            "fugu.role": event.role,
        }
        route |= {"fugu.by": event.by, "fugu.milliseconds": round(event.milliseconds.total, 1)}
        if scores is not None:
            for kind, names, values in (
                ("agent", scores.rows, scores.row_probabilities),
                ("role", ("worker", "thinker", "verifier"), scores.role_probabilities),
            ):
                route |= {
                    f"fugu.probability.{kind}.{name}": p
                    for name, p in zip(names, values, strict=False)
                }
            route["fugu.masked"] = sorted(dict(scores.masked))
        if self._link.content and event.why:
            route["fugu.reason"] = event.why
        request.add_event("fugu.route", route, self._now)
        about: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": event.agent,
        }
        about |= {
            "fugu.turn": event.turn,
            "fugu.role": event.role,
            "fugu.by": event.by,
            **self._conversation,
        }
        about |= _served_by(self._members.get(event.agent))
        caller = self._turns.get(event.subtask.turn) if event.subtask else None
        self._turns[event.turn] = self._link.tracer.start_span(
            f"invoke_agent {event.agent}",
            _below(caller or request),
            attributes=about,
            start_time=self._now,
        )

    def _chat(self, event: PaidEvent, call: _Call) -> None:
        """A model call, and what it used."""
        used, served = event.usage, _served_by(call.member)
        asked = str(served.get("gen_ai.request.model", call.model))
        about: Attributes = {"gen_ai.operation.name": "chat", **served, **self._conversation}
        about |= {
            "gen_ai.usage.input_tokens": used.input,
            "gen_ai.usage.output_tokens": used.output,
        }
        about |= {"gen_ai.usage.cache_read.input_tokens": used.cached} if used.cached else {}
        about |= {"gen_ai.usage.cache_creation.input_tokens": used.written} if used.written else {}
        about |= {"gen_ai.usage.reasoning.output_tokens": used.reasoning} if used.reasoning else {}
        about["fugu.cost_usd"] = cost = views.price(event, call.member)
        about |= {"gen_ai.response.model": call.model} if call.model else {}
        if isinstance(event, Replied):
            about["gen_ai.response.finish_reasons"] = [STOPS[event.stop]]
            if self._link.content:
                about["gen_ai.output.messages"] = _reply_message(event)
        error: Attributes = {"error.type": call.error} if call.error else {}
        self._past_span(f"chat {asked}", SpanKind.CLIENT, call.turn, call.seconds, about | error)
        kind: Attributes = {"gen_ai.operation.name": "chat", **served} | error
        kind |= {"gen_ai.response.model": call.model} if call.model else {}
        self._link.measure(call.seconds, used, cost, kind)
        self._spent += cost

    def _ran(self, event: ToolRan) -> None:
        if event.agent:
            self._chat(event, _Call(event.turn, self._members.get(event.agent), event.seconds))
        error = "" if event.ok else "tool_error"
        self._tool(event.call, event.turn, event.seconds, error=error, result=event.output)

    def _tool(self, call: Call, turn: int, seconds: float, *, error: str, result: str) -> None:
        about: Attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": call.tool}
        about |= {
            "gen_ai.tool.call.id": call.id,
            "gen_ai.tool.type": "function",
            **self._conversation,
        }
        if self._link.content:
            about |= {
                "gen_ai.tool.call.arguments": call.arguments,
                "gen_ai.tool.call.result": result,
            }
        about |= {"error.type": error} if error else {}
        self._past_span(f"execute_tool {call.tool}", SpanKind.INTERNAL, turn, seconds, about)

    def _past_span(
        self, name: str, kind: SpanKind, turn: int, seconds: float, about: Attributes
    ) -> None:
        """A span that ends with the newest fact, below its turn."""
        above = self._turns.get(turn) or self._request or self.begin_request(None)
        started = self._now - int(seconds * 1e9)
        span = self._link.tracer.start_span(name, _below(above), kind, about, start_time=started)
        if "error.type" in about:
            span.set_status(Status(StatusCode.ERROR, str(about["error.type"])))
        span.end(self._now)

    def _end_turns(self, numbers: set[int], at: int) -> None:
        for number in sorted(numbers & set(self._turns)):
            self._turns.pop(number).end(at)
        self._closed -= numbers

    def _end_request(self, reason: str, message: str = "") -> None:
        if self._request is None:
            return
        self._end_turns(set(self._turns), self._now)
        self._request.set_attributes({"fugu.end": reason, "fugu.cost_usd": self._spent})
        if self._link.content:
            answer: list[object] = [{"type": "text", "content": views.answer(self._log.events)}]
            self._request.set_attribute("gen_ai.output.messages", _message("assistant", answer))
        if reason == "failed":
            self._request.set_attribute("error.type", reason)
            self._request.set_status(
                Status(StatusCode.ERROR, message if self._link.content else reason)
            )
        self._request.end(self._now)
        self._request = None


def _served_by(member: Member | None) -> Attributes:
    if member is None:
        return {}
    vendor = member.provider if member.provider != "openai" else member.vendor or "openai"
    return {
        "gen_ai.provider.name": PROVIDERS.get(vendor, vendor),
        "gen_ai.request.model": member.model,
    }


def _below(span: trace.Span) -> Context:
    return trace.set_span_in_context(span)


def _message(role: str, parts: list[object], **more: str) -> str:
    return json.dumps([{"role": role, "parts": parts, **more}], ensure_ascii=False)


def _reply_message(event: Replied) -> str:
    parts: list[object] = [
        {"type": "reasoning", "content": one.text} for one in event.thinking if one.text
    ]
    parts += [{"type": "text", "content": event.text}] if event.text else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.tool, "arguments": call.arguments}
        for call in event.calls
    ]
    return _message("assistant", parts, finish_reason=STOPS[event.stop])


class CollectorLink(logging.Handler):
    """The SDK's providers and exporters. Hears what they log: `tell` gets the first failure, in one
    sentence; it is called from any thread."""

    def __init__(
        self, environ: Mapping[str, str], tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Raises ValueError for settings that the SDK cannot use."""
        super().__init__(logging.WARNING)
        self.notes: tuple[str, ...] = ()
        self.content = environ.get(
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", ""
        ).strip().lower() in {*("true", "1", "span_only", "span_and_event")}
        """Prompts and answers are sent, too."""
        self._tell = tell
        self._where = _endpoint(environ)
        self._doubt = ""
        self._closing = False
        library = logging.getLogger("opentelemetry")
        library.addHandler(self)
        library.propagate = False  # each fault would be a line on the screen
        if (
            spoken := environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        ) != "http/protobuf":
            self._fail(f"OTEL_EXPORTER_OTLP_PROTOCOL is {spoken}, and fugu speaks http/protobuf")
            environ = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
        self._exporters: list[Any] = []
        whole = Resource({"service.name": "fugu", "service.version": __version__}).merge(
            OTELResourceDetector().detect()
        )
        self._traces = TracerProvider(resource=whole, shutdown_on_exit=False)
        if _is_sent(environ, "TRACES"):
            self._traces.add_span_processor(BatchSpanProcessor(self._exporter(OTLPSpanExporter)))
        sent = _is_sent(environ, "METRICS")
        readers = (
            [PeriodicExportingMetricReader(self._exporter(OTLPMetricExporter))] if sent else []
        )
        self._metrics = MeterProvider(readers, whole, shutdown_on_exit=False)
        self.tracer = self._traces.get_tracer("fugu", __version__)
        meter = self._metrics.get_meter("fugu", __version__)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=TOKENS
        )
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=SECONDS
        )
        self._cost = meter.create_counter(
            "fugu.cost", "{USD}", "what model calls cost, at the prices of the pool"
        )

    def measure(self, seconds: float, used: Usage, cost: float, about: Attributes) -> None:
        """The metrics of a model call. `cost` in USD."""
        self._durations.record(seconds, about)
        if used.input or used.output:
            self._tokens.record(used.input, about | {"gen_ai.token.type": "input"})
            self._tokens.record(used.output, about | {"gen_ai.token.type": "output"})
        if cost:
            self._cost.add(cost, about)

    def _exporter(self, kind: Any) -> Any:
        session = requests.Session()
        session.hooks["response"].append(self._answered)
        self._exporters.append(kind(session=session))
        return self._exporters[-1]

    def _answered(self, response: requests.Response, **_: object) -> None:
        """The SDK takes any page and any redirection for a collector's answer."""
        kind, status = (
            response.headers.get("content-type", "").partition(";")[0],
            response.status_code,
        )
        if status < 400 and ("html" in kind or status >= 300):
            page = f" and {kind}" if "html" in kind else ""
            self._fail(
                f"{urlsplit(response.url).path} answers with status {status}{page}, as no "
                f"collector does"
            )

    def emit(self, record: logging.LogRecord) -> None:
        """What the SDK logs."""
        said = record.getMessage()
        known = _ERRNO.search(said)
        said = (
            known[1]
            if known
            else said.partition(" encountered while")[0].removeprefix("Transient error ")[:200]
        )
        if record.levelno >= logging.ERROR:
            self._fail(self._doubt or said)
        elif "Transient error" in str(record.msg):
            self._doubt = said
            if self._closing:  # nobody waits for a second try
                for exporter in self._exporters:
                    exporter.shutdown()
                self._fail(said)

    def _fail(self, why: str) -> None:
        if not self.notes:
            self.notes = (
                f"telemetry is not delivered to {self._where}: {why} (`fugu help telemetry`)",
            )
            self._tell(self.notes[0])

    async def finish(self) -> None:
        """Send what waits, for a moment. A collector that does not answer is left behind."""
        self._closing = True
        loop = asyncio.get_running_loop()
        ended = [self._shut(loop, provider) for provider in (self._traces, self._metrics)]
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                for event in ended:
                    await event.wait()
        except TimeoutError:
            self._fail(self._doubt or f"no answer within {CLOSING_SECONDS:g} s at the end")

    @staticmethod
    def _shut(
        loop: asyncio.AbstractEventLoop, provider: TracerProvider | MeterProvider
    ) -> asyncio.Event:
        """In a thread that no exit waits for."""
        ended = asyncio.Event()

        def shut() -> None:
            provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=shut, daemon=True).start()
        return ended


def _is_sent(environ: Mapping[str, str], signal: str) -> bool:
    named = any(environ.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("", f"{signal}_"))
    return named and environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"


def _endpoint(environ: Mapping[str, str]) -> str:
    """Where it is sent, without a user or a password."""
    names = (f"OTEL_EXPORTER_OTLP_{name}ENDPOINT" for name in ("", "TRACES_", "METRICS_"))
    given = next(value for name in names if (value := environ.get(name)))
    return given.rpartition("@")[2] if "@" in given else given
