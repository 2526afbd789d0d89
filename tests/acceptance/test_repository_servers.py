"""MCP servers that run what lies in a repository, where an agent may have written it: in the
sandbox, or not at all.
"""

import json
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from fugu_cli.safety.sandbox.mechanisms import find_mechanism
from tests.acceptance.driving import Agent, Place

SMALL = Path(__file__).parents[1] / "unit" / "extensions" / "mcp" / "server.py"
WORKS = "small: tools: echo, write"
REFUSED = "it runs what lies in the repository, no sandbox holds here"

PLANTED = """
import os, socket
def attempt(name, what):
    try:
        what()
    except OSError:
        return
    os.environ["REPORT"] = os.environ.get("REPORT", "") + name + " "
try:
    open({outside!r}, "w")  # where /tmp is its own, this is another file
except OSError:
    pass
attempt("repository", lambda: open("planted.txt", "w"))
attempt("network", lambda: socket.create_connection(("127.0.0.1", {port}), 2))
"""
SERVER = """
import os, sys
import lib
if os.environ.get("REPORT"):
    sys.exit("it can: " + os.environ["REPORT"])
sys.argv[1:] = []
exec(compile(open({small!r}).read(), "server", "exec"))
"""


@pytest.fixture
def port() -> int:
    """A port on which nobody listens in a sandbox."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def declared(folder: Path, *words: str, **more: object) -> None:
    entry = {"command": sys.executable, "args": list(words), **more}
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": {"small": entry}}))


def with_code(place: Place) -> None:
    """A repository with a server of two files."""
    small = place.home / "small.py"
    small.write_bytes(SMALL.read_bytes())
    place.files({"tools/server.py": SERVER.format(small=str(small)), "tools/lib.py": "\n"})
    place.configure(Agent("worker"))


def confined() -> None:
    if find_mechanism("auto", "/usr/bin:/bin").kind == "none":
        pytest.skip("no sandbox holds here")


@pytest.mark.parametrize("whose", ["the repository's", "the user's"])
def test_what_an_agent_wrote_into_a_server_cannot_leave_the_sandbox(
    place: Place, port: int, whose: str
) -> None:
    confined()
    with_code(place)
    if whose == "the repository's":
        declared(place.repo, "tools/server.py")
    else:
        declared(place.home, str(place.repo / "tools/server.py"))
    place.commit()
    place.fugu("trust")
    planted = PLANTED.format(outside=str(place.folder / "escaped"), port=port)
    (place.repo / "tools/lib.py").write_text(planted)
    with socket.create_server(("127.0.0.1", port)):
        done = place.fugu("doctor")
    assert WORKS in done.out, done.out
    assert not (place.folder / "escaped").exists()
    assert not (place.repo / "planted.txt").exists()


def test_the_network_is_opened_by_name_and_only_by_the_user(place: Place, port: int) -> None:
    confined()
    with_code(place)
    declared(place.repo, "tools/server.py")
    planted = PLANTED.format(outside=str(place.folder / "escaped"), port=port)
    (place.repo / "tools/lib.py").write_text(planted)
    opened = 'sandbox = { mcp_network = ["small"] }\n'
    (place.repo / ".fugurc").write_text(opened)
    place.commit()
    place.fugu("trust")
    with socket.create_server(("127.0.0.1", port)):
        done = place.fugu("doctor")
        assert WORKS in done.out, done.out
        place.configure(Agent("worker"), more=opened)
        done = place.fugu("doctor")
    assert "it can: network; it ran in the sandbox, with network" in done.out, done.out
    assert not (place.folder / "escaped").exists()


def test_without_a_sandbox_a_server_starts_only_as_it_was_trusted(place: Place) -> None:
    with_code(place)
    declared(place.repo, "tools/server.py")
    place.commit()
    place.fugu("trust")
    place.variables["FUGU_SANDBOX"] = "off"
    assert WORKS in place.fugu("doctor").out
    mark = place.folder / "escaped"
    (place.repo / "tools/lib.py").write_text(f"open({str(mark)!r}, 'w')\n")
    done = place.fugu("doctor")
    assert (REFUSED in done.out, mark.exists()) == (True, False), done.out
    place.fugu("trust")
    assert WORKS in place.fugu("doctor").out
    assert mark.exists()


def test_the_users_server_runs_nothing_that_lies_where_fugu_works(place: Place) -> None:
    modules = place.home / "modules"
    modules.mkdir()
    (modules / "small_server.py").write_bytes(SMALL.read_bytes())
    mark = place.folder / "escaped"
    place.files({"signal.py": f"open({str(mark)!r}, 'w')\n"})
    place.commit()
    place.configure(Agent("worker"))
    declared(place.home, "-m", "small_server", env={"PYTHONPATH": str(modules)})
    assert WORKS in place.fugu("doctor").out
    assert not mark.exists()
    declared(place.home, "-m", "small_server", env={"PYTHONPATH": str(modules)}, cwd=".")
    place.fugu("doctor")
    assert mark.exists()


def test_a_library_that_the_environment_names_is_loaded_in_the_sandbox_only(place: Place) -> None:
    confined()
    with_code(place)
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("no compiler is here")
    mark, library = place.folder / "escaped", place.repo / "tools/evil.so"
    source = place.folder / "evil.c"
    source.write_text(
        "#include <fcntl.h>\n__attribute__((constructor)) static void run(void) "
        f'{{ open("{mark}", O_CREAT | O_WRONLY, 0600); }}\n'
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    declared(place.repo, "tools/server.py", env={"LD_PRELOAD": str(library)})
    place.commit()
    place.fugu("trust")
    assert WORKS in place.fugu("doctor").out
    assert not mark.exists()
