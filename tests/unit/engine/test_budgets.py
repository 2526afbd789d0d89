"""Money: what is left of each budget, and that a call which could exceed it is not made; what was
spent, by whom.
"""

import asyncio
import json
import subprocess
import sys
import time
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest

from fugu_cli.cli import sessions
from fugu_cli.cli.eval import open_engine
from fugu_cli.cli.training_flags import RolloutFlags
from fugu_cli.config import Config
from fugu_cli.config.agent_pool import usable_pool
from fugu_cli.config.known_models import price_of
from fugu_cli.config.loader import load_config
from fugu_cli.config.schema import AgentEntry
from fugu_cli.errors import AgentError, ConfigError
from fugu_cli.messages import BYTES_PER_TOKEN, FromUser, Prompt, Reply, ToolSpec, Usage
from fugu_cli.providers.endpoint import ModelEndpoint
from fugu_cli.providers.http_client import SseDecoder
from fugu_cli.providers.server_quirks import ServerQuirks
from fugu_cli.providers.wrappers import Sampling
from fugu_cli.session import costs, log, spending, store
from fugu_cli.session.costs import turn_costs
from fugu_cli.session.events import Asked, Event, Failed, Member, Opened, Price, Recorded, Replied
from fugu_cli.session.log import Log
from fugu_cli.session.spending import Budgets, Ledger, all_payments, session_payments
from fugu_cli.session.state import SessionState
from fugu_cli.wires.messages import MessagesDecoder, encode_request
from tests.reacting import Reacting

PAID = Member(
    name="a",
    provider="openai",
    model="m",
    slot="strong",
    price=Price(input=10.0, cached=1.0, output=20.0),
)
PROMPT = Prompt(system="", messages=(FromUser(text="x" * 300),), max_tokens=1000)


def spent(dollars: float, agent: str = "a") -> Replied:
    """A reply that cost so much."""
    return Replied(turn=1, agent=agent, text="x", usage=Usage(output=round(dollars / 20.0 * 1e6)))


def session(*paid: float, repo: str = "/r") -> list[Event]:
    events: list[Event] = [Opened(version="1", repo=repo, pool=(PAID,))]
    for dollars in paid:
        events += [Asked(text="x"), spent(dollars)]
    return events


class Others:
    def __init__(self, day: float, project: float) -> None:
        self._day, self._project = day, project

    def others_today(self) -> float:
        return self._day

    def others_in_project(self) -> float:
        return self._project

    def reserved_by_others(self) -> float:
        return 0.0


def test_the_dearest_a_call_can_get_counts_prompt_tools_and_the_longest_reply() -> None:
    bare = spending.worst_case_cost(PAID, PROMPT)
    assert bare >= (300 / 3 * 10.0 + 1000 * 20.0) / 1e6
    tools = PROMPT.model_copy(
        update={"tools": (ToolSpec(name="t", description="d" * 3000, parameters="{}"),)}
    )
    assert spending.worst_case_cost(PAID, tools) - bare >= 1000 * 10.0 / 1e6
    foreign = PROMPT.model_copy(
        update={"tools": (ToolSpec(name="t", description="読" * 3000, parameters="{}"),)}
    )
    assert spending.worst_case_cost(PAID, foreign) - bare >= 3000 * 10.0 / 1e6


@pytest.mark.parametrize(
    ("fields", "longest"),
    [
        ({}, 1000),
        ({"max_tokens": 64000}, 64000),
        ({"max_tokens": 500}, 500),
        ({"effort": "none"}, 1000),
        ({"effort": "high"}, 1000),
        ({"effort": "low", "max_tokens": 9000}, 9000),
    ],
)
def test_the_longest_reply_is_the_one_that_the_server_is_asked_for(
    fields: dict[str, object], longest: int
) -> None:
    price = {"input": 0.0, "output": 20.0}
    given = {
        "name": "a",
        "provider": "anthropic",
        "model": "m",
        "price": price,
        "protocol": "native",
        **fields,
    }
    entry = AgentEntry.model_validate(given | {"slot": "cheap"})
    sent: list[Prompt] = []

    def server(prompt: Prompt) -> Reply:
        sent.append(prompt)
        return Reply(text="x")

    agent = Sampling(Reacting("a", server), max_tokens=entry.max_tokens)
    asyncio.run(agent.reply(PROMPT, lambda text: None, lambda pause: None))
    body = encode_request(
        sent[0],
        ModelEndpoint("a", "m", "https://api.example.org", effort=entry.effort or ""),
        ServerQuirks(),
    )
    assert body["max_tokens"] == longest
    assert spending.worst_case_cost(entry.member(), PROMPT) == pytest.approx(longest * 20.0 / 1e6)


UNPRICED = PAID.model_copy(update={"name": "new", "price": None})


def test_under_a_budget_nobody_is_called_whose_price_is_unknown() -> None:
    events = session(0.5)
    assert spending.over_budget(SessionState(events), UNPRICED, PROMPT, Budgets(day=100.0)) == (
        "no price is known, so that no budget can hold: give its entry a price = { input = ..., "
        "output = ... }, "
        "USD per million tokens; zeros where it is free"
    )
    assert spending.over_budget(SessionState(events), UNPRICED, PROMPT, Budgets()) == ""


def test_an_evaluation_with_a_budget_does_not_begin_with_an_unknown_price(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    entry = AgentEntry(name="new", provider="openai", model="anything-new")
    open_engine(RolloutFlags(max_requests=1), Config(agents=(entry,)), tmp_path)
    with pytest.raises(ConfigError, match="new: no price is known"):
        open_engine(RolloutFlags(max_budget_usd=1.0), Config(agents=(entry,)), tmp_path)
    known = AgentEntry(name="known", provider="scripted", model="m")
    without = Config(agents=(entry, known), opt_out=("new",))
    open_engine(RolloutFlags(max_budget_usd=1.0), without, tmp_path)


def test_what_runs_here_or_takes_no_key_is_free_and_other_prices_are_known_or_given() -> None:
    def rates(**fields: object) -> Price | None:
        entry = AgentEntry.model_validate(
            {"name": "a", "provider": "openai", "model": "anything-new", **fields}
        )
        (found,) = usable_pool(Config(agents=(entry,)), {"OPENAI_API_KEY": "k", "K": "k"})
        return found.member().price

    own = "http://127.0.0.1:8000/v1"
    assert rates(base_url=own) == rates(provider="scripted") == Price()
    assert rates(provider="local", model="qwen2.5-coder-0.5b") == Price(cached=0.0)
    assert (
        rates(),
        rates(base_url=own, api_key_env="K"),
        rates(base_url=own, headers={"x": "k"}),
    ) == (None,) * 3
    assert rates(price={"input": 0.0, "output": 0.0}) == Price()


def test_unknown_costs_are_not_shown_as_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    loaded = load_config(Path.cwd(), {})
    journal = Log.create(store.new_path(loaded.config.data, loaded.root))
    journal.append(Opened(version="1", repo=str(loaded.root), pool=(PAID, UNPRICED)))
    for event in (Asked(text="x"), spent(1.0), spent(2.0, "new")):
        journal.append(event)
    journal.close()
    assert (journal.state.cost, costs.unpriced(journal.events, journal.state.pool)) == (
        1.0,
        ("new",),
    )
    assert sessions.show_cost("agent", None, False, False) == 0
    rows = [line.split(maxsplit=5) for line in capsys.readouterr().out.splitlines()[3:]]
    assert [(row[0], row[-1]) for row in rows] == [
        ("a", "$1.00"),
        ("new", "unknown"),
        ("all", "$1.00 + unknown"),
    ]
    assert sessions.show_cost("agent", None, False, True) == 0
    told = json.loads(capsys.readouterr().out)["rows"]
    assert {row["name"]: (row["cost_usd"], row["unpriced_calls"]) for row in told} == {
        "a": (1.0, 0),
        "new": (0.0, 1),
        "all": (1.0, 1),
    }


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (Budgets(request=0.51), "request"),
        (Budgets(session=1.51), "session"),
        (Budgets(day=2.51, elsewhere=Others(1.0, 0.0)), "day"),
        (Budgets(project=5.51, elsewhere=Others(0.0, 4.0)), "project"),
        (Budgets(request=0.51, session=9.0, day=9.0, elsewhere=Others(0.0, 0.0)), "request"),
    ],
)
def test_a_call_that_could_exceed_what_is_left_is_named_with_its_budget(
    limits: Budgets, name: str
) -> None:
    events = session(1.0, 0.5)
    said = spending.over_budget(SessionState(events), PAID, PROMPT, limits)
    assert said.startswith("its next call may cost $0.02")
    assert f"$0.0100 of the {name}'s budget" in said


def recorded(name: str) -> Usage:
    """What an Anthropic server once counted: 12 tokens fresh, 300 written to its cache, 2000 read
    from it.
    """
    decoding, decoder = (
        MessagesDecoder(ModelEndpoint("claude", "m", "https://api.example.org")),
        SseDecoder(),
    )
    data = (Path(__file__).parents[2] / "recorded/anthropic" / name).read_bytes()
    for event in [*decoder.feed(data), *decoder.finish()]:
        decoding.feed(event)
    return decoding.reply().usage


def test_what_is_written_to_a_cache_costs_a_quarter_more_than_what_is_read(
    capsys: pytest.CaptureFixture[str],
) -> None:
    price = price_of("anthropic", "claude-sonnet-4-5")
    assert price == Price(input=3.0, cached=0.3, output=15.0)
    claude = Member(
        name="claude", provider="anthropic", model="claude-sonnet-4-5", slot="strong", price=price
    )
    used = recorded("text.sse")
    assert (used.input, used.cached, used.written, used.output) == (2312, 2000, 300, 15)
    dollars = (12 * 3.0 + 300 * 3.75 + 2000 * 0.3 + 15 * 15.0) / 1e6
    loaded = load_config(Path.cwd(), {})
    journal = Log.create(store.new_path(loaded.config.data, loaded.root))
    journal.append(Opened(version="1", repo=str(loaded.root), pool=(claude,)))
    journal.append(Asked(text="x"))
    for _ in range(2):
        journal.append(Replied(turn=1, agent="claude", usage=used))
    journal.close()
    assert journal.state.cost == pytest.approx(2 * dollars)
    assert sessions.show_cost("agent", None, False, True) == 0
    row = json.loads(capsys.readouterr().out)["rows"][0]
    assert row == {
        "name": "claude",
        "calls": 2,
        "input": 4624,
        "cached": 4000,
        "written": 600,
        "output": 30,
        "reasoning": 0,
        "cost_usd": round(2 * dollars, 8),
        "unpriced_calls": 0,
    }


def test_a_call_that_may_write_its_whole_prompt_to_a_cache_is_budgeted_so() -> None:
    twice = PROMPT.model_copy(update={"messages": (*PROMPT.messages, *PROMPT.messages)})
    size = sum(len(message.model_dump_json()) for message in PROMPT.messages)
    assert PAID.price is not None
    more = spending.worst_case_cost(PAID, twice) - spending.worst_case_cost(PAID, PROMPT)
    assert more == pytest.approx(1.25 * PAID.price.input * size / BYTES_PER_TOKEN / 1e6)


def test_within_all_budgets_it_may_be_made() -> None:
    limits = Budgets(request=0.6, session=1.6, day=2.0, project=2.0, elsewhere=Others(0.1, 0.2))
    assert spending.over_budget(SessionState(session(1.0, 0.5)), PAID, PROMPT, limits) == ""
    assert spending.over_budget(SessionState(session(1.0, 0.5)), PAID, PROMPT, Budgets()) == ""


def test_what_calls_under_way_may_cost_is_taken_off() -> None:
    assert (
        spending.over_budget(
            SessionState(session(0.0)), PAID, PROMPT, Budgets(request=0.05), reserved=0.0
        )
        == ""
    )
    assert "$0.0100 of the request's" in spending.over_budget(
        SessionState(session(0.0)), PAID, PROMPT, Budgets(request=0.05), reserved=0.04
    )


def test_what_costs_nothing_may_be_called_when_nothing_is_left() -> None:
    free = PAID.model_copy(update={"price": Price()})
    overspent = Budgets(session=0.4)
    assert spending.over_budget(SessionState(session(0.5)), free, PROMPT, overspent) == ""
    assert spending.over_budget(SessionState(session(0.5)), PAID, PROMPT, overspent) == (
        "its next call may cost $0.0214; $0.0000 of the session's budget of $0.4000 are left"
    )


def write(data: Path, root: Path, *paid: float) -> Path:
    path = store.new_path(data, root)
    journal = Log.create(path)
    for event in session(*paid, repo=str(root)):
        journal.append(event)
    journal.close()
    return path


def test_the_ledger_reads_all_other_sessions_and_counts_a_forks_past_once(tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    mine = write(tmp_path, here, 1.0)
    other = write(tmp_path, here, 2.0, 0.5)
    write(tmp_path, there, 4.0)
    store.fork_session(tmp_path, here, other)
    ledger = Ledger(tmp_path, here, mine)
    assert (ledger.others_today(), ledger.others_in_project()) == (6.5, 2.5)
    assert sum(one.dollars for one in all_payments(tmp_path)) == 7.5


def test_a_fork_does_not_count_its_past_twice(tmp_path: Path) -> None:
    original = write(tmp_path, tmp_path, 2.0, 0.5)
    copy = store.fork_session(tmp_path, tmp_path, original)
    events = [record.event for record in log.read(copy)]
    for limits in (Budgets(day=2.51), Budgets(project=2.51)):
        known = replace(limits, elsewhere=Ledger(tmp_path, tmp_path, copy))
        assert "$0.0100 of the" in spending.over_budget(SessionState(events), PAID, PROMPT, known)


def test_a_session_that_goes_on_counts_only_what_is_of_today_and_of_this_folder(
    tmp_path: Path,
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    path = store.new_path(tmp_path, there)
    paid = [*session(1.0, repo=str(there)), *session(2.0, repo=str(here))]
    day = 86400
    now = time.time()
    times = [now - 3 * day] * 3 + [now] * 3
    records = [
        Recorded(seq=n, at=at, event=event)
        for n, (at, event) in enumerate(zip(times, paid, strict=True))
    ]
    path.parent.mkdir(parents=True)
    path.write_text("".join(record.model_dump_json() + "\n" for record in records))
    assert [(one.repo, one.dollars) for one in all_payments(tmp_path)] == [
        (str(there), 1.0),
        (str(here), 2.0),
    ]
    for limits in (Budgets(day=2.51), Budgets(project=2.51)):
        known = replace(limits, elsewhere=Ledger(tmp_path, here, path))
        assert spending.remaining_budget(SessionState(paid), known) == pytest.approx(
            (0.51, "day" if limits.day else "project", 2.51)
        )


def test_a_line_that_cannot_be_read_takes_no_other_out_of_the_sum(tmp_path: Path) -> None:
    path = write(tmp_path, tmp_path, 1.0, 0.5)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(
        b"".join(
            [*lines[:3], b"garbage\n", b'{"seq":9,"at":1.0,"event":{"type":"new"}}\n', *lines[3:]]
        )
    )
    assert sum(one.dollars for one in all_payments(tmp_path)) == 1.5
    assert Ledger(tmp_path, tmp_path).others_today() == 1.5


def test_what_was_spent_today_is_known_when_its_logs_are_gone(tmp_path: Path) -> None:
    path = write(tmp_path, tmp_path, 1.0)
    assert Ledger(tmp_path, tmp_path).others_today() == 1.0
    log = Log.memory(session(repo=str(tmp_path)))
    account = Ledger(tmp_path, tmp_path).tab(log, tmp_path / "sessions" / "served" / "a.jsonl")
    log.append(spent(0.5))
    account.close()
    path.unlink()
    again = Ledger(tmp_path, tmp_path)
    assert (again.others_today(), again.others_in_project()) == (1.5, 1.5)


def test_a_call_of_a_killed_process_is_spent_and_known_to_its_session(tmp_path: Path) -> None:
    path = write(tmp_path, tmp_path, 1.0)
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom fugu_cli.messages import Usage\n"
        "from fugu_cli.session.events import Member, Price\n"
        "from fugu_cli.session.log import Log\nfrom fugu_cli.session.spending import Ledger\n"
        "data, path = Path(sys.argv[1]), Path(sys.argv[2])\n"
        "account = Ledger(data, data).tab(Log.open(path), path)\n"
        "member = Member(name='a', provider='openai', model='m', slot='strong', "
        "price=Price(input=10.0, output=20.0))\n"
        "account.begin_call(member, Usage(input=50_000, estimated_input=50_000), 5.0)\n"
        "os._exit(9)\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path), str(path)], check=False)
    ledger = Ledger(tmp_path, tmp_path)
    (lost,) = ledger.take_lost_calls(path)
    assert (lost.agent, lost.usage.input, ledger.reserved_by_others()) == ("a", 50_000, 0.0)
    assert ledger.others_today() == 1.5
    assert ledger.take_lost_calls(path) == []


def test_two_ledgers_never_reserve_more_than_the_day_has(tmp_path: Path) -> None:
    accounts = []
    for name in ("a", "b"):
        log = Log.memory(session(repo=str(tmp_path)))
        ledger = Ledger(tmp_path, tmp_path, day=1.0)
        accounts.append(ledger.tab(log, tmp_path / "sessions" / "served" / f"{name}.jsonl"))
    accounts[0].begin_call(PAID, Usage(), 0.7)
    with pytest.raises(AgentError, match=r"\$0.3000 of the day's budget of \$1.0000 are left"):
        accounts[1].begin_call(PAID, Usage(), 0.7)


def test_sessions_of_one_process_know_at_once_what_the_others_spend_and_hold(
    tmp_path: Path,
) -> None:
    ledger, here = Ledger(tmp_path, tmp_path), tmp_path / "sessions" / "served"
    log, other = Log.memory(session(repo=str(tmp_path))), Log.memory(session(repo=str(tmp_path)))
    tab, beside = ledger.tab(log, here / "a.jsonl"), ledger.tab(other, here / "b.jsonl")
    key = tab.begin_call(PAID, Usage(), 0.25)
    log.append(spent(1.0))
    assert (beside.others_today(), beside.others_in_project(), beside.reserved_by_others()) == (
        1.0,
        1.0,
        0.25,
    )
    assert (tab.others_today(), tab.others_in_project(), tab.reserved_by_others()) == (
        0.0,
        0.0,
        0.0,
    )
    said = spending.over_budget(other.state, PAID, PROMPT, Budgets(day=1.27, elsewhere=beside))
    assert "$0.0200 of the day's budget of $1.2700 are left" in said
    said = spending.over_budget(other.state, PAID, PROMPT, Budgets(day=1.0, elsewhere=beside))
    assert "$0.0000 of the day's budget of $1.0000 are left" in said
    tab.end_call(key, PAID, Usage())
    tab.close()
    assert (beside.others_today(), beside.reserved_by_others()) == (1.0, 0.0)


def test_a_failure_costs_what_its_provider_counted() -> None:
    failed = Failed(turn=1, what="a", kind="network", message="cut", usage=Usage(input=100_000))
    free = Failed(turn=1, what="a", kind="network", message="cut")
    assert (SessionState([*session(), free, failed]).cost, costs.usage([free, failed])) == (
        1.0,
        {"a": failed.usage},
    )
    assert costs.usage([free]) == {}
    recorded = [
        Recorded(seq=seq, at=0.0, event=event) for seq, event in enumerate([*session(), failed])
    ]
    payments = session_payments(recorded, SessionState.of_records(recorded).pool, "s")
    assert [(payment.agent, payment.dollars) for payment in payments] == [("a", 1.0)]
    assert [(one.turn, one.calls, one.dollars) for one in turn_costs("s", recorded)] == [
        (1, 1, 1.0)
    ]


def test_what_was_spent_on_other_days_is_not_of_today(tmp_path: Path) -> None:
    path = write(tmp_path, tmp_path, 1.0)
    old = [record.model_copy(update={"at": record.at - 3 * 86400}) for record in log.read(path)]
    path.write_text("".join(record.model_dump_json() + "\n" for record in old))
    ledger = Ledger(tmp_path, tmp_path)
    assert (ledger.others_today(), ledger.others_in_project()) == (0.0, 1.0)
    assert all_payments(tmp_path)[0].day == date.today() - timedelta(days=3)


def test_fugu_cost_sums_up_by_what_was_asked(capsys: pytest.CaptureFixture[str]) -> None:
    Path(".fugurc").write_text("max_budget_usd = { day = 10.0 }\n")
    loaded = load_config(Path.cwd(), {})
    write(loaded.config.data, loaded.root, 1.0, 0.5)
    write(loaded.config.data, Path("/elsewhere"), 4.0)
    assert sessions.show_cost("agent", None, False, False) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line.split() for line in shown[2:5]] == [
        ["agent", "calls", "in", "cached", "out", "cost"],
        ["a", "2", "0", "0", "75k", "$1.50"],
        ["all", "2", "0", "0", "75k", "$1.50"],
    ]
    assert shown[5] == "day's budget: $5.50 of $10.00 spent"
    assert sessions.show_cost("project", 1, True, True) == 0
    told = json.loads(capsys.readouterr().out)
    assert {row["name"]: row["cost_usd"] for row in told["rows"]} == {
        str(loaded.root): 1.5,
        "/elsewhere": 4.0,
        "all": 5.5,
    }
    assert told["budgets"] == {"day": [5.5, 10.0]}


def test_budgets_of_several_places_hold_together() -> None:
    Path.home().joinpath(".fugurc").write_text("max_budget_usd = { day = 9.0, session = 3.0 }\n")
    Path(".fugurc").write_text("max_budget_usd = { day = 99.0 }\n")
    loaded = load_config(Path.cwd(), {}, {"max_budget_usd": 0.5})
    assert (loaded.config.money.request, loaded.config.money.session, loaded.config.money.day) == (
        0.5,
        3.0,
        9.0,
    )
    assert "max_budget_usd (it may only be lowered)" in loaded.notes[0]
