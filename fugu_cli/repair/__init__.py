"""Models that cannot call tools, the embedded ones above all: what they are shown, asked for, and how it is judged.

`harness.py` first: how a turn goes, chosen by wiring for agents of the protocols `text` (text.py) and `schema`
(schema.py). The files and tests that matter are read for the model (localization.py), one edit after the other is
asked for (aims.py, ways.py, prompt.py), and what the tests refuse is rolled back. Only this folder reads what a request
says (intent.py).
"""
