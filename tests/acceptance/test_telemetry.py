"""OpenTelemetry: what a collector is told of a session by the real binary, and what a bad collector
costs.
"""

import gzip
import http.server
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import httpx
import pytest

from tests.acceptance.driving import Agent, Done, Place
from tests.acceptance.loopback import Asked, Loopback, Says, Use

pytest.importorskip(
    "opentelemetry.exporter.otlp.proto.http", reason="the extra otel is not installed"
)

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

READ = Says("I look.", (Use("read", {"path": "calc.txt"}),), tokens=(100, 10))
WRITE = Says("", (Use("write", {"path": "calc.txt", "content": "fixed\n"}),), tokens=(200, 20))
DONE = Says("I wrote what was missing.", tokens=(300, 30))
ACCEPT = Says("ACCEPT. It does.", tokens=(400, 40))
SECRET = "zq8-not-a-word-4471"


@dataclass
class Collector:
    """A receiver of OTLP over HTTP. `status`, `page`: what it answers; `pause`: seconds before it
    does.
    """

    status: int = 200
    page: bytes = b""
    pause: float = 0.0
    url: str = ""
    traces: ExportTraceServiceRequest = field(default_factory=ExportTraceServiceRequest)
    metrics: ExportMetricsServiceRequest = field(default_factory=ExportMetricsServiceRequest)
    headers: list[str | None] = field(default_factory=list)

    def spans(self) -> list[tuple[str, str, dict[str, object]]]:
        """Name, name of the span above, attributes; in the order of their beginnings."""
        found = [
            span
            for one in self.traces.resource_spans
            for two in one.scope_spans
            for span in two.spans
        ]
        names = {span.span_id: span.name for span in found}
        found.sort(key=lambda span: span.start_time_unix_nano)
        return [
            (span.name, names.get(span.parent_span_id, ""), _attributes(span.attributes))
            for span in found
        ]

    def events(self) -> list[tuple[str, dict[str, object]]]:
        found = [
            span
            for one in self.traces.resource_spans
            for two in one.scope_spans
            for span in two.spans
        ]
        return [
            (event.name, _attributes(event.attributes)) for span in found for event in span.events
        ]

    def points(self, name: str) -> list[tuple[dict[str, object], float]]:
        """Attributes and sums of a metric."""
        every = [
            m
            for one in self.metrics.resource_metrics
            for two in one.scope_metrics
            for m in two.metrics
        ]
        found = []
        for metric in every:
            if metric.name == name:
                found += [
                    (_attributes(point.attributes), point.sum)
                    for point in metric.histogram.data_points
                ]
                found += [
                    (_attributes(point.attributes), point.as_double)
                    for point in metric.sum.data_points
                ]
        return found


def _attributes(pairs: object) -> dict[str, object]:
    def plain(value: object) -> object:
        kind = value.WhichOneof("value")  # type: ignore[attr-defined]
        held = getattr(value, kind)
        return [plain(one) for one in held.values] if kind == "array_value" else held

    return {pair.key: plain(pair.value) for pair in pairs}  # type: ignore[attr-defined]


@contextmanager
def collecting(collector: Collector) -> Iterator[Collector]:
    class Receiver(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            body = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            into = collector.traces if self.path.endswith("/v1/traces") else collector.metrics
            into.MergeFromString(body)
            collector.headers.append(self.headers.get("api-key"))
            time.sleep(collector.pause)
            self.send_response(collector.status)
            self.send_header(
                "content-type", "text/html" if collector.page else "application/x-protobuf"
            )
            self.send_header("content-length", str(len(collector.page)))
            self.end_headers()
            self.wfile.write(collector.page)

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Receiver)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    collector.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting(Collector()) as found:
        yield found


def worked(place: Place, server: Loopback, url: str, **more: str) -> Done:
    place.variables = {
        "OTEL_EXPORTER_OTLP_ENDPOINT": url,
        "OTEL_EXPORTER_OTLP_HEADERS": f"api-key={SECRET}",
        **more,
    }
    place.configure(
        Agent("tele-worker", price="{ input = 1.0, output = 10.0 }"),
        Agent("tele-judge", "strong", "anthropic"),
    )
    server.play("tele-worker", READ, WRITE, DONE)
    server.play("tele-judge", ACCEPT)
    return place.fugu("run", f"write what is missing; the key is {SECRET}")


def test_a_collector_reads_requests_turns_model_calls_tools_and_decisions(
    place: Place, server: Loopback, collector: Collector
) -> None:
    done = worked(place, server, collector.url)
    assert (done.code, "telemetry" in done.err) == (0, False), done.err
    spans = collector.spans()
    assert [
        (name, above) for name, above, _ in spans if "run_tests" not in name and "diff" not in name
    ] == [
        ("invoke_agent fugu", ""),
        ("invoke_agent tele-worker", "invoke_agent fugu"),
        ("chat tele-worker", "invoke_agent tele-worker"),
        ("execute_tool read", "invoke_agent tele-worker"),
        ("chat tele-worker", "invoke_agent tele-worker"),
        ("execute_tool write", "invoke_agent tele-worker"),
        ("chat tele-worker", "invoke_agent tele-worker"),
        ("invoke_agent tele-judge", "invoke_agent fugu"),
        ("chat tele-judge", "invoke_agent tele-judge"),
    ]
    session = place.sessions()[-1].stem
    request, chat = (
        spans[0][2],
        next(about for name, _, about in spans if name == "chat tele-worker"),
    )
    assert (request["gen_ai.operation.name"], request["fugu.end"]) == ("invoke_agent", "accepted")
    assert request["fugu.cost_usd"] == pytest.approx((600 + 10 * 60) / 1e6)
    assert chat.pop("gen_ai.response.id")
    scopes = [scope for one in collector.traces.resource_spans for scope in one.scope_spans]
    assert {scope.schema_url for scope in scopes} == {"https://opentelemetry.io/schemas/1.37.0"}
    assert chat == {
        "gen_ai.operation.name": "chat",
        "gen_ai.request.max_tokens": 32_000,
        "server.address": "127.0.0.1",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": "tele-worker",
        "gen_ai.response.model": "tele-worker-2026-01-01",
        "gen_ai.response.finish_reasons": ["tool_call"],
        "gen_ai.conversation.id": session,
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 10,
        "fugu.cost_usd": pytest.approx(0.0002),
    }
    routes = [about for name, about in collector.events() if name == "fugu.route"]
    assert [(one["fugu.agent"], one["fugu.role"], one["fugu.by"]) for one in routes] == [
        ("tele-worker", "worker", "cascade"),
        ("tele-judge", "verifier", "cascade"),
    ]
    used = {
        (about["gen_ai.request.model"], about["gen_ai.token.type"]): total
        for about, total in collector.points("gen_ai.client.token.usage")
    }
    assert used == {
        ("tele-worker", "input"): 600,
        ("tele-worker", "output"): 60,
        ("tele-judge", "input"): 400,
        ("tele-judge", "output"): 40,
    }
    assert sum(total for _, total in collector.points("fugu.cost")) == pytest.approx(0.0012)
    assert set(collector.headers) == {SECRET}


def test_content_is_sent_only_where_it_is_asked_for_and_secrets_never(
    place: Place, server: Loopback, collector: Collector
) -> None:
    worked(place, server, collector.url)
    sent = str(collector.traces) + str(collector.metrics)
    assert [word for word in ("what is missing", "calc.txt", "fixed", SECRET) if word in sent] == []
    worked(place, server, collector.url, OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT="true")
    sent = str(collector.traces)
    assert [
        word
        for word in ("write what is missing", "calc.txt", "I wrote", "fixed")
        if word not in sent
    ] == []
    assert SECRET not in sent


def test_nothing_is_imported_or_sent_without_an_endpoint(
    place: Place, server: Loopback, collector: Collector
) -> None:
    worked(place, server, collector.url, OTEL_SDK_DISABLED="true")
    worked(place, server, "")
    assert collector.headers == []


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (
            Collector(status=200, page=b"<html>Log in</html>"),
            "answers with status 200 and text/html",
        ),
        (Collector(status=401), "code: 401, reason: Unauthorized"),
        (Collector(status=503), "Service Unavailable"),
        (Collector(pause=60), "no answer within 1.5 s at the end"),
        (None, "Connection refused"),
    ],
    ids=["a page", "refused", "overloaded", "hangs", "down"],
)
def test_a_collector_that_fails_costs_one_line(
    place: Place, server: Loopback, answers: Collector | None, said: str
) -> None:
    with collecting(answers or Collector()) as collector:
        pass_by = collector.url
        if answers is not None:
            done = worked(place, server, pass_by)
    if answers is None:
        done = worked(place, server, pass_by)
    assert done.code == 0, done.err
    lines = [line for line in done.err.splitlines() if "telemetry" in line]
    assert len(lines) == 1 and said in lines[0] and SECRET not in done.err, done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        (
            {"OTEL_BSP_MAX_QUEUE_SIZE": "-1"},
            "telemetry is not sent: max_queue_size must be a positive integer.",
        ),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is grpc"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "me:word@nowhere"},
            "telemetry is not delivered to nowhere: ",
        ),
    ],
)
def test_a_setting_that_cannot_be_used_costs_one_line(
    place: Place, server: Loopback, setting: dict[str, str], said: str
) -> None:
    done = worked(place, server, "http://127.0.0.1:9", **setting)
    assert done.code == 0, done.err
    assert [
        said in line
        for line in done.err.splitlines()
        if "telemetry" in line.lower() or "OTEL" in line
    ] == [True]


def test_a_request_that_is_gone_on_with_is_a_span_again(
    place: Place, server: Loopback, collector: Collector
) -> None:
    worked(place, server, collector.url)
    place.fugu("run", "--continue", "and again")
    ends = [
        about["fugu.end"] for name, _, about in collector.spans() if name == "invoke_agent fugu"
    ]
    assert ends == ["accepted", "answered"]


def test_two_subtasks_at_a_time_lie_below_the_turn_that_began_them(
    place: Place, server: Loopback, collector: Collector
) -> None:
    calls = tuple(
        Use("task", {"description": what, "prompt": what}) for what in ("look here", "look there")
    )

    def react(asked: Asked) -> Says:
        if "This is a task from another agent." in asked.text:
            server.wait_for("tele-lead", 3)  # both are asked before one answers
            return Says("I found it.")
        return Says("Both are found.") if asked.results else Says("", calls)

    place.variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url}
    place.configure(Agent("tele-lead"), more="")
    server.react("tele-lead", react)
    done = place.fugu("run", "what is broken?")
    assert done.code == 0, done.err
    found = sorted((name, above) for name, above, _ in collector.spans())
    assert found == [
        *[("chat tele-lead", "invoke_agent tele-lead")] * 4,
        *[("execute_tool task", "invoke_agent tele-lead")] * 2,
        ("invoke_agent fugu", ""),
        ("invoke_agent tele-lead", "invoke_agent fugu"),
        *[("invoke_agent tele-lead", "invoke_agent tele-lead")] * 2,
    ]


@contextmanager
def serving(place: Place, url: str) -> Iterator[tuple[str, list[str]]]:
    """`fugu serve` and what it says; it is stopped, and has said all, with the end of the block."""
    place.variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": url}
    place.configure(Agent("tele-worker", price="{ input = 1.0, output = 10.0 }"))
    process = place.start("serve", "--port", "0")
    assert process.stderr is not None
    said: list[str] = []
    try:
        for line in process.stderr:
            said.append(line.decode())
            if "listening on" in said[-1]:
                break
        yield said[-1].split()[-1], said
    finally:
        process.terminate()
        said += process.communicate(timeout=30)[1].decode().splitlines()


def test_a_served_request_is_a_span_below_the_clients_own(
    place: Place, server: Loopback, collector: Collector
) -> None:
    server.play("tele-worker", Says("Four.", tokens=(100, 10)))
    earlier = [
        {"role": "user", "content": "two and one?"},
        {"role": "assistant", "content": "Three."},
    ]
    body = {
        "model": "tele-worker",
        "messages": [*earlier, {"role": "user", "content": "two and two?"}],
    }
    above = "0af7651916cd43dd8448eb211c80319c"
    with serving(place, collector.url) as (url, said):
        client = {"traceparent": f"00-{above}-b7ad6b7169203331-01"}
        answer = httpx.post(f"{url}/chat/completions", json=body, headers=client, timeout=30).json()
    assert [line for line in said if "telemetry" in line] == []
    spans = collector.spans()
    assert [(name, under) for name, under, _ in spans] == [
        ("invoke_agent fugu", ""),
        ("invoke_agent tele-worker", "invoke_agent fugu"),
        ("chat tele-worker", "invoke_agent tele-worker"),
    ]
    request = spans[0][2]
    assert (request["gen_ai.conversation.id"], request["fugu.end"]) == (answer["id"], "answered")
    assert request["fugu.cost_usd"] == pytest.approx((100 + 10 * 10) / 1e6)
    found = [
        span
        for one in collector.traces.resource_spans
        for two in one.scope_spans
        for span in two.spans
    ]
    assert {span.trace_id.hex() for span in found} == {above}
    assert sum(total for _, total in collector.points("fugu.cost")) == pytest.approx(200 / 1e6)


def test_an_endpoint_whose_collector_is_down_answers_and_says_so_once(
    place: Place, server: Loopback
) -> None:
    server.play("tele-worker", Says("Four."))
    body = {"model": "fugu", "messages": [{"role": "user", "content": "two and two?"}]}
    with collecting(Collector()) as gone:
        pass
    with serving(place, gone.url) as (url, said):
        answers = [
            httpx.post(f"{url}/chat/completions", json=body, timeout=30).status_code
            for _ in range(2)
        ]
    assert answers == [200, 200]
    assert ["Connection refused" in line for line in said if "telemetry" in line] == [True], said
