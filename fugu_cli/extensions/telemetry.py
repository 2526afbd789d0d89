"""OpenTelemetry: the events of a log as spans and metrics, by the conventions for generative AI.

`Telemetry` reads one log. It gets each event once it is written, with secrets masked.
`CollectorLink` sends to the collector, in threads of the SDK. Only imported if the user's
environment names an endpoint (OTEL_EXPORTER_OTLP_ENDPOINT). A failing collector costs the user
one sentence.

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
from fugu_cli.session import costs
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
"""Seconds that the end of a session waits until everything is sent."""
PROVIDERS = {"google": "gcp.gemini", "mistral": "mistral_ai", "xai": "x_ai"}
"""Vendors with another name in the conventions."""
STOPS = {
    "end": "stop",
    "calls": "tool_call",
    "length": "length",
    "refusal": "content_filter",
    "cut": "error",
}
SCHEMA = "https://opentelemetry.io/schemas/1.37.0"
"""The version of the conventions whose names are used."""
SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92)
TOKENS = tuple(4.0**power for power in range(14))
"""Bounds of the histograms, as the conventions give them."""
_ERRNO = re.compile(r"\[Errno -?\d+\] ([^'\")]+)")

Attributes: TypeAlias = dict[str, str | int | float | bool | list[str]]


def is_wanted(environ: Mapping[str, str]) -> bool:
    """Return whether the environment names an endpoint and does not disable the SDK."""
    off = environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"
    return not off and any(
        environ.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("", "TRACES_", "METRICS_")
    )


@dataclass(frozen=True)
class _Call:
    """A model call. `seconds` is its duration."""

    turn: int
    member: Member | None
    seconds: float
    model: str = ""
    error: str = ""


class Telemetry:
    """Sends the events of a log to a collector until the log is closed."""

    def __init__(self, log: Log, link: CollectorLink, id: str, above: str = "") -> None:
        """`id` is that of the session or served request. `above` is the parent span as a
        `traceparent`.
        """
        self._log = log
        self._link = link
        self._conversation: Attributes = {"gen_ai.conversation.id": id}
        self._above = TraceContextTextMapPropagator().extract({"traceparent": above})
        self._members = log.state.pool
        self._request: trace.Span | None = None
        self._spent = 0.0
        self._turns: dict[int, trace.Span] = {}
        self._finished_turns: set[int] = set()
        """Turns whose agent has finished. Tests may still run in them."""
        self._newest_time = self._previous_time = time.time_ns()
        """Times of the newest event and of the one before it, in nanoseconds."""
        log.listen(self._receive)

    def begin_request(self, request: Asked | None) -> trace.Span:
        """Start the span of a request. None is a resumed request, from here on."""
        attributes: Attributes = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "fugu",
        }
        attributes |= {
            "gen_ai.provider.name": "fugu",
            "gen_ai.agent.version": __version__,
            **self._conversation,
        }
        if request is None:
            attributes["fugu.resumed"] = True
        elif self._link.content:
            attributes["gen_ai.input.messages"] = _message(
                "user", [{"type": "text", "content": request.whole}]
            )
        self._spent = 0.0
        self._request = self._link.tracer.start_span(
            "invoke_agent fugu",
            self._above,
            SpanKind.INTERNAL,
            attributes,
            start_time=self._newest_time,
        )
        return self._request

    def _receive(self, item: Recorded | Live | None) -> None:
        if item is None:
            self._end_request("interrupted")
        elif isinstance(item, Recorded):
            self._previous_time, self._newest_time = self._newest_time, int(item.at * 1e9)
            self._tell(item.event)

    def _tell(self, event: Event) -> None:
        match event:
            case Opened():
                self._members = {member.name: member for member in event.pool}
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
                self._finished_turns |= set() if event.calls else {event.turn}
            case Planned():
                self._chat(
                    event, _Call(0, self._members.get(event.agent), event.seconds, event.model)
                )
            case Compacted() if event.agent:
                self._chat(event, _Call(0, self._members.get(event.agent), event.seconds))
            case Failed():
                if (member := self._members.get(event.what)) is not None:
                    self._chat(event, _Call(event.turn, member, 0.0, error=event.kind))
                if (turn := self._turns.get(event.turn)) is not None:
                    turn.set_attribute("error.type", event.kind)
                    turn.set_status(Status(StatusCode.ERROR, event.kind))
                self._finished_turns.add(event.turn)
            case Permitted(allowed=False):
                self._tool(event.call, event.turn, 0.0, error="denied", result=event.reason)
            case ToolRan():
                if event.agent:
                    self._chat(
                        event, _Call(event.turn, self._members.get(event.agent), event.seconds)
                    )
                error = "" if event.ok else "tool_error"
                self._tool(event.call, event.turn, event.seconds, error=error, result=event.output)
            case Interrupted():
                self._end_turns({event.turn}, self._newest_time)
            case Finished():
                self._end_request(event.reason, event.message)
            case _:
                pass

    def _begin_turn(self, event: Assigned) -> None:
        self._end_turns(self._finished_turns, self._previous_time)
        request = self._request or self.begin_request(None)
        scores = event.scores
        route: Attributes = {
            "fugu.turn": event.turn,
            "fugu.agent": event.agent,
            "fugu.role": event.role,
        }
        route |= {"fugu.by": event.by, "fugu.milliseconds": round(event.milliseconds.total, 1)}
        if scores is not None:
            for group, names, values in (
                ("agent", scores.rows, scores.row_probabilities),
                ("role", ("worker", "thinker", "verifier"), scores.role_probabilities),
            ):
                route |= {
                    f"fugu.probability.{group}.{name}": p
                    for name, p in zip(names, values, strict=False)
                }
            route["fugu.masked"] = sorted(dict(scores.masked))
        if self._link.content and event.why:
            route["fugu.reason"] = event.why
        request.add_event("fugu.route", route, self._newest_time)
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
            start_time=self._newest_time,
        )

    def _chat(self, event: PaidEvent, call: _Call) -> None:
        """Add the span and the metrics of a model call."""
        used, served = event.usage, _served_by(call.member)
        model = str(served.get("gen_ai.request.model", call.model))
        attributes: Attributes = {"gen_ai.operation.name": "chat", **served, **self._conversation}
        attributes |= {
            "gen_ai.usage.input_tokens": used.input,
            "gen_ai.usage.output_tokens": used.output,
        }
        attributes |= {"gen_ai.usage.cache_read.input_tokens": used.cached} if used.cached else {}
        attributes |= (
            {"gen_ai.usage.cache_creation.input_tokens": used.written} if used.written else {}
        )
        attributes |= (
            {"gen_ai.usage.reasoning.output_tokens": used.reasoning} if used.reasoning else {}
        )
        attributes["fugu.cost_usd"] = cost = costs.price(event, call.member)
        attributes |= {"gen_ai.response.model": call.model} if call.model else {}
        if isinstance(event, Replied):
            if event.response_id:
                attributes["gen_ai.response.id"] = event.response_id
            if event.max_tokens:
                attributes["gen_ai.request.max_tokens"] = event.max_tokens
            attributes["gen_ai.response.finish_reasons"] = [STOPS[event.stop]]
            if self._link.content:
                attributes["gen_ai.output.messages"] = _reply_message(event)
        error: Attributes = {"error.type": call.error} if call.error else {}
        self._past_span(
            f"chat {model}", SpanKind.CLIENT, call.turn, call.seconds, attributes | error
        )
        dimensions: Attributes = {"gen_ai.operation.name": "chat", **served} | error
        dimensions |= {"gen_ai.response.model": call.model} if call.model else {}
        self._link.measure(call.seconds, used, cost, dimensions)
        self._spent += cost

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
        """Add a span below its turn that ends with the newest event."""
        above = self._turns.get(turn) or self._request or self.begin_request(None)
        started = self._newest_time - int(seconds * 1e9)
        span = self._link.tracer.start_span(name, _below(above), kind, about, start_time=started)
        if "error.type" in about:
            span.set_status(Status(StatusCode.ERROR, str(about["error.type"])))
        span.end(self._newest_time)

    def _end_turns(self, numbers: set[int], at: int) -> None:
        for number in sorted(numbers & set(self._turns)):
            self._turns.pop(number).end(at)
        self._finished_turns -= numbers

    def _end_request(self, reason: str, message: str = "") -> None:
        if self._request is None:
            return
        self._end_turns(set(self._turns), self._newest_time)
        self._request.set_attributes({"fugu.end": reason, "fugu.cost_usd": self._spent})
        if self._link.content:
            answer: list[object] = [{"type": "text", "content": self._log.state.request.answer}]
            self._request.set_attribute("gen_ai.output.messages", _message("assistant", answer))
        if reason == "failed":
            self._request.set_attribute("error.type", reason)
            self._request.set_status(
                Status(StatusCode.ERROR, message if self._link.content else reason)
            )
        self._request.end(self._newest_time)
        self._request = None


def _served_by(member: Member | None) -> Attributes:
    if member is None:
        return {}
    vendor = member.provider if member.provider != "openai" else member.vendor or "openai"
    attributes: Attributes = {
        "gen_ai.provider.name": PROVIDERS.get(vendor, vendor),
        "gen_ai.request.model": member.model,
    }
    if member.address:
        attributes["server.address"] = member.address
    return attributes


def _below(span: trace.Span) -> Context:
    return trace.set_span_in_context(span)


def _message(role: str, parts: list[object], **more: str) -> str:
    return json.dumps([{"role": role, "parts": parts, **more}], ensure_ascii=False)


def _reply_message(event: Replied) -> str:
    parts: list[object] = [
        {"type": "reasoning", "content": thought.text} for thought in event.thinking if thought.text
    ]
    parts += [{"type": "text", "content": event.text}] if event.text else []
    parts += [
        {"type": "tool_call", "id": call.id, "name": call.tool, "arguments": call.arguments}
        for call in event.calls
    ]
    return _message("assistant", parts, finish_reason=STOPS[event.stop])


class CollectorLink(logging.Handler):
    """The SDK's providers and exporters, which send to a collector. `tell` is given the first
    failure in one sentence, from any thread.
    """

    def __init__(
        self, environ: Mapping[str, str], tell: Callable[[str], None] = lambda _: None
    ) -> None:
        """Raises ValueError for settings that the SDK cannot use."""
        super().__init__(logging.WARNING)
        self.notes: tuple[str, ...] = ()
        capture = environ.get("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "")
        self.content = capture.strip().lower() in {"true", "1", "span_only", "span_and_event"}
        """True if prompts and answers are sent, too."""
        self._tell = tell
        names = [f"OTEL_EXPORTER_OTLP_{name}ENDPOINT" for name in ("", "TRACES_", "METRICS_")]
        endpoint = next(environ[name] for name in names if environ.get(name))
        self._shown_endpoint = endpoint.rpartition("@")[2]  # without user and password
        self._transient_fault = ""
        self._closing = False
        library = logging.getLogger("opentelemetry")
        library.addHandler(self)
        library.propagate = False  # each fault would be a line on the screen
        protocol = environ.get("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        if protocol != "http/protobuf":
            self._fail(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol}, and fugu speaks http/protobuf")
            environ = {"OTEL_TRACES_EXPORTER": "none", "OTEL_METRICS_EXPORTER": "none"}
        self._exporters: list[Any] = []
        resource = Resource({"service.name": "fugu", "service.version": __version__}).merge(
            OTELResourceDetector().detect()
        )
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        if _is_sent(environ, "TRACES"):
            self._traces.add_span_processor(BatchSpanProcessor(self._exporter(OTLPSpanExporter)))
        readers = []
        if _is_sent(environ, "METRICS"):
            readers.append(PeriodicExportingMetricReader(self._exporter(OTLPMetricExporter)))
        self._metrics = MeterProvider(readers, resource, shutdown_on_exit=False)
        self.tracer = self._traces.get_tracer("fugu", __version__, schema_url=SCHEMA)
        meter = self._metrics.get_meter("fugu", __version__, schema_url=SCHEMA)
        self._tokens = meter.create_histogram(
            "gen_ai.client.token.usage", "{token}", explicit_bucket_boundaries_advisory=TOKENS
        )
        self._durations = meter.create_histogram(
            "gen_ai.client.operation.duration", "s", explicit_bucket_boundaries_advisory=SECONDS
        )
        self._cost = meter.create_counter(
            "fugu.cost", "{USD}", "what model calls cost, at the prices of the pool"
        )

    def measure(self, seconds: float, used: Usage, cost: float, attributes: Attributes) -> None:
        """Record the metrics of a model call. `cost` is in USD."""
        self._durations.record(seconds, attributes)
        if used.input or used.output:
            self._tokens.record(used.input, attributes | {"gen_ai.token.type": "input"})
            self._tokens.record(used.output, attributes | {"gen_ai.token.type": "output"})
        if cost:
            self._cost.add(cost, attributes)

    def _exporter(self, exporter_type: Any) -> Any:
        session = requests.Session()
        session.hooks["response"].append(self._answered)
        self._exporters.append(exporter_type(session=session))
        return self._exporters[-1]

    def _answered(self, response: requests.Response, **_: object) -> None:
        """Report an answer that no collector gives. The SDK takes any page or redirection for one."""
        content_type = response.headers.get("content-type", "").partition(";")[0]
        status = response.status_code
        if status < 400 and ("html" in content_type or status >= 300):
            page = f" and {content_type}" if "html" in content_type else ""
            path = urlsplit(response.url).path
            self._fail(f"{path} answers with status {status}{page}, as no collector does")

    def emit(self, record: logging.LogRecord) -> None:
        """Handle a log record of the SDK."""
        message = record.getMessage()
        system_error = _ERRNO.search(message)
        if system_error:
            fault = system_error[1]
        else:
            fault = message.partition(" encountered while")[0]
            fault = fault.removeprefix("Transient error ")[:200]
        if record.levelno >= logging.ERROR:
            self._fail(self._transient_fault or fault)
        elif "Transient error" in str(record.msg):
            self._transient_fault = fault
            if self._closing:  # nobody waits for a second try
                for exporter in self._exporters:
                    exporter.shutdown()
                self._fail(fault)

    def _fail(self, why: str) -> None:
        if not self.notes:
            self.notes = (
                f"telemetry is not delivered to {self._shown_endpoint}: {why} (`fugu help storage`)",
            )
            self._tell(self.notes[0])

    async def finish(self) -> None:
        """Send what is still waiting, for CLOSING_SECONDS at most."""
        self._closing = True
        loop = asyncio.get_running_loop()
        ended = [self._shut(loop, provider) for provider in (self._traces, self._metrics)]
        try:
            async with asyncio.timeout(CLOSING_SECONDS):
                for event in ended:
                    await event.wait()
        except TimeoutError:
            self._fail(
                self._transient_fault or f"no answer within {CLOSING_SECONDS:g} s at the end"
            )

    @staticmethod
    def _shut(
        loop: asyncio.AbstractEventLoop, provider: TracerProvider | MeterProvider
    ) -> asyncio.Event:
        """Shut a provider down in a thread that no exit waits for."""
        ended = asyncio.Event()

        def shut() -> None:
            provider.shutdown()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(ended.set)

        threading.Thread(target=shut, daemon=True).start()
        return ended


def _is_sent(environ: Mapping[str, str], signal: str) -> bool:
    has_endpoint = any(
        environ.get(f"OTEL_EXPORTER_OTLP_{name}ENDPOINT") for name in ("", f"{signal}_")
    )
    return has_endpoint and environ.get(f"OTEL_{signal}_EXPORTER", "otlp").strip().lower() != "none"
