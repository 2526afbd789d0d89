"""Commands about who works and what runs: agents, keys and downloads that let them work, skills,
background jobs, cost, context.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fugu_cli.app.modes import AUTO, effort_named
from fugu_cli.engine import availability
from fugu_cli.errors import FuguError, ModelFileError, UsageError
from fugu_cli.formatting import (
    compact_number,
    flatten,
    known_cost,
    money,
    plural,
    sanitize_for_screen,
    short_duration,
)
from fugu_cli.messages import EFFORTS
from fugu_cli.session.state import SessionState
from fugu_cli.session.turns import Turn, without_effort
from fugu_cli.ui.tui.model_login import ADDRESS, DOWNLOAD, choose_provider, log_in_at
from fugu_cli.ui.tui.screen_protocol import Choice
from fugu_cli.ui.tui.session_commands import confirm_and_undo, require_idle

if TYPE_CHECKING:
    from fugu_cli.engine.context_use import ContextUse
    from fugu_cli.tools.shell_commands import BackgroundJob
    from fugu_cli.ui.tui.session_controller import SessionController


def agent_names(controller: SessionController) -> Sequence[str]:
    """Return the agents of the session."""
    return tuple(controller.work.session.team.members) if controller.work.session else ()


def agent_names_or_auto(controller: SessionController) -> Sequence[str]:
    """Return the agents, and `auto` for the coordinator's choice."""
    return (AUTO, *agent_names(controller))


async def show_pool(controller: SessionController, argument: str) -> None:
    """Show the pool. Choosing an agent pins it."""
    if argument:
        await pin_agent(controller, argument)
        return
    team = controller.session.team
    unavailable = team.breaker.unavailable() if team.breaker is not None else {}
    choices = [Choice(AUTO, AUTO, "the coordinator decides")]
    for name, member in team.members.items():
        price = "price unknown"
        if member.price:
            price = f"{money(member.price.input)}/{money(member.price.output)}"
        details = [member.slot, member.model, price]
        if controller.work.pinned == name:
            details.append("pinned")
        if name in controller.session.excluded:
            details.append("excluded")
        if name in unavailable:
            details.append(f"unavailable, {unavailable[name].message}")
        choices.append(Choice(name, name, " · ".join(details)))
    picked = await controller.view.dialogs.pick(
        "The pool: choose an agent to pin it", choices, None, {"ctrl+e": "excludes"}
    )
    if picked is None:
        return
    key, name = picked
    if key == "ctrl+e" and name != AUTO:
        await exclude_agent(controller, name)
    else:
        await pin_agent(controller, name)


async def pin_agent(controller: SessionController, argument: str) -> None:
    """Make one agent take every turn; `auto` lets the coordinator decide again."""
    if argument in ("", AUTO):
        controller.work.pin(None)
        controller.say("the coordinator decides")
        return
    _require_agent(controller, argument)
    controller.work.pin(argument)
    controller.say(f"pinned to {argument} (/pin auto to unpin)")


async def exclude_agent(controller: SessionController, argument: str) -> None:
    """Exclude an agent, or include it again."""
    _require_agent(controller, argument)
    excluded = controller.session.excluded ^ {argument}
    if not set(controller.session.team.members) - excluded:
        raise UsageError("this would leave nobody to work", hint="include another agent first")
    controller.session.exclude(excluded)
    controller.changed()
    if argument in excluded:
        controller.say(f"{argument} excluded (/exclude {argument} to include it again)")
    else:
        controller.say(f"{argument} included again")


async def retry_request(controller: SessionController, argument: str) -> None:
    """Take the newest request's changes back and ask it again, of one agent where it is named."""
    await require_idle(controller)
    request = controller.session.log.state.request.asked
    if argument:
        _require_agent(controller, argument)
    if request is None:
        if not argument:
            raise UsageError("nothing was asked yet")
        availability.retry_agent(controller.session.team, argument)
        controller.say(f"{argument} is tried again from the next request on")
        return
    if controller.session.log.state.request.changes:
        question = "Take back what was done, and ask again?"
        if not await confirm_and_undo(controller, question):
            return
    team = controller.session.team
    if argument:
        availability.retry_agent(team, argument)
    else:
        availability.wake(team, team.members)
    await controller.send(request.said, argument or None)


async def change_tier(controller: SessionController, argument: str) -> None:
    """Change the tier: `fugu` decides turn by turn, `ultra` plans a workflow first."""
    if not argument:
        controller.say(f"the tier is {controller.tier}; /tier fugu or /tier ultra changes it")
        return
    controller.session.set_tier(argument)
    controller.tier = argument
    controller.show()


def effort_names(controller: SessionController) -> Sequence[str]:
    """Return the efforts, and `auto` for each entry's own."""
    del controller
    return (AUTO, *EFFORTS)


async def change_effort(controller: SessionController, argument: str) -> None:
    """Set the reasoning effort from the next request on, or only for the request after the level."""
    session = controller.session
    level, _, text = argument.partition(" ")
    if not level:
        efforts = ", ".join(effort_names(controller))
        controller.say(f"the effort is {session.effort or AUTO}; /effort LEVEL is one of {efforts}")
        return
    effort = effort_named(level)
    if text.strip():
        await controller.send(text.strip(), effort=effort)
        return
    session.effort = effort
    without = without_effort(session.team.members) if effort else ()
    controller.say(
        f"effort {level}" + (f"; it says nothing to {', '.join(without)}" if without else "")
    )


async def show_cost(controller: SessionController, argument: str) -> None:
    """Show tokens and money by model."""
    del argument
    tally = controller.feed.folded.totals
    lines, unpriced = [], tally.unpriced
    for name, (usage, dollars) in sorted(tally.by_agent.items(), key=lambda item: -item[1][1]):
        cached = f", {compact_number(usage.cached)} of them cached" if usage.cached else ""
        cost = known_cost(dollars, unpriced=name in unpriced, estimated=name in tally.estimated)
        lines.append(
            f"{name}: {cost} · "
            f"{compact_number(usage.input)} tokens read{cached}"
            f" · {compact_number(usage.output)} written"
        )
    estimated = tally.tokens.is_estimated or bool(tally.estimated)
    whole = known_cost(tally.cost, unpriced=bool(unpriced), estimated=estimated)
    controller.say(
        f"{whole} in this session", "plain", "\n".join(lines) or "no agent was called yet"
    )


async def show_context(controller: SessionController, argument: str) -> None:
    """Show the parts of an agent's next prompt, and what each agent's next call would read and
    cost.
    """
    from fugu_cli.engine.context_use import context_use

    session = controller.session
    if argument:
        _require_agent(controller, argument)
    uses = await asyncio.to_thread(
        context_use, session.log.state, session.team, session.environment
    )
    last = next((turn.assigned.agent for turn in reversed(_turns(session.log.state))), "")
    chosen = next((use for use in uses if use.agent == (argument or last)), uses[0])
    share = f" ({chosen.tokens / chosen.window:.0%})" if chosen.window else ""
    head = (
        f"{chosen.agent}'s next prompt: {compact_number(chosen.tokens)} of "
        f"{compact_number(chosen.window)} tokens"
    )
    parts = [f"{name:<16}{compact_number(tokens):>8}" for name, tokens in chosen.parts.items()]
    width = max(len(use.agent) for use in uses)
    rows = [f"{use.agent:<{width}}  {_next_call(use)}" for use in uses]
    controller.say(
        f"{head}{share}",
        "plain",
        "\n".join([*parts, "", "the next call by each agent reads:", *rows]),
    )


def _turns(state: SessionState) -> Sequence[Turn]:
    return state.request.turns if state.request.asked is not None else ()


def _next_call(use: ContextUse) -> str:
    """Return a text like `12.3k tokens, 11k of them cached, $0.0040`."""
    cached = f", {compact_number(use.cached)} of them cached" if use.cached else ", none cached"
    cost = "cost unknown" if use.dollars is None else money(use.dollars)
    return (
        f"{compact_number(use.tokens)} tokens{cached}, "
        f"{cost}{'' if use.counted else ' (estimated)'}"
    )


def _require_agent(controller: SessionController, name: str) -> None:
    names = agent_names(controller)
    if name not in names:
        raise UsageError(
            f"there is no agent {name!r}" if name else "which agent?",
            hint="there are " + ", ".join(names),
        )


def skill_names(controller: SessionController) -> Sequence[str]:
    """Return the skills of the session."""
    return (
        tuple(skill.name for skill in controller.work.session.library.skills)
        if controller.work.session
        else ()
    )


async def use_skill(controller: SessionController, argument: str) -> None:
    """Ask for something, with what a skill says: `/skill NAME TEXT`."""
    await controller.send(f"/skill {argument}")


async def list_skills(controller: SessionController, argument: str) -> None:
    """Show skills, custom commands, subagents, and files that are left out."""
    del argument
    from fugu_cli.extensions.skill_library import format_library

    text = format_library(controller.session.library, controller.opener.root)
    controller.say("skills, commands and subagents", "plain", text)


STOP, ALL = "stop", "all"


def job_arguments(controller: SessionController) -> Sequence[str]:
    """Return completions for the argument."""
    return (f"{STOP} {ALL}", *(f"{STOP} {job.name}" for job in _running_jobs(controller)))


async def list_or_stop_jobs(controller: SessionController, argument: str) -> None:
    """List the jobs that run; `stop JOB` or `stop all` ends them with all they have started."""
    running = _running_jobs(controller)
    if argument:
        await controller.session.environment.workspace.jobs.stop(
            _jobs_to_stop(argument, running), "user"
        )
        controller.show()
    elif not running:
        controller.say("no background job is running")
    else:
        lines = [line for job in running for line in _job_lines(job)]
        controller.say(
            f"{plural(len(running), 'background job')}; /jobs stop JOB ends one",
            "plain",
            "\n".join(lines),
        )


async def skip_test_run(controller: SessionController, argument: str) -> None:
    """End fugu's test run."""
    del argument
    if (
        controller.work.session is None
        or not controller.session.environment.test_canceller.cancel()
    ):
        controller.say("no test run of fugu's is under way")


def _jobs_to_stop(argument: str, running: Sequence[BackgroundJob]) -> list[str]:
    """Return the jobs to stop. Raises UsageError."""
    word, _, name = argument.partition(" ")
    named = [job.name for job in running if name.strip() in (job.name, ALL)]
    if word == STOP and named:
        return named
    names = ", ".join(job.name for job in running) or "none"
    raise UsageError(
        f"no running job is meant by {argument!r}",
        hint=f"/jobs stop JOB or /jobs stop all; there are {names}",
    )


def _job_lines(job: BackgroundJob) -> list[str]:
    """Return the job with its newest output."""
    lines = [line for line in sanitize_for_screen(job.tail).splitlines() if line.strip()]
    head = f"{job.name}  {short_duration(job.seconds)}  {flatten(job.command, 200)}"
    return [head, *([f"      {flatten(lines[-1], 200)}"] if lines else [])]


def _running_jobs(controller: SessionController) -> Sequence[BackgroundJob]:
    return (
        controller.session.environment.workspace.jobs.running
        if controller.work.session is not None
        else ()
    )


async def log_in(controller: SessionController, argument: str) -> None:
    """Get a model to work: `/login [PROVIDER]`. A session in which nothing was asked begins again,
    with the agents that there are now.
    """
    setup, dialogs = controller.opener.setup, controller.view.dialogs
    names = [*provider_names(controller), ADDRESS, DOWNLOAD]
    if argument and argument not in names:
        raise UsageError(f"there is no provider {argument!r}", hint=f"there are {', '.join(names)}")
    if argument:
        result = await log_in_at(setup, dialogs, argument)
    else:
        result = await choose_provider(setup, dialogs)
    if result is None:
        return
    if result.downloads:
        controller.download.begin(controller.failed)
        controller.show()
        return
    if result.added_agent:
        await asyncio.to_thread(controller.opener.reload)
    session = controller.work.session
    if session is None or (session.log.state.request.asked is None and not controller.work.running):
        await controller.open(controller.opener.begin)
        controller.say(result.summary, "good", result.detail)
    else:
        summary = f"{result.summary}; /new begins a session with it"
        controller.say(summary, "good", result.detail)


async def send_request(controller: SessionController, text: str, *, queued: bool = False) -> None:
    """Send the request. If no model can work, offer a login and put the text back into the prompt."""
    try:
        await controller.send(text, queued=queued)
    except ModelFileError as error:
        controller.notes.warn([f"No model can work yet: {error}"])
        try:
            if not controller.download.running:
                await log_in(controller, "")
        except FuguError as other:
            controller.failed(other)
        controller.view.type(text)


def provider_names(controller: SessionController) -> list[str]:
    """Return completions for the argument."""
    return [name for name, _ in controller.opener.setup.offer().providers]
