"""Guesses from the words of a request whether it wants tests, a change or an answer, and which
files it is about.

For models that are too small to be asked. Knows neither the log nor how anything is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from fugu_cli.repair.replies import DOCUMENTS, PATH
from fugu_cli.repair.syntax import is_stub
from fugu_cli.session.events import Asked
from fugu_cli.session.recognized_tests import code_among, tests_among

_POLITE = r"\s*(?:please\s+|can you\s+|could you\s+|would you\s+)?"
_ABOUT = re.compile(
    r"\b(tests?|pytest|unittest|failing|fails?|failed|failure|fix(?:es|ed|ing)?|bugs?|broken|breaks?|crash(?:es|ed)?"
    r"|errors?|exceptions?|traceback|regression|implement(?:s|ed|ing)?|pass(?:es)?|green|repair)\b",
    re.IGNORECASE,
)
_NEW_TESTS = re.compile(
    r"\b(?:write|add|create|generate|extend)\s+(?:(?!code\b)[\w-]+\s+){0,4}tests?\b(?!\s+(?:pass|green|succeed))",
    re.IGNORECASE,
)
_FAILING = re.compile(
    r"\b(?:fix|repair|correct|solve)\s+(?:(?:all|the|my|our|any)\s+)*(?:failing|failed|broken|red)\s+(?:unit\s+)?tests?\b"
    r"|^\s*(?:please\s+)?(?:fix|repair)(?:\s+(?:it|this|that|everything|(?:the|my)\s+\w+))?\s*[.!]*\s*$",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    _POLITE
    + r"(?:add|rename|remove|delete|replace|move|refactor|change|extract|convert|insert|implement|create|update"
    r"|bump|upgrade|increase|decrease|enable|disable|rewrite|reformat|translate|inline|document|build|generate|support"
    r"|handle|allow|let|ensure|turn|split|merge|simplify|optimi[sz]e|improve|clean|port|wrap|validate|use|switch|sort"
    r"|format|log|cache|make(?!.*\b(?:pass|green)\b)"
    r"|write(?!\s+(?:me\s+)?(?:an?|the|some)?\s*(?:\w+\s+)?"
    r"(?:functions?|method|code|program|snippet|query|algorithm|commit message)\b))\b",
    re.IGNORECASE,
)
_HAS_TO = re.compile(r"\b(?:should|must|needs?|has to|have to|ought to)\b", re.IGNORECASE)
_PIECES = re.compile(r"(?<=[.!?;:])\s+|\n+|,?\s+\b(?:(?:and|then|but)\b\s+)+")
_TAKING = re.compile(
    r"\b(?:remov|delet|drop|renam|replac|move|moving|extract|split|merg|inline|rewrit|refactor|simplif|clean|get rid"
    r"|unused)\w*\b(?!\()",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\s*(?:please\s+|can you\s+|could "
    r"you\s+)?(?:what|why|how|where|who|which|when|explain|describe|summari[sz]e|list"
    r"|show|tell|review|analy[sz]e|inspect|suggest|(?:is|are|was|were|does|do|did|has|have)(?=\b[^?]*\?))\b",
    re.IGNORECASE,
)
_TALK = re.compile(
    r"\W*(?:hi|hello|hey|thanks|thank you|good \w+|great|perfect|help)(?:\W+\w+)?\W*", re.IGNORECASE
)
_WORK = re.compile(
    r"\b(?:fix|implement|repair|updat|chang|add\b|remov|delet|rewrit|refactor|apply|clean|correct\b|writ|creat|mak|replac)",
    re.IGNORECASE,
)
_ASKED_FOR = re.compile(r"\b(?:please|can you|could you|would you|will you)\b", re.IGNORECASE)
_WORKED_OUT = re.compile(
    r"(?:^|[.!?,:]\s+)(?:please\s+)?(?:calculate|compute|find|determine|evaluate|solve(?!.*issue)|simplify|prove)\b.*"
    r"|\bhow (?:many|much)\b.*",
    re.IGNORECASE | re.DOTALL,
)
_TEST_RUN = re.compile(
    _POLITE
    + r"(?:(?:(?:re-?)?run|execute|check|start)\s+(?:(?:all|the|my|our|of|unit|integration)\s+)*"
    r"(?:tests?|test suite|pytest|specs?)(?:\s+(?:again|please|now))?"
    r"|(?:do|are)\s+(?:(?:all|the|my|our|of)\s+)*tests?\s+(?:still\s+)?(?:pass|passing|green))\s*[.!?]*\s*",
    re.IGNORECASE,
)
MANIFEST = re.compile(
    r"(?:.*/)?(?:Cargo\.toml|pyproject\.toml|setup\.(?:py|cfg)|package\.json|go\.mod|pom\.xml|[^/]*\.(?:gradle|csproj))"
)
"""Files that say how code is built and are seldom the cause of a fault."""


def is_for_a_test_run(text: str) -> bool:
    """The request is to run the tests and to say how they stand; nothing is to be changed."""
    return _TEST_RUN.fullmatch(text) is not None


def is_worked_out(text: str) -> bool:
    """Something is to be worked out from figures that the request gives; no file says anything of
    it.
    """
    asks_for_figures = _WORKED_OUT.search(text) is not None and re.search(r"\d", text) is not None
    return asks_for_figures and not (PATH.search(text) or _ABOUT.search(text))


def is_question(text: str) -> bool:
    """The request asks for words and for no change: a question, talk, or something to be worked out
    from figures.
    """
    if is_for_a_test_run(text):
        return False
    asks = text.rstrip().endswith("?") and not _ASKED_FOR.search(text)
    begins = _QUESTION.match(text) is not None
    change = any(_CHANGE.match(piece) for piece in _PIECES.split(text))
    work = (
        _WORK.search(text[len(text.split("?")[0]) :] if begins and "?" in text else text)
        is not None
    )
    if change or (work and not text.rstrip().endswith("?")):
        return False
    return is_worked_out(text) or begins or asks or _TALK.fullmatch(text) is not None


def is_about_tests(text: str) -> bool:
    """The request asks for something whose success the tests can show. Questions about the code are
    not.
    """
    return not (is_question(text) or is_for_a_test_run(text)) and _ABOUT.search(text) is not None


def is_for_tests(text: str) -> bool:
    """The request asks for tests to be written, and not only for code that passes them."""
    return not is_question(text) and _NEW_TESTS.search(text) is not None


def wants_change(text: str) -> bool:
    """The request asks for something to be made or to become otherwise: an answer is not enough. To
    mend what may not be broken ("fix the bug in a.py") is none: there an answer may say so."""
    if is_question(text) or is_for_a_test_run(text):
        return False
    asks_for_change = any(_CHANGE.match(piece) for piece in _PIECES.split(text))
    return asks_for_change or is_for_tests(text) or _HAS_TO.search(text) is not None


def is_for_failing_tests(text: str) -> bool:
    """The request is to mend the tests that fail, and names nothing else."""
    return _FAILING.search(text) is not None


def takes_away(text: str) -> bool:
    """The request may mean that something goes from a file, or gets another name or place."""
    return _TAKING.search(text) is not None


def target_files(files: Iterable[str]) -> list[str]:
    """The paths that a request judged by tests is about: no tests; documents and manifests only
    where that is all.
    """
    code = code_among(files)
    return [
        path for path in code if not (path.endswith(DOCUMENTS) or MANIFEST.fullmatch(path))
    ] or code


def code_files(files: Iterable[str]) -> list[str]:
    """The paths of code that is no test, and no document."""
    return [path for path in code_among(files) if not path.endswith(DOCUMENTS)]


def is_unfinished(files: Mapping[str, str]) -> bool:
    """The code that the files (path -> content) are about is still to be written, or some of it."""
    code = target_files(files)
    return any(is_stub(path, files[path]) for path in code) or (not code and bool(files))


def target_file(request: Asked | None, files: Iterable[str]) -> str:
    """The one file that is to be written where the request leaves no doubt: one that it names and
    that is not there, the one test of a request for tests, or the one document that it names; else
    ""."""
    shown = list(files)
    named, missing = _named_files(request, shown)
    if request is None:
        return ""
    tests = tests_among([*named, *missing])
    if len(tests) == 1 and is_for_tests(request.text):
        return tests[0]
    words = {word.lower() for word in re.findall(r"\w+", request.text)}
    stems = {
        path: path.rpartition("/")[2].partition(".")[0].lower()
        for path in shown
        if path.endswith(DOCUMENTS)
    }
    documents = [path for path, stem in stems.items() if stem in words]
    if len(documents) == 1 and not set(named) - set(documents) and wants_change(request.text):
        return documents[0]
    return missing[0] if len(missing) == 1 and not named else ""


def is_open_ended(request: Asked | None, files: Iterable[str], *, judged: bool) -> bool:
    """The request may mean other files than these: it asks for tests, names one that is not among
    them, or names none and is not judged by the tests, whose output has led to these."""
    shown = list(files)
    if request is None or not shown or is_question(request.text):
        return False
    named, missing = _named_files(request, shown)
    return bool(missing) or (is_for_tests(request.text) if judged else not named)


def _named_files(request: Asked | None, shown: list[str]) -> tuple[list[str], list[str]]:
    """Of the files that the request names: those that are shown, and the others that it may want to
    be written.
    """
    if request is None or is_question(request.text):
        return [], []
    paths = [path.removeprefix("./") for path in dict.fromkeys(PATH.findall(request.text))]
    named = [
        path for path in shown if any(path == name or path.endswith(f"/{name}") for name in paths)
    ]
    missing = [
        name
        for name in paths
        if not any(path == name or path.endswith(f"/{name}") for path in shown)
    ]
    return named, missing if is_for_tests(request.text) else code_among(missing)
