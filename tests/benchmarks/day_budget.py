"""CPU milliseconds that a day's budget costs each served request, after many earlier requests.

    PYTHONPATH=TREE python tests/benchmarks/day_budget.py 1000 100000
    PYTHONPATH=TREE python -m tests.benchmarks.day_budget serve 100000

`TREE` is the checkout to measure. The second line measures whole requests to `fugu serve`. The
earlier requests lie in logs of 1,000 requests each. A request opens its account, looks at the
budget twice, reserves its call, logs its reply and closes.
"""

import sys
import tempfile
import time
from pathlib import Path

from fugu_cli.messages import FromUser, Prompt, Usage
from fugu_cli.session import spending, store
from fugu_cli.session.events import RECORDED, Asked, Member, Opened, Price, Recorded, Replied
from fugu_cli.session.log import Log
from fugu_cli.session.spending import Budgets, Ledger

MEMBER = Member(
    name="a", provider="openai", model="m", slot="strong", price=Price(input=1.0, output=2.0)
)
PROMPT = Prompt(system="", messages=(FromUser(text="x" * 300),), max_tokens=1000)
REPLY = Replied(turn=1, agent="a", text="x", usage=Usage(input=100, output=10))
REQUESTS = 50
LOG_LINES = 1000
SERVED = 300
"""Requests that are measured of each kind."""


def write_earlier(data: Path, count: int) -> None:
    """Write `count` paid requests of today."""
    opened = Opened(version="1", repo="/repo", pool=(MEMBER,))
    for number in range(count // LOG_LINES):
        path = store.session_folder(data, Path("/repo")) / f"20260101-000000-{number:04x}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [opened, Asked(text="x"), *[REPLY] * LOG_LINES]
        records = (
            Recorded(seq=seq, at=time.time() - 1 + seq * 1e-6 + number * 1e-8, event=event)
            for seq, event in enumerate(lines)
        )
        path.write_bytes(b"".join(RECORDED.dump_json(record) + b"\n" for record in records))


def serve_request(ledger: Ledger, data: Path, number: int) -> None:
    """Do with the ledger what one request does."""
    log = Log.memory([Opened(version="1", repo="/repo", pool=(MEMBER,)), Asked(text="x")])
    account = ledger.tab(log, data / "sessions" / "served" / f"{number}.jsonl")
    budgets = Budgets(day=1e9, elsewhere=account)
    for _ in range(2):
        assert not spending.over_budget(log.state, MEMBER, PROMPT, budgets)
    if hasattr(account, "hold"):  # before there was one file for all processes
        account.hold(0.01)
        account.hold(-0.01)
        log.append(REPLY)
    else:
        key = account.begin_call(MEMBER, Usage(input=100), 0.01)
        account.end_call(key, MEMBER, REPLY.usage)
        log.append(REPLY)
    log.close()
    account.close()


def measure(count: int) -> tuple[float, float]:
    """CPU milliseconds of the first request, and of each one after it."""
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        write_earlier(data, count)
        ledger = Ledger(data, Path("/repo"))
        begun = time.process_time()
        serve_request(ledger, data, 0)
        first = time.process_time() - begun
        begun = time.process_time()
        for number in range(1, REQUESTS + 1):
            serve_request(ledger, data, number)
        return first * 1000, (time.process_time() - begun) / REQUESTS * 1000


def measure_served(count: int) -> None:
    """Print the endpoint's CPU for each of its requests, by kind."""
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    with (
        loopback.running() as server,
        serve.serving(
            server.url,
            "max_budget_usd = { day = 1000000.0 }\n",
            lambda data: write_earlier(data, count),
        ) as endpoint,
        httpx.Client(timeout=60) as client,
    ):
        server.play(serve.MODEL, loopback.Says("The answer is forty-two, as everybody knows."))
        kinds: dict[str, dict[str, object]] = {
            "an agent by its name": {"model": "one"},
            "the pool, with a tool of the client's": {"model": "fugu", "tools": [tool]},
        }
        for name, fields in kinds.items():
            request = serve.body(stream=False) | fields
            for number in range(20 + SERVED):
                if number == 20:
                    before = endpoint.processor()
                answer = client.post(f"{endpoint.url}/chat/completions", json=request)
                assert answer.status_code == 200, answer.text
            each = (endpoint.processor() - before) / SERVED
            print(f"{name}: {each:.1f} ms of CPU a request after {count:,} earlier ones")


if __name__ == "__main__" and sys.argv[1] == "serve":
    import httpx

    from tests.acceptance import loopback
    from tests.benchmarks import serve

    measure_served(int(sys.argv[2]))
elif __name__ == "__main__":
    print("earlier requests   first request (ms CPU)   each later one (ms CPU)")
    for argument in sys.argv[1:]:
        first, later = measure(int(argument))
        print(f"{int(argument):>16,}   {first:>22.1f}   {later:>23.2f}")
