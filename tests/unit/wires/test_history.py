import json
from collections.abc import Sequence
from dataclasses import replace

import validate
from histories import ME, SIGNED, TOOLS, histories, prompts
from hypothesis import given
from hypothesis import strategies as st
from servers import ACCESS

from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Media, Message, Prompt, Thinking
from fugu_cli.providers.endpoint import Effort, ModelEndpoint
from fugu_cli.providers.history import call_id, normalized, with_media_behind_results
from fugu_cli.providers.server_quirks import ServerQuirks
from fugu_cli.wires import chat_completions, messages, responses

DONE = json.dumps(
    {
        "choices": [
            {"message": {"content": '{"tool": "write", "path": "a"}'}, "finish_reason": "stop"}
        ]
    }
)


def body(payload: object) -> bytes:
    return json.dumps(payload, ensure_ascii=False).encode("utf-8", "replace")


@given(prompt=prompts, dialect=st.builds(ServerQuirks))
def test_any_history_renders_to_a_valid_chat_completions_request(
    prompt: Prompt, dialect: ServerQuirks
) -> None:
    validate.openai(body(chat_completions.encode_request(prompt, ACCESS, dialect)))


@given(
    prompt=prompts,
    dialect=st.builds(ServerQuirks, longest=st.none()),
    effort=st.sampled_from(["", "none", "low"]),
)
def test_any_history_renders_to_a_valid_responses_request(
    prompt: Prompt, dialect: ServerQuirks, effort: Effort
) -> None:
    access = replace(ACCESS, name=ME, effort=effort)
    validate.responses(body(responses.encode_request(prompt, access, dialect)))


@given(prompt=prompts, adaptive=st.booleans(), effort=st.sampled_from(["", "low", "high"]))
def test_any_history_renders_to_a_valid_messages_request(
    prompt: Prompt, adaptive: bool, effort: str
) -> None:
    access = ModelEndpoint(
        name=ME, model="claude", base_url="https://api.example.org", effort=effort
    )
    validate.anthropic(
        body(messages.encode_request(prompt, access, ServerQuirks(adaptive=adaptive)))
    )


@given(history=histories)
def test_a_closed_history_is_not_mended_again(history: list[Message]) -> None:
    once = normalized(history, ME)
    assert normalized(once, ME) == once


@given(history=histories, more=histories)
def test_a_longer_history_begins_like_a_shorter_one(
    history: list[Message], more: list[Message]
) -> None:
    """Up to the seam, where the last group of the shorter one may grow; or every prompt cache would
    be cold.
    """
    short, long = normalized(history, ME), normalized([*history, *more], ME)
    newest = max(
        (place for place, message in enumerate(short) if isinstance(message, FromAgent)), default=0
    )
    assert long[:newest] == short[:newest]


@given(history=histories)
def test_nothing_that_was_said_is_lost(history: list[Message]) -> None:
    rendered = "\n".join(message.text for message in normalized(history, ME))
    for message in history:
        assert not message.text.strip() or message.text in rendered


@given(history=histories)
def test_no_picture_is_lost_behind_results_either(history: list[Message]) -> None:
    def shown(messages: Sequence[Message]) -> list[Media]:
        return sorted(
            (
                one
                for message in messages
                if not isinstance(message, FromAgent)
                for one in message.media
            ),
            key=str,
        )

    closed = normalized(history, ME)
    behind = with_media_behind_results(closed)
    assert shown(history) == shown(closed) == shown(behind)
    assert [
        message.media for message in behind if isinstance(message, FromTool) and message.media
    ] == []


def test_an_interrupted_call_is_closed_and_what_was_said_meanwhile_comes_after_it() -> None:
    history: list[Message] = [
        FromUser(text="fix it"),
        FromAgent(
            agent="cheap",
            text=" ",
            calls=(Call(id="1", tool="read", arguments='{"path": "a'), Call(id="1", tool="ls")),
        ),
        FromUser(text="stop!"),
        FromTool(call="1", tool="read", text=""),
        FromTool(call="9", tool="grep", text="a hit"),
    ]
    assert normalized(history, "strong") == (
        FromUser(text="fix it"),
        FromAgent(
            agent="cheap",
            calls=(
                Call(id="1", tool="read", arguments='{"malformed_arguments": "{\\"path\\": \\"a"}'),
                Call(id="call_1", tool="ls"),
            ),
        ),
        FromTool(call="1", tool="read", text="(no output)"),
        FromTool(call="call_1", tool="ls", text="interrupted: this call has no result", ok=False),
        FromUser(text="stop!\n\nResult of grep:\na hit"),
    )


def test_agents_at_both_ends_and_side_by_side_are_joined_and_framed() -> None:
    signed = Thinking(text="hm", data=SIGNED)
    history: list[Message] = [
        FromAgent(agent="cheap", text="one", thinking=(signed,)),
        FromAgent(agent="strong", text="two", thinking=(signed,)),
        FromAgent(agent="cheap"),
        FromUser(text=""),
    ]
    assert normalized(history, "strong") == (
        FromUser(text="(The conversation so far begins with an agent's reply.)"),
        FromAgent(agent="strong", text="one\n\ntwo", thinking=(signed,)),
        FromUser(text="Go on."),
    )


def test_an_empty_history_asks_to_go_on() -> None:
    assert normalized([], ME) == (FromUser(text="Go on."),)


def test_a_call_has_the_same_id_in_a_replay_and_another_elsewhere() -> None:
    prompt = Prompt(system="s", messages=(FromUser(text="u"),), tools=TOOLS)
    assert call_id(prompt, 0) == call_id(prompt.model_copy(), 0)
    assert (
        len(
            {
                call_id(prompt, 0),
                call_id(prompt, 1),
                call_id(prompt.model_copy(update={"seed": 1}), 0),
            }
        )
        == 3
    )
