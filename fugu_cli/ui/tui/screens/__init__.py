"""What fills the terminal: `main.py` is the one people work in; the others lie over it and are closed with Escape."""

NARROW, SHORT = 90, 20
"""Columns and lines below which parts stand one below the other, or are left out."""
