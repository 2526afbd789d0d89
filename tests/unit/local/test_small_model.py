"""A model that cannot call tools in the loop: what it is asked, what becomes of its answers."""

import asyncio
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.engine import orchestrator
from fugu_cli.local.functions import functions
from fugu_cli.local.small_model import FillIn, SmallModel
from fugu_cli.messages import Call, FromUser, Prompt, Reply
from fugu_cli.providers import Agent, Pause, Say, Wait
from fugu_cli.session.events import Finished, Member, Permitted, Replied, ToolRan
from fugu_cli.session.log import Log
from fugu_cli.session.outcome import RUN_TESTS
from tests.reacting import Reacting, Stage, calls, repository, role, says

SMALL = Member(name="small", provider="local", model="t", slot="cheap", protocol="text")
STRONG = Member(name="strong", provider="openai", model="s", slot="strong")
CALC = '''"""Sums."""

import math


def add(a, b):
    """The sum of both."""
    total = a - b
    return total


def area(radius):
    return math.pi * radius**2
'''
CHECK = f"""{sys.executable} -B -c 'from calc import add
assert add(1, 2) == 3' && echo "1 passed" || {{ echo 'File "calc.py", line 8, in add'; echo "1 failed"; exit 1; }}
"""
FIXED = CALC.replace("a - b", "a + b")


@dataclass
class Asked:
    """An agent that is made anew for every reply, as after a kill, and what its model was asked."""

    answer: Callable[[str], str]
    fill: FillIn | None = None
    name: str = "small"
    questions: list[str] = field(default_factory=list)

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        return await SmallModel(Reacting("small", self._react), self.fill).reply(prompt, say, wait)

    async def close(self) -> None:
        pass

    def _react(self, prompt: Prompt) -> Reply:
        (question,) = prompt.messages
        assert isinstance(question, FromUser) and not prompt.tools
        self.questions.append(question.text)
        return Reply(text=self.answer(question.text))


@dataclass
class Session:
    """A request to the small model; `strong` verifies."""

    root: Path
    small: Asked
    log: Log = field(default_factory=Log.memory)

    def run(self, text: str = "fix the failing test", *, turns: int = 2) -> Finished:
        agents: dict[str, Agent] = {
            "small": self.small,
            "strong": Reacting("strong", _verifies),
        }
        settings = CoordinatorSettings(turns=turns)
        stage = Stage(self.root, self.root.parent / "store", (SMALL, STRONG), agents, mode="yolo")
        stage.settings = settings

        async def whole() -> Finished:
            await stage.begin(self.log, text, judged=False)
            return await orchestrator.run(self.log, stage.team(), stage.environment())

        return asyncio.run(whole())

    @property
    def said(self) -> list[str]:
        replies = (event for event in self.log.events if isinstance(event, Replied))
        return [reply.text for reply in replies if reply.agent == "small"]

    @property
    def calc(self) -> str:
        return (self.root / "calc.py").read_text()


def _verifies(prompt: Prompt) -> Reply:
    return Reply(text="ACCEPT" if role(prompt) == "verifier" else "UNABLE: I do nothing")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return repository(tmp_path / "repo", {"calc.py": CALC, "check.sh": CHECK})


def in_fence(code: str) -> str:
    return f"Here it is:\n```python\n{code}```\n"


def test_a_body_is_written_anew_from_the_description_until_the_tests_pass(root: Path) -> None:
    bodies = iter(["return a * b", "return b - a", "return a + b"])

    def answer(question: str) -> str:
        assert "The sum of both" in question and "a - b" not in question
        return in_fence(f"def add(a, b):\n  {next(bodies)}\n")

    session = Session(root, Asked(answer))
    assert session.run().reason == "accepted"
    assert session.calc == CALC.replace("    total = a - b\n    return total", "    return a + b")
    runs = [event for event in session.log.events if isinstance(event, ToolRan)]
    assert [run.ok for run in runs if run.call.tool == RUN_TESTS] == [*[False] * 3, True]
    assert session.said[-1] == "Changed calc.py: the tests pass now."


def test_a_line_is_filled_in_before_any_body_is_asked_for(root: Path) -> None:
    holes: list[tuple[str, str]] = []

    async def fill(before: str, behind: str, wait: Wait) -> Reply:
        holes.append((before, behind))
        return Reply(text="total = a + b")

    session = Session(root, small := Asked(lambda question: "", fill))
    assert session.run().reason == "accepted"
    assert (session.calc, small.questions) == (FIXED, [])
    before, behind = holes[0]
    assert before.endswith('"""The sum of both."""\n    ') and behind == "\n    return total\n"
    assert "Tried line 8 of calc.py" in session.said[-2]


@pytest.mark.parametrize("body", ["return a * b", "return (", "total = a - b\n    return total"])
def test_what_helps_nothing_is_taken_back_and_another_agent_works(root: Path, body: str) -> None:
    session = Session(root, Asked(lambda question: in_fence(f"def add(a, b):\n    {body}\n")))
    session.run()
    assert session.calc == CALC
    assert session.said[-1].startswith("UNABLE: none of the")
    assert session.log.state.request.turns[1].assigned.agent == "strong"
    assert not session.log.state.request.changes


def test_what_the_user_saves_meanwhile_stays(root: Path) -> None:
    by_hand = CALC.replace("a - b", "a / b")

    def answer(question: str) -> str:
        (root / "calc.py").write_text(by_hand)
        return in_fence("def add(a, b):\n    return a + b\n")

    session = Session(root, Asked(answer))
    session.run()
    assert session.calc == by_hand
    assert "UNABLE" in session.said[-1]


def test_where_fewer_tests_fail_a_change_is_kept_and_built_on(tmp_path: Path) -> None:
    check = f"""{sys.executable} -B -c '
import calc, sys
wrong = [name for name in ("one", "two", "three") if getattr(calc, name)() != name]
print(*[f"{{name}}()" for name in wrong], sep=chr(10))
print(len(wrong), "failed,", 3 - len(wrong), "passed in calc.py")
sys.exit(bool(wrong))'
"""
    right = {name: f'def {name}():\n    return "{name}"\n' for name in ("one", "two", "three")}
    wrong = right["three"].replace('return "three"', 'return "?"')
    broken = f"{right['one']}\n\ndef two():\n    return None\n\n\n{wrong}"
    root = repository(tmp_path / "repo", {"calc.py": broken, "check.sh": check})

    def answer(question: str) -> str:
        name = question.partition("function `")[2].partition("`")[0]
        return in_fence(right[name])

    session = Session(root, Asked(answer))
    assert session.run("the tests in calc.py fail").reason == "accepted"
    assert session.calc == "\n\n".join(right.values())


def test_a_question_is_answered_with_the_file_it_names_and_nothing_runs(root: Path) -> None:
    session = Session(root, small := Asked(lambda question: "It adds."))
    assert session.run("what does calc.py hold?").reason == "answered"
    assert "def area(radius)" in small.questions[0]
    allowed = [event.call.tool for event in session.log.events if isinstance(event, Permitted)]
    assert allowed == ["glob", "read"]


def test_a_described_change_is_written_as_a_whole_file(root: Path) -> None:
    (root / "check.sh").write_text("echo 1 passed\n")
    named = CALC.replace("area", "surface")
    session = Session(root, Asked(lambda question: f"calc.py\n{in_fence(named)}"))
    session.run("rename area to surface in calc.py")
    assert session.calc == named
    assert session.said[-1] == "Wrote calc.py."


@pytest.mark.parametrize(
    "new",
    [
        "def area(r):\n    return 3 * r\n",
        CALC.replace("    total = a - b\n", "    # ... the rest of the function\n"),
        CALC.replace("def area(radius):", "def area(radius"),
    ],
    ids=["a function is missing", "a part is left out", "it cannot be read"],
)
def test_a_file_of_which_a_part_is_missing_is_not_written(root: Path, new: str) -> None:
    session = Session(root, Asked(lambda question: f"calc.py\n{in_fence(new)}"))
    session.run("round the area in calc.py", turns=1)
    assert session.calc == CALC
    assert session.said[-1].startswith("UNABLE: what the model wrote")


def test_a_verifier_is_asked_for_a_verdict_on_the_work_alone(root: Path) -> None:
    small = Asked(lambda question: "ACCEPT. It adds.")
    fix = Call.make("1", "edit", path="calc.py", old="a - b", new="a + b")

    def works(prompt: Prompt) -> Reply:
        done = any(message.type == "tool" for message in prompt.messages)
        return Reply(text="done") if done else calls(fix)

    agents: dict[str, Agent] = {"small": small, "strong": Reacting("strong", works)}
    stage = Stage(root, root.parent / "store", (STRONG, SMALL), agents, mode="yolo")
    log = Log.memory()

    async def whole() -> Finished:
        await stage.begin(log, "fix the failing test")
        return await orchestrator.run(log, stage.team(), stage.environment())

    assert asyncio.run(whole()).reason == "accepted"
    question = small.questions[-1]
    assert question.startswith("<request>\nfix the failing test\n</request>")
    assert "+    total = a + b" in question


def test_without_tools_the_model_gets_the_prompt_as_it_is() -> None:
    inner = Reacting("small", says("hello"))
    prompt = Prompt(system="Be brief.", messages=(FromUser(text="hi"),))
    reply = asyncio.run(SmallModel(inner).reply(prompt, lambda text: None, _no_pause))
    assert (reply.text, inner.shown) == ("hello", [prompt])


def _no_pause(pause: Pause) -> None:
    del pause


@pytest.mark.parametrize(
    ("path", "source", "names", "bodies"),
    [
        ("a.py", 'def f(a):\n    """Say."""\n    return a\n', ["f"], [range(2, 3)]),
        ("a.py", "class A:\n    @x\n    def m(self): return 1\n", ["m"], [range(0)]),
        ("a.js", "const f = (a) => {\n  return 1;\n};\n", ["f"], [range(1, 2)]),
        ("a.ts", "class A {\n  m(): void {\n    go();\n  }\n}\n", ["m"], [range(2, 3)]),
        ("a.rs", "impl A {\n    fn m(&self) -> u8 {\n        1\n    }\n}\n", ["m"], [range(2, 3)]),
        ("a.go", "func (t *T) Go() int {\n\treturn 1\n}\n", ["Go"], [range(1, 2)]),
        ("A.java", "class A {\n  int m() {\n    return 1;\n  }\n}\n", ["m"], [range(2, 3)]),
        ("a.cpp", "int A::go(int a)\n{\n  return a;\n}\n", ["go"], [range(2, 3)]),
        ("a.rb", "def m(x)\n  x + 1\nend\n", ["m"], [range(1, 2)]),
        ("a.txt", "def f():\n    pass\n", [], []),
    ],
)
def test_functions_are_found_with_the_lines_of_their_bodies(
    path: str, source: str, names: list[str], bodies: list[range]
) -> None:
    found = functions(path, source)
    assert [function.name for function in found] == names
    assert [function.body for function in found] == bodies
