"""Hooks run: before and after an agent's call, before a request, after its end; what they say, in words.

Below the bench, which makes a "no" a fact, and the session. A repository's hooks run in the sandbox like its tests: an
agent may change the scripts that they name. The user's own run with the user's rights. Each has a time limit, and with
it ends everything it started, also when the turn is cut. Knows no log.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TypeVar, cast

from pydantic import BaseModel, JsonValue

from fugu_cli.events import Finished
from fugu_cli.hooks.declared import Declared, Hook, Moment
from fugu_cli.messages import Call
from fugu_cli.policy.arguments import Malformed, arguments_of
from fugu_cli.tools import Result, Say, Tool
from fugu_cli.tools.clip import clip
from fugu_cli.tools.process import Around, run_command
from fugu_cli.tools.workspace import Workspace

Arguments = TypeVar("Arguments", bound=BaseModel)

BLOCKS = 2
"""The exit code that says no."""
WORDS = 2000
"""Characters of a hook's reason."""
BRIEF = 300
"""Characters of a warning."""
WITHHELD = "its words are withheld: some agents must not see every file (deny_agents)"


@dataclass(frozen=True)
class _Said:
    """What a hook that said no wrote."""

    hook: Hook
    words: str


class Hooks:
    """The hooks of a session. `tell` shows people what is waited for and what went wrong, at once.

    `mute`: files are kept from some agents, so that what hooks write, which may quote any file, reaches none.
    """

    def __init__(self, declared: Declared, session: str, tell: Callable[[str], None], *, mute: bool = False) -> None:
        self.declared = declared
        self._session = session
        self._tell = tell
        self._mute = mute
        self._warnings: list[str] = []

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences for people: what is left out and why, and which hooks failed so far."""
        return (*self.declared.notes, *self._warnings)

    async def before(self, call: Call, workspace: Workspace) -> str:
        """PreToolUse. Why the call must not run, "" when it may go on."""
        said = await self._run("PreToolUse", workspace, {**_call(call)}, call.tool, first=True)
        return f"a hook forbids it: {said[0].words}" if said else ""

    def around(self, tool: Tool[Arguments], call: Call) -> Tool[Arguments]:
        """The tool, its PostToolUse hooks after it: what they change is the call's, what they object to stands above
        its answer. The tool itself where no hook is for it."""
        if not self._for("PostToolUse", call.tool):
            return tool

        async def run(arguments: Arguments, workspace: Workspace, say: Say) -> Result:
            result = await tool.run(arguments, workspace, say)
            told: dict[str, JsonValue] = {**_call(call), "tool_response": {"output": result.text, "ok": result.ok}}
            objections = await self._run("PostToolUse", workspace, told, call.tool)
            words = "".join(f"[A hook objects: {one.words}]\n" for one in objections)
            return result.model_copy(update={"text": words + result.text})

        return replace(tool, run=run, effect="runs" if tool.effect == "reads" else tool.effect)

    async def prompted(self, text: str, workspace: Workspace) -> str:
        """UserPromptSubmit. Why the request is refused, "" when it is not. The words are for the user."""
        said = await self._run("UserPromptSubmit", workspace, {"prompt": text}, first=True)
        return f"{said[0].words} (`{said[0].hook.said}` in {said[0].hook.source})" if said else ""

    async def ended(self, end: Finished, workspace: Workspace, *, again: bool) -> str:
        """Stop. What is still to be done, "" when the request may end. `again`: a hook has asked to go on already."""
        told: dict[str, JsonValue] = {"stop_hook_active": again, "reason": end.reason, "message": end.message}
        said = await self._run("Stop", workspace, told)
        if said and self._mute:
            self._warn(said[0].hook, f"cannot ask to go on; {WITHHELD}")
            return ""
        return "\n".join(one.words for one in said)

    def _for(self, moment: Moment, tool: str) -> list[Hook]:
        return [hook for hook in self.declared.hooks if hook.moment == moment and (not tool or hook.matches(tool))]

    async def _run(
        self,
        moment: Moment,
        workspace: Workspace,
        told: Mapping[str, JsonValue],
        tool: str = "",
        *,
        first: bool = False,
    ) -> list[_Said]:
        """Run the hooks for this, one after the other. Returns who said no; `first`: the first one is enough."""
        refusals: list[_Said] = []
        for hook in self._for(moment, tool):
            common = {"session_id": self._session, "cwd": str(workspace.root), "hook_event_name": moment}
            self._tell(f"the hook `{hook.said}` runs")
            words = await self._one(hook, workspace, json.dumps({**common, **told}, ensure_ascii=False))
            if words is not None:
                refusals.append(_Said(hook, words))
                if first:
                    break
        return refusals

    async def _one(self, hook: Hook, workspace: Workspace, given: str) -> str | None:
        """Why the hook says no, None when it does not. What it writes to standard output is dropped."""
        around = Around(box=None if hook.own else workspace.box, given=given.encode("utf-8", "replace"))
        try:
            ended = await run_command(
                f"exec 1>/dev/null\n{hook.command}", workspace.root, hook.timeout, lambda _: None, around
            )
        except OSError as error:
            self._warn(hook, f"could not be started: {error.strerror}")
            return None
        mask = workspace.mask or (lambda text: text)
        words = mask(ended.output.strip())
        if ended.code == BLOCKS:
            spoken = clip(words, WORDS) or "it gave no reason"
            if not self._mute or hook.moment == "UserPromptSubmit":
                return spoken
            self._tell(f"the hook `{hook.said}` says: {spoken}")
            return WITHHELD
        if ended.code is None:
            self._warn(hook, f"did not end within {hook.timeout:g} s and was ended")
        elif ended.code:
            self._warn(hook, f"failed with exit code {ended.code}" + (f": {clip(words, BRIEF)}" if words else ""))
        return None

    def _warn(self, hook: Hook, what: str) -> None:
        said = f"the {hook.moment} hook `{hook.said}` in {hook.source} {what}; it was passed over"
        self._tell(said)
        if said not in self._warnings:
            self._warnings.append(said)


def _call(call: Call) -> dict[str, JsonValue]:
    given = arguments_of(call)
    arguments = {} if isinstance(given, Malformed) else given
    return {"tool_name": call.tool, "tool_input": cast(JsonValue, arguments)}
