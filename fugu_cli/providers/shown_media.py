"""What a model is shown of pictures and PDFs: themselves, the text of a PDF, or a line in their
place. Knows no wire.

A picture that cannot be shown never ends a session: not where the model has no vision, where its
bytes are gone, or where its provider refuses it.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence

from fugu_cli.errors import AgentError
from fugu_cli.messages import FromAgent, FromTool, FromUser, Media, Message, Prompt, Reply
from fugu_cli.providers import Pause, Wait

NO_VISION = "this model does not see pictures"
NO_DOCUMENTS = "this model reads no PDFs as they are"
REFUSED = "its provider refused it"
GONE = "its bytes are not kept any more"
CROWDED = "newer ones take all the room of a request"
MOST_SHOWN = 22_000_000
"""Bytes of all media of a request: Anthropic takes 32 MB, in base64."""
TAKES_NONE = re.compile(
    r"\b(images?|image_url|input_image|vision|multi-?modal|mmproj|pdfs?|input_file)\b",
    re.IGNORECASE,
)
"""What servers say that refuse media with another status than 400: OpenRouter 404, llama.cpp
500.
"""

WhyNot = Callable[[Media], str]
"""Why it is not shown; "" where it is."""


def why_not(*, vision: bool, documents: bool, refused: Collection[str]) -> WhyNot:
    """For a model that sees pictures, or reads PDFs as they are, and whose provider refused these
    (by `sha`).
    """

    def why(one: Media) -> str:
        if one.sha in refused:
            return REFUSED
        if one.is_picture:
            return "" if vision else NO_VISION
        return "" if documents else NO_DOCUMENTS

    return why


def as_shown(messages: Sequence[Message], why: WhyNot) -> tuple[Message, ...]:
    """The messages with text in the place of what is not shown."""
    return tuple(
        message if isinstance(message, FromAgent) else _shown(message, why) for message in messages
    )


def _shown(message: FromUser | FromTool, why: WhyNot) -> FromUser | FromTool:
    reasons = [(one, why(one)) for one in message.media]
    if not any(reason for _, reason in reasons):
        return message
    text = message.text
    for one, reason in reasons:
        named, instead = f"[{one.described}]", in_words(one, reason)
        if reason and named in text:
            text = text.replace(named, instead, 1)
        elif reason:
            text = f"{text}\n\n{instead}".strip()
    return message.model_copy(
        update={"text": text, "media": tuple(one for one, reason in reasons if not reason)}
    )


def in_words(one: Media, reason: str) -> str:
    """What stands in its place: a line; of a PDF its text, where it has any."""
    if one.text:
        return f"[{one.described}, as text:]\n{one.text}"
    return f"[{one.described}, not shown: {reason}]"


def loaded(prompt: Prompt, blob: Callable[[str], bytes | None]) -> Prompt:
    """The prompt with the bytes of its media. `blob` finds them by `sha`; None where they are
    gone.
    """
    found = {one.sha: blob(one.sha) for one in prompt.media if not one.data}
    if not found:
        return prompt

    def filled(one: Media) -> Media:
        data = found.get(one.sha)
        return (
            one
            if data is None
            else one.model_copy(update={"data": base64.b64encode(data).decode()})
        )

    def with_bytes(message: Message) -> Message:
        if isinstance(message, FromAgent) or not message.media:
            return message
        return message.model_copy(update={"media": tuple(map(filled, message.media))})

    messages = [with_bytes(message) for message in prompt.messages]
    return prompt.model_copy(
        update={"messages": as_shown(messages, lambda one: "" if one.data else GONE)}
    )


def with_room(prompt: Prompt) -> Prompt:
    """The prompt with a line in the place of its oldest media, where all together are more than a
    request may hold.
    """
    over = sum(one.size for one in prompt.media) - MOST_SHOWN

    def why(one: Media) -> str:
        nonlocal over
        if over <= 0:
            return ""
        over -= one.size
        return CROWDED

    return (
        prompt
        if over <= 0
        else prompt.model_copy(update={"messages": as_shown(prompt.messages, why)})
    )


class RefusedMedia:
    """The pictures and PDFs, by `sha`, that one server has refused."""

    def __init__(self) -> None:
        self._known: set[str] = set()

    async def reply(
        self, prompt: Prompt, wait: Wait, call: Callable[[Prompt], Awaitable[Reply]]
    ) -> Reply:
        """The reply to a prompt. Where the server does not accept it, it is asked again without the
        newest media, then without all of them: one of them may be why. Raises the first AgentError
        where none is."""
        known = self._known.intersection(one.sha for one in prompt.media)
        prompt = with_room(without(prompt, known))
        try:
            return _with_refused(await call(prompt), known)
        except AgentError as error:
            if not prompt.media or not _may_be_media(error):
                raise
            first = error
        for left_out in _left_out(prompt):
            names = ", ".join(
                dict.fromkeys(one.name for one in prompt.media if one.sha in left_out)
            )
            wait(Pause(f"{first}; it is asked again without {names}"))
            try:
                reply = await call(without(prompt, left_out))
            except AgentError as error:
                if not _may_be_media(error):
                    raise
            else:
                self._known |= left_out
                return _with_refused(reply, known | left_out)
        raise first


def _may_be_media(error: AgentError) -> bool:
    """The server does not accept the request, perhaps for its pictures and PDFs."""
    named = error.kind in ("absent", "overloaded") and TAKES_NONE.search(str(error)) is not None
    return named or (error.kind == "invalid" and not error.too_long)


def _with_refused(reply: Reply, refused: Collection[str]) -> Reply:
    return reply.model_copy(update={"refused": tuple(sorted(refused))}) if refused else reply


def without(prompt: Prompt, left_out: Collection[str]) -> Prompt:
    """The prompt with a line in the place of these."""
    messages = as_shown(prompt.messages, lambda one: REFUSED if one.sha in left_out else "")
    return prompt.model_copy(update={"messages": messages})


def _left_out(prompt: Prompt) -> Iterator[frozenset[str]]:
    """What to try without: the media of the newest message that has any, then all."""
    newest = next(
        message.media
        for message in reversed(prompt.messages)
        if not isinstance(message, FromAgent) and message.media
    )
    some, every = (frozenset(one.sha for one in media) for media in (newest, prompt.media))
    yield some
    if some != every:
        yield every
