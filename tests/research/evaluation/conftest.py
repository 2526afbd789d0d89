"""Two small tasks, and an agent whose answers are given by hand."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from fugu_cli.errors import AgentError
from fugu_cli.messages import Prompt, Reply, Usage
from fugu_cli.providers import Say, Wait
from fugu_cli.training.tasks import Task

CHECK = (
    "grep -q 'return 2 . n' double.py && echo ok && exit 0\necho 'double(2) is 5, not 4'\nexit 1\n"
)
TEST = "from double import double\n\n\ndef test_two():\n    assert double(2) == 4\n"


@dataclass
class Given:
    """An agent that gives each answer once, in order; an error is raised instead. Keeps what it was
    sent.
    """

    name: str
    answers: list[str | AgentError]
    sent: list[Prompt] = field(default_factory=list)

    async def reply(self, prompt: Prompt, say: Say, wait: Wait) -> Reply:
        self.sent.append(prompt)
        answer = self.answers.pop(0)
        if isinstance(answer, AgentError):
            raise answer
        say(answer)
        return Reply(text=answer, usage=Usage(input=100, cached=40, output=20), model="given")

    async def close(self) -> None:
        pass


@pytest.fixture
def given() -> Callable[..., Given]:
    return lambda name, *answers: Given(name, list(answers))


@pytest.fixture
def task() -> Task:
    """Judged by a shell script: quicker than a test runner."""
    return Task(
        id="double",
        source="own",
        language="python",
        kind="fix",
        prompt="`double` in `double.py` is wrong. Fix it.",
        files={"double.py": "def double(n):\n    return n + n + 1\n", "check.sh": CHECK},
        solution={"double.py": "def double(n):\n    return 2 * n\n"},
        test_files=("check.sh",),
        test_command="sh check.sh",
        grade_command="sh check.sh",
        timeout=30,
    )


@pytest.fixture
def judged_by_pytest(task: Task) -> Task:
    """The same, judged by pytest."""
    command = "python -m pytest -q -p no:cacheprovider test_double.py"
    files = {"double.py": task.files["double.py"], "test_double.py": TEST}
    update = {
        "files": files,
        "test_files": ("test_double.py",),
        "test_command": command,
        "grade_command": command,
    }
    return task.model_copy(update=update)
