"""An agent whose calls stand in an account while they are under way."""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING

from fugu_cli.errors import AgentError, noted_usage
from fugu_cli.messages import BYTES_PER_TOKEN, Prompt, Reply, Usage
from fugu_cli.providers import Agent, AgentWrapper, Pause, Say, ThoughtListener, Wait
from fugu_cli.session import spending
from fugu_cli.session.costs import usd
from fugu_cli.session.events import Member
from fugu_cli.session.spending import CallAccount

UPDATE_SECONDS = 1.0
"""Seconds between two notes of what a call under way has received."""


class AccountedAgent(AgentWrapper):
    """Wraps an agent so that an account reserves the possible cost of each call, at the prices of
    `member`, and records what the call has received, in case this process is killed.
    """

    def __init__(self, agent: Agent, member: Member, account: CallAccount) -> None:
        super().__init__(agent)
        self._member = member
        self._account = account

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Return the agent's reply. Raises the account's error if the call must not be made."""
        call = _CallUnderWay(self._account, self._member, prompt, say)
        used = Usage()

        def wait_and_update(pause: Pause) -> None:
            wait(pause)
            call.start_again(pause.used)

        try:
            reply = await self._agent.reply(prompt, call, wait_and_update)
            used = reply.usage
        except (AgentError, asyncio.CancelledError) as error:
            used = noted_usage(error) or Usage()
            raise
        finally:
            call.end(used)
        return reply


class _CallUnderWay:
    """Listens to a running call and keeps its entry in the account up to date."""

    def __init__(self, account: CallAccount, member: Member, prompt: Prompt, say: Say) -> None:
        self._account = account
        self._member = member
        self._say = say
        self._most = spending.worst_case_cost(member, prompt)
        sent = math.ceil(prompt.estimated_tokens)
        self._sent = Usage(input=sent, estimated_input=sent)
        self._earlier = Usage()
        self._received_bytes = 0
        self._updated = time.monotonic()
        self._key = account.begin_call(member, self._sent, self._most)

    def __call__(self, text: str) -> None:
        self._say(text)
        self._receive(text)

    def think(self, text: str) -> None:
        if isinstance(self._say, ThoughtListener):
            self._say.think(text)
        self._receive(text)

    def start_again(self, used: Usage) -> None:
        """Note that the call is tried again, and what its earlier attempts have used."""
        self._earlier = used
        self._received_bytes = 0
        self._update()

    def end(self, used: Usage) -> None:
        self._account.end_call(self._key, self._member, used)

    def _receive(self, text: str) -> None:
        self._received_bytes += len(text.encode("utf-8", "replace"))
        if time.monotonic() - self._updated >= UPDATE_SECONDS:
            self._update()

    def _update(self) -> None:
        self._updated = time.monotonic()
        received = math.ceil(self._received_bytes / BYTES_PER_TOKEN)
        output = Usage(output=received, estimated_output=received)
        reserved = self._most + usd(self._earlier, self._member.price)
        usage = self._earlier + self._sent + output
        self._account.update_call(self._key, self._member, usage, reserved)


if TYPE_CHECKING:

    def _fits(agent: AccountedAgent) -> Agent:
        return agent
