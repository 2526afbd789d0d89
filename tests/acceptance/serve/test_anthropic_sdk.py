"""The endpoint as the anthropic SDK sees it, over a real socket."""

from datetime import UTC, datetime
from pathlib import Path

import anthropic
import httpx
import pytest
from anthropic import Anthropic
from anthropic.types import MessageParam, ToolParam

from fugu_cli.messages import Call, Prompt, Reply
from tests.acceptance.serve.endpoint import SMALL, STRONG, Endpoint, endpoint, fails, says, uses

TOOL: ToolParam = {
    "name": "bash",
    "description": "runs",
    "input_schema": {"type": "object", "properties": {}},
}
ASK: list[MessageParam] = [{"role": "user", "content": "what is it?"}]


def client(place: Endpoint) -> Anthropic:
    made = Anthropic(base_url=place.url, api_key="unused", max_retries=0)
    place.clients.append(made)
    return made


def test_the_loop_answers(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("it is 42")).serving() as place:
        reply = client(place).messages.create(
            model="fugu", max_tokens=100, messages=ASK, system="be brief"
        )
        there = httpx.get(f"{place.url}/v1/traces/{reply.id}").status_code
    assert [block.to_dict() for block in reply.content] == [{"type": "text", "text": "it is 42"}]
    assert (reply.stop_reason, reply.model, reply.role, there) == (
        "end_turn",
        "fugu",
        "assistant",
        200,
    )
    assert reply.usage.to_dict() == {
        "input_tokens": 60,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 40,
        "output_tokens": 10,
        "orchestration_input_tokens": 100,
        "orchestration_input_cached_tokens": 40,
        "orchestration_output_tokens": 10,
    }
    assert "be brief" in place.agents["small"].shown[0].system


def test_the_tool_runner_goes_on_with_the_whole_history(tmp_path: Path) -> None:
    @anthropic.beta_tool
    def bash(command: str) -> str:
        """Run a command.

        Args:
            command: the command
        """
        return f"ran {command}"

    def react(prompt: Prompt) -> Reply:
        texts = [getattr(message, "text", "") for message in prompt.messages]
        if "ran ls" in texts:
            return Reply(text=f"{texts[0]} -> {texts[-1]}")
        return Reply(calls=(Call.make("a", "bash", command="ls"),), stop="calls")

    with endpoint(tmp_path, react).serving() as place:
        runner = client(place).beta.messages.tool_runner(
            model="small",
            max_tokens=100,
            messages=[{"role": "user", "content": "what is it?"}],
            tools=[bash, {"type": "memory_20250818", "name": "memory"}],
        )
        message = runner.until_done()
        offered = [tool.name for tool in place.agents["small"].shown[0].tools]
    assert [block.text for block in message.content if block.type == "text"] == [
        "what is it? -> ran ls"
    ]
    assert offered == ["bash", "memory"]


def test_text_and_calls_are_streamed_as_blocks(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses(command="ls")).serving() as place:
        streaming = client(place).messages.stream(
            model="fugu", max_tokens=100, messages=ASK, tools=[TOOL]
        )
        with streaming as stream:
            kinds = [event.type for event in stream]
            message = stream.get_final_message()
    assert [block.type for block in message.content] == ["text", "tool_use"]
    assert message.content[1].input == {"command": "ls"}  # type: ignore[union-attr]
    assert (message.stop_reason, message.usage.output_tokens) == ("tool_use", 10)
    assert (kinds[0], kinds[-1]) == ("message_start", "message_stop")


def test_results_go_back_to_the_agent_that_called(tmp_path: Path) -> None:
    with endpoint(tmp_path, uses()).serving() as place:
        talk = client(place).messages
        first = talk.create(model="fugu", max_tokens=100, messages=ASK, tools=[TOOL])
        made = next(block for block in first.content if block.type == "tool_use")
        history: list[MessageParam] = [
            *ASK,
            {"role": "assistant", "content": first.content},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": made.id,
                        "content": "no such file",
                        "is_error": True,
                    },
                    {"type": "text", "text": "<system-reminder>be careful</system-reminder>"},
                ],
            },
        ]
        second = talk.create(model="fugu", max_tokens=100, messages=history, tools=[TOOL])
        trace = httpx.get(f"{place.url}/v1/traces/{second.id}").json()
    assert second.content[0].text == "the tool said it"  # type: ignore[union-attr]
    assert [one["by"] for one in trace["requests"][-1]["decisions"]] == ["client", "sticky"]
    shown = place.agents["small"].shown[1]
    assert [message.type for message in shown.messages] == ["user", "agent", "tool", "user"]
    assert shown.messages[2].ok is False  # type: ignore[union-attr]


def test_errors_have_this_wires_form(tmp_path: Path) -> None:
    with endpoint(
        tmp_path, fails("limited", after=7.0), fails("limited", after=9.0)
    ).serving() as place:
        talk = client(place).messages
        with pytest.raises(anthropic.RateLimitError, match="rate_limit_error") as refused:
            talk.create(model="small", max_tokens=10, messages=ASK)
        assert refused.value.status_code == 429
        with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
            talk.create(model="claude-x", max_tokens=10, messages=ASK)
        with pytest.raises(anthropic.BadRequestError, match="max_tokens must be at least 1"):
            talk.create(model="fugu", max_tokens=0, messages=ASK)
        with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
            talk.batches.list()


def test_the_models_are_listed_with_their_size_and_abilities(tmp_path: Path) -> None:
    place = endpoint(tmp_path, says("x"))
    seeing = SMALL.model_copy(update={"context": 9_000, "vision": True})
    place.members = (seeing, STRONG)
    with place.serving():
        listed = list(client(place).models.list())
        one = client(place).models.retrieve("small")
    assert [(model.id, model.type, model.display_name) for model in listed] == [
        (name, "model", name) for name in ("fugu", "fugu-ultra", "small", "strong")
    ]
    sizes = [(model.id, model.max_input_tokens, model.max_tokens) for model in listed]
    assert sizes == [
        ("fugu", 9_000, 8192),
        ("fugu-ultra", 9_000, 8192),
        ("small", 9_000, 8192),
        ("strong", 32_768, 8192),
    ]
    assert one.capabilities is not None
    assert one.capabilities.image_input.supported
    assert not listed[0].capabilities.image_input.supported  # type: ignore[union-attr]
    assert one.created_at == datetime.fromtimestamp(one.to_dict()["created"], UTC)  # type: ignore[arg-type]


def test_tokens_are_estimated_before_they_are_sent(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("x")).serving() as place:
        short = client(place).messages.count_tokens(model="fugu", messages=ASK).input_tokens
        long = (
            client(place)
            .messages.count_tokens(model="fugu", messages=ASK * 9, tools=[TOOL])
            .input_tokens
        )
    assert 0 < short < long


def test_tokens_of_any_script_are_estimated_by_their_bytes(tmp_path: Path) -> None:
    def counted(text: str) -> int:
        told = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        return client(place).messages.count_tokens(model="fugu", messages=told).input_tokens  # type: ignore[arg-type]

    with endpoint(tmp_path, says("x")).serving() as place:
        one, latin, chinese = (counted(f"x{text}") for text in ("", "x" * 3000, "字" * 3000))
    assert (one < 30, latin - one, chinese - one) == (True, 1000, 3000)


def test_the_last_message_of_a_stream_carries_the_orchestrations_tokens(tmp_path: Path) -> None:
    with endpoint(tmp_path, says("hello")).serving() as place:
        events = client(place).messages.create(
            model="fugu", max_tokens=100, messages=ASK, stream=True
        )
        last = next(event for event in events if event.type == "message_delta")
    assert last.usage.to_dict()["orchestration_output_tokens"] == 10
