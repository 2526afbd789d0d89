"""The whole loop answers: Thinker, Worker and Verifier turns until a Verifier accepts, as in a
session.

For requests without tools of the client's. The engine is the orchestrator's; this module gives it
the conversation as a log, agents that speak to a user instead of a repository, and no tools at all:
an endpoint changes no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from fugu_cli import prompts
from fugu_cli.coordinators import Coordinator, Decision, action_space
from fugu_cli.coordinators.conductor import scheduling
from fugu_cli.engine import orchestrator
from fugu_cli.engine.environment import ClientChannel, RequestLimits
from fugu_cli.messages import FromUser, Message, Prompt
from fugu_cli.server import single_agent, traces
from fugu_cli.server.client_requests import ServedAnswer
from fugu_cli.server.single_agent import ActiveRequest
from fugu_cli.server.traces import conversation_events, follow_up_request, with_authors
from fugu_cli.session import views
from fugu_cli.session.events import (
    ANSWERED,
    ROLES,
    Assigned,
    Event,
    Finished,
    Recorded,
    Replied,
    WorkflowStep,
)
from fugu_cli.session.live_events import Live, TextStreamed, ThoughtStreamed
from fugu_cli.session.workflows import user_facing_turn


async def answer_with_full_loop(
    request: ActiveRequest, coordinator: Coordinator, *, planned: bool = False
) -> ServedAnswer:
    """The newest Worker's answer once the loop has ended, a workflow's where it is `planned`.
    Raises RequestRefused where there is none."""
    log, asking = request.log, request.asking
    for fact in conversation_events(with_authors(asking.messages, request.recall), whole=True):
        log.append(fact)
    brought = views.turns(log.events)
    left = request.settings.offered.keys() - asking.options.opt_out
    if brought and (
        planned or brought[-1].assigned.agent not in left
    ):  # nobody is there to go on with it
        for fact in follow_up_request(asking.messages):
            log.append(fact)
    single_agent.excluded_agents(request)
    request.settings.watch(log, request.id, asking.options.traceparent)
    began = len(log.events)
    request.save()
    verified = planned or asking.options.verify is not False
    voice = ClientVoice(
        request, live=not planned and not asking.options.verify and not asking.sampling.reply_schema
    )
    team = replace(
        request.settings.team,
        agents=single_agent.answering_agents(request),
        coordinator=ClientCoordinator(coordinator, voice, verified=verified),
    )
    environment = replace(
        request.settings.environment,
        limits=RequestLimits(budget=single_agent.request_budgets(request)),
        voice=voice,
    )
    end = await orchestrator.run(log, team, environment)
    reply = None if voice.broke(log.events) else _answer(log.events, began)
    if reply is None:
        raise single_agent.refusal_of_end(request, log.events[began:], end)
    request.chosen(reply.agent)
    note = end.reason if end.reason in ("accepted", "answered") else f"{end.reason}: {_said(end)}"
    reason = views.unable_reason(reply.text)
    answer = reply if reason is None else reply.model_copy(update={"text": reason})
    voice.tell_held_back(answer)
    return traces.answer_with_usage(log.events, began, answer, reply, note)


def _answer(events: Sequence[Event], began: int) -> Replied | None:
    """The newest words of a Worker from line `began` on; a workflow's, where nobody worked after
    it. None: no words.
    """
    made = {id(event) for event in events[began:]}
    spoken = [
        turn for turn in views.turns(events) if turn.text.strip() and id(turn.replies[-1]) in made
    ]
    workers = [turn for turn in spoken if turn.assigned.role == "worker"]
    newest = workers[-1] if workers else None
    if newest is None or newest.assigned.plan:
        newest = user_facing_turn(events) or newest
    return newest.replies[-1] if newest else None


def _said(end: Finished) -> str:
    """Why the loop ended, without the command that would go on with it in a terminal."""
    return ". ".join(part for part in end.message.split(". ") if "`fugu " not in part)


REVISED = "\n\n[A Verifier asked for a revision of this answer. The revised one:]\n\n"


class ClientVoice:
    """Turns as they speak to the client of an endpoint: with its instructions and limits, without
    ours. `live`: the client hears a Worker while it writes, also one whose work is verified
    later."""

    def __init__(self, request: ActiveRequest, *, live: bool) -> None:
        self._request = request
        if live:
            request.log.listen(self._listen)
        self._heard: int | None = None
        """The turn that the client has heard something of."""
        self._beginning: tuple[int, str] = (0, "")
        """A turn, and what it has said while that may still be the beginning of `UNABLE:`."""

    def put(self, prompt: Prompt, events: Sequence[Event], now: views.Turn) -> Prompt:
        """What only concerns a repository is taken out; what the client wants of an answer holds
        for who gives it.
        """
        asking, sampling = self._request.asking, self._request.asking.sampling
        answers = _answers(events, now)
        system = prompts.load("serve/step" if now.assigned.plan else "serve/system")
        return prompt.model_copy(
            update={
                "system": "\n\n".join(part for part in (system, asking.system) if part.strip()),
                "messages": _messages(prompt.messages, _part(now, answers)),
                "tools": (),
                "max_tokens": sampling.max_tokens if answers else min(prompt.max_tokens, 2048),
                "temperature": sampling.temperature if answers else prompt.temperature,
                "seed": sampling.seed if answers and prompt.seed is None else prompt.seed,
                "stop": sampling.stop if answers else (),
                "reply_schema": sampling.reply_schema if answers else "",
                "metadata": dict(asking.options.metadata),
                "effort": single_agent.effort_of(views.pool(events)[now.assigned.agent], sampling),
            }
        )

    def _listen(self, item: Recorded | Live | None) -> None:
        if not isinstance(item, TextStreamed | ThoughtStreamed) or not item.text:
            return
        assigned = (e for e in reversed(self._request.log.events) if isinstance(e, Assigned))
        if next(one.role for one in assigned if one.turn == item.turn) != "worker":
            return
        if isinstance(item, ThoughtStreamed):
            self._request.tell(item)
            return
        if self._heard != item.turn:
            turn, before = self._beginning
            text = before + item.text if turn == item.turn else item.text
            self._beginning = (item.turn, text)
            if views.may_be_unable(text):
                return
            item = item.model_copy(update={"text": text})
        again = self._heard not in (None, item.turn)
        self._heard = item.turn
        self._request.tell(item, f"{REVISED}{item.text}" if again else "")

    def tell_held_back(self, answer: Replied) -> None:
        """Tell a client that has heard an earlier answer the newest one, if it was held back."""
        turn, _ = self._beginning
        if self._heard is not None and self._heard != turn == answer.turn:
            said = TextStreamed(turn=turn, agent=answer.agent, text=f"{REVISED}{answer.text}")
            self._request.tell(said)

    def wait(self, now: views.Turn) -> None:
        if self._heard == now.number and self._request.asking.stream:
            raise single_agent.broken_stream_reason(now.assigned.agent)
        self._beginning = (0, "")

    def broke(self, events: Sequence[Event]) -> bool:
        """The client has heard the beginning of an answer that never comes: nobody else may begin
        another.
        """
        heard = views.turn_of(events, self._heard) if self._heard is not None else None
        return self._request.asking.stream and heard is not None and heard.failed is not None


def _answers(events: Sequence[Event], now: views.Turn) -> bool:
    """The turn's words may go to the client: a Worker's; of a workflow's steps those of the last,
    and of the last that is not to judge, in case a judge only says yes to them; inside of such a
    step the same of its own workflow's."""
    number, step = now.assigned.plan, now.assigned.step
    planned = {flow.number: flow.planned for flow in views.workflows(events)}
    while number and step in _last(planned[number].steps):
        if (within := planned[number].within) is None:
            return True
        number, step = within
    return not number and now.assigned.role == "worker"


def _last(steps: Sequence[WorkflowStep]) -> set[int]:
    """The places of a workflow's last step, and of its last one that is not to judge."""
    works = [
        place for place, step in enumerate(steps) if not scheduling.is_judging(step.instruction)
    ]
    return {len(steps) - 1, *works[-1:]}


def _part(now: views.Turn, answers: bool) -> str:
    """The name of the text that says what the turn is there for; "" where its instruction says
    so.
    """
    judges = bool(now.assigned.sees) and scheduling.is_judging(now.assigned.instruction)
    return now.assigned.role if not now.assigned.plan or (answers and not judges) else ""


def _messages(messages: Sequence[Message], role: str) -> tuple[Message, ...]:
    """Our role texts out, the endpoint's own for the role that is played now at the end. "":
    none.
    """
    ours = [prompts.load(name) for name in ROLES]
    told: list[Message] = []
    for message in messages:
        if isinstance(message, FromUser):
            text = message.text
            for piece in ours:
                text = text.replace(piece, "").strip()
            if text or message.media:
                told.append(FromUser(text=text, media=message.media))
        else:
            told.append(message)
    return (*told, FromUser(text=prompts.load(f"serve/{role}"))) if role else tuple(told)


class ClientCoordinator:
    """`coordinator`, but an answer that breaks off once the client has its beginning ends the
    request. So does every answer of a Worker where it is not to be `verified`: the client said that
    nobody need judge it."""

    def __init__(self, coordinator: Coordinator, voice: ClientVoice, *, verified: bool) -> None:
        self._coordinator = coordinator
        self._voice = voice
        self._verified = verified

    async def decide(self, events: Sequence[Event]) -> Decision:
        if self._voice.broke(events):
            return single_agent.BROKEN
        turns = views.turns(events)
        newest = turns[-1] if turns else None
        spoken = (
            newest and newest.assigned.role == "worker" and newest.replies and not newest.failed
        )
        if spoken and newest and newest.unable is None and not self._verified:
            return action_space.request_end(events, turns=1, verify_answers=False) or ANSWERED
        return await self._coordinator.decide(events)


if TYPE_CHECKING:

    def _voice(voice: ClientVoice) -> ClientChannel:
        return voice

    def _coordinator(coordinator: ClientCoordinator) -> Coordinator:
        return coordinator
