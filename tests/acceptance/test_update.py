"""`fugu update` with the real binary: pip against an index of the test's own, uv and pipx played by
programs.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import fugu_cli
from tests.acceptance.driving import Place

PAGE = '<a href="fugu_cli-{0}-py3-none-any.whl">fugu_cli-{0}-py3-none-any.whl</a>'


class _Index(BaseHTTPRequestHandler):
    """Knows one package."""

    version = "9.9.0"

    def do_GET(self) -> None:
        body = PAGE.format(self.version).encode()
        self.send_response(200 if self.path == "/fugu-cli/" else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture
def index() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Index)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def installed(place: Place) -> Callable[..., Place]:
    """fugu as an installer leaves it: its metadata in an environment of its own, with the
    installer's mark.
    """

    def make(*marks: str) -> Place:
        prefix = place.folder / "environment"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
        info = place.folder / "packages" / f"fugu_cli-{fugu_cli.__version__}.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: fugu-cli\nVersion: {fugu_cli.__version__}\n"
        )
        for name in marks:
            (prefix / name).write_text("")
        place.python = str(prefix / "bin" / "python")
        paths = [str(info.parent), str(Path(fugu_cli.__file__).parent.parent)]
        paths += [path for path in sys.path if path.endswith("site-packages")]
        packages = next(prefix.glob("lib/python*/site-packages"))
        (packages / "paths.pth").write_text("\n".join(paths))
        place.variables = {
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PYTHONWARNINGS": "",
        }
        return place

    return make


def program(place: Place, name: str, script: str) -> Path:
    """A program on PATH that notes how it is called."""
    folder = place.folder / "programs"
    folder.mkdir(exist_ok=True)
    log = folder / "log"
    (folder / name).write_text(f'#!/bin/sh\necho "$(basename "$0") $@" >> {log}\n{script}\n')
    (folder / name).chmod(0o755)
    place.variables["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
    return log


def test_pip_says_the_newest_and_nothing_is_run_without_a_yes(
    installed: Callable[..., Place], index: str
) -> None:
    pytest.importorskip("pip")
    place = installed()
    place.variables["PIP_INDEX_URL"] = index
    done = place.fugu("update")
    prefix = Path(place.python).parent.parent
    assert (done.code, done.out.splitlines()) == (
        1,
        [
            f"fugu {fugu_cli.__version__}, installed by pip in {prefix}",
            f"the newest is 9.9.0: `{place.python} -I -m pip install --upgrade fugu-cli`",
        ],
    ), done.err
    assert "an update is asked about, and there is no terminal" in done.err


def test_an_index_that_knows_nothing_is_one_line(
    installed: Callable[..., Place], index: str
) -> None:
    pytest.importorskip("pip")
    place = installed()
    place.variables["PIP_INDEX_URL"] = f"{index}/nowhere"
    done = place.fugu("update", "--yes")
    assert (done.code, done.err.splitlines()[0]) == (
        2,
        "fugu: which fugu is the newest is not known: pip does not say",
    )


@pytest.mark.parametrize(
    ("mark", "by", "look", "update"),
    [
        (
            "uv-receipt.toml",
            "uv",
            "uv pip install --dry-run --upgrade --python PYTHON fugu-cli",
            "uv tool upgrade fugu-cli",
        ),
        (
            "pipx_metadata.json",
            "pipx",
            "pipx runpip fugu-cli install --dry-run --upgrade fugu-cli",
            "pipx upgrade fugu-cli",
        ),
    ],
)
def test_who_installed_it_is_asked_and_called(
    installed: Callable[..., Place], mark: str, by: str, look: str, update: str
) -> None:
    place = installed(mark)
    log = program(
        place,
        by,
        f'pwd > {place.folder}/started-in; echo " + fugu-cli==0.3.0" >&2; '
        'echo "Would install a-1 fugu_cli-0.3.0"',
    )
    done = place.fugu("update", "--yes")
    # a repository's uv.toml names no index here
    assert (place.folder / "started-in").read_text() == "/\n"
    assert (done.code, done.out.splitlines()[1]) == (0, f"the newest is 0.3.0: `{update}`"), (
        done.err
    )
    assert log.read_text().splitlines() == [look.replace("PYTHON", place.python), update]
    program(place, by, "echo Requirement already satisfied")
    assert place.fugu("update").out.splitlines()[1] == "this is the newest"
    says = 'echo " + fugu-cli==0.3"; echo "Would install fugu-cli-0.3"'
    program(place, by, f'case "$*" in *runpip*|*dry-run*) {says};; *) exit 3;; esac')
    failed = place.fugu("update", "--yes")
    assert (failed.code, failed.err.splitlines()[-2]) == (
        2,
        f"fugu: `{update}` ended with exit code 3",
    )


def test_an_installer_that_is_gone_and_a_folder_are_said(installed: Callable[..., Place]) -> None:
    place = installed("uv-receipt.toml")
    place.variables["PATH"] = "/nowhere"
    assert "fugu was installed by uv, which is not on PATH" in place.fugu("update").err


@pytest.mark.parametrize(
    "mark, command",
    [
        ("uv-receipt.toml", "uv tool install --force WHEEL"),
        ("pipx_metadata.json", "pipx install --force WHEEL"),
        ("", " WHEEL`"),
    ],
)
def test_a_wheel_is_updated_with_a_newer_wheel(
    installed: Callable[..., Place], mark: str, command: str
) -> None:
    place = installed(*filter(None, [mark]))
    (info,) = (place.folder / "packages").glob("*.dist-info")
    origin = {"archive_info": {}, "url": "file:///x/fugu_cli-0.2.0-py3-none-any.whl"}
    (info / "direct_url.json").write_text(json.dumps(origin))
    done = place.fugu("update")
    assert done.code == 1
    assert "/x/fugu_cli-0.2.0-py3-none-any.whl" in done.err
    assert command in done.err


def test_a_folder_is_updated_with_git(place: Place) -> None:
    done = place.fugu("update")
    assert done.code in (0, 1)
    assert "update it with git" in done.err or "installed by" in done.out
