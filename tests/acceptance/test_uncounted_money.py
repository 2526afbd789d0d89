"""Money that no server counted is estimated, shown as an estimate, and held to every budget."""

import json
import signal

from tests.acceptance.driving import Agent, Place
from tests.acceptance.loopback import Breaks, Loopback, Says, Use
from tests.unit.ui import atif_rules

DEAR = "{ input = 100.0, output = 200.0 }"
READ = Use("read", {"path": "a.txt"})


def test_a_server_that_counts_nothing_is_held_to_the_budget(place: Place, server: Loopback) -> None:
    place.configure(Agent("m", price=DEAR, more="max_tokens = 500"))
    (place.repo / "a.txt").write_text("x\n")
    server.react("m", lambda asked: Says(calls=(READ,), tokens=None))
    done = place.fugu("run", "--max-budget-usd", "3", "--output-format", "json", "read a.txt")
    result = json.loads(done.out)
    assert result["subtype"] == "error_max_budget_usd", done.err
    assert 1.0 < result["total_cost_usd"] <= 3.0
    assert result["estimated_cost_usd"] == result["total_cost_usd"]
    assert "~$" in place.fugu("cost").out


def test_what_a_server_counts_is_no_estimate(place: Place, server: Loopback) -> None:
    place.configure(Agent("m", price=DEAR))
    server.play("m", Says("It is so."))
    done = place.fugu("run", "--output-format", "json", "what is it?")
    result = json.loads(done.out)
    assert result["total_cost_usd"] == (100 * 100 + 10 * 200) / 1e6
    assert "estimated_cost_usd" not in result
    assert "~" not in place.fugu("cost").out


def test_an_estimate_is_marked_in_artifacts_and_for_each_model(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("m", price=DEAR))
    server.play("m", Says("It is so.", tokens=None))
    folder = place.folder / "out"
    options = ("--output-format", "stream-json", "--output-dir", str(folder))
    done = place.fugu("run", *options, "what is it?")
    result = json.loads(done.out.splitlines()[-1])
    (used,) = result["modelUsage"].values()
    assert used["estimatedCostUSD"] == used["costUSD"] == result["estimated_cost_usd"] > 0
    trajectory = json.loads((folder / "trajectory.json").read_text())
    atif_rules.check(trajectory)
    spent = [step["metrics"] for step in trajectory["steps"] if "metrics" in step]
    for metrics in (*spent, trajectory["final_metrics"]):
        cost = metrics.get("cost_usd", metrics.get("total_cost_usd"))
        assert metrics["extra"] == {"estimated_cost_usd": cost}


def test_negative_counts_are_unknown(place: Place, server: Loopback) -> None:
    place.configure(Agent("m", price=DEAR))
    server.play("m", Says("It is so.", tokens=(-1_000_000, -5)))
    done = place.fugu("run", "--output-format", "json", "what is it?")
    result = json.loads(done.out)
    assert result["total_cost_usd"] > 0
    assert result["usage"]["output_tokens"] == 3
    assert result["estimated_cost_usd"] == result["total_cost_usd"]


def test_streams_that_break_are_paid_for(place: Place, server: Loopback) -> None:
    place.configure(Agent("m", price=DEAR, more="max_tokens = 500"))
    broken = Breaks("cut", text="word " * 4000, pieces=2500)
    server.react("m", lambda asked: broken)
    done = place.fugu("run", "--max-budget-usd", "3", "--output-format", "json", "what is it?")
    result = json.loads(done.out)
    assert done.code != 0
    assert len(server.asked("m")) == 2
    assert 1.0 < result["estimated_cost_usd"] == result["total_cost_usd"]


def test_an_interrupted_call_is_paid_for(place: Place, server: Loopback) -> None:
    place.configure(Agent("m", price=DEAR))
    server.react("m", lambda asked: Says("word " * 4000, slow=0.05))
    process = place.start("run", "what is it?")
    server.wait_for("m")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    rows = json.loads(place.fugu("cost", "--json").out)["rows"]
    assert rows[0]["cost_usd"] > 0.1
    assert rows[0]["estimated_cost_usd"] == rows[0]["cost_usd"]


def test_a_call_under_way_at_a_kill_is_spent_and_counts_when_its_session_goes_on(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("m", price=DEAR), more="max_budget_usd = { day = 100.0 }")
    server.react("m", lambda asked: Says("word " * 4000, slow=0.05))
    process = place.start("run", "what is it?")
    server.wait_for("m")
    process.kill()
    process.communicate(timeout=20)
    spent = json.loads(place.fugu("cost", "--json").out)["budgets"]["day"][0]
    assert spent > 0.1

    server.play("m", Says("It is so."))
    assert place.fugu("run", "--continue", "what is it?").code == 0
    costs = json.loads(place.fugu("cost", "--json").out)
    assert costs["rows"][-1]["estimated_cost_usd"] == round(spent, 8)
    assert round(costs["budgets"]["day"][0], 6) == round(costs["rows"][-1]["cost_usd"], 6)


def test_what_is_paid_at_an_assumed_price_is_marked_wherever_it_is_shown(
    place: Place, server: Loopback
) -> None:
    gateway = Agent("claude-haiku-5-5", provider="anthropic")
    place.configure(gateway)
    configuration = place.home / ".fugurc"
    stated = f"price = {gateway.price}\n"
    configuration.write_text(configuration.read_text().replace(stated, ""))
    server.play("claude-haiku-5-5", Says("It adds two numbers."))
    done = place.fugu("run", "what does calc.txt say?")
    assert done.code == 0, done.err
    assert ", ~$" in done.err
    assert "~$" in place.fugu("trace", "latest").out
    assert "~$" in place.fugu("cost").out
    place.files({"calc.txt": "fixed\n"})
    server.play("claude-haiku-5-5", Says(json.dumps({"findings": []})))
    review = place.fugu("review")
    assert "~$" in review.out + review.err, review.err


def test_what_is_paid_at_a_stated_price_is_not_marked(place: Place, server: Loopback) -> None:
    place.configure(
        Agent("claude-haiku-5-5", provider="anthropic", price="{ input = 1, output = 5 }")
    )
    server.play("claude-haiku-5-5", Says("It adds two numbers."))
    done = place.fugu("run", "what does calc.txt say?")
    assert done.code == 0, done.err
    assert "~" not in done.err.splitlines()[-2]
