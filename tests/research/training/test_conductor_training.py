"""GRPO for the Conductor: the reward, the examples, and a real run of TRL's trainer on a tiny
random model.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers

from fugu_cli import prompts
from fugu_cli.coordinators.conductor.plan_steps import PlanLimits
from fugu_cli.coordinators.conductor.planner import PlanTask
from fugu_cli.coordinators.conductor.planner import planner_prompt as planning_prompt
from fugu_cli.errors import UsageError
from fugu_cli.messages import FromUser
from fugu_cli.session.events import Asked, Member, Opened, WorkflowStep
from fugu_cli.session.state import SessionState
from fugu_cli.training import grpo
from fugu_cli.training.grpo import (
    PAPER_SETTINGS,
    SMALL_SETTINGS,
    ExampleSettings,
    FirstRound,
    FirstRounds,
    GrpoSettings,
    PlannerExample,
    Workflow,
    WorkflowResult,
    WorkflowRewards,
    planner_examples,
    second_round_example,
    with_second_rounds,
    workflow_reward,
)
from fugu_cli.training.tasks import Question
from tests.unit.coordinators import tiny

GOOD = 'model_id = [1, 0]\nsubtasks = ["Find it.", "Check it."]\naccess_list = [[], ["all"]]'
EXAMPLE = PlannerExample(problem="q", prompt="", models=("small", "large"))
MEMBERS = {
    name: Member(name=name, provider="openai", model=name, slot="middle")
    for name in ("small", "medium", "large")
}
QUESTIONS = [
    Question(
        id=f"q{number}",
        source="own",
        kind="number",
        prompt=f"What is {number} + 1?",
        answer=str(number + 1),
    )
    for number in range(3)
]


def tiny_model(path: Path) -> Path:
    """Write a random causal model with a tokenizer that ends texts with `!`.

    A token is a word, because a planner's prompt would be ten thousand tokens of one byte.
    """
    model = tiny.folder(path, "qwen3")
    vocab = tiny.tokenizer().get_vocab()
    words = Tokenizer(models.WordLevel(vocab=vocab, unk_token="a"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    words.save(str(model / "tokenizer.json"))
    about = json.loads((model / "config.json").read_text()) | {
        "head_dim": tiny.HEAD_DIM,
        "eos_token_id": 0,
    }
    (model / "config.json").write_text(json.dumps(about))
    (model / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "eos_token": "!",
                "pad_token": "!",
                "chat_template": (
                    "{% for one in messages %}{{ one['role'] }}: {{ one['content'] }}\n{% endfor %}"
                ),
            }
        )
    )
    return model


class Watched(WorkflowRewards):
    """One reply in two is worth something, whatever it says; `steps` is what each step asked
    about.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self.steps: list[list[PlannerExample]] = []

    def __call__(
        self, completions: Sequence[str], example: Sequence[str], **_more: object
    ) -> list[float]:
        self.steps.append([PlannerExample.model_validate_json(given) for given in example])
        found = [0.5 * (index % 2) for index in range(len(completions))]
        self.rewards += found
        return found


class Plain:
    """A chat template that anybody can read."""

    eos_token = "<end>"

    def apply_chat_template(
        self, conversation: list[dict[str, str]], tokenize: bool, add_generation_prompt: bool
    ) -> str:
        assert not tokenize
        assert add_generation_prompt
        return "\n".join(f"{message['role']}: {message['content']}" for message in conversation)


@pytest.mark.parametrize(
    ("reply", "right", "expected"),
    [
        (GOOD, True, 1.0),
        (GOOD, False, 0.5),
        (GOOD.replace("[1, 0]", "[1, 2]"), True, 0.0),
        (GOOD.replace("[1, 0]", "[1]"), True, 0.0),
        ("I would ask Model 1.", True, 0.0),
        ("model_id = []\nsubtasks = []\naccess_list = []", True, 0.0),
    ],
)
def test_a_reply_is_worth_0_half_or_1(reply: str, right: bool, expected: float) -> None:
    carries = Carries(lambda _steps: right)
    assert workflow_reward(reply, EXAMPLE, carries) == expected
    steps = (
        WorkflowStep(agent="large", instruction="Find it."),
        WorkflowStep(agent="small", instruction="Check it.", access="all"),
    )
    assert carries.ran == ([("q", steps)] if expected else [])


def test_without_anything_to_run_it_the_form_alone_is_worth_half() -> None:
    assert workflow_reward(GOOD, EXAMPLE, None) == 0.5


@pytest.mark.parametrize(("kept", "expected"), [(True, 1.0), (False, 0.5)])
def test_in_the_second_round_three_empty_lists_keep_what_the_first_came_to(
    kept: bool, expected: float
) -> None:
    second = EXAMPLE.model_copy(update={"round": 2, "kept": kept})
    assert second.form() == PlanLimits(models=("small", "large"), steps=5, keeps=True, earlier=True)
    assert (
        workflow_reward("model_id = []\nsubtasks = []\naccess_list = []", second, None) == expected
    )


class Carries:
    """Carries every workflow out in no time; `told` is what it was told of ahead."""

    def __init__(self, right: Callable[[tuple[WorkflowStep, ...]], bool]) -> None:
        self._right = right
        self.told: list[object] = []
        self.ran: list[object] = []

    def __call__(self, problem: str, steps: tuple[WorkflowStep, ...]) -> WorkflowResult:
        self.ran.append((problem, steps))
        return WorkflowResult(self._right(steps))

    def ahead(self, workflows: Sequence[Workflow]) -> None:
        self.told.append(list(workflows))


def test_all_rewards_are_counted() -> None:
    rewards = WorkflowRewards(Carries(lambda steps: len(steps) == 2))
    second = EXAMPLE.model_copy(update={"round": 2})
    given = [EXAMPLE, EXAMPLE, second]
    found = rewards(
        [GOOD, "nothing", GOOD],
        example=[one.model_dump_json() for one in given],
        prompts=["", "", ""],
    )
    assert found == rewards.rewards == [1.0, 0.0, 1.0]


def test_all_workflows_of_a_step_are_told_first_and_each_once() -> None:
    carries = Carries(lambda _steps: True)
    rewards = WorkflowRewards(carries)
    other = EXAMPLE.model_copy(update={"problem": "r"})
    empty = "model_id = []\nsubtasks = []\naccess_list = []"
    given = [EXAMPLE, EXAMPLE, EXAMPLE, other, EXAMPLE.model_copy(update={"round": 2})]
    rewards([GOOD, "nothing", GOOD, GOOD, empty], example=[one.model_dump_json() for one in given])
    steps = (
        WorkflowStep(agent="large", instruction="Find it."),
        WorkflowStep(agent="small", instruction="Check it.", access="all"),
    )
    assert carries.told == [[("q", steps), ("r", steps)]]


def test_every_question_comes_with_a_pool_of_its_own_and_a_seed_settles_it() -> None:
    course = ExampleSettings(min_agents=2, max_agents=3, passes=4, seed=7)
    made = list(planner_examples(QUESTIONS, MEMBERS, Plain(), course))
    assert made == list(planner_examples(QUESTIONS, MEMBERS, Plain(), course))
    assert sorted(example.problem for example in made) == sorted(
        f"q{n}" for n in range(3) for _ in range(4)
    )
    assert {len(example.models) for example in made} == {2, 3}
    assert len({example.models for example in made}) > 3
    first = made[0]
    assert not any(name in first.prompt for name in MEMBERS)


def test_the_full_prompt_is_the_conductors_own_and_names_nobody() -> None:
    (made,) = planner_examples(QUESTIONS[:1], MEMBERS, Plain(), ExampleSettings(passes=1))
    assert "Example 4." in made.prompt
    assert "What is 0 + 1?" in made.prompt
    assert f"- Model {len(made.models) - 1}" in made.prompt
    assert f"- Model {len(made.models)}" not in made.prompt
    assert not any(name in made.prompt for name in MEMBERS)


def test_a_second_round_reads_the_first_workflow_and_what_came_of_it() -> None:
    second = second_round_example(EXAMPLE, GOOD, "The answer was 3.", True)
    assert (second.round, second.kept) == (2, True)
    assert GOOD in second.prompt
    assert "The answer was 3." in second.prompt


def test_a_second_round_is_asked_for_as_the_conductor_asks() -> None:
    (made,) = planner_examples(QUESTIONS[:1], MEMBERS, Plain(), ExampleSettings(passes=1))
    second = second_round_example(made, GOOD, "Its answer:\n3", False)
    shown = prompts.fill(
        prompts.load("conductor/paper_round"), workflow=GOOD, outcome="Its answer:\n3"
    )
    opened = Opened(version="1", repo="", pool=tuple(MEMBERS[name] for name in made.models))
    events = [opened, Asked(text=QUESTIONS[0].prompt)]
    task = PlanTask(QUESTIONS[0].prompt, second.form(), round=2, result=shown)
    live = planning_prompt(SessionState(events), task, MEMBERS, MEMBERS["small"])
    (message,) = live.messages
    assert isinstance(message, FromUser)
    assert second.prompt == f"system: {live.system}\nuser: {message.text}"


def test_first_rounds_count_less_only_where_second_ones_are_trained() -> None:
    second = EXAMPLE.model_copy(update={"round": 2})
    assert [row["weight"] for row in grpo.dataset_rows([EXAMPLE, EXAMPLE])] == [1.0, 1.0]
    assert [row["weight"] for row in grpo.dataset_rows([EXAMPLE, second])] == [0.2, 1.0]


@pytest.mark.filterwarnings("ignore")
def test_the_papers_preset_is_the_papers() -> None:
    """Conductor, section on training: 200 iterations, 4 questions x 64 rollouts, temperature 1,
    1,024 tokens, 1e-6.
    """
    assert (
        GrpoSettings(
            steps=200,
            questions=4,
            replies=64,
            tokens=1024,
            rate=1e-6,
            schedule="cosine",
            warmup=0.03,
            lora=0,
            part=8,
            temperature=1.0,
            clip=0.2,
        )
        == PAPER_SETTINGS
    )
    arguments = grpo.trl_arguments(PAPER_SETTINGS, Path("/nowhere"))
    batch = arguments.per_device_train_batch_size * arguments.gradient_accumulation_steps
    assert (batch, arguments.num_generations, arguments.max_completion_length) == (256, 64, 1024)
    assert (arguments.beta, arguments.epsilon, arguments.loss_type, arguments.scale_rewards) == (
        0,
        0.2,
        "grpo",
        "group",
    )
    assert (arguments.adam_beta1, arguments.adam_beta2, arguments.warmup_steps) == (
        0.9,
        0.999,
        0.03,
    )


@pytest.mark.filterwarnings("ignore")
def test_a_run_is_logged_saved_resumed_and_kept_apart_from_others(tmp_path: Path) -> None:
    """A random model writes no workflow: one reply in two is made readable by the reward given
    here.
    """
    model = tiny_model(tmp_path / "model")
    settings = GrpoSettings(
        steps=2, questions=1, replies=4, tokens=6, rate=1e-3, schedule="constant", warmup=0.0, lora=2,
        part=4, save=1,
    )  # fmt: skip
    course = list(planner_examples(QUESTIONS, MEMBERS, Plain(), ExampleSettings(passes=4)))

    out = tmp_path / "out"
    lines: list[grpo.GrpoStep] = []
    run = grpo.GrpoRun(out, lines.append)
    grpo.begin_training(str(model), settings, run)
    trained = grpo.train_planner(str(model), course, settings, Watched(), run)
    assert (trained / "adapter_model.safetensors").is_file()
    assert [(line.step, line.replies, line.reward, line.readable) for line in lines] == [
        (1, 4, 0.25, 0.5),
        (2, 4, 0.25, 0.5),
    ]
    longer = replace(settings, steps=3)
    grpo.train_planner(str(model), course, longer, Watched(), run)
    assert sorted({line.step for line in lines}) == [1, 2, 3]
    with pytest.raises(UsageError, match="was started with another replies: 4, now it is 8"):
        grpo.begin_training(str(model), replace(settings, replies=8), run)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("left", [None, '{"epoch": 0.1'])
def test_a_run_that_was_killed_while_saving_goes_on_from_the_step_before(
    tmp_path: Path, left: str | None
) -> None:
    model = tiny_model(tmp_path / "model")
    settings = GrpoSettings(
        steps=2, questions=1, replies=4, tokens=4, rate=1e-3, schedule="constant", warmup=0.0, lora=2,
        part=4, save=1,
    )  # fmt: skip
    course = list(planner_examples(QUESTIONS, MEMBERS, Plain(), ExampleSettings(passes=1)))
    lines: list[grpo.GrpoStep] = []
    run = grpo.GrpoRun(tmp_path / "out", lines.append)
    grpo.train_planner(str(model), course, settings, Watched(), run)
    state = run.folder / "checkpoint-2" / "trainer_state.json"
    state.unlink()
    if left is not None:
        state.write_text(left)
    again = Watched()
    grpo.train_planner(str(model), course, replace(settings, steps=3), again, run)
    assert [line.step for line in lines] == [1, 2, 2, 3]
    assert again.steps == [[course[1]] * 4, [course[2]] * 4]
    assert json.loads(state.read_text())["global_step"] == 2


@pytest.mark.filterwarnings("ignore")
def test_a_run_that_was_killed_before_anything_was_whole_begins_anew(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    settings = GrpoSettings(
        steps=1, questions=1, replies=4, tokens=4, rate=1e-3, schedule="constant", warmup=0.0, lora=2,
        part=4, save=1,
    )  # fmt: skip
    course = list(planner_examples(QUESTIONS, MEMBERS, Plain(), ExampleSettings(passes=1)))
    lines: list[grpo.GrpoStep] = []
    (tmp_path / "out" / "checkpoint-1").mkdir(parents=True)
    grpo.train_planner(
        str(model), course, settings, Watched(), grpo.GrpoRun(tmp_path / "out", lines.append)
    )
    assert [line.step for line in lines] == [1]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("preset", [PAPER_SETTINGS, SMALL_SETTINGS])
@pytest.mark.parametrize(
    ("questions", "replies", "part"),
    [
        (1, 8, 8),
        (1, 12, 6),
        (1, 10, 5),
        (1, 20, 5),
        (2, 6, 6),
        (3, 4, 6),
        (4, 10, 8),
        (1, 4, 4),
        (1, 11, 1),
    ],
)
def test_a_step_learns_from_every_reply_to_every_question(
    preset: GrpoSettings, questions: int, replies: int, part: int
) -> None:
    arguments = grpo.trl_arguments(
        replace(preset, questions=questions, replies=replies), Path("/nowhere")
    )
    assert arguments.per_device_train_batch_size == part
    assert arguments.num_generations == replies
    assert arguments.generation_batch_size == questions * replies
    assert part * arguments.gradient_accumulation_steps == questions * replies


@pytest.mark.filterwarnings("ignore")
def test_questions_and_replies_that_fill_no_whole_part_are_all_trained_on(tmp_path: Path) -> None:
    model = tiny_model(tmp_path / "model")
    settings = GrpoSettings(
        steps=1, questions=3, replies=4, tokens=4, rate=1e-3, schedule="constant", warmup=0.0, lora=2,
        part=8, save=9,
    )  # fmt: skip
    course = list(planner_examples(QUESTIONS, MEMBERS, Plain(), ExampleSettings(passes=1)))
    lines: list[grpo.GrpoStep] = []
    watched = Watched()
    grpo.train_planner(
        str(model), course, settings, watched, grpo.GrpoRun(tmp_path / "out", lines.append)
    )
    assert [line.replies for line in lines] == [12]
    assert watched.steps == [[one for one in course for _ in range(4)]]


def test_the_small_preset_fits_a_machine_without_a_gpu() -> None:
    assert (SMALL_SETTINGS.lora, SMALL_SETTINGS.questions * SMALL_SETTINGS.replies) == (16, 8)


def _asked_of(*names: str) -> list[PlannerExample]:
    return [
        EXAMPLE.model_copy(update={"problem": name, "prompt": f"{name}: The models:\nModel 0"})
        for name in names
    ]


def test_second_rounds_stand_behind_first_ones_that_ran_and_nothing_is_made_twice() -> None:
    course = _asked_of("a", "b", "b")
    ran: list[str] = []
    asked: list[str] = []

    def execute(problem: str, steps: tuple[WorkflowStep, ...]) -> WorkflowResult:
        ran.append(problem)
        return WorkflowResult(right=True, answer="It is 4.")

    def write(prompt: str) -> str:
        asked.append(prompt[0])
        return "nothing" if asked == ["a", "b"] else GOOD

    kept: list[FirstRound] = []
    made = list(with_second_rounds(course, FirstRounds(write, execute, (), kept.append)))
    assert [(one.problem, one.round, one.kept) for one in made] == [
        *(("a", 1, False), ("a", 2, True)),
        *(("b", 1, False), ("b", 1, False), ("b", 2, True)),
    ]
    assert GOOD in made[1].prompt
    assert "It is 4." in made[1].prompt
    assert list(with_second_rounds(course, FirstRounds(write, execute, kept, kept.append))) == made
    assert (asked, ran) == (["a", "b", "b"], ["a", "b"])


def test_no_first_round_is_made_for_a_second_one_that_nobody_reads() -> None:
    asked: list[str] = []

    def write(prompt: str) -> str:
        asked.append(prompt[0])
        return GOOD

    firsts = FirstRounds(
        write, lambda _problem, _steps: WorkflowResult(True), (), lambda _first: None
    )
    made = islice(with_second_rounds(_asked_of("a", "b", "c"), firsts), 3)
    assert [(one.problem, one.round) for one in made] == [("a", 1), ("a", 2), ("b", 1)]
    assert asked == ["a"]
