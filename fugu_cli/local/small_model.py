"""An agent for a model that cannot call tools: it decides which tools are called, and asks the
model for words alone.

Where tests fail it runs them, reads the files that they lead to, and tries one change after the
other (candidates.py): each is an `edit` and a run of the tests, and the next one takes it back
unless fewer tests fail. Everything else gets one answer: words, or files written whole. Policy,
undo and the screen meet the same calls as those of any agent. What happened before stands in the
prompt's own calls and results (turn_progress.py).
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from fugu_cli import prompts
from fugu_cli.errors import AgentError
from fugu_cli.local import words
from fugu_cli.local.candidates import CodeCandidate, candidates, edit_between
from fugu_cli.local.functions import functions, parses
from fugu_cli.local.turn_progress import TRIED, TurnProgress, call, progress_of
from fugu_cli.messages import Call, FromAgent, FromUser, Prompt, Reply, Usage
from fugu_cli.providers import Agent, AgentWrapper, Pause, Say, Wait
from fugu_cli.providers.code_blocks import blocks, fenced, lines_of, widened
from fugu_cli.session.recognized_tests import is_test
from fugu_cli.tools.run_tests import NONE_FOUND

FillIn = Callable[[str, str, Wait], Awaitable[Reply]]
"""Asks for the text between two others, up to the end of a line. Raises AgentError."""

MOST_REPLIES = 26
"""Replies of a turn after which nothing more is tried. fugu ends a turn after 30, and what was tried
last is to be put back before.
"""
MOST_FILES = 4
"""Files that are read in one go."""
FIRST_RUN, LEAST, FACTOR = 60.0, 5.0, 4
"""Seconds for the first run of the tests. A later one, in which a loop may never end, gets `LEAST`
or `FACTOR` times what the first one took.
"""
PROMPT_ROOM = 20_000
"""Characters that the model is shown: some 6,000 tokens."""
TEST_OUTPUT, OUTPUT_WITH_BODY_HIDDEN = 1500, 500
WORDS, FILE, VERDICT = 400, 1600, 120
"""Tokens of a reply: in words, with files, with a verdict."""
HISTORY = 2400
"""Characters of what was said before this request."""
_NOTES = re.compile(r"<(plan|verdict)>\n(.*?)\n</\1>", re.DOTALL)
_TEST_COMMAND = re.compile(r"^Tests: `(.+)`$", re.MULTILINE)
_TESTS_FAIL = "The tests were run: they FAIL"
_ELISION = re.compile(r"\s*(?:#|//|/\*|<!--)?\s*(?:\.\.\.|…)|.*\b(?:rest|remainder) of the\b", re.I)


class SmallModel(AgentWrapper):
    """`agent`, asked for words, as an agent that calls tools. `fill` asks the same model to fill in
    the middle of a text; None where it cannot.
    """

    def __init__(self, agent: Agent, fill: FillIn | None = None) -> None:
        super().__init__(agent)
        self.fill = fill
        self._run_began = 0.0
        self._run_seconds = FIRST_RUN / FACTOR
        """Seconds that the newest first run of the tests took."""

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        """Return the next calls, or the last words. Raises AgentError."""
        model = _Model(self._agent, self.fill, say, wait)
        if prompt.role == "verifier":
            texts = [message.text for message in prompt.messages if isinstance(message, FromUser)]
            work = texts[0] if texts else ""
            work = work[max(work.find("<request>"), 0) :][:PROMPT_ROOM]
            question = prompts.fill(prompts.load("local/verdict"), work=work)
            return await model.ask(question, VERDICT, stop=("\n",))
        tools = {tool.name for tool in prompt.tools}
        if not {"read", "glob"} <= tools:
            return await self._agent.reply(prompt, say, wait)
        turn = _Turn(prompt, progress_of(prompt.messages), tools, model)
        if turn.progress.test_output is not None and not turn.progress.runs and self._run_began:
            self._run_seconds = time.monotonic() - self._run_began
            self._run_began = 0.0
        turn.run_seconds = min(max(LEAST, FACTOR * self._run_seconds), FIRST_RUN)
        try:
            reply = await turn.next_reply()
        except AgentError as error:
            error.usage = model.usage + (error.usage or Usage())
            raise
        if turn.progress.test_output is None:
            self._run_began = time.monotonic()
        return reply


class _Model:
    """The model behind one reply. Its text is passed on, and its usage is added up."""

    def __init__(self, agent: Agent, fill: FillIn | None, say: Say, wait: Wait) -> None:
        self.agent = agent
        self.can_fill = fill is not None
        self.say = say
        self.usage = Usage()
        self._fill = fill
        self._wait = wait

    async def ask(
        self,
        text: str,
        tokens: int,
        *,
        sample: int = 0,
        stop: tuple[str, ...] = (),
        aloud: bool = True,
    ) -> Reply:
        """Ask one question. 0 as `sample` gives the likeliest answer, any other number is the seed of
        a random one.
        """
        prompt = Prompt(
            system="",
            messages=(FromUser(text=text),),
            max_tokens=tokens,
            temperature=0.8 if sample else None,
            seed=sample or None,
            stop=stop,
        )
        say = self.say if aloud else _silent
        return self._counted(await self.agent.reply(prompt, say, self._waiting))

    async def fill(self, before: str, behind: str) -> str:
        """Let the model write the line between the two texts. Return "" if its reply was cut off."""
        assert self._fill is not None
        reply = self._counted(await self._fill(before, behind, self._waiting))
        return reply.text if reply.stop != "length" else ""

    def _waiting(self, pause: Pause) -> None:
        self._wait(replace(pause, used=self.usage + pause.used))

    def _counted(self, reply: Reply) -> Reply:
        self.usage += reply.usage
        return reply.model_copy(update={"usage": self.usage})


class _Turn:
    """The next reply of a turn, by what the turn has come to."""

    def __init__(
        self, prompt: Prompt, progress: TurnProgress, tools: set[str], model: _Model
    ) -> None:
        self.progress = progress
        self.run_seconds = FIRST_RUN
        self._prompt = prompt
        self._request = prompt.request
        self._tools = tools
        self._model = model
        self._user_texts = [
            message.text for message in prompt.messages if isinstance(message, FromUser)
        ]
        self._is_worker = prompt.role == "worker"

    async def next_reply(self) -> Reply:
        """Return the calls that are due, else the last words."""
        if self.progress.refused:
            return self._put_back() or self._say(f"UNABLE: {self.progress.refused}")
        if self.progress.wrote:
            return self._say(f"Wrote {', '.join(self.progress.wrote)}.")
        was_shown_failures = bool(self._user_texts) and _TESTS_FAIL in self._user_texts[-1]
        about_tests = words.is_about_tests(self._request) or was_shown_failures
        if about_tests and {"run_tests", "edit"} <= self._tools:
            if self.progress.test_output is None:
                return self._call([call(0, "run_tests", seconds=FIRST_RUN)])
            if self.progress.tests_pass and self.progress.runs:
                return self._say(f"Changed {self._changed()}: the tests pass now.")
            if not self.progress.tests_pass and self.progress.test_output != NONE_FOUND:
                return await self._repair()
        if looks := self._looks(self._request):
            return self._call(looks)
        return await self._answer()

    async def _repair(self) -> Reply:
        """Try the next change that may repair failing tests."""
        progress, output = self.progress, self.progress.test_output or ""
        if looks := self._looks(f"{self._request}\n{output}", tests_fail=True):
            return self._call(looks)
        if not self._is_worker:
            question = prompts.fill(
                prompts.load("local/plan"),
                request=self._request,
                files=self._files(),
                tests=_tests_shown(output, TEST_OUTPUT),
            )
            return await self._model.ask(question, WORDS)
        untried = self._candidates()[progress.tried :]
        if progress.replies >= MOST_REPLIES:
            untried = []
        texts: list[str] = []
        for candidate in untried:
            content = progress.kept[candidate.path]
            new = await self._written(candidate, content, output)
            is_new = new is not None and (candidate.path, new) not in progress.tested
            text = f"{TRIED}{candidate.place}"
            if not is_new:
                text += ": nothing new"
            texts.append(text)
            self._model.say(f"{text}\n")
            if new is not None and is_new:
                edits = self._edits({**progress.kept, candidate.path: new})
                run = call(len(edits), "run_tests", seconds=round(self.run_seconds, 1))
                return self._call([*edits, run], "\n".join(texts))
            if candidate.line is None:  # budgets are checked before each reply: one question each
                again = call(0, "read", path=candidate.path, plain=True)
                return self._call([again], "\n".join(texts))
        if back := self._put_back("\n".join(texts)):
            return back
        if progress.kept != progress.original:
            return self._say(f"Changed {self._changed()}: fewer tests fail than before, not none.")
        return self._say(
            f"UNABLE: none of the {progress.runs} changes that were tried makes the tests pass."
        )

    def _candidates(self) -> list[CodeCandidate]:
        code = {path: text for path, text in self.progress.kept.items() if not is_test(path)}
        order = candidates(code, self.progress.test_output or "")
        return [piece for piece in order if piece.line is None or self._model.can_fill]

    async def _written(self, candidate: CodeCandidate, content: str, output: str) -> str | None:
        """Return the file with the candidate rewritten by the model, None if nothing changed."""
        if candidate.line is not None:
            return candidate.with_line(content, await self._model.fill(*candidate.around(content)))
        file, is_hidden = candidate.question(content)
        question = prompts.fill(
            prompts.load("local/rewrite" if is_hidden else "local/correct"),
            tests=_tests_shown(output, OUTPUT_WITH_BODY_HIDDEN if is_hidden else TEST_OUTPUT),
            path=candidate.path,
            file=file,
            name=candidate.function.name,
        )
        reply = await self._model.ask(
            question,
            FILE // 2 + len(candidate.function.text(content)) // 3,
            sample=candidate.sample,
            stop=("\n```\n",),
            aloud=False,
        )
        return candidate.with_body(content, reply.text)

    def _edits(self, target: Mapping[str, str]) -> list[Call]:
        """Return the edits that turn the present files into `target` (path to content)."""
        edits: list[Call] = []
        for path, present in self.progress.present.items():
            if (edit := edit_between(present, target[path])) is not None:
                edits.append(call(len(edits), "edit", path=path, old=edit[0], new=edit[1]))
        return edits

    def _put_back(self, text: str = "") -> Reply | None:
        """Return the calls that undo the change that was tried last; None if there was none."""
        edits = self._edits(self.progress.kept)
        return self._call(edits, text) if edits and not self.progress.is_stuck else None

    def _looks(self, text: str, *, tests_fail: bool = False) -> list[Call]:
        """Return the searches and readings that are due before the model is asked.

        First the files that the request mentions, or else its rare words, are searched and read. If
        tests fail and nothing in these files could be changed, the files that the tests import are
        searched and read too.
        """
        searches = self.progress.searches
        mentioned = words.mentioned_files(text)
        if not searches:
            return self._first_search(text, mentioned, tests_fail)
        unread = self._unread(_paths_of(*searches[0], mentioned))
        if unread:
            return _read_calls(unread)
        if not tests_fail:
            return []
        if len(searches) > 1:
            return _read_calls(self._unread(_paths_of(*searches[1], ())))
        if self._candidates():
            return []
        return self._search_of_imports()

    def _first_search(self, text: str, mentioned: Sequence[str], tests_fail: bool) -> list[Call]:
        if mentioned:
            names = dict.fromkeys(path.rpartition("/")[2] for path in mentioned)
            return [*self._check(tests_fail), call(1, "glob", pattern=_one_of(names))]
        rare = words.rare_words(text)
        if rare and "grep" in self._tools:
            return [call(0, "grep", pattern="|".join(map(re.escape, rare)), ignore_case=True)]
        return []

    def _search_of_imports(self) -> list[Call]:
        """Return a search for files with the names that the tests import."""
        contents = self.progress.original
        tests = [path for path in contents if is_test(path)]
        if not tests:
            return []
        ending = tests[0].rpartition(".")[2]
        names: dict[str, None] = {}
        for path in tests:
            names.update(dict.fromkeys(words.imported_words(contents[path])))
        return [call(0, "glob", pattern=_one_of(f"{name}.{ending}" for name in names))]

    def _check(self, tests_fail: bool) -> list[Call]:
        """Return the call that makes the failing tests the acceptance check."""
        if not tests_fail or not self._is_worker or "acceptance_check" not in self._tools:
            return []
        commands = _TEST_COMMAND.findall("\n".join(self._user_texts))
        return [call(0, "acceptance_check", command=commands[-1])] if commands else []

    def _unread(self, paths: Sequence[str]) -> list[str]:
        """Return those of the first `MOST_FILES` paths that were not read yet, code first."""
        first = sorted(paths, key=is_test)[:MOST_FILES]
        read = self.progress.original.keys() | self.progress.unreadable
        return [path for path in first if path not in read]

    async def _answer(self) -> Reply:
        """Answer in words, or with files where a Worker is to change something."""
        can_write = self._is_worker and "write" in self._tools
        changes = can_write and not words.is_question(self._request)
        notes = _NOTES.findall(self._user_texts[-1]) if self._user_texts else []
        question = prompts.fill(
            prompts.load("local/change" if changes else "local/answer"),
            earlier=self._earlier(),
            files=self._files(),
            notes="".join(f"A colleague says: {note}\n\n" for _, note in notes),
            request=self._request,
        )
        limit = WORDS
        if changes:
            limit = FILE + sum(map(len, self.progress.original.values())) // 2
        reply = await self._model.ask(question, limit)
        if not changes:
            return reply
        files, fault = self._files_in(reply)
        if fault:
            return reply.model_copy(update={"text": f"UNABLE: {fault}"})
        if not files:
            return reply
        writes = [
            call(number, "write", path=path, content=content)
            for number, (path, content) in enumerate(files.items())
        ]
        return reply.model_copy(update={"text": "", "calls": tuple(writes), "stop": "calls"})

    def _files_in(self, reply: Reply) -> tuple[dict[str, str], str]:
        """Return the files that the reply wants to write, and the reason why they must not be
        written, "" if they may. A small model leaves out what it does not change, and that would be
        lost.
        """
        present, lines = self.progress.original, lines_of(reply.text)
        code = [path for path in present if not is_test(path)]
        files: dict[str, str] = {}
        for block in blocks(reply.text):
            above = lines[block.start - 1] if block.start else ""
            named = words.mentioned_files(f"{block.info}\n{above}")
            path = named[0] if named else ""
            if not named and len(code) == 1:
                path = code[0]
            if not path or path in files:
                continue
            if path.endswith((".md", ".rst", ".txt")):
                block = widened(reply.text, block)
            old = present.get(path, "")
            names = {function.name for function in functions(path, old)}
            names -= {function.name for function in functions(path, block.body)}
            lost = sorted(name for name in names if name not in self._request)
            elided = [
                line for line in lines_of(block.body) if _ELISION.match(line) and line not in old
            ]
            if lost or elided or not (block.closed or reply.stop != "length"):
                return {}, f"what the model wrote leaves out a part of {path}"
            if parses(path, old) and not parses(path, block.body):
                return {}, f"what the model wrote for {path} cannot be read"
            files[path] = block.body
        return files, ""

    def _files(self) -> str:
        """Return the files that were read, as many as fit into the prompt."""
        shown, remaining = "", PROMPT_ROOM
        for path, content in self.progress.original.items():
            if len(content) <= remaining:
                shown += f"The file `{path}`:\n{fenced(content)}\n\n"
                remaining -= len(content)
        return shown

    def _earlier(self) -> str:
        """Return the end of what was said before this request."""
        messages = self._prompt.messages
        indexes = [
            index
            for index, message in enumerate(messages)
            if isinstance(message, FromUser) and message.text == self._request
        ]
        texts = [
            message.text
            for message in messages[: indexes[-1] if indexes else 0]
            if isinstance(message, FromUser | FromAgent) and not message.text.startswith("[")
        ]
        text = "\n\n".join(filter(None, texts))[-HISTORY:]
        return f"Before this, it was said:\n{text}\n\n" if text else ""

    def _changed(self) -> str:
        kept, original = self.progress.kept, self.progress.original
        return ", ".join(path for path in kept if kept[path] != original[path])

    def _call(self, calls: Sequence[Call], text: str = "") -> Reply:
        return Reply(text=text, calls=tuple(calls), usage=self._model.usage, stop="calls")

    def _say(self, text: str) -> Reply:
        self._model.say(text)
        return Reply(text=text, usage=self._model.usage)


def _tests_shown(output: str, limit: int) -> str:
    shown = output if len(output) <= limit else f"[...]\n{output[-limit:].partition(chr(10))[2]}"
    return f"The tests print:\n{fenced(shown)}\n\n"


def _read_calls(paths: Sequence[str]) -> list[Call]:
    return [call(number, "read", path=path, plain=True) for number, path in enumerate(paths)]


def _one_of(names: Iterable[str]) -> str:
    """Return a glob pattern that matches files of these names in every folder."""
    return f"**/{{{','.join(names)}}}"


def _paths_of(tool: str, printed: str, mentioned: Sequence[str]) -> list[str]:
    """Return the paths that a search found. For glob these are the mentioned ones, in the order of
    the mentions; for grep all, those with the most lines first.
    """
    lines = [line for line in printed.split("\n") if not line.startswith(("(", "No "))]
    if tool == "grep":
        counts = Counter(line.partition(":")[0] for line in lines if ":" in line)
        return [path for path, _ in counts.most_common()]
    if not mentioned:
        return lines
    paths: dict[str, None] = {}
    for mention in mentioned:
        for path in lines:
            if f"/{path}".endswith(f"/{mention}") or mention.endswith(f"/{path}"):
                paths[path] = None
    return list(paths)


def _silent(text: str) -> None:
    pass
