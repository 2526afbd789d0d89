"""Three agents, each good at one kind of request: what the default learns of them without a command.

    python tests/benchmarks/three_agents.py [--seed 0] [--requests 40]

Three agents of one price answer over the real wire from this machine. Each is right in 90 % of its
own kind and in 30 % of two others; an acceptance check says so. After the requests the program asks
who would be first for requests that were not asked, then reads 20 requests, each in ten frames and
five languages. Needs the embedded backbone (`fugu models pull qwen2.5-coder-0.5b`). The results are
in results/three-agents.md.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
REAL_CACHE = Path(os.environ.get("FUGU_CACHE_DIR") or Path.home() / ".cache" / "fugu")

from fugu_cli import RunOptions, run_sync
from fugu_cli.coordinators import CoordinatorSettings
from fugu_cli.coordinators.composed import ComposedHead
from fugu_cli.coordinators.kinds import KindFiles, build_kind_reader
from fugu_cli.coordinators.outcome_store import OutcomeStore
from fugu_cli.session import log, store
from fugu_cli.session.events import Asked as Request
from fugu_cli.session.events import Assigned, Member, Opened, OutcomesKnown, Price
from fugu_cli.session.state import SessionState
from tests.acceptance.loopback import KEY, Answer, Asked, Loopback, Says, Use, running
from tests.benchmarks.kinds_requests import REQUESTS, REWORDINGS

AGENTS = {"ada": "bug_fix", "ben": "tests", "cleo": "documentation"}
RIGHT_IN_OWN_KIND, RIGHT_ELSEWHERE = 0.9, 0.3
WORDINGS = {
    "bug_fix": (
        "The {thing} crashes on empty input, fix it.",
        "Users report that the {thing} returns wrong results. Find the bug and repair it.",
        "Since yesterday the {thing} hangs after the second call. Please fix this.",
    ),
    "tests": (
        "Write unit tests for the {thing}.",
        "The {thing} has no tests yet; cover its edge cases.",
        "Add a regression test that covers the timeout of the {thing}.",
    ),
    "documentation": (
        "Document the public functions of the {thing} in the README.",
        "Write docstrings for the {thing}.",
        "Add a page to the manual that explains how to set up the {thing}.",
    ),
}
THINGS = (
    "date parser", "job queue", "image cache", "mail sender", "price table", "login form",
    "CSV importer", "search index", "chat server", "retry helper", "menu builder", "log rotation",
    "token store", "route planner", "colour picker", "feed reader", "tax module", "unit converter",
    "session store", "template engine", "upload page", "score board", "clock widget", "diff viewer",
)  # fmt: skip
LANGUAGES = ("en", "de", "es", "zh", "ru")
REWORDED_KINDS = ("bug_fix", "tests", "documentation", "question")


def requests_of(seed: int) -> list[tuple[str, str]]:
    """Return every request with its kind, in a random order."""
    pairs = [
        (kind, wording.format(thing=thing))
        for kind, wordings in WORDINGS.items()
        for wording in wordings
        for thing in THINGS
    ]
    random.Random(seed).shuffle(pairs)
    return pairs


def answer_of(agent: str, kinds: dict[str, str], seed: int) -> Callable[[Asked], Answer]:
    """Return how an agent reacts: it can do as many requests as its rates say, and is wrong at the
    others however often it tries.
    """

    def react(asked: Asked) -> Answer:
        newest = asked.text.rpartition("You are the ")[2]
        if newest.startswith("Verifier now"):
            return Says("The check passes.\nVERDICT: ACCEPT")
        if newest.startswith("Thinker now"):
            return Says("Look at the file again.")
        messages = asked.body["messages"]
        start = max(index for index, message in enumerate(messages) if message["role"] == "user")
        results = sum(message["role"] == "tool" for message in messages[start:])
        if results == 0:
            return Says("", (Use("read", {"path": "answer.txt"}),))
        if results > 1:
            return Says("Done.")
        request = next(text for text in kinds if text in asked.text)
        rate = RIGHT_IN_OWN_KIND if AGENTS[agent] == kinds[request] else RIGHT_ELSEWHERE
        attempts = sum(message["role"] == "assistant" for message in messages)
        right = random.Random(f"{seed}/{agent}/{request}").random() < rate
        content = "right\n" if right else f"wrong, says {agent} ({attempts})\n"
        return Says("", (Use("write", {"path": "answer.txt", "content": content}),))

    return react


def configure(home: Path, server: Loopback) -> None:
    """Write a configuration with the three agents, and nothing else of the user's."""
    lines = ['coordinator = "trinity"', "[tests]", 'until = ["sh check.sh"]']
    for agent in AGENTS:
        lines += [
            "[[agents]]",
            f'name = "{agent}"',
            'provider = "openai"',
            f'model = "{agent}"',
            f'base_url = "{server.url}"',
            'api_key_env = "LOOPBACK_KEY"',
            "price = { input = 1.0, output = 4.0 }",
        ]
    (home / ".fugurc").write_text("\n".join(lines) + "\n", encoding="utf-8")
    os.environ.update(HOME=str(home), LOOPBACK_KEY=KEY, FUGU_CACHE_DIR=str(REAL_CACHE))
    os.environ["XDG_DATA_HOME"] = str(home / "data")


def work(repository: Path, asked: Sequence[tuple[str, str]]) -> list[str]:
    """Ask every request in a session of its own; return the first agents."""
    first = []
    for kind, text in asked:
        (repository / "answer.txt").write_text("nothing\n", encoding="utf-8")
        options = RunOptions(folder=repository, permission_mode="auto", trust=True)
        result = run_sync(text, options)
        path = store.session_paths(data_folder(), repository)[0]
        events = [record.event for record in log.read(path)]
        turn = SessionState(events).request.turns[0].assigned
        first.append(turn.agent)
        print(f"{kind:14} {turn.agent:5} {result.get('subtype', '')} {text}", flush=True)
    return first


def data_folder() -> Path:
    """Return where this program's sessions are kept."""
    from fugu_cli.cli.current_folder import current_config

    return current_config().config.data


async def first_agent(head: ComposedHead, known: OutcomesKnown, text: str) -> tuple[str, str]:
    """Return who would be first, and the likeliest kind."""
    opened = Opened(version="", repo="", pool=head.members)
    decision = await head.decide(SessionState((opened, Request(text=text), known)))
    assert isinstance(decision, Assigned) and decision.scores is not None
    kinds = dict(decision.scores.kinds)
    return decision.agent, max(kinds, key=kinds.__getitem__) if kinds else ""


async def rewordings(head: ComposedHead, known: OutcomesKnown) -> tuple[int, Counter[str]]:
    """Return how many texts were read, and how many changed the kind or the first agent."""
    changed: Counter[str] = Counter()
    count = 0
    for kind in REWORDED_KINDS:
        for position in range(5):
            kinds, agents = [], []
            for language in LANGUAGES:
                _, frames = REWORDINGS[language]
                for frame in frames[:10]:
                    agent, read = await first_agent(
                        head, known, frame.format(REQUESTS[language][kind][position])
                    )
                    kinds.append(read)
                    agents.append(agent)
            usual_kind, usual_agent = (Counter(x).most_common(1)[0][0] for x in (kinds, agents))
            other_kinds = sum(read != usual_kind for read in kinds)
            other_agents = sum(agent != usual_agent for agent in agents)
            changed["kind"] += other_kinds
            changed["agent"] += other_agents
            count += len(kinds)
            print(f"{kind:14} {position} {usual_kind} {usual_agent}: kind changed in {other_kinds}, "
                  f"agent in {other_agents} of {len(kinds)}", flush=True)  # fmt: skip
    return count, changed


def main() -> None:
    """Run it and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--requests", type=int, default=40)
    parser.add_argument("--skip-rewordings", action="store_true")
    given = parser.parse_args()
    pairs = requests_of(given.seed)
    asked, fresh = pairs[: given.requests], pairs[given.requests :]
    kinds = {text: kind for kind, text in pairs}
    with running() as server, tempfile.TemporaryDirectory() as folder:
        home, repository = Path(folder) / "home", Path(folder) / "repository"
        home.mkdir()
        repository.mkdir()
        (repository / "check.sh").write_text("grep -q right answer.txt\n", encoding="utf-8")
        configure(home, server)
        for agent in AGENTS:
            server.react(agent, answer_of(agent, kinds, given.seed))
        first = work(repository, asked)
        right = [AGENTS[agent] == kind for agent, (kind, _) in zip(first, asked, strict=True)]
        print(
            f"right agent first: {sum(right[:20])} of the first 20, {sum(right[20:])} of the rest"
        )
        members = tuple(
            Member(name=agent, provider="openai", model=agent, slot="middle",
                   price=Price(input=1.0, output=4.0))
            for agent in AGENTS
        )  # fmt: skip
        known = OutcomeStore(data_folder(), repository, lambda _: True).known(members, ())
        reader = build_kind_reader(KindFiles(None, REAL_CACHE, home))
        head = ComposedHead(members, CoordinatorSettings(), reader)

        async def judge() -> None:
            hits: Counter[str] = Counter()
            totals: Counter[str] = Counter()
            for kind, text in fresh[:150]:
                agent, _ = await first_agent(head, known, text)
                totals[kind] += 1
                hits[kind] += AGENTS[agent] == kind
            share = sum(hits.values()) / sum(totals.values())
            print(f"fresh requests: right agent first in {share:.1%} of {sum(totals.values())}: "
                  + ", ".join(f"{kind} {hits[kind]}/{totals[kind]}" for kind in totals), flush=True)  # fmt: skip
            if not given.skip_rewordings:
                count, changed = await rewordings(head, known)
                print(f"{count} texts: kind changed in {changed['kind'] / count:.1%}, first agent in "
                      f"{changed['agent'] / count:.1%}")  # fmt: skip

        asyncio.run(judge())


if __name__ == "__main__":
    main()
