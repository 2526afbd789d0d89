"""The process: `fugu` and `python -m fugu_cli`. Turns every way to end into an exit code.

0 finished, 1 usage or configuration, 2 infrastructure (or a bug of ours), 3 a limit or not
accepted, 4 aborted. `--version` and `-v` are answered before anything is imported.
"""

from __future__ import annotations

import errno
import gc
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, cast

if TYPE_CHECKING:
    import typer


def main() -> None:
    """Runs the command line and ends the process."""
    try:
        code = _code(sys.argv[1:])
    except KeyboardInterrupt:
        os._exit(4)
    leave(code)


def _code(arguments: Sequence[str]) -> int:
    _forget_here()
    if arguments in (["--version"], ["-v"]):
        from fugu_cli import __version__

        return 2 if _flush(f"fugu {__version__}\n") else 0
    _fill_streams()
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    from fugu_cli.system import signals

    signals.raise_on_signals()
    sys.excepthook = _crashed
    code = called(arguments)
    lost = _flush()
    if signals.ignore_signals():
        return 4
    if lost and not code:
        complain(f"cannot write to standard output: {lost}", ROOM)
        return 2
    return code


def leave(code: int) -> NoReturn:
    """End the process with `code`.

    `python -m` would end itself by SIGINT instead if a KeyboardInterrupt, though caught, came out
    of an `exec` (dataclasses have one). Evaluating another text makes it forget that.
    """
    eval("0")
    sys.exit(code)


def _fill_streams() -> None:
    """Open the missing standard streams, so that files opened later do not get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _forget_here() -> None:
    """Remove the current folder from the search path of modules, which `python -m` puts first: a
    module of the repository must not be taken for one of ours.
    """
    home = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120 - pathlib takes time
    if sys.path and sys.path[0] != home and sys.orig_argv[1:2] == ["-m"]:
        del sys.path[0]


def called(arguments: Sequence[str]) -> int:
    """Run a command line and return its exit code. Messages for people go to standard error."""
    arguments = _with_command(arguments)
    try:
        import typer

        from fugu_cli.errors import FuguError

        # click's base of "these words are wrong": typer carries a click of its own now and used to
        # import it.
        refused = cast(type[Exception], typer.BadParameter.__mro__[2])
        try:
            name, words = ("fugu run", arguments[1:]) if _runs(arguments) else ("fugu", arguments)
            code = _command_line(arguments)(words, prog_name=name, standalone_mode=False)
        except FuguError as error:
            complain(str(error), error.hint)
            return error.exit_code
        except refused as error:
            _usage(error)
            return 1
        except typer.Abort:
            return 4
        except SystemExit as left:
            if isinstance(
                left.__context__, BrokenPipeError
            ):  # typer's own end where a reader went away
                return 0
            raise
    except KeyboardInterrupt:
        return 4
    except BrokenPipeError:
        return 0
    except OSError as error:
        if error.errno in SHORT:
            complain(f"the system refuses: {error.strerror}", LIMITS)
        elif error.errno in FULL:
            complain(
                f"cannot write{f' {error.filename}' if error.filename else ''}: {error.strerror}",
                ROOM,
            )
        else:
            raise
        return 2
    return 4 if code == INTERRUPTED else int(code or 0)


def _with_command(arguments: Sequence[str]) -> Sequence[str]:
    """Add the command that a command line leaves out. `fugu -p TEXT` is `fugu run -p TEXT`, with
    any flags of `run` before it; `-p` or `--print` without a text takes the argument or standard
    input. `--input-format` is `fugu sdk`, which SDKs of Claude Code call without that name.
    `--worktree` alone has an empty name.
    """
    flags = [argument.partition("=")[0] for argument in arguments]
    if not flags or not (flags[0].startswith("-") or flags[0] == "run"):
        return arguments
    end = flags.index("--") if "--" in flags else len(flags)
    arguments = [
        "--worktree=" if argument == "--worktree" and index < end else argument
        for index, argument in enumerate(arguments)
    ]
    if "--input-format" in flags:
        return ["sdk", *arguments[flags[0] == "run" :]]
    prompt_flags = [index for index in range(end) if flags[index] in ("-p", "--prompt", "--print")]
    if not prompt_flags:
        return arguments
    first = prompt_flags[0]
    has_text = first + 1 < len(arguments) and _is_text(arguments[first + 1])
    if flags[first] == "--print" or (arguments[first] == "-p" and not has_text):
        arguments = [*arguments[:first], *arguments[first + 1 :]]
    return arguments if "run" in flags[:first] else ["run", *arguments]


def _is_text(word: str) -> bool:
    """Return whether an argument is a text and no flag."""
    return word == "-" or " " in word or not word.startswith("-")


def _command_line(arguments: Sequence[str]) -> typer.Typer:
    """Return the parser for `arguments`. Importing it is kept small for `fugu` and `fugu run`."""
    if (arguments and not _runs(arguments)) or "_FUGU_COMPLETE" in os.environ:
        from fugu_cli.cli import app

        return app.app
    gc.disable()  # until all is imported: cli/run.py, cli/interface.py
    # httpx would import its own command line, and with it rich and pygments, were it not told that
    # there is none.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
    from fugu_cli.cli import root

    with suppress(ImportError):
        from pydantic.plugin import _loader

        # for plugins of its own pydantic would read the metadata of every installed package
        _loader._plugins = {}
    return root.run_alone if arguments else root.app


def _runs(arguments: Sequence[str]) -> bool:
    return arguments[:1] == ["run"] and "_FUGU_COMPLETE" not in os.environ


INTERRUPTED = 130
"""typer's exit code for a Ctrl-C that no command handled."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a full disk and the like, which are never a bug."""
SHORT = (errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM)
"""Errors of a process that gets no more files, processes or memory."""
LIMITS = (
    "see `ulimit -a` (open files, processes, memory); what was recorded is kept: `fugu run "
    "--continue`"
)
ROOM = "make room on the disk, or send the output elsewhere"


def complain(message: str, hint: str = "") -> None:
    """Print what happened and why, then what to do next."""
    say(f"fugu: {message}\n" + (f"      {hint}\n" if hint else ""))


def say(text: str) -> None:
    """Print a message on standard error, if anybody listens."""
    try:
        if sys.stderr is not None:
            sys.stderr.write(text)
            sys.stderr.flush()
    except (OSError, ValueError):
        return


def _usage(error: Exception) -> None:
    """Print what click found wrong in its own words, with the way to the help."""
    context = getattr(error, "ctx", None)
    if hasattr(error, "possibilities"):
        error.possibilities = None  # click's own guess; ours is the hint
    words = getattr(error, "format_message", lambda: str(error))()
    words = words.replace(
        ": Value error, ", ": ", 1
    )  # pydantic's own words, which say nothing more
    path = context.command_path if context is not None else "fugu"
    if words.startswith("Usage: "):  # a group of commands, called alone
        say(f"{words}\n")
    else:
        from fugu_cli.cli.near_words import suggestion_for

        help_hint = f"`{path} --help` shows what it takes"
        complain(words, f"{suggestion_for(error)} {help_hint}".strip())


def _crashed(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Report a bug of ours, and do not end with 1, which would blame the user's command line."""
    from fugu_cli.system.crash_reports import report_crash

    say(report_crash(error))
    _flush()
    os._exit(2)


def _flush(text: str = "") -> str:
    """Everything a pipe still takes; a reader that went away is no failure, and the interpreter
    must not say it is.

    Why the rest is lost; "" where nothing is, or nobody wants it.
    """
    try:
        if sys.stdout is not None:
            sys.stdout.write(text)
            sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        sys.stdout = None
    except OSError as error:
        sys.stdout = None
        return error.strerror or str(error)
    return ""


if __name__ == "__main__":
    main()
