"""Language servers on the real binary: an edit's result tells the new errors of the file, and
nothing makes it fail.
"""

import contextlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from fugu_cli.session.events import ToolRan
from fugu_cli.session.store import session_folder
from tests.acceptance.driving import Agent, Done, Place, ended
from tests.acceptance.loopback import Asked, Loopback, Says, Use

SERVER = """#!{python}
import json, os, re, socket, subprocess, sys, time
mode, reports = "{mode}", {{}}
seen = os.environ.get("XDG_CACHE_HOME", "{outside}") + "/seen"
os.makedirs(os.path.dirname(seen), exist_ok=True)
def attempt(what):
    try:
        what()
        return True
    except OSError:
        return False
tried = dict(
    writes=attempt(lambda: open("planted", "w")),
    reaches=attempt(lambda: socket.create_connection(("127.0.0.1", {port}), 2)),
)
open(seen, "a").write(json.dumps([sorted(os.environ), tried]) + "\\n")
child = subprocess.Popen(["sleep", "600.{mark}"])
def send(**said):
    body = json.dumps(dict(jsonrpc="2.0", **said)).encode()
    sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
    sys.stdout.buffer.flush()
def publish(uri, version, text):
    found = [(number, line) for number, line in enumerate(text.splitlines()) if "undefined" in line]
    where = lambda number: dict(start=dict(line=number, character=4), end=dict(line=number, character=9))
    items = [dict(range=where(n), severity=1, code="E1", message="no such name: " + line.strip()) for n, line in found]
    items.append(dict(range=where(0), severity=2, message="a warning"))
    about = dict(uri=uri, diagnostics=items)
    reports[uri] = items
    if mode != "pull":
        versioned = about if mode == "plain" else dict(about, version=version)
        send(method="textDocument/publishDiagnostics", params=versioned)
if mode == "noise":
    print("x" * 200000, flush=True)
while True:
    size = 0
    while (line := sys.stdin.buffer.readline()).strip():
        size = int(line.partition(b":")[2]) if line.startswith(b"Content-Length") else size
    if not line:
        break
    told = json.loads(sys.stdin.buffer.read(size))
    method, given = told.get("method"), told.get("params") or {{}}
    if method == "initialize" and mode != "silent":
        send(id=told["id"], result=dict(capabilities={{}}))
    elif method == "initialized" and mode == "pull":
        offer = dict(id="d", method="textDocument/diagnostic", registerOptions=dict(
            interFileDependencies=True, workspaceDiagnostics=False, documentSelector=None))
        send(id=1, method="client/registerCapability", params=dict(registrations=[offer]))
    elif method == "textDocument/diagnostic":
        send(id=told["id"], result=dict(kind="full", items=reports[given["textDocument"]["uri"]]))
    elif method == "shutdown":
        send(id=told["id"], result=None)
    elif method == "textDocument/didOpen":
        publish(given["textDocument"]["uri"], 1, given["textDocument"]["text"])
        open(seen + ".open", "a").write("opened")
    elif method == "textDocument/didChange":
        if mode == "crash":
            os._exit(3)
        time.sleep(4 if mode == "late" and given["textDocument"]["version"] == 2 else 0)
        publish(given["textDocument"]["uri"], given["textDocument"]["version"], given["contentChanges"][0]["text"])
"""
CODE = "int main() {\n    undefined_before();\n}\n"
READ = Says("", (Use("read", {"path": "main.c"}),))
EDIT = Says("", (Use("edit", {"path": "main.c", "old": "int main", "new": "undefined_type main"}),))
SECOND = Says(
    "", (Use("edit", {"path": "main.c", "old": "undefined_before", "new": "undefined_after"}),)
)
PATCH = "*** Begin Patch\n*** Add File: more.c\n+undefined_too();\n*** End Patch\n"
PATCHED = Says("", (Use("apply_patch", {"patch": PATCH}),))
DONE = Says("Done.")
HEAD = "[New errors, as a language server sees them:"


def installed(place: Place, mode: str, folder: Path | None = None) -> Path:
    """Put a `clangd` on PATH, outside of the repository or in `folder`. Returns the file in which it
    says what it was started with and what it could do.
    """
    program = (folder or place.folder / "bin") / "clangd"
    program.parent.mkdir(parents=True, exist_ok=True)
    port = urlsplit(place.url).port
    text = SERVER.format(
        python=sys.executable,
        mode=mode,
        outside=place.home / "cache",
        port=port,
        mark=number(place),
    )
    program.write_text(text)
    program.chmod(0o755)
    if folder is None:
        place.variables = {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}
    data = place.home / "data" / "fugu"
    store = data / "snapshots" / session_folder(data, place.repo.resolve()).name
    return store / "servers" / "cache" / "seen"


def number(place: Place) -> str:
    """Return what tells the processes of this test from others."""
    return str(int(place.mark[:8], 16))


def alive(place: Place) -> list[str]:
    """Return the processes of servers and of the children they started."""
    marks = (f"{place.folder}/bin/clangd".encode(), f"600.{number(place)}".encode())
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if marks[1] in words or marks[0] in words[:2]:
                found.append(process.name)
    return found


def gone(place: Place) -> bool:
    """None of them is left, or goes on for long."""
    end = time.monotonic() + 10
    while alive(place) and time.monotonic() < end:
        time.sleep(0.05)
    return not alive(place)


def once_opened(seen: Path, says: Says) -> object:
    """What is said once the server has heard of the file."""

    def react(asked: Asked) -> Says:
        end = time.monotonic() + 30
        while not Path(f"{seen}.open").exists() and time.monotonic() < end:
            time.sleep(0.02)
        time.sleep(0.2)
        return says

    return react


def worked(place: Place, server: Loopback, *flags: str, more: str = "") -> Done:
    place.files({"main.c": CODE})
    place.commit()
    place.configure(Agent("lsp"), more=more)
    return place.fugu("run", "--agent", "lsp", *flags, "go")


def results(place: Place) -> list[str]:
    ran = [event for event in place.events() if isinstance(event, ToolRan)]
    return [event.output for event in ran if event.call.tool in {"edit", "apply_patch", "write"}]


@pytest.mark.parametrize("mode", ["versions", "plain", "pull"])
def test_an_edit_tells_the_errors_that_are_new_in_its_file(
    place: Place, server: Loopback, mode: str
) -> None:
    seen = installed(place, mode)
    server.play("lsp", READ, once_opened(seen, EDIT), SECOND, PATCHED, DONE)  # type: ignore[arg-type]
    done = worked(place, server, "--trust")
    assert results(place) == [
        f"Changed main.c: 1 place.\n{HEAD}\nmain.c:1:5: no such name: undefined_type main() "
        f"{{ (E1)]",
        f"Changed main.c: 1 place.\n{HEAD}\nmain.c:2:5: no such name: undefined_after(); (E1)]",
        f"Created more.c.\n{HEAD}\nmore.c:1:5: no such name: undefined_too(); (E1)]",
    ], done.err
    ((variables, tried),) = map(json.loads, seen.read_text().splitlines())
    assert [name for name in variables if "KEY" in name] == []
    assert tried == {"writes": False, "reaches": False}
    assert gone(place)


def test_what_comes_too_late_is_told_by_the_next_edit(place: Place, server: Loopback) -> None:
    seen = installed(place, "late")
    later = Says("", (Use("write", {"path": "other.c", "content": "fine();\n"}),), pause=4)
    server.play("lsp", READ, once_opened(seen, EDIT), later, DONE)  # type: ignore[arg-type]
    worked(place, server, "--trust")
    assert results(place) == [
        "Changed main.c: 1 place.",
        f"Created other.c (1 line).\n{HEAD}\nmain.c:1:5: no such name: undefined_type main() "
        f"{{ (E1)]",
    ]


def test_what_comes_too_late_reaches_the_verifier(place: Place, server: Loopback) -> None:
    seen = installed(place, "late")
    server.play("lsp", READ, once_opened(seen, EDIT), DONE)  # type: ignore[arg-type]
    server.play("judge", Says("VERDICT: REVISE it has an error"), Says("VERDICT: ACCEPT"))
    place.files({"main.c": CODE})
    place.commit()
    place.configure(Agent("lsp"), Agent("judge", "strong"))
    place.fugu("run", "--coordinator", "cascade", "--trust", "go")
    assert results(place) == ["Changed main.c: 1 place."]
    assert "no such name: undefined_type main()" in str(server.asked("judge")[0].body)


@pytest.mark.parametrize("mode", ["silent", "crash", "noise"])
def test_a_server_that_fails_changes_no_edit(place: Place, server: Loopback, mode: str) -> None:
    installed(place, mode)
    server.play("lsp", READ, EDIT, SECOND, DONE)
    done = worked(place, server, "--trust")
    assert results(place) == ["Changed main.c: 1 place."] * 2
    assert gone(place)
    assert "Traceback" not in done.err and "never retrieved" not in done.err, done.err


@pytest.mark.parametrize(
    ("flags", "more", "said"),
    [
        ((), "", ""),
        ((), "diagnostics = true", "no language server runs before you run `fugu trust` here"),
        (("--trust",), "diagnostics = false", ""),
        (("--trust",), 'deny_agents = { "x/**" = ["lsp"] }', ""),
    ],
)
def test_no_server_is_started_where_none_may_run(
    place: Place, server: Loopback, flags: tuple[str, ...], more: str, said: str
) -> None:
    seen = installed(place, "versions")
    server.play("lsp", READ, EDIT, DONE)
    done = worked(place, server, *flags, more=more)
    assert results(place) == ["Changed main.c: 1 place."]
    assert not seen.exists()
    assert [
        line.partition("diagnostics: ")[2]
        for line in done.err.splitlines()
        if "diagnostics" in line
    ] == ([said] if said else [])


def test_a_server_of_the_repository_starts_only_in_the_sandbox(
    place: Place, server: Loopback
) -> None:
    seen = installed(place, "versions", place.repo / "node_modules" / ".bin")
    server.play("lsp", READ, EDIT, DONE)
    place.variables = {"FUGU_SANDBOX": "off"}
    worked(place, server, "--trust")
    assert not seen.exists() and not (place.home / "cache" / "seen").exists()
    place.files({"main.c": CODE})
    place.variables = {}
    server.play("lsp", READ, once_opened(seen, EDIT), DONE)  # type: ignore[arg-type]
    worked(place, server, "--trust")
    assert json.loads(seen.read_text())[1] == {"writes": False, "reaches": False}


def test_a_server_of_the_users_comes_first_and_the_next_takes_over_where_it_fails(
    place: Place, server: Loopback
) -> None:
    seen = installed(place, "versions")
    shutil.copy(place.folder / "bin" / "clangd", place.folder / "bin" / "mine")
    server.play("lsp", READ, once_opened(seen, EDIT), DONE)  # type: ignore[arg-type]
    own = '[lsp.mine]\ncommand = ["mine", "--stdio"]\nextensions = [".c"]\n'
    worked(place, server, "--trust", more=own)
    (place.folder / "bin" / "clangd").write_text("#!/bin/sh\nexit 1\n")
    assert HEAD in results(place)[0]
    shutil.move(place.folder / "bin" / "mine", place.folder / "bin" / "clangd")
    broken = own.replace("mine", "false")
    Path(f"{seen}.open").unlink()
    server.play("lsp", READ, Says("", EDIT.calls, pause=3), SECOND, DONE)
    worked(place, server, "--trust", more=broken)
    assert HEAD in "".join(results(place))


def test_without_a_sandbox_a_server_of_the_users_starts_all_the_same(
    place: Place, server: Loopback
) -> None:
    installed(place, "versions")
    place.variables |= {"FUGU_SANDBOX": "off"}
    seen = place.home / "cache" / "seen"
    server.play("lsp", READ, once_opened(seen, EDIT), DONE)  # type: ignore[arg-type]
    worked(place, server, "--trust")
    assert json.loads(seen.read_text())[1] == {"writes": True, "reaches": True}


def test_a_server_ends_with_a_fugu_that_is_killed(place: Place, server: Loopback) -> None:
    seen = installed(place, "versions")
    place.files({"main.c": CODE})
    place.commit()
    place.configure(Agent("lsp"), more="")
    server.play("lsp", READ, once_opened(seen, Says("Slow.", pause=60)))  # type: ignore[arg-type]
    process = place.start("run", "--agent", "lsp", "--trust", "go")
    end = time.monotonic() + 30
    while not Path(f"{seen}.open").exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert alive(place)
    process.send_signal(signal.SIGKILL)
    ended(process)
    assert gone(place)


@pytest.mark.parametrize(
    ("program", "name", "code", "wrong", "said"),
    [
        ("pyright-langserver", "sum.py", "x: int = 1\n", "x: int = 'a'\n", "sum.py:1:10: "),
        (
            "typescript-language-server",
            "sum.ts",
            "const x: number = 1;\n",
            "const x: number = 'a';\n",
            "sum.ts:1:7: ",
        ),
        ("tsc", "sum.ts", "const x: number = 1;\n", "const x: number = 'a';\n", "sum.ts:1:7: "),
    ],
)
def test_real_servers_tell_a_wrong_type(
    place: Place, server: Loopback, program: str, name: str, code: str, wrong: str, said: str
) -> None:
    if shutil.which(program) is None:
        pytest.skip(f"{program} is not on PATH")
    place.files({name: code})
    place.commit()
    place.configure(Agent("lsp"), more="")
    again = Says("", (Use("write", {"path": f"more_{name}", "content": code}),), pause=3)
    server.play(
        "lsp",
        Says("", (Use("read", {"path": name}),)),
        Says("", (Use("write", {"path": name, "content": wrong}),), pause=8),
        again,
        DONE,
    )
    place.fugu("run", "--agent", "lsp", "--trust", "go")
    assert said in "\n".join(results(place))


def test_the_doctor_starts_a_server_as_a_session_does_once_the_folder_is_trusted(
    place: Place,
) -> None:
    seen = installed(place, "versions")
    place.files({"main.c": CODE})
    place.commit()
    place.configure(Agent("lsp"))
    assert "not started; no language server runs before" in place.fugu("doctor").out
    assert not seen.exists()
    place.fugu("trust")
    done = place.fugu("doctor")
    assert "clangd was started in the sandbox and answered" in done.out, done.out
    ((variables, tried),) = map(json.loads, seen.read_text().splitlines())
    assert [name for name in variables if "KEY" in name] == []
    assert tried == {"writes": False, "reaches": False}
    assert gone(place)


def test_the_doctor_says_that_a_server_did_not_answer(place: Place) -> None:
    installed(place, "versions")
    (place.folder / "bin" / "clangd").write_text("#!/bin/sh\nexit 1\n")
    place.configure(Agent("lsp"))
    place.fugu("trust")
    assert "clangd was started in the sandbox and did not answer" in place.fugu("doctor").out
