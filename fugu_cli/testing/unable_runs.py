"""Test runs that tell nothing of the tests: the runner is not there, there is no network, or it did
not end in time.

Decided once, from the exit code and the output of a run in which no test was counted.
"""

from __future__ import annotations

import re

NOT_STARTED = frozenset({126, 127})
"""Exit codes of a shell that cannot start a program."""
PYTEST_UNABLE = frozenset({2, 3, 4})
"""pytest's exit codes for an interruption, an error of its own, and wrong usage."""
_MISSING_FORMS = (
    r"\bNo module named '?(?:pytest|unittest|nose2|tox|nox|hypothesis|xdist)\b.*",
    r"(?:python|pypy)[\w.-]*: (?:No module named|can't open file)\b.*",  # `python -m`, `python FILE`
    r": (?:command )?not found",
    r"\bcommand not found: \S+",
    r"\b(?:env|exec|sh|bash|dash|zsh|make|make\[\d+\]): .*No such file or directory(?:\.  Stop\.)?",
    r"\bNo rule to make target '[^']*'\.  Stop\.",
    r"\bis not recognized as an internal or external command\b.*",
    r"\bno such command: .*",  # cargo
    r"\bnpm (?:ERR!|error) .*(?:Missing script|canceled due to missing packages).*",
    r"\bERR_PNPM_NO_SCRIPT\b.*",
    r"\bCommand \"[^\"]+\" not found\b.*",  # yarn, poetry
    r"\bCannot find module '[^']*/node_modules/.*",
    r"\bCould not open input file: .*",  # php
)
"""Ends of lines that say that a program, or the script it was to run, is not there."""
_MISSING = re.compile("|".join(rf"^.*{form}$" for form in _MISSING_FORMS), re.MULTILINE)
_NO_NETWORK = re.compile(
    r"^.*(?:Could not (?:resolve host|transfer artifact|find artifact|GET|HEAD)"
    r"|Cannot access \S+ .*in offline mode|UnknownHostException|Unknown host"
    r"|ENOTFOUND|EAI_AGAIN|Temporary failure in name resolution|Name or service not known"
    r"|Network is unreachable|dial tcp: lookup|failed to download .* from registry).*$",
    re.MULTILINE,
)
LONGEST_REASON = 200


def reason_not_run(
    code: int | None, output: str, seconds: float, runner: str, *, counted: bool
) -> str:
    """Return why a run says nothing about the tests, as a clause; "" if it says something. `code`
    is the exit code, None for a run that was ended after `seconds`. `runner` is the kind of runner,
    "" if unknown. `counted`: the run reported a test that passed or failed.
    """
    if code is None:
        return f"the tests did not finish in {seconds:.0f} s"
    if code == 0 or counted:
        return ""
    if match := _MISSING.search(output):
        return f"the tests could not be run: {_short(match.group())}"
    if match := _NO_NETWORK.search(output):
        return f"the tests could not be run: {_short(match.group())}"
    if code in NOT_STARTED:
        return f"the tests could not be run: {_last_line(output)} (exit code {code})"
    if runner == "pytest" and code in PYTEST_UNABLE:
        return f"the tests could not be run: {_last_line(output)} (exit code {code})"
    return ""


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return _short(lines[-1]) if lines else "nothing was printed"


def _short(line: str) -> str:
    text = line.strip()
    return text if len(text) <= LONGEST_REASON else text[:LONGEST_REASON] + "..."
