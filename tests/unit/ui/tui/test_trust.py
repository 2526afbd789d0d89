"""The questions of the first start: a model and an import once, and whether what a folder brings
counts: in a terminal, and in a run.
"""

import json
import re
import time
from collections.abc import Callable

import pytest

from tests.acceptance.driving import Place
from tests.acceptance.loopback import KEY, Loopback, Says
from tests.unit.ui.tui.conftest import ready
from tests.unit.ui.tui.terminal import Terminal

Start = Callable[..., Terminal]
QUESTION = "This folder brings AGENTS.md, .mcp.json."


@pytest.fixture(autouse=True)
def brought(place: Place) -> None:
    servers = {"mcpServers": {"db": {"command": "no-such-program"}}}
    place.files({"AGENTS.md": "Answer in Basque.\n", ".mcp.json": json.dumps(servers)})


def test_a_yes_counts_for_this_session_and_the_next(
    place: Place, server: Loopback, fugu: Start
) -> None:
    server.play("m", Says("Bai."))
    terminal = fugu()
    terminal.sees(QUESTION, "y trust · n not now · d look")
    time.sleep(0.6)
    terminal.keys("d")
    terminal.sees("Answer in Basque.", "no-such-program")
    terminal.keys("q")
    terminal.until(lambda text: "Answer in Basque." not in text and QUESTION in text)
    terminal.keys("y")
    ready(terminal).keys("hello\r")
    terminal.sees("✓ done")
    assert "Answer in Basque." in server.asked("m")[0].text
    assert "This folder brings" not in ready(fugu()).screen.text


def test_a_no_is_for_now_and_trust_asks_again(place: Place, server: Loopback, fugu: Start) -> None:
    server.play("m", Says("Yes."), Says("Bai."))
    terminal = fugu()
    terminal.sees(QUESTION)
    time.sleep(0.6)
    terminal.keys("my dear ")
    terminal.sees(QUESTION, "› my dear")
    time.sleep(0.8)
    terminal.keys("you ")
    terminal.sees(QUESTION, "› my dear you")
    time.sleep(0.8)
    terminal.keys("n")
    terminal.sees("ignored until you trust this folder (/trust): AGENTS.md, .mcp.json")
    ready(terminal).keys("hello\r")
    terminal.sees("✓ done")
    assert "Basque" not in server.asked("m")[0].text
    terminal.keys("/trust\r")
    terminal.sees(QUESTION)
    time.sleep(0.6)
    terminal.keys("y")
    terminal.sees("this folder is trusted: what it brings counts", "hello")
    terminal.keys("again\r")
    terminal.until(lambda _: len(server.asked("m")) == 2)
    assert "Answer in Basque." in server.asked("m")[1].text


def test_the_memory_of_a_folder_is_asked_about(place: Place, server: Loopback, fugu: Start) -> None:
    server.play("m", Says("Yes."))
    for name in ("AGENTS.md", ".mcp.json"):
        (place.repo / name).unlink()
    place.files({".agents/MEMORY.md": "- Answer in Basque.\n"})
    terminal = fugu()
    terminal.sees("This folder brings .agents/MEMORY.md.")
    time.sleep(0.6)
    terminal.keys("n")
    terminal.sees("ignored until you trust this folder (/trust): .agents/MEMORY.md")
    ready(terminal).keys("hello\r")
    terminal.sees("✓ done")
    assert "Basque" not in server.asked("m")[0].text
    assert "is left out" not in terminal.screen.text, "it is said once"


def test_trust_asks_about_a_file_that_came_after_the_start(
    place: Place, server: Loopback, fugu: Start
) -> None:
    server.play("m", Says("Bai."))
    for name in ("AGENTS.md", ".mcp.json"):
        (place.repo / name).unlink()
    terminal = ready(fugu())
    terminal.keys("/remember answer in Basque\r")
    terminal.sees("Keep `- answer in Basque` for later sessions?")
    time.sleep(0.6)
    terminal.keys("y")
    terminal.sees("kept in .agents/MEMORY.md", "is left out: you have not trusted it")
    terminal.keys("/trust\r")
    terminal.sees("This folder brings .agents/MEMORY.md.")
    time.sleep(0.6)
    terminal.keys("y")
    terminal.sees("this folder is trusted: what it brings counts")
    terminal.keys("hello\r")
    terminal.sees("✓ done")
    assert "- answer in Basque" in str(server.asked("m")[0].body)


def test_a_run_names_what_was_ignored(place: Place, server: Loopback) -> None:
    server.play("m", Says("Yes."), Says("Yes."), Says("Yes."))
    done = place.fugu("run", "hello")
    assert "ignored until you trust this folder (`fugu trust`): AGENTS.md, .mcp.json" in done.err
    result = json.loads(place.fugu("run", "hello", "--output-format", "json").out)
    assert result["fugu"]["ignored"] == ["AGENTS.md", ".mcp.json"]
    trusted = json.loads(place.fugu("run", "--trust", "hello", "--output-format", "json").out)
    assert trusted["fugu"]["ignored"] == []


def test_the_inline_mode_asks_the_same(place: Place, server: Loopback, fugu: Start) -> None:
    server.play("m", Says("Bai."))
    terminal = fugu("--inline")
    terminal.sees(QUESTION, "y trust · n not now · d look", "›")
    terminal.keys("d\r")
    terminal.sees("Answer in Basque.", "no-such-program")
    terminal.keys("y\r")
    ready(terminal).keys("hello\r")
    terminal.sees("✓ done")
    assert "Answer in Basque." in server.asked("m")[0].text
    # an answer that comes late would scroll away what was printed meanwhile
    assert terminal.screen.asked_position == 0


def test_the_first_start_asks_for_a_model_an_import_and_trust_once_each(
    place: Place, server: Loopback, fugu: Start
) -> None:
    (place.home / ".fugurc").unlink()
    settings = place.home / ".claude" / "settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"permissions": {"allow": ["Bash(npm test)"]}}))
    server.play("worker", Says("Done."))

    def answer(question: str, key: str) -> None:
        terminal.sees(question)
        time.sleep(0.6)
        terminal.keys(key)

    terminal = fugu()
    answer("What shall fugu work with?", "o")
    terminal.sees("Address of the server")
    assert re.search(r"starting \d", terminal.screen.text) is None
    terminal.keys(f"{server.url.removesuffix('/v1')}\r")
    terminal.sees("Choose the API that it speaks", "Chat Completions", "Responses", "Messages")
    terminal.keys("responses\r")
    terminal.sees("(401): Incorrect API key provided", "API key for it (it is not shown)")
    terminal.keys(f"{KEY}\r")
    terminal.sees(f"Choose a model of {server.url}", "checker")
    terminal.keys("worker\r")
    answer("There are settings of Claude Code in your home folder.", "d")
    terminal.sees('would take over: allow = ["bash(npm test)"]')
    terminal.keys("q")
    answer("y import · n not now · d look", "y")
    answer(QUESTION, "\x1b")
    terminal.sees("agents: worker", "agent worker was added", "imported from Claude Code")
    text = (place.home / ".fugurc").read_text()
    assert "bash(npm test)" in text and KEY not in text
    assert 'api = "responses"' in text
    again = fugu()
    again.sees("agents: worker", "ignored until you trust")
    place.files({"AGENTS.md": "Answer in Breton.\n"})
    inline = fugu("--inline")
    inline.sees(QUESTION)
    inline.keys("fix it\r")
    inline.sees("this is sent after the question", "›")
    time.sleep(0.6)
    inline.keys("n\r")
    inline.sees("ignored until you trust", "▌ fix it")
    text = terminal.screen.text + again.screen.text + inline.screen.text
    assert KEY not in text
