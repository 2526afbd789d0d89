"""The whole loop answers: Thinker, Worker and Verifier turns until a Verifier accepts, as in a session.

For requests without tools of the client's. The engine is the orchestrator's; this module gives it the conversation as
a log, agents that speak to a user instead of a repository, and no tools at all: an endpoint changes no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fugu_cli import orchestrator, prompts, views
from fugu_cli.agents import Agent, Say, Wait
from fugu_cli.coordinators import Coordinator, Decision, stopping
from fugu_cli.events import ROLES, Assigned, Event, Failed, Finished, Replied, Role
from fugu_cli.loop.bench import Limits
from fugu_cli.messages import FromAgent, FromUser, Message, Prompt, Reply
from fugu_cli.serve import counting, direct
from fugu_cli.serve.asking import Answer, Asking, Refused
from fugu_cli.serve.conversation import anew, attributed, facts
from fugu_cli.serve.direct import Request
from fugu_cli.serve.house import House, failed


async def answer(house: House, request: Request, coordinator: Coordinator) -> Answer:
    """The newest Worker's answer once the loop has ended. Raises Refused where there is none."""
    log, asking = request.log, request.asking
    for fact in facts(attributed(asking.messages, request.recall)):
        log.append(fact)
    brought = views.turns(log.events)
    if brought and brought[-1].assigned.agent not in house.members:  # nobody is there to go on with it
        for fact in anew(asking.messages):
            log.append(fact)
    direct.begin(house, request)
    began = len(log.events)
    request.save()
    verified = asking.options.verify is not False
    agents = {name: Speaking(agent, request, live=not verified) for name, agent in house.crew.agents.items()}
    crew = replace(house.crew, agents=agents, coordinator=coordinator if verified else Unverified(coordinator))
    limits = direct.limits(house, asking)
    bench = replace(house.bench, limits=Limits(budget=limits))
    end = await orchestrator.run(log, crew, bench)
    reply = _answer(log.events[began:])
    if reply is None:
        raise _refusal(log.events[began:], end)
    request.chosen(reply.agent)
    note = end.reason if end.reason in ("accepted", "answered") else f"{end.reason}: {_said(end)}"
    given = Reply(text=reply.text, calls=(), usage=reply.usage, model=reply.model, stop=reply.stop)
    return counting.answer(log.events, began, given, note)


def _answer(made: Sequence[Event]) -> Replied | None:
    """The newest reply of a Worker that ended its turn; the newest of anybody where no Worker spoke."""
    roles = {event.turn: event.role for event in made if isinstance(event, Assigned)}
    spoken = [event for event in made if isinstance(event, Replied) and event.text.strip()]
    workers = [reply for reply in spoken if roles.get(reply.turn) == "worker"]
    return workers[-1] if workers else None


def _refusal(made: Sequence[Event], end: Finished) -> Refused:
    last = next((event for event in reversed(made) if isinstance(event, Failed)), None)
    if end.reason == "budget":
        return failed("budget", end.message)
    if last is not None:
        return failed(last.kind, last.message)
    return failed("overloaded", end.message or "the loop ended without an answer")


def _said(end: Finished) -> str:
    """Why the loop ended, without the command that would go on with it in a terminal."""
    return ". ".join(part for part in end.message.split(". ") if "`fugu " not in part)


class Speaking:
    """`agent` as it speaks to the client of an endpoint: with the client's instructions and limits, without ours."""

    def __init__(self, agent: Agent, request: Request, *, live: bool) -> None:
        self._agent = agent
        self._request = request
        self._live = live

    @property
    def name(self) -> str:
        return self._agent.name

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        role = _role(self._request.log.events)
        unseen = _works_out_unseen(self._request.log.events)

        def both(text: str) -> None:
            say(text)
            if self._live and role == "worker":
                self._request.say(text)

        return await self._agent.reply(_spoken(prompt, self._request.asking, role, unseen=unseen), both, wait)

    async def close(self) -> None:
        """The endpoint's agents outlive a request."""


def _role(events: Sequence[Event]) -> Role:
    return next((event.role for event in reversed(events) if isinstance(event, Assigned)), "worker")


def _works_out_unseen(events: Sequence[Event]) -> bool:
    """The newest turn is a Verifier's that answers the request itself, without having seen the answer."""
    turns = views.turns(events)
    return bool(turns) and views.unseen_result(events, turns[-1]) is not None


def _spoken(prompt: Prompt, asking: Asking, role: Role, *, unseen: bool) -> Prompt:
    """What only concerns a repository is taken out; what the client wants of an answer holds for the Worker."""
    sampling, works = asking.sampling, role == "worker"
    return prompt.model_copy(
        update={
            "system": "\n\n".join(part for part in (prompts.load("serve/system"), asking.system) if part.strip()),
            "messages": prompt.messages if unseen else _messages(prompt.messages, role),
            "tools": (),
            "max_tokens": sampling.max_tokens if works else min(prompt.max_tokens, 2048),
            "temperature": sampling.temperature if works else prompt.temperature,
            "seed": sampling.seed if works and prompt.seed is None else prompt.seed,
            "stop": sampling.stop if works else (),
            "reply_schema": sampling.reply_schema if works else "",
        }
    )


def _messages(messages: Sequence[Message], role: Role) -> tuple[Message, ...]:
    """Our role texts out, the endpoint's own for the role that is played now at the end."""
    ours = [prompts.load(name) for name in ROLES]
    told: list[Message] = []
    for message in messages:
        if isinstance(message, FromUser):
            text = message.text
            for piece in ours:
                text = text.replace(piece, "").strip()
            if text:
                told.append(FromUser(text=text))
        elif isinstance(message, FromAgent):
            told.append(message)
    return (*told, FromUser(text=prompts.load(f"serve/{role}")))


class Unverified:
    """`coordinator`, but a Worker's answer ends the request: the client said that nobody need judge it."""

    def __init__(self, coordinator: Coordinator) -> None:
        self._coordinator = coordinator

    async def decide(self, events: Sequence[Event]) -> Decision:
        turns = views.turns(events)
        newest = turns[-1] if turns else None
        if newest and newest.assigned.role == "worker" and newest.replies and not newest.failed:
            return stopping.stop(events, turns=1, verify_answers=False) or Finished(reason="answered")
        return await self._coordinator.decide(events)


if TYPE_CHECKING:

    def _agent(agent: Speaking) -> Agent:
        return agent

    def _coordinator(coordinator: Unverified) -> Coordinator:
        return coordinator
