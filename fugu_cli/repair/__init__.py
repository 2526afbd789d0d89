"""Models that cannot call tools: localization, edits parsed from what they write, validation by the
tests. Begin with harness.py, which wiring chooses for agents whose protocol is `text` or `schema`;
then search.py, which says what they are asked for next. syntax.py, the definitions of a file, is
the lowest. Only this folder reads requests.
"""
