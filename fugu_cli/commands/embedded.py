"""Are the embedded models that the pool names on this machine? Said before the work begins, not in the middle of it."""

from __future__ import annotations

from collections.abc import Mapping

from fugu_cli.config import Config
from fugu_cli.config.pool import pool
from fugu_cli.errors import ModelFileError
from fugu_cli.models.store import Store


def needed(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Names of the embedded models that the pool uses, each once; none of them for a pool of other agents."""
    store = Store(config.cache)
    known = {model.name for model in store.known}
    used = [entry.model for entry in pool(config, environ) if entry.provider == "local"]
    return tuple(dict.fromkeys(name for name in used if name in known))


def check_embedded(config: Config, environ: Mapping[str, str]) -> tuple[str, ...]:
    """A sentence when some of the needed models are missing. Raises ModelFileError when nobody could work without."""
    store = Store(config.cache)
    missing = [name for name in needed(config, environ) if store.find(name) is None]
    if not missing:
        return ()
    size = sum(store.model(name).size for name in missing) / 1e9
    words = f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not on this machine yet ({size:.1f} GB)"
    able = [entry for entry in pool(config, environ) if entry.provider != "local" or entry.model not in missing]
    if not able:
        raise ModelFileError(words, hint="fetch with `fugu models pull`, or set a provider's key (`fugu help pool`)")
    return (f"{words}; the others go on without. `fugu models pull` fetches",)
