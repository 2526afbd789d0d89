"""Where the request comes from: the argument, `-p`, `--prompt-file`, or standard input; exactly one of them."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from fugu_cli.commands.flags import RunFlags
from fugu_cli.errors import UsageError

HINT = 'give one: fugu run "...", -p "...", --prompt-file FILE, or a pipe'


def read(flags: RunFlags, stdin: TextIO | None) -> str | None:
    """The request's text; None when none was given and an earlier session is to go on.

    Standard input counts when it is asked for with `-`, or when it is a pipe and nothing else was given. Raises
    UsageError when there are several, none, or an empty one.
    """
    given = {"an argument": flags.text, "-p": flags.prompt, "--prompt-file": flags.prompt_file}
    said = [name for name, value in given.items() if value is not None]
    if len(said) > 1:
        raise UsageError(f"there are {len(said)} prompts: {' and '.join(said)}", hint=HINT)
    if not said and (flags.go_on or flags.resume):
        return None
    if not said and (stdin is None or stdin.isatty()):
        raise UsageError("there is no prompt", hint=HINT)
    text = _text(flags, stdin)
    if not text.strip():
        raise UsageError("the prompt is empty", hint=HINT)
    return text.strip("\n")


def _text(flags: RunFlags, stdin: TextIO | None) -> str:
    if flags.prompt_file is not None:
        return _file(flags.prompt_file)
    text = flags.text if flags.text is not None else flags.prompt
    if text not in (None, "-"):
        return text
    if stdin is None:
        raise UsageError("standard input is closed", hint=HINT)
    return piped(stdin)


def piped(stdin: TextIO) -> str:
    """All of standard input. Raises UsageError for what is no text."""
    try:
        text = stdin.read()
        text.encode("utf-8")  # some locales let bytes through that are none
    except UnicodeError as error:
        raise UsageError(
            "standard input is not UTF-8 text", hint="convert it, or name a file in the request"
        ) from error
    return text.removeprefix("\ufeff")


def _file(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}", hint="check --prompt-file") from error
