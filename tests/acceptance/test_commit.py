"""`fugu commit` with real git: messages, trailers, notes, and a colleague's clone that reads them
back.
"""

import json
import shutil
import subprocess
from pathlib import Path

import jsonschema
import pytest

from tests.acceptance.driving import Agent, Done, Place
from tests.acceptance.loopback import Loopback, Says, Use

SCHEMA = Path(__file__).parents[1] / "recorded" / "schemas" / "agent-trace-0.1.0.json"
"""The record's schema as https://agent-trace.dev publishes it, without its descriptions."""
PRICED = "{ input = 100.0, output = 1000.0 }"
FIXED = Use("write", {"path": "calc.txt", "content": "fixed\nby an agent\n"})
MESSAGE = Says(json.dumps({"message": "calc: fix the sum\n\nIt was broken."}))


def git(place: Place, *arguments: str, folder: Path | None = None, check: bool = True) -> str:
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder or place.repo,
        env=place.environ(),
        capture_output=True,
        text=True,
        check=check,
    )
    return done.stdout


def fixed(place: Place, server: Loopback) -> None:
    """An agent has changed a file; nothing is staged."""
    place.configure(Agent("worker", price=PRICED))
    server.play(
        "worker",
        Says(calls=(Use("read", {"path": "calc.txt"}),)),
        Says(calls=(FIXED,)),
        Says("Done."),
        Says("ACCEPT"),
    )
    done = place.fugu("run", "--permission-mode", "auto", "fix it", "--agent", "worker")
    assert done.code == 0, done.err


def committed(place: Place, server: Loopback, *more: str) -> Done:
    server.play("worker", MESSAGE)
    return place.fugu("commit", *more)


def test_the_message_is_an_agents_and_trailers_and_a_note_say_who_wrote_what(
    place: Place, server: Loopback
) -> None:
    fixed(place, server)
    place.files({"mine.txt": "mine\n"})
    git(place, "add", "mine.txt", "calc.txt")
    done = committed(place, server, "--yes")
    assert done.code == 0, done.err
    cost = git(place, "log", "-1", "--format=%(trailers:key=Fugu-Agent,valueonly)").strip()
    assert cost == "worker 2 lines $0.06"
    assert git(place, "log", "-1", "--format=%B").startswith(
        "calc: fix the sum\n\nIt was broken.\n\nFugu-Agent: "
    )
    (asked,) = server.asked("worker")
    assert ("+by an agent" in asked.text, "Newest messages:\\nstart" in asked.text) == (True, True)
    commit = git(place, "rev-parse", "HEAD").strip()
    record = json.loads(git(place, "notes", "--ref=fugu", "show", commit))
    (file,) = record["files"]
    (conversation,) = file["conversations"]
    assert (record["version"], record["vcs"]) == ("0.1.0", {"type": "git", "revision": commit})
    assert (file["path"], conversation["contributor"]) == (
        "calc.txt",
        {"type": "ai", "model_id": "openai/worker-2026-01-01"},
    )
    assert conversation["ranges"] == [{"start_line": 1, "end_line": 2}]
    assert record["timestamp"].endswith(
        "Z"
    )  # what the specification's own reader asks for, beside its schema
    jsonschema.validate(
        record, json.loads(SCHEMA.read_text()), format_checker=jsonschema.FormatChecker()
    )
    assert (
        place.fugu("sessions").out.count("\n") == 1
    )  # the question about the message is in no list
    assert "no session" not in place.fugu("undo", "--yes").err
    assert (place.repo / "calc.txt").read_text() == "broken\n"


def test_a_clone_without_sessions_reads_the_notes_back(place: Place, server: Loopback) -> None:
    fixed(place, server)
    assert committed(place, server, "--yes", "-a").code == 0
    clone = place.folder / "clone"
    git(place, "clone", "-q", str(place.repo), str(clone), folder=place.folder)
    place.variables["XDG_DATA_HOME"] = str(place.folder / "other")
    before = json.loads(place.fugu("blame", "calc.txt", "--format", "json", folder=clone).out)
    assert [line["agent"] for line in before["lines"]] == [None, None]
    git(place, "fetch", "-q", "origin", "refs/notes/fugu:refs/notes/fugu", folder=clone)
    (clone / "calc.txt").write_text("my own line\n" + (clone / "calc.txt").read_text())
    after = json.loads(place.fugu("blame", "calc.txt", "--format", "json", folder=clone).out)
    assert [(line["text"], line["agent"], line["model"]) for line in after["lines"]] == [
        ("my own line", None, None),
        ("fixed", "worker", "openai/worker-2026-01-01"),
        ("by an agent", "worker", "openai/worker-2026-01-01"),
    ]
    assert (after["noted_lines"], [turn["cost_usd"] for turn in after["turns"]]) == (2, [0.06])
    assert (
        "told by git notes (refs/notes/fugu)" in place.fugu("blame", "calc.txt", folder=clone).out
    )


HOSTILE = {
    "version": "0.1.0",
    "files": [
        {
            "path": "calc.txt",
            "conversations": [
                {
                    "url": "urn:x",
                    "contributor": {"type": "ai", "model_id": "a/\x1b]0;owned\x07b"},
                    "ranges": [{"start_line": 1, "end_line": 1}],
                }
            ],
        }
    ],
    "metadata": {
        "fugu": {
            "turns": {
                "urn:x": {"agent": "e\x1b[31mvil\n\u202e" + "x" * 500, "session": "$(touch x)"}
            }
        }
    },
}


MANY = [{"start_line": 1, "end_line": 10**9}] * 50_000


@pytest.mark.parametrize(
    ("note", "agent"),
    [
        (json.dumps(HOSTILE), "e[31mvil" + "x" * 72),
        ("[" * 100_000, None),
        (json.dumps({"files": [{"path": "calc.txt", "conversations": [{"ranges": MANY}]}]}), "ai"),
        (json.dumps({"files": [{"path": 7}]}), None),
        ("just words", None),
    ],
    ids=["names", "depth", "ranges", "types", "words"],
)
def test_a_note_of_somebody_else_is_data_that_is_shown_clean(
    place: Place, server: Loopback, note: str, agent: str | None
) -> None:
    place.configure(Agent("worker"))
    (place.folder / "note").write_text(note)
    git(place, "notes", "--ref=fugu", "add", "-F", str(place.folder / "note"), "HEAD")
    done = place.fugu("blame", "calc.txt", "--format", "json")
    assert (done.code, [line["agent"] for line in json.loads(done.out)["lines"]]) == (0, [agent]), (
        done.err
    )
    assert "\x1b" not in place.fugu("blame", "calc.txt").out
    assert sorted(path.name for path in place.repo.iterdir()) == [".git", "calc.txt", "check.sh"]


def test_a_name_that_git_writes_in_quotes_is_found_in_its_note(place: Place) -> None:
    place.files({'we"ird.txt': "odd\n"})
    place.commit()
    place.configure(Agent("worker"))
    ranges = [{"start_line": 1, "end_line": 1}]
    file = {
        "path": 'we"ird.txt',
        "conversations": [{"contributor": {"type": "ai", "model_id": "a/b"}, "ranges": ranges}],
    }
    git(place, "notes", "--ref=fugu", "add", "-m", json.dumps({"files": [file]}), "HEAD")
    done = place.fugu("blame", 'we"ird.txt', "--format", "json")
    assert [line["agent"] for line in json.loads(done.out)["lines"]] == ["a/b"]


def test_only_what_was_asked_for_is_committed(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    place.files({"calc.txt": "fixed\n", "new.txt": "new\n", "check.sh": "exit 0\n"})
    git(place, "add", "check.sh")
    assert committed(place, server, "--yes", "new.txt").code == 0
    assert git(place, "show", "--name-only", "--format=%s") == "calc: fix the sum\n\nnew.txt\n"
    assert git(place, "status", "--porcelain") == " M calc.txt\nM  check.sh\n"
    assert committed(place, server, "-m", "second", "-m", "a paragraph").code == 0
    assert (
        git(place, "show", "--name-only", "--format=%B") == "second\n\na paragraph\n\n\ncheck.sh\n"
    )
    assert server.asked("worker") == []
    assert git(place, "status", "--porcelain") == " M calc.txt\n"


def test_hooks_decide_and_what_they_change_is_noted_as_it_was_committed(
    place: Place, server: Loopback
) -> None:
    fixed(place, server)
    hook = place.repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\necho too long >&2\nexit 1\n")
    hook.chmod(0o755)
    done = committed(place, server, "--yes", "-a")
    assert (done.code, "too long" in done.err, "git did not commit (exit code 1)" in done.err) == (
        1,
        True,
        True,
    )
    assert "calc: fix the sum" in (place.repo / ".git" / "FUGU_EDITMSG").read_text()
    hook.write_text(
        "#!/bin/sh\n{ echo '# checked'; cat calc.txt; } > t && mv t calc.txt && git add calc.txt\n"
    )
    assert committed(place, server, "--yes", "-a").code == 0
    record = json.loads(git(place, "notes", "--ref=fugu", "show", "HEAD"))
    assert record["files"][0]["conversations"][0]["ranges"] == [{"start_line": 2, "end_line": 3}]


@pytest.mark.parametrize("scope", [("-a",), ("calc.txt", "it's new.txt")])
def test_the_line_for_a_kept_message_commits_what_was_asked_for(
    place: Place, server: Loopback, scope: tuple[str, ...]
) -> None:
    place.configure(Agent("worker"))
    place.repo.rename(place.folder / "my project")
    place.repo.symlink_to("my project")
    place.files({"staged.txt": "staged\n", "it's new.txt": "new\n"})
    git(place, "add", "staged.txt")
    place.files({"calc.txt": "fixed\n"})
    hook = place.repo / ".git" / "hooks" / "pre-commit"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text("#!/bin/sh\nexit 1\n")
    hook.chmod(0o755)
    done = committed(place, server, "--yes", *scope)
    assert done.code == 1
    hook.unlink()
    line = done.err.partition("the message is kept: ")[2]
    again = subprocess.run(
        ["sh", "-c", line], cwd=place.repo, env={**place.environ(), "GIT_EDITOR": "true"}
    )
    assert again.returncode == 0, line
    names = git(place, "show", "--name-only", "--format=%s").splitlines()
    assert names[0] == "calc: fix the sum"
    assert set(names[2:]) == set(scope if scope != ("-a",) else ("calc.txt", "staged.txt"))


def conflict(place: Place) -> None:
    """A merge that stopped at a conflict in calc.txt."""
    git(place, "switch", "-q", "-c", "side")
    place.files({"calc.txt": "side\n"})
    place.commit()
    git(place, "switch", "-q", "-")
    place.files({"calc.txt": "main\n"})
    place.commit()
    git(place, "merge", "-q", "side", check=False)
    assert "<<<<<<<" in (place.repo / "calc.txt").read_text()


@pytest.mark.parametrize("scope", [("-a",), ("-a", "-m", "merged"), ()])
def test_conflict_marks_are_not_committed_and_the_files_are_named(
    place: Place, server: Loopback, scope: tuple[str, ...]
) -> None:
    place.configure(Agent("worker"))
    conflict(place)
    done = committed(place, server, "--yes", *scope)
    assert (done.code, "calc.txt" in done.err, server.asked("worker")) == (1, True, []), done.err
    place.files({"calc.txt": "both\n>>>>>>> side\n"})
    git(place, "add", "calc.txt")
    done = committed(place, server, "--yes")
    assert (done.code, "conflict marks (<<<<<<<) in calc.txt" in done.err) == (1, True), done.err
    place.files({".gitattributes": "calc.txt -diff\n"})
    done = committed(place, server, "--yes")
    assert (done.code, "conflict marks (<<<<<<<) in calc.txt" in done.err) == (1, True), done.err
    place.files({"calc.txt": "both\n=======\n"})
    assert committed(place, server, "--yes", "-a").code == 0
    assert git(place, "log", "-1", "--format=%p").count(" ") == 1
    meant = "<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n"
    place.files({"calc.txt": f"{meant}text\n"})
    git(place, "commit", "-qam", "an example")
    place.files({"calc.txt": f"text\n{meant}"})
    assert committed(place, server, "--yes", "-a").code == 0, "the marks were moved"
    place.files({"calc.txt": f"text\n{meant.replace('a', 'c')}"})
    done = committed(place, server, "--yes", "-a")
    assert (done.code, "conflict marks (<<<<<<<) in calc.txt" in done.err) == (1, True), done.err


@pytest.mark.parametrize("by", ["core.autocrlf", ".gitattributes"])
def test_lines_are_their_writers_where_git_converts_line_ends(
    place: Place, server: Loopback, by: str
) -> None:
    if by == "core.autocrlf":
        git(place, "config", by, "true")
    else:
        place.files({by: "*.txt text eol=crlf\n"})
    place.files({"calc.txt": b"one\r\ntwo\r\nthree\r\n"})
    place.commit()
    place.configure(Agent("worker", price=PRICED))
    server.play(
        "worker",
        Says(calls=(Use("read", {"path": "calc.txt"}),)),
        Says(calls=(Use("edit", {"path": "calc.txt", "old": "two", "new": "zwei"}),)),
        Says(calls=(Use("write", {"path": "new.txt", "content": "a\nb\n"}),)),
        Says("Done."),
        Says("ACCEPT"),
    )
    done = place.fugu("run", "--permission-mode", "auto", "change it", "--agent", "worker")
    assert done.code == 0, done.err
    git(place, "add", "new.txt")
    assert committed(place, server, "--yes", "-a").code == 0
    trailer = git(place, "log", "-1", "--format=%(trailers:key=Fugu-Agent,valueonly)")
    assert trailer.startswith("worker 3 lines "), trailer
    record = json.loads(git(place, "notes", "--ref=fugu", "show", "HEAD"))
    ranges = {file["path"]: file["conversations"][0]["ranges"] for file in record["files"]}
    assert ranges == {
        "calc.txt": [{"start_line": 2, "end_line": 2}],
        "new.txt": [{"start_line": 1, "end_line": 2}],
    }


def test_files_outside_a_sparse_checkout_are_committed_too(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    place.files({"src/a.py": "a = 1\n", "docs/a.md": "kept\n"})
    place.commit()
    git(place, "sparse-checkout", "set", "src")
    assert not (place.repo / "docs").exists()
    place.files({"src/a.py": "a = 2\n", "docs/new.md": "new\n"})
    done = committed(place, server, "--yes", "src/a.py", "docs/new.md")
    assert done.code == 0, done.err
    names = git(place, "show", "--name-status", "--format=").splitlines()
    assert names == ["A\tdocs/new.md", "M\tsrc/a.py"]


def test_a_commit_is_signed_where_git_is_told_so(place: Place, server: Loopback) -> None:
    if shutil.which("ssh-keygen") is None:
        pytest.skip("ssh-keygen is not installed")
    place.configure(Agent("worker"))
    place.files({"calc.txt": "fixed\n"})
    key = place.folder / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    for name, value in {
        "gpg.format": "ssh",
        "user.signingKey": str(key),
        "commit.gpgSign": "true",
    }.items():
        git(place, "config", name, value)
    assert committed(place, server, "-a", "--yes").code == 0
    assert "\ngpgsig -----BEGIN SSH SIGNATURE-----\n" in git(place, "cat-file", "commit", "HEAD")


def test_no_secret_and_nothing_that_moves_the_cursor_gets_into_a_message(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"))
    place.files({"calc.txt": "key = 'sk-abcdefghijklmnopqrstuvwxyz123456'\n"})
    said = "use sk-abcdefghijklmnopqrstuvwxyz123456 \x1b[31mnow\x07"
    server.play("worker", Says(json.dumps({"message": said})))
    assert place.fugu("commit", "-a", "--yes").code == 0
    message = git(place, "log", "-1", "--format=%B")
    assert ("sk-abc" in message, "[secret " in message, "\x1b" in message) == (False, True, False)
    assert "sk-abcdef" not in server.asked("worker")[0].text


def test_files_that_agents_may_not_read_are_named_and_not_shown(
    place: Place, server: Loopback
) -> None:
    place.configure(Agent("worker"), more='deny = ["read(private/**)"]')
    place.files({"private/plan.txt": "nobody knows\n", "calc.txt": "fixed\n"})
    git(place, "add", "-A")
    assert committed(place, server, "--yes").code == 0
    (asked,) = server.asked("worker")
    assert (
        "nobody knows" in asked.text,
        "not to be read by agents: private/plan.txt" in asked.text,
    ) == (False, True)


def test_the_editor_has_the_last_word(place: Place, server: Loopback) -> None:
    pytest.importorskip("pty")
    place.configure(Agent("worker"))
    place.files({"calc.txt": "fixed\n"})
    server.play("worker", MESSAGE)
    place.variables["GIT_EDITOR"] = "sed -i 's/fix the sum/mend the sum/'"
    words = f"{place.python} -m fugu_cli commit -a"
    done = subprocess.run(
        ["script", "-qec", words, "/dev/null"],
        cwd=place.repo,
        env=place.environ(),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert git(place, "log", "-1", "--format=%s") == "calc: mend the sum\n"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--yes",), "nothing is staged"),
        (("--yes", "-a"), "there is nothing to commit"),
        (("--yes", "nowhere.txt"), "pathspec 'nowhere.txt' did not match"),
        (("-m", " ", "-a"), "the message is empty"),
        (("-a",), "there is no terminal"),
        (("-a", "--yes", "calc.txt"), "-a and paths exclude one another"),
    ],
)
def test_bad_input_is_one_line_before_anything_is_spent(
    place: Place, server: Loopback, given: tuple[str, ...], said: str
) -> None:
    place.configure(Agent("worker"))
    done = committed(place, server, *given)
    assert (done.code, said in done.err, server.asked("worker")) == (1, True, []), done.err


def test_outside_of_git_and_before_the_first_commit(place: Place, server: Loopback) -> None:
    place.configure(Agent("worker"))
    assert "is not in a git repository" in place.fugu("commit", "--yes", folder=place.home).err
    bare = place.folder / "new"
    bare.mkdir()
    git(place, "init", "-q", "--template=", folder=bare)
    (bare / "a.txt").write_text("a\n")
    server.play("worker", MESSAGE)
    assert place.fugu("commit", "--yes", "a.txt", folder=bare).code == 0
    assert git(place, "log", "--format=%s", folder=bare) == "calc: fix the sum\n"
