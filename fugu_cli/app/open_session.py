"""An open session as the interfaces use it: ask, run, interrupt, and the user's switches.

Built by wiring, which names the parts; everything it does ends in an event in the log or in a `run`
of the orchestrator.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fugu_cli.config import Config, Mode
from fugu_cli.config.agent_pool import PLANNER
from fugu_cli.coordinators import Coordinator
from fugu_cli.engine import (
    availability,
    compaction,
    harness,
    message_history,
    orchestrator,
    parallel_turns,
)
from fugu_cli.engine.environment import Environment, Team
from fugu_cli.engine.recovery import recover
from fugu_cli.errors import StorageError, UsageError
from fugu_cli.extensions.skill_library import MCP_PROMPT, SkillLibrary
from fugu_cli.messages import Call, Effort, Media
from fugu_cli.safety import policy, saved_permissions
from fugu_cli.session.events import Asked, Finished, MemoryText, Steered
from fugu_cli.session.live_events import Waiting
from fugu_cli.session.log import Log
from fugu_cli.session.outcome import RUN_TESTS
from fugu_cli.session.turns import STOPPED, without_effort
from fugu_cli.snapshots import snapshots
from fugu_cli.tools import mentions

if TYPE_CHECKING:
    from fugu_cli.coordinators.kind_backlog import KindBacklog
    from fugu_cli.coordinators.outcome_store import OutcomeStore
    from fugu_cli.extensions.language_servers import LanguageServers
    from fugu_cli.extensions.mcp_servers import McpServers
    from fugu_cli.extensions.memory import Memory
    from fugu_cli.extensions.repository_map import RepositoryMap
    from fugu_cli.extensions.telemetry import CollectorLink
    from fugu_cli.tools.web_search import SearchEngine

KINDS_SECONDS = 5.0
"""Seconds that a closing session waits until the kinds of its requests are read."""
GOING_ON = 3
"""The number of times that Stop hooks may continue the work after one request of the user."""


@dataclass(frozen=True)
class SessionExtras:
    """Optional parts of a session besides servers and hooks.

    `lacking` are sentences about parts that were wanted but are missing. `recovered` are sentences
    about interrupted undos that were finished when the session was opened.
    """

    collector: CollectorLink | None = None
    checkers: LanguageServers | None = None
    search: SearchEngine | None = None
    lacking: tuple[str, ...] = ()
    recovered: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for the user."""
        return (
            *self.recovered,
            *self.lacking,
            *(self.collector.notes if self.collector is not None else ()),
        )


@dataclass
class Session:
    """An open session: the log, the team and the environment. `team` and `environment` may change
    between turns.
    """

    log: Log
    root: Path
    config: Config
    team: Team
    environment: Environment
    warm: Callable[[], None]
    """Starts loading what the first decision needs, in the background; returns at once. May be
    called twice.
    """
    decide: Callable[[Config], Coordinator]
    """The coordinator of a configuration: for pins and exclusions."""
    permissions_file: str
    """The file to which `allow_always` adds rules."""
    pinned: str | None = None
    excluded: frozenset[str] = frozenset()
    servers: McpServers | None = None
    """The user's MCP servers; None where there are none."""
    library: SkillLibrary = field(default_factory=SkillLibrary)
    """The skills, custom commands and subagents that count."""
    memory: Memory | None = None
    """The user's notes for later sessions; None if none are read and kept."""
    repository_map: RepositoryMap | None = None
    """Draws maps of the repository; None before the first one."""
    effort: Effort = ""
    """The reasoning effort from the next request on, "" for each entry's own."""
    answer_schema: str = ""
    """The JSON schema, as text, that answers must follow; "" where there is none."""
    only_reads: bool = False
    """It answers a command of fugu's and has the tools that read files."""
    extras: SessionExtras = SessionExtras()
    """A collector, language servers, a search engine."""
    tier: str = "fugu"
    """`fugu` or `ultra`, from the next request on."""
    outcomes: OutcomeStore | None = None
    """The outcomes of all sessions; None where decisions do not read them."""
    kinds: KindBacklog | None = None
    """Reads kinds of requests that were decided without; None where nobody counts them."""
    _reading_kinds: asyncio.Task[None] | None = None
    ignored: tuple[str, ...] = ()
    """Files and folders that do not count, since the user does not trust the folder."""

    async def ask(
        self,
        text: str,
        typed: str = "",
        skill: str = "",
        piped: str = "",
        media: tuple[Media, ...] = (),
    ) -> None:
        """Record a request, with the working tree and with what `@` names in the text. `typed` is
        what the user wrote, if `text` was made from it. Agents read `skill`, `piped` and `media`
        below the text (events.Asked). Raises UsageError if a hook refuses the request.
        """
        servers = self.servers
        if servers is not None and text.startswith(MCP_PROMPT):
            prompt = await servers.prompt(text)
            text, typed, media = prompt.text, typed or text, (*media, *prompt.media)
        names = servers.names if servers is not None else ()
        root = self.environment.workspace.root
        attachments = await asyncio.to_thread(mentions.mentioned, root, text, names)
        for name in await asyncio.to_thread(mentions.missing, root, text):
            note = f"@{name}: there is no such file; agents get the name alone"
            self.log.tell(Waiting(why=note, notice=True))
        if servers is not None:
            await servers.ready_for(attachments)
        request = Asked(
            text=text, attachments=attachments, typed=typed, skill=skill, piped=piped, media=media
        )
        await _record(self, await _with_hooks(self, request))

    async def steer(self, text: str, typed: str = "", media: tuple[Media, ...] = ()) -> bool:
        """Record a message for the running agents, with the pictures and PDFs that `@` names in it.
        They read it with their next result. Return False if the request has ended meanwhile. Raises
        UsageError if a hook refuses it.
        """
        message = await _message(self, text, typed, media)
        if self.log.state.request.finished is not None:
            return False
        self.log.append(message)
        return True

    @property
    def can_change_plan(self) -> bool:
        """True if the user's next text is a change of the open plan: in plan mode, while the agent
        that made the plan can take a turn.
        """
        plan = self.log.state.open_plan
        if plan is None or self.environment.rules.mode != "plan":
            return False
        is_available = plan.agent in self.team.members and plan.agent not in self.excluded
        return is_available and self.pinned in (None, plan.agent)

    async def change_plan(self, text: str, typed: str = "", media: tuple[Media, ...] = ()) -> None:
        """Record a change that the user wants in the open plan. The agent that made the plan
        continues its turn. Raises UsageError if there is no plan or a hook refuses the message.
        """
        message = await _message(self, text, typed, media)
        if self.log.state.open_plan is None:
            from fugu_cli.app.plans import NO_PLAN_HINT

            raise UsageError("there is no plan to change", hint=NO_PLAN_HINT)
        self.log.append(message)

    async def accept_plan(self, mode: Mode) -> None:
        """Record a request that carries out the open plan, and change to this mode, or to the
        loosest mode that the administrator allows. Raises UsageError where there is no plan, or a
        hook refuses the request.
        """
        from fugu_cli.app.modes import modes_up_to
        from fugu_cli.app.plans import accepted_request  # few runs carry a plan out

        loosest = self.environment.rules.loosest_mode
        if mode not in modes_up_to(loosest) and loosest != "plan":
            mode = loosest
        request = await accepted_request(self.log, self.environment.workspace, mode)
        earlier_mode = self.environment.rules.mode
        self.set_mode(mode)
        try:
            await _record(self, await _with_hooks(self, request))
        except BaseException:  # a cancellation too: without the request the mode stays as it was
            self.set_mode(earlier_mode)
            raise

    def go_on(self) -> bool:
        """Return whether there is a request to finish. Reopens one that a limit or a failure
        stopped. An unfinished request for a plan continues in plan mode.
        """
        end, opened = self.log.state.request.finished, self.log.state.opened
        if end is not None and end.reason in STOPPED and opened is not None:
            availability.wake(self.team, self.team.members)
            self.log.append(opened)
        request = self.log.state.request
        if request.asks_for_plan and request.finished is None:
            self.set_mode("plan")
        return request.asked is not None and request.finished is None

    def notes(self) -> tuple[str, ...]:
        """Return sentences about what is missing, does not work or is ignored in this session."""
        sandbox, hooks = self.environment.workspace.sandbox, self.environment.hooks
        sentences: list[str] = []
        if sandbox is not None:
            sentences += sandbox.notes()
        if self.servers is not None:
            sentences += self.servers.notes
        if hooks is not None:
            sentences += hooks.runner.notes
        sentences += self.library.notes
        if self.library.agents:
            from fugu_cli.extensions.subagents import unknown_models

            sentences += unknown_models(self.library.agents, self.team.members.values())
        if self.effort and (without := without_effort(self.team.members)):
            sentences.append(
                f"the effort {self.effort} says nothing to {', '.join(without)}: no effort can "
                f"be told there"
            )
        sentences += self.extras.notes
        if not self.environment.workspace.in_git:
            sentences.append(
                "this is not a git repository: undo is limited to files that fugu's own tools "
                "change"
            )
        return tuple(sentences)

    async def run(self) -> Finished:
        """Run the newest request to its end. Cancel the task to interrupt it."""
        limits = self.environment.limits
        if (seconds := self.config.time.request) is not None:
            limits = replace(limits, deadline=time.monotonic() + seconds)
        if self.environment.hooks is not None:
            await self.environment.hooks.began(_source(self.log), self.environment.workspace)
        for tried in range(GOING_ON + 1):
            end = await orchestrator.run(
                self.log, self.team, replace(self.environment, limits=limits)
            )
            if not (left := await _left_to_do(self, end, tried)):
                break
            await _record(self, Asked(text=left))
        if self.kinds is not None:
            self._reading_kinds = asyncio.create_task(self.kinds.read(self.log))
        return end

    async def finish_reading_kinds(self) -> None:
        """Wait until the kinds of requests are recorded, a few seconds at most."""
        task, self._reading_kinds = self._reading_kinds, None
        if task is None:
            return
        done, _ = await asyncio.wait({task}, timeout=KINDS_SECONDS)
        if not done:
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def set_mode(self, mode: Mode) -> None:
        """Change the permission mode from the next call on. Raises UsageError for one that the
        administrator does not allow.
        """
        from fugu_cli.app.modes import modes_up_to

        loosest = self.environment.rules.loosest_mode
        if mode not in modes_up_to(loosest):
            raise UsageError(
                f"the mode {mode} is not allowed on this machine",
                hint=f"your administrator allows {', '.join(modes_up_to(loosest))}",
            )
        if self.environment.hooks is not None:
            self.environment.hooks.runner.mode = mode
        self.environment.mode_switch.mode = mode
        self.environment = replace(
            self.environment, rules=self.environment.rules.model_copy(update={"mode": mode})
        )

    def pin(self, name: str | None) -> None:
        """Let one agent take every turn from now on, at once if it is unavailable; None gives the
        decision back to the coordinator."""
        self.pinned = name
        if name is not None:
            availability.wake(self.team, [name])
            availability.readmit(self.log, self.team, name)
        self.team = _chosen_team(self)

    def exclude(self, names: frozenset[str]) -> None:
        """Exclude exactly these agents from now on."""
        self.excluded = names
        self.team = _chosen_team(self)

    def set_tier(self, tier: str) -> None:
        """Change the tier to `fugu` or `ultra` from the next request on. Raises UsageError if it is
        not available.
        """
        if tier not in ("fugu", "ultra"):
            raise UsageError(f"there is no tier {tier!r}", hint="/tier fugu or /tier ultra")
        self.tier = tier
        self.environment = replace(self.environment, remembers=tier == "ultra")
        self.team = _chosen_team(self)

    def allow_always(self, call: Call, judgement: policy.Judgement) -> str:
        """Remember a yes for this project. Returns the rule and the file it stands in, for people.

        The rule is the one that was offered, else the narrowest. Raises UsageError for a call that
        no rule can allow: the yes is one for this session then.
        """
        if self.environment.rules.only_managed_allow:
            raise UsageError(
                "on this machine only the administrator's rules allow calls permanently, so this "
                "call is allowed for this session only",
                hint="ask your administrator to add the rule",
            )
        rule = judgement.rule or saved_permissions.rule_for(call, judgement)
        rules = self.environment.rules.model_copy(
            update={"allow": (*self.environment.rules.allow, rule)}
        )
        judged = policy.judge(call, rules, self.environment.workspace.root)
        if judged.verdict != "allow":
            raise UsageError(
                f"no rule can allow exactly this for good ({judged.reason}); it is allowed in this "
                f"session",
                hint=f"write a wider rule into {self.permissions_file}",
            )
        saved_permissions.add_rule(self.config.data, self.root, rule)
        self.environment = replace(self.environment, rules=rules)
        return f"{rule} in {self.permissions_file}"

    async def compact(self) -> None:
        """Replace the conversation so far by a summary. Raises UsageError if there is nothing to
        summarise. The agent of the newest turn writes the summary, or another one if that agent has
        been excluded since.
        """
        state = self.log.state
        if not any(turn.replies for request in state.shown_requests for turn in request.every_turn):
            raise UsageError("there is nothing to shorten yet", hint="ask something first")
        hooks = self.environment.hooks
        if hooks is not None:
            refusal = await hooks.compacting("manual", self.environment.workspace)
            if refusal:
                raise UsageError(f"a hook refused to sum up: {refusal}", hint="nothing was changed")
        excluded = self.excluded.union(self.config.opt_out)
        newest_agents = [turn.assigned.agent for turn in reversed(state.request.turns)]
        names = dict.fromkeys([self.pinned, *newest_agents, *self.team.members])
        summarizers = []
        for name in names:
            if name is None or name not in self.team.agents or name in excluded:
                continue
            member = self.team.members[name]
            conversation = harness.conversation(state, member, self.environment)
            summarizers.append(compaction.Summarizer(member, self.team.agents[name], conversation))
        await compaction.compact(self.log, summarizers[:2], len(state.events) - 1)

    async def close(self) -> None:
        """Give back connections, leases and the log's lock; end background jobs and MCP servers."""
        await self.finish_reading_kinds()
        if self.environment.hooks is not None:
            await self.environment.hooks.closed(self.environment.workspace)
        await self.environment.workspace.jobs.close()
        if self.servers is not None:
            await self.servers.close()
        if self.extras.checkers is not None:
            await self.extras.checkers.close()
        for agent in self.team.agents.values():
            await agent.close()
        self.log.close()
        if self.extras.collector is not None:
            await self.extras.collector.finish()
        await asyncio.to_thread(parallel_turns.remove_unused_worktrees, self.config.data)
        with contextlib.suppress(StorageError):
            await snapshots.collect_garbage(
                self.config.data, self.environment.workspace.history.snapshots, self.log.path
            )


async def _with_hooks(session: Session, request: Asked) -> Asked:
    """Return the request with the text that hooks add. Raises UsageError if one refuses it."""
    hooks, workspace = session.environment.hooks, session.environment.workspace
    if hooks is None:
        return request
    await hooks.began(_source(session.log), workspace)
    answer = await hooks.prompted(request.whole, workspace)
    if answer.decision == "deny":
        hint = "nothing was recorded and nothing was run"
        raise UsageError(f"a hook refused the request: {answer.reason}", hint=hint)
    return request.model_copy(update={"hooks": answer.context})


async def _message(session: Session, text: str, typed: str, media: tuple[Media, ...]) -> Steered:
    """Return a message to the agents, with the text that hooks add and the pictures and PDFs that
    `@` names in it. Raises UsageError where a hook refuses it.
    """
    if (hooks := session.environment.hooks) is not None:
        answer = await hooks.prompted(text, session.environment.workspace)
        if answer.decision == "deny":
            hint = "no agent is given the message"
            raise UsageError(f"a hook refused the message: {answer.reason}", hint=hint)
        if answer.context:
            typed = typed or text
            text = f"{text}\n\n[Hooks say:]\n{answer.context}"
    attached = await asyncio.to_thread(_mentioned_media, session.environment, text)
    return Steered(text=text, typed=typed, media=(*media, *attached))


def _mentioned_media(environment: Environment, text: str) -> tuple[Media, ...]:
    """Return the pictures and PDFs that `@` names and every agent may read without a question.
    Agents read other files themselves.
    """
    root = environment.workspace.root
    names = mentions.mentioned(root, text)
    if not names or environment.denials is not None:
        return ()
    from fugu_cli.tools import media  # only where something is mentioned

    attached = []
    for name in names:
        call = mentions.reading_call(root, name, "")
        if call.tool != "read" or policy.judge(call, environment.rules, root).verdict != "allow":
            continue
        path = root / (message_history.text_argument(call, "path") or name)
        with contextlib.suppress(OSError, media.NotTaken):
            if path.stat().st_size <= media.MOST_READ:
                attached.append(media.take(path.read_bytes(), name))
    return tuple(attached)


async def _record(session: Session, request: Asked) -> None:
    """Record a request, with what the configuration and the folder add to it."""
    workspace, tests = session.environment.workspace, session.config.tests
    command = _test_command(session)
    is_planning = session.environment.rules.mode == "plan" and not session.only_reads
    if tests.until_pass and command is None and not is_planning:
        raise UsageError(
            "the tests are to pass, and no test command can be run here",
            hint="name one with --test-command, or allow run_tests",
        )
    until: tuple[str, ...] = ()
    if not is_planning:
        suite = (command,) if tests.until_pass and command is not None else ()
        until = tuple(dict.fromkeys((*suite, *tests.until)))
    await recover(session.log, workspace)
    from fugu_cli.engine.session_rules import session_rules  # not before it is open

    rules = await session_rules(
        session.environment,
        has_copies=session.tier == "ultra",
        has_foreign_tools=session.servers is not None,
    )
    snapshot = "" if workspace.in_git else None
    if is_planning:
        # files may change before the plan is accepted
        snapshot = await workspace.history.snapshot()
    fields = {
        "rules": rules,
        "memory": await _read_memory(session),
        **await _draw_maps(session, request.text),
        "snapshot": snapshot,
        "test_command": command,
        "until": until,
        "tier": session.tier,
        "effort": session.effort,
        "answer_schema": session.answer_schema,
        "only_reads": session.only_reads,
        "mode": session.environment.rules.mode,
    }
    session.log.append(request.model_copy(update=fields))
    await _record_outcomes(session)


async def _draw_maps(session: Session, request: str) -> dict[str, str]:
    """Return the maps of the repository as fields of the request: for a planner, and for a session's
    first turn where the configuration wants it. None where names may be kept from some agents. A
    planner in the papers' form, and an embedded one, see folders and files only.
    """
    setting, environment = session.config.repository_map, session.environment
    conductor = session.config.conductor
    is_prompted = conductor.planner_format == "names" and conductor.agent != PLANNER
    is_planned = session.tier == "ultra"
    is_first = setting == "first" and not session.log.state.requests and not session.only_reads
    if environment.denials is not None or not (is_planned or is_first):
        return {}
    from fugu_cli.extensions.repository_map import FOR_FIRST_TURN, FOR_PLANNER, RepositoryMap

    def may_read(path: str) -> bool:
        call = Call.make("map", "read", path=path)
        return policy.judge(call, environment.rules, session.root).verdict == "allow"

    if session.repository_map is None:
        session.repository_map = RepositoryMap(session.root)
    draw = partial(session.repository_map.draw, request, may_read=may_read)
    maps = {}
    if is_planned:
        has_definitions = is_prompted and setting != "off"
        maps["tree"] = await draw(FOR_PLANNER, with_definitions=has_definitions)
    if is_first:
        maps["repository_map"] = await draw(FOR_FIRST_TURN, with_definitions=True)
    return maps


async def _read_memory(session: Session) -> tuple[MemoryText, ...]:
    """Return the memory for a request, and tell the user what is left out of it."""
    if session.memory is None:
        return ()
    texts, notes = await asyncio.to_thread(session.memory.read)
    for note in notes:
        session.log.tell(Waiting(why=note, notice=True))
    return texts


async def _record_outcomes(session: Session) -> None:
    """Write down what is known of the agents' outcomes: decisions of the request read only this."""
    if session.outcomes is None:
        return
    from fugu_cli.coordinators.outcomes import outcomes_known

    outcomes = await asyncio.to_thread(
        session.outcomes.known,
        tuple(session.team.members.values()),
        tuple(session.log.records),
        session.log.path,
    )
    if outcomes != outcomes_known(session.log.events):
        session.log.append(outcomes)


def _test_command(session: Session) -> str | None:
    """Return the test command, None if fugu must not run it: in plan mode, by a rule, or by
    `tests.when`.
    """
    if session.config.tests.when == "never" and not session.config.tests.until_pass:
        return None
    workspace, call = session.environment.workspace, Call(id="", tool=RUN_TESTS)
    judgement = policy.judge(call, session.environment.rules, workspace.root)
    return None if judgement.forbidden or judgement.plan_mode else workspace.test_command


async def _left_to_do(session: Session, end: Finished, tried: int) -> str:
    """Return the next request that a Stop hook wants, "" if none or too many."""
    if session.environment.hooks is None:
        return ""
    ending = {
        "reason": end.reason,
        "message": end.message,
        "last_assistant_message": session.log.state.request.answer,
    }
    left = await session.environment.hooks.ended(
        ending, session.environment.workspace, again=tried > 0
    )
    has_plan = session.log.state.open_plan is not None  # the user says how it goes on
    done = end.reason in {"accepted", "answered"} and tried < GOING_ON and not has_plan
    return f"A Stop hook asks to go on: {left}" if left and done else ""


def _chosen_team(session: Session) -> Team:
    """Return the team under the user's pin, exclusions and tier."""
    coordinator = (
        session.config.coordinator if session.pinned is None else f"single:{session.pinned}"
    )
    changes = {
        "coordinator": coordinator,
        "opt_out": (*session.config.opt_out, *sorted(session.excluded)),
        "tier": session.tier,
    }
    config = session.config.model_copy(update=changes)
    return replace(
        session.team,
        coordinator=session.decide(config),
        excluded=config.excluded_agents(session.team.members),
    )


def _source(log: Log) -> str:
    """Return whether the session is new or resumed, in the words of hooks."""
    return "startup" if log.state.request.asked is None else "resume"
