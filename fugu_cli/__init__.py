"""fugu: a coding agent for the terminal that works with a pool of models. Importing this does
nothing.

From Python: `run`, `run_sync`, `RunOptions` and `FuguError` (`python_api.py`), imported at their
first use.
"""

from __future__ import annotations

TYPE_CHECKING = False  # not from typing, which takes as long as Python's own start
if TYPE_CHECKING:
    from fugu_cli.errors import FuguError
    from fugu_cli.python_api import RunOptions, run, run_sync

__version__ = "0.2.0"
__all__ = ["FuguError", "RunOptions", "__version__", "run", "run_sync"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'fugu_cli' has no attribute {name!r}")
    from fugu_cli import errors, python_api

    return getattr(errors if name == "FuguError" else python_api, name)
