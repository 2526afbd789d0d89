"""What a small model need not write: the code up to the body of the function that it is asked for.

Beside anew.py, above stubs.py. A model copies the head of a function and what is said of it before it comes to the
body, at half the pace at which it reads; where it goes on from there, what it is asked for is all it writes (figures:
tests/benchmarks/results/infilling.md). Pure.
"""

from __future__ import annotations

import re

from fugu_cli.repair.stubs import body_to_write

_HEAD = re.compile(r"\s*(?:async )?def \w")


def of_anew(shown: str, placeholder: str) -> str:
    """The lines above the one that stands for what is to be written; "" where nothing is said there of
    the function: below a bare head a model puts a docstring of its own, which takes as long."""
    lines = shown.split("\n")
    at = next((number for number, line in enumerate(lines) if line.strip() == placeholder), 0)
    return _told(lines[:at])


def of_stub(path: str, content: str) -> str:
    """The same of a file of Python that ends with a function that is still to be written, and has no other."""
    lines = content.rstrip().split("\n")
    return _told(lines[:-1]) if path.endswith(".py") and body_to_write(lines) == len(lines) - 1 else ""


def _told(lines: list[str]) -> str:
    """The lines with what they say of the function: Python says it below the head, other languages above; so does a
    Python file that has a comment or a text right above it."""
    said = len(lines) > 1 and (not lines[-1].rstrip().endswith(":") or _said_above(lines))
    return "\n".join(lines) + "\n" if said else ""


def _said_above(lines: list[str]) -> bool:
    head = max((number for number, line in enumerate(lines) if _HEAD.match(line)), default=0)
    above = [line.strip() for line in lines[:head] if line.strip() and not line.lstrip().startswith("@")]
    return bool(above) and above[-1].startswith(("#", '"""', "'''")) | above[-1].endswith(('"""', "'''"))
