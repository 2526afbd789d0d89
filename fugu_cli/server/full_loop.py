"""Answers a request with the whole loop: Thinker, Worker and Verifier turns until a Verifier
accepts, as in a session.

Used for requests without client-side tools. The engine is that of sessions; this module gives it
the conversation as a log, prompts for answering a client instead of working on a repository, and no
tools, since an endpoint changes no files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fugu_cli import prompts
from fugu_cli.coordinators import Coordinator, Decision, action_space
from fugu_cli.coordinators.conductor import scheduling
from fugu_cli.engine import orchestrator
from fugu_cli.engine.environment import RequestLimits
from fugu_cli.messages import FromUser, Message, Prompt
from fugu_cli.server import single_agent, traces
from fugu_cli.server.single_agent import ActiveRequest
from fugu_cli.server.traces import conversation_events, follow_up_request, with_authors
from fugu_cli.session import turns
from fugu_cli.session.events import (
    ANSWERED,
    Assigned,
    Recorded,
    Replied,
    WorkflowStep,
)
from fugu_cli.session.live_events import Live, TextStreamed, ThoughtStreamed
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn, may_be_unable
from fugu_cli.wires.client_requests import DEFAULT_MAX_TOKENS, ServedAnswer


async def answer_with_full_loop(
    request: ActiveRequest, coordinator: Coordinator, *, planned: bool = False
) -> ServedAnswer:
    """Return the newest Worker's answer once the loop has ended. Raises RequestRefused.

    `planned` says that `coordinator` plans a workflow.
    """
    log, client_request = request.log, request.client_request
    options, sampling = client_request.options, client_request.sampling
    messages = with_authors(client_request.messages, request.find_author)
    for event in conversation_events(messages, log_only=True):
        log.append(event)
    client_turns = log.state.request.turns
    available = request.settings.offered.keys() - options.opt_out
    if client_turns and (planned or client_turns[-1].assigned.agent not in available):
        for event in follow_up_request(client_request.messages):  # nobody can continue the turn
            log.append(event)
    single_agent.exclude_agents(request)
    request.settings.watch(log, request.id, options.traceparent)
    first_new = len(log.events)
    request.save()
    live = not planned and not options.verify and not sampling.reply_schema
    client_channel = ClientVoice(request, live=live)
    verified = planned or options.verify is not False
    team = replace(
        request.settings.team,
        agents=single_agent.answering_agents(request),
        coordinator=ClientCoordinator(coordinator, client_channel, verified=verified),
    )
    environment = replace(
        request.settings.environment,
        limits=RequestLimits(budget=single_agent.request_budgets(request)),
        client_channel=client_channel,
    )
    end = await orchestrator.run(log, team, environment)
    reply = None if client_channel.broke(log.state) else _newest_answer(log.state, first_new)
    if reply is None:
        raise single_agent.refusal_of_end(request, log.events[first_new:], end)
    request.on_agent_chosen(reply.agent)
    note: str = end.reason
    if end.reason not in ("accepted", "answered"):
        sentences = end.message.split(". ")
        shown = [sentence for sentence in sentences if "`fugu " not in sentence]
        note = f"{end.reason}: {'. '.join(shown)}"  # without commands for a terminal
    unable_reason = turns.unable_reason(reply.text)
    answer = reply
    if unable_reason is not None:
        answer = reply.model_copy(update={"text": unable_reason})
    client_channel.send_held_back(answer)
    return traces.answer_with_usage(log.state, first_new, answer, reply, note)


def _newest_answer(state: SessionState, first_new: int) -> Replied | None:
    """Return the newest Worker's reply with text among the events from index `first_new` on.

    A workflow's answer counts unless a Worker outside of it replied later.
    """
    new = {id(event) for event in state.events[first_new:]}
    newest = None
    for turn in state.request.turns:
        is_worker = turn.assigned.role == "worker"
        if is_worker and turn.text.strip() and id(turn.replies[-1]) in new:
            newest = turn
    if newest is None or newest.assigned.plan:
        newest = state.request.user_facing_turn or newest
    return newest.replies[-1] if newest else None


REVISED = "\n\n[A Verifier asked for a revision of this answer. The revised one:]\n\n"


class ClientVoice:
    """Builds the prompts of turns that answer an endpoint's client: with the client's instructions
    and limits instead of fugu's own.

    With `live`, the client gets a Worker's text while it is written, even if the work is verified
    later.
    """

    def __init__(self, request: ActiveRequest, *, live: bool) -> None:
        self._request = request
        if live:
            request.log.listen(self._listen)
        self._heard_turn: int | None = None
        """The newest turn of which the client got text."""
        self._held_back: tuple[int, str] = (0, "")
        """A turn and its text so far, while that may be the beginning of `UNABLE:`."""

    def render(self, prompt: Prompt, state: SessionState, turn: Turn) -> Prompt:
        """Return the prompt without fugu's texts about repositories.

        If the turn's text may go to the client, the client's limits on its answer apply.
        """
        client_request = self._request.client_request
        sampling = client_request.sampling
        instructions = prompts.load("serve/step" if turn.assigned.plan else "serve/system")
        system = [text for text in (instructions, client_request.system) if text.strip()]
        answers = _answers_client(state, turn)
        changes: dict[str, object] = {
            "system": "\n\n".join(system),
            "messages": _client_messages(prompt.messages, _role_text(turn, answers)),
            "tools": (),
            "metadata": dict(client_request.options.metadata),
            "effort": single_agent.effort_of(state.pool[turn.assigned.agent], sampling),
        }
        if answers:
            max_tokens = sampling.max_tokens
            if max_tokens == DEFAULT_MAX_TOKENS:
                max_tokens = min(max_tokens, prompt.max_tokens)
            changes |= {
                "max_tokens": max_tokens,
                "temperature": sampling.temperature,
                "seed": sampling.seed if prompt.seed is None else prompt.seed,
                "stop": sampling.stop,
                "reply_schema": sampling.reply_schema,
            }
        else:
            changes |= {"stop": (), "reply_schema": ""}
        return prompt.model_copy(update=changes)

    def _listen(self, item: Recorded | Live | None) -> None:
        if not isinstance(item, TextStreamed | ThoughtStreamed) or not item.text:
            return
        if self._role_of(item.turn) != "worker":
            return
        if isinstance(item, ThoughtStreamed):
            self._request.forward(item)
            return
        if self._heard_turn != item.turn:
            turn, earlier_text = self._held_back
            text = earlier_text + item.text if turn == item.turn else item.text
            self._held_back = (item.turn, text)
            if may_be_unable(text):
                return
            item = item.model_copy(update={"text": text})
        is_revision = self._heard_turn not in (None, item.turn)
        self._heard_turn = item.turn
        self._request.forward(item, f"{REVISED}{item.text}" if is_revision else "")

    def _role_of(self, turn: int) -> str:
        for event in reversed(self._request.log.events):
            if isinstance(event, Assigned) and event.turn == turn:
                return event.role
        raise AssertionError(f"text of turn {turn}, which was not assigned")

    def send_held_back(self, answer: Replied) -> None:
        """Send the newest answer, if it was held back and the client already got an earlier one."""
        turn, _ = self._held_back
        if self._heard_turn is not None and self._heard_turn != turn == answer.turn:
            text = f"{REVISED}{answer.text}"
            self._request.forward(TextStreamed(turn=turn, agent=answer.agent, text=text))

    def wait(self, turn: Turn) -> None:
        """Raise AgentError instead of a retry if the client already got some of the turn's text."""
        if self._heard_turn == turn.number and self._request.client_request.stream:
            raise single_agent.broken_stream_reason(turn.assigned.agent)
        self._held_back = (0, "")

    def broke(self, state: SessionState) -> bool:
        """Return whether a streamed answer failed after the client got its beginning, so that no
        other agent may begin another.
        """
        turn = state.request.turn(self._heard_turn) if self._heard_turn is not None else None
        return self._request.client_request.stream and turn is not None and turn.failed is not None


def _answers_client(state: SessionState, turn: Turn) -> bool:
    """Return whether the turn's text may go to the client.

    This holds for a Worker outside of workflows, and for the answering steps of a workflow. A step
    of a nested workflow must also belong to an answering step of the outer one.
    """
    number, step = turn.assigned.plan, turn.assigned.step
    if not number:
        return turn.assigned.role == "worker"
    plans = {workflow.number: workflow.planned for workflow in state.request.workflows}
    while step in _answering_steps(plans[number].steps):
        outer = plans[number].within
        if outer is None:
            return True
        number, step = outer
    return False


def _answering_steps(steps: Sequence[WorkflowStep]) -> set[int]:
    """Return the indices of the last step and of the last step that does not judge.

    A judging last step may only approve of the answer before it.
    """
    answering = {len(steps) - 1}
    for index in range(len(steps) - 1, -1, -1):
        if not scheduling.is_judging(steps[index].instruction):
            answering.add(index)
            break
    return answering


def _role_text(turn: Turn, answers: bool) -> str:
    """Return the name of the text that explains the turn's role; "" if its instruction does so."""
    assignment = turn.assigned
    judges = bool(assignment.sees) and scheduling.is_judging(assignment.instruction)
    if not assignment.plan or (answers and not judges):
        return assignment.role
    return ""


def _client_messages(messages: Sequence[Message], role: str) -> tuple[Message, ...]:
    """Return the messages, followed by the endpoint's text for `role`."""
    return (*messages, FromUser(text=prompts.load(f"serve/{role}"))) if role else tuple(messages)


class ClientCoordinator:
    """Decides like `coordinator`, but ends the request after an answer that broke off.

    Without `verified`, it also ends the request after the first answer of a Worker.
    """

    def __init__(
        self, coordinator: Coordinator, client_channel: ClientVoice, *, verified: bool
    ) -> None:
        self._coordinator = coordinator
        self._client_channel = client_channel
        self._verified = verified

    async def decide(self, state: SessionState) -> Decision:
        if self._client_channel.broke(state):
            return single_agent.BROKEN_OFF
        turns = state.request.turns
        if turns and not self._verified:
            newest = turns[-1]
            answered = newest.assigned.role == "worker" and newest.replies and not newest.failed
            if answered and newest.unable is None:
                end = action_space.request_end(state, turns=1, verify_answers=False)
                return end or ANSWERED
        return await self._coordinator.decide(state)
