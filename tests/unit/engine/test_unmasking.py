"""Agents are shown marks and write them again: files keep their secrets, commands run as written,
nothing leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from fugu_cli.engine import orchestrator
from fugu_cli.engine.environment import Permission
from fugu_cli.engine.secret_restoration import AMBIGUOUS, OUTSIDE, UNKNOWN
from fugu_cli.engine.secret_restoration import UNSAFE_IN_SHELL as ODD_VALUE
from fugu_cli.engine.tool_calls import run_evidence
from fugu_cli.messages import Call, FromTool, Prompt, Reply
from fugu_cli.safety.path_rules import Denials
from fugu_cli.safety.policy import Judgement
from fugu_cli.safety.redaction import MARK, Redactor, mark_for
from fugu_cli.session.events import ROLE, Member, Permitted, Replied, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.tools.result import Say, ToolResult
from fugu_cli.tools.toolbox import Toolbox
from fugu_cli.tools.workspace import ForeignSpec, RawArguments, Tool, Workspace
from tests.reacting import Reacting, Stage, calls, repository, role

SECRET, ODD, FORM = "tok-9f8e7d6c5b", "pa$s'w0rd", "sk-abcdefghijklmnopqrstuvwx"
LINES = ("MIIBVgIBADANBgkqhkiG9w0BAQEFAASCAUAwggE8", "AgEAAkEAq7BFUpkGp3")
SETTINGS = (
    f'# ours\nAPP_TOKEN={SECRET}\nDB_PASSWORD="{ODD}"\nKEY={FORM}\nMODE=old\n-----BEGIN PRIVATE '
    f"KEY-----\n"
    f"{LINES[0]}\n{LINES[1]}\n-----END PRIVATE KEY-----\n"
)
MEMBER = Member(name="a", provider="openai", model="m", slot="cheap")
Step = Callable[[str], Call | None]
"""Takes what the agent was shown last, returns the call it makes; None: it has nothing more to
do.
"""


def plain(numbered: str) -> str:
    """A file as it was shown by read, without the numbers."""
    return "".join(line.partition("\t")[2] + "\n" for line in numbered.splitlines())


def using(tool: str, **arguments: object) -> Step:
    return lambda shown: Call.make("x", tool, **arguments)


READ = using("read", path=".env")


@dataclass
class Scene:
    """A repository with secrets and an agent that follows steps."""

    folder: Path
    mode: str = "yolo"
    denials: Denials | None = None
    answer: Permission = "once"
    asked: list[tuple[Call, Judgement]] = field(default_factory=list)
    prompts: list[Prompt] = field(default_factory=list)
    more: Tool[RawArguments] | None = None

    @property
    def root(self) -> Path:
        return self.folder / "repo"

    def file(self, name: str) -> str:
        return (self.root / name).read_text(encoding="utf-8")

    def play(self, *steps: Step) -> Log:
        """A new session in which the agent follows the steps."""
        log = Log.memory()
        return self.go_on(log, *steps, begin=True)

    def go_on(self, log: Log, *steps: Step, begin: bool = False) -> Log:
        """The session in a process of its own, which has masked nothing yet."""
        log.mask, left = Redactor({}, self.root), list(steps)

        def react(prompt: Prompt) -> Reply:
            self.prompts.append(prompt)
            if role(prompt) == "verifier":
                return Reply(text="ACCEPT")
            newest = prompt.messages[-1]
            made = (
                left.pop(0)(newest.text if isinstance(newest, FromTool) else "") if left else None
            )
            return Reply(text="done") if made is None else calls(made)

        stage = Stage(
            self.root, self.folder / "store", (MEMBER,), {"a": Reacting("a", react)}, mode=self.mode,
            ask=self.ask, test_command=None, denials=self.denials,
        )  # fmt: skip
        environment = stage.environment()
        if self.more is not None:
            environment = replace(
                environment,
                toolbox=Toolbox(
                    [*map(environment.toolbox.__getitem__, environment.toolbox.names), self.more]
                ),
            )

        if not begin:
            environment.workspace.seen.note(self.root / ".env", (self.root / ".env").read_bytes())

        async def whole() -> None:
            if begin:
                await stage.begin(log, "do it", judged=False)
            await orchestrator.run(log, stage.team(), environment)

        asyncio.run(whole())
        return log

    async def ask(self, call: Call, judgement: Judgement) -> Permission:
        self.asked.append((call, judgement))
        return self.answer


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    made = Scene(tmp_path)
    repository(made.root, {"a.txt": "one\n", ".gitignore": ".env\n"})
    (made.root / ".env").write_text(SETTINGS)
    return made


def refusals(log: Log) -> list[str]:
    return [
        f.reason for f in log.events if isinstance(f, Permitted) and not f.allowed and f.by == ROLE
    ]


def until_called(log: Log, tool: str) -> Log:
    """The session as it was cut: its agent's call of `tool` is recorded and nothing came of it."""
    at = next(
        number
        for number, fact in enumerate(log.events)
        if isinstance(fact, Replied) and any(call.tool == tool for call in fact.calls)
    )
    return Log.memory(log.events[: at + 1])


def write_again(shown: str) -> Call:
    assert not any(secret in shown for secret in (SECRET, ODD, FORM, *LINES))
    return Call.make(
        "x", "write", path=".env", content=plain(shown).replace("MODE=old", "MODE=new")
    )


def test_a_file_that_an_agent_was_shown_masked_and_writes_again_keeps_its_secrets(
    scene: Scene,
) -> None:
    log = scene.play(READ, write_again)
    assert scene.file(".env") == SETTINGS.replace("MODE=old", "MODE=new")
    assert refusals(log) == []
    told = "\n".join(
        [
            *(prompt.model_dump_json() for prompt in scene.prompts),
            *(f.model_dump_json() for f in log.events),
        ]
    )
    assert not any(secret in told for secret in (SECRET, ODD, FORM, *LINES))


def test_an_edit_with_marks_on_both_sides_finds_its_place(scene: Scene) -> None:
    def edit(shown: str) -> Call:
        old = "".join(plain(shown).splitlines(keepends=True)[1:5])
        return Call.make("x", "edit", path=".env", old=old, new=old.replace("MODE=old", "MODE=new"))

    scene.play(READ, edit)
    assert scene.file(".env") == SETTINGS.replace("MODE=old", "MODE=new")


def test_a_patch_with_marks_in_what_stays_and_in_what_is_added_applies(scene: Scene) -> None:
    def patch(shown: str) -> Call:
        lines = plain(shown).splitlines()
        hunk = [
            f" {lines[1]}",
            f"-{lines[6]}",
            f"+{lines[6]}",
            f" {lines[7]}",
            f"+COPY={lines[1].partition('=')[2]}",
        ]
        hunk = [
            f" {lines[1]}",
            f" {lines[2]}",
            f" {lines[3]}",
            "-MODE=old",
            f"+COPY={lines[1].partition('=')[2]}",
        ]
        hunk += [f" {lines[5]}", f" {lines[6]}"]
        body = "\n".join(["*** Begin Patch", "*** Update File: .env", "@@", *hunk, "*** End Patch"])
        return Call.make("x", "apply_patch", patch=body)

    scene.play(READ, patch)
    assert scene.file(".env") == SETTINGS.replace("MODE=old", f"COPY={SECRET}")


def test_a_secret_may_be_written_into_another_file(scene: Scene) -> None:
    scene.play(READ, using("write", path="b.txt", content=f"{mark_for(SECRET)} {mark_for(ODD)}"))
    assert scene.file("b.txt") == f"{SECRET} {ODD}"


def test_what_an_agent_wrote_itself_runs_as_it_wrote_it(scene: Scene) -> None:
    command = f"printf '%s' '{SECRET} {FORM}' > b.txt; printf '%s' \"{ODD}\" > c.txt"
    log = scene.play(
        using("bash", command=command), using("write", path="d.txt", content=f"x={SECRET}\n")
    )
    assert (scene.file("b.txt"), scene.file("c.txt"), scene.file("d.txt")) == (
        f"{SECRET} {FORM}", "pa'w0rd", f"x={SECRET}\n",
    )  # fmt: skip
    assert SECRET not in "".join(fact.model_dump_json() for fact in log.events)


def test_a_command_gets_a_value_that_no_shell_reads_as_more_and_is_refused_any_other(
    scene: Scene,
) -> None:
    log = scene.play(
        READ,
        using("bash", command=f"printf '%s' {mark_for(SECRET)} > b.txt"),
        using("bash", command=f'printf "%s" "{mark_for(ODD)}" > c.txt'),
    )
    assert scene.file("b.txt") == SECRET
    assert not (scene.root / "c.txt").exists()
    assert refusals(log) == [ODD_VALUE.format(mark=mark_for(ODD))]


def test_nobody_is_asked_with_a_secret_in_the_question_and_a_yes_for_the_session_holds(
    scene: Scene,
) -> None:
    scene.mode, scene.answer = "ask", "session"
    command = f"printf '%s' {SECRET} >> b.txt"
    scene.play(using("bash", command=command), using("bash", command=command))
    assert scene.file("b.txt") == SECRET * 2
    ((call, judgement),) = scene.asked
    assert SECRET not in call.arguments + judgement.model_dump_json()
    assert mark_for(SECRET) in call.arguments


def test_a_mark_that_stands_for_nothing_known_is_not_written_over_a_secret(scene: Scene) -> None:
    content = SETTINGS.replace(FORM, "[secret 0000]")
    log = scene.play(READ, using("write", path=".env", content=content))
    assert scene.file(".env") == SETTINGS
    assert refusals(log) == [UNKNOWN.format(mark="[secret 0000]")]


def test_text_that_only_looks_like_a_mark_stays_where_it_is(scene: Scene) -> None:
    (scene.root / "help.md").write_text("such as `[secret 0000]`\nold\n")
    scene.play(
        using("read", path="help.md"),
        using("write", path="help.md", content="such as `[secret 0000]`\nnew\n"),
        using("grep", pattern="[secret 0000]", path="help.md"),
    )
    assert scene.file("help.md") == "such as `[secret 0000]`\nnew\n"


def test_a_mark_that_stands_for_two_things_is_refused(scene: Scene) -> None:
    (scene.root / "help.md").write_text(f"{mark_for(SECRET)}\n")
    log = scene.play(
        using("read", path="help.md"),
        using("write", path="help.md", content=f"new {mark_for(SECRET)}\n"),
    )
    assert scene.file("help.md") == f"{mark_for(SECRET)}\n"
    assert refusals(log) == [AMBIGUOUS.format(mark=mark_for(SECRET))]


def test_a_foreign_tool_gets_no_secret(scene: Scene) -> None:
    got: list[dict[str, object]] = []

    async def run(given: RawArguments, workspace: Workspace, say: Say) -> ToolResult:
        got.append(dict(given.values))
        return ToolResult(text="sent")

    foreign = ForeignSpec(description="sends", schema='{"type": "object"}')
    scene.more = Tool(
        name="mcp__x__send", effect="runs", arguments=RawArguments, run=run, foreign=foreign
    )
    log = scene.play(
        READ, using("mcp__x__send", text=mark_for(SECRET)), using("mcp__x__send", text="hello")
    )
    assert got == [{"text": "hello"}]
    assert refusals(log) == [OUTSIDE.format(mark=mark_for(SECRET), tool="mcp__x__send")]


def test_a_session_that_goes_on_knows_the_secrets_of_env_files_and_of_the_file_that_is_written(
    scene: Scene,
) -> None:
    cut = until_called(scene.play(READ, write_again), "write")
    (scene.root / ".env").write_text(SETTINGS)
    log = scene.go_on(cut)
    assert (scene.file(".env"), refusals(log)) == (SETTINGS.replace("MODE=old", "MODE=new"), [])


def test_a_session_that_goes_on_refuses_a_call_whose_secret_is_gone(scene: Scene) -> None:
    cut = until_called(scene.play(READ, using("bash", command=f"echo {SECRET} > b.txt")), "bash")
    (scene.root / "b.txt").unlink()
    (scene.root / ".env").write_text("APP_TOKEN=another-0ne\n")
    log = scene.go_on(cut)
    assert refusals(log) == [UNKNOWN.format(mark=mark_for(SECRET))]
    assert not (scene.root / "b.txt").exists()


def test_an_agent_from_whom_files_are_kept_gets_no_values_for_marks_it_guesses(
    scene: Scene,
) -> None:
    (scene.root / "own.txt").write_text(f"KEY={FORM}\n")
    scene.denials = Denials({".env": ("a",)}, scene.root)
    log = scene.play(
        using("write", path="b.txt", content=mark_for(SECRET)),
        using("read", path="own.txt"),
        using("write", path="own.txt", content=f"KEY={mark_for(FORM)}\nNEW=1\n"),
    )
    assert not (scene.root / "b.txt").exists()
    assert scene.file("own.txt") == f"KEY={FORM}\nNEW=1\n"
    assert refusals(log) == [UNKNOWN.format(mark=mark_for(SECRET))]


def test_marks_that_were_never_shown_give_no_values_of_the_environment(scene: Scene) -> None:
    marks = " ".join(f"[secret {number:04x}]" for number in range(0, 65536, 257))
    log = scene.play(using("write", path="b.txt", content=marks))
    assert not (scene.root / "b.txt").exists()
    assert len(refusals(log)) == 1 and MARK.search(refusals(log)[0])


def test_a_script_that_is_run_again_as_evidence_holds_its_secret(scene: Scene) -> None:
    script = (
        f"raise SystemExit('{SECRET}' != open('.env').read().split('\\n')[1].partition('=')[2])"
    )
    log = Log.memory()
    log.mask = Redactor({}, scene.root)
    environment = Stage(
        scene.root, scene.folder / "store", (MEMBER,), {}, test_command=None
    ).environment()
    recorded = log.mask.masked(
        Call.make("1", "acceptance_check", script=script, command='python3 "$SCRIPT"')
    )
    assert SECRET not in recorded.arguments
    again = recorded.model_copy(update={"id": "e1", "tool": "run_check"})
    asyncio.run(run_evidence(log, environment, 0, again))
    newest = log.events[-1]
    assert isinstance(newest, ToolRan)
    assert newest.ok, newest.output
