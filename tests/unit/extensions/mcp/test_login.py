"""`fugu mcp login` with a browser that follows the address it is given, and sessions that use what
was kept.
"""

import contextlib
import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import fugu_cli
from fugu_cli.config.kept_keys import StoredLogins, keys_file
from fugu_cli.extensions.mcp_servers import check_servers
from fugu_cli.extensions.mcp_settings import read_servers
from tests.acceptance import forked
from tests.unit.ui.tui.terminal import Terminal

SERVER = Path(__file__).parent / "oauth_server.py"
BROWSER = """
import contextlib, sys, urllib.request
with contextlib.suppress(OSError):
    urllib.request.urlopen(sys.argv[1]).read()
"""


@contextlib.contextmanager
def running(folder: Path, kind: str = "") -> Iterator[str]:
    """The server's address."""
    file, log = folder / "address", folder / "log"
    file.unlink(missing_ok=True)
    with (
        log.open("w") as out,
        subprocess.Popen(
            [sys.executable, str(SERVER), str(file), kind], stdout=out, stderr=out
        ) as process,
    ):
        end = time.monotonic() + 60
        while (
            not (file.exists() and file.read_text())
            and process.poll() is None
            and time.monotonic() < end
        ):
            time.sleep(0.05)
        try:
            yield file.read_text()
        finally:
            process.kill()


def fugu(*words: str) -> tuple[int, str, str]:
    browser = Path.home() / "browser.py"
    browser.write_text(BROWSER)
    more = {"PYTHONPATH": str(forked.ROOT), "PYTHONWARNINGS": "error"}
    environ = {**os.environ, **more, "BROWSER": f"{sys.executable} {browser} %s"}
    done = forked.run(words, Path.cwd(), environ, timeout=90)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def checked(logins: StoredLogins | None = None) -> tuple[bool, str]:
    """Whether the server works in a session, and why not."""
    declared = read_servers(Path.home() / ".mcp.json", None, trusted=False, environ={})
    ((_, works, said),) = check_servers(declared, Path.cwd(), logins or StoredLogins())
    return works, said


def test_a_login_is_kept_used_and_forgotten(tmp_path: Path) -> None:
    with running(tmp_path) as address:
        fugu("mcp", "add", "locked", address)
        assert checked()[1].startswith("it wants a login (HTTP 401): `fugu mcp login locked`")
        code, out, err = fugu("mcp", "login", "locked")
        assert code == 0, err
        assert out.startswith(f"log in at: {address.removesuffix('/mcp')}/authorize?")
        assert out.endswith(
            f"logged in at locked, which has 1 tools; the login is kept in {keys_file()}\n"
        )
        assert keys_file().stat().st_mode & 0o777 == 0o600
        assert checked()[1].startswith("tools: hello")
        assert ", logged in)" in fugu("mcp", "list")[1]
        removed = fugu("mcp", "login", "locked", "--remove")[1]
        assert removed == "the login at locked is forgotten and revoked\n"
        assert "revoked RefreshToken" in (tmp_path / "log").read_text()
        assert not checked()[0]
        fugu("mcp", "login", "locked")
    with running(tmp_path) as other:  # it does not know the token
        StoredLogins().keep(other, StoredLogins().read(address))
        fugu("mcp", "remove", "locked")
        fugu("mcp", "add", "locked", other)
        assert StoredLogins().read(address) == ""
        assert checked()[1].startswith("it wants a login (HTTP 401): `fugu mcp login locked`")


def test_a_token_that_has_run_out_is_renewed(tmp_path: Path) -> None:
    with running(tmp_path, "short") as address:
        fugu("mcp", "add", "locked", address)
        assert fugu("mcp", "login", "locked")[0] == 0
        before = StoredLogins().read(address)
        hidden: list[Mapping[str, str]] = []
        assert checked(StoredLogins(hidden.append))[1].startswith("tools: hello")
        assert "renewed" in (tmp_path / "log").read_text()
        assert StoredLogins().read(address) != before
        tokens = json.loads(StoredLogins().read(address))["tokens"]
        assert hidden[-1] == {
            f"MCP_{name}".upper(): tokens[name] for name in ("access_token", "refresh_token")
        }
        forgotten = fugu("mcp", "remove", "locked")[1]
        assert "forgotten, not revoked (its server has no address for that)" in forgotten


def test_a_client_that_the_entry_names_is_used(tmp_path: Path) -> None:
    with running(tmp_path, "given") as address:
        client = ("--client-id", "mine", "--client-secret", "s3cret-of-mine")
        fugu("mcp", "add", "locked", address, *client)
        code, _, err = fugu("mcp", "login", "locked")
        assert (code, err) == (0, "")
        assert checked()[1].startswith("tools: hello")
        removed = fugu("mcp", "login", "locked", "--remove")[1]
        assert removed == "the login at locked is forgotten and revoked\n"


class _Staying(urllib.request.HTTPRedirectHandler):
    """Does not follow to where a browser on another machine would end in vain."""

    def redirect_request(self, *given: object) -> None:
        return None


def test_the_address_of_a_browser_elsewhere_is_pasted(tmp_path: Path) -> None:
    with running(tmp_path) as address:
        fugu("mcp", "add", "locked", address)
        environ = {**os.environ, "PYTHONPATH": str(Path(fugu_cli.__file__).parent.parent)}
        command = [sys.executable, "-m", "fugu_cli", "mcp", "login", "locked"]
        terminal = Terminal(command, Path.cwd(), environ, (900, 20))
        terminal.sees("or paste here the address")
        shown = re.search(r"log in at: (\S+)", terminal.screen.text)
        assert shown is not None
        with pytest.raises(urllib.error.HTTPError) as left:
            urllib.request.build_opener(_Staying).open(shown[1])
        left.value.close()
        terminal.keys("http://127.0.0.1/callback\r")
        terminal.sees("that is no address with a code")
        terminal.keys(left.value.headers["location"] + "\r")
        terminal.sees("logged in at locked, which has 1 tools")
        assert terminal.ended() == 0
        terminal.close()


FAILING = {
    "mute": (2, "no login at locked: the browser did not come back within 2 s"),
    "refuses": (2, "no login at locked: the login was refused: not today"),
    "given": (2, "no login at locked: Registration failed"),
    "open": (1, "locked works without a login"),
}


@pytest.mark.parametrize("kind", FAILING)
def test_a_login_that_fails_says_why_in_a_line(tmp_path: Path, kind: str) -> None:
    with running(tmp_path, kind) as address:
        fugu("mcp", "add", "locked", address)
        code, _, err = fugu("mcp", "login", "locked", "--timeout", "2")
        assert (code, FAILING[kind][1] in err, "Traceback" in err) == (
            FAILING[kind][0],
            True,
            False,
        ), err
        assert not keys_file().exists()


def test_what_has_no_login_is_refused(tmp_path: Path) -> None:
    fugu("mcp", "add", "program", "--", "true")
    assert "program is a program and wants no login" in fugu("mcp", "login", "program")[2]
    assert "there is no MCP server 'nobody' that counts here" in fugu("mcp", "login", "nobody")[2]
    fugu("mcp", "add", "gone", "http://127.0.0.1:9/mcp")
    assert "no login at gone: All connection attempts failed" in fugu("mcp", "login", "gone")[2]


def test_logins_that_are_renewed_at_the_same_time_are_all_kept() -> None:
    logins = StoredLogins()
    addresses = [f"http://{n}" for n in range(24)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda address: logins.keep(address, address), addresses))
    assert [logins.read(address) for address in addresses] == addresses


def test_the_keyring_or_the_file_of_keys_holds_several_logins() -> None:
    logins = StoredLogins()
    assert logins.read("http://a") == ""
    logins.keep("http://a", "1")
    logins.keep("http://b", "2")
    assert (logins.remove("http://a"), logins.remove("http://a"), logins.read("http://b")) == (
        True,
        False,
        "2",
    )
