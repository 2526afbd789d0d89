"""The command line. `app.py` declares the commands, the other modules carry them out; each is imported when its
command is called. Default file: `run.py`.

Between cli.py, which only parses, and wiring and ui, which do the work. Each module is imported when its command is
called, so that `fugu --help` stays quick.
"""
