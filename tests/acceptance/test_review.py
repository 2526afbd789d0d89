"""`fugu review` with real git: who looks, who judges, what is shown in which form, and the exit
code.
"""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.acceptance.driving import Agent, Place, ended
from tests.acceptance.loopback import Breaks, Loopback, Refuses, Says, Use

SARIF = Path(__file__).parents[1] / "recorded" / "schemas" / "sarif-2.1.0.json"
"""The OASIS schema, without its descriptions."""
POOL = (
    Agent("large", slot="strong", more='vendor = "one"', price="{ input = 1000.0, output = 0.0 }"),
    Agent("twin", slot="strong", more='vendor = "one"'),
    Agent("other", slot="cheap", more='vendor = "two"'),
)


def finding(
    file: str = "calc.txt", line: int = 1, title: str = "The sum is wrong.", **more: object
) -> dict[str, object]:
    told = {"severity": "error", "category": "bug", "explanation": "2 + 2 gives 5."}
    return {"file": file, "line": line, "end_line": line, "title": title, **told, **more}


def says(**value: object) -> Says:
    return Says(json.dumps(value))


def verdict(number: int, confirmed: bool, reason: str = "I followed it.") -> dict[str, object]:
    return {"number": number, "confirmed": confirmed, "reason": reason}


def git(place: Place, *words: str) -> str:
    return subprocess.run(
        ["git", *words],
        cwd=place.repo,
        env=place.environ(),
        check=True,
        capture_output=True,
        text=True,
    ).stdout


def changed(place: Place, *agents: Agent) -> None:
    place.configure(*(agents or POOL))
    place.files({"calc.txt": "one\ntwo\nthree\n", "new file.txt": "new\n"})


def test_another_vendors_agent_judges_each_finding_before_it_is_shown(
    place: Place, server: Loopback
) -> None:
    changed(place)
    before = git(place, "status", "--porcelain")
    reads = Says(
        calls=(
            Use("read", {"path": "calc.txt"}),
            Use("write", {"path": "calc.txt", "content": "x"}),
        )
    )
    findings = [
        finding(),
        finding(line=2, title="Two is odd."),
        finding("elsewhere.txt"),
        finding(line=99, severity="note"),
    ]
    server.play("large", reads, says(findings=findings))
    server.play(
        "other", says(verdicts=[verdict(1, True), verdict(2, False), verdict(3, True, "Seen.")])
    )
    done = place.fugu("review")
    assert done.code == 3, done.err
    assert done.out == (
        "calc.txt:1: error: The sum is wrong.\n    2 + 2 gives 5.\n    confirmed by other: I "
        "followed it.\n\n"
        "calc.txt:4: note: The sum is wrong.\n    2 + 2 gives 5.\n    confirmed by other: Seen.\n\n"
        "2 findings: large reported 3, other confirmed 2; $0.20\n"
    )
    assert (server.asked("twin"), git(place, "status", "--porcelain")) == ([], before)
    (asked,) = server.asked("other")
    assert (
        "2. calc.txt, line 2 (bug, error): Two is odd." in asked.text,
        "+three" in asked.text,
    ) == (True, True)
    assert "large" not in asked.text
    assert "this folder has no session yet" in place.fugu("sessions").out
    assert "there is no session yet" in place.fugu("sessions", "--all").out


def test_the_report_is_valid_sarif_and_json(place: Place, server: Loopback) -> None:
    changed(place)
    server.play(
        "large", says(findings=[finding("new file.txt", title="\x1b[31mBad\u202e"), finding()])
    )
    server.play("other", says(verdicts=[verdict(1, True), verdict(2, True)]))
    done = place.fugu("review", "--format", "sarif")
    report = json.loads(done.out)
    jsonschema.validate(report, json.loads(SARIF.read_text()))
    (run,) = report["runs"]
    places = [result["locations"][0]["physicalLocation"] for result in run["results"]]
    assert [(at["artifactLocation"]["uri"], at["region"]) for at in places] == [
        ("calc.txt", {"startLine": 1, "endLine": 1}),
        ("new%20file.txt", {"startLine": 1, "endLine": 1}),
    ]
    assert [(one["ruleId"], one["level"]) for one in run["results"]] == [("bug", "error")] * 2
    assert run["results"][1]["message"]["text"].startswith("Bad\\u202e\n\n")
    done = place.fugu("review", "--format", "json")
    report = json.loads(done.out)
    assert (done.code, [one["file"] for one in report["findings"]]) == (
        3,
        ["calc.txt", "new file.txt"],
    )
    assert (report["finder"], report["verifier"], report["reported"]) == ("large", "other", 2)


def test_nothing_found_is_0_and_an_empty_report_is_valid(place: Place, server: Loopback) -> None:
    changed(place)
    server.play("large", says(findings=[]))
    done = place.fugu("review")
    assert (done.code, done.out) == (0, "0 findings: large reported 0; $0.10\n")
    git(place, "add", "-A")
    git(place, "commit", "-qm", "all")
    done = place.fugu("review", "--format", "sarif")
    jsonschema.validate(json.loads(done.out), json.loads(SARIF.read_text()))
    assert (done.code, json.loads(done.out)["runs"][0]["results"]) == (0, [])
    assert place.fugu("review").out == "nothing to review\n"


def test_the_base_is_where_the_branch_began(place: Place, server: Loopback) -> None:
    place.configure(*POOL)
    git(place, "branch", "-M", "main")
    git(place, "checkout", "-qb", "work")
    place.files({"calc.txt": "mine\n"})
    git(place, "commit", "-qam", "mine")
    git(place, "checkout", "-q", "main")
    place.files({"check.sh": "exit 0\n"})
    git(place, "commit", "-qam", "theirs")
    git(place, "checkout", "-q", "--detach", "work")
    server.play("large", says(findings=[]))
    assert place.fugu("review", "--base", "main").code == 0
    (asked,) = server.asked("large")
    assert ("+mine" in asked.text, "+exit 0" in asked.text, "-exit 0" in asked.text) == (
        True,
        False,
        False,
    )


def test_a_file_changed_in_the_second_of_its_commit_is_reviewed(
    place: Place, server: Loopback
) -> None:
    git(place, "config", "core.trustctime", "false")
    (file, index), second = (place.repo / "a.py", place.repo / ".git" / "index"), (1e9, 1e9)
    place.files({"a.py": "a = 1\n"})
    os.utime(file, second)
    place.commit()
    place.files({"a.py": "a = 2\n"})
    os.utime(file, second)
    os.utime(index, second)
    place.configure(*POOL)
    server.play("large", says(findings=[]))
    assert place.fugu("review").code == 0
    assert "+a = 2" in server.asked("large")[0].text


def test_a_sparse_checkout_is_reviewed_with_new_files_outside_of_it(
    place: Place, server: Loopback
) -> None:
    place.files({"src/a.py": "a = 1\n", "docs/a.md": "kept\n"})
    place.commit()
    git(place, "sparse-checkout", "set", "src")
    place.files({"src/a.py": "a = 2\n", "docs/new.md": "new\n"})
    place.configure(*POOL)
    server.play("large", says(findings=[]))
    done = place.fugu("review")
    assert done.code == 0, done.err
    (asked,) = server.asked("large")
    assert ("+a = 2" in asked.text, "docs/new.md" in asked.text) == (True, True)
    assert "kept" not in asked.text


def partial_clone(place: Place) -> None:
    """The repository is a clone that holds no file of an earlier commit."""
    origin = place.folder / "origin"
    for number in range(3):
        place.files({"calc.txt": f"{number}\n" * 50})
        place.commit()
    place.repo.rename(origin)
    for name in ("allowFilter", "allowAnySHA1InWant"):
        subprocess.run(["git", "-C", origin, "config", f"uploadpack.{name}", "true"], check=True)
    words = ["git", "clone", "-q", "--filter=blob:none", origin.as_uri(), place.repo]
    subprocess.run(words, check=True, env=place.environ())


def test_what_a_partial_clone_lacks_is_fetched(place: Place, server: Loopback) -> None:
    partial_clone(place)
    place.configure(*POOL)
    server.play("large", says(findings=[]))
    done = place.fugu("review", "--base", "HEAD~2")
    assert done.code == 0, done.err
    assert "-0" in server.asked("large")[0].text


def test_a_remote_that_never_answers_is_not_waited_for(place: Place) -> None:
    partial_clone(place)
    place.configure(*POOL)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        git(place, "remote", "set-url", "origin", f"git://127.0.0.1:{mute.getsockname()[1]}/x")
        done = place.fugu("review", "--base", "HEAD~2")
    assert (done.code, "the remote did not send what" in done.err) == (1, True), done.err
    assert place.left_behind() == []


def test_who_does_not_answer_is_replaced_and_a_lone_agent_judges_itself(
    place: Place, server: Loopback
) -> None:
    changed(place)
    for fault in (Refuses(401, "no"), Says("I found nothing.")):
        server.play("large", fault)
        server.play("twin", says(findings=[finding()]))
        server.play("other", says(verdicts=[verdict(1, True)]))
        done = place.fugu("review")
        assert (done.code, "twin reported 1, other confirmed 1" in done.out) == (3, True), done.err
    changed(place, POOL[0])
    server.play("large", says(findings=[finding()]), says(verdicts=[]))
    done = place.fugu("review")
    assert (done.code, "not finished: large judged 0 of 1 finding" in done.out) == (3, True), (
        done.out
    )
    assert "in a session of its own: the pool has no other agent" in done.out
    assert "large reports 1 finding, which it judges now" in done.err
    done = place.fugu("review", "--time-limit", "0.001")
    assert (done.code, "large gave no answer: the time limit was reached" in done.err) == (
        3,
        True,
    ), done.err
    server.play("large", says(findings=[finding()]), Refuses(401, "no"))
    done = place.fugu("review")
    assert (done.code, "not finished: nobody judged 1 finding, which `fugu trace " in done.out) == (
        3,
        True,
    ), done.out


def test_secrets_and_files_that_agents_may_not_read_stay_here(
    place: Place, server: Loopback
) -> None:
    place.configure(*POOL, more='deny = ["read(private/**)"]')
    place.files(
        {"private/a.txt": "nobody knows\n", "calc.txt": "sk-abcdefghijklmnopqrstuvwxyz123456\n"}
    )
    server.play("large", says(findings=[]))
    assert place.fugu("review").code == 0
    (asked,) = server.asked("large")
    assert [word in asked.text for word in ("nobody knows", "private/a.txt", "sk-abcdef")] == [
        False,
        True,
        False,
    ]


@pytest.mark.parametrize(
    ("given", "code", "said"),
    [
        (("--base", "nowhere"), 1, "there is no commit 'nowhere' here"),
        (("--base", "--output=x"), 1, "there is no commit '--output=x' here"),
        (("--format", "xml"), 1, "'xml' is not one of"),
        (("--agent", "nobody"), 1, "there is no agent 'nobody' that may review"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_spent(
    place: Place, server: Loopback, given: tuple[str, ...], code: int, said: str
) -> None:
    changed(place)
    server.play("large", says(findings=[]))
    done = place.fugu("review", *given)
    assert (done.code, said in done.err, server.asked("large")) == (code, True, []), done.err
    assert "is not in a git repository" in place.fugu("review", folder=place.home).err


def test_no_answer_is_infrastructure_and_no_budget_is_a_limit(
    place: Place, server: Loopback
) -> None:
    changed(place, POOL[0])
    server.play("large", Refuses(401, "no"))
    assert place.fugu("review").code == 2
    server.play("large", Says("I found nothing."))
    done = place.fugu("review")
    assert (
        done.code,
        "large gave no answer: the answer does not follow the JSON schema" in done.err,
    ) == (3, True)
    server.play("large", says(findings=[finding()]))
    done = place.fugu("review", "--max-budget-usd", "0.05")
    assert done.code == 3, done.out


def test_ctrl_c_ends_it_at_once_with_4(place: Place, server: Loopback) -> None:
    changed(place, POOL[0])
    server.play("large", Breaks("hang"))
    process = place.start("review")
    server.wait_for("large")
    process.send_signal(signal.SIGINT)
    assert ended(process).code == 4


def test_a_question_that_is_killed_is_in_no_list_of_sessions(
    place: Place, server: Loopback
) -> None:
    changed(place, POOL[0])
    server.play("large", Breaks("hang"))
    process = place.start("review")
    server.wait_for("large")
    process.kill()
    ended(process)
    assert "this folder has no session yet" in place.fugu("sessions").out
