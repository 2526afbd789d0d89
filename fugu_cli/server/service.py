"""The endpoint without HTTP: takes a request, returns an answer, and leaves a trace.

The HTTP side (app.py) reads and writes the three wires. Requests with client-side tools, a named
agent or a pinned agent go to `single_agent.py`, all others to `full_loop.py`.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from pydantic import JsonValue

from fugu_cli.messages import FromUser
from fugu_cli.providers import Say
from fugu_cli.server import EndpointLimits, full_loop, single_agent
from fugu_cli.server.model_list import served_models
from fugu_cli.server.single_agent import FUGU, ULTRA, ActiveRequest, EndpointSettings
from fugu_cli.server.traces import CallAuthor, Traces, author_by_tag, new_id
from fugu_cli.session.events import Finished, Interrupted
from fugu_cli.ui import trace as trace_view
from fugu_cli.wires.client_requests import (
    AnswerHead,
    ClientRequest,
    Json,
    RequestRefused,
    ServedAnswer,
)

SILENCE_LIMIT = 2.0
"""Seconds without a new portion after which an unfinished request may be dropped for another."""
CLIENT_LEFT, STOPPED = "the client went away", "the endpoint was stopped"
"""Messages with which the task of an answer is cancelled."""


class Exchange:
    """One request and its answer."""

    def __init__(self, last_received: float) -> None:
        self.last_received = last_received
        """Arrival of the newest portion of the request, on the loop's clock."""
        self.read_timeout: asyncio.Timeout | None = None
        """The timeout while the request is being read, else None."""

    def stop_reading(self) -> None:
        if self.read_timeout is not None and not self.read_timeout.expired():
            self.read_timeout.reschedule(asyncio.get_running_loop().time())


class EndpointService:
    """An endpoint with its models, its running requests and their traces."""

    def __init__(
        self, settings: EndpointSettings, traces: Traces, limits: EndpointLimits | None = None
    ) -> None:
        self.limits = limits or EndpointLimits()
        self.traces = traces
        self._settings = settings
        self._exchanges: set[Exchange] = set()
        self.running: set[asyncio.Future[None]] = set()
        """Tasks that write answers; `close` cancels those that are left."""
        self._started = int(time.time())

    @property
    def busy(self) -> int:
        """Number of requests that are being answered."""
        return sum(exchange.read_timeout is None for exchange in self._exchanges)

    def head(self, client_request: ClientRequest) -> AnswerHead:
        """Return the id, model and time of a new answer. Raises RequestRefused for an unknown model."""
        models = {FUGU, ULTRA, *self._settings.offered}
        if client_request.model not in models:
            raise RequestRefused(
                404,
                f"the model {client_request.model!r} does not exist here; there are: "
                f"{', '.join(sorted(models))}",
                code="model_not_found",
            )
        return AnswerHead(new_id(), client_request.model, int(time.time()))

    @contextmanager
    def exchange(self) -> Iterator[Exchange]:
        """Count one exchange against the endpoint's limit, from a request's first byte until its
        answer ends.

        At the limit, the unfinished request whose client has been silent longest is dropped. Raises
        RequestRefused (429) if no client has been silent for long.
        """
        time = asyncio.get_running_loop().time()
        if len(self._exchanges) >= self.limits.at_once:
            unfinished = [item for item in self._exchanges if item.read_timeout is not None]
            slowest = min(unfinished, key=lambda item: item.last_received, default=None)
            if slowest is not None and time - slowest.last_received > SILENCE_LIMIT:
                slowest.stop_reading()
                self._exchanges.discard(slowest)
        if len(self._exchanges) >= self.limits.at_once:
            raise RequestRefused(
                429,
                f"{len(self._exchanges)} requests are being answered, which is the limit of this "
                f"endpoint",
                error_type="rate_limit_error",
                code="too_many_requests",
                after=1.0,
            )
        exchange = Exchange(time)
        self._exchanges.add(exchange)
        try:
            yield exchange
        finally:
            self._exchanges.discard(exchange)

    async def answer(
        self,
        client_request: ClientRequest,
        head: AnswerHead,
        say: Say,
        on_agent_chosen: Callable[[str], None],
    ) -> ServedAnswer:
        """Return the answer. Raises RequestRefused.

        `say` gets text as soon as it may be sent, `on_agent_chosen` the name of the agent that writes.
        """
        single_agent.check_length(self._settings, client_request)
        log = self.traces.open(head.id)
        log.append(self._settings.opened)
        if self._settings.known_outcomes is not None:
            log.append(await asyncio.to_thread(self._settings.known_outcomes))
        reading_kinds = None
        if self._settings.kinds is not None:
            reading_kinds = asyncio.create_task(self._settings.kinds.read(log))
        if not client_request.tools and (redaction := log.mask) is not None:
            client_request = replace(
                client_request,
                system=redaction.masked(FromUser(text=client_request.system)).text,
                messages=tuple(map(redaction.masked, client_request.messages)),
            )
        account = None
        if self._settings.open_account:
            account = self._settings.open_account(log, self.traces.path(head.id))
        request = ActiveRequest(
            settings=self._settings,
            id=head.id,
            client_request=client_request,
            log=log,
            find_author=self._find_author,
            say=say,
            on_agent_chosen=on_agent_chosen,
            save=partial(self.traces.save, head.id),
            account=account,
        )
        try:
            async with asyncio.timeout(self.limits.seconds):
                answer = await self._dispatch(request)
                return answer if client_request.reasoning else replace(answer, reasoning="")
        except TimeoutError as error:
            message = f"no answer within {self.limits.seconds:g} s"
            log.append(Finished(reason="time_limit", message=message))
            raise RequestRefused(504, message, error_type="server_error", code="timeout") from error
        except asyncio.CancelledError as cancelled:
            if not any(isinstance(event, Interrupted) for event in log.events):
                log.append(Interrupted(turn=0))
            log.append(Finished(reason="interrupted", message=str(cancelled) or CLIENT_LEFT))
            raise
        finally:
            if reading_kinds is not None:
                reading_kinds.cancel()  # the next request reads what is left
            self.traces.finish(head.id)
            log.close()
            if account is not None:
                account.close()

    def _find_author(self, call: str) -> CallAuthor | None:
        """Return the author of a call from its trace; from its id if another replica answered."""
        return self.traces.author(call) or author_by_tag(call, self._settings.members)

    async def _dispatch(self, request: ActiveRequest) -> ServedAnswer:
        client_request = request.client_request
        if client_request.model in self._settings.members:
            return await single_agent.answer_with_one_agent(request, client_request.model)
        tier = client_request.options.tier
        if tier == "fugu" or (tier is None and client_request.model != ULTRA):
            conductor = None
        elif self._settings.ultra is None:
            raise RequestRefused(
                404,
                "the tier ultra is not available here; use the model fugu",
                code="model_not_found",
            )
        else:
            conductor = self._settings.ultra()
        pinned = self._settings.pinned_agent
        if client_request.tools or (pinned is not None and conductor is None):
            return await single_agent.answer_with_one_agent(request, pinned)
        coordinator = conductor or self._settings.team.coordinator
        return await full_loop.answer_with_full_loop(
            request, coordinator, planned=conductor is not None
        )

    def models(self) -> list[Json]:
        """Return the entries of `GET /v1/models`: the pool in its two tiers, then its agents."""
        settings = self._settings
        return served_models(settings.offered, settings.max_reply_tokens, self._started)

    def trace(self, id: str) -> Json | None:
        """Return a trace as `fugu trace ID --json` shows it, with all its events added; None if
        there is no such session. Raises StorageError.
        """
        records = self.traces.read(id)
        if records is None:
            return None
        decisions: Json = json.loads(trace_view.trace_json(records, id))
        events: list[JsonValue] = [record.model_dump(mode="json") for record in records]
        return {"id": id, "object": "trace", **decisions, "events": events}

    async def close(self) -> None:
        """Cancel the running answers, close connections to models, and write every trace."""
        for task in self.running:
            task.cancel(STOPPED)
        if self.running:
            await asyncio.wait(self.running)
        for agent in self._settings.team.agents.values():
            await agent.close()
        self.traces.close()
