"""What is read of a command line, against the shells themselves.

Every program is replaced by a recorder in an empty folder; a shell then says which programs a
script runs, with which words. Policy must have seen each of them, or have said that the script is
more than simple commands. `FUGU_SCRIPTS=20000` in the environment runs so many scripts for each shell instead of
200. A script that fails is added to scripts.jsonl.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fugu_cli.safety.policy.shell_line import parse_line

SCRIPTS = int(os.environ.get("FUGU_SCRIPTS", "200"))
CORPUS = [
    json.loads(line)
    for line in (Path(__file__).parent / "scripts.jsonl").read_text("utf-8").splitlines()
]
RECORDED = ("a", "b", "git", "r", "push")
REAL = ("sh", "bash", "env", "xargs", "nice")
"""Programs that run others. `env -i` forgets the folder of the recorders: no name of theirs may be
a real danger.
"""
RECORDER = "#!/bin/sh\nprintf '%%s\\037' \"${0##*/}\" \"$@\" '\x1e' >> %s\n"
"""One `printf` is one write: the records of a pipeline do not mix."""
SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-c"),
    "dash": ("dash", "-c"),
    "zsh": ("zsh", "--emulate", "sh", "-f", "-c"),
}
LOG_LIMIT = 4096
"""Bytes of what recorders write."""

PLAIN = [
    "a",
    "b",
    "git",
    "r",
    "push",
    "x",
    "-n",
    "1",
    "2",
    "x=1",
    "c",
    "=",
    "!",
    "+",
    "@",
    "%",
    "]",
    "[",
    "é",
]
QUOTED = [
    "'q r'",
    '"q r"',
    "'$(r q)'",
    "'`r`'",
    '"a\'b"',
    "'a\"b'",
    "\\ ",
    "\\'",
    '\\"',
    "\\$",
    "\\\\",
    "''",
    '""',
    "'#'",
]
EXPANDED = [
    "$x",
    "${x}",
    '"$x"',
    "${x:-a}",
    "$1",
    '"$@"',
    "$((1+2))",
    "$((x))",
    "*",
    "?",
    "[ab]*",
    "[^x]",
    "p*",
    "~",
]
BASH_ONLY = [
    "-",
    "{a,b}",
    "{1..2}",
    "{a,{b,c}}",
    "$'q'",
    "$'\\''",
    "&>f",
    "<<<a",
    "{git,push}",
    "|&",
]
SOUP = [
    *(
        "'",
        '"',
        "\\",
        "$",
        "`",
        "(",
        ")",
        "{",
        "}",
        ";",
        "&",
        "|",
        "<",
        ">",
        "\n",
        "#",
        " ",
        "!",
        "*",
        "[",
        "]",
        "=",
        "\t",
    ),
    *(
        "$(",
        "$((",
        "))",
        "${",
        "<<",
        "<<-",
        "<(",
        ">(",
        "\\\n",
        ";;",
        "&&",
        "||",
        ">&",
        "2>",
        "<<A",
        "\nA\n",
        "$[",
        "$'",
    ),
    *(
        " #",
        "((",
        "[[ ",
        " ]]",
        "function ",
        "case ",
        " in ",
        " esac",
        "time ",
        "{x}>",
        "$'\\'",
        "x[",
        "\r",
        "\x01",
    ),
]
DELIMITERS = [
    "A",
    "'A'",
    '"A"',
    "\\A",
    '"$(A)"',
    "$(A)",
    "`A`",
    "A$x",
    "A'B'",
    '"A B"',
    "-A",
    "A;a",
    "A<(b)",
    "$((1))",
]
BODIES = [
    "",
    "q\n",
    "A \n",
    "\tA\n",
    "$(r q)\n",
    "`r`\n",
    "$x\n",
    "$(A)\n",
    "q\\\n",
    "a; b\n",
    "AB\n",
    "${x:-$(r)}\n",
    "'\n",
]


@cache
def words(bash: bool) -> st.SearchStrategy[str]:
    atoms = [*PLAIN, *PLAIN, *QUOTED, *EXPANDED, *(BASH_ONLY if bash else ())]
    return st.lists(st.sampled_from(atoms), min_size=1, max_size=3).map("".join) | st.sampled_from(
        PLAIN
    )


@cache
def heredocs() -> st.SearchStrategy[str]:
    parts = (
        st.sampled_from(["<<", "<<-", "<< "]),
        st.sampled_from(DELIMITERS),
        st.sampled_from(["", " ; b", " && git x"]),
    )
    bodies, ends = (
        st.lists(st.sampled_from(BODIES), max_size=3).map("".join),
        st.sampled_from(["A\n", "$(A)\n", "A", "-A\n"]),
    )
    return st.tuples(
        *parts, st.just("\n"), bodies, ends, st.sampled_from(["git push\n", "a", ""])
    ).map("".join)


@cache
def commands(bash: bool) -> st.SearchStrategy[str]:
    word = words(bash)
    started = st.sampled_from(
        [
            "a",
            "b",
            "git",
            "r",
            "x=1 a",
            "xargs a",
            "nice git",
            "time a",
            "! b",
            "command a",
            "env a",
            "exec a",
            "'a'",
            "$x",
        ]
    )
    redirects = st.sampled_from(
        ["", "", "", ">f", " 2>&1", "2>f", " >f 2>&1", "<f", ">&2", " 2 >f", ">|f"]
    )
    simple = st.builds(
        lambda first, rest, to: " ".join([first, *rest]) + to,
        started,
        st.lists(word, max_size=3),
        redirects,
    )
    shells = simple.map(lambda line: "sh -c '" + line.replace("'", "'\\''") + "'")

    def compound(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        joined = st.builds(lambda one, op, other: one + op + other, inner,
                           st.sampled_from([" && ", " || ", "; ", " | ", "\n", " & ", "|", "&&"]), inner)  # fmt: skip
        return (
            joined
            | inner.map(lambda one: f"( {one} )")
            | inner.map(lambda one: f"{{ {one}; }}")
            | inner.map(lambda one: f"a $({one})")
            | inner.map(lambda one: f'a "$({one})" b')
            | inner.map(lambda one: f"a `{one}`")
            | inner.map(lambda one: f'a "`{one}`"')
            | st.builds("if {}; then {}; else {}; fi".format, inner, inner, inner)
            | st.builds("for x in {} git; do {}; done".format, word, inner)
            | st.builds("while {}; do {}; exit; done".format, inner, inner)
            | st.builds("{} # {}\n{}".format, inner, inner, inner)
            | st.builds("{} \\\n {}".format, inner, word)
            | st.builds("case {} in {}) {};; esac".format, word, word, inner)
            | st.builds("f() {{ {}; }}; f {}".format, inner, word)
            | st.builds("{} {}".format, inner, heredocs())
        )

    return st.recursive(simple | simple | shells, compound, max_leaves=4)


@cache
def scripts(bash: bool) -> st.SearchStrategy[str]:
    """Scripts, in half of the cases with a few characters put where they may not belong."""
    soup = (
        SOUP
        if bash
        else [
            one
            for one in SOUP
            if one not in {"$'", "$'\\'", "[[ ", "time ", "{x}>", "function ", "$["}
        ]
    )
    put = st.lists(st.tuples(st.integers(0, 60), st.sampled_from(soup)), max_size=4)
    return st.builds(_disturbed, commands(bash), st.just([]) | put)


def _disturbed(text: str, put: list[tuple[int, str]]) -> str:
    for at, piece in put:
        text = text[:at] + piece + text[at:]
    return text


def _limited() -> None:
    """A loop ends: when its recorders can write no more, or, where it runs none, when it has used a
    second.
    """
    resource.setrlimit(resource.RLIMIT_FSIZE, (LOG_LIMIT, LOG_LIMIT))
    resource.setrlimit(resource.RLIMIT_CPU, (1, 1))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str], set[tuple[str, ...]]]:
    """What a shell runs of a script: the names and words of the recorders."""
    place = tmp_path_factory.mktemp("shells")
    log, programs, work = place / "log", place / "bin", place / "work"
    programs.mkdir()
    for name in RECORDED:
        (programs / name).write_text(RECORDER % log)
        (programs / name).chmod(0o755)
    for name in REAL:
        (programs / name).symlink_to(shutil.which(name) or "/bin/sh")

    def run(shell: str, script: str) -> set[tuple[str, ...]]:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        for name in ("push", "p1", "x"):
            (work / name).touch()
        log.write_bytes(b"")
        found = shutil.which(SHELLS[shell][0])
        assert found is not None
        subprocess.run(
            [found, *SHELLS[shell][1:], script], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, check=False,
            env={"PATH": str(programs), "HOME": str(work)}, timeout=60, errors="replace",
            preexec_fn=_limited,
        )  # fmt: skip
        text = log.read_bytes().decode("utf-8", "surrogateescape")
        return {tuple(call.split("\x1f")[:-1]) for call in text.split("\x1e\x1f")[:-1]}

    return run


def check(shell: str, script: str, ran: Callable[[str, str], set[tuple[str, ...]]]) -> None:
    """A line without a fault is read as a shell reads it: what runs is among its commands."""
    line = parse_line(script)
    if line.fault or any(command.name in REAL for command in line.commands):
        return
    if any(command.name in {"exec", "command", "$x"} for command in line.commands):
        return
    commands = [command for command in line.commands if command.words]
    if not all(word.plain for command in commands for word in command.words):
        return
    forms = {(command.name, *command.arguments) for command in commands}
    missed = ran(shell, script) - forms
    assert not missed, (
        f"{shell} ran {missed} of a script that was read; the corpus takes it "
        f"as\n{json.dumps(script)}"
    )


@pytest.mark.parametrize("shell", SHELLS)
def test_what_a_shell_runs_has_been_seen_or_the_script_cannot_be_read(
    shell: str, ran: Callable[[str, str], set[tuple[str, ...]]]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")

    @given(scripts(shell == "bash"))
    @settings(
        max_examples=SCRIPTS, deadline=None, suppress_health_check=list(HealthCheck), database=None
    )
    def agrees(script: str) -> None:
        check(shell, script, ran)

    agrees()


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("script", CORPUS)
def test_scripts_that_were_once_read_otherwise_than_a_shell_does(
    shell: str, script: str, ran: Callable[[str, str], set[tuple[str, ...]]]
) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    check(shell, script, ran)
