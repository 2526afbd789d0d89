"""web_search: asks a search engine, or a provider that searches by itself. Offered only where a
rule of the user's names it and something can be asked.

Every query is a call of its own, judged like any other; wiring says who is asked. What a provider's
search used is the result's, and is paid for like a reply. No key is in an address or in a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol
from urllib.parse import urlsplit

from pydantic import Field

from fugu_cli.errors import AgentError
from fugu_cli.messages import PaidUse, Usage
from fugu_cli.session import tool_facts
from fugu_cli.system.bounded_json import parse_json
from fugu_cli.tools.read_write import ToolArguments
from fugu_cli.tools.result import Say, ToolResult, plain_text, truncate_line
from fugu_cli.tools.workspace import Tool, Workspace

if TYPE_CHECKING:
    import httpx

EngineKind = Literal["responses", "messages", "gemini", "searxng", "brave", "tavily"]
ADDRESSES: Mapping[str, str] = {
    "brave": "https://api.search.brave.com/res/v1",
    "tavily": "https://api.tavily.com",
}
SHOWN = 8
"""Results that are shown."""
SNIPPET = 400
"""Characters of one."""
ANSWER = 8_000
"""Characters of a provider's own words."""
LARGEST = 3_000_000
ANSWER_TOKENS = 2_000
PROMPT = (
    "Search the web and answer in a few sentences, with the facts and where they stand: {query}"
)


@dataclass(frozen=True)
class SearchEngine:
    """The search engine in use. `url` is the address up to the version. `model` and `agent` are set
    if a model of the pool searches, with `agent_url`, the address that the agent is called at.
    """

    kind: EngineKind
    url: str
    key: str = field(default="", repr=False)
    model: str = ""
    agent: str = ""
    agent_url: str = ""
    seconds: float = 60.0

    @property
    def host(self) -> str:
        return urlsplit(self.url).netloc.rpartition("@")[2]


class SearchGate(Protocol):
    """Keeps a key that was refused from being tried again before its time."""

    def begin(self) -> float:
        """Return the time. Raises AgentError while the key must not be tried."""

    def answered(self, began: float, status: int, message: str) -> None:
        """Note the answer to the call that began then."""

    def cut(self, began: float) -> None:
        """Note that the call ended without an answer."""


class WebSearchArguments(ToolArguments):
    """Arguments of web_search."""

    query: str = Field(description="what to search for", min_length=1, max_length=1000)


@dataclass(frozen=True)
class _SearchResult:
    """The result of a search: the provider's answer, (title, address, snippet) of each result, and
    usage.
    """

    answer: str = ""
    results: tuple[tuple[str, str, str], ...] = ()
    usage: Usage | None = None


class _Refused(Exception):
    """Why nothing was found, for the agent; with the HTTP status of the answer, 0 without one."""

    def __init__(self, why: str, status: int = 0) -> None:
        super().__init__(why)
        self.status = status


def web_search(
    engine: SearchEngine,
    transport: httpx.AsyncBaseTransport | None = None,
    gate: SearchGate | None = None,
) -> Tool[WebSearchArguments]:
    """Return the tool for one engine. `gate` is asked before every search."""

    async def run(arguments: WebSearchArguments, workspace: Workspace, say: Say) -> ToolResult:
        try:
            answer = await _ask_through_gate(engine, arguments.query, transport, gate)
            result = _parse_answer(engine, answer)
        except (_Refused, AgentError) as error:
            return ToolResult(text=f"The search failed: {error}.", ok=False)
        paid = None
        if engine.agent and result.usage:
            paid = PaidUse(agent=engine.agent, usage=result.usage)
        return ToolResult(text=_describe_result(engine, result), paid=paid)

    return Tool.of(tool_facts.WEB_SEARCH, WebSearchArguments, run)


def _describe_result(engine: SearchEngine, result: _SearchResult) -> str:
    lines: list[str] = []
    if result.answer:
        lines.append(result.answer[:ANSWER])
    if result.answer and result.results:
        lines.append("Sources:")
    for number, (title, url, snippet) in enumerate(result.results[:SHOWN], start=1):
        lines.append(f"[{number}] {_line(title) or url}\n    {url}")
        if snippet:
            lines.append(f"    {_line(snippet)}")
    if not lines:
        lines.append("Nothing was found.")
    searcher = f"{engine.host}, by {engine.agent}" if engine.agent else engine.host
    lines.append(f"[searched at {searcher}]")
    return plain_text("\n".join(lines))


def _line(text: str) -> str:
    return truncate_line(" ".join(text.split()), SNIPPET)


def _request(
    engine: SearchEngine, query: str
) -> tuple[str, str, dict[str, str], dict[str, Any] | None]:
    """Return method, address, headers and body."""
    import httpx

    bearer = {"Authorization": f"Bearer {engine.key}"} if engine.key else {}
    prompt = PROMPT.format(query=query)
    match engine.kind:
        case "responses":
            body = {
                "model": engine.model,
                "input": prompt,
                "tools": [{"type": "web_search"}],
                "store": False,
                "max_output_tokens": ANSWER_TOKENS,
            }
            return "POST", f"{engine.url}/responses", bearer, body
        case "messages":
            keys = {"x-api-key": engine.key, "anthropic-version": "2023-06-01"}
            tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
            body = {
                "model": engine.model,
                "max_tokens": ANSWER_TOKENS,
                "tools": [tool],
                "messages": [{"role": "user", "content": prompt}],
            }
            return "POST", f"{engine.url}/messages", keys, body
        case "gemini":
            body = {
                "contents": [{"role": "user", "parts": [{"text": prompt}]}],
                "tools": [{"google_search": {}}],
            }
            address = f"{engine.url}/models/{engine.model}:generateContent"
            return "POST", address, {"x-goog-api-key": engine.key}, body
        case "searxng":
            address = str(httpx.URL(f"{engine.url}/search", params={"q": query, "format": "json"}))
            return "GET", address, bearer, None
        case "brave":
            address = str(
                httpx.URL(f"{engine.url}/web/search", params={"q": query, "count": str(SHOWN)})
            )
            return "GET", address, {"X-Subscription-Token": engine.key}, None
        case "tavily":
            return "POST", f"{engine.url}/search", bearer, {"query": query, "max_results": SHOWN}


async def _ask_through_gate(
    engine: SearchEngine,
    query: str,
    transport: httpx.AsyncBaseTransport | None,
    gate: SearchGate | None,
) -> dict[str, Any]:
    """Return the engine's JSON. Raises _Refused, and AgentError where the gate is closed."""
    if gate is None:
        return await _ask(engine, query, transport)
    began = gate.begin()
    try:
        answer = await _ask(engine, query, transport)
    except _Refused as error:
        if error.status:
            gate.answered(began, error.status, str(error))
        raise
    else:
        gate.answered(began, 200, "")
        return answer
    finally:
        gate.cut(began)  # changes nothing once the answer is noted


async def _ask(
    engine: SearchEngine, query: str, transport: httpx.AsyncBaseTransport | None
) -> dict[str, Any]:
    """Return the engine's JSON. Raises _Refused."""
    import httpx

    method, address, headers, body = _request(engine, query)
    try:
        async with (
            httpx.AsyncClient(timeout=engine.seconds, transport=transport) as client,
            client.stream(
                method, address, headers={"Accept": "application/json", **headers}, json=body
            ) as response,
        ):
            data = b""
            async for piece in response.aiter_bytes():
                data += piece
                if len(data) > LARGEST:
                    raise _Refused(
                        f"{engine.host} answered with more than {LARGEST // 1_000_000} MB"
                    )
    except httpx.TimeoutException as error:
        raise _Refused(f"{engine.host} did not answer within {engine.seconds:g} s") from error
    except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
        raise _Refused(
            f"{engine.host} cannot be reached: {str(error) or type(error).__name__}"
        ) from error
    try:
        answer = parse_json(data)
    except ValueError:
        answer = None
    if response.status_code >= 300 or not isinstance(answer, dict):
        raise _Refused(_describe_fault(engine, response.status_code, answer), response.status_code)
    return answer


def _describe_fault(engine: SearchEngine, status: int, answer: object) -> str:
    reason: object = ""
    if isinstance(answer, dict):
        reason = answer.get("error", answer)
    if isinstance(reason, dict):
        reason = reason.get("message", reason.get("detail", ""))
    message = f"{engine.host} answered with status {status}"
    if reason:
        message += f": {_line(str(reason))}"
    if engine.kind == "searxng" and (status in (403, 404) or 200 <= status < 300):
        return f"{message}; a SearXNG must list `json` under `search: formats` in its settings.yml"
    return message if status >= 300 else f"{message}, and no JSON"


def _parse_answer(engine: SearchEngine, answer: dict[str, Any]) -> _SearchResult:
    """Parse the engine's answer. Raises _Refused for an unknown form."""
    try:
        match engine.kind:
            case "responses":
                return _from_responses(answer)
            case "messages":
                return _from_messages(answer)
            case "gemini":
                return _from_gemini(answer)
            case "brave":
                listed = (answer.get("web") or {}).get("results") or []
                return _SearchResult(results=tuple(_results_with_address(listed, "description")))
            case "searxng" | "tavily":
                return _SearchResult(
                    results=tuple(_results_with_address(answer["results"], "content"))
                )
    except (KeyError, TypeError, AttributeError, ValueError, IndexError) as error:
        raise _Refused(f"{engine.host} answered in a form that is not known") from error


def _results_with_address(
    results: list[dict[str, Any]], snippet: str
) -> Iterator[tuple[str, str, str]]:
    """Yield the results that have an address. SearXNG also lists values without one."""
    for result in results:
        if result["url"]:
            yield str(result.get("title") or ""), str(result["url"]), str(result.get(snippet) or "")


def _from_responses(answer: dict[str, Any]) -> _SearchResult:
    sources = dict[str, str]()
    texts = []
    messages = [item for item in answer["output"] if item["type"] == "message"]
    for part in (part for message in messages for part in message["content"]):
        text = str(part.get("text") or part.get("refusal") or "")
        annotations = part.get("annotations") or []
        citations = [note for note in annotations if note["type"] == "url_citation"]
        _add_sources(sources, citations)
        for citation in sorted(citations, key=lambda item: item["end_index"], reverse=True):
            end = citation["end_index"]
            text = f"{text[:end]} [{_number(sources, citation)}]{text[end:]}"
        texts.append(text)
    used = answer.get("usage") or {}
    usage = Usage(
        input=_count(used, "input_tokens"),
        output=_count(used, "output_tokens"),
        cached=_count(used.get("input_tokens_details") or {}, "cached_tokens"),
    )
    return _SearchResult("\n".join(texts), _results(sources), usage)


def _add_sources(sources: dict[str, str], citations: list[dict[str, Any]]) -> None:
    """Add the titles of cited addresses that are not among the sources."""
    titles = {citation["url"]: citation.get("title") or "" for citation in citations}
    for url, title in titles.items():
        sources.setdefault(url, title)


def _number(sources: dict[str, str], citation: dict[str, Any]) -> int:
    """Return the number of a cited source, from 1."""
    return list(sources).index(citation["url"]) + 1


def _results(sources: dict[str, str]) -> tuple[tuple[str, str, str], ...]:
    return tuple((title, url, "") for url, title in sources.items())


def _count(used: dict[str, Any], name: str) -> int:
    """Return a count of tokens; 0 where it is missing or negative, which is unknown."""
    return max(used.get(name) or 0, 0)


def _from_messages(answer: dict[str, Any]) -> _SearchResult:
    sources = dict[str, str]()
    texts = []
    for block in answer["content"]:
        if block["type"] == "web_search_tool_result" and isinstance(block["content"], dict):
            raise _Refused(f"the provider's search failed: {block['content'].get('error_code')}")
        if block["type"] == "text":
            citations = [item for item in block.get("citations") or [] if "url" in item]
            _add_sources(sources, citations)
            numbers = dict.fromkeys(_number(sources, citation) for citation in citations)
            texts.append(block["text"] + "".join(f" [{number}]" for number in numbers))
    used = answer.get("usage") or {}
    cached = _count(used, "cache_read_input_tokens")
    written = _count(used, "cache_creation_input_tokens")
    whole = _count(used, "input_tokens") + cached + written
    usage = Usage(input=whole, cached=cached, written=written, output=_count(used, "output_tokens"))
    return _SearchResult("".join(texts).strip(), _results(sources), usage)


def _from_gemini(answer: dict[str, Any]) -> _SearchResult:
    candidate = answer["candidates"][0]
    parts = candidate["content"]["parts"]
    text = "".join(part.get("text", "") for part in parts if not part.get("thought"))
    chunks = (candidate.get("groundingMetadata") or {}).get("groundingChunks") or []
    pages = [chunk["web"] for chunk in chunks if "web" in chunk]
    sources = {page["uri"]: page.get("title") or "" for page in pages}
    used = answer.get("usageMetadata") or {}
    output = _count(used, "candidatesTokenCount") + _count(used, "thoughtsTokenCount")
    usage = Usage(input=_count(used, "promptTokenCount"), output=output)
    return _SearchResult(text, _results(sources), usage)
