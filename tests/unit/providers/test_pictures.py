"""Pictures that a server refuses: a line stands in their place, for the newest first, and other
faults stay theirs.
"""

import asyncio
import json

import httpx
import pytest
from histories import REPORT, SHOT
from servers import ACCESS, Server, quiet, recorded

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromAgent, FromUser, Media, Prompt, Reply
from fugu_cli.providers import Pause, shown_media
from fugu_cli.wires.chat_completions import OpenAI

NEW = SHOT.model_copy(update={"name": "new.png", "sha": "c" * 64})
PROMPT = Prompt(
    system="",
    messages=(
        FromUser(text="look", media=(SHOT,)),
        FromAgent(agent="strong", text="red"),
        FromUser(text="and now?", media=(NEW,)),
    ),
)


def refusal(message: str, status: int = 400) -> httpx.Response:
    return httpx.Response(status, json={"error": {"message": message}})


def asked(
    prompt: Prompt, *answers: httpx.Response
) -> tuple[list[Reply], list[list[str]], list[str]]:
    """Two replies to the same prompt, the words and `data:` of each request, and what the user was
    told.
    """
    server, told = Server(*answers), list[str]()
    agent = OpenAI(ACCESS, server)

    def wait(pause: Pause) -> None:
        told.append(pause.why)

    async def twice() -> list[Reply]:
        return [await agent.reply(prompt, quiet, wait) for _ in range(2)]

    replies = asyncio.run(twice())
    return replies, [_said(body) for body in server.requests], told


def _said(body: bytes) -> list[str]:
    said: list[str] = []
    for message in json.loads(body)["messages"]:
        content = message["content"]
        parts = [{"text": content}] if isinstance(content, str) else content
        said += [part.get("text") or part["type"] for part in parts if message["role"] == "user"]
    return said


LINE = "[picture {}, 8x6, not shown: its provider refused it]"


@pytest.mark.parametrize(
    "first",
    [
        refusal("Could not process image"),
        refusal("No endpoints found that support image input", 404),
        refusal("image input is not supported - hint: you may need to provide the mmproj", 500),
    ],
)
def test_the_newest_picture_is_left_out_first_and_from_then_on(first: httpx.Response) -> None:
    replies, said, told = asked(
        PROMPT, first, recorded("openai/text.sse"), recorded("openai/text.sse")
    )
    without = ["look", "image_url", f"and now?\n\n{LINE.format('new.png')}"]
    assert said == [["look", "image_url", "and now?", "image_url"], without, without]
    assert [reply.refused for reply in replies] == [(NEW.sha,), (NEW.sha,)]
    assert len(told) == 1
    assert told[0].endswith("it is asked again without new.png")


def test_where_that_is_not_enough_all_are_left_out() -> None:
    refused = refusal("this model takes no images")
    replies, said, _ = asked(
        PROMPT, refused, refused, recorded("openai/text.sse"), recorded("openai/text.sse")
    )
    assert (
        said[2]
        == said[3]
        == [f"look\n\n{LINE.format('shot.png')}", f"and now?\n\n{LINE.format('new.png')}"]
    )
    assert [reply.refused for reply in replies] == [tuple(sorted((SHOT.sha, NEW.sha)))] * 2


@pytest.mark.parametrize(
    ("answer", "calls", "said"),
    [
        (refusal("messages: nonsense"), 3, "nonsense"),
        (refusal("the prompt is too long"), 1, "longer than"),
        (refusal("Incorrect API key provided", 401), 1, "refused"),
    ],
)
def test_what_is_no_fault_of_a_picture_is_told_as_ever(
    answer: httpx.Response, calls: int, said: str
) -> None:
    server = Server(answer)

    async def once() -> None:
        await OpenAI(ACCESS, server).reply(PROMPT, quiet, lambda pause: None)

    with pytest.raises(AgentError, match=said):
        asyncio.run(once())
    assert len(server.requests) == calls


def test_the_oldest_stand_back_where_all_are_more_than_a_request_may_hold() -> None:
    large = [
        Media(
            name=f"{number}.png",
            type="image/png",
            sha=str(number) * 64,
            size=8_000_000,
            width=1,
            height=1,
        )
        for number in range(4)
    ]
    prompt = Prompt(system="", messages=(FromUser(text="look", media=tuple(large)),))
    shown = shown_media.with_room(prompt)
    assert shown.media == tuple(large[2:])
    line = "[picture {}.png, 1x1, not shown: newer ones take all the room of a request]"
    assert [message.text for message in shown.messages] == [
        f"look\n\n{line.format(0)}\n\n{line.format(1)}"
    ]


def test_a_pdf_is_shown_to_others_as_its_text_and_a_picture_whose_bytes_are_gone_as_a_line() -> (
    None
):
    asked = FromUser(
        text="see [PDF report.pdf, 2 pages]", media=(REPORT, SHOT.model_copy(update={"data": ""}))
    )
    blind = shown_media.why_not(vision=False, documents=False, refused=())
    assert shown_media.as_shown([asked], blind) == (
        FromUser(
            text="see [PDF report.pdf, 2 pages, as text:]\nwords\n\n"
            "[picture shot.png, 8x6, not shown: this model does not see pictures]"
        ),
    )
    lost = shown_media.loaded(Prompt(system="", messages=(asked,)), lambda sha: None)
    gone = "[picture shot.png, 8x6, not shown: its bytes are not kept any more]"
    assert lost.messages == (FromUser(text=f"{asked.text}\n\n{gone}", media=(REPORT,)),)
