"""The endpoint as the openai SDK sees it, over a real socket: Chat Completions and Responses."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import openai
import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam

from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.server import EndpointLimits
from fugu_cli.session.spending import Budgets, Ledger, all_payments
from tests.acceptance.serve.endpoint import Endpoint, endpoint, fails, says, uses

TOOL: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "bash",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "what is it?"}]


def client(place: Endpoint, key: str = "unused") -> OpenAI:
    made = OpenAI(base_url=f"{place.url}/v1", api_key=key, max_retries=0)
    place.clients.append(made)
    return made


def test_the_loop_answers_and_says_what_it_cost_and_where_its_trace_is(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("it is 42")).serving() as place:
        raw = client(place).chat.completions.with_raw_response.create(model="fugu", messages=ASK)
        reply = raw.parse()
        trace = httpx.get(f"{place.url}/v1/traces/{reply.id}").json()
    assert (reply.model, reply.object, reply.choices[0].message.content) == (
        "fugu",
        "chat.completion",
        "it is 42",
    )
    assert reply.choices[0].finish_reason == "stop"
    assert reply.usage is not None and reply.usage.prompt_tokens_details is not None
    assert (reply.usage.prompt_tokens, reply.usage.completion_tokens, reply.usage.total_tokens) == (
        100,
        10,
        110,
    )
    details = reply.usage.prompt_tokens_details.to_dict()
    assert details == {
        "cached_tokens": 40, "orchestration_input_tokens": 100, "orchestration_input_cached_tokens": 40,
    }  # fmt: skip
    assert reply.usage.completion_tokens_details is not None
    assert reply.usage.completion_tokens_details.to_dict() == {
        "reasoning_tokens": 3,
        "orchestration_output_tokens": 10,
    }
    assert (raw.headers["x-fugu-trace"], raw.headers["x-fugu-agent"]) == (reply.id, "small")
    assert [(one["agent"], one["role"]) for one in trace["requests"][0]["decisions"]] == [
        ("small", "worker"), ("strong", "verifier"),
    ]  # fmt: skip
    assert place.events(reply.id) == [
        "opened",
        "asked",
        "assigned",
        "replied",
        "assigned",
        "replied",
        "finished",
    ]


def test_the_pool_and_its_members_are_listed(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        listed = [(model.id, model.owned_by) for model in client(place).models.list()]
        one = client(place).models.retrieve("strong")
    assert listed == [
        ("fugu", "fugu"),
        ("fugu-ultra", "fugu"),
        ("small", "openai"),
        ("strong", "openai"),
    ]
    assert one.id == "strong"


def test_a_named_agent_answers_and_streams_as_it_writes(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("x"), says("one two three")).serving() as place:
        chunks = list(
            client(place).chat.completions.create(
                model="strong", messages=ASK, stream=True, stream_options={"include_usage": True}
            )
        )
    pieces = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert "".join(piece or "" for piece in pieces) == "one two three"
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert len({chunk.id for chunk in chunks}) == 1
    assert chunks[-1].usage is not None and chunks[-1].usage.total_tokens == 110


def test_a_loop_that_is_not_to_be_verified_streams_the_first_workers_words(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("a b")).serving() as place:
        chunks = client(place).chat.completions.create(
            model="fugu", messages=ASK, stream=True, metadata={"verify": "false"}
        )
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == "a b"
    assert len(place.agents["strong"].shown) == 0


def test_tools_go_to_the_client_and_the_agent_that_called_them_goes_on(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses()).serving() as place:
        talk = client(place).chat.completions
        first = talk.create(model="fugu", messages=ASK, tools=[TOOL])
        made = first.choices[0].message.tool_calls
        assert made is not None and first.choices[0].finish_reason == "tool_calls"
        history: list[ChatCompletionMessageParam] = [
            *ASK,
            first.choices[0].message.to_dict(),  # type: ignore[list-item]
            {"role": "tool", "tool_call_id": made[0].id, "content": "a.txt"},
        ]
        second = talk.create(model="fugu", messages=history, tools=[TOOL])
        trace = httpx.get(f"{place.url}/v1/traces/{second.id}").json()
    assert second.choices[0].message.content == "the tool said it"
    decisions = trace["requests"][0]["decisions"]
    assert [(one["agent"], one["by"]) for one in decisions] == [
        ("small", "client"),
        ("small", "sticky"),
    ]
    assert (
        decisions[1]["reason"]
        == f"its calls brought results, and its prompt cache is warm (trace {first.id})"
    )
    shown = place.agents["small"].shown[1]
    assert [message.type for message in shown.messages] == ["user", "agent", "tool"]
    assert shown.messages[1].thinking[0].text == "hm"  # type: ignore[union-attr]
    assert [tool.name for tool in shown.tools] == ["bash"]


@pytest.mark.parametrize(
    ("agents", "opted_out", "header", "agent", "by"),
    [
        (("small", "strong"), "", "", "strong", "sticky"),
        (("small", "strong"), "", "strong", "small", "cascade"),
        (("small", "strong"), "strong", "", "small", "cascade"),
        (("small",), "", "", "small", "cascade"),
    ],
    ids=("goes on", "opted out of the request", "opted out here", "gone"),
)
def test_a_replica_goes_on_with_the_agent_of_a_tool_loop_that_began_elsewhere(
    tmp_path: Path, agents: tuple[str, ...], opted_out: str, header: str, agent: str, by: str
) -> None:
    with endpoint(tmp_path / "first", uses(), uses()).serving() as place:
        first = client(place).chat.completions.create(
            model="fugu", messages=ASK, tools=[TOOL], extra_headers={"x-fugu-opt-out": "small"}
        )
    calls = first.choices[0].message.tool_calls
    assert calls is not None and re.fullmatch(r"[A-Za-z0-9_-]{1,40}", calls[0].id)
    history: list[ChatCompletionMessageParam] = [
        *ASK,
        first.choices[0].message.to_dict(),  # type: ignore[list-item]
        {"role": "tool", "tool_call_id": calls[0].id, "content": "a.txt"},
    ]
    replica = endpoint(tmp_path / "second", uses(), uses())
    replica.members = [member for member in replica.members if member.name in agents]
    replica.opted_out = frozenset({opted_out} - {""})
    with replica.serving():
        second = client(replica).chat.completions.create(
            model="fugu", messages=history, tools=[TOOL], extra_headers={"x-fugu-opt-out": header}
        )
        trace = httpx.get(f"{replica.url}/v1/traces/{second.id}").json()
    decision = trace["requests"][0]["decisions"][-1]
    assert (decision["agent"], decision["by"]) == (agent, by)


def test_tool_calls_are_streamed(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses(command="ls -l")).serving() as place:
        streaming = client(place).chat.completions.stream(model="fugu", messages=ASK, tools=[TOOL])
        with streaming as stream:
            message = stream.get_final_completion().choices[0].message
    assert message.content == "looking"
    assert message.tool_calls is not None
    assert message.tool_calls[0].function.arguments == '{"command": "ls -l"}'


def test_what_the_client_wants_of_the_reply_reaches_the_agent(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("{}")).serving() as place:
        client(place).chat.completions.create(
            model="small",
            messages=[{"role": "system", "content": "be brief"}, *ASK],
            tools=[TOOL],
            tool_choice={"type": "function", "function": {"name": "bash"}},
            temperature=0.5,
            seed=7,
            stop=["END"],
            max_completion_tokens=99,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "a", "schema": {"type": "object"}},
            },
        )
    shown = place.agents["small"].shown[0]
    assert shown == Prompt(
        system="be brief",
        messages=shown.messages,
        tools=shown.tools,
        max_tokens=99,
        temperature=0.5,
        seed=7,
        stop=("END",),
        tool_choice="bash",
        reply_schema='{"type": "object"}',
    )


def test_an_agent_that_is_opted_out_never_sees_the_request(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("from small")).serving() as place:
        talk = client(place).chat.completions
        by_metadata = talk.create(
            model="fugu", messages=ASK, metadata={"opt_out": "small", "verify": "no"}
        )
        by_header = talk.create(
            model="fugu", messages=ASK, tools=[TOOL], extra_headers={"x-fugu-opt-out": "small"}
        )
        with pytest.raises(openai.BadRequestError, match="the pool has: small, strong"):
            talk.create(model="fugu", messages=ASK, metadata={"opt_out": "nobody"})
    assert (
        by_metadata.choices[0].message.content
        == by_header.choices[0].message.content
        == "from strong"
    )
    assert place.agents["small"].shown == []


def test_an_agent_that_the_endpoint_leaves_out_cannot_be_asked_for_by_name(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses(), says("from strong")).serving() as place:
        first = client(place).chat.completions.create(model="fugu", messages=ASK, tools=[TOOL])
    called = first.choices[0].message
    assert called.tool_calls
    told: list[object] = [
        *ASK,
        called.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": called.tool_calls[0].id, "content": "a file"},
    ]
    left = endpoint(tmp_path, says("from small"), says("from strong"))
    left.opted_out = frozenset({"small"})
    with left.serving() as place:
        talk = client(place).chat.completions
        with pytest.raises(openai.NotFoundError, match="there are: fugu, fugu-ultra, strong"):
            talk.create(model="small", messages=ASK)
        with pytest.raises(openai.BadRequestError, match="every agent of the pool is opted out"):
            talk.create(model="fugu", messages=ASK, extra_headers={"x-fugu-opt-out": "strong"})
        later = talk.create(model="fugu", messages=told, tools=[TOOL])  # type: ignore[arg-type]
        listed = [model.id for model in client(place).models.list()]
    assert (later.choices[0].message.content, listed) == (
        "from strong",
        ["fugu", "fugu-ultra", "strong"],
    )
    assert left.agents["small"].shown == []


def test_a_call_that_could_exceed_the_budget_is_not_made(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        with pytest.raises(openai.APIStatusError, match="of the request's budget of") as refused:
            client(place).chat.completions.create(
                model="fugu", messages=ASK, extra_headers={"x-fugu-max-budget-usd": "0.00001"}
            )
        assert refused.value.status_code == 402
        with pytest.raises(openai.APIStatusError, match="budget"):
            client(place).chat.completions.create(
                model="strong", messages=ASK, metadata={"max_budget_usd": "0.00001"}
            )
    assert place.agents["small"].shown == place.agents["strong"].shown == []


def test_requests_at_once_keep_the_budget_of_the_day_together(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x" * 40), pace=0.3)
    ledger = place.ledger = Ledger(tmp_path, Path("/repo"))
    place.budgets = Budgets(day=0.0005, elsewhere=ledger)
    with place.serving(), ThreadPoolExecutor(8) as pool:
        chat = client(place).chat.completions

        def ask(_: int) -> int:
            try:
                chat.create(model="small", messages=ASK, max_tokens=100)
            except openai.APIStatusError as error:
                return error.status_code
            return 200

        assert sorted(pool.map(ask, range(8))) == [200, 200, *[402] * 6]
        assert [ask(0), ask(0), ask(0)] == [200, 402, 402]
    assert round(sum(one.dollars for one in all_payments(tmp_path)), 6) <= 0.0005


@pytest.mark.parametrize(("tools", "budget"), [([TOOL], 0.1), ([], 0.02)])
def test_a_budget_that_only_the_cheaper_agent_keeps_goes_to_it(
    tmp_path: Path, tools: list[object], budget: float
) -> None:
    place = endpoint(tmp_path, says("from small"))
    place.budgets = Budgets(request=budget)
    with place.serving():
        reply = client(place).chat.completions.create(
            model="fugu", messages=ASK, tools=tools or openai.NOT_GIVEN
        )
    assert reply.choices[0].message.content == "from small"
    assert place.events(reply.id)[:4] == ["opened", "asked", "budget_left", "masked"]
    assert place.agents["strong"].shown == []


def test_the_next_best_agent_answers_where_one_fails(tmp_path: Path) -> None:
    with endpoint(tmp_path, fails("overloaded")).serving() as place:
        talk = client(place).chat.completions
        first = talk.create(model="fugu", messages=ASK, tools=[TOOL])
        second = talk.create(model="fugu", messages=ASK, tools=[TOOL])
    assert first.choices[0].message.content == second.choices[0].message.content == "from strong"
    assert len(place.agents["small"].shown) == 1, (
        "it is unavailable: the second request does not ask it"
    )
    assert place.events(second.id) == [
        "opened",
        "asked",
        "masked",
        "assigned",
        "replied",
        "finished",
    ]


@pytest.mark.parametrize("tools", [[TOOL], []])
def test_an_agent_whose_server_asks_to_wait_gives_way_and_a_named_one_is_waited_for(
    tmp_path: Path, tools: list[ChatCompletionToolParam]
) -> None:
    with endpoint(tmp_path, fails("limited", after=20.0, retry=True)).serving() as place:
        talk, given = client(place).chat.completions, tools or openai.NOT_GIVEN
        assert (
            talk.create(model="fugu", messages=ASK, tools=given).choices[0].message.content
            == "from strong"
        )
        assert len(place.agents["small"].shown) == 1
        with pytest.raises(openai.RateLimitError, match="it is limited"):
            talk.create(model="small", messages=ASK, tools=given)
        assert len(place.agents["small"].shown) == 6, "tried five times"


@pytest.mark.parametrize(
    ("kind", "error", "status"),
    [
        ("limited", openai.RateLimitError, 429),
        ("overloaded", openai.InternalServerError, 503),
        ("refused", openai.PermissionDeniedError, 403),
        ("invalid", openai.BadRequestError, 400),
        ("credit", openai.APIStatusError, 402),
        ("timeout", openai.InternalServerError, 504),
    ],
)
def test_when_all_fail_the_client_gets_the_reason(
    tmp_path: Path, kind: str, error: type[openai.APIStatusError], status: int
) -> None:
    for model, stream in (("fugu", False), ("strong", True)):
        with endpoint(tmp_path / model, fails(kind), fails(kind)).serving() as place:
            with pytest.raises(error, match=f"it is {kind}") as refused:
                client(place).chat.completions.create(
                    model=model, messages=ASK, tools=[TOOL], stream=stream
                )
            assert refused.value.status_code == status
            assert "x-fugu-trace" in refused.value.response.headers


def test_an_agent_that_breaks_off_ends_the_stream_with_its_error(tmp_path: Path) -> None:
    def react(prompt: Prompt) -> Reply:
        return Reply(text="half a")

    place = endpoint(tmp_path, react, pace=0.5)
    place.bounds = EndpointLimits(seconds=0.2)
    with place.serving(), pytest.raises(openai.APIError, match=r"no answer within 0\.2 s"):
        list(client(place).chat.completions.create(model="small", messages=ASK, stream=True))


def test_what_is_not_offered_is_refused_by_name(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        talk = client(place).chat.completions
        with pytest.raises(openai.BadRequestError, match="n = 2"):
            talk.create(model="fugu", messages=ASK, n=2)
        with pytest.raises(
            openai.NotFoundError, match="'gpt-5' does not exist here; there are: fugu, fugu-ultra"
        ):
            talk.create(model="gpt-5", messages=ASK)
        with pytest.raises(openai.BadRequestError, match="input_audio is not offered"):
            audio = {"type": "input_audio", "input_audio": {"data": "", "format": "wav"}}
            talk.create(model="fugu", messages=[{"role": "user", "content": [audio]}])  # type: ignore[list-item]
        with pytest.raises(
            openai.BadRequestError, match="functions is not offered: `tools` has taken its place"
        ):
            talk.create(model="fugu", messages=ASK, functions=[{"name": "f"}])
        with pytest.raises(openai.BadRequestError, match="modalities: audio is not offered"):
            talk.create(model="fugu", messages=ASK, modalities=["text", "audio"])
        with pytest.raises(openai.BadRequestError, match="previous_response_id"):
            client(place).responses.create(model="fugu", input="x", previous_response_id="resp_1")
        with pytest.raises(openai.BadRequestError, match="conversation"):
            client(place).responses.create(model="fugu", input="x", conversation="conv_1")
        with pytest.raises(
            openai.BadRequestError, match=r"input\.1: nothing is stored, send the item"
        ):
            items = [{"role": "user", "content": "x"}, {"type": "item_reference", "id": "msg_1"}]
            client(place).responses.create(model="fugu", input=items)  # type: ignore[arg-type]
        with pytest.raises(
            openai.BadRequestError, match=r"response_format\.json_schema\.schema is missing"
        ):
            talk.create(model="fugu", messages=ASK, response_format={"type": "json_schema"})  # type: ignore[typeddict-item]
        with pytest.raises(
            openai.BadRequestError, match="a function has no `function` that says its name"
        ):
            talk.create(model="fugu", messages=ASK, tools=[{"type": "function"}])  # type: ignore[typeddict-item]
        with pytest.raises(openai.NotFoundError, match="ultra is not available"):
            talk.create(model="fugu-ultra", messages=ASK)


def test_responses_carry_text_calls_and_usage(tmp_path: Path) -> None:
    tool = {
        "type": "function",
        "name": "bash",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    with endpoint(tmp_path, uses()).serving() as place:
        made = client(place).responses.create(
            model="fugu",
            input="look",
            instructions="be brief",
            tools=[tool],  # type: ignore[list-item]
        )
        call = made.output[1]
        assert call.type == "function_call"
        items = [
            {"role": "user", "content": "look"},
            {
                "type": "function_call",
                "call_id": call.call_id,
                "name": "bash",
                "arguments": call.arguments,
            },
            {"type": "function_call_output", "call_id": call.call_id, "output": "a.txt"},
        ]
        with client(place).responses.stream(model="fugu", input=items, tools=[tool]) as stream:  # type: ignore[arg-type, list-item]
            kinds = [event.type for event in stream]
            final = stream.get_final_response()
    assert (made.output_text, made.status) == ("looking", "completed")
    assert made.usage is not None and made.usage.input_tokens_details.cached_tokens == 40
    assert final.output_text == "the tool said it"
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == "response.completed"
    assert place.agents["small"].shown[0].system == "be brief"


def test_a_response_says_again_what_was_asked_for(tmp_path: Path) -> None:
    tool = {
        "type": "function",
        "name": "bash",
        "parameters": {"type": "object", "properties": {}},
        "strict": False,
    }
    wanted = {
        "instructions": "be brief", "max_output_tokens": 50, "metadata": {"ticket": "7"}, "parallel_tool_calls": False,
        "temperature": 0.5, "tool_choice": {"type": "function", "name": "bash"}, "tools": [tool],
    }  # fmt: skip
    with endpoint(tmp_path, uses()).serving() as place:
        made = client(place).responses.create(model="fugu", input="look", **wanted)  # type: ignore[call-overload]
        plain = client(place).responses.create(model="fugu", input="look")
        events = client(place).responses.create(model="fugu", input="look", stream=True, **wanted)  # type: ignore[call-overload]
        begun = next(iter(events)).response
    for response in (made, begun):
        assert {name: response.to_dict()[name] for name in wanted} == wanted
    assert (plain.tool_choice, plain.tools, plain.metadata, plain.instructions) == (
        "auto",
        [],
        {},
        None,
    )


@pytest.mark.parametrize("parallel", [True, False])
def test_a_client_that_wants_no_parallel_calls_gets_the_first(
    tmp_path: Path, parallel: bool
) -> None:
    calls = (Call.make("x", "bash", command="ls"), Call.make("y", "bash", command="pwd"))
    with endpoint(
        tmp_path, lambda prompt: Reply(text="", calls=calls, stop="calls")
    ).serving() as place:
        talk = client(place)
        chat = talk.chat.completions.create(
            model="fugu", messages=ASK, tools=[TOOL], parallel_tool_calls=parallel
        )
        named = {"type": "function", **TOOL["function"], "strict": False}
        items = talk.responses.create(
            model="fugu", input="x", tools=[named], parallel_tool_calls=parallel
        )  # type: ignore[list-item]
        messages = httpx.post(
            f"{place.url}/v1/messages",
            json={
                "model": "fugu", "max_tokens": 9, "messages": ASK, "tools": [{"name": "bash", "input_schema": {}}],
                "tool_choice": {"type": "auto", "disable_parallel_tool_use": not parallel},
            },
        ).json()  # fmt: skip
    assert chat.choices[0].message.tool_calls
    made = [len(chat.choices[0].message.tool_calls), len(items.output), len(messages["content"])]
    assert made == ([2, 2, 2] if parallel else [1, 1, 1])


@pytest.mark.parametrize(("mode", "choice"), [("auto", ""), ("required", "required")])
def test_an_agent_is_offered_the_tools_that_the_choice_allows_and_no_other(
    tmp_path: Path, mode: str, choice: str
) -> None:
    other = {
        "type": "function",
        "function": {"name": "delete", "parameters": {"type": "object", "properties": {}}},
    }
    flat = [{"type": "function", **tool["function"], "strict": False} for tool in (TOOL, other)]  # type: ignore[dict-item]
    some = {"mode": mode, "tools": [{"type": "function", "function": {"name": "bash"}}]}
    named = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "bash"}]}
    none = {**named, "tools": [{"type": "function", "name": "nothing"}]}
    with endpoint(tmp_path, says("x")).serving() as place:
        talk = client(place)
        talk.chat.completions.create(  # type: ignore[call-overload]
            model="small",
            messages=ASK,
            tools=[TOOL, other],
            tool_choice={"type": "allowed_tools", "allowed_tools": some},
        )
        talk.responses.create(model="small", input="x", tools=flat, tool_choice=named)  # type: ignore[call-overload]
        with pytest.raises(openai.BadRequestError, match="names no tool of this request"):
            talk.responses.create(model="small", input="x", tools=flat, tool_choice=none)  # type: ignore[call-overload]
    shown = place.agents["small"].shown
    assert [([tool.name for tool in one.tools], one.tool_choice) for one in shown] == [
        (["bash"], choice)
    ] * 2


def test_the_events_of_a_responses_stream_are_numbered_as_they_come(tmp_path: Path) -> None:
    for react in (says("one two"), uses(), says("")):
        with endpoint(tmp_path, react).serving() as place:
            events = list(client(place).responses.create(model="small", input="look", stream=True))
        assert [event.sequence_number for event in events] == list(range(len(events)))
        assert events[0].type == "response.created"


def test_a_free_form_tool_gets_its_text(tmp_path: Path) -> None:
    tool = {
        "type": "custom",
        "name": "apply_patch",
        "format": {"type": "grammar", "definition": "start: X"},
    }
    with endpoint(tmp_path, uses("apply_patch", input="*** Begin Patch")).serving() as place:
        made = client(place).responses.create(model="fugu", input="patch", tools=[tool])  # type: ignore[list-item]
    call = made.output[1]
    assert call.type == "custom_tool_call"
    assert (call.name, call.input) == ("apply_patch", "*** Begin Patch")
    assert "start: X" in place.agents["small"].shown[0].tools[0].description


def test_a_token_is_asked_for_where_one_is_set(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    place.token = "a-long-and-random-token"
    with place.serving():
        for key in ("wrong", "a-long-and-random-toke"):
            with pytest.raises(openai.AuthenticationError):
                client(place, key).models.list()
        assert len(client(place, place.token).models.list().data) == 4
