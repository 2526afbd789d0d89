"""The states of agents after failures, and the rate limits of accounts, shared by all turns of a
process.

An agent is in one of four states. It is `available` until a call fails. Then it is `cooling` until
a time on the monotonic clock, and `due` afterwards, or earlier if somebody asks for it. An agent
whose key was refused is not called at all while it is cooling, and by one call at a time when it is
due: it is `trying` meanwhile.

`BreakerAgent` asks before every call and reports its end, `Retrying` keeps to an account's limits.
This module knows neither logs nor coordinators: its callers ask `unavailable()` and record the
answer.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, replace
from typing import Literal

from fugu_cli.errors import AgentError
from fugu_cli.formatting import CLOCK_TIME_FROM, clock_time
from fugu_cli.messages import Prompt, Reply
from fugu_cli.providers import Agent, AgentWrapper, Say, Wait
from fugu_cli.providers.quota_windows import (
    LONGEST_WINDOW,
    QuotaFile,
    QuotaWindow,
    account_digest,
)
from fugu_cli.session.events import Exclusion

REFUSED = "refused"
"""The kind of failure in which the server does not accept the key."""

COOLDOWN_SECONDS = {
    "limited": 5.0,
    "overloaded": 5.0,
    "network": 5.0,
    "timeout": 10.0,
    "protocol": 15.0,
    REFUSED: 120.0,
    "credit": 300.0,
}
"""Seconds of cooldown after the first failure of a kind; each further failure doubles them."""

ANSWERED = frozenset({"invalid", "absent"})
"""Kinds of failure that belong to the request: the server answered, so it may be asked again."""

KEY_ACCEPTED = frozenset({"limited", "credit"})
"""Kinds of failure that show that the key was accepted."""

MOST_DOUBLINGS = 10
"""More than reach the longest cooldown of any kind."""
LONGEST_COOLDOWN = 900.0
LONGEST_LEARNED_QUOTA = 3600.0
"""The same where an account has no credit and its server does not say until when."""
LEAST_KEPT = 60.0
"""Seconds from which the cooldown of an account that is used up is kept for other processes."""
SHORT_WAIT = 3.0
"""Seconds that a call waits in total while another agent could act: two pauses of `retry.Backoff`,
never three.
"""
TRYING_SECONDS = 1.0
"""Seconds until an agent whose key is being tried is asked for again."""

State = Literal["available", "cooling", "due", "trying"]


@dataclass(frozen=True)
class FailingAgent:
    """The state of an agent that has not answered since it failed.

    `since` and `until` are times of the monotonic clock: the newest failure, and the end of the
    cooldown. `failures` counts those in a row; `server_named` says that the server asked for this
    cooldown. `unreachable` names a host that could not be reached, and why.
    """

    state: State
    kind: str
    since: float
    until: float
    failures: int
    server_named: bool = False
    unreachable: str = ""


AgentKey = tuple[str, str, str]
"""The address, the key and the model that an agent is called with."""
RefusedKeys = dict[AgentKey, FailingAgent]
"""The keys that servers refused, for all breakers of a process."""


class FailingAgents(MutableMapping[str, FailingAgent]):
    """The failing agents of one breaker, by name. Agents whose key was refused are also noted in
    `refused`, by their key, where other breakers see them.
    """

    def __init__(self, keys: Mapping[str, AgentKey], refused: RefusedKeys) -> None:
        self._keys = dict(keys)
        self._refused = refused
        self._own: dict[str, FailingAgent] = {}

    def __getitem__(self, name: str) -> FailingAgent:
        key = self._keys.get(name)
        if key in self._refused:
            return self._refused[key]
        return self._own[name]

    def __setitem__(self, name: str, failing: FailingAgent) -> None:
        self.pop(name, None)
        if failing.kind == REFUSED and name in self._keys:
            self._refused[self._keys[name]] = failing
        else:
            self._own[name] = failing

    def __delitem__(self, name: str) -> None:
        key = self._keys.get(name)
        if key in self._refused:
            del self._refused[key]
            self._own.pop(name, None)
        else:
            del self._own[name]

    def __iter__(self) -> Iterator[str]:
        refused = [name for name, key in self._keys.items() if key in self._refused]
        return iter(dict.fromkeys([*refused, *self._own]))

    def __len__(self) -> int:
        return len(list(iter(self)))


class RateLimits:
    """Accounts that must not be asked until a certain time. `accounts` maps agents to accounts; any
    other agent has its own.
    """

    def __init__(self, accounts: Mapping[str, str], now: Callable[[], float]) -> None:
        self._accounts = dict(accounts)
        self._now = now
        self._until: dict[str, float] = {}

    def sharing(self, name: str) -> set[str]:
        """Return the agents that share the account of `name`, itself too."""
        account = self._account(name)
        return {name, *(agent for agent in self._accounts if self._account(agent) == account)}

    def hold(self, name: str, seconds: float) -> None:
        """Keep the account of `name` from being asked for `seconds`."""
        account = self._account(name)
        self._until[account] = max(self._until.get(account, 0.0), self._now() + seconds)

    def seconds(self, name: str) -> float:
        """Return the seconds until the account of `name` may be asked again."""
        return max(self._until.get(self._account(name), 0.0) - self._now(), 0.0)

    def lift(self, name: str) -> None:
        """Let the account of `name` be asked at once."""
        self._until.pop(self._account(name), None)

    def _account(self, name: str) -> str:
        return self._accounts.get(name, name)


class CircuitBreaker:
    """The states of agents by name, and the rate `limits` of their `accounts`.

    `hosts` and `keys` map agents to hosts and keys; any other agent has its own. The other breakers
    of the process share `refused_keys`. Accounts that are used up are kept in `quotas`, for all
    processes.
    """

    def __init__(
        self,
        accounts: Mapping[str, str] | None = None,
        now: Callable[[], float] = time.monotonic,
        hosts: Mapping[str, str] | None = None,
        keys: Mapping[str, AgentKey] | None = None,
        refused_keys: RefusedKeys | None = None,
        quotas: QuotaFile | None = None,
    ) -> None:
        self._hosts = dict(hosts or {})
        self.limits = RateLimits(accounts or {}, now)
        self._now = now
        self._failing = FailingAgents(keys or {}, refused_keys if refused_keys is not None else {})
        self._called: dict[str, float] = {}
        """When each agent was called last."""
        self._quotas = quotas
        self._accounts = {name: account_digest(*key) for name, key in (keys or {}).items()}
        self._windows: dict[str, QuotaWindow] = {}
        """The windows of the file by agent, as they were seen last."""

    def state(self, name: str) -> State:
        """Return the agent's state at this moment."""
        failing = self._failing.get(name)
        if failing is None:
            return "available"
        if failing.state == "cooling" and failing.until <= self._now():
            return "due"
        return failing.state

    def begin_call(self, name: str) -> float:
        """Note that `name` is called, and return the time.

        Raises AgentError if its key was refused and must not be tried yet.
        """
        if self._key_refused(name):
            if self.state(name) != "due":
                seconds = self.seconds(name)
                raise AgentError(
                    f"{name}: its key was refused, and it is tried again in {seconds:.0f} s",
                    kind="unavailable",
                    after=seconds,
                    hint=f"Once it is mended, a new start or `/retry {name}` tries it at once.",
                )
            self._failing[name] = replace(self._failing[name], state="trying")
        self._called[name] = self._now()
        return self._called[name]

    def failed(
        self,
        name: str,
        kind: str,
        after: float | None = None,
        began: float = math.inf,
        *,
        unreachable: str = "",
    ) -> None:
        """Note that a call of `name`, which began at `began`, failed after its retries.

        `after` is the number of seconds that the server asked for. If it is longer than
        `SHORT_WAIT`, it is kept exactly, also for all agents that share a limited account. Parallel
        calls fail together: while `name` is cooling, further failures do not count. `unreachable`
        names the host and why it could not be reached; all its agents cool down.
        """
        if kind in ANSWERED or (kind in KEY_ACCEPTED and self._key_refused(name)):
            self.succeeded(name, began)
        if kind not in COOLDOWN_SECONDS or (kind != REFUSED and self._key_refused(name)):
            self.cut(name, began)
            return
        least = COOLDOWN_SECONDS[kind] if kind == "credit" else SHORT_WAIT
        requested = min(after, LONGEST_WINDOW) if after is not None and after > least else None
        shared = requested is not None and kind == "limited"
        for agent in self.limits.sharing(name) if shared else {name}:
            self._cool_down(agent, kind, requested)
        if not unreachable:
            return
        host = self._hosts.get(name)
        others = [agent for agent in self._hosts if agent != name and self._hosts[agent] == host]
        for agent in (name, *others):
            if self._key_refused(agent):
                continue
            if agent != name:
                self._cool_down(agent, kind, requested)
            self._failing[agent] = replace(self._failing[agent], unreachable=unreachable)

    def _key_refused(self, name: str) -> bool:
        failing = self._failing.get(name)
        return failing is not None and failing.kind == REFUSED

    def _cool_down(self, name: str, kind: str, requested: float | None) -> None:
        time, earlier = self._now(), self._failing.get(name)
        failures = 1
        if earlier is not None:
            is_new = earlier.until <= time
            failures = earlier.failures + 1 if is_new else earlier.failures
        if requested is None:
            longest = LONGEST_LEARNED_QUOTA if kind == "credit" else LONGEST_COOLDOWN
            doublings = min(failures - 1, MOST_DOUBLINGS)
            length = min(COOLDOWN_SECONDS[kind] * 2.0**doublings, longest)
        else:
            length = requested
        until, server_named = time + length, requested is not None
        if earlier is not None and until <= earlier.until:  # the longer of two cooldowns stays
            until, server_named = earlier.until, earlier.server_named
            kind = REFUSED if REFUSED in (kind, earlier.kind) else earlier.kind
        self._failing[name] = FailingAgent("cooling", kind, time, until, failures, server_named)
        if kind in KEY_ACCEPTED and until - time >= LEAST_KEPT:
            self._keep_window(name, self._failing[name])

    def _keep_window(self, name: str, failing: FailingAgent) -> None:
        """Write down that the account of `name` is used up. If that fails, only this breaker knows
        it.
        """
        account = self._accounts.get(name)
        if self._quotas is None or account is None:
            return
        clock = self._quotas.clock()
        window = QuotaWindow(
            agent=name,
            kind=failing.kind,
            since=clock,
            until=clock + failing.until - failing.since,
            failures=failing.failures,
            server_named=failing.server_named,
        )
        if self._quotas.record(account, window):
            self._windows[name] = window

    def _read_windows(self) -> None:
        """Read what other processes have learned: which accounts are used up, and which have
        answered since.
        """
        if self._quotas is None:
            return
        windows, clock, time = self._quotas.windows(), self._quotas.clock(), self._now()
        for name, account in self._accounts.items():
            window, earlier = windows.get(account), self._windows.get(name)
            if window == earlier or self._key_refused(name):
                continue
            if window is None:
                del self._windows[name]
                self._failing.pop(name, None)
                self.limits.lift(name)
                continue
            self._windows[name] = window
            self._failing[name] = FailingAgent(
                "cooling",
                window.kind,
                time - (clock - window.since),
                time + (window.until - clock),
                window.failures,
                window.server_named,
            )

    def succeeded(self, name: str, began: float = math.inf) -> None:
        """Note that a call of `name` was answered. A call that began before the newest failure is
        ignored.
        """
        failing = self._failing.get(name)
        if failing is not None and began >= failing.since:
            del self._failing[name]
            if self._quotas is not None and self._windows.pop(name, None) is not None:
                self._quotas.remove(self._accounts[name])

    def cut(self, name: str, began: float = math.inf) -> None:
        """Note that a call of `name`, which began at `began`, ended without showing whether the
        agent answers.

        A refused key that was being tried cools down again, since the server may have seen it.
        """
        failing = self._failing.get(name)
        if failing is not None and failing.state == "trying" and began >= failing.since:
            time, length = self._now(), failing.until - failing.since
            self._failing[name] = replace(failing, state="cooling", since=time, until=time + length)

    def seconds(self, name: str) -> float:
        """Return the seconds until `name` is available again, 0 if it is available."""
        match self.state(name):
            case "cooling":
                return self._failing[name].until - self._now()
            case "trying":
                return TRYING_SECONDS
            case "available" | "due":
                return 0.0

    def unavailable(self) -> dict[str, Exclusion]:
        """Return the agents that are unavailable now, each with the reason."""
        self._read_windows()
        unavailable = {}
        for name, failing in self._failing.items():
            seconds = self.seconds(name)
            if seconds > 0:
                unavailable[name] = Exclusion(
                    kind=failing.kind,
                    message=_retry_time(seconds),
                    unreachable=failing.unreachable,
                )
        return unavailable

    def recovered(self, name: str, kind: str) -> bool:
        """Return whether `name`, excluded for a failure of this kind, may be tried again."""
        return kind in COOLDOWN_SECONDS and self.seconds(name) == 0

    def try_early(self, name: str) -> None:
        """Let `name` be tried at once, whatever it failed with, and its account be asked."""
        if self.state(name) == "cooling":
            self._failing[name] = replace(self._failing[name], state="due")
        self.limits.lift(name)

    def wake(self, names: Collection[str]) -> None:
        """Let these agents be tried at once, except those whose key was refused."""
        for name in names:
            failing = self._failing.get(name)
            if failing is None or failing.kind != REFUSED:
                self.try_early(name)

    def tried_longest_ago(self, names: Collection[str]) -> str | None:
        """Return the cooling agent of `names` that was called longest ago.

        Agents whose key was refused or whose host cannot be reached do not count.
        """
        cooling = []
        for name in names:
            if self.state(name) == "cooling":
                failing = self._failing[name]
                if failing.kind != REFUSED and not failing.unreachable:
                    cooling.append(name)
        return min(cooling, key=lambda name: self._called.get(name, -math.inf), default=None)

    def server_named(self, name: str) -> bool:
        """Return whether the server of `name` named the length of the cooldown."""
        failing = self._failing.get(name)
        return failing is not None and failing.server_named

    def soonest(
        self, names: Collection[str], *, server_named: bool = False
    ) -> tuple[str, float] | None:
        """Return the unavailable agent of `names` that may be tried first, and the seconds until
        then.

        With `server_named`, only agents count whose server named the time.
        """
        waiting = [
            (self.seconds(name), name)
            for name in names
            if self.seconds(name) > 0 and (self.server_named(name) or not server_named)
        ]
        if not waiting:
            return None
        seconds, name = min(waiting)
        return name, seconds


def _retry_time(seconds: float) -> str:
    """Return when an agent is tried again, a later time as people read a clock."""
    if seconds < CLOCK_TIME_FROM:
        return f"retrying in {seconds:.0f} s"
    return f"used up until {clock_time(time.time() + seconds)}"


class BreakerAgent(AgentWrapper):
    """Reports every call of `agent` to `breaker`. It is the outermost wrapper, so a failure that
    reaches it is final.
    """

    def __init__(self, agent: Agent, breaker: CircuitBreaker) -> None:
        super().__init__(agent)
        self._breaker = breaker

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Make the call. Raises AgentError without a call if the agent's key was refused recently."""
        began = self._breaker.begin_call(self.name)
        try:
            reply = await self._agent.reply(prompt, say, wait)
        except AgentError as error:
            self._breaker.failed(
                self.name, error.kind, error.after, began, unreachable=error.unreachable
            )
            raise
        except BaseException:  # a cancellation, or a fault of fugu: it says nothing of the agent
            self._breaker.cut(self.name, began)
            raise
        self._breaker.succeeded(self.name, began)
        return reply
