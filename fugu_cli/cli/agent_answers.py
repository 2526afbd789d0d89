"""One question to the pool whose answer follows a schema, for the commands around git. The agent
may read the repository and nothing more.

It is a session of its own, recorded and paid for like any other; lists leave it out, and `latest`
does not mean it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from pydantic import BaseModel

from fugu_cli.app.request_queue import QueuedRequest
from fugu_cli.cli.current_folder import check_embedded, say
from fugu_cli.cli.session_stream import SessionStream
from fugu_cli.config.loader import LoadedConfig
from fugu_cli.errors import FuguError
from fugu_cli.extensions.mcp_settings import DeclaredServers
from fugu_cli.session import costs, store
from fugu_cli.session.events import Replied
from fugu_cli.ui.headless import deny_headless
from fugu_cli.ui.json_output import EXIT_CODES

Answer = TypeVar("Answer", bound=BaseModel)
LONGEST_DATA = 200_000
"""Characters of a diff that an agent is given."""


class UnansweredError(FuguError):
    """No agent gave an answer that follows the schema. The exit code is that of the session's end.
    With `for_another`, it is this agent's fault, and another one may answer.
    """

    for_another = False


@dataclass(frozen=True)
class AgentQuestion(Generic[Answer]):
    """A question. `text` is the request, `data` stands below it, and `form` is the schema of the
    answer. The agent `agent` alone answers; with "" the cascade chooses.
    """

    text: str
    data: str
    form: type[Answer]
    agent: str = ""


@dataclass(frozen=True)
class AgentAnswer(Generic[Answer]):
    """The answer, the agent that gave it, and what the session cost."""

    value: Answer
    agent: str
    dollars: float
    session: Path
    is_estimated: bool = False
    """True if a part of `dollars` is estimated: a server did not count tokens, or a price is
    assumed.
    """


async def agent_answer(
    loaded: LoadedConfig, question: AgentQuestion[Answer]
) -> AgentAnswer[Answer]:
    """Ask, and wait for the answer. Raises UnansweredError, and what opening a session raises."""
    answering = replace(
        answering_config(loaded, question.agent),
        answer_schema=json.dumps(question.form.model_json_schema()),
    )
    stream = SessionStream(lambda _: None, deny_headless)
    await stream.open(answering, os.environ)
    log = stream.session.log
    assert log.path is not None
    store.archive_session(log.path, archived=True)  # now: one that is killed is in no list either
    try:
        result = await stream.request(
            QueuedRequest(text=question.text, piped=shortened(question.data))
        )
    finally:
        await stream.close()
    if "structured_output" not in result:
        raise _unanswered(result, question.agent)
    agent = next((event.agent for event in reversed(log.events) if isinstance(event, Replied)), "")
    value = question.form.model_validate(result["structured_output"])
    return AgentAnswer(
        value,
        agent,
        float(str(result["total_cost_usd"])),
        log.path,
        costs.is_estimated(log.events, log.state.pool),
    )


def answering_config(loaded: LoadedConfig, agent: str) -> LoadedConfig:
    """Return the configuration of a session that answers one question with the tools that read
    files. `agent` is the one that answers; with "" it is the single agent of the configuration, or
    the cascade chooses.
    """
    config = loaded.config
    rule = f"single:{agent}" if agent else config.coordinator
    rule = rule if rule.startswith("single:") else "cascade"
    changed: dict[str, object] = {
        "coordinator": rule,
        "permission_mode": "plan",
        "tier": "fugu",
        "verify_answers": False,
        "tests": config.tests.model_copy(update={"until": (), "until_pass": False}),
    }
    if rule.startswith("single:"):
        # nobody else may act: what it is refused is no reason to ask it again
        changed["max_turns"] = 1
    return replace(
        loaded,
        config=config.model_copy(update=changed),
        servers=DeclaredServers(),
        only_reads=True,
    )


def _unanswered(result: Mapping[str, Any], agent: str) -> UnansweredError:
    details = result.get("fugu", {})
    reason = details.get("reason", "failed")
    errors = "; ".join(result.get("errors", ()))
    if reason == "time_limit":
        why = "the time limit was reached"
    elif errors:
        why = errors
    elif reason == "turn_limit":
        why = "its turn ended without one"
    else:
        why = details.get("message") or reason
    hint = "" if "`fugu pool check`" in why else "`fugu pool check` calls each agent once"
    message = f"{agent} gave no answer: {why}" if agent else f"no agent gave an answer: {why}"
    error = UnansweredError(message, hint=hint)
    error.exit_code = EXIT_CODES[reason] or EXIT_CODES["unaccepted"]
    error.for_another = reason in ("failed", "turn_limit", "unaccepted")
    return error


def shortened(data: str) -> str:
    """Return the beginning of a diff for an agent, with a line about how much is left out."""
    left = len(data) - LONGEST_DATA
    return (
        data
        if left <= 0
        else f"{data[:LONGEST_DATA]}\n[... {left:,} more characters are left out]\n"
    )


def check_answering(loaded: LoadedConfig) -> None:
    """Print notes about missing models. Raises ModelFileError if no agent could answer."""
    for note in check_embedded(loaded.config, os.environ):
        say(note)
