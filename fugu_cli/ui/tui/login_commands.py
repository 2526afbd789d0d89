"""What lets models work where none can: a provider's key, typed unseen, or the small models, downloaded.

Above the session's controller. The first request waits in the prompt meanwhile.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from fugu_cli.errors import FuguError, ModelFileError, UsageError
from fugu_cli.session import views
from fugu_cli.ui.tui.screen_protocol import Choice

if TYPE_CHECKING:
    from fugu_cli.ui.tui.session_controller import SessionController

DOWNLOAD = "download"


async def log_in(controller: SessionController, argument: str) -> None:
    """Keep a provider's key, or download the small models: `/login [PROVIDER]`."""
    offer = controller.opener.setup_offer()
    names = [name for name, _ in offer.providers]
    if argument and argument not in (*names, DOWNLOAD):
        raise UsageError(f"there is no provider {argument!r}", hint=f"there are {', '.join(names)}")
    if not argument:
        choices = [Choice(name, f"key of {name}", variable) for name, variable in offer.providers]
        if offer.download:
            choices.append(Choice(DOWNLOAD, "download small models", offer.download))
        picked = await controller.view.dialogs.pick("Which models are to work?", choices)
        argument = picked[1] if picked is not None else ""
    if argument == DOWNLOAD:
        controller.download.begin(controller.failed)
        controller.show()
    elif argument:
        await _keep_key(controller, argument)


async def _keep_key(controller: SessionController, provider: str) -> None:
    """Ask for the key; a session in which nothing was asked begins again, with the agents that the key brings."""
    key = (await controller.view.dialogs.enter_text(f"API key of {provider} (it is not shown)", secret=True)).strip()
    if not key:
        return
    where = await asyncio.to_thread(controller.opener.keep_key, provider, key)
    session = controller.work.session
    if session is None or (views.asked(session.log.events) is None and not controller.work.running):
        await controller.open(controller.opener.begin)
        controller.say(f"the key of {provider} is kept in {where}", "good")
    else:
        controller.say(f"the key of {provider} is kept in {where}; /new begins a session with its models", "good")


async def send_request(controller: SessionController, text: str) -> None:
    """Send it; where nobody can work on it, offer what helps and put it back into the prompt."""
    try:
        await controller.send(text)
    except ModelFileError as error:
        controller.say(f"No model can work yet: {error}", "warn")
        try:
            if not controller.download.running:
                await log_in(controller, "")
        except FuguError as other:
            controller.failed(other)
        controller.view.type(text)


def provider_names(controller: SessionController) -> list[str]:
    """What completes the argument."""
    return [name for name, _ in controller.opener.setup_offer().providers]
