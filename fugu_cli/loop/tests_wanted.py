"""Which one file a small model writes where no failing test says so: the code that is meant, or a test of it.

Below aims.py, beside brief_files.py. A small model that may write several files hands most of them back as they were,
so it is asked for one: first the code, once that is changed the test. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import PurePosixPath

from fugu_cli import intent, views
from fugu_cli.loop import brief_files
from fugu_cli.test_paths import code_among, tests_among

_DEFINED = re.compile(r"\b(?:def|class|fn|func|function|struct|const|let|var)\s+(\w{3,})")
_OTHER = re.compile(r"\b(?:files?|modules?|scripts?|packages?|pages?|folders?|director(?:y|ies)|projects?)\b", re.I)
_SPREAD = re.compile(r"\b(?:move|moving|renam\w+|split|extract|merge|everywhere|throughout)\b", re.IGNORECASE)
_UNKNOWN = re.compile(
    r"is not (?:a function|a constructor|defined|exported)|ImportError|cannot import|NameError|has no attribute"
    r"|does not provide an export|undefined: |cannot find (?:symbol|function|value)"
)
_MADE = re.compile(r"\s*(?:please\s+)?(?:write|create|make|build|generate)\b", re.IGNORECASE)
"""What a request says that may want another file than the one it is about."""
_WORD = re.compile(r"\w{3,}")
_BESIDE = {".js": ".test", ".jsx": ".test", ".mjs": ".test", ".cjs": ".test", ".ts": ".test", ".tsx": ".test"}


def missing(request: str, changed: Collection[str]) -> bool:
    """The request asks for a change with tests of it, and of both only the change is there."""
    return intent.wants_tests_beside(request) and bool(changed) and not tests_among(changed)


def failing(request: str, changed: Collection[str], run: views.TestRun | None) -> str:
    """The test that was written for the request and fails, as `run` says; "" where there is none, or several."""
    new = tests_among(changed)
    fails = run is not None and not run.ok and not run.stale
    return new[0] if fails and len(new) == 1 and intent.wants_tests(request) else ""


def to_blame(request: str, changed: Collection[str]) -> str:
    """The code that was changed beside the tests that fail, for which it may be wrong as well; "" where the request was
    for tests alone, or it is not one file."""
    code = code_among(changed)
    return code[0] if len(code) == 1 and intent.wants_tests_beside(request) else ""


def unknown(output: str) -> bool:
    """The tests do not find a name in the code: it is not defined or not exported."""
    return _UNKNOWN.search(output) is not None


def brief(request: str, changed: Collection[str], run: views.TestRun | None) -> str:
    """Which of prompts/brief/ asks for the change that the request wants, or for the tests of it."""
    if failing(request, changed, run):
        return "tests_failing"
    return "tests" if missing(request, changed) else "change"


def target(request: str, files: Mapping[str, str], changed: Collection[str]) -> str:
    """The test file to be written now: the one about the code among `files` (path -> content), else a new one named
    like those there are. "" where no tests are wanted, the code they are about is still to be changed (`changed`: what
    was so far), or it is not one file."""
    only = intent.is_for_tests(request) and not intent.wants_tests_beside(request)
    if not only and not missing(request, changed):
        return ""
    code = [path for path in brief_files.targets(files) if not brief_files.DOCUMENT.fullmatch(path)]
    code = [path for path in code if path in changed] or code
    tests = tests_among(files)
    if len(code) != 1 or code[0] in tests:
        return ""
    own = [path for path in tests if about(files[path], code[0], files[code[0]])]
    return (own[0] if len(own) == 1 else "") if own else named(code[0], tests)


def only_code(request: str, files: Mapping[str, str]) -> str:
    """The one file of code that is shown, where the request wants a change that is surely in it; "" otherwise."""
    tests = tests_among(files)
    code = [path for path in files if path not in tests]
    if len(code) != 1 or brief_files.DOCUMENT.fullmatch(code[0]) or not intent.wants_change(request):
        return ""
    if _SPREAD.search(request) or (intent.is_for_tests(request) and not intent.wants_tests_beside(request)):
        return ""
    elsewhere = _OTHER.search(request) is not None or _MADE.search(request) is not None
    return "" if elsewhere and not about(request, code[0], files[code[0]]) else code[0]


def about(text: str, path: str, code: str) -> bool:
    """This text speaks of the code at `path`: of what it defines, or of its name."""
    names = {*_DEFINED.findall(code), PurePosixPath(path).stem}
    return not names.isdisjoint(_WORD.findall(text))


def named(path: str, tests: Sequence[str]) -> str:
    """The path of a new test for the code at `path`, as the language has it, in the folder of the `tests` there are;
    "" where tests stand in the code's own file, or nobody knows."""
    code = PurePosixPath(path)
    alike = [PurePosixPath(test) for test in tests if PurePosixPath(test).suffix == code.suffix]
    name, folder = _name(code, alike), _folder(code, alike)
    return str(folder / name) if name else ""


def _name(code: PurePosixPath, tests: Sequence[PurePosixPath]) -> str:
    if code.suffix == ".py":
        after = tests and tests[0].stem.endswith("_test")
        return f"{code.stem}_test.py" if after else f"test_{code.stem}.py"
    if code.suffix in _BESIDE:
        mark = next((found for test in tests if (found := re.search(r"[.-](?:test|spec)$", test.stem))), None)
        return f"{code.stem}{mark.group() if mark else _BESIDE[code.suffix]}{code.suffix}"
    if code.suffix in (".java", ".kt", ".cs", ".swift"):
        return f"{code.stem}Test{'s' if tests and tests[0].stem.endswith('Tests') else ''}{code.suffix}"
    return {".go": f"{code.stem}_test.go", ".rb": f"{code.stem}_test.rb"}.get(code.suffix, "")


def _folder(code: PurePosixPath, tests: Sequence[PurePosixPath]) -> PurePosixPath:
    if code.suffix in (".java", ".kt") and "src/main/" in f"{code}":
        return PurePosixPath(str(code.parent).replace("src/main", "src/test", 1))
    if tests:
        return tests[0].parent
    aside = code.suffix == ".py" and len(code.parts) > 1
    return PurePosixPath("tests") if aside else code.parent
