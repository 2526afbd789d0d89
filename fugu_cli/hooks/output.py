"""What a hook says: its exit code, standard output and standard error read as one answer.

Pure; under running.py. The JSON is that of Claude Code (code.claude.com/docs/en/hooks): `hookSpecificOutput` with a
permission decision, the older `decision` and `reason`, and `continue`, `stopReason`, `systemMessage` for every event.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, ValidationError

Decision = Literal["", "allow", "ask", "deny"]
BLOCKS = 2
"""The exit code that says no."""
NOT_RUN = 126
"""Exit codes of a shell from here on: the command was not found, could not be run, or was ended by a signal."""
CONTEXT = frozenset({"UserPromptSubmit", "SessionStart"})
"""Events whose hooks may speak to agents in plain text."""
_OBJECT = re.compile(r"^\s*\{", re.MULTILINE)


@dataclass(frozen=True)
class Written:
    """What a hook's process left. `code` is None when its time was up; `whole`: nothing of its output was dropped."""

    output: str
    errors: str
    code: int | None
    whole: bool = True


@dataclass(frozen=True)
class Answer:
    """What a hook decided, "" when nothing; and what it wants said or changed.

    `input` replaces the arguments of the call, `output` its result. `stop` is why all work is to end, None when it is
    not. `fault` says what went wrong with the hook; `unsure`: so nobody knows what it would have decided.
    """

    decision: Decision = ""
    reason: str = ""
    input: dict[str, JsonValue] | None = None
    output: str | None = None
    context: str = ""
    message: str = ""
    stop: str | None = None
    fault: str = ""
    unsure: bool = False


class _Lenient(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class _Behaviour(_Lenient):
    """The decision of a PermissionRequest hook."""

    behavior: Literal["allow", "deny"]
    message: str | None = None
    updatedInput: dict[str, JsonValue] | None = None
    interrupt: bool = False


class _Specific(_Lenient):
    hookEventName: str | None = None
    permissionDecision: Literal["allow", "deny", "ask", "defer"] | None = None
    permissionDecisionReason: str | None = None
    updatedInput: dict[str, JsonValue] | None = None
    additionalContext: str | None = None
    updatedToolOutput: JsonValue = None
    updatedMCPToolOutput: JsonValue = None
    decision: _Behaviour | None = None


class _Object(_Lenient):
    goes_on: Annotated[bool | None, Field(alias="continue")] = None
    stopReason: str | None = None
    systemMessage: str | None = None
    decision: Literal["approve", "allow", "block", "deny", "ask"] | None = None
    reason: str | None = None
    hookSpecificOutput: _Specific | None = None


def read(written: Written, moment: str) -> Answer:
    """The answer of a hook for the event `moment`."""
    errors = written.errors.strip()
    if written.code is None:
        return Answer(fault="did not end in time and was ended", unsure=True)
    if written.code == BLOCKS:
        return Answer("deny", errors or "it gave no reason")
    said = _said(written, moment)
    if written.code == 0 or said.fault:
        return said
    if said.decision == "deny" or said.stop is not None:
        return said
    how = f"was ended by signal {-written.code}" if written.code < 0 else f"failed with exit code {written.code}"
    unsure = not 0 <= written.code < NOT_RUN
    return Answer(message=said.message, fault=how + (f": {errors}" if errors else ""), unsure=unsure)


def _said(written: Written, moment: str) -> Answer:
    """What stands on standard output: a JSON object, after lines of text perhaps; or text alone."""
    text = written.output.strip()
    start = _OBJECT.search(text)
    if start is None:
        return Answer(context=text if moment in CONTEXT else "")
    if not written.whole:
        return Answer(fault="printed more than can be read", unsure=True)
    try:
        found = _Object.model_validate(json.loads(text[start.start() :]))
    except (ValueError, RecursionError) as error:
        if start.start() and not isinstance(error, ValidationError):
            return Answer(context=text if moment in CONTEXT else "")
        return Answer(fault=f"printed what cannot be read: {_why(error)}", unsure=True)
    event = found.hookSpecificOutput.hookEventName if found.hookSpecificOutput is not None else None
    if event not in (None, moment):
        return Answer(fault=f"printed what cannot be read: it answers {event}", unsure=True)
    return _answer(found, found.hookSpecificOutput or _Specific())


def _why(error: ValueError | RecursionError) -> str:
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg'][:1].lower()}{first['msg'][1:]}"
    return f"not valid JSON: {error}"


def _answer(found: _Object, more: _Specific) -> Answer:
    asked = more.decision
    decision = more.permissionDecision or (asked.behavior if asked is not None else None) or found.decision
    reason = more.permissionDecisionReason or (asked.message if asked is not None else None) or found.reason
    output = more.updatedToolOutput if more.updatedToolOutput is not None else more.updatedMCPToolOutput
    interrupts = asked is not None and asked.interrupt and asked.behavior == "deny"
    stops = found.goes_on is False or interrupts
    return Answer(
        decision=_DECISIONS[decision or ""],
        reason=reason or ("it gave no reason" if decision in {"deny", "block"} else ""),
        input=more.updatedInput or (asked.updatedInput if asked is not None else None),
        output=output if isinstance(output, str | None) else json.dumps(output, ensure_ascii=False),
        context=more.additionalContext or "",
        message=found.systemMessage or "",
        stop=(found.stopReason or reason or "") if stops else None,
    )


_DECISIONS: dict[str, Decision] = {
    "": "", "allow": "allow", "approve": "allow", "ask": "ask", "defer": "ask", "deny": "deny", "block": "deny",
}  # fmt: skip
