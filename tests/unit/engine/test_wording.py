"""The invariant: nothing in the engine depends on how a request is worded.

With the same replies of agents that call tools, any two requests leave logs that differ in their
texts alone.
"""

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fugu_cli.coordinators import Coordinator, CoordinatorSettings
from fugu_cli.coordinators.rules import Cascade, Random, Single
from fugu_cli.engine import orchestrator
from fugu_cli.messages import Call, Prompt, Reply
from fugu_cli.session.events import Member
from fugu_cli.session.log import Log
from fugu_cli.session.state import SessionState
from tests.reacting import CHECK, React, Reacting, Stage, calls, repository, results, role

REQUESTS = (
    "fix the failing tests",
    "Can you explain why the tests fail?",
    "What does this function do?",
    "When the sum is negative, add should return zero",
    "Remove the legacy function and its tests",
    "Show me the function and explain why this fails:\nassert add(2, 3) == 5",
    "write unit tests for calc",
    "hello",
    "Warum schlägt der Test fehl?",
    "Entferne die Funktion legacy samt Tests",
    "Corrige les tests qui échouent",
    "¿Por qué falla la prueba?",
    "Correggi l'errore di battitura nel README",
    "Adicione um registro de chamadas",
    "修复失败的测试",
    "删除 legacy 函数和它的测试",
    "calc.py のバグを直して",
    "この関数は何をしますか？",
    "исправь падающие тесты",
    "لماذا يفشل الاختبار؟",
    "calc 함수에 로그를 추가해 줘",
    "?",
)
FILES = {
    "calc.txt": "fixed\n",
    "check.sh": CHECK,
    "README.md": "A calculater.\n",
    "test_legacy.py": "def test_x(): pass\n",
}
RED = {**FILES, "calc.txt": "broken\n"}
CHEAP = Member(name="cheap", provider="openai", model="c", slot="cheap")
STRONG = Member(name="strong", provider="openai", model="s", slot="strong")
POOL = (CHEAP, STRONG)


def works(
    *steps: Call, says: str = "done", verdicts: tuple[str, ...] = ("ACCEPT",)
) -> Callable[[], React]:
    """An agent that makes these calls as a Worker, then its last word; as a Verifier it says the
    verdicts in turn.
    """

    def made() -> React:
        given_verdicts = list(verdicts)

        def react(prompt: Prompt) -> Reply:
            if role(prompt) == "verifier":
                return Reply(
                    text=given_verdicts.pop(0) if len(given_verdicts) > 1 else given_verdicts[0]
                )
            done = len(results(prompt))
            return calls(steps[done]) if done < len(steps) else Reply(text=says)

        return react

    return made


READ = Call.make("1", "read", path="calc.txt")
BREAKS = works(READ, Call.make("2", "write", path="calc.txt", content="broken\n"))
MENDS = works(
    READ,
    Call.make("2", "write", path="calc.txt", content="fixed\n"),
    verdicts=("REVISE: more", "ACCEPT"),
)
README = works(
    Call.make("1", "read", path="README.md"),
    Call.make("2", "edit", path="README.md", old="calculater", new="calculator"),
)
REMOVES = works(Call.make("1", "bash", command="rm test_legacy.py"))
CHECKS = works(
    Call.make("1", "acceptance_check", command="grep -q new calc.txt"),
    READ,
    Call.make("3", "write", path="calc.txt", content="fixed and new\n"),
)
AGENTS = {
    "answers": works(says="It adds."),
    "reads and answers": works(READ, says="It adds."),
    "breaks": BREAKS,
    "mends, is revised": MENDS,
    "edits the README": README,
    "removes tests": REMOVES,
    "sets a check": CHECKS,
    "fails to edit": works(
        Call.make("1", "edit", path="calc.txt", old="nowhere", new="x"), says="I could not."
    ),
}
COORDINATORS: dict[str, Callable[[], Coordinator]] = {
    "cascade": lambda: Cascade(POOL, CoordinatorSettings()),
    "single": lambda: Single("strong", POOL, CoordinatorSettings()),
    "random": lambda: Random(POOL, CoordinatorSettings(seed=3)),
}


def log_of(request: str, files: dict[str, str], agent: str, rule: str) -> list[object]:
    """The facts of a whole request without its text, and without what differs from run to run."""
    with tempfile.TemporaryDirectory() as folder:
        root = repository(Path(folder) / "repo", files)
        made = {name: Reacting(name, AGENTS[agent]()) for name in ("cheap", "strong")}
        stage = Stage(root, Path(folder) / "store", POOL, made, COORDINATORS[rule](), mode="yolo")
        log = Log.memory()

        async def whole() -> None:
            await stage.begin(log, request, judged=False)
            await orchestrator.run(log, stage.team(), stage.environment())

        asyncio.run(whole())
        return [_plain(record.event.model_dump(mode="json"), folder) for record in log.records]


def _plain(value: object, folder: str) -> object:
    if isinstance(value, dict):
        kept = {
            key: _plain(one, folder)
            for key, one in value.items()
            if key not in {"seconds", "milliseconds"}
        }
        return {**kept, "text": ""} if value.get("type") == "asked" else kept
    if isinstance(value, list):
        return [_plain(one, folder) for one in value]
    return value.replace(folder, "") if isinstance(value, str) else value


@pytest.mark.parametrize("rule", COORDINATORS)
@settings(
    max_examples=6, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    first=st.sampled_from(REQUESTS),
    second=st.sampled_from(REQUESTS),
    files=st.sampled_from([FILES, RED]),
    agent=st.sampled_from(sorted(AGENTS)),
)
def test_any_two_requests_leave_logs_that_differ_in_their_texts_alone(
    rule: str, first: str, second: str, files: dict[str, str], agent: str
) -> None:
    one, other = (log_of(request, files, agent, rule) for request in (first, second))
    assert json.dumps(one, indent=1) == json.dumps(other, indent=1)


@pytest.mark.parametrize("text", [REQUESTS[0], REQUESTS[-1]])
def test_no_fact_of_a_request_says_what_it_is_about(text: str) -> None:
    facts = log_of(text, RED, "answers", "cascade")
    asked = next(fact for fact in facts if isinstance(fact, dict) and fact["type"] == "asked")
    assert not {"judged", "assertions"} & asked.keys()
    assert isinstance(facts[-1], dict) and facts[-1]["reason"] == "answered"


@pytest.mark.parametrize("rule", COORDINATORS)
def test_work_that_is_revised_once_ends_accepted(rule: str, tmp_path: Path) -> None:
    agent = MENDS()
    root = repository(tmp_path / "repo", RED)
    made = {name: Reacting(name, agent) for name in ("cheap", "strong")}
    settings_of = CoordinatorSettings(turns=6)
    coordinator = {
        "cascade": Cascade(POOL, settings_of),
        "single": Single("strong", POOL, settings_of),
        "random": Random(POOL, settings_of),
    }[rule]
    stage, log = Stage(root, tmp_path / "store", POOL, made, coordinator, mode="yolo"), Log.memory()

    async def whole() -> None:
        await stage.begin(log, "mend it", judged=False)
        await orchestrator.run(log, stage.team(), stage.environment())

    asyncio.run(whole())
    end = log.state.request.finished
    roles = [
        turn.assigned.role for turn in log.state.request.turns if turn.assigned.role != "thinker"
    ]
    assert (end and end.reason, roles) == ("accepted", ["worker", "verifier", "worker", "verifier"])
    if rule != "single":
        last = log.state.request.turns[-1].assigned.agent
        assert last not in SessionState(log.events).request.authors
