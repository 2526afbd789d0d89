"""What happens on the socket: clients that leave, bodies that are too long, too many at once, pages
of a browser.
"""

import json
import socket
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from fugu_cli.errors import UsageError
from fugu_cli.prompts import load
from fugu_cli.server import EndpointLimits, ListenAddress, check_address, is_loopback
from fugu_cli.session.events import Finished
from fugu_cli.session.log import read
from tests.acceptance.serve.endpoint import USED, endpoint, says

TOKEN = "a-token-of-the-tests"
BODY = {"model": "small", "messages": [{"role": "user", "content": "tell"}]}


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_ends_its_model_call(tmp_path: Path, stream: bool) -> None:
    place = endpoint(tmp_path, says("word " * 400), pace=0.05)
    agent = place.agents["small"]
    with place.serving():
        with (
            httpx.Client(timeout=httpx.Timeout(5.0, read=0.3)) as client,
            pytest.raises(httpx.ReadTimeout),
        ):
            if stream:
                with client.stream(
                    "POST", f"{place.url}/v1/chat/completions", json={**BODY, "stream": True}
                ) as answer:
                    next(answer.iter_bytes())
                    raise httpx.ReadTimeout("the client leaves")
            client.post(f"{place.url}/v1/chat/completions", json=BODY)
        left = time.monotonic()
        assert agent.cut.wait(5.0)
        assert time.monotonic() - left < 1.0
    (trace,) = (tmp_path / "sessions" / "served").glob("*.jsonl")
    facts = [record.event for record in read(trace)]
    assert [fact.type for fact in facts] == [
        "opened",
        "asked",
        "assigned",
        "interrupted",
        "finished",
    ]
    assert facts[-1] == Finished(reason="interrupted", message="the client went away")


def test_a_body_that_is_too_long_is_refused(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    place.bounds = EndpointLimits(body=1000)
    with place.serving():
        long = {**BODY, "messages": [{"role": "user", "content": "x" * 1000}]}
        answer = httpx.post(f"{place.url}/v1/chat/completions", json=long)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")


@contextmanager
def trickling(url: str) -> Iterator[socket.socket]:
    """A client that has sent the beginning of its request."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as slow:
        slow.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 9\r\n\r\n{"
        )
        yield slow


def test_a_body_that_only_trickles_in_is_not_waited_for(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    place.bounds = EndpointLimits(seconds=0.1)
    with place.serving(), trickling(place.url) as slow:
        said = slow.recv(65536).decode()
    assert said.startswith("HTTP/1.1 408 ")


def test_a_body_on_its_way_in_holds_a_place(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    place.bounds = EndpointLimits(at_once=1)
    with place.serving(), trickling(place.url):
        answer = httpx.post(f"{place.url}/v1/chat/completions", json=BODY)
        while answer.status_code == 200:  # until the server has seen the other one
            answer = httpx.post(f"{place.url}/v1/chat/completions", json=BODY)
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "1")


def test_a_body_that_is_not_sent_on_gives_way_to_others(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    place.bounds = EndpointLimits(at_once=1)
    with place.serving(), trickling(place.url) as slow:
        statuses = []
        while 429 not in statuses or statuses[-1] != 200:
            statuses.append(httpx.post(f"{place.url}/v1/chat/completions", json=BODY).status_code)
            time.sleep(0.05)
        assert slow.recv(65536).startswith(b"HTTP/1.1 408 ")


def test_an_answer_that_every_agent_is_kept_from_is_refused_as_the_clients_fault(
    tmp_path: Path,
) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        for more in ({}, {"tools": [{"type": "function", "function": {"name": "t"}}]}):
            asked = {**BODY, "model": "fugu", "metadata": {"opt_out": "small, strong"}, **more}
            answer = httpx.post(f"{place.url}/v1/chat/completions", json=asked)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "no_agent_left")


def test_more_answers_at_once_than_allowed_are_refused_with_a_time_to_come_back(
    tmp_path: Path,
) -> None:
    place = endpoint(tmp_path, says("a b"), pace=60.0)
    place.bounds = EndpointLimits(at_once=1)
    with place.serving():
        chat = f"{place.url}/v1/chat/completions"
        with httpx.stream("POST", chat, json={**BODY, "stream": True}, timeout=30):
            answer = httpx.post(chat, json=BODY)
            busy = httpx.get(f"{place.url}/health").json()["busy"]
    assert (answer.status_code, answer.headers["retry-after"], busy) == (429, "1", 1)


def test_an_answer_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("a b c d e f g h"), pace=0.2)
    place.bounds = EndpointLimits(seconds=0.1)
    with place.serving():
        answer = httpx.post(f"{place.url}/v1/messages", json={**BODY, "max_tokens": 5})
        assert place.agents["small"].cut.wait(5.0)
    assert (answer.status_code, answer.json()["error"]["type"]) == (504, "timeout_error")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"origin": "https://evil.example"}, 403),
        ({"origin": "http://[::1"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://localhost:3000"}, 403),
        ({"origin": "OWN"}, 403),
        ({"host": "evil.example"}, 403),
        ({"host": "[evil"}, 403),
        ({"host": "evil@127.0.0.1"}, 403),
        ({"host": "127.0.0.1:80@evil.example"}, 403),
        ({"host": "127.0.0.1.evil.example"}, 403),
        ({"host": "127.0.0.1/evil"}, 403),
        ({"host": "LOCALHOST:9000"}, 200),
        ({"host": "[::1]"}, 200),
        ({}, 200),
    ],
)
def test_a_web_page_cannot_use_a_server_without_a_token(
    tmp_path: Path, headers: dict[str, str], status: int
) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        given = {name: text.replace("OWN", place.url) for name, text in headers.items()}
        assert httpx.get(f"{place.url}/v1/models", headers=given).status_code == status


@pytest.mark.parametrize(
    ("origin", "token", "status"),
    [
        ("OWN", True, 200),
        ("OWN", False, 401),
        ("https://chat.example", True, 200),
        ("https://chat.example:443", True, 200),
        ("https://chat.example", False, 401),
        ("http://chat.example", True, 403),
        ("https://evil@chat.example", True, 403),
        ("http://localhost:3000", True, 403),
        ("null", True, 403),
        (None, True, 200),
        (None, False, 401),
    ],
)
def test_a_page_that_the_user_named_or_the_servers_own_needs_the_token_too(
    tmp_path: Path, origin: str | None, token: bool, status: int
) -> None:
    place = endpoint(tmp_path, says("x"))
    place.token, place.origins = TOKEN, ("https://chat.example",)
    with place.serving():
        headers = {"authorization": f"Bearer {TOKEN}"} if token else {}
        if origin is not None:
            headers["origin"] = origin.replace("OWN", place.url)
        answer = httpx.get(f"{place.url}/v1/models", headers=headers)
    assert answer.status_code == status
    allowed = answer.headers.get("access-control-allow-origin")
    assert allowed == ("https://chat.example" if origin == "https://chat.example" else None)


def test_a_browser_is_told_which_pages_may_ask(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    place.token, place.origins = TOKEN, ("https://chat.example",)
    asks = {
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    with place.serving():
        statuses = [
            httpx.options(
                f"{place.url}/v1/responses", headers={"origin": origin, **asks}
            ).status_code
            for origin in ("https://chat.example", "https://evil.example")
        ]
    assert statuses == [200, 400]


def test_a_burst_lets_in_as_many_as_there_are_places(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("a b"), pace=1.0)
    place.bounds = EndpointLimits(at_once=5)
    with place.serving(), ThreadPoolExecutor(40) as pool:
        posts = [
            pool.submit(httpx.post, f"{place.url}/v1/chat/completions", json=BODY, timeout=60)
            for _ in range(40)
        ]
        statuses = Counter(post.result().status_code for post in posts)
        assert (
            httpx.post(f"{place.url}/v1/chat/completions", json=BODY, timeout=60).status_code == 200
        )
    assert statuses == {200: 5, 429: 35}


@pytest.mark.parametrize("path", ["chat/completions", "responses", "messages"])
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ('{"model":"small","max_tokens":9,"messages":[ITEMS],"input":[ITEMS]}', 413),
        ('{"model":"small","max_tokens":9,"messages":DEEP,"input":DEEP}', 400),
        ('{"model":"small","max_tokens":9,"messages":[{}],"input":[{"type":7}]}', 400),
    ],
)
def test_what_a_body_holds_is_bounded_before_it_is_read(
    tmp_path: Path, path: str, body: str, status: int
) -> None:
    sent = body.replace("ITEMS", ",".join(["{}"] * 150_000)).replace("DEEP", "[" * 200_000)
    with endpoint(tmp_path, says("x")).serving() as place:
        assert httpx.post(f"{place.url}/v1/{path}", content=sent, timeout=60).status_code == status


def test_marks_in_strings_are_no_values_and_no_depth(tmp_path: Path) -> None:
    text = '{"a": [' * 200_000 + '\\" ,'
    place = endpoint(tmp_path, says("x"))
    place.members = tuple(
        member.model_copy(update={"context": 10_000_000}) for member in place.members
    )
    with place.serving():
        asked = {**BODY, "messages": [{"role": "user", "content": text}]}
        answer = httpx.post(f"{place.url}/v1/chat/completions", json=asked, timeout=60)
    assert answer.status_code == 200
    assert [message.text for message in place.agents["small"].shown[-1].messages] == [text]


def test_more_messages_than_are_read_and_far_too_long_ones_are_refused_unread(
    tmp_path: Path,
) -> None:
    message = {"role": "user", "content": "x"}
    with endpoint(tmp_path, says("x")).serving() as place:
        statuses = []
        for messages in ([message] * 10_001, [{**message, "content": "word " * 2_000_000}]):
            asked = {**BODY, "messages": messages}
            answer = httpx.post(f"{place.url}/v1/chat/completions", json=asked, timeout=60)
            statuses.append((answer.status_code, answer.json()["error"]["code"]))
    assert statuses == [(413, "request_too_large"), (400, "context_length_exceeded")]
    assert place.agents["small"].shown == []


@pytest.mark.parametrize(
    "numbers", ['"temperature": NaN', f'"max_tokens": 1{"0" * 400}', '"max_tokens": 1e400']
)
@pytest.mark.parametrize("model", ["fugu", "small"])
def test_numbers_that_nothing_can_be_counted_with_are_refused(
    tmp_path: Path, numbers: str, model: str
) -> None:
    body = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "hi"}}], {numbers}}}'
    with endpoint(tmp_path, says("x")).serving() as place:
        answer = httpx.post(f"{place.url}/v1/chat/completions", content=body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")


def test_of_an_image_that_is_not_sent_along_a_line_is_shown(tmp_path: Path) -> None:
    parts = [
        {"type": "text", "text": "a screen"},
        {"type": "image_url", "image_url": {"url": "https://example.org/x.png"}},
    ]
    told = [USER, {"role": "assistant", "tool_calls": [CALL]}, {**RESULT, "content": parts}]
    with endpoint(tmp_path, says("I see")).serving() as place:
        answer = httpx.post(
            f"{place.url}/v1/chat/completions", json={"model": "small", "messages": told}
        )
    assert answer.status_code == 200
    (result,) = [
        message for message in place.agents["small"].shown[0].messages if message.type == "tool"
    ]
    assert result.text == (
        "a screen\n[A picture or file is not shown: only data: URLs in base64 are taken, nothing "
        "is fetched.]"
    )


def test_what_is_no_request_gets_a_plain_word(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        chat = f"{place.url}/v1/chat/completions"
        said = [
            httpx.post(chat, content=b"{").json()["error"]["message"],
            httpx.post(chat, content=json.dumps({"model": "fugu"})).json()["error"]["message"],
            httpx.get(f"{place.url}/v1/nothing").json()["error"]["message"],
            httpx.get(f"{place.url}/v1/traces/..%2f..%2fetc").json()["error"]["code"],
            httpx.get(f"{place.url}/v1/traces/20260101-000000-00000000").json()["error"]["code"],
        ]
    assert said == [
        "the body is not JSON",
        "messages: Field required",
        "GET /v1/nothing is not offered here; `fugu help serve` lists what is",
        "not_found",
        "trace_not_found",
    ]


USER = {"role": "user", "content": "hi"}
PREFILL = {"role": "assistant", "content": "{"}
CALL = {"id": "x", "type": "function", "function": {"name": "f", "arguments": "{}"}}
RESULT = {"role": "tool", "tool_call_id": "x", "content": "r"}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": []}),
        (
            "chat/completions",
            {
                "messages": [
                    {"role": "system", "content": "x"},
                    {"role": "developer", "content": "y"},
                ]
            },
        ),
        ("messages", {"max_tokens": 9, "messages": []}),
        ("messages", {"max_tokens": 9, "messages": [{"role": "user", "content": []}]}),
        (
            "messages",
            {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "thinking"}]}]},
        ),
        ("responses", {"input": [{"role": "system", "content": "x"}]}),
        ("chat/completions", {"messages": [USER], "max_tokens": 0}),
        ("chat/completions", {"messages": [USER], "max_tokens": 0, "max_completion_tokens": 9}),
        ("chat/completions", {"messages": [USER], "max_completion_tokens": -1}),
        ("messages", {"messages": [USER], "max_tokens": 0}),
        ("responses", {"input": "hi", "max_output_tokens": 0}),
        ("responses", {"input": "hi", "max_output_tokens": -5}),
    ],
)
def test_what_asks_for_nothing_or_leaves_no_room_is_refused(
    tmp_path: Path, path: str, body: dict[str, object]
) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        for model in ("fugu", "small"):
            answer = httpx.post(f"{place.url}/v1/{path}", json={"model": model, **body})
            assert (answer.status_code, "error" in answer.json()) == (400, True)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": [USER, PREFILL]}),
        ("chat/completions", {"messages": [PREFILL]}),
        ("messages", {"max_tokens": 9, "messages": [USER, PREFILL]}),
        ("responses", {"input": [USER, PREFILL]}),
        ("chat/completions", {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}]}),
        (
            "chat/completions",
            {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, RESULT]},
        ),
        (
            "chat/completions",
            {"messages": [USER, {"role": "assistant", "tool_calls": [CALL]}, RESULT, USER]},
        ),
        ("chat/completions", {"messages": [USER, RESULT]}),
    ],
)
@pytest.mark.parametrize("tools", [True, False])
def test_a_conversation_that_ends_in_the_middle_is_answered(
    tmp_path: Path, path: str, body: dict[str, object], tools: bool
) -> None:
    chat = [{"type": "function", "function": {"name": "f"}}]
    named = [{"type": "function", "name": "f"}] if path == "responses" else [{"name": "f"}]
    offered = {"tools": chat if path.startswith("chat") else named} if tools else {}
    with endpoint(tmp_path, says("the rest"), says("the rest")).serving() as place:
        answer = httpx.post(f"{place.url}/v1/{path}", json={"model": "fugu", **body, **offered})
    assert (answer.status_code, "the rest" in answer.text) == (200, True)


def test_a_reply_that_is_to_go_on_is_shown_with_the_wish_for_its_rest(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("the rest")).serving() as place:
        httpx.post(
            f"{place.url}/v1/chat/completions", json={"model": "fugu", "messages": [USER, PREFILL]}
        )
    texts = [getattr(message, "text", "") for message in place.agents["small"].shown[0].messages]
    places = [texts.index(text) for text in ("hi", "{", load("serve/go_on"))]
    assert places == sorted(places)


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.5", "example.org", "::"])
def test_other_machines_need_a_token(host: str) -> None:
    with pytest.raises(UsageError, match="no token protects it"):
        check_address(ListenAddress(host=host), EndpointLimits(), "FUGU_SERVE_TOKEN")
    with pytest.raises(UsageError, match="too short"):
        check_address(ListenAddress(host=host, token="short"), EndpointLimits(), "FUGU_SERVE_TOKEN")
    check_address(
        ListenAddress(host=host, token="long enough to be safe"),
        EndpointLimits(),
        "FUGU_SERVE_TOKEN",
    )


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1", "127.0.0.9"])
def test_this_machine_needs_none(host: str) -> None:
    assert is_loopback(host)
    check_address(ListenAddress(host=host), EndpointLimits(), "FUGU_SERVE_TOKEN")


def test_an_answer_says_which_part_of_its_cost_is_estimated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uncounted = USED.model_copy(update={"estimated_output": 10})
    monkeypatch.setattr("tests.acceptance.serve.endpoint.USED", uncounted)
    place = endpoint(tmp_path, says("It is so."))
    with place.serving():
        answer = httpx.post(f"{place.url}/v1/chat/completions", json=BODY).json()
    assert answer["fugu"]["cost_usd"] == pytest.approx(0.00012)
    assert answer["fugu"]["estimated_cost_usd"] == pytest.approx(0.00002)
