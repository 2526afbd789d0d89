"""The command line. `app.py` declares the commands, the other modules carry them out. Start with
`run.py`.

Above wiring and ui, which do the work. Each module is imported when its command is called, so that
`fugu --help` stays quick.
"""
