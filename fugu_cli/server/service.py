"""The endpoint without HTTP: a request in, an answer out, a trace left behind.

Stands between chat_api.py, responses_api.py, messages_api.py and the two ways to answer. Which one:
`single_agent.py` for client-side tools, a named agent or a pinned one; `full_loop.py` for
everything else.
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

from fugu_cli.coordinators import Coordinator
from fugu_cli.messages import FromUser
from fugu_cli.providers import Say
from fugu_cli.server import EndpointLimits, full_loop, single_agent
from fugu_cli.server.client_requests import AnswerHead, ClientRequest, RequestRefused, ServedAnswer
from fugu_cli.server.single_agent import FUGU, ULTRA, ActiveRequest, EndpointSettings
from fugu_cli.server.traces import Traces, new_id
from fugu_cli.session.events import Finished, Interrupted, Recorded
from fugu_cli.ui import trace as shown

SILENT = 2.0
"""Seconds after which a request that is not sent on gives way to others."""
LEFT, STOPPED = "the client went away", "the endpoint was stopped"
"""Why an answer was cut: what its task is cancelled with."""


class Exchange:
    """One request and its answer. `heard`: when its newest portion arrived, on the loop's clock;
    `patience`: what ends the reading of a request that does not arrive, None while it is not read.
    """

    def __init__(self, heard: float) -> None:
        self.heard = heard
        self.patience: asyncio.Timeout | None = None

    def give_up(self) -> None:
        """End the reading of the request now."""
        if self.patience is not None and not self.patience.expired():
            self.patience.reschedule(asyncio.get_running_loop().time())


class EndpointService:
    """One endpoint. Closed once; then every trace is on the disk."""

    def __init__(
        self, settings: EndpointSettings, traces: Traces, bounds: EndpointLimits | None = None
    ) -> None:
        self.bounds = bounds or EndpointLimits()
        self.traces = traces
        self._settings = settings
        self._exchanges: set[Exchange] = set()
        self.working: set[asyncio.Future[None]] = set()
        """Exchanges on their way, to be cut where a stop cannot wait for them."""
        self._began = int(time.time())

    @property
    def busy(self) -> int:
        """Answers on their way."""
        return sum(exchange.patience is None for exchange in self._exchanges)

    def head(self, asking: ClientRequest) -> AnswerHead:
        """Return a new answer's id and label. Raises RequestRefused for a model that is not there."""
        known = {FUGU, ULTRA, *self._settings.offered}
        if asking.model not in known:
            raise RequestRefused(
                404,
                f"the model {asking.model!r} does not exist here; there are: "
                f"{', '.join(sorted(known))}",
                code="model_not_found",
            )
        return AnswerHead(new_id(), asking.model, int(time.time()))

    @contextmanager
    def exchange(self) -> Iterator[Exchange]:
        """Hold one of the endpoint's places, from a request's first byte until its answer ends.

        Where all are taken, the request that is read and whose client has been silent longest is
        given up. Raises RequestRefused (429) where none has been silent.
        """
        time = asyncio.get_running_loop().time()
        if len(self._exchanges) >= self.bounds.at_once:
            reading = [exchange for exchange in self._exchanges if exchange.patience is not None]
            slowest = min(reading, key=lambda exchange: exchange.heard, default=None)
            if slowest is not None and time - slowest.heard > SILENT:
                slowest.give_up()
                self._exchanges.discard(slowest)
        if len(self._exchanges) >= self.bounds.at_once:
            raise RequestRefused(
                429,
                f"{len(self._exchanges)} requests are being answered, which is the limit of this "
                f"endpoint",
                kind="rate_limit_error",
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
        self, asking: ClientRequest, head: AnswerHead, say: Say, chosen: Callable[[str], None]
    ) -> ServedAnswer:
        """The answer; `say` gets its text as far as it can be told early, `chosen` who writes it.
        Raises RequestRefused.
        """
        single_agent.check_length(self._settings, asking)
        log = self.traces.open(head.id)
        log.append(self._settings.opened)
        if not asking.tools and (mask := log.mask) is not None:
            system = mask.fact(FromUser(text=asking.system)).text
            asking = replace(asking, system=system, messages=tuple(map(mask.fact, asking.messages)))
        tab = self._settings.tab(log, self.traces.path(head.id)) if self._settings.tab else None
        save = partial(self.traces.save, head.id)
        request = ActiveRequest(
            self._settings, head.id, asking, log, self.traces.author, say, chosen, save, tab
        )
        try:
            async with asyncio.timeout(self.bounds.seconds):
                answer = await self._answered(request)
                return answer if asking.reasoning else replace(answer, reasoning="")
        except TimeoutError as error:
            log.append(
                Finished(reason="time_limit", message=f"no answer within {self.bounds.seconds:g} s")
            )
            raise RequestRefused(
                504,
                f"no answer within {self.bounds.seconds:g} s",
                kind="server_error",
                code="timeout",
            ) from error
        except asyncio.CancelledError as cut:
            if not any(isinstance(event, Interrupted) for event in log.events):
                log.append(Interrupted(turn=0))
            log.append(Finished(reason="interrupted", message=str(cut) or LEFT))
            raise
        finally:
            self.traces.finish(head.id)
            log.close()
            if tab is not None:
                tab.close()

    async def _answered(self, request: ActiveRequest) -> ServedAnswer:
        asking = request.asking
        if asking.model in self._settings.members:
            return await single_agent.answer_with_one_agent(request, asking.model)
        ultra = self._ultra(asking)
        if asking.tools or (self._settings.single is not None and ultra is None):
            return await single_agent.answer_with_one_agent(request, self._settings.single)
        coordinator = ultra or self._settings.team.coordinator
        return await full_loop.answer_with_full_loop(
            request, coordinator, planned=ultra is not None
        )

    def _ultra(self, asking: ClientRequest) -> Coordinator | None:
        """The Conductor, where the request asks for it. Raises RequestRefused where there is none."""
        if asking.options.tier != "ultra" and (
            asking.model != ULTRA or asking.options.tier == "fugu"
        ):
            return None
        if self._settings.ultra is None:
            raise RequestRefused(
                404,
                "the tier ultra is not available here; use the model fugu",
                code="model_not_found",
            )
        return self._settings.ultra()

    def models(self) -> list[JsonValue]:
        """What `GET /v1/models` lists: the pool as a whole in its two tiers, then its members."""
        names = [FUGU, ULTRA, *self._settings.offered]
        owners = {FUGU: "fugu", ULTRA: "fugu"} | {
            n: one.provider for n, one in self._settings.members.items()
        }
        return [_model(name, owners[name], self._began) for name in names]

    def trace(self, id: str) -> JsonValue | None:
        """A trace as `fugu trace ID --json` shows it, None where there is none. Raises
        StorageError.
        """
        records = self.traces.read(id)
        return None if records is None else _trace(records, id)

    async def close(self) -> None:
        """Cut what is still on its way; give back connections; write every trace."""
        for work in self.working:
            work.cancel(STOPPED)
        if self.working:
            await asyncio.wait(self.working)
        for agent in self._settings.team.agents.values():
            await agent.close()
        self.traces.close()


def _trace(records: list[Recorded], id: str) -> JsonValue:
    """The decisions as people read them, then every fact they were made from."""
    told: dict[str, JsonValue] = json.loads(shown.trace_json(records, id))
    return {
        "id": id,
        "object": "trace",
        **told,
        "events": [record.model_dump(mode="json") for record in records],
    }


def _model(name: str, owner: str, created: int) -> JsonValue:
    """As both wires have it."""
    when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(created))
    openai: dict[str, JsonValue] = {
        "id": name,
        "object": "model",
        "created": created,
        "owned_by": owner,
    }
    return {**openai, "type": "model", "created_at": when, "display_name": name}
