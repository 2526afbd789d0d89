"""Decides how pictures and PDFs are shown to a model: themselves, a PDF's text, or a line instead.
Knows no wire.

A picture that cannot be shown never ends a session: not if the model has no vision, its bytes are
gone, or its provider refuses it.
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
MAX_BYTES = 22_000_000
"""Bytes of all media of a request. Anthropic accepts 32 MB in base64."""
MEDIA_REFUSED = re.compile(
    r"\b(images?|image_url|input_image|vision|multi-?modal|mmproj|pdfs?|input_file)\b",
    re.IGNORECASE,
)
"""Words of servers that refuse media with another status than 400: OpenRouter 404, llama.cpp 500."""

WhyNot = Callable[[Media], str]
"""Return why an item is not shown, "" if it is."""


def why_not(*, vision: bool, documents: bool, refused: Collection[str]) -> WhyNot:
    """Return the check for a model: `vision` and `documents` say what it can read, `refused` holds
    the `sha` of items that its provider refused.
    """

    def reason_of(item: Media) -> str:
        if item.sha in refused:
            return REFUSED
        if item.is_picture and not vision:
            return NO_VISION
        if not item.is_picture and not documents:
            return NO_DOCUMENTS
        return ""

    return reason_of


def as_shown(messages: Sequence[Message], why_not: WhyNot) -> tuple[Message, ...]:
    """Return the messages with text in place of media that are not shown."""
    shown: list[Message] = []
    for message in messages:
        shown.append(message if isinstance(message, FromAgent) else _shown(message, why_not))
    return tuple(shown)


def _shown(message: FromUser | FromTool, why_not: WhyNot) -> FromUser | FromTool:
    text = message.text
    shown: list[Media] = []
    for item in message.media:
        reason = why_not(item)
        if not reason:
            shown.append(item)
            continue
        label, replacement = f"[{item.described}]", in_words(item, reason)
        if label in text:
            text = text.replace(label, replacement, 1)
            continue
        text = f"{text}\n\n{replacement}".strip()
    if len(shown) == len(message.media):
        return message
    return message.model_copy(update={"text": text, "media": tuple(shown)})


def in_words(item: Media, reason: str) -> str:
    """Return the text that replaces an item: a PDF's own text if it has any, else a line with the
    reason.
    """
    if item.text:
        return f"[{item.described}, as text:]\n{item.text}"
    return f"[{item.described}, not shown: {reason}]"


def loaded(prompt: Prompt, blob: Callable[[str], bytes | None]) -> Prompt:
    """Return the prompt with the bytes of its media. `blob` returns them by `sha`, None if gone."""
    blobs = {item.sha: blob(item.sha) for item in prompt.media if not item.data}
    if not blobs:
        return prompt

    def with_data(item: Media) -> Media:
        data = blobs.get(item.sha)
        if data is None:
            return item
        return item.model_copy(update={"data": base64.b64encode(data).decode()})

    messages: list[Message] = []
    for message in prompt.messages:
        if not isinstance(message, FromAgent) and message.media:
            media = tuple(map(with_data, message.media))
            message = message.model_copy(update={"media": media})
        messages.append(message)
    shown = as_shown(messages, lambda item: "" if item.data else GONE)
    return prompt.model_copy(update={"messages": shown})


def with_room(prompt: Prompt) -> Prompt:
    """Return the prompt without its oldest media, if all media exceed the limit of a request."""
    excess = sum(item.size for item in prompt.media) - MAX_BYTES
    if excess <= 0:
        return prompt

    def reason_of(item: Media) -> str:
        """Return the reason to leave an item out while the rest is too large. Called for the oldest
        item first.
        """
        nonlocal excess
        if excess <= 0:
            return ""
        excess -= item.size
        return CROWDED

    return prompt.model_copy(update={"messages": as_shown(prompt.messages, reason_of)})


class RefusedMedia:
    """Remembers the pictures and PDFs, by `sha`, that one server has refused."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    async def reply(
        self, prompt: Prompt, wait: Wait, call: Callable[[Prompt], Awaitable[Reply]]
    ) -> Reply:
        """Return the reply to a prompt.

        If the server refuses the request, it is repeated without the newest media, then without any.
        Raises the first AgentError if that does not help.
        """
        refused = self._refused.intersection(item.sha for item in prompt.media)
        prompt = with_room(without(prompt, refused))
        try:
            return _with_refused(await call(prompt), refused)
        except AgentError as error:
            if not prompt.media or not _may_be_media(error):
                raise
            first = error
        for left_out in _candidates(prompt):
            left_out_names = [item.name for item in prompt.media if item.sha in left_out]
            names = ", ".join(dict.fromkeys(left_out_names))
            wait(Pause(f"{first}; it is asked again without {names}"))
            try:
                reply = await call(without(prompt, left_out))
            except AgentError as error:
                if not _may_be_media(error):
                    raise
            else:
                self._refused |= left_out
                return _with_refused(reply, refused | left_out)
        raise first


def _may_be_media(error: AgentError) -> bool:
    """Return whether the server may have refused the request because of its media."""
    named = error.kind in ("absent", "overloaded") and MEDIA_REFUSED.search(str(error)) is not None
    return named or (error.kind == "invalid" and not error.too_long)


def _with_refused(reply: Reply, refused: Collection[str]) -> Reply:
    return reply.model_copy(update={"refused": tuple(sorted(refused))}) if refused else reply


def without(prompt: Prompt, left_out: Collection[str]) -> Prompt:
    """Return the prompt with a line in place of the items in `left_out`."""
    messages = as_shown(prompt.messages, lambda item: REFUSED if item.sha in left_out else "")
    return prompt.model_copy(update={"messages": messages})


def _candidates(prompt: Prompt) -> Iterator[frozenset[str]]:
    """Yield the media to leave out: those of the newest message with media, then all."""
    all_media = frozenset(item.sha for item in prompt.media)
    for message in reversed(prompt.messages):
        if not isinstance(message, FromAgent) and message.media:
            newest = frozenset(item.sha for item in message.media)
            yield newest
            if newest != all_media:
                yield all_media
            return
