"""torch's libraries, mapped without stopping the other threads.

Before the first `import torch` of a process that has a screen to keep alive: an import maps and links hundreds of
megabytes while it holds the interpreter, and no key is answered for a third of a second. The same call made through
ctypes holds nothing; the import finds it done. Knows no coordinator.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import sys
from pathlib import Path

LIBRARIES = ("libtorch_global_deps.so", "libtorch_python.so")


def preload() -> None:
    """Map them. Does nothing where torch is loaded or missing, or where libraries are called otherwise."""
    found = None if "torch" in sys.modules or os.name != "posix" else importlib.util.find_spec("torch")
    if found is None or found.submodule_search_locations is None:
        return
    folder = Path(found.submodule_search_locations[0]) / "lib"
    system = ctypes.CDLL(None)  # a call through it gives the interpreter away
    system.dlopen.restype = ctypes.c_void_p
    system.dlopen.argtypes = [ctypes.c_char_p, ctypes.c_int]
    for name in LIBRARIES:
        if (folder / name).is_file():
            mode = os.RTLD_NOW | (os.RTLD_GLOBAL if name == LIBRARIES[0] else 0)  # as torch itself asks for them
            system.dlopen(os.fsencode(folder / name), mode)
