"""Makes a Python run use one copy of a repository, and records which code it loaded from another
one.

Copied as sitecustomize.py into a folder on PYTHONPATH, beside a note (JSON) with `old` and `new`,
the two folders, `linked`, the paths in the old one that the new one only links to, and `told`, the
file to write to. Paths of the old folder that an editable installation put on sys.path lead to the
new one. Imports nothing of fugu; for Python 3.7 on.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
from pathlib import Path

_HERE = Path(__file__).absolute().parent


def _moved(path: str, old: str, new: str) -> str:
    return new + path[len(old) :] if path == old or path.startswith(old + os.sep) else path


def _tell(old: str, linked: list[str], report: str) -> None:
    """Write down the files of the old folder that were loaded, but for those that are linked to."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    loaded = sorted({os.path.realpath(file) for file in files if isinstance(file, str)})
    exact = [os.path.realpath(f"{old}{os.sep}{name}") for name in linked]
    spared = tuple(path + os.sep for path in exact)
    inside = (file for file in loaded if file.startswith(old + os.sep))
    wrong = [file for file in inside if file not in exact and not file.startswith(spared)]
    with Path(report).open("a", encoding="utf-8", errors="surrogateescape") as stream:
        stream.write("".join(file + "\n" for file in wrong))


def _begin() -> None:
    note = json.loads((_HERE / "note.json").read_text(encoding="utf-8"))
    with Path(note["told"]).open("a", encoding="utf-8") as file:
        file.write("begun\n")
    atexit.register(_tell, note["old"], note["linked"], note["told"])
    # run the sitecustomize that this one stands before
    sys.path[:] = [path for path in sys.path if Path(path).absolute() != _HERE]
    this = sys.modules.pop("sitecustomize", None)
    try:
        importlib.import_module("sitecustomize")
    except ImportError:
        if this is not None:
            sys.modules["sitecustomize"] = this
    # redirect paths, and the finders that setuptools writes for editable installations
    old, new = note["old"], note["new"]
    for index, path in enumerate(sys.path):
        sys.path[index] = _moved(path, old, new)
    for name, module in list(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None) if name.startswith("__editable__") else None
        if isinstance(mapping, dict):
            mapping.update({key: _moved(path, old, new) for key, path in mapping.items()})


if __name__ == "sitecustomize":
    _begin()
