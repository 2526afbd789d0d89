"""web_search: what each engine is asked and how its answer is shown; on the real binary off until a
rule names it.
"""

import asyncio
import http.server
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic.types
import httpx
import openai.types.responses
import pytest
from anthropic.types import MessageCreateParams
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming
from pydantic import TypeAdapter

from fugu_cli import wiring
from fugu_cli.config import Config
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.config.schema import AgentEntry
from fugu_cli.extension_wiring import build_search
from fugu_cli.messages import Call, PaidUse, Usage
from fugu_cli.safety.policy import Rules, judge
from fugu_cli.session.events import Permitted, Price, ToolRan
from fugu_cli.session.state import SessionState
from fugu_cli.tools.result import ToolResult
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.web_search import SearchEngine, web_search
from fugu_cli.tools.workspace import Workspace
from tests.acceptance.driving import Agent, Done, Place
from tests.acceptance.loopback import Says, Use, running

QUERY = "how old is é?"
PAGE = "https://example.org/é?a=b"
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1,
    "model": "gpt-x",
    "parallel_tool_calls": True,
    "tool_choice": "auto",
    "tools": [{"type": "web_search"}],
    "status": "completed",
    "output": [
        {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search", "query": QUERY}},
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "status": "completed",
            "content": [
                {
                    "type": "output_text",
                    "text": "It is old. Very old.",
                    "annotations": [
                        {"type": "url_citation", "url": PAGE, "title": "Age", "start_index": 0, "end_index": 10},
                        {"type": "url_citation", "url": "https://b.example", "title": "B", "start_index": 11,
                         "end_index": 20},
                    ],
                }
            ],
        },
    ],
    "usage": {
        "input_tokens": 100,
        "input_tokens_details": {"cached_tokens": 40, "cache_write_tokens": 0},
        "output_tokens": 20,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 120,
    },
}  # fmt: skip
CITED = {
    "type": "web_search_result_location", "url": PAGE, "title": "Age", "cited_text": "old", "encrypted_index": "x",
}  # fmt: skip
MESSAGE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "content": [
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {"query": QUERY}},
        {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
            {"type": "web_search_result", "url": PAGE, "title": "Age", "encrypted_content": "x", "page_age": None}]},
        {"type": "text", "text": "It is ", "citations": None},
        {"type": "text", "text": "old.", "citations": [CITED, CITED]},
    ],
    "usage": {"input_tokens": 60, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 0, "output_tokens": 20},
}  # fmt: skip
GEMINI = {
    "candidates": [
        {
            "content": {
                "role": "model",
                "parts": [{"text": "hm", "thought": True}, {"text": "It is old."}],
            },
            "groundingMetadata": {
                "groundingChunks": [{"web": {"uri": PAGE, "title": "example.org"}}]
            },
        }
    ],
    "usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 15, "thoughtsTokenCount": 5},
}
AGE = {"title": " The\n age ", "url": PAGE, "content": "It is\told."}
LISTED = {"results": [AGE, {"url": "https://b.example"}, {"url": None, "title": "a value"}]}


def test_a_search_and_an_agent_try_a_refused_key_once_together() -> None:
    asked: list[str] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        asked.append(str(request.url))
        return httpx.Response(401, json={"error": {"message": "Incorrect API key provided"}})

    entry = AgentEntry(
        name="strong", provider="openai", model="gpt-x", base_url="https://refused.example/v1",
        api_key_env="SEARCH_KEY",
    )  # fmt: skip
    environ = {"SEARCH_KEY": "k"}
    config = Config(allow=("web_search",), search="strong")
    loaded = LoadedConfig(config, files=(), notes=(), root=Path.cwd(), trusted=True)
    engine = build_search(loaded, environ, [entry])
    assert isinstance(engine, SearchEngine)
    gate = wiring.build_search_gate(engine)
    box = Toolbox([web_search(engine, httpx.MockTransport(refuse), gate)])
    call = Call.make("1", "web_search", query=QUERY)
    workspace = Workspace(Path.cwd(), Path.cwd() / "store")
    for _ in range(3):
        result = asyncio.run(box.run(call, workspace, lambda text: None))
        assert not result.ok
    assert "its key was refused" in result.text
    assert len(asked) == 1
    breaker = wiring.build_circuit_breaker([entry], environ)
    assert breaker.unavailable().keys() == {"strong"}


def searched(engine: SearchEngine, answer: Callable[[httpx.Request], httpx.Response]) -> ToolResult:
    box = Toolbox([web_search(engine, httpx.MockTransport(answer))])
    call = Call.make("1", "web_search", query=QUERY)
    return asyncio.run(
        box.run(call, Workspace(Path.cwd(), Path.cwd() / "store"), lambda text: None)
    )


@pytest.mark.parametrize(
    ("engine", "answer", "asked", "shown", "usage"),
    [
        (
            SearchEngine("responses", "https://a.example/v1", "k", "gpt-x", "strong"),
            RESPONSE,
            ("POST", "https://a.example/v1/responses", "authorization", "Bearer k"),
            f"It is old. [1] Very old. [2]\nSources:\n[1] Age\n    {PAGE}\n[2] B\n    "
            f"https://b.example\n"
            "[searched at a.example, by strong]",
            Usage(input=100, cached=40, output=20),
        ),
        (
            SearchEngine("messages", "https://a.example/v1", "k", "claude-x", "strong"),
            MESSAGE,
            ("POST", "https://a.example/v1/messages", "x-api-key", "k"),
            f"It is old. [1]\nSources:\n[1] Age\n    {PAGE}\n[searched at a.example, by strong]",
            Usage(input=100, cached=40, output=20),
        ),
        (
            SearchEngine("gemini", "https://a.example/v1beta", "k", "gemini-x", "strong"),
            GEMINI,
            (
                "POST",
                "https://a.example/v1beta/models/gemini-x:generateContent",
                "x-goog-api-key",
                "k",
            ),
            f"It is old.\nSources:\n[1] example.org\n    {PAGE}\n[searched at a.example, by "
            f"strong]",
            Usage(input=100, output=20),
        ),
        (
            SearchEngine("searxng", "http://localhost:8888"),
            LISTED,
            (
                "GET",
                "http://localhost:8888/search?q=how+old+is+%C3%A9%3F&format=json",
                "authorization",
                None,
            ),
            f"[1] The age\n    {PAGE}\n    It is old.\n[2] https://b.example\n    "
            f"https://b.example\n"
            "[searched at localhost:8888]",
            None,
        ),
        (
            SearchEngine("brave", "https://a.example", "k"),
            {"web": {"results": [{"title": "The age", "url": PAGE, "description": "It is old."}]}},
            (
                "GET",
                "https://a.example/web/search?q=how+old+is+%C3%A9%3F&count=8",
                "x-subscription-token",
                "k",
            ),
            f"[1] The age\n    {PAGE}\n    It is old.\n[searched at a.example]",
            None,
        ),
        (
            SearchEngine("tavily", "https://a.example", "k"),
            {"results": []},
            ("POST", "https://a.example/search", "authorization", "Bearer k"),
            "Nothing was found.\n[searched at a.example]",
            None,
        ),
    ],
    ids=lambda value: value.kind if isinstance(value, SearchEngine) else "",
)
def test_every_engine_is_asked_in_its_form_and_its_sources_are_shown(
    engine: SearchEngine,
    answer: dict[str, Any],
    asked: tuple[str, str, str, str | None],
    shown: str,
    usage: Usage | None,
) -> None:
    requests: list[httpx.Request] = []

    def answering(request: httpx.Request) -> httpx.Response:
        requests.append(request)
        return httpx.Response(200, json=answer)

    result = searched(engine, answering)
    (request,) = requests
    assert (request.method, str(request.url), asked[2], request.headers.get(asked[2])) == asked
    assert result == ToolResult(
        text=shown, paid=PaidUse(agent="strong", usage=usage) if usage else None
    )
    body = json.loads(request.content or b"{}")
    if (
        engine.kind == "responses"
    ):  # the SDKs' own types hold for what is asked and for what is answered here
        TypeAdapter(ResponseCreateParamsNonStreaming).validate_python(body)
        openai.types.responses.Response.model_validate(answer, strict=False)
    if engine.kind == "messages":
        TypeAdapter(MessageCreateParams).validate_python(body)
        anthropic.types.Message.model_validate(answer, strict=False)


def failing(error: Exception) -> Callable[[httpx.Request], httpx.Response]:
    def answer(request: httpx.Request) -> httpx.Response:
        raise error

    return answer


@pytest.mark.parametrize(
    ("kind", "answer", "said"),
    [
        ("brave", httpx.Response(401, json={"error": {"message": "no such key"}}), "status 401: no such key"),
        ("tavily", httpx.Response(432, json={"detail": {"error": "used up"}}), ("status 432: "
            "{'error': 'used up'}")),
        ("searxng", httpx.Response(403, text="<html>"), ("a SearXNG must list `json` under "
            "`search: formats`")),
        ("searxng", httpx.Response(200, text="<html>"), ("a SearXNG must list `json` under "
            "`search: formats`")),
        ("searxng", httpx.Response(302, headers={"location": "http://x"}), ("answered with status "
            "302")),
        ("brave", httpx.Response(200, text="<html>"), "answered with status 200, and no JSON"),
        ("brave", httpx.Response(200, json={"web": {"results": [1]}}), ("in a form that is not "
            "known")),
        ("responses", httpx.Response(200, json={"output": None}), "in a form that is not known"),
        ("brave", httpx.Response(200, content=b"[" * 3_000_001), "answered with more than 3 MB"),
        ("brave", httpx.ConnectError("no route"), "cannot be reached: no route"),
        ("brave", httpx.ReadTimeout(""), "did not answer within 60 s"),
        (
            "messages",
            httpx.Response(200, json={"content": [
                {"type": "web_search_tool_result", "content": {"error_code": "max_uses_exceeded"}}]}),
            "the provider's search failed: max_uses_exceeded",
        ),
    ],
)  # fmt: skip
def test_an_engine_that_fails_says_why(
    kind: Any, answer: httpx.Response | Exception, said: str
) -> None:
    act = failing(answer) if isinstance(answer, Exception) else lambda request: answer
    result = searched(SearchEngine(kind, "https://a.example", "secret-key", "m", "a"), act)
    assert (result.ok, said in result.text, "secret-key" in result.text) == (False, True, False), (
        result.text
    )


@pytest.mark.parametrize(
    ("rules", "verdict"),
    [
        (Rules(), "ask"),
        (Rules(allow=("web_search",)), "allow"),
        (Rules(allow=("web_search",), ask=("web_search",)), "ask"),
        (Rules(allow=("web_search",), deny=("web_search",)), "deny"),
        (Rules(mode="plan", allow=("web_search",)), "allow"),
        (Rules(mode="auto"), "deny"),
        (Rules(mode="yolo"), "allow"),
    ],
)
def test_a_query_is_judged_by_rules_that_name_the_tool(rules: Rules, verdict: str) -> None:
    assert judge(Call.make("1", "web_search", query="x"), rules, Path("/repo")).verdict == verdict


@pytest.fixture
def engine() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A server that answers as a SearXNG and as the Messages API; what it was asked."""
    asked: list[tuple[str, str]] = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def answer(self) -> None:
            asked.append((self.path, self.headers.get("x-api-key", "")))
            body = json.dumps(LISTED if self.path.startswith("/search") else MESSAGE).encode()
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = answer

        def log_message(self, *_: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", asked
    server.shutdown()
    server.server_close()


def worked(
    folder: Path, more: str, *others: Agent, variables: dict[str, str] | None = None
) -> tuple[Place, Done, str]:
    """A run whose agent searches; the tools that it was told of, as text."""
    with running() as server:
        place = Place(folder, server.url)
        place.begin()
        place.variables = variables or {}
        place.configure(Agent("worker"), *others, more=more)
        server.play(
            "worker",
            Says("", (Use("web_search", {"query": "age of é"}),)),
            Says("It is old (example.org)."),
        )
        done = place.fugu("run", "--agent", "worker", "how old?")
        return place, done, json.dumps(server.asked("worker")[0].body["tools"])


def test_a_searxng_is_asked_on_the_real_binary_where_a_rule_allows_it(
    tmp_path: Path, engine: tuple[str, list[tuple[str, str]]]
) -> None:
    url, asked = engine
    place, done, told = worked(tmp_path, f'allow = ["web_search"]\nsearch = "{url}"')
    assert (done.code, "web_search" in told) == (0, True), done.err
    assert "✓ web_search age of é" in done.err
    assert asked == [("/search?q=age+of+%C3%A9&format=json", "")]
    (ran,) = [event for event in place.events() if isinstance(event, ToolRan)]
    assert f"[1] The age\n    {PAGE}\n    It is old." in ran.output


def test_a_providers_own_search_is_paid_for_by_its_agent(
    tmp_path: Path, engine: tuple[str, list[tuple[str, str]]]
) -> None:
    url, asked = engine
    finder = Agent(
        "finder",
        "strong",
        "anthropic",
        price="{ input = 10.0, cached = 10.0, output = 100.0 }",
        url=f"{url}/v1",
    )
    place, done, _ = worked(tmp_path, 'allow = ["web_search"]\nsearch = "finder"', finder)
    assert done.code == 0, done.err
    assert [path for path, _ in asked] == ["/v1/messages"] and asked[0][1]
    assert SessionState(place.events()).cost == pytest.approx((100 * 10 + 20 * 100) / 1e6)
    assert "finder 100 in (40 cached) 20 out" in done.err


def test_it_is_off_until_a_rule_names_it_and_asked_about_where_none_allows_it(
    tmp_path: Path, engine: tuple[str, list[tuple[str, str]]]
) -> None:
    url, asked = engine
    (tmp_path / "off").mkdir()
    _, _, told = worked(tmp_path / "off", f'search = "{url}"')
    assert "web_search" not in told
    (tmp_path / "ask").mkdir()
    place, _, told = worked(
        tmp_path / "ask", 'ask = ["web_search"]', variables={"SEARXNG_URL": url}
    )
    permitted = [event for event in place.events() if isinstance(event, Permitted)]
    assert "web_search" in told
    assert [(event.allowed, event.by) for event in permitted] == [(False, "headless")]
    assert asked == []


OPENAI = AgentEntry(name="o", provider="openai", model="m", base_url="https://api.openai.com/v1", api="responses",
                    api_key_env="OPENAI_API_KEY", price=Price(input=2.0, output=8.0))  # fmt: skip
GOOGLE = AgentEntry(name="g", provider="openai", model="m", api_key_env="GEMINI_API_KEY",
                    base_url="https://generativelanguage.googleapis.com/v1beta/openai",
                    price=Price(input=1.0, output=8.0))  # fmt: skip
OTHER = AgentEntry(
    name="x", provider="openai", model="m", base_url="https://x.example/v1", api="chat"
)
BOTH = {"OPENAI_API_KEY": "k", "GEMINI_API_KEY": "g"}
ENGINES = {"BRAVE_API_KEY": "b", "TAVILY_API_KEY": "t"}


@pytest.mark.parametrize(
    ("search", "environ", "expected"),
    [
        ("auto", BOTH, ("gemini", "https://generativelanguage.googleapis.com/v1beta", "g")),
        (
            "auto",
            {"OPENAI_API_KEY": "k", **ENGINES},
            ("responses", "https://api.openai.com/v1", "o"),
        ),
        ("o", BOTH, ("responses", "https://api.openai.com/v1", "o")),
        ("x", {}, ("responses", "https://x.example/v1", "x")),
        (
            "auto",
            {"SEARXNG_URL": "http://s.example/", **ENGINES},
            ("searxng", "http://s.example", ""),
        ),
        ("auto", ENGINES, ("brave", "https://api.search.brave.com/res/v1", "")),
        ("tavily", {**BOTH, **ENGINES}, ("tavily", "https://api.tavily.com", "")),
        ("https://s.example", BOTH, ("searxng", "https://s.example", "")),
    ],
)
def test_what_is_asked_follows_from_the_pool_the_environment_and_the_key_search(
    tmp_path: Path, search: str, environ: dict[str, str], expected: tuple[str, str, str]
) -> None:
    config = Config(allow=("web_search",), search=search)
    loaded = LoadedConfig(config, files=(), notes=(), root=tmp_path, trusted=False)
    found = build_search(loaded, environ, (OPENAI, GOOGLE, OTHER))
    assert isinstance(found, SearchEngine)
    assert (found.kind, found.url, found.agent) == expected


def test_a_run_says_where_nothing_can_be_asked(tmp_path: Path) -> None:
    _, done, told = worked(tmp_path, 'allow = ["web_search"]\nsearch = "nobody"')
    assert "fugu: web_search is not offered: `search = 'nobody'` leads to nothing here" in done.err
    assert "web_search" not in told
