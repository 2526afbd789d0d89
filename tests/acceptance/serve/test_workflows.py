"""fugu-ultra and long conversations, as the openai SDK sees them: what is fugu's, and what the
client's.
"""

import json
import time
from pathlib import Path
from typing import Literal

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletionMessageParam

from fugu_cli import prompts
from fugu_cli.coordinators import Coordinator, CoordinatorSettings
from fugu_cli.coordinators.conductor.conductor import Conductor, ConductorSettings
from fugu_cli.coordinators.rules import Cascade
from fugu_cli.messages import FromUser, Prompt, Reply
from fugu_cli.session.events import Member
from tests.acceptance.serve.endpoint import SMALL, STRONG, Endpoint, React, Speaker, says

ASK: list[ChatCompletionMessageParam] = [
    {"role": "system", "content": "Answer in French."},
    {"role": "user", "content": "what is it?"},
]
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def plan(*steps: tuple[int, str, list[object]]) -> str:
    models, subtasks, access = ([step[place] for step in steps] for place in range(3))
    return (
        f"model_id = {models}\nsubtasks = {json.dumps(subtasks)}\naccess_list = "
        f"{json.dumps(access)}"
    )


def plans(prompt: Prompt) -> bool:
    return prompt.system.startswith("You plan.")


def does(prompt: Prompt, subtask: str) -> bool:
    """The newest thing it is asked for is this step."""
    return any(
        f"<subtask>\n{subtask}" in message.text
        for message in prompt.messages
        if isinstance(message, FromUser)
    )


def asked(prompt: Prompt) -> str:
    """The last words of a prompt."""
    last = prompt.messages[-1]
    assert isinstance(last, FromUser)
    return last.text


def ultra(
    tmp_path: Path, small: React, strong: React, members: tuple[Member, ...] = (SMALL, STRONG)
) -> Endpoint:
    """Two agents, the strong one plans: Model 0 is `small`."""
    settings = CoordinatorSettings(verify_answers=True)

    def conductor() -> Coordinator:
        return Conductor(
            members,
            ConductorSettings(agent="strong", rounds=1),
            settings,
            Cascade(members, settings),
        )

    agents = {"small": Speaker("small", small), "strong": Speaker("strong", strong)}
    return Endpoint(tmp_path, agents, members, ultra=conductor)


def client(place: Endpoint) -> OpenAI:
    made = OpenAI(base_url=f"{place.url}/v1", api_key="unused", max_retries=0)
    place.clients.append(made)
    return made


def planning(text: str, otherwise: React) -> React:
    return lambda prompt: Reply(text=text) if plans(prompt) else otherwise(prompt)


def test_a_planner_reads_what_a_plan_is_and_steps_what_the_client_wants(tmp_path: Path) -> None:
    wanted = plan((0, "find it", []), (0, "say it", [0]))
    with ultra(tmp_path, says("it is 42"), planning(wanted, says("no"))).serving() as place:
        made = client(place).chat.completions.create(
            model="fugu-ultra",
            messages=ASK,
            max_tokens=50,
            stop=["\n"],
            temperature=0.3,
            seed=5,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        )
    assert made.choices[0].message.content == "it is 42"
    (planner,) = place.agents["strong"].shown
    assert planner.system.startswith("You plan. A request is to be answered by several agents")
    assert "repository" not in planner.system
    assert asked(planner).startswith("The request:\n<request>\nwhat is it?\n</request>")
    assert (planner.max_tokens, planner.stop, planner.temperature, planner.reply_schema) == (
        8192,
        (),
        None,
        "",
    )
    first, last = place.agents["small"].shown
    assert first.system == last.system == f"{prompts.load('serve/step')}\n\nAnswer in French."
    assert (first.max_tokens > 50, first.stop, first.reply_schema) == (True, (), "")
    assert (last.max_tokens, last.stop, json.loads(last.reply_schema)) == (50, ("\n",), SCHEMA)
    assert does(first, "find it") and "Worker" not in asked(first)
    assert does(last, "say it") and asked(last).endswith(prompts.load("serve/worker"))


@pytest.mark.parametrize("protocol", ["native", "text"])
def test_a_step_reads_the_conversation_that_the_client_sent(
    tmp_path: Path, protocol: Literal["native", "text"]
) -> None:
    told: list[ChatCompletionMessageParam] = [
        {"role": "user", "content": "write a poem"},
        {"role": "assistant", "content": "Roses are red."},
        {"role": "user", "content": "make it shorter"},
    ]
    members = (SMALL.model_copy(update={"protocol": protocol}), STRONG)
    wanted = plan((0, "say it in fewer words", []))
    with ultra(tmp_path, says("Roses."), planning(wanted, says("no")), members).serving() as place:
        client(place).chat.completions.create(model="fugu-ultra", messages=told)
    (prompt,) = place.agents["small"].shown
    texts = "\n".join(message.text for message in prompt.messages)
    places = [texts.find(words) for words in ("write a poem", "Roses are red.", "make it shorter")]
    assert -1 not in places and places == sorted(places)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("last", ["say it", "Check it, and answer with it alone."])
def test_whoever_has_the_last_word_keeps_to_what_the_client_wants_of_the_answer(
    tmp_path: Path, last: str, nested: bool
) -> None:
    inner = plan((0, "find it", []), (0, last, [0]))

    def strong(prompt: Prompt) -> Reply:
        whole = nested and "of a larger plan" not in asked(prompt)
        return Reply(text=plan((2, "do it", [])) if whole else inner)

    with ultra(tmp_path, says("it is 42"), strong).serving() as place:
        made = client(place).chat.completions.create(
            model="fugu-ultra",
            messages=ASK,
            max_tokens=3000,
            stop=["\n"],
            temperature=0.3,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        )
    assert made.choices[0].message.content == "it is 42"
    answering = place.agents["small"].shown[-1]
    assert does(answering, last)
    assert (answering.max_tokens, answering.stop, answering.temperature) == (3000, ("\n",), 0.3)
    assert json.loads(answering.reply_schema) == SCHEMA
    assert asked(answering).endswith(prompts.load("serve/worker")) == (last == "say it")


@pytest.mark.parametrize(
    "steps",
    [
        [(0, "answer it", []), (1, "judge the answer", [0])],
        [(1, "slow first part", []), (0, "answer it", [])],
    ],
)
def test_the_client_gets_what_the_workflow_came_to(
    tmp_path: Path, steps: list[tuple[int, str, list[object]]]
) -> None:
    def strong(prompt: Prompt) -> Reply:
        if does(prompt, "slow"):
            time.sleep(0.3)
        return Reply(text="ACCEPT. It is right." if does(prompt, "judge") else "SLOW FIRST PART")

    with ultra(tmp_path, says("THE ANSWER"), planning(plan(*steps), strong)).serving() as place:
        made = client(place).chat.completions.create(model="fugu-ultra", messages=ASK)
    assert made.choices[0].message.content == "THE ANSWER"
    assert made.to_dict()["fugu"]["agent"] == "small"  # type: ignore[index]


def heard(
    place: Endpoint, model: str, messages: list[ChatCompletionMessageParam], **headers: str
) -> str:
    """What a stream says."""
    made = client(place).chat.completions.create(
        model=model, messages=messages, stream=True, extra_headers=headers
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in made if chunk.choices)


def test_a_stream_of_a_workflow_holds_its_answer_and_nothing_else(tmp_path: Path) -> None:
    wanted = plan((0, "one half", []), (1, "the other", []), (0, "join them", ["all"]))

    def small(prompt: Prompt) -> Reply:
        return Reply(text="the whole" if does(prompt, "join") else "a half")

    with ultra(tmp_path, small, planning(wanted, says("another half"))).serving() as place:
        for verify in ("true", "false"):
            assert heard(place, "fugu-ultra", ASK, **{"x-fugu-verify": verify}) == "the whole"


def test_a_summary_is_asked_for_in_our_words_and_no_client_hears_it(tmp_path: Path) -> None:
    short = SMALL.model_copy(update={"context": 8000})
    past: list[ChatCompletionMessageParam] = []
    for number in range(6):
        past.append({"role": "user", "content": f"q{number} {'foo ' * 800}"})
        past.append({"role": "assistant", "content": f"a{number} {'bar ' * 800}"})
    past.append({"role": "user", "content": "and now?"})

    def small(prompt: Prompt) -> Reply:
        return Reply(
            text="WHAT WAS SAID" if prompts.load("compact") in asked(prompt) else "the answer"
        )

    with ultra(tmp_path, small, says("no"), (short, STRONG)).serving() as place:
        assert heard(place, "fugu", past, **{"x-fugu-verify": "false"}) == "the answer"
    summing, answering = place.agents["small"].shown
    assert "You are the Worker now" not in asked(summing)
    assert "WHAT WAS SAID" in "".join(m.text for m in answering.messages if isinstance(m, FromUser))
