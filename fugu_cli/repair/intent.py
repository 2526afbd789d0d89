"""What a request asks for: tests, a change or an answer, and which of the shown files it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from fugu_cli.providers.code_blocks import fenced
from fugu_cli.repair.code_structure import is_stub
from fugu_cli.repair.edit_parser import FILE, PATH
from fugu_cli.session.events import Asked
from fugu_cli.session.recognized_tests import code_among, tests_among

_ABOUT = re.compile(
    r"\b(tests?|pytest|unittest|failing|fails?|failed|failure|fix(?:es|ed|ing)?|bugs?|broken|breaks?|crash(?:es|ed)?"
    r"|errors?|exceptions?|traceback|regression|implement(?:s|ed|ing)?|pass(?:es)?|green|repair)\b",
    re.IGNORECASE,
)
_NEW_TESTS = re.compile(
    r"\b(?:write|add|create|generate|extend)\s+"
    r"(?:(?:an?|some|more|new|the|my|unit|integration|regression|missing|additional|simple|good|pytest|few|\d+)\s+){0,4}"
    r"tests?\b(?!\s+(?:pass|green|succeed))",
    re.IGNORECASE,
)
_FAILING = re.compile(
    r"\b(?:fix|repair|correct|solve)\s+(?:(?:all|the|my|our|any)\s+)*(?:failing|failed|broken|red)\s+(?:unit\s+)?tests?\b"
    r"|^\s*(?:please\s+)?(?:fix|repair)(?:\s+(?:it|this|that|everything|(?:all\s+)?(?:the|my)\s+(?:code|bugs?|build|ci"
    r"|tests?|errors?|problems?|issues?)))?\s*[.!]*\s*$",
    re.IGNORECASE,
)
_CHANGE = re.compile(
    r"\s*(?:please\s+|can you\s+|could you\s+)?"
    r"(?:add|rename|remove|delete|replace|move|refactor|change|extract|convert|insert|implement|create|update|bump|upgrade"
    r"|downgrade|increase|decrease|enable|disable|rewrite|reformat|translate|inline"
    r"|(?:write|document)\s+(?:[\w()`.]+\s+){0,4}(?:readme|changelog|sections?|docstrings?|documentation|comments?))\b",
    re.IGNORECASE,
)
_MORE_CHANGE = re.compile(
    r"\s*(?:please\s+|can you\s+|could you\s+)?"
    r"(?:write(?!\s+(?:me\s+)?(?:(?:an?|the|some|python|javascript)\s+){0,2}"
    r"(?:functions?|method|code|program|snippet|query|regex|algorithm)\b)"
    r"|make(?!.*\b(?:pass|green)\b)|build|generate|support|handle|allow|let|ensure|turn|split|merge|simplify|optimi[sz]e|improve|clean|port"
    r"|wrap|validate|use|switch|sort|format|log|cache)\b",
    re.IGNORECASE,
)
_HAS_TO = re.compile(r"\b(?:should|must|needs?|has to|have to|ought to)\b", re.IGNORECASE)
_PIECES = re.compile(r"(?<=[.!;:])\s+|\n+|,?\s+\b(?:(?:and|then|but)\b\s+)+")
_TESTS_TOO = re.compile(
    r",?\s+\b(?:with|plus|including|and)\s+(?:(?:an?|some|new|unit|its|their|also)\s+){0,3}tests?\b"
    r"(?!\s+(?:pass|green|succeed|fail|command|suite|files?|cases?\s+in)|\s+(?:in|from|under)\s+\S*/)"
    r"(?:\s+for\s+(?:it|them|that|this|both))?",
    re.IGNORECASE,
)
_TAKING = re.compile(
    r"\b(?:remov|delet|drop|renam|replac|move|moving|extract|split|merg|inline|rewrit|refactor|simplif|clean|get rid"
    r"|unused)\w*\b(?!\()",
    re.IGNORECASE,
)
_TAKES = re.compile(r"\b(?:remov|delet|renam|replac|refactor|rewrit|clean up|get rid)", re.IGNORECASE)
_ASKS_FOR_WORK = re.compile(
    r"\bplease\b|\b(?:can|could|would|will)\s+you\b(?!\s+(?:explain|describe|summari[sz]e|list|show|tell)\b)",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"^\s*(what|why|how|where|who|which|when|explain|describe|summari[sz]e|list|show|tell)\b", re.IGNORECASE
)
_WORKED_OUT = re.compile(
    r"(?:^|[.!?,:]\s+)(?:please\s+)?(?:calculate|compute|find|determine|evaluate"
    r"|solve(?!\s+(?:the\s+)?(?:issue|ticket|#))|simplify|prove|work out)\b"
    r"|\bhow (?:many|much)\b",
    re.IGNORECASE,
)
_YES_OR_NO = re.compile(r"\s*(?:is|are|was|were|does|do|did|has|have|any|anything)\b[^.?!\n]*\?\s*", re.IGNORECASE)
_LOOKED_AT = re.compile(
    r"\s*(?:please\s+)?(?:review|analy[sz]e|audit|inspect|critique|suggest|recommend|discuss)\b", re.IGNORECASE
)
_TO_SAY = re.compile(
    r"\s*(?:please\s+)?(?:write|suggest|draft|propose|give me|find)\s+(?:me\s+)?(?:an?\s+|the\s+)?(?:\w+\s+){0,2}"
    r"(?:commit message|(?:pull request|pr|merge request)\s+(?:description|text|title))\b",
    re.IGNORECASE,
)
_UNCOMMITTED = re.compile(
    r"\b(?:my|these|our) (?:(?:current|recent|local|last|latest|pending|new) )?changes\b|\bgit (?:diff|status)\b"
    r"|\b(?:uncommitted|unstaged|staged)\b|\bcommit message\b|\bwhat (?:did|have) (?:I|we) changed?\b"
    r"|\bwhat(?:'s| is| has| was)? changed\b(?!\s+(?:in|between|since|with))|\b(?:my|the|this) diff\b",
    re.IGNORECASE,
)
_WORK = re.compile(
    r"\b(?:fix|implement|repair|updat|chang|add\b|remov|delet|rewrit|refactor|apply|clean|correct\b|writ|creat|mak|replac)",
    re.IGNORECASE,
)
_TEST_RUN = re.compile(
    r"\s*(?:(?:please\s+|can you\s+|could you\s+)?(?:(?:re-?)?run|execute|check|start)\s+"
    r"(?:(?:all|the|my|our|of|unit|integration)\s+)*(?:tests?|test suite|pytest|specs?)(?:\s+(?:again|please|now))?"
    r"|(?:do|are)\s+(?:(?:all|the|my|our|of)\s+)*tests?\s+(?:still\s+)?(?:pass|passing|green))\s*[.!?]*\s*",
    re.IGNORECASE,
)
_TALK = {
    r"(?:help|ls|pwd|dir|clear|exit|quit|whoami|\?+)(?!\w)": 0,
    r"(?:hi|hiya|hello|hey|howdy|greetings|good (?:morning|afternoon|evening|day|night)|bye|goodbye|see you)\b": 2,
    r"(?:(?:that(?:'s| is| was) |very |really )?(?:great|nice|cool|perfect|awesome|excellent|helpful|wonderful)"
    r"|well done|nice to meet you)\b": 3,
    r"(?:thank you|thanks|thx|cheers)\b": 8,
    r"(?:my name is|call me)\b": 12,
}
"""How talk begins, and how many words it may go on for: "Hello, dark mode for the settings" is work."""
_NO_TALK = re.compile(
    r"\b(?:add|make|write|creat|use\b|using|updat|renam|remov|delet|replac|move|refactor|chang|extract|convert|insert"
    r"|build|port\b|bump|upgrad|set\b|put\b|run|do\b|try|continu|go on|now\b|next|also|but\b|instead|should|must|need"
    r"|want|pleas|you\b|world|program|scripts?\b|functions?\b|class|files?\b|app\b|server|page|endpoint|code\b|method)"
    r"|[`/_]|\w[.(]\w",
    re.IGNORECASE,
)


def is_talk(text: str) -> bool:
    """A greeting, thanks, praise or a name, and nothing that could be work: a small model would make a file of it."""
    begins = ((re.match(rf"\s*{words}", text, re.IGNORECASE), most) for words, most in _TALK.items())
    rest = next(
        (text[found.end() :] for found, most in begins if found and len(text[found.end() :].split()) <= most), None
    )
    return rest is not None and _NO_TALK.search(rest) is None and _ABOUT.search(text) is None


def is_about_tests(text: str) -> bool:
    """The request asks for something whose success the tests can show. Questions about the code are not."""
    return not (is_question(text) or is_for_a_test_run(text)) and _ABOUT.search(text) is not None


def is_for_a_test_run(text: str) -> bool:
    """The request is to run the tests and to say how they stand; nothing is to be changed."""
    return _TEST_RUN.fullmatch(text) is not None


def is_question(text: str) -> bool:
    """The request asks about the code and for no change of it, or is talk: tests judge no answer."""
    asks = _QUESTION.match(text) or _YES_OR_NO.fullmatch(text)
    if asks and not re.search(r"\b(fix|implement|repair)\b", text, re.IGNORECASE):
        return not is_for_a_test_run(text)
    said = _TO_SAY.match(text) is not None
    works = _WORK.search(_UNCOMMITTED.sub("", text)) is not None
    return said or is_talk(text) or (_LOOKED_AT.match(text) is not None and not works)


def only_asks(text: str) -> bool:
    """As `is_question`, with those of any other form: nothing will be changed, so no test need be run."""
    asks = text.rstrip().endswith("?") and not is_change(text) and not _ASKS_FOR_WORK.search(text)
    return (asks and not is_for_a_test_run(text)) or is_question(text)


def is_self_contained(text: str) -> bool:
    """The request asks for an answer that files need not say: it is a question, or something to be worked out from
    figures that it gives. ("Simplify the retry logic" is work on files.)"""
    worked_out = _WORKED_OUT.search(text) is not None and re.search(r"\d", text) is not None
    return only_asks(text) or (worked_out and not (is_change(text) or _ABOUT.search(text) or _TAKES.search(text)))


def is_for_tests(text: str) -> bool:
    """The request asks for tests to be written, and not only for code that passes them."""
    return not is_question(text) and _NEW_TESTS.search(text) is not None


def is_change(text: str) -> bool:
    """The request surely asks for files to be changed: words alone do not carry it out."""
    return _CHANGE.match(text) is not None


def wants_change(text: str) -> bool:
    """The request asks for something to be made or to become otherwise, in any sentence: an answer is not enough.

    Not to mend what may not be broken ("fix the bug in a.py"): there an answer may say so.
    """
    if only_asks(text) or is_self_contained(text) or is_for_a_test_run(text):
        return False
    pieces = _PIECES.split(text)
    asked = any(_CHANGE.match(piece) or _MORE_CHANGE.match(piece) for piece in pieces)
    return asked or is_for_tests(text) or _HAS_TO.search(text) is not None


def wants_tests(text: str) -> bool:
    """The request asks for tests to be written, alone or beside a change."""
    return is_for_tests(text) or wants_tests_beside(text)


def wants_tests_beside(text: str) -> bool:
    """The request asks for a change and for tests of it ("add a function f with a test")."""
    rest = _TESTS_TOO.sub("", text)
    if rest == text:
        rest = " ".join(piece for piece in _PIECES.split(text) if not _NEW_TESTS.match(piece.strip()))
        if not is_for_tests(text):
            return False
    return not is_for_tests(rest) and wants_change(rest)


def is_for_failing_tests(text: str) -> bool:
    """The request is to mend the tests that fail, and names nothing else."""
    return _FAILING.search(text) is not None


def takes_away(text: str) -> bool:
    """The request may mean that something goes from a file, or gets another name or place."""
    return _TAKING.search(text) is not None


DOCUMENT = re.compile(r".*\.(?:md|markdown|rst|adoc|txt)", re.IGNORECASE)
MANIFEST = re.compile(
    r"(?:.*/)?(?:Cargo\.toml|pyproject\.toml|setup\.(?:py|cfg)|package\.json|go\.mod|pom\.xml|[^/]*\.(?:gradle|csproj))"
)
"""What says how code is built, and is seldom what is wrong with it."""
_NEW = re.compile(
    r"\b(?:create|add|write|make|generate|set up)\s+(?:me\s+)?"
    r"(?:(?:an?|the|my|our|new|simple|short|basic|good|small|proper|sensible|standard|mit|apache|python|node|rust)\s+){0,3}"
    r"\.?(readme|changelog|licen[cs]e|contributing|makefile|dockerfile|gitignore|dockerignore|editorconfig)\b"
    r"(?!\.\w|\s+(?:section|entry|target|rule|line|badge|header|chapter|for\s+the\s+\w+\s+(?:function|class)))",
    re.IGNORECASE,
)
_CALLED = {
    "readme": "README.md",
    "changelog": "CHANGELOG.md",
    "license": "LICENSE",
    "licence": "LICENCE",
    "contributing": "CONTRIBUTING.md",
    "makefile": "Makefile",
    "dockerfile": "Dockerfile",
}
"""The files that people call by another name than they have; the others begin with a dot."""
DOCUMENT_LIMIT = 4000
TEST_LIMIT = 3000
"""Characters shown of a document, and of a test beside a stub: some 1,000 tokens, which a 1.5b reads in 20 s on two
cores. Of a document the end is shown as well: what a general introduction is about comes last."""


def target_files(files: Iterable[str]) -> list[str]:
    """The paths of the code that a request judged by tests is about: no tests, and documents only where that is all."""
    code = code_among(files)
    return [path for path in code if not DOCUMENT.fullmatch(path)] or code


def blamed_files(files: Iterable[str], told: str) -> list[str]:
    """Of the targets those that failing tests may be about: what says how code is built only where the request or the
    tests' output, `told`, names it, or where that is all."""
    paths = target_files(files)
    return [path for path in paths if not MANIFEST.fullmatch(path) or path in told] or paths


def code_files(files: Iterable[str]) -> list[str]:
    """The paths of code that is no test, and no document."""
    return [path for path in code_among(files) if not DOCUMENT.fullmatch(path)]


def without_code(files: Mapping[str, str]) -> dict[str, str]:
    """The tests and documents: beside one function that is asked for, a small model writes the other code again."""
    return {path: text for path, text in files.items() if path not in code_files(files)}


def target_file(request: Asked | None, files: Iterable[str]) -> str:
    """The one file that the request names and that is not there, or the one test of a request for tests; "" where it
    names others, or one of `files`."""
    shown = list(files)
    named, missing = _named(request, shown)
    wanted = tests_among([*named, *missing])
    if len(wanted) == 1 and request is not None and is_for_tests(request.text):
        return wanted[0]
    if document := _document(request, shown):
        return document
    return missing[0] if len(missing) == 1 and not named else ""


def _document(request: Asked | None, shown: Sequence[str]) -> str:
    """The one document that is to be changed, by the name that people call it; "" where there is none, or other files
    are named as well."""
    if request is None or not is_change(request.text) or any(path in request.text for path in shown):
        return ""
    stems = {path: path.rpartition("/")[2].partition(".")[0] for path in shown if DOCUMENT.fullmatch(path)}
    found = [path for path, stem in stems.items() if re.search(rf"\b{re.escape(stem)}\b", request.text, re.IGNORECASE)]
    return found[0] if len(found) == 1 else ""


def is_open_ended(request: Asked | None, files: Iterable[str], *, judged: bool) -> bool:
    """The request may mean other files than these: it asks for tests, names one that is not among them, or names none
    and is not judged by the tests, whose output has led to these."""
    shown = list(files)
    if request is None or not shown or is_question(request.text):
        return False
    named, missing = _named(request, shown)
    return bool(missing) or (is_for_tests(request.text) if judged else not named)


def _named(request: Asked | None, shown: Sequence[str]) -> tuple[list[str], list[str]]:
    """Of the files that the request names: those that are shown, and the others that it may want to be written."""
    if request is None or is_question(request.text):
        return [], []
    paths = [path.removeprefix("./") for path in dict.fromkeys(PATH.findall(request.text)) if FILE.fullmatch(path)]
    paths += [path for path in _to_make(request.text, shown) if path not in paths]
    said = [path for path in shown if any(path == name or path.endswith(f"/{name}") for name in paths)]
    missing = [name for name in paths if not any(path == name or path.endswith(f"/{name}") for path in shown)]
    return said, missing if is_for_tests(request.text) else code_among(missing)


def _to_make(text: str, shown: Sequence[str]) -> list[str]:
    """The files that the request wants made by the names people call them, unless one of that name is there."""
    words = [word.lower() for word in _NEW.findall(text)]
    there = {path.rpartition("/")[2].lstrip(".").partition(".")[0].lower() for path in shown}
    return [_CALLED.get(word, f".{word}") for word in dict.fromkeys(words) if word not in there]


def code_files_in_words(files: Iterable[str]) -> str:
    """The code that is to be worked on, in words."""
    paths = list(files)
    code = target_files(paths)
    if not code and paths:
        return f"The code that {_either(paths)} asks for"
    return f"The code in {_either(code)}" if code else "The code"


def is_unfinished(files: Mapping[str, str]) -> bool:
    """The code that the files (path -> content) are about is still to be written, or some of it."""
    code = target_files(files)
    return any(is_stub(files[path]) for path in code) or (not code and bool(files))


def _either(paths: Iterable[str]) -> str:
    return " or ".join(f"`{path}`" for path in paths)


def files_section(files: Mapping[str, str], judged: bool, part_of: str = "") -> str:
    """All files. Where tests judge, what stays as it is comes first, so that it need not be read again: documents,
    quoted, then tests, then the code. Of the file `part_of` only a part is there."""
    if not judged:
        return "".join(
            _block(path, content, "Of the file" if path == part_of else "The file") for path, content in files.items()
        )
    code = target_files(files)
    around = [path for path in files if path not in code]
    documents = [_quote(path, files[path]) for path in around if DOCUMENT.fullmatch(path)]
    tests = [_block(path, _head(files[path])) for path in around if not DOCUMENT.fullmatch(path)]
    blocks = [_block(path, files[path], "Of the file" if path == part_of else "The file") for path in code]
    return "".join([*documents, *tests, *blocks])


def _quote(path: str, content: str) -> str:
    lines = "\n".join(f"> {line}".rstrip() for line in _clipped(content.strip()).splitlines())
    return f"What `{path}` says:\n{lines}\n\n"


def _block(path: str, content: str, what: str = "The file") -> str:
    """The file in a fence that no line of it closes: what is read back is what was shown."""
    return f"{what} `{path}`:\n{fenced(content.rstrip(chr(10)) + chr(10))}\n\n"


def _head(text: str) -> str:
    """The beginning of a test, in whole lines."""
    return text if len(text) <= TEST_LIMIT else f"{text[:TEST_LIMIT].rpartition(chr(10))[0]}\n..."


def _clipped(text: str) -> str:
    """Two thirds of the room for the beginning, one for the end, in whole lines."""
    if len(text) <= DOCUMENT_LIMIT:
        return text
    head, tail = text[: DOCUMENT_LIMIT * 2 // 3], text[-(DOCUMENT_LIMIT // 3) :]
    return f"{head.rpartition(chr(10))[0] or head}\n[...]\n{tail.partition(chr(10))[2] or tail}"
