"""The composed head: the learned coordinator that is ready for any pool.

    p_ik    success rate of agent i on kind k          (skills.py)
    Q_ik    value of asking i next                     (list_plan.py)
    P(k|h)  softmax(W_k h), the kind of the request
    l_i     sum_k P(k|h) Q_ik / T                      logits over the pool, masked before the softmax

Rules of the action space decide the role. The language model is asked only where kinds disagree
about the best agent; its answer stands in the log with the request's first such decision and is
read there afterwards. Where it cannot be asked, the kinds of earlier requests stand in for it.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Protocol

from fugu_cli.coordinators import CoordinatorSettings, action_space
from fugu_cli.coordinators.list_plan import Candidate, ListLimits, values_of_asking
from fugu_cli.coordinators.outcomes import outcomes_known
from fugu_cli.coordinators.rules import OWN_WORK, Cascade
from fugu_cli.coordinators.skills import (
    KIND_WORDS,
    KINDS,
    Kind,
    SkillTable,
    SuccessRate,
    can_tell_apart,
    can_tell_apart_in_kind,
    run_cost,
    success_rate,
)
from fugu_cli.coordinators.trinity import (
    milliseconds_since,
    pick_row,
    probabilities,
    product_end,
    rounded_for_log,
)
from fugu_cli.coordinators.turn_costs import ExpectedCost, expected_turn_costs
from fugu_cli.errors import CoordinatorUnavailable
from fugu_cli.formatting import plural
from fugu_cli.session.events import (
    AgentEstimate,
    Assigned,
    BudgetLeft,
    DecisionTimings,
    Exclusion,
    Finished,
    KindRead,
    Member,
    OutcomeCount,
    OutcomesKnown,
    Role,
    Scores,
)
from fugu_cli.session.state import SessionState

TEMPERATURE = 0.05
"""Of the softmax over values: five points of value are a factor of e in probability."""
USUAL_RUN_TOKENS = 80_000
"""Tokens of one turn at the blended price, where an agent has no turns of its own: USD 0.28 for
GPT-5 and 0.72 for Claude Opus 4.5, as on SWE-bench Verified."""
TWO_TO_ONE = 0.43
"""Standard errors from which the odds are two to one that a difference has its sign."""
ABOUT_ONE_PRICE = 1.25
"""Costs within this factor are about the same."""
NOT_CARRIED = -1.0
"""Value of an agent whose run costs more than the budget leaves: far below what any list is worth."""
VERIFIER_TURNS = 1
"""Turns of the limit that are kept for a Verifier."""


@dataclass(frozen=True)
class KindReading:
    """Probabilities of the kinds in the order of `KINDS`, and the tokens that were read."""

    probabilities: tuple[float, ...]
    tokens: int
    milliseconds: DecisionTimings

    @property
    def rounded(self) -> tuple[float, ...]:
        """The probabilities as a log keeps them."""
        return rounded_for_log(self.probabilities)


class KindReader(Protocol):
    """Reads the kind of a request."""

    async def read(self, text: str) -> KindReading:
        """Return the kinds' probabilities. Raise CoordinatorUnavailable without a model."""


@dataclass(frozen=True)
class _Kinds:
    """The weights of the kinds of request in one decision, and their origin."""

    weights: Mapping[Kind, float]
    source: str
    recorded: bool = True
    reading: KindReading | None = None

    @property
    def likeliest(self) -> Kind:
        """The kind with the largest weight."""
        return max(self.weights, key=self.weights.__getitem__)


class ComposedHead:
    """Decides from success rates, costs and the kind of the request."""

    def __init__(
        self,
        members: Sequence[Member],
        settings: CoordinatorSettings,
        kinds: KindReader | None = None,
        table: SkillTable | None = None,
    ) -> None:
        """`table` holds the public skills; None means the table that is shipped."""
        self._members = tuple(members)
        self._settings = settings
        self._kinds = kinds
        self._table = table
        self._cascade = Cascade(members, settings)

    @property
    def members(self) -> tuple[Member, ...]:
        """The agents to choose from."""
        return self._members

    def kind_matters(self, outcomes: OutcomesKnown) -> bool:
        """Return whether the first decision of a request depends on its kind."""
        able = [member for member in self._members if member.name not in self._settings.opt_out]
        if len(able) < 2:
            return False
        state = SessionState((outcomes,))
        decision = _Decision(self._members, self._settings, None, self._table, state)
        return len(decision.choices_by_kind(able, decision.values(able))) > 1

    async def decide(self, state: SessionState) -> Assigned | Finished:
        """Return the next turn, or the end of the request."""
        started = time.perf_counter()
        end = action_space.request_end(
            state, turns=self._settings.turns, verify_answers=self._settings.verify_answers
        )
        if end is None and not self._settings.roles:
            end = product_end(state)
        if end is not None:
            return end
        excluded = action_space.agents_out(state, self._settings.opt_out, self._members)
        if not action_space.verifier_due(state):
            excluded |= action_space.agents_that_gave_up(state)
        if not self._settings.roles:
            kept = action_space.kept_assignment(state, self._members, excluded)
            if kept is not None:
                return kept
        able = [member for member in self._members if member.name not in excluded]
        if not able:
            return action_space.finish_without_agents(state, excluded)
        assigned = await _Decision(
            self._members, self._settings, self._kinds, self._table, state
        ).assign(able, excluded, started)
        return await self._with_cascades_choice(assigned, state)

    async def _with_cascades_choice(self, assigned: Assigned, state: SessionState) -> Assigned:
        """Return the decision with a note of the agent that the cascade would have chosen."""
        of_cascade = await self._cascade.decide(state)
        if assigned.scores is None or not isinstance(of_cascade, Assigned):
            return assigned
        scores = assigned.scores.model_copy(update={"rule": of_cascade.agent})
        return assigned.model_copy(update={"scores": scores})


class _Decision:
    """One decision, with the success rates and costs that are known at this moment."""

    def __init__(
        self,
        members: Sequence[Member],
        settings: CoordinatorSettings,
        kind_reader: KindReader | None,
        table: SkillTable | None,
        state: SessionState,
    ) -> None:
        self._members = members
        self._settings = settings
        self._kind_reader = kind_reader
        self._state = state
        self._outcomes = outcomes_known(state.events)
        self._costs = expected_costs(members, self._outcomes.counts)
        self._rates = {
            (member.name, request_kind): success_rate(
                member, request_kind, self._outcomes.counts, table
            )
            for member in members
            for request_kind in KINDS
        }

    async def assign(
        self, able: Sequence[Member], excluded: Mapping[str, Exclusion], started: float
    ) -> Assigned:
        """Return the next turn. `started` is the `perf_counter` at which the decision began."""
        values = self.values(able)
        kinds = await self._kind_weights(able, values)
        role = self._role(able, kinds)
        barred = {**excluded, **self._barred_in_role(role, able, kinds)}
        scores = {}
        for member in self._members:
            scores[member.name] = sum(
                weight * values[request_kind].get(member.name, NOT_CARRIED)
                for request_kind, weight in kinds.weights.items()
            )
        logits = [scores[member.name] / TEMPERATURE for member in self._members]
        masked = {index for index, member in enumerate(self._members) if member.name in barred}
        chances = probabilities(logits, masked, self._settings.temperature)
        candidates = [member for member in able if member.name not in barred]
        chosen = self._choose(role, candidates, scores, kinds, chances)
        timings, tokens = DecisionTimings(), 0
        if kinds.reading is not None:
            timings, tokens = kinds.reading.milliseconds, kinds.reading.tokens
        kinds_read: dict[str, float] = dict(kinds.weights.items()) if kinds.recorded else {}
        turn_costs = expected_turn_costs(
            self._state, self._members, role, self._outcomes.counts, kinds_read
        )
        estimates = [
            self._estimate(member, kinds, scores, able, turn_costs) for member in self._members
        ]
        head = max(milliseconds_since(started) - timings.total, 0.0)
        return Assigned(
            turn=action_space.next_turn_number(self._state),
            agent=chosen.name,
            role=role,
            by="trinity",
            reason=self._reason(chosen, role, candidates, scores, kinds, turn_costs),
            scores=Scores(
                rows=tuple(member.name for member in self._members),
                row_logits=rounded_for_log(logits),
                row_probabilities=rounded_for_log(chances),
                masked=tuple((name, str(why)) for name, why in barred.items()),
                tokens=tokens,
                temperature=self._settings.temperature,
                kinds=tuple(kinds.weights.items()) if kinds.recorded else (),
                kinds_from=kinds.source,
                estimates=tuple(estimates),
            ),
            milliseconds=timings.model_copy(update={"head": round(head, 3)}),
        )

    # --- what is known --------------------------------------------------------------------------

    def values(self, able: Sequence[Member]) -> dict[Kind, dict[str, float]]:
        """Return the value of asking each able agent next, for every kind."""
        failed = [member.name for member in action_space.members_so_far(self._state, self._members)]
        # an agent that may still act is worth asking though its usual run costs more than is left
        cheapest = min(self._costs[member.name] for member in able)
        limits = ListLimits(
            attempts=max(self._settings.turns - VERIFIER_TURNS, 1),
            budget=max(budget_left(self._state), cheapest),
            dearest_run=max(self._costs.values()),
        )
        values = {}
        for request_kind in KINDS:
            candidates = []
            for member in able:
                rate = self._rates[member.name, request_kind].rate
                candidates.append(Candidate(member.name, rate, self._costs[member.name]))
            values[request_kind] = values_of_asking(candidates, failed, limits)
        return values

    async def _kind_weights(
        self, able: Sequence[Member], values: Mapping[Kind, Mapping[str, float]]
    ) -> _Kinds:
        """Return the weights of the kinds of request. The first of these sources that is available
        counts: an earlier decision of this request, the shares of earlier requests if the kind does
        not change the choice, the language model that reads the request, the shares of earlier
        requests.
        """
        if (recorded := recorded_kinds(self._state)) is not None:
            return _Kinds(recorded, "read with this request", recorded=True)
        shares = kind_shares(self._outcomes)
        if len(self.choices_by_kind(able, values)) == 1:
            return _Kinds(shares, "the same agent is next for every kind", recorded=False)
        if self._kind_reader is not None:
            try:
                reading = await self._kind_reader.read(request_words(self._state))
            except (CoordinatorUnavailable, MemoryError):
                pass
            else:
                weights = dict(zip(KINDS, reading.rounded, strict=True))
                return _Kinds(weights, "read from the request", reading=reading)
        return _Kinds(shares, "kind unknown: no model", recorded=False)

    def _rate(self, member: Member, kinds: _Kinds) -> float:
        return sum(
            weight * self._rates[member.name, request_kind].rate
            for request_kind, weight in kinds.weights.items()
        )

    def _typical_rate(self, member: Member, kinds: _Kinds) -> SuccessRate:
        """Return the agent's rate in the likeliest kind, with its uncertainty."""
        return self._rates[member.name, kinds.likeliest]

    # --- roles ----------------------------------------------------------------------------------

    def _role(self, able: Sequence[Member], kinds: _Kinds) -> Role:
        if not self._settings.roles:
            return "worker"
        if action_space.verifier_due(self._state):
            return "verifier"
        suggested = action_space.thinker_suggestion(self._state)
        if suggested is not None:
            return suggested
        return "thinker" if self._thinker_is_due(able, kinds) else "worker"

    def _thinker_is_due(self, able: Sequence[Member], kinds: _Kinds) -> bool:
        """Return whether all agents that may be the best have worked without success, and another
        agent can think.
        """
        excluded_roles = action_space.roles_out(self._state)
        left = self._settings.turns - action_space.turns_taken(self._state)
        worked = [member.name for member in action_space.members_so_far(self._state, self._members)]
        if excluded_roles.keys() & {"thinker", "worker"} or left < 3 or not worked:
            return False
        best = max(able, key=lambda member: self._rate(member, kinds))
        rate = self._typical_rate(best, kinds)
        strongest = {
            member.name
            for member in able
            if not can_tell_apart(self._typical_rate(member, kinds), rate)
        }
        return strongest <= set(worked) and any(member.name != worked[-1] for member in able)

    def _barred_in_role(
        self, role: Role, able: Sequence[Member], kinds: _Kinds
    ) -> dict[str, Exclusion]:
        """Return the able agents that may not take the role now, unless no other agent can."""
        if role == "verifier":
            return action_space.verifiers_out(self._state, {}, able)
        if role == "thinker":
            newest = action_space.newest_worker(self._state)
            return _unless_all(able, {newest or ""}, "it has worked in vain: another agent thinks")
        return {}

    # --- the choice -----------------------------------------------------------------------------

    def _choose(
        self,
        role: Role,
        candidates: Sequence[Member],
        scores: Mapping[str, float],
        kinds: _Kinds,
        chances: Sequence[float],
    ) -> Member:
        """Return the agent that takes the role; with the setting `sample` one drawn by `chances`."""
        if self._settings.sample:
            request = len(self._state.requests)
            turn = action_space.next_turn_number(self._state)
            generator = random.Random(f"{self._settings.seed}/{request}/{turn}")
            return self._members[pick_row(chances, generator)]
        if role == "verifier":
            return self._choose_verifier(candidates, kinds)
        if role == "thinker":
            return max(candidates, key=lambda member: self._rate(member, kinds))
        return self._choose_worker(candidates, scores, kinds)

    def choices_by_kind(
        self, able: Sequence[Member], values: Mapping[Kind, Mapping[str, float]]
    ) -> set[str]:
        """Return the agents that would act next: one for each kind that the request may be of."""
        if len(able) == 1:
            return {able[0].name}
        verifiers: list[Member] = []
        if self._settings.roles and action_space.verifier_due(self._state):
            barred = action_space.verifiers_out(self._state, {}, able)
            verifiers = [member for member in able if member.name not in barred]
        choices = set()
        for request_kind in KINDS:
            kinds = _Kinds({request_kind: 1.0}, "")
            if verifiers:
                choices.add(self._choose_verifier(verifiers, kinds).name)
                continue
            values_of_kind = values[request_kind]
            scores = {member.name: values_of_kind.get(member.name, NOT_CARRIED) for member in able}
            choices.add(self._choose_worker(able, scores, kinds).name)
        return choices

    def _choose_worker(
        self, candidates: Sequence[Member], scores: Mapping[str, float], kinds: _Kinds
    ) -> Member:
        """Return the agent with the highest value, or one that may be as good and is cheaper or
        less known.
        """
        best = max(candidates, key=lambda member: scores[member.name])
        worked = action_space.members_so_far(self._state, self._members)
        fresh = [
            member
            for member in candidates
            if member not in worked and is_carried(scores[member.name])
        ]
        if best not in fresh:
            return best
        cheaper = self._cheapest_alike(best, fresh, scores, kinds)
        return self._least_known_alike(cheaper, fresh, scores, kinds)

    def _cheapest_alike(
        self,
        best: Member,
        fresh: Sequence[Member],
        scores: Mapping[str, float],
        kinds: _Kinds,
    ) -> Member:
        """Return `best`, or a cheaper agent where the odds that `best` is right more often are
        less than two to one. Of several at about the lowest price the most valuable one is taken.
        """
        best_rate = self._typical_rate(best, kinds)
        alike = [
            member
            for member in fresh
            if self._costs[member.name] <= self._costs[best.name]
            and not can_tell_apart(self._typical_rate(member, kinds), best_rate, TWO_TO_ONE)
        ]
        lowest = min(self._costs[member.name] for member in alike)
        near = [member for member in alike if self._costs[member.name] <= lowest * ABOUT_ONE_PRICE]
        return max(near, key=lambda member: scores[member.name])

    def _least_known_alike(
        self,
        chosen: Member,
        fresh: Sequence[Member],
        scores: Mapping[str, float],
        kinds: _Kinds,
    ) -> Member:
        """Return `chosen`, or an agent that may be as good at about the same price and has at most
        half of its outcomes: trying it costs little and tells much.

        Half, because two agents with similar rates would otherwise take turns for ever. So each is
        tried once more whenever the other's outcomes have doubled. Without outcomes the result is
        `chosen`.
        """
        rate = self._typical_rate(chosen, kinds)
        experience = self._experience(chosen, kinds)
        alike = []
        for member in fresh:
            in_kind, overall = self._experience(member, kinds)
            is_new = (in_kind, overall) < experience and in_kind <= experience[0] / 2
            if not is_new or not self._cost_about_the_same(member, chosen):
                continue
            if not can_tell_apart_in_kind(self._typical_rate(member, kinds), rate):
                alike.append(member)
        return min(
            alike or [chosen],
            key=lambda member: (self._experience(member, kinds), -scores[member.name]),
        )

    def _cost_about_the_same(self, first: Member, second: Member) -> bool:
        """Return whether two agents cost about the same: by the costs of their turns if both have
        had turns, else by the prices of their tokens, because it is a guess how many tokens an
        agent without turns needs.
        """
        costs = [self._costs[first.name], self._costs[second.name]]
        agents_with_turns = {count.agent for count in self._outcomes.counts if count.turns > 0}
        if not {first.name, second.name} <= agents_with_turns:
            prices = [action_space.blended_price(member.price) for member in (first, second)]
            if all(prices):
                costs = prices
        return max(costs) <= min(costs) * ABOUT_ONE_PRICE

    def _choose_verifier(self, candidates: Sequence[Member], kinds: _Kinds) -> Member:
        """Return the cheapest agent if the tests pass, else the one that is most often right."""
        run = self._state.request.tests
        if run is not None and run.passes:
            return min(candidates, key=lambda member: self._costs[member.name])
        return max(candidates, key=lambda member: self._rate(member, kinds))

    # --- what people are told -------------------------------------------------------------------

    def _own_outcomes(self, member: Member, of_kind: str | None = None) -> float:
        """Count an agent's outcomes, all of them or those of a kind."""
        return sum(
            count.trials
            for count in self._outcomes.counts
            if count.agent == member.name and of_kind in (None, count.kind)
        )

    def _experience(self, member: Member, kinds: _Kinds) -> tuple[int, int]:
        """Count an agent's outcomes of the likeliest kind, if a kind was read, and all of them."""
        overall = round(self._own_outcomes(member))
        if not kinds.recorded:
            return overall, overall
        return round(self._own_outcomes(member, kinds.likeliest)), overall

    def _estimate(
        self,
        member: Member,
        kinds: _Kinds,
        scores: Mapping[str, float],
        able: Sequence[Member],
        turn_costs: Mapping[str, ExpectedCost],
    ) -> AgentEstimate:
        value = scores[member.name]
        turn_cost = turn_costs.get(member.name)
        return AgentEstimate(
            agent=member.name,
            success_rate=round(self._rate(member, kinds), 3),
            own_outcomes=round(self._own_outcomes(member), 1),
            source=self._typical_rate(member, kinds).source,
            run_cost=round(turn_cost.dollars, 4) if turn_cost is not None else None,
            run_turns=round(turn_cost.turns, 1) if turn_cost is not None else 0.0,
            call_cost=round(turn_cost.call, 6) if turn_cost is not None else None,
            value=round(value, 4) if member in able and is_carried(value) else None,
        )

    def _reason(
        self,
        chosen: Member,
        role: Role,
        candidates: Sequence[Member],
        scores: Mapping[str, float],
        kinds: _Kinds,
        turn_costs: Mapping[str, ExpectedCost],
    ) -> str:
        if role == "verifier":
            is_author = action_space.verifies_own_work(self._state, chosen.name)
            return OWN_WORK if is_author else "did not write any of it"
        if len(candidates) == 1:
            return action_space.ONLY_CHOICE
        requests = KIND_WORDS[kinds.likeliest] if kinds.recorded else "requests"
        overall = round(self._own_outcomes(chosen))
        solves = "solves" if overall else "should solve"
        parts = [f"{solves} {self._rate(chosen, kinds):.0%} of {requests}"]
        if overall:
            in_kind, _ = self._experience(chosen, kinds)
            counts = plural(overall, "outcome")
            if in_kind != overall:
                counts += f", {in_kind} of this kind"
            parts[0] += f" ({counts})"
        if chosen.name in turn_costs:
            parts.append(turn_costs[chosen.name].text)
        best = max(candidates, key=lambda member: scores[member.name])
        if self._settings.sample:
            parts.append("drawn")
        elif role == "worker" and scores[best.name] > scores[chosen.name]:
            is_cheaper = not self._cost_about_the_same(chosen, best)
            compared = "costs less" if is_cheaper else "has done less"
            parts.append(f"{compared} than {best.name}, which may be no better")
        return ", ".join(parts)


def recorded_kinds(state: SessionState) -> dict[Kind, float] | None:
    """Return the kinds that were recorded for the newest request, None if none were."""
    number = len(state.requests)
    for event in reversed(state.events):
        if isinstance(event, KindRead) and not event.session and event.request == number:
            return _by_kind(event.kinds)
    for event in reversed(state.request.events):
        if isinstance(event, Assigned) and event.scores and event.scores.kinds:
            return _by_kind(event.scores.kinds)
    return None


def is_carried(value: float) -> bool:
    """Return whether the value is that of an agent whose run the budget allows."""
    return value > NOT_CARRIED / 2


def budget_left(state: SessionState) -> float:
    """Return the rest of the newest request's budget before this decision (USD), infinite without a
    budget.
    """
    for event in reversed(state.request.events):
        if isinstance(event, BudgetLeft):
            return event.dollars
    return math.inf


def kind_shares(outcomes: OutcomesKnown) -> dict[Kind, float]:
    """Return the share of each kind in the repository's requests so far, smoothed towards even."""
    counts = dict(outcomes.kinds)
    total = sum(counts.values()) + len(KINDS)
    return {request_kind: (counts.get(request_kind, 0.0) + 1.0) / total for request_kind in KINDS}


def request_words(state: SessionState, shortest: int = 30) -> str:
    """Return the user's words of the newest request, with those of the request before if they are
    fewer than about `shortest` tokens.
    """
    words = [request.asked.wanted for request in state.requests if request.asked is not None]
    if not words:
        return ""
    if len(words) > 1 and len(words[-1]) < 4 * shortest:
        return f"{words[-2]}\n{words[-1]}"
    return words[-1]


def expected_costs(members: Sequence[Member], counts: Sequence[OutcomeCount]) -> dict[str, float]:
    """Return the expected cost of a turn of each agent (USD). An agent without turns of its own is
    assumed to need as many tokens as the others did. An agent of unknown price is assumed to cost
    as much as the middle agent.
    """
    prices = {
        member.name: action_space.blended_price(member.price)
        for member in members
        if member.price is not None
    }
    # means of logarithms: runs differ by orders of magnitude, and one guess must not outweigh many
    log_tokens, turns = math.log(USUAL_RUN_TOKENS), 1.0
    for count in counts:
        price = prices.get(count.agent)
        if price and count.turns > 0 and count.mean_cost > 0:
            log_tokens += count.turns * math.log(count.mean_cost / price * 1e6)
            turns += count.turns
    tokens = math.exp(log_tokens / turns)
    usual = {name: price * tokens / 1e6 for name, price in prices.items()}
    middle = median(usual.values()) if usual else 0.0
    return {
        member.name: run_cost(member, None, counts, usual.get(member.name, middle))
        for member in members
    }


def _by_kind(pairs: Sequence[tuple[str, float]]) -> dict[Kind, float]:
    recorded = dict(pairs)
    return {request_kind: recorded.get(request_kind, 0.0) for request_kind in KINDS}


def _unless_all(able: Sequence[Member], names: Collection[str], why: str) -> dict[str, Exclusion]:
    """Return an exclusion for each of `names`, or none if no agent would be left."""
    if all(member.name in names for member in able):
        return {}
    return {member.name: Exclusion(message=why) for member in able if member.name in names}


if TYPE_CHECKING:
    from fugu_cli.coordinators import Coordinator

    _composed: Coordinator = ComposedHead((), CoordinatorSettings())
