"""The table of conversations, and what each provider is sent for them.

`requests/NAME.json` holds the request of every target. After a change that is meant,
`PYTHONPATH=.:tests/unit/providers python tests/unit/wires/conversations.py` writes them anew; read
the difference before you commit it.
"""

import asyncio
import json
from pathlib import Path

import httpx
from histories import REASONED, REPORT, SEALED, SHOT, SIGNED, TOOLS
from servers import Server, quiet, unhurried

from fugu_cli.messages import Call, FromAgent, FromTool, FromUser, Message, Prompt, Thinking
from fugu_cli.providers import Agent
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.wires.chat_completions import OpenAI
from fugu_cli.wires.messages import Anthropic
from fugu_cli.wires.responses import Responses

PINNED = Path(__file__).parent / "requests"
SYSTEM = "You are a coding agent."
ASKED = FromUser(text="Fix the failing test.")
READ = Call.make("toolu_01", "read", path="src/ü.py")
FAILING = FromTool(call="toolu_02", tool="run_tests", text="1 failed", ok=False)


def prompt(*messages: Message, **others: object) -> Prompt:
    return Prompt.model_validate({"system": SYSTEM, "messages": messages, "tools": TOOLS, **others})


CONVERSATIONS = {
    "a_question": prompt(FromUser(text="What does it do?"), tools=(), max_tokens=500),
    "no_system_text": prompt(ASKED, system=""),
    "sampled_with_a_seed": prompt(ASKED, temperature=0.8, seed=3),
    "a_reply_held_to_a_schema": prompt(ASKED, tools=(), reply_schema='{"type": "object"}'),
    "a_call_and_its_result": prompt(
        ASKED,
        FromAgent(agent="strong", text="I look.", calls=(READ,)),
        FromTool(call="toolu_01", tool="read", text="1: x = 1"),
    ),
    "two_calls_at_once": prompt(
        ASKED,
        FromAgent(agent="strong", calls=(READ, Call(id="toolu_02", tool="run_tests"))),
        FromTool(call="toolu_01", tool="read", text="1: x = 1"),
        FAILING,
        FromUser(text="Go on, please."),
    ),
    "a_whole_file_written": prompt(
        ASKED,
        FromAgent(
            agent="strong",
            calls=(Call.make("toolu_03", "write", path="a.md", content="```\nx\n```\n"),),
        ),
        FromTool(call="toolu_03", tool="write", text="written"),
    ),
    "an_interrupted_call": prompt(
        ASKED, FromAgent(agent="strong", calls=(READ,)), FromUser(text="Stop. Why that?")
    ),
    "a_result_without_its_call": prompt(ASKED, FAILING),
    "arguments_that_are_no_json": prompt(
        ASKED,
        FromAgent(
            agent="cheap",
            calls=(Call(id="call with spaces", tool="read it", arguments='{"path": "a'),),
        ),
        FromTool(call="call with spaces", tool="read it", text="no such tool", ok=False),
    ),
    "thinking_of_its_own_and_of_another": prompt(
        ASKED,
        FromAgent(agent="cheap", text="A plan.", thinking=(Thinking(text="hm", data=SIGNED),)),
        FromUser(text="Do it."),
        FromAgent(
            agent="strong",
            thinking=(Thinking(text="hm", data=SIGNED), Thinking(data=SEALED)),
            calls=(READ,),
        ),
        FromTool(call="toolu_01", tool="read", text="1: x = 1"),
    ),
    "a_sealed_thought_of_its_own": prompt(
        ASKED,
        FromAgent(
            agent="strong", text="I look.", thinking=(Thinking(data=REASONED),), calls=(READ,)
        ),
        FromTool(call="toolu_01", tool="read", text="1: x = 1"),
        FromAgent(
            agent="strong",
            text="Cut",
            thinking=(Thinking(data=REASONED.replace("}", ', "after": [3, 0]}')),),
        ),
        FromUser(text="Go on."),
    ),
    "a_pdf_and_a_result_with_a_picture": prompt(
        FromUser(text="Build this.", media=(REPORT,)),
        FromAgent(agent="strong", calls=(READ, Call(id="toolu_02", tool="run_tests"))),
        FromTool(call="toolu_01", tool="read", text="[picture shot.png, 8x6]", media=(SHOT,)),
        FAILING,
    ),
    "an_agent_first_and_last": prompt(
        FromAgent(agent="cheap", text="Done."),
        FromUser(text=" "),
        FromAgent(agent="strong", text="Really."),
    ),
}

ANSWERS = {
    "openai": {"choices": [{"message": {"content": "yes"}, "finish_reason": "stop"}]},
    "responses": {
        "object": "response",
        "status": "completed",
        "output": [
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "yes"}],
            }
        ],
    },
    "anthropic": {
        "type": "message",
        "content": [{"type": "text", "text": "yes"}],
        "stop_reason": "end_turn",
    },
}


def sent(target: str, prompt: Prompt) -> list[object]:
    """The request bodies that `target` sends for `prompt`, one for each model call."""
    server = Server(httpx.Response(200, json=ANSWERS[target]))
    access = ModelEndpoint(name="strong", model="m", base_url="http://127.0.0.1/v1")
    kinds = {"anthropic": Anthropic, "responses": Responses}
    agent: Agent = kinds.get(target, OpenAI)(access, server)
    asyncio.run(agent.reply(prompt, quiet, unhurried))
    return [json.loads(request) for request in server.requests]


def rendered(name: str) -> dict[str, list[object]]:
    return {target: sent(target, CONVERSATIONS[name]) for target in ANSWERS}


if __name__ == "__main__":
    PINNED.mkdir(exist_ok=True)
    for name in CONVERSATIONS:
        text = json.dumps(rendered(name), indent=1, ensure_ascii=False)
        (PINNED / f"{name}.json").write_text(text + "\n", encoding="utf-8")
