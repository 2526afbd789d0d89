"""fugu from Python: `async for event in fugu_cli.run("fix the failing tests")`, or
`fugu_cli.run_sync(...)`.

The events are the objects of `fugu run --output-format stream-json` (`fugu help sdk`): `system`,
`assistant`, `user`, and the `result` at the end. Runs in the calling process, and prints nothing
but notes on standard error.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fugu_cli.app import plans
from fugu_cli.app.request_queue import QueuedRequest, request_from_text
from fugu_cli.cli.current_folder import check_embedded, current_config
from fugu_cli.cli.output import init_of
from fugu_cli.cli.run import read_schema
from fugu_cli.cli.session_stream import SessionStream
from fugu_cli.errors import FuguError, UsageError
from fugu_cli.ui.json_output import arguments_object, steering_refused_object

if TYPE_CHECKING:
    from fugu_cli.config import Mode
    from fugu_cli.config.loader import LoadedConfig
    from fugu_cli.engine.environment import Permission
    from fugu_cli.messages import Call, Effort
    from fugu_cli.safety.policy import Judgement

AnswerCall = Callable[[str, dict[str, object], str], Awaitable[bool | str]]
"""Asked about a call: the tool, its arguments, and why it is asked. True runs it once; False does
not; words do not either, and are told to the agent."""


@dataclass(frozen=True)
class RunOptions:
    """The options of a run besides its prompt, with the names of `fugu run`'s flags. The
    configuration gives the rest.

    `folder` is the place of the work, by default the current folder. `resume` is an id or `latest`.
    `json_schema` is the schema of the answer. `answer` answers what policy asks; without it that is
    denied. After a plan (mode `plan`) it is asked about the tool `accept_plan`, with the plan as an
    argument: True carries it out in the mode `ask`, words change it. `accept_plan` carries out the
    plan of the session that is resumed, in place of a prompt. `messages` are given to the agents
    with their next result, as they come.
    """

    folder: Path | str | None = None
    agent: str | None = None
    coordinator: str | None = None
    tier: Literal["fugu", "ultra"] | None = None
    effort: Effort | None = None
    permission_mode: Mode | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    max_turns: int | None = None
    max_budget_usd: float | None = None
    time_limit: float | None = None
    append_system_prompt: str = ""
    json_schema: Mapping[str, Any] | None = None
    resume: str | None = None
    fork_session: bool = False
    trust: bool = False
    answer: AnswerCall | None = None
    messages: AsyncIterator[str] | None = None
    accept_plan: bool = False


BEGIN_POLL_SECONDS = 0.02
DEFAULTS = RunOptions()
SETTINGS = (
    "coordinator",
    "tier",
    "effort",
    "permission_mode",
    "max_turns",
    "max_budget_usd",
    "time_limit",
)


async def run(prompt: str, options: RunOptions = DEFAULTS) -> AsyncIterator[dict[str, Any]]:
    """Carry a request out, and yield what happens. The last event is the `result`, whatever the end
    is.

    Raises UsageError for options and prompts that cannot be meant, and other kinds of FuguError
    where no session can be opened. Leaving the loop early interrupts the request;
    `contextlib.aclosing` does that at once.
    """
    _check_prompt(prompt, options)
    events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    stream = SessionStream(events.put_nowait, lambda *question: _answer(options.answer, *question))
    loaded = await asyncio.to_thread(_configuration, options)
    await stream.open(loaded, os.environ, options.resume, fork=options.fork_session)
    steering: asyncio.Task[None] | None = None
    try:
        request = _request(prompt, options, stream)
        yield init_of(stream.session)
        work = asyncio.create_task(stream.request(request))
        work.add_done_callback(lambda _: events.put_nowait({}))
        steering = asyncio.create_task(_steer(stream, options.messages, events))
        while event := await events.get():
            yield event
        yield await work
    finally:
        if steering is not None:
            steering.cancel()
        await stream.close()


def _check_prompt(prompt: str, options: RunOptions) -> None:
    """Raise UsageError without a prompt, or with one beside `accept_plan`."""
    if not options.accept_plan:
        if not prompt.strip():
            raise UsageError("the prompt is empty", hint="say what is to be done")
    elif prompt.strip():
        raise UsageError("accept_plan takes no prompt", hint='the prompt is "" then')
    elif options.resume is None:
        raise UsageError("accept_plan needs a session", hint='resume="latest" or its id')


def _request(prompt: str, options: RunOptions, stream: SessionStream) -> QueuedRequest:
    """Return the request of the run. Raises UsageError where there is no plan to accept."""
    if not options.accept_plan:
        return request_from_text(stream.session, prompt)
    if stream.session.log.state.open_plan is None:
        raise UsageError(plans.NO_PLAN, hint=plans.NO_PLAN_HINT)
    return QueuedRequest("", carries_out=plans.carrying_mode(stream.session.environment))


async def _steer(
    stream: SessionStream,
    messages: AsyncIterator[str] | None,
    events: asyncio.Queue[dict[str, Any]],
) -> None:
    """Give each message to the agents. A message that comes before they have begun waits until
    then; one that is refused becomes an event.
    """
    if messages is None:
        return
    async for text in messages:
        while not stream.work.running:
            await asyncio.sleep(BEGIN_POLL_SECONDS)
        try:
            left = await stream.work.steer(request_from_text(stream.session, text))
        except FuguError as error:
            events.put_nowait(steering_refused_object(error, stream.id))
            continue
        if left is not None:
            await stream.work.submit(left)


def run_sync(prompt: str, options: RunOptions = DEFAULTS) -> dict[str, Any]:
    """Run a request to its end without an event loop, and return its `result`."""

    async def last() -> dict[str, Any]:
        event: dict[str, Any] = {}
        async for event in run(prompt, options):  # noqa: B007 - the last one counts
            pass
        return event

    return asyncio.run(last())


def _configuration(options: RunOptions) -> LoadedConfig:
    """Raises FuguError."""
    options_given = {name: getattr(options, name) for name in SETTINGS}
    settings: dict[str, Any] = {
        name: value for name, value in options_given.items() if value is not None
    }
    settings |= {
        name: list(rules) for name in ("allow", "deny") if (rules := getattr(options, name))
    }
    if options.agent:
        settings["coordinator"] = f"single:{options.agent}"
    schema = "" if options.json_schema is None else read_schema(json.dumps(options.json_schema))
    folder = None if options.folder is None else Path(options.folder)
    loaded = current_config(
        settings, trust=options.trust, appended=options.append_system_prompt, folder=folder
    )
    check_embedded(loaded.config, os.environ)
    return replace(loaded, answer_schema=schema)


async def _answer(answer: AnswerCall | None, call: Call, judgement: Judgement) -> Permission:
    from fugu_cli.engine.environment import Refusal

    if answer is None:
        return "headless"
    reply = await answer(call.tool, arguments_object(call), judgement.reason)
    if isinstance(reply, str):
        return Refusal(feedback=reply) if reply.strip() else "no"
    return "once" if reply is True else "no"
