"""Collect requests whose kind their source tells, for training and judging the kind head.

    python -m tests.benchmarks.kinds_data MIRRORS TASKS OUT.jsonl

`MIRRORS` holds bare clones as `owner+name/repo`, `TASKS` the files mbpp.jsonl and gsm8k.jsonl.
Each line of the result is {"text", "kind", "language", "source", "part"}; `part` is "train", or
"source" and "language" for what is held out because nothing of its source or of its language is
trained on. The texts are not kept in this repository; the sources and their licences are below.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.kinds_requests import REQUESTS, REWORDINGS

HELD_OUT_LANGUAGES = frozenset({"it", "ko", "pt", "ru"})
COMMIT_KINDS = {
    "fix": "bug_fix",
    "feat": "feature",
    "refactor": "refactoring",
    "test": "tests",
    "docs": "documentation",
}
SUBJECT = re.compile(
    r"^(?P<type>[a-z]+)(?:\([^)]*\))?: *(?P<text>.*?)(?: *[(\[][^()\[\]]*#\d+[^()\[\]]*[)\]])*$"
)
OWN_WEIGHT = 4.0
"""Of a request written for this purpose beside a commit's subject, which often does not tell the
kind that its author gave it."""
MINIMUM_CHARACTERS, MAXIMUM_CHARACTERS = 8, 300


@dataclass(frozen=True)
class Source:
    """A repository, its licence, the language of its texts, and how many texts a kind may have."""

    repository: str
    licence: str
    language: str
    texts: int
    held_out: bool = False
    types: tuple[str, ...] = tuple(COMMIT_KINDS)
    style_is_interface: bool = False


COMMITS = (
    Source("vuejs/core", "MIT", "en", 35),
    Source("angular/angular-cli", "MIT", "en", 35),
    Source("soybeanjs/soybean-admin", "MIT", "zh", 30, types=("fix", "feat", "docs")),
    Source("SocialGouv/code-du-travail-numerique", "Apache-2.0", "fr", 30),
    Source("kufu/smarthr-ui", "MIT", "ja", 30),
    Source("ant-design/ant-design", "MIT", "en", 60, types=(), style_is_interface=True),
    Source("conventional-changelog/commitlint", "MIT", "en", 25, held_out=True),
    Source("ElemeFE/element", "MIT", "en", 25, held_out=True, types=(), style_is_interface=True),
    Source(
        "Tencent/tdesign-vue-next", "MIT", "zh", 20, held_out=True, types=("fix", "feat", "docs")
    ),
    Source("zenn-dev/zenn-editor", "MIT", "ja", 20, held_out=True),
    Source("core-ds/core-components", "MIT", "ru", 20, held_out=True),
    Source("BrasilAPI/BrasilAPI", "MIT", "pt", 20, held_out=True),
)
TLDR = {"en": "", "de": ".de", "fr": ".fr", "es": ".es", "ja": ".ja", "zh": ".zh"}
TLDR_HELD_OUT = {"ko": ".ko", "pt": ".pt_BR", "ru": ".ru", "it": ".it"}
"""tldr-pages/tldr, CC-BY-4.0: folders of pages by language."""


def main(mirrors: Path, tasks: Path, target: Path) -> None:
    """Write the rows of all sources."""
    rows = [*_commits(mirrors), *_shell(mirrors), *_data(mirrors), *_algorithms(mirrors, tasks)]
    rows += [*_questions(mirrors), *_own_requests()]
    seen = set()
    with target.open("w", encoding="utf-8") as file:
        for row in rows:
            if row["text"] not in seen:
                seen.add(row["text"])
                file.write(json.dumps(row, ensure_ascii=False) + "\n")


def _commits(mirrors: Path) -> Iterator[dict[str, str | float]]:
    for source in COMMITS:
        by_kind: dict[str, list[str]] = {}
        for subject in _git(
            mirrors, source.repository, "log", "--no-merges", "--format=%s"
        ).splitlines():
            kind = _kind_of_subject(subject, source)
            match = SUBJECT.match(subject) or re.match(r"^[^:]*: *(?P<text>.*)$", subject)
            if kind is None or match is None:
                continue
            text = match["text"]
            if source.language != "en" and not _is_in(text, source.language):
                continue
            by_kind.setdefault(kind, []).append(text)
        for kind, texts in by_kind.items():
            part = "train"
            if source.held_out:
                part = "language" if source.language in HELD_OUT_LANGUAGES else "source"
            yield from _rows(texts, source.texts, kind, source.language, source.repository, part)


def _kind_of_subject(subject: str, source: Source) -> str | None:
    if source.style_is_interface:
        match = re.match(r"^(style|theme(?:-chalk)?)(\([^)]*\))?:", subject, re.IGNORECASE)
        return "interface" if match else None
    commit = SUBJECT.match(subject)
    return COMMIT_KINDS.get(commit["type"]) if commit and commit["type"] in source.types else None


def _is_in(text: str, language: str) -> bool:
    """Return whether the letters of the text are those of the language."""
    letters = {"zh": "[\u4e00-\u9fff]", "ja": "[\u3040-\u30ff]", "ru": "[\u0400-\u04ff]"}
    found = re.findall(letters.get(language, "[\u00c0-\u00ff]"), text)
    return len(found) >= (5 if language in letters else 1)


def _shell(mirrors: Path) -> Iterator[dict[str, str | float]]:
    for language, suffix in {**TLDR, **TLDR_HELD_OUT}.items():
        folders = [f"pages{suffix}/common", f"pages{suffix}/linux"]
        names = _git(mirrors, "tldr-pages/tldr", "ls-tree", "-r", "--name-only", "HEAD", *folders)
        texts = []
        for name in _drawn(names.splitlines(), 40):
            page = _git(mirrors, "tldr-pages/tldr", "show", f"HEAD:{name}")
            examples = re.findall(r"^- (.*):$", page, re.MULTILINE)
            texts += [re.sub(r"\[(\w)\]", r"\1", example) for example in examples[:2]]
        part = "language" if language in HELD_OUT_LANGUAGES else "train"
        size = 45 if language == "en" else 14
        yield from _rows(texts, size, "shell", language, "tldr-pages/tldr", part)


def _data(mirrors: Path) -> Iterator[dict[str, str | float]]:
    file = "HEAD:data/questions_gen_postgres.csv"
    table = csv.DictReader(io.StringIO(_git(mirrors, "defog-ai/sql-eval", "show", file)))
    texts = [row["question"] for row in table]
    yield from _rows(texts, 70, "data", "en", "defog-ai/sql-eval", "train")


def _algorithms(mirrors: Path, tasks: Path) -> Iterator[dict[str, str | float]]:
    for name, part, size in (("mbpp", "train", 45), ("gsm8k", "source", 15)):
        lines = (tasks / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        texts = [json.loads(line)["question"] for line in lines]
        yield from _rows(texts, size, "algorithms", "en", name, part)
    repository = "exercism/problem-specifications"
    names = _git(mirrors, repository, "ls-tree", "-r", "--name-only", "HEAD", "exercises")
    texts = []
    for name in _drawn([n for n in names.splitlines() if n.endswith("/description.md")], 60):
        body = _git(mirrors, repository, "show", f"HEAD:{name}")
        paragraphs = [part for part in re.split(r"\n\s*\n", body) if not part.startswith("#")]
        texts += [" ".join(paragraph.split()) for paragraph in paragraphs[:1]]
    yield from _rows(texts, 40, "algorithms", "en", repository, "train")


def _questions(mirrors: Path) -> Iterator[dict[str, str | float]]:
    repository = "sudheerj/reactjs-interview-questions"
    readme = _git(mirrors, repository, "show", "HEAD:README.md")
    texts = re.findall(r"^\|\s*\d+\s*\| \[([^\]]*)\]", readme, re.MULTILINE)
    yield from _rows(texts, 60, "question", "en", repository, "train")
    repository = "yangshun/front-end-interview-handbook"
    readme = _git(mirrors, repository, "grep", "-hE", r"^#+ .*\?$", "HEAD", "--", "*.mdx", "*.md")
    texts = [line.lstrip("# ") for line in readme.splitlines()]
    yield from _rows(texts, 25, "question", "en", repository, "source")


def _own_requests() -> Iterator[dict[str, str | float]]:
    for language, kinds in REQUESTS.items():
        part = "language" if language in HELD_OUT_LANGUAGES else "train"
        for kind, texts in kinds.items():
            for text in texts:
                yield _row(text, kind, language, "own", part)
    for language, (requests, frames) in REWORDINGS.items():
        for kind, text in requests:
            for frame in frames:
                yield _row(frame.format(text), kind, language, f"rewording of {text}", "rewording")


def _rows(
    texts: Iterable[str], size: int, kind: str, language: str, source: str, part: str
) -> Iterator[dict[str, str | float]]:
    usable = [text for text in texts if MINIMUM_CHARACTERS <= len(text) <= MAXIMUM_CHARACTERS]
    for text in _drawn(sorted(set(usable)), size):
        yield _row(text, kind, language, source, part)


def _row(text: str, kind: str, language: str, source: str, part: str) -> dict[str, str | float]:
    weight = OWN_WEIGHT if source == "own" else 1.0
    return {
        "text": text,
        "kind": kind,
        "language": language,
        "source": source,
        "part": part,
        "weight": weight,
    }


def _drawn(texts: Iterable[str], size: int) -> list[str]:
    """Return `size` of the texts in an order that does not depend on the machine."""
    return sorted(texts, key=lambda text: hashlib.sha256(text.encode()).hexdigest())[:size]


def _git(mirrors: Path, repository: str, *arguments: str) -> str:
    folder = mirrors / repository.replace("/", "+") / "repo"
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]))
