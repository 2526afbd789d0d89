"""`fugu models`: the embedded models that are here, and how they get here. Over fugu_cli.models.store."""

from __future__ import annotations

import asyncio
import glob
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fugu_cli.commands.embedded import needed
from fugu_cli.commands.here import here, newline
from fugu_cli.config.pool import EMBEDDED
from fugu_cli.errors import ModelFileError
from fugu_cli.models.progress import Progress
from fugu_cli.models.store import Store
from fugu_cli.ui.clean import cut
from fugu_cli.ui.pen import Pen


def show() -> int:
    """A line a model: name, size, here or not, licence, what it is."""
    store = _store()
    width = max(len(model.name) for model in store.known)
    for model in store.known:
        state = "here" if store.find(model.name) else "not here"
        newline(f"{model.name:<{width}}  {_size(model.size):>7}  {state:<8}  {model.licence}  {model.title}")
    return 0


def pull(names: Sequence[str]) -> int:
    """Fetch the named models; without names those the pool uses, or the embedded pool's."""
    loaded = here()
    store = Store(loaded.config.cache)
    wanted = list(dict.fromkeys(names or needed(loaded.config, os.environ) or (entry.model for entry in EMBEDDED)))
    missing = [name for name in wanted if store.find(name) is None]
    if missing:
        total = sum(store.model(name).size for name in missing)
        print(f"fetching {', '.join(missing)}: {_size(total)} into {store.folder}", file=sys.stderr)
    for name in wanted:
        newline(str(asyncio.run(store.pull(name, Bar()))))
    return 0


def remove(names: Sequence[str]) -> int:
    """Delete models, with what was made of them (the coordinator's backbone); says how much room that made."""
    cache = here().config.cache
    store = Store(cache)
    for name in names:
        store.model(name)  # a name that does not exist is said before anything is deleted
    for name in names:
        newline(f"{name}: {_size(store.remove(name) + _converted(cache, name))} freed")
    return 0


def _converted(cache: Path, name: str) -> int:
    """Delete the backbones that were converted from a model; how many bytes they had."""
    freed = 0
    for folder in (cache / "backbones").glob(f"{glob.escape(name)}-[0-9]*"):
        if folder.is_dir() and not folder.is_symlink():
            freed += sum(file.stat().st_size for file in folder.iterdir() if file.is_file())
            shutil.rmtree(folder, ignore_errors=True)
    return freed


def path(name: str) -> int:
    """Print a model's file, or the folder of all. Raises ModelFileError when it is not here."""
    store = _store()
    if not name:
        newline(str(store.folder))
        return 0
    found = store.find(name)
    if found is None:
        raise ModelFileError(f"{name} is not on this machine yet", hint=f"fetch it with `fugu models pull {name}`")
    newline(str(found))
    return 0


class Bar:
    """Progress on standard error: one line that moves on a terminal, a line every ten seconds in a log."""

    def __init__(self) -> None:
        self._pen = Pen(sys.stderr)
        self._said = ""
        self._at = 0.0

    def __call__(self, progress: Progress) -> None:
        now = time.monotonic()
        done = progress.done >= progress.total
        pause = 0.1 if self._pen.terminal else 10.0
        if not done and progress.what == self._said and now - self._at < pause:
            return
        self._said, self._at = progress.what, now
        share = progress.done / progress.total if progress.total else 1.0
        filled = "#" * int(share * 24)
        line = f"[{filled:<24}] {share:4.0%}  {_size(progress.done)} of {_size(progress.total)}  {progress.what}"
        if self._pen.terminal:
            self._pen.raw("\r\x1b[K" + cut(line, 110) + ("\n" if done else ""))
        else:
            self._pen.line(line)


def _store() -> Store:
    return Store(here().config.cache)


def _size(size: int) -> str:
    return f"{size / 1e9:.2f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"
