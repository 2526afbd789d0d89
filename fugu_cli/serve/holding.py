"""An agent of an endpoint whose calls under way count, at the dearest they can get, in the budgets of all requests.

Around every agent that answers a request, between the check of a budget and the call: nothing else runs in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from fugu_cli import budgets
from fugu_cli.agents import Agent, Pause, Say, Wait
from fugu_cli.budgets import Tab
from fugu_cli.events import Member
from fugu_cli.messages import Prompt, Reply
from fugu_cli.views.spending import usd


class Holding:
    """`agent`, as `member` of the pool is priced; `tab` is the request's."""

    def __init__(self, agent: Agent, member: Member, tab: Tab) -> None:
        self._agent = agent
        self._member = member
        self._tab = tab

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        held = most = budgets.worst(self._member, prompt)

        def again(pause: Pause) -> None:
            nonlocal held
            wait(pause)
            before, held = held, most + usd(pause.used, self._member.price)
            self._tab.hold(held - before)

        self._tab.hold(held)
        try:
            return await self._agent.reply(prompt, say, again)
        finally:
            self._tab.hold(-held)

    async def close(self) -> None:
        """The endpoint's agents outlive a request."""


if TYPE_CHECKING:

    def _fits(agent: Holding) -> Agent:
        return agent
