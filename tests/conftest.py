"""Cut every test off from the user's home, configuration and keys; the real models come from one
shared cache.
"""

import asyncio
import gc
import importlib.util
import os
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import settings

from fugu_cli.safety import programs
from tests.acceptance import forked
from tests.processes import run_in_processes

settings.register_profile(
    "patient", deadline=None
)  # how long an example takes says how busy the machine is
settings.load_profile("patient")
os.fsync = lambda number: (
    None
)  # what a test writes need not outlive a loss of power: six milliseconds a line of a log
subprocess.Popen = forked.Popen  # type: ignore[misc]  # fugu is forked, other programs are not
os.environ.setdefault(
    "OMP_WAIT_POLICY", "passive"
)  # torch's threads must not spin while other tests run
os.environ.setdefault("TEXTUAL_FPS", "20")  # drawing is half of what a test of a screen costs
if hasattr(signal, "SIGHUP"):
    signal.signal(
        signal.SIGHUP, signal.SIG_DFL
    )  # under nohup children would inherit that it is ignored
REAL_CACHE = Path(os.environ.get("FUGU_CACHE_DIR") or Path.home() / ".cache" / "fugu")
LONGEST = (
    "unit/safety/sandbox/test_escapes.py",
    "unit/ui/tui/test_terminal.py",
    "research/training/test_train_commands.py",
    "unit/training/tasks/test_cheating.py",
    "research/evaluation/test_eval.py",
    "unit/safety/sandbox/test_git_escapes.py",
    "acceptance/test_language_servers.py",
    "acceptance/test_cli_run.py",
    "acceptance/test_failures_after_failures.py",
    "acceptance/test_faults.py",
    "unit/extensions/mcp/test_login.py",
    "acceptance/test_undo.py",
    "unit/ui/tui/test_robust.py",
    "unit/ui/tui/test_keys.py",
    "acceptance/test_commit.py",
    "unit/ui/tui/test_daily_use.py",
    "acceptance/test_acp.py",
    "unit/ui/tui/test_commands.py",
    "acceptance/test_verdicts.py",
    "acceptance/test_wheel.py",
    "acceptance/test_killed.py",
    "acceptance/test_evidence.py",
    "unit/extensions/mcp/test_more_than_tools.py",
    "acceptance/test_real_model.py",
    "research/evaluation/test_going_on.py",
    "research/training/test_conductor_training.py",
    "unit/coordinators/conductor/test_killed.py",
    "unit/safety/sandbox/test_files_run_by_others.py",
    "acceptance/serve/test_connections.py",
    "acceptance/test_failing_over.py",
    "acceptance/test_review.py",
    "acceptance/test_startup.py",
    "unit/coordinators/conductor/test_running.py",
    "unit/training/tasks/test_grading.py",
)
"""Files that take the longest, longest first: they begin first, so that processes which share the
work end together.
"""
WITH_PROGRAMS = (
    "acceptance",
    "research",
    "unit/app/test_growth.py",
    "unit/coordinators/conductor",
    "unit/coordinators/test_published_size.py",
    "unit/coordinators/test_real_backbone.py",
    "unit/engine/test_acceptance_checks.py",
    "unit/engine/test_content.py",
    "unit/engine/test_full_disk.py",
    "unit/engine/test_jobs_in_the_loop.py",
    "unit/engine/test_orchestrator.py",
    "unit/engine/test_regressions.py",
    "unit/engine/test_tests_before.py",
    "unit/engine/test_undoing.py",
    "unit/engine/test_unmasking.py",
    "unit/engine/test_wording.py",
    "unit/extensions/hooks",
    "unit/extensions/mcp",
    "unit/local/test_local.py",
    "unit/local/test_wheels.py",
    "unit/wires/test_bounds.py",
    "unit/providers/test_real.py",
    "unit/safety/policy/test_against_shells.py",
    "unit/safety/sandbox",
    "unit/snapshots/test_snapshots.py",
    "unit/system/test_full_disk.py",
    "unit/system/test_scratch.py",
    "unit/test_wiring.py",
    "unit/testing/test_runners.py",
    "unit/tools/test_bash.py",
    "unit/tools/test_jobs.py",
    "unit/tools/test_run_tests.py",
    "unit/tools/test_web_search.py",
    "unit/training/tasks",
    "unit/ui/tui",
)
"""Folders and files whose tests run programs, screens or real models for long. `--fast` leaves them
out.
"""
LEARNED = ("torch", "transformers", "tokenizers", "safetensors", "numpy", "gguf")
"""Libraries of the learned coordinator, which the light install lacks."""
KEPT = (
    "OMP_WAIT_POLICY",
    "PATH",
    "LANG",
    "LC_ALL",
    "TMPDIR",
    "SYSTEMROOT",
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "VIRTUAL_ENV",
)
_NUMBERS = count()
KEPT_PREFIXES = ("PIP_", "COVERAGE_", "PYTEST_", "HYPOTHESIS_")
gc.disable()  # until all files are imported: no import leaves garbage that is worth a search


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fast", action="store_true", help="only tests that need no other program for long"
    )
    parser.addoption("--processes", type=int, default=1, help="run the tests in so many processes")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """With `--fast`, what takes long is not even imported."""
    left_out = {Path(__file__).parent / name for name in WITH_PROGRAMS}
    return True if config.getoption("--fast") and collection_path in left_out else None


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Skip a file of the learned coordinator where its libraries are not installed."""
    report = yield
    missing = re.search(rf"No module named '({'|'.join(LEARNED)})\b", str(report.longrepr))
    if report.failed and missing is not None and importlib.util.find_spec(missing[1]) is None:
        report.outcome = "skipped"
        reason = f"Skipped: it needs {missing[1]}, which the light install lacks"
        report.longrepr = (str(collector.path), 0, reason)
    return report


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the longest files first; else the order stays."""
    ranks = {Path(__file__).parent / name: rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path, len(ranks)))


def pytest_collection_finish() -> None:
    """What is loaded by now stays: looking through it for garbage takes a third of a second each
    time.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_runtestloop(session: pytest.Session) -> bool | None:
    number = session.config.getoption("--processes")
    has_xdist = (
        bool(session.config.getoption("numprocesses", None)) or "PYTEST_XDIST_WORKER" in os.environ
    )
    if number < 2 or has_xdist or session.testsfailed or session.config.option.collectonly:
        return None
    return run_in_processes(session, number)


@pytest.fixture(autouse=True)
def isolated(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """A new home, no keys, a working folder that is nobody's repository."""
    number = str(next(_NUMBERS))  # mktemp would look through all the folders that are there
    home, work = (tmp_path_factory.getbasetemp() / name / number for name in ("h", "w"))
    home.mkdir(parents=True)
    work.mkdir(parents=True)
    monkeypatch.setattr(programs, "_in_use", Counter())
    for name in list(os.environ):
        if name not in KEPT and not name.startswith(KEPT_PREFIXES):
            monkeypatch.delenv(name)
    for name, folder in {
        "XDG_DATA_HOME": "data",
        "XDG_CACHE_HOME": "cache",
        "XDG_CONFIG_HOME": "config",
    }.items():
        monkeypatch.setenv(name, str(home / folder))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_TEST_FSYNC", "0")  # a commit of a test need not outlive a loss of power
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    # loading the plugins that are installed here is half of what a short run of pytest costs
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("GIT_AUTHOR_NAME", "A. Tester")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "tester@example.org")
    monkeypatch.setenv("GIT_COMMITTER_NAME", "A. Tester")
    monkeypatch.setenv("GIT_COMMITTER_EMAIL", "tester@example.org")
    monkeypatch.chdir(work)
    yield


@pytest.fixture(scope="session")
def pulled(real_cache: Path) -> Callable[[str], Path]:
    """The file of an embedded model, fetched and hash-checked when it is not there yet."""

    def fetch(name: str) -> Path:
        from fugu_cli.local.store import Store

        return asyncio.run(Store(real_cache).pull(name, lambda progress: None))

    return fetch


@pytest.fixture(scope="session")
def real_cache() -> Path:
    """Where the real models are kept between runs: pulled once, hash-checked, never part of the
    repository.
    """
    REAL_CACHE.mkdir(parents=True, exist_ok=True)
    return REAL_CACHE
