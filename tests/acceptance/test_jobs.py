"""Background jobs of the real binary: told in every output, and gone with it however it goes."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest

from fugu_cli.session.events import JobEnded, ToolRan
from tests.acceptance.driving import Place, ended, objects

AWAY = "(setsid nohup sleep 600 >/dev/null 2>&1 &); sleep 600"
LINUX = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs /proc")


def step(*calls: tuple[str, dict[str, object]], text: str = "") -> str:
    """A step of a script."""
    made = ", ".join(
        f"{{ tool = {json.dumps(tool)}, arguments = {json.dumps(json.dumps(given))} }}"
        for tool, given in calls
    )
    return f"[[step]]\ntext = {json.dumps(text)}\ncalls = [{made}]\n"


def script(place: Place, *steps: str) -> tuple[str, ...]:
    """The flags of a run that answers so."""
    path = place.folder / "script.toml"
    path.write_text("".join(steps))
    return ("--script", str(path), "--yolo")


def job(command: str) -> tuple[str, dict[str, object]]:
    return ("bash", {"command": command, "background": True})


def running(place: Place, part: str) -> bool:
    return any(command.startswith(part) for command in place.left_behind())


def test_a_run_says_that_a_job_was_started_and_how_it_ended(place: Place) -> None:
    first = step(
        job("echo one; exit 3"), ("job_output", {"job": "job1", "wait": 60}), job("sleep 600")
    )
    flags = script(place, first, step(text="Done."), step(text="ACCEPT"))
    done = place.fugu("run", "tell me of it", *flags)
    assert done.code == 0, done.err
    assert (
        "✓ bash echo one; exit 3, in the background " in done.err and " started as job1" in done.err
    )
    assert "  job1: exit code 3, " in done.err
    assert "  job2: ended with the session, " in done.err
    assert [event.job for event in place.events() if isinstance(event, ToolRan)][:3] == [
        "job1",
        "",
        "job2",
    ]
    done = place.fugu(
        "run", "tell me of it", *flags, "--output-format", "stream-json", "--output-dir", "../out"
    )
    lines = [line for line in objects(done.out) if line.get("subtype") == "job_ended"]
    assert [(line["job"], line["by"], line["code"]) for line in lines] == [
        ("job1", "itself", 3),
        ("job2", "session", None),
    ]
    steps = json.loads((place.folder / "out" / "trajectory.json").read_text())["steps"]
    told = [
        one["message"]
        for one in steps
        if one["source"] == "system" and one["message"].startswith("job")
    ]
    assert [text.partition(",")[0] for text in told] == [
        "job1: exit code 3",
        "job2: ended with the session",
    ]


@LINUX
@pytest.mark.parametrize("way", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_job_outlives_fugu_however_it_ends_and_a_resumed_session_says_so(
    place: Place, way: signal.Signals
) -> None:
    flags = script(
        place,
        step(job(AWAY)),
        step(("bash", {"command": "sleep 601", "timeout": 600})),
        step(("job_output", {"job": "job1"}), job("true")),
        step(text="Done."),
        step(text="ACCEPT"),
    )
    process = place.start("run", "serve it", *flags)
    while not (running(place, "sleep 600") and running(place, "sleep 601")):
        assert process.poll() is None, ended(process)
        time.sleep(0.05)
    os.kill(process.pid, way)
    code = ended(process).code
    assert code == (-way if way == signal.SIGKILL else 4)
    deadline = time.monotonic() + 20
    while running(place, "sleep") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not running(place, "sleep")
    place.fugu("run", "--continue", *flags)
    ran = [event for event in place.events() if isinstance(event, ToolRan)]
    said = "[job1: ended with the session. Its output is not kept.]"
    assert [(event.output, event.job) for event in ran if event.call.tool == "job_output"] == [
        (said, "")
    ]
    assert [event.job for event in ran if event.job] == ["job1", "job2"]
    ends = [event.job for event in place.events() if isinstance(event, JobEnded)]
    assert ends == (["job2"] if way == signal.SIGKILL else ["job1", "job2"])


def test_web_fetch_is_off_until_a_rule_names_it(place: Place) -> None:
    flags = script(
        place,
        step(("web_fetch", {"url": "http://127.0.0.1:9/"})),
        step(text="Done."),
        step(text="ACCEPT"),
    )
    (place.repo / ".fugurc").write_text('allow = ["web_fetch(127.0.0.1)"]\n')

    def said(*more: str) -> str:
        done = place.fugu("run", "tell me of it", *flags[:2], *more)
        assert done.code == 0, done.err
        return next(event.output for event in place.events() if isinstance(event, ToolRan))

    assert said("--yolo").startswith("There is no tool `web_fetch`.")
    assert said("--trust").startswith("http://127.0.0.1:9/ could not be fetched: ")
    assert said("--allow", "web_fetch(127.0.0.1)").startswith(
        "http://127.0.0.1:9/ could not be fetched: "
    )
    assert said("--allow", "web_fetch").startswith(
        "127.0.0.1 was not asked: 127.0.0.1 is an address of this machine"
    )
    refused = place.fugu("run", "tell me of it", *flags, "--allow", "web_fetch(http://a/b)")
    assert refused.code == 1
    assert "names no host; write it like web_fetch(docs.python.org)" in refused.err
