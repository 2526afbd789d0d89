"""Makes a Python run use one copy of a repository, and records which code it loaded from another
one.

Copied as sitecustomize.py into a folder on PYTHONPATH, beside note.json with `old` and `new`, the
two folders, `linked`, the paths in the old one that the new one only links to, and `report`, the
file to write to. Paths of the old folder that an editable installation put on sys.path are replaced
by those of the new one. Imports nothing of fugu; for Python 3.7 on.
"""

from __future__ import annotations

import atexit
import importlib
import json
import os
import sys
from pathlib import Path

_HERE = Path(__file__).absolute().parent
BEGUN = "begun"
"""The first line of the report, by which one can see that this module was loaded."""


def _redirected(path: str, old: str, new: str) -> str:
    """Return the path in the folder `new` if it is in the folder `old`, else the path itself."""
    if path == old or path.startswith(old + os.sep):
        return new + path[len(old) :]
    return path


def _report_loaded(old: str, linked: list[str], report: str) -> None:
    """Add the files of the old folder that were loaded to the report. Linked paths are left out."""
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    loaded = sorted({os.path.realpath(file) for file in files if isinstance(file, str)})
    linked_paths = [os.path.realpath(f"{old}{os.sep}{name}") for name in linked]
    linked_folders = tuple(path + os.sep for path in linked_paths)
    with Path(report).open("a", encoding="utf-8", errors="surrogateescape") as stream:
        for file in loaded:
            is_linked = file in linked_paths or file.startswith(linked_folders)
            if file.startswith(old + os.sep) and not is_linked:
                stream.write(file + "\n")


def _begin() -> None:
    note = json.loads((_HERE / "note.json").read_text(encoding="utf-8"))
    with Path(note["report"]).open("a", encoding="utf-8") as file:
        file.write(BEGUN + "\n")
    atexit.register(_report_loaded, note["old"], note["linked"], note["report"])
    # run the sitecustomize module that this one hides
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
        sys.path[index] = _redirected(path, old, new)
    for name, module in list(sys.modules.items()):
        mapping = getattr(module, "MAPPING", None)
        if name.startswith("__editable__") and isinstance(mapping, dict):
            for key, path in mapping.items():
                mapping[key] = _redirected(path, old, new)


if __name__ == "sitecustomize":
    _begin()
