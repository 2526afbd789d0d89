"""Readers of the log: text for a terminal, JSON for programs, the trace, the inline mode and the
full screen. None of them changes a session. Read transcript.py first, then event_text.py; tui/ is
the interactive interface.

`headless.py` is the output of `fugu run`. `formatting.py` formats numbers, money and time.
Nothing in here decides, knows a provider, or holds state that the log does not.
"""
