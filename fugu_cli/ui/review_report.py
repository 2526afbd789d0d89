"""The findings of a review as text, JSON and SARIF 2.1.0. Pure functions."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args
from urllib.parse import quote

from pydantic import BaseModel

from fugu_cli import __version__
from fugu_cli.formatting import flatten, known_cost, plural, sanitize

Severity = Literal["error", "warning", "note"]
Category = Literal["bug", "security", "data-loss", "compatibility", "performance", "tests"]
CATEGORIES: dict[Category, str] = {
    "bug": "The change does something wrong",
    "security": "The change opens a security hole",
    "data-loss": "The change can lose data",
    "compatibility": "The change breaks an interface",
    "performance": "The change wastes time or memory",
    "tests": "A test does not test what it says",
}
LEVELS: tuple[Severity, ...] = get_args(Severity)
SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class ReportedFinding(BaseModel, frozen=True, extra="forbid"):
    """One finding, at lines of a file as it is after the change."""

    file: str
    line: int
    end_line: int
    severity: Severity
    category: Category
    title: str
    explanation: str


class ReviewFinding(ReportedFinding, frozen=True):
    """A finding with the reason for which a second agent confirmed it."""

    reason: str = ""


@dataclass(frozen=True)
class Review:
    """The confirmed findings, the worst first, with the number of all findings, the agents that
    found and judged them, and the cost. `unfinished` says what was not reviewed, "" if everything
    was.
    """

    findings: tuple[ReviewFinding, ...]
    reported: int
    finder: str
    verifier: str
    sessions: tuple[str, ...] = ()
    dollars: float = 0.0
    unpriced: bool = False
    unfinished: str = ""
    estimated: bool = False


def review_text(review: Review) -> str:
    """Return the findings for people, in the form `FILE:LINE: ` that editors jump to."""
    lines: list[str] = []
    for finding in review.findings:
        lines += [
            f"{sanitize(finding.file)}:{finding.line}: {finding.severity}: {flatten(finding.title)}"
        ]
        lines += [f"    {line}" for line in sanitize(finding.explanation).strip().splitlines()]
        lines += [f"    confirmed by {review.verifier}: {flatten(finding.reason)}", ""]
    return "\n".join([*lines, *_summary(review)])


def _summary(review: Review) -> list[str]:
    if not review.finder:
        return [review.unfinished or "nothing to review"]
    text = f"{plural(len(review.findings), 'finding')}: {review.finder} reported {review.reported}"
    if review.verifier:
        same = (
            " (in a session of its own: the pool has no other agent)"
            if review.verifier == review.finder
            else ""
        )
        text += f", {review.verifier} confirmed {len(review.findings)}{same}"
    cost = known_cost(review.dollars, unpriced=review.unpriced, estimated=review.estimated)
    lines = [f"{text}; {cost}"]
    return [*lines, f"not finished: {review.unfinished}"] if review.unfinished else lines


def review_object(review: Review) -> dict[str, object]:
    """Return the review for programs."""
    return {
        "findings": [finding.model_dump() for finding in review.findings],
        "reported": review.reported,
        "finder": review.finder,
        "verifier": review.verifier,
        "sessions": list(review.sessions),
        "cost_usd": round(review.dollars, 8),
        "unfinished": review.unfinished or None,
    }


def review_sarif(review: Review) -> dict[str, object]:
    """Return the review for code scanning: one run of one tool, whose rules are the kinds of
    findings.
    """
    named = list(CATEGORIES)
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "fugu",
                        "version": __version__,
                        "semanticVersion": __version__,
                        "rules": [
                            {"id": name, "shortDescription": {"text": description}}
                            for name, description in CATEGORIES.items()
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "invocations": [
                    {
                        "executionSuccessful": not review.unfinished,
                        "toolExecutionNotifications": _notifications(review),
                    }
                ],
                "results": [_result(finding, named) for finding in review.findings],
                "properties": {
                    "finder": review.finder,
                    "verifier": review.verifier,
                    "reported": review.reported,
                },
            }
        ],
    }


def _notifications(review: Review) -> Sequence[dict[str, object]]:
    return (
        [{"level": "warning", "message": {"text": review.unfinished}}] if review.unfinished else []
    )


def _result(finding: ReviewFinding, named: Sequence[Category]) -> dict[str, object]:
    location = {
        "artifactLocation": {"uri": quote(os.fsencode(finding.file)), "uriBaseId": "%SRCROOT%"},
        "region": {"startLine": finding.line, "endLine": finding.end_line},
    }
    digest = hashlib.sha256(
        f"{finding.file}\0{finding.category}\0{finding.title}".encode("utf-8", "replace")
    )
    return {
        "ruleId": finding.category,
        "ruleIndex": named.index(finding.category),
        "level": finding.severity,
        "message": {"text": f"{finding.title}\n\n{finding.explanation}".strip()},
        "locations": [{"physicalLocation": location}],
        "partialFingerprints": {"findingHash/v1": digest.hexdigest()},
        "properties": {"confirmed": finding.reason},
    }


def worst_first(findings: Sequence[ReviewFinding]) -> tuple[ReviewFinding, ...]:
    """Sort findings by severity, then by file and line."""
    return tuple(
        sorted(
            findings,
            key=lambda finding: (LEVELS.index(finding.severity), finding.file, finding.line),
        )
    )
