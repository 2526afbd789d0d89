"""Runs the tests in processes that are forked once all of them are imported.

Each process asks for one file after the other, as with pytest-xdist's `--dist loadfile`; there each
process would import all tests for itself.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
from collections.abc import Sequence
from itertools import groupby
from multiprocessing.connection import Connection, wait

import pytest


def run_in_processes(session: pytest.Session, number: int) -> bool:
    """Run the session's tests in `number` processes and report them here, as pytest's own loop
    does.
    """
    files = [list(items) for _, items in groupby(session.items, key=lambda item: item.path)]
    context = multiprocessing.get_context("fork")
    processes = {}
    for _ in range(number):
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(session, files, theirs), daemon=True)
        process.start()
        theirs.close()
        processes[ours] = process
    try:
        _serve(session, files, processes)
    finally:
        for process in processes.values():
            process.terminate()
    return True


def _serve(
    session: pytest.Session,
    files: Sequence[Sequence[pytest.Item]],
    processes: dict[Connection, multiprocessing.context.ForkProcess],
) -> None:
    """Give each process that asks the number of a file, and report what it sends, until all have
    ended. Raises what pytest's own loop raises for `-x` and `--maxfail`.
    """
    hook = session.config.hook
    waiting = iter(range(len(files)))
    given: dict[Connection, int] = {}
    while processes:
        for connection in wait([*processes]):
            assert isinstance(connection, Connection)
            try:
                message = connection.recv()
            except EOFError:
                process = processes.pop(connection)
                process.join()
                if process.exitcode != 0:
                    file = str(files[given.get(connection, 0)][0].path)
                    text = f"a process ended with code {process.exitcode}, in or before {file}"
                    report = pytest.TestReport(
                        file, (file, None, "process"), {}, "failed", text, "call"
                    )
                    hook.pytest_runtest_logreport(report=report)
                continue
            if message is None:
                number = next(waiting, None)
                connection.send(number)
                if number is not None:
                    given[connection] = number
                continue
            report = hook.pytest_report_from_serializable(config=session.config, data=message)
            hook.pytest_runtest_logreport(report=report)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)


def _work(
    session: pytest.Session, files: Sequence[Sequence[pytest.Item]], connection: Connection
) -> None:
    """Run files in this process until there are no more, and send the reports."""
    config = session.config
    capture = config.pluginmanager.getplugin("capturemanager")
    if capture.is_globally_capturing():
        # a file of its own for what tests print; the lines of pytest itself are nobody's
        capture.stop_global_capturing()
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        capture.start_global_capturing()
        capture.suspend_global_capture()

    def next_file() -> Sequence[pytest.Item]:
        connection.send(None)
        number = connection.recv()
        return () if number is None else files[number]

    class Sending:
        def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
            data = config.hook.pytest_report_to_serializable(config=config, report=report)
            connection.send(data)

    config.pluginmanager.register(Sending())
    items = next_file()
    while items:
        following: Sequence[pytest.Item] = ()
        for index, item in enumerate(items):
            if index + 1 < len(items):
                next_item: pytest.Item | None = items[index + 1]
            else:
                # what is set up for a session ends with the last test of this process
                following = next_file()
                next_item = following[0] if following else None
            config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        items = following
    atexit._run_exitfuncs()
