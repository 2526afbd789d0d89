"""Rules for web_fetch: by the host, off unless one names it, and never wider than they read."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import ValidationError

from fugu_cli.messages import Call
from fugu_cli.safety import web_addresses
from fugu_cli.safety.policy import Mode, Rules, judge, rule_matching

PYTHON = "https://docs.python.org/3/library/asyncio.html"


def verdict(url: str, mode: Mode = "edit", **rules: tuple[str, ...]) -> str:
    return judge(
        Call.make("1", "web_fetch", url=url), Rules(mode=mode, **rules), Path("/repo")
    ).verdict  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("rule", "url", "covers"),
    [
        ("web_fetch", "https://anything.example/x", True),
        ("web_fetch(*)", "https://anything.example/x", True),
        ("web_fetch(docs.python.org)", PYTHON, True),
        ("web_fetch(docs.python.org)", "http://DOCS.python.org.:80/", True),
        ("web_fetch(Docs.Python.org)", PYTHON, True),
        ("web_fetch(docs.python.org)", "https://docs.python.org.evil.example/", False),
        ("web_fetch(docs.python.org)", "https://evil.example/docs.python.org", False),
        ("web_fetch(docs.python.org)", "https://evil.example?docs.python.org", False),
        ("web_fetch(*.python.org)", PYTHON, True),
        ("web_fetch(*.python.org)", "https://python.org/", False),
        ("web_fetch(localhost:8000)", "http://localhost:8000/", True),
        ("web_fetch(localhost:8000)", "http://localhost:8001/", False),
        ("web_fetch(localhost)", "http://localhost:8001/", True),
        ("web_fetch([::1])", "http://[::1]:9/", True),
        ("web_fetch([::1]:9)", "http://[::1]:9/", True),
        ("web_fetch(xn--bcher-kva.example)", "https://bücher.example/", True),
        ("web_fetch(*.Bücher.example)", "https://www.bücher.example/", True),
        ("web_fetch(docs.python.org.)", PYTHON, True),
        ("web_*", "https://anything.example/", True),
    ],
)
def test_a_rule_covers_a_host(rule: str, url: str, covers: bool) -> None:
    assert (verdict(url, allow=(rule,)) == "allow") is covers
    assert (verdict(url, mode="yolo", deny=(rule,)) == "deny") is covers


def test_what_no_rule_allows_is_asked_about_or_refused_in_every_mode_but_yolo() -> None:
    modes: tuple[Mode, ...] = ("plan", "ask", "edit", "auto", "yolo")
    other = ("web_fetch(example.org)",)
    assert [verdict(PYTHON, mode, allow=other) for mode in modes] == [
        "deny",
        "ask",
        "ask",
        "deny",
        "allow",
    ]
    assert [verdict(PYTHON, mode, allow=("web_fetch",)) for mode in modes] == ["allow"] * 5
    assert verdict(PYTHON, allow=("web_fetch",), ask=("web_fetch(*.python.org)",)) == "ask"


def test_the_target_is_the_host_so_that_a_yes_for_the_session_covers_it() -> None:
    found = judge(Call.make("1", "web_fetch", url=PYTHON), Rules(ask=("web_fetch",)), Path("/repo"))
    assert (found.target, found.every_time) == ("web_fetch(docs.python.org)", False)
    found = judge(
        Call.make("1", "web_fetch", url="http://localhost:8000/a"), Rules(), Path("/repo")
    )
    assert found.target == "web_fetch(localhost:8000)"


@pytest.mark.parametrize(
    ("url", "fault"),
    [
        ("file:///etc/passwd", "only http:// and https:// are fetched"),
        ("ftp://host/x", "only http:// and https:// are fetched"),
        ("docs.python.org", "only http:// and https:// are fetched"),
        (
            "https://user:secret@docs.python.org/",
            "a user name or password in an address is not sent",
        ),
        (
            "https://docs.python.org@evil.example/",
            "a user name or password in an address is not sent",
        ),
        ("https://", "it names no host"),
        ("https://a b/", "it holds spaces, control characters or a backslash"),
        (
            "https://docs.python.org\\@evil.example/",
            "it holds spaces, control characters or a backslash",
        ),
        ("https://host:99999/", "Port out of range 0-65535"),
    ],
)
def test_an_address_that_cannot_be_fetched_says_why(url: str, fault: str) -> None:
    assert web_addresses.web_address(url) == fault
    assert verdict(url, allow=("web_fetch",)) == "allow"  # nothing will run


@pytest.mark.parametrize(
    "rule", ["web_fetch(https://docs.python.org)", "web_fetch(docs.python.org/3)", "web_fetch(a@b)"]
)
def test_a_rule_that_names_no_host_is_refused_where_it_is_written(rule: str) -> None:
    with pytest.raises(ValidationError, match="names no host; write it like web_fetch"):
        Rules(allow=(rule,))


def test_only_a_rule_that_names_the_tool_offers_it() -> None:
    assert rule_matching.any_names(("bash(git *)", "web_fetch(docs.python.org)"), "web_fetch")
    assert not rule_matching.any_names(("bash(curl *)", "*", "web_*"), "web_fetch")


def test_only_the_very_host_is_named_exactly() -> None:
    here = web_addresses.web_address("http://127.0.0.1:8000/")
    assert isinstance(here, web_addresses.WebAddress)
    named = [rule for rule in ("web_fetch", "web_fetch(*)", "web_fetch(127.*)", "web_fetch(127.0.0.1)",
             "web_fetch(127.0.0.1:8000)", "web_fetch(127.0.0.1:80)", "bash(127.0.0.1)")
             if rule_matching.any_names_host((rule,), here)]  # fmt: skip
    assert named == ["web_fetch(127.0.0.1)", "web_fetch(127.0.0.1:8000)"]


@pytest.mark.parametrize("tool", ["todo", "job_output", "job_stop"])
def test_what_the_session_keeps_needs_no_question_but_a_deny_rule_counts(tool: str) -> None:
    for mode in ("plan", "ask", "edit", "auto", "yolo"):
        call = Call.make("1", tool, job="job1")
        assert judge(call, Rules(mode=mode), Path("/repo")).verdict == "allow"
        assert judge(call, Rules(mode=mode, deny=(tool,)), Path("/repo")).verdict == "deny"
    assert judge(Call.make("1", tool), Rules(ask=(tool,)), Path("/repo")).verdict == "ask"


def test_a_command_in_the_background_is_judged_like_any_other() -> None:
    def both(command: str, rules: Rules) -> list[str]:
        calls = [Call.make("1", "bash", command=command, background=way) for way in (False, True)]
        return [judge(call, rules, Path("/repo")).model_dump_json() for call in calls]

    for command in ("npm run dev", "git push", "ls", "rm -rf /"):
        one, other = both(command, Rules(allow=("bash(npm *)",)))
        assert one == other
