"""What help pages and the README show exists: commands, flags, topics, keys."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from fugu_cli.__main__ import called
from fugu_cli.cli.app import app
from fugu_cli.cli.interface import FIRST_SESSION, PAGES_ELSEWHERE, help_topics
from fugu_cli.config import Config
from fugu_cli.config.example import FORMER, key_notes
from fugu_cli.config.known_models import price_of
from fugu_cli.config.loader import parse_layer
from fugu_cli.config.schema import AgentEntry
from fugu_cli.errors import FuguError
from fugu_cli.messages import Call, Usage
from fugu_cli.session.events import (
    Assigned,
    Compacted,
    Event,
    Failed,
    Interrupted,
    JobEnded,
    Merged,
    Permitted,
    Planned,
    Recorded,
    Steered,
    SteeringGiven,
    ToolRan,
    Undone,
)
from fugu_cli.session.live_events import Retried, Waiting
from fugu_cli.session.request_state import RequestState
from fugu_cli.session.tool_facts import TOOLS
from fugu_cli.training.evaluation import runner
from fugu_cli.ui import json_output
from fugu_cli.ui.json_output import SUBTYPES
from fugu_cli.ui.tui.commands import COMMANDS as COMMANDS_TYPED

ROOT = Path(__file__).parents[2]
PAGES = {
    **{f"help {name}": text for name, text in help_topics().items()},
    "README": (ROOT / "README.md").read_text(),
    "first session": FIRST_SESSION,
}
TREE = typer.main.get_command(app)


def shown(text: str) -> Iterator[str]:
    """Command lines: in backticks, or on indented or fenced lines that begin with `fugu`."""
    yield from re.findall(r"`(fugu [^`]+)`", text)
    yield from (line.strip() for line in text.splitlines() if re.match(r"\s*fugu( |$)", line))


def resolved(line: str) -> tuple[object, list[str]]:
    """The command a line calls, and the words that are left for it. Fails when there is no such
    command.
    """
    words = re.sub(r'"[^"]*"', "TEXT", re.split(r"  +|#", line)[0]).split()
    assert words[0] == "fugu"
    command, rest = TREE, words[1:]
    while rest and hasattr(command, "commands") and not rest[0].startswith("-"):
        assert rest[0] in command.commands, f"there is no `{rest[0]}` in: {line}"
        command, rest = command.commands[rest[0]], rest[1:]
    return command, rest[: rest.index("--")] if "--" in rest else rest


def options(command: object) -> set[str]:
    found = {
        name
        for parameter in command.params  # type: ignore[attr-defined]
        if not getattr(parameter, "hidden", False)
        for name in (*parameter.opts, *parameter.secondary_opts)
    }
    return {name for name in found if name.startswith("-")} | {"--help", "-h"}


def commands() -> Iterator[tuple[str, object]]:
    """Every command with the words that call it, groups too."""
    yield "fugu", TREE
    for name, command in TREE.commands.items():  # type: ignore[attr-defined]
        if command.hidden:
            continue
        yield f"fugu {name}", command
        yield from (
            (f"fugu {name} {word}", inner)
            for word, inner in getattr(command, "commands", {}).items()
            if not inner.hidden
        )


COMMANDS = dict(commands())


def every_option() -> set[str]:
    found = {name for command in COMMANDS.values() for name in options(command)}
    return found | {"--install-completion", "--show-completion"}


@pytest.mark.parametrize("words", COMMANDS)
def test_the_help_of_a_command_shows_no_value_of_ours(
    words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called([*words.split()[1:], "--help"]) == 0
    assert re.findall(r"object at|dataclasses|[A-Z]{4,}_TYPE", capsys.readouterr().out) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_command_line_that_is_shown_can_be_typed(page: str) -> None:
    lines = list(shown(PAGES[page]))
    for line in lines:
        command, rest = resolved(line)
        flags = [
            re.split(r"\[?=", word)[0] for word in rest if word.startswith("-") and word != "-"
        ]
        assert [flag for flag in flags if flag not in options(command)] == [], line


OTHERS_OPTIONS = {"--ak", "--ae", "--no-deps", "--address", "--num-cpus"} | {
    *(
        "--scan",
        "--agent-timeout",
        "--jobs-dir",
        "--image",
        "--no-install-recommends",
        "--overrides",
    )
}
"""Options of Harbor, pip and Ray."""


@pytest.mark.parametrize("page", PAGES)
def test_every_flag_that_is_mentioned_exists(page: str) -> None:
    own = re.sub(
        r"^ *(pipx?|uv|python|twine) .*$|`\./install\.sh [^`]*`",
        "",
        PAGES[page],
        flags=re.MULTILINE,
    )
    mentioned = set(re.findall(r"(?<![\w-])--[a-z][a-zA-Z-]+", own))
    assert mentioned - every_option() - OTHERS_OPTIONS == set()


TOLD_IN = {
    "fugu": "tui",
    "fugu run": "run output permissions",
    "fugu trace": "trace",
    "fugu sessions": "sessions",
    "fugu export": "sessions",
    "fugu undo": "sessions",
    "fugu trust": "permissions",
    "fugu rewind": "sessions",
    "fugu update": "storage",
    "fugu cost": "providers",
    "fugu init": "config",
    "fugu login": "pool",
    "fugu pool": "pool",
    **dict.fromkeys([words for words in COMMANDS if words.startswith("fugu mcp")], "mcp"),
    "fugu mcp serve": "mcp-serve",
    **dict.fromkeys([words for words in COMMANDS if words.startswith("fugu plugin")], "plugins"),
    "fugu attach": "attach",
    "fugu blame": "blame",
    "fugu commit": "git",
    "fugu pr": "git",
    "fugu review": "review",
    "fugu replay": "trace",
    "fugu serve": "serve browser",
    "fugu acp": "acp",
    "fugu sdk": "sdk",
    "fugu eval": "evaluation outcomes",
    "fugu route": "coordinator",
    **dict.fromkeys(
        [words for words in COMMANDS if words.startswith("fugu coordinator")], "coordinator"
    ),
    **dict.fromkeys([words for words in COMMANDS if words.startswith("fugu train")], "training"),
    "fugu train conductor": "grpo",
}
"""The pages on which the flags of a command stand."""


@pytest.mark.parametrize("words", COMMANDS)
def test_every_flag_of_a_command_is_on_its_page(words: str) -> None:
    text = " ".join(help_topics()[name] for name in TOLD_IN.get(words, "").split())
    missing = {
        name
        for name in options(COMMANDS[words])
        if name.startswith("--") and not stands(name, text)
    }
    assert missing - {"--version", "--install-completion", "--show-completion"} == {"--help"}


def stands(name: str, text: str) -> bool:
    """As a word of its own: `--prompt` is not in `--prompt-file`."""
    return re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", text) is not None


def test_the_pages_together_show_every_command() -> None:
    text = "\n".join(PAGES.values())
    for name, command in TREE.commands.items():  # type: ignore[attr-defined]
        assert command.hidden or f"fugu {name}" in text, name
        for word, inner in getattr(command, "commands", {}).items():
            assert inner.hidden or f"fugu {name} {word}" in text, word


def test_the_help_lists_each_command_once_with_a_summary_on_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert called(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Start here:")[2].partition("Options:")[0]
    rows = re.findall(r"^  (\S+)  +(\S.*)$", listed, re.MULTILINE)
    visible = {words.split()[1] for words in COMMANDS if words.count(" ") == 1}
    assert sorted(name for name, _ in rows) == sorted({"fugu", *visible})
    assert [summary for _, summary in rows if not summary.endswith(".") or "..." in summary] == []


@pytest.mark.parametrize("topic", PAGES_ELSEWHERE)
def test_a_command_or_a_page_of_before_shows_the_page_where_it_stands(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert called(["help", topic]) == 0
    assert f"# {PAGES_ELSEWHERE[topic]}: " in capsys.readouterr().out


def test_the_evaluation_page_lists_every_arm_and_what_a_task_may_say() -> None:
    page = help_topics()["evaluation"]
    table = page[page.index("**Arms.**") : page.index("**What is kept.**")]
    assert set(re.findall(r"^    ([\w-]+) {2,}", table, re.MULTILINE)) == set(runner.ALL_ARMS)
    assert (
        " ".join(table.split())
        .partition("without it ")[2]
        .startswith("trinity, single, random and cascade):")
    )
    assert runner.DEFAULT_ARMS == ("trinity", "single", "random", "cascade")
    assert "`prompt.md`" in page and "grade_command = " in page


def test_the_page_on_the_trace_tells_what_a_decision_costs() -> None:
    page, results = (
        " ".join(help_topics()["trace"].split()),
        ROOT / "tests" / "benchmarks" / "results",
    )
    measured = (results / "coordinator.md").read_text()
    found = re.findall(r"^\| (\d+) \| (.+?) \| ([\d.]+) \|", measured, re.MULTILINE)
    wall = {(int(tokens), way): float(s) for tokens, way, s in found}
    for tokens, said in ((256, "256 tokens read cold"), (2048, "2,048 tokens")):
        cold, warm = wall[tokens, "cold"], wall[tokens, "warm +64"]
        assert f"{cold:.2f} s for {said}, {warm:.2f} s with 64 new ones" in page
    library, ready = re.findall(r": ([\d.]+) s \([\d.]+ CPU\)", measured)[:2]
    assert f"torch is imported ({library} s)" in page and f"the model is loaded ({ready} s)" in page


def test_the_interfaces_page_lists_every_command_and_its_other_names() -> None:
    words = set(re.findall(r"(?<![\w.`])/([a-z]+|\?)", help_topics()["slash"]))
    assert {
        name for command in COMMANDS_TYPED for name in (command.name, *command.also)
    } - words == set()


def test_the_tools_page_lists_every_tool_that_agents_are_told_of() -> None:
    page = help_topics()["tools"]
    listed = set(re.findall(r"\w+", page[page.index("    read,") : page.index("Every role")]))
    assert {path.stem for path in (ROOT / "prompts" / "tools").glob("*.md")} - listed == {
        tool.name for tool in TOOLS.values() if tool.internal
    }


def test_what_is_told_to_be_installed_is_what_the_package_asks_for() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "fugu_cli").rglob("*.py"))
    declared = re.findall(r'^    "([^"]+)",$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    told = [
        word
        for words in re.findall(r"""installing\(\s*(["'].*?)\)""", source, re.DOTALL)
        for word in re.findall(r"[\w<>=.\[\]-]+(?:,<\w+)?", words)
    ]
    assert told
    assert [word for word in told if word not in declared] == []
    assert [path for path, text in {**PAGES, "source": source}.items() if "fugu-cli[" in text] == []


def test_every_page_that_is_pointed_to_exists() -> None:
    for page, text in PAGES.items():
        for topic in re.findall(r"`fugu help ([a-z-]+)`", text):
            assert topic in help_topics(), f"{page} points to {topic}"


def test_every_file_that_the_tour_names_exists() -> None:
    tour = (ROOT / "fugu_cli" / "README.md").read_text()
    rows = re.findall(r"^\| `([a-z]+/)` \| .*? \| (.*) \|$", tour, re.MULTILINE)
    first = [
        folder + name for folder, names in rows for name in re.findall(r"`([\w/]+\.py)`", names)
    ]
    told = re.findall(
        r"`([\w/]+(?:\.py|/))`", re.sub(r"^\| `[a-z]+/` \|.*$", "", tour, flags=re.MULTILINE)
    )
    assert len(first) > 20 and len(told) > 60
    beside = {"loopback.py", "forked.py"}  # of tests/acceptance
    named = {*first, *told} - beside
    assert [
        name
        for name in named
        if not any((base / name).exists() for base in (ROOT / "fugu_cli", ROOT))
    ] == []


def test_every_page_begins_with_its_name_and_what_it_is_about() -> None:
    for name, text in help_topics().items():
        assert re.match(rf"# {name}: \S", text), name
        assert max(len(line) for line in text.splitlines()) <= 125, name
        assert len(text.splitlines()) <= 100, (
            f"{name}: a screen has 50 lines, and a page two screens"
        )


def test_every_folder_of_the_data_is_named_on_the_storage_page() -> None:
    source = "\n".join(path.read_text() for path in (ROOT / "fugu_cli").rglob("*.py"))
    folders = set(re.findall(r'\bdata / "(\w+)"', source))
    assert {"sessions", "interface", "permissions", "coordinators"} <= folders
    assert {name for name in folders if f"/fugu/{name}" not in help_topics()["storage"]} == set()


def test_the_configuration_page_lists_every_key_with_the_models_own_words() -> None:
    listed = dict(re.findall(r"^    (\w+) {2,}(.*)$", help_topics()["config"], re.MULTILINE))
    assert listed == {
        key: note.strip() + (" (`fugu help pool`)" if key == "agents" else "")
        for key, note in key_notes(Config).items()
    }


def test_the_entry_on_the_pool_page_is_valid_and_shows_every_field() -> None:
    page = help_topics()["pool"]
    entry = page[page.index("    [[agents]]") : page.index("**Slots.**")]
    config = parse_layer(
        "\n".join(line.removeprefix("    ") for line in entry.splitlines()), Path("/x/.fugurc")
    ).config
    shown = config.agents[0]
    assert shown.model_fields_set == set(AgentEntry.model_fields) - FORMER
    assert shown.price == price_of(shown.provider, shown.model), (
        "a price that is copied counts in budgets"
    )


def test_the_examples_on_the_configuration_page_are_valid() -> None:
    page = help_topics()["config"]
    text = "\n".join(line.strip() for line in page.splitlines() if re.match(r"    \w+ = ", line))
    assert parse_layer(text, Path("/x/.fugurc")).config.model_fields_set == {
        "max_turns",
        "max_budget_usd",
        "deny",
    }


def test_every_line_of_the_stream_is_documented_with_its_fields() -> None:
    call, usage = Call(id="1", tool="run_tests", arguments="{}"), Usage()
    by_fugu = Permitted(turn=1, call=call, allowed=True, by="evidence")
    facts: list[Event] = [
        Assigned(turn=1, agent="a", role="worker", by="cascade", reason=""),
        ToolRan(turn=1, call=call, output="", ok=True, seconds=0.1),
        Failed(turn=1, what="a", kind="network", message=""),
        Undone(snapshot=None),
        Steered(text=""),
        SteeringGiven(turn=1, agent="a", number=1, message=Steered(text="")),
        Interrupted(turn=1),
        Compacted(summary="", upto=1),
        Planned(steps=(), text="", usage=usage),
        Merged(plan=1, turns=(1, 2)),
        JobEnded(job="job1", command="ls"),
    ]
    lines = [
        json_output.event_object(Recorded(seq=0, at=0.0, event=fact), RequestState([by_fugu]), "s")
        for fact in facts
    ]
    retried = Retried(turn=1, agent="a", kind="network", why="", seconds=1.0, retry=1, retries=4)
    lines += [json_output.live_object(Waiting(why=""), "s"), json_output.live_object(retried, "s")]
    lines += [json_output.steering_refused_object(FuguError("no"), "s")]
    lines += [
        json_output.init_object(
            json_output.StreamInit(
                session="s", cwd="/", mode="edit", coordinator="cascade", pool=()
            )
        )
    ]
    common = {"type", "subtype", "session_id", "uuid", "timestamp"}
    told = help_topics()["output"].replace(
        ", |\n| | | ", ", "
    )  # a row that goes on in the next line
    documented = {
        subtype: set(fields.split(", "))
        for subtype, fields in re.findall(r"^\| `(\w+)` \| [^|]+ \| (.+) \|$", told, re.MULTILINE)
    }
    assert documented == {str(line["subtype"]): set(line) - common for line in lines if line}


def test_every_subtype_of_the_result_is_documented() -> None:
    assert [name for name in set(SUBTYPES.values()) if name not in help_topics()["output"]] == []
