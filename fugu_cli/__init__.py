"""fugu: a coding agent for the terminal that works with a pool of models. Importing this does nothing."""

from __future__ import annotations

__version__ = "0.1.0"
